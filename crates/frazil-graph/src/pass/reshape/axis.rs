//! An extent as the ordered factors that it is made of.
//!
//! A polynomial such as `batch*seq` does not say which of the two runs faster, and a reshape that
//! took one for the other would be wrong. So an axis here is a list of factors, slowest first:
//! flattening `[batch, seq]` gives the axis `batch·seq`, which splits into `[batch, seq]` again and
//! never into `[seq, batch]`.

use std::collections::HashMap;

use crate::{Dim, Sizes, Symbol};

/// One factor of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Atom {
    /// A number above 1. It can be split.
    Size(i64),
    /// A symbol. It cannot be split.
    Symbol(Symbol),
    /// What is no product, `seq + 2` for example. It cannot be split.
    Sum(Dim),
}

/// The factors of an axis, slowest first; none for the extent 1.
pub(super) type Axis = Vec<Atom>;

/// The extent as a polynomial; `None` beyond all bounds.
pub(super) fn extent(axis: &[Atom]) -> Option<Dim> {
    axis.iter().try_fold(Dim::known(1), |product, atom| match atom {
        Atom::Size(n) => product.times(&Dim::known(*n)),
        Atom::Symbol(symbol) => product.times(&Dim::symbol(symbol.clone())),
        Atom::Sum(dim) => product.times(dim),
    })
}

/// The factors of an extent of which the order is not known: batch first, then the number, then
/// the other symbols, as models lay them out.
pub(super) fn axis_of(dim: &Dim) -> Axis {
    let Some((factor, symbols)) = dim.as_product().filter(|(factor, _)| *factor > 0) else {
        return vec![Atom::Sum(dim.clone())];
    };
    let (batch, others): (Vec<&Symbol>, Vec<&Symbol>) =
        symbols.iter().partition(|symbol| **symbol == Symbol::batch());
    let mut axis: Axis = batch.into_iter().cloned().map(Atom::Symbol).collect();
    axis.push(Atom::Size(factor));
    axis.extend(others.into_iter().cloned().map(Atom::Symbol));
    merged(axis)
}

/// Neighbouring numbers as one, without factors of 1.
pub(super) fn merged(axis: impl IntoIterator<Item = Atom>) -> Axis {
    let mut result: Axis = Vec::new();
    for atom in axis {
        match (result.last_mut(), &atom) {
            (_, Atom::Size(1)) => {}
            (Some(Atom::Size(a)), Atom::Size(b)) if a.checked_mul(*b).is_some() => *a *= *b,
            _ => result.push(atom),
        }
    }
    result
}

/// Whether `symbol` is in it.
pub(super) fn has(axis: &[Atom], symbol: &Symbol) -> bool {
    axis.iter().any(|atom| match atom {
        Atom::Size(_) => false,
        Atom::Symbol(s) => s == symbol,
        Atom::Sum(dim) => dim.symbols().contains(symbol),
    })
}

/// Numbers to tell extents apart by: the size that is being generalised counts as what it was, and
/// every other symbol as a large prime of its own, so that it divides nothing by chance.
#[derive(Clone, Debug, Default)]
pub(super) struct Witness {
    sizes: HashMap<Symbol, i64>,
    primes: usize,
}

/// The first primes above one million.
const PRIMES: [i64; 12] = [
    1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121,
    1_000_133, 1_000_151, 1_000_159, 1_000_171,
];

impl Witness {
    /// Lets a symbol count as a number.
    pub(super) fn set(&mut self, symbol: Symbol, size: i64) {
        self.sizes.insert(symbol, size);
    }

    /// What an extent comes to; `None` beyond all bounds.
    pub(super) fn of(&mut self, dim: &Dim) -> Option<i128> {
        let mut sizes = Sizes::new();
        for symbol in dim.symbols() {
            let size = match self.sizes.get(&symbol) {
                Some(size) => *size,
                None => {
                    let prime = *PRIMES.get(self.primes)?;
                    self.primes += 1;
                    self.sizes.insert(symbol.clone(), prime);
                    prime
                }
            };
            sizes.insert(symbol, size);
        }
        dim.at(&sizes).map(i128::from)
    }

    /// What a factor comes to.
    fn of_atom(&mut self, atom: &Atom) -> Option<i128> {
        match atom {
            Atom::Size(n) => Some(i128::from(*n)),
            Atom::Symbol(symbol) => self.of(&Dim::symbol(symbol.clone())),
            Atom::Sum(dim) => self.of(dim),
        }
    }

