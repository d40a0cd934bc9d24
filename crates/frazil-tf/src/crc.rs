//! TensorFlow's checksum: CRC32C, rotated and offset so that a checksum of data that contains
//! checksums is no weaker.

const MASK_DELTA: u32 = 0xa282_ead8;

/// The masked CRC32C of `data`, as every TensorFlow format stores it.
pub(crate) fn masked(data: &[u8]) -> u32 {
    mask(crc32c::crc32c(data))
}

/// The stored form of a plain CRC32C.
pub(crate) fn mask(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // RFC 3720, B.4: 32 bytes of zeroes.
        assert_eq!(crc32c::crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(masked(&[0; 32]), 0x8a91_36aau32.rotate_right(15).wrapping_add(MASK_DELTA));
    }
}
