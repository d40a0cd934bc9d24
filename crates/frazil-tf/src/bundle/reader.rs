//! Reads a bundle: all of the index when it is opened, a data file when its first tensor is.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;
use frazil_tensor::{DType, Shape, Tensor, TensorInfo, file};

use super::{VERSION, data_path, index_path, strings};
use crate::decode::decode;
use crate::proto::{BundleEntryProto, BundleHeaderProto, VersionDef, bundle_header_proto};
use crate::slice::{self, TensorSlice};
use crate::sniff::{self, Content};
use crate::sstable::Table;
use crate::{Error, Result, crc, dtype, nearest, tensor_proto};

/// The coded keys of a variable's slices may have this many bytes: each repeats the name.
const SLICE_KEY_BYTES: usize = 16 << 20;

/// An open V2 checkpoint.
#[derive(Debug)]
pub struct Bundle {
    prefix: PathBuf,
    shards: u32,
    verify: bool,
    /// Sorted by name, like `places`.
    infos: Vec<TensorInfo>,
    places: Vec<Place>,
    /// Slices by their coded key.
    slices: HashMap<Vec<u8>, Stored>,
    unreadable: Vec<Unreadable>,
    /// Data files that have been mapped, by number.
    data: Mutex<BTreeMap<u32, Bytes>>,
}

/// A tensor that a checkpoint lists, but whose type has no values that can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Its name.
    pub name: String,
    /// TensorFlow's name of its type.
    pub dtype: String,
}

/// Where a tensor's values are.
#[derive(Debug)]
pub(crate) enum Place {
    /// All in one piece.
    Whole(Stored),
    /// In slices, each with an entry of its own.
    Sliced(Vec<TensorSlice>),
}

/// A piece of a data file that holds a tensor or a slice.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) shard: u32,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    /// Masked, as stored.
    pub(crate) crc: u32,
}

impl Stored {
    /// End of the piece. Both numbers came from an `i64`, so the sum fits.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.size
    }
}

impl Bundle {
    /// Opens the checkpoint with this prefix. No data file is touched. `verify` checks the
    /// checksums of the index now and of each tensor when it is read.
    pub fn open(prefix: impl AsRef<Path>, verify: bool) -> Result<Self> {
        let prefix = prefix.as_ref();
        let index = index_path(prefix);
        let bytes = file::map(&index)?;
        Self::parse(prefix, bytes, verify).map_err(|e| e.in_file(index))
    }

    fn parse(prefix: &Path, index: Bytes, verify: bool) -> Result<Self> {
        let table = Table::open(index, verify)?;
        let mut entries = table.entries();
        let header = match entries.next().transpose()? {
            Some((key, value)) if key.is_empty() => value,
            _ => return Err(corrupt("it does not begin with the header".into())),
        };
        let mut bundle = Self {
            prefix: prefix.to_path_buf(),
            shards: check_header(header)?,
            verify,
            infos: Vec::new(),
            places: Vec::new(),
            slices: HashMap::new(),
            unreadable: Vec::new(),
            data: Mutex::default(),
        };
        for entry in entries {
            let (key, value) = entry?;
            bundle.add_entry(key, value)?;
        }
        Ok(bundle)
    }

    fn add_entry(&mut self, key: Vec<u8>, value: Bytes) -> Result<()> {
        let entry = decode::<BundleEntryProto>(value)?;
        // Coded keys of slices begin with a zero, which no variable's name does.
        let is_slice = key.first() == Some(&0);
        let name = || String::from_utf8_lossy(&key).into_owned();
        let shape = entry.shape.as_ref().map_or_else(|| Ok(Shape::scalar()), tensor_proto::shape);
        let shape = shape.map_err(|e| Error::BadShape { tensor: name(), source: Box::new(e) })?;
        let Ok(dtype) = dtype::from_proto(entry.dtype) else {
            let dtype = dtype::name(entry.dtype);
            self.unreadable.push(Unreadable { name: name(), dtype });
            return Ok(());
        };
        let place = if entry.slices.is_empty() {
            Place::Whole(self.check_place(&name(), dtype, &shape, &entry)?)
        } else if entry.slices.len().saturating_mul(key.len()) > SLICE_KEY_BYTES {
            return Err(corrupt(format!("`{}` is in too many slices", name())));
        } else {
            Place::Sliced(slice::from_protos(&name(), &entry.slices)?)
        };
        match place {
            Place::Whole(stored) if is_slice => {
                self.slices.insert(key, stored);
            }
            place => {
                let name = String::from_utf8(key).map_err(|e| {
                    corrupt(format!("`{}` is not a name", e.as_bytes().escape_ascii()))
                })?;
                self.infos.push(TensorInfo { name, dtype, shape });
                self.places.push(place);
            }
        }
        Ok(())
    }

