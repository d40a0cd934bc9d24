//! Pre-training data against what google-research/bert's `create_pretraining_data.py` made: the
//! same instances in the same order.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::features::PretrainingFeatures;
use frazil_bert::features::pretraining::read_records;
use frazil_bert::pretrain_data::{Corpus, Format, Instances, Options, Order, ReadOptions, create};
use frazil_bert::python::random::Random;
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_tensor::testing::shared;
use serde_json::value::RawValue;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pretrain").join(name)
}

fn tokenizer(vocabulary: impl AsRef<Path>, casing: Casing) -> Tokenizer {
    Tokenizer::new(Arc::new(Vocabulary::open(vocabulary).unwrap()), casing).unwrap()
}

fn small() -> Tokenizer {
    let vocabulary =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../frazil/tests/fixtures/tf1/vocab.txt");
    tokenizer(vocabulary, Casing::Lower)
}

/// The flags of the original's README.
fn readme() -> Options {
    Options { dupe_factor: 5, ..Options::default() }
}

fn sample(tokenizer: &Tokenizer, options: &Options) -> Instances {
    let files = [fixture("text.txt")];
    let corpus = Corpus::read(&files, tokenizer, &ReadOptions::default(), |_, _| {}).unwrap();
    create(&corpus, tokenizer, options, |_, _| {}).unwrap()
}

fn assert_same(made: &Instances, golden: &[PretrainingFeatures]) {
    assert_eq!(made.len(), golden.len());
    for (index, (made, golden)) in made.iter().zip(golden).enumerate() {
        assert_eq!(&made, golden, "instance {index}");
    }
}

/// What Python's generator gave, by seed and call, as text: numbers of JSON may be read a bit off.
#[derive(serde::Deserialize)]
struct Golden {
    seeds: BTreeMap<String, BTreeMap<String, Box<RawValue>>>,
}

#[test]
fn numbers_are_pythons() {
    let text = std::fs::read_to_string(fixture("python_random.json")).unwrap();
    let golden: Golden = serde_json::from_str(&text).unwrap();
    let number = |text: &RawValue| text.get().parse::<f64>().unwrap();
    for (seed, golden) in &golden.seeds {
        let mut random = Random::new(seed.parse().unwrap());
        let mut check = |name: &str, next: &mut dyn FnMut(&mut Random) -> f64| {
            let all: Vec<Box<RawValue>> = serde_json::from_str(golden[name].get()).unwrap();
            for expected in all {
                assert_eq!(next(&mut random), number(&expected), "seed {seed}: {name}");
            }
        };
        check("random", &mut |random| random.random());
        check("randint(0,9)", &mut |random| random.between(0, 9) as f64);
        check("randint(2,125)", &mut |random| random.between(2, 125) as f64);
        check("randint(0,30521)", &mut |random| random.between(0, 30521) as f64);
        let mut items: Vec<u32> = (0..20).collect();
        random.shuffle(&mut items);
        let shuffled: Vec<u32> = serde_json::from_str(golden["shuffle(range(20))"].get()).unwrap();
        assert_eq!(items, shuffled);
        assert_eq!(random.random(), number(&golden["then random"]));
    }
}

#[test]
fn the_very_instances_of_the_original() {
    let golden = read_records(fixture("text.tfrecord")).unwrap();
    assert_eq!(golden.len(), 73);
    assert_same(&sample(&small(), &readme()), &golden);
}

#[test]
fn with_googles_vocabularies() {
    let Some(vocabularies) = shared("data/vocab") else { return };
    let uncased = tokenizer(vocabularies.join("bert_uncased_vocab.txt"), Casing::Lower);
    let golden = read_records(fixture("text_uncased.tfrecord")).unwrap();
    assert_eq!(golden.len(), 48);
    assert_same(&sample(&uncased, &readme()), &golden);

    // Whole words, short sequences, and two files that records go to in turn.
    let cased = tokenizer(vocabularies.join("bert_cased_vocab.txt"), Casing::Keep);
    let options = Options {
        max_seq_length: 64,
        max_predictions_per_seq: 10,
        random_seed: 777,
        dupe_factor: 2,
        short_seq_prob: 0.3,
        do_whole_word_mask: true,
        ..Options::default()
    };
    let files = ["0", "1"]
        .map(|part| read_records(fixture(&format!("text_cased_wwm.tfrecord-{part}"))).unwrap());
    let count = files[0].len() + files[1].len();
    let golden: Vec<_> = (0..count).map(|i| files[i % 2][i / 2].clone()).collect();
    assert_eq!(golden.len(), 33);
    assert_same(&sample(&cased, &options), &golden);
}

