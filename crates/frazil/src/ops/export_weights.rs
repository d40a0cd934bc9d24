//! Writes a model's weights as `.safetensors` or `.npz`, under BERT's own names, Hugging Face's
//! or PopART's.
//!
//! The plan is made on names and shapes before anything is written, so an incomplete model
//! fails at once and leaves no file; then one tensor is made and written at a time. Whatever is
//! not written is in the report, with the reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use frazil_bert::config::{Labels, to_huggingface};
use frazil_bert::inventory::total;
use frazil_bert::names::{Head, Mapped, Row, huggingface, popart, variables};
use frazil_bert::tokenizer_files::TokenizerFiles;
use frazil_tensor::npy::NpzWriter;
use frazil_tensor::safetensors::SafeTensorsWriter;
use frazil_tensor::{DType, Tensor, TensorInfo, TensorStore, file};
use serde::Serialize;

use super::make_folder;
use super::model::{LeftOuts, Model, Request, in_writing_order, other_head};
use crate::source::{self, Kind};
use crate::{Error, Result};

pub use super::model::{LeftOut, Source, Written};

/// Whose names to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Names {
    /// google-research/bert's variables.
    #[default]
    Tf,
    /// Those of transformers' PyTorch classes.
    HuggingFace,
    /// Graphcore's PopART initializers.
    Popart,
}

/// What to write and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose names.
    pub names: Names,
    /// The head to write; without it the only one there is, or with [`Names::Tf`] all.
    pub task: Option<Head>,
    /// Which of several models in a file.
    pub scope: Option<String>,
    /// A `bert_config.json`, if not the one beside the source.
    pub config: Option<PathBuf>,
    /// Writes the optimizer's state too.
    pub slots: bool,
    /// Another floating-point type than the variables have.
    pub dtype: Option<DType>,
    /// Hugging Face: writes the pooler even where the class has none.
    pub keep_pooler: bool,
    /// PopART: spelling, query-key-value, lengths, type of the first moment. Its `dtype` and
    /// `moments` are taken from [`Options::dtype`] and [`Options::slots`].
    pub popart: popart::Options,
    /// How the source is opened.
    pub source: source::Options,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was read.
    pub source: Source,
    /// The file of weights.
    pub output: PathBuf,
    /// Files written beside it.
    pub beside: Vec<PathBuf>,
    /// Whose names are in it.
    pub names: Names,
    /// The head, if one was chosen.
    pub task: Option<Head>,
    /// The class of transformers that loads it.
    pub architecture: Option<&'static str>,
    /// The tensors in it.
    pub written: Vec<Written>,
    /// Their elements.
    pub parameters: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is not in it.
    pub left_out: Vec<LeftOut>,
    /// Choices made on the way, and remarks.
    pub notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    SafeTensors,
    Npz,
}

