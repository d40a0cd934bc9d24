//! What changes from step to step: learning rates, betas, and the factor on the loss.
//!
//! Steps are counted from 0, as `global_step` is when a step begins.

/// A learning rate by the step.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// The same always.
    Constant(f64),
    /// google-research/bert's `create_optimizer`, rounding for rounding.
    Bert(Bert),
    /// As Graphcore's submissions to MLPerf have it.
    Linear(Linear),
    /// The rate from each of these steps on, in ascending order; before the first, that of the first.
    Steps(Vec<(u64, f64)>),
    /// The same by epochs of so many steps.
    Epochs {
        /// Steps of an epoch.
        steps: u64,
        /// The rate from each of these epochs on.
        rates: Vec<(u64, f64)>,
    },
}

/// Linear from 0 to the full rate, then linear to 0 over all steps: the second line is not moved by
/// the first one, which it meets at `1 - warmup / steps` of the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bert {
    /// The full rate.
    pub rate: f64,
    /// Steps until the rate is 0; it stays there.
    pub steps: u64,
    /// Steps of the first line; 0 for none.
    pub warmup: u64,
}

/// Linear from 0 to the full rate, then linear towards 0, from where the first line ends. What is left before
/// the last of all steps stays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// The full rate.
    pub rate: f64,
    /// Steps of the second line.
    pub steps: u64,
    /// Steps of the first line, before these; 0 for none.
    pub warmup: u64,
}

impl Schedule {
    /// The rate of a step.
    pub fn rate(&self, step: u64) -> f32 {
        match self {
            Schedule::Constant(rate) => *rate as f32,
            Schedule::Bert(bert) => bert.rate(step),
            Schedule::Linear(linear) => linear.rate(step),
            Schedule::Steps(rates) => latest(rates, step),
            Schedule::Epochs { steps, rates } => latest(rates, step / (*steps).max(1)),
        }
    }

    /// The largest rate that it speaks of; no number if one of them is none, or below 0.
    pub fn largest(&self) -> f64 {
        let usable = |rate: &f64| if *rate >= 0.0 { *rate } else { f64::NAN };
        let rates = match self {
            Schedule::Constant(rate) => vec![*rate],
            Schedule::Bert(bert) => vec![bert.rate],
            Schedule::Linear(linear) => vec![linear.rate],
            Schedule::Steps(rates) | Schedule::Epochs { rates, .. } => {
                rates.iter().map(|(_, rate)| *rate).collect()
            }
        };
        // `f64::max` would pass over what is no number.
        let larger = |most: f64, rate: f64| if rate <= most || most.is_nan() { most } else { rate };
        rates.iter().map(usable).fold(0.0, larger)
    }
}

fn latest(rates: &[(u64, f64)], at: u64) -> f32 {
    let passed = rates.iter().take_while(|(from, _)| *from <= at).last();
    passed.or(rates.first()).map_or(0.0, |(_, rate)| *rate as f32)
}

impl Bert {
    /// All in `f32`, one rounding for each operation of the original's graph as TensorFlow runs it:
    /// it multiplies by reciprocals where the graph divides by constants, and multiplies constants
    /// that follow each other first. Both lines are mixed by a flag that is a number.
    fn rate(&self, step: u64) -> f32 {
        let rate = self.rate as f32;
        let (now, all) = (step as f32, self.steps as f32);
        let decayed = rate * (1.0 - now.min(all) * (1.0 / all));
        if self.warmup == 0 {
            return decayed;
        }
        let rising = now * (rate * (1.0 / self.warmup as f32));
        let is_warmup = if step < self.warmup { 1.0 } else { 0.0 };
        (1.0 - is_warmup) * decayed + is_warmup * rising
    }
}

impl Linear {
    /// No rate is below this.
    const LEAST: f64 = 1e-7;

    fn rate(&self, step: u64) -> f32 {
        let part = match step.checked_sub(self.warmup) {
            None => step as f64 / self.warmup as f64,
            Some(step) => {
                let steps = self.steps.max(1);
                (steps - step.min(steps - 1)) as f64 / steps as f64
            }
        };
        (self.rate * part).max(Self::LEAST) as f32
    }
}

/// A number that goes from one to another in a straight line, and stays: a beta of Adam, say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transition {
    /// At step 0.
    pub init: f64,
    /// From step `steps` on.
    pub last: f64,
    /// How long it takes.
    pub steps: u64,
}

impl Transition {
    /// The number at a step.
    pub fn at(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.last;
        }
        let part = step as f64 / self.steps as f64;
        self.init + (self.last - self.init) * part
    }
}

