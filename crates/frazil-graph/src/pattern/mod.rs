//! Patterns: formulas that are looked for in a graph.
//!
//! A pattern is written as the formula that it finds, and anchors on its last node:
//!
//! ```
//! use frazil_graph::pattern::{any, erf};
//! let x = any("x");
//! let gelu = 0.5 * x.clone() * (1.0 + erf(x / f64::sqrt(2.0)));
//! # let _ = gelu;
//! ```
//!
//! - `+` and `*` match their operands in either order; [`product`] and [`sum`] also in any
//!   grouping.
//! - Numbers match constants of one element, and what is computed from such constants alone
//!   (`sqrt(2)`), within [`tolerance`].
//! - Identities (`Identity`, `StopGradient`, reads of resource variables) are looked through.
//! - A name that occurs again must stand for the same value.
//!
//! [`Pattern::find`] gives the bindings and the nodes in between; [`Pattern::explain`] says how
//! far a pattern that does not match got, and what it met there. What this module leaves out:
//! shapes. Rules check them on the facts of what was bound.

mod number;
mod search;

use std::ops::{Add, Div, Mul, Sub};
use std::sync::Arc;

use crate::op::{Binary, Compare, Op, ReduceKind, Unary};

pub use number::{scalar, tolerance};
pub use search::{Explanation, Match, source};

/// A formula to look for. Cheap to clone; a clone that occurs twice may match two nodes that
/// compute the same.
#[derive(Clone, Debug)]
pub struct Pattern(pub(crate) Arc<Kind>);

#[derive(Debug)]
pub(crate) enum Kind {
    /// Any value, bound.
    Any(&'static str),
    /// The value of a constant or a variable, bound.
    Weight(&'static str),
    /// This number.
    Constant(f64),
    /// Any constant number, bound.
    Number(&'static str),
    /// These integers.
    List(Vec<i64>),
    /// A node of one output, whatever its inputs.
    Leaf(Want),
    /// A node of one output whose inputs match.
    Node { want: Want, inputs: Vec<Pattern>, either_order: bool },
    /// The first that matches.
    OneOf(Vec<Pattern>),
    /// Behind any number of nodes that pass on their first input in another shape.
    Reshaped(Pattern),
    /// The same, with the value bound to a name.
    Bound(&'static str, Pattern),
    /// The same; whoever got here was close.
    Key(Pattern),
}

/// Which operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    Unary(Unary),
    Binary(Binary),
    Compare(Compare),
    /// By a test, with a name for messages.
    Is(&'static str, fn(&Op) -> bool),
}

impl Want {
    pub(crate) fn accepts(self, op: &Op) -> bool {
        match self {
            Want::Unary(kind) => *op == Op::Unary(kind),
            // A bias is added like anything else; a sum of two is a sum.
            Want::Binary(Binary::Add) => {
                matches!(op, Op::Binary(Binary::Add) | Op::BiasAdd | Op::AddN)
            }
            Want::Binary(kind) => *op == Op::Binary(kind),
            Want::Compare(kind) => *op == Op::Compare(kind),
            Want::Is(_, test) => test(op),
        }
    }

    pub(crate) fn name(self) -> String {
        match self {
            Want::Unary(kind) => format!("{kind:?}"),
            Want::Binary(kind) => format!("{kind:?}"),
            Want::Compare(kind) => format!("{kind:?}"),
            Want::Is(name, _) => name.to_owned(),
        }
    }
}

impl Pattern {
    fn new(kind: Kind) -> Self {
        Self(Arc::new(kind))
    }

    /// Binds what this matches to a name.
    pub fn bind(self, name: &'static str) -> Self {
        Self::new(Kind::Bound(name, self))
    }

    /// Marks the node by which a reader would recognise the formula: a match that fails behind it
    /// was close, see [`Explanation::key`].
    pub fn key(self) -> Self {
        Self::new(Kind::Key(self))
    }
}

/// Any value.
pub fn any(name: &'static str) -> Pattern {
    Pattern::new(Kind::Any(name))
}

/// A constant of any shape, or a variable; or either in bytes ([`Op::Scaled`]).
pub fn weight(name: &'static str) -> Pattern {
    Pattern::new(Kind::Weight(name))
}

/// A number, within [`tolerance`].
pub fn constant(value: f64) -> Pattern {
    Pattern::new(Kind::Constant(value))
}

/// Any number that is known; [`Match::number`] tells it.
pub fn number(name: &'static str) -> Pattern {
    Pattern::new(Kind::Number(name))
}

/// The first of several that matches.
pub fn one_of(patterns: impl IntoIterator<Item = Pattern>) -> Pattern {
    Pattern::new(Kind::OneOf(patterns.into_iter().collect()))
}

/// A pattern behind any number of `Reshape`, `ExpandDims` and `Squeeze`, which leave the elements
/// and their order alone.
pub fn reshaped(pattern: Pattern) -> Pattern {
    Pattern::new(Kind::Reshaped(pattern))
}

/// A node that passes a test, `name` in messages, with these inputs in order.
pub fn node(name: &'static str, test: fn(&Op) -> bool, inputs: Vec<Pattern>) -> Pattern {
    Pattern::new(Kind::Node { want: Want::Is(name, test), inputs, either_order: false })
}

/// A node that passes a test, `name` in messages, whatever its inputs are.
pub fn leaf(name: &'static str, test: fn(&Op) -> bool) -> Pattern {
    Pattern::new(Kind::Leaf(Want::Is(name, test)))
}

/// A constant list of integers.
pub fn list(values: &[i64]) -> Pattern {
    Pattern::new(Kind::List(values.to_vec()))
}

/// An element-wise function.
pub fn unary(kind: Unary, x: Pattern) -> Pattern {
    Pattern::new(Kind::Node { want: Want::Unary(kind), inputs: vec![x], either_order: false })
}

/// An element-wise function of two; in either order where that makes no difference.
pub fn binary(kind: Binary, x: Pattern, y: Pattern) -> Pattern {
    let either_order = matches!(
        kind,
        Binary::Add
            | Binary::Mul
            | Binary::SquaredDifference
            | Binary::Maximum
            | Binary::Minimum
            | Binary::And
            | Binary::Or
    );
    Pattern::new(Kind::Node { want: Want::Binary(kind), inputs: vec![x, y], either_order })
}

/// `x >= y` and the like.
pub fn compare(kind: Compare, x: Pattern, y: Pattern) -> Pattern {
    Pattern::new(Kind::Node {
        want: Want::Compare(kind),
        inputs: vec![x, y],
        either_order: matches!(kind, Compare::Equal | Compare::NotEqual),
    })
}

/// `tanh(x)`
pub fn tanh(x: Pattern) -> Pattern {
    unary(Unary::Tanh, x)
}

/// `erf(x)`
pub fn erf(x: Pattern) -> Pattern {
    unary(Unary::Erf, x)
}

/// `sqrt(x)`, also as `x ^ 0.5`
pub fn sqrt(x: Pattern) -> Pattern {
    one_of([unary(Unary::Sqrt, x.clone()), binary(Binary::Pow, x, constant(0.5))])
}

/// `1 / sqrt(x)` in any spelling.
pub fn rsqrt(x: Pattern) -> Pattern {
    one_of([
        unary(Unary::Rsqrt, x.clone()),
        unary(Unary::Reciprocal, sqrt(x.clone())),
        1.0 / sqrt(x.clone()),
        binary(Binary::Pow, x, constant(-0.5)),
    ])
}

/// `x²` as a square, a power or a product.
pub fn square(x: Pattern) -> Pattern {
    one_of([
        unary(Unary::Square, x.clone()),
        binary(Binary::Pow, x.clone(), constant(2.0)),
        x.clone() * x,
    ])
}

/// `x³` as a power or a product.
pub fn cube(x: Pattern) -> Pattern {
    one_of([binary(Binary::Pow, x.clone(), constant(3.0)), square(x.clone()) * x])
}

/// The mean over `axes`, which stay with extent 1.
pub fn mean(x: Pattern, axes: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::Reduce(op) if op.kind == ReduceKind::Mean && op.keep_dims)
    }
    node("ReduceMean that keeps its axes", test, vec![x, axes])
}

/// The axes in another order.
pub fn transpose(x: Pattern, permutation: &[i64]) -> Pattern {
    node("Transpose", |op| *op == Op::Transpose, vec![x, list(permutation)])
}

/// The same elements under a shape that the pattern does not care about.
pub fn reshape(x: Pattern, shape: Pattern) -> Pattern {
    node("Reshape", |op| *op == Op::Reshape, vec![x, shape])
}

/// `softmax(x)`
pub fn softmax(x: Pattern) -> Pattern {
    node("Softmax", |op| *op == Op::Softmax, vec![x])
}

/// `a b`, neither transposed.
pub fn matmul(a: Pattern, b: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::MatMul(op) if !op.transpose_a && !op.transpose_b)
    }
    node("MatMul of plain operands", test, vec![a, b])
}

