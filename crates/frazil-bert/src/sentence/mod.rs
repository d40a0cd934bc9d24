//! Models of sentence-transformers: which folder of one has the BERT, and what becomes of its rows.
//!
//! `modules.json` lists modules in the order in which they are computed: the transformer, a pooling
//! of its rows to one vector, and what is done with that vector. [`SentenceModel`] reads the files,
//! [`Recipe`] computes what comes after the transformer. Left out: the transformer itself, which is
//! a folder of Hugging Face's like any other, and modules that are no part of a BERT's (word
//! vectors, LSTMs, images), which are refused by name.

mod dense;
mod pooling;

use std::path::{Path, PathBuf};

use frazil_tensor::file;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{Error, Result};

pub use dense::{Dense, DenseActivation};
pub use pooling::{After, Pooling, Recipe};

/// The list of modules.
pub const MODULES: &str = "modules.json";
/// What the transformer's module says beside Hugging Face's files.
const TRANSFORMER_CONFIG: &str = "sentence_bert_config.json";
/// What the whole says of itself: prompts.
const CONFIG: &str = "config_sentence_transformers.json";

/// What the files of a model of sentence-transformers say.
#[derive(Clone, Debug)]
pub struct SentenceModel {
    /// The folder of the transformer: the model's own, or one below.
    pub transformer: PathBuf,
    /// Texts are cut to so many word pieces, `[CLS]` and `[SEP]` included.
    pub max_seq_length: Option<usize>,
    /// Whether text is lowered before it comes to the tokenizer.
    pub lower: bool,
    /// What becomes of the transformer's rows.
    pub recipe: Recipe,
    /// Words to put before texts, by what they are for, in the file's order.
    pub prompts: Vec<(String, String)>,
    /// Which of the prompts is put before a text if nothing is said.
    pub default_prompt: Option<String>,
}

/// An entry of `modules.json`.
#[derive(Deserialize)]
struct Module {
    #[serde(default)]
    path: String,
    #[serde(rename = "type")]
    kind: String,
}

impl Module {
    /// The class without the modules of Python that it lies in, which versions have moved.
    fn class(&self) -> &str {
        self.kind.rsplit('.').next().unwrap_or(&self.kind)
    }

    /// How it is called in messages.
    fn shown(&self) -> String {
        if self.path.is_empty() { self.class().to_owned() } else { self.path.clone() }
    }

    fn refuse(&self, reason: impl Into<String>) -> Error {
        Error::Module { name: self.shown(), reason: reason.into() }
    }

    /// Its folder, which must lie in the model's.
    fn folder(&self, model: &Path) -> Result<PathBuf> {
        let plain = Path::new(&self.path)
            .components()
            .all(|part| matches!(part, std::path::Component::Normal(_)));
        if !plain {
            return Err(self.refuse("does not lie in the model's folder"));
        }
        Ok(if self.path.is_empty() { model.to_path_buf() } else { model.join(&self.path) })
    }
}

#[derive(Default, Deserialize)]
struct TransformerConfig {
    max_seq_length: Option<usize>,
    #[serde(default)]
    do_lower_case: bool,
}

#[derive(Default, Deserialize)]
struct Config {
    #[serde(default)]
    prompts: Map<String, Value>,
    default_prompt_name: Option<String>,
}

impl SentenceModel {
    /// The model in a folder; none if it has no `modules.json`.
    pub fn open(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let folder = folder.as_ref();
        let Some(modules) = modules(folder)? else { return Ok(None) };
        let in_file = |error: Error| error.in_file(folder.join(MODULES));
        let (first, rest) = split(&modules).map_err(in_file)?;
        let transformer = first.folder(folder).map_err(in_file)?;
        let told: TransformerConfig = read(&transformer.join(TRANSFORMER_CONFIG))?;
        let mut recipe = None;
        for module in rest {
            let at = module.folder(folder).map_err(in_file)?;
            match (module.class(), &mut recipe) {
                ("Pooling", None) => {
                    let pooling = pooling::read(&at.join("config.json"))?;
                    recipe = Some(Recipe { pooling, after: Vec::new() });
                }
                ("Normalize", Some(recipe)) => recipe.after.push(After::Normalize),
                ("Dense", Some(recipe)) => recipe.after.push(After::Dense(Dense::open(&at)?)),
                // It does nothing outside of training.
                ("Dropout", _) => {}
                ("Pooling", Some(_)) => {
                    return Err(in_file(module.refuse("is a second pooling")));
                }
                ("Normalize" | "Dense", None) => {
                    return Err(in_file(module.refuse("comes before the pooling")));
                }
                (class, _) => {
                    let reason = format!(
                        "is a `{class}`; frazil computes Transformer, Pooling, Dense and Normalize"
                    );
                    return Err(in_file(module.refuse(reason)));
                }
            }
        }
        let recipe = recipe.ok_or_else(|| in_file(first.refuse("has no Pooling behind it")))?;
        let config: Config = read(&folder.join(CONFIG))?;
        let prompt = |(name, text): (String, Value)| Some((name, text.as_str()?.to_owned()));
        Ok(Some(Self {
            transformer,
            max_seq_length: told.max_seq_length.filter(|&length| length > 0),
            lower: told.do_lower_case,
            recipe,
            prompts: config.prompts.into_iter().filter_map(prompt).collect(),
            default_prompt: config.default_prompt_name,
        }))
    }

