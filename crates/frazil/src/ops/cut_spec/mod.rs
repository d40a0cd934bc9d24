//! Where a model is cut, as users write it: the inputs with ports, shapes, types and frozen
//! values, and the outputs. This is Model Optimizer's grammar, of both ages: shapes separated by
//! spaces (2022.1) or commas (2022.3). `frazil convert` and `frazil mo` read the same.
//!
//! ```text
//! --input   item,item…      item = place, then [shape], {type} in any order, then ->value
//!           place           name | name:output port | input port:name
//!           shape           [1 128] (1,128) [? -1 1..8 1.. ..8] [] (a scalar)
//!           value           5 | True | [1 2 3] | [1,2,3]
//! --input_shape  [..],(..)  one for each of --input, or one alone
//! --output  place,place…
//! ```
//!
//! What this module leaves out: the graph. It knows texts only; whether a node exists and a
//! shape fits is found when the cut is made.

mod error;
mod parse;

use std::fmt;

use frazil_tensor::{DType, Tensor};

pub use error::{Error, Result};
pub use parse::{dtype_of, parse_freeze, parse_inputs, parse_outputs, parse_shapes};

/// One extent as a user writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DimSpec {
    /// A number.
    Known(u64),
    /// `?` or `-1`.
    Dynamic,
    /// `least..most`, each side may be open.
    Between {
        /// The smallest extent.
        least: u64,
        /// The largest, if there is one.
        most: Option<u64>,
    },
}

impl DimSpec {
    /// The number, if it is one.
    pub fn as_known(self) -> Option<u64> {
        match self {
            DimSpec::Known(extent) => Some(extent),
            DimSpec::Dynamic | DimSpec::Between { .. } => None,
        }
    }
}

/// As it is written, `1..8` for example.
impl fmt::Display for DimSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DimSpec::Known(extent) => write!(f, "{extent}"),
            DimSpec::Dynamic => f.write_str("?"),
            DimSpec::Between { least: 0, most: Some(most) } => write!(f, "..{most}"),
            DimSpec::Between { least, most: Some(most) } => write!(f, "{least}..{most}"),
            DimSpec::Between { least, most: None } => write!(f, "{least}.."),
        }
    }
}

/// `[1..8, 128]`, for messages.
pub fn show_shape(shape: &[DimSpec]) -> String {
    let dims: Vec<String> = shape.iter().map(DimSpec::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// One input of the cut model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputSpec {
    /// The node.
    pub name: String,
    /// Which output of it: `name:1`.
    pub port: Option<u32>,
    /// Which input of it: `1:name`. Never together with `port`.
    pub in_port: Option<u32>,
    /// Its shape, where given; empty for a scalar.
    pub shape: Option<Vec<DimSpec>>,
    /// Its element type, where given.
    pub dtype: Option<DType>,
    /// The value that it is frozen to: then it is no input any more.
    pub value: Option<FrozenValue>,
}

impl InputSpec {
    /// The name with its port, as it was written.
    pub fn place(&self) -> String {
        show_place(&self.name, self.port, self.in_port)
    }
}

/// One output of the cut model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputSpec {
    /// The node.
    pub name: String,
    /// Which output of it: `name:1`.
    pub port: Option<u32>,
    /// What its input of that number reads: `1:name`. Never together with `port`.
    pub in_port: Option<u32>,
}

impl OutputSpec {
    /// The name with its port, as it was written.
    pub fn place(&self) -> String {
        show_place(&self.name, self.port, self.in_port)
    }
}

fn show_place(name: &str, port: Option<u32>, in_port: Option<u32>) -> String {
    match (in_port, port) {
        (Some(number), _) => format!("{number}:{name}"),
        (None, Some(number)) => format!("{name}:{number}"),
        (None, None) => name.to_owned(),
    }
}

/// What an input is frozen to. Elements stay text until the type is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrozenValue {
    /// `->5`
    Scalar(String),
    /// `->[1 2 3]`
    List(Vec<String>),
}

impl FrozenValue {
    /// Number of elements.
    pub fn elements(&self) -> usize {
        match self {
            FrozenValue::Scalar(_) => 1,
            FrozenValue::List(elements) => elements.len(),
        }
    }

    /// The value as a tensor. Without a shape, a list is a vector and a single element a scalar;
    /// with one, it must have as many elements. `name` is the input's, for messages.
    pub fn tensor(&self, name: &str, dtype: DType, shape: Option<&[usize]>) -> Result<Tensor> {
        parse::tensor(self, name, dtype, shape)
    }
}

