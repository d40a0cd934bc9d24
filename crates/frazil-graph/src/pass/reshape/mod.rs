//! Reshaping: another batch size, another sequence length, or both left open.
//!
//! [`reshape`] changes what the graph says of its sizes. A size that is open is fixed by putting
//! the number in. A size that is baked into the graph is first *generalised*: every constant that
//! stands for it is found and proven (`prove`), and computed from the inputs from then on
//! (`rewrite`). [`set_shapes`] does the same from the shapes of named inputs.
//!
//! What this leaves out: sizes other than batch and length, and changes of the weights: a position
//! table has as many rows as it has.

mod axis;
mod open;
mod pattern;
mod prove;
mod rewrite;
mod rules;

use std::collections::HashSet;

use self::prove::{Question, order, prove};
use self::rewrite::{Change, Maker, rewrite, shorten};
use super::{Report, fold};
use crate::dim::show;
use crate::op::{Input, Op};
use crate::{Dim, Error, Facts, Graph, NodeId, Result, Sizes, Symbol, Value, infer};

#[cfg(test)]
mod tests;

/// What is wanted of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Size {
    /// As it is.
    #[default]
    Keep,
    /// Any number, known only when a batch arrives.
    Dynamic,
    /// This number, from now on.
    Known(usize),
}

/// The sizes that [`reshape`] gives a graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape {
    /// Number of examples: axis 0 of the inputs.
    pub batch: Size,
    /// Number of positions: axis 1 of the token ids and of the inputs that go with them.
    pub seq: Size,
}

impl Reshape {
    /// Both sizes open.
    pub fn dynamic() -> Self {
        Self { batch: Size::Dynamic, seq: Size::Dynamic }
    }
}

/// Gives the graph the `wanted` sizes. The outputs must be set: what they do not need is dropped.
///
/// The report has a note for every constant that became a size, under the rule `batch`, `seq` or
/// `batch and seq`. A graph that cannot have the sizes is left as it was, and the error names
/// the node.
pub fn reshape(graph: &mut Graph, wanted: &Reshape) -> Result<Report> {
    let mut report = Report::default();
    if *wanted == Reshape::default() {
        return Ok(report);
    }
    if wanted.batch == Size::Known(0) || wanted.seq == Size::Known(0) {
        let name = graph.inputs.first().map(|port| port.name.clone()).unwrap_or_default();
        return Err(Error::Reshape { name, reason: "a size of 0 leaves nothing".to_owned() });
    }
    let Some(leader) = leader(graph)? else {
        return Err(Error::Reshape {
            name: graph.outputs.first().map(|port| port.name.clone()).unwrap_or_default(),
            reason: "no input that the outputs need has a batch and a length".to_owned(),
        });
    };
    let mut changed = graph.clone();
    let mut general = General::default();
    let mut numbers = Vec::new();
    // The length first: while the batch is a number, nothing else can be mistaken for it.
    for (axis, symbol, size) in [(1, Symbol::seq(), wanted.seq), (0, Symbol::batch(), wanted.batch)]
    {
        let Some(now) = dims(&changed, leader).and_then(|dims| dims.get(axis)).cloned() else {
            continue;
        };
        let baked = now.as_known();
        let same = match (size, baked) {
            (Size::Keep, _) | (Size::Dynamic, None) => true,
            (Size::Known(n), Some(old)) => n as i64 == old,
            _ => false,
        };
        if same {
            continue;
        }
        if let Some(baked) = baked {
            if general.changes.is_empty() {
                wait_for_nothing(&mut changed, &mut report)?;
            }
            general.generalise(&mut changed, leader, axis, &symbol, baked)?;
        }
        if let Size::Known(n) = size {
            numbers.push((now.as_symbol().cloned().unwrap_or(symbol), n));
        }
    }
    if !general.changes.is_empty() {
        general.verify(graph, &changed)?;
        let names = general.report(&mut report);
        put(&mut changed, &numbers, &mut report);
        fits(&changed)?;
        shorten(&mut changed, &names)?;
        changed.prune();
    } else {
        put(&mut changed, &numbers, &mut report);
        fits(&changed)?;
    }
    if !numbers.is_empty() {
        report.extend(fold(&mut changed)?);
    }
    debug_assert!(changed.check().is_ok(), "{:?}", changed.check());
    *graph = changed;
    Ok(report)
}

