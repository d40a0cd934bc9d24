//! Concrete shapes. Symbolic ones belong to the graph.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// The extents of a tensor, outermost first; empty for a scalar.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A scalar's shape.
    pub fn scalar() -> Self {
        Self::default()
    }

    /// The number of elements; `None` if it does not fit in `usize`.
    pub fn elements(&self) -> Option<usize> {
        // A zero anywhere makes the tensor empty, whatever the other extents multiply to.
        if self.0.contains(&0) {
            return Some(0);
        }
        self.0.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim))
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Self {
        Self(dims)
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Self {
        Self(dims.to_vec())
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Self(dims.to_vec())
    }
}

/// `[2, 3]`; `[]` for a scalar.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.pad(&format!("[{}]", dims.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_is_checked() {
        assert_eq!(Shape::scalar().elements(), Some(1));
        assert_eq!(Shape::from([2, 3]).elements(), Some(6));
        assert_eq!(Shape::from([usize::MAX, 2]).elements(), None);
        assert_eq!(Shape::from([usize::MAX, 2, 0]).elements(), Some(0));
    }

    #[test]
    fn prints_like_python() {
        assert_eq!(Shape::from([2, 3]).to_string(), "[2, 3]");
        assert_eq!(Shape::scalar().to_string(), "[]");
    }
}
