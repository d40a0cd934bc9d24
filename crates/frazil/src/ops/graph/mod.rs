//! `graph`: a graph as a page that one can open, move about in, search and unfold by name scope.
//!
//! Two pictures of it, where both can be had: as it is in the file, with what was fused and what
//! was not and why noted at its nodes; and as it runs, folded and fused. The page lays out only
//! what is unfolded (`layout.js`), so a large graph costs no more to look at than a small one.
//! Weights are not in it, but the first elements of constants are.

mod picture;

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use frazil_graph::pass::{self, Fusions};
use frazil_graph::{Graph, NodeId, Op};
use frazil_tensor::words::plural;
use serde::Serialize;

use super::convert::Note;
use crate::page::{document, escape};
use crate::source::{GraphOptions, Need, load_graph, locate, open_graph};
use crate::{Error, Result};
use picture::{Picture, Words};

const STYLE: &str = include_str!("graph.css");
const BODY: &str = include_str!("graph.html");
const SCRIPT: &str = concat!(include_str!("layout.js"), include_str!("view.js"));

/// What was drawn.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The model.
    pub path: PathBuf,
    /// What it is.
    pub kind: String,
    /// Nodes as it is.
    pub nodes: usize,
    /// Nodes as it runs, where that can be told.
    pub running_nodes: Option<usize>,
    /// How often each rule of fusing and packing applied.
    pub applied: BTreeMap<&'static str, usize>,
    /// What looked like a case for a rule and was not, with the reason.
    pub missed: Vec<Note>,
    /// Nodes that frazil has no operation for.
    pub foreign: usize,
    /// Those of them that are needed to run it; the others are for training and saving.
    pub foreign_needed: usize,
    /// Choices made on the way.
    pub notes: Vec<String>,
}

/// A graph that is drawn.
pub struct Drawing {
    /// What was drawn.
    pub report: Report,
    html: String,
}

/// Draws the graph at `path`.
pub fn draw(path: &Path, options: &GraphOptions) -> Result<Drawing> {
    let located = locate(path, Need::Names)?;
    let whole = load_graph(path, options)?;
    let mut notes = located.notes.clone();
    // With its values it is cut to its outputs and packed as a session does it; without, fusing
    // still says where the formulas are.
    let (mut running, cut) = match open_graph(path, options) {
        Ok(opened) => {
            notes = opened.notes;
            (opened.graph, true)
        }
        // A name that the user gave is meant.
        Err(error) if is_unknown(&error) => return Err(error),
        Err(error) => {
            notes.push(format!("as it runs: not cut to its outputs, since {error}"));
            (whole.clone(), false)
        }
    };
    let passes = raise(&mut running, cut);
    let (report, running) = match passes {
        Ok(report) => (report, Some(running)),
        Err(error) => {
            notes.push(format!("nothing is fused: {error}"));
            (pass::Report::default(), None)
        }
    };
    let foreign: Vec<NodeId> = whole.ids().filter(|&id| is_foreign(&whole, id)).collect();
    let needed = match running.as_ref().filter(|_| cut) {
        Some(running) => names(running, running.ids()),
        None => names(&whole, leading_somewhere(&whole)),
    };
    let needed = |name: &str| needed.contains(name);
    let mut words = Words::default();
    let mut pictures =
        vec![Picture::of("as it is", &whole, running.as_ref(), &report, &needed, &mut words)];
    if let Some(running) = &running {
        pictures.push(Picture::of("as it runs", running, None, &report, &needed, &mut words));
    }
    let mut applied = BTreeMap::new();
    report.done.iter().for_each(|note| *applied.entry(note.rule).or_default() += 1);
    let foreign_needed = foreign.iter().filter(|&&id| needed(&whole.node(id).name)).count();
    let report = Report {
        path: path.to_path_buf(),
        kind: located.kind.describe().to_owned(),
        nodes: whole.len(),
        running_nodes: running.as_ref().map(Graph::len),
        applied,
        missed: report.missed.into_iter().map(Note::from).collect(),
        foreign: foreign.len(),
        foreign_needed,
        notes,
    };
    let html = render(&report, &pictures, &words)?;
    Ok(Drawing { report, html })
}

