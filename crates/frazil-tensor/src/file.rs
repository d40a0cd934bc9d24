//! Files as frazil touches them: mapped when read, complete or absent when written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tempfile::{NamedTempFile, TempDir};

use crate::{Error, Result};

/// The whole file, memory-mapped. Pages are read when they are looked at.
///
/// The file must not shrink while the bytes are in use: the operating system would end the
/// program. frazil itself never writes into an existing file; it replaces it.
pub fn map(path: impl AsRef<Path>) -> Result<Bytes> {
    let path = path.as_ref();
    map_file(&File::open(path).map_err(|e| Error::io("open", path, e))?, path)
}

fn map_file(file: &File, path: &Path) -> Result<Bytes> {
    let metadata = file.metadata().map_err(|e| Error::io("read", path, e))?;
    if metadata.is_dir() {
        return Err(Error::io("read", path, io::ErrorKind::IsADirectory.into()));
    }
    if metadata.len() == 0 {
        return Ok(Bytes::new());
    }
    // SAFETY: the map is read-only and private to us; that nobody shrinks the file meanwhile is
    // the documented condition of this function, as for every program that maps a file.
    #[allow(unsafe_code, reason = "the one memory map of the program")]
    let map = unsafe { memmap2::Mmap::map(file) }.map_err(|e| Error::io("map", path, e))?;
    let map = Map(Arc::new(map));
    maps().insert(map.begin(), Arc::downgrade(&map.0));
    Ok(Bytes::from_owner(map))
}

/// All maps that live, by their first byte.
static MAPS: Mutex<BTreeMap<usize, Weak<memmap2::Mmap>>> = Mutex::new(BTreeMap::new());

fn maps() -> MutexGuard<'static, BTreeMap<usize, Weak<memmap2::Mmap>>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A map that is known to [`release`] as long as it lives.
struct Map(Arc<memmap2::Mmap>);

impl Map {
    fn begin(&self) -> usize {
        self.0.as_ptr() as usize
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        maps().remove(&self.begin());
    }
}

/// Gives back the memory of a part of a mapped file that will not be looked at soon: whoever looks
/// at it again finds it as it was, read from the file once more. Bytes that are in no map stay as
/// they are. Tells whether anything was given back.
///
/// A model's weights are packed tensor by tensor; without this, the whole file would count as the
/// program's memory beside what is made of it.
pub fn release(bytes: &[u8]) -> bool {
    mapped(bytes).is_some_and(|(map, offset)| give_back(&map, offset, bytes.len()))
}

/// Says that a part of a mapped file is looked at here and there only, such as a table of which a
/// few rows are read: the system then brings small pages, not two megabytes around each row.
pub fn sparse(bytes: &[u8]) {
    #[cfg(target_os = "linux")]
    if let Some((map, offset)) = mapped(bytes) {
        // An advice: where the system does not take it, more memory is all that it costs.
        _ = map.advise_range(memmap2::Advice::NoHugePage, offset, bytes.len());
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
}

/// The map that bytes lie in, and where.
fn mapped(bytes: &[u8]) -> Option<(Arc<memmap2::Mmap>, usize)> {
    /// Smaller parts are not worth a call of the system.
    const WORTH: usize = 64 << 10;
    if bytes.len() < WORTH {
        return None;
    }
    let begin = bytes.as_ptr() as usize;
    let map = maps().range(..=begin).next_back()?.1.upgrade()?;
    let offset = begin - map.as_ptr() as usize;
    let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= map.len());
    fits.then_some((map, offset))
}

#[cfg(unix)]
fn give_back(map: &memmap2::Mmap, offset: usize, len: usize) -> bool {
    // SAFETY: the range lies in a map of a file that is never written to, so that a page that was
    // given back is the same when it is read again; `map` keeps it alive.
    #[allow(unsafe_code, reason = "of the one memory map of the program")]
    let done =
        unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, len) };
    done.is_ok()
}

#[cfg(not(unix))]
fn give_back(_: &memmap2::Mmap, _: usize, _: usize) -> bool {
    false
}

/// Set by [`interrupt`]; never unset.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// Files that are being written.
static UNFINISHED: AtomicUsize = AtomicUsize::new(0);

/// Makes every [`AtomicFile`] refuse to go on, so that whoever writes one gets an error and the
/// unfinished file is removed. Tells whether there is any: if not, a program may simply end.
pub fn interrupt() -> bool {
    INTERRUPTED.store(true, Ordering::SeqCst);
    UNFINISHED.load(Ordering::SeqCst) > 0
}

