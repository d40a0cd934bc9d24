//! `.safetensors` files, single or sharded.
//!
//! Reading is zero-copy: every tensor is a window on the mapped file. The format's own rules
//! (no overlap, no hole, every byte accounted for) are checked by the `safetensors` crate
//! before anything is looked at. Types of less than a byte and the 8-bit floats have no
//! element type here; such tensors are listed apart and refused by name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Write;
use std::path::Path;

use bytes::Bytes;
use safetensors::tensor::{Dtype, Metadata, TensorInfo as Entry};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};

use crate::file::{self, AtomicFile};
use crate::{DType, Error, Result, StoreError, Tensor, TensorInfo, TensorStore};

/// What Hugging Face names the index of a sharded model.
const INDEX: &str = "model.safetensors.index.json";
/// What it names a model in one file.
const SINGLE: &str = "model.safetensors";
/// The key of the header that is not a tensor.
const METADATA: &str = "__metadata__";
/// As in the format's own library.
const LONGEST_HEADER: u64 = 100_000_000;

/// The pairs; everything below is read off this table.
const TYPES: [(Dtype, &str, DType); 14] = [
    (Dtype::F32, "F32", DType::F32),
    (Dtype::F64, "F64", DType::F64),
    (Dtype::F16, "F16", DType::F16),
    (Dtype::BF16, "BF16", DType::BF16),
    (Dtype::I8, "I8", DType::I8),
    (Dtype::I16, "I16", DType::I16),
    (Dtype::I32, "I32", DType::I32),
    (Dtype::I64, "I64", DType::I64),
    (Dtype::U8, "U8", DType::U8),
    (Dtype::U16, "U16", DType::U16),
    (Dtype::U32, "U32", DType::U32),
    (Dtype::U64, "U64", DType::U64),
    (Dtype::BOOL, "BOOL", DType::Bool),
    (Dtype::C64, "C64", DType::C64),
];

/// The tensors of a `.safetensors` file, or of all shards of a model.
pub struct SafeTensors {
    infos: Vec<TensorInfo>,
    /// The bytes of each entry of `infos`.
    windows: Vec<Bytes>,
    metadata: BTreeMap<String, String>,
    refused: BTreeMap<String, String>,
}

impl SafeTensors {
    /// Opens a `.safetensors` file, the index (`….safetensors.index.json`) of a sharded model,
    /// or a folder that has `model.safetensors` or such an index.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        if path.is_dir() {
            let index = path.join(INDEX);
            return match index.exists() {
                true => Self::open_index(&index),
                false => Self::open(path.join(SINGLE)),
            };
        }
        match path.extension() {
            Some(extension) if extension == "json" => Self::open_index(path),
            _ => Self::read(file::map(path)?, path),
        }
    }

    /// The tensors of a file that is already in memory; `path` is for messages.
    pub fn read(bytes: Bytes, path: impl AsRef<Path>) -> Result<Self> {
        let mut found = Found::default();
        let metadata = found.add_file(&bytes, path.as_ref(), |_| true)?;
        Ok(found.finish(metadata))
    }

    /// What the file says of itself, `format: pt` for example. Of a sharded model, what all
    /// shards say; where they differ, the first.
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// The tensors that cannot be read, with their type in the file.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    fn open_index(path: &Path) -> Result<Self> {
        let malformed = |reason: String| malformed(path, reason);
        let text = file::map(path)?;
        let index: Index = serde_json::from_slice(&text).map_err(|e| malformed(e.to_string()))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let shards: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
        let mut found = Found::default();
        let mut metadata = BTreeMap::new();
        for shard in shards {
            // An index names its neighbours, nothing else on this machine.
            if Path::new(shard).file_name() != Some(shard.as_ref()) {
                return Err(malformed(format!("shard `{shard}` is not a plain file name")));
            }
            let shard_path = folder.join(shard);
            let bytes = file::map(&shard_path)?;
            let here = |name: &str| index.weight_map.get(name).is_none_or(|s| s == shard);
            for (key, value) in found.add_file(&bytes, &shard_path, here)? {
                metadata.entry(key).or_insert(value);
            }
        }
        let missing = index.weight_map.iter().find(|(name, _)| !found.has(name));
        if let Some((name, shard)) = missing {
            return Err(malformed(format!("`{name}` is not in `{shard}`, where it should be")));
        }
        Ok(found.finish(metadata))
    }
}

