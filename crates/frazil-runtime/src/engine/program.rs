//! What a worker does: steps over blocks of memory that are planned once.
//!
//! A value is either a [`View`] of a block that fast kernels read and write, or a tensor that the
//! plain operations make. Extents are known when a batch arrives: the program names them.

use frazil_graph::{Dim, Graph, NodeId, Value};
use frazil_kernels::Isa;
use frazil_kernels::gemm::Activation;
use frazil_tensor::Tensor;

use super::weights::{Linear, Table};

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
    pub constants: Vec<Tensor>,
    pub linears: Vec<Linear>,
    pub outputs: Vec<(String, Place)>,
    /// What runs by plain kernels though a fast one exists, and why.
    pub slow: Vec<(String, String)>,
}

/// Memory for one value, from its step to its last reader.
#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub block: usize,
    pub stride: Stride,
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
        out: View,
    },
    LayerNorm {
        x: Place,
        gamma: Vec<f32>,
        beta: Vec<f32>,
        epsilon: f32,
        out: View,
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
    /// Packed rows to where they came from.
    UnpackRows {
        x: Place,
        index: Place,
        out: View,
    },
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
    pub sequences: Sequences,
    pub out: View,
}

/// Which queries see which keys.
pub(crate) enum Sequences {
    /// A mask `[b, s]` over padded rows.
    Mask(Place),
    /// Bounds of the queries' and the keys' sequences in packed rows.
    Packed { queries: Place, keys: Place },
}
