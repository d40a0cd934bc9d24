//! TFRecord files: records of any bytes, each behind its length and two checksums.
//!
//! A record is `length: u64`, the checksum of those eight bytes, the data, the checksum of the
//! data; the whole file may be packed as gzip or zlib. [`RecordReader`] reads any stream,
//! [`Records`] a mapped, unpacked file without copying, [`RecordWriter`] writes either kind.
//! What the records hold is not looked at here: see [`example`](crate::example) and
//! [`events`](crate::events).

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use flate2::read::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use frazil_tensor::file::{self, AtomicFile};

use crate::{Error, Result, crc};

/// Length and its checksum.
const HEAD: usize = 12;
/// The checksum of the data.
const TAIL: usize = 4;
/// The longest record that is read unless the caller says otherwise. A packed file of one
/// megabyte can unpack to a thousand; no record that TensorFlow's readers take is near this.
const RECORD_LIMIT: u64 = 1 << 30;

/// How a file is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// `GZIP` in TensorFlow.
    Gzip,
    /// `ZLIB` in TensorFlow.
    Zlib,
}

impl Compression {
    /// How the file that begins with `start` is packed. A length whose checksum is right
    /// decides: it may begin like a zlib stream by accident.
    pub fn detect(start: &[u8]) -> Self {
        if let Some(head) = start.first_chunk::<HEAD>()
            && check_length(head, Place { index: 0, at: 0 }).is_ok()
        {
            return Self::None;
        }
        match start {
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [method, flags, ..]
                if method & 0x0f == 8
                    && method >> 4 <= 7
                    && u16::from_be_bytes([*method, *flags]) % 31 == 0 =>
            {
                Self::Zlib
            }
            _ => Self::None,
        }
    }
}

/// Which record, and where it begins in the unpacked data.
#[derive(Clone, Copy)]
struct Place {
    index: u64,
    at: u64,
}

impl Place {
    fn cut(self, needed: u64, available: u64) -> Error {
        Error::RecordCut { index: self.index, at: self.at, needed, available }
    }

    fn advance(&mut self, data: u64) {
        self.index += 1;
        self.at += (HEAD + TAIL) as u64 + data;
    }
}

fn length(head: &[u8; HEAD]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *head;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

fn check(what: &str, place: Place, data: &[u8], stored: &[u8]) -> Result<()> {
    let stored = stored.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
    let computed = crc::masked(data);
    if stored == computed {
        return Ok(());
    }
    let Place { index, at } = place;
    Err(Error::Checksum { what: format!("{what} record {index} at byte {at}"), stored, computed })
}

fn check_length(head: &[u8; HEAD], place: Place) -> Result<()> {
    check("the length of", place, &head[..8], &head[8..])
}

/// The records of a stream, one after the other. After an error there are no more.
pub struct RecordReader<R> {
    input: R,
    /// Of the unpacked data, where it is known.
    remaining: Option<u64>,
    place: Place,
    verify: bool,
    limit: u64,
    path: Option<PathBuf>,
    done: bool,
}

impl<R: Read> RecordReader<R> {
    /// Reads the records of an unpacked stream.
    pub fn new(input: R) -> Self {
        Self {
            input,
            remaining: None,
            place: Place { index: 0, at: 0 },
            verify: true,
            limit: RECORD_LIMIT,
            path: None,
            done: false,
        }
    }

    /// Whether checksums are checked; they are unless this says otherwise.
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// The longest record that is accepted; 1 GiB unless this says otherwise.
    pub fn record_limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    fn read(&mut self) -> Result<Option<Bytes>> {
        let place = self.place;
        let mut head = [0; HEAD];
        let got = self.fill(&mut head)?;
        if got == 0 {
            return Ok(None);
        }
        if got < HEAD {
            return Err(place.cut(HEAD as u64, got as u64));
        }
        if self.verify {
            check_length(&head, place)?;
        }
        let len = length(&head);
        let whole = len.saturating_add((HEAD + TAIL) as u64);
        if let Some(remaining) = self.remaining
            && whole > remaining
        {
            return Err(place.cut(whole, remaining));
        }
        if len > self.limit {
            let what = format!("record {} at byte {}", place.index, place.at);
            return Err(Error::OverLimit { what, size: len, limit: self.limit });
        }
        // Where the end of the stream is not known, the buffer grows with what arrives.
        let certain = self.remaining.map_or(0, |_| len as usize + TAIL);
        let mut data = Vec::with_capacity(certain);
        let wanted = len + TAIL as u64;
        match self.input.by_ref().take(wanted).read_to_end(&mut data) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(e) => return Err(self.stream_error(e)),
        }
        if (data.len() as u64) < wanted {
            return Err(place.cut(whole, (HEAD + data.len()) as u64));
        }
        let mut data = Bytes::from(data);
        let stored = data.split_off(data.len() - TAIL);
        if self.verify {
            check("the data of", place, &data, &stored)?;
        }
        self.place.advance(len);
        if let Some(remaining) = &mut self.remaining {
            *remaining -= whole;
        }
        Ok(Some(data))
    }

    /// Reads until `buffer` is full or the stream ends, and says how much was read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A packed stream that ends early; if it ends between records, that too is a
                // file without its end.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(self.place.cut(buffer.len() as u64, got as u64));
                }
                Err(e) => return Err(self.stream_error(e)),
            }
        }
        Ok(got)
    }

    /// The decoders report a damaged stream as an error of the operating system's kind.
    fn stream_error(&self, e: io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Error::Corrupt {
                what: "the packed stream",
                at: self.place.at,
                reason: e.to_string(),
            },
            _ => Error::Io(e),
        }
    }
}

