//! Constants that may stand for the size: what is decided of each, and why.
//!
//! Every entry of a constant that sets an extent and that has the size's value is a question: is it
//! the size, or a number that happens to be the same? It enters the shapes as a symbol of its own.
//! Where two extents must agree, or must broadcast, *for every size*, most questions answer
//! themselves: next to `seq` only `seq` can stand, next to a weight's 128 only 128. Questions that
//! must have the same answer become one.

use std::collections::HashMap;

use super::axis::{Atom, Axis, extent, has, merged};
use crate::{Dim, NodeId, Symbol};

/// Where a question comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Origin {
    /// The node.
    pub node: NodeId,
    /// Which of its constants.
    pub slot: Slot,
}

/// Which constant of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Slot {
    /// An entry of an operand that lists extents: number of the input, number of the entry.
    Operand(usize, usize),
    /// An axis of a constant that can be made longer or shorter: a fill or a progression.
    Axis(usize),
    /// An axis of a weight, of which the first rows can be taken.
    Weight(usize),
    /// An axis of an input.
    Input(usize),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// A number.
    Literal,
    /// The size.
    Size,
}

#[derive(Clone, Debug)]
struct Open {
    origin: Origin,
    symbol: Symbol,
    /// The question that this one is the same as; itself if none.
    same: usize,
    answer: Option<Answer>,
    because: String,
    /// Whether anything was computed from it.
    used: bool,
}

/// All questions about one size.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    /// The size.
    pub symbol: Symbol,
    /// What it was.
    pub baked: i64,
    opens: Vec<Open>,
    places: HashMap<Origin, usize>,
    symbols: HashMap<Symbol, usize>,
    /// Whether anything was decided since it was last set to `false`.
    pub moved: bool,
}

impl Ledger {
    pub(super) fn new(symbol: Symbol, baked: i64) -> Self {
        Self {
            symbol,
            baked,
            opens: Vec::new(),
            places: HashMap::new(),
            symbols: HashMap::new(),
            moved: false,
        }
    }

    /// The symbol of a question, the same each time.
    pub(super) fn ask(&mut self, origin: Origin) -> Symbol {
        if let Some(&place) = self.places.get(&origin) {
            return self.opens[place].symbol.clone();
        }
        let place = self.opens.len();
        let symbol = Symbol::new(format!("open.{place}"));
        self.places.insert(origin, place);
        self.symbols.insert(symbol.clone(), place);
        self.opens.push(Open {
            origin,
            symbol: symbol.clone(),
            same: place,
            answer: None,
            because: String::new(),
            used: false,
        });
        self.moved = true;
        symbol
    }

