//! Inputs at the door: are they all there, of the right type and extents, and do they agree?

use std::collections::{BTreeMap, HashMap};

use frazil_graph::op::Input;
use frazil_graph::{Dim, Graph, NodeId, Op, Port, dim};
use frazil_kernels::cast::{Scalar, cast};
use frazil_tensor::{DType, Element, Shape, Tensor, nearest};

use crate::{Error, Result};

/// What is given, by the names of the model's inputs.
pub type Inputs = BTreeMap<String, Tensor>;

/// Inputs that were checked.
#[derive(Clone, Debug, Default)]
pub struct Feed {
    /// The tensors, in the types that the graph wants.
    pub(crate) values: HashMap<NodeId, Tensor>,
    /// What was converted.
    pub notes: Vec<String>,
}

impl Feed {
    /// Checks `inputs` against those of `graph` that `needed` says are read. The others may be
    /// given, too.
    pub(crate) fn new(
        graph: &Graph,
        inputs: &Inputs,
        needed: impl Fn(NodeId) -> bool,
    ) -> Result<Self> {
        let names = || graph.inputs.iter().map(|port| port.name.as_str());
        let unknown: Vec<String> =
            inputs.keys().filter(|name| find(graph, name).is_none()).cloned().collect();
        let mut feed = Self::default();
        let mut sizes = Sizes::default();
        for port in &graph.inputs {
            let Some(input) = as_input(graph.op(port.value)) else { continue };
            let Some(tensor) = given(inputs, &port.name) else {
                let optional = matches!(graph.op(port.value), Op::InputWithDefault(_));
                if optional || !needed(port.value.node) {
                    continue;
                }
                let (name, expected) = (port.name.clone(), describe(input));
                return Err(Error::MissingInput { name, expected, unknown });
            };
            let tensor = feed.convert(port, input.dtype, tensor)?;
            sizes.check(&port.name, input, tensor.shape())?;
            feed.values.insert(port.value.node, tensor);
        }
        sizes.check_products()?;
        if let Some(name) = unknown.into_iter().next() {
            let near = nearest(&name, names());
            let inputs = names().map(str::to_owned).collect();
            return Err(Error::UnknownInput { name, near, inputs });
        }
        Ok(feed)
    }

    /// `tensor` in the input's type: integers become other integers where all of them fit,
    /// floating-point numbers are rounded.
    fn convert(&mut self, port: &Port, to: DType, tensor: &Tensor) -> Result<Tensor> {
        let from = tensor.dtype();
        if from == to {
            return Ok(tensor.clone());
        }
        let refused = || Error::InputType { name: port.name.clone(), expected: to, found: from };
        let converted = if from.is_float() && to.is_float() {
            tensor.cast(to).map_err(|_| refused())?
        } else {
            let wide = integers(tensor).ok_or_else(refused)?;
            let shape = tensor.shape().clone();
            match to {
                DType::I8 => fitted::<i8>(port, shape, &wide)?,
                DType::I16 => fitted::<i16>(port, shape, &wide)?,
                DType::I32 => fitted::<i32>(port, shape, &wide)?,
                DType::I64 => fitted::<i64>(port, shape, &wide)?,
                DType::U8 => fitted::<u8>(port, shape, &wide)?,
                DType::U16 => fitted::<u16>(port, shape, &wide)?,
                DType::U32 => fitted::<u32>(port, shape, &wide)?,
                DType::U64 => fitted::<u64>(port, shape, &wide)?,
                _ => return Err(refused()),
            }
        };
        self.notes.push(format!("input `{}` was given as {from} and converted to {to}", port.name));
        Ok(converted)
    }
}

/// Inputs that were checked, without a copy where they are just what the graph wants.
pub(crate) enum Fed<'a> {
    /// As they were given.
    Given(&'a Inputs),
    /// Some were converted.
    Converted(Feed),
}

impl<'a> Fed<'a> {
    /// Checks `inputs`; allocates only for those that need more than a look.
    pub(crate) fn new(graph: &Graph, inputs: &'a Inputs) -> Result<Self> {
        if is_exact(graph, inputs) {
            return Ok(Self::Given(inputs));
        }
        Feed::new(graph, inputs, |_| true).map(Self::Converted)
    }

    /// The tensor of an input, if it was given.
    pub(crate) fn get(&self, port: &Port) -> Option<&Tensor> {
        match self {
            Self::Given(inputs) => inputs.get(&port.name),
            Self::Converted(feed) => feed.values.get(&port.value.node),
        }
    }

    /// What was converted.
    pub(crate) fn notes(&self) -> &[String] {
        match self {
            Self::Given(_) => &[],
            Self::Converted(feed) => &feed.notes,
        }
    }
}

