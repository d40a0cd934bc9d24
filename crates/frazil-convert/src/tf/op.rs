//! The table from TensorFlow's operations to ours.
//!
//! An operation that ours does not cover in full (integer division towards zero, channels-first
//! bias) is left to be foreign, so that nothing changes its meaning on the way in.

use frazil_graph::op::{
    ArgMax, Binary, Cast, Compare, Const, Gather, Input, MatMul, OneHot, Op, Pack, Quantize,
    ReadVariable, Reduce, ReduceKind, ShapeOp, Split, Squeeze, StridedSlice, Unary, Unpack,
    Variable,
};
use frazil_graph::{Dim, Symbol};
use frazil_tensor::{DType, Shape};
use frazil_tf::proto::attr_value::Value;
use frazil_tf::proto::{NodeDef, TensorShapeProto};
use frazil_tf::{dtype, graph_def};

use crate::{Error, Result};

/// The last version of graphs in which a placeholder's shape `[]` meant that it is unknown.
const LAST_PRODUCER_WITHOUT_SCALARS: i32 = 21;

/// How a node of a GraphDef is to be read.
#[derive(Debug)]
pub(super) enum Reading {
    /// As this operation, on the same inputs.
    Same(Op),
    /// As this operation, with the first input moved to the end.
    FirstLast(Op),
    /// As this operation, with a constant axis 0 as another input.
    WithAxis(Op),
    /// As the value of the variable that is the first input, gathered along axis 0.
    GatherVariable {
        /// The variable's type.
        dtype: DType,
    },
    /// Nothing that we know.
    Foreign,
}

