//! The products of bytes: four of a row with four of a column, in each 32 bits of a vector.

use super::super::tile::{self, MOST_VECTORS, Product, Shape, Table, Tile, table};
use crate::cpu::Isa;

/// The functions for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// With pairs of weights that are safe in 16 bits, where that matters.
    pub(super) sums: Table,
    /// With any weights.
    pub(super) wide: Table,
}

/// The largest tile.
pub(super) const fn shape(isa: Isa) -> Shape {
    match isa {
        Isa::Scalar => Shape { rows: 4, vectors: 2 },
        // 4 · 2 sums + 2 + 1 + 3 of 16 registers.
        Isa::Avx2 => Shape { rows: 4, vectors: 2 },
        // 12 · 2 + 2 + 1 + 3 of 32.
        Isa::Avx512 => Shape { rows: 12, vectors: 2 },
        // 9 · 3 + 3 + 1 of 32.
        Isa::Avx512Vnni => Shape { rows: 9, vectors: 3 },
    }
}

impl Tiles {
    /// # Panics
    /// If this machine lacks the instructions: so calling a function is as safe as a tile is.
    pub(super) fn new(isa: Isa) -> Self {
        assert!(isa.is_available(), "this machine has no {isa}");
        macro_rules! both {
            ($module:ident, $sums:ident, $wide:ident) => {{
                macro_rules! sums {
                    ($rows:literal, $vectors:literal) => {
                        $module::call::<$module::$sums, $rows, $vectors>
                    };
                }
                macro_rules! wide {
                    ($rows:literal, $vectors:literal) => {
                        $module::call::<$module::$wide, $rows, $vectors>
                    };
                }
                Self { sums: table!(sums), wide: table!(wide) }
            }};
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => both!(avx2, Pairs, Wide),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => both!(avx512, Pairs, Wide),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => both!(vnni, Dot, Dot),
            _ => both!(scalar, One, One),
        }
    }
}

