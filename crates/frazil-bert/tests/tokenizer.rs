//! The tokenizer against the original: the goldens that google-research/bert made under Python
//! 3.7, words that a Python 3.7 found in made-up texts, and what must hold for any text.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;

use frazil_bert::tokenizer::{BasicTokenizer, Casing, Encoding, Tokenizer, Vocabulary};
use frazil_tensor::testing::shared;
use proptest::prelude::*;
use serde_json::Value;

fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect()
}

fn open(path: PathBuf, casing: Casing) -> Tokenizer {
    Tokenizer::new(Arc::new(Vocabulary::open(path).unwrap()), casing).unwrap()
}

#[test]
fn goldens_of_the_original() {
    let (Some(cases), Some(uncased), Some(cased), Some(small)) = (
        shared("fixtures/tokenization/cases.json"),
        shared("data/vocab/bert_uncased_vocab.txt"),
        shared("data/vocab/bert_cased_vocab.txt"),
        shared("fixtures/data/vocab_small.txt"),
    ) else {
        return;
    };
    let cases: Value = serde_json::from_slice(&std::fs::read(cases).unwrap()).unwrap();
    let tokenizers = [
        ("uncased", open(uncased, Casing::Lower)),
        ("cased", open(cased, Casing::Keep)),
        ("small_uncased", open(small, Casing::Lower)),
    ];
    let cases = cases["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 303);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        for (casing, key) in [(Casing::Lower, "basic_uncased"), (Casing::Keep, "basic_cased")] {
            assert_eq!(BasicTokenizer::new(casing).words(text), strings(&case[key]), "{text:?}");
        }
        for (name, tokenizer) in &tokenizers {
            let expected = strings(&case[format!("{name}_tokens")]);
            assert_eq!(tokenizer.tokenize(text), expected, "{name}: {text:?}");
            let ids = serde_json::json!(tokenizer.encode(text).ids);
            assert_eq!(ids, case[format!("{name}_ids")], "{name}: {text:?}");
        }
    }
}

#[test]
fn words_are_those_of_python() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("fixtures/words.json")).unwrap();
    for case in &cases {
        let text = case[0].as_str().unwrap();
        let lower = BasicTokenizer::new(Casing::Lower).words(text);
        assert_eq!(lower, strings(&case[1]), "{text:?} ({text})");
        let kept = BasicTokenizer::new(Casing::Keep).words(text);
        assert_eq!(kept, strings(&case[2]), "{text:?} ({text})");
    }
    assert_eq!(cases.len(), 400);
}

#[test]
fn vocabularies_say_how_they_are_cased() {
    for (name, pieces, casing) in [
        ("uncased", 30522, Casing::Lower),
        ("cased", 28996, Casing::Keep),
        ("chinese", 21128, Casing::Lower),
        ("multilingual_cased", 119_547, Casing::Keep),
    ] {
        let Some(path) = shared(&format!("data/vocab/bert_{name}_vocab.txt")) else { return };
        let tokenizer = Tokenizer::open(path).unwrap();
        assert_eq!((tokenizer.vocabulary().len(), tokenizer.casing()), (pieces, casing), "{name}");
        for (id, piece) in tokenizer.vocabulary().pieces() {
            assert_eq!(tokenizer.vocabulary().id(piece), Some(id), "{name}: {piece:?}");
        }
    }
}

/// A vocabulary of all kinds of pieces, for texts of the same letters.
fn tokenizer(casing: Casing) -> Tokenizer {
    let pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "ab",
        "abc",
        "##a",
        "##b",
        "##bc",
        "##c",
        "é",
        "##é",
        "e",
        "##e",
        "A",
        "##A",
        "B",
        ".",
        "[",
        "]",
        "mask",
        "MASK",
        "一",
        "丁",
        "\u{1100}",
        "##\u{1161}",
        "ς",
        "σ",
        "##σ",
        "##ς",
        "😀",
        "abcabcabcabcabcabc",
    ];
    let vocabulary = Vocabulary::from_tokens(pieces.map(str::to_owned)).unwrap();
    Tokenizer::new(Arc::new(vocabulary), casing).unwrap()
}

#[test]
fn pieces_have_their_places_in_the_text() {
    let tokenizer = tokenizer(Casing::Lower);
    let text = "ABC\u{ad}É 一. 가e\u{301}a xx ΑΣ";
    let encoding = tokenizer.encode(text);
    let slices: Vec<&str> =
        encoding.offsets.iter().map(|&(start, end)| &text[start as usize..end as usize]).collect();
    assert_eq!(slices, ["ABC", "É", "一", ".", "가", "가", "e", "a", "xx", "ΑΣ"]);
    let pieces = tokenizer.tokenize("가 e\u{301}aÉ");
    assert_eq!(pieces, ["\u{1100}", "##\u{1161}", "e", "##a", "##e"]);
    assert_eq!(
        tokenizer.encode("가 e\u{301}aÉ").offsets,
        [(0, 3), (0, 3), (4, 5), (7, 8), (8, 10)]
    );
}

