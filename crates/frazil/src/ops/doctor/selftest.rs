//! Each family of fast kernels on each instruction set of this machine, against plain code.
//!
//! The same call with [`Isa::Scalar`] is the specification. Sizes are odd on purpose: what is
//! left over at the end of a vector is where mistakes are. `frazil-kernels` tests far more; this
//! is to find a machine, an emulator or a build on which that no longer holds.

use std::time::Instant;

use frazil_kernels::Isa;
use frazil_kernels::attention::{
    OperandSteps, PackedAttention, Sequence, packed_attention_f32, scratch_len,
};
use frazil_kernels::embed::{EmbedNorm, Table, embed_norm_f32};
use frazil_kernels::gemm::{self, Activation, Columns, Epilogue, Orientation, Output, Residual};
use frazil_kernels::norm::{Affine, LayerNorm, fused_layer_norm_f32};
use frazil_kernels::par::Pool;
use frazil_kernels::pointwise::{Function, map_f32};
use frazil_kernels::quantize::{Bytes, Scales, quantize_rows_f32};
use frazil_kernels::softmax::softmax_f32;
use serde::Serialize;

/// A family of kernels on an instruction set.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What it computes.
    pub kernel: &'static str,
    /// The instructions.
    pub isa: &'static str,
    /// Largest difference from plain code, relative to the largest number.
    pub difference: f64,
    /// What is allowed.
    pub tolerance: f64,
    /// Milliseconds.
    pub ms: f64,
    /// Whether it holds.
    pub good: bool,
}

/// One family: how it is computed, and how far instruction sets may differ.
struct Family {
    kernel: &'static str,
    tolerance: f64,
    run: fn(&Pool, Isa) -> Vec<f32>,
}

/// Rounding differs where sums are added up in another order and where functions are approximated;
/// sums of bytes are exact.
const FAMILIES: [Family; 8] = [
    Family { kernel: "product of float32", tolerance: 2e-6, run: product_f32 },
    Family { kernel: "product of bytes", tolerance: 0.0, run: product_i8 },
    Family { kernel: "attention", tolerance: 2e-6, run: attention },
    Family { kernel: "layer norm", tolerance: 2e-6, run: norm },
    Family { kernel: "embeddings", tolerance: 2e-6, run: embeddings },
    Family { kernel: "softmax", tolerance: 2e-6, run: softmax },
    Family { kernel: "gelu", tolerance: 2e-6, run: gelu },
    Family { kernel: "numbers to bytes", tolerance: 0.0, run: quantized },
];

/// Runs everything on every instruction set that is here, again and again for about `seconds`.
pub fn check(pool: &Pool, seconds: f64) -> Vec<Check> {
    let start = Instant::now();
    let expected: Vec<Vec<f32>> =
        FAMILIES.iter().map(|family| (family.run)(pool, Isa::Scalar)).collect();
    let mut checks: Vec<Check> = Vec::new();
    let mut round = 0;
    while round == 0 || start.elapsed().as_secs_f64() < seconds {
        let mut at = 0;
        for isa in Isa::available().filter(|&isa| isa != Isa::Scalar) {
            for (family, expected) in FAMILIES.iter().zip(&expected) {
                let begin = Instant::now();
                let found = (family.run)(pool, isa);
                let ms = begin.elapsed().as_secs_f64() * 1e3;
                let difference = difference(&found, expected);
                let Family { kernel, tolerance, .. } = *family;
                match checks.get_mut(at) {
                    Some(check) => {
                        check.difference = check.difference.max(difference);
                        check.ms = check.ms.min(ms);
                    }
                    None => {
                        let isa = isa.name();
                        checks.push(Check { kernel, isa, difference, tolerance, ms, good: true });
                    }
                }
                at += 1;
            }
        }
        round += 1;
        if at == 0 {
            break; // plain code only: there is nothing to compare it with
        }
    }
    for check in &mut checks {
        check.good = check.difference <= check.tolerance;
    }
    checks
}

/// The largest difference, relative to the largest number; infinite if one is no number.
fn difference(found: &[f32], expected: &[f32]) -> f64 {
    let largest = expected.iter().fold(0f32, |most, x| most.max(x.abs())).max(f32::MIN_POSITIVE);
    let worst = found.iter().zip(expected).map(|(a, b)| f64::from((a - b).abs()));
    let worst = worst.map(|d| if d.is_nan() { f64::INFINITY } else { d }).fold(0.0, f64::max);
    if found.len() == expected.len() { worst / f64::from(largest) } else { f64::INFINITY }
}

/// Numbers without a pattern, between -1 and 1, the same every time.
fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

const M: usize = 67;
const N: usize = 101;
const K: usize = 259;

fn product_f32(pool: &Pool, isa: Isa) -> Vec<f32> {
    let (a, w, bias, x) = (numbers(1, M * K), numbers(2, K * N), numbers(3, N), numbers(4, M * N));
    let mut packed = vec![0.0; gemm::f32::packed_len(isa, K, N)];
    gemm::f32::pack(isa, &[Columns { w: &w, order: Orientation::Kn, n: N }], K, &mut packed);
    let mut out = vec![0.0; M * N];
    let epilogue = Epilogue {
        bias: Some(&bias),
        activation: Activation::GeluErf,
        residual: Some(Residual { x: &x, ld: N }),
    };
    let (m, n, k) = (M, N, K);
    let to = Output::F32(&mut out);
    let gemm = gemm::f32::Gemm { m, n, k, a: &a, lda: K, w: &packed, out: to, ldc: N, epilogue };
    gemm::f32::run(pool, isa, gemm);
    out
}

