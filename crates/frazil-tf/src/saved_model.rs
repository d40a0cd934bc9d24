//! SavedModels: a folder with `saved_model.pb` (or `.pbtxt`), `variables/` and perhaps `assets/`.
//! Each of its MetaGraphs goes by a set of tags, `serve` as a rule.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::TensorStore;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::bundle::{self, BundleWriter};
use crate::proto::{MetaGraphDef, SavedModel};
use crate::{Error, Result, message_file, meta_graph};

const EXPECTED: &str = "a SavedModel";
const BINARY: &str = "saved_model.pb";
const TEXT: &str = "saved_model.pbtxt";
/// The number of `SavedModel.meta_graphs`.
const META_GRAPH_FIELD: u32 = 2;

/// A SavedModel's message from its binary or text form, whichever `bytes` are.
pub fn decode(bytes: Bytes) -> Result<SavedModel> {
    message_file::decode(bytes, EXPECTED)
}

/// Whether `dir` is a folder with a SavedModel in it.
pub fn is_saved_model(dir: impl AsRef<Path>) -> bool {
    let dir = dir.as_ref();
    dir.join(BINARY).is_file() || dir.join(TEXT).is_file()
}

/// A SavedModel on disk, its message decoded.
#[derive(Debug)]
pub struct SavedModelDir {
    dir: PathBuf,
    proto: SavedModel,
}

impl SavedModelDir {
    /// Opens the folder; `saved_model.pb` is taken before `saved_model.pbtxt`.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        let dir = dir.as_ref().to_path_buf();
        let Some(file) =
            [BINARY, TEXT].map(|name| dir.join(name)).into_iter().find(|f| f.is_file())
        else {
            return Err(Error::NoSavedModel { dir });
        };
        let proto = message_file::read(&file, EXPECTED)?;
        Ok(Self { dir, proto })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The message.
    pub fn proto(&self) -> &SavedModel {
        &self.proto
    }

    /// The tag sets, each sorted, in sorted order.
    pub fn tag_sets(&self) -> Vec<Vec<&str>> {
        let mut sets: Vec<Vec<&str>> =
            self.proto.meta_graphs.iter().map(|meta| sorted(meta).into_iter().collect()).collect();
        sets.sort();
        sets
    }

    /// The MetaGraph whose tags are exactly these, in any order.
    pub fn meta_graph(&self, tags: &[&str]) -> Result<&MetaGraphDef> {
        let wanted: BTreeSet<&str> = tags.iter().copied().collect();
        self.proto.meta_graphs.iter().find(|meta| sorted(meta) == wanted).ok_or_else(|| {
            Error::NoSuchTags {
                wanted: wanted.into_iter().collect::<Vec<_>>().join(","),
                available: self.tag_sets().iter().map(|tags| tags.join(",")).collect(),
            }
        })
    }

    /// The checkpoint with the variables' values, by its prefix. A model without variables has
    /// none.
    pub fn variables_prefix(&self) -> PathBuf {
        self.dir.join("variables/variables")
    }
}

/// What goes into a SavedModel's folder beside the message.
#[derive(Clone, Copy, Default)]
pub struct WriteOptions<'a> {
    /// The variables' values; a model without variables has none.
    pub variables: Option<&'a dyn TensorStore>,
    /// A folder with the files that the message's `asset_file_def` names.
    pub assets: Option<&'a Path>,
    /// `saved_model.pbtxt` instead of `saved_model.pb`.
    pub text: bool,
}