impl TensorStore for SafeTensors {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let Ok(at) = self.infos.binary_search_by(|info| info.name.as_str().cmp(name)) else {
            let name = name.to_owned();
            return Err(Box::new(match self.refused.get(&name) {
                Some(descr) => Error::Elements { name, descr: descr.clone() },
                None => Error::NoSuchTensor(name),
            }));
        };
        let info = &self.infos[at];
        Ok(Tensor::new(info.dtype, info.shape.clone(), self.windows[at].clone())?)
    }
}

fn malformed(path: &Path, reason: String) -> Error {
    Error::Malformed { path: path.to_path_buf(), format: "safetensors", reason }
}

/// Tensors gathered from one or more files.
#[derive(Default)]
struct Found {
    tensors: BTreeMap<String, (TensorInfo, Bytes)>,
    refused: BTreeMap<String, String>,
}

impl Found {
    /// Adds the tensors of a file that `wanted` accepts and returns the file's metadata.
    fn add_file(
        &mut self,
        bytes: &Bytes,
        path: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, String>> {
        let malformed = |reason: String| malformed(path, reason);
        let (header, data) = split(bytes).map_err(malformed)?;
        let Header { metadata, mut entries } =
            serde_json::from_slice(header).map_err(|e| malformed(format!("its header: {e}")))?;
        entries.sort_by_key(|(_, entry)| entry.data_offsets);
        let checked = Metadata::new(None, entries).map_err(|e| malformed(e.to_string()))?;
        if checked.data_len() != data.len() {
            return Err(malformed(format!(
                "its tensors take {} bytes, but {} are there",
                checked.data_len(),
                data.len()
            )));
        }
        for (name, entry) in checked.tensors() {
            if !wanted(&name) {
                continue;
            }
            let Some((.., dtype)) = TYPES.iter().find(|(theirs, ..)| *theirs == entry.dtype) else {
                self.refused.insert(name, entry.dtype.to_string());
                continue;
            };
            let window = data.slice(entry.data_offsets.0..entry.data_offsets.1);
            let info =
                TensorInfo { name: name.clone(), dtype: *dtype, shape: entry.shape[..].into() };
            if self.tensors.insert(name.clone(), (info, window)).is_some() {
                return Err(malformed(format!("`{name}` is in another shard as well")));
            }
        }
        Ok(metadata)
    }

    fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name) || self.refused.contains_key(name)
    }

    fn finish(self, metadata: BTreeMap<String, String>) -> SafeTensors {
        let (infos, windows) = self.tensors.into_values().unzip();
        SafeTensors { infos, windows, metadata, refused: self.refused }
    }
}

/// Header and data of a file; the error is the reason alone.
fn split(bytes: &Bytes) -> Result<(&[u8], Bytes), String> {
    let Some((len, rest)) = bytes.split_first_chunk::<8>() else {
        return Err("it is shorter than the length of its header".into());
    };
    let len = u64::from_le_bytes(*len);
    if len > LONGEST_HEADER || len > rest.len() as u64 {
        return Err(format!(
            "its header claims {len} bytes, but the file has {} bytes left",
            rest.len()
        ));
    }
    let header = &rest[..len as usize];
    if header.first() != Some(&b'{') {
        return Err("its header does not begin with `{`".into());
    }
    Ok((header, bytes.slice(8 + header.len()..)))
}