/// Whether the inputs are those of the graph, of its types, and agree about all sizes.
fn is_exact(graph: &Graph, inputs: &Inputs) -> bool {
    let agree = |symbol: &dim::Symbol, size: usize| {
        let all = graph.inputs.iter().filter_map(|port| extents(graph, inputs, port)).flatten();
        all.filter(|(dim, _)| dim.as_symbol() == Some(symbol)).all(|(_, other)| other == size)
    };
    let fits = |port: &Port| {
        extents(graph, inputs, port).is_some_and(|mut extents| {
            extents.all(|(dim, size)| match dim.as_symbol() {
                Some(symbol) => agree(symbol, size),
                None => dim.is(size as i64),
            })
        })
    };
    inputs.len() == graph.inputs.len() && graph.inputs.iter().all(fits)
}

/// The extents of an input beside those of the tensor that is given for it, if type and rank fit.
fn extents<'a>(
    graph: &'a Graph,
    inputs: &'a Inputs,
    port: &Port,
) -> Option<impl Iterator<Item = (&'a Dim, usize)>> {
    let input = as_input(graph.op(port.value))?;
    let (tensor, dims) = (inputs.get(&port.name)?, input.dims.as_deref()?);
    let fits = tensor.dtype() == input.dtype && dims.len() == tensor.shape().len();
    fits.then(|| dims.iter().zip(tensor.shape().iter().copied()))
}

/// The tensor for an input: under its name, or its name with `:0`, or without.
fn given<'a>(inputs: &'a Inputs, name: &str) -> Option<&'a Tensor> {
    let other = match name.strip_suffix(":0") {
        Some(bare) => bare.to_owned(),
        None => format!("{name}:0"),
    };
    inputs.get(name).or_else(|| inputs.get(&other))
}

fn find<'a>(graph: &'a Graph, name: &str) -> Option<&'a Port> {
    let bare = |name: &str| name.strip_suffix(":0").unwrap_or(name).to_owned();
    graph.inputs.iter().find(|port| bare(&port.name) == bare(name))
}

fn as_input(op: &Op) -> Option<&Input> {
    match op {
        Op::Input(input) | Op::InputWithDefault(input) => Some(input),
        _ => None,
    }
}

/// `int32 [batch, seq]`
fn describe(input: &Input) -> String {
    match &input.dims {
        Some(dims) => format!("{} {}", input.dtype, dim::show(dims)),
        None => format!("{} of any rank", input.dtype),
    }
}

fn integers(tensor: &Tensor) -> Option<Vec<i128>> {
    fn wide<T: Element + Into<i128>>(tensor: &Tensor) -> Option<Vec<i128>> {
        Some(tensor.values::<T>().ok()?.iter().map(|&x| x.into()).collect())
    }
    match tensor.dtype() {
        DType::I8 => wide::<i8>(tensor),
        DType::I16 => wide::<i16>(tensor),
        DType::I32 => wide::<i32>(tensor),
        DType::I64 => wide::<i64>(tensor),
        DType::U8 | DType::Bool => wide::<u8>(tensor),
        DType::U16 => wide::<u16>(tensor),
        DType::U32 => wide::<u32>(tensor),
        DType::U64 => wide::<u64>(tensor),
        _ => None,
    }
}

fn fitted<T>(port: &Port, shape: Shape, wide: &[i128]) -> Result<Tensor>
where
    T: Element + Scalar + Default + TryFrom<i128>,
{
    if let Some(at) = wide.iter().position(|&value| T::try_from(value).is_err()) {
        let (name, expected) = (port.name.clone(), T::DTYPE);
        return Err(Error::InputValue { name, expected, value: wide[at], at });
    }
    let narrow: Vec<i64> = wide.iter().map(|&value| value as i64).collect();
    let mut values = vec![T::default(); narrow.len()];
    cast(&narrow, &mut values);
    Tensor::from_vec(shape, values).map_err(|source| Error::Tensor {
        name: port.name.clone(),
        op: "Input".into(),
        source,
    })
}

/// What each symbol stands for, and which input said so.
#[derive(Default)]
struct Sizes {
    known: BTreeMap<dim::Symbol, (usize, String)>,
    /// Extents of several symbols, checked when all of these are known.
    products: Vec<(String, usize, Dim, usize)>,
}

impl Sizes {
    fn check(&mut self, name: &str, input: &Input, shape: &Shape) -> Result<()> {
        let Some(dims) = &input.dims else { return Ok(()) };
        if dims.len() != shape.len() {
            let (name, expected) = (name.to_owned(), describe(input));
            return Err(Error::InputRank { name, expected, found: shape.clone() });
        }
        for (axis, (dim, &found)) in dims.iter().zip(shape.iter()).enumerate() {
            if let Some(symbol) = dim.as_symbol() {
                let (first, by) =
                    self.known.entry(symbol.clone()).or_insert_with(|| (found, name.to_owned()));
                if *first != found {
                    return Err(Error::Disagree {
                        symbol: symbol.to_string(),
                        first: *first,
                        first_name: by.clone(),
                        second: found,
                        second_name: name.to_owned(),
                    });
                }
            } else if dim.as_known().is_some() {
                compare(name, axis, dim, dim.as_known(), found)?;
            } else {
                self.products.push((name.to_owned(), axis, dim.clone(), found));
            }
        }
        Ok(())
    }

