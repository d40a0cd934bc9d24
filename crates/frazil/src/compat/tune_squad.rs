//! `tune_squad.py` of the int8 examples for BERT on SQuAD: `--tune` searches, `--benchmark` measures.
//!
//! Data are those of the configuration; its older form, which left them to the program's own flags,
//! is served by the same flags here. Where the original returned nothing when its goal was missed,
//! the best model is written, and the exit code is 1.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use frazil::Error;
use frazil::bert::tokenizer::Casing;
use frazil::ops::bench::share;
use frazil::ops::quantize::benchmark::{self, Mode, benchmark};
use frazil::ops::quantize::{self, Doing, Options, Output, Target, Task, yaml};
use frazil::tune::{Config, Verdict};

use super::absl::{Flag, Program, Values};
use crate::cli::Outcome;
use crate::commands::quantize::{Live, print};

/// int8 tuning and benchmarks of BERT on SQuAD, with the flags of tune_squad.py
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil tune_squad --config=bert.yaml --input_model=bert_fp32.pb \\
      --output_model=int8.pb --tune
  frazil tune_squad --config=bert.yaml --input_model=int8.pb --benchmark \\
      --mode=performance"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The program and its flags.
pub const PROGRAM: Program = Program {
    name: "tune_squad",
    about: "int8 tuning and benchmarks of BERT on SQuAD.",
    flags: &[
        Flag::text("config", Some("bert.yaml"), "the tuning configuration"),
        Flag::text("input_model", None, "the model: a frozen graph, or any other").required(),
        Flag::text(
            "output_model",
            None,
            "where the int8 model goes: a frozen graph, by its ending",
        ),
        Flag::truth("tune", false, "search for an int8 model that is good enough"),
        Flag::truth("benchmark", false, "measure input_model"),
        Flag::text("mode", Some("performance"), "what benchmark measures: accuracy or performance"),
        Flag::truth("strip_iterator", false, "the graph is always cut behind it").without_effect(),
        Flag::text("vocab_file", None, "the vocabulary, if the configuration names none"),
        Flag::text("predict_file", None, "the questions, if the configuration names none"),
        Flag::text("label_file", None, "the questions of records, if the configuration names none"),
        Flag::text("calibration_file", None, "frazil's: texts to calibrate on"),
        Flag::integer(
            "predict_batch_size",
            "8",
            "windows of a batch, if the configuration says none",
        ),
        Flag::truth("do_lower_case", true, "whether text is lowered, as for uncased models"),
        Flag::integer("max_seq_length", "384", "pieces of a window with its question"),
        Flag::integer("doc_stride", "128", "from the start of a window to that of the next"),
        Flag::integer("max_query_length", "64", "pieces of a question; longer ones are cut"),
    ],
};

/// Runs the command.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let values = match PROGRAM.start(&args.arguments, out)? {
        Ok(values) => values,
        Err(outcome) => return Ok(outcome),
    };
    let wrong = |what: String, hint: &str| Error::Usage { what, hint: hint.into() };
    let config = Config::open(values.needed("config")?)?;
    let model = PathBuf::from(values.needed("input_model")?);
    let options = options(&values, &config)?;
    match (values.truth("tune"), values.truth("benchmark")) {
        (true, false) => tune(&model, values.needed("output_model")?.into(), config, options, out),
        (false, true) => {
            let mode = match values.text("mode") {
                Some("accuracy") => Mode::Accuracy,
                Some("performance") | None => Mode::Performance,
                Some(other) => {
                    let what = format!("`--mode` is `{other}`");
                    return Err(wrong(what, "modes are `accuracy` and `performance`").into());
                }
            };
            measure(&model, mode, &values, &config, options, out)
        }
        _ => {
            let what = "either `--tune` or `--benchmark` must be given".into();
            Err(wrong(what, "`--tune` makes an int8 model, `--benchmark` measures one").into())
        }
    }
}

