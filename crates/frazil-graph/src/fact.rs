//! What is known of a value before anything runs: type, extents, and for the small integer
//! tensors of shape arithmetic also the elements.

use std::fmt;
use std::ops::Index;

use frazil_tensor::DType;

use crate::dim::show;
use crate::{Dim, Value};

/// What is known of one value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    /// Element type; `None` for what is no tensor, and for the unknown.
    pub dtype: Option<DType>,
    /// Extents; `None` if not even the rank is known.
    pub dims: Option<Vec<Dim>>,
    /// The elements in row-major order, for integer tensors that shape arithmetic computed or
    /// that are constants of at most [`Fact::MOST_ELEMENTS`].
    pub elements: Option<Vec<Dim>>,
}

impl Fact {
    /// Larger tensors are data, not shape arithmetic.
    pub const MOST_ELEMENTS: usize = 64;

    /// A tensor of which type and extents are known.
    pub fn tensor(dtype: Option<DType>, dims: Vec<Dim>) -> Self {
        Self { dtype, dims: Some(dims), elements: None }
    }

    /// The number of axes, if known.
    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// The extents as numbers, if all of them are.
    pub fn known_dims(&self) -> Option<Vec<i64>> {
        self.dims.as_ref()?.iter().map(Dim::as_known).collect()
    }

    /// The elements as numbers, if all of them are.
    pub fn known_elements(&self) -> Option<Vec<i64>> {
        self.elements.as_ref()?.iter().map(Dim::as_known).collect()
    }
}

/// `int32 [batch, seq]`, `float32 ?` for an unknown rank, with ` = […]` where elements are known.
impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype {
            Some(dtype) => write!(f, "{dtype} ")?,
            None => f.write_str("? ")?,
        }
        match &self.dims {
            Some(dims) => f.write_str(&show(dims))?,
            None => f.write_str("?")?,
        }
        if let Some(elements) = &self.elements {
            write!(f, " = {}", show(elements))?;
        }
        Ok(())
    }
}

/// The facts of every value of a graph; made by [`crate::infer`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    pub(crate) nodes: Vec<Vec<Fact>>,
}

impl Index<Value> for Facts {
    type Output = Fact;

    fn index(&self, value: Value) -> &Fact {
        &self.nodes[value.node.index()][value.port as usize]
    }
}
