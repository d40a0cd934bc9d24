//! From the numbers that flow through a model to the ranges that its bytes stand for.
//!
//! A [`Collector`] watches one tensor, batch by batch, in one pass and in bounded memory:
//! extremes, their moving average, and a [`Histogram`] that grows with what it sees. Any
//! [`Algorithm`] can be asked afterwards. [`Columns`] watches the columns of a tensor, for
//! migration and bias correction. What runs the model, and on what, is the caller's business.

mod columns;
mod histogram;
mod search;

pub use columns::Columns;
pub use histogram::Histogram;

use frazil_graph::op::Steps;

use crate::choice::Algorithm;
use crate::error::{Error, Result};

/// How much a new batch counts in the moving average.
const MOMENTUM: f64 = 0.1;

/// Numbers from `lowest` to `highest`, 0 among them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    /// At most 0.
    pub lowest: f32,
    /// At least 0.
    pub highest: f32,
}

impl Range {
    /// With 0, and no wider than floats can count.
    pub fn new(lowest: f32, highest: f32) -> Self {
        Self {
            lowest: lowest.clamp(-f32::MAX / 2.0, 0.0),
            highest: highest.clamp(0.0, f32::MAX / 2.0),
        }
    }

    /// Scale and zero of unsigned bytes; 0 is met exactly. The same formula as the kernels'.
    pub fn scale_and_zero(self) -> (f32, u8) {
        let scale = (self.highest - self.lowest) / 255.0;
        if scale < f32::MIN_POSITIVE {
            return (1.0, 0);
        }
        (scale, (-self.lowest / scale).round_ties_even() as u8)
    }

    /// Unsigned bytes.
    pub fn steps(self) -> Steps {
        let (scale, zero) = self.scale_and_zero();
        Steps::Tensor { scale, zero }
    }

    /// The scale of signed bytes.
    pub fn symmetric(self) -> f32 {
        symmetric_scale(self.highest.max(-self.lowest))
    }
}

/// The scale of signed bytes up to `largest`; 1 if that is nothing.
pub(crate) fn symmetric_scale(largest: f32) -> f32 {
    let scale = largest / 127.0;
    if scale < f32::MIN_POSITIVE { 1.0 } else { scale }
}

/// Watches a tensor.
#[derive(Clone, Debug)]
pub struct Collector {
    name: String,
    batches: u64,
    count: u64,
    lowest: f32,
    highest: f32,
    average: (f64, f64),
    histogram: Histogram,
}

