//! Weights as signed bytes: scales, the bytes, and what is done so that less is lost.
//!
//! - [`scales`]: one for each output channel or one for all; by the largest number, or cut off
//!   where that loses less.
//! - [`migration`]: outliers of the inputs are carried over to the weight (SmoothQuant).
//! - [`correction`]: the mean error of the bytes, to be added to the bias.
//!
//! Where weights come from and go to is said elsewhere.

use rayon::prelude::*;

use crate::calibrate::{symmetric_of, symmetric_scale};
use crate::choice::{Algorithm, Granularity};
use crate::error::{Error, Result};

/// Candidates for a limit of squared error, from all of it downwards by one percent.
const CANDIDATES: usize = 50;

/// The weight of a product.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Its name.
    pub name: &'a str,
    /// `[k, n]`, or `[n, k]` if transposed.
    pub data: &'a [f32],
    /// Inputs.
    pub k: usize,
    /// Outputs.
    pub n: usize,
    /// Are the rows its output channels?
    pub transposed: bool,
}

impl Weight<'_> {
    fn check(&self) -> Result<()> {
        let expected = self.k.saturating_mul(self.n);
        self.length("numbers", expected, self.data.len())?;
        match self.data.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            None => Ok(()),
            Some((index, &found)) => {
                Err(Error::NotFinite { tensor: self.name.into(), found, index, batch: 1 })
            }
        }
    }

    fn length(&self, what: &'static str, expected: usize, found: usize) -> Result<()> {
        match expected == found {
            true => Ok(()),
            false => Err(Error::Length { tensor: self.name.into(), what, expected, found }),
        }
    }

    /// The place of input `row` and output `channel`.
    fn at(&self, row: usize, channel: usize) -> usize {
        if self.transposed { channel * self.k + row } else { row * self.n + channel }
    }

    /// The input and the output that a place belongs to.
    fn of(&self, place: usize) -> (usize, usize) {
        match self.transposed {
            true => (place % self.k, place / self.k),
            false => (place / self.n, place % self.n),
        }
    }

    fn channel(&self, channel: usize) -> Vec<f32> {
        (0..self.k).map(|row| self.data[self.at(row, channel)]).collect()
    }
}

/// The largest byte of a weight, of either sign.
pub const FULL: u8 = 127;

/// `[n]` or `[1]`: what a step of one stands for, so that bytes go up to `largest`: 127, or less, which
/// CPUs without VNNI multiply faster. Where all is 0, it is any.
///
/// # Errors
/// If the weight is not `k` by `n` finite numbers.
pub fn scales(
    weight: &Weight<'_>,
    granularity: Granularity,
    algorithm: Algorithm,
    largest: u8,
) -> Result<Vec<f32>> {
    weight.check()?;
    let coarser = f32::from(FULL) / f32::from(largest.clamp(1, FULL));
    let of = |values: &[f32]| match algorithm {
        Algorithm::Mse => Ok(least_squares(values, coarser)),
        Algorithm::MinMax => Ok(minmax(values) * coarser),
        other if values.is_empty() => symmetric_of(weight.name, &[0.0], other),
        other => Ok(symmetric_of(weight.name, values, other)? * coarser),
    };
    match granularity {
        Granularity::Tensor => Ok(vec![of(weight.data)?]),
        Granularity::Channel if weight.transposed && weight.k > 0 => {
            weight.data.par_chunks(weight.k).map(of).collect()
        }
        Granularity::Channel => {
            (0..weight.n).into_par_iter().map(|channel| of(&weight.channel(channel))).collect()
        }
    }
}

/// The scale that reaches the largest number.
fn minmax(values: &[f32]) -> f32 {
    symmetric_scale(values.iter().fold(0.0, |most, value| value.abs().max(most)))
}