/// Counts a file as unfinished while it lives.
struct Unfinished;

impl Unfinished {
    fn new() -> Self {
        UNFINISHED.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        UNFINISHED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A file that appears under its name only when it is complete: written to a temporary file in
/// the same folder, synced, renamed. Dropped before [`commit`](Self::commit), it leaves nothing; what a
/// process that was killed leaves is removed by the next one that writes into the folder.
///
/// A link stays one: the file that it leads to is replaced. What is neither a file nor absent, such as a
/// pipe or `/dev/null`, is written into as it stands.
pub struct AtomicFile {
    path: PathBuf,
    sink: Sink,
}

enum Sink {
    /// Renamed to this when it is complete.
    Beside(BufWriter<NamedTempFile>, PathBuf, Unfinished), // dropped in this order
    /// A pipe or a device.
    Into(BufWriter<File>),
}

impl AtomicFile {
    /// Starts a file that will be `path`. The folder must exist.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        const BUFFER: usize = 1 << 20;
        let path = path.as_ref().to_path_buf();
        let sink = match std::fs::metadata(&path) {
            Ok(there) if there.is_dir() => {
                return Err(Error::io("write", &path, io::ErrorKind::IsADirectory.into()));
            }
            Ok(there) if !there.is_file() => {
                let file = File::options().write(true).open(&path);
                let file = file.map_err(|e| Error::io("open", &path, e))?;
                Sink::Into(BufWriter::with_capacity(BUFFER, file))
            }
            _ => {
                let place = through_links(&path).map_err(|e| Error::io("create", &path, e))?;
                let unfinished = Unfinished::new();
                let file = beside(&place);
                let file = file.map_err(|e| Error::io("create", &path, without_path(e)))?;
                Sink::Beside(BufWriter::with_capacity(BUFFER, file), place, unfinished)
            }
        };
        Ok(Self { path, sink })
    }

    /// The name the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the contents to disk and gives the file its name.
    pub fn commit(self) -> Result<()> {
        let path = self.path;
        let write_failed = |e| Error::io("write", &path, without_path(e));
        match self.sink {
            Sink::Beside(writer, place, _unfinished) => {
                let file = writer.into_inner().map_err(|e| write_failed(e.into_error()))?;
                file.as_file().sync_all().map_err(write_failed)?;
                file.persist(&place)
                    .map_err(|e| Error::io("rename", &path, without_path(e.error)))?;
            }
            Sink::Into(mut writer) => writer.flush().map_err(write_failed)?,
        }
        Ok(())
    }
}

/// A temporary file in the folder of another. It is locked as long as it is open, so that it can be told from
/// one that was left.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    clear_away_once(folder);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).rand_bytes(CHANCE).suffix(PARTIAL);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666)); // less the umask
    }
    loop {
        let file = builder.tempfile_in(folder)?;
        if is_held(file.as_file(), file.path()) {
            return Ok(file);
        }
    }
}

/// Where a path leads, even if nothing is there yet: the end of all links.
pub fn through_links(path: &Path) -> io::Result<PathBuf> {
    /// As many as Linux follows.
    const MOST: usize = 40;
    let mut place = path.to_path_buf();
    for _ in 0..MOST {
        match std::fs::read_link(&place) {
            Ok(to) => place = place.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(place), // it is no link, or not there
        }
    }
    Err(io::Error::other("it is a link that leads back to itself"))
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        refuse_if_interrupted()?;
        let written = match &mut self.sink {
            Sink::Beside(writer, ..) => writer.write(buf),
            Sink::Into(writer) => writer.write(buf),
        };
        written.map_err(without_path)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.sink {
            Sink::Beside(writer, ..) => writer.flush(),
            Sink::Into(writer) => writer.flush(),
        };
        flushed.map_err(without_path)
    }
}

/// For formats that go back to fill in a length or a checksum; a pipe cannot.
impl Seek for AtomicFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let found = match &mut self.sink {
            Sink::Beside(writer, ..) => writer.seek(to),
            Sink::Into(writer) => writer.seek(to),
        };
        found.map_err(without_path)
    }
}

/// Files that replace others of a folder as a whole: written in a folder of their own inside it, and
/// renamed when all are complete. Dropped before [`commit`](Self::commit), they leave everything as it
/// was; what a process that was killed leaves is removed by the next one.
pub struct Replacement {
    folder: PathBuf,
    _lock: File, // closed first: some systems remove no file that is open
    inside: TempDir,
    _unfinished: Unfinished, // dropped after the temporary folder is gone
}