/// The extents of an input.
fn dims(graph: &Graph, id: NodeId) -> Option<&Vec<Dim>> {
    match &graph.node(id).op {
        Op::Input(Input { dims, .. }) | Op::InputWithDefault(Input { dims, .. }) => dims.as_ref(),
        _ => None,
    }
}

/// The input whose axes are the batch and the length: of those with two axes at least, the one
/// that most nodes are computed from. (Positions of masked words have two axes too, but only a
/// head reads them.)
fn leader(graph: &Graph) -> Result<Option<NodeId>> {
    let order = order(graph)?;
    let mut best = None;
    for port in &graph.inputs {
        let id = port.value.node;
        if dims(graph, id).is_none_or(|dims| dims.len() < 2) || !order.contains(&id) {
            continue;
        }
        let mut below = HashSet::from([id]);
        for &node in &order {
            if graph.node(node).inputs.iter().any(|value| below.contains(&value.node)) {
                below.insert(node);
            }
        }
        if best.is_none_or(|(most, _)| below.len() > most) {
            best = Some((below.len(), id));
        }
    }
    Ok(best.map(|(_, id)| id))
}

/// Drops control inputs from nodes that the outputs do not read: they are checks of the sizes that
/// were baked (TF1's BERT asserts that the length fits the position table).
fn wait_for_nothing(graph: &mut Graph, report: &mut Report) -> Result<()> {
    let needed: HashSet<NodeId> = order(graph)?.into_iter().collect();
    let mut dropped = HashSet::new();
    for &id in &needed {
        let node = graph.node_mut(id);
        dropped.extend(node.control.iter().filter(|before| !needed.contains(before)));
        node.control.retain(|before| needed.contains(before));
    }
    let mut dropped: Vec<NodeId> = dropped.into_iter().collect();
    dropped.sort();
    for id in dropped {
        let node = graph.node(id);
        let text = format!("{} is no longer waited for", node.op);
        report.did("check", node.name.clone(), text);
    }
    Ok(())
}

/// What was generalised so far.
#[derive(Default)]
struct General {
    maker: Maker,
    before: Sizes,
    changes: Vec<(Symbol, Change)>,
}

impl General {
    /// Makes a baked size a symbol.
    fn generalise(
        &mut self,
        graph: &mut Graph,
        leader: NodeId,
        axis: usize,
        symbol: &Symbol,
        baked: i64,
    ) -> Result<()> {
        let mut certain = vec![(leader, axis)];
        let mut possible = Vec::new();
        for port in &graph.inputs {
            let id = port.value.node;
            let same = dims(graph, id)
                .and_then(|dims| dims.get(axis))
                .is_some_and(|dim| dim.as_known() == Some(baked));
            if same && id != leader {
                // Every input lists the examples along its first axis; whether its second is
                // the length has to follow from how it is used.
                if axis == 0 { &mut certain } else { &mut possible }.push((id, axis));
            }
        }
        let before = self.before.clone();
        let question = Question { symbol: symbol.clone(), baked, before, certain, possible };
        let edits = prove(graph, &question)?;
        let changes = rewrite(graph, &edits, &mut self.maker)?;
        self.changes.extend(changes.into_iter().map(|change| (symbol.clone(), change)));
        self.before.insert(symbol.clone(), baked);
        Ok(())
    }

