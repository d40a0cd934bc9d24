//! From flags to a plan: what is read, how it is cut, what is written. Contradictions are found
//! here, and what has no effect is put into words; nothing is opened yet but to see what it is.

use std::path::{Path, PathBuf};

use frazil::ops::convert::{Options, Target};
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::source::Outputs;
use frazil::tf::sniff::{self, Content, Encoding};
use frazil::{Error, Result};

use super::args::Flags;

/// How much is said on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Talk {
    /// Warnings only.
    Silent,
    /// Choices that were made.
    Notes,
    /// What every pass did, too.
    Passes,
}

/// What is to be done.
#[derive(Debug)]
pub struct Plan {
    /// The model.
    pub source: PathBuf,
    /// How it is converted.
    pub options: Options,
    /// The folder of the results.
    pub folder: PathBuf,
    /// The `.xml` in it.
    pub xml: PathBuf,
    /// Flags that have no effect, and why.
    pub warnings: Vec<String>,
    /// How much to say.
    pub talk: Talk,
}

/// Checks the flags against each other.
pub fn plan(flags: &Flags) -> Result<Plan> {
    framework(flags)?;
    let mut warnings = Vec::new();
    let source = source(flags, &mut warnings)?;
    let batch = flags.batch.as_deref().map(positive).transpose()?;
    let mut options = Options::new(Target::Openvino);
    options.graph.cut = CutSpec::parse(&CutTexts {
        input: flags.input.as_deref(),
        input_shape: flags.input_shape.as_deref(),
        output: flags.output.as_deref(),
        freeze: flags.freeze_placeholder_with_value.as_deref(),
        batch,
    })?;
    options.graph.outputs = Outputs::Leaves;
    options.graph.checkpoint = flags.input_checkpoint.clone();
    if let Some(tags) = &flags.saved_model_tags {
        if tags.contains(' ') {
            return usage(
                format!("`--saved_model_tags` has a space in `{tags}`"),
                "separate tags by commas only: `serve,gpu`",
            );
        }
        options.graph.tags = tags.split(',').map(str::to_owned).collect();
    }
    options.fp16 = compression(flags)?;
    // Without the flag, shapes are computed when the model runs, so that it can be reshaped.
    options.fold = Some(flags.static_shape);
    let name = name(flags, &source);
    let folder = flags.output_dir.clone().unwrap_or_else(|| PathBuf::from("."));
    let xml = folder.join(format!("{name}.xml"));
    options.name = Some(name);
    let talk = talk(flags)?;
    images(flags, &mut warnings)?;
    transforms(flags, &mut warnings)?;
    idle(flags, &mut warnings)?;
    Ok(Plan { source, options, folder, xml, warnings, talk })
}

fn usage<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T> {
    Err(Error::Usage { what: what.into(), hint: hint.into() })
}

fn framework(flags: &Flags) -> Result<()> {
    match flags.framework.as_deref() {
        None | Some("tf") => Ok(()),
        Some(known @ ("caffe" | "mxnet" | "kaldi" | "onnx" | "paddle")) => usage(
            format!("`--framework {known}`: frazil reads TensorFlow's models only"),
            "leave `--framework` out, or write `--framework tf`",
        ),
        Some(other) => usage(
            format!("`--framework {other}` is no framework"),
            "leave `--framework` out, or write `--framework tf`",
        ),
    }
}

