//! Statistics and a glimpse of one tensor's values.

use frazil_tensor::{DType, Result, Tensor};
use serde::Serialize;

/// How many values of each end of the tensor are shown.
const EDGE: usize = 6;

/// One tensor, looked at.
#[derive(Clone, Debug, Serialize)]
pub struct TensorReport {
    /// Its name.
    pub name: String,
    /// `float32` and so on.
    pub dtype: String,
    /// Extents.
    pub shape: Vec<usize>,
    /// Bytes of all elements.
    pub bytes: usize,
    /// Of the finite values; absent for strings, complex numbers and empty tensors.
    pub statistics: Option<Statistics>,
    /// The first values, as text.
    pub first: Vec<String>,
    /// The last values, as text; empty if the first ones are all.
    pub last: Vec<String>,
}

/// Over all finite values, in double precision.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Statistics {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation (of the whole, not a sample).
    pub std: f64,
    /// Exact zeros.
    pub zeros: usize,
    /// Values that are not a number.
    pub nan: usize,
    /// Infinities.
    pub infinite: usize,
}

/// Looks at a tensor.
pub fn look(name: &str, tensor: &Tensor) -> Result<TensorReport> {
    let shown = |range: std::ops::Range<usize>| show(tensor, range);
    let n = tensor.elements();
    let numbers = tensor.to_f64().ok();
    Ok(TensorReport {
        name: name.to_owned(),
        dtype: tensor.dtype().to_string(),
        shape: tensor.shape().to_vec(),
        bytes: tensor.byte_len(),
        statistics: numbers.as_deref().and_then(statistics),
        first: shown(0..n.min(EDGE))?,
        last: if n > 2 * EDGE { shown(n - EDGE..n)? } else { shown(n.min(EDGE)..n)? },
    })
}

fn statistics(values: &[f64]) -> Option<Statistics> {
    let finite = || values.iter().copied().filter(|value| value.is_finite());
    let count = finite().count();
    if count == 0 {
        return None;
    }
    let mean = finite().sum::<f64>() / count as f64;
    let variance = finite().map(|value| (value - mean).powi(2)).sum::<f64>() / count as f64;
    Some(Statistics {
        min: finite().fold(f64::INFINITY, f64::min),
        max: finite().fold(f64::NEG_INFINITY, f64::max),
        mean,
        std: variance.sqrt(),
        zeros: values.iter().filter(|value| **value == 0.0).count(),
        nan: values.iter().filter(|value| value.is_nan()).count(),
        infinite: values.iter().filter(|value| value.is_infinite()).count(),
    })
}

/// Each value as its own type prints it: `0.1` of a float32 is not `0.10000000149`.
fn show(tensor: &Tensor, range: std::ops::Range<usize>) -> Result<Vec<String>> {
    macro_rules! plain {
        ($t:ty) => {
            tensor.values::<$t>()?[range].iter().map(|value| format!("{value:?}")).collect()
        };
    }
    Ok(match tensor.dtype().storage() {
        DType::F32 => plain!(f32),
        DType::F64 => plain!(f64),
        DType::F16 => plain!(half::f16),
        DType::BF16 => plain!(half::bf16),
        DType::I8 => plain!(i8),
        DType::I16 => plain!(i16),
        DType::I32 => plain!(i32),
        DType::I64 => plain!(i64),
        DType::U8 if tensor.dtype() == DType::Bool => {
            tensor.values::<u8>()?[range].iter().map(|&value| (value != 0).to_string()).collect()
        }
        DType::U8 => plain!(u8),
        DType::U16 => plain!(u16),
        DType::U32 => plain!(u32),
        DType::U64 => plain!(u64),
        DType::String => {
            const LONGEST: usize = 80;
            let text = |value: &bytes::Bytes| {
                let cut = &value[..value.len().min(LONGEST)];
                let more = if value.len() > LONGEST { "…" } else { "" };
                format!("\"{}{more}\"", cut.escape_ascii())
            };
            tensor.strings()?[range].iter().map(text).collect()
        }
        // Complex numbers: no BERT has one, and the raw parts are in the npz.
        _ => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_finite_values() {
        let values = vec![0.0f32, 1.0, 2.0, f32::NAN, f32::INFINITY];
        let report = look("x", &Tensor::from_vec([5], values).unwrap()).unwrap();
        let statistics = report.statistics.unwrap();
        assert_eq!((statistics.min, statistics.max, statistics.mean), (0.0, 2.0, 1.0));
        assert!((statistics.std - (2.0f64 / 3.0).sqrt()).abs() < 1e-15);
        assert_eq!((statistics.zeros, statistics.nan, statistics.infinite), (1, 1, 1));
    }

    #[test]
    fn shows_both_ends() {
        let tensor = Tensor::from_vec([20], (0..20i64).collect()).unwrap();
        let report = look("x", &tensor).unwrap();
        assert_eq!(report.first, ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(report.last, ["14", "15", "16", "17", "18", "19"]);
        let report = look("x", &Tensor::from_vec([8], (0..8i64).collect()).unwrap()).unwrap();
        assert_eq!(report.last, ["6", "7"]);
    }
}
