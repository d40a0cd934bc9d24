//! Pre-training on real text: how fast the loss falls, and what padding costs.
//!
//! The model has 2 layers of width 128 with Google's uncased vocabulary; the text is the Wikipedia
//! sample of MLPerf's reference. First the original's setting at length 128 (batch 32, rate 1e-3, 300
//! steps of warm-up of 5,000). Then the same text at 512, cut to the lengths of MLPerf's Wikipedia
//! set: the same batches, dropout and all, in turns once without padding and once as the original
//! computes records: 512 pieces of each sequence, 76 masked ones, whatever of them is padding.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use frazil::bert::features::{Features, Frame, Masked, PretrainingFeatures};
use frazil::bert::samples::writer::{Format, SampleWriter};
use frazil::bert::samples::{Sample, SampleFile, Shape};
use frazil::ops::train::History;
use serde::Serialize;
use serde_json::Value;

use super::report::{Comparison, Measure, Record, median, output};
use crate::peers::python::Base;

const TEXT: &str = "data/wiki/mlcommons_sample";
const VOCABULARY: &str = "data/vocab/bert_uncased_vocab.txt";
const HISTOGRAM: &str = "data/histograms/wikipedia_histogram.csv";
/// Says what time it is.
const SCRIPT: &str = "bench_squad.py";
const STEPS: u64 = 5000;
/// Steps whose mean loss counts.
const WINDOW: u64 = 100;
/// Steps of each run with and without padding.
const COMPARED: u64 = 40;
const GOAL_LOSS: f64 = 6.6;
const GOAL_MINUTES: f64 = 20.0;
const GOAL_PADDING: f64 = 0.6;

/// `[CLS]` and `[SEP]` of Google's vocabularies.
const FRAME: Frame = Frame { cls: 101, sep: 102 };

#[derive(Serialize)]
struct Curve {
    sequences: Value,
    /// Mean losses of windows: the last step of each, and the minutes until then.
    curve: Vec<(u64, f64, f64)>,
}

#[derive(Serialize)]
struct Lengths {
    sequences: usize,
    mean_length: f64,
    longest: usize,
}

/// A number behind a flag.
fn number<'a, T: std::str::FromStr + PartialOrd + Default>(
    flag: &str,
    args: &mut impl Iterator<Item = &'a &'a str>,
) -> Result<T> {
    let number = args.next().and_then(|value| value.parse().ok()).filter(|n| *n > T::default());
    number.with_context(|| format!("`{flag}` needs a number from 1"))
}

/// How fast the loss falls.
pub fn learn(args: &[&str]) -> Result<()> {
    let (mut steps, mut quick) = (STEPS, false);
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        match arg {
            "--quick" => (quick, steps) = (true, 2 * WINDOW),
            "--steps" => steps = number(arg, &mut args)?,
            other => bail!("no option `{other}`"),
        }
    }
    let bench = Bench::prepare()?;
    let sequences = bench.records("wiki_128", 128, 20, 5)?;
    let curve = bench.learn(steps)?;
    let mut step = Measure::new("step", "s", "a step of 32 sequences, all of the run on average");
    step.add(curve.last().map_or(f64::NAN, |(step, _, minutes)| minutes * 60.0 / *step as f64));
    let below = curve.iter().find(|(_, loss, _)| *loss < GOAL_LOSS);
    let minutes = below.map_or(f64::INFINITY, |(_, _, minutes)| *minutes);
    let goal = Comparison::at_most("minutes until the loss is below 6.6", minutes, GOAL_MINUTES);
    let (mut info, subject) = (bench.base.script(SCRIPT), Curve { sequences, curve });
    let record = Record::new("pretrain", &mut info, &[], subject, [step], vec![goal])?;
    record.finish(!quick && steps == STEPS)
}

/// What padding costs.
pub fn padding(args: &[&str]) -> Result<()> {
    let (mut rounds, mut quick) = (3, false);
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        match arg {
            "--quick" => (quick, rounds) = (true, 1),
            "--rounds" => rounds = number(arg, &mut args)?,
            other => bail!("no option `{other}`"),
        }
    }
    let bench = Bench::prepare()?;
    let (cut, subject) = bench.cut()?;
    let mut measures = [
        Measure::new("packed", "s", "steps of 16 sequences at 512, padding left out"),
        Measure::new(
            "padded",
            "s",
            "the same steps, padding computed: 512 pieces and 76 masked ones of each",
        ),
    ];
    let mut apart: f64 = 0.0;
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        let (packed, seconds) = bench.compared(&cut, true)?;
        measures[0].add(seconds);
        let (padded, seconds) = bench.compared(&cut, false)?;
        measures[1].add(seconds);
        ensure!(packed.len() == padded.len() && !packed.is_empty(), "the runs differ in steps");
        for (packed, padded) in packed.iter().zip(&padded) {
            apart = apart.max((packed - padded).abs());
        }
    }
    let ratio = median(&measures, "packed") / median(&measures, "padded");
    let comparisons = vec![
        Comparison::at_most("time without padding, of that with it", ratio, GOAL_PADDING),
        Comparison::at_most("largest difference of their losses", apart, 1e-3),
    ];
    let mut info = bench.base.script(SCRIPT);
    Record::new("padding", &mut info, &[], subject, measures, comparisons)?.finish(!quick)
}

