//! Gradient descent with momentum.

use super::adam::vectors;
use super::share;
use crate::cpu::Isa;
use crate::par::Pool;
use crate::rows::Shared;
use crate::simd::{Kernel, Simd, dispatch};

/// `v = momentum · v + g + decay · p`, with `g` the gradient times a factor, and `p` becomes
/// `p - rate · v`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Momentum {
    /// The learning rate.
    pub rate: f32,
    /// How much of the way before is gone again.
    pub momentum: f32,
    /// Of the weights; 0 for none.
    pub decay: f32,
    /// What gradients are multiplied by.
    pub factor: f32,
}

/// One step.
///
/// # Panics
/// If the slices are not of one length.
pub fn momentum_f32(
    pool: &Pool,
    isa: Isa,
    step: &Momentum,
    p: &mut [f32],
    g: &[f32],
    v: &mut [f32],
) {
    assert_eq!([g.len(), v.len()], [p.len(); 2], "all are as long as the weights");
    let len = p.len();
    let (p, v) = (Shared::new(p), Shared::new(v));
    share(pool, len, &|range| {
        let [p, v] = [&p, &v].map(|all| all.at(range.start));
        dispatch(isa, Step { step, p, g: &g[range], v });
    });
}

struct Step<'a> {
    step: &'a Momentum,
    p: *mut f32,
    g: &'a [f32],
    v: *mut f32,
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { step, p, g, v } = self;
        let from = g.as_ptr();
        // SAFETY: there are as many numbers of each as of `g`, and they are this task's alone.
        unsafe {
            vectors!(s, S, g.len(), (x = p, y = from, a = v) {
                let y = s.mul(y, s.splat(step.factor));
                let y = s.add(y, s.mul(s.splat(step.decay), x));
                let a = s.add(s.mul(s.splat(step.momentum), a), y);
                [s.sub(x, s.mul(s.splat(step.rate), a)), a]
            } (p = x, v = a));
        }
    }
}
