//! `deploy.yaml`: what is needed to run and to measure a model that was tuned, in the original's
//! words. It is a configuration, and is read as one.

use serde_json::{Map, Value, json};

use super::{Config, Dataloader, Instances, Named};
use crate::error::{Error, Result};

impl Config {
    /// The sections on the model and its evaluation.
    pub fn deploy(&self) -> Result<String> {
        let mut text = json!({
            "model": {
                "name": self.model.name,
                "framework": self.model.framework,
                "inputs": self.model.inputs,
                "outputs": self.model.outputs,
            },
            "device": "cpu",
        });
        let mut evaluation = Map::new();
        if let Some(accuracy) = &self.accuracy {
            let mut section = loaded(&accuracy.dataloader, &accuracy.postprocess);
            if let Some(metric) = &accuracy.metric {
                section.insert("metric".into(), named([metric]));
            }
            section.insert("configs".into(), instances(&accuracy.instances));
            evaluation.insert("accuracy".into(), section.into());
        }
        if let Some(performance) = &self.performance {
            let mut section = loaded(&performance.dataloader, &performance.postprocess);
            section.insert("warmup".into(), performance.warmup.into());
            let iterations = performance.iterations.map_or(Value::from(-1), Value::from);
            section.insert("iteration".into(), iterations);
            section.insert("configs".into(), instances(&performance.instances));
            evaluation.insert("performance".into(), section.into());
        }
        if !evaluation.is_empty() {
            text["evaluation"] = evaluation.into();
        }
        serde_saphyr::to_string(&text)
            .map_err(|e| Error::Unwritable { what: "deploy.yaml", reason: e.to_string() })
    }
}

fn loaded(dataloader: &Option<Dataloader>, postprocess: &[Named]) -> Map<String, Value> {
    let mut section = Map::new();
    if let Some(loader) = dataloader {
        let mut entry = json!({
            "batch_size": loader.batch_size,
            "last_batch": if loader.discard_last { "discard" } else { "rollover" },
        });
        if let Some(dataset) = &loader.dataset {
            entry["dataset"] = named([dataset]);
        }
        section.insert("dataloader".into(), entry);
    }
    if !postprocess.is_empty() {
        section.insert("postprocess".into(), json!({ "transform": named(postprocess) }));
    }
    section
}

fn named<'a>(all: impl IntoIterator<Item = &'a Named>) -> Value {
    all.into_iter()
        .map(|one| (one.name.clone(), one.settings.clone()))
        .collect::<Map<_, _>>()
        .into()
}

fn instances(instances: &Instances) -> Value {
    let mut section = Map::new();
    let mut add = |key: &str, value: Option<u64>| {
        section.extend(value.map(|value| (key.to_owned(), value.into())));
    };
    add("cores_per_instance", instances.cores);
    add("num_of_instance", instances.instances);
    add("intra_num_of_threads", instances.threads);
    section.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_a_configuration() {
        let text = "\
model: {name: bert, framework: tensorflow, inputs: 'input_file, batch_size', outputs: [a, 'b:0']}
evaluation:
  accuracy:
    metric: {SquadF1: }
    dataloader:
      batch_size: 64
      dataset:
        bert: {root: eval.tf_record, label_file: dev-v1.1.json, task: squad}
    postprocess:
      transform:
        SquadV1: {label_file: dev-v1.1.json, vocab_file: vocab.txt}
  performance:
    warmup: 3
    iteration: 50
    configs: {cores_per_instance: 7, num_of_instance: 4}
    dataloader: {batch_size: 8, last_batch: discard}
";
        let config = Config::parse(text).unwrap();
        let again = Config::parse(&config.deploy().unwrap()).unwrap();
        let plain = |mut config: Config| {
            // Lines are others.
            let accuracy = config.accuracy.as_mut().unwrap();
            let loader = accuracy.dataloader.as_mut().unwrap();
            let named = accuracy.metric.iter_mut().chain(&mut accuracy.postprocess);
            named.chain(&mut loader.dataset).for_each(|named| named.line = 0);
            (config.model, config.accuracy, config.performance)
        };
        assert_eq!(plain(again), plain(config));
        let bare = Config::default();
        assert_eq!(Config::parse(&bare.deploy().unwrap()).unwrap().model, bare.model);
    }
}
