//! From where to where values go, and which part of it is kept.

use super::super::Table;
use super::Drawn;
use super::axis::Axis;
use super::svg::{Key, LINE, Svg, wide};

/// A chart of ranges in groups.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// What ranges.
    pub value: Axis,
    /// The ranges; those of one group follow each other.
    pub ranges: Vec<Range>,
}

/// One range.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Range {
    /// What it belongs to, or nothing.
    pub group: String,
    /// Of what it is.
    pub name: String,
    /// All values.
    pub full: (f64, f64),
    /// What is kept of them; what lies outside is clipped.
    pub kept: (f64, f64),
    /// A few words at its end: how much is clipped.
    pub note: String,
}

impl Ranges {
    pub(super) fn draw(&self, width: f64) -> Drawn {
        const HIGH: f64 = 18.0;
        let ends = |range: &Range| [range.full.0, range.full.1, range.kept.0, range.kept.1];
        let takes = |range: &&Range| ends(range).iter().all(|&end| self.value.takes(end));
        let omitted = self.ranges.iter().filter(|range| !takes(range)).count();
        let mut svg = Svg::new(width);
        let keys = [("kept", Key::Bar(0)), ("clipped", Key::Pale(1))];
        let above = svg.legend(0.0, keys.into_iter()) + 4.0;
        let most = |part: fn(&Range) -> &str, limit: f64| {
            self.ranges.iter().map(|range| wide(part(range))).fold(0.0, f64::max).min(limit)
        };
        let names = most(|range| &range.name, width * 0.33);
        let notes = most(|range| &range.note, (width * 0.175).max(110.0));
        let (left, right) = (names + 24.0, width - 14.0 - notes);
        let x = self.value.span(self.ranges.iter().filter(takes).flat_map(ends), left, right);
        let groups = self.ranges.chunk_by(|a, b| a.group == b.group);
        let heads = groups.clone().filter(|group| !group[0].group.is_empty()).count();
        let below = above + HIGH * self.ranges.len() as f64 + (LINE + 4.0) * heads as f64;
        for (value, text) in x.ticks(true) {
            svg.line("grid", (x.at(value), above), (x.at(value), below), "");
            svg.text((x.at(value), below + 17.0), "middle", "soft", &text);
        }
        let mut top = above;
        for group in groups {
            if !group[0].group.is_empty() {
                svg.fitted((0.0, top + 16.0), "start", "head", &group[0].group, left - 8.0);
                top += LINE + 4.0;
            }
            for range in group {
                svg.fitted((left - 8.0, top + 13.0), "end", "", &range.name, names);
                if takes(&range) {
                    let (a, b) = (x.at(range.full.0), x.at(range.full.1));
                    let (c, d) = (x.at(range.kept.0), x.at(range.kept.1));
                    let tip = format!(
                        "{}\nall: {} to {}\nkept: {} to {}\n{}",
                        range.name,
                        self.value.say(range.full.0),
                        self.value.say(range.full.1),
                        self.value.say(range.kept.0),
                        self.value.say(range.kept.1),
                        range.note
                    );
                    for (from, to) in [(a, c.min(b)), (d.max(a), b)] {
                        if to - from > 0.05 {
                            svg.rect("pale s1", (from, top + 5.0), (to - from, 8.0), "", &tip);
                        }
                    }
                    let size = ((d - c).max(1.0), 12.0);
                    svg.rect("bar s0", (c, top + 3.0), size, "", tip.trim_end());
                }
                svg.fitted((right + 8.0, top + 13.0), "start", "soft", &range.note, notes);
                top += HIGH;
            }
        }
        svg.line("axis", (left, below), (right, below), "");
        let caption = self.value.caption();
        svg.fitted(((left + right) / 2.0, below + 36.0), "middle", "soft", &caption, right - left);
        svg.height = below + 26.0 + LINE;
        let columns = ["group", "name", ">from", ">to", ">kept from", ">kept to", "note"];
        let mut data = Table::new(columns);
        for range in &self.ranges {
            let mut row = vec![range.group.as_str().into(), range.name.as_str().into()];
            row.extend(ends(range).map(Into::into));
            row.push(range.note.as_str().into());
            data.push(row);
        }
        Drawn { svg, data, omitted }
    }
}
