//! `frazil quantize MODEL`

mod live;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result};
use frazil::ops::quantize::command::EvalCommand;
use frazil::ops::quantize::{
    self, DataOptions, Kinds, MaxDrop, Options, Output, Report, Search, Target, Task, yaml,
};
use frazil::tune::config::{
    Approach, NamePattern, Objective, OpWish, Part, Quantization, Strategy, Wish,
};
use frazil::tune::{Algorithm, Config, Granularity, Precision, Recipe, Resume, Verdict};

use super::graph_flags::PartFlags;
use super::predict::ReadingFlags;
use super::table::{Table, size};
use crate::cli::Outcome;
pub use live::Live;

/// Compute a model in bytes, as far as its accuracy allows
///
/// Calibrates, searches for the fastest model whose score is good enough, and writes the best that
/// was found, whatever it is; exit code 1 says that it is not good enough. The folder of `--workspace`
/// gets a report, a recipe that makes the model once more, and a history: a run that was killed goes
/// on where it was.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil quantize squad_model --task squad --calibration train-v1.1.json \\
      --evaluation dev-v1.1.json --max-drop 1% -o int8.frazil -o int8.onnx
  frazil quantize bert_fp32.pb --config bert.yaml --evaluation dev-v1.1.json
  frazil quantize mrpc_model --task mrpc --evaluation MRPC \\
      --strategy bayesian -o int8.frazil
  frazil quantize squad_model --config workspace/recipe.yaml -o again.frazil")]
pub struct Args {
    /// The model
    model: PathBuf,
    /// A tuning configuration (LPOT's YAML), or a recipe.yaml to make a model once more
    #[arg(long = "config", value_name = "FILE.yaml")]
    tuning: Option<PathBuf>,
    /// What is written, by its ending: .frazil, .onnx, .xml (OpenVINO), .pb (TensorFlow); as many as
    /// you like [default: model.frazil in the workspace]
    #[arg(short, long, value_name = "FILE")]
    out: Vec<PathBuf>,
    /// What is written, whatever the ending: compiled, onnx, openvino, tf
    #[arg(long, value_name = "TARGET", requires = "out")]
    to: Option<Target>,
    #[command(flatten)]
    data: DataFlags,
    #[command(flatten)]
    search: SearchFlags,
    #[command(flatten)]
    bytes: ByteFlags,
    /// The bert_config.json or config.json, if it is not beside the model
    #[arg(long, value_name = "FILE")]
    bert_config: Option<PathBuf>,
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    parts: PartFlags,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct DataFlags {
    /// What the model is for: squad, or a GLUE task
    #[arg(long)]
    task: Option<Task>,
    /// Texts like those that the model will read: a SQuAD file, a GLUE folder or table, TFRecords
    #[arg(long, value_name = "PATH")]
    calibration: Option<PathBuf>,
    /// How many sequences of them are read [default: 100]
    #[arg(long, value_name = "N")]
    calibration_size: Option<usize>,
    /// Examples with their answers: a SQuAD file, a GLUE folder or table, TFRecords of SQuAD
    #[arg(long, value_name = "PATH")]
    evaluation: Option<PathBuf>,
    /// The SQuAD file whose windows TFRecords are
    #[arg(long, value_name = "FILE")]
    labels: Option<PathBuf>,
    /// Calibrate on the evaluation set itself
    #[arg(long, conflicts_with = "calibration")]
    calibrate_on_evaluation: bool,
    /// Which of the task's scores counts, such as f1, exact_match, acc, mcc
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// A program that evaluates: gets the path of a model at `{model}`, or at the end, and prints a
    /// number as its last line
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["evaluation", "metric"])]
    eval_command: Option<String>,
    /// Less of the score is better
    #[arg(long)]
    lower_is_better: bool,
    /// Examples of the first look at a configuration, where there are many more [default: 1000]
    #[arg(long, value_name = "N")]
    subset: Option<usize>,
    /// From the start of a window of a long text to the start of the next, in pieces (SQuAD)
    #[arg(long, value_name = "N", alias = "doc_stride")]
    doc_stride: Option<usize>,
    /// Longer questions are cut, in pieces (SQuAD)
    #[arg(long, value_name = "N", alias = "max_query_length")]
    max_query_length: Option<usize>,
}

