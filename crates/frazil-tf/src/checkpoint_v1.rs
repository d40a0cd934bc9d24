//! V1 checkpoints, TensorFlow's format before 0.12 and, on request, ever since: one table (or
//! one per shard) in which key `""` lists all tensors with their slices, and each slice's values
//! are a message under its coded key. Read only; what is written is V2.
//!
//! Checksums are those of the table's blocks: a tensor has none of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::{DType, Shape, Tensor, TensorInfo, file};

use crate::bundle::{Unreadable, check_version};
use crate::decode::decode;
use crate::proto::{SavedSliceMeta, SavedTensorSlices, TensorProto};
use crate::slice::{self, TensorSlice};
use crate::sstable::Table;
use crate::{Error, Result, dtype, nearest, tensor_proto};

/// An open V1 checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointV1 {
    files: Vec<(PathBuf, Table)>,
    /// Sorted by name, like `parts`.
    infos: Vec<TensorInfo>,
    /// Per tensor the slices and the number of the file that has each.
    parts: Vec<Vec<(usize, TensorSlice)>>,
    unreadable: Vec<Unreadable>,
}

/// What all files together list under one name.
struct Listed {
    dtype: DType,
    shape: Shape,
    parts: Vec<(usize, TensorSlice)>,
}

impl CheckpointV1 {
    /// Opens the checkpoint that consists of these files. Only their listings are read.
    pub(crate) fn open(paths: Vec<PathBuf>, verify: bool) -> Result<Self> {
        let mut files = Vec::with_capacity(paths.len());
        let mut all = BTreeMap::new();
        let mut unreadable = Vec::new();
        for (number, path) in paths.into_iter().enumerate() {
            let bytes = file::map(&path)?;
            let table = open_file(bytes, number, verify, &mut all, &mut unreadable)
                .map_err(|e| e.in_file(&path))?;
            files.push((path, table));
        }
        unreadable.dedup();
        let (mut infos, mut parts) = (Vec::new(), Vec::new());
        for (name, Listed { dtype, shape, parts: listed }) in all {
            infos.push(TensorInfo { name, dtype, shape });
            parts.push(listed);
        }
        Ok(Self { files, infos, parts, unreadable })
    }

    pub(crate) fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    pub(crate) fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Slices of the tensor with that number in `infos`, and the file if it is one file.
    pub(crate) fn layout(&self, number: usize) -> (usize, Option<u32>) {
        let parts = &self.parts[number];
        let file = parts.first().map(|(file, _)| *file as u32);
        (parts.len(), file.filter(|_| parts.len() == 1))
    }

    pub(crate) fn tensor(&self, name: &str) -> Result<Tensor> {
        let found = self.infos.binary_search_by(|info| info.name.as_str().cmp(name));
        let Ok(number) = found else { return Err(self.no_such_tensor(name)) };
        let info = &self.infos[number];
        // In key order, each block is read once; a slice that is listed twice would be a way to
        // make much out of little.
        let mut order: Vec<_> = self.parts[number]
            .iter()
            .map(|(file, slice)| (*file, slice.key(name), slice))
            .collect();
        order.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let mut parts = Vec::with_capacity(order.len());
        for (at, (file, key, slice)) in order.iter().enumerate() {
            if at > 0 && order[at - 1].1 == *key {
                let (tensor, slice) = (name.into(), slice.to_string());
                return Err(Error::SlicesOverlap { tensor, slice });
            }
            let (path, table) = &self.files[*file];
            let part = read_slice(table, info, slice, key).map_err(|e| e.in_file(path))?;
            parts.push(((*slice).clone(), part));
        }
        match &parts[..] {
            [(slice, part)] if slice.is_whole(&info.shape) => Ok(part.clone()),
            _ => slice::assemble(name, info.dtype, &info.shape, &parts),
        }
    }

    fn no_such_tensor(&self, name: &str) -> Error {
        if let Some(known) = self.unreadable.iter().find(|known| known.name == name) {
            return Error::NoValues { dtype: known.dtype.clone() };
        }
        let near = nearest(name, self.infos.iter().map(|info| info.name.as_str()));
        Error::NoSuchTensor { name: name.into(), near }
    }
}

/// Opens one file and adds what it lists.
fn open_file(
    bytes: Bytes,
    number: usize,
    verify: bool,
    all: &mut BTreeMap<String, Listed>,
    unreadable: &mut Vec<Unreadable>,
) -> Result<Table> {
    let table = Table::open(bytes, verify)?;
    let listing = table.get(b"")?.ok_or_else(|| corrupt("it has no list of its tensors"))?;
    let meta = decode::<SavedTensorSlices>(listing)?
        .meta
        .ok_or_else(|| corrupt("its list of tensors is empty"))?;
    check_version(meta.versions.as_ref())?;
    for tensor in meta.tensor {
        add_tensor(tensor, number, all, unreadable)?;
    }
    Ok(table)
}

