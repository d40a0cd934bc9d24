//! Two runs side by side: every value that both compute under one name is compared as soon as both
//! have it, so that no more is kept than what one side is ahead. Operands that only say how other values
//! lie are left out: two forms of one model need not agree on them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_graph::{NodeId, Value};
use frazil_runtime::{Execution, Inputs, Session};
use frazil_tensor::Tensor;
use serde::Serialize;

use super::{Pair, extents};
use crate::Result;

/// How an output differs.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Its names.
    #[serde(flatten)]
    pub names: Pair,
    /// Its extents in the first model, in the last batch.
    pub shape: Vec<usize>,
    /// Its extents in the second model.
    pub other_shape: Vec<usize>,
    /// The largest |a-b|; absent where the numbers of elements differ.
    pub max_abs: Option<f64>,
    /// The mean of |a-b|.
    pub mean_abs: Option<f64>,
    /// The cosine of the angle between both, all elements taken as one vector.
    pub cosine: Option<f64>,
    /// The largest |a|.
    pub largest: f64,
    /// Whether the largest difference is within the tolerance.
    pub within: bool,
}

/// The first node that differs.
#[derive(Clone, Debug, Serialize)]
pub struct NodeDifference {
    /// The node, or `node:port`.
    pub node: String,
    /// Its operation in the first model.
    pub op: String,
    /// Its operation in the second one.
    pub other_op: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// The largest |a-b|.
    pub max_abs: f64,
    /// The largest |a|.
    pub largest: f64,
}

/// Both sides, and what is known of their differences so far.
pub struct Comparison<'s> {
    sessions: &'s [Session; 2],
    outputs: Vec<(Pair, [Value; 2])>,
    tolerance: f64,
    sums: Vec<Sums>,
    /// Names of nodes that both sides compute.
    shared: HashSet<String>,
    /// What each side computes only to say how other values lie.
    extents: [HashSet<Value>; 2],
    compared: HashSet<String>,
    /// Step of the first side, and the difference.
    parted: Option<(usize, NodeDifference)>,
    /// The largest difference by step of the first side and port.
    along: BTreeMap<(usize, usize), NodeDifference>,
}

/// What a comparison found.
pub struct Found {
    /// Each output.
    pub outputs: Vec<Difference>,
    /// How many nodes of the same name were compared.
    pub nodes: usize,
    /// The first that parted.
    pub parted: Option<NodeDifference>,
    /// All of them, in the order of computing.
    pub along: Vec<NodeDifference>,
}

/// What is added up over an output's elements.
#[derive(Clone, Default)]
struct Sums {
    count: usize,
    max_abs: f64,
    sum_abs: f64,
    largest: f64,
    ab: f64,
    aa: f64,
    bb: f64,
    shapes: [Vec<usize>; 2],
    mismatch: bool,
}

impl Sums {
    fn add(&mut self, a: &Tensor, b: &Tensor) -> Result<()> {
        self.shapes = [a.shape().to_vec(), b.shape().to_vec()];
        if a.elements() != b.elements() {
            self.mismatch = true;
            return Ok(());
        }
        for (a, b) in a.to_f64()?.into_iter().zip(b.to_f64()?) {
            let difference = if a == b { 0.0 } else { (a - b).abs() };
            self.count += 1;
            self.max_abs = larger(self.max_abs, difference);
            self.sum_abs += difference;
            self.largest = larger(self.largest, a.abs());
            self.ab += a * b;
            self.aa += a * a;
            self.bb += b * b;
        }
        Ok(())
    }

    fn cosine(&self) -> f64 {
        // Two vectors of zeros point the same way.
        if self.aa == 0.0 && self.bb == 0.0 {
            1.0
        } else {
            self.ab / (self.aa.sqrt() * self.bb.sqrt())
        }
    }
}

/// The larger one; not-a-number stays.
fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || a >= b { a } else { b }
}

impl<'s> Comparison<'s> {
    pub fn new(
        sessions: &'s [Session; 2],
        outputs: &[(Pair, [Value; 2])],
        tolerance: f64,
    ) -> Result<Self> {
        let names = |session: &Session| -> HashSet<String> {
            let steps = session.plan().steps.iter();
            steps.map(|step| session.graph().node(step.node).name.clone()).collect()
        };
        let shared = &names(&sessions[0]) & &names(&sessions[1]);
        let sums = vec![Sums::default(); outputs.len()];
        let extents = [extents::of(sessions[0].graph())?, extents::of(sessions[1].graph())?];
        Ok(Self {
            sessions,
            outputs: outputs.to_vec(),
            tolerance,
            sums,
            shared,
            extents,
            compared: HashSet::new(),
            parted: None,
            along: BTreeMap::new(),
        })
    }

