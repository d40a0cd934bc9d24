//! What a TFRecord file holds: examples with these features, or TensorBoard events.

use std::collections::BTreeMap;
use std::path::Path;

use frazil_tf::events;
use frazil_tf::example::{Example, Kind};
use frazil_tf::proto::event::What;
use frazil_tf::tfrecord::RecordReader;
use serde::Serialize;

use crate::Result;

/// A record file's summary.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecordsReport {
    /// Records.
    pub records: u64,
    /// Bytes of all payloads; 0 for events.
    pub bytes: u64,
    /// Features of the examples; empty if the records are something else.
    pub features: Vec<Feature>,
    /// TensorBoard tags with the number of their values; empty if the records are something else.
    pub tags: BTreeMap<String, u64>,
}

/// One feature over all examples.
#[derive(Clone, Debug, Serialize)]
pub struct Feature {
    /// Its name.
    pub name: String,
    /// `int64`, `float` or `bytes`.
    pub kind: &'static str,
    /// Examples that have it.
    pub examples: u64,
    /// Fewest values in one example.
    pub shortest: usize,
    /// Most values in one example.
    pub longest: usize,
}

/// Reads all records and sums them up.
pub fn summarise(path: &Path) -> Result<RecordsReport> {
    let is_events = events::read(path)?.next().is_some_and(|first| {
        matches!(first.map(|event| event.what), Ok(Some(What::FileVersion(_))))
    });
    if is_events { summarise_events(path) } else { summarise_examples(path) }
}

fn summarise_events(path: &Path) -> Result<RecordsReport> {
    let mut report = RecordsReport::default();
    for event in events::read(path)? {
        report.records += 1;
        if let Some(What::Summary(summary)) = event?.what {
            for value in summary.value {
                *report.tags.entry(value.tag).or_default() += 1;
            }
        }
    }
    Ok(report)
}

fn summarise_examples(path: &Path) -> Result<RecordsReport> {
    let mut report = RecordsReport::default();
    let mut features: BTreeMap<(String, &'static str), Feature> = BTreeMap::new();
    for record in RecordReader::open(path)? {
        let record = record?;
        report.records += 1;
        report.bytes += record.len() as u64;
        // Records need not be examples: then there is nothing more to say of them.
        let Ok(example) = Example::decode(record) else { continue };
        let all = example.features();
        for name in all.names() {
            let (kind, len) = match all.kind(name) {
                Some(Kind::Int64s) => ("int64", all.int64s(name)?.len()),
                Some(Kind::Floats) => ("float", all.floats(name)?.len()),
                Some(Kind::Bytes) => ("bytes", all.bytes(name)?.len()),
                Some(Kind::Nothing) | None => ("empty", 0),
            };
            let entry = features.entry((name.to_owned(), kind)).or_insert_with(|| Feature {
                name: name.to_owned(),
                kind,
                examples: 0,
                shortest: usize::MAX,
                longest: 0,
            });
            entry.examples += 1;
            entry.shortest = entry.shortest.min(len);
            entry.longest = entry.longest.max(len);
        }
    }
    report.features = features.into_values().collect();
    Ok(report)
}
