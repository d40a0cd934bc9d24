//! Reads a whole checkpoint and checks every checksum.
//!
//! Large tensors are cut into pieces whose checksums are combined, so that all CPUs work on one
//! word embedding table too. The mapped file is faster than reading into a buffer: 4.4 GB/s
//! against 2.5 GB/s on one core of a virtual machine, the copy being the difference.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use frazil_tensor::DType;

use crate::bundle::{self, Bundle, Place, Stored};
use crate::checkpoint_v1::CheckpointV1;
use crate::{Error, Result, slice};

/// What was checked, and what is wrong.
#[derive(Debug)]
pub struct Verification {
    /// Tensors looked at.
    pub tensors: usize,
    /// Bytes of values read.
    pub bytes: u64,
    /// The tensors that cannot be read as they should be, in file order.
    pub faults: Vec<Fault>,
}

/// A tensor that cannot be read.
#[derive(Debug)]
pub struct Fault {
    /// Its name.
    pub name: String,
    /// What is wrong with it.
    pub error: Error,
}

/// Bytes of a large tensor that one thread takes at once.
const PIECE: u64 = 8 << 20;
/// A tensor or a slice of one.
struct Job<'a> {
    name: &'a str,
    stored: &'a Stored,
}

/// Part of a job: bytes `start..start + length` of its values.
struct Piece {
    job: usize,
    start: u64,
    length: u64,
}

pub(super) fn v1(
    checkpoint: &CheckpointV1,
    on_progress: impl Fn(u64) + Sync,
) -> Result<Verification> {
    let mut report = Verification { tensors: 0, bytes: 0, faults: Vec::new() };
    for info in checkpoint.infos() {
        report.tensors += 1;
        match checkpoint.tensor(&info.name) {
            Ok(tensor) => {
                let bytes = tensor.byte_len() as u64;
                report.bytes += bytes;
                on_progress(bytes);
            }
            Err(error) => report.faults.push(Fault { name: info.name.clone(), error }),
        }
    }
    Ok(report)
}

pub(super) fn v2(bundle: &Bundle, on_progress: impl Fn(u64) + Sync) -> Result<Verification> {
    let mut report = Verification { tensors: bundle.infos().len(), bytes: 0, faults: Vec::new() };
    let mut jobs = Vec::new();
    for (info, place) in bundle.infos().iter().zip(bundle.places()) {
        match place {
            Place::Whole(stored) => jobs.push(Job { name: &info.name, stored }),
            Place::Sliced(slices) => {
                let found = slices.iter().map(|slice| bundle.slice(&info.name, slice));
                let found = slice::check_partition(&info.name, &info.shape, slices)
                    .and_then(|()| found.collect::<Result<Vec<_>>>());
                match found {
                    Ok(found) => {
                        let job = |stored| Job { name: &info.name, stored };
                        jobs.extend(found.into_iter().map(job));
                    }
                    Err(error) => report.faults.push(Fault { name: info.name.clone(), error }),
                }
            }
        }
    }
    jobs.sort_by_key(|job| (job.stored.shard, job.stored.offset));
    let pieces = cut(&jobs);
    let (next, sums) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(pieces.len())));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(number) else { return };
            let sum = sum(bundle, &jobs[piece.job], piece);
            on_progress(piece.length);
            sums.lock().unwrap_or_else(|e| e.into_inner()).push((number, sum));
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(pieces.len());
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut sums = sums.into_inner().unwrap_or_else(|e| e.into_inner());
    sums.sort_by_key(|(number, _)| *number);
    report.bytes = pieces.iter().map(|piece| piece.length).sum();
    // A partitioned variable is as bad as the first bad slice.
    let mut seen: HashSet<String> = report.faults.iter().map(|f| f.name.clone()).collect();
    for (name, error) in judge(&jobs, &pieces, sums) {
        if seen.insert(name.clone()) {
            report.faults.push(Fault { name, error });
        }
    }
    Ok(report)
}

/// The pieces of all jobs, in file order.
fn cut(jobs: &[Job<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (job, Job { stored, .. }) in jobs.iter().enumerate() {
        // Strings are parsed, so they stay whole.
        let step = if stored.dtype == DType::String { stored.size.max(1) } else { PIECE };
        let mut start = 0;
        loop {
            let length = step.min(stored.size - start);
            pieces.push(Piece { job, start, length });
            start += length;
            if start >= stored.size {
                break;
            }
        }
    }
    pieces
}

/// Puts the sums of the pieces together and compares: one fault per job at most.
fn judge(
    jobs: &[Job<'_>],
    pieces: &[Piece],
    sums: Vec<(usize, Result<u32>)>,
) -> Vec<(String, Error)> {
    let mut faults = Vec::new();
    let mut sums = pieces.iter().zip(sums).peekable();
    for (number, job) in jobs.iter().enumerate() {
        let mut whole = Ok(0);
        while let Some((piece, (_, sum))) = sums.next_if(|(piece, _)| piece.job == number) {
            whole = match (whole, sum) {
                (Ok(before), Ok(sum)) => {
                    Ok(crc32c::crc32c_combine(before, sum, piece.length as usize))
                }
                (Err(error), _) | (_, Err(error)) => Err(error),
            };
        }
        if let Err(error) = whole.and_then(|crc| bundle::check_crc(job.name, job.stored, crc)) {
            faults.push((job.name.to_owned(), error));
        }
    }
    faults
}

/// The plain CRC32C of a piece.
fn sum(bundle: &Bundle, job: &Job<'_>, piece: &Piece) -> Result<u32> {
    let bytes = bundle.bytes(job.name, job.stored)?;
    if job.stored.dtype == DType::String {
        return bundle.string_sum(job.stored, &bytes);
    }
    // The window is as long as the index says, and so as the pieces are.
    let start = piece.start as usize;
    Ok(crc32c::crc32c(&bytes[start..start + piece.length as usize]))
}
