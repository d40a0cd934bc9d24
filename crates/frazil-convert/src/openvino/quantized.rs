//! Bytes: numbers on steps as FakeQuantize, weights as bytes, Convert and Multiply. OpenVINO makes
//! products of bytes of these where it has kernels for them.

use frazil_graph::op::{Op, Scaled, Steps};
use frazil_graph::{NodeId, Value};
use frazil_tensor::{DType, Tensor};

use super::build::{Builder, Built, layer, refuse};
use super::import::Importer;
use super::net::Out;
use super::read::RawLayer;
use crate::Result;
use crate::range::Range;

impl Builder<'_> {
    pub(super) fn fake_quantize(&mut self, id: NodeId, steps: Steps) -> Built<()> {
        if let Steps::Watched { .. } = steps {
            return self.alias(id.into(), self.graph.node(id).inputs[0]);
        }
        let Some(Range { least, most, levels }) = Range::of(steps) else {
            return refuse("it has to be lowered first");
        };
        let x = self.wire(self.graph.node(id).inputs[0])?;
        let low = self.scalar(id, "low", DType::F32, least.into())?;
        let high = self.scalar(id, "high", DType::F32, most.into())?;
        let draft = layer("FakeQuantize", 1, [x, low, high, low, high]).with("levels", levels);
        self.finish(id, draft.broadcasting())
    }

    pub(super) fn scaled(&mut self, id: NodeId, axis: i64) -> Built<()> {
        let node = self.graph.node(id);
        let (bytes, scales) = (node.inputs[0], node.inputs[1]);
        let rank = self.rank(bytes)? as i64;
        let Some(factors) = self.graph.op(scales).as_const() else {
            return refuse("its scales are not constant");
        };
        // As many axes as the bytes have, like OpenVINO's own tools write it.
        let place = if axis < 0 { axis + rank } else { axis };
        let shape = (0..rank).map(|i| if i == place { factors.elements() } else { 1 });
        let shape: Vec<usize> = shape.collect();
        let factors = factors.bytes().and_then(|data| Tensor::new(DType::F32, shape, data.clone()));
        let Ok(factors) = factors else { return refuse("its scales are no list of float32") };
        let bytes = self.wire(bytes)?;
        let numbers = Out { dtype: DType::F32, ..self.wire_out(bytes) };
        let draft = layer("Convert", 1, [bytes]).with("destination_type", "f32");
        let numbers = self.step(id, "numbers", draft, numbers);
        let name = self.graph.value_name(scales);
        let factors = self.exact_constant(&name, &factors);
        self.finish(id, layer("Multiply", 1, [numbers, factors]).broadcasting())
    }
}

/// The four ends of a FakeQuantize: what it takes for, and what it gives in the place of, the first
/// and the last step.
struct Ends {
    input: [Vec<f32>; 2],
    output: [Vec<f32>; 2],
    /// The axis along which they differ, counted from the end, if they do.
    axis: Option<usize>,
}

