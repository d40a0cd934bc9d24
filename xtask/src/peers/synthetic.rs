//! The values of `xtask/peers/synthetic.json`, by formula. `xtask/peers/synthetic.py` has the same
//! formula in Python: neither side reads what the other computed.

use anyhow::{Context, Result};
use frazil_tensor::{DType, Shape, Tensor};
use serde::{Deserialize, Serialize};

/// A row of the table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Entry {
    /// Its name in every file.
    pub name: String,
    /// TensorFlow's name of the element type.
    pub dtype: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Number of parts along each axis, if a checkpoint stores it in slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<usize>,
}

/// The table.
pub fn table() -> Result<Vec<Entry>> {
    serde_json::from_str(include_str!("../../peers/synthetic.json")).context("synthetic.json")
}

/// The table's tensors.
pub fn tensors() -> Result<Vec<(Entry, Tensor)>> {
    let with_value =
        |(i, entry): (usize, Entry)| Ok((entry.clone(), tensor(&entry, i as u64 + 1)?));
    table()?.into_iter().enumerate().map(with_value).collect()
}

/// The value of one entry; `seed` is its place in its table, counted from one.
pub fn tensor(entry: &Entry, seed: u64) -> Result<Tensor> {
    let dtype = DType::from_name(&entry.dtype)
        .with_context(|| format!("synthetic.json: no type `{}`", entry.dtype))?;
    let shape = Shape::from(entry.shape.clone());
    let elements = shape.elements().context("synthetic.json: too large")?;
    let Some(size) = dtype.size() else {
        let values = strings(seed, elements).into_iter().map(Into::into).collect();
        return Ok(Tensor::from_strings(shape, values)?);
    };
    let mut raw = bytes(seed, elements * size);
    if dtype == DType::Bool {
        raw.iter_mut().for_each(|byte| *byte &= 1);
    }
    Ok(Tensor::new(dtype, shape, raw)?)
}

/// The numbers of splitmix64.
pub fn stream(seed: u64) -> impl Iterator<Item = u64> {
    (1..).map(move |i: u64| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// The stream's numbers, little-endian, cut off at `count` bytes.
pub fn bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count + 8);
    for number in stream(seed).take(count.div_ceil(8)) {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Byte strings: every fourth empty, every fourth long, the others short; any bytes.
pub fn strings(seed: u64, count: usize) -> Vec<Vec<u8>> {
    let value = |(i, n): (usize, u64)| {
        let length = match i % 4 {
            0 => 0,
            3 => 70_000,
            _ => (n % 24) as usize,
        };
        bytes(n, length)
    };
    stream(seed).take(count).enumerate().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        // The generator's published first values for seed 1234567.
        let first: Vec<u64> = stream(1_234_567).take(3).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn every_type_is_in_the_table() {
        let tensors = tensors().unwrap();
        for dtype in DType::ALL {
            assert!(tensors.iter().any(|(_, tensor)| tensor.dtype() == dtype), "{dtype}");
        }
    }
}
