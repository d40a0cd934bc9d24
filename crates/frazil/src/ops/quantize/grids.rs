//! From what operations are to be, and what was seen, to the numbers of their bytes.

use std::collections::HashMap;

use frazil_graph::op::Steps;
use frazil_graph::pass::quantize::{AttentionGrid, Grids, LinearGrid, Site, SiteKind};
use frazil_graph::{Graph, Value};
use frazil_runtime::{EngineOptions, Inputs};
use frazil_tune::calibrate::Range;
use frazil_tune::weights::{self, Weight};
use frazil_tune::{Activation, Algorithm, Choice, Configuration};

use super::calibrate::{Factors, Seen};
use crate::Result;

/// A calibrated graph, which gives the numbers of any configuration.
pub(super) struct Calibrated {
    pub sites: Vec<Site>,
    pub seen: Seen,
    /// By alpha's bits.
    migrated: HashMap<u32, Migrated>,
    /// Products whose numbers are known. Scales of least error take a while.
    known: HashMap<String, LinearGrid>,
}

/// What becomes of tensors when the weights take over a part of their outliers.
struct Migrated {
    /// What columns are multiplied by.
    factors: Factors,
    /// The tensors after that, once somebody needs more of them than their extremes.
    seen: Option<Seen>,
}

/// What a graph is calibrated with.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    pub graph: &'a Graph,
    pub engine: &'a EngineOptions,
    pub batches: &'a [Inputs],
}

impl Calibrated {
    pub fn new(
        sites: Vec<Site>,
        means: Means<'_>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Self> {
        let mut seen = Seen::new(means.graph, &sites);
        seen.look(means.graph, means.engine, means.batches, None, progress)?;
        Ok(Self { sites, seen, migrated: HashMap::new(), known: HashMap::new() })
    }

    /// The numbers of all that is in bytes.
    pub fn grids(&mut self, configuration: &Configuration, means: Means<'_>) -> Result<Grids> {
        if let Some(alpha) = configuration.migration {
            self.migrate(alpha, configuration, means)?;
        }
        let mut grids = Grids::default();
        for at in 0..self.sites.len() {
            let site = &self.sites[at];
            let choice = configuration.ops.get(&site.name).filter(|choice| choice.is_int8());
            let Some(choice) = choice.copied() else { continue };
            let name = site.name.clone();
            match &site.kind {
                SiteKind::Linear { .. } => {
                    let key = format!(
                        "{name} {choice:?} {:?} {}",
                        configuration.migration, configuration.bias_correction
                    );
                    let grid = match self.known.get(&key) {
                        Some(grid) => grid.clone(),
                        None => {
                            let grid = self.linear(at, &choice, configuration, means.graph)?;
                            self.known.insert(key, grid.clone());
                            grid
                        }
                    };
                    grids.linears.insert(name, grid);
                }
                SiteKind::Attention { .. } => {
                    grids.attentions.insert(name, self.attention(at, &choice)?);
                }
                SiteKind::Table { .. } => {
                    grids.tables.insert(name);
                }
            }
        }
        Ok(grids)
    }

    /// The range of what a site reads, and the share of its numbers outside.
    pub fn range(
        &self,
        site: &Site,
        place: usize,
        choice: &Choice,
        migration: Option<f32>,
    ) -> Result<Option<Range>> {
        let Activation::Static(algorithm) = choice.activation else { return Ok(None) };
        let index = self.seen.index(&site.name, place);
        let migrated = migration.and_then(|alpha| self.migrated.get(&alpha.to_bits()));
        let plain = self.seen.tensor(index);
        let moved = migrated.and_then(|moved| Some((moved.factors.get(&index)?, &moved.seen)));
        let range = match (moved, &plain.columns) {
            // Exact, and without another look.
            (Some((factors, _)), Some(columns)) if algorithm == Algorithm::MinMax => {
                columns.range_after(factors)?
            }
            (Some((_, Some(seen))), _) => seen.tensor(index).numbers.range(algorithm)?,
            _ => plain.numbers.range(algorithm)?,
        };
        Ok(Some(range))
    }