/// The JSON header, as it stands: every entry once. Read entry by entry, because the crate's own
/// reader holds a tree of JSON values in between, many times the size of the text.
struct Header {
    metadata: BTreeMap<String, String>,
    entries: Vec<(String, Entry)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut metadata = None;
                let mut entries = HashMap::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name == METADATA {
                        metadata = Some(map.next_value()?);
                        continue;
                    }
                    let entry: Entry = map.next_value()?;
                    if let Some(twice) = entries.insert(name, entry) {
                        let at = twice.data_offsets.0;
                        return Err(A::Error::custom(format!("the tensor at {at} is there twice")));
                    }
                }
                let entries = entries.into_iter().collect();
                Ok(Header { metadata: metadata.unwrap_or_default(), entries })
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

/// `model.safetensors.index.json`; its `metadata` (a total size) is not needed.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// Writes a `.safetensors` file tensor by tensor. The header comes first in the file, so all
/// tensors are announced at [`create`](Self::create) and then given in that order. The file
/// appears under its name at [`finish`](Self::finish); dropped before, it leaves nothing.
///
/// The format has no padding between tensors: announce those of wider types first, and every
/// tensor will be aligned in a mapped file.
pub struct SafeTensorsWriter {
    file: AtomicFile,
    announced: Vec<TensorInfo>,
    given: usize,
}

impl SafeTensorsWriter {
    /// Starts a file that will hold tensors of these names, types and shapes.
    pub fn create(
        path: impl AsRef<Path>,
        infos: &[TensorInfo],
        metadata: &BTreeMap<String, String>,
    ) -> Result<Self> {
        let mut header = serde_json::Map::new();
        if !metadata.is_empty() {
            header.insert(METADATA.into(), metadata.clone().into_iter().collect());
        }
        let mut start = 0usize;
        for info in infos {
            let unstorable = || Error::Unstorable {
                format: "safetensors",
                name: info.name.clone(),
                dtype: info.dtype,
            };
            let (_, dtype, _) =
                TYPES.iter().find(|(.., ours)| *ours == info.dtype).ok_or_else(unstorable)?;
            let end = info.byte_len().and_then(|len| start.checked_add(len));
            let end = end.ok_or_else(|| Error::TooLarge(info.shape.clone()))?;
            let entry = serde_json::json!({
                "dtype": dtype, "shape": info.shape.to_vec(), "data_offsets": [start, end],
            });
            if info.name == METADATA || header.insert(info.name.clone(), entry).is_some() {
                return Err(Error::Announced {
                    name: info.name.clone(),
                    announced: "one tensor".into(),
                    given: "a second of that name".into(),
                });
            }
            start = end;
        }
        let mut header = serde_json::Value::Object(header).to_string().into_bytes();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut file = AtomicFile::create(&path)?;
        let written = file
            .write_all(&(header.len() as u64).to_le_bytes())
            .and_then(|()| file.write_all(&header));
        written.map_err(|e| Error::io("write", path.as_ref(), e))?;
        Ok(Self { file, announced: infos.to_vec(), given: 0 })
    }

    /// Adds the next tensor in the order of the announcement.
    pub fn add(&mut self, tensor: &Tensor) -> Result<()> {
        let describe = |dtype: DType, shape: &crate::Shape| format!("{dtype} {shape}");
        let given = describe(tensor.dtype(), tensor.shape());
        let Some(next) = self.announced.get(self.given) else {
            let name = "(after the last)".into();
            return Err(Error::Announced { name, announced: "nothing".into(), given });
        };
        let announced = describe(next.dtype, &next.shape);
        if announced != given {
            return Err(Error::Announced { name: next.name.clone(), announced, given });
        }
        self.given += 1;
        let bytes = tensor.bytes()?;
        self.file.write_all(bytes).map_err(|e| Error::io("write", self.file.path(), e))
    }

