//! Writes a bundle as TensorFlow 1.15 does: the same tensors in the same order give the same
//! bytes, index included.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use frazil_tensor::file::AtomicFile;
use frazil_tensor::{DType, Shape, Tensor};
use prost::Message;

use super::{VERSION, data_path, index_path, strings};
use crate::proto::{BundleEntryProto, BundleHeaderProto, VersionDef};
use crate::slice::{self, TensorSlice};
use crate::sstable::{Compression, TableBuilder};
use crate::{Error, Result, crc, dtype, tensor_proto};

/// How a bundle is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Number of data files; tensors go to the one that has the fewest bytes.
    pub shards: u32,
    /// Whether the index is compressed with snappy. TensorFlow reads both and writes it plain.
    pub compress: bool,
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self { shards: 1, compress: false }
    }
}

impl WriteOptions {
    /// With so many data files (at least one).
    pub fn shards(mut self, shards: u32) -> Self {
        self.shards = shards.max(1);
        self
    }

    /// With a compressed index.
    pub fn compress(mut self, compress: bool) -> Self {
        self.compress = compress;
        self
    }
}

/// Writes a V2 checkpoint. Values stream to hidden temporary files; nothing has its name before
/// [`finish`](Self::finish), which names the data files and then the index. Dropped before
/// that, it leaves nothing.
pub struct BundleWriter {
    prefix: PathBuf,
    options: WriteOptions,
    shards: Vec<(AtomicFile, u64)>,
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
}

impl BundleWriter {
    /// Starts a checkpoint with this prefix. Its folder is made if it is not there.
    pub fn create(prefix: impl AsRef<Path>, options: WriteOptions) -> Result<Self> {
        let prefix = prefix.as_ref().to_path_buf();
        if let Some(folder) = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(|e| io_error("create", folder, e))?;
        }
        let shards = (0..options.shards)
            .map(|shard| Ok((AtomicFile::create(data_path(&prefix, shard, options.shards))?, 0)))
            .collect::<Result<_>>()?;
        Ok(Self { prefix, options, shards, entries: BTreeMap::new() })
    }

    /// Writes a whole tensor.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        check_name(name)?;
        self.put(name.into(), name, tensor)
    }

    /// Writes one slice of the partitioned variable `name`, whose shape is `full`. All slices
    /// together should cover it; whether they do shows when it is read.
    pub fn add_slice(
        &mut self,
        name: &str,
        full: &Shape,
        slice: &TensorSlice,
        part: &Tensor,
    ) -> Result<()> {
        check_name(name)?;
        let extents = slice::resolve_named(slice, name, full)?;
        let shape = Shape::from(extents.iter().map(|e| e.length).collect::<Vec<_>>());
        let mismatch = |expected: String, found: String| Error::SliceMismatch {
            tensor: name.into(),
            slice: slice.to_string(),
            expected,
            found,
        };
        if *part.shape() != shape {
            return Err(mismatch(shape.to_string(), part.shape().to_string()));
        }
        // As TensorFlow does: the whole is no slice.
        if slice.is_whole(full) {
            return self.add(name, part);
        }
        let dtype = dtype::to_proto(part.dtype()) as i32;
        let shape = Some(tensor_proto::shape_proto(full));
        if let Some(entry) = self.entries.get(name.as_bytes()) {
            if entry.slices.is_empty() {
                return Err(taken(name));
            }
            if entry.dtype != dtype || entry.shape != shape {
                let describe =
                    |dtype, shape: &Shape| format!("part of {} {shape}", dtype::name(dtype));
                let before = entry.shape.as_ref().map(tensor_proto::shape).transpose()?;
                let before = describe(entry.dtype, &before.unwrap_or_default());
                return Err(mismatch(before, describe(dtype, full)));
            }
        }
        self.put(slice.key(name), name, part)?;
        let entry = self.entries.entry(name.into()).or_default();
        (entry.dtype, entry.shape) = (dtype, shape);
        entry.slices.push(slice.to_proto());
        Ok(())
    }

    fn put(&mut self, key: Vec<u8>, name: &str, tensor: &Tensor) -> Result<()> {
        if self.entries.contains_key(&key) {
            return Err(taken(name));
        }
        // The first of the emptiest: deterministic, and even.
        let lightest = self.shards.iter().enumerate().min_by_key(|(_, (_, size))| *size);
        let shard = lightest.map_or(0, |(shard, _)| shard);
        let (file, end) = &mut self.shards[shard];
        let offset = *end;
        let crc;
        if tensor.dtype() == DType::String {
            let (stored, plain) = strings::encode(tensor.strings()?);
            write(file, &stored)?;
            *end += stored.len() as u64;
            crc = plain;
        } else {
            let bytes = tensor.bytes()?;
            crc = write_checked(file, bytes)?;
            *end += bytes.len() as u64;
        }
        let entry = BundleEntryProto {
            dtype: dtype::to_proto(tensor.dtype()) as i32,
            shape: Some(tensor_proto::shape_proto(tensor.shape())),
            shard_id: shard as i32,
            offset: offset as i64,
            size: (*end - offset) as i64,
            crc32c: crc::mask(crc),
            slices: Vec::new(),
        };
        self.entries.insert(key, entry);
        Ok(())
    }

    /// Syncs everything to disk and gives the files their names: first the data, then the index.
    pub fn finish(self) -> Result<()> {
        let index = AtomicFile::create(index_path(&self.prefix))?;
        let compression =
            if self.options.compress { Compression::Snappy } else { Compression::None };
        let mut table = TableBuilder::new(index, compression);
        let version = VersionDef { producer: VERSION, ..VersionDef::default() };
        let header = BundleHeaderProto {
            num_shards: self.options.shards as i32,
            version: Some(version),
            ..BundleHeaderProto::default()
        };
        let failed = |e: Error| match e {
            Error::Io(source) => io_error("write", &index_path(&self.prefix), source),
            other => other,
        };
        table.add(b"", &header.encode_to_vec()).map_err(failed)?;
        for (key, entry) in &self.entries {
            table.add(key, &entry.encode_to_vec()).map_err(failed)?;
        }
        let index = table.finish().map_err(failed)?;
        for (file, _) in self.shards {
            file.commit()?;
        }
        Ok(index.commit()?)
    }
}

fn check_name(name: &str) -> Result<()> {
    let reason = match name.as_bytes().first() {
        None => "the empty name is the header's",
        Some(0) => "a name that begins with a zero byte would be taken for a slice",
        Some(_) => return Ok(()),
    };
    Err(Error::BadName { name: name.into(), reason })
}

fn taken(name: &str) -> Error {
    Error::BadName { name: name.into(), reason: "it has been written already" }
}

fn write(file: &mut AtomicFile, bytes: &[u8]) -> Result<()> {
    file.write_all(bytes).map_err(|e| io_error("write", file.path(), e))
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> Error {
    frazil_tensor::Error::Io { action, path: path.to_path_buf(), source }.into()
}

/// Writes and sums in pieces, so that each is still in the cache for the second.
fn write_checked(file: &mut AtomicFile, bytes: &[u8]) -> Result<u32> {
    let mut crc = 0;
    for piece in bytes.chunks(256 << 10) {
        crc = crc32c::crc32c_append(crc, piece);
        write(file, piece)?;
    }
    Ok(crc)
}