#[derive(clap::Args)]
struct SearchFlags {
    /// How much of the score may be lost: `1%` of it, or `0.5pt`, percentage points [default: 1%]
    #[arg(long, value_name = "LOSS")]
    max_drop: Option<MaxDrop>,
    /// sensitivity, basic, exhaustive, random, mse, bayesian or tpe [default: sensitivity]
    #[arg(long, value_parser = strategy)]
    strategy: Option<Strategy>,
    /// What is to be small: performance, footprint or modelsize [default: performance]
    #[arg(long, value_parser = objective)]
    objective: Option<Objective>,
    /// Go on for so many seconds, for the best [default: until the goal is met]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Configurations that are measured at most [default: 100]
    #[arg(long, value_name = "N")]
    max_trials: Option<usize>,
    /// One trial, whatever its score
    #[arg(long)]
    performance_only: bool,
    /// What every draw follows from [default: 1978]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Where history, recipe and report go [default: beside the first file that is written]
    #[arg(long, value_name = "FOLDER")]
    workspace: Option<PathBuf>,
    /// Forget what an earlier run in the workspace has measured
    #[arg(long)]
    fresh: bool,
}

#[derive(clap::Args)]
struct ByteFlags {
    /// How inputs of linear layers become bytes: static, dynamic (each row by its own range) or auto
    /// (static if that is good enough) [default: what the configuration says; without one, auto, or
    /// static if a file is for another engine]
    #[arg(long, value_name = "HOW", value_parser = approach)]
    activations: Option<Approach>,
    /// Scales of weights: per-channel or per-tensor [default: per-channel]
    #[arg(long, value_name = "HOW", value_parser = granularity)]
    weights: Option<Granularity>,
    /// How ranges of inputs are chosen: minmax, moving_average, percentile, kl or mse
    #[arg(long, value_name = "NAME")]
    algorithm: Option<Algorithm>,
    /// How ranges of weights are chosen: minmax, mse or kl [default: minmax]
    #[arg(long, value_name = "NAME")]
    weight_algorithm: Option<Algorithm>,
    /// Bits of weights: 8, or 7, which is quicker on CPUs without VNNI [default: what suits this CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8))]
    weight_bits: Option<u8>,
    /// How much of the outliers of inputs is carried over to the weights (SmoothQuant): from 0 to 1, or
    /// off [default: what the configuration says; without one, off, or 0.85 if a file is for another
    /// engine]
    #[arg(long, value_name = "ALPHA")]
    smooth: Option<Smooth>,
    /// Leave the mean error of the weights in
    #[arg(long)]
    no_bias_correction: bool,
    /// Operations that stay in f32: a name, or a regular expression for how names begin
    #[arg(long, value_name = "NAME")]
    keep: Vec<String>,
    /// The products of attentions in bytes, too
    #[arg(long)]
    attention: bool,
    /// Embeddings in bytes, too
    #[arg(long)]
    tables: bool,
}

/// What `--smooth` says: how much, if anything.
#[derive(Clone, Copy)]
struct Smooth(Option<f32>);

impl FromStr for Smooth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            _ if text == "off" => Ok(Self(None)),
            Ok(alpha) if (0.0..=1.0).contains(&alpha) => Ok(Self(Some(alpha))),
            _ => Err("it is a number from 0 to 1, such as 0.5, or `off`".into()),
        }
    }
}

fn named<T: Copy>(names: &[(&str, T)], text: &str) -> Result<T, String> {
    let found = names.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("it is one of `{}`", names.join("`, `"))
    })
}

fn strategy(text: &str) -> Result<Strategy, String> {
    named(&Strategy::NAMES, text)
}

fn objective(text: &str) -> Result<Objective, String> {
    named(&Objective::NAMES, text)
}

fn approach(text: &str) -> Result<Approach, String> {
    let names =
        [("static", Approach::Static), ("dynamic", Approach::Dynamic), ("auto", Approach::Auto)];
    named(&names, text)
}