/// What configuration and flags say of the model and its data.
fn options(values: &Values, config: &Config) -> Result<Options, Error> {
    let mut options = Options { task: Some(Task::Squad), ..Options::default() };
    yaml::apply(config, &mut options)?;
    let or = |place: &mut Option<PathBuf>, name: &str| {
        *place = place.take().or_else(|| values.path(name));
    };
    or(&mut options.model.vocabulary, "vocab_file");
    or(&mut options.data.evaluation, "predict_file");
    or(&mut options.data.labels, "label_file");
    or(&mut options.data.calibration, "calibration_file");
    let lower = values.truth("do_lower_case");
    options.model.casing = Some(if lower { Casing::Lower } else { Casing::Keep });
    if values.is_given("max_seq_length") {
        options.model.max_seq_length = Some(values.count("max_seq_length", 1)?);
    }
    options.data.doc_stride = Some(values.count("doc_stride", 1)?);
    options.data.max_query_length = Some(values.count("max_query_length", 0)?);
    Ok(options)
}

fn tune(
    model: &std::path::Path,
    output: PathBuf,
    config: Config,
    mut options: Options,
    out: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    // The original writes a frozen graph, whatever its name.
    let output =
        Output::by_name(output.clone()).unwrap_or(Output { path: output, target: Target::Tf });
    options.outputs = vec![output];
    if options.data.evaluation.is_none() {
        return Err(Error::Usage {
            what: "there is nothing to evaluate SQuAD on".into(),
            hint: "name the questions with `--predict_file`, and their vocabulary with \
                   `--vocab_file`, or both in the configuration"
                .into(),
        }
        .into());
    }
    options.search.workspace = Some(PathBuf::from(&config.tuning.workspace));
    options.search.config = config;
    let live = Live::new(false);
    let on_event = |doing: Doing<'_>| live.hear(doing);
    let report = quantize::quantize(model, &options, &on_event)?;
    live.finish();
    print(&report, out)?;
    Ok(if report.verdict == Verdict::Missed { Outcome::CheckFailed } else { Outcome::Done })
}

fn measure(
    model: &std::path::Path,
    mode: Mode,
    values: &Values,
    config: &Config,
    mut options: Options,
    out: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    let performance = config.performance.as_ref();
    let loader = match mode {
        Mode::Accuracy => config.accuracy.as_ref().and_then(|section| section.dataloader.as_ref()),
        Mode::Performance => performance.and_then(|section| section.dataloader.as_ref()),
    };
    let batch_size = match loader {
        Some(loader) => loader.batch_size as usize,
        None => values.count("predict_batch_size", 1)?,
    };
    let iterations = performance.and_then(|section| section.iterations);
    let instances = match mode {
        Mode::Accuracy => config.accuracy.as_ref().map(|section| &section.instances),
        Mode::Performance => performance.map(|section| &section.instances),
    };
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let threads = instances.and_then(|instances| instances.cores.or(instances.threads));
    let instances = instances.and_then(|instances| instances.instances).map_or(1, count);
    options.model.threads = share(threads.map(count), instances)?;
    let report = benchmark(
        model,
        &benchmark::Options {
            model: options.model,
            data: options.data,
            mode,
            batch_size: batch_size.max(1),
            warmup: performance.map_or(5, |section| section.warmup as usize),
            iterations: match mode {
                Mode::Accuracy => None,
                Mode::Performance => iterations.map(|count| count as usize),
            },
            instances,
        },
    )?;
    for note in &report.notes {
        say!("note: {note}");
    }
    let name = match mode {
        Mode::Accuracy => "accuracy",
        Mode::Performance => "performance",
    };
    writeln!(out, "\n{name} mode benchmark result:")?;
    match report.accuracy {
        Some(accuracy) => writeln!(out, "Accuracy is {accuracy:.3}")?,
        None => writeln!(out, "Accuracy is not measured in this mode")?,
    }
    writeln!(out, "Batch size = {}", report.batch_size)?;
    if report.instances > 1 {
        writeln!(out, "Instances = {}, cores per instance = {}", report.instances, report.threads)?;
    }
    writeln!(out, "Latency: {:.3} ms", report.latency_ms)?;
    writeln!(out, "Throughput: {:.3} sequences/sec", report.throughput)?;
    Ok(Outcome::Done)
}
