//! Conditionals: `Switch` sends a value one of two ways, `Merge` takes what arrives.
//!
//! Where the predicate is known, the branch that is not taken is removed and the rest becomes
//! plain edges. Loops (`Enter`, `NextIteration`) are left as they are.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use frazil_graph::op::{Attr, Binary, Op, Unary};
use frazil_graph::{Graph, Node, NodeId, Value};
use frazil_tensor::{DType, Tensor};

use crate::Result;

/// With more decisions than this, control inputs are left alone: telling which of them matter
/// would take too long, and no model has so many.
const MOST_DECISIONS: usize = 256;

/// Decides every conditional whose predicate is known, and says so in `notes`.
pub(super) fn resolve(graph: &mut Graph, notes: &mut Vec<String>) -> Result<()> {
    let mut defaults = BTreeSet::new();
    let (mut decided, mut removed) = (0usize, 0usize);
    loop {
        // Each round decides at least one Switch for good, so it ends.
        let truths = truths(graph)?;
        let taken: BTreeMap<NodeId, bool> = graph
            .nodes()
            .filter(|(_, node)| is_switch(&node.op) && node.inputs.len() == 2)
            .filter_map(|(id, node)| Some((id, truths[node.inputs[1].node.index()]?)))
            .collect();
        if taken.is_empty() {
            break;
        }
        let predicates = taken.keys().map(|&id| graph.node(id).inputs[1].node);
        let above = graph.ancestors(predicates);
        for (id, node) in graph.nodes() {
            let is_default = matches!(node.op, Op::InputWithDefault(_));
            if is_default && above[id.index()] && truths[id.index()].is_some() {
                defaults.insert(node.name.clone());
            }
        }
        decided += taken.len();
        removed += take(graph, &taken)?;
    }
    if decided > 0 {
        notes.push(format!(
            "{decided} Switch node(s) with a known predicate decided; {removed} node(s) of the \
             branches not taken removed"
        ));
    }
    for name in defaults {
        notes.push(format!("`{name}` is taken to have its default value in conditionals"));
    }
    Ok(())
}

/// The truth values that are known, by node. Inputs with a default are taken to have it.
fn truths(graph: &Graph) -> Result<Vec<Option<bool>>> {
    let mut truths: Vec<Option<bool>> = vec![None; graph.len()];
    for id in graph.topological()? {
        let node = graph.node(id);
        let operand = |i: usize| truths[node.inputs.get(i)?.node.index()];
        truths[id.index()] = match &node.op {
            Op::Const(op) if op.value.dtype() == DType::Bool && op.value.elements() == 1 => {
                op.value.bytes().ok().and_then(|bytes| bytes.first().map(|&byte| byte != 0))
            }
            Op::Unary(Unary::Identity | Unary::StopGradient) | Op::InputWithDefault(_) => {
                operand(0)
            }
            Op::Unary(Unary::Not) => operand(0).map(|value| !value),
            Op::Binary(Binary::And) => operand(0).zip(operand(1)).map(|(a, b)| a && b),
            Op::Binary(Binary::Or) => operand(0).zip(operand(1)).map(|(a, b)| a || b),
            _ => None,
        };
    }
    Ok(truths)
}

fn foreign(op: &Op) -> &str {
    match op {
        Op::Foreign(op) => &op.op,
        _ => "",
    }
}

fn is_switch(op: &Op) -> bool {
    matches!(foreign(op), "Switch" | "RefSwitch")
}

fn is_merge(op: &Op) -> bool {
    matches!(foreign(op), "Merge" | "RefMerge")
}

/// Whether a node is a `Merge` at the head of a loop.
fn heads_loop(graph: &Graph, node: &Node) -> bool {
    let back =
        |value: &Value| matches!(foreign(graph.op(*value)), "NextIteration" | "RefNextIteration");
    is_merge(&node.op) && node.inputs.iter().any(back)
}

