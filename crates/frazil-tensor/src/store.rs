//! Tensors by name: what every file of weights is, whatever its format.

use crate::{DType, Shape, Tensor};

/// What a listing tells of a tensor without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the file.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
}

impl TensorInfo {
    /// Bytes of all elements; `None` for strings and for shapes beyond all bounds.
    pub fn byte_len(&self) -> Option<usize> {
        self.shape.elements()?.checked_mul(self.dtype.size()?)
    }
}

/// The error of any store: each format has its own.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// A source of named tensors. Listing costs nothing; each tensor is read when asked for.
pub trait TensorStore: Send + Sync {
    /// All tensors, sorted by name.
    fn infos(&self) -> &[TensorInfo];

    /// The tensor of that name.
    fn tensor(&self, name: &str) -> Result<Tensor, StoreError>;

    /// The listing entry of that name.
    fn info(&self, name: &str) -> Option<&TensorInfo> {
        let infos = self.infos();
        infos.binary_search_by(|info| info.name.as_str().cmp(name)).ok().map(|i| &infos[i])
    }
}

impl<S: TensorStore + ?Sized> TensorStore for &S {
    fn infos(&self) -> &[TensorInfo] {
        (**self).infos()
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        (**self).tensor(name)
    }
}
