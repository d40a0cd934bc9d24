//! Marks at what the sites of a graph read, so that whoever runs it can look at the numbers there.

use super::{Site, SiteKind, chain, sites};
use crate::op::{Op, Steps};
use crate::pass::Report;
use crate::{Error, Graph, Node, NodeId, Result, Value};

/// Marks every value that a site observes: it passes an [`Op::FakeQuantize`] with
/// [`Steps::Watched`] on its way to the site, `SITE/watched_PLACE`, which changes nothing.
/// [`watched`] tells which site and place a mark stands for. A graph that is marked already is
/// refused.
pub fn watch(graph: &mut Graph) -> Result<Report> {
    let sites = sites(graph)?;
    let name = |site: &Site, place: usize| format!("{}{}", site.name, suffix(place));
    for site in &sites {
        let names = (0..site.observe.len()).map(|place| name(site, place));
        if let Some(name) = names.into_iter().find(|name| graph.find(name).is_some()) {
            return Err(Error::DuplicateName { name });
        }
    }
    let mut report = Report::default();
    for site in &sites {
        let find = |name: &str| {
            let lost = || Error::NoSite { name: name.to_owned(), wanted: "node", known: false };
            graph.find(name).ok_or_else(lost)
        };
        // Where the observed values are read: by which node, as which of its inputs.
        let readers = match &site.kind {
            SiteKind::Linear { .. } => vec![(find(&site.name)?, 0)],
            SiteKind::Attention { context } => {
                let (scores, context) = (find(&site.name)?, find(context)?);
                vec![(scores, 0), (scores, 1), (context, 1)]
            }
            SiteKind::Table { .. } => continue,
        };
        for (place, (&value, reader)) in site.observe.iter().zip(readers).enumerate() {
            mark(graph, name(site, place), place, value, reader)?;
        }
        report.did("watch", site.name.clone(), "what it reads is watched");
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

/// The site and the place among its [`Site::observe`] that a node of [`watch`] stands for.
pub fn watched(node: &Node) -> Option<(&str, usize)> {
    let Op::FakeQuantize(Steps::Watched { place }) = node.op else { return None };
    let place = place as usize;
    Some((node.name.strip_suffix(&suffix(place))?, place))
}

fn suffix(place: usize) -> String {
    format!("/watched_{place}")
}

/// Lets a mark pass `value` on, on its way to the input of a node.
fn mark(
    graph: &mut Graph,
    name: String,
    place: usize,
    value: Value,
    (reader, input): (NodeId, usize),
) -> Result<()> {
    let way = chain(graph, graph.node(reader).inputs[input], value);
    let (last, input) = way.last().map_or((reader, input), |&last| (last, 0));
    let op = Op::FakeQuantize(Steps::Watched { place: place as u32 });
    let mark = graph.push(Node::new(name, op, vec![value]))?;
    graph.node_mut(last).inputs[input] = mark.into();
    Ok(())
}
