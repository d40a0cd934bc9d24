//! Writes a table, block for block as TensorFlow does, so that the same entries give the same
//! bytes (uncompressed: snappy encoders differ).

use std::io::Write;

use super::block::BlockBuilder;
use super::{Handle, MAGIC, RAW, SNAPPY, TRAILER_LEN};
use crate::{Error, Result, crc};

/// How blocks are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// As they are; TensorFlow 1.2 and later writes all checkpoints so.
    #[default]
    None,
    /// With snappy where that saves an eighth. Every TensorFlow since 1.1 reads it.
    Snappy,
}

/// Streams a table to a writer. Entries come in key order.
pub struct TableBuilder<W> {
    out: W,
    /// Bytes written.
    offset: u64,
    compression: Compression,
    block_size: usize,
    block: BlockBuilder,
    index: BlockBuilder,
    /// Key of the newest entry.
    last_key: Option<Vec<u8>>,
    /// A written block whose index entry waits for the next key: the shortest key between the
    /// two is enough.
    pending: Option<Handle>,
}

impl<W: Write> TableBuilder<W> {
    /// Starts an empty table.
    pub fn new(out: W, compression: Compression) -> Self {
        Self {
            out,
            offset: 0,
            compression,
            block_size: 256 << 10,
            block: BlockBuilder::new(16),
            index: BlockBuilder::new(1),
            last_key: None,
            pending: None,
        }
    }

    /// Closes blocks that reach `bytes` (TensorFlow's size, 256 KiB, unless told otherwise).
    pub fn block_size(mut self, bytes: usize) -> Self {
        self.block_size = bytes;
        self
    }

    /// Appends an entry. Its key must be greater than the one before.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        if let Some(last) = &self.last_key {
            if key <= last.as_slice() {
                return Err(Error::KeyOrder { key: String::from_utf8_lossy(key).into_owned() });
            }
            // A giant gets a block of its own.
            if key.len() + value.len() >= 2 * self.block_size {
                self.flush()?;
            }
        }
        if let (Some(handle), Some(last)) = (self.pending.take(), &mut self.last_key) {
            shorten_between(last, key);
            add_handle(&mut self.index, last, handle);
        }
        self.block.add(key, value);
        let last = self.last_key.get_or_insert_default();
        last.clear();
        last.extend_from_slice(key);
        if self.block.len() >= self.block_size { self.flush() } else { Ok(()) }
    }

    /// Writes what is left, the index and the footer; gives the writer back.
    pub fn finish(mut self) -> Result<W> {
        self.flush()?;
        let metaindex = self.write_block(BlockBuilder::new(1).finish())?;
        if let (Some(handle), Some(mut last)) = (self.pending.take(), self.last_key.take()) {
            shorten_after(&mut last);
            add_handle(&mut self.index, &last, handle);
        }
        let contents = self.index.finish();
        let index = self.write_block(contents)?;
        let mut footer = Vec::with_capacity(super::FOOTER_LEN);
        metaindex.put(&mut footer);
        index.put(&mut footer);
        footer.resize(super::FOOTER_LEN - 8, 0);
        footer.extend_from_slice(&MAGIC.to_le_bytes());
        self.out.write_all(&footer)?;
        Ok(self.out)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            let contents = self.block.finish();
            self.pending = Some(self.write_block(contents)?);
        }
        Ok(())
    }

    fn write_block(&mut self, mut contents: Vec<u8>) -> Result<Handle> {
        let mut kind = RAW;
        if self.compression == Compression::Snappy {
            let packed = snap::raw::Encoder::new().compress_vec(&contents).map_err(|e| {
                Error::Corrupt { what: "a table block", at: self.offset, reason: e.to_string() }
            })?;
            if packed.len() < contents.len() - contents.len() / 8 {
                (contents, kind) = (packed, SNAPPY);
            }
        }
        let handle = Handle { offset: self.offset, size: contents.len() as u64 };
        contents.push(kind);
        let checksum = crc::masked(&contents);
        contents.extend_from_slice(&checksum.to_le_bytes());
        self.out.write_all(&contents)?;
        self.offset += handle.size + TRAILER_LEN as u64;
        Ok(handle)
    }
}

fn add_handle(index: &mut BlockBuilder, key: &[u8], handle: Handle) {
    let mut value = Vec::with_capacity(20);
    handle.put(&mut value);
    index.add(key, &value);
}

/// Shortens `last` to a key that still is >= itself and < `next`, where one byte allows it.
fn shorten_between(last: &mut Vec<u8>, next: &[u8]) {
    let same = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    if let (Some(&a), Some(&b)) = (last.get(same), next.get(same))
        && a < 0xff
        && a + 1 < b
    {
        last.truncate(same);
        last.push(a + 1);
    }
}

/// Shortens `last` to a key that is greater than itself.
fn shorten_after(last: &mut Vec<u8>) {
    if let Some(at) = last.iter().position(|&byte| byte != 0xff) {
        last.truncate(at + 1);
        last[at] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_keys_are_short() {
        let between = |a: &[u8], b: &[u8]| {
            let mut key = a.to_vec();
            shorten_between(&mut key, b);
            key
        };
        assert_eq!(between(b"the quick brown fox", b"the who"), b"the r");
        assert_eq!(between(b"abc", b"abcd"), b"abc");
        assert_eq!(between(b"abc1", b"abd"), b"abc1");
        assert_eq!(between(b"a\xff1", b"b"), b"a\xff1");
        let mut key = b"\xff\xffabc".to_vec();
        shorten_after(&mut key);
        assert_eq!(key, b"\xff\xffb");
        let mut key = b"\xff".to_vec();
        shorten_after(&mut key);
        assert_eq!(key, b"\xff");
    }

    #[test]
    fn order_is_demanded() {
        let mut builder = TableBuilder::new(Vec::new(), Compression::None);
        builder.add(b"", b"first").unwrap();
        builder.add(b"b", b"").unwrap();
        assert!(matches!(builder.add(b"b", b""), Err(Error::KeyOrder { .. })));
        assert!(matches!(builder.add(b"a", b""), Err(Error::KeyOrder { .. })));
    }
}