fn product_i8(pool: &Pool, isa: Isa) -> Vec<f32> {
    let a: Vec<u8> = numbers(5, M * K).iter().map(|x| (x * 127.0 + 128.0) as u8).collect();
    let w: Vec<i8> = numbers(6, K * N).iter().map(|x| (x * 127.0) as i8).collect();
    let mut packed = vec![0; gemm::i8::packed_len(isa, K, N)];
    gemm::i8::pack(isa, &[Columns { w: &w, order: Orientation::Kn, n: N }], K, &mut packed);
    let mut sums = vec![0; M * N];
    let zeros = gemm::i8::Zeros::Tensor(128);
    let (m, n, k) = (M, N, K);
    let factors = gemm::i8::Factors { m, n, k, a: &a, lda: K, zeros, w: &packed };
    gemm::i8::sums(pool, isa, &factors, &mut sums, N);
    sums.into_iter().map(|sum| sum as f32).collect()
}

fn attention(pool: &Pool, isa: Isa) -> Vec<f32> {
    let (heads, size, rows) = (3, 24, 75);
    let ld = heads * size;
    let [q, k, v] = [7, 8, 9].map(|seed| numbers(seed, rows * ld));
    let sequences =
        [(0..1), (1..40), (40..75)].map(|rows| Sequence { queries: rows.clone(), keys: rows });
    let attention = PackedAttention {
        heads,
        size,
        scale: 0.2,
        steps: OperandSteps::default(),
        q: &q,
        q_ld: ld,
        k: &k,
        k_ld: ld,
        v: &v,
        v_ld: ld,
        sequences: &sequences,
        key_rows: None,
    };
    let mut out = vec![0.0; rows * ld];
    let mut scratch = vec![0.0; scratch_len(isa, size, rows) * pool.threads()];
    packed_attention_f32(pool, isa, &attention, Output::F32(&mut out), ld, &mut scratch);
    out
}

fn norm(pool: &Pool, isa: Isa) -> Vec<f32> {
    let (rows, h) = (37, 131);
    let (x, r) = (numbers(10, rows * h), numbers(11, rows * h));
    let (gamma, beta) = (numbers(12, h), numbers(13, h));
    let affine = Affine { gamma: &gamma, beta: &beta, epsilon: 1e-12 };
    let norm = LayerNorm { rows, x: &x, x_ld: h, residual: Some((&r, h)), affine };
    let mut out = vec![0.0; rows * h];
    fused_layer_norm_f32(pool, isa, &norm, &mut out, h, None);
    out
}

fn embeddings(pool: &Pool, isa: Isa) -> Vec<f32> {
    let (rows, h, entries) = (37, 131, 50);
    let [words, types, positions] = [14, 15, 16].map(|seed| numbers(seed, entries * h));
    let (gamma, beta) = (numbers(17, h), numbers(18, h));
    let ids = |step: u32| (0..rows).map(|i| i * step % entries as u32).collect::<Vec<u32>>();
    let (ids, segments, places) = (ids(7), ids(3), ids(1));
    let embed = EmbedNorm {
        words: Table::F32(&words),
        types: Table::F32(&types),
        positions: Table::F32(&positions),
        ids: &ids,
        segments: &segments,
        places: &places,
        affine: Affine { gamma: &gamma, beta: &beta, epsilon: 1e-12 },
    };
    let mut out = vec![0.0; rows as usize * h];
    embed_norm_f32(pool, isa, &embed, &mut out, h, None);
    out
}

fn softmax(pool: &Pool, isa: Isa) -> Vec<f32> {
    let x: Vec<f32> = numbers(19, 37 * 131).iter().map(|x| x * 20.0).collect();
    let mut out = vec![0.0; x.len()];
    softmax_f32(pool, isa, &x, &mut out, 131);
    out
}

fn gelu(pool: &Pool, isa: Isa) -> Vec<f32> {
    let x: Vec<f32> = numbers(20, 4099).iter().map(|x| x * 8.0).collect();
    let mut out = vec![0.0; 2 * x.len()];
    let (first, second) = out.split_at_mut(x.len());
    map_f32(pool, isa, Function::GeluTanh, &x, first);
    map_f32(pool, isa, Function::GeluErf, &x, second);
    out
}

fn quantized(pool: &Pool, isa: Isa) -> Vec<f32> {
    let (rows, columns) = (37, 131);
    let x = numbers(21, rows * columns);
    let mut out = vec![0; rows * columns];
    let (mut scale, mut zero) = (vec![0.0; rows], vec![0; rows]);
    let scales = Scales::Rows { scale: &mut scale, zero: &mut zero, top: 255 };
    let bytes = Bytes { out: &mut out, ld: columns, scales, factors: None };
    quantize_rows_f32(pool, isa, [rows, columns], &x, columns, bytes);
    out.into_iter().map(f32::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_is_seen() {
        assert_eq!(difference(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(difference(&[1.0, 2.5], &[1.0, 2.0]), 0.25);
        assert_eq!(difference(&[f32::NAN], &[1.0]), f64::INFINITY);
        assert_eq!(difference(&[1.0], &[1.0, 2.0]), f64::INFINITY);
    }
}
