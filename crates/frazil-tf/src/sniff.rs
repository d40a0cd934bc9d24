//! What a file is, by its content: names lie, and a "checkpoint" that is in truth a web page or
//! a Git LFS pointer should be called that. Knows what frazil reads and what people have instead
//! of it. Looks at a few kilobytes, whatever the file's size.

use std::fmt;

use crate::crc;
use crate::decode::plausible;
use crate::proto::{CheckpointState, GraphDef, MetaGraphDef, SavedModel, SaverDef};
use crate::schema::{Described, Message};

/// What a file's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Content {
    /// No bytes at all.
    Empty,
    /// The stub that Git leaves where Git LFS should put the file.
    LfsPointer,
    /// A web page, often a download that asked for a log-in.
    Html,
    /// Other XML, OpenVINO's models among it.
    Xml,
    /// JSON, `bert_config.json` for example.
    Json,
    /// A zip, which `.npz` and PyTorch files are too.
    Zip,
    /// Compressed by gzip.
    Gzip,
    /// Compressed by zlib, as TFRecords can be.
    Zlib,
    /// Keras weights and others.
    Hdf5,
    /// A TensorFlow Lite model.
    TfLite,
    /// LevelDB's table: the `.index` of a V2 checkpoint, or a whole V1 checkpoint.
    Sstable,
    /// NumPy's array.
    Npy,
    /// `.safetensors`.
    SafeTensors,
    /// Records of training examples or of events.
    TfRecord,
    /// A graph, frozen or not.
    GraphDef(Encoding),
    /// A graph with all that belongs to it: `.meta`.
    MetaGraphDef(Encoding),
    /// MetaGraphs by tag.
    SavedModel(Encoding),
    /// How a graph saves and restores, as text.
    SaverDef,
    /// The text file `checkpoint`.
    CheckpointState,
    /// Some other text.
    Text,
    /// Nothing that is known here.
    Unknown,
}

/// The two forms of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `.pb`
    Binary,
    /// `.pbtxt`
    Text,
}

/// The last eight bytes of a table.
const SSTABLE_MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();
const SSTABLE_FOOTER: usize = 48;

/// Formats that are known by how they begin (at an offset).
const MAGIC: [(usize, &[u8], Content); 10] = [
    (0, b"PK\x03\x04", Content::Zip),
    (0, b"PK\x05\x06", Content::Zip),
    (0, b"\x1f\x8b\x08", Content::Gzip),
    (0, b"\x93NUMPY", Content::Npy),
    (0, b"\x89HDF\r\n\x1a\n", Content::Hdf5),
    (4, b"TFL3", Content::TfLite),
    (0, b"version https://git-lfs.github.com/spec/", Content::LfsPointer),
    (0, b"x\x9c", Content::Zlib),
    (0, b"x\x01", Content::Zlib),
    (0, b"x\xda", Content::Zlib),
];

/// What `bytes`, a whole file, are.
pub fn of(bytes: &[u8]) -> Content {
    if bytes.is_empty() {
        return Content::Empty;
    }
    // A table is known by its end, and its beginning can be anything.
    if bytes.len() >= SSTABLE_FOOTER && bytes.ends_with(&SSTABLE_MAGIC) {
        return Content::Sstable;
    }
    // Before the others: a record of 40,056 bytes begins like a zlib stream, and a checksum
    // that is right is no accident.
    if is_tfrecord(bytes) {
        return Content::TfRecord;
    }
    for (offset, magic, content) in MAGIC {
        if bytes.get(offset..).is_some_and(|bytes| bytes.starts_with(magic)) {
            return content;
        }
    }
    if is_safetensors(bytes) {
        return Content::SafeTensors;
    }
    if let Some(text) = text_head(bytes) {
        return of_text(text);
    }
    of_binary(bytes)
}

/// The first record's length and the checksum of that length.
fn is_tfrecord(bytes: &[u8]) -> bool {
    let (Some(length), Some(stored)) = (bytes.get(..8), bytes.get(8..12)) else { return false };
    crc::masked(length).to_le_bytes() == stored
}

/// The header's length and the brace that it begins with.
fn is_safetensors(bytes: &[u8]) -> bool {
    let Some((&length, rest)) = bytes.split_first_chunk::<8>() else { return false };
    let length = u64::from_le_bytes(length);
    rest.first() == Some(&b'{') && (2..=rest.len() as u64).contains(&length)
}

