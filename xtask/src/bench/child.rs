//! The measures that run inside frazil's library: each in a process of its own, timed from inside,
//! so that neither the start of the process nor another measure's memory counts.

use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use frazil_tf::checkpoint::{Checkpoint, Options};
use serde::{Deserialize, Serialize};

/// What a child prints.
#[derive(Debug, Deserialize, Serialize)]
pub struct Outcome {
    /// How long it took.
    pub seconds: f64,
    /// Tensors listed, read or checked; 0 for the plain read.
    pub tensors: usize,
    /// Bytes of values read.
    pub bytes: u64,
}

/// Bytes that the plain read takes at once.
const BLOCK: usize = 1 << 20;

/// `cargo xtask bench-child MEASURE PREFIX`
pub fn run(args: &[&str]) -> Result<()> {
    let [measure, prefix] = args else { bail!("bench-child takes a measure and a prefix") };
    let outcome = self::measure(measure, Path::new(prefix))?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

fn measure(measure: &str, prefix: &Path) -> Result<Outcome> {
    let start = Instant::now();
    let (tensors, bytes) = match measure {
        "list" => list(prefix)?,
        "read" => read(prefix, 1)?,
        "read-threads" => read(prefix, thread::available_parallelism()?.get())?,
        "verify" => verify(prefix)?,
        "plain" => plain(prefix)?,
        other => bail!("no measure `{other}`"),
    };
    Ok(Outcome { seconds: start.elapsed().as_secs_f64(), tensors, bytes })
}

fn list(prefix: &Path) -> Result<(usize, u64)> {
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    let entries = black_box(checkpoint.entries());
    Ok((entries.len(), 0))
}

/// Every tensor by name, as a user of the library reads them; checksums are checked.
fn read(prefix: &Path, threads: usize) -> Result<(usize, u64)> {
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    let entries = checkpoint.entries();
    let (next, bytes) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = || -> Result<()> {
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tensor = black_box(checkpoint.tensor(&entry.info.name)?);
            bytes.fetch_add(tensor.byte_len() as u64, Ordering::Relaxed);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work()?;
        others.into_iter().try_for_each(|other| other.join().expect("a reader does not panic"))
    })?;
    Ok((entries.len(), bytes.into_inner()))
}

fn verify(prefix: &Path) -> Result<(usize, u64)> {
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    let report = checkpoint.verify(|_| ())?;
    ensure!(report.faults.is_empty(), "the checkpoint is damaged: {:?}", report.faults);
    Ok((report.tensors, report.bytes))
}

/// The yardstick: read the data file block by block, and sum it.
fn plain(prefix: &Path) -> Result<(usize, u64)> {
    let path = frazil_tf::bundle::data_path(prefix, 0, 1);
    let mut file = File::open(&path).with_context(|| format!("`{}`", path.display()))?;
    let mut block = vec![0; BLOCK];
    let (mut bytes, mut crc) = (0, 0);
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            black_box(crc);
            return Ok((0, bytes));
        }
        crc = crc32c::crc32c_append(crc, &block[..read]);
        bytes += read as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large;

    #[test]
    fn every_measure_does_its_work() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("model.ckpt");
        let table = large::table(large::SMALL);
        large::write(&prefix, &table, Default::default()).unwrap();
        let parameters: usize = table.iter().map(|e| e.shape.iter().product::<usize>()).sum();
        for (name, tensors, bytes) in [
            ("list", 46, 0),
            ("read", 46, 4 * parameters),
            ("read-threads", 46, 4 * parameters),
            ("verify", 46, 4 * parameters),
            ("plain", 0, 4 * parameters),
        ] {
            let outcome = measure(name, &prefix).unwrap();
            assert_eq!((outcome.tensors, outcome.bytes), (tensors, bytes as u64), "{name}");
        }
        assert!(measure("list", &folder.path().join("none")).is_err());
    }
}
