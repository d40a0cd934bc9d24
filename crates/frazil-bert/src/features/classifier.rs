//! Features of a classifier: one text or a pair, and what it should be classified as.
//!
//! The cut, the frame and the records are those of the original's `run_classifier.py`. Left out:
//! where the texts come from, see [`glue`](crate::glue).

use std::path::Path;

use frazil_tf::example::{Example, Kind};
use rayon::prelude::*;

use super::{Features, Frame, int64, narrow, read_examples, write_examples};
use crate::tokenizer::{Encoding, Tokenizer};
use crate::{Error, Result};

const LABEL_IDS: &str = "label_ids";
const IS_REAL_EXAMPLE: &str = "is_real_example";
/// `[CLS]` and two times `[SEP]`.
const FRAME_OF_PAIR: usize = 3;
/// `[CLS]` and `[SEP]`.
const FRAME_OF_SINGLE: usize = 2;

/// A text or a pair of texts to classify.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputExample {
    /// What the original calls it, `train-1` for example.
    pub guid: String,
    /// The text.
    pub text_a: String,
    /// The second text of a pair.
    pub text_b: Option<String>,
    /// The label, or the score as text; in a test set, which has none, the first of all labels.
    pub label: String,
}

/// What a model should make of an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// The place of the label among all labels.
    Class(i32),
    /// A score; the original knows no such task.
    Score(f32),
}

/// What an example's label can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// One of these.
    Classes(Vec<String>),
    /// Any number.
    Scores,
}

impl Labels {
    /// These classes.
    pub fn classes(labels: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Classes(labels.into_iter().map(Into::into).collect())
    }

    /// What a label stands for. The last of equal labels counts, as in the original.
    pub fn target(&self, label: &str) -> Option<Target> {
        match self {
            Self::Classes(labels) => {
                let place = labels.iter().rposition(|known| known == label)?;
                Some(Target::Class(i32::try_from(place).ok()?))
            }
            Self::Scores => {
                let score: f32 = label.trim().parse().ok()?;
                score.is_finite().then_some(Target::Score(score))
            }
        }
    }
}

/// An example as the model takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassifierFeatures {
    /// The sequence.
    pub features: Features,
    /// What it should be classified as.
    pub target: Target,
    /// Whether it is no padding of a batch.
    pub is_real_example: bool,
}

impl ClassifierFeatures {
    /// An example that fills up a batch: the original's `PaddingInputExample`.
    pub fn padding(max_seq_length: usize) -> Self {
        let features = Features::padding(max_seq_length);
        Self { features, target: Target::Class(0), is_real_example: false }
    }

    /// As the original stores it in a record.
    pub fn to_example(&self) -> Example {
        let example = self
            .features
            .to_example()
            .with_int64s(IS_REAL_EXAMPLE, [i64::from(self.is_real_example)]);
        match self.target {
            Target::Class(class) => example.with_int64s(LABEL_IDS, [i64::from(class)]),
            Target::Score(score) => example.with_floats(LABEL_IDS, [score]),
        }
    }

    /// From a record.
    pub fn from_example(example: &Example) -> Result<Self> {
        let named = example.features();
        let target = if named.kind(LABEL_IDS) == Some(Kind::Floats) {
            match example.floats(LABEL_IDS)? {
                [score] => Target::Score(*score),
                scores => {
                    let (name, found) = (LABEL_IDS, scores.len());
                    return Err(Error::RecordLength { name, expected: 1, found });
                }
            }
        } else {
            let wide = int64(named, LABEL_IDS)?;
            let name = LABEL_IDS;
            let class = i32::try_from(wide)
                .map_err(|_| Error::RecordValue { name, found: wide.to_string() })?;
            Target::Class(class)
        };
        // Files of others may lack it.
        let is_real_example =
            named.kind(IS_REAL_EXAMPLE).is_none() || int64(named, IS_REAL_EXAMPLE)? != 0;
        Ok(Self { features: Features::from_example(example)?, target, is_real_example })
    }
}

/// Makes features: the original's `convert_single_example`.
#[derive(Clone, Debug)]
pub struct ClassifierInput {
    tokenizer: Tokenizer,
    labels: Labels,
    frame: Frame,
    max_seq_length: usize,
}

impl ClassifierInput {
    /// Sequences of at most `max_seq_length` pieces, `[CLS]` and `[SEP]` included.
    pub fn new(tokenizer: Tokenizer, labels: Labels, max_seq_length: usize) -> Result<Self> {
        if max_seq_length < FRAME_OF_PAIR {
            let (name, found, least) = ("max_seq_length", max_seq_length, FRAME_OF_PAIR);
            return Err(Error::FeatureLength { name, found, least, why: "" });
        }
        let frame = Frame::of(tokenizer.vocabulary())?;
        Ok(Self { tokenizer, labels, frame, max_seq_length })
    }

    /// The sequence of a text or a pair, cut to fit.
    pub fn sequence(&self, text_a: &str, text_b: Option<&str>) -> Features {
        let mut encoding = Encoding::default();
        let mut pieces = |text: &str| -> Vec<i32> {
            self.tokenizer.encode_into(text, &mut encoding);
            encoding.ids.iter().copied().map(narrow).collect()
        };
        let mut first = pieces(text_a);
        let mut second = text_b.map(pieces).unwrap_or_default();
        if second.is_empty() {
            first.truncate(self.max_seq_length - FRAME_OF_SINGLE);
        } else {
            let fits = self.max_seq_length - FRAME_OF_PAIR;
            let (a, b) = cut_pair(first.len(), second.len(), fits);
            first.truncate(a);
            second.truncate(b);
        }
        let second = (!second.is_empty()).then_some(&second[..]);
        Features::new(self.frame, &first, second, self.max_seq_length)
    }