/// The one source that is given.
fn source(flags: &Flags, warnings: &mut Vec<String>) -> Result<PathBuf> {
    let given = [
        ("--input_model", &flags.input_model),
        ("--saved_model_dir", &flags.saved_model_dir),
        ("--input_meta_graph", &flags.input_meta_graph),
    ];
    let given: Vec<(&str, &PathBuf)> =
        given.into_iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?))).collect();
    let (flag, path) = match given.as_slice() {
        [] if flags.input_checkpoint.is_some() => {
            return usage(
                "`--input_checkpoint` gives values, and no graph is given that needs them",
                "give the graph with `--input_model`, or the `.meta` with `--input_meta_graph`; \
                 `frazil convert CHECKPOINT --to openvino` needs the checkpoint alone",
            );
        }
        [] => {
            return usage(
                "no model is given",
                "give a frozen graph with `--input_model`, a `.meta` with `--input_meta_graph`, or \
                 a SavedModel with `--saved_model_dir`",
            );
        }
        [one] => *one,
        [(first, _), (second, _), ..] => {
            return usage(
                format!("`{first}` and `{second}` are both given"),
                "give one model: one of the two flags",
            );
        }
    };
    if flag != "--input_model" {
        if flags.input_model_is_text {
            warnings.push(no_effect("--input_model_is_text", "it belongs to `--input_model`"));
        }
        if flags.input_checkpoint.is_some() && flag == "--saved_model_dir" {
            warnings.push(no_effect("--input_checkpoint", "a SavedModel has its own values"));
        }
    }
    if flag != "--saved_model_dir" && flags.saved_model_tags.is_some() {
        warnings.push(no_effect("--saved_model_tags", "it belongs to `--saved_model_dir`"));
    }
    match flag {
        "--input_meta_graph" => meta_graph(path),
        "--input_model" => input_model(path, flags, warnings),
        _ => Ok(path.clone()),
    }
}

/// The `.meta` itself, or the one that belongs to a checkpoint's other files.
fn meta_graph(path: &Path) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.ends_with(".meta") {
        return Ok(path.to_path_buf());
    }
    let prefix = match name.rfind(".data-") {
        Some(at) => &name[..at],
        None => name.strip_suffix(".index").unwrap_or(&name),
    };
    let meta = path.with_file_name(format!("{prefix}.meta"));
    if meta.is_file() {
        return Ok(meta);
    }
    usage(
        format!("`--input_meta_graph {}` is no `.meta`, and none lies beside it", path.display()),
        format!(
            "`{}` was looked for; without one, `frazil convert {} --to openvino` builds the graph \
             from `bert_config.json`",
            meta.display(),
            path.with_file_name(prefix).display()
        ),
    )
}

/// A frozen graph; files that people take for one are called what they are.
fn input_model(path: &Path, flags: &Flags, warnings: &mut Vec<String>) -> Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let not = |what: &str, hint: String| {
        usage(format!("`--input_model {}` is {what}, not a frozen graph", path.display()), hint)
    };
    if name.ends_with(".meta") {
        return not("a MetaGraph", format!("write `--input_meta_graph {}`", path.display()));
    }
    if name.ends_with(".index") || name.contains(".data-") || name.ends_with(".ckpt") {
        return not(
            "a checkpoint",
            "write `--input_model GRAPH.pb --input_checkpoint CHECKPOINT` or `--input_meta_graph \
             CHECKPOINT.meta`"
                .into(),
        );
    }
    if path.is_dir() {
        return not("a folder", format!("write `--saved_model_dir {}`", path.display()));
    }
    if !path.is_file() {
        return Err(Error::NotFound { path: path.to_path_buf(), near: vec![] });
    }
    match sniff::of(&frazil::tensor::file::map(path)?) {
        Content::GraphDef(Encoding::Text) => {}
        Content::GraphDef(Encoding::Binary) => {
            if flags.input_model_is_text {
                warnings.push(no_effect("--input_model_is_text", "the graph is in binary form"));
            }
        }
        Content::MetaGraphDef(_) => {
            return not("a MetaGraph", format!("write `--input_meta_graph {}`", path.display()));
        }
        Content::SavedModel(_) => {
            let folder = path.parent().unwrap_or(Path::new(".")).display().to_string();
            return not("a SavedModel", format!("write `--saved_model_dir {folder}`"));
        }
        other => {
            return not(
                &other.to_string(),
                "a model is a frozen graph (`--input_model`, with `--input_model_is_text` for \
                 text), a MetaGraph (`--input_meta_graph`) or a SavedModel (`--saved_model_dir`)"
                    .into(),
            );
        }
    }
    Ok(path.to_path_buf())
}

