//! A model that is open, to be run in several ways.

use std::time::Instant;

use frazil_graph::Graph;
use frazil_runtime::{Engine, EngineOptions, Inputs};

use super::inputs::batch;
use super::instances::{instances, share};
use super::{Model, Variant, random_model};
use crate::ops::compile::{self, Compiled};
use crate::ops::minmax;
use crate::ops::role::{self, InputRole};
use crate::source::open_graph;
use crate::{Error, Result};

/// A model, and what it is fed.
pub struct Subject {
    pub name: String,
    pub batches: Vec<Inputs>,
    /// As it is, and with its linear layers in bytes; taken by the last variant of each.
    sources: [Option<Source>; 2],
}

impl Subject {
    /// Opens a model for sequences of these lengths, `size` at a time. `plain` and `int8` say in which
    /// forms it is wanted.
    pub fn open(
        model: &Model,
        lengths: &[usize],
        size: usize,
        [plain, int8]: [bool; 2],
    ) -> Result<Self> {
        let (name, source) = open(model)?;
        let roles = role::roles(source.graph())?;
        let batches: Vec<Inputs> =
            lengths.chunks(size).map(|lengths| batch(&roles, lengths)).collect::<Result<_>>()?;
        let bytes = int8.then(|| source.in_bytes(&roles, lengths)).transpose()?;
        Ok(Self { name, batches, sources: [plain.then_some(source), bytes] })
    }

    /// Prepares a variant, as many times as it has instances, and says how long that took. With
    /// `last`, nobody needs the graph any more: each weight is let go when it is packed.
    pub fn engines(&mut self, variant: &Variant, last: bool) -> Result<(Vec<Engine>, f64)> {
        let start = Instant::now();
        let threads = share(variant.threads, variant.instances)?;
        let (isa, packed) = (variant.isa, !variant.padded);
        let how = EngineOptions { isa, threads, packed, weights: None };
        let source = &mut self.sources[usize::from(variant.int8)];
        let taken = if last { source.take() } else { None };
        let engine = match (taken, source) {
            (Some(Source::Graph(graph)), _) => Engine::from_graph(graph, &how)?,
            (Some(source), _) => source.engine(&how)?,
            (None, Some(source)) => source.engine(&how)?,
            (None, None) => unreachable!("a form that is wanted is open until its last variant"),
        };
        if variant.f32 && engine.is_int8() {
            return Err(Error::Usage {
                what: format!("`{}` has its linear layers in bytes: there is no f32", self.name),
                hint: "compare it with the file of the float32 model: `--compare f32.frazil,int8.frazil`"
                    .into(),
            });
        }
        Ok((instances(engine, variant.instances)?, start.elapsed().as_secs_f64()))
    }
}

/// A model that is open.
enum Source {
    Graph(Graph),
    Compiled(Compiled),
}

impl Source {
    fn graph(&self) -> &Graph {
        match self {
            Source::Graph(graph) => graph,
            Source::Compiled(compiled) => &compiled.graph,
        }
    }

    fn engine(&self, options: &EngineOptions) -> Result<Engine> {
        match self {
            Source::Graph(graph) => Ok(Engine::new(graph, options)?),
            Source::Compiled(compiled) => compiled.engine(options),
        }
    }

    /// The model with its linear layers in bytes, by the ranges of made-up sequences if it is not
    /// compiled.
    fn in_bytes(&self, roles: &[InputRole], lengths: &[usize]) -> Result<Self> {
        match self {
            Source::Graph(graph) => {
                let mut graph = graph.clone();
                minmax::by_lengths(&mut graph, roles, lengths)?;
                Ok(Source::Graph(graph))
            }
            Source::Compiled(compiled) if compiled.is_int8() => {
                Ok(Source::Compiled(compiled.clone()))
            }
            Source::Compiled(_) => Err(Error::Usage {
                what: "the compiled model has its weights as float32 only".into(),
                hint: "compile it with `--int8`".into(),
            }),
        }
    }
}

fn open(model: &Model) -> Result<(String, Source)> {
    Ok(match model {
        Model::File(path, _) if compile::is_compiled(path) => {
            (path.display().to_string(), Source::Compiled(Compiled::open(path)?))
        }
        Model::File(path, options) => {
            (path.display().to_string(), Source::Graph(open_graph(path, options)?.graph))
        }
        Model::Random(size, head) => {
            (format!("{size}, made-up weights"), Source::Graph(random_model(size, *head)?))
        }
    })
}
