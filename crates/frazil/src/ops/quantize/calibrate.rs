//! One run over the calibration data: what every site of the graph reads.

use std::collections::HashMap;

use frazil_graph::pass::quantize::{self, Site, SiteKind};
use frazil_graph::{Graph, Value};
use frazil_runtime::{Engine, EngineOptions, Inputs};
use frazil_tune::calibrate::{Collector, Columns};

use crate::Result;

/// What was seen, by the values that sites observe. Sites that read the same share it.
pub(super) struct Seen {
    /// By site and place.
    of: HashMap<(String, usize), usize>,
    tensors: Vec<Tensor>,
}

/// A value that sites observe.
pub(super) struct Tensor {
    /// All of its numbers.
    pub numbers: Collector,
    /// Its columns, if products read it.
    pub columns: Option<Columns>,
}

/// What the columns of tensors are multiplied by before they are looked at, by tensor.
pub(super) type Factors = HashMap<usize, Vec<f32>>;

impl Seen {
    /// Before the first run.
    pub fn new(graph: &Graph, sites: &[Site]) -> Self {
        let mut seen = Self { of: HashMap::new(), tensors: Vec::new() };
        let mut known: HashMap<Value, usize> = HashMap::new();
        for site in sites {
            for (place, &value) in site.observe.iter().enumerate() {
                let tensor = *known.entry(value).or_insert_with(|| {
                    let numbers = Collector::new(graph.value_name(value));
                    seen.tensors.push(Tensor { numbers, columns: None });
                    seen.tensors.len() - 1
                });
                if let SiteKind::Linear { k, .. } = site.kind {
                    let name = graph.value_name(value);
                    let columns = &mut seen.tensors[tensor].columns;
                    columns.get_or_insert_with(|| Columns::new(name, k));
                }
                seen.of.insert((site.name.clone(), place), tensor);
            }
        }
        seen
    }

    /// Which of the tensors a site observes.
    pub fn index(&self, site: &str, place: usize) -> usize {
        self.of[&(site.to_owned(), place)]
    }

    /// A tensor.
    pub fn tensor(&self, index: usize) -> &Tensor {
        &self.tensors[index]
    }

    /// Runs the graph on all batches and looks. With `factors`, only at the tensors that have some.
    pub fn look(
        &mut self,
        graph: &Graph,
        options: &EngineOptions,
        batches: &[Inputs],
        factors: Option<&Factors>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<()> {
        let mut marked = graph.clone();
        quantize::watch(&mut marked)?;
        let engine = Engine::from_graph(marked, options)?;
        for (done, inputs) in batches.iter().enumerate() {
            let mut failed = None;
            let mut looked = vec![false; self.tensors.len()];
            engine.watch(inputs, &mut |watched| {
                let key = (watched.site.to_owned(), watched.place);
                let Some(&at) = self.of.get(&key) else { return };
                // Others that read the same come later.
                if std::mem::replace(&mut looked[at], true) || failed.is_some() {
                    return;
                }
                let tensor = &mut self.tensors[at];
                let looked = match factors {
                    None => {
                        let columns = tensor.columns.as_mut();
                        let columns = columns.map_or(Ok(()), |columns| columns.batch(watched.rows));
                        columns.and_then(|()| tensor.numbers.batch(watched.rows))
                    }
                    Some(factors) => match factors.get(&at) {
                        Some(factors) => tensor.numbers.scaled_batch(watched.rows, factors),
                        None => Ok(()),
                    },
                };
                failed = looked.err();
            })?;
            if let Some(error) = failed {
                return Err(error.into());
            }
            progress(done + 1, batches.len());
        }
        Ok(())
    }
}