    /// The features of an example.
    pub fn features(&self, example: &InputExample) -> Result<ClassifierFeatures> {
        let Some(target) = self.labels.target(&example.label) else {
            let (guid, label) = (example.guid.clone(), example.label.clone());
            return Err(match &self.labels {
                Labels::Classes(labels) => {
                    Error::UnknownLabel { guid, label, labels: labels.clone() }
                }
                Labels::Scores => Error::UnknownScore { guid, score: label },
            });
        };
        let features = self.sequence(&example.text_a, example.text_b.as_deref());
        Ok(ClassifierFeatures { features, target, is_real_example: true })
    }

    /// The features of many examples in their order, on rayon's threads.
    pub fn features_of_all(&self, examples: &[InputExample]) -> Result<Vec<ClassifierFeatures>> {
        examples.par_iter().map(|example| self.features(example)).collect()
    }
}

/// How much of a pair is kept if only so many pieces fit: the longer one loses its end, and the
/// second if both are of one length.
fn cut_pair(mut a: usize, mut b: usize, fits: usize) -> (usize, usize) {
    while a + b > fits {
        if a > b {
            a -= 1;
        } else {
            b -= 1;
        }
    }
    (a, b)
}

/// Writes `train.tf_record` and its like, record by record as the original writes them.
pub fn write_records<'a>(
    path: impl AsRef<Path>,
    features: impl IntoIterator<Item = &'a ClassifierFeatures>,
) -> Result<u64> {
    write_examples(path, features.into_iter().map(ClassifierFeatures::to_example))
}

/// Reads what [`write_records`] or the original has written.
pub fn read_records(path: impl AsRef<Path>) -> Result<Vec<ClassifierFeatures>> {
    read_examples(path, ClassifierFeatures::from_example)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tokenizer::{Casing, Vocabulary};

    fn input(labels: Labels, length: usize) -> Result<ClassifierInput> {
        let pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"];
        let vocabulary = Vocabulary::from_tokens(pieces.map(str::to_owned))?;
        let tokenizer = Tokenizer::new(Arc::new(vocabulary), Casing::Lower)?;
        ClassifierInput::new(tokenizer, labels, length)
    }

    fn example(text_a: &str, text_b: Option<&str>, label: &str) -> InputExample {
        let text_b = text_b.map(str::to_owned);
        InputExample { guid: "dev-1".into(), text_a: text_a.into(), text_b, label: label.into() }
    }

    #[test]
    fn the_longer_text_is_cut_and_the_second_of_equals() {
        assert_eq!(cut_pair(5, 3, 10), (5, 3));
        assert_eq!(cut_pair(5, 3, 6), (3, 3));
        assert_eq!(cut_pair(5, 3, 5), (3, 2));
        assert_eq!(cut_pair(2, 2, 0), (0, 0));
        let input = input(Labels::classes(["0", "1"]), 7).unwrap();
        let cut = input.sequence("a a a a", Some("b b"));
        assert_eq!(cut.ids(), [2, 4, 4, 3, 5, 5, 3]);
        assert_eq!(input.sequence("a a a a a a a", None).ids(), [2, 4, 4, 4, 4, 4, 3]);
    }

    #[test]
    fn a_second_text_without_pieces_is_none() {
        let input = input(Labels::classes(["0"]), 6).unwrap();
        for blank in [None, Some(""), Some(" \u{200b}")] {
            assert_eq!(input.sequence("a a a a a", blank).ids(), [2, 4, 4, 4, 4, 3]);
        }
        // At three pieces, nothing of either text is left, and no second `[SEP]`.
        let tiny = self::input(Labels::classes(["0"]), 3).unwrap();
        assert_eq!(tiny.sequence("a", Some("b")).ids(), [2, 3]);
    }

    #[test]
    fn labels_become_places_or_scores() {
        let classes = input(Labels::classes(["no", "yes"]), 8).unwrap();
        assert_eq!(classes.features(&example("a", None, "yes")).unwrap().target, Target::Class(1));
        let error = classes.features(&example("a", None, "maybe")).unwrap_err().to_string();
        assert_eq!(error, "example `dev-1` has the label `maybe`; labels are `no`, `yes`");
        let scores = input(Labels::Scores, 8).unwrap();
        let features = scores.features(&example("a", None, "2.5")).unwrap();
        assert_eq!(features.target, Target::Score(2.5));
        assert!(scores.features(&example("a", None, "NaN")).is_err());
        assert!(matches!(
            input(Labels::Scores, 2),
            Err(Error::FeatureLength { found: 2, least: 3, .. })
        ));
    }

    #[test]
    fn records_and_back() {
        let input = input(Labels::classes(["0", "1"]), 8).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("eval.tf_record");
        let mut all = input
            .features_of_all(&[example("a", Some("b c"), "1"), example("c", None, "0")])
            .unwrap();
        all.push(ClassifierFeatures::padding(8));
        all.push(ClassifierFeatures { target: Target::Score(0.5), ..all[0].clone() });
        assert_eq!(write_records(&path, &all).unwrap(), 4);
        assert_eq!(read_records(&path).unwrap(), all);
    }
}
