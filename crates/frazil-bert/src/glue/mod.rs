//! Data for classifiers: the tasks of GLUE and XNLI, and tables of one's own.
//!
//! - [`Task`]: which file, column and header rule each data set has. MRPC, CoLA, MNLI and XNLI
//!   are read as the original's `run_classifier.py` reads them, down to the `guid`s.
//! - [`own`]: TSV, CSV and JSON Lines with columns of one's own.
//!
//! A row that cannot be used says its line and what was expected there. Left out: features, see
//! [`features::classifier`](crate::features::classifier), and scores, see
//! [`metrics`](crate::metrics).

pub mod own;
mod table;
mod task;

pub use task::{Split, Task};

use std::path::{Path, PathBuf};

use crate::features::InputExample;
use crate::features::classifier::Labels;
use crate::rows::{Collector, OnBadRow, RowProblem, Rows};
use crate::{Error, Result};
use table::Lines;
use task::{Columns, Guid, LabelColumn};

/// The language of XNLI that the original reads.
pub const XNLI_LANGUAGE: &str = "zh";

/// How a data set is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// What is done about a row that cannot be used.
    pub on_bad_row: OnBadRow,
    /// Of XNLI, only rows of this language.
    pub language: String,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { on_bad_row: OnBadRow::Stop, language: XNLI_LANGUAGE.into() }
    }
}

impl Task {
    /// Reads a part of the data set from the folder that has its files.
    pub fn read(
        self,
        folder: impl AsRef<Path>,
        split: Split,
        options: &ReadOptions,
    ) -> Result<Rows<InputExample>> {
        let path = self.file(folder.as_ref(), split, &options.language);
        let bytes = frazil_tensor::file::map(&path)?;
        self.parse(&bytes, split, options).map_err(|error| error.in_file(&path))
    }

    /// The file that a part of the data set is in.
    pub fn file(self, folder: &Path, split: Split, language: &str) -> PathBuf {
        match (self, split) {
            (Self::Xnli, Split::Train) => {
                folder.join("multinli").join(format!("multinli.train.{language}.tsv"))
            }
            _ => folder.join(self.file_name(split)),
        }
    }

    /// Reads a part of the data set from a file that is in memory.
    pub fn parse(
        self,
        bytes: &[u8],
        split: Split,
        options: &ReadOptions,
    ) -> Result<Rows<InputExample>> {
        if bytes.is_empty() {
            return Err(Error::EmptyFile { expected: "a table of tab-separated columns" });
        }
        let labels = self.labels();
        let layout = self.columns(split);
        let mut rows = Collector::new(options.on_bad_row);
        for (index, line) in Lines::new(bytes).enumerate() {
            if index == 0 && layout.has_header {
                continue;
            }
            let example = line.and_then(|line| {
                let columns: Vec<&str> = line.split('\t').collect();
                let wanted = layout.language.is_none_or(|column| {
                    // A row too short to tell is not left out unseen.
                    columns.get(column).is_none_or(|language| *language == options.language)
                });
                if !wanted {
                    return Ok(None);
                }
                example(index, &columns, &layout, &labels).map(Some)
            });
            match example.transpose() {
                None => {}
                Some(example) => rows.add(index + 1, example)?,
            }
        }
        rows.finish()
    }
}

fn example(
    index: usize,
    columns: &[&str],
    layout: &Columns,
    labels: &Labels,
) -> Result<InputExample, RowProblem> {
    let found = columns.len();
    let get = |column: usize, what| {
        let missing = RowProblem::MissingColumn { what, column: column + 1, found };
        columns.get(column).copied().ok_or(missing)
    };
    let guid = match layout.guid {
        Guid::Line => format!("{}-{index}", layout.set),
        Guid::Column(column) => format!("{}-{}", layout.set, get(column, "the id")?),
    };
    let text_a = get(layout.text_a, "the text")?.to_owned();
    let text_b = match layout.text_b {
        Some(column) => Some(get(column, "the second text")?.to_owned()),
        None => None,
    };
    let label = match layout.label {
        LabelColumn::At(column) => get(column, "the label")?,
        LabelColumn::Last => {
            // Behind the texts: a row cut after them has no label in its last column.
            let least = layout.text_a.max(layout.text_b.unwrap_or(0)) + 1;
            get(least, "the label")?;
            columns.last().copied().unwrap_or_default()
        }
        LabelColumn::None => match labels {
            Labels::Classes(labels) => labels.first().map_or("", |label| label),
            Labels::Scores => "0",
        },
    };
    let label = if label == "contradictory" && layout.renames_contradictory {
        "contradiction"
    } else {
        label
    };
    check_label(label, labels)?;
    Ok(InputExample { guid, text_a, text_b, label: label.to_owned() })
}

