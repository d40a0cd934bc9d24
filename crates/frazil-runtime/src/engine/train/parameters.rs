//! The weights of a model that is trained.

use std::collections::HashMap;

use frazil_graph::{Graph, Op};
use frazil_tensor::{DType, Shape, StoreError, Tensor, TensorInfo, TensorStore};

use crate::engine::block::Block;
use crate::{Error, Result};

/// The values of a graph's variables, in the order of the graph; and a store of them by name, so that
/// another graph of the same model can have them.
#[derive(Clone, Default)]
pub struct Parameters {
    all: Vec<Parameter>,
    places: HashMap<String, usize>,
    infos: Vec<TensorInfo>,
}

#[derive(Clone)]
struct Parameter {
    name: String,
    shape: Shape,
    block: Block,
    len: usize,
}

impl Parameters {
    /// Zeros for every variable of the graph; all must be `float32` of known shape.
    pub fn zeros(graph: &Graph) -> Result<Self> {
        let mut parameters = Self::default();
        for (_, node) in graph.nodes() {
            let Op::Variable(variable) = &node.op else { continue };
            let (Some(shape), DType::F32) = (&variable.shape, variable.dtype) else {
                let found = format!("{} of unknown shape", variable.dtype);
                return Err(Error::Parameter { name: node.name.clone(), found });
            };
            let room = shape.elements().and_then(|len| Some((len, Block::zeroed(len)?)));
            let (len, block) = room.ok_or_else(|| Error::Parameter {
                name: node.name.clone(),
                found: format!("{shape}, for which there is no room"),
            })?;
            parameters.places.insert(node.name.clone(), parameters.all.len());
            let (name, shape) = (node.name.clone(), shape.clone());
            let info = TensorInfo { name: name.clone(), dtype: DType::F32, shape: shape.clone() };
            parameters.infos.push(info);
            parameters.all.push(Parameter { name, shape, block, len });
        }
        parameters.infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(parameters)
    }

    /// The same with values out of a store; one that it lacks, or has of another shape, is an error.
    pub fn read(graph: &Graph, store: &dyn TensorStore) -> Result<Self> {
        let mut parameters = Self::zeros(graph)?;
        for at in 0..parameters.len() {
            let name = parameters.name(at).to_owned();
            let tensor = store.tensor(&name).map_err(|source| {
                Error::Graph(frazil_graph::Error::Store { name: name.clone(), source })
            })?;
            parameters.set(at, &tensor)?;
            tensor.release();
        }
        Ok(parameters)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Which one has this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    /// The name of a variable.
    pub fn name(&self, at: usize) -> &str {
        &self.all[at].name
    }

    /// Its shape.
    pub fn shape(&self, at: usize) -> &Shape {
        &self.all[at].shape
    }

    /// Its value, row by row.
    pub fn values(&self, at: usize) -> &[f32] {
        &self.all[at].block.f32()[..self.all[at].len]
    }

    /// Its value, to be changed.
    pub fn values_mut(&mut self, at: usize) -> &mut [f32] {
        let len = self.all[at].len;
        &mut self.all[at].block.f32_mut()[..len]
    }

    /// All values, to be changed.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.all.iter_mut().map(|one| &mut one.block.f32_mut()[..one.len])
    }

    /// Gives a variable a value; one of another type or shape is refused.
    pub fn set(&mut self, at: usize, value: &Tensor) -> Result<()> {
        let wrong = || Error::Parameter {
            name: self.all[at].name.clone(),
            found: format!(
                "{} {}, not float32 {}",
                value.dtype(),
                value.shape(),
                self.all[at].shape
            ),
        };
        if *value.shape() != self.all[at].shape {
            return Err(wrong());
        }
        let values = value.values::<f32>().map_err(|_| wrong())?;
        self.values_mut(at).copy_from_slice(&values);
        Ok(())
    }

    /// A variable's value as a tensor of its own.
    pub fn to_tensor(&self, at: usize) -> Tensor {
        Tensor::from_vec(self.all[at].shape.clone(), self.values(at).to_vec())
            .expect("as many numbers as the shape has")
    }
}

impl std::fmt::Debug for Parameters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parameters").field("infos", &self.infos).finish_non_exhaustive()
    }
}

impl TensorStore for Parameters {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> std::result::Result<Tensor, StoreError> {
        let at = self.position(name).ok_or_else(|| format!("there is no weight `{name}`"))?;
        Ok(self.to_tensor(at))
    }
}
