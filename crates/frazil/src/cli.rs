//! The command line as a whole: which word leads to which command, and how errors look.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use clap::{FromArgMatches, Parser, Subcommand};
use frazil::ops::train::Stop;
use frazil::train::comm::{Comm, world};

use crate::{commands, compat, help, hints, mistake};

/// What a command that ran to its end has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Exit code 1: it worked, and what it checked does not hold.
    CheckFailed,
}

#[derive(Parser)]
#[command(
    name = "frazil",
    version,
    about = "From a TensorFlow 1 BERT to production, without TensorFlow"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    Inspect(commands::inspect::Args),
    Freeze(commands::convert::FreezeArgs),
    Convert(commands::convert::Args),
    Reshape(commands::convert::ReshapeArgs),
    Run(commands::run::Args),
    Tokenize(commands::tokenize::Args),
    Predict(commands::predict::Args),
    Evaluate(commands::evaluate::Args),
    Compile(commands::compile::Args),
    Bench(commands::bench::Args),
    Quantize(Box<commands::quantize::Args>),
    Finetune(commands::finetune::Args),
    Pretrain(commands::pretrain::Args),
    Bert(commands::pretrain::BertArgs),
    #[command(name = "create_submission")]
    CreateSubmission(commands::pretrain::SubmissionArgs),
    Verify(commands::verify::Args),
    VerifyWeights(commands::verify_weights::Args),
    ExportWeights(commands::export_weights::Args),
    ImportWeights(commands::import_weights::Args),
    Pack(commands::pack::Args),
    Demo(commands::demo::Args),
    Graph(commands::graph::Args),
    Doctor(commands::doctor::Args),
    Shims(commands::shims::Args),
    Completions(commands::completions::Args),
    Man(commands::man::Args),
    #[command(name = "create_pretraining_data")]
    CreatePretrainingData(compat::create_pretraining_data::Args),
    #[command(name = "create_tf_record")]
    CreateTfRecord(compat::create_tf_record::Args),
    #[command(name = "extract_features")]
    ExtractFeatures(compat::extract_features::Args),
    #[command(name = "freeze_graph")]
    FreezeGraph(compat::freeze_graph::Args),
    Mo(compat::mo::Args),
    #[command(name = "pack_pretraining_data")]
    PackPretrainingData(compat::pack_pretraining_data::PackArgs),
    #[command(name = "record_to_binary")]
    RecordToBinary(compat::pack_pretraining_data::ToBinaryArgs),
    #[command(name = "run_classifier")]
    RunClassifier(compat::run_classifier::Args),
    #[command(name = "run_pretraining")]
    RunPretraining(compat::run_pretraining::Args),
    #[command(name = "saved_model_cli")]
    SavedModelCli(compat::saved_model_cli::Args),
    #[command(name = "run_squad")]
    RunSquad(compat::run_squad::Args),
    #[command(name = "tune_squad")]
    TuneSquad(compat::tune_squad::Args),
}

/// What a shell reports of a program that Ctrl-C ended.
const INTERRUPT_CODE: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// What Ctrl-C asks a training for.
static STOP: LazyLock<Stop> = LazyLock::new(Stop::default);

/// The wish to stop that Ctrl-C is, for a training to hear.
pub fn stop() -> Stop {
    STOP.clone()
}

