//! Shapes that stay open inside: a model that is written for `[1 128]` can be given another batch
//! and length when it is loaded, as long as nothing in it was computed from the 1 and the 128.
//!
//! The original keeps the source's shape arithmetic for that. Here the inputs get sizes that are
//! open but bounded to one number each; where the source has baked sizes in, they are generalised
//! if that can be proven right.

use std::time::Instant;

use frazil::Result;
use frazil::graph::Symbol;
use frazil::graph::pass::Size;
use frazil::ops::convert::{Options, Report, convert, prepare, write};
use frazil::ops::cut_spec::DimSpec;
use frazil::source::open_graph;

use super::plan::Plan;

/// Converts with batch and length open inside, with the batch alone, or else as the shapes say.
pub fn convert_open(plan: &Plan) -> Result<Report> {
    let mut reason = None;
    let mut done = None;
    for axes in [2, 1] {
        let Some(options) = pinned(&plan.options, axes) else { continue };
        match attempt(plan, &options) {
            Ok(report) => {
                done = Some(report);
                break;
            }
            Err(error) => reason = Some(error),
        }
    }
    let mut report = match done {
        Some(report) => report,
        None => {
            let mut report = convert(&plan.source, &plan.xml, &plan.options)?;
            if let Some(reason) = reason {
                let what = "the model cannot be reshaped when it is loaded";
                report.notes.push(format!("{what}: {reason}"));
            }
            report
        }
    };
    for input in plan.options.graph.cut.inputs.iter().flatten() {
        let name = input.place();
        let is_input = |name: &str| report.inputs.iter().any(|end| end.name == name);
        if input.value.is_none() && !is_input(&name) && !is_input(&input.name) {
            let why = "nothing but its shape was read, which the other inputs have";
            report.notes.push(format!("`{name}` is no input of the model: {why}"));
        }
    }
    Ok(report)
}

fn attempt(plan: &Plan, options: &Options) -> Result<Report> {
    let started = Instant::now();
    let mut opened = open_graph(&plan.source, &options.graph)?;
    prepare(&mut opened, options)?;
    if let Some(batch) = plan.options.graph.cut.batch {
        opened.bounds.insert(Symbol::batch(), (batch, Some(batch)));
    }
    write(opened, &plan.xml, options, started)
}

/// The options with the numbers of the first axes turned into bounds; `None` if there are none,
/// or if the shapes are to be constant.
fn pinned(options: &Options, axes: usize) -> Option<Options> {
    if options.fold == Some(true) {
        return None;
    }
    let mut pinned = Options { fold: None, ..options.clone() };
    let cut = &mut pinned.graph.cut;
    let named = cut.inputs.iter_mut().flatten().filter(|input| input.value.is_none());
    let mut shapes: Vec<&mut Vec<DimSpec>> =
        named.filter_map(|input| input.shape.as_mut()).chain(&mut cut.only_shape).collect();
    let mut found = false;
    for axis in 0..axes {
        let mut sizes = shapes.iter().filter_map(|shape| shape.get(axis)?.as_known());
        let Some(first) = sizes.next() else { continue };
        // One axis of several sizes is not one size.
        if sizes.any(|size| size != first) {
            continue;
        }
        for dim in shapes.iter_mut().filter_map(|shape| shape.get_mut(axis)) {
            if dim.as_known().is_some() {
                *dim = DimSpec::Between { least: first, most: Some(first) };
                found = true;
            }
        }
    }
    if cut.batch.take().is_some() {
        pinned.sizes.batch = Size::Dynamic;
        found = true;
    }
    found.then_some(pinned)
}
