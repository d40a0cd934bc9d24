//! Files of samples: any of them at once, in any order.
//!
//! What a file is, is seen in its bytes: TFRecords, plain or compressed, of sequences or of packs, or
//! else MLPerf's binaries of either. Files are mapped, and a sample is read when it is asked for;
//! records are found by their lengths, and their checksums are checked when they are read. A
//! compressed file is unpacked into a temporary one first. Of several files those without any record
//! are left out ([`open_all`]), as TensorFlow's readers do it: who fills files in turn may leave some empty.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::file::Scratch;
use frazil_tf::example::Example;
use frazil_tf::tfrecord::{Compression, RecordReader, Records, write_record};
use serde::Serialize;

use super::binary::{self, Shape};
use super::{Kind, Sample, packed};
use crate::python::random::mix;
use crate::{Error, Result};

/// How files of MLPerf's packs are named: this, lengths, `_part_` and a number.
pub const STRATEGY: &str = "strategy_";
/// A file that is in a folder while the files of an earlier packing are replaced. If it is left, that went wrong
/// half-way. Who reads `strategy*` meets it, and a folder that has it is read by nobody.
pub const UNFINISHED: &str = "strategy_unfinished";

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// Records of sequences.
    Records,
    /// Records of packs.
    PackedRecords,
    /// MLPerf's sequences.
    Binary,
    /// MLPerf's packs.
    PackedBinary,
}

impl FileKind {
    /// Whether it holds packs.
    pub fn is_packed(self) -> bool {
        matches!(self, Self::PackedRecords | Self::PackedBinary)
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Records => "records of sequences",
            Self::PackedRecords => "records of packs",
            Self::Binary => "binary sequences",
            Self::PackedBinary => "binary packs",
        })
    }
}

/// A file of samples.
#[derive(Debug)]
pub struct SampleFile {
    path: PathBuf,
    data: Bytes,
    kind: FileKind,
    shape: Shape,
    /// Where records end; nothing for binaries.
    ends: Vec<u64>,
    /// What its first sample is that is there.
    holds: Kind,
    padded: usize,
    is_padding_only: bool,
}

impl SampleFile {
    /// Opens a file. `shape` says how large the samples of a binary are.
    pub fn open(path: impl AsRef<Path>, shape: Shape) -> Result<Self> {
        let path = path.as_ref();
        shape.check()?; // which is not the file's
        refuse_half_replaced(path)?;
        let data = frazil_tensor::file::map(path)?;
        Self::of_bytes(data, path, shape).map_err(|error| error.in_file(path))
    }

    /// The same of a file's contents.
    pub fn of_bytes(data: Bytes, path: &Path, shape: Shape) -> Result<Self> {
        if data.is_empty() {
            return Err(Error::EmptyFile { expected: "samples" });
        }
        shape.check()?;
        let first = Records::new(data.clone()).next_span().transpose();
        let mut file = Self {
            path: path.to_path_buf(),
            data,
            kind: FileKind::Records,
            shape,
            ends: Vec::new(),
            holds: Kind::Pretraining,
            padded: 0,
            is_padding_only: true,
        };
        match first {
            Ok(_) => file.index()?,
            Err(_) if Compression::detect(&file.data) != Compression::None => {
                file.data = unpack(&file.data)?;
                file.index()?;
            }
            Err(record) => {
                file.kind = file.kind_of_binary().map_err(|binary| Error::NoSamples {
                    record: Box::new(record),
                    binary: Box::new(binary),
                })?;
            }
        }
        for index in 0..file.len() {
            if let Some(sample) = file.samples(index)?.first() {
                (file.holds, file.padded) = (sample.kind(), sample.features().padded_len());
                file.is_padding_only = sample.is_empty();
            }
            if !file.is_padding_only {
                break;
            }
        }
        Ok(file)
    }

    /// Finds the records.
    fn index(&mut self) -> Result<()> {
        let mut records = Records::new(self.data.clone());
        while let Some(span) = records.next_span() {
            let index = self.ends.len() as u64;
            self.ends.push(span.map_err(|error| in_record(index, error.into()))?.end);
        }
        if self.ends.is_empty() {
            return Err(Error::EmptyFile { expected: "samples" });
        }
        let first = self.example(0).map_err(|error| in_record(0, error))?;
        if packed::is_packed(&first) {
            self.kind = FileKind::PackedRecords;
        }
        Ok(())
    }