/// Writes the weights at `path` to `output`. `progress` is told how many tensors of how many are
/// done.
pub fn export_weights(
    path: impl AsRef<Path>,
    output: impl AsRef<Path>,
    options: &Options,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Report> {
    let output = output.as_ref();
    let format = format_of(output)?;
    check(options)?;
    let mut model = Model::open(&Request {
        path: path.as_ref(),
        source: &options.source,
        scope: options.scope.as_deref(),
        config: options.config.as_deref(),
        heads: None,
        any: options.names == Names::Tf && options.task.is_none(),
    })?;
    model.note_differences();
    let mut left = LeftOuts::default();
    for ignored in &model.translation.ignored {
        left.add(&ignored.reason, &ignored.info.name);
    }
    // Everything the source offers, under canonical names.
    let mut offered = model.translation.rows.clone();
    if options.slots {
        offered.extend(model.translation.slot_rows.clone());
    } else {
        for slot in &model.translation.slots {
            left.add(format!("optimizer slot `{}`", slot.kind), &slot.info.name);
        }
    }
    let head = match options.names {
        Names::Tf => options.task,
        _ => Some(model.head(options.task)?),
    };
    let canonical = Mapped::new(&model.weights, offered.clone());
    let mut rows = match (options.names, head) {
        (Names::Tf, head) => tf_rows(&model, &canonical, head, options, &mut left)?,
        (Names::HuggingFace, head) => {
            let head = head.unwrap_or(Head::Encoder);
            let config = &model.bert()?.config;
            let wanted =
                huggingface::Options { keep_pooler: options.keep_pooler, dtype: options.dtype };
            let plan = huggingface::plan(&model.infos, config, head, model.labels(), &wanted)?;
            let class = huggingface::architecture(head);
            for name in plan.left_out {
                left.add(format!("{class} has no pooler; `--keep-pooler` writes it"), name);
            }
            plan.rows
        }
        (Names::Popart, head) => {
            let head = head.unwrap_or(Head::Encoder);
            let wanted = popart::Options {
                dtype: options.dtype,
                moments: options.slots,
                ..options.popart.clone()
            };
            let plan = popart::plan(canonical.infos(), &model.bert()?.config, head, &wanted)?;
            if let Some((first, second)) = plan.moments {
                model.notes.push(format!("moments: `{first}` is the first, `{second}` the second"));
            }
            for name in plan.left_out {
                let reason = match variables::part_of(&name) {
                    Some(variables::Part::Mlm) => "the examples' spelling has no MLM bias",
                    _ => "PopART's model has a pooler for NSP only",
                };
                left.add(reason, name);
            }
            plan.rows
        }
    };
    if options.names != Names::Tf {
        others(&model, head, &mut left);
    }
    refuse_unstorable(&mut rows, format, &mut left)?;
    in_writing_order(&mut rows);
    make_folder(output.parent().unwrap_or(Path::new("")))?;
    let through = Through { canonical: &canonical, weights: &model.weights };
    let overflowed = write(output, format, options.names, &rows, &through, progress)?;
    model.notes.extend(overflowed);
    let beside = match (options.names, head) {
        (Names::HuggingFace, Some(head)) => write_beside(&mut model, output, head)?,
        _ => Vec::new(),
    };
    let sources: BTreeMap<&str, &Row> =
        offered.iter().map(|row| (row.target.name.as_str(), row)).collect();
    Ok(Report {
        source: model.source(),
        output: output.to_path_buf(),
        beside,
        names: options.names,
        task: head,
        architecture: match (options.names, head) {
            (Names::HuggingFace, Some(head)) => Some(huggingface::architecture(head)),
            _ => None,
        },
        parameters: total(rows.iter().filter_map(|row| row.target.shape.elements())),
        bytes: total(rows.iter().filter_map(|row| row.target.byte_len())),
        written: rows.iter().map(|row| written(row, &sources)).collect(),
        left_out: left.0,
        notes: model.notes,
    })
}

fn written(row: &Row, sources: &BTreeMap<&str, &Row>) -> Written {
    let original = |name: &String| match sources.get(name.as_str()) {
        Some(source) => source.from.clone(),
        None => vec![name.clone()],
    };
    Written {
        name: row.target.name.clone(),
        dtype: row.target.dtype.name(),
        shape: row.target.shape.to_vec(),
        from: row.from.iter().flat_map(original).collect(),
    }
}

fn format_of(output: &Path) -> Result<Format> {
    match output.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => Ok(Format::SafeTensors),
        Some("npz") => Ok(Format::Npz),
        _ => Err(Error::Usage {
            what: format!("`{}` says neither `.safetensors` nor `.npz`", output.display()),
            hint: "the output's extension chooses the format".into(),
        }),
    }
}

/// Options that would have no effect are mistakes.
fn check(options: &Options) -> Result<()> {
    let defaults = popart::Options::default();
    let given = &options.popart;
    let popart_only = [
        ("--popart-spelling", given.spelling != defaults.spelling),
        ("--split-qkv", given.split_qkv),
        ("--vocab", given.vocab.is_some()),
        ("--positions", given.positions.is_some()),
        ("--lamb-m-dtype", given.first_moment_dtype != defaults.first_moment_dtype),
    ];
    let stray = |flag: &str, needs: &str| Error::Usage {
        what: format!("`{flag}` has no effect without `{needs}`"),
        hint: format!("add `{needs}`, or leave `{flag}` out"),
    };
    for (flag, used) in popart_only {
        if used && options.names != Names::Popart {
            return Err(stray(flag, "--names popart"));
        }
    }
    if given.first_moment_dtype != defaults.first_moment_dtype && !options.slots {
        return Err(stray("--lamb-m-dtype", "--slots"));
    }
    if options.keep_pooler && options.names != Names::HuggingFace {
        return Err(stray("--keep-pooler", "--names huggingface"));
    }
    if options.slots && options.names == Names::HuggingFace {
        return Err(Error::Usage {
            what: "Hugging Face's files have no place for an optimizer's slots".into(),
            hint: "leave `--slots` out, or write them with `--names tf`".into(),
        });
    }
    match options.dtype {
        Some(dtype) if !dtype.is_float() => Err(Error::Usage {
            what: format!("weights cannot be written as {dtype}"),
            hint: "float32, float16, bfloat16 and float64 can hold weights".into(),
        }),
        _ => Ok(()),
    }
}

