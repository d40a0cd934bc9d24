//! Sixteen lanes of AVX-512.

use std::arch::x86_64::*;

use super::row::row;
use super::{Kernel, Routine, Simd};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Avx512(());

/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run(Avx512(()))
}

/// # Safety
/// The CPU has AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C; and what the routine asks for.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
pub(super) unsafe fn call<R: Routine>(input: R::Input) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Avx512(()), input) }
}

/// The first `n` of 16 lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    if n >= 16 { !0 } else { (1u16 << n) - 1 }
}

/// See [`Simd::fma_row`].
///
/// # Safety
/// As there; and the CPU has the instructions.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn fma_row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
    from: *const u8,
    stride: usize,
    w: [__m512; 3],
    sums: &mut [__m512; 3],
) {
    // SAFETY: the caller's promise.
    unsafe {
        row!(
            (C, STRIDES),
            OFFSET,
            (from, stride, w, sums),
            __m512,
            zmm_reg,
            "vbroadcastss",
            "vfmadd231ps"
        );
    }
}

/// Four numbers of rows i, i + 4, i + 8 and i + 12 side by side, so that no shuffle has to cross the
/// quarters.
/// # Safety
/// They can be read; the CPU has AVX-512.
#[inline(always)]
unsafe fn four(rows: &[*const f32; 16], i: usize) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        let x = _mm512_castps128_ps512(_mm_loadu_ps(rows[i]));
        let x = _mm512_insertf32x4::<1>(x, _mm_loadu_ps(rows[i + 4]));
        let x = _mm512_insertf32x4::<2>(x, _mm_loadu_ps(rows[i + 8]));
        _mm512_insertf32x4::<3>(x, _mm_loadu_ps(rows[i + 12]))
    }
}

