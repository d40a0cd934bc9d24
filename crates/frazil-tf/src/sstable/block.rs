//! The contents of one block: prefix-compressed entries in key order.

use bytes::Bytes;

use crate::{Error, Result, varint};

/// Keys may be this many times as long as what is stored of them (plus a start): names share long
/// prefixes, but a block of nothing but shared prefixes would expand without bounds.
const MAX_EXPANSION: usize = 64;
const FREE_EXPANSION: usize = 64 << 10;

/// A block's contents, split into entries and restart offsets.
#[derive(Debug)]
pub(super) struct Block {
    entries: Bytes,
    restarts: Bytes,
}

impl Block {
    pub(super) fn new(contents: Bytes) -> Result<Self> {
        let corrupt = |reason: &str| corrupt(contents.len(), reason);
        let Some(entries_and_restarts) = contents.len().checked_sub(4) else {
            return Err(corrupt("it has no restart count"));
        };
        let count = u32_at(&contents[entries_and_restarts..]) as usize;
        let Some(entries_len) =
            count.checked_mul(4).and_then(|restarts| entries_and_restarts.checked_sub(restarts))
        else {
            return Err(corrupt("it has more restarts than bytes"));
        };
        let restarts = contents.slice(entries_len..entries_and_restarts);
        Ok(Self { entries: contents.slice(..entries_len), restarts })
    }

    /// A cursor before the first entry.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor_at(0)
    }

    /// The first entry whose key is `key` or greater.
    pub(super) fn seek(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>> {
        // The last restart whose key is less: everything before it is less too.
        let (mut low, mut high) = (0, self.restarts.len() / 4);
        let mut cursor = self.cursor();
        while low < high {
            let middle = low + (high - low) / 2;
            let mut probe = self.restart(middle)?;
            match probe.next()? {
                Some(_) if probe.key.as_slice() < key => {
                    low = middle + 1;
                    cursor = self.restart(middle)?;
                }
                _ => high = middle,
            }
        }
        while let Some(value) = cursor.next()? {
            if cursor.key.as_slice() >= key {
                return Ok(Some((cursor.key, value)));
            }
        }
        Ok(None)
    }

    fn restart(&self, number: usize) -> Result<Cursor> {
        let at = u32_at(&self.restarts[4 * number..]) as usize;
        if at > self.entries.len() {
            return Err(corrupt(at, "a restart lies beyond the entries"));
        }
        Ok(self.cursor_at(at))
    }

    fn cursor_at(&self, at: usize) -> Cursor {
        let entries = self.entries.clone();
        let budget = entries.len().saturating_mul(MAX_EXPANSION).saturating_add(FREE_EXPANSION);
        Cursor { entries, at, key: Vec::new(), budget }
    }
}

/// Steps through a block's entries.
#[derive(Debug)]
pub(super) struct Cursor {
    entries: Bytes,
    at: usize,
    /// The key of the entry that `next` gave last.
    pub(super) key: Vec<u8>,
    /// Key bytes that may still be made.
    budget: usize,
}

impl Cursor {
    /// The next entry's value; its key is then in `self.key`.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>> {
        let start = self.at;
        let mut rest = &self.entries[start..];
        if rest.is_empty() {
            return Ok(None);
        }
        let mut length = || varint::take(&mut rest).and_then(|n| usize::try_from(n).ok());
        let (Some(shared), Some(unshared), Some(value_len)) = (length(), length(), length()) else {
            return Err(corrupt(start, "an entry has no proper lengths"));
        };
        if shared > self.key.len() {
            return Err(corrupt(start, "an entry shares more than the key before it has"));
        }
        let Some(value) = rest.get(unshared..).and_then(|tail| tail.get(..value_len)) else {
            return Err(corrupt(start, "an entry is longer than its block"));
        };
        self.key.truncate(shared);
        self.key.extend_from_slice(&rest[..unshared]);
        let Some(budget) = self.budget.checked_sub(self.key.len()) else {
            return Err(corrupt(start, "its keys are far longer than the block"));
        };
        self.budget = budget;
        let value = self.entries.slice_ref(value);
        self.at = self.entries.len() - rest.len() + unshared + value_len;
        Ok(Some(value))
    }
}

