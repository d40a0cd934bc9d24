//! `predict embed`: one vector for each text, by any model.
//!
//! A model of sentence-transformers (MiniLM, BGE, E5 and their like) says itself how its rows become
//! a vector; of others, the rows of the layers that are asked for are pooled as the user says, or by
//! their mean. Several layers give one vector each, joined. Left out: where texts come from
//! ([`texts`](super::texts)) and where vectors go.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use frazil_bert::features::{Features, Frame};
use frazil_bert::sentence::{After, Pooling, Recipe, SentenceModel};
use frazil_bert::tokenizer::Encoding;
use serde::Serialize;

use super::texts::{Text, Texts};
use crate::ops::compile;
use crate::ops::text_model::{self, Item, TextModel, Want};
use crate::source::{Kind, Need, locate};
use crate::{Error, Result};

/// `[CLS]` and `[SEP]`.
const FRAME: usize = 2;

/// How texts are embedded. What is not given is what the model's files say.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the model is opened.
    pub model: text_model::Options,
    /// Which layers' rows, counted from 0, or from the last one as -1; the last one if none.
    pub layers: Vec<i32>,
    /// How rows become a vector; the mean if nobody says.
    pub pooling: Option<Pool>,
    /// Whether vectors are made as long as 1.
    pub normalize: Option<bool>,
    /// The name of the prompt that is put before each text.
    pub prompt: Option<String>,
}

/// How the rows of a sequence become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pool {
    /// By their values.
    Rows(Pooling),
    /// By the model's own pooler: a dense layer and tanh on the row of `[CLS]`.
    Pooler,
}

impl FromStr for Pool {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if name.eq_ignore_ascii_case("pooler") {
            return Ok(Self::Pooler);
        }
        name.parse().map(Self::Rows).map_err(|_| Error::Usage {
            what: format!("there is no pooling `{name}`"),
            hint: "give cls, mean, max, pooler, mean_sqrt_len_tokens, weightedmean or lasttoken"
                .into(),
        })
    }
}

/// What embeds, and how.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The model.
    pub model: PathBuf,
    /// The layers whose rows are pooled; none for the model's own pooler.
    pub layers: Vec<i32>,
    /// In words.
    pub pooling: String,
    /// Texts are cut to so many pieces, `[CLS]` and `[SEP]` included.
    pub max_seq_length: usize,
    /// What is put before each text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prompt: String,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Texts that have a vector now.
    pub texts: usize,
    /// Those of them that were too long and have lost their end.
    pub cut: usize,
    /// Rows that were left out.
    pub skipped: usize,
    /// Numbers of a vector.
    pub width: usize,
}

/// The vector of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Embedding {
    /// The place of the text among all, counted from 1: its line, in a file.
    pub line: usize,
    /// Its pieces, with `[CLS]` and `[SEP]`.
    pub tokens: usize,
    /// Whether its end was cut off.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// The vector.
    pub embedding: Vec<f32>,
}

/// A model that is ready to embed.
pub struct Embedder {
    model: TextModel,
    frame: Frame,
    recipe: Recipe,
    lower: bool,
    about: About,
}

impl Embedder {
    /// Opens a model.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        let sentence = SentenceModel::around(folder_of(path)?)?;
        let mut notes = Vec::new();
        let (want, mut recipe) = plan(options, sentence.as_ref(), &mut notes)?;
        normalize(&mut recipe, options.normalize);
        let (prompt, note) = prompt(options, sentence.as_ref())?;
        notes.extend(note);
        let model = TextModel::open(path, &want, &options.model)?;
        let frame = Frame::of(model.tokenizer().vocabulary());
        let frame = frame.map_err(|error| error.in_file(model.vocabulary()))?;
        let told = sentence.as_ref().and_then(|sentence| sentence.max_seq_length);
        let told = told.filter(|_| options.model.max_seq_length.is_none());
        let max_seq_length = told.map_or(model.max_seq_length(), |t| t.min(model.max_seq_length()));
        if max_seq_length <= FRAME {
            return Err(frazil_bert::Error::FeatureLength {
                name: "max_seq_length",
                found: max_seq_length,
                least: FRAME + 1,
                why: "",
            }
            .into());
        }
        let pooling = match want {
            Want::Pooled if recipe.after.is_empty() => "pooler".to_owned(),
            Want::Pooled => format!("pooler{}", recipe.describe()),
            _ => recipe.describe(),
        };
        let about = About {
            model: path.to_path_buf(),
            layers: if let Want::Hidden(layers) = want { layers } else { Vec::new() },
            pooling,
            max_seq_length,
            prompt,
            notes: model.notes().iter().cloned().chain(notes).collect(),
        };
        let lower = sentence.is_some_and(|sentence| sentence.lower);
        Ok(Self { model, frame, recipe, lower, about })
    }

    /// What embeds, and how.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Embeds texts as they come and gives the vectors away, in their order.
    pub fn embed<E: From<Error>>(
        &self,
        texts: &mut Texts,
        mut each: impl FnMut(Embedding) -> Result<(), E>,
    ) -> Result<Counts, E> {
        let mut counts = Counts::default();
        let mut encoding = Encoding::default();
        let sequences = std::iter::from_fn(|| self.next(texts, &mut encoding).transpose());
        self.model.run(
            sequences.map(|item| item.map_err(E::from)),
            |(line, tokens, cut), said| {
                let mut vector = Vec::new();
                for output in &said.outputs {
                    if self.about.layers.is_empty() {
                        vector.extend_from_slice(&output.values);
                        continue;
                    }
                    let h = output.dims.last().copied().unwrap_or(0);
                    self.recipe.pool(&output.values, h, &mut vector);
                }
                let embedding = self.recipe.finish(vector).map_err(Error::from)?;
                counts.texts += 1;
                counts.cut += usize::from(cut);
                counts.width = embedding.len();
                each(Embedding { line, tokens, cut, embedding })
            },
        )?;
        counts.skipped = texts.skipped();
        Ok(counts)
    }

    /// The sequence of the next text that the model can read.
    #[allow(clippy::type_complexity, reason = "a line, its length, and whether it was cut")]
    fn next(
        &self,
        texts: &mut Texts,
        encoding: &mut Encoding,
    ) -> Result<Option<Item<(usize, usize, bool)>>> {
        while let Some(next) = texts.next() {
            let Text { line, text } = next?;
            let text = format!("{}{text}", self.about.prompt);
            let text = if self.lower { text.to_lowercase() } else { text };
            self.model.tokenizer().encode_into(&text, encoding);
            let room = self.about.max_seq_length - FRAME;
            let cut = encoding.ids.len() > room;
            encoding.ids.truncate(room);
            let narrow = |&id: &u32| i32::try_from(id).unwrap_or(i32::MAX);
            let ids: Vec<i32> = encoding.ids.iter().map(narrow).collect();
            let features = Features::new(self.frame, &ids, None, self.about.max_seq_length);
            match self.model.check(&features) {
                Ok(()) => return Ok(Some(Item::new((line, features.len(), cut), features))),
                Err(problem) => texts.refuse(line, problem)?,
            }
        }
        Ok(None)
    }
}