fn positive(text: &str) -> Result<u64> {
    match text.trim().parse::<u64>() {
        Ok(batch) if batch > 0 => Ok(batch),
        _ => usage(
            format!("`--batch {text}` is no positive number"),
            "write the batch as a number; a dynamic one is `--input_shape [?,128]`",
        ),
    }
}

fn boolean(flag: &str, text: &str) -> Result<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => usage(
            format!("`{flag} {text}` is neither `True` nor `False`"),
            format!("write `{flag} True` or `{flag} False`"),
        ),
    }
}

/// Whether weights are stored as f16.
fn compression(flags: &Flags) -> Result<bool> {
    let by_type = match flags.data_type.as_deref() {
        None => None,
        Some("FP16" | "half") => Some(true),
        Some("FP32" | "float") => Some(false),
        Some(other) => {
            return usage(
                format!("`--data_type {other}` is no type of weights"),
                "write `FP16`, `half`, `FP32` or `float`",
            );
        }
    };
    let by_flag = flags
        .compress_to_fp16
        .as_deref()
        .map(|text| boolean("--compress_to_fp16", text))
        .transpose()?;
    match (by_type, by_flag) {
        (Some(a), Some(b)) if a != b => usage(
            "`--data_type` and `--compress_to_fp16` contradict each other",
            "leave `--data_type` out, which is the older of the two",
        ),
        (a, b) => Ok(a.or(b).unwrap_or(false)),
    }
}

/// The name of the results: the user's, or the source's without its last extension.
fn name(flags: &Flags, source: &Path) -> String {
    if let Some(name) = &flags.model_name {
        return name.clone();
    }
    if flags.saved_model_dir.is_some() {
        return "saved_model".into();
    }
    let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if stem.is_empty() || stem.starts_with('.') { "model".into() } else { stem }
}

fn talk(flags: &Flags) -> Result<Talk> {
    let silent = flags.silent.as_deref().map(|text| boolean("--silent", text)).transpose()?;
    let level = match flags.log_level.as_deref() {
        None | Some("ERROR" | "WARN" | "WARNING") => Talk::Notes,
        Some("CRITICAL") => Talk::Silent,
        Some("INFO" | "DEBUG" | "NOTSET") => Talk::Passes,
        Some(other) => {
            return usage(
                format!("`--log_level {other}` is no level"),
                "the levels are CRITICAL, ERROR, WARN, WARNING, INFO, DEBUG and NOTSET",
            );
        }
    };
    Ok(if silent == Some(true) { Talk::Silent } else { level })
}

fn no_effect(flag: &str, why: &str) -> String {
    format!("`{flag}` has no effect: {why}")
}

/// What prepares images. It would change numbers, so it is refused where it would do so.
fn images(flags: &Flags, warnings: &mut Vec<String>) -> Result<()> {
    if flags.scale.is_some() && flags.scale_values.is_some() {
        return usage("`--scale` and `--scale_values` are both given", "give one of them");
    }
    for (flag, value) in [
        ("--mean_values", &flags.mean_values),
        ("--scale_values", &flags.scale_values),
        ("--scale", &flags.scale),
    ] {
        if value.as_deref().is_some_and(|text| !matches!(text.trim(), "" | "()" | "[]")) {
            return usage(
                format!("`{flag}` prepares images, and the inputs of a BERT are integers"),
                format!("leave `{flag}` out"),
            );
        }
    }
    if flags.reverse_input_channels {
        let why = "no input has three channels";
        warnings.push(no_effect("--reverse_input_channels", why));
    }
    if flags.layout.is_some() && (flags.source_layout.is_some() || flags.target_layout.is_some()) {
        return usage(
            "`--layout` goes with neither `--source_layout` nor `--target_layout`",
            "give `--layout` alone, or the other two",
        );
    }
    let changes = flags.target_layout.is_some()
        || flags.layout.as_deref().is_some_and(|layout| layout.contains("->"));
    if changes {
        return usage(
            "a change of layout is for images, and the inputs of a BERT have none",
            "leave the layout out",
        );
    }
    for (flag, value) in [("--layout", &flags.layout), ("--source_layout", &flags.source_layout)] {
        if value.is_some() {
            warnings.push(no_effect(flag, "a layout without another one changes nothing"));
        }
    }
    Ok(())
}

