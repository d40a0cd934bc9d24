//! The rules of operations that move elements.

use super::super::axis::{Atom, Axis, axis_of, extent};
use super::super::open::{Answer, Origin, Slot};
use super::super::prove::Prover;
use super::index;
use crate::Dim;
use crate::op::{StridedSlice, Unpack};

/// TensorFlow's "to the end" where no mask says so.
const FAR: i64 = i32::MAX as i64;

impl Prover<'_> {
    fn input(&mut self, input: usize) -> Result<Vec<Axis>, String> {
        self.data(self.graph.node(self.node).inputs[input])
    }

    /// The same elements: the factors of all axes, in their order, laid out over the new ones.
    pub(super) fn reshape(&mut self) -> Result<Vec<Axis>, String> {
        let from = self.pass(self.graph.node(self.node).inputs[0])?;
        let target = self.list(1)?;
        let misfit = |prover: &Self| {
            let target = crate::dim::show(&target);
            Err(format!("{} cannot take the shape {target} for every size", prover.show(&from)))
        };
        let mut atoms = self.ledger.resolve(&from.concat());
        let extents = |prover: &mut Self, atoms: &[Atom]| -> Option<Vec<i128>> {
            let count = prover.witness.of(&extent(atoms)?)?;
            let mut sizes = Vec::with_capacity(target.len());
            let mut rest: i128 = 1;
            for dim in &target {
                let size = if dim.is(-1) { -1 } else { prover.witness.of(dim)? };
                rest = rest.checked_mul(size.max(1))?;
                sizes.push(size);
            }
            if count <= 0 || sizes.contains(&0) || (sizes.contains(&-1) && count % rest != 0) {
                return None;
            }
            Some(sizes.into_iter().map(|size| if size < 0 { count / rest } else { size }).collect())
        };
        let Some(sizes) = extents(self, &atoms) else { return misfit(self) };
        let mut layouts = self.witness.layouts(&atoms, &sizes);
        if layouts.is_empty() {
            // A number can be split, the size cannot: what has to be split is a number.
            let because = self.because("the reshape splits it");
            for open in self.ledger.opens_in(&atoms) {
                let mut without = self.ledger.clone();
                without.decide(open, Answer::Literal, &because);
                let plain = without.resolve(&atoms);
                let found = self.witness.layouts(&plain, &sizes);
                if !found.is_empty() {
                    (self.ledger, atoms, layouts) = (without, plain, found);
                    break;
                }
            }
        }
        if layouts.is_empty() {
            let rest = self.ledger.resolve(&atoms);
            let all: Vec<usize> = self.ledger.opens_in(&rest);
            let mut without = self.ledger.clone();
            let because = self.because("the reshape splits it");
            for open in all {
                without.decide(open, Answer::Literal, &because);
            }
            layouts = self.witness.layouts(&without.resolve(&atoms), &sizes);
            if layouts.is_empty() {
                return misfit(self);
            }
            self.ledger = without;
        }
        if layouts.len() > 1 {
            self.layouts.insert(self.node, layouts.len());
        }
        let choice = self.choices.get(&self.node).copied().unwrap_or(0);
        let axes = layouts.swap_remove(choice.min(layouts.len() - 1));
        let mut now = Vec::with_capacity(target.len());
        for (axis, before) in axes.iter().zip(&target) {
            let size = extent(&self.ledger.resolve(axis)).ok_or("beyond all bounds")?;
            now.push(if before.is(-1) { before.clone() } else { size });
        }
        self.set_operand(1, now)?;
        Ok(axes)
    }

    pub(super) fn expand_dims(&mut self) -> Result<Vec<Axis>, String> {
        let mut axes = self.pass(self.graph.node(self.node).inputs[0])?;
        let at = index(self.number(1)?, axes.len() + 1)?;
        axes.insert(at, Vec::new());
        Ok(axes)
    }

    pub(super) fn squeeze(&mut self, gone: &[i64]) -> Result<Vec<Axis>, String> {
        let axes = self.pass(self.graph.node(self.node).inputs[0])?;
        let mut dropped = vec![false; axes.len()];
        for &axis in gone {
            dropped[index(axis, axes.len())?] = true;
        }
        let mut left = Vec::new();
        for (axis, mut dropped) in axes.into_iter().zip(dropped) {
            let size = extent(&axis).and_then(|dim| self.witness.of(&dim));
            if gone.is_empty() {
                // It takes out what is 1, and a symbol may be.
                if extent(&axis).is_none_or(|dim| dim.as_known().is_none()) {
                    return Err("takes out all axes of extent 1, whichever they are".to_owned());
                }
                dropped = size == Some(1);
            }
            if !dropped {
                left.push(axis);
                continue;
            }
            self.agree(&axis, &[], "an axis that is taken out must be 1")?;
        }
        Ok(left)
    }

    pub(super) fn transpose(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.pass(self.graph.node(self.node).inputs[0])?;
        let order = self.numbers(1)?;
        order.iter().map(|&axis| Ok(axes[index(axis, axes.len())?].clone())).collect()
    }

    pub(super) fn concat(&mut self) -> Result<Vec<Axis>, String> {
        let graph = self.graph;
        let inputs = graph.node(self.node).inputs.as_slice();
        let parts = inputs.len() - 1;
        let mut result = self.input(0)?;
        let at = index(self.number(parts)?, result.len())?;
        let mut sum = extent(&result[at]);
        for part in 1..parts {
            let other = self.input(part)?;
            if other.len() != result.len() {
                return Err("parts have different numbers of axes".to_owned());
            }
            for (i, axis) in other.iter().enumerate() {
                if i != at {
                    result[i] = self.agree(&result[i], axis, "joined parts must agree")?;
                }
            }
            sum = sum.zip(extent(&other[at])).and_then(|(a, b)| a.plus(&b));
        }
        if parts > 1 {
            for part in 0..parts {
                let axis = self.input(part)?[at].clone();
                self.whole(&axis)?;
            }
            let sum = sum.ok_or("an extent is beyond all bounds")?;
            result[at] = axis_of(&self.ledger.resolve_dim(&sum));
        }
        Ok(result)
    }

    /// An axis that must not run over the examples, because parts of it are named by number.
    fn whole(&mut self, axis: &[Atom]) -> Result<(), String> {
        if !self.stacked {
            return Ok(());
        }
        if self.varies(axis) {
            return Err("parts of the axis of examples are named by number".to_owned());
        }
        let because = self.because("its parts are named by number");
        for open in self.ledger.opens_in(axis) {
            self.ledger.decide(open, Answer::Literal, &because);
        }
        Ok(())
    }

    pub(super) fn pack(&mut self, axis: i64) -> Result<Vec<Axis>, String> {
        let count = self.graph.node(self.node).inputs.len();
        let mut result = self.input(0)?;
        for part in 1..count {
            let other = self.input(part)?;
            if other.len() != result.len() {
                return Err("parts have different numbers of axes".to_owned());
            }
            for (a, b) in result.iter_mut().zip(&other) {
                *a = self.agree(a, b, "stacked parts must agree")?;
            }
        }
        let at = index(axis, result.len() + 1)?;
        result.insert(at, axis_of(&Dim::from(count)));
        Ok(result)
    }

    pub(super) fn unpack(&mut self, op: Unpack) -> Result<Vec<Vec<Axis>>, String> {
        let mut axes = self.input(0)?;
        let at = index(op.axis, axes.len())?;
        let gone = axes.remove(at);
        self.agree(&gone, &axis_of(&Dim::from(op.count)), "there is one part per index")?;
        Ok(vec![axes; op.count])
    }

    pub(super) fn split(&mut self, count: usize) -> Result<Vec<Vec<Axis>>, String> {
        let mut axes = self.input(1)?;
        let at = index(self.number(0)?, axes.len())?;
        let axis = axes[at].clone();
        self.whole(&axis)?;
        let part = extent(&axis).and_then(|dim| dim.over(&Dim::from(count)));
        let part = part.ok_or("does not split evenly for every size")?;
        axes[at] = axis_of(&part);
        Ok(vec![axes; count])
    }

    pub(super) fn split_v(&mut self, count: usize) -> Result<Vec<Vec<Axis>>, String> {
        let axes = self.input(0)?;
        let at = index(self.number(2)?, axes.len())?;
        let axis = axes[at].clone();
        self.whole(&axis)?;
        let sizes = self.list(1)?;
        if sizes.len() != count {
            return Err(format!("{} sizes for {count} parts", sizes.len()));
        }
        let mut rest = extent(&axis);
        for size in sizes.iter().filter(|size| !size.is(-1)) {
            rest = rest.and_then(|rest| rest.minus(size));
        }
        let open = sizes.iter().any(|size| size.is(-1));
        let rest = rest.ok_or("an extent is beyond all bounds")?;
        if !open && !rest.is(0) {
            return Err("the parts do not make up the whole for every size".to_owned());
        }
        let part = |size: &Dim| {
            let mut axes = axes.clone();
            axes[at] = axis_of(if size.is(-1) { &rest } else { size });
            axes
        };
        Ok(sizes.iter().map(part).collect())
    }

    pub(super) fn slice(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.input(0)?;
        let (begin, sizes) = (self.list(1)?, self.list(2)?);
        if begin.len() != axes.len() || sizes.len() != axes.len() {
            return Err(format!("{} sizes for {} axes", sizes.len(), axes.len()));
        }
        let mut window = Vec::with_capacity(axes.len());
        let mut now = sizes.clone();
        for (i, axis) in axes.iter().enumerate() {
            let (start, size) = (&begin[i], &sizes[i]);
            let all = extent(axis).ok_or("an extent is beyond all bounds")?;
            // As many as the axis has may still be as many as the size says.
            let counted = self.is_fixed(axis) && all.as_known().is_some();
            if start.is(0) && (size.is(-1) || (*size == all && !counted)) {
                window.push(axis.clone());
            } else if start.is(0) && !self.is_fixed(axis) && self.as_baked(&all) == size.as_known()
            {
                // All of it: fewer would be outside where the size is smaller.
                now[i] = all;
                window.push(axis.clone());
            } else if self.is_fixed(axis) && !size.is(-1) {
                let origin = Origin { node: self.node, slot: Slot::Operand(2, i) };
                let open = self.open_axis(size, origin);
                now[i] = extent(&self.ledger.resolve(&open)).ok_or("beyond all bounds")?;
                window.push(open);
            } else {
                self.whole(axis)?;
                let end = start.plus(size).and_then(|end| end.as_known());
                if !self.is_fixed(axis) && !size.is(-1) && end == self.as_baked(&all) {
                    return Err(format!(
                        "whether {size} from {start} on means the last ones cannot be told"
                    ));
                }
                let left = if size.is(-1) { all.minus(start) } else { Some(size.clone()) };
                window.push(axis_of(&left.ok_or("an extent is beyond all bounds")?));
            }
        }
        self.set_operand(2, now)?;
        Ok(window)
    }

    /// What an extent was before.
    fn as_baked(&mut self, dim: &Dim) -> Option<i64> {
        self.witness.of(dim).and_then(|size| i64::try_from(size).ok())
    }

    pub(super) fn strided_slice(&mut self, op: StridedSlice) -> Result<Vec<Axis>, String> {
        let axes = self.input(0)?;
        let (begin, end, strides) = (self.list(1)?, self.list(2)?, self.numbers(3)?);
        let entries = strides.len();
        if begin.len() != entries || end.len() != entries || entries > 32 {
            return Err("begin, end and strides have different lengths".to_owned());
        }
        let bit = |mask: u32, i: usize| mask >> i & 1 == 1;
        let named = (0..entries).filter(|&i| !bit(op.new_axis_mask | op.ellipsis_mask, i)).count();
        let unnamed = axes.len().checked_sub(named).ok_or("more entries than axes")?;
        let mut now = end.clone();
        let mut window = Vec::new();
        let mut at = 0;
        for i in 0..entries {
            if bit(op.ellipsis_mask, i) {
                window.extend_from_slice(&axes[at..at + unnamed]);
                at += unnamed;
            } else if bit(op.new_axis_mask, i) {
                window.push(Vec::new());
            } else if bit(op.shrink_axis_mask, i) {
                self.pick(&axes[at], &begin[i])?;
                at += 1;
            } else {
                let cut = Cut {
                    entry: i,
                    begin: (!bit(op.begin_mask, i)).then(|| begin[i].clone()),
                    end: (!bit(op.end_mask, i)).then(|| end[i].clone()),
                    stride: strides[i],
                };
                let (axis, to) = self.stride(&axes[at], &cut)?;
                window.push(axis);
                if let Some(to) = to {
                    now[i] = to;
                }
                at += 1;
            }
        }
        window.extend_from_slice(&axes[at..]);
        self.set_operand(2, now)?;
        Ok(window)
    }

    /// One index of an axis, which goes.
    fn pick(&mut self, axis: &[Atom], at: &Dim) -> Result<(), String> {
        self.whole(axis)?;
        let last = extent(axis).and_then(|all| self.as_baked(&all)).map(|n| n - 1);
        if self.varies(axis) && at.as_known() == last && !at.is(0) {
            return Err(format!("whether index {at} means the last one cannot be told"));
        }
        Ok(())
    }

    /// A run of an axis, with the end that it needs if that is another.
    fn stride(&mut self, axis: &[Atom], cut: &Cut) -> Result<(Axis, Option<Dim>), String> {
        let all = extent(axis).ok_or("an extent is beyond all bounds")?;
        let from_start = cut.begin.as_ref().is_none_or(|begin| begin.is(0));
        let fixed = self.is_fixed(axis);
        let baked = self.as_baked(&all);
        // As many as the axis has may still be as many as the size says.
        let counted = fixed && all.as_known().is_some();
        let to_end = match &cut.end {
            None => true,
            Some(end) if end.is(FAR) => true,
            Some(_) if counted && from_start && cut.stride == 1 => false,
            Some(end) => {
                *end == all || (!fixed && end.as_known().is_some_and(|n| Some(n) == baked))
            }
        };
        let moved = cut.end.as_ref().filter(|end| to_end && !end.is(FAR) && **end != all);
        let moved = moved.map(|_| all.clone());
        if from_start && to_end && cut.stride == 1 {
            return Ok((axis.to_vec(), moved));
        }
        self.whole(axis)?;
        if cut.stride != 1 {
            if !fixed || all.as_known().is_none() {
                return Err(format!("steps of {} over {all}", cut.stride));
            }
            return Ok((axis_of(&Dim::known(cut.count(baked.unwrap_or(0))?)), None));
        }
        let beyond = "an extent is beyond all bounds";
        let begin = cut.begin.clone().unwrap_or(Dim::known(0));
        let start = match begin.as_known() {
            Some(n) if n < 0 => all.plus(&begin).ok_or(beyond)?,
            _ => begin,
        };
        if to_end {
            return Ok((axis_of(&all.minus(&start).ok_or(beyond)?), moved));
        }
        let end = cut.end.clone().unwrap_or(all.clone());
        if end.as_known().is_some_and(|n| n < 0) {
            let stop = all.plus(&end).ok_or(beyond)?;
            return Ok((axis_of(&stop.minus(&start).ok_or(beyond)?), None));
        }
        if start.is(0) && fixed {
            // The first rows of a table: as many as there are, or as the size says.
            let capped = match (end.as_known(), all.as_known()) {
                (Some(end), Some(all)) => Dim::known(end.min(all)),
                _ => end.clone(),
            };
            let origin = Origin { node: self.node, slot: Slot::Operand(2, cut.entry) };
            let open = self.open_axis(&capped, origin);
            let to = extent(&self.ledger.resolve(&open)).ok_or(beyond)?;
            return Ok((open, (to != capped).then_some(to)));
        }
        Ok((axis_of(&end.minus(&start).ok_or(beyond)?), None))
    }

    pub(super) fn one_hot(&mut self, axis: i64) -> Result<Vec<Axis>, String> {
        let mut axes = self.input(0)?;
        let depth = self.extents(1)?;
        let [depth] = depth.as_slice() else { return Err("the depth is no number".to_owned()) };
        // One example's row would be 1 where another's is 0.
        self.whole(depth)?;
        let at = index(axis, axes.len() + 1)?;
        axes.insert(at, depth.clone());
        Ok(axes)
    }

    pub(super) fn range(&mut self) -> Result<Vec<Axis>, String> {
        let (start, step) = (self.list(0)?, self.list(2)?);
        if matches!((start.as_slice(), step.as_slice()), ([s], [d]) if s.is(0) && d.is(1)) {
            return self.extents(1);
        }
        let limit = self.list(1)?;
        let count = limit
            .first()
            .zip(start.first())
            .and_then(|(limit, start)| limit.minus(start)?.over(step.first()?));
        let count = count.ok_or("how far it runs does not follow for every size")?;
        let axis = axis_of(&count);
        self.whole(&axis)?;
        Ok(vec![axis])
    }

    pub(super) fn tile(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.input(0)?;
        let times = self.extents(1)?;
        if times.len() != axes.len() {
            return Err(format!("{} multiples for {} axes", times.len(), axes.len()));
        }
        let mut tiled = Vec::with_capacity(axes.len());
        for (axis, times) in axes.iter().zip(&times) {
            let times = self.ledger.resolve(times);
            if self.varies(axis) {
                let because = self.because("what is there per example is not repeated");
                for open in self.ledger.opens_in(&times) {
                    self.ledger.decide(open, Answer::Literal, &because);
                }
            }
            tiled.push(self.ledger.resolve(&[times, axis.clone()].concat()));
        }
        Ok(tiled)
    }

    pub(super) fn broadcast_to(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.input(0)?;
        let mut target = self.extents(1)?;
        let missing = target.len().checked_sub(axes.len()).ok_or("fewer axes than before")?;
        for (i, axis) in axes.iter().enumerate() {
            if axis.is_empty() {
                continue;
            }
            let why = "an axis is broadcast from 1 or stays";
            if self.ledger.opens_in(axis).is_empty() || self.question.baked > 1 {
                target[missing + i] = self.agree(&target[missing + i], axis, why)?;
            } else {
                let because = self.because(why);
                let pair = (target[missing + i].clone(), axis.clone());
                let joined = self.ledger.broadcast(&pair.0, &pair.1, &because);
                target[missing + i] = joined.ok_or(why)?;
            }
        }
        Ok(target)
    }

    pub(super) fn pad(&mut self) -> Result<Vec<Axis>, String> {
        let axes = self.input(0)?;
        let edges = self.numbers(1)?;
        if edges.len() != 2 * axes.len() {
            return Err(format!("{} paddings for {} axes", edges.len(), axes.len()));
        }
        let mut padded = Vec::with_capacity(axes.len());
        for (axis, edge) in axes.iter().zip(edges.chunks(2)) {
            if edge == [0, 0] {
                padded.push(axis.clone());
                continue;
            }
            self.whole(axis)?;
            let sum = extent(axis)
                .and_then(|dim| dim.plus(&Dim::known(edge[0])))
                .and_then(|dim| dim.plus(&Dim::known(edge[1])));
            padded.push(axis_of(&sum.ok_or("an extent is beyond all bounds")?));
        }
        Ok(padded)
    }
}

/// One entry of a strided slice; `None` where a mask says to ignore the bound.
struct Cut {
    entry: usize,
    begin: Option<Dim>,
    end: Option<Dim>,
    stride: i64,
}

impl Cut {
    /// How many indices it takes of `extent`.
    fn count(&self, extent: i64) -> Result<i64, String> {
        let stride = self.stride;
        let (low, high) = if stride > 0 { (0, extent) } else { (-1, extent - 1) };
        let bound = |bound: &Option<Dim>, default: i64| -> Result<i64, String> {
            match bound {
                None => Ok(default),
                Some(dim) => {
                    let n = dim.as_known().ok_or("a bound is not constant")?;
                    Ok((if n < 0 { n.saturating_add(extent) } else { n }).clamp(low, high))
                }
            }
        };
        let (first, last) = if stride > 0 { (low, high) } else { (high, low) };
        let span = bound(&self.end, last)?
            .checked_sub(bound(&self.begin, first)?)
            .ok_or("an extent is beyond all bounds")?;
        let steps = span.checked_div(stride).ok_or("the stride is 0")?;
        if span == 0 || (span > 0) != (stride > 0) {
            return Ok(0);
        }
        Ok(steps + i64::from(span % stride != 0))
    }
}
