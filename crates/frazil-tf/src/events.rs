//! TensorBoard's event files: what a run reports while it runs.
//!
//! An event file is a TFRecord file of `Event` messages. It is the one file of frazil that is
//! not written beside its place and renamed when complete: TensorBoard follows it while the
//! run goes on, so it must be there, under its name, from the start, and grow. A run that is
//! killed leaves a file whose last record may be cut; readers expect that. Images and audio
//! are left out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use frazil_tensor::Tensor;
use prost::Message;

use crate::decode::decode;
use crate::proto::{
    Event, GraphDef, HistogramProto, MetaGraphDef, SessionLog, Summary, SummaryMetadata, event,
    session_log, summary, summary_metadata,
};
use crate::tfrecord::{self, Records};
use crate::{Error, Result, tensor_proto};

/// What the first record of every event file says.
const VERSION: &str = "brain.Event:2";

/// Writes an event file that TensorBoard can follow.
///
/// Events are buffered; they are in the file after [`flush`](Self::flush) and when the writer is
/// dropped.
pub struct EventWriter {
    path: PathBuf,
    file: BufWriter<File>,
}

impl EventWriter {
    /// Starts the file `events.out.tfevents.SECONDS.HOSTNAME` + `suffix` in `folder`, which is
    /// made if need be.
    pub fn create(folder: impl AsRef<Path>, suffix: &str) -> Result<Self> {
        let folder = folder.as_ref();
        let refused = |action, path: &Path, source| {
            let path = path.to_path_buf();
            Error::from(frazil_tensor::Error::Io { action, path, source })
        };
        fs::create_dir_all(folder).map_err(|e| refused("create", folder, e))?;
        let mut seconds = now().as_secs();
        let host = hostname();
        let (path, file) = loop {
            let path = folder.join(format!("events.out.tfevents.{seconds:010}.{host}{suffix}"));
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                // Another writer of this second: TensorBoard reads files in the order of their
                // names, so the next second is as good.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => seconds += 1,
                Err(e) => return Err(refused("create", &path, e)),
            }
        };
        let mut writer = Self { path, file: BufWriter::new(file) };
        writer.event(0, event::What::FileVersion(VERSION.into()))?;
        writer.flush()?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A number at a step, as TensorFlow 1's `tf.summary.scalar` writes it.
    pub fn scalar(&mut self, step: i64, tag: &str, value: f32) -> Result<()> {
        self.summary(step, tag, None, summary::value::Value::SimpleValue(value))
    }

    /// Numbers at a step that belong together, in one event: all of them are in the file, or none.
    pub fn scalars<'t>(
        &mut self,
        step: i64,
        values: impl IntoIterator<Item = (&'t str, f32)>,
    ) -> Result<()> {
        let value = |(tag, value): (&str, f32)| summary::Value {
            tag: tag.into(),
            value: Some(summary::value::Value::SimpleValue(value)),
            ..Default::default()
        };
        let value = values.into_iter().map(value).collect();
        self.event(step, event::What::Summary(Summary { value }))
    }

    /// The distribution of `values` at a step, in TensorFlow's buckets.
    pub fn histogram(
        &mut self,
        step: i64,
        tag: &str,
        values: impl IntoIterator<Item = f64>,
    ) -> Result<()> {
        let mut histogram = Histogram::new();
        for value in values {
            if !value.is_finite() {
                return Err(Error::NotFinite { tag: tag.to_owned(), value });
            }
            histogram.add(value);
        }
        self.summary(step, tag, None, summary::value::Value::Histo(histogram.encode()))
    }