fn add_tensor(
    tensor: SavedSliceMeta,
    file: usize,
    all: &mut BTreeMap<String, Listed>,
    unreadable: &mut Vec<Unreadable>,
) -> Result<()> {
    let name = tensor.name;
    let shape = tensor.shape.as_ref().map_or_else(|| Ok(Shape::scalar()), tensor_proto::shape);
    let shape = shape.map_err(|e| Error::BadShape { tensor: name.clone(), source: Box::new(e) })?;
    let Ok(dtype) = dtype::from_proto(tensor.r#type) else {
        unreadable.push(Unreadable { name, dtype: dtype::name(tensor.r#type) });
        return Ok(());
    };
    let slices = slice::from_protos(&name, &tensor.slice)?;
    let parts = slices.into_iter().map(|slice| (file, slice));
    let describe = |dtype, shape: &Shape| format!("{dtype} {shape}");
    match all.get_mut(&name) {
        None => {
            all.insert(name, Listed { dtype, shape, parts: parts.collect() });
        }
        Some(before) if before.dtype == dtype && before.shape == shape => {
            before.parts.extend(parts);
        }
        Some(before) => {
            return Err(Error::ShardsDisagree {
                tensor: name,
                first: describe(before.dtype, &before.shape),
                second: describe(dtype, &shape),
            });
        }
    }
    Ok(())
}

fn read_slice(table: &Table, info: &TensorInfo, slice: &TensorSlice, key: &[u8]) -> Result<Tensor> {
    let extents = slice::resolve_named(slice, &info.name, &info.shape)?;
    let missing = || Error::MissingSlice { tensor: info.name.clone(), slice: slice.to_string() };
    let value = table.get(key)?.ok_or_else(missing)?;
    let saved = decode::<SavedTensorSlices>(value)?.data.ok_or_else(missing)?;
    let mut values = saved.data.unwrap_or_default();
    // The message has no type and no shape of its own: the listing's hold.
    let shape = Shape::from(extents.iter().map(|e| e.length).collect::<Vec<_>>());
    values.dtype = dtype::to_proto(info.dtype) as i32;
    values.tensor_shape = Some(tensor_proto::shape_proto(&shape));
    // A constant's short list would repeat its last value; here it is damage.
    if values.tensor_content.is_empty() && Some(count(&values, info.dtype)) != shape.elements() {
        return Err(Error::SliceMismatch {
            tensor: info.name.clone(),
            slice: slice.to_string(),
            expected: format!("{} {shape}", info.dtype),
            found: format!("{} values", count(&values, info.dtype)),
        });
    }
    tensor_proto::to_tensor(&values)
}

/// How many elements a message's typed list has.
fn count(values: &TensorProto, dtype: DType) -> usize {
    match dtype {
        DType::F32 => values.float_val.len(),
        DType::F64 => values.double_val.len(),
        DType::F16 | DType::BF16 => values.half_val.len(),
        DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16 => values.int_val.len(),
        DType::QI8 | DType::QU8 | DType::QI16 | DType::QU16 | DType::QI32 => values.int_val.len(),
        DType::I64 => values.int64_val.len(),
        DType::U32 => values.uint32_val.len(),
        DType::U64 => values.uint64_val.len(),
        DType::Bool => values.bool_val.len(),
        DType::C64 => values.scomplex_val.len() / 2,
        DType::C128 => values.dcomplex_val.len() / 2,
        DType::String => values.string_val.len(),
    }
}

fn corrupt(reason: &str) -> Error {
    Error::Corrupt { what: "the checkpoint", at: 0, reason: reason.into() }
}

/// The files of a sharded V1 checkpoint, `<prefix>-00000-of-00002` and so on, if they are there.
/// TensorFlow writes such a prefix with `-?????-of-00002` behind it; that is understood too.
pub(crate) fn shard_paths(prefix: &Path) -> Option<Vec<PathBuf>> {
    let name = prefix.file_name()?.to_str()?;
    let (stem, wanted) = match name.split_once("-?????-of-") {
        Some((stem, count)) => (stem, Some(count.parse::<usize>().ok()?)),
        None => (name, None),
    };
    let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // number of shards -> shard -> file
    let mut sets: BTreeMap<usize, BTreeMap<usize, PathBuf>> = BTreeMap::new();
    for entry in folder.read_dir().ok()?.flatten() {
        let file = entry.file_name();
        let Some((number, count)) = file
            .to_str()
            .and_then(|file| file.strip_prefix(stem)?.strip_prefix('-')?.split_once("-of-"))
        else {
            continue;
        };
        let is_number = |text: &str| text.len() >= 5 && text.bytes().all(|b| b.is_ascii_digit());
        if is_number(number)
            && is_number(count)
            && let (Ok(number), Ok(count)) = (number.parse(), count.parse())
        {
            sets.entry(count).or_default().insert(number, entry.path());
        }
    }
    // A set counts when it is complete; with several, the one that was asked for, or the largest.
    sets.retain(|&count, files| files.len() == count && files.keys().copied().eq(0..count));
    let files = match wanted {
        Some(count) => sets.remove(&count)?,
        None => sets.pop_last()?.1,
    };
    Some(files.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_found_by_prefix_and_by_pattern() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["m-00000-of-00002", "m-00001-of-00002", "m-00000-of-00003", "m-1-of-1", "x"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let expected =
            ["m-00000-of-00002", "m-00001-of-00002"].map(|name| folder.path().join(name));
        assert_eq!(shard_paths(&folder.path().join("m")).unwrap(), expected);
        assert_eq!(shard_paths(&folder.path().join("m-?????-of-00002")).unwrap(), expected);
        assert!(shard_paths(&folder.path().join("m-?????-of-00003")).is_none());
        assert!(shard_paths(&folder.path().join("x")).is_none());
    }
}