    /// Whether the new graph, at the sizes that were baked, has the shapes of the old one.
    fn verify(&self, old: &Graph, new: &Graph) -> Result<()> {
        let (was, is) = (infer(old)?, infer(new)?);
        for (id, node) in new.nodes() {
            let Some(before) = old.find(&node.name) else { continue };
            for port in 0..node.op.outputs().min(old.node(before).op.outputs()) {
                let port = port as u32;
                let a = known(&was, Value { node: before, port }, &self.before);
                let b = known(&is, Value { node: id, port }, &self.before);
                if let (Some(a), Some(b)) = (a, b)
                    && a != b
                {
                    let reason = format!("was {a:?} and would be {b:?} at the same sizes");
                    return Err(Error::Reshape { name: node.name.clone(), reason });
                }
            }
        }
        Ok(())
    }

    /// One note per constant, whichever sizes it became; gives the names of the nodes.
    fn report(self, report: &mut Report) -> Vec<String> {
        let mut notes: Vec<(&'static str, Change)> = Vec::new();
        for (symbol, change) in self.changes {
            let rule = if symbol == Symbol::batch() { "batch" } else { "seq" };
            let known = notes
                .iter_mut()
                .find(|(_, note)| note.node == change.node && note.what == change.what);
            match known {
                Some((rules, note)) => {
                    if *rules != rule {
                        *rules = "batch and seq";
                    }
                    note.after = change.after;
                    note.why = note.why.take().or(change.why);
                }
                None => notes.push((rule, change)),
            }
        }
        let names = notes.iter().map(|(_, note)| note.node.clone()).collect();
        for (rule, note) in notes {
            let why = note.why.map(|why| format!(", because of {why}")).unwrap_or_default();
            let text = format!("{} {} -> {}{why}", note.what, note.before, note.after);
            report.did(rule, note.node, text);
        }
        names
    }
}

/// The extents of a value at given sizes, if they follow.
fn known(facts: &Facts, value: Value, sizes: &Sizes) -> Option<Vec<i64>> {
    facts[value].dims.as_ref()?.iter().map(|dim| dim.at(sizes)).collect()
}

/// Puts numbers in place of open sizes of the inputs.
fn put(graph: &mut Graph, numbers: &[(Symbol, usize)], report: &mut Report) {
    let ports: Vec<Value> = graph.inputs.iter().map(|port| port.value).collect();
    for value in ports {
        let node = graph.node_mut(value.node);
        let (Op::Input(input) | Op::InputWithDefault(input)) = &mut node.op else { continue };
        let Some(dims) = &mut input.dims else { continue };
        let before = show(dims);
        for (symbol, n) in numbers {
            for dim in dims.iter_mut() {
                *dim = dim.with(symbol, &Dim::from(*n)).unwrap_or_else(|| dim.clone());
            }
        }
        let after = show(dims);
        if before != after {
            report.did("input", node.name.clone(), format!("shape {before} -> {after}"));
        }
    }
}

/// Whether all shapes go together, with an error that names the weight that is too small.
fn fits(graph: &Graph) -> Result<()> {
    let facts = match infer(graph) {
        Ok(facts) => facts,
        Err(Error::Shape { name, op, reason }) if op == "Slice" => {
            let table = graph.find(&name).map(|id| graph.node(origin(graph, id)));
            let rows = table.and_then(|table| match &table.op {
                Op::Variable(variable) => i64::try_from(*variable.shape.as_ref()?.first()?).ok(),
                op => i64::try_from(*op.as_const()?.shape().first()?).ok(),
            });
            let reason = format!("`{name}` wants more of it than there is: {reason}");
            let name = table.map_or(name, |table| table.name.clone());
            return Err(match rows {
                Some(rows) => Error::TableTooSmall { name, reason, rows },
                None => Error::Reshape { name, reason },
            });
        }
        Err(error) => return Err(error),
    };
    // Position numbers beyond the table that they are looked up in.
    for (id, node) in graph.nodes() {
        let Op::Gather(_) = node.op else { continue };
        let rows = facts[node.inputs[0]].known_dims().and_then(|dims| dims.first().copied());
        let Some(range) = range_above(graph, node.inputs[1]) else { continue };
        let limit = facts[graph.node(range).inputs[1]].known_elements();
        if let (Some(rows), Some([limit])) = (rows, limit.as_deref())
            && *limit > rows
        {
            return Err(Error::TableTooSmall {
                name: graph.node(origin(graph, id)).name.clone(),
                reason: format!("`{}` wants {limit} rows of it, there are {rows}", node.name),
                rows,
            });
        }
    }
    Ok(())
}

/// The weight that a node's first input comes from, through nodes that only hand it on.
fn origin(graph: &Graph, id: NodeId) -> NodeId {
    let mut at = id;
    while let Some(value) = graph.node(at).inputs.first() {
        at = value.node;
        if !matches!(graph.op(*value), Op::Unary(_) | Op::ReadVariable(_) | Op::Cast(_)) {
            break;
        }
    }
    at
}

/// The range that a value is, under another shape at most.
fn range_above(graph: &Graph, value: Value) -> Option<NodeId> {
    let mut at = value.node;
    loop {
        match graph.node(at).op {
            Op::Range => return Some(at),
            Op::Reshape | Op::ExpandDims | Op::Cast(_) | Op::Unary(_) | Op::BroadcastTo => {
                at = graph.node(at).inputs.first()?.node;
            }
            _ => return None,
        }
    }
}

/// Gives named inputs these shapes: symbols where an extent is to be open.
///
/// Where an input that has batch and length gets others, the whole graph does, as with
/// [`reshape`]; any other shape must fit the graph as it is.
pub fn set_shapes(graph: &mut Graph, shapes: &[(String, Vec<Dim>)]) -> Result<Report> {
    let mut given = Vec::with_capacity(shapes.len());
    for (name, new) in shapes {
        let value = match graph.inputs.iter().find(|port| port.name == *name) {
            Some(port) => port.value,
            None => graph.find_value(name)?,
        };
        if !graph.op(value).is_input() {
            let reason = "is computed by the graph; cut it there to feed it".to_owned();
            return Err(Error::Reshape { name: name.clone(), reason });
        }
        given.push((name, value.node, new));
    }
    let mut changed = graph.clone();
    let mut report = Report::default();
    if let Some(leader) = leader(graph)?
        && let Some((name, _, new)) = given.iter().find(|(_, id, _)| *id == leader)
    {
        let old = dims(graph, leader).cloned().unwrap_or_default();
        if new.len() != old.len() {
            return Err(Error::Reshape {
                name: (*name).clone(),
                reason: format!("has the shape {}, {} does not fit", show(&old), show(new)),
            });
        }
        let size = |axis: usize| match (old.get(axis), new.get(axis)) {
            (Some(old), Some(new)) if old == new => Ok(Size::Keep),
            (_, Some(new)) => match new.as_known() {
                None => Ok(Size::Dynamic),
                Some(n) => usize::try_from(n).map(Size::Known).map_err(|_| Error::Reshape {
                    name: (*name).clone(),
                    reason: format!("{n} is no extent"),
                }),
            },
            _ => Ok(Size::Keep),
        };
        let wanted = Reshape { batch: size(0)?, seq: size(1)? };
        report.extend(reshape(&mut changed, &wanted)?);
    }
    for (name, id, new) in given {
        let Some(id) = changed.find(&graph.node(id).name) else { continue };
        let old = dims(&changed, id).cloned();
        if old.as_ref() == Some(new) {
            continue;
        }
        let open = |dim: &Dim| dim.as_known().is_none();
        if let Some(old) = &old
            && old.len() == new.len()
            && old.iter().zip(new).all(|(old, new)| old == new || (open(old) && open(new)))
        {
            // Only another name for an open extent.
            continue;
        }
        if let Op::Input(input) | Op::InputWithDefault(input) = &mut changed.node_mut(id).op {
            input.dims = Some(new.clone());
        }
        let before = old.map_or("?".to_owned(), |dims| show(&dims));
        report.did("input", name.clone(), format!("shape {before} -> {}", show(new)));
    }
    fits(&changed)?;
    *graph = changed;
    Ok(report)
}
