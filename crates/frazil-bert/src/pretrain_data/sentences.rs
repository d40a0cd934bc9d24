//! Paragraphs to sentences, for text that has no sentence on each line.
//!
//! A sentence ends with `.`, `!` or `?` and what closes behind it, if space and something that can
//! begin a sentence follow; a full stop behind an initial or a common abbreviation ends none.
//! Chinese and Japanese stops need no space. Left out: anything learnt. The next-sentence task
//! wants cuts that are mostly right, always the same, and made at the speed of reading.

/// Words before a full stop that ends no sentence, in lower case, sorted.
const ABBREVIATIONS: [&str; 50] = [
    "adm", "al", "approx", "apr", "aug", "brig", "c", "ca", "capt", "cf", "cmdr", "co", "col",
    "corp", "dec", "dept", "dr", "e.g", "ed", "eds", "feb", "fig", "fr", "ft", "gen", "gov", "i.e",
    "inc", "jan", "jr", "lt", "ltd", "maj", "mr", "mrs", "ms", "mt", "no", "nov", "oct", "pp",
    "prof", "rev", "sen", "sept", "sgt", "sr", "st", "vol", "vs",
];

/// The sentences of a paragraph, in order, without the space between them.
pub(crate) fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let mut rest = paragraph.trim();
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = end_of_first(rest);
        let (sentence, more) = rest.split_at(end);
        rest = more.trim_start();
        Some(sentence)
    })
}

/// The byte behind the first sentence.
fn end_of_first(text: &str) -> usize {
    let mut marks = text.char_indices().peekable();
    while let Some((at, mark)) = marks.next() {
        let needs_space = match mark {
            '.' | '!' | '?' => true,
            '。' | '！' | '？' => false,
            _ => continue,
        };
        let mut end = at + mark.len_utf8();
        let mut plain_stop = mark == '.';
        while let Some(&(next, c)) = marks.peek().filter(|(_, c)| closes(*c)) {
            plain_stop &= c == '.'; // a quote or bracket ends the word before the stop
            end = next + c.len_utf8();
            marks.next();
        }
        let behind = &text[end..];
        let follows = behind.trim_start();
        if follows.is_empty() {
            return text.len();
        }
        if needs_space && follows.len() == behind.len() {
            continue;
        }
        if needs_space && !begins(follows) {
            continue;
        }
        if plain_stop && abbreviates(&text[..at]) {
            continue;
        }
        return end;
    }
    text.len()
}

/// What may stand between a stop and the space behind it.
fn closes(c: char) -> bool {
    matches!(
        c,
        '.' | '!'
            | '?'
            | '"'
            | '\''
            | ')'
            | ']'
            | '}'
            | '”'
            | '’'
            | '»'
            | '。'
            | '！'
            | '？'
            | '」'
    )
}

/// Whether a sentence can begin so: with a capital, a digit, or a letter that has no case, behind
/// whatever opens.
fn begins(text: &str) -> bool {
    let opens = |c: char| matches!(c, '"' | '\'' | '(' | '[' | '{' | '“' | '‘' | '«' | '「');
    let first = text.trim_start_matches(opens).chars().next();
    first.is_some_and(|c| c.is_numeric() || (c.is_alphabetic() && !c.is_lowercase()))
}

/// Whether the text ends with a word that a full stop belongs to.
fn abbreviates(text: &str) -> bool {
    let word = text.rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '"' | '“'));
    let word = word.take(1).next().unwrap_or_default();
    let mut letters = word.chars();
    // `J.` and the second of `U.S.`
    let initial = match (letters.next_back(), letters.next_back()) {
        (Some(last), None) => last.is_uppercase(),
        (Some(last), Some('.')) => last.is_alphabetic(),
        _ => false,
    };
    initial || ABBREVIATIONS.binary_search(&&*word.to_lowercase()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        sentences(text).collect()
    }

    #[test]
    fn sentences_end_where_readers_end_them() {
        assert!(ABBREVIATIONS.is_sorted());
        assert_eq!(
            cut("  Ice forms. It floats!  Does it? Yes "),
            ["Ice forms.", "It floats!", "Does it?", "Yes"]
        );
        assert_eq!(
            cut("He said \"no.\" She left (at last.) In 1894. 7 men came."),
            ["He said \"no.\"", "She left (at last.)", "In 1894.", "7 men came."]
        );
        assert_eq!(cut("冰浮在水上。它冷。"), ["冰浮在水上。", "它冷。"]);
        assert_eq!(cut("And so on... Then it ended."), ["And so on...", "Then it ended."]);
        assert!(cut(" \t").is_empty());
    }

    #[test]
    fn stops_inside_a_sentence_are_none() {
        for whole in [
            "Mr. Smith met Dr. J. R. Jones of the U.S. Navy at 3.14 p.m. on Jan. 2",
            "The river (cf. Lena, et al. 1990) freezes, e.g. in winter",
            "Version 2.0 of example.com is out",
            "It rose 5.5 percent. or so they said",
        ] {
            assert_eq!(cut(whole), [whole]);
        }
    }

    #[test]
    fn nothing_is_lost_but_space() {
        let text = "A. B? \"C\" d.e. F... g! H.";
        let joined: String = cut(text).concat();
        let dense = |text: &str| text.replace(' ', "");
        assert_eq!(dense(&joined), dense(text));
    }
}
