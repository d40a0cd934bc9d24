//! `compile`: a model with its weights packed, in one file that is mapped, not read.
//!
//! The file holds the graph without its weights, the weights that are looked up or added where they
//! lie, and the packed ones for one or several instruction sets. The graph says what is in bytes.
//! Opening it plans the graph again (milliseconds), so that the file depends on nothing but the
//! layout of packed weights, which the version in its header stands for.
//!
//! Layout: 8 bytes [`MAGIC`], length and CRC-32C of the header (both `u32`, little-endian), the header
//! as JSON, then blocks at multiples of 64 bytes, which the header lists by offset and length.

mod steps;

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use bytes::Bytes;
use frazil_convert::tf as convert_tf;
use frazil_graph::op::{Input, Variable};
use frazil_graph::{Dim, Graph, Op, Port, Symbol};
use frazil_kernels::Isa;
use frazil_runtime::{Engine, EngineOptions, Packed, PackedWeights};
use frazil_tensor::file::{self, AtomicFile};
use frazil_tensor::{DType, Tensor};
use frazil_tf::graph_def;
use serde::{Deserialize, Serialize};

use super::bench::Model;
use super::inspect::model::End;
use super::run::batches;
use super::{minmax, role};
use crate::page::{Cell, Section, Table, number};
use crate::source::open_graph;
use crate::{Error, Result};

/// How such a file begins.
pub const MAGIC: [u8; 8] = *b"FRAZIL\x00\x01";
/// The layout of packed weights; another one is another file.
const LAYOUT: u32 = 6;
/// Blocks begin at cache lines.
const ALIGN: usize = 64;
/// Larger constants are blocks of their own.
const SMALL: usize = 1024;

/// How a model is compiled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// For which instructions; the best ones of this machine if empty.
    pub isas: Vec<Isa>,
    /// Whether linear layers are computed in bytes, and by which inputs they are calibrated.
    pub int8: Option<Calibration>,
}

/// What an int8 model is calibrated on: what its products read there is the range of their bytes.
#[derive(Clone, Debug)]
pub enum Calibration {
    /// Made-up sequences of words of the vocabulary.
    MadeUp,
    /// The arrays of an `.npz` file, fed as `frazil run` feeds them.
    Inputs(PathBuf),
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub model: PathBuf,
    /// The file.
    pub out: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// For which instructions.
    pub isas: Vec<String>,
    /// Products whose weights are packed.
    pub products: usize,
    /// Those of them that are computed in bytes.
    pub int8_products: usize,
    /// Seconds.
    pub seconds: f64,
    /// Choices that were made.
    pub notes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Header {
    /// The program that wrote it.
    frazil: String,
    layout: u32,
    /// Bytes of the whole file.
    length: u64,
    graph: Block,
    inputs: Vec<InputEntry>,
    outputs: Vec<OutputEntry>,
    constants: Vec<ConstantEntry>,
    packed: Vec<PackedEntry>,
}

/// A part of the file.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Block {
    offset: u64,
    length: u64,
}

#[derive(Serialize, Deserialize)]
struct InputEntry {
    name: String,
    node: String,
    dtype: String,
    /// `batch`, `seq`, or a number.
    dims: Option<Vec<String>>,
}

#[derive(Serialize, Deserialize)]
struct OutputEntry {
    name: String,
    node: String,
    port: u32,
}

#[derive(Serialize, Deserialize)]
struct ConstantEntry {
    node: String,
    dtype: String,
    shape: Vec<usize>,
    block: Block,
}

#[derive(Serialize, Deserialize)]
struct PackedEntry {
    isa: String,
    node: String,
    block: Block,
}

/// Compiles `model` to the file `out`.
pub fn compile(model: &Model, out: &Path, options: &Options) -> Result<Report> {
    let start = Instant::now();
    let (mut graph, notes) = match model {
        Model::File(path, options) => {
            let opened = open_graph(path, options)?;
            (opened.graph, opened.notes)
        }
        Model::Random(size, head) => (super::bench::random_model(size, *head)?, Vec::new()),
    };
    if let Some(how) = &options.int8 {
        quantize(&mut graph, how)?;
    }
    let isas = match options.isas.as_slice() {
        [] => vec![Isa::detect()],
        isas => isas.to_vec(),
    };
    let Stored { bytes, products, int8_products } = store(&graph, out, &isas)?;
    Ok(Report {
        model: match model {
            Model::File(path, _) => path.clone(),
            Model::Random(size, _) => size.into(),
        },
        out: out.to_path_buf(),
        bytes,
        isas: isas.iter().map(|isa| isa.name().to_owned()).collect(),
        products,
        int8_products,
        seconds: start.elapsed().as_secs_f64(),
        notes,
    })
}