    /// Sequences or packs: whichever size the file is a multiple of, and if it is of both, whichever
    /// the first that is not padding is one of.
    fn kind_of_binary(&self) -> Result<FileKind> {
        let of = [self.shape.bytes_of_one(), self.shape.bytes_of_pack()];
        let [one, pack] = of.map(|size| self.data.len().is_multiple_of(size));
        let first = || self.data.chunks_exact(of[1]).find(|pack| !is_zero(pack));
        let is_pack = |bytes| binary::read_pack(bytes, self.shape).is_ok();
        match (one, pack) {
            (true, true) if first().is_some_and(is_pack) => Ok(FileKind::PackedBinary),
            (true, _) => Ok(FileKind::Binary),
            (_, true) => Ok(FileKind::PackedBinary),
            _ => {
                let [of_one, of_pack] = of.map(|size| size as u64);
                Err(Error::BinarySize { found: self.data.len() as u64, of_one, of_pack })
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it holds.
    pub fn kind(&self) -> FileKind {
        self.kind
    }

    /// What is to be learnt from its samples, going by the first.
    pub fn holds(&self) -> Kind {
        self.holds
    }

    /// The length with padding of its first sequence or pack.
    pub fn padded_len(&self) -> usize {
        self.padded
    }

    /// The number of its sequences or packs.
    pub fn len(&self) -> usize {
        match self.kind {
            FileKind::Records | FileKind::PackedRecords => self.ends.len(),
            FileKind::Binary => self.data.len() / self.shape.bytes_of_one(),
            FileKind::PackedBinary => self.data.len() / self.shape.bytes_of_pack(),
        }
    }

    /// Whether no sequence is in it, only padding.
    pub fn is_padding_only(&self) -> bool {
        self.is_padding_only
    }

    /// Never: an empty file is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples of a pack, none of one that is padding alone; or the sequence alone, whatever it is.
    pub fn samples(&self, index: usize) -> Result<Vec<Sample>> {
        let read = match self.kind {
            FileKind::Records => {
                self.example(index).and_then(|example| Ok(vec![Sample::from_example(&example)?]))
            }
            FileKind::PackedRecords => {
                self.example(index).and_then(|example| match packed::is_padding(&example) {
                    true => Ok(Vec::new()),
                    false => packed::unpack(&example),
                })
            }
            FileKind::Binary => {
                let bytes = self.part(index, self.shape.bytes_of_one());
                binary::read_one(bytes, self.shape).map(|sample| vec![sample])
            }
            FileKind::PackedBinary => {
                let bytes = self.part(index, self.shape.bytes_of_pack());
                match is_zero(bytes) {
                    true => Ok(Vec::new()),
                    false => binary::read_pack(bytes, self.shape),
                }
            }
        };
        read.map_err(|error| self.in_record(index, error))
    }

    /// Says in which record of the file this was met.
    pub fn in_record(&self, index: usize, error: Error) -> Error {
        in_record(index as u64, error).in_file(&self.path)
    }

    /// Whether a pack or sequence is nothing but padding. Where zeros tell, nothing is decoded.
    pub fn is_padding(&self, index: usize) -> Result<bool> {
        match self.kind {
            FileKind::Binary => {
                let mask = self.part(index, self.shape.bytes_of_one());
                Ok(is_zero(&mask[self.shape.mask_of_one()]))
            }
            FileKind::PackedBinary => Ok(is_zero(self.part(index, self.shape.bytes_of_pack()))),
            _ => Ok(self.samples(index)?.iter().all(Sample::is_empty)),
        }
    }

    /// Numbers that differ where files do. Of records these are all checksums, which stand beside the lengths
    /// that were read already; of binaries, which have none, some samples all over the file.
    pub(super) fn marks(&self) -> impl Iterator<Item = u64> {
        const SAMPLES: usize = 1024;
        const CHECKSUM: usize = 4;
        let size = match self.kind {
            FileKind::Records | FileKind::PackedRecords => None,
            FileKind::Binary => Some(self.shape.bytes_of_one()),
            FileKind::PackedBinary => Some(self.shape.bytes_of_pack()),
        };
        let every = size.map_or(1, |_| self.len().div_ceil(SAMPLES));
        let mark = move |index| match size {
            Some(size) => fold(self.part(index, size)),
            None => {
                fold(self.span(index).map_or(&[], |span| &self.data[span.end - CHECKSUM..span.end]))
            }
        };
        let kind = [self.kind as u64, self.len() as u64];
        kind.into_iter().chain((0..self.len()).step_by(every).map(mark))
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Result<Vec<Sample>>> {
        (0..self.len()).map(|index| self.samples(index))
    }

    fn part(&self, index: usize, size: usize) -> &[u8] {
        &self.data[index * size..][..size]
    }

    fn example(&self, index: usize) -> Result<Example> {
        let Some(span) = self.span(index) else {
            return Err(Error::EmptyFile { expected: "samples" });
        };
        let begin = span.start as u64;
        match Records::new(self.data.slice(span)).part_of_file(index as u64, begin).next() {
            Some(record) => Ok(Example::decode(record?)?),
            None => Err(Error::EmptyFile { expected: "samples" }),
        }
    }

    fn span(&self, index: usize) -> Option<Range<usize>> {
        let begin = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(begin as usize..*self.ends.get(index)? as usize)
    }
}

/// A packing that was not replaced completely has files of two, or none of some: whichever of them is read.
fn refuse_half_replaced(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.starts_with(STRATEGY) || !path.with_file_name(UNFINISHED).exists() {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Err(Error::HalfReplaced { folder: folder.unwrap_or(Path::new(".")).to_path_buf() })
}

/// Opens files, those without any record left out. If all are such, that is an error.
pub fn open_all(paths: &[impl AsRef<Path>], shape: Shape) -> Result<Vec<SampleFile>> {
    let (mut files, mut without) = (Vec::new(), None);
    for path in paths {
        match SampleFile::open(path, shape) {
            Err(error) if error.is_of_empty_file() => without = without.or(Some(error)),
            file => files.push(file?),
        }
    }
    match without {
        Some(error) if files.is_empty() => Err(error),
        _ => Ok(files),
    }
}

/// One number of bytes.
fn fold(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum ^ u64::from_le_bytes(word))
    })
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn in_record(index: u64, error: Error) -> Error {
    use frazil_tf::Error as E;
    match error {
        Error::InFile { .. } | Error::InRecord { .. } => error,
        // It names the record, and its place in the file.
        Error::TensorFlow(cause)
            if matches!(*cause, E::Checksum { .. } | E::RecordCut { .. } | E::OverLimit { .. }) =>
        {
            Error::TensorFlow(cause)
        }
        error => Error::InRecord { index, source: Box::new(error) },
    }
}

/// The records of a compressed file, uncompressed.
fn unpack(data: &Bytes) -> Result<Bytes> {
    let folder = std::env::temp_dir();
    let mut scratch = Scratch::create_in(&folder)?;
    for record in RecordReader::from_bytes(data.clone()) {
        write_record(&mut scratch, &record?).map_err(|source| {
            let (action, path) = ("write a temporary file in", folder.clone());
            Error::Tensor(frazil_tensor::Error::Io { action, path, source })
        })?;
    }
    Ok(scratch.map()?)
}

#[cfg(test)]
mod tests {
    use frazil_tf::tfrecord::RecordWriter;

    use super::super::testing::{classifier, pretraining};
    use super::super::writer::{Format, SampleWriter};
    use super::*;
    use crate::features::Target;

    const SHAPE: Shape = Shape { max_length: 32, max_predictions: 5, sequences: 3 };

    fn packs() -> Vec<Vec<Sample>> {
        let of = |lengths: &[usize]| {
            lengths.iter().zip(0..).map(|(length, salt)| pretraining(*length, salt)).collect()
        };
        vec![of(&[9, 12, 11]), of(&[31]), of(&[20, 5])]
    }

    #[test]
    fn every_kind_is_known_by_its_bytes() {
        let folder = tempfile::tempdir().unwrap();
        for (format, kind) in [
            (Format::Records, FileKind::Records),
            (Format::PackedRecords(SHAPE.places()), FileKind::PackedRecords),
            (Format::Binary(SHAPE), FileKind::Binary),
            (Format::PackedBinary(SHAPE), FileKind::PackedBinary),
        ] {
            let path = folder.path().join(format!("{kind:?}"));
            let mut writer = SampleWriter::create(&path, format).unwrap();
            packs().iter().for_each(|pack| writer.add(pack).unwrap());
            assert_eq!(writer.finish().unwrap(), if kind.is_packed() { 3 } else { 6 });
            let file = SampleFile::open(&path, SHAPE).unwrap();
            assert_eq!((file.kind(), file.holds()), (kind, Kind::Pretraining));
            assert_eq!((format.kind(), file.padded_len()), (Some(kind), 32));
            let read: Vec<Sample> = file.iter().flat_map(Result::unwrap).collect();
            assert_eq!(read, packs().concat());
            let last = file.samples(file.len() - 1).unwrap();
            assert_eq!(last.last(), packs().concat().last());
        }
    }

    #[test]
    fn compressed_records_are_read_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.gz");
        let mut writer = RecordWriter::create(&path, Compression::Gzip).unwrap();
        let samples = [classifier(Target::Class(1)), classifier(Target::Class(0))];
        samples.iter().for_each(|sample| writer.add(&sample.to_example().encode()).unwrap());
        writer.finish().unwrap();
        let file = SampleFile::open(&path, SHAPE).unwrap();
        assert_eq!((file.len(), file.holds()), (2, Kind::Classifier));
        assert_eq!(file.samples(1).unwrap(), [samples[1].clone()]);
    }

    #[test]
    fn a_corrupt_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut writer = SampleWriter::create(&path, Format::Records).unwrap();
        writer.add(&packs()[0]).unwrap();
        writer.finish().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        std::fs::write(&path, &bytes).unwrap();
        let file = SampleFile::open(&path, SHAPE).unwrap();
        assert!(file.samples(0).is_ok() && file.samples(2).is_ok());
        let error = file.samples(1).unwrap_err();
        assert!(matches!(&error, Error::InFile { .. }));
        // By its number and its place in the file.
        let said: Vec<String> = causes(&error);
        let second = file.ends[0];
        let expected = format!("the checksum of the data of record 1 at byte {second} is wrong");
        assert!(said.len() == 2 && said[1].starts_with(&expected), "{said:?}");
        // Cut, or of another size.
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(SampleFile::open(&path, SHAPE).is_err());
        std::fs::write(&path, vec![0; SHAPE.bytes_of_one() + 4]).unwrap();
        let said = causes(&SampleFile::open(&path, SHAPE).unwrap_err()).join(": ");
        assert!(said.contains("no whole samples"), "{said}");
        // Of what begins wrongly, nobody knows what it was to be.
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let error = SampleFile::open(&path, SHAPE).unwrap_err();
        let said = causes(&error).join(": ");
        let record = "neither TFRecords (the checksum of the length of record 0 at byte 0 is wrong";
        assert!(said.contains(record) && said.contains("nor binaries"), "{said}");
        assert!(said.contains(&format!("{} bytes are no whole samples", bytes.len())), "{said}");
        assert!(error.hint().unwrap().contains("copied or made again; a binary"));
        std::fs::write(&path, b"").unwrap();
        let said = causes(&SampleFile::open(&path, SHAPE).unwrap_err()).join(": ");
        assert!(said.contains("the file is empty"), "{said}");
    }

    #[test]
    fn a_packing_that_was_half_replaced_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["strategy_9_11_12_part_0", "other"] {
            let mut writer = SampleWriter::create(at(name), Format::PackedBinary(SHAPE)).unwrap();
            writer.add(&packs()[0]).unwrap();
            writer.finish().unwrap();
        }
        // Full or, after a power cut, empty.
        for mark in ["half", ""] {
            std::fs::write(at(UNFINISHED), mark).unwrap();
            for name in [UNFINISHED, "strategy_9_11_12_part_0"] {
                let error = open_all(&[at(name)], SHAPE).unwrap_err();
                let said = format!("`{}` is incomplete", folder.path().display());
                assert!(error.to_string().starts_with(&said), "{error}");
            }
            assert!(SampleFile::open(at("other"), SHAPE).is_ok());
        }
        std::fs::remove_file(at(UNFINISHED)).unwrap();
        assert!(SampleFile::open(at("strategy_9_11_12_part_0"), SHAPE).is_ok());
    }

    fn causes(error: &Error) -> Vec<String> {
        let mut said = Vec::new();
        let mut next: Option<&dyn std::error::Error> = Some(error);
        while let Some(error) = next {
            said.push(error.to_string());
            next = error.source();
        }
        said
    }
}
