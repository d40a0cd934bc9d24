//! The operations: a closed set, so that whoever lacks one does not compile.
//!
//! Each variant says what its inputs are, in order. Shapes are numpy's: broadcasting aligns the
//! last axes. Axes that are attributes may be negative and count from the end. Operands that
//! TensorFlow passes as tensors (axes, permutations, target shapes) are inputs here too; most
//! users of the graph want them constant and say so when they are not.
//!
//! [`Op::Foreign`] carries any other operation of the source: it survives freezing, cutting and
//! writing TensorFlow graphs, and cannot run.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use frazil_tensor::{DType, Shape, Tensor};
use serde::{Deserialize, Serialize};

use crate::Dim;

mod training;

pub use training::{AttentionGrad, Dropout, DroppedAttention, EmbedGrad, Training};

/// What a node computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Op {
    /// A tensor that the caller feeds. No inputs.
    Input(Input),
    /// A tensor that the caller may feed. Inputs: the value otherwise.
    InputWithDefault(Input),
    /// A value that is known. No inputs.
    Const(Const),
    /// A weight whose value lies in a checkpoint. No inputs.
    Variable(Variable),
    /// The value of a resource variable. Inputs: the variable.
    ReadVariable(ReadVariable),
    /// Element by element. Inputs: x.
    Unary(Unary),
    /// Element by element with broadcasting. Inputs: x, y.
    Binary(Binary),
    /// Element by element with broadcasting, to `bool`. Inputs: x, y.
    Compare(Compare),
    /// The sum of any number of tensors of one shape. Inputs: each of them.
    AddN,
    /// `bias: [n]` added along the last axis. Inputs: x, bias.
    BiasAdd,
    /// Another element type. Inputs: x.
    Cast(Cast),
    /// Element by element with broadcasting, `x` where the condition holds. Inputs: condition, x, y.
    Select,
    /// Matrix products over the last two axes, the others broadcast. Inputs: a, b.
    MatMul(MatMul),
    /// Over some axes. Inputs: x, axes (a scalar or a list).
    Reduce(Reduce),
    /// The place of the largest element. Inputs: x, axis.
    ArgMax(ArgMax),
    /// Over the last axis. Inputs: x.
    Softmax,
    /// Over the last axis. Inputs: x.
    LogSoftmax,
    /// The extents as a list. Inputs: x.
    Shape(ShapeOp),
    /// The number of elements. Inputs: x.
    Size(ShapeOp),
    /// The number of axes, `int32`. Inputs: x.
    Rank,
    /// The same elements under another shape. Inputs: x, shape (one entry may be -1).
    Reshape,
    /// An axis of extent 1 put in. Inputs: x, axis.
    ExpandDims,
    /// Axes of extent 1 taken out. Inputs: x.
    Squeeze(Squeeze),
    /// Axes in another order. Inputs: x, permutation.
    Transpose,
    /// Tensors joined along an axis. Inputs: each of them, then the axis.
    Concat,
    /// Tensors of one shape stacked along a new axis. Inputs: each of them.
    Pack(Pack),
    /// The opposite: one output per index. Inputs: x.
    Unpack(Unpack),
    /// Equal parts along an axis, one output each. Inputs: axis, x.
    Split(Split),
    /// Parts of given sizes along an axis, one output each. Inputs: x, sizes, axis.
    SplitV(Split),
    /// A window. Inputs: x, begin, size (-1: to the end).
    Slice,
    /// A window with strides and masks. Inputs: x, begin, end, strides.
    StridedSlice(StridedSlice),
    /// Rows by index. Inputs: table, indices, axis.
    Gather(Gather),
    /// Inputs: indices, depth, on value, off value.
    OneHot(OneHot),
    /// Inputs: start, limit, delta.
    Range,
    /// One value everywhere. Inputs: dims, value.
    Fill,
    /// Repeated along each axis. Inputs: x, multiples.
    Tile,
    /// Inputs: x, shape.
    BroadcastTo,
    /// A border. Inputs: x, paddings `[rank, 2]`, and the value if it is not 0.
    Pad,
    /// Normalised over the last axis: `(x - mean) / sqrt(variance + epsilon) * gamma + beta`.
    /// Inputs: x, gamma `[h]`, beta `[h]`.
    LayerNorm(LayerNorm),
    /// Inputs: x.
    Gelu(Gelu),
    /// `x: [.., k]` times `w: [k, n]` (or `[n, k]`) plus `bias: [n]`. Inputs: x, w, bias.
    Linear(Linear),
    /// The sum of three lookups. Inputs: `input_ids [b, s]`, `segment_ids [b, s]`, word table
    /// `[v, h]`, token-type table `[types, h]`, position table `[p, h]`. Output `[b, s, h]`.
    ///
    /// With a sixth input, the `index [t]` of [`Op::PackRows`], only those positions are looked up:
    /// row `r` of the output `[t, h]` is that of `ids[index[r]]` at position `index[r] mod s`.
    Embed,
    /// Self-attention over all heads: softmax(q kᵀ · scale + (1 - mask) · mask_value) v per head.
    /// Inputs: q, k, v as rows `[b*s, n*d]`, and the key mask `[b, s]` of any number type.
    /// Output: rows `[b*s, n*d]`.
    ///
    /// Packed, the inputs are q `[tq, n*d]`, k and v `[t, n*d]`, and for queries and keys where
    /// each sequence's rows begin and end, `[b+1]` each (the bounds of [`Op::PackRows`]). The
    /// queries of a sequence see all of its keys and no others. Output: rows `[tq, n*d]`.
    Attention(Attention),
    /// Which positions of a batch are no padding. Inputs: the mask `[b, s]` of any number type, 0
    /// for padding. Outputs: `index [t]`, the places `i*s + j` of all others in order, and
    /// `bounds [b+1]`, where each sequence's rows begin and end among them; both `int32`. A
    /// sequence without any row is refused.
    PackRows(PackRows),
    /// Packed rows back in their places, zeros in those of padding. Inputs: x `[t, ..]`, the index
    /// `[t]` and the mask `[b, s]` of [`Op::PackRows`]. Output `[b, s, ..]`.
    UnpackRows,
    /// Real numbers as 8-bit steps of a range. Inputs: x, the range's least and most (scalars).
    /// Outputs: the steps, and the range's ends, moved apart so that zero is within.
    Quantize(Quantize),
    /// Steps as real numbers. Inputs: steps, the range's least and most.
    Dequantize,
    /// 32-bit steps of a range as 8-bit ones of another. Inputs: steps, least and most of their
    /// range, least and most of the other. Outputs: the steps, and the other range's ends.
    Requantize(Quantize),
    /// A product of steps with a bias in real numbers. Inputs: `x: [m, k]` of `quint8`,
    /// `w: [k, n]` of `qint8`, `bias: [n]`, least and most of x's range, least and most of w's.
    /// Outputs: 32-bit steps `[m, n]`, and the ends of their range.
    QuantizedLinear,
    /// Numbers on the steps of bytes: `(clamp(round(x / scale + zero)) - zero) * scale`, halves to
    /// even. What is computed from them can be computed from the bytes. Inputs: x.
    FakeQuantize(Steps),
    /// Signed bytes as numbers: `x * scale`, with the scale of x's place on an axis. Inputs: x
    /// (`int8`), scales `[extent of the axis]`, or `[1]` for one that all share.
    Scaled(Scaled),
    /// What only training needs: losses, dropout, gradients.
    Training(Training),
    /// Anything else that the source has.
    Foreign(Foreign),
}