impl fmt::Display for FrozenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrozenValue::Scalar(element) => f.write_str(element),
            FrozenValue::List(elements) => write!(f, "[{}]", elements.join(" ")),
        }
    }
}

/// The options as they were written.
#[derive(Clone, Copy, Debug, Default)]
pub struct CutTexts<'a> {
    /// `--input`
    pub input: Option<&'a str>,
    /// `--input_shape`
    pub input_shape: Option<&'a str>,
    /// `--output`
    pub output: Option<&'a str>,
    /// `--freeze_placeholder_with_value`
    pub freeze: Option<&'a str>,
    /// `--batch`
    pub batch: Option<u64>,
}

/// What the options say together, checked against each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CutSpec {
    /// The inputs in the wanted order, those that are frozen among them; `None`: the model's own.
    pub inputs: Option<Vec<InputSpec>>,
    /// The shape of the model's only input, given without its name.
    pub only_shape: Option<Vec<DimSpec>>,
    /// The outputs in the wanted order; `None`: the model's own.
    pub outputs: Option<Vec<OutputSpec>>,
    /// Inputs that are frozen without being in `inputs`: by place and value.
    pub frozen: Vec<(OutputSpec, FrozenValue)>,
    /// What replaces axis 0 of every input.
    pub batch: Option<u64>,
}

impl CutSpec {
    /// Reads all of the options and checks them against each other.
    pub fn parse(texts: &CutTexts<'_>) -> Result<Self> {
        let mut inputs = texts.input.map(parse_inputs).transpose()?;
        let shapes = texts.input_shape.map(parse_shapes).transpose()?;
        let outputs = texts.output.map(parse_outputs).transpose()?;
        let shaped = inputs.iter().flatten().any(|input| input.shape.is_some());
        let conflict = |first, second| Err(Error::Conflict { first, second });
        match (shapes.is_some(), shaped, texts.batch.is_some()) {
            (true, _, true) => return conflict("--input_shape", "--batch"),
            (true, true, _) => return conflict("--input", "--input_shape"),
            (_, true, true) => return conflict("--input", "--batch"),
            _ => {}
        }
        let mut only_shape = None;
        match (&mut inputs, shapes) {
            (Some(inputs), Some(shapes)) => {
                if inputs.len() != shapes.len() {
                    return Err(Error::Count { inputs: inputs.len(), shapes: shapes.len() });
                }
                for (input, shape) in inputs.iter_mut().zip(shapes) {
                    input.shape = Some(shape);
                }
            }
            (None, Some(mut shapes)) => {
                if shapes.len() > 1 {
                    return Err(Error::NoNames { shapes: shapes.len() });
                }
                only_shape = shapes.pop();
            }
            (_, None) => {}
        }
        let mut frozen = Vec::new();
        for (place, value) in texts.freeze.map(parse_freeze).transpose()?.unwrap_or_default() {
            let same = |input: &&mut InputSpec| {
                (&input.name, input.port, input.in_port) == (&place.name, place.port, place.in_port)
            };
            match inputs.iter_mut().flatten().find(same) {
                None => frozen.push((place, value)),
                Some(input) => match &input.value {
                    Some(first) if *first != value => {
                        let (first, second) = (first.to_string(), value.to_string());
                        return Err(Error::TwoValues { name: place.place(), first, second });
                    }
                    _ => input.value = Some(value),
                },
            }
        }
        for input in inputs.iter().flatten() {
            check_frozen(input)?;
        }
        Ok(Self { inputs, only_shape, outputs, frozen, batch: texts.batch })
    }
}

/// A frozen input needs a shape in numbers and that many elements, where it has a shape.
fn check_frozen(input: &InputSpec) -> Result<()> {
    let (Some(shape), Some(value)) = (&input.shape, &input.value) else { return Ok(()) };
    let known: Option<Vec<u64>> = shape.iter().map(|dim| dim.as_known()).collect();
    let (name, shown) = (input.place(), show_shape(shape));
    let Some(known) = known else {
        return Err(Error::FrozenDynamic { name, shape: shown });
    };
    let expected = known
        .iter()
        .try_fold(1usize, |all, &dim| all.checked_mul(usize::try_from(dim).ok()?))
        .unwrap_or(usize::MAX);
    let found = value.elements();
    if expected != found {
        return Err(Error::ElementCount { name, shape: shown, expected, found });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