    fn check_products(&self) -> Result<()> {
        let sizes: dim::Sizes = self
            .known
            .iter()
            .filter_map(|(symbol, (size, _))| Some((symbol.clone(), i64::try_from(*size).ok()?)))
            .collect();
        for (name, axis, dim, found) in &self.products {
            // A product with a symbol that no input gives alone cannot be checked.
            if let Some(value) = dim.at(&sizes) {
                compare(name, *axis, dim, Some(value), *found)?;
            }
        }
        Ok(())
    }
}

fn compare(name: &str, axis: usize, dim: &Dim, value: Option<i64>, found: usize) -> Result<()> {
    if value.and_then(|value| usize::try_from(value).ok()) == Some(found) {
        return Ok(());
    }
    let expected = match (dim.as_known(), value) {
        (None, Some(value)) => format!("{dim} = {value}"),
        _ => dim.to_string(),
    };
    Err(Error::InputExtent { name: name.to_owned(), axis, expected, found })
}

#[cfg(test)]
mod tests {
    use frazil_graph::Node;

    use super::*;

    fn graph() -> Graph {
        let mut graph = Graph::new();
        let mut add = |name: &str, dtype, dims: Option<Vec<Dim>>| {
            let op = Op::Input(Input { dtype, dims });
            let value = graph.push(Node::new(name, op, vec![])).unwrap().into();
            graph.inputs.push(Port { name: name.into(), value });
        };
        let rows = Dim::batch().times(&Dim::seq()).unwrap();
        add("input_ids", DType::I32, Some(vec![Dim::batch(), Dim::seq()]));
        add("input_mask", DType::I32, Some(vec![Dim::batch(), Dim::seq()]));
        add("rows", DType::F32, Some(vec![rows, Dim::known(2)]));
        graph
    }

    fn ints(shape: [usize; 2], value: i64) -> Tensor {
        Tensor::from_vec(shape, vec![value; shape[0] * shape[1]]).unwrap()
    }

    fn good() -> Inputs {
        let rows = Tensor::from_vec([6, 2], vec![0.5f32; 12]).unwrap();
        Inputs::from([
            ("input_ids".into(), ints([2, 3], 7)),
            ("input_mask:0".into(), ints([2, 3], 1)),
            ("rows".into(), rows),
        ])
    }

    fn feed(inputs: &Inputs) -> Result<Feed> {
        Feed::new(&graph(), inputs, |_| true)
    }

    fn message(change: impl FnOnce(&mut Inputs)) -> String {
        let mut inputs = good();
        change(&mut inputs);
        feed(&inputs).unwrap_err().to_string()
    }

    #[test]
    fn converts_what_fits_and_says_so() {
        let feed = feed(&good()).unwrap();
        assert_eq!(feed.values.len(), 3);
        assert_eq!(feed.values[&NodeId(0)].dtype(), DType::I32);
        assert_eq!(feed.notes[0], "input `input_ids` was given as int64 and converted to int32");
        assert_eq!(feed.notes.len(), 2);
    }

    #[test]
    fn refuses_with_where_and_why() {
        let table: [(&str, String); 7] = [
            (
                "input `input_ids` is int32, which cannot hold 4294967296 (element 0)",
                message(|i| drop(i.insert("input_ids".into(), ints([2, 3], 1 << 32)))),
            ),
            (
                "input `input_mask` (int32 [batch, seq]) is not given",
                message(|i| drop(i.remove("input_mask:0"))),
            ),
            (
                "`batch` is 2 in input `input_ids`, but 4 in input `input_mask`",
                message(|i| drop(i.insert("input_mask:0".into(), ints([4, 3], 1)))),
            ),
            (
                "axis 0 of input `rows` is batch*seq = 6, but 5 was given",
                message(|i| {
                    let rows = Tensor::from_vec([5, 2], vec![0f32; 10]).unwrap();
                    i.insert("rows".into(), rows);
                }),
            ),
            (
                "axis 1 of input `rows` is 2, but 1 was given",
                message(|i| {
                    let rows = Tensor::from_vec([6, 1], vec![0f32; 6]).unwrap();
                    i.insert("rows".into(), rows);
                }),
            ),
            (
                "input `rows` is float32, but int64 was given",
                message(|i| drop(i.insert("rows".into(), ints([6, 2], 1)))),
            ),
            (
                "the model has no input `input_id`",
                message(|i| drop(i.insert("input_id".into(), ints([2, 3], 1)))),
            ),
        ];
        for (expected, found) in table {
            assert_eq!(found, expected);
        }
        let mut rank = good();
        rank.insert("input_ids".into(), Tensor::from_vec([6], vec![1i32; 6]).unwrap());
        let error = feed(&rank).unwrap_err();
        assert_eq!(error.to_string(), "input `input_ids` is int32 [batch, seq], but [6] was given");
        let mut unknown = good();
        unknown.insert("input_idz".into(), ints([2, 3], 1));
        assert_eq!(feed(&unknown).unwrap_err().hint().unwrap(), "did you mean `input_ids`?");
    }
}
