//! Adam, with or without bias correction and weight decay, and LAMB on top of it.

use std::ops::Range;

use super::share;
use super::sum::{PIECE, pieces};
use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::Shared;
use crate::simd::{Kernel, Simd, dispatch};

/// `m = β₁ m + (1 - β₁) g`, `v = β₂ v + (1 - β₂) g²`, with `g` the gradient times a factor; the update
/// is `m c₁ / (√(v c₂) + ε) + decay · p`, and `p` becomes `p - rate · update`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// The learning rate.
    pub rate: f32,
    /// β₁
    pub beta1: f32,
    /// `1 - β₁`, which whoever knows β₁ in more digits rounds better.
    pub rest1: f32,
    /// β₂
    pub beta2: f32,
    /// `1 - β₂`
    pub rest2: f32,
    /// ε
    pub epsilon: f32,
    /// Of the weights, in proportion to the rate; 0 for none.
    pub decay: f32,
    /// c₁ and c₂: `1 / (1 - βᵗ)`, or 1 without bias correction.
    pub corrections: [f32; 2],
    /// What gradients are multiplied by.
    pub factor: f32,
}

/// What is remembered of the gradients: `m` and `v`, as long as the weights.
#[derive(Debug)]
pub struct Moments<'a> {
    /// Their mean.
    pub m: &'a mut [f32],
    /// The mean of their squares.
    pub v: &'a mut [f32],
}

/// Lengths of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Norms {
    /// Of the weights, before the step.
    pub weights: f64,
    /// Of the update.
    pub update: f64,
}

/// One step of Adam.
///
/// # Panics
/// If the slices are not of one length.
pub fn adam_f32(
    pool: &Pool,
    isa: Isa,
    adam: &Adam,
    p: &mut [f32],
    g: &[f32],
    moments: Moments<'_>,
) {
    let len = check(p, g, &moments);
    let (p, m, v) = (Shared::new(p), Shared::new(moments.m), Shared::new(moments.v));
    share(pool, len, &|range| {
        let g = &g[range.clone()];
        let [p, m, v] = [&p, &m, &v].map(|all| all.at(range.start));
        dispatch(isa, Step { adam, p, g, m, v });
    });
}

/// One step of LAMB: the update of Adam times `ratio`, which is computed from the norms of the
/// weights and of the update.
///
/// `sums` takes two numbers for each of [`pieces`].
///
/// # Panics
/// If the slices are not of one length, or `sums` is too short.
#[allow(clippy::too_many_arguments, reason = "Adam's, the scratch and the ratio")]
pub fn lamb_f32(
    pool: &Pool,
    isa: Isa,
    adam: &Adam,
    p: &mut [f32],
    g: &[f32],
    moments: Moments<'_>,
    sums: &mut [[f64; 2]],
    ratio: impl FnOnce(Norms) -> f32,
) {
    let len = check(p, g, &moments);
    let sums = &mut sums[..pieces(len)];
    {
        let (m, v) = (Shared::new(&mut *moments.m), Shared::new(&mut *moments.v));
        let (p, sums) = (&*p, Shared::new(sums));
        pool.run(pieces(len), &|piece, _| {
            let range = piece_range(piece, len);
            let [m, v] = [&m, &v].map(|all| all.at(range.start));
            let (p, g) = (&p[range.clone()], &g[range]);
            let both = dispatch(isa, Remember { adam, p, g, m, v });
            // SAFETY: a number for each piece, and each piece is one task's.
            unsafe { *sums.at(piece) = both };
        });
    }
    let sum = |i: usize| sums.iter().map(|both| both[i]).sum::<f64>().sqrt();
    let ratio = ratio(Norms { weights: sum(0), update: sum(1) });
    let (m, v) = (&*moments.m, &*moments.v);
    let p = Shared::new(p);
    share(pool, len, &|range| {
        let (m, v) = (&m[range.clone()], &v[range.clone()]);
        dispatch(isa, Move { adam, ratio, p: p.at(range.start), m, v });
    });
}

fn piece_range(piece: usize, len: usize) -> Range<usize> {
    piece * PIECE..len.min((piece + 1) * PIECE)
}

fn check(p: &[f32], g: &[f32], moments: &Moments<'_>) -> usize {
    let lengths = [g.len(), moments.m.len(), moments.v.len()];
    assert_eq!(lengths, [p.len(); 3], "gradients and moments are as long as the weights");
    p.len()
}