/// See [`Op::Input`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Element type.
    pub dtype: DType,
    /// Extents; `None` if not even the rank is known.
    pub dims: Option<Vec<Dim>>,
}

/// See [`Op::Const`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Const {
    /// The value.
    pub value: Tensor,
}

/// See [`Op::Variable`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    /// Element type.
    pub dtype: DType,
    /// Extents, if the source says.
    pub shape: Option<Shape>,
    /// Whether the output is a handle that [`Op::ReadVariable`] reads, not the value.
    pub resource: bool,
}

/// See [`Op::ReadVariable`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadVariable {
    /// Element type.
    pub dtype: DType,
}

/// See [`Op::Unary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Unary {
    Identity,
    /// The identity that no gradient passes.
    StopGradient,
    Neg,
    Abs,
    Sign,
    Exp,
    Log,
    Sqrt,
    /// `1 / sqrt(x)`
    Rsqrt,
    Reciprocal,
    Square,
    Floor,
    /// To the nearest whole number, halves to the even one.
    Round,
    Sin,
    Cos,
    Tanh,
    Erf,
    Sigmoid,
    Relu,
    /// Of `bool`.
    Not,
}

/// See [`Op::Binary`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    /// Rounded down.
    FloorDiv,
    /// The rest of `FloorDiv`.
    FloorMod,
    Pow,
    Maximum,
    Minimum,
    SquaredDifference,
    /// Of `bool`.
    And,
    /// Of `bool`.
    Or,
}

/// See [`Op::Compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum Compare {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// See [`Op::Cast`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cast {
    /// The new element type.
    pub to: DType,
}

