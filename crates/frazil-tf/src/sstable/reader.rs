//! Reads a table: by key, or all of it in order.

use std::sync::Mutex;

use bytes::Bytes;

use super::block::{Block, Cursor};
use super::{FOOTER_LEN, Handle, MAGIC, RAW, SNAPPY, TRAILER_LEN};
use crate::sniff::{self, Content};
use crate::{Error, Result, crc};

/// Snappy's longest copy is 64 bytes from 3; a block that claims more than this is hostile.
const MAX_EXPANSION: usize = 22;

/// A table on the bytes of its file. Opening looks at the footer and the index block only.
#[derive(Debug)]
pub struct Table {
    file: Bytes,
    index: Block,
    verify: bool,
    /// The block that was checked and unpacked last, by offset: neighbours are read one after
    /// another. Costs memory only where blocks are compressed, which TensorFlow's are not.
    kept: Mutex<Option<(u64, Bytes)>>,
}

impl Table {
    /// Opens the table that `file` holds; `verify` checks the checksum of every block read.
    pub fn open(file: Bytes, verify: bool) -> Result<Self> {
        let footer_at = file.len().checked_sub(FOOTER_LEN);
        let Some(footer_at) = footer_at.filter(|_| file.ends_with(&MAGIC.to_le_bytes())) else {
            return Err(match sniff::of(&file) {
                Content::Unknown | Content::Sstable => Error::NotATable,
                found => Error::WrongContent { expected: "a checkpoint's table", found },
            });
        };
        let mut handles = &file[footer_at..file.len() - 8];
        let (Some(_metaindex), Some(index)) =
            (Handle::take(&mut handles), Handle::take(&mut handles))
        else {
            return Err(Error::Corrupt {
                what: "the table's footer",
                at: footer_at as u64,
                reason: "it does not say where the index is".into(),
            });
        };
        let index = Block::new(read_block(&file, index, verify)?)?;
        Ok(Self { file, index, verify, kept: Mutex::new(None) })
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let Some((_, handle)) = self.index.seek(key)? else { return Ok(None) };
        let found = self.block(parse_handle(&handle)?)?.seek(key)?;
        Ok(found.and_then(|(found, value)| (found == key).then_some(value)))
    }

    /// All entries in key order.
    pub fn entries(&self) -> Entries<'_> {
        Entries {
            table: self,
            index: self.index.cursor(),
            block: None,
            read: 0,
            last: None,
            done: false,
        }
    }

    fn block(&self, handle: Handle) -> Result<Block> {
        // A poisoned lock means a panic elsewhere; what is kept is whole all the same.
        let kept = self.kept.lock().unwrap_or_else(|e| e.into_inner()).clone();
        if let Some((offset, contents)) = kept
            && offset == handle.offset
        {
            return Block::new(contents);
        }
        let contents = read_block(&self.file, handle, self.verify)?;
        *self.kept.lock().unwrap_or_else(|e| e.into_inner()) =
            Some((handle.offset, contents.clone()));
        Block::new(contents)
    }
}

fn parse_handle(mut value: &[u8]) -> Result<Handle> {
    Handle::take(&mut value)
        .ok_or_else(|| corrupt_index("an entry does not say where its block is"))
}

fn corrupt_index(reason: &str) -> Error {
    Error::Corrupt { what: "the table's index", at: 0, reason: reason.into() }
}

/// The contents of a block, unpacked: a window on the file if it is stored raw.
fn read_block(file: &Bytes, handle: Handle, verify: bool) -> Result<Bytes> {
    let available = (file.len() - FOOTER_LEN) as u64;
    let end =
        handle.offset.checked_add(handle.size).and_then(|e| e.checked_add(TRAILER_LEN as u64));
    let Some(end) = end.filter(|&end| end <= available) else {
        let needed = end.unwrap_or(u64::MAX);
        return Err(Error::Truncated { what: "a table block", needed, available });
    };
    // Both ends fit in the file, and so in usize.
    let stored = file.slice(handle.offset as usize..end as usize);
    let (covered, checksum) = stored.split_at(stored.len() - 4);
    if verify {
        let computed = crc::masked(covered);
        let expected = u32::from_le_bytes([checksum[0], checksum[1], checksum[2], checksum[3]]);
        if computed != expected {
            let what = format!("the table block at byte {}", handle.offset);
            return Err(Error::Checksum { what, stored: expected, computed });
        }
    }
    let contents = stored.slice(..covered.len() - 1);
    let corrupt =
        |reason: String| Error::Corrupt { what: "a table block", at: handle.offset, reason };
    match covered[covered.len() - 1] {
        RAW => Ok(contents),
        SNAPPY => {
            let unpacked =
                snap::raw::decompress_len(&contents).map_err(|e| corrupt(e.to_string()))?;
            if unpacked > contents.len().saturating_mul(MAX_EXPANSION) {
                return Err(corrupt(format!(
                    "{} bytes cannot unpack to {unpacked}",
                    contents.len()
                )));
            }
            let unpacked = snap::raw::Decoder::new().decompress_vec(&contents);
            unpacked.map(Bytes::from).map_err(|e| corrupt(e.to_string()))
        }
        other => Err(corrupt(format!("block type {other} is none of raw (0) and snappy (1)"))),
    }
}

/// Iterator over all entries: key and value. Ends after the first error.
#[derive(Debug)]
pub struct Entries<'a> {
    table: &'a Table,
    index: Cursor,
    block: Option<Cursor>,
    /// End of the blocks read so far.
    read: u64,
    last: Option<Vec<u8>>,
    done: bool,
}

impl Entries<'_> {
    fn step(&mut self) -> Result<Option<(Vec<u8>, Bytes)>> {
        loop {
            if let Some(block) = &mut self.block {
                if let Some(value) = block.next()? {
                    let key = block.key.clone();
                    if self.last.as_ref().is_some_and(|last| *last >= key) {
                        return Err(Error::Corrupt {
                            what: "the table",
                            at: 0,
                            reason: format!(
                                "key `{}` is out of order",
                                String::from_utf8_lossy(&key)
                            ),
                        });
                    }
                    self.last = Some(key.clone());
                    return Ok(Some((key, value)));
                }
                self.block = None;
            }
            let Some(handle) = self.index.next()? else { return Ok(None) };
            let handle = parse_handle(&handle)?;
            // A block that is listed a million times would be read a million times.
            if handle.offset < self.read {
                return Err(corrupt_index("its blocks overlap"));
            }
            self.block = Some(self.table.block(handle)?.cursor());
            self.read = handle.offset + handle.size + TRAILER_LEN as u64;
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<(Vec<u8>, Bytes)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.step().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}
