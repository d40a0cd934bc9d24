//! One small graph for each operation: what a target makes of it is what the reference says.

use anyhow::Result;
use frazil::graph::op::{
    ArgMax, Attention, Binary, Cast, Compare, Gather, Gelu, GeluForm, Input, LayerNorm, Linear,
    MatMul, OneHot, Pack, PackRows, Quantize, Reduce, ReduceKind, Scaled, ShapeOp, Split, Squeeze,
    Steps, StridedSlice, Unary, Unpack,
};
use frazil::graph::{Dim, Graph, Node, Op, Port, Value};
use frazil::tensor::{DType, Element, Tensor};

/// A graph in the making.
#[derive(Default)]
struct Sketch(Graph);

impl Sketch {
    fn push(&mut self, name: &str, op: Op, inputs: Vec<Value>) -> Result<Value> {
        Ok(self.0.push(Node::new(name, op, inputs))?.into())
    }

    fn fed(&mut self, name: &str, dtype: DType, dims: &[i64]) -> Result<Value> {
        let dims = dims.iter().map(|&dim| Dim::known(dim)).collect();
        let value = self.push(name, Op::Input(Input { dtype, dims: Some(dims) }), vec![])?;
        self.0.inputs.push(Port { name: name.to_owned(), value });
        Ok(value)
    }

    fn constant<T: Element>(&mut self, name: &str, shape: &[usize], values: &[T]) -> Result<Value> {
        let tensor = Tensor::from_vec(shape.to_vec(), values.to_vec())?;
        self.push(name, Op::constant(tensor), vec![])
    }

    fn ints(&mut self, name: &str, values: &[i32]) -> Result<Value> {
        self.constant(name, &[values.len()], values)
    }

    fn int(&mut self, name: &str, value: i32) -> Result<Value> {
        self.constant(name, &[], &[value])
    }
}

/// Every operation that can be written, with a graph that has it as node `y`.
pub fn all() -> Result<Vec<(String, Graph)>> {
    let mut samples = Vec::new();
    for op in operations() {
        let mut sketch = Sketch::default();
        let inputs = operands(&mut sketch, &op)?;
        let name = op.to_string();
        let outputs = op.outputs() as u32;
        let node = sketch.push("y", op, inputs)?.node;
        for port in 0..outputs {
            let value = Value { node, port };
            let name = sketch.0.value_name(value);
            sketch.0.outputs.push(Port { name, value });
        }
        sketch.0.prune();
        sketch.0.check()?;
        samples.push((name, sketch.0));
    }
    samples.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(samples)
}

