//! Zip archives as Google ships its BERTs: `uncased_L-12_H-768_A-12/bert_model.ckpt.index` and
//! so on, listed and read without unpacking the whole.
//!
//! Archives come from the network, so everything in them is checked: names that lead out of a
//! folder, members that overlap, sizes that no compressed bytes can reach, checksums. Only what
//! such archives use is read: stored and deflated members, with 64-bit sizes. Writing zips is
//! left out.

use std::io::{self, Cursor, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::file::{self, AtomicFile};
use zip::read::ZipFile;
use zip::{CompressionMethod, ZipArchive};

use crate::sniff::{self, Content};
use crate::tfrecord::write_error;
use crate::{Error, Result};

/// No deflate stream expands more than this: 258 bytes from two bits.
const DEFLATE_RATIO: u64 = 1032;
/// What every zip ends with, before at most 64 KiB of comment.
const END: &[u8] = b"PK\x05\x06";
const END_SIZE: usize = 22;

/// A file in an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its path within the archive, with `/` between folders.
    pub name: String,
    /// Bytes when unpacked, as the archive says.
    pub size: u64,
    /// Bytes in the archive.
    pub compressed: u64,
}

/// A zip file whose names and sizes have been checked.
pub struct Archive {
    path: PathBuf,
    map: Bytes,
    zip: ZipArchive<Cursor<Bytes>>,
    members: Vec<Member>,
    /// Where each member is in the zip's own list, which has folders as well.
    indices: Vec<usize>,
    /// Positions in `members`, sorted by name.
    by_name: Vec<usize>,
}

