//! The rules of operations that move elements or speak of extents.

use frazil_tensor::DType;

use super::compute::agree;
use super::{Inference, Problem, Ruled, axis_index, problem, scalar};
use crate::dim::show;
use crate::op::{StridedSlice, Unpack};
use crate::{Dim, Fact};

pub(super) fn shape_of(to: DType, x: &Fact) -> Fact {
    let dims = x.dims.as_ref().map(|dims| vec![Dim::from(dims.len())]);
    let small = x.dims.clone().filter(|dims| dims.len() <= Fact::MOST_ELEMENTS);
    Fact { dtype: Some(to), dims, elements: small }
}

pub(super) fn size_of(to: DType, x: &Fact) -> Fact {
    let elements = x.dims.as_ref().and_then(Dim::product).map(|n| vec![n]);
    Fact { dtype: Some(to), dims: Some(vec![]), elements }
}

pub(super) fn rank_of(x: &Fact) -> Fact {
    let elements = x.rank().map(|rank| vec![Dim::from(rank)]);
    Fact { dtype: Some(DType::I32), dims: Some(vec![]), elements }
}

pub(super) fn expand_dims(x: &Fact, axis: &Fact) -> Ruled {
    let dims = match (&x.dims, scalar(axis)) {
        (Some(dims), Some(axis)) => {
            let mut dims = dims.clone();
            let at = axis_index(axis, dims.len() + 1)?;
            dims.insert(at, Dim::known(1));
            Some(dims)
        }
        _ => None,
    };
    Ok(vec![Fact { dims, ..x.clone() }])
}

pub(super) fn squeeze(axes: &[i64], x: Fact) -> Ruled {
    let Some(dims) = &x.dims else { return Ok(vec![x]) };
    let mut gone = vec![false; dims.len()];
    for &axis in axes {
        let index = axis_index(axis, dims.len())?;
        if dims[index].as_known().is_some_and(|extent| extent != 1) {
            return problem(format!("axis {axis} of {} is not 1", show(dims)));
        }
        gone[index] = true;
    }
    if axes.is_empty() {
        // A symbolic extent may turn out to be 1, and then the rank is another.
        for (dim, gone) in dims.iter().zip(&mut gone) {
            *gone = dim.is(1);
        }
        if dims.iter().any(|dim| dim.as_known().is_none()) {
            return Ok(vec![Fact { dims: None, ..x }]);
        }
    }
    let left = dims.iter().zip(&gone).filter(|(_, gone)| !**gone).map(|(d, _)| d.clone()).collect();
    Ok(vec![Fact { dims: Some(left), ..x }])
}

pub(super) fn pack(axis: i64, inputs: &[Fact]) -> Ruled {
    let dtype = inputs.iter().find_map(|fact| fact.dtype);
    let known: Option<Vec<&Vec<Dim>>> = inputs.iter().map(|fact| fact.dims.as_ref()).collect();
    let Some(all) = known else {
        let dims = inputs.iter().find_map(|fact| fact.dims.as_ref()).map(|first| {
            let mut dims = first.clone();
            let at = axis_index(axis, dims.len() + 1)?;
            dims.insert(at, Dim::from(inputs.len()));
            Ok(dims)
        });
        return Ok(vec![Fact { dtype, dims: dims.transpose()?, elements: None }]);
    };
    let mut dims = all[0].clone();
    for other in &all[1..] {
        if other.len() != dims.len() {
            return problem(format!("{} and {} are to be stacked", show(&dims), show(other)));
        }
        for (dim, extent) in dims.iter_mut().zip(other.iter()) {
            *dim = agree(dim, extent)?;
        }
    }
    let elements = if dims.is_empty() {
        let parts: Option<Vec<Vec<Dim>>> = inputs.iter().map(|f| f.elements.clone()).collect();
        parts.map(|parts| parts.concat()).filter(|all| all.len() <= Fact::MOST_ELEMENTS)
    } else {
        None
    };
    dims.insert(axis_index(axis, dims.len() + 1)?, Dim::from(inputs.len()));
    Ok(vec![Fact { dtype, dims: Some(dims), elements }])
}

