//! The arms: an engine with a precision and a model in a process of its own, which answers a line of
//! JSON to each line of JSON. Adding an engine is adding a row to [`ENGINES`].

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::workload::Door;
use crate::peers::python::{self, Python, Requirements};

/// What numbers an arm computes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32-bit floating point.
    F32,
    /// Weights and activations of 8 bits in the linear layers.
    Int8,
}

impl Precision {
    /// As in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }
}

/// Where an engine runs.
#[derive(Clone, Copy)]
pub enum Home {
    /// `benchmarks/arms`, under a feature of the engine's name.
    Rust,
    /// A script in `xtask/peers/arms`.
    Python(&'static str, Requirements),
}

/// An engine.
pub struct Engine {
    /// On the command line and in records.
    pub name: &'static str,
    /// Where it runs.
    pub home: Home,
    /// What it can.
    pub precisions: &'static [Precision],
    /// How it takes sequences of different lengths.
    pub door: Door,
    /// Whether it takes part unasked.
    pub usual: bool,
    /// Whether it can run many shapes in little time.
    pub lists: bool,
    /// Memory that it takes at most, as a multiple of the model's float32 weights.
    memory: f64,
}

const F32: &[Precision] = &[Precision::F32];
const BOTH: &[Precision] = &[Precision::F32, Precision::Int8];

const fn rust(name: &'static str, memory: f64) -> Engine {
    let (home, door) = (Home::Rust, Door::Padded);
    Engine { name, home, precisions: F32, door, usual: true, lists: true, memory }
}

const fn python(
    name: &'static str,
    script: &'static str,
    requirements: Requirements,
    precisions: &'static [Precision],
    memory: f64,
) -> Engine {
    let (home, door) = (Home::Python(script, requirements), Door::Padded);
    Engine { name, home, precisions, door, usual: true, lists: true, memory }
}

const fn asked(engine: Engine) -> Engine {
    Engine { usual: false, ..engine }
}

/// All of them, frazil first.
pub static ENGINES: [Engine; 8] = [
    Engine { door: Door::Packed, precisions: BOTH, ..rust(OURS, 2.5) },
    python("openvino", "arms/run_openvino.py", python::SPEED, BOTH, 4.0),
    python("onnxruntime", "arms/run_onnxruntime.py", python::SPEED, BOTH, 2.5),
    rust("rten", 3.0),
    // Those that are never first take part if they are asked for. PyPI's PyTorch also brings gigabytes
    // of CUDA along, which it does not start without.
    asked(python("tensorflow", "arms/run_tensorflow.py", python::TENSORFLOW, F32, 4.0)),
    asked(python("torch", "arms/run_torch.py", python::PYTORCH, F32, 4.0)),
    asked(Engine { lists: false, ..rust("tract", 4.0) }),
    asked(rust("candle", 3.0)),
];

/// The arm that all are compared with.
pub const OURS: &str = "frazil";

/// How long an arm may take to load and to answer.
const PATIENCE: Duration = Duration::from_secs(1800);
/// What an engine's threads may do after an answer before another arm is asked.
const SETTLE: Duration = Duration::from_millis(30);

/// The first line of an arm.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hello {
    /// The engine's.
    pub version: String,
    /// To load the model; preparing files is not counted.
    pub load_seconds: f64,
    /// To load it and to run 1 x 128 once.
    pub first_seconds: f64,
    /// Kernels and the like.
    pub about: Value,
}

/// The answer to a request.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(default)]
    seconds: Vec<f64>,
    #[serde(default)]
    outputs: Vec<f32>,
    error: Option<String>,
}

/// A running arm. Dropping it ends the process.
pub struct Arm {
    /// The engine.
    pub engine: &'static Engine,
    /// What it computes with.
    pub precision: Precision,
    /// What it said of itself.
    pub hello: Hello,
    /// Resident memory after the first answer, in MB.
    pub resident_mb: f64,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<std::io::Result<String>>,
    /// CPU seconds at the end of the last answer, and all that were used between answers.
    at_rest: f64,
    idle: f64,
}

