//! How fast a checkpoint is listed, read and checked on this machine, one measure for each run:
//!
//!     cargo run --release -p frazil-tf --example checkpoint_speed -- read bert_model.ckpt
//!
//! Timed from inside, so that the start of the process does not count. `cargo xtask bench
//! formats` runs it in turns with TensorFlow.
#![allow(clippy::print_stdout, reason = "an example that reports")]

use std::error::Error;
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use frazil_tf::checkpoint::{Checkpoint, Options};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// What a measure did: tensors, and bytes of values.
type Work = (usize, u64);

/// Bytes that the plain read takes at once.
const BLOCK: usize = 1 << 20;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [measure, prefix] = args.as_slice() else {
        return Err("usage: checkpoint_speed list|read|read-threads|verify|plain PREFIX".into());
    };
    let start = Instant::now();
    let (tensors, bytes) = self::measure(measure, Path::new(prefix))?;
    let seconds = start.elapsed().as_secs_f64();
    println!(r#"{{"seconds": {seconds}, "tensors": {tensors}, "bytes": {bytes}}}"#);
    Ok(())
}

fn measure(measure: &str, prefix: &Path) -> Result<Work> {
    match measure {
        "list" => list(prefix),
        "read" => read(prefix, 1),
        "read-threads" => read(prefix, thread::available_parallelism()?.get()),
        "verify" => verify(prefix),
        "plain" => plain(prefix),
        other => Err(format!("no measure `{other}`").into()),
    }
}

fn list(prefix: &Path) -> Result<Work> {
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    Ok((black_box(checkpoint.entries()).len(), 0))
}

/// Every tensor by name, as a user of the library reads them; checksums are checked.
fn read(prefix: &Path, threads: usize) -> Result<Work> {
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

/// Every checksum, nothing kept, all threads.
fn verify(prefix: &Path) -> Result<Work> {
    let checkpoint = Checkpoint::open(prefix, Options::default())?;
    let report = checkpoint.verify(|_| ())?;
    if let Some(fault) = report.faults.first() {
        return Err(format!("`{}` is damaged: {}", fault.name, fault.error).into());
    }
    Ok((report.tensors, report.bytes))
}

/// The yardstick: read the data file block by block, and sum it; no tensors.
fn plain(prefix: &Path) -> Result<Work> {
    let mut file = File::open(frazil_tf::bundle::data_path(prefix, 0, 1))?;
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
    use frazil_tensor::Tensor;
    use frazil_tf::bundle::{BundleWriter, WriteOptions};

    use super::*;

    #[test]
    fn every_measure_does_its_work() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().join("model.ckpt");
        let mut writer = BundleWriter::create(&prefix, WriteOptions::default()).unwrap();
        for name in ["a", "b", "c"] {
            writer.add(name, &Tensor::from_vec([1000], vec![1.5f32; 1000]).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        for (name, work) in [
            ("list", (3, 0)),
            ("read", (3, 12_000)),
            ("read-threads", (3, 12_000)),
            ("verify", (3, 12_000)),
            ("plain", (0, 12_000)),
        ] {
            assert_eq!(measure(name, &prefix).unwrap(), work, "{name}");
        }
        assert!(measure("list", &folder.path().join("none")).is_err());
    }
}
