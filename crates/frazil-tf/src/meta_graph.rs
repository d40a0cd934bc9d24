//! MetaGraphs: the `.meta` beside a checkpoint. A graph, how to save and restore it, and
//! collections.

use std::io::{self, Write};
use std::path::Path;

use bytes::Bytes;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};

use crate::proto::{GraphDef, MetaGraphDef, SaverDef};
use crate::{Error, Result, graph_def, message_file};

const EXPECTED: &str = "a MetaGraphDef";
/// The number of `MetaGraphDef.graph_def`.
const GRAPH_FIELD: u32 = 2;

/// A MetaGraph from its binary or text form, whichever `bytes` are.
pub fn decode(bytes: Bytes) -> Result<MetaGraphDef> {
    message_file::decode(bytes, EXPECTED)
}

/// [`decode`] of a file, which is mapped, not read.
pub fn read(path: impl AsRef<Path>) -> Result<MetaGraphDef> {
    message_file::read(path.as_ref(), EXPECTED)
}

/// Writes the binary form, weights from where they lie, as [`graph_def::write`].
pub fn write(path: impl AsRef<Path>, meta: &MetaGraphDef) -> Result<()> {
    message_file::write_pieces(path.as_ref(), meta, |file| write_to(meta, file))
}

/// What [`write()`] puts into the file.
pub(crate) fn write_to(meta: &MetaGraphDef, file: &mut dyn Write) -> io::Result<()> {
    let before =
        MetaGraphDef { meta_info_def: meta.meta_info_def.clone(), ..MetaGraphDef::default() };
    let mut before = before.encode_to_vec();
    if let Some(graph) = &meta.graph_def {
        encode_key(GRAPH_FIELD, WireType::LengthDelimited, &mut before);
        encode_varint(graph.encoded_len() as u64, &mut before);
    }
    file.write_all(&before)?;
    if let Some(graph) = &meta.graph_def {
        graph_def::write_to(graph, file)?;
    }
    let after = MetaGraphDef {
        meta_info_def: None,
        graph_def: None,
        saver_def: meta.saver_def.clone(),
        collection_def: meta.collection_def.clone(),
        signature_def: meta.signature_def.clone(),
        asset_file_def: meta.asset_file_def.clone(),
        object_graph_def: meta.object_graph_def.clone(),
    };
    file.write_all(&after.encode_to_vec())
}

/// Writes the text form.
pub fn write_text(path: impl AsRef<Path>, meta: &MetaGraphDef) -> Result<()> {
    message_file::write_text(path.as_ref(), meta)
}

/// How a graph's variables are saved and restored, from a file of its own.
pub fn read_saver(path: impl AsRef<Path>) -> Result<SaverDef> {
    message_file::read(path.as_ref(), "a SaverDef")
}

/// The graph in a MetaGraph.
pub fn graph(meta: &MetaGraphDef) -> Result<&GraphDef> {
    meta.graph_def.as_ref().ok_or(Error::NoGraph)
}

/// The tags of a MetaGraph, as it lists them.
pub fn tags(meta: &MetaGraphDef) -> &[String] {
    meta.meta_info_def.as_ref().map_or(&[], |info| &info.tags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::NodeDef;

    #[test]
    fn files_of_both_forms() {
        let node = NodeDef { name: "x".into(), op: "NoOp".into(), ..NodeDef::default() };
        let meta = MetaGraphDef {
            graph_def: Some(GraphDef { node: vec![node], ..GraphDef::default() }),
            ..MetaGraphDef::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.meta");
        write(&path, &meta).unwrap();
        assert_eq!(read(&path).unwrap(), meta);
        write_text(&path, &meta).unwrap();
        assert_eq!(read(&path).unwrap(), meta);
        // Its graph alone is another kind of file.
        graph_def::write(&path, graph(&meta).unwrap()).unwrap();
        let error = read(&path).unwrap_err();
        let Error::InFile { source, .. } = error else { panic!("{error}") };
        assert_eq!(source.to_string(), "this is a GraphDef, not a MetaGraphDef");
        assert!(matches!(graph(&MetaGraphDef::default()), Err(Error::NoGraph)));
    }

    #[test]
    fn savers_of_both_forms() {
        let saver = SaverDef { restore_op_name: "save/restore_all".into(), ..SaverDef::default() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("saver");
        message_file::write(&path, &saver).unwrap();
        assert_eq!(read_saver(&path).unwrap(), saver);
        message_file::write_text(&path, &saver).unwrap();
        assert_eq!(read_saver(&path).unwrap(), saver);
    }
}
