//! Many elements that became one.

use frazil_graph::op::{Binary, Cast, Compare, Reduce, ReduceKind, ShapeOp, Unary};
use frazil_graph::{Op, Value};
use frazil_tensor::DType;

use super::{Backward, Grads};
use crate::Result;

/// Inputs: x, axes.
pub(super) fn reduce(b: &mut Backward<'_>, op: Reduce, dy: Value) -> Result<Grads> {
    let x = b.input(0);
    let dx = match op.kind {
        ReduceKind::Sum => {
            let wide = b.kept(op, dy)?;
            b.repeat(wide, x)?
        }
        ReduceKind::Mean => {
            let count = b.count()?;
            let share = b.binary("div", Binary::Div, dy, count)?;
            let wide = b.kept(op, share)?;
            b.repeat(wide, x)?
        }
        ReduceKind::Max | ReduceKind::Min => {
            // Equals share.
            let (y, dy) = (b.kept(op, b.output())?, b.kept(op, dy)?);
            let equal = b.push("equal", Op::Compare(Compare::Equal), vec![x, y])?;
            let to = b.facts[x].dtype.unwrap_or(DType::F32);
            let equal = b.push("cast", Op::Cast(Cast { to }), vec![equal])?;
            let axes = b.axes()?;
            let count = b.sum(equal, &axes, true)?;
            let share = b.binary("div", Binary::Div, dy, count)?;
            b.mul(equal, share)?
        }
        ReduceKind::Prod | ReduceKind::All | ReduceKind::Any => {
            return Err(b.refuse("it has no rule"));
        }
    };
    Ok(vec![Some(dx)])
}

/// `y · (dy - Σ y · dy)`
pub(super) fn softmax(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let y = b.output();
    let product = b.mul(y, dy)?;
    let sum = b.sum(product, &[-1], true)?;
    let rest = b.binary("sub", Binary::Sub, dy, sum)?;
    Ok(vec![Some(b.mul(y, rest)?)])
}

/// `dy - e^y · Σ dy`
pub(super) fn log_softmax(b: &mut Backward<'_>, dy: Value) -> Result<Grads> {
    let power = b.push("exp", Op::Unary(Unary::Exp), vec![b.output()])?;
    let sum = b.sum(dy, &[-1], true)?;
    let share = b.mul(power, sum)?;
    Ok(vec![Some(b.binary("sub", Binary::Sub, dy, share)?)])
}

impl Backward<'_> {
    pub(super) fn sum(&mut self, x: Value, axes: &[i64], keep_dims: bool) -> Result<Value> {
        let axes = self.list(axes)?;
        let op = Op::Reduce(Reduce { kind: ReduceKind::Sum, keep_dims });
        self.push("add_up", op, vec![x, axes])
    }

    /// The axes of the node, counted from the front, in order.
    fn axes(&mut self) -> Result<Vec<i64>> {
        let rank = self.rank(self.input(0))? as i64;
        let axes = self.facts[self.input(1)].known_elements();
        let mut axes = axes.ok_or_else(|| self.refuse("its axes are not constant"))?;
        axes.iter_mut().for_each(|axis| *axis += if *axis < 0 { rank } else { 0 });
        axes.sort_unstable();
        axes.dedup();
        Ok(axes)
    }

    /// A value under the extents of the node's output, with the axes that went as extents of 1.
    fn kept(&mut self, op: Reduce, x: Value) -> Result<Value> {
        if op.keep_dims {
            return Ok(x);
        }
        let mut wide = x;
        for axis in self.axes()? {
            let axis = self.int(axis as i32)?;
            wide = self.push("expand", Op::ExpandDims, vec![wide, axis])?;
        }
        Ok(wide)
    }

    /// A value repeated to the extents of `x`.
    fn repeat(&mut self, value: Value, x: Value) -> Result<Value> {
        let shape = self.shape_of(x)?;
        self.push("repeat", Op::BroadcastTo, vec![value, shape])
    }

    /// How many elements became one, as a number.
    fn count(&mut self) -> Result<Value> {
        let (x, y) = (self.input(0), self.output());
        let elements = |dims: Option<Vec<i64>>| dims.map(|dims| dims.iter().product::<i64>());
        let known = (elements(self.facts[x].known_dims()), elements(self.facts[y].known_dims()));
        if let (Some(all), Some(left)) = known {
            return self.number(x, all as f64 / left.max(1) as f64);
        }
        let axes = self.axes()?;
        let known = self.facts[x].dims.as_ref().and_then(|dims| {
            axes.iter().map(|&axis| dims[axis as usize].as_known()).product::<Option<i64>>()
        });
        if let Some(count) = known {
            return self.number(x, count as f64);
        }
        let size = || Op::Size(ShapeOp { to: DType::I32 });
        let to = self.facts[x].dtype.unwrap_or(DType::F32);
        let (all, left) =
            (self.push("size", size(), vec![x])?, self.push("size", size(), vec![y])?);
        let [all, left] = [
            self.push("cast", Op::Cast(Cast { to }), vec![all])?,
            self.push("cast", Op::Cast(Cast { to }), vec![left])?,
        ];
        self.binary("count", Binary::Div, all, left)
    }
}
