//! Eight steps of training without dropout against the original code on TensorFlow 1.15: every loss,
//! every norm, and the weights that come out. Here by the plain kernels, node by node.

#![allow(clippy::unwrap_used, reason = "tests")]

mod goldens;

use std::collections::BTreeMap;

use frazil_graph::op::Input;
use frazil_graph::{Graph, NodeId, Op, Port, Value};
use frazil_kernels::Isa;
use frazil_kernels::par::Pool;
use frazil_runtime::{Inputs, Session, raise};
use frazil_tensor::{Shape, Tensor, TensorStore};
use frazil_train::grad::{gathered, gradients};
use frazil_train::optim::{Optimizer, Options, Step};
use serde_json::Value as Json;

use goldens::{Golden, goldens};

/// Losses and norms, relative.
const TOLERANCE: f64 = 2e-5;
/// The largest difference of a weight, relative to its largest number: Adam divides by the root of
/// mean squares, which makes much of small gradients.
const WEIGHTS: f64 = 1e-4;

/// The graph of a step: weights are inputs, outputs are the loss, the gradients of the weights, and
/// for those that were added up from rows, these rows.
struct Graphed {
    graph: Graph,
    weights: Vec<String>,
    /// Weights whose norm is that of rows.
    rows: Vec<usize>,
}

fn graphed(golden: &Golden, packed: bool) -> Graphed {
    let mut graph = golden.graph();
    raise(&mut graph, packed).unwrap();
    let variables: Vec<NodeId> =
        graph.ids().filter(|&id| matches!(graph.node(id).op, Op::Variable(_))).collect();
    let wrt: Vec<Value> = variables.iter().map(|&id| id.into()).collect();
    let total = graph.outputs[0].value;
    let grads = gradients(&mut graph, total, &wrt).unwrap();
    graph.outputs.truncate(1);
    let mut weights = Vec::new();
    for (&id, &value) in variables.iter().zip(&grads) {
        let name = graph.node(id).name.clone();
        let Op::Variable(variable) = graph.node(id).op.clone() else { unreachable!() };
        let dims = variable.shape.unwrap().iter().map(|&d| d.into()).collect();
        graph.node_mut(id).op = Op::Input(Input { dtype: variable.dtype, dims: Some(dims) });
        graph.inputs.push(Port { name: name.clone(), value: id.into() });
        graph.outputs.push(Port { name: format!("d/{name}"), value });
        weights.push(name);
    }
    let mut rows = Vec::new();
    for (i, &grad) in grads.iter().enumerate() {
        let Some(value) = gathered(&graph, grad) else { continue };
        rows.push(i);
        graph.outputs.push(Port { name: format!("rows/{i}"), value });
    }
    graph.prune();
    Graphed { graph, weights, rows }
}

type Values = BTreeMap<String, (Shape, Vec<f32>)>;

fn train(golden: &Golden, packed: bool) {
    let head = golden.head;
    let Graphed { graph, weights, rows } = graphed(golden, packed);
    let (batches, initial) = (golden.batches(4), golden.initial());
    let mut values = Values::new();
    for name in &weights {
        let tensor = initial.tensor(name).unwrap();
        let list = tensor.values::<f32>().unwrap().into_owned();
        values.insert(name.clone(), (tensor.shape().clone(), list));
    }
    let sizes = weights.iter().map(|name| (name.as_str(), values[name].1.len()));
    let mut optimizer = Optimizer::new(Options::bert(), sizes);
    let (pool, isa) = (Pool::new(1), Isa::Scalar);
    let (schedule, updates) = (golden.schedule(), golden.updates());
    let session = Session::new(&graph, Default::default()).unwrap();
    let run = |batch: &Inputs, values: &Values| {
        let mut inputs = batch.clone();
        for (name, (shape, list)) in values {
            let tensor = Tensor::from_vec(shape.clone(), list.clone()).unwrap();
            inputs.insert(name.clone(), tensor);
        }
        let outputs = session.run(&inputs).unwrap().outputs.into_iter();
        let list = |(_, t): (String, Tensor)| t.values::<f32>().unwrap().into_owned();
        outputs.map(list).collect::<Vec<_>>()
    };
    let close = |what: &str, found: f64, golden: &Json| {
        let golden = golden.as_f64().unwrap();
        let off = (found - golden).abs() / golden.abs();
        assert!(off <= TOLERANCE, "{head} {what}: {found} for {golden}, {off:.1e}");
    };
    for (i, (step, batch)) in golden.steps().iter().zip(&batches).enumerate() {
        let outputs = run(batch, &values);
        close(&format!("loss of step {i}"), outputs[0][0].into(), &step["loss_before"]);
        let (grads, by_rows) = outputs[1..].split_at(weights.len());
        let plain: f64 = grads.iter().map(|grad| squares(grad)).sum();
        let summed: f64 = rows.iter().map(|&at| squares(&grads[at])).sum();
        let original = plain - summed + by_rows.iter().map(|rows| squares(rows)).sum::<f64>();
        close(&format!("norm {i}"), plain.sqrt(), &step["global_norm_of_summed_gradients"]);
        close(&format!("clip {i}"), original.sqrt(), &step["global_norm_used_by_clip"]);
        let told = f64::from(schedule.rate(i as u64));
        assert_eq!(told, step["lr"].as_f64().unwrap(), "{head}, step {i}");
        let rate = updates.rate(i as u64);
        let step = Step {
            number: i as u64,
            before: 0,
            rate,
            beta1: None,
            divisor: 1.0,
            square_sum: Some(original),
        };
        let mut left: BTreeMap<&str, &mut (Shape, Vec<f32>)> =
            values.iter_mut().map(|(name, value)| (name.as_str(), value)).collect();
        let pairs = weights.iter().zip(grads).map(|(name, grad)| {
            (left.remove(name.as_str()).unwrap().1.as_mut_slice(), grad.as_slice())
        });
        let pairs = pairs.collect();
        assert!(optimizer.step(&pool, isa, &step, pairs).changed);
    }
    let after = run(&batches[0], &values)[0][0];
    close("loss after training", after.into(), &golden.json["loss_on_batch_0_after_training"]);
    let last = golden.last();
    for (name, (_, list)) in &values {
        let golden = last.tensor(name).unwrap().to_f64().unwrap();
        let largest = golden.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        let off = list.iter().zip(&golden).map(|(f, g)| (f64::from(*f) - g).abs());
        let off = off.fold(0f64, f64::max) / largest;
        assert!(off <= WEIGHTS, "{head} {name}: {off:.1e}");
    }
}

fn squares(x: &[f32]) -> f64 {
    x.iter().map(|&x| f64::from(x) * f64::from(x)).sum()
}

#[test]
fn padded() {
    goldens().iter().for_each(|golden| train(golden, false));
}

#[test]
fn packed() {
    goldens().iter().for_each(|golden| train(golden, true));
}
