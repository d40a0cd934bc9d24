//! The rules that a log of MLPerf Training 1.0 has to follow for BERT: those of `mlperf_logging`'s
//! compliance checker (`training_1.0.0`), for both divisions.
//!
//! Left out is what `training_1.1.0` wants beyond that in the closed division: a `weights_initialization` for
//! each weight of BERT-large, next sentences included. The logs that were published of 1.1 do not have it.
//!
//! Real logs have quirks that its rules allow, and so do ours: `init_stop` and `run_stop` may be called
//! the beginning of an interval, and numbers of samples may be lists of one.

use serde_json::{Map, Value};

use super::TOKEN;

/// Which rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// The model and its training are given; the target must be reached.
    Closed,
    /// Anything goes.
    Open,
}

/// The accuracy that a run of the closed division has to reach.
const TARGET: f64 = 0.720;

/// From the first `init_start` to `init_stop`.
const INIT_MS: f64 = 30.0 * 60.0 * 1e3;

/// A line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    /// In milliseconds.
    pub time_ms: f64,
    /// `POINT_IN_TIME`, `INTERVAL_START` or `INTERVAL_END`.
    pub event_type: String,
    /// What it is about.
    pub key: String,
    /// The value.
    pub value: Value,
    /// More about it.
    pub metadata: Map<String, Value>,
}

/// The lines of a log; what cannot be read, in words.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(json) = line.trim_start().strip_prefix(TOKEN) else { continue };
        let wrong = |what: &str| format!("line {number}: {what}");
        let value: Value =
            serde_json::from_str(json.trim()).map_err(|error| wrong(&error.to_string()))?;
        let text = |key: &str| {
            let found = value.get(key).and_then(Value::as_str).map(str::to_owned);
            found.ok_or_else(|| wrong(&format!("no text `{key}`")))
        };
        text("namespace")?;
        let event_type = text("event_type")?;
        if !["POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END"].contains(&event_type.as_str()) {
            return Err(wrong(&format!("`{event_type}` is no event type")));
        }
        lines.push(Line {
            number,
            time_ms: value
                .get("time_ms")
                .and_then(Value::as_f64)
                .ok_or_else(|| wrong("no number `time_ms`"))?,
            event_type,
            key: text("key")?,
            value: value.get("value").cloned().ok_or_else(|| wrong("no `value`"))?,
            metadata: value
                .get("metadata")
                .and_then(Value::as_object)
                .cloned()
                .ok_or_else(|| wrong("no object `metadata`"))?,
        });
    }
    Ok(lines)
}

/// How often a key has to stand in a log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Often {
    Once,
    /// Or, where a second key is given, that one.
    AtLeastOnce(Option<&'static str>),
}

use Often::{AtLeastOnce, Once};

/// In both divisions.
const COMMON: &[(&str, Often)] = &[
    ("submission_org", Once),
    ("submission_platform", Once),
    ("submission_division", Once),
    ("submission_status", Once),
    ("submission_benchmark", Once),
    ("cache_clear", AtLeastOnce(None)),
    ("init_start", AtLeastOnce(None)),
    ("init_stop", Once),
    ("run_start", Once),
    ("run_stop", Once),
    ("block_start", AtLeastOnce(Some("epoch_start"))),
    ("block_stop", AtLeastOnce(Some("epoch_stop"))),
    ("eval_accuracy", AtLeastOnce(None)),
    ("train_samples", Once),
    ("eval_samples", Once),
];

/// In the closed one.
const CLOSED: &[&str] = &[
    "gradient_accumulation_steps",
    "global_batch_size",
    "opt_base_learning_rate",
    "opt_epsilon",
    "opt_learning_rate_training_steps",
    "opt_learning_rate_warmup_steps",
    "num_warmup_steps",
    "start_warmup_step",
    "opt_lamb_beta_1",
    "opt_lamb_beta_2",
    "opt_lamb_weight_decay_rate",
];