fn check_label(label: &str, labels: &Labels) -> Result<(), RowProblem> {
    if labels.target(label).is_some() {
        return Ok(());
    }
    Err(match labels {
        Labels::Classes(labels) => {
            RowProblem::Label { label: label.to_owned(), labels: labels.clone() }
        }
        Labels::Scores => RowProblem::Score(label.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(task: Task, split: Split, text: &str) -> Result<Rows<InputExample>> {
        task.parse(text.as_bytes(), split, &ReadOptions::default())
    }

    fn one(task: Task, split: Split, text: &str) -> (String, String, Option<String>, String) {
        let rows = read(task, split, text).unwrap();
        let [example] = &rows.items[..] else { panic!("{:?}", rows.items) };
        let InputExample { guid, text_a, text_b, label } = example.clone();
        (guid, text_a, text_b, label)
    }

    fn expected(
        guid: &str,
        a: &str,
        b: Option<&str>,
        label: &str,
    ) -> (String, String, Option<String>, String) {
        (guid.into(), a.into(), b.map(str::to_owned), label.into())
    }

    #[test]
    fn the_original_s_four() {
        use Split::{Dev, Test, Train};
        let mrpc = "Quality\t#1\t#2\tA\tB\r\n1\t7\t8\tan \"a\tb\r\n";
        assert_eq!(one(Task::Mrpc, Dev, mrpc), expected("dev-1", "an \"a", Some("b"), "1"));
        let test = "index\t#1\t#2\tA\tB\n0\t7\t8\ta\tb\n";
        assert_eq!(one(Task::Mrpc, Test, test), expected("test-1", "a", Some("b"), "0"));
        let cola = "gj04\t1\t\tShe ran.\n";
        assert_eq!(one(Task::Cola, Train, cola), expected("train-0", "She ran.", None, "1"));
        let cola = "index\tsentence\n0\tShe ran.\n";
        assert_eq!(one(Task::Cola, Test, cola), expected("test-1", "She ran.", None, "0"));
        let mnli = "h\n17\t1\t2\t3\t4\t5\t6\t7\ta\tb\tx\tneutral\n";
        let dev = expected("dev_matched-17", "a", Some("b"), "neutral");
        assert_eq!(one(Task::Mnli, Dev, mnli), dev);
        let mismatched = expected("dev_mismatched-17", "a", Some("b"), "neutral");
        assert_eq!(one(Task::Mnli, Split::DevMismatched, mnli), mismatched);
        let test = "h\n17\t1\t2\t3\t4\t5\t6\t7\ta\tb\n";
        let found = one(Task::Mnli, Test, test);
        assert_eq!(found, expected("test-17", "a", Some("b"), "contradiction"));
        let xnli = "premise\thypo\tlabel\na\tb\tcontradictory\n";
        let found = one(Task::Xnli, Train, xnli);
        assert_eq!(found, expected("train-1", "a", Some("b"), "contradiction"));
        let xnli =
            "language\tlabel\nen\tneutral\t2\t3\t4\t5\tx\ty\nzh\tneutral\t2\t3\t4\t5\ta\tb\n";
        assert_eq!(one(Task::Xnli, Dev, xnli), expected("dev-2", "a", Some("b"), "neutral"));
        let folder = Path::new("d");
        let path = Task::Xnli.file(folder, Train, "zh");
        assert_eq!(path, folder.join("multinli").join("multinli.train.zh.tsv"));
    }

    #[test]
    fn the_other_six() {
        use Split::{Dev, Test, Train};
        let sst = "sentence\tlabel\nfine \t1\n";
        assert_eq!(one(Task::Sst2, Dev, sst), expected("dev-1", "fine ", None, "1"));
        let sst = "index\tsentence\n0\tfine\n";
        assert_eq!(one(Task::Sst2, Test, sst), expected("test-1", "fine", None, "0"));
        let qnli = "index\tquestion\tsentence\tlabel\n4\tq\ts\tnot_entailment\n";
        let found = one(Task::Qnli, Train, qnli);
        assert_eq!(found, expected("train-4", "q", Some("s"), "not_entailment"));
        let rte = "index\ta\tb\n4\tq\ts\n";
        let found = one(Task::Rte, Test, rte);
        assert_eq!(found, expected("test-4", "q", Some("s"), "entailment"));
        let wnli = "index\ta\tb\tlabel\n4\tq\ts\t1\n";
        assert_eq!(one(Task::Wnli, Dev, wnli), expected("dev-4", "q", Some("s"), "1"));
        let sts = "index\n3\tg\tf\ty\to\ts1\ts2\ta\tb\t4.750\n";
        assert_eq!(one(Task::StsB, Dev, sts), expected("dev-3", "a", Some("b"), "4.750"));
        let qqp = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n9\t1\t2\ta\tb\t1\n";
        assert_eq!(one(Task::Qqp, Train, qqp), expected("train-9", "a", Some("b"), "1"));
        let qqp = "id\tquestion1\tquestion2\n9\ta\tb\n";
        assert_eq!(one(Task::Qqp, Test, qqp), expected("test-9", "a", Some("b"), "0"));
    }

    #[test]
    fn bad_rows_are_named() {
        let bad = |task: Task, text: &[u8]| {
            task.parse(text, Split::Dev, &ReadOptions::default()).unwrap_err().to_string()
        };
        assert_eq!(
            bad(Task::Mrpc, b"h\n1\t2\t3\ta\tb\n1\t2\t3\n"),
            "line 3: expected the text in column 4, but there are 3 columns"
        );
        assert_eq!(
            bad(Task::Mrpc, b"h\n2\t2\t3\ta\tb\n"),
            "line 2: expected one of the labels `0`, `1`, not `2`"
        );
        assert_eq!(bad(Task::Mrpc, b"h\n1\t\xff\n"), "line 2: byte 3 of the line is not UTF-8");
        assert!(bad(Task::Mrpc, b"h\n\n").contains("line 2"));
        assert!(bad(Task::Rte, b"h\n4\ta\tb\n").contains("the label in column 4"));
        assert!(bad(Task::StsB, b"h\n0\t1\t2\t3\t4\t5\t6\ta\tb\tx\n").contains("not `x`"));
        assert!(bad(Task::Mrpc, b"").contains("the file is empty"));
        assert!(bad(Task::Mrpc, b"h\n").contains("no usable row"));
        assert!(bad(Task::Mrpc, b"h\n1\ra\n").contains("carriage return"));
        let options = ReadOptions { on_bad_row: OnBadRow::Skip, ..Default::default() };
        let rows = Task::Mrpc.parse(b"h\n1\n1\t2\t3\ta\tb\n", Split::Dev, &options).unwrap();
        assert_eq!((rows.items.len(), rows.skipped[0].line), (1, 2));
    }
}