/// Runs the program with the process's arguments.
pub fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let called = words.first().and_then(|path| Path::new(path).file_stem()?.to_str());
    if let Some(tool) = help::TOOLS.iter().find(|tool| called == Some(tool)) {
        words.insert(1, tool.into());
    }
    if let Err(error) = ctrlc::set_handler(interrupted) {
        report(&anyhow::Error::new(error).context("Ctrl-C cannot be caught"));
    }
    #[cfg(unix)]
    on_termination();
    let mut out = io::BufWriter::new(io::stdout().lock());
    let result = run(words.iter().skip(1), &mut out).and_then(|outcome| {
        out.flush()?;
        Ok(outcome)
    });
    match result {
        Ok(_) if INTERRUPTED.load(Ordering::SeqCst) => ExitCode::from(INTERRUPT_CODE),
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::CheckFailed) => ExitCode::from(1),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(_) if INTERRUPTED.load(Ordering::SeqCst) => ExitCode::from(INTERRUPT_CODE),
        Err(error) => match error.downcast::<clap::Error>() {
            Ok(usage) => match mistake::told(&usage, &words) {
                Some((what, hint)) => {
                    say!("error: {what}");
                    say!("hint: {hint}");
                    ExitCode::from(2)
                }
                None => usage.exit(), // prints help to stdout with 0
            },
            Err(error) => {
                report(&error);
                ExitCode::from(2)
            }
        },
    }
}

/// On Ctrl-C a training ends with a checkpoint, and a file that is being written is removed before the
/// program ends; a second one insists.
fn interrupted() {
    let insists = INTERRUPTED.swap(true, Ordering::SeqCst);
    if !insists && STOP.ask() {
        say!("stopping after this step, with a checkpoint; once more to stop at once");
    } else if insists || !frazil::tensor::file::interrupt() {
        std::process::exit(INTERRUPT_CODE.into());
    }
}

/// Takes the signal of schedulers and service managers for a Ctrl-C.
#[cfg(unix)]
fn on_termination() {
    use signal_hook::consts::SIGTERM;
    use signal_hook::iterator::Signals;
    match Signals::new([SIGTERM]) {
        Ok(mut signals) => {
            std::thread::spawn(move || signals.forever().for_each(|_| interrupted()));
        }
        Err(error) => report(&anyhow::Error::new(error).context("SIGTERM cannot be caught")),
    }
}

/// Runs one command line (without the program's name).
pub fn run(
    words: impl IntoIterator<Item = impl Into<OsString>>,
    out: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    let words: Vec<OsString> =
        std::iter::once("frazil".into()).chain(words.into_iter().map(Into::into)).collect();
    let helped = asked_for_help(&words);
    // What is only shown has all flags.
    let is_help = words.get(1).is_some_and(|word| word == "help");
    let known = if is_help { help::shown() } else { help::command() };
    let matches = known.clone().try_get_matches_from(words)?;
    hints::running(hints::flags_of(&known, &matches));
    let cli = Cli::from_arg_matches(&matches)?;
    let Some(command) = cli.command.or_else(tour) else {
        write!(out, "{}", help::command().render_help())?;
        return Ok(Outcome::Done);
    };
    let outcome = dispatch(command, out)?;
    if let Some(examples) = helped.and_then(help::examples_of) {
        writeln!(out, "\n{examples}")?;
    }
    Ok(outcome)
}

/// The arguments of `bench` in a line of it (without the program's name).
pub fn bench(words: Vec<String>) -> anyhow::Result<commands::bench::Args> {
    let words = std::iter::once("frazil".to_owned()).chain(words);
    match Cli::from_arg_matches(&help::command().try_get_matches_from(words)?)?.command {
        Some(Command::Bench(args)) => Ok(args),
        _ => anyhow::bail!("this is not a line of `bench`"),
    }
}

/// `cargo run` alone is the tour; `frazil` alone says what there is.
fn tour() -> Option<Command> {
    std::env::var_os("CARGO_MANIFEST_DIR")?;
    Some(Command::Demo(commands::demo::Args::default()))
}

/// Runs what several processes do together, if this one was started as one of several: an error in one
/// of them is told with its rank, and ends all.
pub fn together<T>(work: impl FnOnce(&Arc<dyn Comm>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    let comm = world().map_err(frazil::Error::from)?;
    let (rank, size) = (comm.rank(), comm.size());
    match work(&comm) {
        Err(error) if size > 1 => {
            let error = error.context(format!("rank {rank} of {size} cannot go on"));
            report(&error);
            comm.abort(2);
            Err(error)
        }
        done => done,
    }
}

/// The old tool whose own help is asked for.
fn asked_for_help(words: &[OsString]) -> Option<&'static str> {
    let tool = help::TOOLS.iter().find(|&&tool| words.get(1).is_some_and(|word| word == tool))?;
    let help = |word: &OsString| ["--help", "-h", "--helpshort"].iter().any(|help| word == help);
    words.iter().any(help).then_some(tool)
}