struct Bench {
    program: PathBuf,
    base: Base,
    shared: PathBuf,
    folder: PathBuf,
}

impl Bench {
    fn prepare() -> Result<Self> {
        let built = Command::new("cargo")
            .args(["build", "--release", "--workspace", "--bin", "frazil"])
            .current_dir(crate::root())
            .status()?;
        ensure!(built.success(), "`cargo build --release` failed");
        let shared = crate::root().join("../shared");
        for name in [TEXT, VOCABULARY, HISTOGRAM] {
            ensure!(shared.join(name).exists(), "`{}` is missing", shared.join(name).display());
        }
        let folder = crate::target().join("bench/pretrain");
        fs::create_dir_all(&folder)?;
        let name = format!("release/frazil{}", std::env::consts::EXE_SUFFIX);
        let program = crate::target().join(name);
        Ok(Self { program, base: Base::find(None)?, shared, folder })
    }

    /// Makes records of the text, and gives the report.
    fn records(
        &self,
        name: &str,
        length: usize,
        masked: usize,
        duplicates: usize,
    ) -> Result<Value> {
        let mut command = Command::new(&self.program);
        command
            .arg("create_pretraining_data")
            .arg(format!("--input_file={}/wiki_*", self.shared.join(TEXT).display()))
            .arg(format!("--output_file={}", self.path(name).display()))
            .arg(format!("--vocab_file={}", self.shared.join(VOCABULARY).display()))
            .arg(format!("--max_seq_length={length}"))
            .arg(format!("--max_predictions_per_seq={masked}"))
            .arg(format!("--dupe_factor={duplicates}"))
            .args(["--quiet", "--json"]);
        let report: Value = serde_json::from_str(&output(&mut command)?.0)?;
        Ok(report["instances"].clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.tfrecord"))
    }

    /// The original's setting; the loss of each window, and when it was over.
    fn learn(&self, steps: u64) -> Result<Vec<(u64, f64, f64)>> {
        let out = self.empty("learn")?;
        let config = self.folder.join("bert_config.json");
        let text = r#"{"vocab_size": 30522, "hidden_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 512, "hidden_act": "gelu",
            "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
            "max_position_embeddings": 512, "type_vocab_size": 2, "initializer_range": 0.02}"#;
        fs::write(&config, text)?;
        let mut command = Command::new(&self.program);
        command
            .args(["run_pretraining", "--do_train=true", "--train_batch_size=32"])
            .args(["--learning_rate=1e-3", "--num_warmup_steps=300"])
            .arg(format!("--num_train_steps={steps}"))
            .arg(format!("--input_file={}", self.path("wiki_128").display()))
            .arg(format!("--bert_config_file={}", config.display()))
            .arg(format!("--output_dir={}", out.display()));
        output(&mut command)?;
        windows(&History::read(&out)?, WINDOW)
    }

    /// The text at 512, each sample cut so that lengths are those of the histogram.
    fn cut(&self) -> Result<(PathBuf, Lengths)> {
        self.records("wiki_512", 512, 76, 1)?;
        let file = SampleFile::open(self.path("wiki_512"), Shape::default())?;
        let mut samples: Vec<(usize, PretrainingFeatures)> = Vec::new();
        for (place, sample) in file.iter().enumerate() {
            match sample?.pop() {
                Some(Sample::Pretraining(sample)) => samples.push((place, sample)),
                other => bail!("no sample to pre-train on: {other:?}"),
            }
        }
        let lengths = drawn(&fs::read_to_string(self.shared.join(HISTOGRAM))?, samples.len())?;
        // The longest samples get the largest lengths; then the text is in its order again.
        samples.sort_by_key(|(_, sample)| sample.features.len());
        for ((_, sample), length) in samples.iter_mut().zip(&lengths) {
            *sample = shortened(sample, *length);
        }
        samples.sort_by_key(|(place, _)| *place);
        let path = self.path("cut");
        let mut writer = SampleWriter::create(&path, Format::Records)?;
        let (mut tokens, mut longest) = (0, 0);
        let sequences = samples.len();
        for (_, sample) in samples {
            tokens += sample.features.len();
            longest = longest.max(sample.features.len());
            writer.add(&[Sample::Pretraining(sample)])?;
        }
        writer.finish()?;
        let mean_length = tokens as f64 / sequences as f64;
        Ok((path, Lengths { sequences, mean_length, longest }))
    }

