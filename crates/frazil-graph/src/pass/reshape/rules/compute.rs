//! The rules of operations that calculate.

use super::super::axis::{Atom, Axis, extent, has};
use super::super::open::{Answer, Origin, Slot};
use super::super::prove::{Edit, Prover, Ramp, StrideAt};
use super::index;
use crate::op::{Binary, MatMul, Op, Unary};
use crate::{Dim, Value};

/// Why a value that counts examples cannot be used.
pub(super) const NUMBERED: &str = "the number of an example in its batch enters the result";

impl Prover<'_> {
    /// Broadcasts two shapes.
    fn broadcast(&mut self, a: &[Axis], b: &[Axis]) -> Result<Vec<Axis>, String> {
        let rank = a.len().max(b.len());
        let at = |axes: &[Axis], i: usize| -> Axis {
            (i + axes.len()).checked_sub(rank).map(|i| axes[i].clone()).unwrap_or_default()
        };
        let because = self.because("operands must broadcast");
        let mut result = Vec::with_capacity(rank);
        for i in 0..rank {
            match self.ledger.broadcast(&at(a, i), &at(b, i), &because) {
                Some(axis) => result.push(axis),
                None => {
                    let (a, b) = (self.show(a), self.show(b));
                    return Err(format!("{a} and {b} do not broadcast for every size"));
                }
            }
        }
        Ok(result)
    }

    pub(super) fn elementwise(&mut self) -> Result<Vec<Axis>, String> {
        let graph = self.graph;
        let node = graph.node(self.node);
        // The number of an example may be scaled and added to: offsets are made like that.
        let offsets = matches!(node.op, Op::Binary(Binary::Add | Binary::Mul));
        let mut result: Vec<Axis> = Vec::new();
        for &value in &node.inputs {
            let axes = if offsets { self.pass(value)? } else { self.data(value)? };
            result = self.broadcast(&result, &axes)?;
        }
        Ok(result)
    }

    /// The ramp that the node at hand hands on or makes.
    ///
    /// Where examples have to stay by themselves, an operation that neither hands it on nor picks
    /// rows by it is an error: the number of an example would enter its result.
    pub(super) fn ramp(&mut self) -> Result<Option<Ramp>, String> {
        let made = self.handed_on();
        let graph = self.graph;
        let node = graph.node(self.node);
        let picks = |input: usize| matches!(node.op, Op::Gather(_)) && input == 1;
        let asks = matches!(node.op, Op::Shape(_) | Op::Size(_) | Op::Rank);
        if self.stacked && made.is_none() && !asks {
            for (input, value) in node.inputs.iter().enumerate() {
                let ramp = &self.seen[value.node.index()][value.port as usize].ramp;
                if ramp.as_ref().is_some_and(|ramp| self.varies(&ramp.count)) && !picks(input) {
                    return Err(NUMBERED.to_owned());
                }
            }
        }
        Ok(made)
    }

    fn handed_on(&mut self) -> Option<Ramp> {
        let graph = self.graph;
        let node = graph.node(self.node);
        let of = |prover: &Self, input: usize| {
            let value = node.inputs[input];
            prover.seen[value.node.index()][value.port as usize].ramp.clone()
        };
        match &node.op {
            Op::Reshape
            | Op::ExpandDims
            | Op::Squeeze(_)
            | Op::Transpose
            | Op::Cast(_)
            | Op::Unary(Unary::Identity | Unary::StopGradient) => of(self, 0),
            Op::Range => {
                let lists: Vec<Option<Vec<Dim>>> = (0..3).map(|i| self.list(i).ok()).collect();
                match (lists[0].as_deref(), lists[1].as_deref(), lists[2].as_deref()) {
                    (Some([start]), Some([limit]), Some([step])) if start.is(0) && step.is(1) => {
                        let origin = Origin { node: self.node, slot: Slot::Operand(1, 0) };
                        let count = self.open_axis(limit, origin);
                        Some(Ramp {
                            count,
                            stride: Dim::known(1),
                            at: StrideAt::Step,
                            added: false,
                        })
                    }
                    _ => None,
                }
            }
            Op::Binary(Binary::Mul) => {
                let scaled = |(from, by): (usize, usize)| {
                    // What was added to offsets must not be scaled with them.
                    let ramp = of(self, from).filter(|ramp| !ramp.added)?;
                    let factor = match self.fact(node.inputs[by]).elements.as_deref() {
                        Some([factor]) => factor.clone(),
                        _ => return None,
                    };
                    let at = match ramp.at {
                        StrideAt::Step if ramp.stride.is(1) => StrideAt::Operand(self.node, by),
                        at => at,
                    };
                    Some(Ramp { stride: ramp.stride.times(&factor)?, at, ..ramp })
                };
                [(0, 1), (1, 0)].into_iter().find_map(scaled)
            }
            Op::Binary(Binary::Add) => match (of(self, 0), of(self, 1)) {
                (Some(ramp), None) | (None, Some(ramp)) => Some(Ramp { added: true, ..ramp }),
                _ => None,
            },
            _ => None,
        }
    }

    pub(super) fn bias_add(&mut self) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let (mut x, bias) = (self.data(inputs[0])?, self.data(inputs[1])?);
        let (Some(last), [bias]) = (x.last_mut(), bias.as_slice()) else {
            return Err("x has no axes, or the bias is no list".to_owned());
        };
        *last = self.agree(last, bias, "the bias must fit the last axis")?;
        Ok(x)
    }

    pub(super) fn matmul(&mut self, op: MatMul) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let (a, b) = (self.data(inputs[0])?, self.data(inputs[1])?);
        let ends = |axes: &[Axis], swapped: bool| match axes {
            [rest @ .., rows, columns] if swapped => {
                Some((rest.to_vec(), columns.clone(), rows.clone()))
            }
            [rest @ .., rows, columns] => Some((rest.to_vec(), rows.clone(), columns.clone())),
            _ => None,
        };
        // a: [.., m, k]  b: [.., k, n]
        let (Some((outer_a, m, k)), Some((outer_b, l, n))) =
            (ends(&a, op.transpose_a), ends(&b, op.transpose_b))
        else {
            return Err("an operand is no matrix".to_owned());
        };
        let inner = self.agree(&k, &l, "the inner extents of a product must agree")?;
        self.contract(&inner)?;
        let mut axes = self.broadcast(&outer_a, &outer_b)?;
        axes.extend([m, n]);
        Ok(axes)
    }

    pub(super) fn reduce(&mut self, keep_dims: bool) -> Result<Vec<Axis>, String> {
        let axes = self.data(self.graph.node(self.node).inputs[0])?;
        let mut reduced = vec![false; axes.len()];
        for axis in self.numbers(1)? {
            reduced[index(axis, axes.len())?] = true;
        }
        let mut left = Vec::with_capacity(axes.len());
        for (axis, reduced) in axes.into_iter().zip(reduced) {
            if !reduced {
                left.push(axis);
                continue;
            }
            self.contract(&axis)?;
            if keep_dims {
                left.push(Vec::new());
            }
        }
        Ok(left)
    }

    pub(super) fn over_last(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.data(self.graph.node(self.node).inputs[0])?;
        if let Some(last) = axes.last() {
            self.contract(last)?;
        }
        Ok(axes)
    }

    pub(super) fn layer_norm(&mut self) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let axes = self.over_last()?;
        for &weight in &inputs[1..] {
            let weight = self.data(weight)?;
            if let (Some(last), [weight]) = (axes.last(), weight.as_slice()) {
                self.agree(last, weight, "gamma and beta must fit the last axis")?;
            }
        }
        Ok(axes)
    }

    pub(super) fn linear(&mut self, transpose_w: bool) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let mut x = self.data(inputs[0])?;
        let (w, bias) = (self.data(inputs[1])?, self.data(inputs[2])?);
        let (Some(last), [rows, columns], [bias]) = (x.pop(), w.as_slice(), bias.as_slice()) else {
            return Err("x, weight and bias do not fit".to_owned());
        };
        // x: [.., k]  w: [k, n]
        let (k, n) = if transpose_w { (columns, rows) } else { (rows, columns) };
        let inner = self.agree(&last, k, "the inner extents of a product must agree")?;
        self.contract(&inner)?;
        x.push(self.agree(n, bias, "the bias must fit the columns")?);
        Ok(x)
    }

    /// Bytes with a scale for each place of an axis, or one for all.
    pub(super) fn scaled(&mut self, axis: i64) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let (mut x, scales) = (self.data(inputs[0])?, self.data(inputs[1])?);
        let place = index(axis, x.len())?;
        let [scales] = scales.as_slice() else { return Err("the scales are no list".to_owned()) };
        let because = self.because("a scale for each place of the axis");
        let Some(fit) = self.ledger.broadcast(&x[place], scales, &because) else {
            return Err("the scales do not fit their axis for every size".to_owned());
        };
        x[place] = fit;
        Ok(x)
    }

    pub(super) fn embed(&mut self) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let (mut ids, segments) = (self.data(inputs[0])?, self.data(inputs[1])?);
        for (a, b) in ids.iter_mut().zip(&segments) {
            *a = self.agree(a, b, "ids and segments must have one shape")?;
        }
        let words = self.data(inputs[2])?;
        ids.push(words.last().cloned().unwrap_or_default());
        Ok(ids)
    }

    pub(super) fn attention(&mut self) -> Result<Vec<Axis>, String> {
        let inputs = self.graph.node(self.node).inputs.as_slice();
        let mask = self.data(inputs[3])?;
        let rows: Axis = mask.concat();
        let mut shapes = Vec::with_capacity(3);
        for &value in &inputs[..3] {
            let mut axes = self.data(value)?;
            if let Some(first) = axes.first_mut() {
                *first = self.agree(first, &rows, "there is a row for each entry of the mask")?;
            }
            shapes.push(axes);
        }
        Ok(shapes.swap_remove(2))
    }

    pub(super) fn gather(&mut self, batch_dims: usize) -> Result<Vec<Axis>, String> {
        let graph = self.graph;
        let inputs = graph.node(self.node).inputs.as_slice();
        let table = self.data(inputs[0])?;
        let picks = self.pass(inputs[1])?;
        let at = index(self.number(2)?, table.len())?;
        if batch_dims > at || batch_dims > picks.len() {
            return Err(format!("{batch_dims} batch axes do not fit axis {at}"));
        }
        let mut axes = Vec::new();
        for (a, b) in table[..batch_dims].iter().zip(&picks) {
            axes.push(self.agree(a, b, "batch axes must agree")?);
        }
        let rows = self.ledger.resolve(&table[at]);
        let because = self.because("picked from");
        for open in self.ledger.of_weight(&rows) {
            self.ledger.decide(open, Answer::Literal, &because);
        }
        self.offsets(&rows, inputs[1])?;
        axes.extend_from_slice(&table[batch_dims..at]);
        axes.extend_from_slice(&picks[batch_dims..]);
        axes.extend_from_slice(&table[at + 1..]);
        Ok(axes)
    }

    /// Indices into flattened rows must step over as many rows as there are per part, for every
    /// size: `example * seq + position`.
    fn offsets(&mut self, rows: &[Atom], picks: Value) -> Result<(), String> {
        let size = Atom::Symbol(self.question.symbol.clone());
        let ramp = self.seen[picks.node.index()][picks.port as usize].ramp.clone();
        let Some(place) = rows.iter().position(|atom| *atom == size) else {
            if has(rows, &self.question.symbol) {
                return Err("picks from rows whose number is a sum".to_owned());
            }
            // Not a table of parts: the number of an example has no meaning here.
            return self.data(picks).map(|_| ());
        };
        let (outer, inner) =
            if self.stacked { rows.split_at(place + 1) } else { rows.split_at(place) };
        let lone = outer.is_empty();
        let Some(ramp) = ramp else {
            if lone && !self.stacked {
                return Ok(());
            }
            let rows = self.show(&[rows.to_vec()]);
            return Err(format!(
                "picks from the rows {rows}, and the indices do not say of which example"
            ));
        };
        let wanted = extent(inner).ok_or("an extent is beyond all bounds")?;
        if lone {
            // One part: its offset is 0, whatever the step. It is still written as the size, so
            // that more parts may follow.
            let stride = self.ledger.resolve_dim(&ramp.stride);
            if stride.is(self.question.baked) && ramp.count.is_empty() {
                self.set_stride(&ramp, &wanted)?;
            }
            return Ok(());
        }
        self.agree(&ramp.count, outer, "there is one offset per part of the rows")?;
        let stride = self.ledger.resolve_dim(&ramp.stride);
        if stride == wanted {
            return Ok(());
        }
        let mut sizes = self.question.before.clone();
        sizes.insert(self.question.symbol.clone(), self.question.baked);
        if stride.as_known().is_some() && wanted.at(&sizes) == stride.as_known() {
            return self.set_stride(&ramp, &wanted);
        }
        Err(format!("the indices step by {stride}, but each part has {wanted} rows"))
    }

    fn set_stride(&mut self, ramp: &Ramp, wanted: &Dim) -> Result<(), String> {
        match ramp.at {
            StrideAt::Operand(node, input) => {
                let elements = vec![wanted.clone()];
                self.edits.push(Edit::Operand { node, input, elements });
            }
            StrideAt::Const(node) => {
                let axes = self.seen_axes(node.into())?;
                let dims: Option<Vec<Dim>> = axes.iter().map(|axis| extent(axis)).collect();
                let dims = dims.ok_or("an extent is beyond all bounds")?;
                let made = |edit: &Edit| matches!(edit, Edit::Const { node: n, .. } if *n == node);
                self.edits.retain(|edit| !made(edit));
                self.edits.push(Edit::Const { node, dims, step: Some(wanted.clone()) });
            }
            StrideAt::Step => return Err("the indices step by 1".to_owned()),
        }
        Ok(())
    }
}
