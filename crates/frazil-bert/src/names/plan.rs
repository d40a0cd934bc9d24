//! Plans: how tensors of one file become tensors of another, decided on shapes alone and
//! carried out one tensor at a time.

use frazil_tensor::{DType, Shape, StoreError, Tensor, TensorInfo, TensorStore};

use crate::{Error, Result};

/// What new rows of a longer table are filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeros.
    Zero,
    /// The table again from its first row.
    Again,
}

/// One step from source tensors to the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The sources side by side along an axis. Must come first when there are several.
    Join(usize),
    /// Rows and columns exchanged.
    Transpose,
    /// Entries `start..end` of the last axis.
    Columns(usize, usize),
    /// Exactly that many rows: the first ones, or all and more.
    Rows(usize, Fill),
    /// Another shape of as many elements.
    Reshape(Shape),
}

/// One tensor of the target and how to make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Name, type and shape in the target. Another type than the sources' is cast to at the end.
    pub target: TensorInfo,
    /// Names in the source.
    pub from: Vec<String>,
    /// Steps, in order.
    pub how: Vec<Step>,
}

impl Row {
    /// A row whose target shape follows from the sources and the steps.
    pub fn new(name: impl Into<String>, sources: &[&TensorInfo], how: Vec<Step>) -> Result<Self> {
        let name = name.into();
        let Some(first) = sources.first() else {
            return Err(Error::Missing { target: name.clone(), names: vec![name] });
        };
        let mut shape = first.shape.clone();
        let mut steps = how.as_slice();
        if let Some((Step::Join(axis), rest)) = how.split_first() {
            for other in &sources[1..] {
                shape = join(&shape, &other.shape, *axis).ok_or_else(|| Error::Shape {
                    name: other.name.clone(),
                    expected: first.shape.clone(),
                    found: other.shape.clone(),
                })?;
            }
            steps = rest;
        }
        for step in steps {
            shape = after(&shape, step).ok_or_else(|| Error::Shape {
                name: first.name.clone(),
                expected: needed(step, &shape),
                found: first.shape.clone(),
            })?;
        }
        let from = sources.iter().map(|info| info.name.clone()).collect();
        Ok(Self { target: TensorInfo { name, dtype: first.dtype, shape }, from, how })
    }

    /// The same tensor under another name.
    pub fn copy(name: impl Into<String>, source: &TensorInfo) -> Self {
        let (dtype, shape) = (source.dtype, source.shape.clone());
        let target = TensorInfo { name: name.into(), dtype, shape };
        Self { target, from: vec![source.name.clone()], how: Vec::new() }
    }

    /// The same row with its target in another floating-point type; other types stay.
    pub fn cast(mut self, to: DType) -> Self {
        if self.target.dtype.is_float() {
            self.target.dtype = to;
        }
        self
    }

    /// Makes the tensor.
    pub fn run(&self, store: &dyn TensorStore) -> Result<Tensor> {
        let mut sources = Vec::with_capacity(self.from.len());
        for name in &self.from {
            let tensor = store.tensor(name).map_err(|source| match source.downcast() {
                // From a plan below this one: it has said which tensor.
                Ok(ours) => *ours,
                Err(source) => Error::Store { name: name.clone(), source },
            })?;
            sources.push(tensor);
        }
        let mut steps = self.how.as_slice();
        let mut tensor = match self.how.split_first() {
            Some((Step::Join(axis), rest)) => {
                steps = rest;
                Tensor::concat(&sources, *axis)?
            }
            _ => sources.swap_remove(0),
        };
        drop(sources);
        for step in steps {
            tensor = apply(&tensor, step)?;
        }
        if *tensor.shape() != self.target.shape {
            return Err(Error::Shape {
                name: self.target.name.clone(),
                expected: self.target.shape.clone(),
                found: tensor.shape().clone(),
            });
        }
        Ok(tensor.cast(self.target.dtype)?)
    }
}

/// A store seen through a plan: the targets' names, made when asked for.
pub struct Mapped<'a> {
    store: &'a dyn TensorStore,
    rows: Vec<Row>,
    infos: Vec<TensorInfo>,
}

impl<'a> Mapped<'a> {
    /// The store as the plan shows it.
    pub fn new(store: &'a dyn TensorStore, mut rows: Vec<Row>) -> Self {
        rows.sort_by(|a, b| a.target.name.cmp(&b.target.name));
        let infos = rows.iter().map(|row| row.target.clone()).collect();
        Self { store, rows, infos }
    }
}

