//! Ranges that lose the least: squared error, and Kullback and Leibler's divergence.

use super::Range;
use super::histogram::Histogram;

/// Candidates for a limit, from all of it downwards.
const CANDIDATES: usize = 64;
/// The narrowest candidate, as a share of what was seen.
const NARROWEST: f64 = 0.05;
/// Levels of a byte.
const LEVELS: usize = 256;

fn candidates() -> impl Iterator<Item = f64> {
    (0..CANDIDATES).map(|i| 1.0 - (1.0 - NARROWEST) * i as f64 / (CANDIDATES - 1) as f64)
}

/// Squared error of numbers on steps, zero exact: rounding inside, distance outside.
fn error(bins: &[(f64, f64)], lowest: f64, highest: f64, levels: f64) -> f64 {
    let scale = (highest - lowest) / levels;
    if scale <= 0.0 {
        return bins.iter().map(|&(value, count)| value * value * count).sum();
    }
    let zero = (-lowest / scale).round_ties_even();
    let (least, most) = (-zero, levels - zero);
    bins.iter()
        .map(|&(value, count)| {
            let step = (value / scale).round_ties_even().clamp(least, most);
            let off = value - step * scale;
            off * off * count
        })
        .sum()
}

/// The range of unsigned bytes with the least squared error: one end after the other, twice.
pub(super) fn mse(histogram: &Histogram, seen: Range) -> Range {
    let bins = histogram.bins();
    let (low, high) = (f64::from(seen.lowest), f64::from(seen.highest));
    let (mut lowest, mut highest) = (low, high);
    let mut best = error(&bins, lowest, highest, 255.0);
    for _ in 0..2 {
        for factor in candidates() {
            let found = error(&bins, lowest, high * factor, 255.0);
            if found < best {
                (best, highest) = (found, high * factor);
            }
        }
        for factor in candidates() {
            let found = error(&bins, low * factor, highest, 255.0);
            if found < best {
                (best, lowest) = (found, low * factor);
            }
        }
    }
    Range::new(lowest as f32, highest as f32)
}

/// The limit of signed bytes with the least squared error.
pub(super) fn mse_symmetric(histogram: &Histogram, largest: f32) -> f32 {
    let bins = histogram.bins();
    let largest = f64::from(largest);
    let mut best = (f64::INFINITY, largest);
    for factor in candidates() {
        let limit = largest * factor;
        let found = error(&bins, -limit, limit, 254.0);
        if found < best.0 {
            best = (found, limit);
        }
    }
    best.1 as f32
}

/// The range whose 256 levels tell the least less than the numbers themselves.
///
/// What lies beyond a candidate counts at its ends in the true distribution, and not at all in the
/// quantized one, so that cutting off much is dear.
pub(super) fn kl(histogram: &Histogram, seen: Range) -> Range {
    let (low, high) = (f64::from(seen.lowest), f64::from(seen.highest));
    let mut best = (f64::INFINITY, seen);
    for factor in candidates() {
        // Both ends are held within one limit: an end that is near to 0 anyway stays.
        let limit = high.max(-low) * factor;
        let (lowest, highest) = (low.max(-limit), high.min(limit));
        let (counts, below, above) = histogram.dense(lowest, highest);
        if counts.len() < LEVELS {
            continue;
        }
        let found = divergence(&counts, below, above);
        if found < best.0 {
            best = (found, Range::new(lowest as f32, highest as f32));
        }
    }
    best.1
}

fn divergence(counts: &[u64], below: u64, above: u64) -> f64 {
    let n = counts.len();
    let inside: u64 = counts.iter().sum();
    let total = (inside + below + above) as f64;
    if inside == 0 {
        return f64::INFINITY;
    }
    let mut sum = 0.0;
    for level in 0..LEVELS {
        let part = level * n / LEVELS..(level + 1) * n / LEVELS;
        let bins = &counts[part.clone()];
        let held = bins.iter().filter(|&&count| count > 0).count();
        let level_count: u64 = bins.iter().sum();
        for (at, &count) in part.zip(bins) {
            let mut true_count = count;
            if at == 0 {
                true_count += below;
            }
            if at == n - 1 {
                true_count += above;
            }
            if true_count == 0 {
                continue;
            }
            let p = true_count as f64 / total;
            // A level spreads over the bins that held something; elsewhere it is as good as nothing.
            let q = match count {
                0 => 1e-9,
                _ => level_count as f64 / held as f64 / inside as f64,
            };
            sum += p * (p / q).ln();
        }
    }
    sum
}
