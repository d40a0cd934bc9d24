//! One run, step by step, so that whoever compares two models can look at every node.

use std::collections::HashMap;

use frazil_graph::{Graph, NodeId, Value};
use frazil_tensor::Tensor;

use crate::Result;
use crate::feed::Feed;
use crate::ops;
use crate::plan::Plan;

/// The values that are there, by what computes them.
pub(crate) type Values = HashMap<Value, Tensor>;

/// A run under way.
pub struct Execution<'s> {
    graph: &'s Graph,
    constants: &'s Values,
    plan: Plan,
    feed: Feed,
    values: Values,
    at: usize,
}

impl<'s> Execution<'s> {
    pub(crate) fn new(graph: &'s Graph, plan: Plan, constants: &'s Values, feed: Feed) -> Self {
        Self { graph, constants, plan, feed, values: Values::new(), at: 0 }
    }

    /// What was done to the inputs.
    pub fn notes(&self) -> &[String] {
        &self.feed.notes
    }

    /// Runs the next step and shows its node with all its outputs; `None` after the last one.
    pub fn step(&mut self) -> Result<Option<(NodeId, Vec<Tensor>)>> {
        let Some(step) = self.plan.steps.get(self.at) else { return Ok(None) };
        let outputs = match self.known(step.node) {
            Some(outputs) => outputs,
            None => run_node(self.graph, step.node, &self.values)?,
        };
        for (port, tensor) in outputs.iter().enumerate() {
            self.values.insert(Value { node: step.node, port: port as u32 }, tensor.clone());
        }
        for value in &step.drops {
            self.values.remove(value);
        }
        self.at += 1;
        Ok(Some((step.node, outputs)))
    }

    /// The outputs of a node that is fed, or that was computed when the session was made.
    fn known(&self, node: NodeId) -> Option<Vec<Tensor>> {
        if let Some(tensor) = self.feed.values.get(&node) {
            return Some(vec![tensor.clone()]);
        }
        let ports = 0..self.graph.node(node).op.outputs() as u32;
        ports.map(|port| self.constants.get(&Value { node, port }).cloned()).collect()
    }

    /// The rest of the steps, then the wanted values in the order in which they were asked for.
    pub fn finish(mut self) -> Result<Vec<Tensor>> {
        while self.step()?.is_some() {}
        let wanted = |value: &Value| self.values[value].clone();
        Ok(self.plan.wanted.iter().map(wanted).collect())
    }
}

/// All outputs of a node whose inputs are in `values`.
pub(crate) fn run_node(graph: &Graph, id: NodeId, values: &Values) -> Result<Vec<Tensor>> {
    let inputs = graph.node(id).inputs.iter().map(|input| values[input].clone()).collect();
    ops::run(graph, id, inputs)
}
