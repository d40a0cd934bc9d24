//! One row for each data set: its labels, its files, its columns.

use std::fmt;
use std::str::FromStr;

use crate::Error;
use crate::features::classifier::Labels;

/// A data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Microsoft Research Paraphrase Corpus.
    Mrpc,
    /// Corpus of Linguistic Acceptability.
    Cola,
    /// Multi-Genre Natural Language Inference.
    Mnli,
    /// Cross-lingual Natural Language Inference.
    Xnli,
    /// Stanford Sentiment Treebank.
    Sst2,
    /// Question Natural Language Inference.
    Qnli,
    /// Recognizing Textual Entailment.
    Rte,
    /// Semantic Textual Similarity Benchmark.
    StsB,
    /// Winograd Natural Language Inference.
    Wnli,
    /// Quora Question Pairs.
    Qqp,
}

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// For training.
    Train,
    /// For evaluation; of MNLI, the matched one.
    Dev,
    /// The mismatched one of MNLI; with the others as [`Split::Dev`].
    DevMismatched,
    /// Without labels, for prediction; of MNLI, the matched one.
    Test,
    /// The mismatched one of MNLI; with the others as [`Split::Test`].
    TestMismatched,
}

/// What makes the `guid` behind the name of the set.
#[derive(Clone, Copy, Debug)]
pub(super) enum Guid {
    /// The line, counted from 0, header included.
    Line,
    /// A column.
    Column(usize),
}

/// Where the label is.
#[derive(Clone, Copy, Debug)]
pub(super) enum LabelColumn {
    At(usize),
    Last,
    /// A test set has none.
    None,
}

/// Where everything is in a row; columns are counted from 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    pub(super) has_header: bool,
    pub(super) set: &'static str,
    pub(super) guid: Guid,
    pub(super) text_a: usize,
    pub(super) text_b: Option<usize>,
    pub(super) label: LabelColumn,
    /// XNLI: rows of other languages are not meant.
    pub(super) language: Option<usize>,
    /// XNLI's translated training set spells one label in another way.
    pub(super) renames_contradictory: bool,
}

const NLI: [&str; 3] = ["contradiction", "entailment", "neutral"];
const BINARY: [&str; 2] = ["0", "1"];
const ENTAILMENT: [&str; 2] = ["entailment", "not_entailment"];

impl Task {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Mrpc,
        Self::Cola,
        Self::Mnli,
        Self::Xnli,
        Self::Sst2,
        Self::Qnli,
        Self::Rte,
        Self::StsB,
        Self::Wnli,
        Self::Qqp,
    ];

    /// As GLUE writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mrpc => "MRPC",
            Self::Cola => "CoLA",
            Self::Mnli => "MNLI",
            Self::Xnli => "XNLI",
            Self::Sst2 => "SST-2",
            Self::Qnli => "QNLI",
            Self::Rte => "RTE",
            Self::StsB => "STS-B",
            Self::Wnli => "WNLI",
            Self::Qqp => "QQP",
        }
    }

    /// What a label can be, in the order of the model's outputs.
    pub fn labels(self) -> Labels {
        match self {
            Self::Mnli | Self::Xnli => Labels::classes(NLI),
            Self::Qnli | Self::Rte => Labels::classes(ENTAILMENT),
            Self::StsB => Labels::Scores,
            Self::Mrpc | Self::Cola | Self::Sst2 | Self::Wnli | Self::Qqp => {
                Labels::classes(BINARY)
            }
        }
    }

    pub(super) fn file_name(self, split: Split) -> &'static str {
        match (self, split) {
            (Self::Mnli, Split::Dev) => "dev_matched.tsv",
            (Self::Mnli, Split::DevMismatched) => "dev_mismatched.tsv",
            (Self::Mnli, Split::Test) => "test_matched.tsv",
            (Self::Mnli, Split::TestMismatched) => "test_mismatched.tsv",
            (Self::Xnli, Split::Dev | Split::DevMismatched) => "xnli.dev.tsv",
            (Self::Xnli, Split::Test | Split::TestMismatched) => "xnli.test.tsv",
            (_, Split::Train) => "train.tsv",
            (_, Split::Dev | Split::DevMismatched) => "dev.tsv",
            (_, Split::Test | Split::TestMismatched) => "test.tsv",
        }
    }

    pub(super) fn columns(self, split: Split) -> Columns {
        let test = matches!(split, Split::Test | Split::TestMismatched);
        let set = match (self, split) {
            (_, Split::Train) => "train",
            (Self::Mnli, Split::Dev) => "dev_matched",
            (Self::Mnli, Split::DevMismatched) => "dev_mismatched",
            (_, Split::Dev | Split::DevMismatched) => "dev",
            (_, Split::Test | Split::TestMismatched) => "test",
        };
        let (id, line) = (Guid::Column(0), Guid::Line);
        let (last, at) = (LabelColumn::Last, LabelColumn::At);
        // Of each: guid, text, second text, label.
        let (guid, text_a, text_b, label) = match (self, test) {
            (Self::Mrpc, _) => (line, 3, Some(4), at(0)),
            (Self::Cola, false) => (line, 3, None, at(1)),
            (Self::Cola, true) => (line, 1, None, last),
            (Self::Mnli, _) => (id, 8, Some(9), last),
            (Self::Xnli, _) if split == Split::Train => (line, 0, Some(1), at(2)),
            (Self::Xnli, _) => (line, 6, Some(7), at(1)),
            (Self::Sst2, false) => (line, 0, None, at(1)),
            (Self::Sst2, true) => (line, 1, None, last),
            (Self::Qnli | Self::Rte | Self::Wnli, _) => (id, 1, Some(2), last),
            (Self::StsB, _) => (id, 7, Some(8), last),
            (Self::Qqp, false) => (id, 3, Some(4), at(5)),
            (Self::Qqp, true) => (id, 1, Some(2), last),
        };
        let xnli = self == Self::Xnli;
        Columns {
            // Only CoLA's test set has one.
            has_header: self != Self::Cola || test,
            set,
            guid,
            text_a,
            text_b,
            label: if test { LabelColumn::None } else { label },
            language: (xnli && split != Split::Train).then_some(0),
            renames_contradictory: xnli && split == Split::Train,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// In any case, with or without the hyphen.
impl FromStr for Task {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_lowercase();
        let found = Self::ALL.into_iter().find(|task| plain(task.name()) == plain(name));
        let unknown = || Error::UnknownDataSet { name: name.to_owned(), known: Self::ALL.to_vec() };
        found.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_spelling() {
        for task in Task::ALL {
            assert_eq!(task.name().parse::<Task>().unwrap(), task);
        }
        assert_eq!("sst2".parse::<Task>().unwrap(), Task::Sst2);
        assert_eq!("sts-b".parse::<Task>().unwrap(), Task::StsB);
        assert!("SNLI".parse::<Task>().unwrap_err().to_string().contains("WNLI"));
    }

    #[test]
    fn mismatched_is_only_another_file_of_mnli() {
        assert_eq!(Task::Mnli.file_name(Split::TestMismatched), "test_mismatched.tsv");
        assert_eq!(Task::Rte.file_name(Split::TestMismatched), "test.tsv");
        assert_eq!(Task::Xnli.file_name(Split::DevMismatched), "xnli.dev.tsv");
    }
}
