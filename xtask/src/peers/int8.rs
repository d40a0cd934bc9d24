//! Models in bytes for the engines: calibrated on a few rows, quantized in several forms, written for
//! each engine, beside the inputs and what frazil's plain runtime computes from them.
//!
//! A folder `MODEL/FORM` has the exports, `io.npz` (inputs by name, outputs under `out:`, those of the
//! model in float32 under `float:`) and `form.json`: how many products are in bytes.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use frazil::bert::Head;
use frazil::graph::Graph;
use frazil::graph::op::Steps;
use frazil::graph::pass::quantize::{
    AttentionGrid, Grids, LinearGrid, Site, SiteKind, channel_scales, quantize, sites,
};
use frazil::ops::convert::{self, Options, Target};
use frazil::runtime::{Inputs, Session};
use frazil::source::{GraphOptions, open_graph};
use frazil_tensor::npy::{Npz, NpzWriter};
use frazil_tensor::{Tensor, TensorStore};
use serde_json::{Value as Json, json};

use super::Task;

const NAMES: [&str; 3] = ["input_ids", "input_mask", "segment_ids"];

/// A model with a SQuAD head, and rows for it.
struct Source {
    name: &'static str,
    /// In the folder of originals.
    path: &'static str,
    config: &'static str,
    rows: fn(&Path) -> Result<Vec<Tensor>>,
    /// Rows that ranges are taken from; the next ones, as many, are run.
    count: usize,
    forms: &'static [Form],
}

/// What is in bytes, and which.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Products and tables, with scales for each column and row.
    Static,
    /// The same with one scale for each weight.
    OneScale,
    /// Attention, too.
    Attention,
    /// Steps of each row, found when the model runs.
    Rows,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::OneScale => "one_scale",
            Self::Attention => "attention",
            Self::Rows => "rows",
        }
    }
}

const SOURCES: [Source; 2] = [
    Source {
        name: "squad",
        path: "fixtures/squad/v1.1/model.ckpt-65",
        config: "fixtures/data/bert_config_small.json",
        rows: features,
        count: 16,
        forms: &[Form::Static, Form::OneScale, Form::Attention, Form::Rows],
    },
    Source {
        name: "minilm",
        path: "models/squad/model.ckpt-2232",
        config: "models/squad/bert_config.json",
        rows: first64,
        count: 6,
        forms: &[Form::Static, Form::Attention],
    },
];

/// For ONNX Runtime and OpenVINO.
pub(super) fn engines(task: &Task) -> Result<()> {
    write(task, &[(Target::Onnx, "model.onnx"), (Target::Openvino, "model.xml")])
}

/// For TensorFlow.
pub(super) fn tensorflow(task: &Task) -> Result<()> {
    write(task, &[(Target::Tf, "model.pb"), (Target::SavedModel, "saved_model")])
}

fn write(task: &Task, targets: &[(Target, &str)]) -> Result<()> {
    let Some(shared) = &task.shared else { return Ok(()) };
    for source in &SOURCES {
        let rows = (source.rows)(shared)?;
        let calibration = part(&rows, 0, source.count)?;
        let run = part(&rows, source.count, source.count)?;
        let opened = || {
            let config = Some(shared.join(source.config));
            let head = Some(Head::Squad);
            open_graph(
                shared.join(source.path),
                &GraphOptions { config, head, ..Default::default() },
            )
        };
        let plain = opened()?.graph;
        let ranges = ranges(&plain, &calibration)?;
        let float = outputs(&plain, &run)?;
        for &form in source.forms {
            let folder = task.out.join(source.name).join(form.name());
            fs::create_dir_all(&folder)?;
            let grids = grids(&plain, &ranges, form)?;
            for (target, name) in targets {
                let mut opened = opened()?;
                quantize(&mut opened.graph, &grids)?;
                let options = Options::new(*target);
                convert::prepare(&mut opened, &options)?;
                convert::write(opened, &folder.join(name), &options, Instant::now())?;
            }
            let mut graph = plain.clone();
            quantize(&mut graph, &grids)?;
            let mut npz = NpzWriter::create(folder.join("io.npz"))?;
            let found = outputs(&graph, &run)?;
            let named = found.iter().map(|(name, tensor)| (format!("out:{name}"), tensor));
            let also = float.iter().map(|(name, tensor)| (format!("float:{name}"), tensor));
            let fed = run.iter().map(|(name, tensor)| (name.clone(), tensor));
            for (name, tensor) in fed.chain(named).chain(also) {
                npz.add(&name, tensor)?;
            }
            npz.finish()?;
            let counts = json!({
                "linears": grids.linears.len(),
                "attentions": grids.attentions.len(),
                "rows": form == Form::Rows,
            });
            fs::write(folder.join("form.json"), counts.to_string())?;
        }
    }
    Ok(())
}