/// A file that is unpacked on the way.
pub type PackedFile = Box<dyn Read + Send>;

impl RecordReader<PackedFile> {
    /// Opens a file: plain, gzip or zlib by its content.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let in_file = |e: io::Error| Error::from(e).in_file(path);
        let file = File::open(path).map_err(in_file)?;
        let len = file.metadata().map_err(in_file)?.len();
        let mut start = Vec::new();
        let mut file = BufReader::with_capacity(1 << 18, file);
        file.by_ref().take(HEAD as u64).read_to_end(&mut start).map_err(in_file)?;
        let mut reader = Self::unpack(io::Cursor::new(start.clone()).chain(file), &start, len);
        reader.path = Some(path.to_path_buf());
        Ok(reader)
    }

    /// The records of a file that is already in memory: plain, gzip or zlib by its content.
    pub fn from_bytes(bytes: Bytes) -> Self {
        let (start, len) = (bytes.clone(), bytes.len() as u64);
        Self::unpack(io::Cursor::new(bytes), &start, len)
    }

    fn unpack(file: impl Read + Send + 'static, start: &[u8], len: u64) -> Self {
        let compression = Compression::detect(start);
        let input: PackedFile = match compression {
            Compression::None => Box::new(file),
            Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(file))),
            Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(file))),
        };
        let mut reader = Self::new(input);
        reader.remaining = (compression == Compression::None).then_some(len);
        reader
    }
}

impl<R: Read> Iterator for RecordReader<R> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let read = self.read();
        self.done = !matches!(read, Ok(Some(_)));
        let read = match &self.path {
            Some(path) => read.map_err(|e| e.in_file(path)),
            None => read,
        };
        read.transpose()
    }
}

/// The records of unpacked data in memory: each is a window on it.
pub struct Records {
    data: Bytes,
    place: Place,
    verify: bool,
}

impl Records {
    /// The records in `data`.
    pub fn new(data: Bytes) -> Self {
        Self { data, place: Place { index: 0, at: 0 }, verify: true }
    }

