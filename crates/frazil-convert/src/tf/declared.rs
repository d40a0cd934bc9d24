//! What the source says of the outputs of an operation that we do not know: how many, of which
//! type and of which shape.

use frazil_graph::op::Declared;
use frazil_tensor::DType;
use frazil_tf::proto::NodeDef;

use crate::Result;
use crate::tf::op::{Attributes, dims};

/// A list of outputs is not taken to be longer, whatever an attribute says.
const MOST_OUTPUTS: usize = 1 << 16;

/// The outputs of a foreign node: as many as are declared, `used` of them at least.
pub(super) fn outputs(node: &NodeDef, used: usize) -> Result<Vec<Declared>> {
    let attrs = Attributes(node);
    let types = types(node, &attrs)?;
    let is_fed = matches!(
        node.op.as_str(),
        "IteratorGetNext"
            | "IteratorGetNextSync"
            | "OneShotIterator"
            | "QueueDequeueV2"
            | "QueueDequeueManyV2"
            | "ParseExample"
            | "ParseSingleExample"
    );
    let listed = attrs.shapes("_output_shapes").or_else(|| attrs.shapes("output_shapes"));
    let shapes = if is_dataset(&node.op) { None } else { listed };
    let known = match (&types, shapes) {
        (Some(types), shapes) => types.len().max(shapes.map_or(0, <[_]>::len)),
        (None, Some(shapes)) => shapes.len(),
        (None, None) => 1,
    };
    let count = known.max(used).min(MOST_OUTPUTS.max(used));
    let name = |port: usize| match port {
        0 => node.name.clone(),
        port => format!("{}:{port}", node.name),
    };
    Ok((0..count)
        .map(|port| Declared {
            dtype: types.as_ref().and_then(|types| types.get(port).copied().flatten()),
            dims: shapes
                .and_then(|shapes| shapes.get(port))
                .and_then(|shape| dims(shape, &name(port), is_fed)),
        })
        .collect())
}

/// Datasets and iterators have `output_shapes` too: those of what comes out of them later.
fn is_dataset(op: &str) -> bool {
    op.contains("Dataset") || op.starts_with("Iterator") && !op.starts_with("IteratorGetNext")
}

