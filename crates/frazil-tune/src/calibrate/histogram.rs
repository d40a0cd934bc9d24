//! Counts of numbers in bins around 0, as fine as 4096 on either side allow.
//!
//! The bins reach up to a power of two. A number beyond it doubles the reach, and pairs of bins
//! become one: nothing is counted twice or lost, and one pass is enough.

/// Bins on either side of 0.
pub(super) const SIDE: usize = 4096;

/// Counts of numbers, below 0 and from 0 on.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Nothing is beyond it; 0 while only zeros were seen.
    reach: f64,
    /// `[SIDE]`, from 0 outwards; empty while only zeros were seen.
    below: Vec<u64>,
    /// `[SIDE]`, from 0 outwards.
    above: Vec<u64>,
    /// How many zeros: they are exact in every grid.
    zeros: u64,
    total: u64,
}

impl Histogram {
    /// Counts finite numbers, none of them larger than `largest`.
    pub(super) fn add(&mut self, values: &[f32], largest: f32) {
        self.grow(f64::from(largest));
        let bins_per_one = if self.reach > 0.0 { SIDE as f64 / self.reach } else { 0.0 };
        for &value in values {
            let place = (f64::from(value.abs()) * bins_per_one) as usize;
            match value {
                0.0 => self.zeros += 1,
                _ if value < 0.0 => self.below[place.min(SIDE - 1)] += 1,
                _ => self.above[place.min(SIDE - 1)] += 1,
            }
        }
        self.total += values.len() as u64;
    }

    fn grow(&mut self, largest: f64) {
        if largest <= self.reach {
            return;
        }
        if self.reach == 0.0 {
            self.reach = 2f64.powi(largest.log2().ceil() as i32).max(largest);
            self.below = vec![0; SIDE];
            self.above = vec![0; SIDE];
            return;
        }
        while self.reach < largest {
            self.reach *= 2.0;
            for side in [&mut self.below, &mut self.above] {
                for bin in 0..SIDE / 2 {
                    side[bin] = side[2 * bin] + side[2 * bin + 1];
                }
                side[SIDE / 2..].fill(0);
            }
        }
    }

    /// The width of a bin.
    pub(super) fn width(&self) -> f64 {
        self.reach / SIDE as f64
    }

    /// All bins that hold something, as (middle, count), without the zeros.
    pub(super) fn bins(&self) -> Vec<(f64, f64)> {
        let width = self.width();
        let side = |counts: &[u64], sign: f64| -> Vec<(f64, f64)> {
            counts
                .iter()
                .enumerate()
                .filter(|&(_, &count)| count > 0)
                .map(|(bin, &count)| (sign * (bin as f64 + 0.5) * width, count as f64))
                .collect()
        };
        let mut bins = side(&self.below, -1.0);
        bins.reverse();
        bins.extend(side(&self.above, 1.0));
        bins
    }

    /// Counts of all bins from `lowest` to `highest`, and how many lie below and above.
    pub(super) fn dense(&self, lowest: f64, highest: f64) -> (Vec<u64>, u64, u64) {
        // The bin that a limit lies in is within it: a number on an edge belongs to the bin behind.
        let bins = |limit: f64| match limit > 0.0 {
            true => ((limit / self.width()) as usize + 1).min(self.above.len()),
            false => 0,
        };
        let (low, high) = (bins(-lowest), bins(highest));
        let mut counts: Vec<u64> = self.below[..low].iter().rev().copied().collect();
        counts.extend_from_slice(&self.above[..high]);
        let beyond = (self.below[low..].iter().sum(), self.above[high..].iter().sum());
        (counts, beyond.0, beyond.1)
    }

    /// The number that a share of all numbers is below.
    pub(super) fn quantile(&self, share: f64) -> f32 {
        let wanted = share * self.total as f64;
        let width = self.width();
        let mut seen = 0.0;
        for (bin, &count) in self.below.iter().enumerate().rev() {
            let count = count as f64;
            if count > 0.0 && seen + count >= wanted {
                let part = ((wanted - seen) / count).clamp(0.0, 1.0);
                return (-(bin as f64 + 1.0 - part) * width) as f32;
            }
            seen += count;
        }
        seen += self.zeros as f64;
        if seen >= wanted && self.zeros > 0 {
            return 0.0;
        }
        let mut last = 0.0;
        for (bin, &count) in self.above.iter().enumerate() {
            let count = count as f64;
            if count > 0.0 {
                last = (bin as f64 + 1.0) * width;
                if seen + count >= wanted {
                    let part = ((wanted - seen) / count).clamp(0.0, 1.0);
                    return ((bin as f64 + part) * width) as f32;
                }
            }
            seen += count;
        }
        last as f32
    }

    /// The magnitude that a share of all magnitudes is below.
    pub(super) fn largest(&self, share: f64) -> f32 {
        let wanted = share * self.total as f64;
        let mut seen = self.zeros as f64;
        let mut last = 0.0;
        for (bin, (&below, &above)) in self.below.iter().zip(&self.above).enumerate() {
            let count = (below + above) as f64;
            if count > 0.0 {
                last = (bin as f64 + 1.0) * self.width();
                if seen + count >= wanted {
                    let part = ((wanted - seen) / count).clamp(0.0, 1.0);
                    return ((bin as f64 + part) * self.width()) as f32;
                }
            }
            seen += count;
        }
        last as f32
    }

    /// The share of numbers that are in bins beyond these limits.
    pub(super) fn outside(&self, lowest: f32, highest: f32) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let (_, below, above) = self.dense(f64::from(lowest), f64::from(highest));
        (below + above) as f64 / self.total as f64
    }

    /// Counts in equal parts between two numbers.
    pub(super) fn picture(&self, lowest: f32, highest: f32, parts: usize) -> Vec<u64> {
        let (lowest, span) = (f64::from(lowest), f64::from(highest) - f64::from(lowest));
        let mut counts = vec![0; parts];
        if parts == 0 || self.total == 0 {
            return counts;
        }
        let place = |value: f64| match span > 0.0 {
            true => (((value - lowest) / span * parts as f64).max(0.0) as usize).min(parts - 1),
            false => 0,
        };
        for (middle, count) in self.bins() {
            counts[place(middle)] += count as u64;
        }
        counts[place(0.0)] += self.zeros;
        counts
    }
}