impl Simd for Avx512 {
    const LANES: usize = 16;
    type F32 = __m512;
    type I32 = __m512i;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> __m512 {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_loadu_ps(from) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: __m512) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_storeu_ps(to, x) }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> __m512 {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_maskz_loadu_ps(first(n), from) }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, x: __m512, n: usize) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_mask_storeu_ps(to, first(n), x) }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> __m512i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, x: __m512i) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_storeu_si512(to.cast(), x) }
    }
    #[inline(always)]
    unsafe fn store_first_u8(self, to: *mut u8, x: __m512i, n: usize) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let clamped = _mm512_max_epi32(x, _mm512_setzero_si512());
            _mm512_mask_cvtusepi32_storeu_epi8(to.cast(), first(n), clamped)
        }
    }
    #[inline(always)]
    unsafe fn load_first_u8(self, from: *const u8, n: usize) -> __m512i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first(n), from.cast())) }
    }
    #[inline(always)]
    unsafe fn load_first_i8(self, from: *const i8, n: usize) -> __m512i {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(n), from)) }
    }
    #[inline(always)]
    fn pack_bytes(self, x: [__m512i; 4]) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let byte = _mm512_set1_epi32(0xFF);
            let low = _mm512_or_si512(
                _mm512_and_si512(x[0], byte),
                _mm512_slli_epi32::<8>(_mm512_and_si512(x[1], byte)),
            );
            let high = _mm512_or_si512(
                _mm512_slli_epi32::<16>(_mm512_and_si512(x[2], byte)),
                _mm512_slli_epi32::<24>(x[3]),
            );
            _mm512_or_si512(low, high)
        }
    }
    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_set1_ps(x) }
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_set1_epi32(x) }
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_add_ps(a, b) }
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_sub_ps(a, b) }
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_mul_ps(a, b) }
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_div_ps(a, b) }
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_min_ps(a, b) }
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_max_ps(a, b) }
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn fnma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_fnmadd_ps(a, b, c) }
    }
    #[inline(always)]
    fn reciprocal(self, x: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            // One step of Newton's doubles the 14 bits of the estimate.
            let estimate = _mm512_rcp14_ps(x);
            let error = _mm512_fnmadd_ps(x, estimate, _mm512_set1_ps(1.0));
            _mm512_fmadd_ps(estimate, error, estimate)
        }
    }
    #[inline(always)]
    unsafe fn fma_row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        from: *const u8,
        stride: usize,
        w: [__m512; 3],
        sums: &mut [__m512; 3],
    ) {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instructions.
        unsafe { fma_row::<C, STRIDES, OFFSET>(from, stride, w, sums) }
    }
    #[inline(always)]
    fn sqrt(self, x: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_sqrt_ps(x) }
    }
    #[inline(always)]
    fn to_i32(self, x: __m512) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_cvtps_epi32(x) }
    }
    #[inline(always)]
    fn to_f32(self, x: __m512i) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_cvtepi32_ps(x) }
    }
    #[inline(always)]
    fn add_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_add_epi32(a, b) }
    }
    #[inline(always)]
    fn mul_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_mullo_epi32(a, b) }
    }
    #[inline(always)]
    fn shl_i32<const N: u32>(self, x: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_sllv_epi32(x, _mm512_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn shr_i32<const N: u32>(self, x: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_srlv_epi32(x, _mm512_set1_epi32(N as i32)) }
    }
    #[inline(always)]
    fn xor_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_xor_si512(a, b) }
    }
    #[inline(always)]
    fn min_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_min_epi32(a, b) }
    }
    #[inline(always)]
    fn max_i32(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_max_epi32(a, b) }
    }
    #[inline(always)]
    fn abs(self, x: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_abs_ps(x) }
    }
    #[inline(always)]
    fn copysign(self, magnitude: __m512, sign: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe {
            let signs = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(signs, magnitude), _mm512_and_ps(signs, sign))
        }
    }
    #[inline(always)]
    fn round(self, x: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x) }
    }
    #[inline(always)]
    fn lt(self, a: __m512, b: __m512) -> __mmask16 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
    }
    #[inline(always)]
    fn select(self, mask: __mmask16, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_mask_blend_ps(mask, b, a) }
    }
    #[inline(always)]
    fn bits(self, x: __m512) -> __m512i {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_castps_si512(x) }
    }
    #[inline(always)]
    fn of_bits(self, x: __m512i) -> __m512 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_castsi512_ps(x) }
    }
    const LOOKUP: bool = true;
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: __m512i) -> __m512 {
        // SAFETY: the table is as long as a vector; `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_permutexvar_ps(index, _mm512_loadu_ps(table.as_ptr())) }
    }
    #[inline(always)]
    fn sum(self, x: __m512) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_reduce_add_ps(x) }
    }
    #[inline(always)]
    fn largest(self, x: __m512) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_reduce_max_ps(x) }
    }
    #[inline(always)]
    fn smallest(self, x: __m512) -> f32 {
        // SAFETY: `self` is the proof that the CPU has the instruction.
        unsafe { _mm512_reduce_min_ps(x) }
    }
    #[inline(always)]
    unsafe fn load_columns(self, rows: &[*const f32; 16]) -> [__m512; 4] {
        // SAFETY: the caller's promise; `self` is the proof that the CPU has the instruction.
        unsafe {
            let (r0, r1, r2, r3) = (four(rows, 0), four(rows, 1), four(rows, 2), four(rows, 3));
            let (a, b) = (_mm512_unpacklo_ps(r0, r1), _mm512_unpackhi_ps(r0, r1));
            let (c, d) = (_mm512_unpacklo_ps(r2, r3), _mm512_unpackhi_ps(r2, r3));
            [
                _mm512_shuffle_ps::<0x44>(a, c),
                _mm512_shuffle_ps::<0xEE>(a, c),
                _mm512_shuffle_ps::<0x44>(b, d),
                _mm512_shuffle_ps::<0xEE>(b, d),
            ]
        }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: `self` is the proof that the CPU has the features.
        unsafe { run(kernel) }
    }
}
