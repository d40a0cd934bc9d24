//! A graph that is ready to run.

use std::collections::HashSet;

use frazil_graph::{Graph, Port, Value};
use frazil_tensor::Tensor;

use crate::execution::{Execution, Values, run_node};
use crate::feed::{Feed, Inputs};
use crate::plan::Plan;
use crate::{Result, ops};

/// How a session is made.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {}

/// A graph with its plan, and what of it depends on constants only already computed.
pub struct Session {
    graph: Graph,
    plan: Plan,
    constants: Values,
}

/// What a run gives.
#[derive(Clone, Debug)]
pub struct Run {
    /// The outputs in the model's order.
    pub outputs: Vec<(String, Tensor)>,
    /// What was done to the inputs.
    pub notes: Vec<String>,
}

impl Session {
    /// Plans what the graph's outputs need and refuses, by name, what cannot run.
    pub fn new(graph: &Graph, _options: Options) -> Result<Self> {
        graph.check()?;
        let plan = Plan::new(graph, &graph.outputs)?;
        let mut session = Self { graph: graph.clone(), plan, constants: Values::new() };
        session.compute_constants()?;
        Ok(session)
    }

    /// Runs the steps that need no input.
    fn compute_constants(&mut self) -> Result<()> {
        for step in self.plan.steps.iter().filter(|step| step.constant) {
            let outputs = run_node(&self.graph, step.node, &self.constants)?;
            for (port, tensor) in outputs.into_iter().enumerate() {
                // A weight in a mapped file may lie askew: it is moved once, not at every run.
                let value = Value { node: step.node, port: port as u32 };
                self.constants.insert(value, ops::aligned(tensor));
            }
        }
        Ok(())
    }

    /// The graph that is run.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What must be fed.
    pub fn inputs(&self) -> &[Port] {
        &self.graph.inputs
    }

    /// What comes out.
    pub fn outputs(&self) -> &[Port] {
        &self.graph.outputs
    }

    /// The steps.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes the graph's outputs.
    pub fn run(&self, inputs: &Inputs) -> Result<Run> {
        let execution = self.start(inputs)?;
        let notes = execution.notes().to_vec();
        let names = self.graph.outputs.iter().map(|port| port.name.clone());
        Ok(Run { outputs: names.zip(execution.finish()?).collect(), notes })
    }

    /// Computes any values of the graph, for example a hidden state.
    pub fn run_values(&self, inputs: &Inputs, wanted: &[Value]) -> Result<Vec<Tensor>> {
        let port = |&value: &Value| Port { name: self.graph.value_name(value), value };
        let wanted: Vec<Port> = wanted.iter().map(port).collect();
        let plan = Plan::new(&self.graph, &wanted)?;
        self.execution(plan, inputs)?.finish()
    }

    /// Starts a run that the caller takes step by step.
    pub fn start(&self, inputs: &Inputs) -> Result<Execution<'_>> {
        self.execution(self.plan.clone(), inputs)
    }

    fn execution(&self, plan: Plan, inputs: &Inputs) -> Result<Execution<'_>> {
        let read: HashSet<_> = plan.steps.iter().map(|step| step.node).collect();
        let feed = Feed::new(&self.graph, inputs, |node| read.contains(&node))?;
        Ok(Execution::new(&self.graph, plan, &self.constants, feed))
    }
}