/// See [`Op::MatMul`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatMul {
    /// Whether `a` is `[.., k, m]`.
    pub transpose_a: bool,
    /// Whether `b` is `[.., n, k]`.
    pub transpose_b: bool,
}

/// See [`Op::Reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reduce {
    /// What is computed.
    pub kind: ReduceKind,
    /// Whether the axes stay, with extent 1.
    pub keep_dims: bool,
}

/// See [`Reduce`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub enum ReduceKind {
    Mean,
    Sum,
    Max,
    Min,
    Prod,
    /// Of `bool`.
    All,
    /// Of `bool`.
    Any,
}

/// See [`Op::ArgMax`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArgMax {
    /// `int32` or `int64`.
    pub to: DType,
}

/// See [`Op::Shape`] and [`Op::Size`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShapeOp {
    /// `int32` or `int64`.
    pub to: DType,
}

/// See [`Op::Squeeze`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Squeeze {
    /// Which axes; all of extent 1 if empty.
    pub axes: Vec<i64>,
}

/// See [`Op::Pack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pack {
    /// Where the new axis goes.
    pub axis: i64,
}

/// See [`Op::Unpack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unpack {
    /// The axis that goes.
    pub axis: i64,
    /// Its extent.
    pub count: usize,
}

/// See [`Op::Split`] and [`Op::SplitV`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Number of parts.
    pub count: usize,
}

/// See [`Op::StridedSlice`]. Bit `i` of a mask belongs to entry `i` of begin, end and strides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StridedSlice {
    /// Where begin is to be ignored.
    pub begin_mask: u32,
    /// Where end is to be ignored.
    pub end_mask: u32,
    /// The one entry that stands for all axes that are not named.
    pub ellipsis_mask: u32,
    /// Entries that put an axis in.
    pub new_axis_mask: u32,
    /// Entries that take one index and drop the axis.
    pub shrink_axis_mask: u32,
}

/// See [`Op::Gather`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gather {
    /// Leading axes that table and indices share.
    pub batch_dims: usize,
}

/// See [`Op::OneHot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OneHot {
    /// Where the new axis goes; -1: last.
    pub axis: i64,
}

/// See [`Op::LayerNorm`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LayerNorm {
    /// Added to the variance, inside the root.
    pub epsilon: f32,
}

/// See [`Op::Gelu`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gelu {
    /// Which formula.
    pub form: GeluForm,
}

/// The two formulas that are called GELU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GeluForm {
    /// `0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`
    Tanh,
    /// `0.5 x (1 + erf(x / sqrt(2)))`
    Erf,
}

/// See [`Op::Linear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linear {
    /// Whether the weight is `[n, k]`.
    pub transpose_w: bool,
}

/// See [`Op::Attention`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
    /// Factor on the scores, `1 / sqrt(d)` in BERT.
    pub scale: f32,
    /// Added to the scores of masked keys, -10000 in BERT. Packed, there are none.
    pub mask_value: f32,
    /// Whether the rows of padding are left out and bounds stand in for the mask.
    pub packed: bool,
    /// The bytes that the softmax is put on, [`Steps::Tensor`], if any. Those of queries, keys and
    /// values are said by what makes them.
    pub steps: Option<Steps>,
}

/// See [`Op::PackRows`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackRows {
    /// Whether someone counts on position 0 of every sequence: a mask that hides it is refused.
    pub first: bool,
}

/// See [`Op::Quantize`] and [`Op::Requantize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantize {
    /// `quint8` or `qint8`.
    pub to: DType,
}

/// The bytes of [`Op::FakeQuantize`], and what they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Steps {
    /// Unsigned bytes 0 to 255, with one scale and zero for all.
    Tensor {
        /// What a step of one stands for.
        scale: f32,
        /// The byte that stands for 0.
        zero: u8,
    },
    /// Unsigned bytes 0 to 255; each row (along the last axis) has a scale and a zero that follow
    /// from its least and its largest number, and 0.
    Rows,
    /// Signed bytes -127 to 127, with one scale for all; 0 stands for 0.
    Symmetric {
        /// What a step of one stands for.
        scale: f32,
    },
    /// No bytes, the numbers as they are: a mark at which whoever calibrates looks at them, see
    /// [`crate::pass::quantize::watch`].
    Watched {
        /// Which of the values that the site observes.
        place: u32,
    },
}

/// See [`Op::Scaled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaled {
    /// The axis along which scales differ.
    pub axis: i64,
}

/// See [`Op::Foreign`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Foreign {
    /// The source's name for the operation.
    pub op: String,
    /// All of the source's attributes.
    pub attrs: Attrs,
    /// What the source says of each output; at least as many as are used.
    pub outputs: Vec<Declared>,
}