/// The factor on the loss that keeps small gradients from vanishing. Gradients are divided by it
/// before they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossScale {
    /// Always the same; 1 for none.
    Static(f32),
    /// Doubled after `interval` steps without an overflow, halved by one as long as it is above 1.
    Dynamic {
        /// As it is.
        scale: f32,
        /// Steps until it is doubled.
        interval: u64,
        /// Steps since it was changed.
        since: u64,
    },
}

impl LossScale {
    /// As it is.
    pub fn scale(&self) -> f32 {
        match *self {
            LossScale::Static(scale) | LossScale::Dynamic { scale, .. } => scale,
        }
    }

    /// After a step. Whether that counts: with a dynamic scale, one that overflowed does not, and the
    /// next one is tried with a smaller scale. At a scale of 1 it was not the scale that overflowed.
    pub fn after(&mut self, finite: bool) -> bool {
        let LossScale::Dynamic { scale, interval, since } = self else { return true };
        *since += 1;
        match finite {
            false if *scale <= 1.0 => return true,
            false => {
                (*scale, *since) = (*scale / 2.0, 0);
            }
            true if *since >= *interval => {
                (*scale, *since) = ((*scale * 2.0).min(f32::MAX / 4.0), 0);
            }
            true => {}
        }
        finite
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_steps_and_epochs() {
        let rates = vec![(0, 1e-3), (10, 5e-4), (20, 1e-4)];
        let by_step = Schedule::Steps(rates.clone());
        let rate = |rates: &Schedule, steps: [u64; 4]| steps.map(|step| rates.rate(step));
        assert_eq!(rate(&by_step, [0, 9, 10, 99]), [1e-3, 1e-3, 5e-4, 1e-4]);
        let by_epoch = Schedule::Epochs { steps: 7, rates };
        assert_eq!(rate(&by_epoch, [69, 70, 139, 140]), [1e-3, 5e-4, 5e-4, 1e-4]);
        assert_eq!(Schedule::Steps(vec![(5, 2.0)]).rate(0), 2.0);
        assert_eq!(Schedule::Constant(0.5).rate(7), 0.5);
    }

    #[test]
    fn a_line_begins_where_warm_up_ends() {
        let linear = Schedule::Linear(Linear { rate: 0.02, steps: 400, warmup: 2 });
        let rate = |steps: [u64; 7]| steps.map(|step| linear.rate(step));
        let expected = [1e-7, 0.01, 0.02, 0.02 * 399.0 / 400.0, 0.01, 5e-5, 5e-5];
        let found = rate([0, 1, 2, 3, 202, 401, 9999]);
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() <= 1e-6 * expected, "{found} {expected}");
        }
        // Without warm-up it begins with the full rate; no rate is below the least.
        let short = Schedule::Linear(Linear { rate: 2e-7, steps: 4, warmup: 0 });
        assert_eq!([0, 1, 2, 3, 4].map(|step| short.rate(step)), [2e-7, 1.5e-7, 1e-7, 1e-7, 1e-7]);
        assert_eq!(short.largest(), 2e-7);
    }

    #[test]
    fn a_rate_that_is_none_is_not_passed_over() {
        for rates in [[1e-3, -1e-3], [-1e-3, 1e-3], [f64::NAN, 1e-3], [1e-3, f64::NAN]] {
            let rates = Schedule::Steps(vec![(0, rates[0]), (5, rates[1])]);
            assert!(rates.largest().is_nan(), "{rates:?}");
        }
        assert_eq!(Schedule::Steps(vec![(0, 1e-4), (5, 1e-3), (9, 1e-5)]).largest(), 1e-3);
    }

    #[test]
    fn betas_go_and_stay() {
        let beta = Transition { init: 0.62, last: 0.38, steps: 1000 };
        assert_eq!((beta.at(0), beta.at(1000), beta.at(5000)), (0.62, 0.38, 0.38));
        assert!((beta.at(500) - 0.5).abs() < 1e-12);
        assert_eq!(Transition { init: 1.0, last: 2.0, steps: 0 }.at(0), 2.0);
    }

    #[test]
    fn a_dynamic_scale_is_halved_by_an_overflow() {
        let mut scale = LossScale::Dynamic { scale: 8.0, interval: 2, since: 0 };
        assert!(scale.after(true));
        assert_eq!(scale.scale(), 8.0);
        assert!(scale.after(true));
        assert_eq!(scale.scale(), 16.0);
        assert!(!scale.after(false));
        assert_eq!(scale.scale(), 8.0);
        assert!(scale.after(true) && scale.scale() == 8.0);
        // Halving ends where it cannot be the scale's fault.
        assert_eq!((0..9).find(|_| scale.after(false)), Some(3));
        assert_eq!(scale.scale(), 1.0);
        let mut fixed = LossScale::Static(4.0);
        assert!(fixed.after(false));
        assert_eq!(fixed.scale(), 4.0);
    }
}
