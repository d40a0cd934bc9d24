//! TensorFlow's fake quantization: `FakeQuantWithMinMaxArgs` and its forms with tensors.
//!
//! TensorFlow is given a range, and moves it so that 0 is on a step. A range of ours is not moved,
//! because 0 is on one; a range of others is moved in the same way when it is read.

use frazil_graph::op::{Attr, Foreign, Op, Scaled, Steps};
use frazil_graph::pattern::source;
use frazil_graph::{Graph, Node, NodeId, Value, pass};
use frazil_tensor::{DType, Tensor};

use super::export::Attrs;
use crate::Result;
use crate::range::Range;

/// The form that is written: a range in attributes.
pub(super) const WRITTEN: &str = "FakeQuantWithMinMaxArgs";

/// The attributes of steps that TensorFlow has; whether it does.
pub(super) fn write(steps: Steps, attrs: &mut Attrs) -> bool {
    let Some(Range { least, most, levels }) = Range::of(steps) else { return false };
    attrs.float("min", least);
    attrs.float("max", most);
    attrs.int("num_bits", 8);
    attrs.flag("narrow_range", levels == 255);
    true
}

/// Types the fake quantization whose range is known, and weights of bytes. Ranges that are
/// variables are known once the graph is frozen.
pub fn settle(graph: &mut Graph) -> Result<()> {
    for id in graph.ids() {
        let Some(found) = read(graph, id) else { continue };
        let name = graph.node(id).name.clone();
        let (op, inputs) = match found {
            Found::Steps(steps) => (Op::FakeQuantize(steps), vec![graph.node(id).inputs[0]]),
            Found::Weight { axis, bytes, scales } => {
                let mut stored = |part: &str, tensor: Tensor| {
                    let node = Node::new(format!("{name}/{part}"), Op::constant(tensor), vec![]);
                    graph.push_fresh(node)
                };
                let inputs = [stored("bytes", bytes)?, stored("scales", scales)?];
                (Op::Scaled(Scaled { axis }), inputs.map(Value::from).to_vec())
            }
        };
        let node = graph.node_mut(id);
        (node.op, node.inputs) = (op, inputs);
    }
    pass::raise_bytes(graph)?;
    Ok(())
}

enum Found {
    Steps(Steps),
    Weight { axis: i64, bytes: Tensor, scales: Tensor },
}

/// What a node's fake quantization is here; `None` if it is none, or of another kind.
fn read(graph: &Graph, id: NodeId) -> Option<Found> {
    let node = graph.node(id);
    let Op::Foreign(op) = &node.op else { return None };
    let x = source(graph, *node.inputs.first()?);
    let attr = |name: &str, default: f32| match op.attrs.get(name) {
        None => Some(default),
        Some(Attr::Float(value)) => Some(*value),
        Some(_) => None,
    };
    let numbers = |i: usize| {
        let value = source(graph, *node.inputs.get(i)?);
        let tensor = graph.op(value).as_const().filter(|tensor| tensor.dtype() == DType::F32)?;
        Some(tensor.values::<f32>().ok()?.into_owned())
    };
    let (least, most) = match op.op.as_str() {
        WRITTEN => (vec![attr("min", -6.0)?], vec![attr("max", 6.0)?]),
        "FakeQuantWithMinMaxVars" | "FakeQuantWithMinMaxVarsPerChannel" => {
            (numbers(1)?, numbers(2)?)
        }
        _ => return None,
    };
    let levels = levels(op)?;
    if let (&[least], &[most], false) = (&*least, &*most, op.op.ends_with("PerChannel")) {
        return nudged(Range { least, most, levels })?.steps().map(Found::Steps);
    }
    // Steps of each channel: those of a weight, which is bytes then.
    let weight = graph.op(x).as_const().filter(|tensor| tensor.dtype() == DType::F32)?;
    let channels = weight.shape().last().copied().filter(|&n| n > 0)?;
    if (least.len(), most.len()) != (channels, channels) {
        return None;
    }
    let scale = |(&least, &most)| match nudged(Range { least, most, levels })?.steps()? {
        Steps::Symmetric { scale } => Some(scale),
        _ => None,
    };
    let scales: Vec<f32> = least.iter().zip(&most).map(scale).collect::<Option<_>>()?;
    let bytes = weight.values::<f32>().ok()?;
    let steps = |(i, x): (usize, &f32)| {
        // Halves go up: this is TensorFlow's rounding, done once and for all.
        let steps = x.clamp(-127.0 * scales[i % channels], 127.0 * scales[i % channels]);
        (steps * (1.0 / scales[i % channels]) + 0.5).floor() as i8
    };
    let bytes = bytes.iter().enumerate().map(steps).collect();
    let bytes = Tensor::from_vec(weight.shape().clone(), bytes).ok()?;
    let axis = weight.shape().len() as i64 - 1;
    Some(Found::Weight { axis, bytes, scales: Tensor::from_vec([channels], scales).ok()? })
}

