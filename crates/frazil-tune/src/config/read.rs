//! Key by key from the tree to a [`Config`].

use super::wish::{op_wishes, wish};
use super::yaml::{At, Section, Value, parse};
use super::{
    Accuracy, Approach, Config, Criterion, Dataloader, Instances, Model, Named, Note, Objective,
    Performance, Quantization, Strategy, Tuning,
};
use crate::error::{Error, Result};

pub(super) fn config(text: &str) -> Result<Config> {
    let mut notes = Vec::new();
    let root = match parse(text) {
        Ok(root) => root,
        // The original's reader replaced the signs of lists by blanks before it parsed, and
        // some files are right only that way.
        Err(first) => match parse(&text.replace("- ", "  ")) {
            Ok(root) => {
                let text = "this is YAML only if every `- ` is taken as two blanks".into();
                notes.push(Note { line: 0, path: String::new(), text });
                root
            }
            Err(_) => return Err(first),
        },
    };
    let mut root = At { node: root, path: String::new() }.section()?;
    let model = model(&mut root)?;
    if let Some(at) = root.take("device")
        && !at.one_of(&[("cpu", true), ("gpu", false)])?
    {
        note(&mut notes, &at, "everything runs on the CPU");
    }
    if let Some(at) = root.take("graph_optimization") {
        note(&mut notes, &at, "graphs are always optimized, and computed in f32 or bytes");
        graph_optimization(at.section()?)?;
    }
    if let Some(at) = root.take("pruning") {
        note(&mut notes, &at, "weights are not pruned");
    }
    let quantization = quantization(root.section("quantization")?, &mut notes)?;
    let tuning = tuning(root.section("tuning")?, &model, &mut notes)?;
    let mut evaluation = root.section("evaluation")?;
    let accuracy = match evaluation.take("accuracy") {
        Some(at) => Some(accuracy(at.section()?, &mut notes)?),
        None => None,
    };
    let performance = match evaluation.take("performance") {
        Some(at) => Some(performance(at.section()?, &mut notes)?),
        None => None,
    };
    evaluation.finish()?;
    root.finish()?;
    Ok(Config { model, quantization, tuning, accuracy, performance, notes })
}

fn note(notes: &mut Vec<Note>, at: &At, text: &str) {
    notes.push(Note { line: at.line(), path: at.path.clone(), text: text.into() });
}

fn model(root: &mut Section) -> Result<Model> {
    let mut section = root.need("model")?.section()?;
    let name = section.need("name")?.text()?;
    let framework = section.need("framework")?.text()?;
    let mut words = |key| section.take(key).map_or(Ok(Vec::new()), At::words);
    let (inputs, outputs) = (words("inputs")?, words("outputs")?);
    section.finish()?;
    Ok(Model { name, framework, inputs, outputs })
}

fn graph_optimization(mut section: Section) -> Result<()> {
    if let Some(at) = section.take("precisions") {
        at.words()?;
    }
    section.take("op_wise");
    section.finish()
}