/// What a stored model is.
#[derive(Clone, Copy, Debug)]
pub struct Stored {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// Products whose weights are packed.
    pub products: usize,
    /// Those of them that are computed in bytes.
    pub int8_products: usize,
}

/// Stores a graph whose weights are constants, packed for these instructions, in the file `out`.
pub fn store(graph: &Graph, out: &Path, isas: &[Isa]) -> Result<Stored> {
    let mut engines = Vec::new();
    for &isa in isas {
        let threads = Some(1);
        let options = EngineOptions { isa: Some(isa), threads, ..EngineOptions::default() };
        engines.push((isa, Engine::prepare(graph.clone(), &options)?));
    }
    let absorbed: Vec<String> =
        engines.first().map(|(_, engine)| engine.absorbed().to_vec()).unwrap_or_default();
    let (mut stripped, constants) = strip(graph, &absorbed);
    steps::disguise(&mut stripped)?;
    let definition = convert_tf::export(&stripped, None)?;
    let definition = graph_def::encode(&definition);

    let mut layout = Layout::default();
    let graph_block = layout.add(definition.len());
    let mut header = Header {
        frazil: env!("CARGO_PKG_VERSION").into(),
        layout: LAYOUT,
        length: 0,
        graph: graph_block,
        inputs: inputs(graph)?,
        outputs: outputs(graph),
        constants: Vec::new(),
        packed: Vec::new(),
    };
    for (node, tensor) in &constants {
        header.constants.push(ConstantEntry {
            node: node.clone(),
            dtype: tensor.dtype().name().into(),
            shape: tensor.shape().to_vec(),
            block: layout.add(tensor.byte_len()),
        });
    }
    for (isa, engine) in &engines {
        for part in engine.packed_weights() {
            let block = layout.add(part.bytes.len());
            let (isa, node) = (isa.name().into(), part.node.into());
            header.packed.push(PackedEntry { isa, node, block });
        }
    }
    let parts = || engines.iter().take(1).flat_map(|(_, engine)| engine.packed_weights());
    let (products, int8_products) = (parts().count(), parts().filter(|part| part.int8).count());
    let bytes = write(out, header, &layout, |blocks| {
        blocks.write(&definition)?;
        for (_, tensor) in &constants {
            blocks.write(tensor.bytes()?)?;
        }
        for part in engines.iter().flat_map(|(_, engine)| engine.packed_weights()) {
            blocks.write(part.bytes)?;
        }
        Ok(())
    })?;
    Ok(Stored { bytes, products, int8_products })
}

/// Puts the products of a graph into bytes.
fn quantize(graph: &mut Graph, how: &Calibration) -> Result<()> {
    let roles = role::roles(graph)?;
    match how {
        // Of many lengths.
        Calibration::MadeUp => {
            minmax::by_lengths(graph, &roles, &[128, 17, 64, 96, 33, 128, 8, 50])
        }
        Calibration::Inputs(path) => {
            let given = role::arrays(path)?;
            let (fed, _) = role::assign(&roles, &given, &Default::default())?;
            let batches = batches(graph, &fed)?;
            let done = minmax::by_batches(graph, &batches);
            done.map_err(|error| match error {
                Error::Run(error) => role::with_unused(*error, &given, &fed).into(),
                other => other,
            })
        }
    }
}

/// Where blocks lie, behind the header.
#[derive(Default)]
struct Layout {
    end: u64,
}

impl Layout {
    fn add(&mut self, length: usize) -> Block {
        let offset = self.end.next_multiple_of(ALIGN as u64);
        self.end = offset + length as u64;
        Block { offset, length: length as u64 }
    }
}

/// Writes blocks one after the other, each at its place.
struct Blocks<'a> {
    file: &'a mut AtomicFile,
    written: u64,
}

