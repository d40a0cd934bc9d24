//! The frame of charts with two axes: grid, ticks, captions, rules.

use super::Rule;
use super::axis::{Axis, Placing};
use super::place::Places;
use super::svg::{At, LINE, Svg, fit, wide};

/// Two axes, drawn, and room for marks between them.
pub struct Plot {
    pub svg: Svg,
    pub x: Placing,
    pub y: Placing,
    pub places: Places,
    across: (f64, f64),
}

/// What a plot is made of.
pub struct Frame<'a> {
    pub x: &'a Axis,
    pub y: &'a Axis,
    pub points: &'a [At],
    pub rules: &'a [Rule],
    /// How high the part between the axes is.
    pub height: f64,
}

impl Frame<'_> {
    /// Draws below `top`, where a legend may stand.
    pub fn draw(&self, mut svg: Svg, top: f64) -> Plot {
        let above = top + LINE + 6.0;
        let below = above + self.height;
        let rules = || self.rules.iter().map(|rule| rule.value);
        let ys = self.points.iter().map(|point| point.1).chain(rules());
        let y = self.y.span(ys, below, above);
        let ticks = y.ticks(false);
        let left = ticks.iter().map(|(_, text)| wide(text)).fold(0.0, f64::max) + 10.0;
        let width = svg.width;
        let right = width - 20.0;
        svg.fitted((0.0, top + 12.0), "start", "soft", &self.y.caption(), width);
        for (value, text) in ticks {
            let at = y.at(value);
            svg.line("grid", (left, at), (right, at), "");
            svg.text((left - 6.0, at + 4.0), "end", "soft", &text);
        }
        let x = self.x.span(self.points.iter().map(|point| point.0), left, right);
        for (value, text) in x.ticks(true) {
            let at = x.at(value);
            svg.line("grid", (at, above), (at, below), "");
            svg.text((at, below + 17.0), "middle", "soft", &text);
        }
        svg.line("axis", (left, below), (right, below), "");
        let caption = self.x.caption();
        svg.fitted(((left + right) / 2.0, below + 38.0), "middle", "soft", &caption, right - left);
        svg.height = below + 46.0;
        let mut places = Places::new([left, above - 4.0, width, below]);
        for rule in self.rules.iter().filter(|rule| self.y.takes(rule.value)) {
            let at = y.at(rule.value);
            let tip = format!("{}: {}", rule.label, self.y.say(rule.value));
            svg.line("rule", (left, at), (right, at), &tip);
            places.take_line((left, at), (right, at));
        }
        Plot { svg, x, y, places, across: (left, right) }
    }
}

impl Plot {
    /// Writes what the rules are, where nothing else stands.
    pub fn name_rules(&mut self, rules: &[Rule], axis: &Axis) {
        let (left, right) = self.across;
        for rule in rules.iter().filter(|rule| axis.takes(rule.value)) {
            let at = self.y.at(rule.value);
            let words = fit(&rule.label, (right - left) / 2.0);
            let start = right - wide(&words);
            let spots = [start, left + 4.0].map(|x| [(x, at - 6.0), (x, at + 14.0)]);
            if let Some(spot) = self.places.find(&words, spots.into_iter().flatten()) {
                self.svg.text(spot, "start", "name", &words);
            }
        }
    }
}