/// Writes a SavedModel. The folder appears when it is complete; one that is there already must
/// be empty.
pub fn write(dir: impl AsRef<Path>, model: &SavedModel, options: WriteOptions<'_>) -> Result<()> {
    let dir = dir.as_ref();
    match fs::read_dir(dir).map(|mut entries| entries.next().is_none()) {
        Ok(true) => {}
        Ok(false) => return Err(Error::NotEmpty { dir: dir.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error("read", dir, error)),
    }
    let parent = match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(|e| io_error("create", parent, e))?;
    let made = hidden_folder(parent).map_err(|e| io_error("create", dir, e))?;

    if options.text {
        message_file::write_text(&made.path().join(TEXT), model)?;
    } else {
        write_message(&made.path().join(BINARY), model)?;
    }
    let variables = made.path().join("variables");
    fs::create_dir(&variables).map_err(|e| io_error("create", &variables, e))?;
    if let Some(store) = options.variables {
        let prefix = variables.join("variables");
        let mut writer = BundleWriter::create(prefix, bundle::WriteOptions::default())?;
        for info in store.infos() {
            let tensor = store
                .tensor(&info.name)
                .map_err(|source| Error::Store { name: info.name.clone(), source })?;
            writer.add(&info.name, &tensor)?;
        }
        writer.finish()?;
    }
    copy_assets(model, options.assets, made.path())?;

    let from = made.keep();
    fs::rename(&from, dir).map_err(|error| {
        // The error that stopped the renaming is the one to tell.
        drop(fs::remove_dir_all(&from));
        io_error("rename", dir, error)
    })
}

/// The binary form, weights from where they lie, as [`crate::graph_def::write`].
fn write_message(path: &Path, model: &SavedModel) -> Result<()> {
    message_file::write_pieces(path, model, |file| {
        let version = model.saved_model_schema_version;
        let mut head = SavedModel { saved_model_schema_version: version, ..Default::default() }
            .encode_to_vec();
        for meta in &model.meta_graphs {
            encode_key(META_GRAPH_FIELD, WireType::LengthDelimited, &mut head);
            encode_varint(meta.encoded_len() as u64, &mut head);
            file.write_all(&head)?;
            head.clear();
            meta_graph::write_to(meta, file)?;
        }
        file.write_all(&head)
    })
}

/// A folder of a name that listings leave out, gone again unless it is kept.
fn hidden_folder(parent: &Path) -> io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".saved_model.").suffix(".partial");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(fs::Permissions::from_mode(0o777)); // less the umask
    }
    builder.tempdir_in(parent)
}

/// Every file that some MetaGraph names, from one folder to the other's `assets`.
fn copy_assets(model: &SavedModel, from: Option<&Path>, to: &Path) -> Result<()> {
    let names: BTreeSet<&str> = (model.meta_graphs.iter())
        .flat_map(|meta| meta.asset_file_def.iter().map(|asset| asset.filename.as_str()))
        .collect();
    let to = to.join("assets");
    for name in names {
        // A name with a folder in it could lead anywhere.
        let plain = Path::new(name).file_name().is_some_and(|file| file == name);
        let Some(from) = from.filter(|_| plain) else {
            return Err(Error::NoAsset { name: name.into() });
        };
        fs::create_dir_all(&to).map_err(|e| io_error("create", &to, e))?;
        let (from, to) = (from.join(name), to.join(name));
        fs::copy(&from, to).map_err(|e| io_error("copy", &from, e))?;
    }
    Ok(())
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    frazil_tensor::Error::Io { action, path: path.into(), source }.into()
}