    fn check_place(
        &self,
        tensor: &str,
        dtype: DType,
        shape: &Shape,
        entry: &BundleEntryProto,
    ) -> Result<Stored> {
        let tensor = || tensor.to_owned();
        let Some(shard) = u32::try_from(entry.shard_id).ok().filter(|&n| n < self.shards) else {
            let (shard, shards) = (entry.shard_id, self.shards);
            return Err(Error::NoSuchShard { tensor: tensor(), shard, shards });
        };
        let (Ok(offset), Ok(size)) = (u64::try_from(entry.offset), u64::try_from(entry.size))
        else {
            let (offset, size) = (entry.offset, entry.size);
            return Err(Error::BadPlace { tensor: tensor(), offset, size });
        };
        let expected = match dtype.size() {
            Some(element) => shape.elements().and_then(|n| n.checked_mul(element)),
            // What strings take is known when they are read.
            None => usize::try_from(size).ok(),
        };
        if expected.map(|expected| expected as u64) != Some(size) {
            let shape = shape.clone();
            return Err(Error::EntrySize { tensor: tensor(), dtype, shape, size });
        }
        Ok(Stored { dtype, shape: shape.clone(), shard, offset, size, crc: entry.crc32c })
    }

    /// Its prefix.
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Number of data files.
    pub fn shards(&self) -> u32 {
        self.shards
    }

    /// All tensors, sorted by name; a partitioned variable is one.
    pub fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    /// Tensors whose type has no values that can be read.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Where each tensor is, in the order of `infos`.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Where the slice of a partitioned variable is.
    pub(crate) fn slice(&self, name: &str, slice: &TensorSlice) -> Result<&Stored> {
        self.slices
            .get(&slice.key(name))
            .ok_or_else(|| Error::MissingSlice { tensor: name.into(), slice: slice.to_string() })
    }

    /// Reads a tensor: a window on the mapped file, unless it has to be put together.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        let found = self.infos.binary_search_by(|info| info.name.as_str().cmp(name));
        let Ok(number) = found else { return Err(self.no_such_tensor(name)) };
        let info = &self.infos[number];
        let slices = match &self.places[number] {
            Place::Whole(stored) => return self.read(name, stored),
            Place::Sliced(slices) => slices,
        };
        let mut parts = Vec::with_capacity(slices.len());
        let mut size = 0u64;
        for slice in slices {
            slice::resolve_named(slice, name, &info.shape)?;
            let stored = self.slice(name, slice)?;
            size = size.saturating_add(stored.size);
            parts.push((slice.clone(), self.read(name, stored)?));
        }
        // Slices that lie on top of each other would make much out of little.
        if size > self.mapped() {
            return Err(corrupt(format!("the slices of `{name}` share their bytes")));
        }
        slice::assemble(name, info.dtype, &info.shape, &parts)
    }

    fn no_such_tensor(&self, name: &str) -> Error {
        if let Some(known) = self.unreadable.iter().find(|known| known.name == name) {
            return Error::NoValues { dtype: known.dtype.clone() };
        }
        let near = nearest(name, self.infos.iter().map(|info| info.name.as_str()));
        Error::NoSuchTensor { name: name.into(), near }
    }

    fn read(&self, name: &str, stored: &Stored) -> Result<Tensor> {
        let bytes = self.bytes(name, stored)?;
        read_stored(name, stored, bytes, self.verify)
            .map_err(|e| e.in_file(data_path(&self.prefix, stored.shard, self.shards)))
    }

    /// Size of the data files that are mapped.
    fn mapped(&self) -> u64 {
        let data = self.data.lock().unwrap_or_else(|e| e.into_inner());
        data.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// The bytes of a tensor or slice: a window on its data file, which is mapped the first time.
    pub(crate) fn bytes(&self, name: &str, stored: &Stored) -> Result<Bytes> {
        let path = &data_path(&self.prefix, stored.shard, self.shards);
        // A poisoned lock means a panic elsewhere; the map of files is whole all the same.
        let mut data = self.data.lock().unwrap_or_else(|e| e.into_inner());
        let bytes = match data.get(&stored.shard) {
            Some(bytes) => bytes.clone(),
            None => {
                let bytes = file::map(path).map_err(|e| missing(e, path, name))?;
                data.insert(stored.shard, bytes.clone());
                bytes
            }
        };
        drop(data);
        if stored.end() > bytes.len() as u64 {
            return Err(self.short_data(name, stored, path, &bytes));
        }
        // Both ends fit in the file, and so in usize.
        Ok(bytes.slice(stored.offset as usize..stored.end() as usize))
    }

    /// The plain CRC32C of a tensor of strings, and whether they make sense.
    pub(crate) fn string_sum(&self, stored: &Stored, bytes: &Bytes) -> Result<u32> {
        let decoded = elements(stored).and_then(|n| strings::decode(bytes, n, true));
        let in_file = |e: Error| e.in_file(data_path(&self.prefix, stored.shard, self.shards));
        decoded.map(|(_, crc)| crc).map_err(in_file)
    }

    /// Why a data file does not reach as far as it should.
    fn short_data(&self, name: &str, stored: &Stored, path: &Path, bytes: &[u8]) -> Error {
        let found = sniff::of(bytes);
        if matches!(found, Content::LfsPointer | Content::Html) {
            let expected = "a checkpoint's data";
            return Error::WrongContent { expected, found }.in_file(path);
        }
        let whole = self.places.iter().filter_map(|place| match place {
            Place::Whole(stored) => Some(stored),
            Place::Sliced(_) => None,
        });
        let expected = whole
            .chain(self.slices.values())
            .filter(|other| other.shard == stored.shard)
            .map(Stored::end)
            .max();
        Error::ShortData {
            path: path.to_path_buf(),
            tensor: name.into(),
            expected: expected.unwrap_or(stored.end()),
            found: bytes.len() as u64,
        }
    }
}

