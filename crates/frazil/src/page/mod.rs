//! One look for every report: a page of HTML that is complete in itself.
//!
//! A report is put together from sections with key figures, tables, notes, code and charts, and
//! becomes one file that opens without a network: styles, the few lines of script and the charts
//! (SVG) are inside. It is readable in light and in dark, on paper, on a narrow screen, by
//! keyboard, without the script, and by a program that reads aloud: every chart has a text
//! alternative and its numbers in a table. The same report gives the same bytes.
//!
//! All text is plain: what is given is shown as it is, never taken for markup, but for backticks, which
//! make code. What belongs in a report is the business of the operation that makes it.
//!
//! ```
//! use frazil::page::{Page, Section, Table, chart::{Axis, Bars, Series}};
//!
//! let page = Page::new("Two variants").lead("Medians of interleaved rounds.").section(
//!     Section::new("Speed")
//!         .figure("int8", "3.1x", "as fast as f32")
//!         .table(Table::new(["variant", ">median ms"]).row(["f32".into(), 12.5.into()]))
//!         .chart(Bars {
//!             title: "Time of a batch".into(),
//!             value: Axis::new("median", "ms"),
//!             groups: vec!["batch 1".into(), "batch 8".into()],
//!             series: vec![Series::new("f32", [Some(12.5), Some(98.0)])],
//!             ..Bars::default()
//!         }),
//! );
//! assert!(page.render().starts_with("<!DOCTYPE html>"));
//! ```

pub mod chart;
pub mod number;
mod table;
mod text;

use std::fmt::Write;
use std::path::Path;

pub use chart::Chart;
pub use table::{Cell, Table};
pub use text::escape;
use text::marked;

const THEME: &str = include_str!("theme.css");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Nothing but what is in the page: a browser refuses to fetch anything for it.
pub(crate) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";

/// A report as a page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    title: String,
    lead: Vec<String>,
    sections: Vec<Section>,
    foot: Vec<String>,
}

/// A part of a page under a heading.
#[derive(Clone, Debug, Default)]
pub struct Section {
    title: String,
    blocks: Vec<Block>,
}

/// How something is meant: it is said in a word and shown in a colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// As it is.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// To be looked at.
    Warning,
    /// As it should not be.
    Bad,
}

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Good => "good",
            Self::Warning => "warn",
            Self::Bad => "bad",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Plain => "Note:",
            Self::Good => "Good:",
            Self::Warning => "Warning:",
            Self::Bad => "Failed:",
        }
    }
}

#[derive(Clone, Debug)]
enum Block {
    Text(String),
    Heading(String),
    Figures(Vec<Figure>),
    Table(Table),
    Code(String),
    Note(Tone, String),
    Chart(Box<Chart>),
    Folded(String, Vec<Block>),
}

#[derive(Clone, Debug)]
struct Figure {
    name: String,
    value: String,
    note: String,
    tone: Tone,
}

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Self {
        let foot = vec![format!("frazil {}", env!("CARGO_PKG_VERSION"))];
        Self { title: title.into(), foot, ..Self::default() }
    }

    /// A sentence under the title: what this is, and what came out. Several may be given.
    #[must_use]
    pub fn lead(mut self, text: impl Into<String>) -> Self {
        self.lead.push(text.into());
        self
    }

    /// A section. One that holds nothing is left out.
    #[must_use]
    pub fn section(mut self, section: Section) -> Self {
        if !section.blocks.is_empty() {
            self.sections.push(section);
        }
        self
    }

    /// A line at the foot of the page: how it was made.
    #[must_use]
    pub fn foot(mut self, text: impl Into<String>) -> Self {
        self.foot.push(text.into());
        self
    }

    /// The whole file.
    pub fn render(&self) -> String {
        let mut body = String::new();
        body.push_str("<a class=\"skip\" href=\"#content\">To the content</a>\n<div class=\"wide\">\n<header>\n");
        element(&mut body, "h1", "", &self.title);
        for text in &self.lead {
            element(&mut body, "p", "lead", text);
        }
        if self.sections.len() > 2 {
            body.push_str("<nav aria-label=\"Sections\"><ul>\n");
            for (i, section) in self.sections.iter().enumerate() {
                let title = marked(&section.title);
                let _ = writeln!(body, "<li><a href=\"#s{}\">{title}</a></li>", i + 1);
            }
            body.push_str("</ul></nav>\n");
        }
        body.push_str("</header>\n<main id=\"content\">\n");
        let mut charts = 0;
        for (i, section) in self.sections.iter().enumerate() {
            let _ = writeln!(body, "<section aria-labelledby=\"s{}\">", i + 1);
            let _ = writeln!(body, "<h2 id=\"s{}\">{}</h2>", i + 1, marked(&section.title));
            section.blocks.iter().for_each(|block| block.render(&mut body, &mut charts));
            body.push_str("</section>\n");
        }
        body.push_str("</main>\n<footer>\n");
        self.foot.iter().for_each(|text| element(&mut body, "p", "", text));
        body.push_str("</footer>\n</div>\n");
        document(&self.title, &[STYLE, chart::STYLE], &body, SCRIPT)
    }

    /// Writes the page: complete, or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> crate::Result<()> {
        Ok(frazil_tensor::file::write(path, self.render().as_bytes())?)
    }
}

