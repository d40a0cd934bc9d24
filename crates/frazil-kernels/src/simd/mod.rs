//! Vectors of the CPU at hand behind one trait, so that a kernel is written once for all of them.
//!
//! A value of a [`Simd`] type is the proof that the CPU has its instructions: only [`dispatch`]
//! makes one, after it has asked. Everything on the way from there to an instruction must be
//! inlined into the function that [`dispatch`] compiles for that CPU: methods here and
//! [`Kernel::run`] are `#[inline(always)]`, and so is every function on vectors that they call. A
//! closure cannot be, so none works on vectors: where the compiler left one as a function of its
//! own, every instruction in it was a call, and attention ten times slower.
//! What cannot be said in these terms (the inner loops of the matrix products) uses intrinsics of
//! its own beside this.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod row;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use scalar::Scalar;

use crate::cpu::Isa;

/// Operations on vectors of [`Simd::LANES`] numbers. Lane by lane unless said otherwise.
pub trait Simd: Copy + Send + Sync + 'static {
    /// Numbers in a vector.
    const LANES: usize;
    /// Numbers of type `f32`.
    type F32: Copy;
    /// Numbers of type `i32`.
    type I32: Copy;
    /// A truth value per lane.
    type Mask: Copy;

    /// The same number everywhere.
    fn splat(self, x: f32) -> Self::F32;
    /// The same number everywhere.
    fn splat_i32(self, x: i32) -> Self::I32;

    /// # Safety
    /// [`Simd::LANES`] numbers can be read at `from`, of any alignment.
    unsafe fn load(self, from: *const f32) -> Self::F32;
    /// # Safety
    /// [`Simd::LANES`] numbers can be written at `to`, of any alignment.
    unsafe fn store(self, to: *mut f32, x: Self::F32);
    /// The first `n` lanes, zeros beyond; all of them if there are fewer.
    /// # Safety
    /// `n` numbers can be read at `from`.
    unsafe fn load_first(self, from: *const f32, n: usize) -> Self::F32;
    /// The first `n` lanes; all of them if there are fewer.
    /// # Safety
    /// `n` numbers can be written at `to`.
    unsafe fn store_first(self, to: *mut f32, x: Self::F32, n: usize);
    /// # Safety
    /// [`Simd::LANES`] numbers can be read at `from`.
    unsafe fn load_i32(self, from: *const i32) -> Self::I32;
    /// # Safety
    /// [`Simd::LANES`] numbers can be written at `to`.
    unsafe fn store_i32(self, to: *mut i32, x: Self::I32);
    /// The first `n` lanes as bytes, each number clamped to 0..=255; all of them if there are fewer.
    /// # Safety
    /// `n` bytes can be written at `to`.
    unsafe fn store_first_u8(self, to: *mut u8, x: Self::I32, n: usize);
    /// The first `n` bytes as numbers, zeros beyond; as many as there are lanes if there are fewer.
    /// # Safety
    /// `n` bytes can be read at `from`.
    unsafe fn load_first_u8(self, from: *const u8, n: usize) -> Self::I32;
    /// The same of signed bytes.
    /// # Safety
    /// `n` bytes can be read at `from`.
    unsafe fn load_first_i8(self, from: *const i8, n: usize) -> Self::I32;

    /// `a + b`
    fn add(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a - b`
    fn sub(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b`
    fn mul(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a / b`
    fn div(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `c - a * b`, rounded once.
    fn fnma(self, a: Self::F32, b: Self::F32, c: Self::F32) -> Self::F32;
    /// `sums[i] = a · w[i] + sums[i]` for the first `C` vectors, where `a` is the number that lies
    /// `STRIDES · stride + OFFSET` bytes after `from`; `STRIDES` is 0, 1 or 2. In one piece, so
    /// that a compiler that has many of them does not read every `a` first.
    /// # Safety
    /// The number can be read.
    #[inline(always)]
    unsafe fn fma_row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        self,
        from: *const u8,
        stride: usize,
        w: [Self::F32; 3],
        sums: &mut [Self::F32; 3],
    ) {
        // SAFETY: the caller's promise.
        let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<f32>().read_unaligned() };
        let a = self.splat(a);
        for (sum, w) in sums.iter_mut().zip(w).take(C) {
            *sum = self.fma(a, w, *sum);
        }
    }
    /// The smaller one; `b` if either is not a number.
    fn min(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// The larger one; `b` if either is not a number.
    fn max(self, a: Self::F32, b: Self::F32) -> Self::F32;
    /// `1 / x` within 2 units in the last place, for results and numbers that are normal.
    fn reciprocal(self, x: Self::F32) -> Self::F32;
    /// The square root.
    fn sqrt(self, x: Self::F32) -> Self::F32;
    /// Without the sign.
    fn abs(self, x: Self::F32) -> Self::F32;
    /// The magnitude of the first with the sign of the second.
    fn copysign(self, magnitude: Self::F32, sign: Self::F32) -> Self::F32;
    /// To the nearest whole number, halves to even.
    fn round(self, x: Self::F32) -> Self::F32;
    /// To the nearest whole number, halves to even; `i32::MIN` for what does not fit.
    fn to_i32(self, x: Self::F32) -> Self::I32;
    /// As a number.
    fn to_f32(self, x: Self::I32) -> Self::F32;
    /// The same bits.
    fn bits(self, x: Self::F32) -> Self::I32;
    /// The same bits.
    fn of_bits(self, x: Self::I32) -> Self::F32;
    /// `a + b`, wrapping around.
    fn add_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `a * b`, wrapping around.
    fn mul_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The last bytes of four numbers as one number, the first one's lowest.
    fn pack_bytes(self, x: [Self::I32; 4]) -> Self::I32;
    /// `x << N`
    fn shl_i32<const N: u32>(self, x: Self::I32) -> Self::I32;
    /// `x >> N`, zeros coming in.
    fn shr_i32<const N: u32>(self, x: Self::I32) -> Self::I32;
    /// The bits that only one of both has.
    fn xor_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The smaller one.
    fn min_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// The larger one.
    fn max_i32(self, a: Self::I32, b: Self::I32) -> Self::I32;
    /// `a < b`
    fn lt(self, a: Self::F32, b: Self::F32) -> Self::Mask;
    /// `a` where the mask holds, else `b`.
    fn select(self, mask: Self::Mask, a: Self::F32, b: Self::F32) -> Self::F32;

    /// Vector `i` holds number `i` at each of the addresses: four columns of as many rows as lanes.
    /// # Safety
    /// Four numbers can be read at each of the first [`Simd::LANES`] addresses.
    unsafe fn load_columns(self, rows: &[*const f32; 16]) -> [Self::F32; 4];

    /// Whether [`Simd::lookup`] is one instruction.
    const LOOKUP: bool;
    /// The number at each index, of which only the last four bits count.
    fn lookup(self, table: &[f32; 16], index: Self::I32) -> Self::F32;

    /// The sum of all lanes.
    fn sum(self, x: Self::F32) -> f32;
    /// The largest lane.
    fn largest(self, x: Self::F32) -> f32;
    /// The smallest lane.
    fn smallest(self, x: Self::F32) -> f32;

    /// Runs the kernel in a function of its own: for what is used in many places, or has so many
    /// vectors at hand that it wants all registers.
    fn call<K: Kernel>(self, kernel: K) -> K::Output;
}

/// A computation that is written once for all vectors.
pub trait Kernel {
    /// What it gives.
    type Output;
    /// Computes it. Must be `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Runs the kernel with the vectors of `isa`.
///
/// # Panics
/// If this machine lacks them.
#[inline]
pub fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    assert!(isa.is_available(), "this machine has no {isa}");
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `is_available` asked for every feature that the function is compiled for.
        Isa::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 | Isa::Avx512Vnni => unsafe { avx512::run(kernel) },
        _ => kernel.run(Scalar::new()),
    }
}

/// A [`Kernel`] that is called so often that the choice is made beforehand: see [`routine`].
pub(crate) trait Routine {
    /// What it is called with.
    type Input;
    /// Computes it. Must be `#[inline(always)]`.
    ///
    /// # Safety
    /// Up to the routine.
    unsafe fn run<S: Simd>(simd: S, input: Self::Input);
}

/// The function that runs the routine with the vectors of `isa`.
///
/// # Panics
/// If this machine lacks them: so calling the function is as safe as the routine is.
pub(crate) fn routine<R: Routine>(isa: Isa) -> unsafe fn(R::Input) {
    assert!(isa.is_available(), "this machine has no {isa}");
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::call::<R>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 | Isa::Avx512Vnni => avx512::call::<R>,
        _ => scalar::call::<R>,
    }
}

#[cfg(test)]
mod tests;
