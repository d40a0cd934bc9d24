//! One number at a time: what the other vectors must equal.

use super::{Kernel, Routine, Simd};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Scalar(());

impl Scalar {
    /// Every machine can do this.
    pub fn new() -> Self {
        Self(())
    }
}

impl Default for Scalar {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// What the routine asks for.
pub(super) unsafe fn call<R: Routine>(input: R::Input) {
    // SAFETY: the caller's promise.
    unsafe { R::run(Scalar::new(), input) }
}

impl Simd for Scalar {
    const LANES: usize = 1;
    type F32 = f32;
    type I32 = i32;
    type Mask = bool;

    #[inline(always)]
    fn splat(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn splat_i32(self, x: i32) -> i32 {
        x
    }
    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { from.read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32, x: f32) {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, n: usize) -> f32 {
        // SAFETY: the caller's promise.
        if n == 0 { 0.0 } else { unsafe { from.read_unaligned() } }
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, x: f32, n: usize) {
        if n > 0 {
            // SAFETY: the caller's promise.
            unsafe { to.write_unaligned(x) }
        }
    }
    #[inline(always)]
    unsafe fn load_i32(self, from: *const i32) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { from.read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store_i32(self, to: *mut i32, x: i32) {
        // SAFETY: the caller's promise.
        unsafe { to.write_unaligned(x) }
    }
    #[inline(always)]
    unsafe fn store_first_u8(self, to: *mut u8, x: i32, n: usize) {
        if n > 0 {
            // SAFETY: the caller's promise.
            unsafe { to.write(x.clamp(0, 255) as u8) }
        }
    }
    #[inline(always)]
    unsafe fn load_first_u8(self, from: *const u8, n: usize) -> i32 {
        // SAFETY: the caller's promise.
        if n == 0 { 0 } else { i32::from(unsafe { from.read() }) }
    }
    #[inline(always)]
    unsafe fn load_first_i8(self, from: *const i8, n: usize) -> i32 {
        // SAFETY: the caller's promise.
        if n == 0 { 0 } else { i32::from(unsafe { from.read() }) }
    }
    #[inline(always)]
    fn pack_bytes(self, x: [i32; 4]) -> i32 {
        i32::from_le_bytes(x.map(|x| x as u8))
    }
    #[inline(always)]
    fn add(self, a: f32, b: f32) -> f32 {
        a + b
    }
    #[inline(always)]
    fn sub(self, a: f32, b: f32) -> f32 {
        a - b
    }
    #[inline(always)]
    fn mul(self, a: f32, b: f32) -> f32 {
        a * b
    }
    #[inline(always)]
    fn div(self, a: f32, b: f32) -> f32 {
        a / b
    }
    #[inline(always)]
    fn fma(self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }
    #[inline(always)]
    fn fnma(self, a: f32, b: f32, c: f32) -> f32 {
        (-a).mul_add(b, c)
    }
    #[inline(always)]
    fn min(self, a: f32, b: f32) -> f32 {
        if a < b { a } else { b }
    }
    #[inline(always)]
    fn max(self, a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }
    #[inline(always)]
    fn reciprocal(self, x: f32) -> f32 {
        1.0 / x
    }
    #[inline(always)]
    fn sqrt(self, x: f32) -> f32 {
        x.sqrt()
    }
    #[inline(always)]
    fn abs(self, x: f32) -> f32 {
        x.abs()
    }
    #[inline(always)]
    fn copysign(self, magnitude: f32, sign: f32) -> f32 {
        magnitude.copysign(sign)
    }
    #[inline(always)]
    fn round(self, x: f32) -> f32 {
        x.round_ties_even()
    }
    #[inline(always)]
    fn to_i32(self, x: f32) -> i32 {
        let rounded = x.round_ties_even();
        // 2^31 is a number of type f32, 2^31 - 1 is not.
        let fits = (-2147483648.0..2147483648.0).contains(&rounded);
        if fits { rounded as i32 } else { i32::MIN }
    }
    #[inline(always)]
    fn to_f32(self, x: i32) -> f32 {
        x as f32
    }
    #[inline(always)]
    fn bits(self, x: f32) -> i32 {
        x.to_bits() as i32
    }
    #[inline(always)]
    fn of_bits(self, x: i32) -> f32 {
        f32::from_bits(x as u32)
    }
    #[inline(always)]
    fn add_i32(self, a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }
    #[inline(always)]
    fn mul_i32(self, a: i32, b: i32) -> i32 {
        a.wrapping_mul(b)
    }
    #[inline(always)]
    fn shl_i32<const N: u32>(self, x: i32) -> i32 {
        x << N
    }
    #[inline(always)]
    fn shr_i32<const N: u32>(self, x: i32) -> i32 {
        (x as u32 >> N) as i32
    }
    #[inline(always)]
    fn xor_i32(self, a: i32, b: i32) -> i32 {
        a ^ b
    }
    #[inline(always)]
    fn min_i32(self, a: i32, b: i32) -> i32 {
        a.min(b)
    }
    #[inline(always)]
    fn max_i32(self, a: i32, b: i32) -> i32 {
        a.max(b)
    }
    #[inline(always)]
    fn lt(self, a: f32, b: f32) -> bool {
        a < b
    }
    #[inline(always)]
    fn select(self, mask: bool, a: f32, b: f32) -> f32 {
        if mask { a } else { b }
    }
    const LOOKUP: bool = false;
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: i32) -> f32 {
        table[(index & 15) as usize]
    }
    #[inline(always)]
    fn sum(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn largest(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    fn smallest(self, x: f32) -> f32 {
        x
    }
    #[inline(always)]
    unsafe fn load_columns(self, rows: &[*const f32; 16]) -> [f32; 4] {
        // SAFETY: the caller's promise.
        unsafe { rows[0].cast::<[f32; 4]>().read_unaligned() }
    }
    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }
}