fn sorted(meta: &MetaGraphDef) -> BTreeSet<&str> {
    meta_graph::tags(meta).iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{Checkpoint, Options};
    use crate::graph_def::{GraphConsts, LARGE};
    use crate::proto::{AssetFileDef, AttrValue, GraphDef, NodeDef};
    use crate::proto::{attr_value::Value, meta_graph_def::MetaInfoDef};
    use crate::tensor_proto::from_tensor;
    use frazil_tensor::Tensor;

    fn model(tag_sets: &[&[&str]]) -> SavedModel {
        let meta = |tags: &&[&str]| MetaGraphDef {
            meta_info_def: Some(MetaInfoDef {
                tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
                ..MetaInfoDef::default()
            }),
            ..MetaGraphDef::default()
        };
        SavedModel {
            saved_model_schema_version: 1,
            meta_graphs: tag_sets.iter().map(meta).collect(),
        }
    }

    fn store() -> GraphConsts {
        let tensor = Tensor::from_vec([2], vec![1f32, 2.0]).unwrap();
        let value = AttrValue { value: Some(Value::Tensor(Box::new(from_tensor(&tensor)))) };
        let node = NodeDef {
            name: "w".into(),
            op: "Const".into(),
            attr: [("value".to_owned(), value)].into(),
            ..NodeDef::default()
        };
        GraphConsts::new(GraphDef { node: vec![node], ..GraphDef::default() }).unwrap()
    }

    #[test]
    fn written_and_opened() {
        let folder = tempfile::tempdir().unwrap();
        let model = model(&[&["serve", "gpu"], &["serve"]]);
        for text in [false, true] {
            let dir = folder.path().join(format!("deep/{text}"));
            let store = store();
            let options = WriteOptions { variables: Some(&store), text, ..Default::default() };
            write(&dir, &model, options).unwrap();
            assert!(is_saved_model(&dir));
            let opened = SavedModelDir::open(&dir).unwrap();
            assert_eq!(opened.proto(), &model);
            assert_eq!(opened.tag_sets(), [vec!["gpu", "serve"], vec!["serve"]]);
            assert_eq!(opened.meta_graph(&["gpu", "serve"]).unwrap(), &model.meta_graphs[0]);
            let error = opened.meta_graph(&["gpu"]).unwrap_err();
            assert_eq!(error.hint().unwrap(), "the tag sets are: `gpu,serve`, `serve`");
            let variables = Checkpoint::open(opened.variables_prefix(), Options::default());
            let weights = variables.unwrap().tensor("w").unwrap();
            assert_eq!(weights, store.tensor("w").unwrap());
        }
        // Nothing else was left beside them, and what is there stays.
        assert_eq!(fs::read_dir(folder.path().join("deep")).unwrap().count(), 2);
        let again = write(folder.path().join("deep/true"), &model, WriteOptions::default());
        assert!(matches!(again, Err(Error::NotEmpty { .. })));
    }

    #[test]
    fn the_pieces_are_the_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(BINARY);
        let large = Tensor::from_vec([LARGE], vec![7f32; LARGE]).unwrap();
        let value = AttrValue { value: Some(Value::Tensor(Box::new(from_tensor(&large)))) };
        let node = NodeDef {
            name: "w".into(),
            op: "Const".into(),
            attr: [("value".to_owned(), value)].into(),
            ..NodeDef::default()
        };
        let graph = GraphDef { node: vec![node; 2], version: 7, ..GraphDef::default() };
        let mut model = model(&[&["serve", "gpu"], &["serve"], &[]]);
        for (i, meta) in model.meta_graphs.iter_mut().enumerate() {
            meta.graph_def = (i != 1).then(|| graph.clone());
            meta.saver_def = Some(Default::default());
            meta.signature_def.insert("serving_default".into(), Default::default());
            meta.asset_file_def = vec![AssetFileDef::default()];
        }
        for count in [3, 1, 0] {
            model.meta_graphs.truncate(count);
            write_message(&path, &model).unwrap();
            assert!(fs::read(&path).unwrap() == model.encode_to_vec());
        }
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut model = model(&[&["serve"]]);
        let asset = |name: &str| AssetFileDef { filename: name.into(), ..Default::default() };
        for name in ["vocab.txt", "../vocab.txt"] {
            model.meta_graphs[0].asset_file_def = vec![asset(name)];
            let failed = write(folder.path().join("m"), &model, WriteOptions::default());
            assert!(matches!(failed, Err(Error::NoAsset { .. })));
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        let assets = tempfile::tempdir().unwrap();
        fs::write(assets.path().join("vocab.txt"), "[PAD]").unwrap();
        model.meta_graphs[0].asset_file_def = vec![asset("vocab.txt")];
        let options = WriteOptions { assets: Some(assets.path()), ..Default::default() };
        write(folder.path().join("m"), &model, options).unwrap();
        assert!(folder.path().join("m/assets/vocab.txt").is_file());
    }

    #[test]
    fn binary_before_text_and_neither() {
        let folder = tempfile::tempdir().unwrap();
        let opened = SavedModelDir::open(folder.path());
        assert!(matches!(opened, Err(Error::NoSavedModel { .. })));
        message_file::write_text(&folder.path().join(TEXT), &model(&[&["text"]])).unwrap();
        let opened = SavedModelDir::open(folder.path()).unwrap();
        assert_eq!(opened.tag_sets(), [["text"]]);
        message_file::write(&folder.path().join(BINARY), &model(&[&["binary"]])).unwrap();
        let opened = SavedModelDir::open(folder.path()).unwrap();
        assert_eq!(opened.tag_sets(), [["binary"]]);
    }
}
