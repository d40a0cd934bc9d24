//! Charts as SVG that is part of the page: with a title, a description, and the numbers in a table.
//!
//! A chart is plain data; how it is drawn is decided here, once. Colours come from the page's theme
//! and are told apart by colour-blind readers, and never alone: shapes and dashes go with them.
//! Labels are placed where nothing else stands, or left out: the table has them all. What cannot be
//! drawn (no number, not positive on a logarithmic axis) is left out and counted in the description.
//! No animation, no zoom: a report is for reading.

mod axis;
mod bars;
mod heat;
mod lines;
mod place;
mod plot;
mod ranges;
mod scatter;
mod strips;
mod svg;

use std::fmt::Write;

pub use axis::{Axis, Scale};
pub use bars::Bars;
pub use heat::HeatMap;
pub use lines::{Line, Lines};
pub use ranges::{Range, Ranges};
pub use scatter::{Better, Front, Point, Scatter};
pub use strips::{Strip, Strips};

use super::{Table, escape};
use svg::Svg;

pub(super) const STYLE: &str = include_str!("../chart.css");

/// How wide every chart is drawn; a browser scales it.
const WIDTH: f64 = 860.0;
/// And once more for windows as narrow as a telephone's, where the other's letters would be too small.
const NARROW: f64 = 358.0;
/// Colours, and shapes of points, that there are.
const KINDS: usize = 8;

/// Any of the charts.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Chart {
    /// Points, some with a name, and the best of them joined.
    Scatter(Scatter),
    /// Curves.
    Lines(Lines),
    /// Lengths beside names.
    Bars(Bars),
    /// How often which value occurs, below each other.
    Strips(Strips),
    /// A value for each row and column.
    Heat(HeatMap),
    /// From where to where, and how much of it is kept.
    Ranges(Ranges),
}

macro_rules! charts {
    ($($variant:ident: $chart:ident),* $(,)?) => {
        $(impl From<$chart> for Chart {
            fn from(chart: $chart) -> Self {
                Self::$variant(chart)
            }
        })*

        impl Chart {
            fn title(&self) -> &str {
                match self {
                    $(Self::$variant(chart) => &chart.title,)*
                }
            }

            fn about(&self) -> &str {
                match self {
                    $(Self::$variant(chart) => &chart.about,)*
                }
            }

            fn draw(&self, width: f64) -> Drawn {
                match self {
                    $(Self::$variant(chart) => chart.draw(width),)*
                }
            }
        }
    };
}

charts! {
    Scatter: Scatter,
    Lines: Lines,
    Bars: Bars,
    Strips: Strips,
    Heat: HeatMap,
    Ranges: Ranges,
}

/// A picture, the numbers in it, and how many values could not be drawn.
struct Drawn {
    svg: Svg,
    data: Table,
    omitted: usize,
}

/// Values of one kind, one for each group, `None` where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What they are.
    pub name: String,
    /// In the order of the groups.
    pub values: Vec<Option<f64>>,
}

impl Series {
    /// Values under a name.
    pub fn new(name: impl Into<String>, values: impl IntoIterator<Item = Option<f64>>) -> Self {
        Self { name: name.into(), values: values.into_iter().collect() }
    }
}

/// A line across a chart at a value that matters: a goal, a limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rule {
    /// Where, on the vertical axis.
    pub value: f64,
    /// What it is.
    pub label: String,
}

impl Chart {
    pub(super) fn render(&self, out: &mut String, number: usize) {
        let drawn = self.draw(WIDTH);
        let title = escape(self.title());
        let _ = writeln!(out, "<figure>\n<figcaption>{title}</figcaption>");
        if drawn.data.is_empty() {
            out.push_str("<p>There is nothing to draw.</p>\n</figure>\n");
            return;
        }
        for (class, drawn) in [("broad", &drawn), ("narrow", &self.draw(NARROW))] {
            let id = format!("c{number}{}", &class[..1]);
            let more = format!("role=\"img\" aria-labelledby=\"{id}t {id}d\"");
            self.open(out, drawn, class, &more, &id);
            out.push_str(&drawn.svg.body);
            out.push_str("</svg>\n");
        }
        out.push_str("<details><summary>The numbers</summary>\n");
        drawn.data.render(out);
        out.push_str("</details>\n</figure>\n");
    }

    /// Charts below each other, as a file of SVG of its own.
    pub fn file(charts: impl IntoIterator<Item: Into<Self>>) -> String {
        const HEAD: f64 = 28.0;
        let charts: Vec<Self> = charts.into_iter().map(Into::into).collect();
        let drawn: Vec<(f64, Drawn)> = charts
            .iter()
            .scan(0.0, |top, chart| {
                let drawn = chart.draw(WIDTH);
                let at = *top + HEAD;
                *top = at + drawn.svg.height;
                Some((at, drawn))
            })
            .collect();
        let height = drawn.last().map_or(0.0, |(top, drawn)| top + drawn.svg.height);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">\n<style>\n{}{STYLE}</style>\n",
            super::THEME
        );
        for (i, (chart, (top, drawn))) in charts.iter().zip(&drawn).enumerate() {
            let mut head = Svg::new(WIDTH);
            head.text((0.0, top - 12.0), "start", "head", chart.title());
            out.push_str(&head.body);
            let place = format!("y=\"{top}\" width=\"{WIDTH}\" height=\"{}\"", drawn.svg.height);
            chart.open(&mut out, drawn, "broad", &place, &format!("c{}", i + 1));
            out.push_str(&drawn.svg.body);
            out.push_str("</svg>\n");
        }
        out + "</svg>\n"
    }

    fn open(&self, out: &mut String, drawn: &Drawn, class: &str, more: &str, id: &str) {
        let mut about = self.about().to_owned();
        if drawn.omitted > 0 {
            let _ = write!(about, " {} values cannot be drawn and are left out.", drawn.omitted);
        }
        let _ = writeln!(
            out,
            "<svg class=\"chart {class}\" viewBox=\"0 0 {} {}\" {more}>\n\
             <title id=\"{id}t\">{}</title>\n<desc id=\"{id}d\">{}</desc>",
            drawn.svg.width,
            svg::px(drawn.svg.height),
            escape(self.title()),
            escape(about.trim())
        );
    }
}

/// Which of the colours and shapes a series has.
fn kind(series: usize) -> usize {
    series % KINDS
}
