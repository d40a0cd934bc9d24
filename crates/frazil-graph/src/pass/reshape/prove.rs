//! The proof for one size: which constants stand for it.
//!
//! The shapes of all values are computed with the size as a symbol, in topological order, by rules
//! that accept only what holds for every size (`rules`). Constants that may be the size are
//! questions ([`Ledger`]); the walk is repeated until no more of them answer themselves. What is
//! proven in the end depends on the size:
//!
//! - *Batch.* Every value must be either the same for all examples or hold one part per example,
//!   next to each other in one place; no operation may mix the parts. Then, whatever was chosen on
//!   the way, each example's result is what it is when the example comes alone, so it does not
//!   matter that a batch of 1 leaves several choices: the first that holds throughout is right.
//! - *Length.* There is no such independence (attention mixes positions), so each question needs
//!   one answer only: it contradicts the other one somewhere, or the proof fails and says where.

use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_tensor::DType;

use super::axis::{Axis, Witness, extent, has};
use super::open::{Answer, Ledger, Origin, Slot};
use super::pattern::Pattern;
use crate::dim::show;
use crate::{Dim, Error, Fact, Graph, NodeId, Result, Sizes, Symbol, Value};

/// What is to be generalised.
#[derive(Clone, Debug)]
pub(super) struct Question {
    /// The size.
    pub symbol: Symbol,
    /// The number that it is now.
    pub baked: i64,
    /// What the other sizes were before they were generalised.
    pub before: Sizes,
    /// Axes of inputs that are this size for certain.
    pub certain: Vec<(NodeId, usize)>,
    /// Axes of inputs that may be.
    pub possible: Vec<(NodeId, usize)>,
}

/// A change that the proof asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Edit {
    /// The extents of an input.
    Input { node: NodeId, dims: Vec<Dim> },
    /// An operand that lists numbers (or is one) gets these.
    Operand { node: NodeId, input: usize, elements: Vec<Dim> },
    /// A constant gets these extents and, if it is a progression, this step.
    Const { node: NodeId, dims: Vec<Dim>, step: Option<Dim> },
    /// Of a weight only the first rows are read: the size per axis, -1 for all.
    Prefix { node: NodeId, sizes: Vec<Dim> },
}

/// What is known of a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub dtype: Option<DType>,
    pub axes: Option<Vec<Axis>>,
    /// Elements, as in [`Fact`].
    pub elements: Option<Vec<Dim>>,
    pub ramp: Option<Ramp>,
    /// Whether the size itself, as a number, went into the value.
    pub sized: bool,
}

/// A value that grows by `stride` along `count`: the offsets of a gather from flattened rows.
#[derive(Clone, Debug)]
pub(super) struct Ramp {
    pub count: Axis,
    pub stride: Dim,
    pub at: StrideAt,
    /// Whether something else was added to it: the place within the part.
    pub added: bool,
}

/// Where the stride of a ramp stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum StrideAt {
    /// It is the step of a `Range`.
    Step,
    /// It is this input of this node.
    Operand(NodeId, usize),
    /// It is in this constant.
    Const(NodeId),
}

/// Two things that do not go together for every size.
#[derive(Clone, Debug)]
pub(super) struct Clash {
    pub node: NodeId,
    pub reason: String,
}

/// One walk's state.
#[derive(Clone)]
pub(super) struct Prover<'g> {
    pub graph: &'g Graph,
    pub question: &'g Question,
    pub patterns: &'g HashMap<NodeId, Pattern>,
    order: &'g [NodeId],
    /// Whether each example has to stay by itself.
    pub stacked: bool,
    /// Whether the first rows of a weight may be taken.
    pub prefixes: bool,
    pub ledger: Ledger,
    pub witness: Witness,
    pub seen: Vec<Vec<Seen>>,
    /// The node at hand.
    pub node: NodeId,
    /// Which layout each reshape takes, where there are several.
    pub choices: BTreeMap<NodeId, usize>,
    /// How many each has.
    pub layouts: BTreeMap<NodeId, usize>,
    pub edits: Vec<Edit>,
}

/// More walks than any real graph needs.
const MOST_WALKS: usize = 2000;

/// A change and, where a question was answered for it, why.
pub(super) type Reasoned = (Edit, Option<String>);

/// Finds the changes that make the size a symbol, or says why there are none.
pub(super) fn prove(graph: &Graph, question: &Question) -> Result<Vec<Reasoned>> {
    let order = order(graph)?;
    let patterns = Pattern::all(graph, &order);
    let stacked = question.symbol == Symbol::batch();
    let start = Prover {
        graph,
        question,
        patterns: &patterns,
        order: &order,
        stacked,
        prefixes: false,
        ledger: Ledger::new(question.symbol.clone(), question.baked),
        witness: Witness::default(),
        seen: vec![Vec::new(); graph.len()],
        node: NodeId(0),
        choices: BTreeMap::new(),
        layouts: BTreeMap::new(),
        edits: Vec::new(),
    };
    let found = start.clone().search();
    // A table that is used whole, because it has as many rows as the length, can be cut.
    match found {
        Err(error) if !stacked => {
            let other = Prover { prefixes: true, ..start };
            other.search().map_err(|_| error)
        }
        found => found,
    }
}

