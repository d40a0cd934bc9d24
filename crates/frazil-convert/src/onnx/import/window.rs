//! ONNX's `Slice` as a strided slice with masks.

use frazil_graph::Value;
use frazil_graph::op::{Op, StridedSlice};
use frazil_tensor::DType;

use super::importer::{Call, Importer};
use super::movement::MOST_AXES;
use super::{Outcome, Problem};

/// One bound of a window along one axis.
#[derive(Clone, Copy)]
enum Bound {
    /// As far as it goes.
    Open,
    Known(i64),
    /// Element of a list that is computed; of its only one without a place.
    Computed(Value, Option<usize>),
}

/// Starts, ends, axes and steps: attributes before opset 10, then inputs.
pub(super) fn slice(i: &mut Importer, call: &Call<'_>) -> Outcome {
    let x = call.input(0)?;
    let list = |i: &Importer, name: &str, place: usize| match call.ints(name) {
        Some(list) => Some(Source::Known(list)),
        None => call.optional(place).map(|value| match i.ints(value) {
            Some(list) => Source::Known(list),
            None => Source::Computed(value),
        }),
    };
    let (Some(starts), Some(ends)) = (list(i, "starts", 1), list(i, "ends", 2)) else {
        return Err("it has no bounds".into());
    };
    let known = |source: Option<Source>, what: &str| match source {
        Some(Source::Known(list)) => Ok(Some(list)),
        Some(Source::Computed(_)) => Err(Problem::from(format!("its {what} must be constant"))),
        None => Ok(None),
    };
    let count = starts.len().or(ends.len());
    let axes = match (known(list(i, "axes", 3), "axes")?, count) {
        (Some(axes), _) => axes,
        (None, Some(count)) => (0..count as i64).collect(),
        (None, None) => return Err("bounds whose number is not known".into()),
    };
    let steps = known(list(i, "steps", 4), "steps")?.unwrap_or_else(|| vec![1; axes.len()]);
    let fits = |len: Option<usize>| len.is_none_or(|len| len == axes.len());
    if steps.len() != axes.len() || !fits(starts.len()) || !fits(ends.len()) || axes.is_empty() {
        return Err("bounds, axes and steps of different number".into());
    }
    if steps.contains(&0) {
        return Err("a step of 0".into());
    }
    let places = places(&axes)?;
    let mut op = StridedSlice::default();
    let count = places.count;
    let mut begin = vec![Bound::Open; count];
    let mut end = vec![Bound::Open; count];
    let mut strides = vec![1; count];
    for (entry, &place) in places.of_entry.iter().enumerate() {
        begin[place] = starts.bound(entry, axes.len());
        end[place] = ends.bound(entry, axes.len());
        strides[place] = steps[entry];
        // The way to say "to the end", whatever the extent.
        let far = if steps[entry] > 0 { i64::from(i32::MAX) } else { i64::from(i32::MIN) };
        if let Bound::Known(stop) = end[place]
            && (if far > 0 { stop >= far } else { stop <= far })
        {
            end[place] = Bound::Open;
        }
        if let Bound::Known(start) = begin[place]
            && ((start == 0 && steps[entry] > 0) || (start >= -far && steps[entry] < 0))
        {
            begin[place] = Bound::Open;
        }
    }
    let mask = |bounds: &[Bound]| {
        let open = bounds.iter().enumerate().filter(|(_, bound)| matches!(bound, Bound::Open));
        open.fold(0u32, |mask, (place, _)| mask | 1 << place)
    };
    (op.begin_mask, op.end_mask) = (mask(&begin), mask(&end));
    if let Some(place) = places.ellipsis {
        op.ellipsis_mask = 1 << place;
        op.begin_mask &= !op.ellipsis_mask;
        op.end_mask &= !op.ellipsis_mask;
    }
    let computed = begin.iter().chain(&end).any(|bound| matches!(bound, Bound::Computed(..)));
    let begin = bounds(i, call, "begin", &begin, computed)?;
    let end = bounds(i, call, "end", &end, computed)?;
    let strides = if computed {
        i.long_list(call, "strides", &strides)?
    } else {
        i.list(call, "strides", &strides)?
    };
    Ok(i.push(&call.name, Op::StridedSlice(op), vec![x, begin, end, strides])?)
}

