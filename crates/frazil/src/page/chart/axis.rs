//! From values to places, and round values to write beside them.

use super::super::{Cell, number};
use super::svg::wide;

/// What an axis shows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit, or nothing.
    pub unit: String,
    /// How values are spread.
    pub scale: Scale,
    /// Whether it begins at zero even if no value does (linear axes).
    pub zero: bool,
    /// Between what values can lie: so that noise does not look like a fall, a linear axis shows a
    /// tenth of that at least.
    pub range: Option<(f64, f64)>,
    /// Whether values are bytes, which are written as `12 MB`.
    pub bytes: bool,
}

/// How values are spread over an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Evenly.
    #[default]
    Linear,
    /// By their magnitude; marked at powers of ten and, where there is room, at 2 and 5 times them.
    Log,
    /// By their magnitude; marked at powers of two.
    Log2,
}

impl Axis {
    /// A linear axis.
    pub fn new(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { label: label.into(), unit: unit.into(), ..Self::default() }
    }

    /// A logarithmic one.
    #[must_use]
    pub fn log(self) -> Self {
        Self { scale: Scale::Log, ..self }
    }

    /// One that begins at zero.
    #[must_use]
    pub fn from_zero(self) -> Self {
        Self { zero: true, ..self }
    }

    /// One of values that can lie between these.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }

    /// A linear axis of bytes.
    pub fn bytes(label: impl Into<String>) -> Self {
        Self { bytes: true, ..Self::new(label, "") }
    }

    /// `latency, ms`
    pub(super) fn caption(&self) -> String {
        match (self.label.as_str(), self.unit.as_str()) {
            (label, "") => label.to_owned(),
            ("", unit) => unit.to_owned(),
            (label, unit) => format!("{label}, {unit}"),
        }
    }

    /// `12.3 ms`
    pub(super) fn say(&self, value: f64) -> String {
        if self.bytes {
            return number::size(value as u64);
        }
        let number = number::short(value);
        if self.unit.is_empty() { number } else { format!("{number} {}", self.unit) }
    }

    /// In the table beside the chart.
    pub(super) fn cell(&self, value: f64) -> Cell {
        if self.bytes { Cell::size(value as u64) } else { value.into() }
    }

    /// Whether a value has a place on it. Nothing that is measured comes near the bound, and
    /// differences below it stay finite.
    pub(super) fn takes(&self, value: f64) -> bool {
        value.is_finite() && value.abs() < 1e100 && (self.scale == Scale::Linear || value > 1e-100)
    }

    /// Where the values are that it takes.
    pub(super) fn span(&self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Placing {
        let values = values.filter(|&value| self.takes(value));
        let (mut low, mut high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if low > high {
            (low, high) = if self.scale == Scale::Linear { (0.0, 1.0) } else { (1.0, 10.0) };
        }
        if self.zero && self.scale == Scale::Linear {
            (low, high) = (low.min(0.0), high.max(0.0));
        }
        if let Some((least, most)) = self.range.filter(|_| self.scale == Scale::Linear) {
            let part = (most - least) / 10.0;
            if high - low < part && low >= least && high <= most {
                low = ((low + high - part) / 2.0).clamp(least, most - part);
                high = low + part;
            }
        }
        Placing { bytes: self.bytes, ..Placing::new(self.scale, low, high, from, to) }
    }
}

/// An axis with its values laid over `from` to `to`.
pub struct Placing {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    step: f64,
    bytes: bool,
}

impl Placing {
    fn new(scale: Scale, low: f64, high: f64, from: f64, to: f64) -> Self {
        let mut placing = Self { scale, low, high, from, to, step: 0.0, bytes: false };
        match scale {
            Scale::Linear => placing.round(),
            Scale::Log => {
                // Out to 1, 2 or 5 times a power of ten.
                let marks = |value: f64| {
                    let ten = 10f64.powf(value.log10().floor());
                    [0.5, 1.0, 2.0, 5.0, 10.0, 20.0].map(|digit| digit * ten)
                };
                let slack = 1e-9;
                let below = marks(low).into_iter().rfind(|&mark| mark <= low * (1.0 + slack));
                let above = marks(high).into_iter().find(|&mark| mark >= high * (1.0 - slack));
                (placing.low, placing.high) = (below.unwrap_or(low), above.unwrap_or(high));
                if placing.low >= placing.high {
                    (placing.low, placing.high) = (low / 2.0, high * 2.0);
                }
            }
            Scale::Log2 => {
                (placing.low, placing.high) =
                    (low.log2().floor().exp2(), high.log2().ceil().exp2());
                if placing.low >= placing.high {
                    placing.high = placing.low * 2.0;
                }
            }
        }
        placing
    }

    /// Out to round values, with a step that gives about six of them.
    fn round(&mut self) {
        if self.high - self.low <= self.high.abs().max(self.low.abs()) * 1e-9 {
            let room = if self.low == 0.0 { 1.0 } else { self.low.abs() * 0.1 };
            (self.low, self.high) = (self.low - room, self.high + room);
        }
        self.step = step((self.high - self.low) / 6.0);
        self.low = (self.low / self.step + 1e-9).floor() * self.step;
        self.high = (self.high / self.step - 1e-9).ceil() * self.step;
    }

    pub fn at(&self, value: f64) -> f64 {
        let part = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + (self.to - self.from) * part
    }

    /// Where bars begin.
    pub fn base(&self) -> f64 {
        match self.scale {
            Scale::Linear => self.at(0f64.clamp(self.low, self.high)),
            _ => self.from,
        }
    }

    /// Round values and how they are written, as many as there is room for side by side
    /// (`across`) or one above the other.
    pub fn ticks(&self, across: bool) -> Vec<(f64, String)> {
        let room = (self.to - self.from).abs();
        let fits = |ticks: &[(f64, String)]| {
            ticks.windows(2).all(|pair| {
                let gap = (self.at(pair[1].0) - self.at(pair[0].0)).abs();
                let need =
                    if across { (wide(&pair[0].1) + wide(&pair[1].1)) / 2.0 + 10.0 } else { 20.0 };
                gap >= need
            })
        };
        let most = 1 + (room / 24.0) as usize;
        for coarse in 0..60 {
            let ticks = match self.scale {
                Scale::Linear => self.linear(coarse, most),
                Scale::Log => self.tens(coarse),
                Scale::Log2 => self.twos(coarse),
            };
            if fits(&ticks) {
                return ticks;
            }
        }
        Vec::new()
    }

    fn linear(&self, coarse: usize, most: usize) -> Vec<(f64, String)> {
        let mut step_size = self.step;
        for _ in 0..coarse {
            step_size = step(step_size * 1.5);
        }
        let first = (self.low / step_size - 1e-9).ceil();
        let count = ((self.high - first * step_size) / step_size + 1e-9).floor().max(0.0) as usize;
        let largest = self.low.abs().max(self.high.abs());
        let values = (0..=count.min(most)).map(|i| (first + i as f64) * step_size);
        values
            .map(|value| {
                let text = if self.bytes {
                    number::size(value as u64)
                } else if largest >= 1e7 || (largest > 0.0 && largest < 1e-3) {
                    number::short(if value.abs() < step_size * 1e-6 { 0.0 } else { value })
                } else {
                    let decimals = (-(step_size.log10() + 1e-9).floor()).clamp(0.0, 9.0) as usize;
                    number::fixed(value, decimals, false)
                };
                (value, text)
            })
            .collect()
    }

    fn tens(&self, coarse: usize) -> Vec<(f64, String)> {
        let digits: &[f64] = match coarse {
            0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let stride = coarse.max(1) as i32;
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let powers = (first..=last).filter(|power| power.rem_euclid(stride) == 0);
        powers
            .flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power)))
            .filter(|&v| v >= self.low * (1.0 - 1e-9) && v <= self.high * (1.0 + 1e-9))
            .map(|value| (value, number::short(value)))
            .collect()
    }