    /// Finds out all that a migration needs.
    fn migrate(
        &mut self,
        alpha: f32,
        configuration: &Configuration,
        means: Means<'_>,
    ) -> Result<()> {
        let mut moved = match self.migrated.remove(&alpha.to_bits()) {
            Some(moved) => moved,
            None => Migrated { factors: self.factors(alpha, means.graph)?, seen: None },
        };
        let extremes = Activation::Static(Algorithm::MinMax);
        let more = |choice: &Choice| choice.is_int8() && choice.activation != extremes;
        if moved.seen.is_none() && configuration.ops.values().any(more) {
            let mut seen = Seen::new(means.graph, &self.sites);
            let factors = Some(&moved.factors);
            seen.look(means.graph, means.engine, means.batches, factors, &mut |_, _| {})?;
            moved.seen = Some(seen);
        }
        self.migrated.insert(alpha.to_bits(), moved);
        Ok(())
    }

    /// Factors for the columns of what products read, shared by all that read the same; heads are
    /// left alone.
    fn factors(&self, alpha: f32, graph: &Graph) -> Result<Factors> {
        let mut readers: HashMap<usize, Vec<&Site>> = HashMap::new();
        for site in &self.sites {
            if matches!(site.kind, SiteKind::Linear { head: false, .. }) {
                readers.entry(self.seen.index(&site.name, 0)).or_default().push(site);
            }
        }
        let mut factors = Factors::new();
        for (tensor, sites) in readers {
            let Some(columns) = &self.seen.tensor(tensor).columns else { continue };
            let data: Vec<_> = sites.iter().map(|site| data(graph, site)).collect::<Result<_>>()?;
            let weights: Vec<Weight<'_>> =
                sites.iter().zip(&data).filter_map(|(site, data)| weight(site, data)).collect();
            factors.insert(tensor, weights::migration(&weights, &columns.largest()?, alpha)?);
        }
        Ok(factors)
    }

    fn linear(
        &self,
        at: usize,
        choice: &Choice,
        configuration: &Configuration,
        graph: &Graph,
    ) -> Result<LinearGrid> {
        let site = &self.sites[at];
        let index = self.seen.index(&site.name, 0);
        let input = match self.range(site, 0, choice, configuration.migration)? {
            Some(range) => range.steps(),
            None => Steps::Rows,
        };
        let migrated = configuration.migration.and_then(|a| self.migrated.get(&a.to_bits()));
        let columns = migrated.and_then(|moved| moved.factors.get(&index)).cloned();
        let data = data(graph, site)?;
        let plain = weight(site, &data).unwrap_or(EMPTY);
        let moved = match &columns {
            Some(columns) => Some(weights::migrate(&plain, columns)?),
            None => None,
        };
        let weight = Weight { data: moved.as_deref().unwrap_or(&data), ..plain };
        let largest = configuration.largest.unwrap_or(weights::FULL);
        let scales = weights::scales(&weight, choice.granularity, choice.weight, largest)?;
        let correction = match (&self.seen.tensor(index).columns, configuration.bias_correction) {
            (Some(seen), true) => {
                let mut means = seen.means()?;
                let factors = columns.iter().flatten();
                means.iter_mut().zip(factors).for_each(|(mean, factor)| *mean *= factor);
                Some(weights::correction(&weight, &scales, &means)?)
            }
            _ => None,
        };
        Ok(LinearGrid { input, columns, scales, correction })
    }

    fn attention(&self, at: usize, choice: &Choice) -> Result<AttentionGrid> {
        let algorithm = match choice.activation {
            Activation::Static(algorithm) => algorithm,
            Activation::Dynamic => Algorithm::MinMax,
        };
        let site = &self.sites[at];
        let tensor = |place| &self.seen.tensor(self.seen.index(&site.name, place)).numbers;
        Ok(AttentionGrid {
            q: tensor(0).range(algorithm)?.scale_and_zero(),
            k: tensor(1).symmetric(algorithm)?,
            v: tensor(2).symmetric(algorithm)?,
        })
    }
}

const EMPTY: Weight<'_> = Weight { name: "", data: &[], k: 0, n: 0, transposed: false };

/// The numbers of a product's weight.
fn data<'a>(graph: &'a Graph, site: &Site) -> Result<std::borrow::Cow<'a, [f32]>> {
    let constant = |value: Value| graph.op(value).as_const();
    match &site.kind {
        SiteKind::Linear { weight, .. } => match constant(*weight) {
            Some(tensor) => Ok(tensor.values::<f32>()?),
            None => Ok(Default::default()),
        },
        _ => Ok(Default::default()),
    }
}

fn weight<'a>(site: &'a Site, data: &'a [f32]) -> Option<Weight<'a>> {
    match site.kind {
        SiteKind::Linear { k, n, transposed, .. } => {
            Some(Weight { name: &site.name, data, k, n, transposed })
        }
        _ => None,
    }
}
