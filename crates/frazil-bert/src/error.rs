//! What can be wrong with a BERT's configuration or with its weights.

use std::path::{Path, PathBuf};

use frazil_tensor::{Shape, StoreError};

use crate::rows::RowProblem;

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One variant for each way to be wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file in which the cause was met.
    #[error("cannot use `{}`", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: Box<Error>,
    },
    /// A tensor or a plain file is wrong.
    #[error(transparent)]
    Tensor(#[from] frazil_tensor::Error),
    /// A configuration is not JSON at all.
    #[error("line {line}, column {column}: {reason}")]
    Json {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
        /// What the parser met.
        reason: String,
    },
    /// A configuration is JSON, but not `{"key": value, …}`.
    #[error("a configuration is a JSON object, not {found}")]
    NotAnObject {
        /// What it is.
        found: &'static str,
    },
    /// A key without which there is no model.
    #[error("the required key `{0}` is missing")]
    MissingKey(&'static str),
    /// A key has a value that it cannot have.
    #[error("`{key}` must be {expected}, not {found}")]
    Value {
        /// The key.
        key: &'static str,
        /// What it can be.
        expected: &'static str,
        /// What it is, as JSON.
        found: String,
    },
    /// The activation is none of those that BERT's code knows.
    #[error("`hidden_act` is `{0}`; BERT's code knows gelu, relu, tanh and linear")]
    Activation(String),
    /// The heads do not divide the hidden size.
    #[error("`hidden_size` {hidden} is not a multiple of `num_attention_heads` {heads}")]
    HeadSize {
        /// `hidden_size`
        hidden: usize,
        /// `num_attention_heads`
        heads: usize,
    },
    /// A Hugging Face configuration is of another model family.
    #[error("this is a `{found}` model, not a BERT")]
    OtherModel {
        /// Its `model_type`, or what its tensor names begin with.
        found: String,
    },
    /// A Hugging Face configuration asks for what TensorFlow 1's BERT does not compute.
    #[error("`{key}` is {found}: BERT as TensorFlow 1 has it cannot compute that")]
    NotComputable {
        /// The key.
        key: &'static str,
        /// Its value.
        found: String,
    },
    /// No task has that name.
    #[error("there is no task `{0}`; tasks are {list}", list = crate::names::Head::LIST)]
    UnknownTask(String),
    /// The names do not show a BERT, or not enough of one.
    #[error("these are not the weights of a BERT: {0}")]
    NotBert(String),
    /// The same model lies under several scopes.
    #[error("the variables lie under several scopes: {}", quoted(.0))]
    SeveralScopes(Vec<String>),
    /// No variables are under the scope that was asked for.
    #[error("no BERT lies under the scope `{scope}`; found: {}", quoted(found))]
    NoSuchScope {
        /// What was asked for.
        scope: String,
        /// Scopes that have one.
        found: Vec<String>,
    },
    /// Variables that the target needs are not in the source.
    #[error("{} of the variables that {target} needs are missing: {}", names.len(), quoted(names))]
    Missing {
        /// What cannot be made without them.
        target: String,
        /// All of them.
        names: Vec<String>,
    },
    /// A variable has another shape than the model gives it.
    #[error("`{name}` is {found}, where the model needs {expected}")]
    Shape {
        /// The variable.
        name: String,
        /// By the configuration.
        expected: Shape,
        /// In the source.
        found: Shape,
    },
    /// The target's naming has no place for a head.
    #[error("{naming} has no {head} head")]
    NoSuchHead {
        /// Whose names.
        naming: crate::names::Naming,
        /// The head.
        head: crate::names::Head,
    },
    /// A Hugging Face model whose MLM decoder is not its word embedding.
    #[error(
        "`{decoder}` differs from `{embedding}`, but TensorFlow 1's BERT has one matrix for both"
    )]
    DecoderNotTied {
        /// The decoder's matrix.
        decoder: String,
        /// The word embeddings.
        embedding: String,
    },
    /// A module of sentence-transformers that cannot be computed.
    #[error("the module `{name}` {reason}")]
    Module {
        /// Its folder, or its class.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No pooling has that name.
    #[error(
        "there is no pooling `{0}`; known are cls, max, mean, mean_sqrt_len_tokens, weightedmean \
         and lasttoken"
    )]
    UnknownPooling(String),
    /// A graph cannot be built.
    #[error(transparent)]
    Graph(Box<frazil_graph::Error>),
    /// A sequence longer than the position table.
    #[error("a length of {seq} does not fit: the position table has {positions} rows")]
    TooLong {
        /// The length asked for.
        seq: usize,
        /// `max_position_embeddings`
        positions: usize,
    },
    /// A batch or length of nothing.
    #[error("batch and length must be at least 1, and their product a number")]
    EmptyBatch,
    /// A vocabulary that is not one word piece per line of UTF-8.
    #[error("line {line} of the vocabulary {reason}")]
    Vocabulary {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A vocabulary without any piece.
    #[error("the vocabulary is empty")]
    EmptyVocabulary,
    /// A vocabulary larger than any that a BERT could have.
    #[error("the vocabulary has more than {limit} {what}")]
    VocabularyTooLarge {
        /// What it has too many of.
        what: &'static str,
        /// How many it may have.
        limit: usize,
    },
    /// A folder without a vocabulary.
    #[error("`{}` has neither `vocab.txt` nor `tokenizer.json`", folder.display())]
    NoVocabulary {
        /// The folder.
        folder: PathBuf,
    },
    /// A vocabulary without a piece that BERT's code needs.
    #[error("the vocabulary has no `{0}`")]
    NoSpecialToken(&'static str),
    /// A classifier without classes.
    #[error("a classifier needs at least one label")]
    NoLabels,
    /// A file of TensorFlow's is wrong.
    #[error(transparent)]
    TensorFlow(Box<frazil_tf::Error>),
    /// A row of a data set cannot be used.
    #[error(transparent)]
    Row(Box<crate::rows::BadRow>),
    /// A data set without anything in it.
    #[error("the file is empty; expected {expected}")]
    EmptyFile {
        /// What should be in it.
        expected: &'static str,
    },
    /// Fewer samples than copies of the same text.
    #[error("{samples} samples cannot be the same ones {factor} times over")]
    FewDuplicates {
        /// Of all files.
        samples: u64,
        /// How often each file is said to hold the same text.
        factor: usize,
    },
    /// A data set whose rows are all bad, or that has none.
    #[error("no usable row is in the file ({skipped} bad rows were skipped)")]
    NoUsableRow {
        /// Rows that cannot be used.
        skipped: usize,
    },
    /// A table without a column.
    #[error("no column is called `{name}`; there are {}", quoted(found))]
    NoColumn {
        /// What was looked for.
        name: String,
        /// What the first line names.
        found: Vec<String>,
    },
    /// Lengths by which no features can be made.
    #[error("`{name}` is {found}, but must be at least {least}{why}")]
    FeatureLength {
        /// The option.
        name: &'static str,
        /// Its value.
        found: usize,
        /// What it can be at least.
        least: usize,
        /// Why, if it needs saying.
        why: &'static str,
    },
    /// A label that is none of the task's.
    #[error("example `{guid}` has the label `{label}`; labels are {}", quoted(labels))]
    UnknownLabel {
        /// The example.
        guid: String,
        /// Its label.
        label: String,
        /// Those there are.
        labels: Vec<String>,
    },
    /// A score that is no number.
    #[error("example `{guid}` has the score `{score}`, which is no finite number")]
    UnknownScore {
        /// The example.
        guid: String,
        /// Its score.
        score: String,
    },
    /// The model's answer to a feature is not there.
    #[error("there are no logits for feature {unique_id}")]
    NoLogits {
        /// The feature's id.
        unique_id: i64,
    },
    /// The model's answer to a feature is too short, or not of two equal parts.
    #[error(
        "feature {unique_id} has {tokens} tokens, but {start} start logits and {end} end logits"
    )]
    LogitCount {
        /// The feature's id.
        unique_id: i64,
        /// Its tokens.
        tokens: usize,
        /// Start logits.
        start: usize,
        /// End logits.
        end: usize,
    },
    /// A feature of a record has another number of values.
    #[error("`{name}` of a record has {found} values, not {expected}")]
    RecordLength {
        /// The feature.
        name: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A feature of a record is of another form than features are.
    #[error("`{name}` of a record is not {expected}")]
    RecordLayout {
        /// The feature.
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A value of a record is too large for the model.
    #[error("`{name}` of a record is {found}, which is no 32-bit number")]
    RecordValue {
        /// The feature.
        name: &'static str,
        /// The value.
        found: String,
    },
    /// Files of text without any text.
    #[error("no sentence is in {}", paths(files))]
    EmptyCorpus {
        /// The files.
        files: Vec<PathBuf>,
    },
    /// A document of more pieces than can be counted.
    #[error("a document has more than {} pieces", u32::MAX)]
    DocumentTooLong,
    /// The record in which the cause was met.
    #[error("record {index}")]
    InRecord {
        /// Counted from 0.
        index: u64,
        /// What is wrong with it.
        source: Box<Error>,
    },
    /// A record that is none of those that BERT's programs write.
    #[error("a record has the features {}, which are none of a sample", quoted(features))]
    UnknownRecord {
        /// Their names.
        features: Vec<String>,
    },
    /// A pack that is none.
    #[error(transparent)]
    Pack(Box<crate::samples::packed::PackProblem>),
    /// A sample that binaries have no place for.
    #[error("binaries hold samples of pre-training only, not of kind {found:?}")]
    NotPretraining {
        /// What it is.
        found: crate::samples::Kind,
    },
    /// A binary whose size is not that of whole samples.
    #[error("{found} bytes are no whole samples: a sequence has {of_one} bytes, a pack {of_pack}")]
    BinarySize {
        /// The size of the file.
        found: u64,
        /// Bytes of a sequence.
        of_one: u64,
        /// Bytes of a pack.
        of_pack: u64,
    },
    /// Neither records nor binaries.
    #[error("these are neither TFRecords ({record}) nor binaries ({binary})")]
    NoSamples {
        /// What is wrong with the first record.
        record: Box<frazil_tf::Error>,
        /// Why they are no binaries.
        binary: Box<Error>,
    },
    /// More than any sample has.
    #[error("{found} {what} are too many: there can be {most}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How many are asked for.
        found: usize,
        /// How many there can be.
        most: usize,
    },
    /// A folder of packs of which only some have been replaced.
    #[error("`{}` is incomplete: its packs were being replaced", folder.display())]
    HalfReplaced {
        /// The folder.
        folder: PathBuf,
    },
    /// Files of which some hold packs and some sequences, or which hold different kinds of samples.
    #[error("`{}` holds {found}, but the files before it hold {expected}", path.display())]
    OtherSamples {
        /// The file.
        path: PathBuf,
        /// What those before hold.
        expected: String,
        /// What it holds.
        found: String,
    },
    /// Samples that have other things to learn from than those before them.
    #[error("samples of {found} and of {expected} cannot be packed together")]
    OtherLabels {
        /// What those before have.
        expected: crate::samples::Labels,
        /// What these have.
        found: crate::samples::Labels,
    },
    /// More masked pieces than a sequence is said to have.
    #[error("a sequence has {found} masked pieces, but must have at most {most}")]
    MaskedPieces {
        /// How many it has.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// A place to go on from that the files do not have.
    #[error("reading is to go on at {sample}, but there are {count} samples or packs")]
    NoSuchPlace {
        /// Where to go on.
        sample: u64,
        /// How many there are.
        count: u64,
    },
    /// Samples of which none has a token.
    #[error("there is no sequence, only padding")]
    OnlyPadding,
    /// Samples of which something else is to be learnt than what they are for.
    #[error("`{}` holds samples of {found}, and {expected} is to be learnt", path.display())]
    OtherKind {
        /// A file of them.
        path: PathBuf,
        /// What is to be learnt.
        expected: crate::samples::Kind,
        /// What they are for.
        found: crate::samples::Kind,
    },
    /// A number of a sample that the model has no place for.
    #[error("`{what}` has {found}, and the model knows 0 to {}", limit.saturating_sub(1))]
    BeyondModel {
        /// The feature.
        what: &'static str,
        /// The number.
        found: i64,
        /// How many the model has.
        limit: usize,
    },
    /// A sequence that is longer than the model reads.
    #[error("a sequence has {found} pieces, and the model {positions} positions")]
    BeyondPositions {
        /// Its pieces.
        found: usize,
        /// The model's positions.
        positions: usize,
    },
    /// Nothing to read samples from.
    #[error("no file to read samples from was given")]
    NoFiles,
    /// No packing algorithm has that name.
    #[error("there is no packing algorithm `{0}`; known are spfhp, lpfhp and nnlshp")]
    UnknownAlgorithm(String),
    /// A number of sequences that no pack can have.
    #[error("the depth of a pack is `{0}`, but must be a number from 1, or `max`")]
    Depth(String),
    /// Packs that are too long.
    #[error("packs of {found} tokens are more than can be packed so, which is {most}")]
    PackLength {
        /// How long they should be.
        found: usize,
        /// How long they can be.
        most: usize,
    },
    /// A sequence that fits into no pack, or is none.
    #[error("a sequence has {length} tokens, but must have 1 to {most}")]
    SequenceLength {
        /// Its length.
        length: usize,
        /// The length of a pack.
        most: usize,
    },
    /// More sequences than can be counted.
    #[error("there are more sequences than can be counted")]
    TooManySequences,
    /// More tokens than can be counted.
    #[error("there are more than {most} tokens, which is as far as they are counted")]
    TooManyTokens {
        /// How many there can be.
        most: u64,
    },
    /// Sequences that are not those that were packed.
    #[error("there are {found} sequences of length {length}, but {expected} were packed")]
    OtherSequences {
        /// Their length.
        length: usize,
        /// How many were packed.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// Threads that the system does not give.
    #[error("no threads could be started: {reason}")]
    Threads {
        /// The system's reason.
        reason: String,
    },
    /// A probability that is none.
    #[error("`{name}` is {found}, but must be a number from 0 to 1")]
    Probability {
        /// The option.
        name: &'static str,
        /// Its value.
        found: f64,
    },
    /// A question without null odds.
    #[error("question `{id}` has a prediction, but no null odds")]
    NoNullOdds {
        /// The question.
        id: String,
    },
    /// A file that should hold predictions or odds by id.
    #[error("expected a JSON object with {expected} for each id{}", of_id(id))]
    NotPredictions {
        /// The entry that is none; nothing if the whole is no object.
        id: Option<String>,
        /// What each should be.
        expected: &'static str,
    },
    /// Predictions and labels that do not belong together.
    #[error("there are {predictions} predictions for {labels} labels")]
    PredictionCount {
        /// Predictions.
        predictions: usize,
        /// Labels.
        labels: usize,
    },
    /// No GLUE task has that name.
    #[error("there is no data set `{name}`; known are {}", names(known))]
    UnknownDataSet {
        /// The name.
        name: String,
        /// Those that could be meant.
        known: Vec<crate::glue::Task>,
    },
    /// A tensor could not be read from the source.
    #[error("cannot read tensor `{name}`")]
    Store {
        /// The tensor.
        name: String,
        /// The format's own error.
        source: StoreError,
    },
}

/// Boxed: it is larger than all others.
impl From<frazil_graph::Error> for Error {
    fn from(error: frazil_graph::Error) -> Self {
        Self::Graph(Box::new(error))
    }
}

/// Boxed for the same reason.
impl From<frazil_tf::Error> for Error {
    fn from(error: frazil_tf::Error) -> Self {
        Self::TensorFlow(Box::new(error))
    }
}

impl From<serde_json::Error> for Error {
    /// Where, and what was met there.
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        let reason = text.split(" at line ").next().unwrap_or(&text).to_owned();
        Self::Json { line: error.line(), column: error.column(), reason }
    }
}

impl Error {
    /// Says in which file this was met.
    pub fn in_file(self, path: impl AsRef<Path>) -> Self {
        match self {
            Self::InFile { .. } | Self::Tensor(frazil_tensor::Error::Io { .. }) => self,
            other => Self::InFile { path: path.as_ref().to_path_buf(), source: Box::new(other) },
        }
    }

    /// Whether a file has nothing in it: one of several may.
    pub fn is_of_empty_file(&self) -> bool {
        match self {
            Self::InFile { source, .. } => source.is_of_empty_file(),
            error => matches!(error, Self::EmptyFile { .. }),
        }
    }

    /// What the user can do, where there is something.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::InFile { source, .. } | Self::InRecord { source, .. } => return source.hint(),
            Self::Tensor(error) => return error.hint(),
            Self::NoSamples { binary, .. } => {
                format!("what is damaged has to be copied or made again; {}", binary.hint()?)
            }
            Self::Size { what: "masked pieces of a sequence", most, .. } => {
                format!("give `--max-predictions` at most {most}")
            }
            Self::Size { what: "sequences of a pack", most, .. } => {
                format!("give `--depth` at most {most}")
            }
            Self::Size { most, .. } => format!("give `--max-seq-length` at most {most}"),
            Self::HalfReplaced { .. } => "pack again into this folder: that completes it".into(),
            Self::BinarySize { .. } => {
                "a binary does not say how large its samples are, so give the sizes that it was written \
                 with; `--max-seq-length` is the tokens of a sample; `--max-predictions` the masked \
                 pieces of a sequence; `--depth` the sequences of a pack; for packs of another size, make \
                 records of these first: `frazil pack FILES -o FILE` with the sizes that they have"
                    .into()
            }
            Self::Graph(error) => return error.hint(),
            Self::TensorFlow(error) => return error.hint(),
            Self::Row(row) => match &row.problem {
                RowProblem::Histogram(_) => "a line such as `128,4000`: 4000 sequences of 128".into(),
                RowProblem::Length { length, .. } if *length > 0 => format!(
                    "packs have to take the longest sequence; give `--max-seq-length` at least {length}"
                ),
                RowProblem::Length { .. } => "a sequence has a token at least".into(),
                RowProblem::Impossible { .. } => "SQuAD 2.0 has such questions; `--v2` learns that they \
                                                  have no answer; `--skip-bad-rows` leaves such rows \
                                                  out and counts them"
                    .into(),
                RowProblem::LongLine { .. } => "a sentence is on each line".into(),
                RowProblem::Utf8 { .. } => "`iconv -t utf-8` makes a file UTF-8; \
                                            `--skip-bad-rows` leaves such rows out and counts them"
                    .into(),
                _ => "`--skip-bad-rows` leaves such rows out and counts them".into(),
            },
            Self::OtherKind { expected: crate::samples::Kind::Pretraining, .. } => {
                "`frazil create_pretraining_data` makes samples of pre-training from text".into()
            }
            Self::OtherKind { .. } => "give the records that were made for it".into(),
            Self::BeyondModel { what: "label_ids", .. } => {
                "give records of the task that is learnt".into()
            }
            Self::BeyondModel { .. } => {
                "give records that were made with the model's vocabulary".into()
            }
            Self::BeyondPositions { positions, .. } => {
                format!("give records that were made with at most {positions} pieces")
            }
            Self::EmptyCorpus { .. } => {
                "text has a sentence on each line and an empty line between documents".into()
            }
            Self::SequenceLength { length, .. } if *length > 0 => {
                format!(
                    "packs have to take the longest sequence; give `--max-seq-length` at least {length}"
                )
            }
            Self::OtherLabels { .. } => "pack each kind on its own".into(),
            Self::MaskedPieces { found, .. } => {
                format!("no masked piece is left out; give `--max-predictions` at least {found}")
            }
            Self::PackLength { .. } => format!("`--algorithm lpfhp` packs up to {}", crate::packing::LONGEST),
            Self::FewDuplicates { .. } => {
                "`--duplication-factor` is how often each file holds the same text, masked anew; give 1 \
                 if every sample is there once"
                    .into()
            }
            Self::DocumentTooLong => "an empty line ends a document".into(),
            Self::TooLong { positions, .. } => format!("give `--seq` at most {positions}"),
            Self::MissingKey("vocab_size") => {
                "`vocab_size` is the number of lines of vocab.txt".into()
            }
            Self::NoSpecialToken("[UNK]") => {
                "is this a vocabulary of BERT? One piece is on each line of vocab.txt".into()
            }
            Self::Activation(name) if name.starts_with("gelu") => {
                "this looks like a Hugging Face config.json; in bert_config.json the tanh form \
                 of GELU is called `gelu`"
                    .into()
            }
            Self::SeveralScopes(scopes) => {
                format!("choose one with `--scope {}`", scopes.first().map_or("", |s| s))
            }
            Self::DecoderNotTied { .. } => {
                "leave the MLM head out with `--task encoder`, or tie the matrices first".into()
            }
            Self::NoSuchHead { .. } => "`--task encoder` leaves the head out".into(),
            Self::Missing { .. } => {
                "`frazil inspect` lists what is there; `--task` chooses another head".into()
            }
            Self::NotBert(_) => {
                "`frazil inspect` lists what is there; `--names tf` exports it as it is".into()
            }
            _ => return None,
        })
    }
}

fn of_id(id: &Option<String>) -> String {
    id.as_ref().map_or_else(String::new, |id| format!("; that of `{id}` is none"))
}

fn names(tasks: &[crate::glue::Task]) -> String {
    tasks.iter().map(|task| task.name()).collect::<Vec<_>>().join(", ")
}

fn paths(paths: &[PathBuf]) -> String {
    quoted(&paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>())
}

/// Names in backticks; beyond a dozen only their number, since a sentence is no listing.
pub(crate) fn quoted(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut shown: Vec<String> = names.iter().take(SHOWN).map(|name| format!("`{name}`")).collect();
    if names.len() > SHOWN {
        shown.push(format!("and {} more", names.len() - SHOWN));
    }
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..14).map(|i| i.to_string()).collect();
        assert!(quoted(&names).ends_with("`11`, and 2 more"));
        assert_eq!(quoted(&names[..2]), "`0`, `1`");
    }
}