    fn twos(&self, coarse: usize) -> Vec<(f64, String)> {
        let (first, last) = (self.low.log2().round() as i32, self.high.log2().round() as i32);
        (first..=last)
            .step_by(coarse + 1)
            .map(|power| (f64::from(power).exp2(), number::short(f64::from(power).exp2())))
            .collect()
    }
}

/// The next of 1, 2, 5, 10, … from `least` on.
fn step(least: f64) -> f64 {
    let ten = 10f64.powf(least.log10().floor());
    let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * ten >= least * (1.0 - 1e-9));
    digit.unwrap_or(10.0) * ten
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(axis: &Axis, values: &[f64], to: f64) -> Vec<String> {
        let placing = axis.span(values.iter().copied(), 0.0, to);
        placing.ticks(true).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn round_values() {
        let axis = Axis::new("", "");
        assert_eq!(ticks(&axis, &[0.13, 0.87], 600.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(ticks(&axis, &[-3.0, 40.0], 600.0), ["-10", "0", "10", "20", "30", "40"]);
        assert_eq!(ticks(&axis, &[5.0], 600.0).first().map(String::as_str), Some("4.4"));
        assert_eq!(ticks(&axis, &[], 600.0).len(), 6);
        assert_eq!(ticks(&axis, &[0.0, 30_000.0], 90.0), ["0", "20,000"]);
        assert_eq!(ticks(&axis, &[0.0, 2e-5], 600.0)[1], "5e-6");
    }

    #[test]
    fn a_tenth_of_what_can_be() {
        let of =
            |values: &[f64], low, high| ticks(&Axis::new("", "").within(low, high), values, 600.0);
        let ends = |ticks: Vec<String>| (ticks[0].clone(), ticks[ticks.len() - 1].clone());
        assert_eq!(ends(of(&[22.75, 23.1], 0.0, 100.0)), ("16".into(), "28".into()));
        assert_eq!(ends(of(&[0.999, 1.0], 0.0, 1.0)), ("0.90".into(), "1.00".into()));
        assert_eq!(ends(of(&[0.0, 0.001], 0.0, 1.0)), ("0.00".into(), "0.10".into()));
        assert_eq!(ends(of(&[20.0, 80.0], 0.0, 100.0)), ("20".into(), "80".into()));
        // What lies outside is shown as it is.
        assert_eq!(
            ends(of(&[1.2, 1.21], 0.0, 1.0)),
            ends(ticks(&Axis::default(), &[1.2, 1.21], 600.0))
        );
    }

    #[test]
    fn bytes_have_their_units() {
        let axis = Axis::bytes("size").from_zero();
        assert_eq!(ticks(&axis, &[65_536.0], 600.0)[..3], ["0 bytes", "20 kB", "40 kB"]);
        assert_eq!((axis.say(8.0), axis.say(3080.0)), ("8 bytes".into(), "3080 bytes".into()));
    }

    #[test]
    fn magnitudes() {
        let axis = Axis::new("", "").log();
        assert_eq!(ticks(&axis, &[3.0, 90.0], 600.0), ["2", "5", "10", "20", "50", "100"]);
        assert_eq!(ticks(&axis, &[1e-9, 1e9], 200.0), ["1e-5", "1", "100,000"]);
        let axis = Axis { scale: Scale::Log2, ..Axis::default() };
        assert_eq!(ticks(&axis, &[16.0, 512.0], 600.0), ["16", "32", "64", "128", "256", "512"]);
        assert!(!axis.takes(0.0) && !axis.takes(f64::NAN) && axis.takes(1e-9));
    }
}
