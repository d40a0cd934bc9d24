//! Histograms below each other over one axis, so that they can be compared.

use super::super::{Cell, Table, number};
use super::axis::Axis;
use super::svg::{LINE, Svg};
use super::{Drawn, kind};

/// How wide the bars of a strip are at least, about; finer bins are added up.
const LEAST: f64 = 3.5;

/// A chart of histograms.
#[derive(Clone, Debug, Default)]
pub struct Strips {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// What is counted.
    pub x: Axis,
    /// The histograms.
    pub strips: Vec<Strip>,
}

/// One histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Strip {
    /// What it is of.
    pub name: String,
    /// Where bins begin, and where the last one ends: one more than there are counts.
    pub edges: Vec<f64>,
    /// How many in each bin.
    pub counts: Vec<f64>,
    /// Values to be marked: a limit, a mean.
    pub marks: Vec<(f64, String)>,
}

impl Strip {
    /// Counts values in bins of one width.
    pub fn of(name: impl Into<String>, values: &[f64], bins: usize) -> Self {
        let values = || values.iter().copied().filter(|value| value.is_finite());
        let low = values().fold(f64::INFINITY, f64::min);
        let high = values().fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self { name: name.into(), ..Self::default() };
        }
        let bins = bins.max(1);
        let width = if high > low { (high - low) / bins as f64 } else { 1.0 };
        let mut counts = vec![0.0; bins];
        values().for_each(|value| counts[(((value - low) / width) as usize).min(bins - 1)] += 1.0);
        let edges = (0..=bins).map(|i| low + i as f64 * width).collect();
        Self { name: name.into(), edges, counts, marks: Vec::new() }
    }

    /// From, to, count, of as many as there is room for.
    fn bins(&self, width: f64) -> Vec<(f64, f64, f64)> {
        let edges = self.edges.windows(2);
        let bins: Vec<_> = edges.zip(&self.counts).map(|(e, &n)| (e[0], e[1], n)).collect();
        let merge = bins.len().div_ceil((width / LEAST) as usize).max(1);
        let sum = |part: &[(f64, f64, f64)]| {
            (part[0].0, part[part.len() - 1].1, part.iter().map(|bin| bin.2).sum())
        };
        bins.chunks(merge).map(sum).collect()
    }
}

impl Strips {
    pub(super) fn draw(&self, width: f64) -> Drawn {
        const HIGH: f64 = 70.0;
        let (left, right) = (10.0, width - 20.0);
        let all: Vec<Vec<(f64, f64, f64)>> =
            self.strips.iter().map(|strip| strip.bins(width)).collect();
        let takes = |bin: &&(f64, f64, f64)| {
            self.x.takes(bin.0) && self.x.takes(bin.1) && bin.2.is_finite() && bin.2 >= 0.0
        };
        let omitted = all.iter().flatten().filter(|bin| !takes(bin)).count();
        let ends = all.iter().flatten().flat_map(|bin| [bin.0, bin.1]);
        let x = self.x.span(ends, left, right);
        let mut svg = Svg::new(width);
        let ticks = x.ticks(true);
        let mut top = 0.0;
        for (i, (strip, bins)) in self.strips.iter().zip(&all).enumerate() {
            let most = bins.iter().filter(takes).map(|bin| bin.2).fold(0.0, f64::max);
            svg.fitted((left, top + 13.0), "start", "head", &strip.name, width * 0.6);
            let peak = format!("at most {}", number::short(most));
            svg.text((right, top + 13.0), "end", "soft", &peak);
            let (above, below) = (top + 22.0, top + 22.0 + HIGH);
            for (value, _) in &ticks {
                svg.line("grid", (x.at(*value), above), (x.at(*value), below), "");
            }
            for &(from, to, count) in bins.iter().filter(takes).filter(|bin| bin.2 > 0.0) {
                let height = (HIGH * count / most).max(1.0);
                let (a, b) = (x.at(from), x.at(to));
                let gap = if b - a > 4.0 { 1.0 } else { 0.0 };
                let tip = format!(
                    "{} to {}: {}",
                    number::short(from),
                    self.x.say(to),
                    number::short(count)
                );
                let class = format!("bar s{}", kind(i));
                let size = ((b - a - gap).max(0.7), height);
                svg.rect(&class, (a, below - height), size, "", &tip);
            }
            for (value, label) in strip.marks.iter().filter(|mark| self.x.takes(mark.0)) {
                let at = x.at(*value).clamp(left, right);
                let tip = format!("{label}: {}", self.x.say(*value));
                svg.line("goal", (at, above), (at, below), &tip);
            }
            svg.line("axis", (left, below), (right, below), "");
            top = below + 12.0;
        }
        for (value, text) in &ticks {
            // The first and the last would stick out.
            let at = x.at(*value);
            let anchor = match at {
                at if at < left + 12.0 => "start",
                at if at > right - 2.0 => "end",
                _ => "middle",
            };
            svg.text((at, top + 6.0), anchor, "soft", text);
        }
        svg.text(((left + right) / 2.0, top + 26.0), "middle", "soft", &self.x.caption());
        svg.height = top + 18.0 + LINE;
        let mut data = Table::new(["", ">from", ">to", ">count"]);
        for (strip, bins) in self.strips.iter().zip(&all) {
            for &(from, to, count) in bins.iter().filter(|bin| bin.2 != 0.0) {
                data.push([strip.name.as_str().into(), from.into(), to.into(), Cell::from(count)]);
            }
        }
        Drawn { svg, data, omitted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_counted_once() {
        let strip = Strip::of("", &[1.0, 2.0, 2.5, f64::NAN, 5.0], 4);
        assert_eq!(strip.edges, [1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(strip.counts, [1.0, 2.0, 0.0, 1.0]);
        assert_eq!(Strip::of("", &[3.0, 3.0], 4).counts, [2.0, 0.0, 0.0, 0.0]);
        assert!(Strip::of("", &[], 4).counts.is_empty());
    }

    #[test]
    fn fine_bins_are_added_up() {
        let strip = Strip {
            edges: (0..=1000).map(f64::from).collect(),
            counts: vec![1.0; 1000],
            ..Strip::default()
        };
        let bins = strip.bins(860.0);
        assert!(bins.len() <= 245);
        assert_eq!(bins.iter().map(|bin| bin.2).sum::<f64>(), 1000.0);
        assert_eq!(bins[0].0, 0.0);
        assert_eq!(bins[bins.len() - 1].1, 1000.0);
    }
}
