//! Writes a TensorFlow 1 checkpoint from weights under any names that frazil reads: Hugging
//! Face's, PopART's, or TensorFlow's own with a scope to drop or slots to leave behind.
//!
//! Beside the checkpoint: `bert_config.json`, the file `checkpoint`, and `vocab.txt` where the
//! source has one, so that the folder is what google-research/bert's code expects.

use std::path::{Path, PathBuf};

use frazil_bert::inventory::total;
use frazil_bert::names::{Head, Part, Row, variables};
use frazil_tensor::{DType, file};
use frazil_tf::bundle::{BundleWriter, WriteOptions};
use frazil_tf::checkpoint_state::CheckpointState;
use serde::Serialize;

use super::model::{LeftOuts, Model, Request, other_head};
use crate::source;
use crate::{Error, Result};

pub use super::model::{LeftOut, Source, Written};

/// The prefix in a folder, as in Google's zips.
const PREFIX: &str = "bert_model.ckpt";

/// What to write and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The head to write; without it every head there is.
    pub task: Option<Head>,
    /// Which of several models in a file.
    pub scope: Option<String>,
    /// A `config.json` or `bert_config.json`, if not the one beside the source.
    pub config: Option<PathBuf>,
    /// `num_attention_heads`, where no configuration tells it.
    pub heads: Option<usize>,
    /// Writes the optimizer's slots and the training state too.
    pub slots: bool,
    /// Another floating-point type than the source has.
    pub dtype: Option<DType>,
    /// How the source is opened.
    pub source: source::Options,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub source: Source,
    /// The checkpoint's prefix.
    pub prefix: PathBuf,
    /// Files written beside it.
    pub beside: Vec<PathBuf>,
    /// The heads in it.
    pub heads: Vec<Head>,
    /// The variables in it.
    pub written: Vec<Written>,
    /// Their elements, slots included.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Canonical variables that the source lacks and no head needs.
    pub missing: Vec<String>,
    /// What of the source is not in it.
    pub left_out: Vec<LeftOut>,
    /// Choices made on the way, and remarks.
    pub notes: Vec<String>,
}

/// Writes the weights at `path` as a checkpoint. `output` is a folder, or a prefix such as
/// `out/bert_model.ckpt`; folders are made. `progress` is told how many tensors of how many are
/// done.
pub fn import_weights(
    path: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    if let Some(dtype) = options.dtype.filter(|dtype| !dtype.is_float()) {
        return Err(Error::Usage {
            what: format!("weights cannot be written as {dtype}"),
            hint: "float32, float16, bfloat16 and float64 can hold weights".into(),
        });
    }
    let mut model = Model::open(&Request {
        path: path.as_ref(),
        source: &options.source,
        scope: options.scope.as_deref(),
        config: options.config.as_deref(),
        heads: options.heads,
        any: false,
    })?;
    model.note_differences();
    let heads = match options.task {
        Some(head) => vec![head],
        None => model.heads(),
    };
    let missing = complete(&model, &heads)?;
    if !missing.is_empty() {
        model.notes.push(
            "the source has no pooler: google-research/bert's graphs have one, and restore \
             this checkpoint only as `init_checkpoint`"
                .into(),
        );
    }
    model.check_tied(&heads)?;
    let mut left = LeftOuts::default();
    let mut rows = rows(&model, options, &heads, &mut left);
    rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));

    let prefix = prefix_of(output.as_ref());
    let folder = prefix.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut writer = BundleWriter::create(&prefix, WriteOptions::default())?;
    for (done, row) in rows.iter().enumerate() {
        progress(done, rows.len());
        writer.add(&row.target.name, &row.run(&model.weights)?)?;
    }
    writer.finish()?;
    progress(rows.len(), rows.len());
    if rows.iter().any(|row| narrow(row.target.dtype)) {
        model.notes.push(
            "some variables are not float32; google-research/bert's graphs restore float32 \
             only: `--dtype float32` casts"
                .into(),
        );
    }
    let beside = write_beside(&model, &prefix, folder)?;
    let written = rows.iter().map(|row| Written {
        name: row.target.name.clone(),
        dtype: row.target.dtype.name(),
        shape: row.target.shape.to_vec(),
        from: row.from.clone(),
    });
    Ok(Report {
        source: model.source(),
        beside,
        heads,
        written: written.collect(),
        parameters: total(rows.iter().filter_map(|row| row.target.shape.elements())),
        bytes: total(rows.iter().filter_map(|row| row.target.byte_len())),
        missing,
        left_out: left.0,
        notes: model.notes,
        prefix,
    })
}

