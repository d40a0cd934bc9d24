//! What the columns of a tensor are like: largest magnitudes, extremes and means.

use super::Range;
use crate::error::{Error, Result};

/// Watches the columns of a tensor `[t, k]`, for migration (largest magnitudes) and bias
/// correction (means).
#[derive(Clone, Debug)]
pub struct Columns {
    name: String,
    rows: u64,
    batches: u64,
    lowest: Vec<f32>,
    highest: Vec<f32>,
    sums: Vec<f64>,
}

impl Columns {
    /// Of the tensor `name`, with `k` columns.
    pub fn new(name: impl Into<String>, k: usize) -> Self {
        Self {
            name: name.into(),
            rows: 0,
            batches: 0,
            lowest: vec![f32::INFINITY; k],
            highest: vec![f32::NEG_INFINITY; k],
            sums: vec![0.0; k],
        }
    }

    /// Sees a batch of rows, `x: [t, k]`.
    ///
    /// # Errors
    /// If the rows are not `k` long, or a number is not finite; the batch is not counted then.
    pub fn batch(&mut self, x: &[f32]) -> Result<()> {
        let k = self.sums.len();
        let tensor = || self.name.clone();
        if k == 0 || !x.len().is_multiple_of(k) {
            let what = "numbers that do not fill rows";
            return Err(Error::Length { tensor: tensor(), what, expected: k, found: x.len() });
        }
        if let Some((index, &found)) = x.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            let (tensor, batch) = (tensor(), self.batches + 1);
            return Err(Error::NotFinite { tensor, found, index, batch });
        }
        for row in x.chunks_exact(k) {
            for (column, &value) in row.iter().enumerate() {
                self.lowest[column] = self.lowest[column].min(value);
                self.highest[column] = self.highest[column].max(value);
                self.sums[column] += f64::from(value);
            }
        }
        self.rows += (x.len() / k) as u64;
        self.batches += 1;
        Ok(())
    }

    fn seen(&self) -> Result<()> {
        match self.rows {
            0 => Err(Error::NoData { tensor: self.name.clone() }),
            _ => Ok(()),
        }
    }

    /// `[k]`: the largest magnitude of each.
    pub fn largest(&self) -> Result<Vec<f32>> {
        self.seen()?;
        Ok(self.lowest.iter().zip(&self.highest).map(|(low, high)| high.max(-low)).collect())
    }

    /// `[k]`: the mean of each.
    pub fn means(&self) -> Result<Vec<f32>> {
        self.seen()?;
        Ok(self.sums.iter().map(|sum| (sum / self.rows as f64) as f32).collect())
    }

    /// All that was seen, if the columns are multiplied by `factors: [k]`: exact without a
    /// second pass over the data.
    pub fn range_after(&self, factors: &[f32]) -> Result<Range> {
        self.seen()?;
        if factors.len() != self.sums.len() {
            let (tensor, what) = (self.name.clone(), "factors");
            let (expected, found) = (self.sums.len(), factors.len());
            return Err(Error::Length { tensor, what, expected, found });
        }
        let mut range = Range::new(0.0, 0.0);
        for (column, &factor) in factors.iter().enumerate() {
            for end in [self.lowest[column] * factor, self.highest[column] * factor] {
                range = Range::new(range.lowest.min(end), range.highest.max(end));
            }
        }
        Ok(range)
    }
}