impl Blocks<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let gap = self.written.next_multiple_of(ALIGN as u64) - self.written;
        let zeros = &[0; ALIGN][..gap as usize];
        let done = self.file.write_all(zeros).and_then(|()| self.file.write_all(bytes));
        done.map_err(|source| {
            let path = self.file.path().to_path_buf();
            frazil_tensor::Error::Io { action: "write", path, source }
        })?;
        self.written += gap + bytes.len() as u64;
        Ok(())
    }
}

/// Writes the file; offsets in the header count from the first multiple of a line behind it.
fn write(
    out: &Path,
    mut header: Header,
    layout: &Layout,
    fill: impl FnOnce(&mut Blocks<'_>) -> Result<()>,
) -> Result<u64> {
    let encode = |header: &Header| {
        serde_json::to_vec(header).expect("the header has nothing that JSON lacks")
    };
    // The length of the file is in the header: room for any.
    header.length = u64::MAX;
    let room = (16 + encode(&header).len()).next_multiple_of(ALIGN);
    header.length = room as u64 + layout.end;
    let mut bytes = encode(&header);
    bytes.resize(room - 16, b' ');
    let mut file = AtomicFile::create(out)?;
    let mut begin = MAGIC.to_vec();
    begin.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    begin.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    begin.extend_from_slice(&bytes);
    Blocks { file: &mut file, written: 0 }.write(&begin)?;
    fill(&mut Blocks { file: &mut file, written: 0 })?;
    file.commit()?;
    Ok(header.length)
}

/// The graph with variables in place of its large constants, and those of them that are not packed.
fn strip(graph: &Graph, absorbed: &[String]) -> (Graph, Vec<(String, Tensor)>) {
    let mut stripped = graph.clone();
    let mut constants = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let Some(tensor) = node.op.as_const() else { continue };
        let packed = absorbed.contains(&node.name);
        if !packed && (tensor.byte_len() <= SMALL || tensor.dtype().size().is_none()) {
            continue;
        }
        if !packed {
            constants.push((node.name.clone(), tensor.clone()));
        }
        let (dtype, shape) = (tensor.dtype(), Some(tensor.shape().clone()));
        stripped.node_mut(id).op = Op::Variable(Variable { dtype, shape, resource: false });
    }
    (stripped, constants)
}

fn inputs(graph: &Graph) -> Result<Vec<InputEntry>> {
    let entry = |port: &Port| {
        let (Op::Input(input) | Op::InputWithDefault(input)) = graph.op(port.value) else {
            return None;
        };
        let name = |dim: &Dim| match dim.as_symbol() {
            Some(symbol) => Some(symbol.to_string()),
            None => dim.as_known().map(|size| size.to_string()),
        };
        let dims = match &input.dims {
            Some(dims) => Some(dims.iter().map(name).collect::<Option<_>>()?),
            None => None,
        };
        let node = graph.node(port.value.node).name.clone();
        Some(InputEntry { name: port.name.clone(), node, dtype: input.dtype.name().into(), dims })
    };
    let refused = |port: &Port| Error::Usage {
        what: format!("input `{}` has extents that a compiled model cannot have", port.name),
        hint: "cut the graph at `[batch, seq]` inputs with `--input`".into(),
    };
    graph.inputs.iter().map(|port| entry(port).ok_or_else(|| refused(port))).collect()
}

fn outputs(graph: &Graph) -> Vec<OutputEntry> {
    let entry = |port: &Port| OutputEntry {
        name: port.name.clone(),
        node: graph.node(port.value.node).name.clone(),
        port: port.value.port,
    };
    graph.outputs.iter().map(entry).collect()
}

/// What a compiled file says of itself.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// The frazil that wrote it.
    pub frazil: String,
    /// Whether this frazil runs it.
    pub readable: bool,
    /// Its size in bytes.
    pub bytes: u64,
    /// For which instructions.
    pub isas: Vec<String>,
    /// Products whose weights are packed.
    pub products: usize,
    /// Whether products are computed in bytes; unknown of a file that this frazil does not run.
    pub int8: Option<bool>,
    /// What must be fed.
    pub inputs: Vec<End>,
    /// What it computes: names alone.
    pub outputs: Vec<String>,
}

