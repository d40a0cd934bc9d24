//! The plainest int8: products in bytes by the least and the largest number that they were seen to
//! read, with a scale for each column of a weight, as coarse as is quick on this CPU. Heads stay as
//! they are: they cost little, and their inputs matter. For `compile --int8` and `bench`, where
//! nobody asks what it does to the answers; `quantize` does.

use std::collections::HashMap;

use frazil_graph::Graph;
use frazil_graph::op::Steps;
use frazil_graph::pass::quantize;
use frazil_kernels::gemm::i8::largest_weight;
use frazil_kernels::quantize::range;
use frazil_runtime::{Engine, EngineOptions, Inputs};

use super::bench::batch;
use super::role::InputRole;
use crate::Result;

/// Puts the products of a graph into bytes, by what they read in the batches.
pub fn by_batches(graph: &mut Graph, batches: &[Inputs]) -> Result<()> {
    by_runs(graph, |_, run| batches.iter().try_for_each(run))
}

/// The same, by made-up sequences of such lengths, or as long as the model takes.
pub fn by_lengths(graph: &mut Graph, roles: &[InputRole], lengths: &[usize]) -> Result<()> {
    by_runs(graph, |engine, run| {
        let most = engine.max_positions().unwrap_or(usize::MAX);
        let lengths: Vec<usize> = lengths.iter().map(|&length| length.min(most)).collect();
        lengths.chunks(8).take(4).try_for_each(|lengths| run(&batch(roles, lengths)?))
    })
}

/// The same; `runs` gives batches to what it is called with.
fn by_runs(
    graph: &mut Graph,
    runs: impl FnOnce(&Engine, &mut dyn FnMut(&Inputs) -> Result<()>) -> Result<()>,
) -> Result<()> {
    let mut marked = graph.clone();
    quantize::watch(&mut marked)?;
    let engine = Engine::from_graph(marked, &EngineOptions::default())?;
    let mut seen: HashMap<String, (f32, f32)> = HashMap::new();
    runs(&engine, &mut |inputs| {
        engine.watch(inputs, &mut |at| {
            if !seen.contains_key(at.site) {
                seen.insert(at.site.to_owned(), (0.0, 0.0));
            }
            if let Some((low, high)) = seen.get_mut(at.site) {
                *low = at.rows.iter().copied().fold(*low, f32::min);
                *high = at.rows.iter().copied().fold(*high, f32::max);
            }
        })?;
        Ok(())
    })?;
    let grids = grids(graph, &seen, largest_weight(engine.isa()))?;
    quantize(graph, &grids)?;
    Ok(())
}

/// The scales of all products that were seen and are no heads.
fn grids(
    graph: &Graph,
    seen: &HashMap<String, (f32, f32)>,
    largest: u8,
) -> Result<quantize::Grids> {
    let mut grids = quantize::Grids::default();
    for site in quantize::sites(graph)? {
        let quantize::SiteKind::Linear { weight, transposed, n, .. } = site.kind else { continue };
        let Some(&(low, high)) = seen.get(&site.name).filter(|_| n >= quantize::HEAD) else {
            continue;
        };
        let Some(weight) = graph.op(weight).as_const() else { continue };
        let (scale, zero) = range(low, high, u8::MAX);
        let grid = quantize::LinearGrid {
            input: Steps::Tensor { scale, zero },
            columns: None,
            scales: quantize::channel_scales(weight, transposed, largest)?,
            correction: None,
        };
        grids.linears.insert(site.name, grid);
    }
    Ok(grids)
}