impl Archive {
    /// Opens an archive and reads its directory.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::read_from(file::map(path)?, path).map_err(|e| e.in_file(path))
    }

    /// An archive that is already in memory; `path` is for messages.
    pub fn from_bytes(bytes: Bytes, path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::read_from(bytes, path).map_err(|e| e.in_file(path))
    }

    fn read_from(map: Bytes, path: &Path) -> Result<Self> {
        let end = &map[map.len().saturating_sub(END_SIZE + usize::from(u16::MAX))..];
        if !end.windows(END.len()).any(|window| window == END) {
            return Err(match sniff::of(&map) {
                Content::Zip => Error::ZipCut,
                found => Error::WrongContent { expected: "a zip file", found },
            });
        }
        let damaged = |e: zip::result::ZipError| Error::Zip { reason: e.to_string() };
        let mut zip = ZipArchive::new(Cursor::new(map.clone())).map_err(damaged)?;
        if zip.has_duplicate_names() {
            return Err(Error::Zip { reason: "two members have the same name".into() });
        }
        if zip.has_overlapping_files().map_err(damaged)? {
            return Err(Error::Zip { reason: "two members lie over each other".into() });
        }
        let metadata = zip.metadata();
        let (mut members, mut indices): (Vec<Member>, Vec<usize>) = (Vec::new(), Vec::new());
        for index in 0..metadata.len() {
            let entry = metadata.entry(index).map_err(damaged)?;
            let name = entry.name().map_err(damaged)?.into_owned();
            if !is_enclosed(&name) {
                return Err(Error::MemberName { name });
            }
            if entry.is_dir() {
                continue;
            }
            members.push(Member { name, size: entry.size(), compressed: entry.compressed_size() });
            indices.push(index);
        }
        let mut by_name: Vec<usize> = (0..members.len()).collect();
        by_name.sort_by(|&a, &b| members[a].name.cmp(&members[b].name));
        Ok(Self { path: path.to_path_buf(), map, zip, members, indices, by_name })
    }

    /// All files, in the archive's order. Folders are not listed.
    pub fn entries(&self) -> &[Member] {
        &self.members
    }

    /// The file of that name.
    pub fn member(&self, name: &str) -> Result<&Member> {
        self.position(name).map(|at| &self.members[at]).map_err(|e| e.in_file(&self.path))
    }

    /// A small file, whole. One that says it is larger than `limit` is refused. A stored file is
    /// a window on the archive.
    pub fn read(&self, name: &str, limit: u64) -> Result<Bytes> {
        self.read_member(name, limit).map_err(|e| e.in_file(&self.path))
    }

    /// Unpacks a file to `to`, which appears when it is complete. `progress` is told the number
    /// of bytes so far, every megabyte.
    pub fn extract(
        &self,
        name: &str,
        to: impl AsRef<Path>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let to = to.as_ref();
        let mut zip = self.zip.clone();
        let mut member = self.start(&mut zip, name).map_err(|e| e.in_file(&self.path))?;
        let mut file = AtomicFile::create(to)?;
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        loop {
            let got = match member.read(&mut buffer) {
                Ok(0) => break,
                Ok(got) => got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(damaged_member(name, &e).in_file(&self.path)),
            };
            file.write_all(&buffer[..got]).map_err(|e| write_error(to, e))?;
            done += got as u64;
            progress(done);
        }
        check_size(name, &member, done).map_err(|e| e.in_file(&self.path))?;
        Ok(file.commit()?)
    }

    fn position(&self, name: &str) -> Result<usize> {
        let name_at = |&at: &usize| self.members[at].name.as_str().cmp(name);
        match self.by_name.binary_search_by(name_at) {
            Ok(found) => Ok(self.by_name[found]),
            Err(_) => Err(Error::NoMember { name: name.to_owned() }),
        }
    }

    /// A member's content, if its directory entry makes sense.
    fn start<'a>(
        &self,
        zip: &'a mut ZipArchive<Cursor<Bytes>>,
        name: &str,
    ) -> Result<ZipFile<'a, Cursor<Bytes>>> {
        let at = self.position(name)?;
        let unsupported = |what: String| Error::MemberKind { name: name.to_owned(), what };
        {
            let metadata = zip.metadata();
            let damaged = |e: zip::result::ZipError| Error::Zip { reason: e.to_string() };
            let entry = metadata.entry(self.indices[at]).map_err(damaged)?;
            if entry.encrypted() {
                return Err(unsupported("encrypted".into()));
            }
            if entry.is_symlink() {
                return Err(unsupported("a symbolic link".into()));
            }
            let method = entry.compression();
            let possible = match method {
                CompressionMethod::Stored => entry.size() == entry.compressed_size(),
                CompressionMethod::Deflated => {
                    entry.size() / DEFLATE_RATIO <= entry.compressed_size()
                }
                _ => return Err(unsupported(format!("packed with {method}"))),
            };
            if !possible {
                let (size, compressed) = (entry.size(), entry.compressed_size());
                return Err(Error::MemberSize { name: name.to_owned(), size, compressed });
            }
        }
        zip.by_index(self.indices[at]).map_err(|e| damaged_member(name, &e.into()))
    }

    fn read_member(&self, name: &str, limit: u64) -> Result<Bytes> {
        let mut zip = self.zip.clone();
        let mut member = self.start(&mut zip, name)?;
        let size = member.size();
        if size > limit {
            let what = format!("`{name}` in the archive");
            return Err(Error::OverLimit { what, size, limit });
        }
        if member.compression() == CompressionMethod::Stored {
            // Reading to the end checks the CRC.
            let got =
                io::copy(&mut member, &mut io::sink()).map_err(|e| damaged_member(name, &e))?;
            check_size(name, &member, got)?;
            let window = member.data_start().and_then(|start| {
                let start = usize::try_from(start).ok()?;
                let end = start.checked_add(usize::try_from(size).ok()?)?;
                (end <= self.map.len()).then(|| self.map.slice(start..end))
            });
            return window.ok_or_else(|| Error::MemberSize {
                name: name.to_owned(),
                size,
                compressed: member.compressed_size(),
            });
        }
        // The buffer grows with what arrives, not with what the directory says.
        let first = size.min(member.compressed_size()) as usize;
        let mut data = Vec::with_capacity(first);
        let read = member.by_ref().take(size.saturating_add(1)).read_to_end(&mut data);
        read.map_err(|e| damaged_member(name, &e))?;
        check_size(name, &member, data.len() as u64)?;
        Ok(data.into())
    }
}