impl Adam {
    /// The moments after the step.
    #[inline(always)]
    fn moments<S: Simd>(&self, s: S, g: S::F32, m: S::F32, v: S::F32) -> [S::F32; 2] {
        let g = s.mul(g, s.splat(self.factor));
        let m = s.add(s.mul(s.splat(self.beta1), m), s.mul(s.splat(self.rest1), g));
        let square = s.mul(g, g);
        let v = s.add(s.mul(s.splat(self.beta2), v), s.mul(s.splat(self.rest2), square));
        [m, v]
    }

    /// The update by the moments after the step.
    #[inline(always)]
    fn update<S: Simd>(&self, s: S, p: S::F32, m: S::F32, v: S::F32) -> S::F32 {
        let [first, second] = self.corrections.map(|c| s.splat(c));
        let root = s.add(s.sqrt(s.mul(v, second)), s.splat(self.epsilon));
        let update = s.div(s.mul(m, first), root);
        s.add(update, s.mul(s.splat(self.decay), p))
    }
}

/// Loads, computes and stores whole vectors, then the rest: `$body` sees the loaded `$x`s, and gives
/// one vector for each `$to`.
macro_rules! vectors {
    ($s:ident, $S:ident, $len:expr, ($($x:ident = $from:expr),*) $body:block
     ($($to:ident = $y:ident),*)) => {{
        let len = $len;
        let whole = len / $S::LANES * $S::LANES;
        for i in (0..whole).step_by($S::LANES) {
            $(let $x = $s.load($from.add(i));)*
            let [$($y),*] = $body;
            $($s.store($to.add(i), $y);)*
        }
        if whole < len {
            let rest = len - whole;
            $(let $x = $s.load_first($from.add(whole), rest);)*
            let [$($y),*] = $body;
            $($s.store_first($to.add(whole), $y, rest);)*
        }
    }};
}
pub(super) use vectors;

/// Everything at once.
struct Step<'a> {
    adam: &'a Adam,
    /// As many numbers as `g`, as are `m` and `v`.
    p: *mut f32,
    g: &'a [f32],
    m: *mut f32,
    v: *mut f32,
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { adam, p, g, m, v } = self;
        let from = g.as_ptr();
        // SAFETY: there are as many numbers of each as of `g`, and they are this task's alone.
        unsafe {
            vectors!(s, S, g.len(), (x = p, y = from, a = m, b = v) {
                let [a, b] = adam.moments(s, y, a, b);
                let update = adam.update(s, x, a, b);
                [s.sub(x, s.mul(s.splat(adam.rate), update)), a, b]
            } (p = x, m = a, v = b));
        }
    }
}

/// The moments, and the sums of squares of the weights and of the update.
struct Remember<'a> {
    adam: &'a Adam,
    p: &'a [f32],
    g: &'a [f32],
    m: *mut f32,
    v: *mut f32,
}

impl Kernel for Remember<'_> {
    type Output = [f64; 2];

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> [f64; 2] {
        let Self { adam, p, g, m, v } = self;
        let (p, from) = (p.as_ptr(), g.as_ptr());
        let mut sums = [s.splat(0.0); 2];
        // SAFETY: as for `Step`.
        unsafe {
            vectors!(s, S, g.len(), (x = p, y = from, a = m, b = v) {
                let [a, b] = adam.moments(s, y, a, b);
                // Beyond the end all are 0, and so is the update: ε is not.
                let update = adam.update(s, x, a, b);
                sums = [s.fma(x, x, sums[0]), s.fma(update, update, sums[1])];
                [a, b]
            } (m = a, v = b));
        }
        sums.map(|sum| f64::from(s.sum(sum)))
    }
}

/// The weights, by moments that are there.
struct Move<'a> {
    adam: &'a Adam,
    ratio: f32,
    p: *mut f32,
    m: &'a [f32],
    v: &'a [f32],
}

impl Kernel for Move<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { adam, ratio, p, m, v } = self;
        let rate = s.splat(ratio * adam.rate);
        let (from_m, from_v) = (m.as_ptr(), v.as_ptr());
        // SAFETY: there are as many weights as moments, and they are this task's alone.
        unsafe {
            vectors!(s, S, m.len(), (x = p, a = from_m, b = from_v) {
                let update = adam.update(s, x, a, b);
                [s.sub(x, s.mul(rate, update))]
            } (p = x));
        }
    }
}