    /// The model that the transformer in `folder` is part of: in that folder, or in the one above
    /// if its first module is this one.
    pub fn around(folder: impl AsRef<Path>) -> Result<Option<Self>> {
        let folder = folder.as_ref();
        if let Some(model) = Self::open(folder)? {
            return Ok(Some(model));
        }
        let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else {
            return Ok(None);
        };
        match transformer_below(above) {
            Ok(Some(below)) if below.file_name() == Some(name) => Self::open(above),
            _ => Ok(None),
        }
    }

    /// The prompt of a name.
    pub fn prompt(&self, name: &str) -> Option<&str> {
        self.prompts.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }
}

/// The folder below that has the transformer of the model in `folder`, as the first versions of
/// sentence-transformers wrote them (`0_BERT`, `0_Transformer`); none if it is no such model, or its
/// transformer lies in the folder itself.
pub fn transformer_below(folder: &Path) -> Result<Option<PathBuf>> {
    let Some(modules) = modules(folder)? else { return Ok(None) };
    match modules.first() {
        Some(first) if !first.path.is_empty() => first.folder(folder).map(Some),
        _ => Ok(None),
    }
}

fn modules(folder: &Path) -> Result<Option<Vec<Module>>> {
    let path = folder.join(MODULES);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = file::map(&path)?;
    serde_json::from_slice(&bytes).map(Some).map_err(|e| Error::from(e).in_file(&path))
}

/// The transformer, which comes first, and the others.
fn split(modules: &[Module]) -> Result<(&Module, &[Module])> {
    let Some((first, rest)) = modules.split_first() else {
        let reason = "is missing: the list is empty".to_owned();
        return Err(Error::Module { name: "Transformer".into(), reason });
    };
    // `BERT` is what the first versions called it.
    match first.class() {
        "Transformer" | "BERT" => Ok((first, rest)),
        class => Err(first.refuse(format!("is a `{class}`, where a Transformer was expected"))),
    }
}

/// A file of JSON; its defaults if it is not there.
fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T> {
    if !path.is_file() {
        return Ok(T::default());
    }
    let bytes = file::map(path)?;
    serde_json::from_slice(&bytes).map_err(|e| Error::from(e).in_file(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn module(i: usize, path: &str, class: &str) -> Value {
        let kind = format!("sentence_transformers.models.{class}");
        json!({"idx": i, "name": i.to_string(), "path": path, "type": kind})
    }

    /// A folder with these modules, and mean pooling in `1_Pooling`.
    fn folder(modules: &[Value]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        fs::write(at.join(MODULES), json!(modules).to_string()).unwrap();
        fs::create_dir(at.join("1_Pooling")).unwrap();
        let config = json!({"word_embedding_dimension": 4, "pooling_mode_mean_tokens": true});
        fs::write(at.join("1_Pooling/config.json"), config.to_string()).unwrap();
        folder
    }

    #[test]
    fn minilm_and_its_like() {
        let modules = [
            module(0, "", "Transformer"),
            module(1, "1_Pooling", "Pooling"),
            module(2, "2_Normalize", "Normalize"),
        ];
        let folder = folder(&modules);
        let told = json!({"max_seq_length": 256, "do_lower_case": true});
        fs::write(folder.path().join(TRANSFORMER_CONFIG), told.to_string()).unwrap();
        let prompts = json!({"prompts": {"query": "query: "}, "default_prompt_name": null});
        fs::write(folder.path().join(CONFIG), prompts.to_string()).unwrap();
        let model = SentenceModel::open(folder.path()).unwrap().unwrap();
        assert_eq!((model.max_seq_length, model.lower), (Some(256), true));
        assert_eq!(model.recipe.pooling, [Pooling::Mean]);
        assert!(matches!(model.recipe.after[..], [After::Normalize]));
        assert_eq!(model.transformer, folder.path());
        assert_eq!((model.prompt("query"), model.prompt("x")), (Some("query: "), None));
        assert_eq!(model.default_prompt, None);
        assert!(transformer_below(folder.path()).unwrap().is_none());
    }

    #[test]
    fn the_first_versions_put_the_transformer_below() {
        let folder = folder(&[module(0, "0_BERT", "BERT"), module(1, "1_Pooling", "Pooling")]);
        let below = folder.path().join("0_BERT");
        assert_eq!(transformer_below(folder.path()).unwrap(), Some(below.clone()));
        let model = SentenceModel::around(&below).unwrap().unwrap();
        assert_eq!((model.transformer, model.max_seq_length), (below, None));
        assert!(SentenceModel::around(folder.path().join("1_Pooling")).unwrap().is_none());
    }

    #[test]
    fn what_is_no_bert_is_refused_by_name() {
        let first = || module(0, "", "Transformer");
        let pooling = || module(1, "1_Pooling", "Pooling");
        for (modules, message) in [
            (vec![module(0, "0_WordEmbeddings", "WordEmbeddings")], "`0_WordEmbeddings`"),
            (vec![first(), pooling(), module(2, "2_LSTM", "LSTM")], "is a `LSTM`"),
            (vec![first()], "no Pooling"),
            (vec![first(), pooling(), pooling()], "second pooling"),
            (vec![first(), module(1, "", "Normalize"), pooling()], "before the pooling"),
            (vec![first(), module(1, "../x", "Pooling")], "model's folder"),
            (vec![], "the list is empty"),
        ] {
            let folder = folder(&modules);
            let error = SentenceModel::open(folder.path()).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(message), "{cause}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(SentenceModel::open(empty.path()).unwrap().is_none());
        fs::write(empty.path().join(MODULES), "{").unwrap();
        assert!(SentenceModel::open(empty.path()).is_err());
    }
}
