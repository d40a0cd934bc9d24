//! What MIGraphX's parser lacks and a BERT has, said in operations that the parser knows.

use frazil_graph::op::{Op, StridedSlice, Unpack};
use frazil_graph::pass::Report;
use frazil_graph::{Facts, Graph, Node, NodeId, Value, infer};
use frazil_tensor::{Shape, Tensor};

use crate::Result;

/// A filled tensor of more elements would make the file larger than it is worth.
const MOST_ELEMENTS: usize = 1 << 22;

/// Turns filled tensors of known size into constants, and an Unpack into one StridedSlice for
/// each of its outputs. What cannot be turned is left for [`super::check`] to name.
pub fn adapt(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let facts = infer(graph)?;
    for id in graph.ids() {
        match graph.node(id).op.clone() {
            Op::Fill => fill(graph, id, &facts, &mut report)?,
            Op::Unpack(op) => unpack(graph, id, op, &facts, &mut report)?,
            _ => {}
        }
    }
    graph.prune();
    Ok(report)
}

fn fill(graph: &mut Graph, id: NodeId, facts: &Facts, report: &mut Report) -> Result<()> {
    let value = graph.node(id).inputs[1];
    let dims: Option<Vec<usize>> = facts[Value::from(id)]
        .known_dims()
        .and_then(|dims| dims.into_iter().map(|dim| usize::try_from(dim).ok()).collect());
    let (Some(dims), Some(value)) = (dims, graph.op(value).as_const().cloned()) else {
        return Ok(());
    };
    let shape = Shape::from(dims);
    let Some(count) = shape.elements().filter(|count| *count <= MOST_ELEMENTS) else {
        return Ok(());
    };
    let bytes = value.bytes()?.repeat(count);
    let name = graph.node(id).name.clone();
    report.did("migraphx", name, format!("Fill became a constant {shape}"));
    let constant = Tensor::new(value.dtype(), shape, bytes)?;
    let node = graph.node_mut(id);
    node.op = Op::constant(constant);
    node.inputs.clear();
    Ok(())
}

fn unpack(
    graph: &mut Graph,
    id: NodeId,
    op: Unpack,
    facts: &Facts,
    report: &mut Report,
) -> Result<()> {
    let (name, x) = (graph.node(id).name.clone(), graph.node(id).inputs[0]);
    let Some(rank) = facts[x].rank() else { return Ok(()) };
    let signed = if op.axis < 0 { op.axis + rank as i64 } else { op.axis };
    let Some(axis) = usize::try_from(signed).ok().filter(|axis| *axis < rank && rank <= 31) else {
        return Ok(());
    };
    // x[.., i, ..]: every other axis whole.
    let all = ((1u32 << rank) - 1) & !(1 << axis);
    let slice = StridedSlice {
        begin_mask: all,
        end_mask: all,
        shrink_axis_mask: 1 << axis,
        ..StridedSlice::default()
    };
    for port in 0..op.count {
        let list = |at: i32| -> Result<Tensor> {
            let values = (0..rank).map(|i| if i == axis { at } else { 0 }).collect();
            Ok(Tensor::from_vec::<i32>([rank], values)?)
        };
        let at = i32::try_from(port).unwrap_or(i32::MAX);
        let part = format!("{name}/part_{port}");
        let begin = constant(graph, &format!("{part}/begin"), list(at)?)?;
        let end = constant(graph, &format!("{part}/end"), list(at.saturating_add(1))?)?;
        let ones = Tensor::from_vec::<i32>([rank], vec![1; rank])?;
        let strides = constant(graph, &format!("{part}/strides"), ones)?;
        let inputs = vec![x, begin, end, strides];
        let node = graph.push_fresh(Node::new(part, Op::StridedSlice(slice), inputs))?;
        graph.replace_uses(Value { node: id, port: port as u32 }, node.into());
    }
    report.did("migraphx", name, format!("Unpack became {} StridedSlice", op.count));
    Ok(())
}

fn constant(graph: &mut Graph, name: &str, value: Tensor) -> Result<Value> {
    Ok(graph.push_fresh(Node::new(name, Op::constant(value), vec![]))?.into())
}

#[cfg(test)]
mod tests {
    use frazil_graph::op::Input;
    use frazil_graph::{Dim, Port};
    use frazil_tensor::DType;

    use super::*;

    #[test]
    fn unpack_and_fill_are_gone() {
        let mut graph = Graph::new();
        let dims = vec![Dim::known(2), Dim::known(3), Dim::known(5)];
        let input = Op::Input(Input { dtype: DType::F32, dims: Some(dims) });
        let x: Value = graph.push(Node::new("x", input, vec![])).unwrap().into();
        graph.inputs.push(Port { name: "x".into(), value: x });
        let dims = constant(&mut graph, "dims", Tensor::from_vec([2], vec![3i32, 5]).unwrap());
        let one = constant(&mut graph, "one", Tensor::from_vec([], vec![1f32]).unwrap());
        let inputs = vec![dims.unwrap(), one.unwrap()];
        let ones: Value = graph.push(Node::new("ones", Op::Fill, inputs)).unwrap().into();
        let unpack = Op::Unpack(Unpack { axis: 0, count: 2 });
        let parts = graph.push(Node::new("parts", unpack, vec![x])).unwrap();
        let second = Value { node: parts, port: 1 };
        let add = Op::Binary(frazil_graph::op::Binary::Add);
        let sum = graph.push(Node::new("sum", add, vec![second, ones])).unwrap();
        graph.outputs.push(Port { name: "sum".into(), value: sum.into() });
        adapt(&mut graph).unwrap();
        graph.check().unwrap();
        assert!(super::super::check(&graph).unwrap().is_empty());
        let facts = infer(&graph).unwrap();
        assert_eq!(facts[graph.outputs[0].value].to_string(), "float32 [3, 5]");
        let ones = graph.node(graph.find("ones").unwrap()).op.as_const().unwrap();
        assert_eq!(&*ones.values::<f32>().unwrap(), &[1.0; 15]);
    }
}
