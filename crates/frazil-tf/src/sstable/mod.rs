//! Sorted tables of byte-string keys and values in one immutable file: LevelDB's format with
//! TensorFlow's magic number. The `.index` of a V2 checkpoint is one, and a V1 checkpoint is
//! nothing but one.
//!
//! ```text
//! data block*  metaindex block  index block  footer
//! block   = contents, type (0 raw, 1 snappy), masked CRC32C of both
//! entry   = varints shared, unshared, value length; the key's unshared tail; the value
//! contents= entries, u32 offsets of the entries that share nothing ("restarts"), their u32 count
//! index   = a block: per data block a key >= its last one, and its offset and size as varints
//! footer  = metaindex and index offset and size as varints, zeroes up to 40 bytes, magic
//! ```
//!
//! Left out: filters, caches, other compressions and other key orders, which TensorFlow never
//! writes. The metaindex is always empty and is not looked at.

mod block;
mod builder;
mod reader;

pub use builder::{Compression, TableBuilder};
pub use reader::{Entries, Table};

use crate::varint;

const MAGIC: u64 = 0xdb47_7524_8b80_fb57;
const FOOTER_LEN: usize = 48;
/// Type and checksum behind the contents of every block.
const TRAILER_LEN: usize = 5;
const RAW: u8 = 0;
const SNAPPY: u8 = 1;

/// Where a block's contents lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle {
    offset: u64,
    size: u64,
}

impl Handle {
    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { offset: varint::take(bytes)?, size: varint::take(bytes)? })
    }

    fn put(self, out: &mut Vec<u8>) {
        varint::put(out, self.offset);
        varint::put(out, self.size);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    use super::*;

    fn build(entries: &BTreeMap<Vec<u8>, Vec<u8>>, compression: Compression) -> Vec<u8> {
        let mut builder = TableBuilder::new(Vec::new(), compression).block_size(200);
        for (key, value) in entries {
            builder.add(key, value).unwrap();
        }
        builder.finish().unwrap()
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        // Few letters: long shared prefixes, neighbours that differ in the last bit, 0xff runs.
        prop::collection::vec(prop::sample::select(vec![0u8, b'a', b'b', b'/', 0xfe, 0xff]), 0..40)
    }

    proptest! {
        #[test]
        fn what_is_built_reads_back(
            entries in prop::collection::btree_map(
                keys(), prop::collection::vec(any::<u8>(), 0..90), 0..120),
            snappy in any::<bool>(),
            strangers in prop::collection::vec(keys(), 0..20),
        ) {
            let compression = if snappy { Compression::Snappy } else { Compression::None };
            let table = Table::open(Bytes::from(build(&entries, compression)), true).unwrap();
            let read: Vec<(Vec<u8>, Bytes)> = table.entries().collect::<Result<_, _>>().unwrap();
            prop_assert!(read.iter().map(|(k, v)| (&k[..], &v[..]))
                .eq(entries.iter().map(|(k, v)| (&k[..], &v[..]))));
            for key in entries.keys().chain(&strangers) {
                let found = table.get(key).unwrap();
                prop_assert_eq!(found.as_deref(), entries.get(key).map(|v| &v[..]));
            }
        }

        #[test]
        fn damage_is_an_error_or_harmless(
            entries in prop::collection::btree_map(
                keys(), prop::collection::vec(any::<u8>(), 0..30), 1..40),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
            verify in any::<bool>(),
        ) {
            let mut file = build(&entries, Compression::Snappy);
            let at = at.index(file.len());
            file[at] ^= flip;
            let Ok(table) = Table::open(Bytes::from(file.clone()), verify) else { return Ok(()) };
            let read: Result<Vec<_>, _> = table.entries().collect();
            if verify && at < file.len() - FOOTER_LEN && let Ok(read) = read {
                // Only the metaindex block is not looked at.
                prop_assert!(read.iter().map(|(k, v)| (&k[..], &v[..]))
                    .eq(entries.iter().map(|(k, v)| (&k[..], &v[..]))));
            }
            for key in entries.keys() {
                let _ = table.get(key);
            }
            let _ = Table::open(Bytes::from(file).slice(..at), verify);
        }
    }
}