fn narrow(dtype: DType) -> bool {
    dtype.is_float() && dtype != DType::F32
}

/// `out/` and existing folders get the usual prefix; anything else is one.
fn prefix_of(output: &Path) -> PathBuf {
    let folder = output.is_dir() || output.as_os_str().to_string_lossy().ends_with('/');
    if folder { output.join(PREFIX) } else { output.to_path_buf() }
}

/// Every head must have what its outputs depend on. Returns what is missing otherwise: the
/// pooler, where only its absence is forgivable.
fn complete(model: &Model, heads: &[Head]) -> Result<Vec<String>> {
    let mut forgiven = Vec::new();
    for head in heads.iter().chain([&Head::Encoder]) {
        let report = frazil_bert::inventory::report(&model.infos, &model.bert()?.config, *head);
        if let Some(wrong) = report.wrong.first() {
            return Err(Error::Bert(frazil_bert::Error::Shape {
                name: wrong.name.clone(),
                expected: wrong.expected.clone().into(),
                found: wrong.found.clone().into(),
            }));
        }
        let pooler = |name: &str| variables::part_of(name) == Some(Part::Pooler);
        // Encoders are published without their pooler; a head that reads it needs it.
        let forgive =
            |name: &str| pooler(name) && (*head == Head::Encoder || !head.needs(Part::Pooler));
        let (ok, bad): (Vec<String>, Vec<String>) =
            report.missing.into_iter().map(|missing| missing.name).partition(|name| forgive(name));
        if !bad.is_empty() {
            let target = format!("task {head}");
            return Err(Error::Bert(frazil_bert::Error::Missing { target, names: bad }));
        }
        forgiven = ok;
    }
    Ok(forgiven)
}

fn rows(model: &Model, options: &Options, heads: &[Head], left: &mut LeftOuts) -> Vec<Row> {
    let belongs = |name: &str| match variables::part_of(name) {
        Some(part) => Head::Encoder.has(part) || heads.iter().any(|head| head.has(part)),
        None => options.task.is_none(),
    };
    let mut rows = Vec::new();
    for row in &model.translation.rows {
        if !belongs(&row.target.name) {
            let head = heads.first().copied().unwrap_or(Head::Encoder);
            left.add(other_head(&row.target.name, head), row.from.join(", "));
            continue;
        }
        let row = row.clone();
        rows.push(match options.dtype {
            Some(dtype) => row.cast(dtype),
            None => row,
        });
    }
    if options.slots {
        // Slots of dropped heads are of no use; the types stay as the optimizer had them.
        let keep =
            |row: &&Row| row.target.name.rsplit_once('/').is_none_or(|(base, _)| belongs(base));
        rows.extend(model.translation.slot_rows.iter().filter(keep).cloned());
        rows.extend(model.translation.state.iter().map(|info| Row::copy(&info.name, info)));
    } else {
        for slot in &model.translation.slots {
            left.add(format!("optimizer slot `{}`", slot.kind), &slot.info.name);
        }
        for info in &model.translation.state {
            left.add("training state", &info.name);
        }
    }
    for ignored in &model.translation.ignored {
        left.add(&ignored.reason, &ignored.info.name);
    }
    for info in &model.translation.unexpected {
        left.add("none of BERT's variables", &info.name);
    }
    rows
}

fn write_beside(model: &Model, prefix: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let config = folder.join("bert_config.json");
    model.bert()?.config.write(&config)?;
    let mut written = vec![config];
    CheckpointState::new(prefix).write(folder)?;
    written.push(folder.join("checkpoint"));
    if let Some(vocab) = model.beside(&["vocab.txt"], folder) {
        let target = folder.join("vocab.txt");
        file::write(&target, &file::map(&vocab)?)?;
        written.push(target);
    }
    Ok(written)
}