/// Collects the contents of a block.
#[derive(Debug)]
pub(super) struct BlockBuilder {
    entries: Vec<u8>,
    restarts: Vec<u32>,
    /// Entries between restarts.
    interval: usize,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    pub(super) fn new(interval: usize) -> Self {
        let (entries, last_key) = (Vec::new(), Vec::new());
        Self { entries, restarts: vec![0], interval, since_restart: 0, last_key }
    }

    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.since_restart < self.interval {
            shared = self.last_key.iter().zip(key).take_while(|(a, b)| a == b).count();
        } else {
            self.restarts.push(self.entries.len() as u32);
            self.since_restart = 0;
        }
        for length in [shared, key.len() - shared, value.len()] {
            varint::put(&mut self.entries, length as u64);
        }
        self.entries.extend_from_slice(&key[shared..]);
        self.entries.extend_from_slice(value);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.since_restart += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes that the contents would have now.
    pub(super) fn len(&self) -> usize {
        self.entries.len() + 4 * self.restarts.len() + 4
    }

    /// The contents; the builder is empty again.
    pub(super) fn finish(&mut self) -> Vec<u8> {
        let full = std::mem::replace(self, Self::new(self.interval));
        let mut contents = full.entries;
        for restart in &full.restarts {
            contents.extend_from_slice(&restart.to_le_bytes());
        }
        contents.extend_from_slice(&(full.restarts.len() as u32).to_le_bytes());
        contents
    }
}

fn corrupt(at: usize, reason: &str) -> Error {
    Error::Corrupt { what: "a table block", at: at as u64, reason: reason.into() }
}

/// The first four bytes; the caller has seen that they are there.
fn u32_at(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_prefixes_between_restarts() {
        let mut builder = BlockBuilder::new(2);
        for key in ["abc", "abd", "abe"] {
            builder.add(key.as_bytes(), b"v");
        }
        let contents = builder.finish();
        let entries = b"\0\x03\x01abcv\x02\x01\x01dv\0\x03\x01abev";
        assert_eq!(&contents[..entries.len()], entries);
        assert_eq!(&contents[entries.len()..], [0, 0, 0, 0, 12, 0, 0, 0, 2, 0, 0, 0]);
        assert!(builder.is_empty());
    }

    #[test]
    fn hostile_contents_are_refused() {
        for contents in [&b""[..], b"\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0\x02\0\0\0"] {
            assert!(Block::new(Bytes::from_static(contents)).is_err(), "{contents:?}");
        }
        // A restart beyond the entries, a shared length with nothing before it, a long value.
        let block = Block::new(Bytes::from_static(b"\0\x01\x01av\x09\0\0\0\x01\0\0\0")).unwrap();
        assert!(block.seek(b"a").is_err());
        let block = Block::new(Bytes::from_static(b"\x01\x01\x01av\0\0\0\0")).unwrap();
        assert!(block.cursor().next().is_err());
        let block = Block::new(Bytes::from_static(b"\0\x01\x7fav\0\0\0\0")).unwrap();
        assert!(block.cursor().next().is_err());
    }

    #[test]
    fn keys_that_explode_are_refused() {
        let mut contents = Vec::new();
        for i in 0..100_000u64 {
            varint::put(&mut contents, i);
            contents.extend_from_slice(b"\x01\0a");
        }
        contents.extend_from_slice(&[0; 8]);
        contents.splice(contents.len() - 4.., [1, 0, 0, 0]);
        let mut cursor = Block::new(contents.into()).unwrap().cursor();
        let end = loop {
            match cursor.next() {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert!(end.unwrap_err().to_string().contains("far longer"));
    }
}
