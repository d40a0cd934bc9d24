//! The products of bytes: four of a row with four of a column, in each 32 bits of a vector.

use super::super::tile::{self, MOST_VECTORS, Product, Shape, Table, Tile, table};
use crate::cpu::Isa;

/// The functions for one instruction set.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// With any weights.
    pub(super) wide: Table,
    /// Where two products can be added in 16 bits.
    pub(super) pairs: Table,
    /// Where four can, those of two steps: for an even number of steps.
    pub(super) quads: Table,
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
        macro_rules! tiles {
            ($module:ident, $wide:ident, $pairs:ident, $quads:ident) => {{
                macro_rules! wide {
                    ($rows:literal, $vectors:literal) => {
                        $module::call::<$module::$wide, $rows, $vectors>
                    };
                }
                macro_rules! pairs {
                    ($rows:literal, $vectors:literal) => {
                        $module::call::<$module::$pairs, $rows, $vectors>
                    };
                }
                macro_rules! quads {
                    ($rows:literal, $vectors:literal) => {
                        $module::call::<$module::$quads, $rows, $vectors>
                    };
                }
                Self { wide: table!(wide), pairs: table!(pairs), quads: table!(quads) }
            }};
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => tiles!(avx2, Wide, Pairs, Quads),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => tiles!(avx512, Wide, Pairs, Quads),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => tiles!(vnni, Dot, Dot, Dot),
            _ => tiles!(scalar, One, One, One),
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

/// A vector's worth of ones in 16 bits, at a cache line.
#[cfg(target_arch = "x86_64")]
#[repr(align(64))]
struct Ones(#[allow(dead_code, reason = "read by assembly")] [i16; 32]);

#[cfg(target_arch = "x86_64")]
static ONES: Ones = Ones([1; 32]);

/// The products of an instruction set that has none made for it. Two products are added in 16 bits,
/// and those of two steps, where weights are safe for that (see `pack`); others are made in 32 bits.
#[cfg(target_arch = "x86_64")]
macro_rules! products {
    ($isa:expr, $lanes:literal, $vector:ident, $register:ident, $features:literal,
     $zero:ident, $load:ident, $store:ident, $add:ident, $splat:ident, $splat_16:ident, $and:ident,
     $right:ident, $left:ident, $down:ident, $multiply:ident) => {
        use std::arch::asm;
        use std::arch::x86_64::*;

        use super::*;

        call!(#[target_feature(enable = $features)]);

        /// The instructions for two vectors, with the place of the 32 bits in both ways to say it.
        macro_rules! at {
            ($strides:expr, $do:ident) => {
                match $strides {
                    0 => $do!("[{from} + {offset}", " /* {stride} {strides} */"),
                    _ => $do!("[{from} + {stride}*{strides} + {offset}", ""),
                }
            };
        }

        /// See [`Product::row`], for two vectors.
        ///
        /// # Safety
        /// As there.
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn pairs<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [$vector; MOST_VECTORS],
            sums: &mut [$vector; MOST_VECTORS],
        ) {
            let ones = $splat_16(1);
            // The registers between; untyped, they would get names of another size.
            let _a: $vector;
            let _s: $vector;
            let _t: $vector;
            macro_rules! of {
                ($address:literal, $unused:literal) => {
                    asm!(
                        concat!("vpbroadcastd {a}, dword ptr ", $address, "]", $unused),
                        "vpmaddubsw {s}, {a}, {w0}",
                        "vpmaddubsw {t}, {a}, {w1}",
                        "vpmaddwd {s}, {s}, {ones}",
                        "vpmaddwd {t}, {t}, {ones}",
                        "vpaddd {low}, {low}, {s}",
                        "vpaddd {high}, {high}, {t}",
                        a = out($register) _a, s = out($register) _s, t = out($register) _t,
                        from = in(reg) from, stride = in(reg) stride,
                        strides = const if STRIDES == 0 { 1 } else { STRIDES },
                        offset = const OFFSET,
                        low = inout($register) sums[0], high = inout($register) sums[1],
                        w0 = in($register) w[0], w1 = in($register) w[1],
                        ones = in($register) ones,
                        options(readonly, nostack, preserves_flags),
                    )
                };
            }
            // SAFETY: the caller's promise.
            unsafe { at!(STRIDES, of) }
        }

        /// See [`Product::two`], for two vectors: 8 sums, 4 vectors of weights and 4 others, all
        /// registers that AVX2 has.
        ///
        /// # Safety
        /// As there.
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn quads<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [[$vector; MOST_VECTORS]; 2],
            sums: &mut [$vector; MOST_VECTORS],
        ) {
            let _a: $vector;
            let _b: $vector;
            let _s: $vector;
            let _t: $vector;
            macro_rules! of {
                ($address:literal, $unused:literal) => {
                    asm!(
                        concat!("vpbroadcastd {a}, dword ptr ", $address, "]", $unused),
                        concat!("vpbroadcastd {b}, dword ptr ", $address, " + 4]"),
                        "vpmaddubsw {s}, {a}, {w0}",
                        "vpmaddubsw {t}, {b}, {w2}",
                        "vpmaddubsw {a}, {a}, {w1}",
                        "vpmaddubsw {b}, {b}, {w3}",
                        "vpaddw {s}, {s}, {t}",
                        "vpaddw {a}, {a}, {b}",
                        "vpmaddwd {s}, {s}, [rip + {ones}]",
                        "vpmaddwd {a}, {a}, [rip + {ones}]",
                        "vpaddd {low}, {low}, {s}",
                        "vpaddd {high}, {high}, {a}",
                        a = out($register) _a, b = out($register) _b,
                        s = out($register) _s, t = out($register) _t,
                        from = in(reg) from, stride = in(reg) stride,
                        strides = const if STRIDES == 0 { 1 } else { STRIDES },
                        offset = const OFFSET,
                        low = inout($register) sums[0], high = inout($register) sums[1],
                        w0 = in($register) w[0][0], w1 = in($register) w[0][1],
                        w2 = in($register) w[1][0], w3 = in($register) w[1][1],
                        ones = sym ONES,
                        options(readonly, nostack, preserves_flags),
                    )
                };
            }
            // SAFETY: the caller's promise.
            unsafe { at!(STRIDES, of) }
        }

        /// See [`Product::row`]: bytes at even places and at odd ones, each as 16 bits, whose
        /// products are added in 32 bits.
        ///
        /// # Safety
        /// As there.
        #[target_feature(enable = $features)]
        #[inline]
        unsafe fn wide<const C: usize, const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [$vector; MOST_VECTORS],
            sums: &mut [$vector; MOST_VECTORS],
        ) {
            // SAFETY: the caller's promise.
            let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<i32>().read_unaligned() };
            let a = $splat(a);
            let (a_even, a_odd) = ($and(a, $splat_16(0xFF)), $right::<8>(a));
            for (sum, w) in sums.iter_mut().zip(w).take(C) {
                let (even, odd) = ($down::<8>($left::<8>(w)), $down::<8>(w));
                let (even, odd) = ($multiply(a_even, even), $multiply(a_odd, odd));
                *sum = $add(*sum, $add(even, odd));
            }
        }

        /// Products in 32 bits.
        #[derive(Clone, Copy, Default)]
        pub(super) struct Wide;

        impl Product for Wide {
            lanes!($isa, $lanes, $vector, $zero, $add, $load, $store);

            #[inline(always)]
            unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
                self,
                from: *const u8,
                stride: usize,
                w: [$vector; MOST_VECTORS],
                sums: &mut [$vector; MOST_VECTORS],
            ) {
                // SAFETY: the caller's promise.
                unsafe { wide::<C, STRIDES, OFFSET>(from, stride, w, sums) }
            }
        }

        /// Two products added in 16 bits.
        #[derive(Clone, Copy, Default)]
        pub(super) struct Pairs;

        impl Product for Pairs {
            lanes!($isa, $lanes, $vector, $zero, $add, $load, $store);

            #[inline(always)]
            unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
                self,
                from: *const u8,
                stride: usize,
                w: [$vector; MOST_VECTORS],
                sums: &mut [$vector; MOST_VECTORS],
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

        /// Four products added in 16 bits.
        #[derive(Clone, Copy, Default)]
        pub(super) struct Quads;

        impl Product for Quads {
            const PACE: usize = 2;
            lanes!($isa, $lanes, $vector, $zero, $add, $load, $store);

            #[inline(always)]
            unsafe fn row<const C: usize, const STRIDES: usize, const OFFSET: usize>(
                self,
                from: *const u8,
                stride: usize,
                w: [$vector; MOST_VECTORS],
                sums: &mut [$vector; MOST_VECTORS],
            ) {
                // SAFETY: the caller's promise.
                unsafe { Pairs.row::<C, STRIDES, OFFSET>(from, stride, w, sums) }
            }

            #[inline(always)]
            unsafe fn two<const C: usize, const STRIDES: usize, const OFFSET: usize>(
                self,
                from: *const u8,
                stride: usize,
                w: [[$vector; MOST_VECTORS]; 2],
                sums: &mut [$vector; MOST_VECTORS],
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    match C {
                        2 => quads::<STRIDES, OFFSET>(from, stride, w, sums),
                        _ => {
                            wide::<C, STRIDES, OFFSET>(from, stride, w[0], sums);
                            wide::<C, STRIDES, OFFSET>(from.add(4), stride, w[1], sums);
                        }
                    }
                }
            }
        }
    };
}

/// Eight columns a vector.
#[cfg(target_arch = "x86_64")]
mod avx2 {
    products!(
        Isa::Avx2,
        8,
        __m256i,
        ymm_reg,
        "avx2,fma,f16c,bmi1,bmi2",
        _mm256_setzero_si256,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_add_epi32,
        _mm256_set1_epi32,
        _mm256_set1_epi16,
        _mm256_and_si256,
        _mm256_srli_epi16,
        _mm256_slli_epi16,
        _mm256_srai_epi16,
        _mm256_madd_epi16
    );
}

/// Sixteen columns a vector.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    products!(
        Isa::Avx512,
        16,
        __m512i,
        zmm_reg,
        "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2",
        _mm512_setzero_si512,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_add_epi32,
        _mm512_set1_epi32,
        _mm512_set1_epi16,
        _mm512_and_si512,
        _mm512_srli_epi16,
        _mm512_slli_epi16,
        _mm512_srai_epi16,
        _mm512_madd_epi16
    );
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