/// How temporary folders are named, and the file in them that is locked as long as a process writes there.
const INSIDE: &str = ".frazil.";
const LOCK: &str = ".lock";
/// How every temporary name ends, and how many letters and digits of chance stand before that in a file's.
const PARTIAL: &str = ".partial";
const CHANCE: usize = 6;

impl Replacement {
    /// Starts to replace files of a folder that exists.
    pub fn create(folder: impl AsRef<Path>) -> Result<Self> {
        let unfinished = Unfinished::new();
        let folder = folder.as_ref().to_path_buf();
        let failed = |e| Error::io("create a temporary folder in", &folder, e);
        clear_away(&folder);
        loop {
            let mut builder = tempfile::Builder::new();
            let inside =
                builder.prefix(INSIDE).suffix(PARTIAL).tempdir_in(&folder).map_err(failed)?;
            let lock = inside.path().join(LOCK);
            let file = match File::create(&lock) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                file => file.map_err(failed)?,
            };
            if is_held(&file, &lock) {
                return Ok(Self { folder, _lock: file, inside, _unfinished: unfinished });
            }
        }
    }

    /// The folder to write into.
    pub fn path(&self) -> &Path {
        self.inside.path()
    }

    /// Puts what was written in the place of all files whose names are `old`. Meanwhile there is a
    /// file `unfinished` that says so: if the machine goes down just then, it is left.
    pub fn commit(self, old: impl Fn(&str) -> bool, unfinished: &str) -> Result<()> {
        let (before, mut written) = (names(&self.folder)?, names(self.path())?);
        written.retain(|name| name != LOCK);
        let mark = self.folder.join(unfinished);
        write(&mark, b"This folder is incomplete: files of it were being replaced.\n")?;
        for name in before.iter().filter(|name| old(name)) {
            let path = self.folder.join(name);
            std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))?;
        }
        for name in written {
            let path = self.folder.join(&name);
            std::fs::rename(self.path().join(name), &path)
                .map_err(|e| Error::io("rename", &path, e))?;
        }
        std::fs::remove_file(&mark).map_err(|e| Error::io("remove", &mark, e))
    }
}

/// Locks a file that was just made. Not if another process has meanwhile taken it for one that was left;
/// where the file system has no locks, nothing is.
fn is_held(file: &File, path: &Path) -> bool {
    !matches!(file.try_lock(), Err(TryLockError::WouldBlock)) && path.exists()
}

/// Clears a folder away before the first file that this process writes into it: looking through a folder for
/// each of very many files would take longer than writing them.
fn clear_away_once(folder: &Path) {
    static CLEARED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let is_first =
        CLEARED.lock().unwrap_or_else(PoisonError::into_inner).insert(folder.to_path_buf());
    if is_first {
        clear_away(folder);
    }
}

/// Removes the temporary files and folders of processes that were killed: nobody holds their locks.
fn clear_away(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str().and_then(|name| name.strip_suffix(PARTIAL)) else {
            continue;
        };
        let lock = match entry.file_type() {
            Ok(kind) if kind.is_file() && is_of_file(name) => path.clone(),
            Ok(kind) if kind.is_dir() && name.starts_with(INSIDE) => path.join(LOCK),
            _ => continue,
        };
        if let Ok(file) = File::open(&lock)
            && file.try_lock().is_ok()
        {
            // What cannot be removed is only in the way.
            let _ = match lock == path {
                true => std::fs::remove_file(path),
                false => std::fs::remove_dir_all(path),
            };
        }
    }
}