/// Takes the given branches. Returns how many nodes were removed.
fn take(graph: &mut Graph, taken: &BTreeMap<NodeId, bool>) -> Result<usize> {
    let dead = dead_nodes(graph, taken)?;
    let is_dead = |value: &Value| {
        let not_taken = taken.get(&value.node).map(|&port| u32::from(!port));
        dead[value.node.index()] || not_taken == Some(value.port)
    };
    // What each Merge with one way left takes.
    let mut merges = Vec::new();
    for (id, node) in graph.nodes() {
        if !is_merge(&node.op) || dead[id.index()] || heads_loop(graph, node) {
            continue;
        }
        let live: Vec<usize> =
            (0..node.inputs.len()).filter(|&i| !is_dead(&node.inputs[i])).collect();
        if live.len() < node.inputs.len() {
            merges.push((id, live));
        }
    }
    let read: HashSet<Value> =
        graph.nodes().flat_map(|(_, node)| node.inputs.iter().copied()).collect();
    for (id, live) in merges {
        merge(graph, id, &live, read.contains(&Value { node: id, port: 1 }))?;
    }
    for (&id, &port) in taken {
        if dead[id.index()] {
            continue;
        }
        let node = graph.node_mut(id);
        node.op = Op::Unary(Unary::Identity);
        node.inputs.truncate(1);
        if port {
            graph.replace_uses(Value { node: id, port: 1 }, id.into());
        }
    }
    let mut keep: Vec<bool> = dead.iter().map(|dead| !dead).collect();
    keep.resize(graph.len(), true);
    graph.retain(&keep);
    Ok(keep.iter().filter(|keep| !**keep).count())
}

/// Leaves a Merge only the inputs that can arrive. Its second output tells which one did.
fn merge(graph: &mut Graph, id: NodeId, live: &[usize], is_second_read: bool) -> Result<()> {
    let inputs: Vec<Value> = live.iter().map(|&i| graph.node(id).inputs[i]).collect();
    let node = graph.node_mut(id);
    node.inputs = inputs;
    let &[index] = live else {
        if let Op::Foreign(op) = &mut node.op {
            op.attrs.insert("N".to_owned(), Attr::Int(live.len() as i64));
        }
        return Ok(());
    };
    node.op = Op::Unary(Unary::Identity);
    let second = Value { node: id, port: 1 };
    let name = format!("{}/value_index", node.name);
    if is_second_read {
        let index = Tensor::from_vec([], vec![index as i32])?;
        let index = graph.push_fresh(Node::new(name, Op::constant(index), vec![]))?;
        graph.replace_uses(second, index.into());
    }
    Ok(())
}

/// The nodes that wait for something on a branch that is not taken.
fn dead_nodes(graph: &Graph, taken: &BTreeMap<NodeId, bool>) -> Result<Vec<bool>> {
    let mut dead = vec![false; graph.len()];
    for id in graph.topological()? {
        let node = graph.node(id);
        let is_dead = |value: &Value| {
            let not_taken = taken.get(&value.node).map(|&port| u32::from(!port));
            dead[value.node.index()] || not_taken == Some(value.port)
        };
        let by_value = if heads_loop(graph, node) {
            node.inputs.first().is_some_and(is_dead)
        } else if is_merge(&node.op) {
            !node.inputs.is_empty() && node.inputs.iter().all(is_dead)
        } else {
            node.inputs.iter().any(is_dead)
        };
        dead[id.index()] = by_value || node.control.iter().any(|before| dead[before.index()]);
    }
    Ok(dead)
}

/// Drops the control inputs of known operations that only check something, or compute something
/// that nobody takes: they change no value. Those that write state stay, and those that decide
/// on which branch of a conditional a node is.
pub(super) fn drop_checks(graph: &mut Graph) -> Result<()> {
    if graph.nodes().filter(|(_, node)| is_switch(&node.op)).count() > MOST_DECISIONS {
        return Ok(());
    }
    let order = graph.topological()?;
    let mut acts = vec![false; graph.len()];
    let mut branches: Vec<Branches> = vec![Branches::new(); graph.len()];
    let mut dropped: HashSet<(NodeId, NodeId)> = HashSet::new();
    for id in order {
        let node = graph.node(id);
        let by_value = value_branches(graph, node, &branches);
        let mut all = by_value.clone();
        for &before in &node.control {
            let idle = !acts[before.index()] && branches[before.index()].is_subset(&by_value);
            if idle && !matches!(node.op, Op::Foreign(_)) {
                dropped.insert((id, before));
            } else {
                all.extend(&branches[before.index()]);
            }
        }
        branches[id.index()] = all;
        let kept = node.control.iter().filter(|before| !dropped.contains(&(id, **before)));
        let mut sources = node.inputs.iter().map(|value| value.node).chain(kept.copied());
        acts[id.index()] = !is_harmless(&node.op) || sources.any(|source| acts[source.index()]);
    }
    if dropped.is_empty() {
        return Ok(());
    }
    for id in graph.ids() {
        let node = graph.node_mut(id);
        node.control.retain(|before| !dropped.contains(&(id, *before)));
    }
    Ok(())
}