pub(super) fn unpack(op: Unpack, x: &Fact) -> Ruled {
    let Some(dims) = &x.dims else {
        return Ok(vec![Fact { dtype: x.dtype, ..Fact::default() }; op.count]);
    };
    let mut dims = dims.clone();
    let gone = dims.remove(axis_index(op.axis, dims.len())?);
    agree(&gone, &Dim::from(op.count))?;
    let parts = (0..op.count).map(|i| {
        let one = x.elements.as_ref().filter(|_| dims.is_empty()).and_then(|e| e.get(i));
        let elements = one.map(|element| vec![element.clone()]);
        Fact { dtype: x.dtype, dims: Some(dims.clone()), elements }
    });
    Ok(parts.collect())
}

impl Inference {
    pub(super) fn reshape(&mut self, x: &Fact, target: &Fact) -> Ruled {
        let count = x.dims.as_ref().and_then(Dim::product);
        let dims = match &target.elements {
            Some(wanted) => Some(self.reshaped(x, count, wanted)?),
            None => self.dims_from(target),
        };
        Ok(vec![Fact { dims, ..x.clone() }])
    }

    fn reshaped(
        &mut self,
        x: &Fact,
        count: Option<Dim>,
        wanted: &[Dim],
    ) -> Result<Vec<Dim>, Problem> {
        let misfit = || {
            let from = x.dims.as_ref().map_or("?".to_owned(), |dims| show(dims));
            Problem(format!("{from} cannot take the shape {}", show(wanted)))
        };
        let open: Vec<usize> =
            wanted.iter().enumerate().filter(|(_, dim)| dim.is(-1)).map(|(i, _)| i).collect();
        if open.len() > 1 {
            return Err(misfit());
        }
        let mut dims = wanted.to_vec();
        if let Some(&open) = open.first() {
            let others = wanted.iter().enumerate().filter(|(i, _)| *i != open).map(|(_, d)| d);
            let rest = Dim::product(others);
            dims[open] = match (&count, &rest) {
                (Some(count), Some(rest)) => match count.over(rest) {
                    Some(extent) => extent,
                    None if count.as_known().is_some() && rest.as_known().is_some() => {
                        return Err(misfit());
                    }
                    None => self.fresh(),
                },
                _ => self.fresh(),
            };
        } else if let (Some(count), Some(product)) = (&count, Dim::product(wanted)) {
            match (count.as_known(), product.as_known()) {
                (Some(a), Some(b)) if a != b => return Err(misfit()),
                _ => {}
            }
        }
        Ok(dims)
    }

    pub(super) fn transpose(&mut self, x: &Fact, permutation: &Fact) -> Ruled {
        let dims = match (&x.dims, permutation.known_elements()) {
            (Some(dims), Some(order)) => {
                let mut seen = vec![false; dims.len()];
                let mut moved = Vec::with_capacity(dims.len());
                for axis in &order {
                    let index = axis_index(*axis, dims.len())?;
                    if std::mem::replace(&mut seen[index], true) {
                        return problem(format!("{order:?} is no permutation"));
                    }
                    moved.push(dims[index].clone());
                }
                if moved.len() != dims.len() {
                    return problem(format!("{order:?} does not permute {}", show(dims)));
                }
                Some(moved)
            }
            (Some(dims), None) => Some(self.fresh_dims(dims.len())),
            (None, _) => None,
        };
        Ok(vec![Fact { dims, elements: None, dtype: x.dtype }])
    }