/// Whether a name stays within the folder that it is unpacked to, on any system.
fn is_enclosed(name: &str) -> bool {
    let drive = name.as_bytes().get(1) == Some(&b':');
    !name.is_empty()
        && !drive
        && !name.starts_with(['/', '\\'])
        && !name.contains('\0')
        && name.split(['/', '\\']).all(|part| part != "..")
}

fn damaged_member(name: &str, e: &io::Error) -> Error {
    Error::Zip { reason: format!("`{name}`: {e}") }
}

fn check_size(name: &str, member: &ZipFile<'_, Cursor<Bytes>>, got: u64) -> Result<()> {
    if got == member.size() {
        return Ok(());
    }
    let reason = format!("`{name}` has {got} bytes, but should have {}", member.size());
    Err(Error::Zip { reason })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const FOLDER: &str = "uncased_L-2_H-128_A-2/";

    fn config() -> Vec<u8> {
        b"{\"hidden_size\": 128}".repeat(20)
    }

    fn sample() -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        let deflated = stored.compression_method(CompressionMethod::Deflated);
        zip.add_directory(FOLDER, stored).unwrap();
        for (name, options, bytes) in [
            ("bert_config.json", deflated, config()),
            ("vocab.txt", stored, b"[PAD]\n".to_vec()),
            ("bert_model.ckpt.data-00000-of-00001", deflated.large_file(true), vec![7; 3 << 20]),
        ] {
            zip.start_file(format!("{FOLDER}{name}"), options).unwrap();
            zip.write_all(&bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn open(bytes: Vec<u8>) -> Result<Archive> {
        Archive::from_bytes(bytes.into(), "x.zip")
    }

    fn cause<T>(result: Result<T>) -> Error {
        match result.err().unwrap() {
            Error::InFile { source, .. } => *source,
            other => other,
        }
    }

    /// The bytes of the member's entry in the directory, from its signature on.
    fn directory_entry(bytes: &[u8], name: &str) -> usize {
        let at = bytes.windows(name.len()).rposition(|w| w == name.as_bytes()).unwrap();
        assert_eq!(&bytes[at - 46..at - 42], b"PK\x01\x02");
        at - 46
    }

    #[test]
    fn list_read_extract() {
        let archive = open(sample()).unwrap();
        let names: Vec<&str> =
            archive.entries().iter().map(|m| m.name.strip_prefix(FOLDER).unwrap()).collect();
        let data = "bert_model.ckpt.data-00000-of-00001";
        assert_eq!(names, ["bert_config.json", "vocab.txt", data]);
        let read = |name: &str, limit| archive.read(&format!("{FOLDER}{name}"), limit);
        assert_eq!(read("bert_config.json", 1000).unwrap(), config());
        assert_eq!(read("vocab.txt", 6).unwrap(), "[PAD]\n");
        assert!(matches!(cause(read("vocab.txt", 5)), Error::OverLimit { size: 6, limit: 5, .. }));
        assert!(matches!(cause(read("missing", 5)), Error::NoMember { .. }));
        assert_eq!(archive.member(&format!("{FOLDER}{data}")).unwrap().size, 3 << 20);
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("data");
        let mut seen = Vec::new();
        archive.extract(&format!("{FOLDER}{data}"), &to, &mut |n| seen.push(n)).unwrap();
        assert_eq!(std::fs::read(&to).unwrap(), vec![7; 3 << 20]);
        assert!(seen.is_sorted() && seen.last() == Some(&(3 << 20)) && seen.len() >= 3);
    }

    #[test]
    fn what_people_have_instead_of_a_zip() {
        let page = b"\n<!DOCTYPE html><html><body>Log in</body></html>".to_vec();
        let error = open(page).err().unwrap();
        assert!(error.hint().unwrap().contains("web page"));
        assert!(matches!(cause(open(vec![])), Error::WrongContent { found: Content::Empty, .. }));
        assert!(matches!(
            cause(open(b"\x1f\x8b\x08\0".to_vec())),
            Error::WrongContent { found: Content::Gzip, .. }
        ));
        let whole = sample();
        for end in 4..whole.len() {
            let error = cause(open(whole[..end].to_vec()));
            // The last bytes belong to the end record itself.
            let cut = matches!(error, Error::ZipCut);
            assert!(cut || (end >= whole.len() - END_SIZE), "cut at {end}: {error}");
        }
        assert!(Error::ZipCut.hint().is_some());
    }

    #[test]
    fn names_that_lead_out() {
        for name in ["../x", "a/../../x", "/etc/passwd", "C:\\x", "\\\\host\\x", "a\\..\\..\\x"] {
            let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
            zip.start_file("placeholder-of-some-length", SimpleFileOptions::default()).unwrap();
            let mut bytes = zip.finish().unwrap().into_inner();
            let mut padded = name.as_bytes().to_vec();
            padded.resize("placeholder-of-some-length".len(), b'x');
            for at in 0..bytes.len() - padded.len() {
                if bytes[at..].starts_with(b"placeholder") {
                    bytes[at..][..padded.len()].copy_from_slice(&padded);
                }
            }
            assert!(matches!(cause(open(bytes)), Error::MemberName { .. }), "{name}");
        }
        assert!(is_enclosed("a/b..c/..d") && !is_enclosed("a/.."));
    }

    #[test]
    fn sizes_that_cannot_be() {
        let name = format!("{FOLDER}bert_config.json");
        let mut bytes = sample();
        let entry = directory_entry(&bytes, &name);
        bytes[entry + 24..][..4].copy_from_slice(&0x7fff_ffffu32.to_le_bytes());
        let archive = open(bytes.clone()).unwrap();
        assert!(matches!(cause(archive.read(&name, u64::MAX)), Error::MemberSize { .. }));
        let scratch = tempfile::tempdir().unwrap();
        let to = scratch.path().join("x");
        assert!(archive.extract(&name, &to, &mut |_| {}).is_err());
        // A size that deflate could reach, but the member does not, or exceeds.
        for size in [config().len() as u32 + 1, config().len() as u32 - 1] {
            bytes[entry + 24..][..4].copy_from_slice(&size.to_le_bytes());
            let archive = open(bytes.clone()).unwrap();
            assert!(matches!(cause(archive.read(&name, u64::MAX)), Error::Zip { .. }), "{size}");
            assert!(archive.extract(&name, &to, &mut |_| {}).is_err());
        }
        assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0);
    }

    #[test]
    fn encrypted_and_unknown_methods_are_named() {
        let name = format!("{FOLDER}bert_config.json");
        for (offset, value, word) in [(8, 1u8, "encrypted"), (10, 14, "LZMA"), (10, 99, "")] {
            let mut bytes = sample();
            let entry = directory_entry(&bytes, &name);
            bytes[entry + offset] = value;
            match open(bytes) {
                Ok(archive) => {
                    let error = cause(archive.read(&name, u64::MAX)).to_string();
                    assert!(error.to_lowercase().contains(&word.to_lowercase()), "{error}");
                    assert!(archive.read(&format!("{FOLDER}vocab.txt"), 10).is_ok());
                }
                Err(error) => assert_eq!(word, "", "{error}"),
            }
        }
    }

    #[test]
    fn overlapping_members() {
        let mut bytes = sample();
        let first = directory_entry(&bytes, &format!("{FOLDER}bert_config.json"));
        let second = directory_entry(&bytes, &format!("{FOLDER}vocab.txt"));
        let offset: [u8; 4] = bytes[first + 42..][..4].try_into().unwrap();
        bytes[second + 42..][..4].copy_from_slice(&offset);
        let error = cause(open(bytes)).to_string();
        assert!(error.contains("over each other"), "{error}");
    }

    #[test]
    fn every_flipped_byte_is_harmless() {
        let good = sample();
        let archive = open(good.clone()).unwrap();
        let wanted: BTreeMap<&str, Bytes> = archive
            .entries()
            .iter()
            .map(|m| (m.name.as_str(), archive.read(&m.name, u64::MAX).unwrap()))
            .collect();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x21;
            let Ok(archive) = open(bad) else { continue };
            for (name, wanted) in &wanted {
                if let Ok(read) = archive.read(name, 4 << 20) {
                    assert_eq!(&read, wanted, "byte {at}, {name}");
                }
            }
        }
    }
}
