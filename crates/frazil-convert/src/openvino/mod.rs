//! OpenVINO's intermediate representation, version 11: an `.xml` with layers and edges, a `.bin`
//! with the constants beside it.
//!
//! [`export`] writes layers of operation sets 1 to 8 only, which every OpenVINO since 2022.1
//! reads; a LayerNorm is MVN, Multiply and Add, and weights may be compressed to f16 as Model
//! Optimizer does it. [`import`](import()) reads what frazil writes, and the layers that OpenVINO's
//! own tools write for a BERT. Bytes are written and read in the form that these tools have for them.
//!
//! What this module leaves out: control flow and state.

mod blob;
mod build;
mod import;
mod layers;
mod net;
mod ops;
mod quantized;
mod read;
mod summary;
mod write;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use bytes::Bytes;
use frazil_graph::op::Steps;
use frazil_graph::{Graph, Op, Symbol, pass};
use frazil_tensor::file::{self, AtomicFile};

pub use summary::summarise;

use crate::{Result, Written};

/// As messages name it.
const TARGET: &str = "OpenVINO";

/// What Model Optimizer appends to an output's name to name its result layer.
const RESULT_SUFFIX: &str = "/sink_port_0";

/// How to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// The name of the network; empty: the file's.
    pub name: String,
    /// Whether constants are stored as f16, to be widened when they are loaded.
    pub fp16: bool,
    /// Bounds of extents that are known at run time only.
    pub bounds: BTreeMap<Symbol, Bounds>,
}

/// The smallest and the largest size that an extent can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The smallest.
    pub least: u64,
    /// The largest, if there is one.
    pub most: Option<u64>,
}

/// Writes `xml` and the `.bin` of the same name. Everything is checked before a file is begun;
/// both files appear when both are complete.
pub fn export(graph: &Graph, options: &ExportOptions, xml: &Path) -> Result<Written> {
    graph.check()?;
    let mut notes = Vec::new();
    let lowered = lowered(graph, &mut notes)?;
    let (net, more) = build::build(&lowered, options)?;
    notes.extend(more);
    let bin = xml.with_extension("bin");
    let name = match options.name.as_str() {
        "" => xml.file_stem().unwrap_or_default().to_string_lossy(),
        name => name.into(),
    };
    let io = |path: &Path| {
        let path = path.to_path_buf();
        move |source| frazil_tensor::Error::Io { action: "write", path, source }
    };
    let mut layout = blob::Layout::default();
    let mut xml_file = AtomicFile::create(xml)?;
    write::write(&net, &name, &mut layout, &mut xml_file).map_err(io(xml))?;
    let mut bin_file = AtomicFile::create(&bin)?;
    layout.write(&mut bin_file).map_err(io(&bin))?;
    // The file that points into the other one comes last.
    bin_file.commit()?;
    xml_file.commit()?;
    Ok(Written { files: vec![xml.to_path_buf(), bin], notes })
}

/// With the fused operations that have no layer of their own taken apart again.
fn lowered<'g>(graph: &'g Graph, notes: &mut Vec<String>) -> Result<Cow<'g, Graph>> {
    let of_rows = |op: &Op| matches!(op, Op::FakeQuantize(Steps::Rows));
    let kept = |op: &Op| {
        let fused = matches!(op, Op::Embed | Op::Attention(_) | Op::PackRows(_) | Op::UnpackRows);
        !fused && !of_rows(op)
    };
    let rows = graph.nodes().filter(|(_, node)| of_rows(&node.op)).count();
    notes.extend(crate::rows_note(rows, TARGET));
    if graph.nodes().all(|(_, node)| kept(&node.op)) {
        return Ok(Cow::Borrowed(graph));
    }
    let mut graph = graph.clone();
    pass::lower(&mut graph, &kept)?;
    Ok(Cow::Owned(graph))
}

/// Reads `xml` and the `.bin` of the same name. Constants are windows on the mapped file; what
/// frazil has no operation for is [`Op::Foreign`].
pub fn import(xml: &Path) -> Result<Graph> {
    let text = file::map(xml)?;
    let weights = file::map(xml.with_extension("bin"))?;
    import_bytes(&text, &weights)
}

/// Reads a representation that is in memory.
pub fn import_bytes(xml: &[u8], weights: &Bytes) -> Result<Graph> {
    import::import(xml, weights)
}