/// Looks the node up in the table. `producer` is the version of the graph.
pub(super) fn read(node: &NodeDef, producer: i32) -> Result<Reading> {
    let attrs = Attributes(node);
    let t = || attrs.dtype("T");
    let op = match node.op.as_str() {
        // Ends.
        "Placeholder" | "PlaceholderV2" => match attrs.dtype("dtype")? {
            Some(dtype) => Op::Input(Input { dtype, dims: placeholder_dims(&attrs, producer)? }),
            None => return Ok(Reading::Foreign),
        },
        "PlaceholderWithDefault" => match attrs.dtype("dtype")? {
            Some(dtype) => {
                Op::InputWithDefault(Input { dtype, dims: named_dims(&attrs, "shape")? })
            }
            None => return Ok(Reading::Foreign),
        },
        "Const" => match attrs.dtype("dtype")? {
            Some(_) => Op::Const(Const {
                value: graph_def::const_tensor(node)
                    .map_err(|source| Error::Value { node: node.name.clone(), source })?,
            }),
            None => return Ok(Reading::Foreign),
        },
        "Variable" | "VariableV2" | "VarHandleOp" => match attrs.dtype("dtype")? {
            Some(dtype) => Op::Variable(Variable {
                dtype,
                shape: known_shape(attrs.shape("shape")?),
                resource: node.op == "VarHandleOp",
            }),
            None => return Ok(Reading::Foreign),
        },
        "ReadVariableOp" => match attrs.dtype("dtype")? {
            Some(dtype) => Op::ReadVariable(ReadVariable { dtype }),
            None => return Ok(Reading::Foreign),
        },
        "ResourceGather" => match (attrs.dtype("dtype")?, attrs.int("batch_dims", 0)?) {
            (Some(dtype), 0) => return Ok(Reading::GatherVariable { dtype }),
            _ => return Ok(Reading::Foreign),
        },

        // One operand.
        "Identity" | "Snapshot" | "DeepCopy" | "CheckNumerics" => Op::Unary(Unary::Identity),
        "StopGradient" | "PreventGradient" => Op::Unary(Unary::StopGradient),
        "Neg" => Op::Unary(Unary::Neg),
        "Abs" => Op::Unary(Unary::Abs),
        "Sign" => Op::Unary(Unary::Sign),
        "Exp" => Op::Unary(Unary::Exp),
        "Log" => Op::Unary(Unary::Log),
        "Sqrt" => Op::Unary(Unary::Sqrt),
        "Rsqrt" => Op::Unary(Unary::Rsqrt),
        "Reciprocal" | "Inv" => Op::Unary(Unary::Reciprocal),
        "Square" => Op::Unary(Unary::Square),
        "Floor" => Op::Unary(Unary::Floor),
        "Round" | "Rint" if t()?.is_some_and(DType::is_float) => Op::Unary(Unary::Round),
        "Sin" => Op::Unary(Unary::Sin),
        "Cos" => Op::Unary(Unary::Cos),
        "Tanh" => Op::Unary(Unary::Tanh),
        "Erf" => Op::Unary(Unary::Erf),
        "Sigmoid" => Op::Unary(Unary::Sigmoid),
        "Relu" => Op::Unary(Unary::Relu),
        "LogicalNot" => Op::Unary(Unary::Not),
        "Cast" => match (attrs.dtype("DstT")?, attrs.flag("Truncate")?) {
            (Some(to), false) => Op::Cast(Cast { to }),
            _ => return Ok(Reading::Foreign),
        },

        // Two operands.
        "Add" | "AddV2" if t()? != Some(DType::String) => Op::Binary(Binary::Add),
        "Sub" => Op::Binary(Binary::Sub),
        "Mul" => Op::Binary(Binary::Mul),
        "RealDiv" | "Div" if t()?.is_some_and(DType::is_float) => Op::Binary(Binary::Div),
        "FloorDiv" => Op::Binary(Binary::FloorDiv),
        "FloorMod" => Op::Binary(Binary::FloorMod),
        "Pow" => Op::Binary(Binary::Pow),
        "Maximum" => Op::Binary(Binary::Maximum),
        "Minimum" => Op::Binary(Binary::Minimum),
        "SquaredDifference" => Op::Binary(Binary::SquaredDifference),
        "LogicalAnd" => Op::Binary(Binary::And),
        "LogicalOr" => Op::Binary(Binary::Or),
        "Equal" if attrs.flag_or("incompatible_shape_error", true)? => Op::Compare(Compare::Equal),
        "NotEqual" if attrs.flag_or("incompatible_shape_error", true)? => {
            Op::Compare(Compare::NotEqual)
        }
        "Less" => Op::Compare(Compare::Less),
        "LessEqual" => Op::Compare(Compare::LessEqual),
        "Greater" => Op::Compare(Compare::Greater),
        "GreaterEqual" => Op::Compare(Compare::GreaterEqual),
        "AddN" if t()?.is_some() => Op::AddN,
        "BiasAdd" if matches!(attrs.text("data_format")?, None | Some(b"NHWC")) => Op::BiasAdd,
        "BiasAddV1" => Op::BiasAdd,
        "SelectV2" => Op::Select,
        "MatMul" => Op::MatMul(MatMul {
            transpose_a: attrs.flag("transpose_a")?,
            transpose_b: attrs.flag("transpose_b")?,
        }),
        "BatchMatMul" | "BatchMatMulV2" if t()?.is_some_and(is_real) => adjoint(&attrs)?,
        "BatchMatMulV3" => {
            let types = [attrs.dtype("Ta")?, attrs.dtype("Tb")?, attrs.dtype("Tout")?];
            match types {
                [Some(a), Some(b), Some(out)] if a == b && b == out && is_real(a) => {
                    adjoint(&attrs)?
                }
                _ => return Ok(Reading::Foreign),
            }
        }

        // Along axes.
        "Mean" => reduce(&attrs, ReduceKind::Mean)?,
        "Sum" => reduce(&attrs, ReduceKind::Sum)?,
        "Max" => reduce(&attrs, ReduceKind::Max)?,
        "Min" => reduce(&attrs, ReduceKind::Min)?,
        "Prod" => reduce(&attrs, ReduceKind::Prod)?,
        "All" => reduce(&attrs, ReduceKind::All)?,
        "Any" => reduce(&attrs, ReduceKind::Any)?,
        "ArgMax" => Op::ArgMax(ArgMax { to: attrs.dtype("output_type")?.unwrap_or(DType::I64) }),
        "Softmax" => Op::Softmax,
        "LogSoftmax" => Op::LogSoftmax,

        // Shapes and movement.
        "Shape" => Op::Shape(shape_op(&attrs)?),
        "Size" => Op::Size(shape_op(&attrs)?),
        "Rank" => Op::Rank,
        "Reshape" => Op::Reshape,
        "ExpandDims" => Op::ExpandDims,
        "Squeeze" => {
            let axes = attrs.ints("squeeze_dims")?;
            Op::Squeeze(Squeeze { axes: if axes.is_empty() { attrs.ints("axis")? } else { axes } })
        }
        "Transpose" => Op::Transpose,
        "ConcatV2" => Op::Concat,
        "Concat" => return Ok(Reading::FirstLast(Op::Concat)),
        "Pack" => Op::Pack(Pack { axis: attrs.int("axis", 0)? }),
        "Unpack" => Op::Unpack(Unpack { axis: attrs.int("axis", 0)?, count: attrs.count("num")? }),
        "Split" => Op::Split(Split { count: attrs.count("num_split")? }),
        "SplitV" => Op::SplitV(Split { count: attrs.count("num_split")? }),
        "Slice" => Op::Slice,
        "StridedSlice" => Op::StridedSlice(StridedSlice {
            begin_mask: attrs.mask("begin_mask")?,
            end_mask: attrs.mask("end_mask")?,
            ellipsis_mask: attrs.mask("ellipsis_mask")?,
            new_axis_mask: attrs.mask("new_axis_mask")?,
            shrink_axis_mask: attrs.mask("shrink_axis_mask")?,
        }),
        "GatherV2" => {
            // Counted from the end of the indices, it needs their rank.
            match usize::try_from(attrs.int("batch_dims", 0)?) {
                Ok(batch_dims) => Op::Gather(Gather { batch_dims }),
                Err(_) => return Ok(Reading::Foreign),
            }
        }
        "Gather" => return Ok(Reading::WithAxis(Op::Gather(Gather::default()))),
        "OneHot" => Op::OneHot(OneHot { axis: attrs.int("axis", -1)? }),
        "Range" => Op::Range,
        "Fill" => Op::Fill,
        "Tile" => Op::Tile,
        "BroadcastTo" => Op::BroadcastTo,
        "Pad" | "PadV2" => Op::Pad,

        // Steps of a range.
        "QuantizeV2" if plain_steps(&attrs)? => match attrs.dtype("T")? {
            Some(to @ (DType::QU8 | DType::QI8)) => Op::Quantize(Quantize { to }),
            _ => return Ok(Reading::Foreign),
        },
        "Dequantize" if plain_steps(&attrs)? => match t()? {
            Some(DType::QU8 | DType::QI8) => Op::Dequantize,
            _ => return Ok(Reading::Foreign),
        },
        // To `quint8` TensorFlow computes in fixed point, with other results.
        "Requantize" => match (attrs.dtype("Tinput")?, attrs.dtype("out_type")?) {
            (Some(DType::QI32), Some(to @ DType::QI8)) => Op::Requantize(Quantize { to }),
            _ => return Ok(Reading::Foreign),
        },
        "QuantizedMatMulWithBias" if is_quantized_linear(&attrs)? => Op::QuantizedLinear,
        _ => return Ok(Reading::Foreign),
    };
    Ok(Reading::Same(op))
}

