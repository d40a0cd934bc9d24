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

#[cfg(test)]
mod tests {
    use frazil_graph::op::{Binary, Gather, Input, Unary};
    use frazil_graph::{Dim, Node, Op};
    use frazil_tensor::DType;

    use super::*;
    use crate::Error;

    /// rows = table[ids]; doubled = 2 · exp(rows), with `twice` = 1 + 1 computed once.
    fn session() -> Session {
        let mut graph = Graph::new();
        let mut push = |name: &str, op, inputs: Vec<Value>| -> Value {
            graph.push(Node::new(name, op, inputs)).unwrap().into()
        };
        let constant = |shape: &[usize], values: &[f32]| {
            Op::constant(Tensor::from_vec(shape, values.to_vec()).unwrap())
        };
        let input = Input { dtype: DType::I32, dims: Some(vec![Dim::batch()]) };
        let ids = push("ids", Op::Input(input), vec![]);
        let table = push("table", constant(&[3, 1], &[0.0, 1.0, 2.0]), vec![]);
        let axis = Tensor::from_vec([], vec![0i32]).unwrap();
        let axis = push("axis", Op::constant(axis), vec![]);
        let rows = push("rows", Op::Gather(Gather::default()), vec![table, ids, axis]);
        let one = push("one", constant(&[], &[1.0]), vec![]);
        let twice = push("twice", Op::Binary(Binary::Add), vec![one, one]);
        let exp = push("exp", Op::Unary(Unary::Exp), vec![rows]);
        let doubled = push("doubled", Op::Binary(Binary::Mul), vec![exp, twice]);
        graph.inputs = vec![Port { name: "ids".into(), value: ids }];
        graph.outputs = vec![
            Port { name: "out".into(), value: doubled },
            Port { name: "constant".into(), value: twice },
        ];
        Session::new(&graph, Options::default()).unwrap()
    }

    fn ids(ids: &[i64]) -> Inputs {
        Inputs::from([("ids".into(), Tensor::from_vec([ids.len()], ids.to_vec()).unwrap())])
    }

    #[test]
    fn runs_again_and_again() {
        let session = session();
        for _ in 0..2 {
            let run = session.run(&ids(&[1, 0])).unwrap();
            let names: Vec<&str> = run.outputs.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["out", "constant"]);
            let out = run.outputs[0].1.values::<f32>().unwrap();
            assert!((out[0] - 2.0 * std::f32::consts::E).abs() < 1e-6);
            assert_eq!(out[1], 2.0);
            assert_eq!(*run.outputs[1].1.values::<f32>().unwrap(), [2.0]);
            assert_eq!(run.notes.len(), 1); // int64 became int32
        }
    }

    #[test]
    fn any_value_can_be_asked_for() {
        let session = session();
        let wanted = ["rows", "one", "ids"].map(|name| session.graph().find_value(name).unwrap());
        let values = session.run_values(&ids(&[2]), &wanted).unwrap();
        assert_eq!(*values[0].values::<f32>().unwrap(), [2.0]);
        assert_eq!(*values[1].values::<f32>().unwrap(), [1.0]);
        assert_eq!(*values[2].values::<i32>().unwrap(), [2]);
        // What needs no input asks for none.
        assert!(session.run_values(&Inputs::new(), &wanted[1..2]).is_ok());
    }

    #[test]
    fn every_step_is_shown() {
        let session = session();
        let inputs = ids(&[1]);
        let mut execution = session.start(&inputs).unwrap();
        let mut seen = Vec::new();
        while let Some((id, outputs)) = execution.step().unwrap() {
            assert_eq!(outputs.len(), 1);
            seen.push(session.graph().node(id).name.clone());
        }
        assert_eq!(seen.len(), session.plan().steps.len());
        assert_eq!(seen.last().unwrap(), "doubled");
    }

    #[test]
    fn an_id_outside_of_the_table_is_no_panic() {
        let error = session().run(&ids(&[0, 3])).unwrap_err();
        assert_eq!(error.to_string(), "`rows` (Gather): id 3 (element 1 of `ids`) is not in 0..3");
        assert!(error.hint().unwrap().contains("vocabulary"));
        assert!(matches!(session().run(&Inputs::new()), Err(Error::MissingInput { .. })));
    }
}