    /// The records of a file that is not packed, on mapped memory.
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self::new(file::map(path)?))
    }

    /// Whether checksums are checked; they are unless this says otherwise.
    pub fn verify_checksums(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Says that the data is a part of a file: its first record is this one, and begins there. Errors
    /// speak of places in the file.
    pub fn part_of_file(mut self, index: u64, at: u64) -> Self {
        self.place = Place { index, at };
        self
    }

    /// Where in the file the next record begins.
    pub fn position(&self) -> u64 {
        self.place.at
    }

    /// Passes over a record and tells where it lies, length and checksums included. Of its data
    /// nothing is looked at, so a large file is gone through quickly; after an error there are no
    /// more.
    pub fn next_span(&mut self) -> Option<Result<std::ops::Range<u64>>> {
        if self.data.is_empty() {
            return None;
        }
        let begin = self.place.at;
        let span = self.length().map(|len| {
            let _ = self.data.split_to(HEAD + TAIL + len as usize);
            self.place.advance(len);
            begin..self.place.at
        });
        if span.is_err() {
            self.data.clear();
        }
        Some(span)
    }

    /// The length of the next record, all of which is there.
    fn length(&self) -> Result<u64> {
        let place = self.place;
        let available = self.data.len() as u64;
        let Some(head) = self.data.first_chunk::<HEAD>() else {
            return Err(place.cut(HEAD as u64, available));
        };
        if self.verify {
            check_length(head, place)?;
        }
        let len = length(head);
        let whole = len.saturating_add((HEAD + TAIL) as u64);
        if whole > available {
            return Err(place.cut(whole, available));
        }
        Ok(len)
    }

    fn read(&mut self) -> Result<Bytes> {
        let place = self.place;
        let len = self.length()?;
        let mut record = self.data.split_to(HEAD + TAIL + len as usize).split_off(HEAD);
        let stored = record.split_off(len as usize);
        if self.verify {
            check("the data of", place, &record, &stored)?;
        }
        self.place.advance(len);
        Ok(record)
    }
}

impl Iterator for Records {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.data.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.data.clear();
        }
        Some(read)
    }
}

/// Writes one record.
pub fn write_record(w: &mut impl Write, data: &[u8]) -> io::Result<()> {
    let len = (data.len() as u64).to_le_bytes();
    w.write_all(&len)?;
    w.write_all(&crc::masked(&len).to_le_bytes())?;
    w.write_all(data)?;
    w.write_all(&crc::masked(data).to_le_bytes())
}

/// Writes a file of records. It appears under its name at [`finish`](Self::finish); dropped
/// before, it leaves nothing.
pub struct RecordWriter {
    path: PathBuf,
    sink: Sink,
    count: u64,
}

enum Sink {
    Plain(AtomicFile),
    Gzip(GzEncoder<AtomicFile>),
    Zlib(ZlibEncoder<AtomicFile>),
}

impl RecordWriter {
    /// Starts a file.
    pub fn create(path: impl AsRef<Path>, compression: Compression) -> Result<Self> {
        let file = AtomicFile::create(&path)?;
        let level = flate2::Compression::default();
        let sink = match compression {
            Compression::None => Sink::Plain(file),
            Compression::Gzip => Sink::Gzip(GzEncoder::new(file, level)),
            Compression::Zlib => Sink::Zlib(ZlibEncoder::new(file, level)),
        };
        Ok(Self { path: path.as_ref().to_path_buf(), sink, count: 0 })
    }

    /// Adds a record.
    pub fn add(&mut self, data: &[u8]) -> Result<()> {
        let written = match &mut self.sink {
            Sink::Plain(w) => write_record(w, data),
            Sink::Gzip(w) => write_record(w, data),
            Sink::Zlib(w) => write_record(w, data),
        };
        written.map_err(|e| write_error(&self.path, e))?;
        self.count += 1;
        Ok(())
    }

    /// How many records were added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Completes the file and gives it its name.
    pub fn finish(self) -> Result<()> {
        let file = match self.sink {
            Sink::Plain(file) => Ok(file),
            Sink::Gzip(encoder) => encoder.finish(),
            Sink::Zlib(encoder) => encoder.finish(),
        };
        Ok(file.map_err(|e| write_error(&self.path, e))?.commit()?)
    }
}