fn dispatch(command: Command, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    match command {
        Command::Inspect(args) => commands::inspect::run(args, out),
        Command::Freeze(args) => commands::convert::freeze(args, out),
        Command::Convert(args) => commands::convert::run(args, out),
        Command::Reshape(args) => commands::convert::reshape(args, out),
        Command::Run(args) => commands::run::run(args, out),
        Command::Tokenize(args) => commands::tokenize::run(args, out),
        Command::Predict(args) => commands::predict::run(args, out),
        Command::Evaluate(args) => commands::evaluate::run(args, out),
        Command::Compile(args) => commands::compile::run(args, out),
        Command::Bench(args) => commands::bench::run(args, out),
        Command::Quantize(args) => commands::quantize::run(*args, out),
        Command::Finetune(args) => commands::finetune::run(args, out),
        Command::Verify(args) => commands::verify::run(args, out),
        Command::VerifyWeights(args) => commands::verify_weights::run(args, out),
        Command::ExportWeights(args) => commands::export_weights::run(args, out),
        Command::ImportWeights(args) => commands::import_weights::run(args, out),
        Command::Pack(args) => commands::pack::run(args, out),
        Command::Demo(args) => commands::demo::run(args, out),
        Command::Graph(args) => commands::graph::run(args, out),
        Command::Doctor(args) => commands::doctor::run(args, out),
        Command::Shims(args) => commands::shims::run(args, out),
        Command::Completions(args) => commands::completions::run(args, out),
        Command::Man(args) => commands::man::run(args, out),
        Command::CreatePretrainingData(args) => compat::create_pretraining_data::run(args, out),
        Command::CreateTfRecord(args) => compat::create_tf_record::run(args, out),
        Command::ExtractFeatures(args) => compat::extract_features::run(args, out),
        Command::FreezeGraph(args) => compat::freeze_graph::run(args, out),
        Command::Mo(args) => compat::mo::run(args, out),
        Command::PackPretrainingData(args) => compat::pack_pretraining_data::pack(args, out),
        Command::RecordToBinary(args) => compat::pack_pretraining_data::to_binary(args, out),
        Command::Pretrain(args) => commands::pretrain::run(args, out),
        Command::Bert(args) => commands::pretrain::bert(args, out),
        Command::CreateSubmission(args) => commands::pretrain::submission(args, out),
        Command::RunPretraining(args) => compat::run_pretraining::run(args, out),
        Command::RunClassifier(args) => compat::run_classifier::run(args, out),
        Command::SavedModelCli(args) => compat::saved_model_cli::run(args, out),
        Command::RunSquad(args) => compat::run_squad::run(args, out),
        Command::TuneSquad(args) => compat::tune_squad::run(args, out),
    }
}

/// `error:`, each `caused by:`, and the `hint:` nearest to the cause.
pub fn report(error: &anyhow::Error) {
    say!("error: {error}");
    for cause in error.chain().skip(1) {
        say!("caused by: {cause}");
    }
    if let Some(hint) = error.chain().find_map(hint).and_then(|hint| hints::spoken(&hint)) {
        say!("hint: {hint}");
    }
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<frazil::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::tensor::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::bert::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::graph::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::convert::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::ops::cut_spec::Error>() {
        return error.hint();
    }
    if let Some(error) = error.downcast_ref::<frazil::tune::Error>() {
        return error.hint();
    }
    error.downcast_ref::<frazil::tf::Error>().and_then(frazil::tf::Error::hint)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| {
        let json = || cause.downcast_ref::<serde_json::Error>()?.io_error_kind();
        cause.downcast_ref::<io::Error>().map(io::Error::kind).or_else(json)
    };
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}