impl Collector {
    /// Of the tensor `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            batches: 0,
            count: 0,
            lowest: f32::INFINITY,
            highest: f32::NEG_INFINITY,
            average: (0.0, 0.0),
            histogram: Histogram::default(),
        }
    }

    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many numbers were seen.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sees a batch. One without numbers changes nothing.
    ///
    /// # Errors
    /// If one of them is not finite; the batch is not counted then.
    pub fn batch(&mut self, values: &[f32]) -> Result<()> {
        let (mut lowest, mut highest) = (f32::INFINITY, f32::NEG_INFINITY);
        let mut sound = true;
        for &value in values {
            sound &= value.is_finite();
            lowest = lowest.min(value);
            highest = highest.max(value);
        }
        if !sound {
            let bad = values.iter().enumerate().find(|(_, value)| !value.is_finite());
            let (index, &found) = bad.expect("the loop above met one");
            let (tensor, batch) = (self.name.clone(), self.batches + 1);
            return Err(Error::NotFinite { tensor, found, index, batch });
        }
        if values.is_empty() {
            return Ok(());
        }
        let (low, high) = (f64::from(lowest), f64::from(highest));
        self.average = match self.batches {
            0 => (low, high),
            _ => (
                self.average.0 + MOMENTUM * (low - self.average.0),
                self.average.1 + MOMENTUM * (high - self.average.1),
            ),
        };
        self.batches += 1;
        self.count += values.len() as u64;
        self.lowest = self.lowest.min(lowest);
        self.highest = self.highest.max(highest);
        self.histogram.add(values, highest.max(-lowest));
        Ok(())
    }

    /// Sees a batch `x: [t, k]` whose columns are multiplied by `columns: [k]` first: what a
    /// product reads after migration.
    ///
    /// # Errors
    /// As [`batch`](Self::batch), or if the rows are not `k` long.
    pub fn scaled_batch(&mut self, x: &[f32], columns: &[f32]) -> Result<()> {
        let k = columns.len();
        if k == 0 || !x.len().is_multiple_of(k) {
            let (tensor, what) = (self.name.clone(), "numbers that do not fill rows");
            return Err(Error::Length { tensor, what, expected: k, found: x.len() });
        }
        let scaled: Vec<f32> = x
            .chunks_exact(k)
            .flat_map(|row| row.iter().zip(columns).map(|(&value, &factor)| value * factor))
            .collect();
        self.batch(&scaled)
    }

    /// The least and the largest number that were seen.
    pub fn extremes(&self) -> Result<(f32, f32)> {
        match self.count {
            0 => Err(Error::NoData { tensor: self.name.clone() }),
            _ => Ok((self.lowest, self.highest)),
        }
    }

    /// What bytes should stand for, by an algorithm.
    pub fn range(&self, algorithm: Algorithm) -> Result<Range> {
        let (lowest, highest) = self.extremes()?;
        let seen = Range::new(lowest, highest);
        let found = match algorithm {
            Algorithm::MinMax => seen,
            Algorithm::MovingAverage => Range::new(self.average.0 as f32, self.average.1 as f32),
            Algorithm::Percentile(percent) => {
                let share = percentile_share(percent)?;
                Range::new(self.histogram.quantile(share), self.histogram.quantile(1.0 - share))
            }
            Algorithm::Kl => search::kl(&self.histogram, seen),
            Algorithm::Mse => search::mse(&self.histogram, seen),
        };
        // Bins have edges that no number may have reached.
        Ok(Range::new(found.lowest.max(seen.lowest), found.highest.min(seen.highest)))
    }

    /// Unsigned bytes for a tensor.
    pub fn steps(&self, algorithm: Algorithm) -> Result<Steps> {
        self.range(algorithm).map(Range::steps)
    }

    /// The scale of signed bytes, symmetric around 0.
    pub fn symmetric(&self, algorithm: Algorithm) -> Result<f32> {
        let (lowest, highest) = self.extremes()?;
        let largest = highest.max(-lowest).min(f32::MAX / 2.0);
        let limit = match algorithm {
            Algorithm::Mse => search::mse_symmetric(&self.histogram, largest),
            Algorithm::Percentile(percent) => {
                self.histogram.largest(1.0 - 2.0 * percentile_share(percent)?)
            }
            other => return self.range(other).map(Range::symmetric),
        };
        Ok(symmetric_scale(limit.min(largest)))
    }

    /// The share of numbers outside of a range.
    pub fn clipped(&self, range: Range) -> f64 {
        self.histogram.outside(range.lowest, range.highest)
    }

    /// Counts of numbers in `bins` equal parts from the least to the largest, for a picture.
    pub fn picture(&self, bins: usize) -> Vec<u64> {
        self.histogram.picture(self.lowest, self.highest, bins)
    }
}

/// What lies outside on either side.
fn percentile_share(percent: f32) -> Result<f64> {
    if percent > 50.0 && percent <= 100.0 {
        return Ok((100.0 - f64::from(percent)) / 200.0);
    }
    let found = f64::from(percent);
    Err(Error::OutOfRange { what: "a percentile", expected: "above 50 and up to 100", found })
}

/// The scale of signed bytes for numbers of a weight, by an algorithm other than `Mse`.
pub(crate) fn symmetric_of(name: &str, values: &[f32], algorithm: Algorithm) -> Result<f32> {
    let mut collector = Collector::new(name);
    collector.batch(values)?;
    collector.symmetric(algorithm)
}

#[cfg(test)]
mod tests;
