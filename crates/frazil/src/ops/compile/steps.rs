//! Steps and scales of bytes on their way through a GraphDef, in which the graph of a compiled model is
//! stored: TensorFlow's own operations for them say other things (ranges where we have scales), so
//! they go as foreign ones.

use frazil_graph::op::{Attr, Attrs, Declared, Foreign, Scaled, Steps};
use frazil_graph::{Graph, Op, Value, infer};

const STEPS: &str = "FrazilFakeQuantize";
const SCALED: &str = "FrazilScaled";

/// Makes foreign operations of all that TensorFlow has not.
pub(super) fn disguise(graph: &mut Graph) -> frazil_graph::Result<()> {
    let facts = infer(graph)?;
    for id in graph.ids() {
        let (op, attrs) = match &graph.node(id).op {
            Op::FakeQuantize(steps) => (STEPS, attributes(steps)),
            Op::Scaled(scaled) => (SCALED, vec![("axis", Attr::Int(scaled.axis))]),
            _ => continue,
        };
        let fact = &facts[Value::from(id)];
        let outputs = vec![Declared { dtype: fact.dtype, dims: fact.dims.clone() }];
        let attrs = attrs.into_iter().map(|(name, attr)| (name.to_owned(), attr)).collect();
        graph.node_mut(id).op = Op::Foreign(Foreign { op: op.to_owned(), attrs, outputs });
    }
    Ok(())
}

fn attributes(steps: &Steps) -> Vec<(&'static str, Attr)> {
    match *steps {
        Steps::Tensor { scale, zero } => {
            vec![("scale", Attr::Float(scale)), ("zero", Attr::Int(zero.into()))]
        }
        Steps::Symmetric { scale } => vec![("scale", Attr::Float(scale))],
        Steps::Rows => Vec::new(),
        Steps::Watched { place } => vec![("watched", Attr::Int(place.into()))],
    }
}

/// Takes the disguise off again; `None` if there is something else behind it.
pub(super) fn reveal(graph: &mut Graph) -> Option<()> {
    for id in graph.ids() {
        let Op::Foreign(foreign) = &graph.node(id).op else { continue };
        let op = match foreign.op.as_str() {
            STEPS => Op::FakeQuantize(steps(&foreign.attrs)?),
            SCALED => match foreign.attrs.get("axis") {
                Some(&Attr::Int(axis)) => Op::Scaled(Scaled { axis }),
                _ => return None,
            },
            _ => continue,
        };
        graph.node_mut(id).op = op;
    }
    Some(())
}

fn steps(attrs: &Attrs) -> Option<Steps> {
    Some(match (attrs.get("scale"), attrs.get("zero"), attrs.get("watched")) {
        (Some(&Attr::Float(scale)), Some(&Attr::Int(zero)), None) => {
            Steps::Tensor { scale, zero: zero.try_into().ok()? }
        }
        (Some(&Attr::Float(scale)), None, None) => Steps::Symmetric { scale },
        (None, None, None) => Steps::Rows,
        (None, None, Some(&Attr::Int(place))) => Steps::Watched { place: place.try_into().ok()? },
        _ => return None,
    })
}
