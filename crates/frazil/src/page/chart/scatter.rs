//! Points with names, and the line through those that no other point beats.

use super::super::{Cell, Table};
use super::axis::Axis;
use super::plot::Frame;
use super::svg::{At, Key, Look, Svg};
use super::{Drawn, Rule};

/// More names than this would hide what they name.
const LABELS: usize = 60;

/// A chart of points.
#[derive(Clone, Debug, Default)]
pub struct Scatter {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// Across.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What the points of each series are, for the legend; a series without points is not in it.
    pub series: Vec<String>,
    /// The points.
    pub points: Vec<Point>,
    /// The best points, joined.
    pub front: Option<Front>,
    /// Goals and limits.
    pub rules: Vec<Rule>,
}

/// One point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Across.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// Its name: written beside it, where there is room.
    pub label: String,
    /// More about it, for the table and for those who point at it.
    pub detail: String,
    /// Which series it belongs to.
    pub series: usize,
    /// Whether it is the one that matters: its name is placed first, and it is filled.
    pub chosen: bool,
}

/// What is better on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// The smaller value.
    Lower,
    /// The larger value.
    Higher,
}

/// The line of points that no other one beats on both axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// What it is called.
    pub name: String,
    /// On the axis across.
    pub x: Better,
    /// On the axis upwards.
    pub y: Better,
}

impl Front {
    /// The places of the points on the front, from the best on the axis across to the worst.
    pub fn of(&self, points: &[Point]) -> Vec<usize> {
        let cost = |value: f64, better| match better {
            Better::Lower => value,
            Better::Higher => -value,
        };
        let costs: Vec<At> =
            points.iter().map(|p| (cost(p.x, self.x), cost(p.y, self.y))).collect();
        let mut order: Vec<usize> = (0..points.len())
            .filter(|&i| costs[i].0.is_finite() && costs[i].1.is_finite())
            .collect();
        order.sort_by(|&a, &b| {
            let ((ax, ay), (bx, by)) = (costs[a], costs[b]);
            ax.total_cmp(&bx).then(ay.total_cmp(&by)).then(a.cmp(&b))
        });
        let mut best = f64::INFINITY;
        order.retain(|&i| {
            let better = costs[i].1 < best;
            best = best.min(costs[i].1);
            better
        });
        order
    }
}

impl Scatter {
    pub(super) fn draw(&self, width: f64) -> Drawn {
        let drawable = |p: &&Point| self.x.takes(p.x) && self.y.takes(p.y);
        let points: Vec<Point> = self.points.iter().filter(drawable).cloned().collect();
        let front = self.front.as_ref().map(|front| front.of(&points)).unwrap_or_default();
        let mut svg = Svg::new(width);
        let any = |series: usize| points.iter().any(|point| point.series == series);
        let marks = self.series.iter().enumerate().filter(|(i, _)| any(*i));
        let mut keys: Vec<(&str, Key)> =
            marks.map(|(i, name)| (name.as_str(), Key::Mark(i))).collect();
        if let Some(line) = self.front.as_ref().filter(|_| front.len() > 1) {
            keys.push((&line.name, Key::Line("front".into())));
        }
        let top = svg.legend(0.0, keys.into_iter());
        let ends: Vec<At> = points.iter().map(|point| (point.x, point.y)).collect();
        let frame =
            Frame { x: &self.x, y: &self.y, points: &ends, rules: &self.rules, height: 320.0 };
        let mut plot = frame.draw(svg, top);
        let place: Vec<At> = ends.iter().map(|&(x, y)| (plot.x.at(x), plot.y.at(y))).collect();
        // A step: between two points of the front, the first is the best that can be had.
        let mut steps: Vec<At> = Vec::new();
        for &i in &front {
            steps.extend(steps.last().map(|last| (place[i].0, last.1)));
            steps.push(place[i]);
        }
        if steps.len() > 1 {
            plot.svg.path("front", &steps);
            steps.windows(2).for_each(|pair| plot.places.take_line(pair[0], pair[1]));
        }
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by_key(|&i| (!points[i].chosen, !front.contains(&i), i));
        for &i in order.iter().rev() {
            let point = &points[i];
            let tip = [
                point.label.clone(),
                format!("{}, {}", self.x.say(point.x), self.y.say(point.y)),
                point.detail.clone(),
            ];
            let tip: Vec<String> = tip.into_iter().filter(|part| !part.is_empty()).collect();
            let look = if point.chosen { Look::Full } else { Look::Open };
            plot.svg.mark(point.series, look, place[i], &tip.join("\n"));
            plot.places.take_mark(place[i]);
        }
        plot.name_rules(&self.rules, &self.y);
        for &i in order.iter().filter(|&&i| !points[i].label.is_empty()).take(LABELS) {
            let words = super::svg::fit(&points[i].label, width / 4.0);
            if let Some(at) = plot.places.beside(&words, place[i]) {
                plot.svg.text(at, "start", "name", &words);
            }
        }
        Drawn { svg: plot.svg, data: self.data(), omitted: self.points.len() - points.len() }
    }

    fn data(&self) -> Table {
        let several = self.series.len() > 1;
        let detailed = self.points.iter().any(|point| !point.detail.is_empty());
        let mut columns = vec!["point".to_owned()];
        columns.extend(several.then(|| "series".to_owned()));
        columns.extend([&self.x, &self.y].map(|axis| format!(">{}", axis.caption())));
        columns.extend(detailed.then(|| "detail".to_owned()));
        let mut table = Table::new(columns);
        for point in &self.points {
            let mut row: Vec<Cell> = vec![point.label.as_str().into()];
            let name = self.series.get(point.series).map_or("", String::as_str);
            row.extend(several.then(|| name.into()));
            row.extend([point.x.into(), point.y.into(), point.detail.as_str().into()]);
            table.push(row);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_is_what_nothing_beats() {
        let point = |x, y| Point { x, y, ..Point::default() };
        let points = [
            point(3.0, 90.0),
            point(1.0, 80.0),
            point(2.0, 79.0),
            point(3.0, 90.0),
            point(f64::NAN, 99.0),
        ];
        let front = Front { name: String::new(), x: Better::Lower, y: Better::Higher };
        assert_eq!(front.of(&points), [1, 0]);
        let front = Front { name: String::new(), x: Better::Higher, y: Better::Lower };
        assert_eq!(front.of(&points), [0, 2]);
    }
}