fn operations() -> Vec<Op> {
    use {Binary as B, Compare as C, ReduceKind as R, Unary as U};
    let mut all: Vec<Op> = Vec::new();
    all.extend(
        [
            U::Identity,
            U::StopGradient,
            U::Neg,
            U::Abs,
            U::Sign,
            U::Exp,
            U::Log,
            U::Sqrt,
            U::Rsqrt,
            U::Reciprocal,
            U::Square,
            U::Floor,
            U::Round,
            U::Sin,
            U::Cos,
            U::Tanh,
            U::Erf,
            U::Sigmoid,
            U::Relu,
            U::Not,
        ]
        .map(Op::Unary),
    );
    all.extend(
        [
            B::Add,
            B::Sub,
            B::Mul,
            B::Div,
            B::FloorDiv,
            B::FloorMod,
            B::Pow,
            B::Maximum,
            B::Minimum,
            B::SquaredDifference,
            B::And,
            B::Or,
        ]
        .map(Op::Binary),
    );
    all.extend(
        [C::Equal, C::NotEqual, C::Less, C::LessEqual, C::Greater, C::GreaterEqual]
            .map(Op::Compare),
    );
    all.extend(
        [R::Mean, R::Sum, R::Max, R::Min, R::Prod, R::All, R::Any]
            .map(|kind| Op::Reduce(Reduce { kind, keep_dims: false })),
    );
    all.extend([
        Op::AddN,
        Op::BiasAdd,
        Op::Cast(Cast { to: DType::F32 }),
        Op::Select,
        Op::MatMul(MatMul::default()),
        Op::ArgMax(ArgMax { to: DType::I64 }),
        Op::Softmax,
        Op::LogSoftmax,
        Op::Shape(ShapeOp { to: DType::I32 }),
        Op::Size(ShapeOp { to: DType::I32 }),
        Op::Rank,
        Op::Reshape,
        Op::ExpandDims,
        Op::Squeeze(Squeeze { axes: vec![0] }),
        Op::Transpose,
        Op::Concat,
        Op::Pack(Pack { axis: 0 }),
        Op::Unpack(Unpack { axis: 0, count: 2 }),
        Op::Split(Split { count: 2 }),
        Op::SplitV(Split { count: 2 }),
        Op::Slice,
        Op::StridedSlice(StridedSlice::default()),
        Op::Gather(Gather::default()),
        Op::OneHot(OneHot { axis: -1 }),
        Op::Range,
        Op::Fill,
        Op::Tile,
        Op::BroadcastTo,
        Op::Pad,
        Op::LayerNorm(LayerNorm { epsilon: 1e-12 }),
        Op::Gelu(Gelu { form: GeluForm::Tanh }),
        Op::Linear(Linear::default()),
        Op::Embed,
        Op::Attention(Attention {
            heads: 2,
            scale: 0.5,
            mask_value: -10000.0,
            packed: false,
            steps: None,
        }),
        Op::PackRows(PackRows::default()),
        Op::UnpackRows,
        Op::Quantize(Quantize { to: DType::QU8 }),
        Op::Dequantize,
        Op::Requantize(Quantize { to: DType::QI8 }),
        Op::QuantizedLinear,
        Op::FakeQuantize(Steps::Tensor { scale: 0.5, zero: 128 }),
        Op::Scaled(Scaled { axis: 1 }),
    ]);
    all
}