/// What a log has against the rules, in words; nothing if it follows them.
pub fn check(text: &str, division: Division) -> Vec<String> {
    let lines = match parse(text) {
        Ok(lines) => lines,
        Err(what) => return vec![what],
    };
    let mut found = counts(&lines, division);
    let mut state = State::default();
    for line in &lines {
        for what in state.see(line, division) {
            found.push(format!("line {}: `{}`: {what}", line.number, line.key));
        }
    }
    let accuracies = lines.iter().filter(|line| line.key == "eval_accuracy");
    let enough = |value: f64| match division {
        Division::Closed => (TARGET..1.0).contains(&value),
        Division::Open => value < 1.0,
    };
    if !accuracies.filter_map(|line| line.value.as_f64()).any(enough) {
        found.push(match division {
            Division::Closed => format!("no `eval_accuracy` from {TARGET} on and below 1"),
            Division::Open => "no `eval_accuracy` below 1".to_owned(),
        });
    }
    found
}

fn counts(lines: &[Line], division: Division) -> Vec<String> {
    let count = |key: &str| lines.iter().filter(|line| line.key == key).count();
    let closed = CLOSED.iter().map(|key| (*key, Once));
    let closed = closed.filter(|_| division == Division::Closed);
    let mut found = Vec::new();
    for (key, often) in COMMON.iter().copied().chain(closed) {
        let there = count(key);
        match often {
            Once if there != 1 => found.push(format!("`{key}` stands {there} times, not once")),
            AtLeastOnce(or) if there == 0 && or.is_none_or(|or| count(or) == 0) => {
                found.push(format!("`{key}` is missing"));
            }
            _ => {}
        }
    }
    found
}

/// What was seen so far.
#[derive(Default)]
struct State {
    init_start: Option<f64>,
    init_stopped: bool,
    run_started: bool,
}

