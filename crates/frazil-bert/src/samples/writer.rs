//! Writes samples, alone or in packs. A file appears under its name when it is complete.

use std::io::Write;
use std::path::{Path, PathBuf};

use frazil_tensor::file::AtomicFile;
use frazil_tf::tfrecord::{Compression, RecordWriter};

use super::binary::{self, Shape};
use super::packed::{self, Places};
use super::{FileKind, Sample};
use crate::{Error, Result};

/// What a file holds, and in which sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Records as the original writes them.
    Records,
    /// Packed records.
    PackedRecords(Places),
    /// MLPerf's sequences.
    Binary(Shape),
    /// MLPerf's packs.
    PackedBinary(Shape),
    /// PopART's later packs.
    Popart(Shape),
}

impl Format {
    /// The kind of file; PopART's later packs cannot be read.
    pub fn kind(self) -> Option<FileKind> {
        Some(match self {
            Self::Records => FileKind::Records,
            Self::PackedRecords(_) => FileKind::PackedRecords,
            Self::Binary(_) => FileKind::Binary,
            Self::PackedBinary(_) => FileKind::PackedBinary,
            Self::Popart(_) => return None,
        })
    }
}

/// Writes a file of samples.
pub struct SampleWriter {
    format: Format,
    path: PathBuf,
    sink: Sink,
    bytes: Vec<u8>,
    count: u64,
}

enum Sink {
    Records(Box<RecordWriter>),
    Plain(AtomicFile),
}

impl SampleWriter {
    /// Begins a file.
    pub fn create(path: impl AsRef<Path>, format: Format) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        if let Format::Binary(shape) | Format::PackedBinary(shape) | Format::Popart(shape) = format
        {
            shape.check()?;
        }
        let sink = match format {
            Format::Records | Format::PackedRecords(_) => {
                Sink::Records(Box::new(RecordWriter::create(&path, Compression::None)?))
            }
            Format::Binary(_) | Format::PackedBinary(_) | Format::Popart(_) => {
                Sink::Plain(AtomicFile::create(&path)?)
            }
        };
        Ok(Self { format, path, sink, bytes: Vec::new(), count: 0 })
    }

    /// Adds a pack; in files of sequences, each of its sequences.
    pub fn add(&mut self, samples: &[Sample]) -> Result<()> {
        match self.format {
            Format::Records => {
                for sample in samples {
                    self.bytes = sample.to_example().encode();
                    self.put()?;
                }
                return Ok(());
            }
            Format::Binary(shape) => {
                for sample in samples {
                    self.bytes.clear();
                    binary::write_one(sample, shape, &mut self.bytes)?;
                    self.put()?;
                }
                return Ok(());
            }
            Format::PackedRecords(places) => {
                self.bytes = packed::pack(samples, places)?.encode();
            }
            Format::PackedBinary(shape) => {
                self.bytes.clear();
                binary::write_pack(samples, shape, &mut self.bytes)?;
            }
            Format::Popart(shape) => {
                self.bytes.clear();
                binary::write_popart(samples, shape, &mut self.bytes)?;
            }
        }
        self.put()
    }

    fn put(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Records(writer) => writer.add(&self.bytes)?,
            Sink::Plain(file) => file.write_all(&self.bytes).map_err(|source| {
                let (action, path) = ("write", self.path.clone());
                Error::Tensor(frazil_tensor::Error::Io { action, path, source })
            })?,
        }
        self.count += 1;
        Ok(())
    }

    /// How many sequences or packs were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Completes the file and gives it its name.
    pub fn finish(self) -> Result<u64> {
        match self.sink {
            Sink::Records(writer) => writer.finish()?,
            Sink::Plain(file) => file.commit()?,
        }
        Ok(self.count)
    }
}
