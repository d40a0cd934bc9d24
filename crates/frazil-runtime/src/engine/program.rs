//! What a worker does: steps over blocks of memory that are planned once.
//!
//! A value is either a [`View`] of a block that fast kernels read and write, or a tensor that the
//! plain operations make. Extents are known when a batch arrives: the program names them.

use std::sync::Arc;

use frazil_graph::{Dim, Graph, NodeId, Value};
use frazil_kernels::Isa;
use frazil_kernels::attention::OperandSteps;
use frazil_kernels::gemm::Activation;
use frazil_tensor::Tensor;

use super::train::Train;
use super::weights::{Linear, LinearI8, Table};

/// Which of [`Program::extents`].
pub(crate) type ExtentId = usize;

/// A graph, ready to run.
pub(crate) struct Program {
    /// The graph after raising and packing; weights that are packed are taken out of it.
    pub graph: Graph,
    pub isa: Isa,
    pub steps: Vec<Step>,
    /// All extents that steps speak of.
    pub extents: Vec<Dim>,
    /// Blocks of memory: how many.
    pub blocks: usize,
    /// Which block each storage has.
    pub storages: Vec<Storage>,
    /// Tensors that plain operations make: how many.
    pub tensors: usize,
    /// Lists of integers that steps make: how many.
    pub lists: usize,
    /// Weights that the caller gives: how many.
    pub parameters: usize,
    pub constants: Vec<Tensor>,
    pub linears: Vec<Linear>,
    pub linears_i8: Vec<LinearI8>,
    pub outputs: Vec<(String, Place)>,
    /// Steps after which outputs are what they are in the end, and which: in the order of steps.
    pub ready: Vec<(usize, usize)>,
    /// Constants of the graph that live in packed weights only.
    pub absorbed: Vec<String>,
    /// What runs by plain kernels though a fast one exists, and why.
    pub slow: Vec<(String, String)>,
}

/// Memory for one value, from its step to its last reader.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub block: usize,
    pub stride: Stride,
    pub kind: Kind,
}

/// What a storage holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    U8,
}

impl Kind {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        match self {
            Kind::F32 => 4,
            Kind::U8 => 1,
        }
    }
}

/// Rows of bytes.
#[derive(Clone, Debug)]
pub(crate) struct Quantized {
    pub view: View,
    pub scales: Scales,
    /// What numbers are multiplied by, column by column, before they become bytes.
    pub factors: Option<Arc<[f32]>>,
}

/// What bytes stand for: `(byte - zero) * scale`.
#[derive(Clone, Debug)]
pub(crate) enum Scales {
    Tensor {
        scale: f32,
        zero: u8,
    },
    /// The byte in the middle stands for 0.
    Symmetric {
        scale: f32,
    },
    /// Of each row its own, in memory.
    Rows {
        scale: View,
        zero: View,
    },
}

impl Quantized {
    /// Everything that is written with the bytes.
    pub fn views(&self) -> impl Iterator<Item = &View> {
        let rows = match &self.scales {
            Scales::Rows { scale, zero } => vec![scale, zero],
            _ => Vec::new(),
        };
        std::iter::once(&self.view).chain(rows)
    }
}

/// Where a product goes: to numbers, or right to the bytes of the next product, whose scale is known.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    F32(View),
    U8(Quantized),
}

impl Target {
    pub fn view(&self) -> &View {
        match self {
            Target::F32(view) => view,
            Target::U8(quantized) => &quantized.view,
        }
    }
}

/// Numbers from one row to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stride {
    Known(usize),
    Extent(ExtentId),
}

/// Rows of numbers in a storage: `dims`, of which the last is the row.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub storage: usize,
    /// The first column.
    pub column: usize,
    pub dims: Vec<ExtentId>,
}

/// Where a value is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// What the caller gives, by the place among the graph's inputs.
    Input(usize),
    Constant(usize),
    /// What a plain operation made.
    Tensor(usize),
    /// What a fast step made.
    View(View),
    /// Integers that a step made.
    List(usize),
    /// A weight that the caller may change between runs.
    Parameter(usize),
}

/// One step.
pub(crate) struct Step {
    /// Whose value it computes, for messages and profiles.
    pub node: NodeId,
    pub work: Work,
}

pub(crate) enum Work {
    /// Finds the rows that are no padding.
    PackRows {
        mask: Place,
        first: bool,
        index: usize,
        bounds: usize,
    },
    /// Lookups, and their normalisation.
    Embed(Box<Embed>),
    /// `x w + bias`, what follows it element by element, and a sum.
    Linear {
        x: Place,
        linear: usize,
        activation: Activation,
        residual: Option<Place>,
        out: Target,
    },
    /// The same in bytes.
    LinearI8 {
        x: Quantized,
        linear: usize,
        activation: Activation,
        residual: Option<Place>,
        out: Target,
        /// Each row's own bytes, if a product wants them and nothing else: then `out` has a block of
        /// rows at a time.
        bytes: Option<Quantized>,
    },
    /// Also as bytes, if a product wants them.
    LayerNorm {
        x: Place,
        norm: Norm,
        out: View,
        bytes: Option<Quantized>,
    },
    Attention(Box<Attention>),
    /// Element by element.
    Map {
        x: Place,
        activation: Activation,
        out: View,
    },
    Add {
        a: Place,
        b: Place,
        out: View,
    },
    Softmax {
        x: Place,
        log: bool,
        out: View,
    },
    /// Rows by number.
    Gather {
        x: Place,
        rows: Place,
        out: View,
    },
    /// One column of rows.
    Column {
        x: Place,
        column: usize,
        out: View,
    },
    /// All numbers of a list but the last.
    Head {
        list: Place,
        out: usize,
    },
    /// 0, 1, … up to but not including an extent.
    Count {
        extent: ExtentId,
        out: usize,
    },
    /// Packed rows to where they came from.
    UnpackRows {
        x: Place,
        index: Place,
        out: View,
    },
    /// Numbers to bytes.
    Quantize {
        x: Place,
        out: Quantized,
    },
    /// Bytes to the numbers that they stand for.
    Dequantize {
        x: Quantized,
        out: View,
    },
    /// Shows rows to whoever watches ([`super::Engine::watch`]), and does nothing else.
    Watch {
        x: Place,
        site: String,
        place: usize,
    },
    /// What only training does.
    Train(Train),
    /// A plain operation.
    Plain {
        inputs: Vec<Place>,
        outputs: Vec<usize>,
    },
}

pub(crate) struct Embed {
    pub ids: Place,
    pub segments: Place,
    pub index: Option<Place>,
    pub words: Table,
    pub types: Table,
    pub positions: Table,
    pub norm: Option<Norm>,
    pub out: View,
    /// Also as bytes, if a product wants them.
    pub bytes: Option<Quantized>,
    /// The values of ids and segments, for messages.
    pub sources: [Value; 2],
}

pub(crate) struct Norm {
    pub gamma: Vec<f32>,
    pub beta: Vec<f32>,
    pub epsilon: f32,
}

pub(crate) struct Attention {
    pub q: Place,
    pub k: Place,
    pub v: Place,
    pub heads: usize,
    pub size: usize,
    pub scale: f32,
    pub steps: OperandSteps,
    pub sequences: Sequences,
    pub out: Target,
}

/// Which queries see which keys.
pub(crate) enum Sequences {
    /// A mask `[b, s]` over padded rows.
    Mask(Place),
    /// Bounds of the queries' and the keys' sequences in packed rows.
    Packed { queries: Place, keys: Place },
}