/// The decisions that a value depends on: which predicate, which way.
type Branches = BTreeSet<(Value, u32)>;

/// The decisions that the values a node reads depend on; for a Merge those that all ways share.
fn value_branches(graph: &Graph, node: &Node, branches: &[Branches]) -> Branches {
    let mut of_inputs = node.inputs.iter().map(|value| {
        let source = graph.node(value.node);
        let mut found = branches[value.node.index()].clone();
        if is_switch(&source.op) {
            let predicate = source.inputs.get(1);
            // Which way a loop goes on is decided anew in each round, and ends with it.
            if let Some(&by) = predicate.filter(|&&by| foreign(graph.op(by)) != "LoopCond") {
                found.insert((by, value.port));
            }
        }
        found
    });
    if is_merge(&node.op) && !heads_loop(graph, node) {
        let first = of_inputs.next().unwrap_or_default();
        return of_inputs.fold(first, |common, more| &common & &more);
    }
    of_inputs.flatten().collect()
}

/// Whether running a node changes nothing that another one could see.
fn is_harmless(op: &Op) -> bool {
    let Op::Foreign(op) = op else { return true };
    matches!(
        op.op.as_str(),
        "Assert"
            | "NoOp"
            | "Switch"
            | "Merge"
            | "RefSwitch"
            | "RefMerge"
            | "Print"
            | "PrintV2"
            | "IteratorGetNext"
            | "IteratorV2"
            | "Iterator"
            | "OneShotIterator"
            | "IsFinite"
            | "IsNan"
            | "IsInf"
            | "VarIsInitializedOp"
            | "IsVariableInitialized"
            | "Where"
            | "InvertPermutation"
            | "ZerosLike"
            | "OnesLike"
            | "Select"
            | "StringJoin"
            | "AsString"
            | "RandomUniform"
            | "RandomStandardNormal"
            | "TruncatedNormal"
            | "ScalarSummary"
            | "MergeSummary"
            | "L2Loss"
            | "Mod"
            | "Div"
            | "Einsum"
    ) || op.op.ends_with("Grad")
}

#[cfg(test)]
mod tests {
    use frazil_graph::dump;
    use frazil_tf::pbtxt;
    use frazil_tf::proto::GraphDef;

    use crate::tf::{ImportOptions, Imported, import};

    fn read(text: &str) -> Imported {
        let def: GraphDef = pbtxt::parse(text).unwrap();
        import(&def, &ImportOptions::default()).unwrap()
    }

    const BOOL: &str = r#"attr { key: "dtype" value { type: DT_BOOL } }"#;
    const FLOAT: &str = r#"attr { key: "dtype" value { type: DT_FLOAT } }"#;
    const T: &str = r#"attr { key: "T" value { type: DT_FLOAT } }"#;

    /// `x` doubled where `p`, else negated, as `tf.cond` writes it.
    fn cond(predicate: &str) -> String {
        format!(
            r#"
            {predicate}
            node {{ name: "x" op: "Placeholder" {FLOAT} }}
            node {{ name: "cond/Switch" op: "Switch" input: "p" input: "p"
                attr {{ key: "T" value {{ type: DT_BOOL }} }} }}
            node {{ name: "cond/switch_t" op: "Identity" input: "cond/Switch:1" }}
            node {{ name: "cond/switch_f" op: "Identity" input: "cond/Switch" }}
            node {{ name: "cond/two" op: "Const" input: "^cond/switch_t" {FLOAT}
                attr {{ key: "value" value {{ tensor {{ dtype: DT_FLOAT tensor_shape {{}}
                float_val: 2 }} }} }} }}
            node {{ name: "cond/t" op: "Switch" input: "x" input: "p" {T} }}
            node {{ name: "cond/mul" op: "Mul" input: "cond/t:1" input: "cond/two" {T} }}
            node {{ name: "cond/f" op: "Switch" input: "x" input: "p" {T} }}
            node {{ name: "cond/neg" op: "Neg" input: "cond/f" {T} }}
            node {{ name: "cond/Merge" op: "Merge" input: "cond/neg" input: "cond/mul" {T} }}
            node {{ name: "y" op: "Identity" input: "cond/Merge" {T} }}
            node {{ name: "way" op: "Identity" input: "cond/Merge:1" }}
            "#
        )
    }