    pub(super) fn concat(&mut self, inputs: &[Fact]) -> Ruled {
        let (axis, parts) = inputs.split_last().expect("the arity was checked");
        let dtype = parts.iter().find_map(|fact| fact.dtype);
        let shapes: Option<Vec<&Vec<Dim>>> = parts.iter().map(|fact| fact.dims.as_ref()).collect();
        let (Some(shapes), Some(axis)) = (shapes, scalar(axis)) else {
            return Ok(vec![Fact { dtype, ..Fact::default() }]);
        };
        let mut dims = shapes[0].clone();
        let axis = axis_index(axis, dims.len())?;
        for other in &shapes[1..] {
            if other.len() != dims.len() {
                return problem(format!("{} and {} are to be joined", show(&dims), show(other)));
            }
            for i in 0..dims.len() {
                dims[i] = if i == axis {
                    match dims[i].plus(&other[i]) {
                        Some(sum) => sum,
                        None => self.fresh(),
                    }
                } else {
                    agree(&dims[i], &other[i])?
                };
            }
        }
        let elements: Option<Vec<Vec<Dim>>> = parts.iter().map(|f| f.elements.clone()).collect();
        let elements = elements
            .filter(|_| dims.len() == 1)
            .map(|parts| parts.concat())
            .filter(|all| all.len() <= Fact::MOST_ELEMENTS);
        Ok(vec![Fact { dtype, dims: Some(dims), elements }])
    }

    pub(super) fn split(&mut self, count: usize, x: &Fact, axis: &Fact) -> Ruled {
        let (Some(dims), Some(axis)) = (&x.dims, scalar(axis)) else {
            return Ok(vec![Fact { dtype: x.dtype, ..Fact::default() }; count]);
        };
        let axis = axis_index(axis, dims.len())?;
        let mut part = dims.clone();
        part[axis] = match dims[axis].over(&Dim::from(count)) {
            Some(extent) => extent,
            None if dims[axis].as_known().is_some() => {
                return problem(format!("{} does not split into {count}", dims[axis]));
            }
            None => self.fresh(),
        };
        Ok(vec![Fact::tensor(x.dtype, part); count])
    }

    pub(super) fn split_v(&mut self, count: usize, inputs: &[Fact]) -> Ruled {
        let (x, sizes, axis) = (&inputs[0], &inputs[1], &inputs[2]);
        let (Some(dims), Some(sizes), Some(axis)) = (&x.dims, &sizes.elements, scalar(axis)) else {
            return Ok(vec![Fact { dtype: x.dtype, ..Fact::default() }; count]);
        };
        let axis = axis_index(axis, dims.len())?;
        if sizes.len() != count {
            return problem(format!("{} sizes for {count} parts", sizes.len()));
        }
        let mut rest = Some(dims[axis].clone());
        for size in sizes.iter().filter(|size| !size.is(-1)) {
            rest = rest.and_then(|rest| rest.minus(size));
        }
        let mut parts = Vec::with_capacity(count);
        for size in sizes {
            let mut part = dims.clone();
            part[axis] = match (size.is(-1), &rest) {
                (false, _) => size.clone(),
                (true, Some(rest)) => rest.clone(),
                (true, None) => self.fresh(),
            };
            parts.push(Fact::tensor(x.dtype, part));
        }
        Ok(parts)
    }

    pub(super) fn slice(&mut self, inputs: &[Fact]) -> Ruled {
        let (x, begin, size) = (&inputs[0], &inputs[1], &inputs[2]);
        let dtype = x.dtype;
        let Some(dims) = &x.dims else { return Ok(vec![Fact { dtype, ..Fact::default() }]) };
        let Some(size) = &size.elements else {
            return Ok(vec![Fact::tensor(dtype, self.fresh_dims(dims.len()))]);
        };
        if size.len() != dims.len() {
            return problem(format!("{} sizes for {}", size.len(), show(dims)));
        }
        let mut window = Vec::with_capacity(dims.len());
        for (i, (extent, wanted)) in dims.iter().zip(size).enumerate() {
            let start = begin.elements.as_ref().and_then(|begin| begin.get(i));
            if !wanted.is(-1) {
                if let (Some(all), Some(start), Some(wanted)) =
                    (extent.as_known(), start.and_then(Dim::as_known), wanted.as_known())
                    && (start < 0 || wanted < 0 || start.saturating_add(wanted) > all)
                {
                    return problem(format!(
                        "{wanted} from {start} on is outside of {all} (axis {i})"
                    ));
                }
                window.push(wanted.clone());
            } else {
                let left = start.and_then(|start| extent.minus(start));
                window.push(left.unwrap_or_else(|| self.fresh()));
            }
        }
        let elements = match (begin.known_elements().as_deref(), window.as_slice(), &x.elements) {
            (Some([start]), [count], Some(elements)) => {
                let range = usize::try_from(*start)
                    .ok()
                    .zip(count.as_known())
                    .and_then(|(s, n)| elements.get(s..s.checked_add(usize::try_from(n).ok()?)?));
                range.map(<[Dim]>::to_vec)
            }
            _ => None,
        };
        Ok(vec![Fact { dtype, dims: Some(window), elements }])
    }