    /// Gives the file its name, if every announced tensor was given.
    pub fn finish(self) -> Result<()> {
        match self.announced.get(self.given) {
            None => self.file.commit(),
            Some(next) => Err(Error::Announced {
                name: next.name.clone(),
                announced: format!("{} {}", next.dtype, next.shape),
                given: "nothing".into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn info(name: &str, tensor: &Tensor) -> TensorInfo {
        TensorInfo { name: name.into(), dtype: tensor.dtype(), shape: tensor.shape().clone() }
    }

    fn write(path: &Path, tensors: &[(&str, Tensor)]) {
        let infos: Vec<TensorInfo> = tensors.iter().map(|(name, t)| info(name, t)).collect();
        let metadata = BTreeMap::from([("format".to_owned(), "pt".to_owned())]);
        let mut writer = SafeTensorsWriter::create(path, &infos, &metadata).unwrap();
        for (_, tensor) in tensors {
            writer.add(tensor).unwrap();
        }
        writer.finish().unwrap();
    }

    fn sample() -> Vec<(&'static str, Tensor)> {
        vec![
            ("b.weight", Tensor::from_vec([2, 3], vec![1f32, 2., 3., 4., 5., 6.]).unwrap()),
            ("a \"quoted\" é", Tensor::from_vec([], vec![-7i64]).unwrap()),
            ("empty", Tensor::from_vec([0], Vec::<f64>::new()).unwrap()),
            ("half", Tensor::from_vec([1], vec![half::bf16::ONE]).unwrap()),
            ("flag", Tensor::new(DType::Bool, [3], vec![1u8, 0, 1]).unwrap()),
        ]
    }

    fn file(header: &str, data: &[u8]) -> Bytes {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes.into()
    }

    #[test]
    fn what_is_written_is_read_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        write(&path, &sample());
        for opened in [SafeTensors::open(&path).unwrap(), SafeTensors::open(&folder).unwrap()] {
            assert_eq!(opened.metadata()["format"], "pt");
            let names: Vec<&str> = opened.infos().iter().map(|i| i.name.as_str()).collect();
            assert_eq!(names, ["a \"quoted\" é", "b.weight", "empty", "flag", "half"]);
            for (name, tensor) in sample() {
                assert_eq!(opened.tensor(name).unwrap(), tensor);
            }
            let tensor = opened.tensor("b.weight").unwrap();
            assert_eq!(tensor.bytes().unwrap().as_ptr() as usize % 8, 0);
        }
        // The format's own reader agrees.
        let bytes = std::fs::read(&path).unwrap();
        let theirs = ::safetensors::SafeTensors::deserialize(&bytes).unwrap();
        for (name, tensor) in sample() {
            assert_eq!(theirs.tensor(name).unwrap().data(), &tensor.bytes().unwrap()[..]);
        }
    }

    #[test]
    fn shards() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = [("one", 1f32), ("two", 2f32)]
            .map(|(name, x)| (name, Tensor::from_vec([1], vec![x]).unwrap()));
        write(&folder.path().join("1.safetensors"), std::slice::from_ref(&one));
        write(&folder.path().join("2.safetensors"), std::slice::from_ref(&two));
        let index = folder.path().join(INDEX);
        let put = |text: &str| std::fs::write(&index, text).unwrap();
        put(r#"{"metadata": {"total_size": 8},
                "weight_map": {"one": "1.safetensors", "two": "2.safetensors"}}"#);
        for path in [folder.path(), &index] {
            let model = SafeTensors::open(path).unwrap();
            assert_eq!(model.infos().len(), 2);
            assert_eq!(model.tensor("two").unwrap(), two.1);
        }
        for (bad, reason) in [
            (r#"{"weight_map": {"three": "1.safetensors"}}"#, "`three` is not in"),
            (r#"{"weight_map": {"one": "../1.safetensors"}}"#, "plain file name"),
            (r#"{"weight_map": {"one": "/etc/passwd"}}"#, "plain file name"),
            (r#"{"weights": {}}"#, "weight_map"),
            (r#"{"weight_map": {"one": "9.safetensors"}}"#, "cannot open"),
        ] {
            put(bad);
            let error = SafeTensors::open(&index).err().unwrap();
            assert!(error.to_string().contains(reason), "{bad}: {error}");
        }
    }

    #[test]
    fn hostile_headers() {
        let one = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
        assert!(SafeTensors::read(file(&format!("{{{one}}}"), &[0; 4]), "x").is_ok());
        let huge = usize::MAX / 8 - 7;
        // Nine tensors whose sizes add up to more than 64 bits hold.
        let wrapping: Vec<String> = (0..9usize)
            .map(|i| {
                let (start, end) = (i.wrapping_mul(huge), (i + 1).wrapping_mul(huge));
                format!(r#""{i}":{{"dtype":"U8","shape":[{huge}],"data_offsets":[{start},{end}]}}"#)
            })
            .collect();
        let eight = wrapping[..8].join(",");
        let cases = [
            (String::new(), 0),
            ("[]".into(), 0),
            (format!("{{{one},{one}}}"), 4),
            (format!("{{{one}}}"), 3),
            (format!("{{{one}}}"), 5),
            (format!("{{{one}"), 4),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#.into(), 8),
            (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#.into(), 4),
            (r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#.into(), 4),
            (r#"{"a":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}}"#.into(), 4),
            (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#.into(), 4),
            (format!("{{{eight}}}"), 4),
            (format!("{{{}}}", wrapping.join(",")), 4),
            ("[".repeat(100_000), 0),
            (format!("{{\"a\":{}", "[".repeat(100_000)), 0),
        ];
        for (header, data) in cases {
            let read = SafeTensors::read(file(&header, &vec![0; data]), "x");
            assert!(matches!(read, Err(Error::Malformed { .. })), "{header:.80}");
        }
        let mut length = file("{}", &[]).to_vec();
        length[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(SafeTensors::read(length.into(), "x").is_err());
        let whole = file(&format!("{{{one}}}"), &[0; 4]);
        for end in 0..whole.len() {
            assert!(SafeTensors::read(whole.slice(..end), "x").is_err(), "cut at {end}");
        }
    }

    #[test]
    fn types_without_a_counterpart_do_not_hide_the_others() {
        let header = r#"{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},
                         "b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}"#;
        let opened = SafeTensors::read(file(header, &[1, 2]), "x").unwrap();
        assert_eq!(opened.refused()["a"], "F8_E4M3");
        assert!(opened.tensor("a").unwrap_err().to_string().contains("F8_E4M3"));
        assert!(opened.tensor("b").is_ok());
        let infos = [TensorInfo { name: "q".into(), dtype: DType::String, shape: [1].into() }];
        let folder = tempfile::tempdir().unwrap();
        let made = SafeTensorsWriter::create(folder.path().join("x"), &infos, &BTreeMap::new());
        assert!(matches!(made, Err(Error::Unstorable { .. })));
    }

    #[test]
    fn the_writer_keeps_to_the_announcement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.safetensors");
        let t = Tensor::from_vec([1], vec![1f32]).unwrap();
        let infos = [info("t", &t)];
        let create =
            |infos: &[TensorInfo]| SafeTensorsWriter::create(&path, infos, &BTreeMap::new());
        let mut writer = create(&infos).unwrap();
        let other = Tensor::from_vec([1], vec![1i32]).unwrap();
        assert!(matches!(writer.add(&other), Err(Error::Announced { .. })));
        writer.add(&t).unwrap();
        assert!(matches!(writer.add(&t), Err(Error::Announced { .. })));
        assert!(matches!(create(&infos).unwrap().finish(), Err(Error::Announced { .. })));
        assert!(create(&[info("t", &t), info("t", &t)]).is_err());
        assert!(create(&[info(METADATA, &t)]).is_err());
        assert!(!path.exists());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            header in prop::collection::vec(any::<u8>(), 0..60), len in 0u64..80,
        ) {
            let mut bytes = len.to_le_bytes().to_vec();
            bytes.extend_from_slice(&header);
            let _ = SafeTensors::read(bytes.into(), "x");
        }
    }
}