/// The scale with the least squared error, of steps that many times as coarse as they could be.
fn least_squares(values: &[f32], coarser: f32) -> f32 {
    let (all, most) = (minmax(values) * coarser, (f32::from(FULL) / coarser).round());
    let mut best = (f64::INFINITY, all);
    for candidate in 0..CANDIDATES {
        let scale = all * (1.0 - candidate as f32 / 100.0);
        if scale < f32::MIN_POSITIVE {
            break;
        }
        let inverse = 1.0 / scale;
        let mut error = 0.0;
        for part in values.chunks(256) {
            let part: f32 = part
                .iter()
                .map(|&value| {
                    let off =
                        value - (value * inverse).round_ties_even().clamp(-most, most) * scale;
                    off * off
                })
                .sum();
            error += f64::from(part);
            if error >= best.0 {
                break; // it only grows
            }
        }
        if error < best.0 {
            best = (error, scale);
        }
    }
    best.1
}

/// The bytes, laid out as the weight is: rounded, halves to even, within ±127.
///
/// # Errors
/// If there is not one scale, or one for each channel.
pub fn quantize(weight: &Weight<'_>, scales: &[f32]) -> Result<Vec<i8>> {
    weight.check()?;
    let scale = scale_of(weight, scales)?;
    Ok(weight
        .data
        .iter()
        .enumerate()
        .map(|(place, &value)| {
            let steps = value / scale(weight.of(place).1);
            steps.round_ties_even().clamp(-127.0, 127.0) as i8
        })
        .collect())
}

fn scale_of<'a>(weight: &Weight<'_>, scales: &'a [f32]) -> Result<impl Fn(usize) -> f32 + use<'a>> {
    if scales.len() != 1 {
        weight.length("scales", weight.n, scales.len())?;
    }
    Ok(move |channel: usize| if scales.len() == 1 { scales[0] } else { scales[channel] })
}