/// What the operation is given.
fn operands(s: &mut Sketch, op: &Op) -> Result<Vec<Value>> {
    let truth = matches!(op, Op::Unary(Unary::Not) | Op::Binary(Binary::And | Binary::Or))
        || matches!(op, Op::Reduce(r) if matches!(r.kind, ReduceKind::All | ReduceKind::Any));
    let dtype = if truth { DType::Bool } else { DType::F32 };
    let x = |s: &mut Sketch| s.fed("x", dtype, &[2, 4]);
    Ok(match op {
        Op::Unary(_) | Op::Softmax | Op::LogSoftmax | Op::Gelu(_) => vec![x(s)?],
        Op::Shape(_) | Op::Size(_) | Op::Rank | Op::Unpack(_) => vec![x(s)?],
        Op::Cast(_) => vec![s.fed("x", DType::I32, &[2, 4])?],
        Op::Squeeze(_) => vec![s.fed("x", DType::F32, &[1, 4])?],
        Op::Binary(_) | Op::Compare(_) | Op::AddN | Op::Pack(_) => {
            vec![x(s)?, s.fed("z", dtype, &[2, 4])?]
        }
        Op::BiasAdd => vec![x(s)?, s.fed("bias", DType::F32, &[4])?],
        Op::Select => {
            let condition = s.fed("condition", DType::Bool, &[2, 4])?;
            vec![condition, x(s)?, s.fed("z", DType::F32, &[2, 4])?]
        }
        Op::MatMul(_) => vec![x(s)?, s.fed("w", DType::F32, &[4, 3])?],
        Op::Reduce(_) => vec![x(s)?, s.ints("axes", &[1])?],
        Op::ArgMax(_) | Op::ExpandDims => vec![x(s)?, s.int("axis", 1)?],
        Op::Reshape => vec![x(s)?, s.ints("shape", &[4, 2])?],
        Op::Transpose => vec![x(s)?, s.ints("order", &[1, 0])?],
        Op::Concat => vec![x(s)?, s.fed("z", DType::F32, &[2, 4])?, s.int("axis", 1)?],
        Op::Split(_) => vec![s.int("axis", 1)?, x(s)?],
        Op::SplitV(_) => vec![x(s)?, s.ints("sizes", &[1, 3])?, s.int("axis", 1)?],
        Op::Slice => vec![x(s)?, s.ints("begin", &[0, 1])?, s.ints("size", &[2, 2])?],
        Op::StridedSlice(_) => {
            let (begin, end) = (s.ints("begin", &[0, 1])?, s.ints("end", &[2, 4])?);
            vec![x(s)?, begin, end, s.ints("strides", &[1, 2])?]
        }
        Op::Gather(_) => {
            vec![x(s)?, s.fed("rows", DType::I32, &[3])?, s.int("axis", 0)?]
        }
        Op::OneHot(_) => {
            let (rows, depth) = (s.fed("rows", DType::I32, &[3])?, s.int("depth", 2)?);
            let on = s.constant("on", &[], &[1f32])?;
            vec![rows, depth, on, s.constant("off", &[], &[0f32])?]
        }
        Op::Range => {
            let limit = s.fed("limit", DType::I32, &[])?;
            vec![s.int("start", 0)?, limit, s.int("delta", 1)?]
        }
        Op::Fill => vec![s.fed("dims", DType::I32, &[2])?, s.constant("value", &[], &[1f32])?],
        Op::Tile => vec![x(s)?, s.ints("multiples", &[1, 2])?],
        Op::BroadcastTo => vec![x(s)?, s.ints("shape", &[3, 2, 4])?],
        Op::Pad => vec![x(s)?, s.constant("paddings", &[2, 2], &[0i32, 0, 1, 1])?],
        Op::LayerNorm(_) => {
            let gamma = s.constant("gamma", &[4], &[1f32; 4])?;
            vec![x(s)?, gamma, s.constant("beta", &[4], &[0f32; 4])?]
        }
        Op::Linear(_) => {
            let w = s.constant("w", &[4, 3], &[0f32; 12])?;
            vec![x(s)?, w, s.constant("bias", &[3], &[0f32; 3])?]
        }
        Op::Embed => {
            let ids = s.fed("ids", DType::I32, &[1, 2])?;
            let segments = s.fed("segments", DType::I32, &[1, 2])?;
            let words = s.constant("words", &[8, 4], &[0f32; 32])?;
            let types = s.constant("types", &[2, 4], &[0f32; 8])?;
            vec![ids, segments, words, types, s.constant("positions", &[2, 4], &[0f32; 8])?]
        }
        Op::Attention(_) => {
            let (q, k) = (s.fed("q", DType::F32, &[2, 4])?, s.fed("k", DType::F32, &[2, 4])?);
            vec![q, k, s.fed("v", DType::F32, &[2, 4])?, s.fed("mask", DType::I32, &[1, 2])?]
        }
        Op::FakeQuantize(_) => vec![x(s)?],
        Op::Scaled(_) => {
            let bytes = s.constant("bytes", &[2, 4], &[1i8; 8])?;
            vec![bytes, s.constant("scales", &[4], &[1f32; 4])?]
        }
        Op::PackRows(_) => vec![s.fed("mask", DType::I32, &[1, 2])?],
        Op::UnpackRows => {
            let (rows, index) =
                (s.fed("x", DType::F32, &[2, 4])?, s.fed("index", DType::I32, &[2])?);
            vec![rows, index, s.fed("mask", DType::I32, &[1, 2])?]
        }
        Op::Quantize(_) | Op::Dequantize | Op::Requantize(_) | Op::QuantizedLinear => {
            let mut inputs = match op {
                Op::Quantize(_) => vec![x(s)?],
                Op::Dequantize => vec![s.fed("x", DType::QI8, &[2, 4])?],
                Op::Requantize(_) => vec![s.fed("x", DType::QI32, &[2, 4])?],
                _ => {
                    let x = s.fed("x", DType::QU8, &[2, 4])?;
                    vec![x, s.fed("w", DType::QI8, &[4, 3])?, s.fed("bias", DType::F32, &[3])?]
                }
            };
            for i in inputs.len()..op.arity().0 {
                inputs.push(s.constant(&format!("end{i}"), &[], &[1f32])?);
            }
            inputs
        }
        Op::Input(_)
        | Op::InputWithDefault(_)
        | Op::Const(_)
        | Op::Variable(_)
        | Op::ReadVariable(_)
        | Op::Training(_)
        | Op::Foreign(_) => vec![],
    })
}
