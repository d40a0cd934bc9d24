//! What the tests of whole trainings have in common: the original's runs, their records and weights.

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_graph::Graph;
use frazil_runtime::Inputs;
use frazil_tensor::npy::Npz;
use frazil_tensor::testing::shared;
use frazil_tensor::{Shape, StoreError, Tensor, TensorInfo, TensorStore};
use frazil_tf::example::Example;
use frazil_tf::tfrecord::Records;
use frazil_train::loss;
use frazil_train::schedule::{Bert, Schedule};
use serde_json::Value as Json;

/// A run of the original's code: eight steps of four records without dropout.
pub struct Golden {
    pub head: Head,
    pub file: &'static str,
    pub labels: usize,
    pub json: Json,
}

/// The two runs; none where the fixtures are not at hand.
pub fn goldens() -> Vec<Golden> {
    let Some(folder) = shared("fixtures/optimizer") else { return Vec::new() };
    let golden = |(head, file, labels): (Head, &'static str, usize)| {
        let text = std::fs::read(folder.join(format!("{file}_training.json"))).unwrap();
        Golden { head, file, labels, json: serde_json::from_slice(&text).unwrap() }
    };
    [(Head::Classifier, "classifier", 2), (Head::Pretraining, "pretrain", 2)].map(golden).into()
}

impl Golden {
    /// The graph with its loss.
    pub fn graph(&self) -> Graph {
        let config = shared("fixtures/data/bert_config_small.json").unwrap();
        let config = BertConfig::read(config).unwrap();
        let options = build::Options { labels: self.labels, ..build::Options::default() };
        let mut graph = build(&config, self.head, &options).unwrap();
        loss::attach(&mut graph, self.head, loss::Options::default()).unwrap();
        graph
    }

    pub fn schedule(&self) -> Schedule {
        Schedule::Bert(Bert {
            rate: self.json["init_lr"].as_f64().unwrap(),
            steps: self.json["num_train_steps"].as_u64().unwrap(),
            warmup: self.json["num_warmup_steps"].as_u64().unwrap(),
        })
    }

    /// The rates that its weights were changed with: those of the steps after. TensorFlow counts
    /// `global_step` up while it computes the rate, and in these runs the counting came first; the
    /// losses and the last weights agree with nothing else, and with this to six digits.
    pub fn updates(&self) -> Schedule {
        let schedule = self.schedule();
        let rate = |step: u64| (step, f64::from(schedule.rate(step + 1)));
        Schedule::Steps((0..self.steps().len() as u64).map(rate).collect())
    }

    pub fn steps(&self) -> &[Json] {
        self.json["steps"].as_array().unwrap()
    }

    /// The weights that it begins with.
    pub fn initial(&self) -> Weights {
        let mut all = read(&shared("fixtures/numerics/weights.npz").unwrap());
        for (name, json) in self.json["extra_initial_weights"].as_object().unwrap() {
            let mut list = Vec::new();
            flat(json, &mut list);
            let columns = list.len() / self.labels;
            let dims = if columns == 1 { vec![self.labels] } else { vec![self.labels, columns] };
            all.retain(|(other, _)| other != name);
            all.push((name.clone(), Tensor::from_vec(Shape::from(dims), list).unwrap()));
        }
        Weights::new(all)
    }

    /// The weights that it ends with.
    pub fn last(&self) -> Weights {
        let file = format!("fixtures/optimizer/{}_final_weights.npz", self.file);
        Weights::new(read(&shared(&file).unwrap()))
    }

    /// Batches of `size` records in the order of the file.
    pub fn batches(&self, size: usize) -> Vec<Inputs> {
        let path = format!("fixtures/{}", self.json["record_file"].as_str().unwrap());
        let records: Vec<Example> = Records::map(shared(&path).unwrap())
            .unwrap()
            .map(|record| Example::decode(record.unwrap()).unwrap())
            .collect();
        let names: &[&str] = match self.head {
            Head::Classifier => &["input_ids", "input_mask", "segment_ids", "label_ids"],
            _ => &[
                "input_ids",
                "input_mask",
                "segment_ids",
                "masked_lm_positions",
                "masked_lm_ids",
                "masked_lm_weights",
                "next_sentence_labels",
            ],
        };
        let batch = |batch: &[Example]| {
            names.iter().map(|name| ((*name).to_owned(), column(name, batch))).collect()
        };
        records.chunks_exact(size).map(batch).collect()
    }
}

/// One feature of some records.
fn column(name: &str, batch: &[Example]) -> Tensor {
    let shape = |width: usize| match name {
        "label_ids" => Shape::from(vec![batch.len()]),
        _ => Shape::from(vec![batch.len(), width]),
    };
    if name == "masked_lm_weights" {
        let width = batch[0].floats(name).unwrap().len();
        let values = batch.iter().flat_map(|e| e.floats(name).unwrap().to_vec()).collect();
        return Tensor::from_vec::<f32>(shape(width), values).unwrap();
    }
    let width = batch[0].int64s(name).unwrap().len();
    let values = batch.iter().flat_map(|e| e.int64s(name).unwrap().to_vec()).collect();
    Tensor::from_vec::<i64>(shape(width), values).unwrap()
}

fn read(path: &std::path::Path) -> Vec<(String, Tensor)> {
    let store = Npz::open(path).unwrap();
    let infos = store.infos().to_vec();
    infos.into_iter().map(|i| (i.name.clone(), store.tensor(&i.name).unwrap())).collect()
}

fn flat(value: &Json, into: &mut Vec<f32>) {
    match value {
        Json::Array(values) => values.iter().for_each(|value| flat(value, into)),
        other => into.push(other.as_f64().unwrap() as f32),
    }
}

/// Tensors in memory.
pub struct Weights {
    infos: Vec<TensorInfo>,
    tensors: Vec<Tensor>,
}

impl Weights {
    pub fn new(mut all: Vec<(String, Tensor)>) -> Self {
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let info = |(name, tensor): &(String, Tensor)| TensorInfo {
            name: name.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
        };
        let infos = all.iter().map(info).collect();
        Self { infos, tensors: all.into_iter().map(|(_, tensor)| tensor).collect() }
    }
}

impl TensorStore for Weights {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let at = self.infos.iter().position(|info| info.name == name);
        at.map(|at| self.tensors[at].clone()).ok_or_else(|| format!("no `{name}`").into())
    }
}