/// Some of the rows, by the names of inputs.
fn part(rows: &[Tensor], from: usize, count: usize) -> Result<Inputs> {
    NAMES
        .iter()
        .zip(rows)
        .map(|(name, rows)| {
            let &[all, length] = &**rows.shape() else { anyhow::bail!("rows are [b, s]") };
            ensure!(from + count <= all, "there are only {all} rows");
            let values = rows.values::<i32>()?[from * length..][..count * length].to_vec();
            Ok(((*name).to_owned(), Tensor::from_vec([count, length], values)?))
        })
        .collect()
}

fn outputs(graph: &Graph, inputs: &Inputs) -> Result<Vec<(String, Tensor)>> {
    Ok(Session::new(graph, Default::default())?.run(inputs)?.outputs)
}

/// A site, and the least and the largest number of each value that it names.
type Ranges = Vec<(Site, Vec<(f32, f32)>)>;

fn ranges(graph: &Graph, inputs: &Inputs) -> Result<Ranges> {
    let sites = sites(graph)?;
    let wanted: Vec<_> = sites.iter().flat_map(|site| site.observe.iter().copied()).collect();
    let values = Session::new(graph, Default::default())?.run_values(inputs, &wanted)?;
    let mut values = values.iter();
    let range = |tensor: &Tensor| -> Result<(f32, f32)> {
        let values = tensor.values::<f32>()?;
        let ends = |(low, high): (f32, f32), &x: &f32| (low.min(x), high.max(x));
        Ok(values.iter().fold((0.0, 0.0), ends))
    };
    sites
        .into_iter()
        .map(|site| {
            let seen = values.by_ref().take(site.observe.len()).map(range);
            let seen = seen.collect::<Result<Vec<_>>>()?;
            Ok((site, seen))
        })
        .collect()
}

fn grids(graph: &Graph, ranges: &Ranges, form: Form) -> Result<Grids> {
    let mut grids = Grids::default();
    let unsigned = |(low, high): (f32, f32)| {
        let scale = (high - low) / 255.0;
        (scale, (-low / scale).round() as u8)
    };
    let signed = |(low, high): (f32, f32)| high.max(-low) / 127.0;
    for (site, seen) in ranges {
        match &site.kind {
            SiteKind::Linear { weight, transposed, .. } => {
                let input = match form {
                    Form::Rows => Steps::Rows,
                    _ => {
                        let (scale, zero) = unsigned(seen[0]);
                        Steps::Tensor { scale, zero }
                    }
                };
                let weight = graph.op(*weight).as_const().context("a weight is constant")?;
                let mut scales = channel_scales(weight, *transposed, 127)?;
                if form == Form::OneScale {
                    scales = vec![scales.into_iter().fold(0.0, f32::max)];
                }
                let grid = LinearGrid { input, columns: None, scales, correction: None };
                grids.linears.insert(site.name.clone(), grid);
            }
            SiteKind::Attention { .. } if form == Form::Attention => {
                let (q, k, v) = (unsigned(seen[0]), signed(seen[1]), signed(seen[2]));
                grids.attentions.insert(site.name.clone(), AttentionGrid { q, k, v });
            }
            SiteKind::Attention { .. } => {}
            SiteKind::Table { .. } => {
                grids.tables.insert(site.name.clone());
            }
        }
    }
    Ok(grids)
}

/// The inputs of the small model.
fn features(shared: &Path) -> Result<Vec<Tensor>> {
    let text = fs::read_to_string(shared.join("fixtures/squad/v1.1/features.json"))?;
    let features: Vec<Json> = serde_json::from_str(&text)?;
    NAMES
        .iter()
        .map(|name| {
            let rows = features.iter().map(|feature| feature[*name].as_array());
            let rows = rows.collect::<Option<Vec<_>>>().context("a list of numbers")?;
            let length = rows.first().context("no rows")?.len();
            let values = rows.iter().flat_map(|row| row.iter()).map(|v| v.as_i64());
            let values = values.map(|v| v.and_then(|v| i32::try_from(v).ok()));
            let values = values.collect::<Option<Vec<i32>>>().context("numbers")?;
            Ok(Tensor::from_vec([rows.len(), length], values)?)
        })
        .collect()
}

/// The inputs of the real model.
fn first64(shared: &Path) -> Result<Vec<Tensor>> {
    let npz = Npz::open(shared.join("models/squad/golden/first64_io.npz"))?;
    NAMES
        .iter()
        .map(|name| npz.tensor(name).map_err(|error| anyhow::anyhow!("`{name}`: {error}")))
        .collect()
}
