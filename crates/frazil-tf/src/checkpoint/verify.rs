//! Reads a whole checkpoint and checks every checksum.
//!
//! Data files are read, not mapped: a disk that fails gives an error instead of ending the
//! program. Large tensors are cut into pieces whose checksums are combined, so that all CPUs
//! work on one word embedding table too.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bytes::Bytes;
use frazil_tensor::DType;

use crate::bundle::{self, Bundle, Place, Stored};
use crate::checkpoint_v1::CheckpointV1;
use crate::{Error, Result};

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
/// What is read at once: small enough to stay in the cache until it is summed.
const BUFFER: usize = 256 << 10;

/// A tensor or a slice of one.
struct Job<'a> {
    name: &'a str,
    stored: &'a Stored,
}

/// Part of a job: bytes `offset..offset + length` of its data file.
struct Piece {
    job: usize,
    offset: u64,
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
                // That the slices are the whole is for `tensor` to say; it needs their values.
                match slices.iter().map(|slice| bundle.slice(&info.name, slice)).collect() {
                    Ok::<Vec<_>, Error>(all) => {
                        jobs.extend(all.into_iter().map(|stored| Job { name: &info.name, stored }));
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
        let mut reader = Reader { bundle, open: None, buffer: vec![0; BUFFER] };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = pieces.get(number) else { return };
            let sum = reader.sum(&jobs[piece.job], piece);
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
    for (name, error) in judge(&jobs, &pieces, sums) {
        report.faults.push(Fault { name, error });
    }
    Ok(report)
}

/// The pieces of all jobs, in file order.
fn cut(jobs: &[Job<'_>]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (job, Job { stored, .. }) in jobs.iter().enumerate() {
        // Strings are parsed, so they stay whole.
        let step = if stored.dtype == DType::String { stored.size.max(1) } else { PIECE };
        let mut offset = stored.offset;
        loop {
            let length = step.min(stored.end() - offset);
            pieces.push(Piece { job, offset, length });
            offset += length;
            if offset >= stored.end() {
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

/// One thread's open file and buffer.
struct Reader<'a> {
    bundle: &'a Bundle,
    open: Option<(u32, PathBuf, File)>,
    buffer: Vec<u8>,
}

impl Reader<'_> {
    /// The plain CRC32C of a piece.
    fn sum(&mut self, job: &Job<'_>, piece: &Piece) -> Result<u32> {
        let shard = job.stored.shard;
        if self.open.as_ref().is_none_or(|(open, ..)| *open != shard) {
            let path = bundle::data_path(self.bundle.prefix(), shard, self.bundle.shards());
            let file = File::open(&path)
                .map_err(|e| bundle::missing(read_error(e, &path, "open"), &path, job.name))?;
            self.open = Some((shard, path, file));
        }
        let Some((_, path, file)) = &mut self.open else {
            return Ok(0);
        };
        let failed = |e: io::Error| match e.kind() {
            io::ErrorKind::UnexpectedEof => match frazil_tensor::file::map(&*path) {
                Ok(bytes) => self.bundle.short_data(job.name, job.stored, path, &bytes),
                Err(error) => error.into(),
            },
            _ => read_error(e, path, "read").into(),
        };
        // Sizes come from the index: look before allocating for strings.
        let length = file.metadata().map_err(failed)?.len();
        if job.stored.end() > length {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        file.seek(SeekFrom::Start(piece.offset)).map_err(failed)?;
        if job.stored.dtype == DType::String {
            let mut bytes = vec![0; piece.length as usize];
            file.read_exact(&mut bytes).map_err(failed)?;
            return bundle::string_sum(job.stored, &Bytes::from(bytes))
                .map_err(|e| e.in_file(&*path));
        }
        let (mut crc, mut left) = (0, piece.length);
        while left > 0 {
            let part = left.min(BUFFER as u64) as usize;
            file.read_exact(&mut self.buffer[..part]).map_err(failed)?;
            crc = crc32c::crc32c_append(crc, &self.buffer[..part]);
            left -= part as u64;
        }
        Ok(crc)
    }
}

fn read_error(
    source: io::Error,
    path: &std::path::Path,
    action: &'static str,
) -> frazil_tensor::Error {
    frazil_tensor::Error::Io { action, path: path.to_path_buf(), source }
}
