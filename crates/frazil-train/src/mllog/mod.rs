//! MLPerf's log: lines of `:::MLLOG` and JSON, as `mlperf_logging` writes them, and its rules
//! ([`check`]).
//!
//! A log is kept in memory and written at once when the run is over ([`Log::write`]): a file of results
//! is complete or absent. Left out: what a run logs and when, which `frazil::ops::mlperf` knows.

mod check;

use std::panic::Location;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use crate::Result;

pub use check::{Division, Line, check, parse};

/// What every line begins with.
pub const TOKEN: &str = ":::MLLOG";

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A moment.
    Point,
    /// Something begins.
    Start,
    /// It ends.
    End,
}

impl Kind {
    /// As it stands in the log.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Point => "POINT_IN_TIME",
            Kind::Start => "INTERVAL_START",
            Kind::End => "INTERVAL_END",
        }
    }
}

/// A log under way.
#[derive(Clone, Debug, Default)]
pub struct Log {
    text: String,
}

impl Log {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line, now. `metadata` follows the place in the source that it comes from.
    #[track_caller]
    pub fn add(
        &mut self,
        kind: Kind,
        key: &str,
        value: impl Into<Value>,
        metadata: &[(&str, Value)],
    ) {
        self.add_at(SystemTime::now(), kind, key, value, metadata);
    }

    /// Adds a moment without metadata.
    #[track_caller]
    pub fn point(&mut self, key: &str, value: impl Into<Value>) {
        self.add(Kind::Point, key, value, &[]);
    }

    /// Adds a line about what was at that time.
    #[track_caller]
    pub fn add_at(
        &mut self,
        time: SystemTime,
        kind: Kind,
        key: &str,
        value: impl Into<Value>,
        metadata: &[(&str, Value)],
    ) {
        let time_ms = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let place = Location::caller();
        let mut of = Map::new();
        of.insert("file".into(), place.file().into());
        of.insert("lineno".into(), place.line().into());
        of.extend(metadata.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        // In Python's order.
        let line = [
            ("namespace", Value::from("")),
            ("time_ms", time_ms.into()),
            ("event_type", kind.name().into()),
            ("key", key.into()),
            ("value", value.into()),
            ("metadata", of.into()),
        ];
        let line = line.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let line = format!("{TOKEN} {}\n", object(&line));
        self.text.push_str(&line);
    }

    /// An empty line, as there is one before each accuracy.
    pub fn clear_line(&mut self) {
        self.text.push('\n');
    }

    /// All lines so far.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        Ok(frazil_tensor::file::write(path.as_ref(), self.text.as_bytes())?)
    }
}

/// As Python's `json` spaces it.
fn python(value: &Value) -> String {
    match value {
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(python).collect();
            format!("[{}]", all.join(", "))
        }
        Value::Object(all) => object(all),
        // `1e-6` is `1e-06` in Python; both read the same everywhere.
        other => other.to_string(),
    }
}

fn object(all: &Map<String, Value>) -> String {
    let pairs = all
        .iter()
        .map(|(name, value)| format!("{}: {}", Value::from(name.as_str()), python(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_mlperf_logging() {
        let mut log = Log::new();
        log.add(Kind::Start, "block_start", Value::Null, &[("epoch_count", 1.into())]);
        let line = u64::from(line!()) - 1;
        let file = file!();
        let (before, after) = log.text().split_once("\"time_ms\": ").unwrap();
        assert_eq!(before, ":::MLLOG {\"namespace\": \"\", ");
        let (time, rest) = after.split_once(", ").unwrap();
        assert!(time.parse::<u64>().unwrap() > 1_600_000_000_000);
        assert_eq!(
            rest,
            format!(
                "\"event_type\": \"INTERVAL_START\", \"key\": \"block_start\", \"value\": null, \
                 \"metadata\": {{\"file\": \"{file}\", \"lineno\": {line}, \"epoch_count\": 1}}}}\n"
            )
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("result_0.txt");
        log.write(&path).unwrap();
        assert_eq!(std::fs::read_to_string(path).unwrap(), log.text());
    }
}
