//! `frazil bench MODEL`

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use frazil::bert::Head;
use frazil::kernels::cpu::Isa;
use frazil::ops::bench::{Lengths, Measured, Model, Options, Report, Variant, bench};
use frazil::source::GraphOptions;
use frazil::tensor::nearest;
use frazil::tensor::words::plural;

use super::flags::{Flags, PageFlag, at_least_one};
use super::graph_flags::{CutFlags, GraphFlags};
use super::table::Table;
use crate::cli::Outcome;

/// Measure how fast a model runs here
///
/// Padding is not computed: with `--lengths`, batches of different lengths cost what their tokens
/// cost. `--compare` runs several variants in turn, round by round: `packed`, `padded`, `f32`, `int8`,
/// `scalar`, `avx2`, `avx512`, `avx512vnni`, `threads=N`, `instances=N`, or the file of a model,
/// joined by `+`. Instances run at the same time, on the same weights, with threads of their own.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil bench model.ckpt-1000 --batch 8 --seq 128 --compare f32,int8 \\
      --report bench.html
  frazil bench --compare f32.frazil,int8.frazil --batch 1 \\
      --cores-per-instance 4 --instances 7
  frazil bench --random-weights bert-base --batch 8 --lengths squad \\
      --compare packed,padded --profile")]