/// Whether steps are of the one kind that frazil computes with.
fn plain_steps(attrs: &Attributes<'_>) -> Result<bool> {
    Ok(attrs.text("mode")? == Some(b"MIN_FIRST")
        && matches!(attrs.text("round_mode")?, None | Some(b"HALF_AWAY_FROM_ZERO"))
        && attrs.int("axis", -1)? == -1
        && !attrs.flag("narrow_range")?
        && matches!(attrs.get("ensure_minimum_range"), None | Some(Value::F(0.01)))
        && matches!(attrs.dtype("dtype")?, None | Some(DType::F32)))
}

fn is_quantized_linear(attrs: &Attributes<'_>) -> Result<bool> {
    let types = ["T1", "T2", "Tbias", "Toutput"].map(|name| attrs.dtype(name));
    let [x, w, bias, out] = types;
    Ok((x?, w?, bias?) == (Some(DType::QU8), Some(DType::QI8), Some(DType::F32))
        && matches!(out?, None | Some(DType::QI32))
        && matches!(attrs.text("input_quant_mode")?, None | Some(b"MIN_FIRST"))
        && !attrs.flag("transpose_a")?
        && !attrs.flag("transpose_b")?)
}

fn is_real(dtype: DType) -> bool {
    !matches!(dtype, DType::C64 | DType::C128)
}

fn adjoint(attrs: &Attributes<'_>) -> Result<Op> {
    Ok(Op::MatMul(MatMul { transpose_a: attrs.flag("adj_x")?, transpose_b: attrs.flag("adj_y")? }))
}