fn quantization(mut section: Section, notes: &mut Vec<Note>) -> Result<Quantization> {
    // The original's default.
    let mut read = Quantization { approach: Approach::Static, ..Quantization::default() };
    if let Some(at) = section.take("approach") {
        read.approach = match at.one_of(&[
            ("post_training_static_quant", Some(Approach::Static)),
            ("post_training_dynamic_quant", Some(Approach::Dynamic)),
            ("post_training_auto_quant", Some(Approach::Auto)),
            ("quant_aware_training", None),
        ])? {
            Some(approach) => approach,
            None => return Err(Error::TrainingAware { line: at.line() }),
        };
    }
    if let Some(at) = section.take("train") {
        note(notes, &at, "nothing is trained here");
    }
    let mut advance = section.section("advance")?;
    if let Some(at) = advance.take("bias_correction") {
        read.bias_correction = match at.node.value {
            Value::Bool(false) | Value::Null => false,
            _ => at.one_of(&[("weight_empirical", true)])?,
        };
    }
    advance.finish()?;
    let mut calibration = section.section("calibration")?;
    if let Some(at) = calibration.take("sampling_size") {
        read.sampling_sizes = sampling_sizes(at)?;
    }
    read.dataloader = dataloader(&mut calibration, notes)?;
    calibration.finish()?;

    let mut recipes = section.section("recipes")?;
    for key in ["scale_propagation_max_pooling", "scale_propagation_concat"] {
        if let Some(at) = recipes.take(key) {
            at.truth()?;
            note(notes, &at, "a BERT has no such operation");
        }
    }
    if let Some(at) = recipes.take("first_conv_or_matmul_quantization") {
        read.first_matmul = at.truth()?;
    }
    let smooth = recipes.take("smooth_quant").map_or(Ok(false), |at| at.truth())?;
    let mut arguments = recipes.section("smooth_quant_args")?;
    let alpha = match arguments.take("alpha") {
        Some(at) => match at.number()? {
            alpha if (0.0..=1.0).contains(&alpha) => alpha as f32,
            _ => return Err(at.wrong("a number from 0 to 1")),
        },
        None => 0.5,
    };
    arguments.finish()?;
    read.migration = smooth.then_some(alpha);
    recipes.finish()?;

    read.model_wise = wish(section.section("model_wise")?, notes)?;
    read.op_wise = op_wishes(section.section("op_wise")?, notes)?;
    section.finish()?;
    Ok(read)
}

/// `100`, `[100, 200]` or `100, 200`.
fn sampling_sizes(at: At) -> Result<Vec<u64>> {
    let wrong = || at.wrong("a whole number from 1 on, or several");
    let whole = |value: i64| u64::try_from(value).ok().filter(|&size| size > 0);
    let sizes: Option<Vec<u64>> = match &at.node.value {
        Value::Int(value) => whole(*value).map(|size| vec![size]),
        Value::List(items) => items
            .iter()
            .map(|item| match &item.value {
                Value::Int(value) => whole(*value),
                Value::Text(text) => text.trim().parse().ok().and_then(whole),
                _ => None,
            })
            .collect(),
        Value::Text(text) => {
            text.split(',').map(|word| word.trim().parse().ok().and_then(whole)).collect()
        }
        _ => None,
    };
    match sizes {
        Some(sizes) if !sizes.is_empty() => Ok(sizes),
        _ => Err(wrong()),
    }
}

fn tuning(mut section: Section, model: &Model, notes: &mut Vec<Note>) -> Result<Tuning> {
    let mut read = Tuning::default();
    let line = section.line;
    let mut strategy = section.section("strategy")?;
    match strategy.take("name") {
        Some(at) if matches!(&at.node.value, Value::Text(name) if name == "sigopt") => {
            return Err(Error::Sigopt { line: at.line() });
        }
        Some(at) => {
            read.strategy = at.one_of(&Strategy::NAMES)?;
        }
        None => notes.push(Note {
            line,
            path: "tuning.strategy".into(),
            text: "not given: `sensitivity` is used (the original's default is `basic`)".into(),
        }),
    }
    for (key, to) in [
        ("accuracy_weight", &mut read.accuracy_weight),
        ("latency_weight", &mut read.latency_weight),
    ] {
        if let Some(at) = strategy.take(key) {
            *to = at.number()?;
            if *to < 0.0 {
                return Err(at.wrong("a number from 0 on"));
            }
            if !matches!(read.strategy, Strategy::Bayesian | Strategy::Tpe) {
                note(notes, &at, "only `bayesian` and `tpe` weigh one against the other");
            }
        }
    }
    for key in ["sigopt_api_token", "sigopt_project_id", "sigopt_experiment_name"] {
        if let Some(at) = strategy.take(key) {
            note(notes, &at, "`sigopt` is a remote service and is not used");
        }
    }
    strategy.finish()?;

    if let Some(at) = section.take("accuracy_criterion") {
        let (line, path) = (at.line(), at.path.clone());
        let mut criterion = at.section()?;
        read.criterion = match (criterion.take("relative"), criterion.take("absolute")) {
            (Some(at), None) => Criterion::Relative(at.share()?),
            (None, Some(at)) => Criterion::Absolute(at.share()?),
            _ => return Err(Error::Criterion { line, path }),
        };
        if let Some(at) = criterion.take("higher_is_better") {
            read.higher_is_better = at.truth()?;
        }
        criterion.finish()?;
    }
    if let Some(at) = section.take("objective") {
        read.objective = at.one_of(&Objective::NAMES)?;
    }
    let mut exit = section.section("exit_policy")?;
    if let Some(at) = exit.take("timeout") {
        read.timeout = at.whole(0)?.unsigned_abs();
    }
    if let Some(at) = exit.take("max_trials") {
        read.max_trials = usize::try_from(at.whole(1)?).unwrap_or(usize::MAX);
    }
    if let Some(at) = exit.take("performance_only") {
        read.performance_only = at.truth()?;
    }
    exit.finish()?;
    if let Some(at) = section.take("random_seed") {
        read.random_seed = at.whole(0)?.unsigned_abs();
    }
    if let Some(at) = section.take("tensorboard")
        && at.truth()?
    {
        note(notes, &at, "the report shows ranges and errors of every tensor instead");
    }
    let mut workspace = section.section("workspace")?;
    read.workspace = match workspace.take("path") {
        Some(at) if at.node.value != Value::Null => at.text()?,
        _ => format!("./lpot_workspace/{}/{}/", folder(&model.framework), folder(&model.name)),
    };
    if let Some(at) = workspace.take("resume") {
        read.resume = Some(at.text()?);
    }
    workspace.finish()?;
    section.finish()?;
    Ok(read)
}