    /// All ways to lay the factors of a tensor, in their order, out over axes of these extents
    /// (at most 64 of them). More than one only if a factor counts as 1; the way that gives such
    /// a factor an axis of its own comes first.
    pub(super) fn layouts(&mut self, atoms: &[Atom], extents: &[i128]) -> Vec<Vec<Axis>> {
        let mut found = Vec::new();
        self.lay(atoms, extents, &mut Vec::new(), &mut found);
        found
    }

    fn lay(
        &mut self,
        atoms: &[Atom],
        extents: &[i128],
        done: &mut Vec<Axis>,
        found: &mut Vec<Vec<Axis>>,
    ) {
        if found.len() >= 64 {
            return;
        }
        let Some((&wanted, rest)) = extents.split_first() else {
            if atoms.is_empty() {
                found.push(done.clone());
            }
            return;
        };
        for (axis, left) in self.groups(atoms, wanted) {
            done.push(axis);
            self.lay(&left, rest, done, found);
            done.pop();
        }
    }

    /// The first factors that make up one extent, with what is left, the best way first.
    fn groups(&mut self, atoms: &[Atom], wanted: i128) -> Vec<(Axis, Vec<Atom>)> {
        let mut ways = Vec::new();
        let mut product: i128 = 1;
        let mut taken: Axis = Vec::new();
        let mut left: Vec<Atom> = atoms.to_vec();
        loop {
            if product == wanted {
                ways.push((taken.clone(), left.clone()));
            }
            let Some(atom) = left.first().cloned() else { break };
            let Some(size) = self.of_atom(&atom).filter(|size| *size > 0) else { break };
            let needed = wanted / product;
            if needed % size == 0 && (needed > 1 || size == 1) {
                product *= size;
                taken.push(atom);
                left.remove(0);
            } else if let (Atom::Size(n), true) = (&atom, needed > 1 && size % needed == 0) {
                let Ok(part) = i64::try_from(needed) else { break };
                taken.push(Atom::Size(part));
                left[0] = Atom::Size(n / part);
                product = wanted;
            } else {
                break;
            }
        }
        // An axis of extent 1 takes a factor that counts as 1 before it stays empty.
        if wanted == 1 && ways.len() > 1 {
            ways.swap(0, 1);
        }
        ways
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atoms(text: &str) -> Vec<Atom> {
        let symbol = |word: &str| Atom::Symbol(Symbol::new(word));
        text.split_whitespace().map(|w| w.parse().map_or_else(|_| symbol(w), Atom::Size)).collect()
    }

    fn layouts(baked: i64, text: &str, extents: &[i128]) -> Vec<String> {
        let mut witness = Witness::default();
        witness.set(Symbol::batch(), baked);
        let ways = witness.layouts(&merged(atoms(text)), extents);
        let show = |axis: &Axis| extent(axis).unwrap().to_string();
        ways.iter().map(|way| way.iter().map(show).collect::<Vec<_>>().join(", ")).collect()
    }

    #[test]
    fn order_decides_where_sizes_collide() {
        // Four examples, four heads, length open, head size 4.
        let seq = i128::from(PRIMES[0]);
        assert_eq!(layouts(4, "batch seq 16", &[4, seq, 4, 4]), ["batch, seq, 4, 4"]);
        assert_eq!(layouts(4, "batch 4 seq 4", &[16, seq, 4]), ["4*batch, seq, 4"]);
        assert_eq!(layouts(4, "4 batch", &[4, 4]), ["4, batch"]);
        // The batch cannot be split.
        assert!(layouts(4, "batch seq 16", &[2, 2, seq, 16]).is_empty());
    }

    #[test]
    fn one_example_leaves_a_choice() {
        let seq = i128::from(PRIMES[0]);
        assert_eq!(
            layouts(1, "batch seq 768", &[1, seq, 768]),
            ["batch, seq, 768", "1, batch*seq, 768"]
        );
        assert_eq!(
            layouts(1, "batch seq", &[1, 1, seq]),
            ["batch, 1, seq", "1, batch, seq", "1, 1, batch*seq"]
        );
        assert_eq!(layouts(1, "batch seq 768", &[seq, 768]), ["batch*seq, 768"]);
    }
}