impl Section {
    /// An empty section.
    pub fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    fn with(mut self, block: Block) -> Self {
        self.blocks.push(block);
        self
    }

    /// A paragraph.
    #[must_use]
    pub fn text(self, text: impl Into<String>) -> Self {
        self.with(Block::Text(text.into()))
    }

    /// A heading within the section.
    #[must_use]
    pub fn heading(self, text: impl Into<String>) -> Self {
        self.with(Block::Heading(text.into()))
    }

    /// A key figure: what it is called, its value, and a few words on it (or none). Those that
    /// follow each other stand side by side.
    #[must_use]
    pub fn figure(
        self,
        name: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        self.judged(name, value, note, Tone::Plain)
    }

    /// A key figure that is good or bad.
    #[must_use]
    pub fn judged(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
        tone: Tone,
    ) -> Self {
        let figure = Figure { name: name.into(), value: value.into(), note: note.into(), tone };
        if let Some(Block::Figures(figures)) = self.blocks.last_mut() {
            figures.push(figure);
            return self;
        }
        self.with(Block::Figures(vec![figure]))
    }

    /// A table. One without rows is left out.
    #[must_use]
    pub fn table(self, table: Table) -> Self {
        if table.is_empty() { self } else { self.with(Block::Table(table)) }
    }

    /// Text to be copied: a command, a file.
    #[must_use]
    pub fn code(self, text: impl Into<String>) -> Self {
        self.with(Block::Code(text.into()))
    }

    /// A remark that stands out.
    #[must_use]
    pub fn note(self, tone: Tone, text: impl Into<String>) -> Self {
        self.with(Block::Note(tone, text.into()))
    }

    /// A chart.
    #[must_use]
    pub fn chart(self, chart: impl Into<Chart>) -> Self {
        self.with(Block::Chart(Box::new(chart.into())))
    }

    /// The content of another section, under a line that opens it. Nothing, if it is empty.
    #[must_use]
    pub fn folded(self, section: Self) -> Self {
        if section.blocks.is_empty() {
            return self;
        }
        self.with(Block::Folded(section.title, section.blocks))
    }
}

impl Block {
    fn render(&self, out: &mut String, charts: &mut usize) {
        match self {
            Self::Text(text) => element(out, "p", "", text),
            Self::Heading(text) => element(out, "h3", "", text),
            Self::Figures(figures) => {
                out.push_str("<dl class=\"figures\">\n");
                for Figure { name, value, note, tone } in figures {
                    out.push_str("<div>");
                    element(out, "dt", "", name);
                    element(out, "dd", tone.class(), value);
                    if !note.is_empty() {
                        element(out, "dd", "note", note);
                    }
                    out.push_str("</div>\n");
                }
                out.push_str("</dl>\n");
            }
            Self::Table(table) => table.render(out),
            Self::Code(text) => {
                let _ = writeln!(out, "<div class=\"code\"><pre>{}</pre></div>", escape(text));
            }
            Self::Note(tone, text) => {
                let (class, word) = (tone.class(), tone.word());
                let _ = writeln!(
                    out,
                    "<div class=\"say {class}\"><p><b>{word}</b> {}</p></div>",
                    marked(text)
                );
            }
            Self::Chart(chart) => {
                *charts += 1;
                chart.render(out, *charts);
            }
            Self::Folded(title, blocks) => {
                let _ = writeln!(out, "<details><summary>{}</summary>", marked(title));
                blocks.iter().for_each(|block| block.render(out, charts));
                out.push_str("</details>\n");
            }
        }
    }
}

/// The frame of every page of ours: head, styles, body, script. `body` is markup.
pub(crate) fn document(title: &str, styles: &[&str], body: &str, script: &str) -> String {
    let title = escape(title);
    let styles = styles.concat();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{title}</title>\n<style>\n{THEME}{styles}</style>\n</head>\n<body>\n{body}\
         <script>\n{script}</script>\n</body>\n</html>\n"
    )
}

/// An element with text in it, on a line; what stands between backticks is code.
fn element(out: &mut String, name: &str, class: &str, text: &str) {
    let text = marked(text);
    let _ = match class {
        "" => writeln!(out, "<{name}>{text}</{name}>"),
        class => writeln!(out, "<{name} class=\"{class}\">{text}</{name}>"),
    };
}