/// The first kilobytes, if they are text.
fn text_head(bytes: &[u8]) -> Option<&str> {
    const HEAD: usize = 4096;
    let head = &bytes[..bytes.len().min(HEAD)];
    let text = match str::from_utf8(head) {
        Ok(text) => text,
        // A character that the head cuts through is no fault.
        Err(error) if error.error_len().is_none() && bytes.len() > HEAD => {
            str::from_utf8(&head[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\x0c');
    if text.contains(odd) { None } else { Some(text) }
}

fn of_text(text: &str) -> Content {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    let starts =
        |tag: &str| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    if starts("<!doctype html") || starts("<html") || starts("<head") {
        return Content::Html;
    }
    if text.starts_with("<?xml") {
        return if text.contains("<html") { Content::Html } else { Content::Xml };
    }
    if is_json(text) {
        return Content::Json;
    }
    let Some((name, value)) = first_field(text) else { return Content::Text };
    let has = |schema: &'static Message| schema.by_name(name).is_some();
    if has(SavedModel::SCHEMA) {
        Content::SavedModel(Encoding::Text)
    } else if has(MetaGraphDef::SCHEMA) {
        Content::MetaGraphDef(Encoding::Text)
    } else if has(CheckpointState::SCHEMA) {
        Content::CheckpointState
    } else if name == "version" && !value.starts_with(|c: char| c.is_ascii_digit()) {
        // A graph's (of old) is a number, a saver's a name.
        Content::SaverDef
    } else if has(GraphDef::SCHEMA) {
        Content::GraphDef(Encoding::Text)
    } else if has(SaverDef::SCHEMA) {
        Content::SaverDef
    } else {
        Content::Text
    }
}

/// Whether `bytes` are text whose first field is one of the message's.
pub(crate) fn is_text_of(bytes: &[u8], schema: &'static Message) -> bool {
    text_head(bytes)
        .map(|text| text.strip_prefix('\u{feff}').unwrap_or(text).trim_start())
        .and_then(first_field)
        .is_some_and(|(name, _)| schema.by_name(name).is_some())
}

/// A vocabulary begins with `[PAD]`, which is none.
fn is_json(text: &str) -> bool {
    if let Some(object) = text.strip_prefix('{') {
        return object.trim_start().starts_with(['"', '}']);
    }
    let begins_value = |c: char| c.is_ascii_digit() || "[]{\"-".contains(c);
    text.strip_prefix('[').is_some_and(|list| list.trim_start().starts_with(begins_value))
}

/// The name that begins a text message, and what follows its colon or brace.
fn first_field(mut text: &str) -> Option<(&str, &str)> {
    while let Some(comment) = text.strip_prefix('#') {
        text = comment.split_once('\n')?.1.trim_start();
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    let (name, rest) = text.split_at(end);
    let value = rest.trim_start().strip_prefix([':', '{', '<'])?;
    Some((name, value.trim_start()))
}

fn of_binary(bytes: &[u8]) -> Content {
    let kinds = [
        (SavedModel::SCHEMA, Content::SavedModel(Encoding::Binary)),
        (MetaGraphDef::SCHEMA, Content::MetaGraphDef(Encoding::Binary)),
        (GraphDef::SCHEMA, Content::GraphDef(Encoding::Binary)),
    ];
    let kind = kinds.into_iter().find(|&(schema, _)| plausible(bytes, schema));
    kind.map_or(Content::Unknown, |(_, content)| content)
}

/// With its article: "a Git LFS pointer".
impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Content::Empty => "an empty file",
            Content::LfsPointer => "a Git LFS pointer",
            Content::Html => "a web page",
            Content::Xml => "an XML file",
            Content::Json => "a JSON file",
            Content::Zip => "a zip file",
            Content::Gzip => "a gzip file",
            Content::Zlib => "zlib-compressed data",
            Content::Hdf5 => "an HDF5 file",
            Content::TfLite => "a TensorFlow Lite model",
            Content::Sstable => "a checkpoint's index or a V1 checkpoint",
            Content::Npy => "a NumPy array",
            Content::SafeTensors => "a safetensors file",
            Content::TfRecord => "a TFRecord file",
            Content::GraphDef(Encoding::Binary) => "a GraphDef",
            Content::GraphDef(Encoding::Text) => "a GraphDef in text form",
            Content::MetaGraphDef(Encoding::Binary) => "a MetaGraphDef",
            Content::MetaGraphDef(Encoding::Text) => "a MetaGraphDef in text form",
            Content::SavedModel(Encoding::Binary) => "a SavedModel",
            Content::SavedModel(Encoding::Text) => "a SavedModel in text form",
            Content::SaverDef => "a SaverDef in text form",
            Content::CheckpointState => "a `checkpoint` file",
            Content::Text => "a text file",
            Content::Unknown => "a file of unknown kind",
        })
    }
}

impl Content {
    /// What the owner of such a file can do where something else was expected.
    pub fn hint(self) -> Option<&'static str> {
        Some(match self {
            Content::Empty => "the download or copy failed: do it again",
            Content::LfsPointer => "run `git lfs pull` in the repository to get the file itself",
            Content::Html => {
                "the download gave a web page instead of the file: use the file's direct address"
            }
            Content::Zip | Content::Gzip => "unpack it first",
            Content::Hdf5 => "this is Keras' format: save the model as a SavedModel or checkpoint",
            Content::Sstable => "name a checkpoint by its prefix, `model.ckpt-1000` for example",
            Content::SavedModel(_) => "name a SavedModel by its folder",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{NodeDef, meta_graph_def::MetaInfoDef};
    use prost::Message as _;

    #[test]
    fn made_files() {
        let node = NodeDef { name: "x".into(), op: "Const".into(), ..NodeDef::default() };
        let graph = GraphDef { node: vec![node], ..GraphDef::default() };
        let info = MetaInfoDef { tags: vec!["serve".into()], ..MetaInfoDef::default() };
        let meta = MetaGraphDef {
            graph_def: Some(graph.clone()),
            meta_info_def: Some(info),
            ..MetaGraphDef::default()
        };
        let model = SavedModel { saved_model_schema_version: 1, meta_graphs: vec![meta.clone()] };
        let mut record = 5u64.to_le_bytes().to_vec();
        record.extend(crc::masked(&record).to_le_bytes());
        let mut like_zlib = 0x9c78u64.to_le_bytes().to_vec();
        like_zlib.extend(crc::masked(&like_zlib).to_le_bytes());
        let mut table = vec![0u8; 40];
        table.extend(SSTABLE_MAGIC);
        let cases: Vec<(Vec<u8>, Content)> = vec![
            (vec![], Content::Empty),
            (graph.encode_to_vec(), Content::GraphDef(Encoding::Binary)),
            (meta.encode_to_vec(), Content::MetaGraphDef(Encoding::Binary)),
            (model.encode_to_vec(), Content::SavedModel(Encoding::Binary)),
            (record, Content::TfRecord),
            (like_zlib, Content::TfRecord),
            (b"x\x9c\x03\0\0\0\0\x01".to_vec(), Content::Zlib),
            (table, Content::Sstable),
            (b"\x08\0\0\0\0\0\0\0{}      ".to_vec(), Content::SafeTensors),
            (vec![0xff; 300], Content::Unknown),
            (vec![0x00; 300], Content::Unknown),
        ];
        for (bytes, content) in cases {
            assert_eq!(of(&bytes), content);
        }
    }

    #[test]
    fn texts() {
        let cases = [
            ("node {\n}", Content::GraphDef(Encoding::Text)),
            ("# made by hand\n\n  node { }", Content::GraphDef(Encoding::Text)),
            ("versions { producer: 22 }", Content::GraphDef(Encoding::Text)),
            ("version: 22", Content::GraphDef(Encoding::Text)),
            ("version: V2", Content::SaverDef),
            ("meta_info_def <", Content::MetaGraphDef(Encoding::Text)),
            ("saved_model_schema_version: 1", Content::SavedModel(Encoding::Text)),
            ("model_checkpoint_path: \"x\"", Content::CheckpointState),
            ("filename_tensor_name: \"x\"", Content::SaverDef),
            ("node, a word\n", Content::Text),
            ("[PAD]\n[unused0]\n", Content::Text),
            ("{\n  \"vocab_size\": 30522", Content::Json),
            ("[1, 2]", Content::Json),
            ("\n<!DOCTYPE HTML><html>", Content::Html),
            ("<?xml version=\"1.0\"?>\n<net name=\"m\">", Content::Xml),
            ("version https://git-lfs.github.com/spec/v1\noid sha256:", Content::LfsPointer),
        ];
        for (text, content) in cases {
            assert_eq!(of(text.as_bytes()), content, "{text}");
        }
    }
}
