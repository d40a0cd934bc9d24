//! Which values a graph is for, where nobody says.

use frazil_graph::op::Op;
use frazil_graph::{Graph, Value};

/// The first outputs of all nodes that nobody reads, but for those that are no results: inputs,
/// constants, variables, assignments, checks, what saves and restores and what feeds. A node that
/// somebody only waits for counts as unread.
pub fn default_outputs(graph: &Graph) -> Vec<Value> {
    let mut read = vec![false; graph.len()];
    for (_, node) in graph.nodes() {
        for value in &node.inputs {
            read[value.node.index()] = true;
        }
    }
    graph
        .nodes()
        .filter(|(id, node)| !read[id.index()] && is_result(&node.op))
        .map(|(id, _)| id.into())
        .collect()
}

fn is_result(op: &Op) -> bool {
    match op {
        Op::Input(_) | Op::InputWithDefault(_) | Op::Const(_) | Op::Variable(_) => false,
        Op::Foreign(op) => {
            !op.outputs.is_empty()
                && !matches!(
                    op.op.as_str(),
                    "Const"
                        | "Placeholder"
                        | "PlaceholderWithDefault"
                        | "PlaceholderV2"
                        | "Variable"
                        | "VariableV2"
                        | "VarHandleOp"
                        | "NoOp"
                        | "Assert"
                        | "IteratorGetNext"
                        | "IteratorV2"
                        | "IteratorToStringHandle"
                        | "IsVariableInitialized"
                        | "VarIsInitializedOp"
                        | "MergeSummary"
                        | "ScalarSummary"
                        | "HistogramSummary"
                )
                && !op.op.starts_with("Assign")
                && !op.op.starts_with("Save")
                && !op.op.starts_with("Restore")
                && !op.op.starts_with("Scatter")
                && !op.op.ends_with("Dataset")
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use frazil_tensor::testing::shared;
    use frazil_tf::graph_def;

    use super::*;
    use crate::tf::{ImportOptions, import};

    #[test]
    fn what_the_frozen_fixtures_are_for() {
        let cases: [(&str, &[&str]); 3] = [
            ("classifier/frozen_from_saved_model.pb", &["loss/output"]),
            ("reshapable/inference_graph.pb", &["bert/pooler/dense/Tanh"]),
            ("squad/lpot/bert_fp32_google_modeling.pb", &["unstack"]),
        ];
        for (file, wanted) in cases {
            let Some(path) = shared(&format!("fixtures/{file}")) else { return };
            let def = graph_def::read(path).unwrap();
            let graph = import(&def, &ImportOptions::default()).unwrap().graph;
            let found: Vec<String> =
                default_outputs(&graph).into_iter().map(|value| graph.value_name(value)).collect();
            assert_eq!(found, wanted, "{file}");
        }
    }
}
