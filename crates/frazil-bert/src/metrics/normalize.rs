//! Answers before they are compared, as SQuAD's official scripts make them alike: lower case,
//! without punctuation, without articles, with single spaces.

use super::word_character::is_word_character;
use crate::tokenizer::split_whitespace;

/// The scripts' `normalize_answer`.
pub fn normalize_answer(answer: &str) -> String {
    let lower = answer.to_lowercase();
    let plain: String = lower.chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let without = remove_articles(&plain);
    let mut words = split_whitespace(&without);
    let mut text = String::with_capacity(without.len());
    text.extend(words.next());
    for word in words {
        text.push(' ');
        text.push_str(word);
    }
    text
}

/// `re.sub(r"\b(a|an|the)\b", " ", text)`: an article goes where it is all that stands between
/// characters that are not part of words.
fn remove_articles(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let is_word = is_word_character(c);
        let end = rest.find(|c| is_word_character(c) != is_word).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        result.push_str(if matches!(run, "a" | "an" | "the") { " " } else { run });
        rest = after;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_the_official_script_normalizes() {
        // What evaluate-v1.1.py makes of them under Python 3.
        for (answer, expected) in [
            ("The  Eiffel Tower!", "eiffel tower"),
            ("a an the", ""),
            ("an-other thea", "another thea"),
            ("The-a", "thea"),
            ("a\u{a0}b\u{2003}the", "b"),
            ("Γ ΟΔΟΣ", "γ οδος"),
            ("«the»", "« »"),
            ("the_a a1", "thea a1"),
            ("aé a é", "aé é"),
            ("“A”", "“ ”"),
            ("a\u{301} b", "\u{301} b"),
            ("a\u{93e} b", "\u{93e} b"),
            ("İ the", "i\u{307}"),
        ] {
            assert_eq!(normalize_answer(answer), expected, "{answer}");
        }
    }
}
