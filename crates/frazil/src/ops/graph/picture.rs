//! A graph as the page wants it: nodes with short keys, words that occur often in one list.

use std::collections::{BTreeMap, HashMap};

use frazil_graph::op::Unary;
use frazil_graph::pass::{Note, Report};
use frazil_graph::{Facts, Graph, NodeId, Op, Value, attributes, infer};
use serde::Serialize;

/// Operations that fusing makes.
pub const FUSED: [&str; 5] = ["LayerNorm", "Gelu", "Linear", "Embed", "Attention"];

/// Words and their places.
#[derive(Default)]
pub struct Words {
    pub list: Vec<String>,
    places: HashMap<String, usize>,
}

impl Words {
    fn place(&mut self, word: String) -> usize {
        let next = self.list.len();
        *self.places.entry(word).or_insert_with_key(|word| {
            self.list.push(word.clone());
            next
        })
    }
}

/// One picture.
#[derive(Serialize)]
pub struct Picture {
    name: &'static str,
    nodes: Vec<Drawn>,
    /// Node and reason of what was not fused.
    missed: Vec<(String, String)>,
}

/// One node. Keys are short since there are thousands.
#[derive(Serialize)]
struct Drawn {
    /// Name.
    #[serde(rename = "n")]
    name: String,
    /// Operation, a word.
    #[serde(rename = "o")]
    op: usize,
    /// Attributes.
    #[serde(rename = "a")]
    attributes: String,
    /// Kind: `input`, `output`, `weight`, `fused`, `foreign` (needed, and cannot run), `op`.
    #[serde(rename = "k")]
    kind: &'static str,
    /// What is known of each output, words.
    #[serde(rename = "f")]
    facts: Vec<usize>,
    /// Nodes that it reads.
    #[serde(rename = "i")]
    inputs: Vec<u32>,
    /// Nodes that it runs after.
    #[serde(rename = "c")]
    control: Vec<u32>,
    /// Place in the order of computing.
    #[serde(rename = "t")]
    order: usize,
    /// What passes did here.
    #[serde(rename = "d")]
    done: Vec<String>,
    /// What passes did not do here, and why.
    #[serde(rename = "m")]
    missed: Vec<String>,
    /// The node that it became a part of.
    #[serde(rename = "p", skip_serializing_if = "Option::is_none")]
    part: Option<u32>,
}

impl Picture {
    /// A picture of `graph`; `fused` is what became of it, if this is not that already, and `needed`
    /// says by name what it needs to run.
    pub fn of(
        name: &'static str,
        graph: &Graph,
        fused: Option<&Graph>,
        report: &Report,
        needed: &dyn Fn(&str) -> bool,
        words: &mut Words,
    ) -> Self {
        let facts = infer(graph).ok();
        let mut order = vec![0; graph.len()];
        let computed = graph.topological().unwrap_or_else(|_| graph.ids().collect());
        for (place, id) in computed.iter().enumerate() {
            order[id.index()] = place;
        }
        let (done, missed) = (by_node(&report.done), by_node(&report.missed));
        let parts = fused.map(|fused| parts(graph, fused, &done, &computed)).unwrap_or_default();
        let told = |notes: &BTreeMap<&str, Vec<String>>, name: &str| {
            notes.get(name).cloned().unwrap_or_default()
        };
        let nodes = graph.nodes().map(|(id, node)| {
            let mut inputs: Vec<u32> = node.inputs.iter().map(|value| value.node.0).collect();
            inputs.dedup();
            Drawn {
                name: node.name.clone(),
                op: words.place(node.op.to_string()),
                attributes: attributes(&node.op),
                kind: kind(graph, id, fused, needed),
                facts: known(facts.as_ref(), id, &node.op)
                    .into_iter()
                    .map(|fact| words.place(fact))
                    .collect(),
                inputs,
                control: node.control.iter().map(|id| id.0).collect(),
                order: order[id.index()],
                done: told(&done, &node.name),
                missed: told(&missed, &node.name),
                part: parts.get(&id).map(|anchor| anchor.0),
            }
        });
        let nodes = nodes.collect();
        let here = |note: &&Note| graph.find(&note.node).is_some();
        let missed = report.missed.iter().filter(here);
        let missed =
            missed.map(|note| (note.node.clone(), format!("{}: {}", note.rule, note.text)));
        Self { name, nodes, missed: missed.collect() }
    }
}

fn by_node(notes: &[Note]) -> BTreeMap<&str, Vec<String>> {
    let mut by_node: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for note in notes {
        by_node.entry(&note.node).or_default().push(format!("{}: {}", note.rule, note.text));
    }
    by_node
}

fn known(facts: Option<&Facts>, id: NodeId, op: &Op) -> Vec<String> {
    let Some(facts) = facts else { return Vec::new() };
    (0..op.outputs() as u32).map(|port| facts[Value { node: id, port }].to_string()).collect()
}

fn kind(
    graph: &Graph,
    id: NodeId,
    fused: Option<&Graph>,
    needed: &dyn Fn(&str) -> bool,
) -> &'static str {
    let node = graph.node(id);
    let raised = |op: &Op| FUSED.contains(&op.to_string().as_str());
    let became = fused.and_then(|fused| Some(&fused.node(fused.find(&node.name)?).op));
    let weight = |value: &Value| matches!(graph.op(*value), Op::Variable(_) | Op::Const(_));
    match &node.op {
        Op::Input(_) | Op::InputWithDefault(_) => "input",
        _ if graph.outputs.iter().any(|port| port.value.node == id) => "output",
        Op::Const(_) | Op::Variable(_) => "weight",
        Op::ReadVariable(_) => "weight",
        Op::Unary(Unary::Identity) if node.inputs.iter().all(weight) => "weight",
        Op::Foreign(_) if needed(&node.name) => "foreign",
        op if raised(op) || became.is_some_and(raised) => "fused",
        _ => "op",
    }
}

/// Nodes that are gone, by the fused node that reads them, directly or through others that are gone.
fn parts(
    graph: &Graph,
    fused: &Graph,
    done: &BTreeMap<&str, Vec<String>>,
    computed: &[NodeId],
) -> HashMap<NodeId, NodeId> {
    let mut parts: HashMap<NodeId, NodeId> = HashMap::new();
    for &id in computed.iter().rev() {
        let name = graph.node(id).name.as_str();
        let anchor = match (parts.get(&id), done.contains_key(name)) {
            (Some(&anchor), _) => anchor,
            (None, true) if fused.find(name).is_some() => id,
            _ => continue,
        };
        for value in &graph.node(id).inputs {
            if fused.find(&graph.node(value.node).name).is_none() {
                parts.entry(value.node).or_insert(anchor);
            }
        }
    }
    parts
}
