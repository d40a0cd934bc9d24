//! Bars that lie, so that their names can be as long as names are.

use super::super::{Cell, Table};
use super::axis::Axis;
use super::svg::{Key, LINE, Svg, fit, wide};
use super::{Drawn, Series, kind};

/// A chart of bars: a group for each name, a bar in it for each series.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// What the lengths are. It begins at zero, unless it is logarithmic.
    pub value: Axis,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// The bars of each group.
    pub series: Vec<Series>,
    /// What the first bar of each group is to reach, if anything.
    pub goals: Vec<Option<f64>>,
}

impl Bars {
    /// One bar for each name.
    pub fn of(
        title: impl Into<String>,
        value: Axis,
        bars: impl IntoIterator<Item = (String, f64)>,
    ) -> Self {
        let (groups, values): (Vec<String>, Vec<Option<f64>>) =
            bars.into_iter().map(|(name, value)| (name, Some(value))).unzip();
        let series = vec![Series::new("", values)];
        Self { title: title.into(), value, groups, series, ..Self::default() }
    }

    fn goal(&self, group: usize) -> Option<f64> {
        self.goals.get(group).copied().flatten()
    }

    fn said(&self, value: f64, goal: Option<f64>) -> String {
        let value = self.value.say(value);
        goal.map_or(value.clone(), |goal| format!("{value}, goal {}", self.value.say(goal)))
    }

    pub(super) fn draw(&self, width: f64) -> Drawn {
        let axis = Axis { zero: true, ..self.value.clone() };
        let mut svg = Svg::new(width);
        let keys = self.series.iter().enumerate().filter(|_| self.series.len() > 1);
        let goals = self.goals.iter().flatten().next();
        let keys = keys.map(|(i, series)| (series.name.as_str(), Key::Bar(i)));
        let top = svg.legend(0.0, keys.chain(goals.map(|_| ("goal", Key::Line("goal".into())))));
        let values = || self.series.iter().flat_map(|series| series.values.iter().flatten());
        let omitted = values().filter(|&&value| !axis.takes(value)).count();
        let names = self.groups.iter().map(|name| wide(name)).fold(0.0, f64::max).min(width * 0.35);
        let firsts = self.series.first().into_iter().flat_map(|series| series.values.iter());
        let firsts = firsts.enumerate().filter_map(|(g, value)| Some(((*value)?, self.goal(g))));
        let said = values().map(|&value| (value, None)).chain(firsts);
        let room =
            said.map(|(value, goal)| wide(&self.said(value, goal))).fold(0.0, f64::max) + 10.0;
        let room = room.min((width * 0.21).max(110.0));
        let (left, right) = (names + 12.0, width - room);
        let x = axis.span(values().chain(self.goals.iter().flatten()).copied(), left, right);
        let bars = self.series.len().max(1) as f64;
        let bar = if bars > 1.0 { 15.0 } else { 18.0 };
        let group = bars * bar + 10.0;
        let above = top + 4.0;
        let below = above + group * self.groups.len() as f64;
        for (value, text) in x.ticks(true) {
            let at = x.at(value);
            svg.line("grid", (at, above), (at, below), "");
            svg.text((at, below + 17.0), "middle", "soft", &text);
        }
        for (g, name) in self.groups.iter().enumerate() {
            let start = above + group * g as f64 + 5.0;
            svg.fitted((left - 8.0, start + bars * bar / 2.0 + 4.0), "end", "", name, names);
            for (i, series) in self.series.iter().enumerate() {
                let value = series.values.get(g).copied().flatten();
                let Some(value) = value.filter(|&value| axis.takes(value)) else { continue };
                let (from, to) = (x.base().min(x.at(value)), x.base().max(x.at(value)));
                let y = start + i as f64 * bar;
                let said = axis.say(value);
                let tip: Vec<&str> = [name.as_str(), &series.name, &said]
                    .into_iter()
                    .filter(|part| !part.is_empty())
                    .collect();
                let class = format!("bar s{}", kind(i));
                svg.rect(&class, (from, y), ((to - from).max(1.0), bar - 2.0), "", &tip.join("\n"));
                let goal = self.goal(g).filter(|&goal| i == 0 && axis.takes(goal));
                if let Some(goal) = goal {
                    let at = x.at(goal);
                    let tip = format!("{name}\ngoal {}", axis.say(goal));
                    svg.line("goal", (at, y - 2.0), (at, y + bar), &tip);
                }
                // A goal that was missed stands where the figure would: it goes behind it, by name.
                let missed = goal.filter(|&goal| x.at(goal) > to);
                let end = missed.map_or(to, |goal| x.at(goal));
                let said = self.said(value, missed);
                svg.text(
                    (end + 6.0, y + bar / 2.0 + 3.0),
                    "start",
                    "soft",
                    &fit(&said, room - 10.0),
                );
            }
        }
        svg.line("axis", (x.base(), above), (x.base(), below), "");
        let caption = axis.caption();
        svg.fitted(((left + right) / 2.0, below + 36.0), "middle", "soft", &caption, right - left);
        svg.height = below + 26.0 + LINE;
        Drawn { svg, data: self.data(), omitted }
    }

    fn data(&self) -> Table {
        let names = self.series.iter().map(|series| match series.name.as_str() {
            "" => format!(">{}", self.value.caption()),
            name if self.value.unit.is_empty() => format!(">{name}"),
            name => format!(">{name}, {}", self.value.unit),
        });
        let goals = self.goals.iter().flatten().next().map(|_| ">goal".to_owned());
        let mut table = Table::new(std::iter::once(String::new()).chain(names).chain(goals));
        for (g, name) in self.groups.iter().enumerate() {
            let mut row: Vec<Cell> = vec![name.as_str().into()];
            let cell = |value: f64| self.value.cell(value);
            let values = self.series.iter().map(|s| s.values.get(g).copied().flatten());
            row.extend(values.chain([self.goal(g)]).map(|value| value.map(cell).into()));
            table.push(row);
        }
        table
    }
}