/// Canonical variables of the task, or of every head; then slots, state and strangers as asked.
fn tf_rows(
    model: &Model,
    canonical: &Mapped,
    head: Option<Head>,
    options: &Options,
    left: &mut LeftOuts,
) -> Result<Vec<Row>> {
    let heads = match head {
        Some(head) => vec![head],
        None => model.heads().into_iter().chain([Head::Encoder]).collect(),
    };
    // What is no BERT cannot be incomplete.
    let measure =
        model.config.iter().flat_map(|known| heads.iter().map(move |head| (known, *head)));
    for (known, head) in measure {
        let report = frazil_bert::inventory::report(&model.infos, &known.config, head);
        if let Some(wrong) = report.wrong.first() {
            return Err(Error::Bert(frazil_bert::Error::Shape {
                name: wrong.name.clone(),
                expected: wrong.expected.clone().into(),
                found: wrong.found.clone().into(),
            }));
        }
        let missing = report.missing.iter().filter(|m| m.needed && !m.name.contains("pooler"));
        let names: Vec<String> = missing.map(|missing| missing.name.clone()).collect();
        if !names.is_empty() {
            let target = format!("task {head}");
            return Err(Error::Bert(frazil_bert::Error::Missing { target, names }));
        }
    }
    let mut rows = Vec::new();
    for info in canonical.infos() {
        let owner = model.translation.slot_rows.iter().any(|row| row.target.name == info.name);
        let base = match info.name.rsplit_once('/') {
            Some((base, _)) if owner => base,
            _ => info.name.as_str(),
        };
        match (head, variables::part_of(base)) {
            (Some(head), Some(part)) if !head.has(part) => {
                left.add(other_head(base, head), &info.name);
                continue;
            }
            _ => {}
        }
        let row = Row::copy(&info.name, info);
        // Moments keep their type: training goes on from them.
        rows.push(match options.dtype {
            Some(dtype) if !owner => row.cast(dtype),
            _ => row,
        });
    }
    let from_graph = model.weights.located.kind == Kind::Graph && model.config.is_some();
    for info in &model.translation.unexpected {
        if from_graph {
            left.add("constant of the graph, no variable of BERT", &info.name);
        } else if head.is_some() {
            left.add("none of BERT's variables", &info.name);
        } else {
            rows.push(Row::copy(&info.name, info));
        }
    }
    for info in &model.translation.state {
        if options.slots {
            rows.push(Row::copy(&info.name, info));
        } else {
            left.add("training state", &info.name);
        }
    }
    Ok(rows)
}

/// What a task's names have no place for.
fn others(model: &Model, head: Option<Head>, left: &mut LeftOuts) {
    for info in &model.infos {
        match (head, variables::part_of(&info.name)) {
            (Some(head), Some(part)) if !head.has(part) => {
                left.add(other_head(&info.name, head), &info.name);
            }
            _ => {}
        }
    }
    for info in &model.translation.state {
        left.add("training state", &info.name);
    }
    let reason = match model.weights.located.kind {
        Kind::Graph => "constant of the graph, no variable of BERT",
        _ => "none of BERT's variables",
    };
    for info in &model.translation.unexpected {
        left.add(reason, &info.name);
    }
}

/// Strings (an object graph) are left out of safetensors; a type that the format lacks is an
/// error before anything is written.
fn refuse_unstorable(rows: &mut Vec<Row>, format: Format, left: &mut LeftOuts) -> Result<()> {
    rows.retain(|row| {
        let text = row.target.dtype == DType::String && format == Format::SafeTensors;
        if text {
            left.add("safetensors cannot hold strings", &row.target.name);
        }
        !text
    });
    if format == Format::Npz && rows.iter().any(|row| row.target.dtype == DType::BF16) {
        return Err(Error::Usage {
            what: "NumPy has no bfloat16".into(),
            hint: "write `.safetensors`, or choose another type with `--dtype float32`".into(),
        });
    }
    Ok(())
}

/// The store behind a plan: canonical names first, the source's own for what has none.
struct Through<'a> {
    canonical: &'a Mapped<'a>,
    weights: &'a dyn TensorStore,
}