    pub(super) fn gather(&mut self, batch_dims: usize, inputs: &[Fact]) -> Ruled {
        let (table, indices, axis) = (&inputs[0], &inputs[1], &inputs[2]);
        let dtype = table.dtype;
        check_indices(indices)?;
        let (Some(rows), Some(picks), Some(axis)) = (&table.dims, &indices.dims, scalar(axis))
        else {
            return Ok(vec![Fact { dtype, ..Fact::default() }]);
        };
        let axis = axis_index(axis, rows.len())?;
        if batch_dims > axis || batch_dims > picks.len() {
            return problem(format!("{batch_dims} batch axes do not fit axis {axis}"));
        }
        let mut dims = rows[..axis].to_vec();
        dims.extend_from_slice(&picks[batch_dims..]);
        dims.extend_from_slice(&rows[axis + 1..]);
        let elements = match (&table.elements, indices.known_elements()) {
            (Some(values), Some(picks)) if rows.len() == 1 => {
                let extent = values.len() as i64;
                picks
                    .iter()
                    .map(|&i| if i < 0 { i + extent } else { i })
                    .map(|i| usize::try_from(i).ok().and_then(|i| values.get(i)).cloned())
                    .collect()
            }
            _ => None,
        };
        Ok(vec![Fact { dtype, dims: Some(dims), elements }])
    }

    pub(super) fn one_hot(&mut self, axis: i64, inputs: &[Fact]) -> Ruled {
        let (indices, depth, on) = (&inputs[0], &inputs[1], &inputs[2]);
        check_indices(indices)?;
        let dims = match &indices.dims {
            Some(dims) => {
                let mut dims = dims.clone();
                let depth = match depth.elements.as_deref() {
                    Some([depth]) => depth.clone(),
                    _ => self.fresh(),
                };
                let at = axis_index(axis, dims.len() + 1)?;
                dims.insert(at, depth);
                Some(dims)
            }
            None => None,
        };
        Ok(vec![Fact { dtype: on.dtype, dims, elements: None }])
    }

    pub(super) fn range(&mut self, inputs: &[Fact]) -> Ruled {
        let one = |fact: &Fact| match fact.elements.as_deref() {
            Some([element]) => Some(element.clone()),
            _ => None,
        };
        let bounds = one(&inputs[0]).zip(one(&inputs[1])).zip(one(&inputs[2]));
        let count = bounds.as_ref().and_then(|((start, limit), delta)| {
            let span = limit.minus(start)?;
            span.over(delta).or_else(|| {
                let (span, delta) = (span.as_known()?, delta.as_known()?);
                // Rounded up: the last step may fall short of the limit.
                let steps = span.checked_div(delta)? + i64::from(span % delta != 0);
                Some(Dim::known(steps.max(0)))
            })
        });
        let elements = match (&bounds, count.as_ref().and_then(Dim::as_known)) {
            (Some(((start, _), delta)), Some(n)) if n <= Fact::MOST_ELEMENTS as i64 => {
                (0..n).map(|i| start.plus(&delta.times(&Dim::known(i))?)).collect()
            }
            _ => None,
        };
        let count = count.unwrap_or_else(|| self.fresh());
        Ok(vec![Fact { dtype: inputs[0].dtype, dims: Some(vec![count]), elements }])
    }

