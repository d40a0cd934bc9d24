//! Curves over one axis.

use super::super::{Cell, Table};
use super::axis::Axis;
use super::plot::Frame;
use super::svg::{At, Key, Look, Svg};
use super::{Drawn, Rule, kind};

/// A curve of more points than this is thinned: a screen has no more columns.
const MOST: usize = 800;
/// Up to here each point is marked.
const MARKED: usize = 24;

/// A chart of curves.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The curves.
    pub lines: Vec<Line>,
    /// Goals and limits.
    pub rules: Vec<Rule>,
}

/// A curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// What it is.
    pub name: String,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

impl Line {
    /// A curve through points.
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { name: name.into(), points: points.into_iter().collect() }
    }
}

impl Lines {
    pub(super) fn draw(&self, width: f64) -> Drawn {
        let takes = |&(x, y): &At| self.x.takes(x) && self.y.takes(y);
        let mut omitted = 0;
        let lines: Vec<Vec<At>> = self
            .lines
            .iter()
            .map(|line| {
                let points: Vec<At> = line.points.iter().copied().filter(takes).collect();
                omitted += line.points.len() - points.len();
                thin(points)
            })
            .collect();
        let mut svg = Svg::new(width);
        let keys = self.lines.iter().enumerate().filter(|_| self.lines.len() > 1);
        let top = svg.legend(0.0, keys.map(|(i, line)| (line.name.as_str(), Key::Line(class(i)))));
        let points = lines.concat();
        let frame =
            Frame { x: &self.x, y: &self.y, points: &points, rules: &self.rules, height: 280.0 };
        let mut plot = frame.draw(svg, top);
        for (i, points) in lines.iter().enumerate() {
            let places: Vec<At> =
                points.iter().map(|&(x, y)| (plot.x.at(x), plot.y.at(y))).collect();
            if places.len() > 1 {
                plot.svg.path(&class(i), &places);
            }
            if places.len() > MARKED {
                continue;
            }
            for (&(x, y), &at) in points.iter().zip(&places) {
                let tip = format!("{}\n{}, {}", self.lines[i].name, self.x.say(x), self.y.say(y));
                plot.svg.mark(i, Look::Mark, at, &tip);
            }
        }
        plot.name_rules(&self.rules, &self.y);
        Drawn { svg: plot.svg, data: self.data(&lines), omitted }
    }

    /// A column for each curve where they share their points, else a row for each point.
    fn data(&self, lines: &[Vec<At>]) -> Table {
        let xs = |points: &Vec<At>| points.iter().map(|point| point.0).collect::<Vec<f64>>();
        let shared = lines.windows(2).all(|pair| xs(&pair[0]) == xs(&pair[1]));
        let x = format!(">{}", self.x.caption());
        if !shared {
            let mut table = Table::new(["curve".to_owned(), x, format!(">{}", self.y.caption())]);
            for (line, points) in self.lines.iter().zip(lines) {
                for point in points {
                    table.push([line.name.as_str().into(), point.0.into(), point.1.into()]);
                }
            }
            return table;
        }
        let names = self.lines.iter().map(|line| match line.name.as_str() {
            "" => format!(">{}", self.y.caption()),
            name => format!(">{name}"),
        });
        let mut table = Table::new(std::iter::once(x).chain(names));
        for (i, point) in lines.first().into_iter().flatten().enumerate() {
            let values = lines.iter().map(|points| Cell::from(points[i].1));
            table.push(std::iter::once(Cell::from(point.0)).chain(values));
        }
        table
    }
}

fn class(series: usize) -> String {
    format!("line s{} d{}", kind(series), series % 4)
}

/// The lowest and the highest of each stretch, so that no peak is lost.
fn thin(points: Vec<At>) -> Vec<At> {
    if points.len() <= MOST {
        return points;
    }
    let stretch = points.len().div_ceil(MOST / 2);
    let by_y = |a: &&(usize, At), b: &&(usize, At)| a.1.1.total_cmp(&b.1.1);
    let numbered: Vec<(usize, At)> = points.into_iter().enumerate().collect();
    let mut kept: Vec<(usize, At)> = Vec::new();
    for part in numbered.chunks(stretch) {
        kept.extend(part.iter().min_by(by_y));
        kept.extend(part.iter().max_by(by_y));
    }
    kept.extend(numbered.first());
    kept.extend(numbered.last());
    kept.sort_by_key(|point| point.0);
    kept.dedup_by_key(|point| point.0);
    kept.into_iter().map(|point| point.1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_keeps_peaks_and_ends() {
        let mut points: Vec<At> = (0..100_000).map(|i| (f64::from(i), 0.0)).collect();
        points[77_777].1 = 5.0;
        let thinned = thin(points);
        assert!(thinned.len() <= MOST + 2, "{}", thinned.len());
        assert!(thinned.contains(&(77_777.0, 5.0)));
        assert_eq!((thinned[0].0, thinned[thinned.len() - 1].0), (0.0, 99_999.0));
        assert!(thinned.is_sorted_by_key(|point| point.0));
    }
}