/// What is needed to start arms.
pub struct Starter {
    /// The program of `benchmarks/arms`, where a Rust engine is wanted.
    pub rust: Option<PathBuf>,
    /// The environments, by the name of their pins.
    pub pythons: Vec<(&'static str, Python)>,
    /// Of each arm.
    pub threads: usize,
    /// Where arms write what they say besides.
    pub logs: PathBuf,
}

impl Starter {
    /// Starts an engine and waits until it has loaded the model in `folder`, whose weights have
    /// that many bytes. The error says why it cannot.
    pub fn start(
        &self,
        engine: &'static Engine,
        precision: Precision,
        folder: &Path,
        bytes: u64,
    ) -> Result<Arm> {
        let needed = (bytes as f64 * engine.memory) as u64 + (300 << 20);
        let free = available_memory().unwrap_or(u64::MAX);
        ensure!(free >= needed, "{} MB of memory are free, {} needed", free >> 20, needed >> 20);
        let log = self.logs.join(format!("{}-{}.log", engine.name, precision.name()));
        let last = || {
            let said = fs::read_to_string(&log).unwrap_or_default();
            format!("it says: {}", said.lines().last().unwrap_or("nothing"))
        };
        // Engines that quantize write their files in a process of their own.
        let mark = folder.join(format!("{}-{}.prepared", engine.name, precision.name()));
        let of = prepared_by(engine);
        let done = of.is_some() && fs::read_to_string(&mark).ok() == of;
        if engine.precisions.contains(&Precision::Int8) && !done {
            let mut command = self.command(engine, precision, folder)?;
            let log = fs::File::create(&log)?;
            command.arg("prepare").stdout(log.try_clone()?).stderr(log).stdin(Stdio::null());
            let status = command.status().with_context(|| format!("starting {command:?}"))?;
            ensure!(status.success(), "it cannot prepare the model; {}", last());
            if let Some(of) = of {
                fs::write(&mark, of)?;
            }
        }
        let mut command = self.command(engine, precision, folder)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(&log)?)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("stdout is piped")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let nothing = Value::Null;
        let hello =
            Hello { version: String::new(), load_seconds: 0.0, first_seconds: 0.0, about: nothing };
        let (at_rest, idle, resident_mb) = (0.0, 0.0, 0.0);
        let mut arm =
            Arm { engine, precision, hello, resident_mb, child, stdin, lines, at_rest, idle };
        let line = arm.line().with_context(last)?;
        arm.hello = serde_json::from_str(&line).with_context(|| format!("it said `{line}`"))?;
        if engine.name == OURS {
            // Its arm is a package with a version of its own; frazil's is xtask's.
            arm.hello.version = env!("CARGO_PKG_VERSION").to_owned();
        }
        arm.rest();
        arm.resident_mb = arm.status_mb("VmRSS:");
        Ok(arm)
    }

    fn command(&self, engine: &Engine, precision: Precision, folder: &Path) -> Result<Command> {
        let mut command = match engine.home {
            Home::Rust => {
                let program = self.rust.as_ref().context("`benchmarks/arms` is not built")?;
                let mut command = Command::new(program);
                command.arg(engine.name);
                command
            }
            Home::Python(script, requirements) => {
                let python = self.pythons.iter().find(|(name, _)| *name == requirements.name);
                let (_, python) = python.context("its environment is not there")?;
                let mut command = python.script(script);
                // As TensorFlow comes: this is about speed. Agreement is checked.
                command.env("TF_ENABLE_ONEDNN_OPTS", "1");
                command
            }
        };
        command.arg(precision.name()).arg(folder).arg(self.threads.to_string());
        Ok(command)
    }
}

impl Arm {
    /// `openvino int8`, for people.
    pub fn name(&self) -> String {
        format!("{} {}", self.engine.name, self.precision.name())
    }

    /// Seconds of each timed run.
    pub fn seconds(&mut self, request: &Value) -> Result<Vec<f64>> {
        Ok(self.ask(request)?.seconds)
    }

    /// The logits of real positions.
    pub fn outputs(&mut self, request: &Value) -> Result<Vec<f32>> {
        Ok(self.ask(request)?.outputs)
    }

    /// What the machine can do at most, by the one engine that knows.
    pub fn peaks(&mut self) -> Result<Value> {
        let line = self.exchange(&serde_json::json!({ "peaks": true }))?;
        let value: Value = serde_json::from_str(&line)?;
        ensure!(value.get("error").is_none(), "{}", value["error"]);
        Ok(value)
    }