/// `[k]`: what the inputs are to be multiplied by, so that inputs and weights are equally hard
/// to say in bytes. The rows of each weight are divided by the same ([`migrate`]). `weights` are all
/// that read these inputs: they share the factors, and so the bytes of the inputs.
///
/// The inverse of SmoothQuant's factors `largest(x)^alpha / largest(w)^(1 - alpha)`; a column that
/// is all 0, or a row of all weights, is left alone.
///
/// # Errors
/// If `alpha` is not within 0 and 1, or a length is wrong.
pub fn migration(weights: &[Weight<'_>], largest_inputs: &[f32], alpha: f32) -> Result<Vec<f32>> {
    if !(0.0..=1.0).contains(&alpha) {
        let found = f64::from(alpha);
        return Err(Error::OutOfRange { what: "alpha", expected: "from 0 to 1", found });
    }
    let mut largest = vec![0f32; largest_inputs.len()];
    for weight in weights {
        weight.check()?;
        weight.length("columns of inputs", weight.k, largest_inputs.len())?;
        for (place, value) in weight.data.iter().enumerate() {
            let row = weight.of(place).0;
            largest[row] = largest[row].max(value.abs());
        }
    }
    Ok(largest_inputs
        .iter()
        .zip(&largest)
        .map(|(&x, &w)| {
            if !(x > 0.0 && x.is_finite() && w > 0.0) {
                return 1.0;
            }
            // Held where neither side can overflow, however wild the columns are.
            let factor =
                f64::from(x).powf(f64::from(alpha)) / f64::from(w).powf(f64::from(1.0 - alpha));
            (1.0 / factor.clamp(1e-5, 1e5)) as f32
        })
        .collect())
}

/// The weight after [`migration`]: each row divided by its column's factor.
///
/// # Errors
/// If there is not a factor for each row, or what comes out is not finite.
pub fn migrate(weight: &Weight<'_>, columns: &[f32]) -> Result<Vec<f32>> {
    weight.check()?;
    weight.length("factors", weight.k, columns.len())?;
    let data: Vec<f32> = weight
        .data
        .iter()
        .enumerate()
        .map(|(place, value)| value / columns[weight.of(place).0])
        .collect();
    Weight { data: &data, ..*weight }.check()?;
    Ok(data)
}

/// `[n]`: what the bytes take from each output on average: `mean(x) · (w - scale · bytes)`.
/// Added to the bias, it is given back.
///
/// Weight and means are those after migration, if there is any.
///
/// # Errors
/// If a length is wrong.
pub fn correction(weight: &Weight<'_>, scales: &[f32], means: &[f32]) -> Result<Vec<f32>> {
    weight.length("means", weight.k, means.len())?;
    let bytes = quantize(weight, scales)?;
    let scale = scale_of(weight, scales)?;
    let mut sums = vec![0f64; weight.n];
    for (place, (&value, &byte)) in weight.data.iter().zip(&bytes).enumerate() {
        let (row, channel) = weight.of(place);
        let lost = f64::from(value) - f64::from(byte) * f64::from(scale(channel));
        sums[channel] += f64::from(means[row]) * lost;
    }
    Ok(sums.into_iter().map(|sum| sum as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Random;

    fn random(k: usize, n: usize, seed: u64) -> Vec<f32> {
        let mut random = Random::new(seed);
        (0..k * n).map(|_| (random.unit() + random.unit() - random.unit() - 0.5) as f32).collect()
    }

    fn turned(data: &[f32], k: usize, n: usize) -> Vec<f32> {
        (0..n).flat_map(|c| (0..k).map(move |r| data[r * n + c])).collect()
    }

    fn loss(weight: &Weight<'_>, scales: &[f32]) -> f64 {
        let bytes = quantize(weight, scales).unwrap();
        let scale = scale_of(weight, scales).unwrap();
        let off = |(place, &byte): (usize, &i8)| {
            let lost = weight.data[place] - f32::from(byte) * scale(weight.of(place).1);
            f64::from(lost).powi(2)
        };
        bytes.iter().enumerate().map(off).sum()
    }

    #[test]
    fn the_layout_does_not_matter() {
        let (k, n) = (37, 11);
        let data = random(k, n, 1);
        let plain = Weight { name: "w", data: &data, k, n, transposed: false };
        let data = turned(&data, k, n);
        let other = Weight { name: "w", data: &data, k, n, transposed: true };
        let means = random(k, 1, 2);
        for granularity in [Granularity::Channel, Granularity::Tensor] {
            for algorithm in [Algorithm::MinMax, Algorithm::Mse, Algorithm::Kl] {
                let found = scales(&plain, granularity, algorithm, FULL).unwrap();
                let same = scales(&other, granularity, algorithm, FULL).unwrap();
                // A sum of squares over the whole has another order.
                for (a, b) in found.iter().zip(&same) {
                    assert!((a - b).abs() <= 0.02 * a, "{granularity:?} {algorithm}: {a} {b}");
                }
                let bytes = quantize(&plain, &found).unwrap();
                let also = quantize(&other, &found).unwrap();
                assert!((0..k).all(|r| (0..n).all(|c| bytes[r * n + c] == also[c * k + r])));
                let a = correction(&plain, &found, &means).unwrap();
                let b = correction(&other, &found, &means).unwrap();
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        }
        let largest = random(k, 1, 5);
        let columns = migration(&[plain], &largest, 0.5).unwrap();
        assert_eq!(columns, migration(&[other], &largest, 0.5).unwrap());
        let migrated = migrate(&plain, &columns).unwrap();
        assert_eq!(turned(&migrated, k, n), migrate(&other, &columns).unwrap());
    }

    #[test]
    fn finer_grids_lose_less() {
        let (k, n) = (64, 16);
        let mut data = random(k, n, 3);
        for (place, value) in data.iter_mut().enumerate() {
            *value *= 1.0 + (place % n) as f32; // channels of different size
        }
        data[5] = 9.0;
        let weight = Weight { name: "w", data: &data, k, n, transposed: false };
        let of = |g, a| loss(&weight, &scales(&weight, g, a, FULL).unwrap());
        let channel = of(Granularity::Channel, Algorithm::MinMax);
        assert!(channel < of(Granularity::Tensor, Algorithm::MinMax));
        assert!(of(Granularity::Channel, Algorithm::Mse) <= channel);
    }

    #[test]
    fn bytes_round_halves_to_even_and_keep_their_limits() {
        let data = [127.0, 0.5, 1.5, -2.5, -127.0, 63.49];
        let weight = Weight { name: "w", data: &data, k: 6, n: 1, transposed: false };
        assert_eq!(scales(&weight, Granularity::Channel, Algorithm::MinMax, FULL).unwrap(), [1.0]);
        assert_eq!(quantize(&weight, &[1.0]).unwrap(), [127, 0, 2, -2, -127, 63]);
        assert_eq!(quantize(&weight, &[0.5]).unwrap()[0], 127, "cut off");
        let zeros = Weight { data: &[0.0; 6], ..weight };
        for algorithm in [Algorithm::MinMax, Algorithm::Mse, Algorithm::Kl] {
            assert_eq!(scales(&zeros, Granularity::Channel, algorithm, FULL).unwrap(), [1.0]);
        }
        assert_eq!(quantize(&zeros, &[1.0]).unwrap(), [0; 6]);
    }

    #[test]
    fn migration_changes_no_product() {
        let (k, n) = (8, 3);
        let data = random(k, n, 7);
        let weight = Weight { name: "w", data: &data, k, n, transposed: false };
        let mut x = random(1, k, 8);
        x[3] = 80.0; // an outlier
        x[4] = 0.0;
        let largest: Vec<f32> = x.iter().map(|v| v.abs()).collect();
        let columns = migration(&[weight], &largest, 0.5).unwrap();
        assert_eq!(columns[4], 1.0);
        assert!(columns[3] * x[3] < 20.0, "the outlier is smaller");
        let migrated = migrate(&weight, &columns).unwrap();
        for c in 0..n {
            let before: f32 = (0..k).map(|r| x[r] * data[r * n + c]).sum();
            let after: f32 = (0..k).map(|r| x[r] * columns[r] * migrated[r * n + c]).sum();
            assert!((before - after).abs() < 1e-4 * before.abs().max(1.0));
        }
        // Alpha 1 carries all of it over: the inputs are equally large then.
        let columns = migration(&[weight], &largest, 1.0).unwrap();
        assert!((columns[3] * x[3] - 1.0).abs() < 1e-5);
    }

    #[test]
    fn the_correction_gives_back_what_the_mean_lost() {
        let (k, n) = (40, 5);
        let data = random(k, n, 9);
        let weight = Weight { name: "w", data: &data, k, n, transposed: false };
        let means = random(k, 1, 10);
        let scales = scales(&weight, Granularity::Tensor, Algorithm::MinMax, FULL).unwrap();
        let bytes = quantize(&weight, &scales).unwrap();
        let correction = correction(&weight, &scales, &means).unwrap();
        for c in 0..n {
            let exact: f32 = (0..k).map(|r| means[r] * data[r * n + c]).sum();
            let rough: f32 =
                (0..k).map(|r| means[r] * f32::from(bytes[r * n + c]) * scales[0]).sum();
            assert!((rough + correction[c] - exact).abs() < 1e-4);
        }
    }

    #[test]
    fn wrong_lengths_and_numbers_are_refused() {
        let weight = Weight { name: "w", data: &[1.0; 6], k: 2, n: 3, transposed: false };
        assert!(quantize(&weight, &[1.0; 2]).is_err());
        assert!(correction(&weight, &[1.0], &[0.0]).is_err());
        assert!(migration(&[weight], &[1.0; 3], 0.5).is_err());
        assert!(migration(&[weight], &[1.0; 2], 1.5).is_err());
        assert!(migrate(&weight, &[1.0; 3]).is_err() && migrate(&weight, &[0.0; 2]).is_err());
        let short = Weight { k: 3, ..weight };
        assert!(scales(&short, Granularity::Channel, Algorithm::MinMax, FULL).is_err());
        let bad = Weight { data: &[1.0, 2.0, f32::NAN, 0.0, 0.0, 0.0], ..weight };
        let error = scales(&bad, Granularity::Tensor, Algorithm::Mse, FULL).unwrap_err();
        assert!(error.to_string().contains("`w` has NaN at element 2"));
        let huge = Weight { k: usize::MAX, n: 2, ..weight };
        assert!(huge.check().is_err());
    }
}