/// `a bᵀ`, transposed by the product itself.
pub fn matmul_transposed(a: Pattern, b: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::MatMul(op) if !op.transpose_a && op.transpose_b)
    }
    node("MatMul with its second operand transposed", test, vec![a, b])
}

/// A product of three or more factors in any order and grouping.
pub fn product(factors: &[Pattern]) -> Pattern {
    grouped(factors, Binary::Mul)
}

/// A sum of three or more in any order and grouping.
pub fn sum(terms: &[Pattern]) -> Pattern {
    grouped(terms, Binary::Add)
}

/// Every way to split the operands in two, each part again grouped in every way.
fn grouped(all: &[Pattern], kind: Binary) -> Pattern {
    if let [single] = all {
        return single.clone();
    }
    // The first operand is always on the left: the other half of the ways is the other order.
    let (first, rest) = all.split_first().expect("a product or a sum is of something");
    let ways = (0..(1u32 << rest.len()) - 1).map(|chosen| {
        let (mut left, mut right) = (vec![first.clone()], Vec::new());
        for (i, operand) in rest.iter().enumerate() {
            let side = if chosen >> i & 1 == 1 { &mut left } else { &mut right };
            side.push(operand.clone());
        }
        binary(kind, grouped(&left, kind), grouped(&right, kind))
    });
    one_of(ways.collect::<Vec<_>>())
}

macro_rules! operator {
    ($trait:ident, $method:ident, $kind:expr) => {
        impl $trait for Pattern {
            type Output = Pattern;

            fn $method(self, other: Pattern) -> Pattern {
                binary($kind, self, other)
            }
        }

        impl $trait<f64> for Pattern {
            type Output = Pattern;

            fn $method(self, other: f64) -> Pattern {
                binary($kind, self, constant(other))
            }
        }

        impl $trait<Pattern> for f64 {
            type Output = Pattern;

            fn $method(self, other: Pattern) -> Pattern {
                binary($kind, constant(self), other)
            }
        }
    };
}

operator!(Add, add, Binary::Add);
operator!(Sub, sub, Binary::Sub);
operator!(Mul, mul, Binary::Mul);
operator!(Div, div, Binary::Div);
