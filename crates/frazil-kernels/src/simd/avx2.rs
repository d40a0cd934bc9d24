//! Eight lanes of AVX2 with FMA.

use std::arch::x86_64::*;

use super::row::row;
use super::{Kernel, Routine, Simd};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Avx2(());

/// # Safety
/// The CPU has AVX2, FMA and F16C.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx2(()))
}

/// # Safety
/// The CPU has AVX2, FMA and F16C; and what the routine asks for.
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
pub(super) unsafe fn call<R: Routine>(input: R::Input) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Avx2(()), input) }
}

/// Eight lanes set, then eight clear: read 8 - n before the middle for the first n.
static FIRST: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// The first `n` of 8 lanes.
#[inline(always)]
fn first(n: usize) -> __m256i {
    // SAFETY: 8 - n is in 0..=8, so that 8 numbers follow; the caller's `Avx2` is the proof of AVX2.
    unsafe { _mm256_loadu_si256(FIRST.as_ptr().add(8 - n.min(8)).cast()) }
}

/// See [`Simd::fma_row`].
///
/// # Safety
/// As there; and the CPU has the instructions.
#[target_feature(enable = "avx2,fma")]
#[inline]
unsafe fn fma_row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
    from: *const u8,
    stride: usize,
    w: [__m256; 3],
    sums: &mut [__m256; 3],
) {
    // SAFETY: the caller's promise.
    unsafe {
        row!(
            (C, STRIDES),
            OFFSET,
            (from, stride, w, sums),
            __m256,
            ymm_reg,
            "vbroadcastss",
            "vfmadd231ps"
        );
    }
}

