//! `.npz`: a zip of `.npy` arrays, one member `NAME.npy` for each.

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use zip::read::ZipFile;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::header::{self, Header, PREFIX, Refusal};
use crate::file::{self, AtomicFile};
use crate::{DType, Error, Result, StoreError, Tensor, TensorInfo, TensorStore};

/// No deflate stream expands more than this: 258 bytes from two bits.
const DEFLATE_RATIO: u64 = 1032;

/// The arrays of an `.npz` file, each read when it is asked for.
///
/// A stored member is a window on the mapped file; a deflated one is inflated. Either way the
/// zip's CRC32 is checked each time a tensor is read.
pub struct Npz {
    path: PathBuf,
    map: Bytes,
    archive: ZipArchive<Cursor<Bytes>>,
    infos: Vec<TensorInfo>,
    /// Where the array of each entry of `infos` is.
    members: Vec<(usize, Header)>,
    refused: BTreeMap<String, String>,
}

impl Npz {
    /// Reads the names and headers of all arrays.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::read(file::map(path)?, path)
    }

    /// The arrays of an `.npz` file that is already in memory; `path` is for messages.
    pub fn read(map: Bytes, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        let malformed =
            |reason: String| Error::Malformed { path: path.clone(), format: "npz", reason };
        let mut archive =
            ZipArchive::new(Cursor::new(map.clone())).map_err(|e| malformed(e.to_string()))?;
        if archive.has_duplicate_names() {
            return Err(malformed("two members have the same name".into()));
        }
        let mut found = BTreeMap::new();
        let mut refused = BTreeMap::new();
        for index in 0..archive.len() {
            let member = archive.by_index(index).map_err(|e| malformed(e.to_string()))?;
            if member.is_dir() {
                continue;
            }
            let name = member.name().map_err(|e| malformed(e.to_string()))?.into_owned();
            let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
            match member_header(member) {
                Ok(header) => {
                    if found.insert(name.clone(), (index, header)).is_some() {
                        return Err(malformed(format!("two members are the array `{name}`")));
                    }
                }
                Err(Refusal::Descr(descr)) => {
                    refused.insert(name, descr);
                }
                Err(Refusal::Malformed(reason)) => {
                    return Err(malformed(format!("member `{name}`: {reason}")));
                }
            }
        }
        let (infos, members) = found
            .into_iter()
            .map(|(name, (index, header))| {
                let (dtype, shape) = (header.kind.dtype(), header.shape.clone());
                (TensorInfo { name, dtype, shape }, (index, header))
            })
            .unzip();
        Ok(Self { path, map, archive, infos, members, refused })
    }

    /// The arrays that cannot be read, with their NumPy type: objects, records, dates.
    pub fn refused(&self) -> &BTreeMap<String, String> {
        &self.refused
    }

    fn load(&self, name: &str) -> Result<Tensor> {
        let Ok(at) = self.infos.binary_search_by(|info| info.name.as_str().cmp(name)) else {
            let name = name.to_owned();
            return Err(match self.refused.get(&name) {
                Some(descr) => Error::Elements { name, descr: descr.clone() },
                None => Error::NoSuchTensor(name),
            });
        };
        let (index, header) = &self.members[at];
        let data = self.elements(*index, header);
        data.and_then(|data| super::decode(header, data)).map_err(|reason| Error::Malformed {
            path: self.path.clone(),
            format: "npz",
            reason: format!("array `{name}`: {reason}"),
        })
    }

    /// The bytes of a member after its header. [`member_header`] has checked that they can be
    /// as many as shape and type need.
    fn elements(&self, index: usize, header: &Header) -> Result<Bytes, String> {
        // Cheap: the directory is shared, and so are the bytes.
        let mut archive = self.archive.clone();
        let mut member = archive.by_index(index).map_err(|e| e.to_string())?;
        if member.compression() == CompressionMethod::Stored {
            // Reading to the end checks the CRC; the tensor is a window on the file itself.
            io::copy(&mut member, &mut io::sink()).map_err(|e| e.to_string())?;
            let window = member.data_start().and_then(|start| {
                let start = usize::try_from(start).ok()?;
                let end = start.checked_add(usize::try_from(member.compressed_size()).ok()?)?;
                (end <= self.map.len()).then(|| self.map.slice(start..end))
            });
            let window = window.ok_or("it reaches beyond the end of the file")?;
            return match window.len() < header.data_start {
                true => Err("it ends within the header".into()),
                false => Ok(window.slice(header.data_start..)),
            };
        }
        // The buffer grows with what arrives, never with what the header says; one byte more
        // than the header says is enough to see that there is too much.
        let wanted = header.data_len().unwrap_or(0).saturating_add(header.data_start);
        let first = wanted.min(usize::try_from(member.compressed_size()).unwrap_or(0));
        let mut data = Vec::with_capacity(first);
        let mut limited = member.take((wanted as u64).saturating_add(1));
        limited.read_to_end(&mut data).map_err(|e| e.to_string())?;
        match data.len() < header.data_start {
            true => Err("it ends within the header".into()),
            false => Ok(Bytes::from(data).slice(header.data_start..)),
        }
    }
}

