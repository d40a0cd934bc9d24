//! A source of weights together with what it means: its names read, its configuration found.
//! Shared by the operations that carry weights from one file to another.

use std::path::{Path, PathBuf};

use frazil_bert::config::{Formulas, FromHuggingFace, FromShapes, Labels};
use frazil_bert::names::{self, Head, Mapped, Naming, Part, Row, Rule, Translation, variables};
use frazil_bert::{BertConfig, inventory};
use frazil_tensor::{DType, TensorInfo, TensorStore, file};
use serde::Serialize;

use crate::source::{self, Kind, Weights, open_weights};
use crate::{Error, Result};

/// Weights whose names are understood.
pub(crate) struct Model {
    pub weights: Weights,
    pub translation: Translation,
    /// Canonical variables.
    pub infos: Vec<TensorInfo>,
    /// None for weights that are no whole BERT.
    pub config: Option<Configuration>,
    /// Remarks for the report.
    pub notes: Vec<String>,
}

/// Where the configuration came from.
pub(crate) struct Configuration {
    pub config: BertConfig,
    pub labels: Option<Labels>,
    /// The file; none if the configuration is read off the shapes.
    pub path: Option<PathBuf>,
    /// What the model computes where google-research/bert's code has one fixed formula.
    pub formulas: Formulas,
    /// What google-research/bert's own code computes otherwise, in sentences.
    pub differences: Vec<String>,
}

impl Configuration {
    /// Of google-research/bert's own formulas.
    fn original(config: BertConfig, path: Option<PathBuf>) -> Self {
        let formulas = Formulas::default();
        Self { config, labels: None, path, formulas, differences: Vec::new() }
    }
}

/// What an operation read from.
#[derive(Clone, Debug, Serialize)]
pub struct Source {
    /// What the user gave.
    pub asked: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// Where it is.
    pub path: PathBuf,
    /// Whose names it uses.
    pub naming: Naming,
    /// How its names became BERT's.
    pub rules: Vec<Rule>,
    /// The configuration that was found beside it or given; none if it is read off the shapes.
    pub config: Option<PathBuf>,
}

/// A tensor that was written.
#[derive(Clone, Debug, Serialize)]
pub struct Written {
    /// Its name in the new file.
    pub name: String,
    /// Element type.
    pub dtype: &'static str,
    /// Extents.
    pub shape: Vec<usize>,
    /// What it was made of, by name in the source.
    pub from: Vec<String>,
}

/// Tensors that were not written, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Why.
    pub reason: String,
    /// Their names in the source.
    pub names: Vec<String>,
}

/// What was not written, grouped by reason.
#[derive(Default)]
pub(crate) struct LeftOuts(pub Vec<LeftOut>);

impl LeftOuts {
    pub fn add(&mut self, reason: impl Into<String>, name: impl Into<String>) {
        let (reason, name) = (reason.into(), name.into());
        match self.0.iter_mut().find(|left| left.reason == reason) {
            Some(left) => left.names.push(name),
            None => self.0.push(LeftOut { reason, names: vec![name] }),
        }
    }
}

/// How to open a model.
pub(crate) struct Request<'a> {
    pub path: &'a Path,
    pub source: &'a source::Options,
    pub scope: Option<&'a str>,
    pub config: Option<&'a Path>,
    pub heads: Option<usize>,
    /// Takes weights that are no BERT, too.
    pub any: bool,
}

