//! The few elements that charts are made of, as text.

use std::fmt::Write;

use super::super::{escape, text};
use super::kind;

/// Size of the letters.
pub const FONT: f64 = 12.0;
/// From one line of text to the next.
pub const LINE: f64 = 18.0;

/// Where something is.
pub type At = (f64, f64);

/// A picture that grows.
pub struct Svg {
    pub body: String,
    pub width: f64,
    pub height: f64,
}

/// A coordinate: a tenth of a unit is enough, and the same on every machine.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.to_owned() }
}

/// How wide a text is in a chart.
pub fn wide(words: &str) -> f64 {
    text::width(words) * FONT
}

/// A text that fits.
pub fn fit(words: &str, most: f64) -> String {
    text::shorten(words, most / FONT + 1e-6).into_owned()
}

impl Svg {
    pub fn new(width: f64) -> Self {
        Self { body: String::new(), width, height: 0.0 }
    }

    fn shape(&mut self, shape: &str, tip: &str) {
        let _ = match tip {
            "" => writeln!(self.body, "<{shape}/>"),
            tip => {
                let name = shape.split(' ').next().unwrap_or(shape);
                writeln!(self.body, "<{shape}><title>{}</title></{name}>", escape(tip))
            }
        };
    }

    pub fn line(&mut self, class: &str, (x1, y1): At, (x2, y2): At, tip: &str) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(px);
        let line =
            format!("line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"");
        self.shape(&line, tip);
    }

    pub fn rect(&mut self, class: &str, (x, y): At, (w, h): At, more: &str, tip: &str) {
        let [x, y, w, h] = [x, y, w.max(0.0), h.max(0.0)].map(px);
        let more = if more.is_empty() { String::new() } else { format!(" {more}") };
        let rect = format!(
            "rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\"{more}"
        );
        self.shape(&rect, tip);
    }

    /// `tip` is the whole of a text that was shortened, or nothing.
    pub fn text_tip(&mut self, (x, y): At, anchor: &str, class: &str, words: &str, tip: &str) {
        if words.is_empty() {
            return;
        }
        let (x, y) = (px(x), px(y));
        let tip = match tip {
            "" => String::new(),
            tip => format!("<title>{}</title>", escape(tip)),
        };
        let anchor = match anchor {
            "start" => String::new(),
            anchor => format!(" text-anchor=\"{anchor}\""),
        };
        let class = match class {
            "" => String::new(),
            class => format!(" class=\"{class}\""),
        };
        let words = escape(words);
        let _ = writeln!(self.body, "<text{class} x=\"{x}\" y=\"{y}\"{anchor}>{words}{tip}</text>");
    }

    pub fn text(&mut self, at: At, anchor: &str, class: &str, words: &str) {
        self.text_tip(at, anchor, class, words, "");
    }

    /// A text that fits into `most`, with the whole of it to be read by pointing at it.
    pub fn fitted(&mut self, at: At, anchor: &str, class: &str, words: &str, most: f64) {
        let short = fit(words, most);
        let tip = if short == words { "" } else { words };
        self.text_tip(at, anchor, class, &short, tip);
    }

    /// A text that is read from below.
    pub fn upright(&mut self, (x, y): At, words: &str, most: f64) {
        let (x, y) = (px(x), px(y));
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" transform=\"rotate(-90 {x} {y})\">{}</text>",
            escape(&fit(words, most))
        );
    }

    pub fn path(&mut self, class: &str, points: &[At]) {
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", px(*x), px(*y))).collect();
        self.shape(&format!("polyline class=\"{class}\" points=\"{}\"", points.join(" ")), "");
    }

    /// A point; its shape says which series it belongs to.
    pub fn mark(&mut self, series: usize, look: Look, (x, y): At, tip: &str) {
        let look = match look {
            Look::Mark => "mark",
            Look::Open => "open",
            Look::Full => "full",
        };
        let class = format!("{look} s{}", kind(series));
        let polygon = |corners: &[At]| {
            let at: Vec<String> =
                corners.iter().map(|(dx, dy)| format!("{},{}", px(x + dx), px(y + dy))).collect();
            format!("polygon class=\"{class}\" points=\"{}\"", at.join(" "))
        };
        let shape = match kind(series) % 4 {
            0 => format!("circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"5\"", px(x), px(y)),
            1 => polygon(&[(-4.5, -4.5), (4.5, -4.5), (4.5, 4.5), (-4.5, 4.5)]),
            2 => polygon(&[(0.0, -6.0), (5.5, 4.5), (-5.5, 4.5)]),
            _ => polygon(&[(0.0, -6.0), (6.0, 0.0), (0.0, 6.0), (-6.0, 0.0)]),
        };
        self.shape(&shape, tip);
    }

    /// Names of series with their marks, in as many lines as they need; gives the height.
    pub fn legend<'a>(&mut self, top: f64, names: impl Iterator<Item = (&'a str, Key)>) -> f64 {
        let (mut x, mut y, mut any) = (0.0, top + 12.0, false);
        for (name, key) in names {
            let name = fit(name, self.width / 2.0);
            let width = 22.0 + wide(&name);
            if x > 0.0 && x + width > self.width {
                (x, y) = (0.0, y + LINE);
            }
            match key {
                Key::Bar(i) => {
                    self.rect(&format!("bar s{}", kind(i)), (x, y - 10.0), (12.0, 12.0), "", "")
                }
                Key::Pale(i) => {
                    self.rect(&format!("pale s{}", kind(i)), (x, y - 10.0), (12.0, 12.0), "", "")
                }
                Key::Mark(i) => self.mark(i, Look::Open, (x + 6.0, y - 4.0), ""),
                Key::Line(class) => self.line(&class, (x, y - 4.0), (x + 14.0, y - 4.0), ""),
            }
            self.text((x + 18.0, y), "start", "", &name);
            x += width + 14.0;
            any = true;
        }
        if any { y + 8.0 - top } else { 0.0 }
    }
}

/// How a point looks.
#[derive(Clone, Copy)]
pub enum Look {
    /// One of a curve.
    Mark,
    /// One of many.
    Open,
    /// The one that matters.
    Full,
}

/// What stands before a name in a legend.
pub enum Key {
    Bar(usize),
    Pale(usize),
    Mark(usize),
    Line(String),
}
