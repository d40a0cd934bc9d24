//! MetaGraphs: the `.meta` beside a checkpoint. A graph, how to save and restore it, and
//! collections.

use std::path::Path;

use bytes::Bytes;

use crate::proto::{GraphDef, MetaGraphDef, SaverDef};
use crate::{Error, Result, message_file};

const EXPECTED: &str = "a MetaGraphDef";

/// A MetaGraph from its binary or text form, whichever `bytes` are.
pub fn decode(bytes: Bytes) -> Result<MetaGraphDef> {
    message_file::decode(bytes, EXPECTED)
}

/// [`decode`] of a file, which is mapped, not read.
pub fn read(path: impl AsRef<Path>) -> Result<MetaGraphDef> {
    message_file::read(path.as_ref(), EXPECTED)
}

/// Writes the binary form.
pub fn write(path: impl AsRef<Path>, meta: &MetaGraphDef) -> Result<()> {
    message_file::write(path.as_ref(), meta)
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
        crate::graph_def::write(&path, graph(&meta).unwrap()).unwrap();
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