impl Model {
    /// Opens the weights, reads their names, finds their configuration and checks it against
    /// their shapes.
    pub fn open(request: &Request) -> Result<Self> {
        let weights = open_weights(request.path, request.source)?;
        let mut notes = weights.located.notes.clone();
        let translation = names::read(weights.infos(), request.scope)?;
        if request.scope.is_none() && translation.scopes.len() > 1 {
            if !translation.scopes[0].is_empty() {
                return Err(frazil_bert::Error::SeveralScopes(translation.scopes).into());
            }
            let others = translation.scopes[1..].join("`, `");
            notes
                .push(format!("there are more models, under scope `{others}`; this is the root's"));
        }
        let infos = translation.infos();
        let config = match translation.from_shapes() {
            Ok(shapes) => {
                let naming = translation.naming;
                Some(configuration(request, &weights, naming, &shapes, &mut notes)?)
            }
            Err(error) if request.any => {
                notes.push(format!("{error}; the tensors are written as they are"));
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { weights, translation, infos, config, notes })
    }

    /// Says what google-research/bert's own code will compute otherwise from these weights.
    pub fn note_differences(&mut self) {
        let differences = self.config.iter().flat_map(|config| config.differences.clone());
        self.notes.extend(differences);
    }

    /// The source, for a report.
    pub fn source(&self) -> Source {
        Source {
            asked: self.weights.located.asked.clone(),
            kind: self.weights.located.kind,
            path: self.weights.located.path.clone(),
            naming: self.translation.naming,
            rules: self.translation.rules.clone(),
            config: self.config.as_ref().and_then(|config| config.path.clone()),
        }
    }

    /// The configuration; an error if the weights are no whole BERT.
    pub fn bert(&self) -> Result<&Configuration> {
        let missing = || frazil_bert::Error::NotBert("they are incomplete".into());
        Ok(self.config.as_ref().ok_or_else(missing)?)
    }

    /// Classes of the classifier, as its variables have them.
    pub fn labels(&self) -> usize {
        let weights = self.infos.iter().find(|info| info.name == "output_weights");
        weights.and_then(|info| info.shape.first().copied()).unwrap_or(0)
    }

    /// The head to carry: the one asked for, or the only one there is.
    pub fn head(&self, asked: Option<Head>) -> Result<Head> {
        if let Some(head) = asked {
            return Ok(head);
        }
        // A head of which only some variables are there is chosen too: the plan then says
        // which are missing.
        match self.heads().as_slice() {
            [] => Ok(Head::Encoder),
            [only] => Ok(*only),
            several => {
                let list: Vec<String> = several.iter().map(|head| format!("`{head}`")).collect();
                Err(Error::Usage {
                    what: format!("the weights hold several heads: {}", list.join(", ")),
                    hint: format!("choose one with `--task {}`", several[0]),
                })
            }
        }
    }

    /// Every head of which some variable is there, the encoder aside.
    pub fn heads(&self) -> Vec<Head> {
        let config = self.config.as_ref().map(|config| &config.config);
        let inventory = inventory::Inventory::new(&self.translation, config);
        let heads = inventory.heads.iter().map(|report| report.head);
        heads.filter(|head| *head != Head::Encoder).collect()
    }

    /// A decoder of masked words that differs from the word embeddings has no place in
    /// google-research/bert's graph. Heads that have none are not looked at.
    pub fn check_tied(&self, heads: &[Head]) -> Result<()> {
        if !heads.iter().any(|head| head.has(Part::Mlm)) {
            return Ok(());
        }
        let canonical = Mapped::new(&self.weights, self.translation.rows.clone());
        for (decoder, name) in &self.translation.tied {
            let store = |source| Error::Store { name: decoder.clone(), source };
            let first = self.weights.tensor(decoder).map_err(store)?;
            let second = canonical.tensor(name).map_err(store)?;
            if first != second {
                let (decoder, embedding) = (decoder.clone(), name.clone());
                return Err(frazil_bert::Error::DecoderNotTied { decoder, embedding }.into());
            }
        }
        Ok(())
    }

    /// The first of these files beside the source that is not in `folder`.
    pub fn beside(&self, names: &[&str], folder: &Path) -> Option<PathBuf> {
        let found = self.weights.located.beside(names)?;
        let here = |path: &Path| path.join(".").canonicalize().ok();
        let same = found.parent().is_some_and(|parent| here(parent) == here(folder));
        (!same).then_some(found)
    }
}

/// `--config`, else what lies beside the source, else what the shapes say.
fn configuration(
    request: &Request,
    weights: &Weights,
    naming: Naming,
    shapes: &FromShapes,
    notes: &mut Vec<String>,
) -> Result<Configuration> {
    let beside = || weights.located.beside(&["bert_config.json", "config.json"]);
    let Some(path) = request.config.map(Path::to_path_buf).or_else(beside) else {
        let mut config = shapes.config.clone();
        if let Some(heads) = request.heads {
            config.num_attention_heads = heads;
            config.check()?;
        } else if shapes.guessed.contains(&"num_attention_heads") {
            notes.push(format!(
                "no bert_config.json was found: the sizes are those of the variables, \
                 num_attention_heads {} is a guess",
                config.num_attention_heads
            ));
        }
        return Ok(Configuration::original(config, None));
    };
    let mut found = read_config(&path)?;
    let config = &mut found.config;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if naming == Naming::Popart {
        // PopART's files are cut to other lengths on purpose.
        for (key, ours, theirs) in [
            ("vocab_size", &mut config.vocab_size, shapes.config.vocab_size),
            (
                "max_position_embeddings",
                &mut config.max_position_embeddings,
                shapes.config.max_position_embeddings,
            ),
        ] {
            if *ours != theirs {
                notes.push(format!("{key}: {name} says {ours}, the weights have {theirs} rows"));
                *ours = theirs;
            }
        }
    }
    let differences = shapes.contradictions(config);
    if !differences.is_empty() {
        let says = format!("{name} says");
        let sentences: Vec<String> =
            differences.iter().map(|d| d.sentence(&says, "the variables say")).collect();
        return Err(Error::Usage {
            what: format!("`{}` is not of these weights: {}", path.display(), sentences.join("; ")),
            hint: "give the right one with `--config`".into(),
        });
    }
    if !config.defaulted.is_empty() {
        let keys = config.defaulted.join("`, `");
        notes.push(format!("{name} leaves `{keys}` to the defaults"));
    }
    if let Some(heads) = request.heads {
        config.num_attention_heads = heads;
        config.check()?;
    }
    Ok(found)
}

/// Either kind of configuration, told apart by a key that only transformers writes.
fn read_config(path: &Path) -> Result<Configuration> {
    let bytes = file::map(path)?;
    let huggingface = [&b"\"model_type\""[..], b"\"architectures\""]
        .iter()
        .any(|key| bytes.windows(key.len()).any(|window| window == *key));
    if !huggingface {
        let config = BertConfig::from_slice(&bytes).map_err(|e| e.in_file(path))?;
        return Ok(Configuration::original(config, Some(path.to_path_buf())));
    }
    let read = FromHuggingFace::from_slice(&bytes).map_err(|e| e.in_file(path))?;
    Ok(Configuration {
        config: read.config,
        labels: read.labels,
        path: Some(path.to_path_buf()),
        formulas: read.formulas,
        differences: read.notes,
    })
}

/// Why a canonical variable is not part of a task.
pub(crate) fn other_head(name: &str, head: Head) -> String {
    match variables::part_of(name) {
        Some(part) if part != Part::Pooler => format!("of the {part}, not of task {head}"),
        _ => format!("not of task {head}"),
    }
}

/// Rows for a writer: wide types first, so that every tensor is aligned in a mapped file.
pub(crate) fn in_writing_order(rows: &mut [Row]) {
    let width = |dtype: DType| std::cmp::Reverse(dtype.size().unwrap_or(0));
    rows.sort_by(|a, b| {
        let key = |row: &Row| width(row.target.dtype);
        key(a).cmp(&key(b)).then_with(|| a.target.name.cmp(&b.target.name))
    });
}