/// The folder that the model lies in.
pub(crate) fn folder_of(path: &Path) -> Result<PathBuf> {
    let parent = |path: &Path| path.parent().unwrap_or(Path::new("")).to_path_buf();
    if compile::is_compiled(path) {
        return Ok(parent(path));
    }
    let located = locate(path, Need::Names)?;
    let is_folder = located.kind == Kind::SavedModel || located.path.is_dir();
    Ok(if is_folder { located.path.clone() } else { parent(&located.path) })
}

/// What is asked of the model, and what becomes of it.
fn plan(
    options: &Options,
    sentence: Option<&SentenceModel>,
    notes: &mut Vec<String>,
) -> Result<(Want, Recipe)> {
    let after = sentence.map_or_else(Vec::new, |sentence| sentence.recipe.after.clone());
    let layers = match options.layers.as_slice() {
        [] => vec![-1],
        layers => layers.to_vec(),
    };
    let pooling = match (options.pooling, sentence) {
        (Some(Pool::Pooler), _) if !options.layers.is_empty() => {
            return Err(Error::Usage {
                what: "the pooler reads the last layer only".into(),
                hint: "give `--layers` or `--pooling pooler`, not both".into(),
            });
        }
        (Some(Pool::Pooler), _) => {
            return Ok((Want::Pooled, Recipe { pooling: Vec::new(), after }));
        }
        (Some(Pool::Rows(pooling)), _) => vec![pooling],
        (None, Some(sentence)) => {
            let told = sentence.recipe.describe();
            notes.push(format!("`modules.json` says how rows become a vector: {told}"));
            sentence.recipe.pooling.clone()
        }
        (None, None) => {
            notes.push(
                "nothing says how rows become a vector: it is their mean; `--pooling` chooses"
                    .into(),
            );
            vec![Pooling::Mean]
        }
    };
    Ok((Want::Hidden(layers), Recipe { pooling, after }))
}

/// What the user wants goes before what the files say.
fn normalize(recipe: &mut Recipe, wanted: Option<bool>) {
    let is = |step: &After| matches!(step, After::Normalize);
    match wanted {
        Some(true) if !recipe.after.last().is_some_and(is) => recipe.after.push(After::Normalize),
        Some(false) => recipe.after.retain(|step| !is(step)),
        _ => {}
    }
}

/// What is put before each text, and a note if nobody asked for it.
fn prompt(options: &Options, sentence: Option<&SentenceModel>) -> Result<(String, Option<String>)> {
    let none = || (String::new(), None);
    if let Some(name) = &options.prompt {
        let found = sentence.and_then(|sentence| sentence.prompt(name));
        let names: Vec<String> = sentence
            .iter()
            .flat_map(|sentence| sentence.prompts.iter().map(|(name, _)| format!("`{name}`")))
            .collect();
        return found.map(|text| (text.to_owned(), None)).ok_or_else(|| Error::Usage {
            what: format!("the model has no prompt `{name}`"),
            hint: match names.as_slice() {
                [] => "its files name none: write it at the beginning of each text".into(),
                names => format!("its files name {}", names.join(", ")),
            },
        });
    }
    let Some(sentence) = sentence else { return Ok(none()) };
    let default = sentence.default_prompt.as_deref();
    let Some(text) = default.and_then(|name| sentence.prompt(name)) else { return Ok(none()) };
    let note = format!("the model's files say that `{text}` comes before each text");
    Ok((text.to_owned(), Some(note)))
}