    /// A tensor of the extents that `list` names, all elements `value` if it is known.
    pub(super) fn filled(
        &mut self,
        dtype: Option<DType>,
        list: &Fact,
        value: Option<&Fact>,
    ) -> Ruled {
        let dims = self.dims_from(list);
        let count = dims.as_ref().and_then(Dim::product).and_then(|n| n.as_known());
        let elements = match (value.and_then(|v| v.elements.as_deref()), count) {
            (Some([one]), Some(n)) if (0..=Fact::MOST_ELEMENTS as i64).contains(&n) => {
                Some(vec![one.clone(); n as usize])
            }
            _ => None,
        };
        Ok(vec![Fact { dtype, dims, elements }])
    }

    pub(super) fn tile(&mut self, x: &Fact, multiples: &Fact) -> Ruled {
        let dims = match (&x.dims, &multiples.elements) {
            (Some(dims), Some(times)) if dims.len() == times.len() => {
                let mut tiled = Vec::with_capacity(dims.len());
                for (dim, n) in dims.iter().zip(times) {
                    tiled.push(dim.times(n).unwrap_or_else(|| self.fresh()));
                }
                Some(tiled)
            }
            (Some(dims), Some(times)) => {
                return problem(format!("{} multiples for {}", times.len(), show(dims)));
            }
            (Some(dims), None) => Some(self.fresh_dims(dims.len())),
            (None, _) => None,
        };
        Ok(vec![Fact { dtype: x.dtype, dims, elements: None }])
    }

    pub(super) fn pad(&mut self, x: &Fact, paddings: &Fact) -> Ruled {
        let dims = match (&x.dims, &paddings.elements) {
            (Some(dims), Some(edges)) if edges.len() == 2 * dims.len() => {
                let mut padded = Vec::with_capacity(dims.len());
                for (dim, edge) in dims.iter().zip(edges.chunks(2)) {
                    let sum = dim.plus(&edge[0]).and_then(|d| d.plus(&edge[1]));
                    padded.push(sum.unwrap_or_else(|| self.fresh()));
                }
                Some(padded)
            }
            (Some(dims), _) => Some(self.fresh_dims(dims.len())),
            (None, _) => None,
        };
        Ok(vec![Fact { dtype: x.dtype, dims, elements: None }])
    }

    pub(super) fn strided_slice(&mut self, op: StridedSlice, inputs: &[Fact]) -> Ruled {
        let (x, begin, end, strides) = (&inputs[0], &inputs[1], &inputs[2], &inputs[3]);
        let dtype = x.dtype;
        let unknown = Ok(vec![Fact { dtype, ..Fact::default() }]);
        let Some(dims) = &x.dims else { return unknown };
        let entries = [begin, end, strides]
            .into_iter()
            .find_map(|list| usize::try_from(*list.known_dims()?.first()?).ok());
        let Some(entries) = entries.filter(|n| *n <= 32) else { return unknown };
        let named =
            (0..entries).filter(|i| (op.new_axis_mask | op.ellipsis_mask) >> i & 1 == 0).count();
        if named > dims.len() {
            return problem(format!("{named} entries for {}", show(dims)));
        }
        let element =
            |list: &Fact, i: usize| list.elements.as_ref().and_then(|e| e.get(i)).cloned();
        let bit = |mask: u32, i: usize| mask >> i & 1 == 1;
        let mut window = Vec::new();
        let mut axis = 0;
        let mut picked = None;
        for i in 0..entries {
            if bit(op.ellipsis_mask, i) {
                let all = dims.len() - named;
                window.extend_from_slice(&dims[axis..axis + all]);
                axis += all;
            } else if bit(op.new_axis_mask, i) {
                window.push(Dim::known(1));
            } else if bit(op.shrink_axis_mask, i) {
                picked = element(begin, i).and_then(|b| b.as_known());
                axis += 1;
            } else {
                let bounds = StridedBounds {
                    begin: (!bit(op.begin_mask, i)).then(|| element(begin, i)),
                    end: (!bit(op.end_mask, i)).then(|| element(end, i)),
                    stride: element(strides, i).and_then(|s| s.as_known()),
                };
                window.push(bounds.extent(&dims[axis]).unwrap_or_else(|| self.fresh()));
                axis += 1;
            }
        }
        window.extend_from_slice(&dims[axis..]);
        // The list of a shape: one entry of it, or a run.
        let elements =
            x.elements.as_ref().filter(|_| dims.len() == 1 && entries == 1).and_then(|all| {
                let n = all.len() as i64;
                if bit(op.shrink_axis_mask, 0) {
                    let i = picked.map(|i| if i < 0 { i + n } else { i })?;
                    return Some(vec![all.get(usize::try_from(i).ok()?)?.clone()]);
                }
                if bit(op.new_axis_mask, 0) || bit(op.ellipsis_mask, 0) {
                    return None;
                }
                if element(strides, 0)?.as_known()? != 1 {
                    return None;
                }
                let clamp = |v: i64| if v < 0 { (v + n).max(0) } else { v.min(n) };
                let from =
                    if bit(op.begin_mask, 0) { 0 } else { clamp(element(begin, 0)?.as_known()?) };
                let to = if bit(op.end_mask, 0) { n } else { clamp(element(end, 0)?.as_known()?) };
                all.get(from as usize..to.max(from) as usize).map(<[Dim]>::to_vec)
            });
        Ok(vec![Fact { dtype, dims: Some(window), elements }])
    }
}