impl Description {
    /// What products are computed in.
    pub fn products_in(&self) -> &'static str {
        match self.int8 {
            Some(true) => "computed in bytes",
            Some(false) => "in float32",
            None => "as another frazil reads them",
        }
    }

    /// The same as a part of a page.
    pub fn section(&self) -> Section {
        let mut table = Table::new(["", "name", "type", "shape"]);
        for end in &self.inputs {
            let name = Cell::code(&end.name);
            table.push([
                "input".into(),
                name,
                end.dtype.as_str().into(),
                end.shape.as_str().into(),
            ]);
        }
        for name in &self.outputs {
            table.push(["output".into(), Cell::code(name), "".into(), "".into()]);
        }
        Section::new("Compiled")
            .figure("size", number::size(self.bytes), format!("by frazil {}", self.frazil))
            .figure("products", self.products.to_string(), self.products_in())
            .figure("packed for", self.isas.join(", "), "")
            .table(table)
    }
}

/// Reads the header, and of a file that this frazil runs the graph: no weights.
pub fn describe(path: &Path) -> Result<Description> {
    let bytes = file::map(path)?;
    let (version, header, _) = header(path, &bytes)?;
    let readable = is_ours(&version);
    let mut isas: Vec<String> = Vec::new();
    for entry in &header.packed {
        if !isas.contains(&entry.isa) {
            isas.push(entry.isa.clone());
        }
    }
    let first = header.packed.iter().filter(|entry| isas.first() == Some(&entry.isa));
    let end = |entry: &InputEntry| End {
        name: entry.name.clone(),
        dtype: entry.dtype.clone(),
        shape: entry
            .dims
            .as_ref()
            .map_or("unknown".into(), |dims| format!("[{}]", dims.join(", "))),
    };
    Ok(Description {
        products: first.count(),
        int8: readable.then(|| Compiled::open(path)).transpose()?.map(|model| model.is_int8()),
        bytes: bytes.len() as u64,
        inputs: header.inputs.iter().map(end).collect(),
        outputs: header.outputs.into_iter().map(|entry| entry.name).collect(),
        frazil: header.frazil,
        readable,
        isas,
    })
}

/// Whether a header is of a file that this frazil wrote, or might have written.
fn is_ours(version: &serde_json::Value) -> bool {
    version["layout"] == LAYOUT && version["frazil"] == env!("CARGO_PKG_VERSION")
}

/// Why a compiled file cannot be used.
fn refuse(path: &Path, what: &str, hint: &str) -> Error {
    Error::Usage { what: format!("`{}` {what}", path.display()), hint: hint.into() }
}

const AGAIN: &str = "compile the model again with `frazil compile`";

fn damaged(path: &Path) -> Error {
    refuse(path, "is damaged", AGAIN)
}

/// The header, untyped and typed, and where blocks begin. A header of another version is refused if it
/// has other fields.
fn header(path: &Path, bytes: &Bytes) -> Result<(serde_json::Value, Header, usize)> {
    let damaged = || damaged(path);
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    if bytes.get(..8) != Some(&MAGIC[..]) {
        return Err(refuse(path, "is no compiled model", "`frazil compile` makes one"));
    }
    let (length, crc) = (word(8).ok_or_else(damaged)?, word(12).ok_or_else(damaged)?);
    let end = 16 + length as usize;
    let text = bytes.get(16..end).ok_or_else(damaged)?;
    if crc32c::crc32c(text) != crc {
        return Err(damaged());
    }
    let version: serde_json::Value = serde_json::from_slice(text).map_err(|_| damaged())?;
    let header = serde_json::from_slice(text).map_err(|_| match is_ours(&version) {
        true => damaged(),
        false => of_another(path, &version),
    })?;
    Ok((version, header, end))
}

fn of_another(path: &Path, version: &serde_json::Value) -> Error {
    refuse(path, &format!("was compiled by frazil {}", version["frazil"]), AGAIN)
}

/// Whether the file is a compiled model.
pub fn is_compiled(path: &Path) -> bool {
    let mut begin = [0; MAGIC.len()];
    let read = std::fs::File::open(path)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut begin));
    read.is_ok() && begin == MAGIC
}

/// A compiled model, mapped.
#[derive(Clone)]
pub struct Compiled {
    /// The graph, with variables where weights are packed.
    pub graph: Graph,
    weights: HashMap<Isa, PackedWeights>,
    path: PathBuf,
}