    /// A short run: the losses, and the seconds of its steps.
    fn compared(&self, records: &Path, packed: bool) -> Result<(Vec<f64>, f64)> {
        let name = if packed { "packed" } else { "padded" };
        let out = self.empty(name)?;
        let mut command = Command::new(&self.program);
        command
            .args(["pretrain", "--json", "--quiet", "--optimizer", "ADAM_NO_BIAS", "--shuffle"])
            .args(["--num-layers", "2", "--hidden-size", "128", "--attention-heads", "2"])
            .args(["--vocab-length", "30522", "--sequence-length", "512", "--mask-tokens", "76"])
            .args(["--batch-size", "16", "--learning-rate", "1e-4", "--weight-decay", "0.01"])
            .args(["--loss-averaging-basis", "pertoken", "--loss-scaling", "1"])
            .args(["--max-steps", &COMPARED.to_string(), "--packed", &packed.to_string()])
            .arg("--input-files")
            .arg(records)
            .arg("--checkpoint-dir")
            .arg(&out)
            .arg("--results")
            .arg(&out);
        output(&mut command)?;
        let history = History::read(&out)?;
        let losses = history.curve("loss").map(|(_, loss)| loss).collect();
        // The first step makes room for all others.
        let seconds = history.curve("global_step/sec").skip(1).map(|(_, speed)| 1.0 / speed).sum();
        Ok((losses, seconds))
    }

    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        Ok(folder)
    }
}

/// Means over windows of steps, from points that are means over fewer.
fn windows(history: &History, window: u64) -> Result<Vec<(u64, f64, f64)>> {
    let speeds: BTreeMap<u64, f64> =
        history.curve("global_step/sec").map(|(step, speed)| (step as u64, speed)).collect();
    let (mut all, mut losses, mut seconds, mut before) = (Vec::new(), Vec::new(), 0.0, 0);
    for (step, loss) in history.curve("loss") {
        let step = step as u64;
        let speed = speeds.get(&step).context("a point without its speed")?;
        seconds += (step - before) as f64 / speed;
        before = step;
        losses.push(loss);
        if step.is_multiple_of(window) {
            all.push((step, losses.iter().sum::<f64>() / losses.len() as f64, seconds / 60.0));
            losses.clear();
        }
    }
    Ok(all)
}

/// So many lengths, spread as the histogram has them, in ascending order.
fn drawn(histogram: &str, count: usize) -> Result<Vec<usize>> {
    let mut rows = Vec::new();
    for line in histogram.lines() {
        let pair = line.split_once(',').map(|(l, c)| (l.trim().parse(), c.trim().parse()));
        if let Some((Ok(length), Ok(number))) = pair {
            let (length, number): (usize, u64) = (length, number);
            rows.push((length, number));
        }
    }
    rows.sort_unstable();
    let all: u64 = rows.iter().map(|(_, number)| number).sum();
    ensure!(all > 0, "the histogram is empty");
    let (mut row, mut passed) = (0, rows[0].1);
    let mut lengths = Vec::with_capacity(count);
    for at in 0..count as u64 {
        let place = (2 * at + 1) * all / (2 * count as u64);
        while place >= passed {
            row += 1;
            passed += rows[row].1;
        }
        lengths.push(rows[row].0);
    }
    Ok(lengths)
}

/// A sample of at most this length: both texts lose their ends.
fn shortened(sample: &PretrainingFeatures, length: usize) -> PretrainingFeatures {
    let features = &sample.features;
    if features.len() <= length {
        return sample.clone();
    }
    let old = features.first_segment();
    let (first, second) = (&features.ids()[1..old - 1], &features.ids()[old..features.len() - 1]);
    let room = length.saturating_sub(3).max(2);
    let of_second = (room * second.len() / (first.len() + second.len())).clamp(1, room - 1);
    let of_second = of_second.min(second.len());
    let of_first = (room - of_second).min(first.len());
    let new = of_first + 2;
    let place = |masked: &Masked| {
        let at = masked.position as usize;
        match at {
            at if (1..=of_first).contains(&at) => Some(at),
            at if at >= old && at - old < of_second => Some(at - old + new),
            _ => None,
        }
    };
    let masked = sample
        .masked
        .iter()
        .filter_map(|masked| Some(Masked { position: place(masked)? as u32, ..*masked }));
    let (first, second) = (&first[..of_first], &second[..of_second]);
    PretrainingFeatures {
        masked: masked.collect(),
        features: Features::new(FRAME, first, Some(second), features.padded_len()),
        ..sample.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_spread_as_in_the_histogram() {
        let lengths = drawn("length,count\n5,1\n7,2\n9,1\n", 8).unwrap();
        assert_eq!(lengths, [5, 5, 7, 7, 7, 7, 9, 9]);
        assert!(drawn("nothing", 3).is_err());
    }

    #[test]
    fn samples_lose_the_ends_of_both_texts() {
        let masked = |position: u32| Masked { position, id: 50 + position as i32, weight: 1.0 };
        let sample = PretrainingFeatures {
            features: Features::new(FRAME, &[1, 2, 3, 4], Some(&[11, 12, 13, 14]), 16),
            masked: vec![masked(1), masked(4), masked(6), masked(9)],
            max_predictions: 5,
            is_random_next: true,
        };
        let short = shortened(&sample, 7);
        assert_eq!(short.features.ids(), [101, 1, 2, 102, 11, 12, 102]);
        let left: Vec<(u32, i32)> = short.masked.iter().map(|m| (m.position, m.id)).collect();
        assert_eq!(left, [(1, 51), (4, 56)]);
        assert_eq!(shortened(&sample, 11), sample);
    }
}
