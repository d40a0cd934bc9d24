//! `frazil bench MODEL`

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};
use frazil::bert::Head;
use frazil::ops::bench::{Lengths, Measured, Model, Options, Report, Variant, bench};

use super::flags::Flags;
use super::graph_flags::{CutFlags, GraphFlags};
use super::table::Table;
use crate::cli::Outcome;

/// Measure how fast a model runs here
///
/// Padding is not computed: with `--lengths`, batches of different lengths cost what their tokens
/// cost. `--compare` runs several variants in turn, round by round: `packed`, `padded`, `int8`,
/// `scalar`, `avx2`, `avx512`, `avx512vnni`, `threads=N`, joined by `+`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil bench model.ckpt-1000 --batch 8 --seq 128
  frazil bench --random-weights bert-base --batch 8 --lengths squad --compare packed,padded --profile")]
pub struct Args {
    /// The model
    #[arg(required_unless_present = "random_weights")]
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
    /// Threads [default: one for each core]
    #[arg(long)]
    threads: Option<usize>,
    /// Rounds [default: as many as fit in five seconds]
    #[arg(long)]
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
    graph: GraphFlags,
    #[command(flatten)]
    cut: CutFlags,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let isa = args.isa.as_deref().map(str::parse).transpose()?;
    let base = Variant { isa, threads: args.threads, ..Variant::default() };
    let variants: Vec<Variant> = match args.compare.as_slice() {
        [] => vec![Variant { name: "packed".into(), ..base }],
        names => names.iter().map(|name| variant(name, &base)).collect::<Result<_>>()?,
    };
    let options = Options {
        batch: args.batch,
        seq: args.seq,
        lengths: args.lengths.as_deref().map(str::parse::<Lengths>).transpose()?,
        sequences: args.sequences,
        iterations: args.iterations,
        variants,
        profile: args.profile,
    };
    let graph = args.graph.options(args.flags.source(), args.cut.spec()?);
    let model = match (args.model, args.random_weights) {
        (Some(path), _) => Model::File(path, Box::new(graph)),
        (None, Some(size)) => Model::Random(size, graph.head.unwrap_or(Head::Squad)),
        (None, None) => bail!("there is no model"),
    };
    let report = bench(&model, &options)?;
    args.flags.print(&report, out, print)?;
    Ok(Outcome::Done)
}

fn variant(name: &str, base: &Variant) -> Result<Variant> {
    let mut variant = Variant { name: name.to_owned(), ..base.clone() };
    for part in name.split('+') {
        match part {
            "packed" => variant.padded = false,
            "padded" => variant.padded = true,
            "int8" => variant.int8 = true,
            _ => match part.strip_prefix("threads=") {
                Some(threads) => variant.threads = Some(threads.parse()?),
                None => variant.isa = Some(part.parse()?),
            },
        }
    }
    Ok(variant)
}

fn print(report: &Report, out: &mut dyn Write) -> Result<()> {
    let Report { model, sequences, tokens, iterations, .. } = report;
    writeln!(out, "{model}: {sequences} sequences, {tokens} tokens, {iterations} rounds")?;
    for peak in &report.peaks {
        writeln!(
            out,
            "this machine, {} with {} threads: {:.0} GFLOP/s, {:.0} int8 GOP/s, {:.1} GB/s",
            peak.isa, peak.threads, peak.f32_gflops, peak.int8_gops, peak.memory_gbs
        )?;
    }
    let heads = [
        "",
        "isa",
        "threads",
        "median ms",
        "p90 ms",
        "min ms",
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
            speed.threads.to_string(),
            format!("{:.2}", speed.median_ms),
            format!("{:.2}", speed.p90_ms),
            format!("{:.2}", speed.min_ms),
            format!("{:.1}", speed.sequences_per_s),
            format!("{:.0}", speed.tokens_per_s),
            format!("{:.1}", speed.gflops),
            format!("{:.0}%", speed.percent_of_peak),
            format!("{:.2}x", m.speedup),
        ]);
    }
    table.print(out)?;
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