impl State {
    fn see(&mut self, line: &Line, division: Division) -> Vec<String> {
        let mut found = Vec::new();
        let mut must = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_owned());
            }
        };
        let one_of = |all: &[&str]| line.value.as_str().is_some_and(|value| all.contains(&value));
        let has = |key: &str| line.metadata.contains_key(key);
        match line.key.as_str() {
            "submission_org" | "submission_platform" | "train_samples" | "eval_samples" => {
                must(line.value != "", "is empty");
            }
            "submission_division" => {
                let named = match division {
                    Division::Closed => "closed",
                    Division::Open => "open",
                };
                must(one_of(&[named]), "is another division");
            }
            "submission_status" => {
                must(one_of(&["cloud", "onprem", "preview", "research"]), "is no status");
            }
            "submission_benchmark" => must(one_of(&["bert"]), "is another benchmark"),
            "init_start" => {
                must(!self.init_stopped && !self.run_started, "comes after `init_stop`");
                self.init_start.get_or_insert(line.time_ms);
            }
            "init_stop" => {
                must(self.init_start.is_some(), "comes before `init_start`");
                must(!self.run_started, "comes after `run_start`");
                let in_time = self.init_start.is_some_and(|start| line.time_ms - start < INIT_MS);
                must(in_time, "comes 30 minutes after the first `init_start`, or later");
                self.init_stopped = true;
            }
            "run_start" => {
                must(self.init_stopped, "comes before `init_stop`");
                self.run_started = true;
            }
            "run_stop" => {
                must(self.run_started, "comes before `run_start`");
                must(has("status"), "has no status");
            }
            "block_start" => {
                must(self.run_started, "comes before `run_start`");
                let count = line.metadata.get("epoch_count").and_then(Value::as_f64);
                must(count.is_some_and(|count| count > 0.0), "has no `epoch_count` above 0");
                must(has("first_epoch_num"), "has no `first_epoch_num`");
            }
            "block_stop" => must(has("first_epoch_num"), "has no `first_epoch_num`"),
            "epoch_start" | "epoch_stop" | "eval_start" | "eval_stop" | "eval_accuracy" => {
                must(has("epoch_num"), "has no `epoch_num`");
            }
            "gradient_accumulation_steps" => {
                must(line.value.as_f64().is_some_and(|steps| steps > 0.0), "is not above 0");
            }
            _ => {}
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Log};
    use super::*;
    use frazil_tensor::testing::shared;

    /// A log that follows the rules, without the lines of `left_out`.
    fn log(left_out: &str, accuracy: f64) -> String {
        let mut log = Log::new();
        let points = [
            ("submission_org", Value::from("someone")),
            ("submission_platform", "a machine".into()),
            ("submission_division", "closed".into()),
            ("submission_status", "onprem".into()),
            ("submission_benchmark", "bert".into()),
        ];
        let put = |log: &mut Log, kind, key: &str, value: Value, of: &[(&str, Value)]| {
            if key != left_out {
                log.add(kind, key, value, of);
            }
        };
        for (key, value) in points {
            put(&mut log, Kind::Point, key, value, &[]);
        }
        put(&mut log, Kind::Start, "init_start", Value::Null, &[]);
        for key in CLOSED {
            put(&mut log, Kind::Point, key, 1.into(), &[]);
        }
        put(&mut log, Kind::Point, "cache_clear", true.into(), &[]);
        put(&mut log, Kind::End, "init_stop", Value::Null, &[]);
        put(&mut log, Kind::Start, "run_start", Value::Null, &[]);
        let first = ("first_epoch_num", Value::from(0));
        let count = ("epoch_count", Value::from(1));
        put(&mut log, Kind::Start, "block_start", Value::Null, &[count, first.clone()]);
        put(&mut log, Kind::End, "block_stop", Value::Null, &[first]);
        let at = [("epoch_num", Value::from(1))];
        put(&mut log, Kind::Point, "eval_accuracy", accuracy.into(), &at);
        put(&mut log, Kind::Point, "eval_samples", 1.into(), &[]);
        put(&mut log, Kind::Point, "train_samples", 1.into(), &[]);
        put(&mut log, Kind::End, "run_stop", Value::Null, &[("status", "success".into())]);
        log.text().to_owned()
    }

    #[test]
    fn each_rule_is_missed_when_it_is_broken() {
        assert_eq!(check(&log("", 0.73), Division::Closed), [""; 0]);
        let all = COMMON.iter().map(|(key, _)| *key).chain(CLOSED.iter().copied());
        for key in all {
            let found = check(&log(key, 0.73), Division::Closed);
            assert!(found.iter().any(|what| what.contains(key)), "{key}: {found:?}");
        }
        let low = check(&log("", 0.71), Division::Closed);
        assert_eq!(low, ["no `eval_accuracy` from 0.72 on and below 1"]);
        let open = check(&log("", 0.71), Division::Open);
        assert!(open.len() == 1 && open[0].contains("another division"), "{open:?}");
        let twice = format!("{}{}", log("", 0.73), log("", 0.73));
        let found = check(&twice, Division::Closed);
        assert!(found.iter().any(|what| what.contains("2 times")), "{found:?}");
        let cut = &log("", 0.73)[..500];
        assert!(check(cut, Division::Closed)[0].starts_with("line "));
    }

    /// A log that follows the rules, with the line of `key` changed.
    fn with(key: &str, from: &str, to: &str) -> String {
        let all = log("", 0.73);
        let line = line_of(&all, key);
        assert!(line.contains(from), "{line}");
        all.replace(line, &line.replacen(from, to, 1))
    }

    /// The same with the line of `key` before that of another.
    fn moved(key: &str, before: &str) -> String {
        let all = log("", 0.73);
        let (line, next) = (line_of(&all, key), line_of(&all, before));
        all.replace(line, "").replace(next, &format!("{line}{next}"))
    }

    fn line_of<'l>(log: &'l str, key: &str) -> &'l str {
        let is_of = |line: &&str| line.contains(&format!("\"key\": \"{key}\""));
        log.split_inclusive('\n').find(is_of).unwrap()
    }

    #[test]
    fn each_line_is_looked_at() {
        let one = |key: &'static str, text: &'static str, log: String| (key, text, log);
        let value = |key: &'static str, from: &str, to: &str, text: &'static str| {
            let [from, to] = [from, to].map(|value| format!("\"value\": {value}"));
            one(key, text, with(key, &from, &to))
        };
        let lacks = |key: &'static str, name: &str, text: &'static str| {
            one(key, text, with(key, &format!("\"{name}\""), "\"other\""))
        };
        // Of an epoch where blocks are, too.
        let also = |key: &'static str| {
            let mut more = Log::new();
            more.add(Kind::Point, key, Value::Null, &[]);
            one(key, "has no `epoch_num`", log("", 0.73) + more.text())
        };
        let late = |after_ms: u64| {
            let mut all = log("", 0.73);
            let times = ["init_start", "init_stop"].map(|key| {
                let (_, time) = line_of(&all, key).split_once("\"time_ms\": ").unwrap();
                time.split_once(',').unwrap().0.parse::<u64>().unwrap()
            });
            let line = line_of(&all, "init_stop").to_owned();
            let later = (times[0] + after_ms).to_string();
            all = all.replace(&line, &line.replace(&times[1].to_string(), &later));
            all
        };
        let in_time = "comes 30 minutes after the first `init_start`, or later";
        assert_eq!(check(&late(30 * 60_000 - 1), Division::Closed), [""; 0]);
        let cases = [
            value("submission_org", "\"someone\"", "\"\"", "is empty"),
            value("submission_platform", "\"a machine\"", "\"\"", "is empty"),
            value("train_samples", "1", "\"\"", "is empty"),
            value("eval_samples", "1", "\"\"", "is empty"),
            value("submission_division", "\"closed\"", "\"open\"", "is another division"),
            value("submission_status", "\"onprem\"", "\"at home\"", "is no status"),
            value("submission_benchmark", "\"bert\"", "\"resnet\"", "is another benchmark"),
            value("gradient_accumulation_steps", "1", "0", "is not above 0"),
            one("init_start", "comes after `init_stop`", moved("init_stop", "init_start")),
            one("init_stop", "comes before `init_start`", moved("init_stop", "init_start")),
            one("init_stop", "comes after `run_start`", moved("run_start", "init_stop")),
            one("init_stop", in_time, late(30 * 60_000)),
            one("run_start", "comes before `init_stop`", moved("run_start", "init_stop")),
            one("run_stop", "comes before `run_start`", moved("run_stop", "run_start")),
            one("block_start", "comes before `run_start`", moved("block_start", "run_start")),
            lacks("run_stop", "status", "has no status"),
            lacks("block_start", "epoch_count", "has no `epoch_count` above 0"),
            one(
                "block_start",
                "has no `epoch_count` above 0",
                with("block_start", "\"epoch_count\": 1", "\"epoch_count\": 0"),
            ),
            lacks("block_start", "first_epoch_num", "has no `first_epoch_num`"),
            lacks("block_stop", "first_epoch_num", "has no `first_epoch_num`"),
            lacks("eval_accuracy", "epoch_num", "has no `epoch_num`"),
            also("epoch_start"),
            also("epoch_stop"),
            also("eval_start"),
            also("eval_stop"),
        ];
        for (key, text, log) in cases {
            let found = check(&log, Division::Closed);
            let says = |what: &String| what.ends_with(&format!(": `{key}`: {text}"));
            assert_eq!(found.iter().filter(|what| says(what)).count(), 1, "{key}: {found:?}");
        }
        // What is looked at is what the division has; an epoch stands for a block.
        let open = with("submission_division", "closed", "open");
        assert_eq!(check(&open, Division::Open), [""; 0]);
        let all = open.replace("0.73", "1.0");
        assert_eq!(check(&all, Division::Open), ["no `eval_accuracy` below 1"]);
        let epochs = log("", 0.73).replace("block_st", "epoch_st").replace("first_epoch", "epoch");
        assert_eq!(check(&epochs, Division::Closed), [""; 0]);
    }

    /// Every published log that is at hand passes, and each fails under the rules of the other division.
    #[test]
    fn real_logs_pass() {
        let Some(folder) = shared("data/mlperf") else { return };
        let mut seen = 0;
        for round in ["v1.0", "v1.1"] {
            for entry in std::fs::read_dir(folder.join(round).join("Graphcore")).unwrap() {
                let path = entry.unwrap().path().join("bert/result_0.txt");
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                let closed = path.to_string_lossy().contains("-closed");
                let (own, other) = match closed {
                    true => (Division::Closed, Division::Open),
                    false => (Division::Open, Division::Closed),
                };
                assert_eq!(check(&text, own), [""; 0], "{}", path.display());
                assert!(!check(&text, other).is_empty());
                seen += 1;
            }
        }
        assert!(seen >= 10, "{seen}");
    }
}
