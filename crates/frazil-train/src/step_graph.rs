//! What a step computes, as a graph: that of a model with its loss, raised, with its gradients.
//!
//! It is made once and can be stored. Left out: weights, and what becomes of gradients
//! ([`crate::trainer`]).

use frazil_graph::op::{Binary, Input, Reduce, ReduceKind, Unary};
use frazil_graph::{Graph, Node, NodeId, Op, Port, Value};
use frazil_runtime::raise;
use frazil_tensor::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::dropout::{self, KEY};
use crate::grad::{gathered, gradients_from};
use crate::recompute::recompute;
use crate::trainer::Options;
use crate::{Error, Result};

/// The input that the loss's factor is fed as.
pub(crate) const SCALE: &str = "loss_scale";
/// What the weights of a loss's parts are fed as, followed by their names.
pub(crate) const SHARE: &str = "loss_share/";

/// What a step computes: a graph that is raised and has its gradients. Making it is most of what planning
/// takes, and it can be stored: it depends on the graph that it was made of, and on what of the options
/// says what is computed (dropout, packing, recomputation, norms), not on weights, instructions, threads
/// or ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredStep")]
pub struct StepGraph {
    pub(crate) graph: Graph,
    /// The loss and its parts.
    pub(crate) losses: Vec<String>,
    pub(crate) layout: Layout,
}

/// The same as it is read back, not checked yet.
#[derive(Deserialize)]
struct StoredStep {
    graph: Graph,
    losses: Vec<String>,
    layout: Layout,
}

impl TryFrom<StoredStep> for StepGraph {
    type Error = &'static str;

    fn try_from(stored: StoredStep) -> std::result::Result<Self, Self::Error> {
        let StoredStep { graph, losses, layout } = stored;
        let is_weight = |(_, node): &(NodeId, &Node)| matches!(node.op, Op::Variable(_));
        let fits = layout.losses == losses.len()
            && !losses.is_empty()
            && layout.weights == graph.nodes().filter(is_weight).count()
            && layout.rows.iter().all(|at| *at < layout.weights)
            && graph.outputs.len() == layout.losses + layout.weights + layout.rows.len();
        if fits { Ok(Self { graph, losses, layout }) } else { Err("no graph of a step") }
    }
}

impl StepGraph {
    /// For a graph whose first output is the loss (see [`crate::loss::attach`]), as the original has
    /// it: raising and packing is done here.
    pub fn new(mut graph: Graph, options: &Options) -> Result<Self> {
        raise(&mut graph, options.packed)?;
        if let Some(rates) = &options.dropout {
            dropout::insert(&mut graph, rates)?;
        }
        let losses: Vec<String> = graph.outputs.iter().map(|port| port.name.clone()).collect();
        let layout = add_gradients(&mut graph, options)?;
        graph.prune();
        Ok(Self { graph, losses, layout })
    }
}

/// Which outputs of the graph are what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Layout {
    pub(crate) losses: usize,
    pub(crate) weights: usize,
    /// Weights whose norm is that of rows; their sums of squares are the last outputs.
    pub(crate) rows: Vec<usize>,
    /// Whether chances are fed.
    pub(crate) dropout: bool,
    /// Whether the weights of the loss's parts are fed.
    pub(crate) shares: bool,
}

impl Layout {
    pub(crate) fn grads(&self) -> std::ops::Range<usize> {
        self.losses..self.losses + self.weights
    }

    /// The weight whose gradient an output is.
    pub(crate) fn weight(&self, output: usize) -> Option<usize> {
        self.grads().contains(&output).then(|| output - self.losses)
    }

    pub(crate) fn squares(&self) -> std::ops::Range<usize> {
        let from = self.losses + self.weights;
        from..from + self.rows.len()
    }
}

/// Adds the gradients of all variables that the loss depends on to the graph, as outputs behind those
/// that are there; and for each weight that is looked up by rows, the sum of the rows' squares.
fn add_gradients(graph: &mut Graph, options: &Options) -> Result<Layout> {
    let losses = graph.outputs.len();
    graph.prune();
    let shares = losses > 1;
    let loss = match graph.outputs.first() {
        Some(_) if shares => weighted_loss(graph)?,
        Some(port) => port.value,
        None => return Err(Error::NoOutput { name: "loss".to_owned(), loss: "training" }),
    };
    let needed = graph.ancestors([loss.node]);
    let is_weight =
        |id: &NodeId| needed[id.index()] && matches!(graph.node(*id).op, Op::Variable(_));
    let weights: Vec<NodeId> = graph.ids().filter(is_weight).collect();
    let wrt: Vec<Value> = weights.iter().map(|&id| id.into()).collect();
    let input = Input { dtype: DType::F32, dims: Some(vec![]) };
    let first = graph.push(Node::new(SCALE, Op::Input(input), vec![]))?;
    graph.inputs.push(Port { name: SCALE.to_owned(), value: first.into() });
    let grads = gradients_from(graph, loss, first.into(), &wrt)?;
    for (&id, &value) in weights.iter().zip(&grads) {
        let name = format!("d/{}", graph.node(id).name);
        graph.outputs.push(Port { name, value });
    }
    let mut rows = Vec::new();
    for (at, &grad) in grads.iter().enumerate() {
        let Some(from) = gathered(graph, grad).filter(|_| options.norm_of_rows) else { continue };
        let value = sum_of_squares(graph, from)?;
        graph.outputs.push(Port { name: format!("rows/{}", graph.outputs.len()), value });
        rows.push(at);
    }
    if options.recompute {
        recompute(graph, first)?;
    }
    let dropout = graph.find(KEY).is_some();
    Ok(Layout { losses, weights: weights.len(), rows, dropout, shares })
}

/// The sum of the loss's parts, each times a number that is fed.
fn weighted_loss(graph: &mut Graph) -> Result<Value> {
    let mut sum: Option<Value> = None;
    let parts = graph.outputs[1..].to_vec();
    for part in parts {
        let name = format!("{SHARE}{}", part.name);
        let input = Input { dtype: DType::F32, dims: Some(vec![]) };
        let share = graph.push(Node::new(name.clone(), Op::Input(input), vec![]))?.into();
        graph.inputs.push(Port { name: name.clone(), value: share });
        let mut binary = |op: Binary, a: Value, b: Value| -> Result<Value> {
            Ok(graph.push_fresh(Node::new(name.clone(), Op::Binary(op), vec![a, b]))?.into())
        };
        let own = binary(Binary::Mul, part.value, share)?;
        sum = Some(match sum {
            Some(sum) => binary(Binary::Add, sum, own)?,
            None => own,
        });
    }
    sum.ok_or(Error::NoOutput { name: "loss".to_owned(), loss: "training" })
}

fn sum_of_squares(graph: &mut Graph, x: Value) -> Result<Value> {
    let name = format!("squares/{}", graph.value_name(x));
    let mut push = |op: Op, inputs: Vec<Value>| -> Result<Value> {
        Ok(graph.push_fresh(Node::new(name.clone(), op, inputs))?.into())
    };
    let list = |value: i32| Op::constant(Tensor::from_vec([1], vec![value]).expect("one number"));
    let (flat, axis) = (push(list(-1), vec![])?, push(list(0), vec![])?);
    let square = push(Op::Unary(Unary::Square), vec![x])?;
    let square = push(Op::Reshape, vec![square, flat])?;
    push(Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims: false }), vec![square, axis])
}
