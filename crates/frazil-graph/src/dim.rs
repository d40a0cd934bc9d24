//! Symbolic extents: polynomials with integer coefficients over named sizes.
//!
//! TF1's BERT multiplies sizes (`batch*seq` rows), so affine forms are not enough. A size that
//! nothing is known about is a symbol of its own (`?3`), equal to itself only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The name of a size that is not known before a batch arrives.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub struct Symbol(Arc<str>);

impl From<Symbol> for String {
    fn from(symbol: Symbol) -> Self {
        symbol.name().to_owned()
    }
}

impl From<String> for Symbol {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

impl Symbol {
    /// A symbol of that name.
    pub fn new(name: impl AsRef<str>) -> Self {
        Self(Arc::from(name.as_ref()))
    }

    /// Number of examples in a batch.
    pub fn batch() -> Self {
        Self::new("batch")
    }

    /// Number of positions in a sequence.
    pub fn seq() -> Self {
        Self::new("seq")
    }

    /// Number of positions in a batch that are no padding.
    pub fn rows() -> Self {
        Self::new("rows")
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What each symbol stands for in one run.
pub type Sizes = BTreeMap<Symbol, i64>;

/// A polynomial that outgrows this many terms is no size of a real model.
const MOST_TERMS: usize = 16;

/// An extent, or any integer that shape arithmetic computes: `64`, `batch`, `2*batch*seq + 1`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "Products", try_from = "Products")]
pub struct Dim {
    /// Products of symbols (sorted, repeated for powers) with their factors, none of them 0.
    terms: BTreeMap<Vec<Symbol>, i64>,
}

/// A polynomial as a list: factor and symbols of each product.
type Products = Vec<(i64, Vec<Symbol>)>;

impl From<Dim> for Products {
    fn from(dim: Dim) -> Self {
        dim.terms.into_iter().map(|(symbols, factor)| (factor, symbols)).collect()
    }
}

impl TryFrom<Products> for Dim {
    type Error = &'static str;

    fn try_from(products: Products) -> Result<Self, Self::Error> {
        let mut sum = Dim::known(0);
        for (factor, symbols) in products {
            let mut symbols = symbols.into_iter().map(Dim::symbol);
            let product = symbols.try_fold(Dim::known(factor), |all, one| all.times(&one));
            sum = product
                .and_then(|product| sum.plus(&product))
                .ok_or("an extent beyond all bounds")?;
        }
        Ok(sum)
    }
}

impl Dim {
    /// A number.
    pub fn known(value: i64) -> Self {
        let terms = if value == 0 { BTreeMap::new() } else { BTreeMap::from([(vec![], value)]) };
        Self { terms }
    }

    /// A symbol by itself.
    pub fn symbol(symbol: Symbol) -> Self {
        Self { terms: BTreeMap::from([(vec![symbol], 1)]) }
    }

    /// The number of examples.
    pub fn batch() -> Self {
        Self::symbol(Symbol::batch())
    }

    /// The number of positions.
    pub fn seq() -> Self {
        Self::symbol(Symbol::seq())
    }

    /// The number of positions in the batch that are no padding.
    pub fn rows() -> Self {
        Self::symbol(Symbol::rows())
    }

    /// The number, if no symbol is in it.
    pub fn as_known(&self) -> Option<i64> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&[][..]).copied(),
            _ => None,
        }
    }