    /// All symbols of questions.
    pub(super) fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.opens.iter().map(|open| &open.symbol)
    }

    fn root(&self, mut place: usize) -> usize {
        while self.opens[place].same != place {
            place = self.opens[place].same;
        }
        place
    }

    /// Records an answer.
    pub(super) fn decide(&mut self, place: usize, answer: Answer, because: &str) {
        let root = self.root(place);
        if self.opens[root].answer.is_none() {
            self.opens[root].answer = Some(answer);
            self.opens[root].because = because.to_owned();
            self.moved = true;
        }
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        let undecided = self.opens[a].answer.is_none() && self.opens[b].answer.is_none();
        if a != b && undecided {
            let (first, second) = (a.min(b), a.max(b));
            self.opens[second].same = first;
            self.opens[first].used |= self.opens[second].used;
            self.moved = true;
        }
    }

    /// Questions without an answer that something was computed from: one of each group that has
    /// to have the same answer, with the whole group.
    pub(super) fn unanswered(&self) -> Vec<(usize, Vec<Origin>)> {
        let mut groups: Vec<(usize, Vec<Origin>)> = Vec::new();
        for (place, open) in self.opens.iter().enumerate() {
            let root = self.root(place);
            if self.opens[root].answer.is_some() || !self.opens[root].used {
                continue;
            }
            match groups.iter_mut().find(|(group, _)| *group == root) {
                Some((_, members)) => members.push(open.origin),
                None => groups.push((root, vec![open.origin])),
            }
        }
        groups
    }

    /// Gives every question that is still open the same answer.
    pub(super) fn decide_rest(&mut self, answer: Answer) {
        for open in &mut self.opens {
            if open.answer.is_none() {
                open.answer = Some(answer);
            }
        }
    }

    /// An axis with all answers put in.
    pub(super) fn resolve(&self, axis: &[Atom]) -> Axis {
        self.resolve_with(axis, &[])
    }

    fn resolve_with(&self, axis: &[Atom], guess: &[(usize, Answer)]) -> Axis {
        merged(axis.iter().map(|atom| match atom {
            Atom::Size(_) => atom.clone(),
            Atom::Symbol(symbol) => match self.symbols.get(symbol) {
                None => atom.clone(),
                Some(&place) => match self.answer(place, guess) {
                    None => Atom::Symbol(self.opens[self.root(place)].symbol.clone()),
                    Some(Answer::Literal) => Atom::Size(self.baked),
                    Some(Answer::Size) => Atom::Symbol(self.symbol.clone()),
                },
            },
            Atom::Sum(dim) => match self.resolve_dim(dim) {
                dim if dim.as_known().is_some_and(|n| n > 0) => {
                    Atom::Size(dim.as_known().unwrap_or(1))
                }
                dim => Atom::Sum(dim),
            },
        }))
    }

    fn answer(&self, place: usize, guess: &[(usize, Answer)]) -> Option<Answer> {
        let root = self.root(place);
        let guessed = guess.iter().find(|(at, _)| *at == root).map(|(_, answer)| *answer);
        self.opens[root].answer.or(guessed)
    }

    /// A polynomial with all answers put in.
    pub(super) fn resolve_dim(&self, dim: &Dim) -> Dim {
        let mut result = dim.clone();
        for symbol in dim.symbols() {
            let Some(&place) = self.symbols.get(&symbol) else { continue };
            let root = self.root(place);
            let by = match self.opens[root].answer {
                None => Dim::symbol(self.opens[root].symbol.clone()),
                Some(Answer::Literal) => Dim::known(self.baked),
                Some(Answer::Size) => Dim::symbol(self.symbol.clone()),
            };
            result = result.with(&symbol, &by).unwrap_or(result);
        }
        result
    }

    /// The questions in an axis that have no answer yet.
    pub(super) fn opens_in(&self, axis: &[Atom]) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        for atom in axis {
            if let Atom::Symbol(symbol) = atom
                && let Some(&place) = self.symbols.get(symbol)
            {
                let root = self.root(place);
                if self.opens[root].answer.is_none() && !found.contains(&root) {
                    found.push(root);
                }
            }
        }
        found
    }

    /// Whether one of the axis' questions is about a weight.
    pub(super) fn of_weight(&self, axis: &[Atom]) -> Vec<usize> {
        let opens = self.opens_in(axis);
        let weights: Vec<usize> = (0..self.opens.len())
            .filter(|&place| matches!(self.opens[place].origin.slot, Slot::Weight(_)))
            .map(|place| self.root(place))
            .collect();
        opens.into_iter().filter(|root| weights.contains(root)).collect()
    }

    /// Notes that something is computed from an axis.
    pub(super) fn mark_used(&mut self, axis: &[Atom]) {
        for root in self.opens_in(axis) {
            self.opens[root].used = true;
        }
    }

    /// Two extents that must be one for every size; `None` if they cannot.
    pub(super) fn unify(&mut self, a: &[Atom], b: &[Atom], because: &str) -> Option<Axis> {
        self.reconcile(a, b, because, false)
    }

    /// Two extents of which either may be 1; `None` if they do not go together for every size.
    pub(super) fn broadcast(&mut self, a: &[Atom], b: &[Atom], because: &str) -> Option<Axis> {
        self.reconcile(a, b, because, true)
    }

    fn reconcile(&mut self, a: &[Atom], b: &[Atom], because: &str, ones: bool) -> Option<Axis> {
        let (a, b) = (self.resolve(a), self.resolve(b));
        if a == b || (ones && b.is_empty()) {
            return Some(a);
        }
        if ones && a.is_empty() {
            return Some(b);
        }
        let mut opens = self.opens_in(&a);
        opens.extend(self.opens_in(&b));
        opens.sort_unstable();
        opens.dedup();
        if opens.len() > 6 {
            return None;
        }
        // Every combination of answers that lets the two go together, with what comes out.
        let mut ways: Vec<(Vec<(usize, Answer)>, Axis)> = Vec::new();
        for bits in 0..1u32 << opens.len() {
            let guess: Vec<(usize, Answer)> = opens
                .iter()
                .enumerate()
                .map(|(i, &open)| {
                    (open, if bits >> i & 1 == 1 { Answer::Size } else { Answer::Literal })
                })
                .collect();
            let (x, y) = (self.resolve_with(&a, &guess), self.resolve_with(&b, &guess));
            let result = match () {
                () if ones && x.is_empty() => y,
                () if ones && y.is_empty() => x,
                () if self.same(&x, &y) => x,
                () => continue,
            };
            ways.push((guess, result));
        }
        let (first, _) = ways.first()?.clone();
        for (i, (open, answer)) in first.iter().enumerate() {
            if ways.iter().all(|(guess, _)| guess[i].1 == *answer) {
                self.decide(*open, *answer, because);
            }
        }
        if ways.iter().all(|(_, result)| *result == ways[0].1) {
            return Some(self.resolve(&ways[0].1));
        }
        // What differs has to be said by one of the two operands. Where neither says it (either
        // of two ones may become the size), they are taken for the same question.
        let says = |ledger: &Self, axis: &Axis| {
            ways.iter()
                .all(|(guess, result)| ledger.same(&ledger.resolve_with(axis, guess), result))
        };
        let equal = |i: usize, j: usize| ways.iter().all(|(guess, _)| guess[i].1 == guess[j].1);
        for i in 0..opens.len() {
            for j in 0..i {
                if equal(i, j) {
                    self.join(opens[i], opens[j]);
                }
            }
        }
        if says(self, &a) {
            return Some(self.resolve(&a));
        }
        if says(self, &b) {
            return Some(self.resolve(&b));
        }
        for pair in opens.windows(2) {
            self.join(pair[0], pair[1]);
        }
        Some(self.resolve(&a))
    }

    /// Whether two axes without questions are the same extent for every size. Where the factors
    /// are laid out differently, the place of the size itself must be the same: rows of
    /// `batch·seq` are not rows of `seq·batch`.
    fn same(&self, a: &[Atom], b: &[Atom]) -> bool {
        if a == b {
            return true;
        }
        let before = |axis: &[Atom]| {
            let size = Atom::Symbol(self.symbol.clone());
            let at = axis.iter().position(|atom| *atom == size).unwrap_or(0);
            extent(&axis[..at])
        };
        match (extent(a), extent(b)) {
            (Some(x), Some(y)) => x == y && (!has(a, &self.symbol) || before(a) == before(b)),
            _ => false,
        }
    }

    /// Why a question got its answer.
    pub(super) fn because(&self, origin: Origin) -> Option<(Answer, String)> {
        let root = self.root(*self.places.get(&origin)?);
        Some((self.opens[root].answer?, self.opens[root].because.clone()))
    }
}