/// Four numbers of rows i and i + 4 side by side, so that no shuffle has to cross the halves.
/// # Safety
/// They can be read; the CPU has AVX2.
#[inline(always)]
unsafe fn pair(rows: &[*const f32; 16], i: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_castps128_ps256(_mm_loadu_ps(rows[i]));
        _mm256_insertf128_ps::<1>(low, _mm_loadu_ps(rows[i + 4]))
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    type F32 = __m256;
    type I32 = __m256i;
    type Mask = __m256;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m256 {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: __m256) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> __m256 {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_maskload_ps(from, first(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, x: __m256, n: usize) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_maskstore_ps(to, first(n), x) }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> __m256i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, x: __m256i) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_storeu_si256(to.cast(), x) }
    }
    #[inline(always)]
    unsafe fn store_first_u8(self, to: *mut u8, x: __m256i, n: usize) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let zero = _mm256_setzero_si256();
            // Both packs saturate: to i16, then to u8. Lanes 0..4 end in the low half, 4..8 in the high one.
            let words = _mm256_packs_epi32(x, zero);
            let bytes = _mm256_packus_epi16(words, zero);
            let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes)) as u32;
            let high = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(bytes)) as u32;
            let all = u64::from(low) | u64::from(high) << 32;
            std::ptr::copy_nonoverlapping(all.to_le_bytes().as_ptr(), to, n.min(8))
        }
    }
    #[inline(always)]
    unsafe fn load_first_u8(self, from: *const u8, n: usize) -> __m256i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let mut bytes = [0u8; 8];
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n.min(8));
            _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)))
        }
    }
    #[inline(always)]
    unsafe fn load_first_i8(self, from: *const i8, n: usize) -> __m256i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let mut bytes = [0u8; 8];
            std::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), n.min(8));
            _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(bytes)))
        }
    }
    #[inline(always)]
    fn pack_bytes(self, x: [__m256i; 4]) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let byte = _mm256_set1_epi32(0xFF);
            let low = _mm256_or_si256(
                _mm256_and_si256(x[0], byte),
                _mm256_slli_epi32::<8>(_mm256_and_si256(x[1], byte)),
            );
            let high = _mm256_or_si256(
                _mm256_slli_epi32::<16>(_mm256_and_si256(x[2], byte)),
                _mm256_slli_epi32::<24>(x[3]),
            );
            _mm256_or_si256(low, high)
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_set1_ps(x) }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_set1_epi32(x) }
    }
    #[inline(always)]
    fn add(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_div_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_min_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_max_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn fnma(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn reciprocal(self, x: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            // One step of Newton's doubles the 12 bits of the estimate.
            let estimate = _mm256_rcp_ps(x);
            let error = _mm256_fnmadd_ps(x, estimate, _mm256_set1_ps(1.0));
            _mm256_fmadd_ps(estimate, error, estimate)
        }
    }
    #[inline(always)]
    unsafe fn fma_row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        from: *const u8,
        stride: usize,
        w: [__m256; 3],
        sums: &mut [__m256; 3],
    ) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instructions.
        unsafe { fma_row::<C, STRIDES, OFFSET>(from, stride, w, sums) }
    }
    #[inline(always)]
    fn sqrt(self, x: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_sqrt_ps(x) }
    }
    #[inline(always)]
    fn to_i32(self, x: __m256) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_cvtps_epi32(x) }
    }
    #[inline(always)]
    fn to_f32(self, x: __m256i) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_cvtepi32_ps(x) }
    }
    #[inline(always)]
    fn add_i32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_add_epi32(a, b) }
    }
    #[inline(always)]
    fn mul_i32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn shl_i32<const N: u32>(self, x: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_sllv_epi32(x, _mm256_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn shr_i32<const N: u32>(self, x: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_srlv_epi32(x, _mm256_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn xor_i32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_xor_si256(a, b) }
    }
    #[inline(always)]
    fn min_i32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_min_epi32(a, b) }
    }
    #[inline(always)]
    fn max_i32(self, a: __m256i, b: __m256i) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_max_epi32(a, b) }
    }
    #[inline(always)]
    fn abs(self, x: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), x) }
    }
    #[inline(always)]
    fn copysign(self, magnitude: __m256, sign: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let signs = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(signs, magnitude), _mm256_and_ps(signs, sign))
        }
    }
    #[inline(always)]
    fn round(self, x: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    fn lt(self, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn select(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_blendv_ps(b, a, mask) }
    }
    #[inline(always)]
    fn bits(self, x: __m256) -> __m256i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_castps_si256(x) }
    }
    #[inline(always)]
    fn of_bits(self, x: __m256i) -> __m256 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm256_castsi256_ps(x) }
    }
    const LOOKUP: bool = false;
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: __m256i) -> __m256 {
        // SAFETY: four bits are an index of the table; `self` is the proof that the CPU has the instruction.
        unsafe {
            let index = _mm256_and_si256(index, _mm256_set1_epi32(15));
            _mm256_i32gather_ps::<4>(table.as_ptr(), index)
        }
    }
    #[inline(always)]
    fn sum(self, x: __m256) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let halves = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let pairs = _mm_add_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_add_ss(pairs, _mm_movehdup_ps(pairs)))
        }
    }
    #[inline(always)]
    fn largest(self, x: __m256) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let halves = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let pairs = _mm_max_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_max_ss(pairs, _mm_movehdup_ps(pairs)))
        }
    }
    #[inline(always)]
    fn smallest(self, x: __m256) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let halves = _mm_min_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
            let pairs = _mm_min_ps(halves, _mm_movehl_ps(halves, halves));
            _mm_cvtss_f32(_mm_min_ss(pairs, _mm_movehdup_ps(pairs)))
        }
    }
    #[inline(always)]
    unsafe fn load_columns(self, rows: &[*const f32; 16]) -> [__m256; 4] {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let (r0, r1, r2, r3) = (pair(rows, 0), pair(rows, 1), pair(rows, 2), pair(rows, 3));
            let (a, b) = (_mm256_unpacklo_ps(r0, r1), _mm256_unpackhi_ps(r0, r1));
            let (c, d) = (_mm256_unpacklo_ps(r2, r3), _mm256_unpackhi_ps(r2, r3));
            [
                _mm256_shuffle_ps::<0x44>(a, c),
                _mm256_shuffle_ps::<0xEE>(a, c),
                _mm256_shuffle_ps::<0x44>(b, d),
                _mm256_shuffle_ps::<0xEE>(b, d),
            ]
        }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` is the proof that the CPU has the features.
        unsafe { run(kernel) }
    }
}