fn is_foreign(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op, Op::Foreign(_))
}

fn names(graph: &Graph, ids: impl IntoIterator<Item = NodeId>) -> HashSet<String> {
    ids.into_iter().map(|id| graph.node(id).name.clone()).collect()
}

/// What something is computed from in the end: all but what ends in nodes that save, restore or
/// assign. Where outputs are not known, this is what may be needed.
fn leading_somewhere(graph: &Graph) -> Vec<NodeId> {
    let read: HashSet<NodeId> =
        graph.nodes().flat_map(|(_, node)| &node.inputs).map(|value| value.node).collect();
    let ends = graph.ids().filter(|&id| !read.contains(&id) && !is_foreign(graph, id));
    // Values only: what merely runs before something may well be the saving of a checkpoint.
    let mut needed: HashSet<NodeId> = HashSet::new();
    let mut open: Vec<NodeId> = ends.collect();
    while let Some(id) = open.pop() {
        if needed.insert(id) {
            open.extend(graph.node(id).inputs.iter().map(|value| value.node));
        }
    }
    needed.into_iter().collect()
}

/// Whether a place that was named is not there.
fn is_unknown(error: &Error) -> bool {
    use frazil_convert::Error::{NotInGraph, UnknownInput};
    use frazil_graph::Error::{NotAPort, UnknownNode, UnknownPort};
    match error {
        Error::Graph(error) => {
            matches!(**error, UnknownNode { .. } | UnknownPort { .. } | NotAPort { .. })
        }
        Error::Convert(error) => matches!(**error, UnknownInput { .. } | NotInGraph { .. }),
        _ => false,
    }
}

/// Folds and fuses, and packs the rows of a graph that is cut.
pub(super) fn raise(graph: &mut Graph, cut: bool) -> Result<pass::Report> {
    pass::fold(graph)?;
    let mut report = pass::fuse(graph, &Fusions::all())?;
    if cut {
        report.extend(pass::pack_rows(graph)?);
        report.extend(pass::demand_rows(graph)?);
        graph.prune();
    }
    Ok(report)
}

impl Drawing {
    /// The page.
    pub fn html(&self) -> &str {
        &self.html
    }

    /// Writes the page: complete, or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(frazil_tensor::file::write(path, self.html.as_bytes())?)
    }
}

fn render(report: &Report, pictures: &[Picture], words: &Words) -> Result<String> {
    let title = format!("Graph of {}", report.path.display());
    let mut about = vec![format!("{}, {} nodes", report.kind, report.nodes)];
    if let Some(running) = report.running_nodes {
        about.push(format!("{running} nodes as it runs, folded and fused"));
    }
    about.extend(
        report
            .applied
            .iter()
            .map(|(rule, count)| format!("{rule}: {count} {}", plural(*count, "time"))),
    );
    let aside = report.foreign - report.foreign_needed;
    if aside > 0 {
        about.push(format!("{aside} nodes are for training and saving, not needed to run"));
    }
    if report.foreign_needed > 0 {
        about.push(format!(
            "{} nodes are needed, and frazil cannot run them",
            report.foreign_needed
        ));
    }
    about.extend(report.notes.iter().cloned());
    let data = serde_json::json!({
        "title": title,
        "about": about,
        "fused": picture::FUSED,
        "words": words.list,
        "views": pictures,
    });
    // In a script, `<` may begin its end; JSON has another way to write it.
    let json = serde_json::to_string(&data)
        .map_err(|error| Error::Usage { what: error.to_string(), hint: String::new() })?
        .replace('<', "\\u003c");
    let body = BODY.replace("TITLE", &escape(&title));
    let body = format!("{body}<script type=\"application/json\" id=\"graph\">{json}</script>\n");
    Ok(document(&title, &[STYLE], &body, SCRIPT))
}