#[test]
fn threads_do_not_change_what_is_made() {
    let tokenizer = small();
    let made = |threads: usize, seed: i64| {
        let order = Order::Parallel { threads };
        let options = Options { order, random_seed: seed, ..readme() };
        sample(&tokenizer, &options).iter().collect::<Vec<_>>()
    };
    let one = made(1, 7);
    assert_eq!(made(2, 7), one);
    assert_eq!(made(5, 7), one);
    assert_ne!(made(2, 8), one);
    // As many as the original makes, give or take, and each as it should be.
    assert!((60..90).contains(&one.len()), "{}", one.len());
    for instance in one {
        let length = instance.features.len();
        assert!((5..=128).contains(&length));
        let wanted = ((length as f64 * 0.15).round_ties_even() as usize).clamp(1, 20);
        assert_eq!(instance.masked.len(), wanted);
        assert!(instance.masked.is_sorted_by(|a, b| a.position < b.position));
    }
}

#[test]
fn a_negative_seed_is_its_positive() {
    let tokenizer = small();
    let made = |random_seed| {
        let options = Options { random_seed, ..readme() };
        sample(&tokenizer, &options).iter().collect::<Vec<_>>()
    };
    assert_eq!(made(-12345), made(12345));
}

#[test]
fn what_cannot_be_is_refused() {
    let tokenizer = small();
    let corpus = Corpus::of_text(b"one\ntwo\n", &tokenizer, &ReadOptions::default()).unwrap();
    let refused = |options: Options| {
        create(&corpus, &tokenizer, &options, |_, _| {}).unwrap_err().to_string()
    };
    let short = refused(Options { max_seq_length: 4, ..readme() });
    assert!(short.starts_with("`max_seq_length` is 4, but must be at least 5"), "{short}");
    assert!(refused(Options { dupe_factor: 0, ..readme() }).contains("`dupe_factor` is 0"));
    let nan = refused(Options { masked_lm_prob: f64::NAN, ..readme() });
    assert!(nan.contains("`masked_lm_prob` is NaN"), "{nan}");
    assert!(refused(Options { short_seq_prob: 1.5, ..readme() }).contains("from 0 to 1"));
    for missing in ["[MASK]", "[CLS]", "[SEP]"] {
        let pieces = ["[UNK]", "[MASK]", "[CLS]", "[SEP]", "one"].map(str::to_owned);
        let pieces = pieces.into_iter().filter(|piece| piece != missing);
        let vocabulary = Vocabulary::from_tokens(pieces).unwrap();
        let tokenizer = Tokenizer::new(Arc::new(vocabulary), Casing::Lower).unwrap();
        let error = create(&corpus, &tokenizer, &readme(), |_, _| {}).unwrap_err().to_string();
        assert_eq!(error, format!("the vocabulary has no `{missing}`"));
    }
    let wide = Options { max_seq_length: 16, max_predictions_per_seq: 20, ..readme() };
    assert!(wide.warnings()[0].contains("longer than they need to be"));
    let narrow = Options { max_seq_length: 512, ..readme() };
    assert!(narrow.warnings()[0].contains("asks for 77"), "{:?}", narrow.warnings());
    assert!(readme().warnings().is_empty());
}

#[test]
fn one_document_of_one_sentence_is_enough() {
    let tokenizer = small();
    let corpus = Corpus::of_text(b"one", &tokenizer, &ReadOptions::default()).unwrap();
    let options = Options { max_seq_length: 5, dupe_factor: 3, ..Options::default() };
    let made = create(&corpus, &tokenizer, &options, |_, _| {}).unwrap();
    assert_eq!(made.len(), 3);
    assert!(made.iter().all(|made| made.is_random_next && made.features.len() == 5));
}

#[test]
fn wikipedia_is_read_whole() {
    let (Some(wiki), Some(vocabularies)) =
        (shared("data/wiki/mlcommons_sample"), shared("data/vocab"))
    else {
        return;
    };
    let tokenizer = tokenizer(vocabularies.join("bert_uncased_vocab.txt"), Casing::Lower);
    let files = ["0", "1", "2", "3"].map(|n| wiki.join(format!("wiki_0{n}")));
    let corpus = Corpus::read(&files, &tokenizer, &ReadOptions::default(), |_, _| {}).unwrap();
    assert!(corpus.report.files.iter().all(|file| file.format == Format::Wiki));
    let text: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let blocks = text.matches("<doc id=").count() as u64;
    // Some blocks are a title and nothing else.
    assert!(corpus.report.documents <= blocks && corpus.report.documents * 10 > blocks * 8);
    assert_eq!(corpus.report.bytes, text.len() as u64);
}
