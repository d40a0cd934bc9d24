//! `cargo xtask mpi`: training by two processes under MPI, on this machine.
//!
//! On the model that frazil carries and made-up text: fifty steps of pre-training and of fine-tuning end with
//! the loss that one process ends with, with the same checkpoints and scores; a rank that cannot go on, or is
//! killed, ends the job with a message that names it, and the last checkpoint is whole. Nothing is
//! installed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use frazil::ops::train::History;
use frazil::source::open_weights;
use frazil::tensor::TensorStore;
use frazil::train::checkpoint::newest;
use serde_json::Value;

use crate::{root, target};

/// How far losses may be apart after all steps.
const TOLERANCE: f64 = 1e-5;
const STEPS: usize = 50;
/// How long a job may take that has to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// Builds frazil with MPI, or takes one that is built, and checks it.
pub fn run(args: &[&str]) -> Result<()> {
    let frazil = match args {
        [] => build()?,
        ["--frazil", program] => PathBuf::from(program).canonicalize().context("`--frazil`")?,
        _ => bail!("mpi takes `--frazil PROGRAM` at most"),
    };
    let folder = target().join("mpi");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let world = World { frazil, folder: folder.canonicalize()? };
    world.prepare()?;
    world.pretraining()?;
    world.by_mlperfs_rules()?;
    world.finetuning()?;
    world.one_that_fails()?;
    world.one_that_is_killed()?;
    println!("two processes under MPI train as one does");
    Ok(())
}

fn build() -> Result<PathBuf> {
    let missing = |program: &str| Command::new(program).arg("--version").output().is_err();
    if missing("mpirun") || missing("mpicc") {
        bail!(
            "Open MPI is missing: `apt-get install openmpi-bin libopenmpi-dev libclang-dev` has it on Debian"
        );
    }
    // With a test among the targets, features of libraries are those that everything else is built with.
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .current_dir(root())
        .args(["build", "--workspace", "--bin", "frazil", "--test", "many"])
        .args(["--features", "frazil/mpi"])
        .env("CARGO_TARGET_DIR", target())
        .status()
        .context("cargo")?;
    ensure!(status.success(), "frazil cannot be built with MPI; libclang may be missing");
    // The next build without MPI would take its place.
    let (built, kept) = (target().join("debug/frazil"), target().join("frazil-mpi"));
    fs::copy(&built, &kept).with_context(|| format!("`{}`", built.display()))?;
    Ok(kept.canonicalize()?)
}

struct World {
    frazil: PathBuf,
    folder: PathBuf,
}

/// What a command said.
struct Said {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl World {
    /// `ranks` processes, or one without MPI.
    fn command(&self, ranks: usize) -> Command {
        let mut command = match ranks {
            1 => Command::new(&self.frazil),
            _ => {
                let mut command = Command::new("mpirun");
                command.args(["-n", &ranks.to_string(), "--oversubscribe", "--bind-to", "none"]);
                command.arg("--allow-run-as-root").arg(&self.frazil);
                command
            }
        };
        command.current_dir(&self.folder).env("FRAZIL_THREADS", "1").stdin(Stdio::null());
        command
    }