pub(crate) fn write_error(path: &Path, source: io::Error) -> Error {
    frazil_tensor::Error::Io { action: "write", path: path.to_path_buf(), source }.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zlib];

    fn plain(records: &[&[u8]]) -> Bytes {
        let mut bytes = Vec::new();
        for record in records {
            write_record(&mut bytes, record).unwrap();
        }
        bytes.into()
    }

    fn stream(bytes: &Bytes) -> Result<Vec<Bytes>> {
        RecordReader::new(&bytes[..]).collect()
    }

    #[test]
    fn a_part_of_a_file_knows_its_place() {
        let mut bytes = plain(&[b"one", b"two"]).to_vec();
        let begin = bytes.len() / 2;
        bytes[begin + HEAD] ^= 1;
        let part = Bytes::from(bytes).slice(begin..);
        let error = Records::new(part).part_of_file(1, begin as u64).next().unwrap().unwrap_err();
        let said = error.to_string();
        assert!(said.starts_with("the checksum of the data of record 1 at byte 19 "), "{said}");
    }

    #[test]
    fn a_record_as_tensorflow_writes_it() {
        // `tf.io.TFRecordWriter("x").write(b"frazil")`, TensorFlow 1.15.
        let expected = b"\x06\0\0\0\0\0\0\0\x73\x69\xd5\x37frazil\xf4\x73\x98\x7e";
        assert_eq!(&plain(&[b"frazil"])[..], expected);
    }

    #[test]
    fn spans_are_found_without_looking_at_data() {
        let mut bytes = plain(&[b"one", b"", b"three"]).to_vec();
        *bytes.last_mut().unwrap() ^= 1; // a checksum that is wrong
        let bytes = Bytes::from(bytes);
        let mut records = Records::new(bytes.clone());
        let spans: Vec<_> = std::iter::from_fn(|| records.next_span()).flatten().collect();
        assert_eq!(spans, [0..19, 19..35, 35..56]);
        let of = |span: &std::ops::Range<u64>| {
            let span = span.start as usize..span.end as usize;
            Records::new(bytes.slice(span)).next().unwrap()
        };
        assert_eq!(&of(&spans[0]).unwrap()[..], b"one");
        assert!(matches!(of(&spans[2]), Err(Error::Checksum { .. })));
        let mut cut = Records::new(bytes.slice(..50));
        let spans: Vec<_> = std::iter::from_fn(|| cut.next_span()).collect();
        assert!(spans.len() == 3 && spans[2].is_err());
    }

    #[test]
    fn every_cut_is_found_where_it_is() {
        let bytes = plain(&[b"one", b"", b"three"]);
        let ends = [0, 19, 35, 56];
        assert_eq!(bytes.len(), ends[3]);
        for end in 0..bytes.len() {
            let cut = bytes.slice(..end);
            let whole = ends.iter().filter(|&&e| e > 0 && e <= end).count();
            for result in [stream(&cut), Records::new(cut.clone()).collect()] {
                if ends.contains(&end) {
                    assert_eq!(result.unwrap().len(), whole);
                    continue;
                }
                let Err(Error::RecordCut { index, at, needed, available }) = result else {
                    panic!("cut at {end}: {result:?}")
                };
                assert_eq!((index, at), (whole as u64, ends[whole] as u64));
                assert_eq!(available, (end - ends[whole]) as u64);
                assert!(needed > available);
            }
        }
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = plain(&[b"one", b"two"]);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            let bad = Bytes::from(bad);
            assert!(matches!(stream(&bad), Err(Error::Checksum { .. })), "bit {bit}");
            let mapped: Result<Vec<Bytes>> = Records::new(bad).collect();
            assert!(matches!(mapped, Err(Error::Checksum { .. })), "bit {bit}");
        }
    }

    #[test]
    fn checksums_can_be_left_unchecked() {
        let mut bytes = plain(&[b"one"]).to_vec();
        bytes[13] ^= 1;
        let unchecked: Vec<_> =
            RecordReader::new(&bytes[..]).verify_checksums(false).collect::<Result<_>>().unwrap();
        assert_eq!(unchecked, ["ooe"]);
        let mut mapped = Records::new(bytes.into()).verify_checksums(false);
        assert_eq!(mapped.next().unwrap().unwrap(), unchecked[0]);
    }

    #[test]
    fn a_huge_length_allocates_nothing() {
        let len = (u64::MAX - 3).to_le_bytes();
        let mut bytes = len.to_vec();
        bytes.extend_from_slice(&crc::masked(&len).to_le_bytes());
        bytes.extend_from_slice(b"data");
        let bytes = Bytes::from(bytes);
        assert!(matches!(stream(&bytes), Err(Error::OverLimit { .. })));
        let mapped: Result<Vec<Bytes>> = Records::new(bytes.clone()).collect();
        assert!(matches!(mapped, Err(Error::RecordCut { available: 16, .. })));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, &bytes).unwrap();
        let error = RecordReader::open(&path).unwrap().next().unwrap().unwrap_err();
        let Error::InFile { source, .. } = &error else { panic!("{error}") };
        assert!(matches!(**source, Error::RecordCut { .. }));
        assert!(error.hint().is_some());
    }

    #[test]
    fn after_an_error_there_is_nothing() {
        let mut bytes = plain(&[b"one", b"two"]).to_vec();
        bytes[3] ^= 1;
        let mut reader = RecordReader::new(&bytes[..]);
        assert!(reader.next().unwrap().is_err() && reader.next().is_none());
        let mut records = Records::new(bytes.clone().into());
        assert!(records.next().unwrap().is_err() && records.next().is_none());
    }

    #[test]
    fn packed_files_are_known_by_their_content() {
        let folder = tempfile::tempdir().unwrap();
        for compression in ALL {
            let path = folder.path().join(format!("{compression:?}"));
            let mut writer = RecordWriter::create(&path, compression).unwrap();
            // Lengths that begin like zlib (78 9c, 78 01) and gzip (1f 8b 08) streams.
            for len in [0x9c78usize, 0x0178, 0x08_8b1f, 0] {
                writer.add(&vec![7; len]).unwrap();
            }
            assert_eq!(writer.count(), 4);
            assert!(!path.exists());
            writer.finish().unwrap();
            let read: Vec<Bytes> =
                RecordReader::open(&path).unwrap().collect::<Result<_>>().unwrap();
            assert_eq!(
                read.iter().map(Bytes::len).collect::<Vec<_>>(),
                [0x9c78, 0x178, 0x88b1f, 0]
            );
            assert_eq!(Compression::detect(&std::fs::read(&path).unwrap()), compression);
        }
    }

    #[test]
    fn a_packed_file_without_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        for compression in [Compression::Gzip, Compression::Zlib] {
            let mut writer = RecordWriter::create(&path, compression).unwrap();
            writer.add(b"some bytes").unwrap();
            writer.add(b"some more bytes").unwrap();
            writer.finish().unwrap();
            let whole = std::fs::read(&path).unwrap();
            for end in 12..whole.len() {
                std::fs::write(&path, &whole[..end]).unwrap();
                let read: Result<Vec<Bytes>> = RecordReader::open(&path).unwrap().collect();
                assert!(read.is_err(), "{compression:?} cut at {end}");
            }
            for at in 0..whole.len() {
                let mut bad = whole.clone();
                bad[at] ^= 0x40;
                std::fs::write(&path, &bad).unwrap();
                // The header's time and flags do not matter; nothing may panic.
                let _ = RecordReader::open(&path).unwrap().collect::<Result<Vec<Bytes>>>();
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            compression in prop::sample::select(ALL.to_vec()),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("x");
            let mut writer = RecordWriter::create(&path, compression).unwrap();
            for record in &records {
                writer.add(record).unwrap();
            }
            writer.finish().unwrap();
            let read: Vec<Bytes> =
                RecordReader::open(&path).unwrap().collect::<Result<_>>().unwrap();
            prop_assert_eq!(&read, &records);
            if compression == Compression::None {
                let mapped: Vec<Bytes> =
                    Records::map(&path).unwrap().collect::<Result<_>>().unwrap();
                prop_assert_eq!(&mapped, &records);
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let bytes = Bytes::from(bytes);
            for verify in [true, false] {
                let _ = RecordReader::new(&bytes[..]).verify_checksums(verify).count();
                let _ = Records::new(bytes.clone()).verify_checksums(verify).count();
            }
        }
    }
}
