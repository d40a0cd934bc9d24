//! A value for each row and column, as shades.

use super::super::{Table, number};
use super::Drawn;
use super::axis::{Axis, Scale};
use super::svg::{LINE, Svg, wide};

/// A chart of shades: the stronger, the larger.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    /// Above it.
    pub title: String,
    /// What is to be seen, in a sentence, for those who do not see it.
    pub about: String,
    /// What the values are; a logarithmic one shades by magnitude.
    pub value: Axis,
    /// Names of the rows.
    pub rows: Vec<String>,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// A row of values for each row, `None` where there is none.
    pub values: Vec<Vec<Option<f64>>>,
}

impl HeatMap {
    fn get(&self, row: usize, column: usize) -> Option<f64> {
        self.values.get(row)?.get(column).copied().flatten()
    }

    /// How strong the shade is, from 0 to 1.
    fn shading(&self) -> impl Fn(f64) -> f64 {
        let map = |log: bool| move |value: f64| if log { value.ln() } else { value };
        let map = map(self.value.scale != Scale::Linear);
        let values = self.values.iter().flatten().flatten().copied();
        let values = values.filter(|&value| self.value.takes(value)).map(map);
        let (mut low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if self.value.zero && self.value.scale == Scale::Linear {
            low = low.min(0.0);
        }
        move |value| if high > low { (map(value) - low) / (high - low) } else { 0.5 }
    }

    pub(super) fn draw(&self, width: f64) -> Drawn {
        let count = self.columns.len().max(1) as f64;
        let names = self.rows.iter().map(|name| wide(name)).fold(0.0, f64::max).min(width * 0.33);
        let left = names + 12.0;
        let cell = ((width - left - 8.0) / count).clamp(2.0, 120.0);
        let high = 22.0;
        let widest = self.columns.iter().map(|name| wide(name)).fold(0.0, f64::max);
        let level = widest + 6.0 <= cell;
        // Names that stand upright need the height of a line; where cells are narrower, every
        // second, third, … has its name.
        let every = if level { 1 } else { (16.0 / cell).ceil().max(1.0) as usize };
        let mut svg = Svg::new(width);
        let above = if level { LINE + 4.0 } else { widest.min(160.0) + 8.0 };
        for (i, name) in self.columns.iter().enumerate().step_by(every) {
            let x = left + (i as f64 + 0.5) * cell;
            if level {
                svg.text((x, above - 8.0), "middle", "", name);
            } else {
                svg.upright((x + 4.0, above - 4.0), name, 160.0);
            }
        }
        let shade = self.shading();
        let mut omitted = 0;
        for (r, name) in self.rows.iter().enumerate() {
            let top = above + r as f64 * high;
            svg.fitted((left - 8.0, top + 15.0), "end", "", name, names);
            for (c, column) in self.columns.iter().enumerate() {
                let at = (left + c as f64 * cell, top);
                let value = self.get(r, c);
                let Some(value) = value.filter(|&value| self.value.takes(value)) else {
                    omitted += usize::from(value.is_some());
                    svg.rect("none", at, (cell, high), "", "");
                    continue;
                };
                let strength = shade(value);
                let opacity = format!("fill-opacity=\"{:.2}\"", 0.04 + 0.96 * strength);
                let tip = format!("{name}\n{column}\n{}", self.value.say(value));
                svg.rect("heat", at, (cell, high), &opacity, &tip);
                let text = number::short(value);
                if wide(&text) + 4.0 <= cell {
                    let class = if strength > 0.55 { "over" } else { "" };
                    svg.text((at.0 + cell / 2.0, top + 15.0), "middle", class, &text);
                }
            }
        }
        let below = above + self.rows.len() as f64 * high;
        self.key(&mut svg, left.min((width - 420.0).max(0.0)), below + 12.0);
        svg.height = below + 12.0 + LINE + 4.0;
        Drawn { svg, data: self.data(), omitted }
    }

    /// A line for each value: as a table of rows and columns it would be too wide.
    fn data(&self) -> Table {
        let value = match self.value.caption() {
            caption if caption.is_empty() => ">value".to_owned(),
            caption => format!(">{caption}"),
        };
        let mut data = Table::new(["row", "column", &value]);
        for (r, row) in self.rows.iter().enumerate() {
            for (c, column) in self.columns.iter().enumerate() {
                data.push([row.as_str().into(), column.as_str().into(), self.get(r, c).into()]);
            }
        }
        data
    }

    /// Which shade is which value.
    fn key(&self, svg: &mut Svg, left: f64, top: f64) {
        let values = self.values.iter().flatten().flatten().copied();
        let values = values.filter(|&value| self.value.takes(value));
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if low > high {
            return;
        }
        let low =
            if self.value.zero && self.value.scale == Scale::Linear { low.min(0.0) } else { low };
        let least = number::short(low);
        svg.text((left, top + 12.0), "start", "soft", &least);
        let start = left + wide(&least) + 8.0;
        for i in 0..10 {
            let opacity = format!("fill-opacity=\"{:.2}\"", 0.04 + 0.96 * f64::from(i) / 9.0);
            svg.rect("heat", (start + f64::from(i) * 14.0, top), (14.0, 14.0), &opacity, "");
        }
        let most = match self.value.caption().as_str() {
            "" => number::short(high),
            caption => format!("{}   {caption}", number::short(high)),
        };
        let room = svg.width - start - 150.0;
        svg.fitted((start + 148.0, top + 12.0), "start", "soft", &most, room);
    }
}