fn granularity(text: &str) -> Result<Granularity, String> {
    named(&[("per-channel", Granularity::Channel), ("per-tensor", Granularity::Tensor)], text)
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let mut options = args.options()?;
    let live = Live::new(args.reading.quiet());
    let on_event = |doing: quantize::Doing<'_>| live.hear(doing);
    if let Some(path) = &args.tuning {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        if Recipe::is_one(&String::from_utf8_lossy(&text)) {
            return args.follow(&Recipe::open(path)?, &options, &on_event, out);
        }
        let config = Config::open(path)?;
        yaml::apply(&config, &mut options)?;
        options.search.config = config;
    }
    args.narrow(&mut options)?;
    let report = quantize::quantize(&args.model, &options, &on_event)?;
    live.finish();
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, out)?;
    }
    Ok(if quantize::is_good(report.verdict) { Outcome::Done } else { Outcome::CheckFailed })
}

impl Args {
    /// What flags say that no configuration can.
    fn options(&self) -> Result<Options> {
        let config = self.bert_config.clone();
        let graph = |source, cut| self.parts.clone().options(config, source, cut);
        let outputs = self.out.iter().map(|path| match self.to {
            Some(target) => Ok(Output { path: path.clone(), target }),
            None => Output::by_name(path.clone()),
        });
        let outputs = outputs.collect::<Result<Vec<Output>, frazil::Error>>()?;
        let target = outputs.first().map_or(Target::Compiled, |output| output.target);
        let data = &self.data;
        let command = |line: &String| EvalCommand { line: line.clone(), target };
        Ok(Options {
            model: self.reading.options(graph)?,
            task: data.task,
            data: DataOptions {
                calibration: data.calibration.clone(),
                evaluation: data.evaluation.clone(),
                labels: data.labels.clone(),
                calibrate_on_evaluation: data.calibrate_on_evaluation,
                metric: data.metric.clone(),
                doc_stride: data.doc_stride,
                max_query_length: data.max_query_length,
                on_bad_row: self.reading.on_bad_row(),
                ..DataOptions::default()
            },
            eval_command: data.eval_command.as_ref().map(command),
            search: Search {
                kinds: Kinds { attention: self.bytes.attention, tables: self.bytes.tables },
                resume: if self.search.fresh { Resume::Never } else { Resume::IfSame },
                ..Search::default()
            },
            max_drop: self.search.max_drop,
            subset: data.subset,
            outputs,
        })
    }

    /// What flags say of what a configuration says, too: they come first.
    fn narrow(&self, options: &mut Options) -> Result<()> {
        let config = &mut options.search.config;
        let (search, bytes) = (&self.search, &self.bytes);
        let tuning = &mut config.tuning;
        set(&mut tuning.strategy, search.strategy);
        set(&mut tuning.objective, search.objective);
        set(&mut tuning.timeout, search.timeout);
        set(&mut tuning.max_trials, search.max_trials);
        set(&mut tuning.random_seed, search.seed);
        tuning.performance_only |= search.performance_only;
        tuning.higher_is_better &= !self.data.lower_is_better;
        options.data.seed = tuning.random_seed;
        set(&mut options.data.calibration_size, self.data.calibration_size);
        let quantization = &mut config.quantization;
        let ours = |output: &Output| output.target == Target::Compiled;
        if self.tuning.is_none() && !options.outputs.iter().all(ours) {
            // No other engine multiplies bytes whose range each row finds for itself.
            *quantization = Quantization::beforehand();
        }
        set(&mut quantization.approach, bytes.activations);
        quantization.bias_correction &= !bytes.no_bias_correction;
        set(&mut quantization.migration, bytes.smooth.map(|Smooth(alpha)| alpha));
        let model = &mut quantization.model_wise;
        set(&mut model.weight.granularity, bytes.weights.map(|one| Some(vec![one])));
        set(&mut model.weight.algorithm, bytes.weight_algorithm.map(|one| Some(vec![one])));
        let largest = |bits: u8| Some((1 << (bits - 1)) - 1);
        set(&mut model.weight.largest, bytes.weight_bits.map(largest));
        set(&mut model.activation.algorithm, bytes.algorithm.map(|one| Some(vec![one])));
        for name in &bytes.keep {
            let names = NamePattern::new(name).map_err(|reason| frazil::Error::Usage {
                what: format!("`--keep {name}` is no regular expression: {reason}"),
                hint: "name an operation, or how names begin: `.*layer_0/.*`".into(),
            })?;
            let f32 = Part { precision: Some(vec![Precision::F32]), ..Part::default() };
            let wish = Wish { weight: f32.clone(), activation: f32 };
            quantization.op_wise.push(OpWish { names, wish, line: 0 });
        }
        let (folder, resume) = self.workspace(options);
        options.search.workspace = Some(folder);
        if resume {
            options.search.resume = Resume::Must;
        }
        Ok(())
    }

