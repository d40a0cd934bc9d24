//! TensorFlow's first `Select`: the condition has the shape of the operands, or is a scalar, or
//! is a list with one entry per row. Ours broadcasts, which is the same for the first two; the
//! third needs the condition stood up as a column. Which one it is follows from the ranks; where
//! they are not known, the node stays foreign.

use frazil_graph::{Graph, Node, NodeId, Op, infer};
use frazil_tensor::Tensor;

use crate::Result;

const MOST_ROUNDS: usize = 16;

/// Turns every old `Select` whose ranks are known into ours.
pub(super) fn settle(graph: &mut Graph) -> Result<()> {
    // What one of them gives may tell the ranks of the next; chains of them are short.
    for _ in 0..MOST_ROUNDS {
        if !settle_some(graph)? {
            break;
        }
    }
    Ok(())
}

fn settle_some(graph: &mut Graph) -> Result<bool> {
    let is_old = |node: &Node| matches!(&node.op, Op::Foreign(op) if op.op == "Select");
    let old: Vec<NodeId> =
        graph.nodes().filter(|(_, node)| is_old(node)).map(|(id, _)| id).collect();
    if old.is_empty() {
        return Ok(false);
    }
    let Ok(facts) = infer(graph) else { return Ok(false) };
    let mut settled = false;
    for id in old {
        let &[condition, x, _] = graph.node(id).inputs.as_slice() else { continue };
        let (Some(of_condition), Some(rank)) = (facts[condition].rank(), facts[x].rank()) else {
            continue;
        };
        if of_condition == 1 && rank > 1 {
            let name = format!("{}/condition", graph.node(id).name);
            let mut shape = vec![1i32; rank];
            shape[0] = -1;
            let shape = Op::constant(Tensor::from_vec([rank], shape)?);
            let shape = graph.push_fresh(Node::new(format!("{name}/shape"), shape, vec![]))?;
            let column = Node::new(name, Op::Reshape, vec![condition, shape.into()]);
            graph.node_mut(id).inputs[0] = graph.push_fresh(column)?.into();
        } else if of_condition != 0 && of_condition != rank {
            continue;
        }
        graph.node_mut(id).op = Op::Select;
        settled = true;
    }
    Ok(settled)
}

#[cfg(test)]
mod tests {
    use frazil_graph::dump;
    use frazil_tf::pbtxt;
    use frazil_tf::proto::GraphDef;

    use crate::tf::{ImportOptions, import};

    fn read(condition: &str, x: &str) -> String {
        let input = |name: &str, dtype: &str, shape: &str| {
            format!(
                r#"node {{ name: "{name}" op: "Placeholder" attr {{ key: "dtype" value {{ type:
                {dtype} }} }} attr {{ key: "shape" value {{ shape {{ {shape} }} }} }} }}"#
            )
        };
        let (condition, x) = (input("c", "DT_BOOL", condition), input("x", "DT_FLOAT", x));
        let text = format!(
            r#"{condition} {x} node {{ name: "y" op: "Select" input: "c" input: "x" input: "x"
            attr {{ key: "T" value {{ type: DT_FLOAT }} }} }} versions {{ producer: 100 }}"#
        );
        let def: GraphDef = pbtxt::parse(&text).unwrap();
        let graph = import(&def, &ImportOptions::default()).unwrap().graph;
        let text = dump(&graph);
        text.lines().find(|line| line.starts_with("y = ")).unwrap().to_owned()
    }

    #[test]
    fn the_three_conditions() {
        let rows = "dim { size: 2 }";
        let matrix = "dim { size: 2 } dim { size: 3 }";
        assert_eq!(read(matrix, matrix), "y = Select(c, x, x) : float32 [2, 3]");
        assert_eq!(read("", matrix), "y = Select(c, x, x) : float32 [2, 3]");
        assert_eq!(read(rows, rows), "y = Select(c, x, x) : float32 [2]");
        assert_eq!(read(rows, matrix), "y = Select(y/condition, x, x) : float32 [2, 3]");
        assert!(read("unknown_rank: true", matrix).starts_with("y = Select{"));
    }
}