/// What the outputs are computed from, without what is only waited for, in topological order.
pub(super) fn order(graph: &Graph) -> Result<Vec<NodeId>> {
    let mut needed = HashSet::new();
    let mut stack: Vec<NodeId> = graph.outputs.iter().map(|port| port.value.node).collect();
    while let Some(id) = stack.pop() {
        if needed.insert(id) {
            stack.extend(graph.node(id).inputs.iter().map(|value| value.node));
        }
    }
    Ok(graph.topological()?.into_iter().filter(|id| needed.contains(id)).collect())
}

impl Prover<'_> {
    /// Tries the layouts of reshapes one after another, the best first.
    fn search(self) -> Result<Vec<Reasoned>> {
        let mut choices = BTreeMap::new();
        let mut first = None;
        for _ in 0..MOST_WALKS {
            let mut walk = Self { choices: choices.clone(), ..self.clone() };
            match walk.settle() {
                Ok(Some(unproven)) => return Err(unproven),
                Ok(None) => return Ok(walk.reasoned()),
                Err(clash) => {
                    let next = walk.next_choices(&clash);
                    first.get_or_insert(clash);
                    match next {
                        Some(next) => choices = next,
                        None => break,
                    }
                }
            }
        }
        let clash = first.unwrap_or(Clash { node: NodeId(0), reason: String::new() });
        Err(self.explain(clash))
    }

    /// The changes, each with the first answer that led to it.
    fn reasoned(&mut self) -> Vec<Reasoned> {
        let edits = std::mem::take(&mut self.edits);
        let why = |edit: &Edit| {
            let (node, slots): (NodeId, Vec<Slot>) = match edit {
                Edit::Input { node, dims } => (*node, (0..dims.len()).map(Slot::Input).collect()),
                Edit::Operand { node, input, elements } => {
                    (*node, (0..elements.len()).map(|i| Slot::Operand(*input, i)).collect())
                }
                Edit::Const { node, dims, .. } => {
                    (*node, (0..dims.len()).map(Slot::Axis).collect())
                }
                Edit::Prefix { node, sizes } => {
                    (*node, (0..sizes.len()).map(Slot::Weight).collect())
                }
            };
            slots.into_iter().find_map(|slot| match self.ledger.because(Origin { node, slot }) {
                Some((Answer::Size, because)) => Some(because),
                _ => None,
            })
        };
        let reasons: Vec<Option<String>> = edits.iter().map(why).collect();
        edits.into_iter().zip(reasons).collect()
    }

    fn explain(&self, clash: Clash) -> Error {
        let node = self.graph.node(clash.node);
        Error::Baked {
            name: node.name.clone(),
            op: node.op.to_string(),
            size: self.question.symbol.to_string(),
            baked: self.question.baked,
            reason: clash.reason,
        }
    }

    /// The latest reshape above the clash that has a layout left, and what was chosen before it.
    fn next_choices(&self, clash: &Clash) -> Option<BTreeMap<NodeId, usize>> {
        let above = self.graph.ancestors([clash.node]);
        let place: HashMap<NodeId, usize> =
            self.order.iter().enumerate().map(|(i, id)| (*id, i)).collect();
        let choice = |id: &NodeId| self.choices.get(id).copied().unwrap_or(0);
        let (last, _) = self
            .layouts
            .iter()
            .filter(|(id, count)| above[id.index()] && choice(id) + 1 < **count)
            .max_by_key(|(id, _)| place[*id])?;
        let mut next: BTreeMap<NodeId, usize> = self
            .choices
            .iter()
            .filter(|(id, _)| place[*id] < place[last])
            .map(|(id, choice)| (*id, *choice))
            .collect();
        next.insert(*last, choice(last) + 1);
        Some(next)
    }

    /// Walks until nothing moves, answers what is left where it can be answered, and walks once
    /// more to collect the changes. Gives the question that has no answer.
    fn settle(&mut self) -> std::result::Result<Option<Error>, Clash> {
        self.walk_until_still()?;
        if !self.stacked {
            while let Some((place, members)) = self.ledger.unanswered().into_iter().next() {
                let kept = members
                    .iter()
                    .any(|origin| matches!(origin.slot, Slot::Weight(_) | Slot::Input(_)));
                if kept {
                    // What was not made to fit the size stays a number: that is never wrong.
                    self.ledger.decide(place, Answer::Literal, "nothing makes it the size");
                } else {
                    let mut works = Vec::new();
                    let mut clashes = Vec::new();
                    for answer in [Answer::Literal, Answer::Size] {
                        let mut test = self.clone();
                        test.ledger.decide(place, answer, "the other answer contradicts");
                        match test.walk_until_still() {
                            Ok(()) => works.push(answer),
                            Err(clash) => clashes.push(clash),
                        }
                    }
                    match works.as_slice() {
                        [answer] => {
                            self.ledger.decide(place, *answer, "the other answer contradicts");
                        }
                        [] => return Err(clashes.swap_remove(0)),
                        _ => return Ok(Some(self.unproven(&members))),
                    }
                }
                self.walk_until_still()?;
            }
        }
        self.ledger.decide_rest(Answer::Literal);
        self.walk()?;
        Ok(None)
    }

    fn unproven(&self, members: &[Origin]) -> Error {
        let origin = members[0];
        let node = self.graph.node(origin.node);
        let constant = match origin.slot {
            Slot::Operand(input, entry) => {
                let list = node.inputs.get(input).map(|&value| self.graph.value_name(value));
                format!("entry {entry} of `{}`", list.unwrap_or_default())
            }
            Slot::Axis(axis) | Slot::Weight(axis) | Slot::Input(axis) => format!("axis {axis}"),
        };
        let size = &self.question.symbol;
        Error::Unproven {
            name: node.name.clone(),
            op: node.op.to_string(),
            constant,
            candidates: format!("{} or {size}", self.question.baked),
            reason: format!("every shape fits both ways, and the results differ once {size} does"),
        }
    }

    fn walk_until_still(&mut self) -> std::result::Result<(), Clash> {
        // Every walk but the last answers or finds a question, so this ends.
        loop {
            self.ledger.moved = false;
            self.walk()?;
            if !self.ledger.moved {
                return Ok(());
            }
        }
    }

    /// One walk over the graph.
    fn walk(&mut self) -> std::result::Result<(), Clash> {
        self.edits.clear();
        self.layouts.clear();
        self.witness = Witness::default();
        self.witness.set(self.question.symbol.clone(), self.question.baked);
        for symbol in self.ledger.symbols() {
            self.witness.set(symbol.clone(), self.question.baked);
        }
        for id in self.order {
            self.node = *id;
            let seen = self.rule().map_err(|reason| Clash { node: *id, reason })?;
            if self.stacked {
                for value in &seen {
                    self.one_place(value).map_err(|reason| Clash { node: *id, reason })?;
                }
            }
            self.seen[id.index()] = seen;
        }
        for port in &self.graph.outputs {
            self.node = port.value.node;
            self.output(port.value).map_err(|reason| Clash { node: port.value.node, reason })?;
        }
        Ok(())
    }

    /// Examples lie next to each other in one place of a value at most.
    fn one_place(&self, value: &Seen) -> std::result::Result<(), String> {
        let Some(axes) = &value.axes else { return Ok(()) };
        let places = axes.iter().filter(|axis| has(axis, &self.question.symbol)).count();
        if places > 1 {
            return Err(format!("two axes of {} would run over the examples", self.show(axes)));
        }
        Ok(())
    }

    /// An output lists the examples along its first axis.
    fn output(&mut self, value: Value) -> std::result::Result<(), String> {
        let axes = self.data(value)?;
        if !self.stacked {
            return Ok(());
        }
        let symbol = &self.question.symbol;
        let Some(at) = axes.iter().position(|axis| has(axis, symbol)) else { return Ok(()) };
        let first = at == 0
            && matches!(axes[0].first(), Some(super::axis::Atom::Symbol(first)) if first == symbol);
        if first {
            return Ok(());
        }
        Err(format!("the output {} does not begin with the examples", self.show(&axes)))
    }

    /// Extents for a message, with open questions as the numbers that they are now.
    pub(super) fn show(&self, axes: &[Axis]) -> String {
        let dims: Vec<Dim> = axes
            .iter()
            .map(|axis| {
                let mut dim = extent(&self.ledger.resolve(axis)).unwrap_or(Dim::known(-1));
                for symbol in dim.symbols() {
                    if self.ledger.symbols().any(|open| *open == symbol) {
                        let number = Dim::known(self.question.baked);
                        dim = dim.with(&symbol, &number).unwrap_or(dim);
                    }
                }
                dim
            })
            .collect();
        show(&dims)
    }

    /// The facts of a value in the terms of [`crate::infer`].
    pub(super) fn fact(&self, value: Value) -> Fact {
        let seen = &self.seen[value.node.index()][value.port as usize];
        let dims = seen.axes.as_ref().and_then(|axes| {
            axes.iter().map(|axis| extent(&self.ledger.resolve(axis))).collect::<Option<Vec<_>>>()
        });
        let elements = seen
            .elements
            .as_ref()
            .map(|list| list.iter().map(|dim| self.ledger.resolve_dim(dim)).collect());
        Fact { dtype: seen.dtype, dims, elements }
    }
}