impl TensorStore for Mapped<'_> {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let found = self.rows.binary_search_by(|row| row.target.name.as_str().cmp(name));
        let at = found.map_err(|_| frazil_tensor::Error::NoSuchTensor(name.to_string()))?;
        Ok(self.rows[at].run(self.store)?)
    }
}

fn join(a: &Shape, b: &Shape, axis: usize) -> Option<Shape> {
    let fits =
        a.len() == b.len() && axis < a.len() && (0..a.len()).all(|i| i == axis || a[i] == b[i]);
    let mut dims = a.to_vec();
    *dims.get_mut(axis)? = a.get(axis)?.checked_add(*b.get(axis)?)?;
    fits.then(|| dims.into())
}

fn after(shape: &Shape, step: &Step) -> Option<Shape> {
    Some(match step {
        Step::Join(_) => return None,
        Step::Transpose => {
            let &[rows, columns] = &**shape else { return None };
            [columns, rows].into()
        }
        Step::Columns(start, end) => {
            let (last, outer) = shape.split_last()?;
            if start > end || end > last {
                return None;
            }
            let mut dims = outer.to_vec();
            dims.push(end - start);
            dims.into()
        }
        Step::Rows(rows, fill) => {
            let (first, rest) = shape.split_first()?;
            if *fill == Fill::Again && *first == 0 {
                return None;
            }
            let mut dims = vec![*rows];
            dims.extend_from_slice(rest);
            dims.into()
        }
        Step::Reshape(to) => {
            if to.elements()? != shape.elements()? {
                return None;
            }
            to.clone()
        }
    })
}

/// For the message: a shape that the step could work on, near to the one it met.
fn needed(step: &Step, met: &Shape) -> Shape {
    match step {
        Step::Transpose => [met.first().copied().unwrap_or(1), 1].into(),
        Step::Columns(_, end) => {
            let mut dims = met.to_vec();
            if let Some(last) = dims.last_mut() {
                *last = *end;
            } else {
                dims.push(*end);
            }
            dims.into()
        }
        Step::Rows(rows, _) => [*rows].into(),
        Step::Reshape(to) => to.clone(),
        Step::Join(_) => met.clone(),
    }
}