/// The array header at the start of a member, checked against the member's size.
fn member_header<R: Read>(mut member: ZipFile<'_, R>) -> Result<Header, Refusal> {
    let (size, compressed) = (member.size(), member.compressed_size());
    let mut prefix = Vec::new();
    let read = member.by_ref().take(PREFIX as u64).read_to_end(&mut prefix);
    let header = match Header::parse(&prefix) {
        Ok(header) => header,
        // A prefix that could not be read whole is the better explanation.
        Err(refusal) => {
            return Err(match read {
                Err(e) => Refusal::Malformed(e.to_string()),
                Ok(_) => refusal,
            });
        }
    };
    let expected = header.data_len().and_then(|len| len.checked_add(header.data_start));
    if expected.map(|len| len as u64) != Some(size) {
        return Err(Refusal::Malformed(format!(
            "it has {size} bytes, which is not what {} {} takes",
            header.kind.dtype(),
            header.shape
        )));
    }
    if size / DEFLATE_RATIO > compressed {
        return Err(Refusal::Malformed(format!(
            "it cannot be {size} bytes: no {compressed} bytes expand so far"
        )));
    }
    Ok(header)
}

impl TensorStore for Npz {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        Ok(self.load(name)?)
    }
}

/// Writes an `.npz` file array by array, uncompressed like `numpy.savez`. The file appears under
/// its name at [`finish`](Self::finish); dropped before, it leaves nothing.
pub struct NpzWriter {
    path: PathBuf,
    zip: ZipWriter<AtomicFile>,
}