/// The tensor that `bytes` hold, its checksum checked.
fn read_stored(name: &str, stored: &Stored, bytes: Bytes, verify: bool) -> Result<Tensor> {
    let (tensor, crc) = if stored.dtype == DType::String {
        let (values, crc) = strings::decode(&bytes, elements(stored)?, verify)?;
        (Tensor::from_strings(stored.shape.clone(), values)?, crc)
    } else {
        let crc = if verify { crc32c::crc32c(&bytes) } else { 0 };
        (Tensor::new(stored.dtype, stored.shape.clone(), bytes)?, crc)
    };
    if verify {
        check_crc(name, stored, crc)?;
    }
    Ok(tensor)
}

fn elements(stored: &Stored) -> Result<usize> {
    let too_large = || frazil_tensor::Error::TooLarge(stored.shape.clone()).into();
    stored.shape.elements().ok_or_else(too_large)
}

/// Compares the plain CRC32C of a piece with the stored one.
pub(crate) fn check_crc(name: &str, stored: &Stored, crc: u32) -> Result<()> {
    let computed = crc::mask(crc);
    if computed == stored.crc {
        return Ok(());
    }
    Err(Error::Checksum { what: format!("tensor `{name}`"), stored: stored.crc, computed })
}

/// A data file that is not there has its own error.
fn missing(error: frazil_tensor::Error, path: &Path, tensor: &str) -> Error {
    match error {
        frazil_tensor::Error::Io { ref source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Error::NoData { path: path.to_path_buf(), tensor: tensor.into() }
        }
        other => other.into(),
    }
}

/// The number of shards of a header that this reader can follow.
fn check_header(value: Bytes) -> Result<u32> {
    let header = decode::<BundleHeaderProto>(value)?;
    check_version(header.version.as_ref())?;
    if header.endianness == bundle_header_proto::Endianness::Big as i32 {
        return Err(Error::BigEndian);
    }
    u32::try_from(header.num_shards)
        .ok()
        .filter(|&shards| shards > 0)
        .ok_or_else(|| corrupt(format!("it tells of {} data files", header.num_shards)))
}

/// Whether a reader of version 1 may read this. The V1 format has the same numbers.
pub(crate) fn check_version(version: Option<&VersionDef>) -> Result<()> {
    let Some(version) = version else { return Ok(()) };
    if version.min_consumer > VERSION {
        return Err(Error::TooNew { needed: version.min_consumer, ours: VERSION });
    }
    if version.bad_consumers.contains(&VERSION) {
        return Err(Error::TooNew { needed: VERSION + 1, ours: VERSION });
    }
    Ok(())
}

fn corrupt(reason: String) -> Error {
    Error::Corrupt { what: "the checkpoint's index", at: 0, reason }
}