    /// The symbol, if it stands alone.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        let mut terms = self.terms.iter();
        match (terms.next(), terms.next()) {
            (Some((product, 1)), None) if product.len() == 1 => product.first(),
            _ => None,
        }
    }

    /// Factor and symbols, if it is one product of them: `4*batch*seq`, but not `seq + 1`.
    pub(crate) fn as_product(&self) -> Option<(i64, &[Symbol])> {
        let mut terms = self.terms.iter();
        match (terms.next(), terms.next()) {
            (None, _) => Some((0, &[])),
            (Some((symbols, factor)), None) => Some((*factor, symbols)),
            _ => None,
        }
    }

    /// The products that it is the sum of: factor and symbols of each.
    pub(crate) fn products(&self) -> impl Iterator<Item = (i64, &[Symbol])> {
        self.terms.iter().map(|(symbols, factor)| (*factor, symbols.as_slice()))
    }

    /// Whether this is the number `value`.
    pub fn is(&self, value: i64) -> bool {
        self.as_known() == Some(value)
    }

    /// All symbols in it, sorted, each once.
    pub fn symbols(&self) -> Vec<Symbol> {
        let mut all: Vec<Symbol> = self.terms.keys().flatten().cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// The sum; `None` beyond all bounds.
    pub fn plus(&self, other: &Dim) -> Option<Dim> {
        let mut terms = self.terms.clone();
        for (product, factor) in &other.terms {
            let sum = terms.get(product).copied().unwrap_or(0).checked_add(*factor)?;
            if sum == 0 {
                terms.remove(product);
            } else {
                terms.insert(product.clone(), sum);
            }
        }
        (terms.len() <= MOST_TERMS).then_some(Dim { terms })
    }

    /// The negative; `None` beyond all bounds.
    pub fn negated(&self) -> Option<Dim> {
        self.times(&Dim::known(-1))
    }

    /// The difference; `None` beyond all bounds.
    pub fn minus(&self, other: &Dim) -> Option<Dim> {
        self.plus(&other.negated()?)
    }

    /// The product; `None` beyond all bounds.
    pub fn times(&self, other: &Dim) -> Option<Dim> {
        let mut result = Dim::known(0);
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut product = [a.as_slice(), b.as_slice()].concat();
                product.sort();
                let factor = x.checked_mul(*y)?;
                result = result.plus(&Dim { terms: BTreeMap::from([(product, factor)]) })?;
            }
        }
        Some(result)
    }

    /// The quotient where it is exact for every size: `batch*seq*64 / 64*batch` is `seq`.
    /// Divisors of more than one term divide only themselves.
    pub fn over(&self, divisor: &Dim) -> Option<Dim> {
        if self.terms.is_empty() {
            return (!divisor.is(0)).then(|| Dim::known(0));
        }
        if self == divisor {
            return Some(Dim::known(1));
        }
        let mut divisors = divisor.terms.iter();
        let (Some((by, factor)), None) = (divisors.next(), divisors.next()) else { return None };
        let mut terms = BTreeMap::new();
        for (product, x) in &self.terms {
            let mut left = product.clone();
            for symbol in by {
                left.remove(left.iter().position(|s| s == symbol)?);
            }
            if x.checked_rem(*factor)? != 0 {
                return None;
            }
            terms.insert(left, x.checked_div(*factor)?);
        }
        Some(Dim { terms })
    }

    /// The number that it comes to when the symbols have these sizes.
    pub fn at(&self, sizes: &Sizes) -> Option<i64> {
        self.terms.iter().try_fold(0i64, |sum, (product, factor)| {
            let term = product
                .iter()
                .try_fold(*factor, |value, symbol| value.checked_mul(*sizes.get(symbol)?))?;
            sum.checked_add(term)
        })
    }

    /// With every `symbol` replaced by `by`.
    pub fn with(&self, symbol: &Symbol, by: &Dim) -> Option<Dim> {
        if !self.terms.keys().any(|product| product.contains(symbol)) {
            return Some(self.clone());
        }
        self.terms.iter().try_fold(Dim::known(0), |sum, (product, factor)| {
            let mut term = Dim::known(*factor);
            for s in product {
                term = if s == symbol {
                    term.times(by)?
                } else {
                    term.times(&Dim::symbol(s.clone()))?
                };
            }
            sum.plus(&term)
        })
    }

    /// The product of extents: a shape's number of elements.
    pub fn product<'a>(dims: impl IntoIterator<Item = &'a Dim>) -> Option<Dim> {
        dims.into_iter().try_fold(Dim::known(1), |product, dim| product.times(dim))
    }
}

impl From<i64> for Dim {
    fn from(value: i64) -> Self {
        Self::known(value)
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Self::known(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.pad("0");
        }
        let mut text = String::new();
        // Longest products first, as one writes a polynomial.
        let mut terms: Vec<_> = self.terms.iter().collect();
        terms.sort_by_key(|(product, _)| std::cmp::Reverse(product.len()));
        for (product, factor) in terms {
            match (text.is_empty(), *factor < 0) {
                (true, true) => text.push('-'),
                (true, false) => {}
                (false, true) => text.push_str(" - "),
                (false, false) => text.push_str(" + "),
            }
            let size = factor.unsigned_abs();
            let names: Vec<&str> = product.iter().map(Symbol::name).collect();
            match (size, names.is_empty()) {
                (_, true) => text.push_str(&size.to_string()),
                (1, false) => text.push_str(&names.join("*")),
                (_, false) => text.push_str(&format!("{size}*{}", names.join("*"))),
            }
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `[batch, seq, 64]`, for messages and dumps.
pub fn show(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_exact() {
        let rows = Dim::batch().times(&Dim::seq()).unwrap();
        assert_eq!(rows.to_string(), "batch*seq");
        assert_eq!(rows, Dim::seq().times(&Dim::batch()).unwrap());
        let all = rows.times(&Dim::known(64)).unwrap();
        assert_eq!(all.over(&Dim::known(64)).unwrap(), rows);
        assert_eq!(all.over(&Dim::batch()).unwrap().to_string(), "64*seq");
        assert_eq!(all.over(&Dim::known(3)), None);
        assert_eq!(rows.minus(&rows).unwrap(), Dim::known(0));
        let sum = rows.plus(&Dim::known(-2)).unwrap();
        assert_eq!(sum.to_string(), "batch*seq - 2");
        let sizes = Sizes::from([(Symbol::batch(), 3), (Symbol::seq(), 7)]);
        assert_eq!(sum.at(&sizes), Some(19));
        assert_eq!(sum.with(&Symbol::seq(), &Dim::known(5)).unwrap().to_string(), "5*batch - 2");
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!(Dim::known(i64::MAX).plus(&Dim::known(1)), None);
        assert_eq!(Dim::known(i64::MAX).times(&Dim::known(2)), None);
        assert_eq!(Dim::known(i64::MIN).negated(), None);
        assert_eq!(Dim::known(5).over(&Dim::known(0)), None);
    }
}