impl TensorStore for Through<'_> {
    fn infos(&self) -> &[TensorInfo] {
        self.canonical.infos()
    }

    fn tensor(&self, name: &str) -> Result<Tensor, frazil_tensor::StoreError> {
        match self.canonical.info(name) {
            Some(_) => self.canonical.tensor(name),
            None => self.weights.tensor(name),
        }
    }
}

/// Makes and writes one tensor at a time; says which overflowed in a narrower type.
fn write(
    output: &Path,
    format: Format,
    names: Names,
    rows: &[Row],
    store: &dyn TensorStore,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<String>> {
    let mut overflowed = Vec::new();
    let mut made = |row: &Row| -> Result<Tensor> {
        let tensor = row.run(store)?;
        overflowed.extend(overflow(row, &tensor, store)?);
        Ok(tensor)
    };
    match format {
        Format::SafeTensors => {
            let infos: Vec<TensorInfo> = rows.iter().map(|row| row.target.clone()).collect();
            // transformers refuses a file that does not name its framework.
            let (key, value) = match names {
                Names::HuggingFace => ("format", "pt"),
                Names::Tf => ("names", "google-research/bert"),
                Names::Popart => ("names", "popart"),
            };
            let metadata = BTreeMap::from([(key.to_string(), value.to_string())]);
            let mut writer = SafeTensorsWriter::create(output, &infos, &metadata)?;
            for (done, row) in rows.iter().enumerate() {
                progress(done, rows.len());
                writer.add(&made(row)?)?;
            }
            writer.finish()?;
        }
        Format::Npz => {
            let mut writer = NpzWriter::create(output)?;
            for (done, row) in rows.iter().enumerate() {
                progress(done, rows.len());
                writer.add(&row.target.name, &made(row)?)?;
            }
            writer.finish()?;
        }
    }
    progress(rows.len(), rows.len());
    Ok(overflowed)
}

/// A sentence if the cast to float16 made infinities of finite values.
fn overflow(row: &Row, made: &Tensor, store: &dyn TensorStore) -> Result<Option<String>> {
    if row.target.dtype != DType::F16 {
        return Ok(None);
    }
    let lost = |tensor: &Tensor| -> Result<usize> {
        Ok(tensor.to_f64()?.iter().filter(|value| !value.is_finite()).count())
    };
    let after = lost(made)?;
    if after == 0 {
        return Ok(None);
    }
    let before = lost(&row.clone().cast(DType::F64).run(store)?)?;
    let count = after.saturating_sub(before);
    let sentence = format!("{count} values of `{}` are beyond float16's range", row.target.name);
    Ok((count > 0).then_some(sentence))
}

/// `config.json` for the class, the vocabulary and its tokenizer's files, beside the weights.
fn write_beside(model: &mut Model, output: &Path, head: Head) -> Result<Vec<PathBuf>> {
    let folder = output.parent().unwrap_or(Path::new(""));
    let mut written = Vec::new();
    let config = model.bert()?;
    let target = folder.join("config.json");
    let same = |path: &PathBuf| path.canonicalize().ok() == target.canonicalize().ok();
    match &config.path {
        None => model.notes.push(
            "config.json was not written: without a bert_config.json the number of heads is \
             unknown (`--config`)"
                .into(),
        ),
        Some(path) if target.exists() && same(path) => {
            model.notes.push("config.json is the source's own and stays as it is".into());
        }
        Some(_) => {
            let count = Labels::Count(model.labels());
            let labels = config.labels.clone().filter(|labels| labels.count() == count.count());
            let labels = Some(labels.unwrap_or(count));
            let formulas = config.formulas;
            let text = to_huggingface(&config.config, head, labels.as_ref(), formulas);
            file::write(&target, text.as_bytes())?;
            written.push(target);
        }
    }
    if let Some(vocab) = model.beside(&["vocab.txt"], folder) {
        let text = file::map(&vocab)?;
        let positions = model.bert()?.config.max_position_embeddings;
        let files = TokenizerFiles::new(&text, positions);
        let files = files.map_err(|error| error.in_file(&vocab))?;
        let case = if files.lower_case { "lower" } else { "both upper and lower" };
        model.notes.push(format!("the vocabulary has words in {case} case"));
        for (name, text) in [
            ("vocab.txt", text.as_ref()),
            ("tokenizer.json", files.tokenizer.as_bytes()),
            ("tokenizer_config.json", files.config.as_bytes()),
        ] {
            let target = folder.join(name);
            file::write(&target, text)?;
            written.push(target);
        }
    }
    Ok(written)
}