    /// The folder, and whether a history must be there.
    fn workspace(&self, options: &Options) -> (PathBuf, bool) {
        let tuning = &options.search.config.tuning;
        if let Some(folder) = &self.search.workspace {
            return (folder.clone(), false);
        }
        // The original names a file in the folder.
        if let Some(resume) = &tuning.resume {
            let path = PathBuf::from(resume);
            let folder = match path.is_dir() {
                true => path,
                false => path.parent().map_or_else(|| ".".into(), Path::to_path_buf),
            };
            return (folder, true);
        }
        match (self.out.first(), &self.tuning) {
            (_, Some(_)) => (PathBuf::from(&tuning.workspace), false),
            (Some(out), None) => (out.with_extension("quantize"), false),
            (None, None) => (PathBuf::from("quantize"), false),
        }
    }

    /// Makes the model of a recipe once more.
    fn follow(
        &self,
        recipe: &Recipe,
        options: &Options,
        on_event: quantize::OnEvent<'_>,
        out: &mut dyn Write,
    ) -> Result<Outcome> {
        if options.outputs.is_empty() {
            return Err(frazil::Error::Usage {
                what: "a recipe makes a model, and there is no file to write it to".into(),
                hint: "name one with `-o`".into(),
            }
            .into());
        }
        let written = quantize::follow(&self.model, recipe, options, on_event)?;
        if self.json {
            serde_json::to_writer_pretty(&mut *out, &written)?;
            writeln!(out)?;
        } else {
            for file in &written {
                writeln!(out, "wrote {} ({})", file.path.display(), size(file.bytes))?;
            }
        }
        Ok(Outcome::Done)
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

/// Before and after, and what is to be said of it.
pub fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let metric = report.metric.name.as_str();
    let mut table =
        Table::new(&["", &format!(">{metric}"), ">loss", ">ms", ">speed-up", ">weights", ">int8"]);
    let base = &report.baseline;
    table.row([
        "f32".into(),
        live::score(base.accuracy),
        String::new(),
        format!("{:.1}", report.baseline_ms()),
        String::new(),
        size(base.bytes),
        String::new(),
    ]);
    if let Some(best) = &report.best {
        let (int8, all) = best.int8_linears;
        table.row([
            "int8".into(),
            live::score(best.measured.accuracy),
            live::loss(best.loss, base.accuracy),
            format!("{:.1}", best.measured.latency_ms),
            format!("{:.2}x", best.speedup),
            size(best.measured.bytes),
            format!("{int8} of {all} linear"),
        ]);
    }
    table.print(out)?;
    let goal = live::score(report.threshold);
    let (trials, full) = (report.trials.len(), report.full_evaluations);
    let of = format!("trials: {trials}, on the full set: {full}");
    match (report.verdict, report.missed_by) {
        (Verdict::Met, _) => writeln!(out, "goal met: {metric} of {goal} or better; {of}")?,
        (Verdict::NotAsked, _) => writeln!(out, "one trial, whatever its {metric}")?,
        (Verdict::Missed, Some(by)) => {
            let by = live::loss(by, base.accuracy);
            writeln!(out, "goal missed by {by}: {metric} of {goal} or better was asked for; {of}")?;
        }
        (Verdict::Missed, None) => writeln!(out, "goal missed: nothing was tried")?,
    }
    for file in &report.outputs {
        writeln!(out, "wrote {} ({})", file.path.display(), size(file.bytes))?;
    }
    if let Some(recipe) = &report.recipe {
        writeln!(
            out,
            "wrote {}: `frazil quantize MODEL --config` it makes the model once more",
            recipe.display()
        )?;
    }
    Ok(())
}
