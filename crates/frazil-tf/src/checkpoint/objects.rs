//! The object graph of TensorFlow 2 checkpoints. Their tensors are named by the path through
//! the Python objects (`model/layer/0/kernel/.ATTRIBUTES/VARIABLE_VALUE`); the graph tells the
//! variable's own name, which is what TensorFlow 1 would have used.

use frazil_tensor::Tensor;

use crate::decode::decode;
use crate::proto::TrackableObjectGraph;
use crate::{Error, Result};

/// The tensor that holds the graph.
pub(super) const KEY: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// A saved value of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// Name of the tensor in the checkpoint.
    pub key: String,
    /// The variable's own name; empty where the program gave none.
    pub full_name: String,
    /// Which of the object's values it is: `VARIABLE_VALUE` for a variable.
    pub attribute: String,
}

/// The names on both sides, sorted by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectNames(Vec<ObjectName>);

impl ObjectNames {
    pub(super) fn decode(tensor: &Tensor) -> Result<Self> {
        let [graph] = tensor.strings()? else {
            return Err(Error::Corrupt {
                what: "the checkpoint's object graph",
                at: 0,
                reason: format!("it should be one string, but has shape {}", tensor.shape()),
            });
        };
        let graph = decode::<TrackableObjectGraph>(graph.clone())?;
        let attributes = graph.nodes.into_iter().flat_map(|node| node.attributes);
        let mut names: Vec<ObjectName> = attributes
            .map(|attribute| ObjectName {
                key: attribute.checkpoint_key,
                full_name: attribute.full_name,
                attribute: attribute.name,
            })
            .collect();
        names.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(Self(names))
    }

    /// All of them, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = &ObjectName> {
        self.0.iter()
    }

    /// The variable's own name of a tensor in the checkpoint, where it has one.
    pub fn full_name(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|name| name.key.as_str().cmp(key)).ok()?;
        Some(self.0[found].full_name.as_str()).filter(|name| !name.is_empty())
    }

    /// The tensor in the checkpoint that is the variable of that name.
    pub fn key(&self, full_name: &str) -> Option<&str> {
        let found = self.0.iter().find(|name| name.full_name == full_name)?;
        Some(found.key.as_str()).filter(|_| !full_name.is_empty())
    }
}