impl Importer<'_> {
    /// `None` where FakeQuantize does something else than putting numbers on steps of bytes.
    pub(super) fn fake_quantize(
        &mut self,
        layer: &RawLayer,
        read: &[Value],
    ) -> Result<Option<Vec<Value>>> {
        let &[x, ref ends @ ..] = read else { return Ok(None) };
        let levels = self.number::<u32>(layer, "levels")?;
        let Some(ends) = self.ends(ends) else { return Ok(None) };
        if let Some(weight) = self.numbers(x) {
            let Some((op, bytes, scales)) = stored(&weight, &ends, levels)? else {
                return Ok(None);
            };
            let bytes = self.step(layer, "bytes", Op::constant(bytes), &[])?;
            let scales = self.step(layer, "scales", Op::constant(scales), &[])?;
            return Ok(Some(vec![self.node(layer, op, &[bytes, scales])?]));
        }
        let ([[least], [most]], true) =
            (ends.input.each_ref().map(Vec::as_slice), ends.input == ends.output)
        else {
            return Ok(None);
        };
        let Some(steps) = (Range { least: *least, most: *most, levels }).steps() else {
            return Ok(None);
        };
        Ok(Some(vec![self.node(layer, Op::FakeQuantize(steps), &[x])?]))
    }

    /// Lists of one length, along one axis.
    fn ends(&self, values: &[Value]) -> Option<Ends> {
        let tensors: Option<Vec<&Tensor>> =
            values.iter().map(|&value| self.graph.op(value).as_const()).collect();
        let tensors = tensors?;
        let axis = |tensor: &&Tensor| {
            let long: Vec<usize> =
                (0..tensor.shape().len()).filter(|&i| tensor.shape()[i] != 1).collect();
            match long.as_slice() {
                [] => Some(None),
                [one] => Some(Some(tensor.shape().len() - 1 - one)),
                _ => None,
            }
        };
        let axes: Option<Vec<Option<usize>>> = tensors.iter().map(axis).collect();
        let axes = axes?;
        let axis = axes.iter().flatten().next().copied();
        let count = tensors.iter().map(|tensor| tensor.elements()).max()?;
        if axes.iter().flatten().any(|other| Some(*other) != axis) {
            return None;
        }
        let list = |tensor: &Tensor| {
            let list = tensor.values::<f32>().ok()?.into_owned();
            match list.as_slice() {
                &[one] => Some(vec![one; count]),
                _ => (list.len() == count).then_some(list),
            }
        };
        let &[a, b, c, d] = tensors.as_slice() else { return None };
        Some(Ends { input: [list(a)?, list(b)?], output: [list(c)?, list(d)?], axis })
    }

    /// A constant of numbers, or of bytes that become numbers.
    fn numbers(&self, value: Value) -> Option<Tensor> {
        let node = self.graph.node(value.node);
        let constant = match (&node.op, node.inputs.first()) {
            (Op::Cast(cast), Some(&from)) if cast.to == DType::F32 => {
                self.graph.op(from).as_const()?
            }
            _ => node.op.as_const()?,
        };
        match constant.dtype() {
            DType::F32 => Some(constant.clone()),
            DType::I8 | DType::U8 => constant.cast(DType::F32).ok(),
            _ => None,
        }
    }
}

/// A weight on steps as bytes and scales, if 0 is a step and all others are signed bytes.
fn stored(weight: &Tensor, ends: &Ends, levels: u32) -> Result<Option<(Op, Tensor, Tensor)>> {
    let shape = weight.shape().clone();
    let Some(place) = shape.len().checked_sub(1 + ends.axis.unwrap_or(0)) else { return Ok(None) };
    let count = ends.input[0].len();
    if ![1, shape[place]].contains(&count) || !(2..=256).contains(&levels) {
        return Ok(None);
    }
    let top = (levels - 1) as f32;
    let grids = (0..count).map(|i| {
        let [[low, high], [least, most]] =
            [&ends.input, &ends.output].map(|ends| [ends[0][i], ends[1][i]]);
        let (scale, zero) = Range { least, most, levels }.scale_and_zero()?;
        (low < high).then_some((low, high, scale, zero))
    });
    let Some(grids) = grids.collect::<Option<Vec<_>>>() else { return Ok(None) };
    let stride: usize = shape[place + 1..].iter().product();
    let mut bytes = Vec::with_capacity(weight.elements());
    for (i, &x) in weight.values::<f32>()?.iter().enumerate() {
        let (low, high, _, zero) = grids[i / stride.max(1) % count];
        let step = ((x.clamp(low, high) - low) / (high - low) * top).round_ties_even();
        let byte = step - zero;
        if !(-128.0..=127.0).contains(&byte) {
            return Ok(None);
        }
        bytes.push(byte as i8);
    }
    let scales: Vec<f32> = grids.iter().map(|(_, _, scale, _)| *scale).collect();
    let op = Op::Scaled(Scaled { axis: if count == 1 { 0 } else { place as i64 } });
    Ok(Some((op, Tensor::from_vec(shape, bytes)?, Tensor::from_vec([count], scales)?)))
}