/// A name that cannot lead out of the folder it is in.
fn folder(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' })
        .collect();
    if plain.trim_matches('.').is_empty() { "_".into() } else { plain }
}

fn accuracy(mut section: Section, notes: &mut Vec<Note>) -> Result<Accuracy> {
    let metric = match section.take("metric") {
        None => None,
        Some(at) => {
            const METRICS: &[&str] = &[
                "topk", "mAP", "COCOmAP", "VOCmAP", "SquadF1", "F1", "BLEU", "Accuracy", "Loss",
                "MSE", "RMSE", "MAE", "mIOU",
            ];
            one_named(at, METRICS, "metric")?
        }
    };
    let instances = instances(section.section("configs")?, notes)?;
    let dataloader = dataloader(&mut section, notes)?;
    let postprocess = postprocess(&mut section)?;
    section.finish()?;
    Ok(Accuracy { metric, instances, dataloader, postprocess })
}

fn performance(mut section: Section, notes: &mut Vec<Note>) -> Result<Performance> {
    let warmup = section.take("warmup").map_or(Ok(5), |at| at.whole(0))?.unsigned_abs();
    let iterations = match section.take("iteration") {
        None => None,
        Some(at) => match at.whole(-1)? {
            -1 => None,
            0 => return Err(at.wrong("a whole number from 1 on, or -1")),
            runs => Some(runs.unsigned_abs()),
        },
    };
    let instances = instances(section.section("configs")?, notes)?;
    let dataloader = dataloader(&mut section, notes)?;
    let postprocess = postprocess(&mut section)?;
    section.finish()?;
    Ok(Performance { warmup, iterations, instances, dataloader, postprocess })
}

fn instances(mut section: Section, notes: &mut Vec<Note>) -> Result<Instances> {
    let mut positive = |key| match section.take(key) {
        Some(at) => at.whole(1).map(|value| Some(value.unsigned_abs())),
        None => Ok(None),
    };
    let read = Instances {
        cores: positive("cores_per_instance")?,
        instances: positive("num_of_instance")?,
        threads: positive("intra_num_of_threads")?,
    };
    if let Some(at) = section.take("inter_num_of_threads") {
        at.whole(1)?;
        note(notes, &at, "operations run one after the other, each on all threads");
    }
    if let Some(at) = section.take("kmp_blocktime") {
        at.whole(0)?;
        note(notes, &at, "there is no OpenMP here");
    }
    if let Some(at) = section.take("kmp_affinity") {
        note(notes, &at, "there is no OpenMP here");
        at.text()?;
    }
    section.finish()?;
    Ok(read)
}