/// Whether a name, without its end, is that of a temporary file: the name that the file was to have, and chance.
fn is_of_file(name: &str) -> bool {
    let parts = name.strip_prefix('.').and_then(|name| name.rsplit_once('.'));
    parts.is_some_and(|(name, chance)| {
        !name.is_empty()
            && chance.len() == CHANCE
            && chance.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// The files in a folder. Names that are no text are none of ours.
fn names(folder: &Path) -> Result<Vec<String>> {
    let failed = |e| Error::io("read", folder, e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.path().is_dir() {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

/// A temporary file: written from begin to end, then read as mapped memory. It has no name that it could
/// be left under, however the program ends.
///
/// For what may be larger than memory and is nobody's business afterwards. Writing stops after
/// [`interrupt`], as with an [`AtomicFile`].
pub struct Scratch {
    writer: BufWriter<File>,
    folder: PathBuf,
}

impl Scratch {
    /// Starts a file in a folder that exists.
    pub fn create_in(folder: impl AsRef<Path>) -> Result<Self> {
        let folder = folder.as_ref().to_path_buf();
        let file = tempfile::tempfile_in(&folder)
            .map_err(|e| Error::io("create a temporary file in", &folder, without_path(e)))?;
        Ok(Self { writer: BufWriter::with_capacity(1 << 20, file), folder })
    }

    /// Ends writing: all that was written.
    pub fn map(self) -> Result<Bytes> {
        /// The map goes first: some systems remove no file that is mapped.
        struct Owner {
            bytes: Bytes,
            _file: File,
        }
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.bytes
            }
        }
        let folder = self.folder;
        let failed = |e| Error::io("write a temporary file in", &folder, e);
        let file = self.writer.into_inner().map_err(|e| failed(e.into_error()))?;
        Ok(Bytes::from_owner(Owner { bytes: map_file(&file, &folder)?, _file: file }))
    }
}

impl Write for Scratch {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        refuse_if_interrupted()?;
        self.writer.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// An error after [`interrupt`]: for work that takes long between two writes.
pub fn go_on() -> Result<()> {
    match INTERRUPTED.load(Ordering::Relaxed) {
        true => Err(Error::Interrupted),
        false => Ok(()),
    }
}

/// Not `ErrorKind::Interrupted`: that one means “try again”.
fn refuse_if_interrupted() -> io::Result<()> {
    go_on().map_err(io::Error::other)
}

/// Writes `contents` to `path` in one go, atomically.
pub fn write(path: impl AsRef<Path>, contents: &[u8]) -> Result<()> {
    let mut file = AtomicFile::create(&path)?;
    file.write_all(contents).map_err(|e| Error::io("write", path.as_ref(), e))?;
    file.commit()
}

/// The system's reason without the temporary name, which is nobody's.
fn without_path(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((reason, _)) => io::Error::new(error.kind(), reason.to_owned()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_complete_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let nowhere = AtomicFile::create(folder.path().join("none/x")).err().unwrap();
        let Error::Io { source, .. } = &nowhere else { panic!("{nowhere:?}") };
        assert!(!source.to_string().contains("partial"), "{source}");
        let path = folder.path().join("x");
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        let refused = file.seek(SeekFrom::Current(-9)).unwrap_err().to_string();
        assert!(!refused.contains("partial"), "{refused}");
        drop(file);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        write(&path, b"whole").unwrap();
        assert_eq!(&map(&path).unwrap()[..], b"whole");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_is_no_file_and_is_told_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let error = AtomicFile::create(folder.path()).err().unwrap();
        let Error::Io { source, .. } = &error else { panic!("{error:?}") };
        assert_eq!(source.kind(), io::ErrorKind::IsADirectory);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_is_followed() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("disk")).unwrap();
        write(at("disk/real"), b"old").unwrap();
        symlink("disk/real", at("link")).unwrap();
        symlink("link", at("chain")).unwrap();
        symlink("disk/new", at("ahead")).unwrap();
        write(at("chain"), b"new").unwrap();
        write(at("ahead"), b"first").unwrap();
        let is_link = |name: &str| std::fs::symlink_metadata(at(name)).unwrap().is_symlink();
        assert!(["link", "chain", "ahead"].into_iter().all(is_link));
        assert_eq!(std::fs::read(at("disk/real")).unwrap(), b"new");
        assert_eq!(std::fs::read(at("disk/new")).unwrap(), b"first");
        assert_eq!(std::fs::read_dir(at("disk")).unwrap().count(), 2);
        symlink("round", at("round")).unwrap();
        assert!(AtomicFile::create(at("round")).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_written_into() {
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || std::fs::read(pipe).unwrap()
        });
        write(&pipe, b"some words").unwrap();
        assert!(std::fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert_eq!(reader.join().unwrap(), b"some words");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
    }

    #[test]
    fn files_are_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let there = || {
            let mut names = names(folder.path()).unwrap();
            names.sort();
            (names.join(" "), std::fs::read_dir(&folder).unwrap().count())
        };
        ["a1", "a2", "b"].iter().for_each(|name| write(at(name), b"old").unwrap());
        let replacement = Replacement::create(&folder).unwrap();
        write(replacement.path().join("a2"), b"new").unwrap();
        drop(replacement);
        assert_eq!(there(), ("a1 a2 b".to_owned(), 3));
        let replacement = Replacement::create(&folder).unwrap();
        ["a2", "a3"].iter().for_each(|name| write(replacement.path().join(name), b"new").unwrap());
        assert_eq!(there().0, "a1 a2 b");
        replacement.commit(|name| name.starts_with('a'), "a").unwrap();
        assert_eq!(there(), ("a2 a3 b".to_owned(), 3));
        assert_eq!(&map(at("a2")).unwrap()[..], b"new");
        // What cannot be replaced leaves the mark.
        std::fs::create_dir(at("a4")).unwrap();
        let replacement = Replacement::create(&folder).unwrap();
        write(replacement.path().join("a4"), b"new").unwrap();
        assert!(replacement.commit(|name| name.starts_with('a'), "a").is_err());
        assert_eq!(there().0, "a b");
    }

    #[test]
    fn what_a_killed_process_leaves_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".frazil.x1y2.partial");
        std::fs::create_dir(&left).unwrap();
        write(left.join(LOCK), b"").unwrap();
        write(left.join("a1"), b"half").unwrap();
        // Without a lock it may be anyone's.
        let other = folder.path().join(".frazil.mine.partial");
        std::fs::create_dir(&other).unwrap();
        let replacement = Replacement::create(&folder).unwrap();
        assert!(!left.exists() && other.exists());
        let second = Replacement::create(&folder).unwrap();
        assert!(replacement.path().exists(), "it is in use");
        second.commit(|_| false, "unfinished").unwrap();
        write(replacement.path().join("a1"), b"whole").unwrap();
        replacement.commit(|_| false, "unfinished").unwrap();
        let mut names = names(folder.path()).unwrap();
        names.sort();
        assert_eq!(names, ["a1"]);
    }

    #[test]
    fn what_a_killed_process_has_begun_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let others = [".mine.partial", ".a.b.partial", ".a.x1Y2z3.part", "a.x1Y2z3.partial"];
        for name in others.iter().chain(&[".a.x1Y2z3.partial", ".b.c.x1Y2z3.partial"]) {
            std::fs::write(at(name), b"half").unwrap();
        }
        let mut file = AtomicFile::create(at("b.c")).unwrap();
        let there = || std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(there(), others.len() + 1);
        // What is in use stays, whoever looks.
        clear_away(folder.path());
        assert_eq!(there(), others.len() + 1);
        file.write_all(b"whole").unwrap();
        file.commit().unwrap();
        clear_away(folder.path());
        assert!(others.iter().all(|name| at(name).exists()) && there() == others.len() + 1);
        assert_eq!(&map(at("b.c")).unwrap()[..], b"whole");
    }

    #[test]
    fn what_was_given_back_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let contents: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        write(&path, &contents).unwrap();
        let mapped = map(&path).unwrap();
        assert_eq!(&mapped[..], &contents[..]);
        let part = mapped.slice(10_001..200_007);
        assert_eq!(release(&part), cfg!(unix));
        assert!(release(&mapped) == cfg!(unix) && mapped[..] == contents[..]);
        // What is in no map is left alone, as is everything behind the end of one.
        assert!(!release(&contents) && !release(&[]));
        assert_eq!(&part[..], &contents[10_001..200_007]);
        let begin = mapped.as_ptr() as usize;
        drop(mapped);
        assert!(maps().contains_key(&begin), "a part keeps the map");
        drop(part);
        assert!(!maps().contains_key(&begin));
    }

    #[test]
    fn a_scratch_file_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let count = || std::fs::read_dir(&folder).unwrap().count();
        let mut scratch = Scratch::create_in(&folder).unwrap();
        scratch.write_all(b"some words").unwrap();
        let bytes = scratch.map().unwrap();
        assert_eq!((&bytes[..], count()), (&b"some words"[..], 0));
        let part = bytes.slice(5..);
        drop(bytes);
        assert_eq!((&part[..], count()), (&b"words"[..], 0));
        let _another = Scratch::create_in(&folder).unwrap();
        assert_eq!(count(), 0);
        assert!(Scratch::create_in(folder.path().join("nowhere")).is_err());
    }

    #[test]
    fn empty_files_and_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        write(&path, b"").unwrap();
        assert!(map(&path).unwrap().is_empty());
        assert!(matches!(map(folder.path()), Err(Error::Io { .. })));
    }
}