fn reduce(attrs: &Attributes<'_>, kind: ReduceKind) -> Result<Op> {
    Ok(Op::Reduce(Reduce { kind, keep_dims: attrs.flag("keep_dims")? }))
}

fn shape_op(attrs: &Attributes<'_>) -> Result<ShapeOp> {
    Ok(ShapeOp { to: attrs.dtype("out_type")?.unwrap_or(DType::I32) })
}

fn known_shape(proto: Option<&TensorShapeProto>) -> Option<Shape> {
    frazil_tf::tensor_proto::shape(proto?).ok()
}

fn placeholder_dims(attrs: &Attributes<'_>, producer: i32) -> Result<Option<Vec<Dim>>> {
    let dims = named_dims(attrs, "shape")?;
    let no_scalars = producer <= LAST_PRODUCER_WITHOUT_SCALARS;
    Ok(dims.filter(|dims| !(dims.is_empty() && no_scalars)))
}

fn named_dims(attrs: &Attributes<'_>, attribute: &str) -> Result<Option<Vec<Dim>>> {
    Ok(attrs.shape(attribute)?.and_then(|proto| dims(proto, &attrs.0.name, true)))
}

/// The extents of a message, the unknown ones as symbols; `None` if the rank is unknown. What is
/// fed has examples along axis 0 and positions along axis 1; elsewhere nothing is known.
pub(super) fn dims(proto: &TensorShapeProto, name: &str, is_fed: bool) -> Option<Vec<Dim>> {
    if proto.unknown_rank {
        return None;
    }
    let dim = |(axis, size): (usize, i64)| match (axis, is_fed) {
        _ if size >= 0 => Dim::known(size),
        (0, true) => Dim::batch(),
        (1, true) => Dim::seq(),
        _ => Dim::symbol(Symbol::new(format!("?{name}.{axis}"))),
    };
    Some(proto.dim.iter().map(|dim| dim.size).enumerate().map(dim).collect())
}

/// The attributes of a node by kind. One of another kind than it should have is an error; one
/// that is missing has the default that TensorFlow gives it.
pub(super) struct Attributes<'a>(pub &'a NodeDef);