    /// A text (Markdown) at a step.
    pub fn text(&mut self, step: i64, tag: &str, text: &str) -> Result<()> {
        let tensor = Tensor::from_strings([1], vec![text.to_owned().into()])?;
        let metadata = SummaryMetadata {
            plugin_data: Some(summary_metadata::PluginData {
                plugin_name: "text".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let value = summary::value::Value::Tensor(tensor_proto::from_tensor(&tensor));
        self.summary(step, tag, Some(metadata), value)
    }

    /// The graph that the run computes.
    pub fn graph(&mut self, graph: &GraphDef) -> Result<()> {
        self.event(0, event::What::GraphDef(graph.encode_to_vec().into()))
    }

    /// The graph with all that belongs to it.
    pub fn meta_graph(&mut self, graph: &MetaGraphDef) -> Result<()> {
        self.event(0, event::What::MetaGraphDef(graph.encode_to_vec().into()))
    }

    /// Says that the run starts here, after an earlier one came further: what that one reported
    /// for `step` and later is void.
    pub fn restart(&mut self, step: i64) -> Result<()> {
        let log = SessionLog {
            status: session_log::SessionStatus::Start as i32,
            ..SessionLog::default()
        };
        self.event(step, event::What::SessionLog(log))
    }

    /// Brings all events to the file, where TensorBoard sees them.
    pub fn flush(&mut self) -> Result<()> {
        self.file.flush().map_err(|e| tfrecord::write_error(&self.path, e))
    }

    fn summary(
        &mut self,
        step: i64,
        tag: &str,
        metadata: Option<SummaryMetadata>,
        value: summary::value::Value,
    ) -> Result<()> {
        let value =
            summary::Value { tag: tag.into(), metadata, value: Some(value), ..Default::default() };
        self.event(step, event::What::Summary(Summary { value: vec![value] }))
    }

    fn event(&mut self, step: i64, what: event::What) -> Result<()> {
        let wall_time = now().as_secs_f64();
        let event = Event { wall_time, step, what: Some(what), ..Event::default() };
        tfrecord::write_record(&mut self.file, &event.encode_to_vec())
            .map_err(|e| tfrecord::write_error(&self.path, e))
    }
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// This machine's name as far as it is known, fit for a file name.
fn hostname() -> String {
    let name = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok())
        .or_else(|| std::env::var("HOSTNAME").ok())
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .unwrap_or_default();
    let fit = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let name: String = name.trim().chars().filter(fit).collect();
    if name.is_empty() { "localhost".into() } else { name }
}

/// The events of a file as it is now. A run that is still writing, or was killed, may leave a
/// last event that gives [`Error::RecordCut`].
pub fn read(path: impl AsRef<Path>) -> Result<impl Iterator<Item = Result<Event>>> {
    let path = path.as_ref().to_path_buf();
    let records = Records::map(&path)?;
    Ok(records.map(move |record| record.and_then(decode).map_err(|e: Error| e.in_file(&path))))
}

/// Numbers counted in TensorFlow's buckets: limits that grow by a tenth from 1e-12 to 1e20,
/// their negatives, zero, and the largest double at either end.
struct Histogram {
    limits: Vec<f64>,
    counts: Vec<f64>,
    min: f64,
    max: f64,
    num: f64,
    sum: f64,
    sum_squares: f64,
}

impl Histogram {
    fn new() -> Self {
        let growing = std::iter::successors(Some(1.0e-12), |limit| Some(limit * 1.1));
        let mut positive: Vec<f64> = growing.take_while(|&limit| limit < 1.0e20).collect();
        positive.push(f64::MAX);
        let mut limits: Vec<f64> = positive.iter().rev().map(|limit| -limit).collect();
        limits.push(0.0);
        limits.extend(positive);
        let counts = vec![0.0; limits.len()];
        let (min, max) = (f64::MAX, -f64::MAX);
        Self { limits, counts, min, max, num: 0.0, sum: 0.0, sum_squares: 0.0 }
    }

    fn add(&mut self, value: f64) {
        // A bucket ends before its limit; the largest double itself goes to the last one.
        let bucket = self.limits.partition_point(|&limit| limit <= value);
        self.counts[bucket.min(self.limits.len() - 1)] += 1.0;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.num += 1.0;
        self.sum += value;
        self.sum_squares += value * value;
    }

    /// Empty buckets that follow each other become one.
    fn encode(&self) -> HistogramProto {
        let mut bucket_limit = Vec::new();
        let mut bucket: Vec<f64> = Vec::new();
        for (&limit, &count) in self.limits.iter().zip(&self.counts) {
            match (bucket_limit.last_mut(), bucket.last()) {
                (Some(last), Some(&0.0)) if count == 0.0 => *last = limit,
                _ => {
                    bucket_limit.push(limit);
                    bucket.push(count);
                }
            }
        }
        HistogramProto {
            min: self.min,
            max: self.max,
            num: self.num,
            sum: self.sum,
            sum_squares: self.sum_squares,
            bucket_limit,
            bucket,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::NodeDef;

    fn values(event: &Event) -> &[summary::Value] {
        match &event.what {
            Some(event::What::Summary(summary)) => &summary.value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_can_be_followed() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(folder.path().join("run"), ".test").unwrap();
        let name = writer.path().file_name().unwrap().to_str().unwrap();
        let rest = name.strip_prefix("events.out.tfevents.").unwrap();
        assert!(rest[..10].bytes().all(|b| b.is_ascii_digit()) && &rest[10..11] == ".");
        assert!(rest.ends_with(".test"), "{name}");
        let path = writer.path().to_path_buf();
        let events = || read(&path).unwrap().collect::<Result<Vec<Event>>>().unwrap();
        assert!(matches!(&events()[0].what, Some(event::What::FileVersion(v)) if v == VERSION));
        writer.scalar(3, "loss", 0.5).unwrap();
        writer.flush().unwrap();
        let seen = events();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[1].step, 3);
        assert_eq!(values(&seen[1])[0].tag, "loss");
        assert!(seen[1].wall_time > 1.6e9);
        let node = NodeDef { name: "x".into(), ..NodeDef::default() };
        let graph = GraphDef { node: vec![node], ..GraphDef::default() };
        writer.graph(&graph).unwrap();
        writer.restart(2).unwrap();
        writer.text(4, "note", "*hi*").unwrap();
        drop(writer);
        let seen = events();
        assert_eq!(seen.len(), 5);
        let Some(event::What::GraphDef(bytes)) = &seen[2].what else { panic!() };
        assert_eq!(GraphDef::decode(bytes.clone()).unwrap(), graph);
        assert!(matches!(&seen[3].what, Some(event::What::SessionLog(log)) if log.status == 1));
    }

    #[test]
    fn two_writers_of_one_second_have_two_files() {
        let folder = tempfile::tempdir().unwrap();
        let first = EventWriter::create(&folder, "").unwrap();
        let second = EventWriter::create(&folder, "").unwrap();
        assert_ne!(first.path(), second.path());
    }

    #[test]
    fn histograms_at_the_edges() {
        let empty = Histogram::new().encode();
        assert_eq!((empty.bucket_limit, empty.bucket), (vec![f64::MAX], vec![0.0]));
        let mut all = Histogram::new();
        for value in [f64::MAX, -f64::MAX, 0.0, 1e-300, -1e-300] {
            all.add(value);
        }
        let all = all.encode();
        assert_eq!(all.bucket.iter().sum::<f64>(), 5.0);
        assert_eq!(all.bucket_limit.last(), Some(&f64::MAX));
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(&folder, "").unwrap();
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let refused = writer.histogram(0, "h", [1.0, bad]);
            assert!(matches!(refused, Err(Error::NotFinite { .. })));
        }
    }

    #[test]
    fn a_killed_run_leaves_its_whole_events() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = EventWriter::create(&folder, "").unwrap();
        writer.scalar(1, "loss", 0.5).unwrap();
        let path = writer.path().to_path_buf();
        drop(writer);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..whole.len() - 1]).unwrap();
        let events: Vec<Result<Event>> = read(&path).unwrap().collect();
        assert_eq!(events.len(), 2);
        assert!(events[0].is_ok());
        let error = events[1].as_ref().unwrap_err();
        let Error::InFile { source, .. } = error else { panic!("{error}") };
        assert!(matches!(**source, Error::RecordCut { index: 1, .. }));
    }
}