/// What a source says of a tensor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Declared {
    /// Element type; `None` for what is no tensor (resources, variants) and for the unknown.
    pub dtype: Option<DType>,
    /// Extents; `None` if not even the rank is known.
    pub dims: Option<Vec<Dim>>,
}

/// Attributes by name.
pub type Attrs = BTreeMap<String, Attr>;

/// An attribute of a foreign operation, as general as the formats that have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Attr {
    /// A byte string.
    Str(Bytes),
    /// An integer.
    Int(i64),
    /// A number.
    Float(f32),
    /// A truth value.
    Bool(bool),
    /// A type by the format's own name, `DT_RESOURCE` for example.
    Type(String),
    /// A shape; -1 is an unknown extent, `None` an unknown rank.
    Shape(Option<Vec<i64>>),
    /// A tensor.
    Tensor(Tensor),
    /// A function with its attributes.
    Function(String, Attrs),
    /// Several of one kind.
    List(Vec<Attr>),
    /// Whatever else, in the format's own bytes.
    Opaque(Bytes),
}

impl Op {
    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        match self {
            Op::Unpack(op) => op.count,
            Op::Split(op) | Op::SplitV(op) => op.count,
            Op::PackRows(_) => 2,
            Op::Quantize(_) | Op::Requantize(_) | Op::QuantizedLinear => 3,
            Op::Training(op) => op.outputs(),
            Op::Foreign(op) => op.outputs.len(),
            _ => 1,
        }
    }

    /// How many inputs a node of this kind has: at least and at most.
    pub fn arity(&self) -> (usize, usize) {
        match self {
            Op::Input(_) | Op::Const(_) | Op::Variable(_) => (0, 0),
            Op::InputWithDefault(_)
            | Op::ReadVariable(_)
            | Op::Unary(_)
            | Op::Cast(_)
            | Op::Softmax
            | Op::LogSoftmax
            | Op::Shape(_)
            | Op::Size(_)
            | Op::Rank
            | Op::Squeeze(_)
            | Op::Unpack(_)
            | Op::Gelu(_)
            | Op::FakeQuantize(_)
            | Op::PackRows(_) => (1, 1),
            Op::Binary(_)
            | Op::Compare(_)
            | Op::BiasAdd
            | Op::MatMul(_)
            | Op::Reduce(_)
            | Op::ArgMax(_)
            | Op::Reshape
            | Op::ExpandDims
            | Op::Transpose
            | Op::Split(_)
            | Op::Fill
            | Op::Tile
            | Op::BroadcastTo
            | Op::Scaled(_) => (2, 2),
            Op::Select
            | Op::SplitV(_)
            | Op::Slice
            | Op::Gather(_)
            | Op::Range
            | Op::LayerNorm(_)
            | Op::Linear(_)
            | Op::UnpackRows
            | Op::Quantize(_)
            | Op::Dequantize => (3, 3),
            Op::Pad => (2, 3),
            Op::Attention(op) if op.packed => (5, 5),
            Op::StridedSlice(_) | Op::OneHot(_) | Op::Attention(_) => (4, 4),
            Op::Embed => (5, 6),
            Op::Requantize(_) => (5, 5),
            Op::QuantizedLinear => (7, 7),
            Op::AddN | Op::Pack(_) => (1, usize::MAX),
            Op::Concat => (2, usize::MAX),
            Op::Training(op) => op.arity(),
            Op::Foreign(_) => (0, usize::MAX),
        }
    }

    /// Whether the source feeds it: an input of either kind.
    pub fn is_input(&self) -> bool {
        matches!(self, Op::Input(_) | Op::InputWithDefault(_))
    }

    /// The value, if it is a constant.
    pub fn as_const(&self) -> Option<&Tensor> {
        match self {
            Op::Const(op) => Some(&op.value),
            _ => None,
        }
    }

    /// A constant.
    pub fn constant(value: Tensor) -> Self {
        Op::Const(Const { value })
    }
}

/// The kind, without attributes: `Add`, `LayerNorm`, or the source's name for a foreign one.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Op::Unary(kind) => format!("{kind:?}"),
            Op::Binary(kind) => format!("{kind:?}"),
            Op::Compare(kind) => format!("{kind:?}"),
            Op::Reduce(op) => format!("Reduce{:?}", op.kind),
            Op::Training(op) => op.name().to_owned(),
            Op::Foreign(op) => op.op.clone(),
            other => {
                let all = format!("{other:?}");
                all.split(['(', ' ', '{']).next().unwrap_or_default().to_owned()
            }
        };
        f.pad(&kind)
    }
}