/// How many steps there are, if they are those of bytes.
fn levels(op: &Foreign) -> Option<u32> {
    let narrow = match op.attrs.get("narrow_range") {
        None => false,
        Some(Attr::Bool(narrow)) => *narrow,
        Some(_) => return None,
    };
    match op.attrs.get("num_bits") {
        None | Some(Attr::Int(8)) => Some(256 - u32::from(narrow)),
        Some(_) => None,
    }
}

/// The range that TensorFlow takes in the place of another: moved so that 0 is on a step.
fn nudged(range: Range) -> Option<Range> {
    let Range { least, most, levels } = range;
    let first = if levels == 255 { 1.0 } else { 0.0 };
    let scale = (most - least) / (255.0 - first);
    if !(scale.is_normal() && scale > 0.0) {
        return None;
    }
    let zero = (first - least / scale).clamp(first, 255.0).round();
    Some(Range { least: (first - zero) * scale, most: (255.0 - zero) * scale, levels })
}

#[cfg(test)]
mod tests {
    use frazil_tf::pbtxt;

    use super::*;
    use crate::tf::{ImportOptions, import};

    /// A graph with `node`, which reads `x`, `least`, `most` and the weight `w`.
    fn graph(node: &str) -> Graph {
        let constant = |name: &str, dims: &str, values: &str| {
            format!(
                r#"node {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_FLOAT }} }}
                attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{ {dims} }} {values} }} }} }} }}"#
            )
        };
        let text = [
            r#"node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }"#,
            &constant("least", "", "float_val: -1.0"),
            &constant("most", "", "float_val: 3.0"),
            &constant("lows", "dim { size: 2 }", "float_val: -127 float_val: -63.5"),
            &constant("highs", "dim { size: 2 }", "float_val: 127 float_val: 63.5"),
            &constant(
                "w",
                "dim { size: 2 } dim { size: 2 }",
                "float_val: 1.5 float_val: 1.5 float_val: -200 float_val: -2",
            ),
            node,
        ];
        import(&pbtxt::parse(&text.join("\n")).unwrap(), &ImportOptions::default()).unwrap().graph
    }

    fn op(node: &str) -> Op {
        let graph = graph(node);
        graph.node(graph.find("y").unwrap()).op.clone()
    }

    #[test]
    fn ranges_are_moved_as_tensorflow_moves_them() {
        let args = |least: f32, most: f32, more: &str| {
            op(&format!(
                r#"node {{ name: "y" op: "FakeQuantWithMinMaxArgs" input: "x"
                attr {{ key: "min" value {{ f: {least:?} }} }} attr {{ key: "max" value {{ f: {most:?} }} }} {more} }}"#
            ))
        };
        let tensor = |scale, zero| Op::FakeQuantize(Steps::Tensor { scale, zero });
        let scale = 4.0 / 255.0;
        assert_eq!(args(-1.0, 3.0, ""), tensor(scale, 64));
        assert_eq!(args(-6.0, 6.0, ""), tensor(12.0 / 255.0, 128));
        assert_eq!(args(1.0, 256.0, ""), tensor(1.0, 0));
        let narrow = r#"attr { key: "narrow_range" value { b: true } }"#;
        let symmetric = Op::FakeQuantize(Steps::Symmetric { scale: 1.0 });
        assert_eq!(args(-127.0, 127.0, narrow), symmetric);
        for (least, most, more) in [
            (-126.0, 128.0, narrow),
            (0.0, 0.0, ""),
            (-1.0, 1.0, r#"attr { key: "num_bits" value { i: 4 } }"#),
        ] {
            assert!(matches!(args(least, most, more), Op::Foreign(_)), "{least} {most} {more}");
        }
    }

    #[test]
    fn ranges_may_be_constants() {
        let vars = r#"node { name: "y" op: "FakeQuantWithMinMaxVars"
            input: "x" input: "least" input: "most" }"#;
        let scale = 4.0 / 255.0;
        assert_eq!(op(vars), Op::FakeQuantize(Steps::Tensor { scale, zero: 64 }));
        let unknown = r#"node { name: "y" op: "FakeQuantWithMinMaxVars"
            input: "x" input: "least" input: "x" }"#;
        assert!(matches!(op(unknown), Op::Foreign(_)));
    }

    #[test]
    fn a_weight_with_a_range_for_each_column_is_bytes() {
        let node = r#"node { name: "y" op: "FakeQuantWithMinMaxVarsPerChannel"
            input: "w" input: "lows" input: "highs" attr { key: "narrow_range" value { b: true } } }"#;
        let graph = graph(node);
        let y = graph.node(graph.find("y").unwrap());
        assert_eq!(y.op, Op::Scaled(Scaled { axis: 1 }));
        let bytes = graph.op(y.inputs[0]).as_const().unwrap().values::<i8>().unwrap().into_owned();
        assert_eq!(bytes, [2, 3, -127, -4]);
        let scales = graph.op(y.inputs[1]).as_const().unwrap();
        assert_eq!(*scales.values::<f32>().unwrap(), [1.0, 0.5]);
    }
}