#[test]
fn words_of_more_than_200_characters_are_unknown() {
    for casing in [Casing::Lower, Casing::Keep] {
        let tokenizer = tokenizer(casing);
        assert_eq!(tokenizer.encode(&"a".repeat(200)).len(), 200);
        assert_eq!(tokenizer.tokenize(&"a".repeat(201)), ["[UNK]"]);
        let accented = "é".repeat(200);
        assert_eq!(tokenizer.encode(&accented).len(), 200);
        assert_eq!(tokenizer.encode(&(accented + "é")).offsets, [(0, 402)]);
    }
}

#[test]
fn special_pieces_are_text_unless_kept() {
    let plain = tokenizer(Casing::Lower);
    assert_eq!(plain.tokenize("a [MASK]."), ["a", "[", "mask", "]", "."]);
    let kept = plain.keep_whole(&["[MASK]", "[CLS]", "[NONE]"]);
    assert_eq!(
        kept.tokenize("[CLS]a[MASK].[NONE]"),
        ["[CLS]", "a", "[MASK]", ".", "[", "[UNK]", "]"]
    );
    assert_eq!(kept.encode("é[MASK]É").offsets, [(0, 2), (2, 8), (8, 10)]);
}

#[test]
fn a_vocabulary_needs_the_unknown_piece() {
    let vocabulary = Vocabulary::from_tokens(["a".to_owned()]).unwrap();
    let error = Tokenizer::new(Arc::new(vocabulary), Casing::Lower).unwrap_err();
    assert_eq!(error.to_string(), "the vocabulary has no `[UNK]`");
    assert!(error.hint().is_some());
}

#[test]
fn hugging_face_s_files_give_the_same_tokenizer() {
    let Some(path) = shared("data/vocab/bert_cased_vocab.txt") else { return };
    let lines = std::fs::read(path).unwrap();
    let made = frazil_bert::tokenizer_files::TokenizerFiles::new(&lines, 512).unwrap();
    let ours = Vocabulary::from_lines(&lines).unwrap();
    let theirs = Vocabulary::from_json(made.tokenizer.as_bytes()).unwrap();
    assert_eq!(theirs.casing(), Some(Casing::Keep));
    assert!(ours.pieces().eq(theirs.pieces()));
    assert_eq!(ours.longest_word(), theirs.longest_word());
}

/// Letters that the vocabulary has, those it lacks, and all that is treated specially.
fn text() -> impl Strategy<Value = String> {
    "([aAbBc.éÉe \u{301}\u{ad}一丁豈가Σ😀\u{302e}\u{1d165}\u{2028}≠—x\\[\\]]|abc|\\PC){0,40}"
}

/// The ids by the rules spelled out: the longest piece of each word first.
fn spelled_out(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    let vocabulary = tokenizer.vocabulary();
    let mut ids = Vec::new();
    for word in BasicTokenizer::new(tokenizer.casing()).words(text) {
        let letters: Vec<char> = word.chars().collect();
        let (mut from, mut pieces) = (0, Vec::new());
        while from < letters.len() {
            let found = (from + 1..=letters.len()).rev().find_map(|to| {
                let piece: String = letters[from..to].iter().collect();
                let piece = if from > 0 { format!("##{piece}") } else { piece };
                Some((vocabulary.id(&piece)?, to))
            });
            let Some((id, to)) = found.filter(|_| letters.len() <= 200) else {
                pieces = vec![tokenizer.unknown()];
                break;
            };
            pieces.push(id);
            from = to;
        }
        ids.extend(pieces);
    }
    ids
}

proptest! {
    #[test]
    fn ids_are_those_of_the_rules(text in text()) {
        for casing in [Casing::Lower, Casing::Keep] {
            let tokenizer = tokenizer(casing);
            let encoding = tokenizer.encode(&text);
            prop_assert_eq!(&encoding.ids, &spelled_out(&tokenizer, &text));
            let looked_up: Vec<u32> = tokenizer
                .tokenize(&text)
                .iter()
                .map(|piece| tokenizer.vocabulary().id(piece).unwrap())
                .collect();
            prop_assert_eq!(&encoding.ids, &looked_up);
        }
    }

    #[test]
    fn places_are_in_order_and_cover_all_words(text in text()) {
        for casing in [Casing::Lower, Casing::Keep] {
            let encoding = tokenizer(casing).encode(&text);
            prop_assert_eq!(encoding.ids.len(), encoding.offsets.len());
            let mut covered = vec![false; text.len()];
            let mut before = 0;
            for &(start, end) in &encoding.offsets {
                let (start, end) = (start as usize, end as usize);
                prop_assert!(text.get(start..end).is_some_and(|slice| !slice.is_empty()));
                prop_assert!(start >= before, "{:?}", encoding.offsets);
                before = start;
                covered[start..end].fill(true);
            }
            // What no piece covers has no words: it is space, or it is removed.
            let basic = BasicTokenizer::new(casing);
            for (at, c) in text.char_indices().filter(|(at, _)| !covered[*at]) {
                prop_assert_eq!(basic.words(&c.to_string()), Vec::<String>::new(), "{} at {}", c, at);
            }
        }
    }

    #[test]
    fn many_texts_are_as_one(texts in prop::collection::vec(text(), 0..50), threads in 0_usize..4) {
        let tokenizer = tokenizer(Casing::Lower);
        let single: Vec<Encoding> = texts.iter().map(|text| tokenizer.encode(text)).collect();
        prop_assert_eq!(tokenizer.encode_batch(&texts, threads), single);
    }
}