/// The types of all outputs, for the operations whose rule we know.
fn types(node: &NodeDef, attrs: &Attributes<'_>) -> Result<Option<Vec<Option<DType>>>> {
    let float = Some(DType::F32);
    let t = || attrs.dtype("T");
    Ok(Some(match node.op.as_str() {
        // Nothing comes out.
        "NoOp"
        | "Assert"
        | "SaveV2"
        | "Save"
        | "SaveSlices"
        | "MergeV2Checkpoints"
        | "MakeIterator"
        | "AssignVariableOp"
        | "AssignAddVariableOp"
        | "AssignSubVariableOp"
        | "ControlTrigger"
        | "InitializeTableV2"
        | "InitializeTableFromTextFileV2"
        | "WriteFile"
        | "PrintV2" => vec![],

        // A list of types.
        "IteratorGetNext" | "IteratorGetNextSync" | "IteratorGetNextAsOptional" => {
            return Ok(attrs.dtypes("output_types"));
        }
        "RestoreV2" => return Ok(attrs.dtypes("dtypes")),
        "QueueDequeueV2" | "QueueDequeueManyV2" => return Ok(attrs.dtypes("component_types")),
        "PartitionedCall" | "StatefulPartitionedCall" | "If" | "StatelessIf" | "PyFunc" => {
            return Ok(attrs.dtypes("Tout"));
        }
        "While" | "StatelessWhile" | "IdentityN" => return Ok(attrs.dtypes("T")),

        // One type.
        "RandomUniform"
        | "RandomStandardNormal"
        | "TruncatedNormal"
        | "Restore"
        | "RandomUniformInt"
        | "Multinomial"
        | "VariableV2"
        | "Variable" => {
            vec![attrs.dtype("dtype")?]
        }
        "IsFinite"
        | "IsNan"
        | "IsInf"
        | "IsVariableInitialized"
        | "VarIsInitializedOp"
        | "LoopCond" => vec![Some(DType::Bool)],
        "Where" => vec![Some(DType::I64)],
        "StringJoin"
        | "ShardedFilename"
        | "ScalarSummary"
        | "MergeSummary"
        | "HistogramSummary"
        | "IteratorToStringHandle"
        | "AsString"
        | "ReadFile" => vec![Some(DType::String)],
        "Switch" | "RefSwitch" | "BroadcastGradientArgs" => vec![t()?, t()?],
        "Merge" | "RefMerge" => vec![t()?, Some(DType::I32)],
        "Enter" | "RefEnter" | "Exit" | "RefExit" | "NextIteration" | "RefNextIteration"
        | "Assign" | "AssignAdd" | "AssignSub" | "AddV2" | "Add" | "Div" | "TruncateDiv"
        | "Mod" | "TruncateMod" | "BiasAdd" | "BiasAddGrad" | "TanhGrad" | "RsqrtGrad"
        | "SqrtGrad" | "SigmoidGrad" | "ReluGrad" | "Relu6" | "Elu" | "Selu" | "LeakyRelu"
        | "Softplus" | "Expm1" | "Log1p" | "Round" | "Ceil" | "Sinh" | "Cosh" | "Tan" | "Atan"
        | "Erfc" | "L2Loss" | "InvertPermutation" | "DynamicStitch" | "StridedSliceGrad"
        | "UnsortedSegmentSum" | "SegmentSum" | "ZerosLike" | "OnesLike" | "Select" | "Einsum"
        | "Cumsum" | "ReverseV2" | "DivNoNan" | "Xdivy" | "AddN" => vec![t()?],
        "GatherNd" | "ResourceGather" | "ResourceGatherNd" => {
            vec![attrs.dtype("Tparams")?.or(attrs.dtype("dtype")?)]
        }
        "Cast" => vec![attrs.dtype("DstT")?],
        "Equal" | "NotEqual" | "LogicalXor" => vec![Some(DType::Bool)],
        "TopKV2" => vec![t()?, Some(DType::I32)],
        "SoftmaxCrossEntropyWithLogits" | "SparseSoftmaxCrossEntropyWithLogits" => {
            vec![t()?, t()?]
        }

        // Intel's int8.
        "QuantizeV2" => vec![t()?, float, float],
        "Dequantize" => vec![attrs.dtype("dtype")?.or(float)],
        "QuantizedMatMulWithBias"
        | "QuantizedMatMulWithBiasAndRelu"
        | "QuantizedMatMulWithBiasAndReluAndRequantize"
        | "QuantizedMatMul"
        | "QuantizedMatMulWithBiasAndRequantize" => {
            vec![attrs.dtype("Toutput")?, float, float]
        }
        "QuantizedMatMulWithBiasAndDequantize" => vec![attrs.dtype("Toutput")?],
        "Requantize" => vec![attrs.dtype("out_type")?, float, float],
        "RequantizationRange" => vec![float, float],
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_graph::Dim;
    use frazil_tf::proto::attr_value::{ListValue, Value};
    use frazil_tf::proto::{AttrValue, DataType};

    use crate::tf::attr::shape_proto;

    #[test]
    fn an_iterators_outputs() {
        let types = [DataType::DtInt32 as i32, DataType::DtFloat as i32];
        let types = ListValue { r#type: types.into(), ..Default::default() };
        let shapes = [shape_proto(Some(&[-1, 128])), shape_proto(None)];
        let shapes = ListValue { shape: shapes.into(), ..Default::default() };
        let attr = |list| AttrValue { value: Some(Value::List(Box::new(list))) };
        let mut node = NodeDef {
            name: "IteratorGetNext".into(),
            op: "IteratorGetNext".into(),
            attr: [("output_types".into(), attr(types)), ("output_shapes".into(), attr(shapes))]
                .into(),
            ..NodeDef::default()
        };
        let all = outputs(&node, 1).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].dtype, Some(DType::I32));
        assert_eq!(all[0].dims, Some(vec![Dim::batch(), Dim::known(128)]));
        assert_eq!(all[1], Declared { dtype: Some(DType::F32), dims: None });
        assert_eq!(outputs(&node, 4).unwrap().len(), 4);
        // An iterator is not what comes out of it.
        node.op = "IteratorV2".into();
        assert_eq!(outputs(&node, 0).unwrap(), [Declared::default()]);
    }

    #[test]
    fn operations_without_outputs_have_none_unless_one_is_read() {
        let node = NodeDef { name: "a".into(), op: "Assert".into(), ..NodeDef::default() };
        assert_eq!(outputs(&node, 0).unwrap().len(), 0);
        assert_eq!(outputs(&node, 1).unwrap().len(), 1);
        let node = NodeDef { name: "a".into(), op: "Mystery".into(), ..NodeDef::default() };
        assert_eq!(outputs(&node, 0).unwrap().len(), 1);
    }
}
