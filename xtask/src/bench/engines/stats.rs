//! Medians and quartiles, and ratios that are taken round by round.

use serde::Serialize;

/// Samples in the order of the rounds, and what is made of them.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Half of the samples are below.
    pub median: f64,
    /// A quarter of them is below.
    pub q1: f64,
    /// A quarter of them is above.
    pub q3: f64,
    /// In the order of the rounds.
    pub samples: Vec<f64>,
}

impl Summary {
    /// Of at least one sample; of none, everything is NaN.
    pub fn new(samples: Vec<f64>) -> Self {
        let [q1, median, q3] = [0.25, 0.5, 0.75].map(|part| quantile(&samples, part));
        Self { median, q1, q3, samples }
    }

    /// How many times as long as `other` it took, in each round. A machine that is shared slows both
    /// down alike.
    pub fn over(&self, other: &Self) -> Self {
        Self::new(self.samples.iter().zip(&other.samples).map(|(a, b)| a / b).collect())
    }
}

/// The value below which that part of the samples lies, between neighbours by proportion.
pub fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = part * sorted.len().saturating_sub(1) as f64;
    match (sorted.get(at.floor() as usize), sorted.get(at.ceil() as usize)) {
        (Some(low), Some(high)) => low + (high - low) * at.fract(),
        _ => f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles() {
        let summary = Summary::new(vec![4.0, 1.0, 3.0, 2.0, 5.0]);
        assert_eq!((summary.q1, summary.median, summary.q3), (2.0, 3.0, 4.0));
        assert_eq!(Summary::new(vec![1.0, 2.0]).median, 1.5);
        assert!(Summary::new(Vec::new()).median.is_nan());
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        // The second round ran on a machine half as fast.
        let (a, b) = (Summary::new(vec![2.0, 4.0]), Summary::new(vec![1.0, 2.0]));
        let ratio = a.over(&b);
        assert_eq!((ratio.q1, ratio.q3), (2.0, 2.0));
    }
}