impl<'a> Attributes<'a> {
    fn get(&self, name: &str) -> Option<&'a Value> {
        self.0.attr.get(name)?.value.as_ref()
    }

    fn wrong(&self, name: &str, reason: impl Into<String>) -> Error {
        Error::Attribute {
            node: self.0.name.clone(),
            op: self.0.op.clone(),
            attribute: name.to_owned(),
            reason: reason.into(),
        }
    }

    pub(super) fn int(&self, name: &str, default: i64) -> Result<i64> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::I(value)) => Ok(*value),
            Some(_) => Err(self.wrong(name, "it is not an integer")),
        }
    }

    fn ints(&self, name: &str) -> Result<Vec<i64>> {
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::List(list)) => Ok(list.i.clone()),
            Some(_) => Err(self.wrong(name, "it is not a list of integers")),
        }
    }

    /// A number of outputs, each of which costs memory.
    fn count(&self, name: &str) -> Result<usize> {
        const MOST: i64 = 1 << 16;
        match self.int(name, -1)? {
            count @ 0..=MOST => Ok(count as usize),
            count => Err(self.wrong(name, format!("{count} is not a number of outputs"))),
        }
    }

    fn mask(&self, name: &str) -> Result<u32> {
        let mask = self.int(name, 0)?;
        u32::try_from(mask).map_err(|_| self.wrong(name, format!("{mask} is not a mask")))
    }

    fn flag(&self, name: &str) -> Result<bool> {
        self.flag_or(name, false)
    }

    fn flag_or(&self, name: &str, default: bool) -> Result<bool> {
        match self.get(name) {
            None => Ok(default),
            Some(Value::B(value)) => Ok(*value),
            Some(_) => Err(self.wrong(name, "it is not true or false")),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&'a [u8]>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::S(value)) => Ok(Some(value)),
            Some(_) => Err(self.wrong(name, "it is not a string")),
        }
    }

    /// An element type; `None` too for types without values (resources, variants).
    pub(super) fn dtype(&self, name: &str) -> Result<Option<DType>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Type(number)) => Ok(dtype::from_proto(*number).ok()),
            Some(_) => Err(self.wrong(name, "it is not a type")),
        }
    }

    pub(super) fn dtypes(&self, name: &str) -> Option<Vec<Option<DType>>> {
        match self.get(name) {
            Some(Value::List(list)) => {
                Some(list.r#type.iter().map(|&number| dtype::from_proto(number).ok()).collect())
            }
            _ => None,
        }
    }

    fn shape(&self, name: &str) -> Result<Option<&'a TensorShapeProto>> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Shape(shape)) => Ok(Some(shape)),
            Some(_) => Err(self.wrong(name, "it is not a shape")),
        }
    }

    pub(super) fn shapes(&self, name: &str) -> Option<&'a [TensorShapeProto]> {
        match self.get(name) {
            Some(Value::List(list)) => Some(&list.shape),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_tf::proto::attr_value::ListValue;
    use frazil_tf::proto::{AttrValue, DataType};

    fn node(op: &str, attrs: &[(&str, Value)]) -> NodeDef {
        let attr = attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }));
        NodeDef { name: "n".into(), op: op.into(), attr: attr.collect(), ..NodeDef::default() }
    }

    fn same(op: &str, attrs: &[(&str, Value)]) -> Option<Op> {
        match read(&node(op, attrs), 134).unwrap() {
            Reading::Same(op) => Some(op),
            _ => None,
        }
    }

    const FLOAT: Value = Value::Type(DataType::DtFloat as i32);
    const INT: Value = Value::Type(DataType::DtInt32 as i32);

    #[test]
    fn one_operation_under_several_names() {
        let float: &[(&str, Value)] = &[("T", FLOAT)];
        assert_eq!(same("Add", float), same("AddV2", float));
        assert_eq!(same("Div", float), same("RealDiv", float));
        assert_eq!(same("Inv", float), same("Reciprocal", float));
        assert_eq!(same("BatchMatMul", float), same("BatchMatMulV2", float));
        let third = [("Ta", FLOAT), ("Tb", FLOAT), ("Tout", FLOAT), ("adj_y", Value::B(true))];
        let wanted = Op::MatMul(MatMul { transpose_a: false, transpose_b: true });
        assert_eq!(same("BatchMatMulV3", &third), Some(wanted));
        let axes = Value::List(Box::new(ListValue { i: vec![1], ..Default::default() }));
        assert_eq!(
            same("Squeeze", &[("squeeze_dims", axes)]),
            Some(Op::Squeeze(Squeeze { axes: vec![1] }))
        );
    }

    #[test]
    fn what_would_change_its_meaning_stays_foreign() {
        assert_eq!(same("Div", &[("T", INT)]), None);
        let text = Value::Type(DataType::DtString as i32);
        assert_eq!(same("Add", &[("T", text)]), None);
        let channels_first = Value::S(bytes::Bytes::from_static(b"NCHW"));
        assert_eq!(same("BiasAdd", &[("data_format", channels_first)]), None);
        assert_eq!(same("Equal", &[("incompatible_shape_error", Value::B(false))]), None);
        assert_eq!(same("GatherV2", &[("batch_dims", Value::I(-1))]), None);
        assert_eq!(same("Mod", &[("T", INT)]), None);
        let resource = Value::Type(DataType::DtResource as i32);
        assert_eq!(same("Placeholder", &[("dtype", resource)]), None);
    }

    #[test]
    fn scalars_of_old_graphs_are_unknown() {
        let shape = Value::Shape(TensorShapeProto::default());
        let node = node("Placeholder", &[("dtype", FLOAT), ("shape", shape)]);
        for (producer, wanted) in [(0, None), (21, None), (22, Some(vec![]))] {
            let Reading::Same(Op::Input(input)) = read(&node, producer).unwrap() else { panic!() };
            assert_eq!(input.dims, wanted, "{producer}");
        }
    }

    #[test]
    fn attributes_of_the_wrong_kind_are_named() {
        let error = read(&node("Pack", &[("axis", FLOAT)]), 0).unwrap_err().to_string();
        assert_eq!(error, "attribute `axis` of `n` (Pack): it is not an integer");
        for (op, name, value) in [
            ("Unpack", "num", Value::I(-3)),
            ("Split", "num_split", Value::I(1 << 40)),
            ("StridedSlice", "begin_mask", Value::I(-1)),
            ("Cast", "DstT", Value::B(true)),
        ] {
            assert!(read(&node(op, &[(name, value)]), 0).is_err(), "{op}");
        }
    }
}
