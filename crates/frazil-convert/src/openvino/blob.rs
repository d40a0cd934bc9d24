//! The `.bin` beside the `.xml`: constants back to back, equal ones once, straight from where the
//! graph has them.

use std::collections::HashMap;
use std::io::{self, Write};

use half::f16;
use half::slice::HalfFloatSliceExt;

use super::net::Blob;

/// Where a constant lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// From the start of the file.
    pub offset: u64,
    /// Bytes in the file.
    pub size: u64,
}

/// Bytes that tell most weights apart without reading all of them.
type Sample = (usize, bool, [u8; 64]);

/// Gives every constant its place.
#[derive(Default)]
pub(super) struct Layout {
    known: HashMap<Sample, Vec<(Blob, Place)>>,
    order: Vec<Blob>,
    end: u64,
}

impl Layout {
    /// The place of these bytes: a new one at the end, or that of equal bytes.
    pub fn place(&mut self, blob: &Blob) -> Place {
        let alike = self.known.entry(sample(blob)).or_default();
        // The comparison ends at the first difference; only equal tensors are read whole.
        if let Some((_, place)) = alike.iter().find(|(known, _)| known.bytes == blob.bytes) {
            return *place;
        }
        let size = blob.bytes.len() as u64 / if blob.halve { 2 } else { 1 };
        let place = Place { offset: self.end, size };
        self.end += size;
        alike.push((blob.clone(), place));
        self.order.push(blob.clone());
        place
    }

    /// Writes everything that has a place, a piece at a time.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for blob in &self.order {
            if blob.halve { write_halved(&blob.bytes, out)? } else { out.write_all(&blob.bytes)? }
        }
        Ok(())
    }
}

fn sample(blob: &Blob) -> Sample {
    let bytes = &blob.bytes;
    let mut taken = [0u8; 64];
    let (first, last) = taken.split_at_mut(32);
    let n = bytes.len().min(32);
    first[..n].copy_from_slice(&bytes[..n]);
    // From the middle: tables begin and end with rows that are often zero.
    let middle = bytes.len() / 2;
    let n = (bytes.len() - middle).min(32);
    last[..n].copy_from_slice(&bytes[middle..middle + n]);
    (bytes.len(), blob.halve, taken)
}

/// Elements that are converted at a time.
const PIECE: usize = 1 << 16;

fn write_halved(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let mut wide = vec![0f32; PIECE.min(bytes.len() / 4)];
    let mut narrow = vec![f16::ZERO; wide.len()];
    for piece in bytes.chunks(PIECE * 4) {
        let n = piece.len() / 4;
        let (wide, narrow) = (&mut wide[..n], &mut narrow[..n]);
        // Files lay constants out at any address, so they are copied before they are numbers.
        bytemuck::cast_slice_mut(wide).copy_from_slice(&piece[..n * 4]);
        if cfg!(target_endian = "big") {
            wide.iter_mut().for_each(|value| *value = f32::from_bits(value.to_bits().to_le()));
        }
        // What is too large becomes the largest there is, as in their own compression.
        wide.iter_mut().for_each(|value| *value = value.clamp(-MOST, MOST));
        narrow.convert_from_f32_slice(wide);
        if cfg!(target_endian = "big") {
            narrow.iter_mut().for_each(|half| *half = f16::from_bits(half.to_bits().to_le()));
        }
        out.write_all(bytemuck::cast_slice(narrow))?;
    }
    Ok(())
}

/// The largest f16.
const MOST: f32 = 65504.0;
/// The smallest number above 0 that f16 has.
const LEAST: f32 = 5.960_464_5e-8;

/// Whether f16 can stand for an f32 constant: not if three quarters of its elements would become
/// another number altogether (an epsilon of 1e-12 would become 0), and a single number only if it
/// stays what it is. OpenVINO keeps the factor of the scores wide, too: rounded, it would shift all
/// scores of a model the same way.
pub(super) fn fits_f16(bytes: &[u8]) -> bool {
    let all = bytes.len() / 4;
    if let &[a, b, c, d] = bytes {
        let value = f32::from_le_bytes([a, b, c, d]);
        return f16::from_f32(value).to_f32() == value;
    }
    let mut inside = 0usize;
    // More than a quarter is enough, so most of a weight is not looked at.
    for piece in bytes.chunks(PIECE) {
        for from in piece.chunks_exact(4) {
            let value = f32::from_le_bytes([from[0], from[1], from[2], from[3]]).abs();
            inside += usize::from(value == 0.0 || (LEAST..=MOST).contains(&value));
        }
        if inside * 4 > all {
            return true;
        }
    }
    all == 0
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn blob(values: &[f32], halve: bool) -> Blob {
        Blob { bytes: Bytes::copy_from_slice(bytemuck::cast_slice(values)), halve }
    }

    #[test]
    fn equal_bytes_have_one_place() {
        let mut layout = Layout::default();
        let first = layout.place(&blob(&[1.0, 2.0], false));
        let second = layout.place(&blob(&[1.0, 3.0], false));
        assert_eq!(layout.place(&blob(&[1.0, 2.0], false)), first);
        let halved = layout.place(&blob(&[1.0, 2.0], true));
        assert_eq!((first.offset, second.offset, halved.offset, halved.size), (0, 8, 16, 4));
        let mut file = Vec::new();
        layout.write(&mut file).unwrap();
        assert_eq!(file.len(), 20);
        assert_eq!(file[16..18], f16::ONE.to_le_bytes());
    }

    #[test]
    fn blobs_that_differ_outside_the_sample() {
        let mut layout = Layout::default();
        let mut values = vec![0f32; 4096];
        let first = layout.place(&blob(&values, false));
        values[100] = 1.0;
        assert_ne!(layout.place(&blob(&values, false)), first);
    }

    #[test]
    fn halving_clamps_and_keeps_its_pieces_in_order() {
        let mut values: Vec<f32> = (0..PIECE + 3).map(|i| i as f32 / 64.0).collect();
        values[1] = 1e9;
        values[2] = f32::NEG_INFINITY;
        let mut file = Vec::new();
        write_halved(bytemuck::cast_slice(&values), &mut file).unwrap();
        let half = |i: usize| f16::from_le_bytes([file[2 * i], file[2 * i + 1]]).to_f32();
        assert_eq!(file.len(), 2 * values.len());
        assert_eq!((half(1), half(2)), (65504.0, -65504.0));
        assert_eq!(half(PIECE + 2), f16::from_f32(values[PIECE + 2]).to_f32());
    }

    #[test]
    fn epsilons_stay_wide() {
        let fits = |values: &[f32]| fits_f16(bytemuck::cast_slice(values));
        assert!(!fits(&[1e-12]));
        assert!(!fits(&[1e30]));
        assert!(!fits(&[0.176_776_69])); // 1/sqrt(32)
        assert!(fits(&[-10000.0]));
        assert!(fits(&[0.0]));
        assert!(fits(&[]));
        assert!(fits(&[1e-12, 1.0]));
    }
}