fn dataloader(section: &mut Section, notes: &mut Vec<Note>) -> Result<Option<Dataloader>> {
    let Some(at) = section.take("dataloader") else { return Ok(None) };
    let mut section = at.section()?;
    let batch_size = section.take("batch_size").map_or(Ok(1), |at| at.whole(1))?.unsigned_abs();
    let discard_last = match section.take("last_batch") {
        Some(at) => at.one_of(&[("rollover", false), ("discard", true)])?,
        None => false,
    };
    let dataset = match section.take("dataset") {
        None => None,
        Some(at) => dataset(at, notes)?,
    };
    for key in ["filter", "transform"] {
        if let Some(at) = section.take(key) {
            note(notes, &at, "made for images; sequences are fed as they are");
        }
    }
    section.finish()?;
    Ok(Some(Dataloader { batch_size, discard_last, dataset }))
}

fn dataset(at: At, notes: &mut Vec<Note>) -> Result<Option<Named>> {
    const TEXTS: [&str; 3] = ["bert", "TFRecordDataset", "dummy"];
    const KNOWN: &[&str] = &[
        "bert",
        "TFRecordDataset",
        "dummy",
        "CIFAR10",
        "CIFAR100",
        "MNIST",
        "FashionMNIST",
        "ImageFolder",
        "ImageRecord",
        "VOCRecord",
        "COCORecord",
        "COCORaw",
        "ImagenetRaw",
        "style_transfer",
        "Imagenet",
    ];
    let (line, path) = (at.line(), at.path.clone());
    let dataset = one_named(at, KNOWN, "data set")?;
    if let Some(named) = &dataset
        && !TEXTS.contains(&named.name.as_str())
    {
        let text = "a data set of images: a BERT cannot be fed with it".into();
        notes.push(Note { line, path: format!("{path}.{}", named.name), text });
    }
    if let Some(named) = &dataset
        && named.name == "bert"
    {
        let mut section = At { path: format!("{path}.bert"), node: node(named) }.section()?;
        for key in ["root", "label_file"] {
            if let Some(at) = section.take(key) {
                at.text()?;
            }
        }
        if let Some(at) = section.take("task") {
            at.one_of(&[("classifier", ()), ("squad", ())])?;
        }
        if let Some(at) = section.take("model_type") {
            at.one_of(&[("bert", ()), ("xlnet", ()), ("xlm", ())])?;
        }
        for key in ["dynamic_length", "max_seq_length"] {
            section.take(key); // of later versions
        }
        section.finish()?;
    }
    Ok(dataset)
}

/// The settings once more as a tree, for a closer look.
fn node(named: &Named) -> super::yaml::Node {
    use super::yaml::Node;
    let scalar = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(value) => Value::Number(value.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::Null => Value::Null,
        _ => Value::List(Vec::new()),
    };
    let line = named.line;
    let value = match &named.settings {
        serde_json::Value::Object(entries) => Value::Map(
            entries
                .iter()
                .map(|(name, value)| (name.clone(), line, Node { value: scalar(value), line }))
                .collect(),
        ),
        other => scalar(other),
    };
    Node { value, line }
}

fn postprocess(section: &mut Section) -> Result<Vec<Named>> {
    let mut postprocess = section.section("postprocess")?;
    let mut transforms = Vec::new();
    if let Some(at) = postprocess.take("transform") {
        let mut section = at.section()?;
        let mut known = |key: &'static str| {
            section.take(key).map(|at| Named {
                name: key.into(),
                line: at.line(),
                settings: at.json(),
            })
        };
        transforms.extend(known("SquadV1"));
        transforms.extend(known("LabelShift"));
        section.finish()?;
    }
    postprocess.finish()?;
    Ok(transforms)
}

/// A section with exactly one key, its name; or nothing at all.
fn one_named(at: At, known: &'static [&'static str], what: &str) -> Result<Option<Named>> {
    let wrong = at.wrong(format!("one {what} with its settings"));
    let mut section = at.section()?;
    if section.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for key in known {
        if let Some(at) = section.take(key) {
            found.push(Named { name: (*key).into(), line: at.line(), settings: at.json() });
        }
    }
    section.finish()?;
    match found.len() {
        1 => Ok(found.pop()),
        _ => Err(wrong),
    }
}