pub struct Args {
    /// The model; not needed where every variant of `--compare` names its own
    model: Option<PathBuf>,
    /// A model of this size with made-up weights: bert-base, bert-large or a bert_config.json
    #[arg(long, value_name = "SIZE", conflicts_with = "model")]
    random_weights: Option<String>,
    /// Sequences in a batch
    #[arg(long, default_value_t = 1)]
    batch: usize,
    /// Length of every sequence
    #[arg(long, default_value_t = 128)]
    seq: usize,
    /// Lengths: squad, mrpc, lognormal:MEDIAN,SIGMA[,MOST], or a file of numbers
    #[arg(long, value_name = "LENGTHS", conflicts_with = "seq")]
    lengths: Option<String>,
    /// How many sequences of such lengths
    #[arg(long, default_value_t = 64, requires = "lengths")]
    sequences: usize,
    /// Threads of an instance [default: one for each core, shared among the instances]
    #[arg(long, visible_alias = "cores-per-instance", value_name = "N", value_parser = at_least_one)]
    threads: Option<usize>,
    /// How many run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    instances: usize,
    /// Rounds that are not counted
    #[arg(long, value_name = "N", default_value_t = 1)]
    warmup: usize,
    /// Rounds [default: as many as fit in five seconds]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    iterations: Option<usize>,
    /// Instructions: scalar, avx2, avx512, avx512vnni [default: the best]
    #[arg(long)]
    isa: Option<String>,
    /// Variants to measure in turn
    #[arg(long, value_name = "A,B,…", value_delimiter = ',')]
    compare: Vec<String>,
    /// Time by kind of step
    #[arg(long)]
    profile: bool,
    #[command(flatten)]
    page: PageFlag,
    #[command(flatten)]
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let (page, flags) = (args.page.clone(), args.flags.clone());
    let report = measure(args)?;
    page.write(|| report.page())?;
    flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

pub fn measure(args: Args) -> Result<Report> {
    let isa = args.isa.as_deref().map(str::parse).transpose()?;
    let graph = args.graph.options(args.flags.source(), args.cut.spec()?);
    let (instances, threads) = (args.instances, args.threads);
    let base = Variant { isa, threads, instances, ..Variant::default() };
    let variants: Vec<Variant> = match args.compare.as_slice() {
        [] => vec![Variant { name: "packed".into(), ..base }],
        names => names.iter().map(|name| variant(name, &base, &graph)).collect::<Result<_>>()?,
    };
    let model = match (args.model, args.random_weights) {
        (Some(path), _) => Some(Model::File(path, Box::new(graph))),
        (None, Some(size)) => Some(Model::Random(size, graph.head.unwrap_or(Head::Squad))),
        (None, None) => None,
    };
    let own = variants.iter().all(|variant| variant.model.is_some());
    let first = || variants.first().and_then(|variant| variant.model.clone());
    let model = match model {
        Some(_) if own => {
            return Err(frazil::Error::Usage {
                what: "the model is not measured: every variant of `--compare` names its own"
                    .into(),
                hint: "leave it out, or compare it as `packed`".into(),
            }
            .into());
        }
        Some(model) => model,
        None => first().filter(|_| own).ok_or_else(|| frazil::Error::Usage {
            what: "there is no model to measure".into(),
            hint: "name one, or `--random-weights bert-base`, or compare files: \
                   `--compare a.frazil,b.frazil`"
                .into(),
        })?,
    };
    let options = Options {
        batch: args.batch,
        seq: args.seq,
        lengths: args.lengths.as_deref().map(str::parse::<Lengths>).transpose()?,
        sequences: args.sequences,
        warmup: args.warmup,
        iterations: args.iterations,
        variants,
        profile: args.profile,
    };
    Ok(bench(&model, &options)?)
}

fn variant(name: &str, base: &Variant, graph: &GraphOptions) -> Result<Variant> {
    let mut variant = Variant { name: name.to_owned(), ..base.clone() };
    let number = |text: &str| at_least_one(text).map_err(|wrong| anyhow!("`{name}`: {wrong}"));
    // A file's name may have a `+` in it.
    if Path::new(name).exists() {
        variant.model = Some(Model::File(name.into(), Box::new(graph.clone())));
        return Ok(variant);
    }
    for part in name.split('+') {
        match part.split_once('=') {
            Some(("threads", count)) => variant.threads = Some(number(count)?),
            Some(("instances", count)) => variant.instances = number(count)?,
            _ => match part {
                "packed" => variant.padded = false,
                "padded" => variant.padded = true,
                "f32" => variant.f32 = true,
                "int8" => variant.int8 = true,
                file if Path::new(file).exists() || file.contains(['/', '.']) => {
                    variant.model = Some(Model::File(file.into(), Box::new(graph.clone())));
                }
                isa => variant.isa = Some(isa.parse().map_err(|_| unknown(part))?),
            },
        }
    }
    Ok(variant)
}

fn unknown(part: &str) -> frazil::Error {
    let words = ["packed", "padded", "f32", "int8"].into_iter().chain(Isa::ALL.map(Isa::name));
    let near = nearest(part, words.clone()).first().map(|near| format!("did you mean `{near}`? "));
    let words: Vec<String> = words.map(|word| format!("`{word}`")).collect();
    frazil::Error::Usage {
        what: format!("`{part}` is neither a variant, nor instructions, nor a file"),
        hint: format!(
            "{}Variants are {}, `threads=N`, `instances=N` and files, joined by `+`",
            near.unwrap_or_default(),
            words.join(", ")
        ),
    }
}

pub fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let Report { model, sequences, tokens, iterations, .. } = report;
    writeln!(
        out,
        "{model}: {sequences} {}, {tokens} {}, {iterations} {}",
        plural(*sequences, "sequence"),
        plural(*tokens, "token"),
        plural(*iterations, "round")
    )?;
    for peak in &report.peaks {
        writeln!(
            out,
            "this machine, {} with {} {}: {:.0} GFLOP/s, {:.0} int8 GOP/s, {:.1} GB/s",
            peak.isa,
            peak.threads,
            plural(peak.threads, "thread"),
            peak.f32_gflops,
            peak.int8_gops,
            peak.memory_gbs
        )?;
    }
    let heads = [
        "",
        "isa",
        "threads",
        "median ms",
        "p90 ms",
        "min ms",
        "batch ms",
        "seq/s",
        "tokens/s",
        "GFLOP/s",
        "of peak",
        "speed-up",
    ];
    let mut table = Table::new(&heads);
    for m in &report.variants {
        let speed = &m.speed;
        table.row([
            m.name.clone(),
            speed.isa.clone(),
            match speed.instances {
                1 => speed.threads.to_string(),
                instances => format!("{instances} x {}", speed.threads),
            },
            format!("{:.2}", speed.median_ms),
            format!("{:.2}", speed.p90_ms),
            format!("{:.2}", speed.min_ms),
            format!("{:.2}", speed.batch_median_ms),
            format!("{:.1}", speed.sequences_per_s),
            format!("{:.0}", speed.tokens_per_s),
            format!("{:.1}", speed.gflops),
            format!("{:.0}%", speed.percent_of_peak),
            format!("{:.2}x", m.speedup),
        ]);
    }
    table.print(out)?;
    for note in &report.notes {
        writeln!(out, "note: {note}")?;
    }
    for m in &report.variants {
        print_details(m, out)?;
    }
    let (resident, most) = (report.resident_mb, report.peak_rss_mb);
    writeln!(out, "{resident:.0} MB resident, {most:.0} MB at most while it was prepared")?;
    Ok(())
}

fn print_details(measured: &Measured, out: &mut dyn Write) -> Result<()> {
    for slow in &measured.slow {
        writeln!(out, "note: {}: runs by the plain kernel: {slow}", measured.name)?;
    }
    if !measured.speed.instance_median_ms.is_empty() {
        let each = measured.speed.instance_median_ms.iter().map(|ms| format!("{ms:.2}"));
        let each: Vec<String> = each.collect();
        writeln!(out, "{}: median ms of each instance: {}", measured.name, each.join(", "))?;
    }
    if measured.profile.is_empty() {
        return Ok(());
    }
    writeln!(out, "{}:", measured.name)?;
    let mut table = Table::new(&["step", "times", "ms", "part", "GFLOP/s", "GB/s"]);
    let all: f64 = measured.profile.iter().map(|step| step.seconds).sum();
    for step in &measured.profile {
        table.row([
            step.kind.clone(),
            step.steps.to_string(),
            format!("{:.2}", step.seconds * 1e3),
            format!("{:.1}%", 100.0 * step.seconds / all),
            format!("{:.1}", step.operations / step.seconds / 1e9),
            format!("{:.1}", step.bytes / step.seconds / 1e9),
        ]);
    }
    table.print(out)?;
    Ok(())
}