/// A module's function for the products of `$product`.
macro_rules! call {
    ($(#[$feature:meta])?) => {
        /// # Safety
        /// The CPU has the features; and as [`tile::sums`].
        $(#[$feature])?
        pub(super) unsafe fn call<P: Product + Default, const R: usize, const C: usize>(
            tile: *const Tile,
        ) {
            // SAFETY: the caller's promise.
            unsafe { tile::sums::<P, R, C>(P::default(), tile) }
        }
    };
}

/// What products of bytes have in common that have vectors in common. The CPU has the instructions:
/// only [`Tiles::new`] leads to them.
macro_rules! lanes {
    ($isa:expr, $lanes:literal, $vector:ty, $zero:expr, $add:expr, $load:expr, $store:expr) => {
        const SHAPE: Shape = shape($isa);
        const LANES: usize = $lanes;
        type V = $vector;

        #[inline(always)]
        fn zero(self) -> $vector {
            // SAFETY: see the macro.
            unsafe { $zero() }
        }
        #[inline(always)]
        fn add(self, a: $vector, b: $vector) -> $vector {
            // SAFETY: see the macro.
            unsafe { $add(a, b) }
        }
        #[inline(always)]
        unsafe fn load(self, from: *const u8) -> $vector {
            // SAFETY: the caller's promise.
            unsafe { $load(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8, x: $vector) {
            // SAFETY: the caller's promise.
            unsafe { $store(to.cast(), x) }
        }
    };
}

/// One column at a time: the specification.
mod scalar {
    use super::*;

    call!();

    #[derive(Clone, Copy, Default)]
    pub(super) struct One;

    impl Product for One {
        const SHAPE: Shape = shape(Isa::Scalar);
        const LANES: usize = 1;
        type V = i32;

        #[inline(always)]
        fn zero(self) -> i32 {
            0
        }
        #[inline(always)]
        fn add(self, a: i32, b: i32) -> i32 {
            a + b
        }
        #[inline(always)]
        unsafe fn load(self, from: *const u8) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { from.cast::<i32>().read_unaligned() }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut u8, x: i32) {
            // SAFETY: the caller's promise.
            unsafe { to.cast::<i32>().write_unaligned(x) }
        }
        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [i32; MOST_VECTORS],
            sums: &mut [i32; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise.
            let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<[u8; 4]>().read() };
            for (sum, w) in sums.iter_mut().zip(w).take(C) {
                for (a, w) in a.into_iter().zip(w.to_ne_bytes()) {
                    *sum += i32::from(a) * i32::from(w as i8);
                }
            }
        }
    }
}

/// Eight columns a vector.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::*;

    call!(#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]);

    /// See [`Product::row`], for two vectors.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn pairs<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m256i; MOST_VECTORS],
        sums: &mut [__m256i; MOST_VECTORS],
    ) {
        let ones = _mm256_set1_epi16(1);
        // The registers between; untyped, they would get names of another size.
        let _a: __m256i;
        let _s: __m256i;
        let _t: __m256i;
        macro_rules! of {
            ($address:literal) => {
                asm!(
                    concat!("vpbroadcastd {a}, dword ptr ", $address, " /* {stride} {strides} */"),
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(ymm_reg) _a, s = out(ymm_reg) _s, t = out(ymm_reg) _t,
                    from = in(reg) from, stride = in(reg) stride,
                    strides = const if STRIDES == 0 { 1 } else { STRIDES },
                    offset = const OFFSET,
                    low = inout(ymm_reg) sums[0], high = inout(ymm_reg) sums[1],
                    w0 = in(ymm_reg) w[0], w1 = in(ymm_reg) w[1],
                    ones = in(ymm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            match STRIDES {
                0 => of!("[{from} + {offset}]"),
                _ => of!("[{from} + {stride}*{strides} + {offset}]"),
            }
        }
    }

    /// See [`Product::row`]: bytes at even places and at odd ones, each as 16 bits, whose products
    /// are added in 32 bits.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn wide<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m256i; MOST_VECTORS],
        sums: &mut [__m256i; MOST_VECTORS],
    ) {
        // SAFETY: the caller's promise.
        let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<i32>().read_unaligned() };
        let a = _mm256_set1_epi32(a);
        let (a_even, a_odd) =
            (_mm256_and_si256(a, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16::<8>(a));
        for (sum, w) in sums.iter_mut().zip(w).take(C) {
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
            let odd = _mm256_srai_epi16::<8>(w);
            let even = _mm256_madd_epi16(a_even, even);
            let odd = _mm256_madd_epi16(a_odd, odd);
            *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
        }
    }

    /// Two products added in 16 bits: weights must be safe.
    #[derive(Clone, Copy, Default)]
    pub(super) struct Pairs;

    impl Product for Pairs {
        lanes!(
            Isa::Avx2,
            8,
            __m256i,
            _mm256_setzero_si256,
            _mm256_add_epi32,
            _mm256_loadu_si256,
            _mm256_storeu_si256
        );

        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [__m256i; MOST_VECTORS],
            sums: &mut [__m256i; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise. A single vector, at the right end, may take its time.
            unsafe {
                match C {
                    2 => pairs::<STRIDES, OFFSET>(from, stride, w, sums),
                    _ => wide::<C, STRIDES, OFFSET>(from, stride, w, sums),
                }
            }
        }
    }

    /// Products in 32 bits.
    #[derive(Clone, Copy, Default)]
    pub(super) struct Wide;

    impl Product for Wide {
        lanes!(
            Isa::Avx2,
            8,
            __m256i,
            _mm256_setzero_si256,
            _mm256_add_epi32,
            _mm256_loadu_si256,
            _mm256_storeu_si256
        );

        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [__m256i; MOST_VECTORS],
            sums: &mut [__m256i; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise.
            unsafe { wide::<C, STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}

/// Sixteen columns a vector.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::*;

    call!(#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]);

    /// See [`Product::row`], for two vectors.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn pairs<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; MOST_VECTORS],
        sums: &mut [__m512i; MOST_VECTORS],
    ) {
        let ones = _mm512_set1_epi16(1);
        // The registers between; untyped, they would get names of another size.
        let _a: __m512i;
        let _s: __m512i;
        let _t: __m512i;
        macro_rules! of {
            ($address:literal) => {
                asm!(
                    concat!("vpbroadcastd {a}, dword ptr ", $address, " /* {stride} {strides} */"),
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(zmm_reg) _a, s = out(zmm_reg) _s, t = out(zmm_reg) _t,
                    from = in(reg) from, stride = in(reg) stride,
                    strides = const if STRIDES == 0 { 1 } else { STRIDES },
                    offset = const OFFSET,
                    low = inout(zmm_reg) sums[0], high = inout(zmm_reg) sums[1],
                    w0 = in(zmm_reg) w[0], w1 = in(zmm_reg) w[1],
                    ones = in(zmm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                )
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            match STRIDES {
                0 => of!("[{from} + {offset}]"),
                _ => of!("[{from} + {stride}*{strides} + {offset}]"),
            }
        }
    }

    /// See [`Product::row`]: bytes at even places and at odd ones, each as 16 bits, whose products
    /// are added in 32 bits.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn wide<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; MOST_VECTORS],
        sums: &mut [__m512i; MOST_VECTORS],
    ) {
        // SAFETY: the caller's promise.
        let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<i32>().read_unaligned() };
        let a = _mm512_set1_epi32(a);
        let (a_even, a_odd) =
            (_mm512_and_si512(a, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16::<8>(a));
        for (sum, w) in sums.iter_mut().zip(w).take(C) {
            let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w));
            let odd = _mm512_srai_epi16::<8>(w);
            let even = _mm512_madd_epi16(a_even, even);
            let odd = _mm512_madd_epi16(a_odd, odd);
            *sum = _mm512_add_epi32(*sum, _mm512_add_epi32(even, odd));
        }
    }

    /// Two products added in 16 bits: weights must be safe.
    #[derive(Clone, Copy, Default)]
    pub(super) struct Pairs;

    impl Product for Pairs {
        lanes!(
            Isa::Avx512,
            16,
            __m512i,
            _mm512_setzero_si512,
            _mm512_add_epi32,
            _mm512_loadu_si512,
            _mm512_storeu_si512
        );

        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [__m512i; MOST_VECTORS],
            sums: &mut [__m512i; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise. A single vector, at the right end, may take its time.
            unsafe {
                match C {
                    2 => pairs::<STRIDES, OFFSET>(from, stride, w, sums),
                    _ => wide::<C, STRIDES, OFFSET>(from, stride, w, sums),
                }
            }
        }
    }

    /// Products in 32 bits.
    #[derive(Clone, Copy, Default)]
    pub(super) struct Wide;

    impl Product for Wide {
        lanes!(
            Isa::Avx512,
            16,
            __m512i,
            _mm512_setzero_si512,
            _mm512_add_epi32,
            _mm512_loadu_si512,
            _mm512_storeu_si512
        );

        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [__m512i; MOST_VECTORS],
            sums: &mut [__m512i; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise.
            unsafe { wide::<C, STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}

/// Sixteen columns a vector, with the instruction made for it.
#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use super::*;
    use crate::simd::row::row;

    call!(#[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,avx512vnni"
    )]);

    /// See [`Product::row`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn dot<const C: usize, const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; MOST_VECTORS],
        sums: &mut [__m512i; MOST_VECTORS],
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            row!(
                (C, STRIDES),
                OFFSET,
                (from, stride, w, sums),
                __m512i,
                zmm_reg,
                "vpbroadcastd",
                "vpdpbusd"
            );
        }
    }

    /// Four products added in 32 bits.
    #[derive(Clone, Copy, Default)]
    pub(super) struct Dot;

    impl Product for Dot {
        lanes!(
            Isa::Avx512Vnni,
            16,
            __m512i,
            _mm512_setzero_si512,
            _mm512_add_epi32,
            _mm512_loadu_si512,
            _mm512_storeu_si512
        );

        #[inline(always)]
        unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            self,
            from: *const u8,
            stride: usize,
            w: [__m512i; MOST_VECTORS],
            sums: &mut [__m512i; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise.
            unsafe { dot::<C, STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}