fn check_indices(indices: &Fact) -> Result<(), Problem> {
    match indices.dtype {
        Some(dtype) if dtype.is_float() || dtype == DType::Bool || dtype == DType::String => {
            problem(format!("indices are {dtype}, whole numbers expected"))
        }
        _ => Ok(()),
    }
}

/// One entry of a strided slice: `None` where a mask says to ignore the bound, `Some(None)`
/// where the bound is not known.
struct StridedBounds {
    begin: Option<Option<Dim>>,
    end: Option<Option<Dim>>,
    stride: Option<i64>,
}

impl StridedBounds {
    /// How many elements of `extent` it takes, if that follows.
    fn extent(&self, extent: &Dim) -> Option<Dim> {
        let stride = self.stride?;
        // All of it, forwards.
        if stride == 1 {
            let from_start = match &self.begin {
                None => true,
                Some(begin) => begin.as_ref()?.is(0),
            };
            let to_end = match &self.end {
                None => true,
                Some(end) => end.as_ref()? == extent,
            };
            if from_start && to_end {
                return Some(extent.clone());
            }
        }
        if let Some(known) = extent.as_known() {
            return self.counted(known, stride);
        }
        // `x[k:]` and `x[:k]` of a symbolic extent: sizes are at least what is taken of them.
        match (stride, &self.begin, &self.end) {
            (1, Some(Some(begin)), None) => match begin.as_known()? {
                n if n >= 0 => extent.minus(begin),
                n => n.checked_neg().map(Dim::known),
            },
            (1, None, Some(Some(end))) => take_to(extent, end),
            (1, Some(Some(begin)), Some(Some(end))) if begin.is(0) => take_to(extent, end),
            _ => None,
        }
    }

    fn counted(&self, extent: i64, stride: i64) -> Option<Dim> {
        let (low, high) = if stride > 0 { (0, extent) } else { (-1, extent - 1) };
        let clamp = |bound: &Option<Dim>| -> Option<i64> {
            let bound = bound.as_ref()?.as_known()?;
            let bound = if bound < 0 { bound.checked_add(extent)? } else { bound };
            Some(bound.clamp(low, high))
        };
        let from = match &self.begin {
            None => {
                if stride > 0 {
                    low
                } else {
                    high
                }
            }
            Some(begin) => clamp(begin)?,
        };
        let to = match &self.end {
            None => {
                if stride > 0 {
                    high
                } else {
                    low
                }
            }
            Some(end) => clamp(end)?,
        };
        let span = to.checked_sub(from)?;
        let steps = span.checked_div(stride)? + i64::from(span % stride != 0);
        Some(Dim::known(if (span > 0) == (stride > 0) && span != 0 { steps } else { 0 }))
    }
}

fn take_to(extent: &Dim, end: &Dim) -> Option<Dim> {
    match end.as_known() {
        Some(n) if n < 0 => extent.plus(end),
        _ => Some(end.clone()),
    }
}