    fn constant(value: bool) -> String {
        format!(
            r#"node {{ name: "p" op: "Const" {BOOL} attr {{ key: "value" value {{ tensor {{
            dtype: DT_BOOL tensor_shape {{}} bool_val: {value} }} }} }} }}"#
        )
    }

    fn line(imported: &Imported, name: &str) -> Option<String> {
        let text = dump(&imported.graph);
        let start = format!("{name} = ");
        text.lines()
            .find(|line| line.starts_with(&start))
            .map(|line| line.split(" : ").next().unwrap().trim_start_matches(&start).to_owned())
    }

    #[test]
    fn the_live_branch_is_taken() {
        let imported = read(&cond(&constant(true)));
        assert_eq!(line(&imported, "cond/Merge").unwrap(), "Identity(cond/mul)");
        assert_eq!(line(&imported, "cond/mul").unwrap(), "Mul(cond/t, cond/two)");
        assert_eq!(line(&imported, "cond/two").unwrap(), "Const{2}()");
        assert_eq!(line(&imported, "cond/neg"), None);
        assert_eq!(line(&imported, "way").unwrap(), "Identity(cond/Merge/value_index)");
        assert_eq!(line(&imported, "cond/Merge/value_index").unwrap(), "Const{1}()");
        assert_eq!(imported.notes.len(), 1, "{:?}", imported.notes);
        let imported = read(&cond(&constant(false)));
        assert_eq!(line(&imported, "cond/Merge").unwrap(), "Identity(cond/neg)");
        assert_eq!(line(&imported, "cond/mul"), None);
    }

    #[test]
    fn a_default_decides_and_is_told() {
        let off = constant(false).replacen("\"p\"", "\"off\"", 1);
        let fed =
            format!(r#"node {{ name: "p" op: "PlaceholderWithDefault" input: "off" {BOOL} }}"#);
        let imported = read(&cond(&(off + &fed)));
        assert_eq!(line(&imported, "cond/Merge").unwrap(), "Identity(cond/neg)");
        assert!(imported.notes.iter().any(|note| note.starts_with("`p` is taken")));
    }

    #[test]
    fn what_is_not_known_stays() {
        let fed = format!(r#"node {{ name: "p" op: "Placeholder" {BOOL} }}"#);
        let imported = read(&cond(&fed));
        assert!(line(&imported, "cond/Merge").unwrap().starts_with("Merge"));
        // The constant stays on its branch.
        assert_eq!(line(&imported, "cond/two").unwrap(), "Const{2}(^cond/switch_t)");
        assert!(imported.notes.is_empty());
    }

    #[test]
    fn checks_are_no_longer_waited_for() {
        let text = format!(
            r#"
            node {{ name: "x" op: "Placeholder" {FLOAT} }}
            node {{ name: "v" op: "VariableV2" {FLOAT} }}
            node {{ name: "less" op: "Less" input: "x" input: "x" }}
            node {{ name: "check" op: "Assert" input: "less" input: "x" }}
            node {{ name: "group" op: "NoOp" input: "^check" }}
            node {{ name: "write" op: "Assign" input: "v" input: "x" {T} }}
            node {{ name: "y" op: "Identity" input: "x" input: "^group" {T} }}
            node {{ name: "z" op: "Identity" input: "x" input: "^write" {T} }}
            "#
        );
        let imported = read(&text);
        assert_eq!(line(&imported, "y").unwrap(), "Identity(x)");
        assert_eq!(line(&imported, "z").unwrap(), "Identity(x, ^write)");
        assert_eq!(line(&imported, "group").unwrap(), "NoOp(^check)");
    }

    #[test]
    fn loops_are_carried() {
        let text = format!(
            r#"
            node {{ name: "x" op: "Placeholder" {FLOAT} }}
            node {{ name: "enter" op: "Enter" input: "x" {T} }}
            node {{ name: "merge" op: "Merge" input: "enter" input: "next" {T} }}
            node {{ name: "less" op: "Less" input: "merge" input: "merge" {T} }}
            node {{ name: "go" op: "LoopCond" input: "less" }}
            node {{ name: "switch" op: "Switch" input: "merge" input: "go" {T} }}
            node {{ name: "exit" op: "Exit" input: "switch" {T} }}
            node {{ name: "body" op: "Neg" input: "switch:1" {T} }}
            node {{ name: "next" op: "NextIteration" input: "body" {T} }}
            "#
        );
        let imported = read(&text);
        assert!(line(&imported, "merge").unwrap().ends_with("(enter, next)"));
    }
}