    /// Runs one batch on both sides.
    pub fn run(&mut self, feeds: &[Inputs; 2], on_step: &mut dyn FnMut(u64)) -> Result<()> {
        let [a, b] = self.sessions;
        let mut sides = [Ahead::new(a.start(&feeds[0])?), Ahead::new(b.start(&feeds[1])?)];
        let mut finals: [HashMap<Value, Tensor>; 2] = Default::default();
        let mut done = 0;
        loop {
            let mut moved = false;
            for side in 0..2 {
                let Some((id, outputs)) = sides[side].execution.step()? else { continue };
                moved = true;
                done += 1;
                on_step(done);
                for (port, tensor) in outputs.iter().enumerate() {
                    let value = Value { node: id, port: port as u32 };
                    if self.outputs.iter().any(|(_, values)| values[side] == value) {
                        finals[side].insert(value, tensor.clone());
                    }
                }
                let step = sides[side].step();
                let name = self.sessions[side].graph().node(id).name.clone();
                if !self.shared.contains(&name) {
                    continue;
                }
                match sides[1 - side].waiting.remove(&name) {
                    None => drop(sides[side].waiting.insert(name, (id, step, outputs))),
                    Some((other_id, other_step, others)) => {
                        let (own, other) = ((id, step, outputs), (other_id, other_step, others));
                        let (a, b) = if side == 0 { (own, other) } else { (other, own) };
                        self.compare(&name, a, b)?;
                    }
                }
            }
            if !moved {
                break;
            }
        }
        for (sums, (_, [a, b])) in self.sums.iter_mut().zip(&self.outputs) {
            sums.add(&finals[0][a], &finals[1][b])?;
        }
        Ok(())
    }

    fn compare(&mut self, name: &str, a: Shown, b: Shown) -> Result<()> {
        let ((a_id, step, a), (b_id, _, b)) = (a, b);
        for (port, (x, y)) in a.iter().zip(&b).enumerate() {
            let values = [a_id, b_id].map(|node| Value { node, port: port as u32 });
            let extents =
                self.extents.iter().zip(&values).all(|(side, value)| side.contains(value));
            if extents && !x.dtype().is_float() {
                continue;
            }
            self.compared.insert(name.to_owned());
            let mut sums = Sums::default();
            // Strings, or the same thing laid out otherwise, say nothing.
            if sums.add(x, y).is_err() || sums.mismatch {
                continue;
            }
            let [graph_a, graph_b] = [0, 1].map(|side| self.sessions[side].graph());
            let difference = NodeDifference {
                node: graph_a.value_name(values[0]),
                op: graph_a.node(a_id).op.to_string(),
                other_op: graph_b.node(b_id).op.to_string(),
                shape: x.shape().to_vec(),
                max_abs: sums.max_abs,
                largest: sums.largest,
            };
            let bound = self.tolerance * sums.largest.max(1.0);
            let within = sums.max_abs <= bound;
            if !within && self.parted.as_ref().is_none_or(|(first, _)| step < *first) {
                self.parted = Some((step, difference.clone()));
            }
            match self.along.entry((step, port)) {
                Entry::Vacant(entry) => drop(entry.insert(difference)),
                Entry::Occupied(mut entry) => {
                    let known = entry.get_mut();
                    known.max_abs = larger(known.max_abs, difference.max_abs);
                    known.largest = larger(known.largest, difference.largest);
                }
            }
        }
        Ok(())
    }

    /// What was found.
    pub fn finish(self) -> Found {
        let tolerance = self.tolerance;
        let difference = |((names, _), sums): ((Pair, [Value; 2]), Sums)| {
            let cosine = sums.cosine();
            let [shape, other_shape] = sums.shapes;
            let shown = |value: f64| (!sums.mismatch).then_some(value);
            Difference {
                names,
                shape,
                other_shape,
                max_abs: shown(sums.max_abs),
                mean_abs: shown(sums.sum_abs / sums.count.max(1) as f64),
                cosine: shown(cosine),
                largest: sums.largest,
                within: !sums.mismatch && sums.max_abs <= tolerance,
            }
        };
        let outputs = self.outputs.into_iter().zip(self.sums).map(difference).collect();
        Found {
            outputs,
            nodes: self.compared.len(),
            parted: self.parted.map(|(_, difference)| difference),
            along: self.along.into_values().collect(),
        }
    }
}

/// A node's place, its step, and its outputs.
type Shown = (NodeId, usize, Vec<Tensor>);

/// A run and those of its values that the other side has not computed yet.
struct Ahead<'s> {
    execution: Execution<'s>,
    steps: usize,
    waiting: HashMap<String, Shown>,
}

impl<'s> Ahead<'s> {
    fn new(execution: Execution<'s>) -> Self {
        Self { execution, steps: 0, waiting: HashMap::new() }
    }

    /// The number of the step that was just taken.
    fn step(&mut self) -> usize {
        self.steps += 1;
        self.steps
    }
}