impl NpzWriter {
    /// Starts a file.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        let file = AtomicFile::create(&path)?;
        Ok(Self { path: path.as_ref().to_path_buf(), zip: ZipWriter::new(file) })
    }

    /// Adds an array. Types that NumPy lacks are [`Error::Unstorable`].
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<()> {
        let dtype = tensor.dtype();
        if dtype != DType::String && header::descr(dtype).is_none() {
            return Err(Error::Unstorable { format: "npz", name: name.to_owned(), dtype });
        }
        // Aligned, so that a mapped member's elements are; 64-bit sizes as NumPy writes them.
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Stored)
            .with_alignment(64)
            .large_file(true);
        let started = self.zip.start_file(format!("{name}.npy"), options).map_err(io::Error::from);
        started
            .and_then(|()| super::write(&mut self.zip, tensor))
            .map_err(|e| Error::io("write", &self.path, e))
    }

    /// Writes the directory and gives the file its name.
    pub fn finish(self) -> Result<()> {
        let file = self.zip.finish().map_err(|e| Error::io("write", &self.path, e.into()))?;
        file.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn sample() -> Vec<(&'static str, Tensor)> {
        vec![
            ("bert/a", Tensor::from_vec([2, 3], vec![1f32, 2., 3., 4., 5., 6.]).unwrap()),
            ("b", Tensor::from_vec([], vec![-7i64]).unwrap()),
            ("zeros", Tensor::from_vec([1000], vec![0u8; 1000]).unwrap()),
            ("empty", Tensor::from_vec([0, 4], Vec::<f64>::new()).unwrap()),
            ("text", Tensor::from_strings([1], vec!["語".into()]).unwrap()),
        ]
    }

    fn written() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        let mut writer = NpzWriter::create(&path).unwrap();
        for (name, tensor) in sample() {
            writer.add(name, &tensor).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::read(&path).unwrap()
    }

    /// As `numpy.savez_compressed` does.
    fn deflated(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in members {
            let options =
                SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            zip.start_file(*name, options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn open(bytes: Vec<u8>) -> Result<Npz> {
        Npz::read(bytes.into(), "x.npz")
    }

    #[test]
    fn stored_and_deflated_read_the_same() {
        let npy: Vec<(String, Vec<u8>)> = sample()
            .iter()
            .map(|(name, tensor)| {
                let mut bytes = Vec::new();
                super::super::write(&mut bytes, tensor).unwrap();
                (format!("{name}.npy"), bytes)
            })
            .collect();
        let members: Vec<(&str, &[u8])> = npy.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
        for bytes in [written(), deflated(&members)] {
            let npz = open(bytes).unwrap();
            let names: Vec<&str> = npz.infos().iter().map(|info| info.name.as_str()).collect();
            assert_eq!(names, ["b", "bert/a", "empty", "text", "zeros"]);
            for (name, tensor) in sample() {
                assert_eq!(npz.tensor(name).unwrap(), tensor, "{name}");
                let info = npz.info(name).unwrap();
                assert_eq!((info.dtype, &info.shape), (tensor.dtype(), tensor.shape()));
            }
            assert!(npz.tensor("missing").is_err());
        }
    }

    #[test]
    fn written_arrays_are_aligned_windows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        std::fs::write(&path, written()).unwrap();
        let npz = Npz::open(&path).unwrap();
        let tensor = npz.tensor("bert/a").unwrap();
        assert_eq!(tensor.bytes().unwrap().as_ptr() as usize % 64, 0);
    }

    #[test]
    fn damage_is_found() {
        let good = written();
        for end in 0..good.len() {
            assert!(open(good[..end].to_vec()).is_err(), "cut at {end}");
        }
        // Any bit that is not one of the zip's don't-care fields must give an error or leave
        // every value as it was.
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            let Ok(npz) = open(bad) else { continue };
            for (name, tensor) in sample() {
                if let Ok(found) = npz.tensor(name) {
                    assert_eq!(found, tensor, "byte {at}, `{name}`");
                }
            }
        }
    }

    #[test]
    fn object_arrays_are_named_and_do_not_hide_the_others() {
        let header = Header::encode("|O", &[1].into());
        let mut good = Vec::new();
        super::super::write(&mut good, &Tensor::from_vec([1], vec![1u8]).unwrap()).unwrap();
        let npz = open(deflated(&[("object.npy", &header), ("good.npy", &good)])).unwrap();
        assert_eq!(npz.refused()["object"], "|O");
        assert!(npz.tensor("good").is_ok());
        let error = npz.load("object").unwrap_err();
        assert!(matches!(error, Error::Elements { .. }), "{error}");
    }

    #[test]
    fn a_member_that_lies_about_its_size() {
        // A header that promises 4 GB over a member of a few bytes.
        let header = Header::encode("<f4", &[1 << 30].into());
        let error = open(deflated(&[("big.npy", &header)])).err().unwrap();
        assert!(error.to_string().contains("not what float32 [1073741824] takes"), "{error}");
        assert!(open(deflated(&[("text.txt", b"not an array")])).is_err());
        assert!(open(deflated(&[("a", &header[..20])])).is_err());
        assert!(open(b"<!doctype html>".to_vec()).is_err());
    }

    #[test]
    fn names_are_unique_and_types_are_numpys() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = NpzWriter::create(folder.path().join("x.npz")).unwrap();
        let t = Tensor::from_vec([1], vec![half::bf16::ONE]).unwrap();
        assert!(matches!(writer.add("t", &t), Err(Error::Unstorable { .. })));
        let t = t.cast(DType::F32).unwrap();
        writer.add("t", &t).unwrap();
        assert!(writer.add("t", &t).is_err());
        drop(writer);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    }
}