fn apply(tensor: &Tensor, step: &Step) -> Result<Tensor> {
    let found = tensor.shape();
    let wrong = || Error::Shape {
        name: "intermediate".into(),
        expected: needed(step, found),
        found: found.clone(),
    };
    let shape = after(found, step).ok_or_else(wrong)?;
    match step {
        Step::Join(_) => Err(wrong()),
        Step::Transpose => Ok(tensor.transpose()?),
        Step::Reshape(_) => Ok(tensor.reshape(shape)?),
        Step::Columns(start, end) => {
            let bytes = tensor.bytes()?;
            let all = found.last().copied().unwrap_or(0);
            let size = bytes.len().checked_div(tensor.elements()).unwrap_or(0);
            if all == 0 || size == 0 {
                return Ok(Tensor::new(tensor.dtype(), shape, Vec::new())?);
            }
            let mut kept = Vec::with_capacity(bytes.len() / all * (end - start));
            for row in bytes.chunks_exact(all * size) {
                kept.extend_from_slice(&row[start * size..end * size]);
            }
            Ok(Tensor::new(tensor.dtype(), shape, kept)?)
        }
        Step::Rows(rows, fill) => {
            let old = found.first().copied().unwrap_or(0);
            if *rows <= old {
                return Ok(tensor.head(*rows)?);
            }
            let bytes = tensor.bytes()?;
            let row = match tensor.dtype().size() {
                Some(size) => found[1..].iter().product::<usize>() * size,
                None => 0,
            };
            let length = row.checked_mul(*rows).ok_or_else(wrong)?;
            let mut longer = Vec::with_capacity(length);
            longer.extend_from_slice(bytes);
            match fill {
                Fill::Zero => longer.resize(length, 0),
                Fill::Again => {
                    while longer.len() < length {
                        let more = bytes.len().min(length - longer.len());
                        longer.extend_from_slice(&bytes[..more]);
                    }
                }
            }
            Ok(Tensor::new(tensor.dtype(), shape, longer)?)
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A store in memory.
    pub(crate) struct Memory {
        pub infos: Vec<TensorInfo>,
        pub tensors: Vec<Tensor>,
    }

    impl Memory {
        pub fn new(mut named: Vec<(String, Tensor)>) -> Self {
            named.sort_by(|a, b| a.0.cmp(&b.0));
            let infos = named.iter().map(|(name, t)| TensorInfo {
                name: name.clone(),
                dtype: t.dtype(),
                shape: t.shape().clone(),
            });
            Self { infos: infos.collect(), tensors: named.into_iter().map(|(_, t)| t).collect() }
        }

        /// Numbers that tell every element of every tensor apart.
        pub fn counting(infos: impl IntoIterator<Item = (String, Shape)>) -> Self {
            let mut next = 0f32;
            let named = infos.into_iter().map(|(name, shape)| {
                let values = (0..shape.elements().unwrap()).map(|_| {
                    next += 1.0;
                    next
                });
                let values: Vec<f32> = values.collect();
                (name, Tensor::from_vec(shape, values).unwrap())
            });
            Self::new(named.collect())
        }
    }

    impl TensorStore for Memory {
        fn infos(&self) -> &[TensorInfo] {
            &self.infos
        }

        fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
            let at = self.infos.iter().position(|info| info.name == name);
            Ok(self.tensors[at.ok_or_else(|| format!("no {name}"))?].clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Memory;
    use super::*;

    fn store() -> Memory {
        Memory::counting([
            ("a".to_string(), Shape::from([2, 3])),
            ("b".to_string(), Shape::from([2, 3])),
        ])
    }

    fn run(sources: &[usize], how: Vec<Step>) -> (Vec<usize>, Vec<f32>) {
        let store = store();
        let infos: Vec<&TensorInfo> = sources.iter().map(|&i| &store.infos[i]).collect();
        let row = Row::new("x", &infos, how).unwrap();
        let tensor = row.run(&store).unwrap();
        (tensor.shape().to_vec(), tensor.values::<f32>().unwrap().into_owned())
    }

    #[test]
    fn steps() {
        assert_eq!(
            run(&[0, 1], vec![Step::Join(1), Step::Columns(2, 5)]),
            (vec![2, 3], vec![3., 7., 8., 6., 10., 11.])
        );
        assert_eq!(run(&[0], vec![Step::Transpose]), (vec![3, 2], vec![1., 4., 2., 5., 3., 6.]));
        assert_eq!(run(&[0], vec![Step::Rows(1, Fill::Zero)]), (vec![1, 3], vec![1., 2., 3.]));
        assert_eq!(
            run(&[0], vec![Step::Rows(3, Fill::Zero)]),
            (vec![3, 3], vec![1., 2., 3., 4., 5., 6., 0., 0., 0.])
        );
        assert_eq!(
            run(&[0], vec![Step::Rows(5, Fill::Again)]).1,
            [1., 2., 3., 4., 5., 6., 1., 2., 3., 4., 5., 6., 1., 2., 3.]
        );
        assert_eq!(run(&[0], vec![Step::Reshape([6].into())]).0, [6]);
    }

    #[test]
    fn what_does_not_fit_is_an_error_before_anything_is_read() {
        let store = store();
        let a = &store.infos[0];
        for how in [
            vec![Step::Columns(2, 4)],
            vec![Step::Columns(3, 2)],
            vec![Step::Reshape([7].into())],
            vec![Step::Reshape([6].into()), Step::Transpose],
            vec![Step::Transpose, Step::Join(0)],
        ] {
            assert!(matches!(Row::new("x", &[a], how), Err(Error::Shape { .. })));
        }
        assert!(matches!(Row::new("x", &[], vec![]), Err(Error::Missing { .. })));
    }

    #[test]
    fn a_mapped_store_is_a_store() {
        let store = store();
        let rows = vec![
            Row::copy("z", &store.infos[0]).cast(DType::F16),
            Row::new("y", &[&store.infos[1]], vec![Step::Transpose]).unwrap(),
        ];
        let mapped = Mapped::new(&store, rows);
        assert_eq!(mapped.info("z").unwrap().dtype, DType::F16);
        assert_eq!(mapped.tensor("z").unwrap().dtype(), DType::F16);
        assert_eq!(mapped.tensor("y").unwrap().shape(), &Shape::from([3, 2]));
        assert!(mapped.tensor("a").is_err());
    }
}