/// Transformations that OpenVINO applies to a finished model.
fn transforms(flags: &Flags, warnings: &mut Vec<String>) -> Result<()> {
    let Some(list) = flags.transform.as_deref() else { return Ok(()) };
    let mut depth = 0i32;
    let parts = list.split(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        c == ',' && depth == 0
    });
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        match part.split('[').next().unwrap_or_default() {
            "LowLatency2" => {
                warnings.push(no_effect("--transform LowLatency2", "the model has no loops"));
            }
            "Pruning" => {
                let why = "pruned channels are found where a model is trained for it";
                warnings.push(no_effect("--transform Pruning", why));
            }
            "MakeStateful" => {
                return usage(
                    "`--transform MakeStateful` is not here: a BERT keeps no state",
                    "leave `--transform` out; OpenVINO applies it to a finished model, too",
                );
            }
            other => {
                return usage(
                    format!("`--transform` knows no `{other}`"),
                    "the transformations are LowLatency2, MakeStateful and Pruning",
                );
            }
        }
    }
    Ok(())
}

/// What is accepted and does nothing.
fn idle(flags: &Flags, warnings: &mut Vec<String>) -> Result<()> {
    if flags.use_new_frontend && flags.use_legacy_frontend {
        return usage(
            "`--use_new_frontend` and `--use_legacy_frontend` exclude each other",
            "leave both out",
        );
    }
    const PLUGINS: &str =
        "frazil loads no extensions; an operation that it lacks is refused by name";
    const OLD: &str = "Model Optimizer itself had made it one without effect";
    const FRONT: &str = "there is one front end";
    let rows = [
        ("--extensions", flags.extensions.is_some(), PLUGINS),
        ("--transformations_config", flags.transformations_config.is_some(), PLUGINS),
        (
            "--tensorflow_custom_operations_config_update",
            flags.tensorflow_custom_operations_config_update.is_some(),
            PLUGINS,
        ),
        (
            "--tensorflow_use_custom_operations_config",
            flags.tensorflow_use_custom_operations_config.is_some(),
            PLUGINS,
        ),
        (
            "--tensorflow_object_detection_api_pipeline_config",
            flags.tensorflow_object_detection_api_pipeline_config.is_some(),
            "it is for detectors of objects",
        ),
        (
            "--tensorflow_custom_layer_libraries",
            flags.tensorflow_custom_layer_libraries.is_some(),
            PLUGINS,
        ),
        (
            "--tensorboard_logdir",
            flags.tensorboard_logdir.is_some(),
            "`frazil inspect` shows a graph",
        ),
        ("--progress", flags.progress, "the work is done before a bar could be seen"),
        ("--stream_output", flags.stream_output, "there is no bar to be switched"),
        ("--use_new_frontend", flags.use_new_frontend, FRONT),
        ("--use_legacy_frontend", flags.use_legacy_frontend, FRONT),
        ("--disable_nhwc_to_nchw", flags.disable_nhwc_to_nchw, OLD),
        ("--disable_fusing", flags.disable_fusing, OLD),
        ("--disable_resnet_optimization", flags.disable_resnet_optimization, OLD),
        ("--disable_gfusing", flags.disable_gfusing, OLD),
        ("--finegrain_fusing", flags.finegrain_fusing.is_some(), OLD),
        ("--enable_concat_optimization", flags.enable_concat_optimization, OLD),
        ("--disable_weights_compression", flags.disable_weights_compression, OLD),
    ];
    for (flag, given, why) in rows {
        if given {
            warnings.push(no_effect(flag, why));
        }
    }
    Ok(())
}