    /// Largest resident memory so far, in MB; 0 where the system does not tell.
    pub fn memory_mb(&self) -> f64 {
        self.status_mb("VmHWM:")
    }

    fn status_mb(&self, key: &str) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kb = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        kb.unwrap_or(0.0) * 1024.0 / 1e6
    }

    /// CPU seconds used while nobody had asked for anything.
    pub fn idle_seconds(&self) -> f64 {
        self.idle
    }

    /// CPU seconds used in all.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // The name in parentheses may have spaces in it; utime and stime are the 14th and 15th.
        let stat = stat.unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: Vec<f64> = fields.skip(11).take(2).filter_map(|t| t.parse().ok()).collect();
        ticks.iter().sum::<f64>() / 100.0
    }

    fn ask(&mut self, request: &Value) -> Result<Answer> {
        let line = self.exchange(request)?;
        let answer: Answer = serde_json::from_str(&line)
            .with_context(|| format!("{} said `{line}`", self.name()))?;
        if let Some(error) = answer.error {
            bail!("{}: {error}", self.name());
        }
        Ok(answer)
    }

    fn exchange(&mut self, request: &Value) -> Result<String> {
        self.idle += (self.cpu_seconds() - self.at_rest).max(0.0);
        let stdin = self.stdin.as_mut().context("stdin is piped")?;
        writeln!(stdin, "{request}").with_context(|| "it has ended".to_owned())?;
        stdin.flush()?;
        let line = self.line().with_context(|| self.name())?;
        self.rest();
        Ok(line)
    }

    fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line?),
            Err(_) => match self.child.try_wait()? {
                Some(status) => bail!("it ended: {status}"),
                None => bail!("no answer within {} minutes", PATIENCE.as_secs() / 60),
            },
        }
    }

    fn rest(&mut self) {
        std::thread::sleep(SETTLE);
        self.at_rest = self.cpu_seconds();
    }
}

impl Drop for Arm {
    /// An arm ends when its stdin does; one that computes is not waited for.
    fn drop(&mut self) {
        drop(self.stdin.take());
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a script and its packages are known by: the files that they prepared stay good as long as these
/// stay the same. frazil changes from day to day, and prepares its own again.
fn prepared_by(engine: &Engine) -> Option<String> {
    let Home::Python(script, requirements) = engine.home else { return None };
    let scripts = crate::root().join("xtask/peers");
    let script = fs::read_to_string(scripts.join(script)).ok()?;
    Some(format!("{:08x} {}\n", crc32c::crc32c(script.as_bytes()), requirements.key()))
}

fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kb: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kb << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sound() {
        assert_eq!(ENGINES[0].name, OURS);
        for engine in &ENGINES {
            if let Home::Python(script, _) = engine.home {
                assert!(crate::root().join("xtask/peers").join(script).is_file(), "{script}");
            }
        }
    }

    /// A program that speaks the protocol without computing anything.
    #[cfg(unix)]
    #[test]
    fn an_arm_answers_and_fails_by_name() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("arm");
        let script = r#"#!/bin/sh
test "$5" = prepare && exit 0
test "$2" = int8 && { echo 'no such numbers' >&2; exit 1; }
echo '{"version": "1", "load_seconds": 0.5, "first_seconds": 1, "about": {}}'
read line && echo '{"seconds": [0.25, 0.5], "outputs": [1.5]}'
read line && echo '{"error": "too long"}'
"#;
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let (logs, pythons) = (folder.path().to_path_buf(), Vec::new());
        let starter = Starter { rust: Some(program), pythons, threads: 1, logs };
        let start = |precision| starter.start(&ENGINES[0], precision, folder.path(), 0);
        let mut arm = start(Precision::F32).unwrap();
        assert_eq!((arm.hello.first_seconds, arm.name().as_str()), (1.0, "frazil f32"));
        assert_eq!(arm.seconds(&Value::Null).unwrap(), [0.25, 0.5]);
        let error = arm.outputs(&Value::Null).unwrap_err().to_string();
        assert_eq!(error, "frazil f32: too long");
        assert!(arm.seconds(&Value::Null).is_err());
        let error = format!("{:#}", start(Precision::Int8).err().unwrap());
        assert!(error.contains("no such numbers"), "{error}");
    }
}