enum Source {
    Known(Vec<i64>),
    Computed(Value),
}

impl Source {
    fn len(&self) -> Option<usize> {
        match self {
            Source::Known(list) => Some(list.len()),
            Source::Computed(_) => None,
        }
    }

    /// Entry `entry` of `count`.
    fn bound(&self, entry: usize, count: usize) -> Bound {
        match self {
            Source::Known(list) => Bound::Known(list[entry]),
            Source::Computed(value) => Bound::Computed(*value, (count > 1).then_some(entry)),
        }
    }
}

/// Where in the strided slice each axis is named.
struct Places {
    count: usize,
    of_entry: Vec<usize>,
    ellipsis: Option<usize>,
}

/// Axes that count from the start come first; those that count from the end stand behind an
/// ellipsis. Both at once would need the rank.
fn places(axes: &[i64]) -> Result<Places, Problem> {
    let (low, high) = axes.iter().fold((0, -1), |(low, high), &a| (a.min(low), a.max(high)));
    if high >= 0 && low < 0 {
        return Err("axes of which some count from the start and some from the end".into());
    }
    // Masks have 32 bits, and an ellipsis takes one.
    if high >= MOST_AXES - 1 || low <= -MOST_AXES {
        return Err("an axis beyond all tensors".into());
    }
    let mut seen = 0u64;
    for &axis in axes {
        let bit = 1u64 << axis.unsigned_abs();
        if seen & bit != 0 {
            return Err("an axis that is named twice".into());
        }
        seen |= bit;
    }
    if low < 0 {
        let count = low.unsigned_abs() as usize + 1;
        let of_entry = axes.iter().map(|axis| (count as i64 + axis) as usize).collect();
        return Ok(Places { count, of_entry, ellipsis: Some(0) });
    }
    let of_entry = axes.iter().map(|&axis| axis as usize).collect();
    Ok(Places { count: high as usize + 1, of_entry, ellipsis: None })
}

/// A list of bounds, put together where some are computed.
fn bounds(
    i: &mut Importer,
    call: &Call<'_>,
    part: &str,
    bounds: &[Bound],
    computed: bool,
) -> Outcome {
    let number = |bound: &Bound| match bound {
        Bound::Open => Some(0),
        Bound::Known(number) => Some(*number),
        Bound::Computed(..) => None,
    };
    if let Some(all) = bounds.iter().map(number).collect::<Option<Vec<i64>>>() {
        return Ok(if computed {
            i.long_list(call, part, &all)?
        } else {
            i.list(call, part, &all)?
        });
    }
    let mut parts = Vec::new();
    let mut known = Vec::new();
    for bound in bounds {
        match bound {
            Bound::Computed(list, entry) => {
                if !known.is_empty() {
                    parts.push(i.long_list(call, "bounds", &std::mem::take(&mut known))?);
                }
                let mut piece = match entry {
                    Some(entry) => {
                        let entry = *entry as i64;
                        i.run_of(call, "bound", *list, entry, Some(entry + 1))?
                    }
                    None => *list,
                };
                if i.dtype(*list) != Some(DType::I64) {
                    let to = frazil_graph::op::Cast { to: DType::I64 };
                    piece = i.aux(call, "bound_int64", Op::Cast(to), vec![piece])?;
                }
                parts.push(piece);
            }
            other => known.extend(number(other)),
        }
    }
    if !known.is_empty() {
        parts.push(i.long_list(call, "bounds", &known)?);
    }
    Ok(i.joined(call, part, parts)?)
}