impl Compiled {
    /// Maps the file; refuses one that is damaged, or that another version wrote.
    pub fn open(path: &Path) -> Result<Self> {
        let bytes = file::map(path)?;
        let damaged = || damaged(path);
        let (version, header, end) = header(path, &bytes)?;
        if !is_ours(&version) {
            return Err(of_another(path, &version));
        }
        if header.length != bytes.len() as u64 {
            return Err(damaged());
        }
        let body = bytes.slice(end..);
        let block = |block: Block| -> Result<Bytes> {
            let range = usize::try_from(block.offset).ok().zip(usize::try_from(block.length).ok());
            let range = range.and_then(|(begin, len)| Some(begin..begin.checked_add(len)?));
            let range = range.filter(|range| range.end <= body.len()).ok_or_else(damaged)?;
            Ok(body.slice(range))
        };
        let definition = graph_def::decode(block(header.graph)?)?;
        let mut graph = convert_tf::import(&definition, &Default::default())?.graph;
        steps::reveal(&mut graph).ok_or_else(damaged)?;
        for entry in &header.constants {
            let id = graph.find(&entry.node).ok_or_else(damaged)?;
            let dtype = DType::from_name(&entry.dtype).ok_or_else(damaged)?;
            let tensor = Tensor::new(dtype, entry.shape.clone(), block(entry.block)?)?;
            graph.node_mut(id).op = Op::constant(tensor);
        }
        graph.inputs.clear();
        for entry in &header.inputs {
            let id = graph.find(&entry.node).ok_or_else(damaged)?;
            let dtype = DType::from_name(&entry.dtype).ok_or_else(damaged)?;
            let dim = |name: &String| match name.parse::<i64>() {
                Ok(size) => Dim::known(size),
                Err(_) => Dim::symbol(Symbol::new(name)),
            };
            let dims = entry.dims.as_ref().map(|dims| dims.iter().map(dim).collect());
            graph.node_mut(id).op = Op::Input(Input { dtype, dims });
            graph.node_mut(id).inputs.clear();
            graph.inputs.push(Port { name: entry.name.clone(), value: id.into() });
        }
        for OutputEntry { name, node, port } in header.outputs {
            let node = graph.find(&node).ok_or_else(damaged)?;
            let value = frazil_graph::Value { node, port };
            graph.outputs.push(Port { name, value });
        }
        graph.check()?;
        let mut weights: HashMap<Isa, PackedWeights> = HashMap::new();
        for entry in header.packed {
            let isa: Isa = entry.isa.parse().map_err(|_| damaged())?;
            block(entry.block)?; // within the file
            let begin = entry.block.offset as usize;
            let range = begin..begin + entry.block.length as usize;
            let packed = Packed { file: body.clone(), range };
            weights.entry(isa).or_default().insert(entry.node, packed);
        }
        Ok(Self { graph, weights, path: path.to_path_buf() })
    }

    /// Whether anything of it is computed in bytes.
    pub fn is_int8(&self) -> bool {
        self.graph.nodes().any(|(_, node)| matches!(node.op, Op::FakeQuantize(_)))
    }

    /// The engine for this machine; refuses if the file has no weights for any of its instructions.
    pub fn engine(&self, options: &EngineOptions) -> Result<Engine> {
        let most = match options.isa {
            Some(isa) => isa,
            None => Isa::chosen().map_err(|error| Error::Usage {
                what: format!("`FRAZIL_ISA`: {error}"),
                hint: "unset it, or name one of these".into(),
            })?,
        };
        let known = self.weights.keys().copied();
        let best = known.clone().filter(|isa| *isa <= most && isa.is_available()).max();
        let Some(isa) = best else {
            let has: Vec<&str> = known.map(Isa::name).collect();
            return Err(Error::Usage {
                what: format!(
                    "`{}` is compiled for {}, which is not what runs here",
                    self.path.display(),
                    has.join(" and ")
                ),
                hint: format!("compile it with `--isa {most}`"),
            });
        };
        let weights = self.weights.get(&isa).cloned();
        let options = EngineOptions { isa: Some(isa), weights, ..options.clone() };
        Ok(Engine::new(&self.graph, &options)?)
    }
}
