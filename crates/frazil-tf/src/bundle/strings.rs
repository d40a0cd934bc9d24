//! How a bundle stores a tensor of strings: all lengths as varints, a masked checksum of the
//! lengths, all bytes. Both checksums see a length as the four little-endian bytes of a number
//! (eight, if it does not fit), not as a varint.

use bytes::Bytes;

use crate::{Error, Result, crc, varint};

/// The strings of an entry and the plain CRC32C that the entry should have. The strings are
/// windows on `stored`.
pub(super) fn decode(stored: &Bytes, elements: usize, verify: bool) -> Result<(Vec<Bytes>, u32)> {
    // TensorFlow takes an entry without a single byte for empty strings.
    if stored.is_empty() && elements == 0 {
        return Ok((Vec::new(), 0));
    }
    let truncated = |needed: usize| Error::Truncated {
        what: "a tensor of strings",
        needed: needed as u64,
        available: stored.len() as u64,
    };
    // A length takes a byte or more: an element count beyond that is a lie.
    if elements > stored.len() {
        return Err(truncated(elements));
    }
    let mut rest = &stored[..];
    let mut lengths = Vec::with_capacity(elements);
    let mut crc = 0;
    for _ in 0..elements {
        let length = varint::take(&mut rest).ok_or_else(|| Error::Corrupt {
            what: "a tensor of strings",
            at: (stored.len() - rest.len()) as u64,
            reason: "a length is not a number".into(),
        })?;
        crc = extend_length(crc, length);
        lengths.push(length);
    }
    let Some((&checksum, mut rest)) = rest.split_first_chunk::<4>() else {
        return Err(truncated(stored.len() - rest.len() + 4));
    };
    if verify && crc::mask(crc) != u32::from_le_bytes(checksum) {
        return Err(Error::Checksum {
            what: "a tensor's string lengths".into(),
            stored: u32::from_le_bytes(checksum),
            computed: crc::mask(crc),
        });
    }
    if verify {
        crc = crc32c::crc32c_append(crc, &checksum);
        crc = crc32c::crc32c_append(crc, rest);
    }
    let mut strings = Vec::with_capacity(elements);
    for length in lengths {
        let string = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let Some((string, tail)) = string else {
            let at = (stored.len() - rest.len()) as u64;
            let (needed, available) = (at.saturating_add(length), stored.len() as u64);
            return Err(Error::Truncated { what: "a tensor of strings", needed, available });
        };
        strings.push(stored.slice_ref(string));
        rest = tail;
    }
    if !rest.is_empty() {
        return Err(Error::Corrupt {
            what: "a tensor of strings",
            at: (stored.len() - rest.len()) as u64,
            reason: format!("{} bytes are left over", rest.len()),
        });
    }
    Ok((strings, crc))
}

/// The stored form of `strings` and its plain CRC32C.
pub(super) fn encode(strings: &[Bytes]) -> (Vec<u8>, u32) {
    let mut stored = Vec::with_capacity(strings.iter().map(|s| s.len() + 2).sum::<usize>() + 4);
    let mut crc = 0;
    for string in strings {
        varint::put(&mut stored, string.len() as u64);
        crc = extend_length(crc, string.len() as u64);
    }
    let lengths = stored.len();
    stored.extend_from_slice(&crc::mask(crc).to_le_bytes());
    for string in strings {
        stored.extend_from_slice(string);
    }
    let crc = crc32c::crc32c_append(crc, &stored[lengths..]);
    (stored, crc)
}

fn extend_length(crc: u32, length: u64) -> u32 {
    match u32::try_from(length) {
        Ok(short) => crc32c::crc32c_append(crc, &short.to_le_bytes()),
        Err(_) => crc32c::crc32c_append(crc, &length.to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings() -> Vec<Bytes> {
        ["", "a", "größe", &"x".repeat(300)].iter().map(|s| Bytes::from(s.to_string())).collect()
    }

    #[test]
    fn there_and_back() {
        let (stored, crc) = encode(&strings());
        let stored = Bytes::from(stored);
        assert_eq!(decode(&stored, 4, true).unwrap(), (strings(), crc));
        let (stored, crc) = encode(&[]);
        assert_eq!(stored.len(), 4);
        assert_eq!(decode(&stored.into(), 0, true).unwrap(), (vec![], crc));
    }

    #[test]
    fn hostile_bytes_are_refused() {
        let (stored, _) = encode(&strings());
        for end in 0..stored.len() {
            assert!(decode(&Bytes::from(stored[..end].to_vec()), 4, false).is_err(), "{end}");
        }
        let stored = Bytes::from(stored);
        assert!(decode(&stored, usize::MAX, true).is_err());
        assert!(decode(&stored, 3, false).is_err());
        let endless = Bytes::from_static(&[0xff; 40]);
        assert!(decode(&endless, 1, false).is_err());
    }
}