    fn say(&self, ranks: usize, args: &[&str]) -> Result<Said> {
        let done = self.command(ranks).args(args).output()?;
        Ok(Said {
            code: done.status.code(),
            stdout: String::from_utf8_lossy(&done.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }

    fn done(&self, ranks: usize, args: &[&str]) -> Result<Said> {
        let said = self.say(ranks, args)?;
        ensure!(said.code == Some(0), "{ranks} x `{}`:\n{}", args.join(" "), said.stderr);
        Ok(said)
    }

    /// The model, text to pre-train on, and pairs of sentences to tell apart.
    fn prepare(&self) -> Result<()> {
        self.done(1, &["demo"])?;
        let subjects = ["the river", "the city", "the company", "a man", "the water", "the ice"];
        let verbs = ["was cold", "met again", "went down", "was founded", "had formed", "found it"];
        let times = ["in the night", "that morning", "in 1894", "on Thursday", "in the port"];
        let sentence = |n: usize| {
            let (s, v, t) = (n % 6, n / 6 % 6, n / 36 % 5);
            format!("{} {} {}", subjects[s], verbs[v], times[t])
        };
        let document = |d: usize| -> String {
            (0..8).map(|n| sentence(d * 29 + n * 13) + ".\n").collect::<String>() + "\n"
        };
        fs::write(self.folder.join("text.txt"), (0..20).map(document).collect::<String>())?;
        self.done(
            1,
            &[
                "create_pretraining_data",
                "--input_file=text.txt",
                "--output_file=text.tfrecord",
                "--vocab_file=frazil-demo/vocab.txt",
                "--max_seq_length=48",
                "--max_predictions_per_seq=8",
                "--dupe_factor=4",
                "--quiet",
            ],
        )?;
        let data = self.folder.join("MRPC");
        fs::create_dir_all(&data)?;
        for (file, rows) in [("train.tsv", 160), ("dev.tsv", 41)] {
            let row = |n: usize| {
                let same = n % 2;
                let other = if same == 1 { sentence(n) } else { sentence(n * 7 + 5) };
                format!("{same}\t{n}\t{n}\t{}\t{other} again\n", sentence(n))
            };
            let head = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n".to_owned();
            fs::write(data.join(file), head + &(0..rows).map(row).collect::<String>())?;
        }
        Ok(())
    }

    fn pretrain<'a>(&self, folder: &'a str, steps: &'a str, save: &'a str) -> Vec<String> {
        let flags = [
            ("input_file", "text.tfrecord"),
            ("output_dir", folder),
            ("bert_config_file", "frazil-demo/bert_config.json"),
            ("init_checkpoint", "frazil-demo/bert_model.ckpt"),
            ("do_train", "true"),
            ("do_eval", "true"),
            ("train_batch_size", "8"),
            ("max_seq_length", "48"),
            ("max_predictions_per_seq", "8"),
            ("num_train_steps", steps),
            ("num_warmup_steps", "5"),
            ("learning_rate", "1e-4"),
            ("save_checkpoints_steps", save),
            ("max_eval_steps", "9"),
        ];
        let flags = flags.iter().map(|(name, value)| format!("--{name}={value}"));
        std::iter::once("run_pretraining".to_owned()).chain(flags).collect()
    }

    fn pretraining(&self) -> Result<()> {
        let steps = STEPS.to_string();
        let mut said = Vec::new();
        for ranks in [1, 2] {
            let args = self.pretrain(["pre1", "pre2"][ranks - 1], &steps, "25");
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            said.push(self.done(ranks, &args)?.stderr);
        }
        let [one, two] = [loss(&said[0], STEPS)?, loss(&said[1], STEPS)?];
        let begun = loss(&said[0], 1)?;
        println!(
            "pre-training: loss {begun:.4}, after {STEPS} steps {one:.7} by one, {two:.7} by two"
        );
        ensure!((one - two).abs() <= TOLERANCE, "the losses are {:e} apart", (one - two).abs());
        ensure!(one < begun, "nothing was learnt");
        let log = said[1].matches("***** Running training *****").count();
        ensure!(log == 1, "the training was announced {log} times");
        self.same_checkpoint("pre1", "pre2")?;
        let scores =
            |folder: &str| fs::read_to_string(self.folder.join(folder).join("eval_results.txt"));
        for (a, b) in scores("pre1")?.lines().zip(scores("pre2")?.lines()) {
            let number = |line: &str| line.rsplit(' ').next().and_then(|x| x.parse::<f64>().ok());
            let [a, b] = [a, b].map(|line| number(line).context(line.to_owned()));
            let (a, b) = (a?, b?);
            ensure!((a - b).abs() <= 1e-4, "an evaluation gives {a} by one and {b} by two");
        }
        Ok(())
    }

    /// `frazil pretrain`, with LAMB, an evaluation at its end and a log.
    fn by_mlperfs_rules(&self) -> Result<()> {
        let steps = STEPS.to_string();
        let mut losses = Vec::new();
        let mut accuracies = Vec::new();
        for ranks in [1, 2] {
            let folder = format!("rules{ranks}");
            let settings = [
                // Large enough for several buckets of gradients, so that both own weights.
                ("num-layers", "3"),
                ("hidden-size", "256"),
                ("attention-heads", "4"),
                ("vocab-length", "307"),
                ("sequence-length", "48"),
                ("mask-tokens", "8"),
                // Shared by two all the same: several of these batches at once.
                ("batch-size", "1"),
                ("gradient-accumulation-factor", "8"),
                ("optimizer", "LAMB_NO_BIAS"),
                ("learning-rate", "1e-3"),
                ("input-files", "text.tfrecord"),
                ("on-the-spot-validation-files", "text.tfrecord"),
                ("on-the-spot-validation-triggers", "392"),
                ("target-accuracy", "0.01"),
                ("max-steps", &steps),
                ("checkpoint-dir", &folder),
                ("results", &folder),
            ];
            let flags: Vec<String> =
                settings.iter().map(|(name, value)| format!("--{name}={value}")).collect();
            let words: Vec<&str> =
                ["pretrain"].into_iter().chain(flags.iter().map(String::as_str)).collect();
            self.done(ranks, &words)?;
            let folder = self.folder.join(&folder);
            let history = History::read(&folder)?;
            let curve: Vec<(f64, f64)> = history.curve("loss").collect();
            losses.push(curve.last().context("no loss")?.1);
            let log = fs::read_to_string(folder.join("bert/result_1.txt"))?;
            let line = log.lines().find(|line| line.contains(r#""key": "eval_accuracy""#));
            let line =
                line.and_then(|line| line.strip_prefix(":::MLLOG ")).context("no accuracy")?;
            let line: Value = serde_json::from_str(line)?;
            accuracies.push(line["value"].as_f64().context("no number")?);
        }
        println!(
            "by MLPerf's rules: after {STEPS} steps {:.7} by one, {:.7} by two",
            losses[0], losses[1]
        );
        ensure!((losses[0] - losses[1]).abs() <= TOLERANCE, "the losses are apart: {losses:?}");
        ensure!((accuracies[0] - accuracies[1]).abs() <= 1e-4, "the scores: {accuracies:?}");
        self.same_checkpoint("rules1", "rules2")
    }

    fn finetuning(&self) -> Result<()> {
        let mut losses = Vec::new();
        let mut evaluations = Vec::new();
        for ranks in [1, 2] {
            let output = format!("--output_dir=run{ranks}");
            // 160 pairs in batches of 16, five times: 50 steps.
            let said = self.done(
                ranks,
                &[
                    "run_classifier",
                    "--task_name=mrpc",
                    "--do_train=true",
                    "--data_dir=MRPC",
                    "--vocab_file=frazil-demo/vocab.txt",
                    "--bert_config_file=frazil-demo/bert_config.json",
                    "--init_checkpoint=frazil-demo/bert_model.ckpt",
                    "--max_seq_length=48",
                    "--train_batch_size=16",
                    "--num_train_epochs=5",
                    "--learning_rate=1e-4",
                    &output,
                ],
            )?;
            losses.push(loss(&said.stderr, STEPS)?);
            let output = format!("fine{ranks}");
            let said = self.done(
                ranks,
                &[
                    "finetune",
                    "classifier",
                    "frazil-demo",
                    "--task",
                    "mrpc",
                    "--data",
                    "MRPC",
                    "--epochs",
                    "2",
                    "--batch-size",
                    "16",
                    "--save-every",
                    "10",
                    "--max-seq-length",
                    "48",
                    "--json",
                    "-o",
                    &output,
                ],
            )?;
            let report: Value = serde_json::from_str(&said.stdout).context("one report")?;
            evaluations.push(report["evaluations"].clone());
        }
        println!(
            "fine-tuning: after {STEPS} steps {:.7} by one, {:.7} by two",
            losses[0], losses[1]
        );
        ensure!((losses[0] - losses[1]).abs() <= TOLERANCE, "the losses are apart: {losses:?}");
        self.same_checkpoint("run1", "run2")?;
        let [one, two] = [&evaluations[0], &evaluations[1]].map(|list| list.as_array().cloned());
        let (one, two) = (one.unwrap_or_default(), two.unwrap_or_default());
        ensure!(!one.is_empty() && one.len() == two.len(), "{one:?} {two:?}");
        for (a, b) in one.iter().zip(&two) {
            for name in ["eval_accuracy", "eval_loss"] {
                let [a, b] = [a, b].map(|of| of["scores"][name].as_f64().unwrap_or(f64::NAN));
                ensure!((a - b).abs() <= 1e-4, "{name}: {a} by one, {b} by two");
            }
        }
        Ok(())
    }

    /// The last checkpoints of two folders: the same tensors, and about the same numbers.
    fn same_checkpoint(&self, one: &str, two: &str) -> Result<()> {
        let open = |folder: &str| -> Result<_> {
            let prefix = newest(&self.folder.join(folder))?.context("no checkpoint")?;
            Ok(open_weights(self.folder.join(prefix), &Default::default())?)
        };
        let (one, two) = (open(one)?, open(two)?);
        ensure!(one.infos() == two.infos(), "the checkpoints have other tensors");
        for info in one.infos().iter().filter(|info| !info.name.contains("key/bias")) {
            let (a, b) = (one.read(&info.name)?.to_f64()?, two.read(&info.name)?.to_f64()?);
            let largest = a.iter().fold(1e-12f64, |largest, x| largest.max(x.abs()));
            let off = a.iter().zip(&b).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
            ensure!(off <= 1e-2 * largest, "`{}`: {off} of {largest}", info.name);
        }
        Ok(())
    }

    fn one_that_fails(&self) -> Result<()> {
        let mut args = self.pretrain("bad", "10", "10");
        args.push("--train_batch_size=7".to_owned());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let said = self.say(2, &args)?;
        ensure!(said.code.is_some_and(|code| code != 0), "a batch of 7 was shared by 2");
        let named = said.stderr.contains("of 2 cannot go on");
        ensure!(named && said.stderr.contains("no 2 equal parts"), "{}", said.stderr);
        Ok(())
    }

    fn one_that_is_killed(&self) -> Result<()> {
        let mut command = self.command(2);
        command.args(self.pretrain("killed", "1000000", "10"));
        let log = self.folder.join("killed.log");
        command.stdout(Stdio::null()).stderr(fs::File::create(&log)?);
        let mut job = Job(command.spawn()?);
        let folder = self.folder.join("killed");
        let start = Instant::now();
        let first = self.folder.join("killed/model.ckpt-20.index");
        while !first.is_file() {
            ensure!(start.elapsed() < PATIENCE, "no checkpoint: {}", fs::read_to_string(&log)?);
            sleep(Duration::from_millis(5));
        }
        let victim = rank(job.0.id(), 1).context("rank 1 is not to be found")?;
        let status = Command::new("kill").args(["-9", &victim.to_string()]).status()?;
        ensure!(status.success(), "rank 1 cannot be killed");
        let start = Instant::now();
        let status = loop {
            if let Some(status) = job.0.try_wait()? {
                break status;
            }
            ensure!(start.elapsed() < PATIENCE, "the job goes on without rank 1");
            sleep(Duration::from_millis(20));
        };
        let said = fs::read_to_string(&log)?;
        ensure!(!status.success(), "the job ended as if nothing had been");
        ensure!(said.contains("rank 1"), "no word about rank 1:\n{said}");
        let prefix = newest(&folder)?.context("no checkpoint is named")?;
        let state = open_weights(self.folder.join(&prefix), &Default::default())?;
        for info in state.infos().to_vec() {
            state.read(&info.name)?;
        }
        let step = state.read("global_step")?.to_f64()?[0] as u64;
        println!("rank 1 killed: the job ended, `{}` is whole", prefix.display());
        // One process goes on from there.
        let more = (step + 5).to_string();
        let args = self.pretrain("killed", &more, "1000");
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        self.done(1, &args)?;
        let last = newest(&folder)?.context("no checkpoint is named")?;
        ensure!(last.to_string_lossy().ends_with(&more), "it went on to `{}`", last.display());
        Ok(())
    }
}

/// Ends with whoever started it.
struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The loss that Estimator's log tells of a step.
fn loss(log: &str, step: usize) -> Result<f64> {
    let wanted = format!(", step = {step} ");
    let line = log.lines().find(|line| line.contains(&wanted));
    let loss = line.and_then(|line| line.split("loss = ").nth(1)?.split(',').next());
    let loss = loss.and_then(|loss| loss.parse().ok());
    loss.with_context(|| format!("no loss of step {step}:\n{log}"))
}

/// The process of a rank among the children of `mpirun`.
fn rank(parent: u32, rank: usize) -> Option<u32> {
    let wanted = format!("OMPI_COMM_WORLD_RANK={rank}");
    let is_it = |folder: &Path| {
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let of: u32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        let environment = fs::read(folder.join("environ")).ok()?;
        let found = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        (of == parent && found).then_some(())
    };
    let entries = fs::read_dir("/proc").ok()?.flatten();
    entries.map(|entry| entry.path()).find_map(|path| {
        is_it(&path)?;
        path.file_name()?.to_str()?.parse().ok()
    })
}
