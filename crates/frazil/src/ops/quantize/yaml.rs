//! What a tuning configuration says of data: which files, which task, which score.
//!
//! Flags of the command line come before it. What it names and nobody here can read is refused, not
//! left out.

use std::path::{Path, PathBuf};

use frazil_tune::Config;
use frazil_tune::config::{Dataloader, Named};
use serde_json::Value;

use super::data::{DataOptions, Task};
use super::{MaxDrop, Options};
use crate::{Error, Result};

/// Fills in what the options do not say yet.
pub fn apply(config: &Config, options: &mut Options) -> Result<()> {
    let accuracy = config.accuracy.as_ref();
    let evaluated = accuracy.and_then(|accuracy| dataset(&accuracy.dataloader));
    let calibrated = dataset(&config.quantization.dataloader);
    let transforms = || accuracy.iter().flat_map(|accuracy| &accuracy.postprocess);
    let squad = transforms().find(|transform| transform.name == "SquadV1");
    if let Some(other) = transforms().find(|transform| transform.name != "SquadV1") {
        return Err(nothing_here("postprocess.transform", other));
    }
    if let Some(metric) = accuracy.and_then(|accuracy| accuracy.metric.as_ref()) {
        let (task, name) = match metric.name.as_str() {
            "SquadF1" => (Some(Task::Squad), "f1"),
            "Accuracy" => (None, "acc"),
            "F1" => (None, "f1"),
            _ => return Err(nothing_here("metric", metric)),
        };
        options.task = options.task.or(task);
        options.data.metric.get_or_insert_with(|| name.into());
    }
    let asks_squad = |named: &Named| {
        let is = |key: &str, wanted: &str| text(named, key).is_some_and(|found| found == wanted);
        named.name == "bert" && is("task", "squad")
    };
    if squad.is_some() || evaluated.iter().chain(&calibrated).any(|named| asks_squad(named)) {
        options.task = options.task.or(Some(Task::Squad));
    }
    let path = |named: &Named| match named.name.as_str() {
        "bert" | "TFRecordDataset" => Ok(text(named, "root").map(PathBuf::from)),
        _ => Err(nothing_here("dataloader.dataset", named)),
    };
    let data = &mut options.data;
    if let Some(named) = evaluated {
        data.evaluation = data.evaluation.take().or(path(named)?);
        data.labels = data.labels.take().or_else(|| text(named, "label_file").map(PathBuf::from));
    }
    if let Some(transform) = squad {
        let file = |key| text(transform, key).map(PathBuf::from);
        data.labels = data.labels.take().or_else(|| file("label_file"));
        let vocabulary = &mut options.model.vocabulary;
        *vocabulary = vocabulary.take().or_else(|| file("vocab_file"));
    }
    if let Some(named) = calibrated {
        let found = path(named)?;
        let same = |a: &Option<PathBuf>, b: &Option<PathBuf>| match (a, b) {
            (Some(a), Some(b)) => is_same(a, b),
            _ => false,
        };
        // The original's own examples do that. Whoever wants it says so.
        if data.calibration.is_none() && !same(&found, &data.evaluation) {
            data.calibration = found;
        }
    }
    if let Some(most) = config.quantization.sampling_sizes.iter().max() {
        data.calibration_size = usize::try_from(*most).unwrap_or(usize::MAX);
    }
    data.seed = config.tuning.random_seed;
    Ok(())
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

fn dataset(loader: &Option<Dataloader>) -> Option<&Named> {
    loader.as_ref()?.dataset.as_ref()
}

fn text<'a>(named: &'a Named, key: &str) -> Option<&'a str> {
    named.settings.get(key).and_then(Value::as_str)
}

fn nothing_here(section: &str, named: &Named) -> Error {
    Error::Usage {
        what: format!("line {}: `{section}` is `{}`, which no BERT has", named.line, named.name),
        hint: "`SquadF1`, `Accuracy` and `F1` are scores, `bert` and `TFRecordDataset` data sets, \
               `SquadV1` a transform"
            .into(),
    }
}

/// The same configuration with a loss that may be as large as a flag says.
pub(super) fn with_drop(config: &mut Config, drop: Option<MaxDrop>, point: f64) {
    use frazil_tune::config::Criterion;
    match drop {
        None => {}
        Some(MaxDrop::Share(share)) => config.tuning.criterion = Criterion::Relative(share),
        Some(MaxDrop::Points(points)) => {
            config.tuning.criterion = Criterion::Absolute(points * point);
        }
    }
}

/// The configuration that deploys a model names the data that it was evaluated on.
pub(super) fn with_data(config: &mut Config, task: Task, data: &DataOptions) {
    use frazil_tune::config::{Accuracy, Instances};
    if config.accuracy.is_some() || task != Task::Squad {
        return;
    }
    let Some(evaluation) = &data.evaluation else { return };
    let labels = data.labels.as_ref().unwrap_or(evaluation);
    let settings = serde_json::json!({
        "root": evaluation.display().to_string(),
        "label_file": labels.display().to_string(),
        "task": "squad",
    });
    let dataset = Some(Named { name: "bert".into(), settings, line: 0 });
    let metric = Named { name: "SquadF1".into(), settings: Value::Null, line: 0 };
    config.accuracy = Some(Accuracy {
        metric: Some(metric),
        instances: Instances::default(),
        dataloader: Some(Dataloader { batch_size: 8, discard_last: false, dataset }),
        postprocess: Vec::new(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "model: {name: bert, framework: tensorflow}\n";

    fn applied(text: &str) -> Result<Options> {
        let config = Config::parse(&format!("{HEAD}{text}")).unwrap();
        let mut options = Options::default();
        apply(&config, &mut options).map(|()| options)
    }

    #[test]
    fn the_shipped_examples_name_their_data() {
        let options = applied(
            "quantization: {calibration: {sampling_size: '50, 500', dataloader: {batch_size: 64, \
             dataset: {bert: {root: eval.tf_record, label_file: dev.json}}}}}\n\
             evaluation: {accuracy: {metric: {SquadF1: }, dataloader: {dataset: {bert: {root: \
             eval.tf_record, label_file: dev.json}}}, postprocess: {transform: {SquadV1: \
             {label_file: dev.json, vocab_file: vocab.txt}}}}}\n\
             tuning: {random_seed: 9527}\n",
        )
        .unwrap();
        assert_eq!(options.task, Some(Task::Squad));
        let data = options.data;
        assert_eq!(data.evaluation, Some("eval.tf_record".into()));
        assert_eq!(data.labels, Some("dev.json".into()));
        assert_eq!(data.calibration, None, "never the evaluation set");
        assert_eq!((data.calibration_size, data.seed), (500, 9527));
        assert_eq!(options.model.vocabulary, Some("vocab.txt".into()));
    }

    #[test]
    fn what_no_bert_has_is_refused() {
        for text in [
            "evaluation: {accuracy: {metric: {topk: 1}}}\n",
            "evaluation: {accuracy: {postprocess: {transform: {LabelShift: 1}}}}\n",
            "evaluation: {accuracy: {dataloader: {dataset: {ImageRecord: {root: x}}}}}\n",
        ] {
            let error = applied(text).unwrap_err();
            assert!(error.to_string().contains("which no BERT has"), "{error}");
        }
    }
}
