//! A tile of bytes: its sums over k, all in registers.

use super::super::block::{Ahead, opaque};
use crate::cpu::Isa;

/// Steps (of four k) between two looks at the pointers.
pub(super) const STEPS: usize = 8;

/// What the sums of a tile are made of: `sums[r][..] = Σ a[r][i] · w[i][..]`.
pub(super) struct Tile {
    /// Steps of four k.
    pub(super) steps: usize,
    /// `[rows, lda]`
    pub(super) a: *const u8,
    pub(super) lda: usize,
    /// A panel: `[steps, 2 vectors of 32 bits]`.
    pub(super) w: *const u8,
    /// `[rows, 2 vectors]`
    pub(super) sums: *mut i32,
    /// Whether to add to the sums that are there.
    pub(super) add: bool,
    /// To fetch meanwhile: rows and panels.
    pub(super) ahead: [Ahead; 2],
}

/// The functions for one instruction set: the sums of a tile of 1 to 14 rows.
#[derive(Clone, Copy)]
pub(super) struct Tiles {
    /// With pairs of weights that are safe in 16 bits, where that matters.
    pub(super) sums: [unsafe fn(*const Tile); 14],
    /// With any weights.
    pub(super) wide: [unsafe fn(*const Tile); 14],
}

/// The most rows of a tile.
pub(super) const fn most_rows(isa: Isa) -> usize {
    match isa {
        Isa::Scalar => 4,
        // 4 · 2 sums + 2 + 1 + 3 of 16 registers.
        Isa::Avx2 => 4,
        // 12 · 2 + 2 + 1 + 3 of 32.
        Isa::Avx512 => 12,
        // 14 · 2 + 2 + 1 of 32.
        Isa::Avx512Vnni => 14,
    }
}

impl Tiles {
    /// # Panics
    /// If this machine lacks the instructions: so calling a function is as safe as a tile is.
    pub(super) fn new(isa: Isa) -> Self {
        assert!(isa.is_available(), "this machine has no {isa}");
        macro_rules! all {
            ($module:ident, $dot:ty) => {{
                use $module::call;
                [
                    call::<$dot, 1>,
                    call::<$dot, 2>,
                    call::<$dot, 3>,
                    call::<$dot, 4>,
                    call::<$dot, 5>,
                    call::<$dot, 6>,
                    call::<$dot, 7>,
                    call::<$dot, 8>,
                    call::<$dot, 9>,
                    call::<$dot, 10>,
                    call::<$dot, 11>,
                    call::<$dot, 12>,
                    call::<$dot, 13>,
                    call::<$dot, 14>,
                ]
            }};
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Self { sums: all!(avx2, avx2::Pairs), wide: all!(avx2, avx2::Wide) },
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Self { sums: all!(avx512, avx512::Pairs), wide: all!(avx512, avx512::Wide) }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Self { sums: all!(vnni, vnni::Dot4), wide: all!(vnni, vnni::Dot4) },
            _ => Self { sums: all!(scalar, scalar::One), wide: all!(scalar, scalar::One) },
        }
    }
}

/// Dot products of four bytes with four bytes, in each 32 bits of a vector.
trait Dot: Copy {
    /// The most rows of a tile.
    const ROWS: usize;
    /// 32-bit numbers in a vector.
    const LANES: usize;
    /// Sums, and weights as they are in a panel.
    type V: Copy;

    /// Zeros. The CPU has the instructions, here and below: only [`Tiles::new`] leads here.
    fn zero() -> Self::V;
    /// # Safety
    /// A vector can be read at `from`.
    unsafe fn load(from: *const u8) -> Self::V;
    /// # Safety
    /// A vector can be written at `to`.
    unsafe fn store(to: *mut i32, x: Self::V);
    /// `sums[i] += a · w[i]` for two vectors, where `a` are the four bytes that lie
    /// `STRIDES · stride + OFFSET` after `from`; `STRIDES` is 0, 1 or 2.
    /// # Safety
    /// The bytes can be read.
    unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [Self::V; 2],
        sums: &mut [Self::V; 2],
    );
}

/// The sums of R rows, as `gemm::f32` computes them; see there.
///
/// # Safety
/// The pointers of the tile can be read, and written, as far as said there.
#[inline(always)]
unsafe fn sums<D: Dot, const R: usize>(tile: *const Tile) {
    if R > D::ROWS {
        unreachable!("no tile has more rows than there are registers for");
    }
    // SAFETY: the caller's promise.
    let tile = unsafe { &*tile };
    // SAFETY: the caller's promise: two vectors for each of R rows.
    let row = |row: usize| unsafe { tile.sums.add(row * 2 * D::LANES) };
    let mut sums = [[D::zero(); 2]; 14];
    macro_rules! load {
        ($($row:literal)*) => { $(
            if $row < R {
                // SAFETY: as above.
                unsafe {
                    sums[$row] = [D::load(row($row).cast()), D::load(row($row).add(D::LANES).cast())];
                }
            }
        )* };
    }
    if tile.add {
        load!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }
    let mut w = tile.w;
    let [mut rows, mut panels] = tile.ahead;
    let lda = opaque(std::ptr::without_provenance::<u8>(tile.lda)).addr();
    let mut bases = [tile.a; 5];
    macro_rules! bases {
        ($($base:literal)*) => { $(
            if 3 * $base < R {
                bases[$base] = opaque(bases[0].wrapping_add(3 * $base * lda));
            }
        )* };
    }
    bases!(1 2 3 4);
    macro_rules! advance {
        ($steps:expr; $($base:literal)*) => { $(
            if 3 * $base < R {
                bases[$base] = opaque(bases[$base].wrapping_add(4 * $steps));
            }
        )* };
    }
    for _ in 0..tile.steps / STEPS {
        // SAFETY: at least 8 steps of the panel, and of `a`, are left.
        unsafe {
            step::<D, R, 0, 0>(&mut sums, &bases, lda, w);
            step::<D, R, 1, 4>(&mut sums, &bases, lda, w);
            step::<D, R, 2, 8>(&mut sums, &bases, lda, w);
            step::<D, R, 3, 12>(&mut sums, &bases, lda, w);
            step::<D, R, 4, 16>(&mut sums, &bases, lda, w);
            step::<D, R, 5, 20>(&mut sums, &bases, lda, w);
            step::<D, R, 6, 24>(&mut sums, &bases, lda, w);
            step::<D, R, 7, 28>(&mut sums, &bases, lda, w);
            w = w.add(STEPS * 2 * D::LANES * 4);
        }
        advance!(STEPS; 0 1 2 3 4);
        rows.step();
        panels.step();
    }
    for _ in 0..tile.steps % STEPS {
        // SAFETY: one step of the panel, and of `a`, is left.
        unsafe {
            step::<D, R, 0, 0>(&mut sums, &bases, lda, w);
            w = w.add(2 * D::LANES * 4);
        }
        advance!(1; 0 1 2 3 4);
    }
    macro_rules! store {
        ($($row:literal)*) => { $(
            if $row < R {
                // SAFETY: as for reading them.
                unsafe {
                    D::store(row($row), sums[$row][0]);
                    D::store(row($row).add(D::LANES), sums[$row][1]);
                }
            }
        )* };
    }
    store!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
}

/// One step of four k, the one `U` after the pointers (`BYTES` in `a`).
///
/// # Safety
/// Step `U` of the panel, and of the rows of `a`, can be read.
#[inline(always)]
unsafe fn step<D: Dot, const R: usize, const U: usize, const BYTES: usize>(
    sums: &mut [[D::V; 2]; 14],
    bases: &[*const u8; 5],
    lda: usize,
    w: *const u8,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let w = w.add(U * 2 * D::LANES * 4);
        let w = [D::load(w), D::load(w.add(D::LANES * 4))];
        macro_rules! rows {
            ($($row:literal)*) => { $(
                if $row < R {
                    D::pair::<{ $row % 3 }, BYTES>(bases[$row / 3], lda, w, &mut sums[$row]);
                }
            )* };
        }
        rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13);
    }
}

/// One column at a time: the specification.
mod scalar {
    use super::{Dot, Tile};

    /// # Safety
    /// As [`super::sums`].
    pub(super) unsafe fn call<D: Dot, const R: usize>(tile: *const Tile) {
        // SAFETY: the caller's promise.
        unsafe { super::sums::<D, R>(tile) }
    }

    #[derive(Clone, Copy)]
    pub(super) struct One;

    impl Dot for One {
        const ROWS: usize = super::most_rows(super::Isa::Scalar);
        const LANES: usize = 1;
        type V = i32;

        #[inline(always)]
        fn zero() -> i32 {
            0
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> i32 {
            // SAFETY: the caller's promise.
            unsafe { from.cast::<i32>().read_unaligned() }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: i32) {
            // SAFETY: the caller's promise.
            unsafe { to.write_unaligned(x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [i32; 2],
            sums: &mut [i32; 2],
        ) {
            // SAFETY: the caller's promise.
            let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<[u8; 4]>().read() };
            for (sum, w) in sums.iter_mut().zip(w) {
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

    use super::{Dot, Tile};

    /// # Safety
    /// The CPU has AVX2, FMA and F16C; and as [`super::sums`].
    #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2")]
    pub(super) unsafe fn call<D: Dot, const R: usize>(tile: *const Tile) {
        // SAFETY: the caller's promise.
        unsafe { super::sums::<D, R>(tile) }
    }

    /// See [`Dot::pair`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn pairs<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m256i; 2],
        sums: &mut [__m256i; 2],
    ) {
        let ones = _mm256_set1_epi16(1);
        // The registers between; untyped, they would get names of another size.
        let _a: __m256i;
        let _s: __m256i;
        let _t: __m256i;
        // SAFETY: the caller's promise.
        unsafe {
            if STRIDES == 0 {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {offset}]",
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(ymm_reg) _a, s = out(ymm_reg) _s, t = out(ymm_reg) _t,
                    from = in(reg) from, offset = const OFFSET,
                    low = inout(ymm_reg) sums[0], high = inout(ymm_reg) sums[1],
                    w0 = in(ymm_reg) w[0], w1 = in(ymm_reg) w[1],
                    ones = in(ymm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                );
            } else {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {stride}*{strides} + {offset}]",
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(ymm_reg) _a, s = out(ymm_reg) _s, t = out(ymm_reg) _t,
                    from = in(reg) from, stride = in(reg) stride,
                    strides = const STRIDES, offset = const OFFSET,
                    low = inout(ymm_reg) sums[0], high = inout(ymm_reg) sums[1],
                    w0 = in(ymm_reg) w[0], w1 = in(ymm_reg) w[1],
                    ones = in(ymm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                );
            }
        }
    }

    /// See [`Dot::pair`]: bytes at even places and at odd ones, each as 16 bits, whose products are
    /// added in 32 bits.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn wide<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m256i; 2],
        sums: &mut [__m256i; 2],
    ) {
        // SAFETY: the caller's promise.
        let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<i32>().read_unaligned() };
        let a = _mm256_set1_epi32(a);
        let (a_even, a_odd) =
            (_mm256_and_si256(a, _mm256_set1_epi16(0xFF)), _mm256_srli_epi16::<8>(a));
        for (sum, w) in sums.iter_mut().zip(w) {
            let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(w));
            let odd = _mm256_srai_epi16::<8>(w);
            let even = _mm256_madd_epi16(a_even, even);
            let odd = _mm256_madd_epi16(a_odd, odd);
            *sum = _mm256_add_epi32(*sum, _mm256_add_epi32(even, odd));
        }
    }

    /// Two products added in 16 bits: weights must be safe.
    #[derive(Clone, Copy)]
    pub(super) struct Pairs;

    impl Dot for Pairs {
        const ROWS: usize = super::most_rows(super::Isa::Avx2);
        const LANES: usize = 8;
        type V = __m256i;

        #[inline(always)]
        fn zero() -> __m256i {
            // SAFETY: see the trait.
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m256i {
            // SAFETY: the caller's promise.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: __m256i) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_si256(to.cast(), x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [__m256i; 2],
            sums: &mut [__m256i; 2],
        ) {
            // SAFETY: the caller's promise.
            unsafe { pairs::<STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }

    /// Products in 32 bits.
    #[derive(Clone, Copy)]
    pub(super) struct Wide;

    impl Dot for Wide {
        const ROWS: usize = super::most_rows(super::Isa::Avx2);
        const LANES: usize = 8;
        type V = __m256i;

        #[inline(always)]
        fn zero() -> __m256i {
            // SAFETY: see the trait.
            unsafe { _mm256_setzero_si256() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m256i {
            // SAFETY: the caller's promise.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: __m256i) {
            // SAFETY: the caller's promise.
            unsafe { _mm256_storeu_si256(to.cast(), x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [__m256i; 2],
            sums: &mut [__m256i; 2],
        ) {
            // SAFETY: the caller's promise.
            unsafe { wide::<STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}

/// Sixteen columns a vector.
#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::{Dot, Tile};

    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ and VL, AVX2, FMA and F16C; and as [`super::sums`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2")]
    pub(super) unsafe fn call<D: Dot, const R: usize>(tile: *const Tile) {
        // SAFETY: the caller's promise.
        unsafe { super::sums::<D, R>(tile) }
    }

    /// See [`Dot::pair`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn pairs<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; 2],
        sums: &mut [__m512i; 2],
    ) {
        let ones = _mm512_set1_epi16(1);
        // The registers between; untyped, they would get names of another size.
        let _a: __m512i;
        let _s: __m512i;
        let _t: __m512i;
        // SAFETY: the caller's promise.
        unsafe {
            if STRIDES == 0 {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {offset}]",
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(zmm_reg) _a, s = out(zmm_reg) _s, t = out(zmm_reg) _t,
                    from = in(reg) from, offset = const OFFSET,
                    low = inout(zmm_reg) sums[0], high = inout(zmm_reg) sums[1],
                    w0 = in(zmm_reg) w[0], w1 = in(zmm_reg) w[1],
                    ones = in(zmm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                );
            } else {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {stride}*{strides} + {offset}]",
                    "vpmaddubsw {s}, {a}, {w0}",
                    "vpmaddubsw {t}, {a}, {w1}",
                    "vpmaddwd {s}, {s}, {ones}",
                    "vpmaddwd {t}, {t}, {ones}",
                    "vpaddd {low}, {low}, {s}",
                    "vpaddd {high}, {high}, {t}",
                    a = out(zmm_reg) _a, s = out(zmm_reg) _s, t = out(zmm_reg) _t,
                    from = in(reg) from, stride = in(reg) stride,
                    strides = const STRIDES, offset = const OFFSET,
                    low = inout(zmm_reg) sums[0], high = inout(zmm_reg) sums[1],
                    w0 = in(zmm_reg) w[0], w1 = in(zmm_reg) w[1],
                    ones = in(zmm_reg) ones,
                    options(readonly, nostack, preserves_flags),
                );
            }
        }
    }

    /// See [`Dot::pair`]: bytes at even places and at odd ones, each as 16 bits, whose products are
    /// added in 32 bits.
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    unsafe fn wide<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; 2],
        sums: &mut [__m512i; 2],
    ) {
        // SAFETY: the caller's promise.
        let a = unsafe { from.add(STRIDES * stride + OFFSET).cast::<i32>().read_unaligned() };
        let a = _mm512_set1_epi32(a);
        let (a_even, a_odd) =
            (_mm512_and_si512(a, _mm512_set1_epi16(0xFF)), _mm512_srli_epi16::<8>(a));
        for (sum, w) in sums.iter_mut().zip(w) {
            let even = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(w));
            let odd = _mm512_srai_epi16::<8>(w);
            let even = _mm512_madd_epi16(a_even, even);
            let odd = _mm512_madd_epi16(a_odd, odd);
            *sum = _mm512_add_epi32(*sum, _mm512_add_epi32(even, odd));
        }
    }

    /// Two products added in 16 bits: weights must be safe.
    #[derive(Clone, Copy)]
    pub(super) struct Pairs;

    impl Dot for Pairs {
        const ROWS: usize = super::most_rows(super::Isa::Avx512);
        const LANES: usize = 16;
        type V = __m512i;

        #[inline(always)]
        fn zero() -> __m512i {
            // SAFETY: see the trait.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m512i {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: __m512i) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_si512(to.cast(), x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [__m512i; 2],
            sums: &mut [__m512i; 2],
        ) {
            // SAFETY: the caller's promise.
            unsafe { pairs::<STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }

    /// Products in 32 bits.
    #[derive(Clone, Copy)]
    pub(super) struct Wide;

    impl Dot for Wide {
        const ROWS: usize = super::most_rows(super::Isa::Avx512);
        const LANES: usize = 16;
        type V = __m512i;

        #[inline(always)]
        fn zero() -> __m512i {
            // SAFETY: see the trait.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m512i {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: __m512i) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_si512(to.cast(), x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [__m512i; 2],
            sums: &mut [__m512i; 2],
        ) {
            // SAFETY: the caller's promise.
            unsafe { wide::<STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}

/// Sixteen columns a vector, with the instruction made for it.
#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::{Dot, Tile};

    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ, VL and VNNI, AVX2, FMA and F16C; and as [`super::sums`].
    #[target_feature(
        enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,avx512vnni"
    )]
    pub(super) unsafe fn call<D: Dot, const R: usize>(tile: *const Tile) {
        // SAFETY: the caller's promise.
        unsafe { super::sums::<D, R>(tile) }
    }

    /// See [`Dot::pair`].
    ///
    /// # Safety
    /// As there.
    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    unsafe fn dot<const STRIDES: usize, const OFFSET: usize>(
        from: *const u8,
        stride: usize,
        w: [__m512i; 2],
        sums: &mut [__m512i; 2],
    ) {
        // The registers between; untyped, they would get names of another size.
        let _a: __m512i;
        // SAFETY: the caller's promise.
        unsafe {
            if STRIDES == 0 {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {offset}]",
                    "vpdpbusd {low}, {a}, {w0}",
                    "vpdpbusd {high}, {a}, {w1}",
                    a = out(zmm_reg) _a,
                    from = in(reg) from, offset = const OFFSET,
                    low = inout(zmm_reg) sums[0], high = inout(zmm_reg) sums[1],
                    w0 = in(zmm_reg) w[0], w1 = in(zmm_reg) w[1],
                    options(readonly, nostack, preserves_flags),
                );
            } else {
                asm!(
                    "vpbroadcastd {a}, dword ptr [{from} + {stride}*{strides} + {offset}]",
                    "vpdpbusd {low}, {a}, {w0}",
                    "vpdpbusd {high}, {a}, {w1}",
                    a = out(zmm_reg) _a,
                    from = in(reg) from, stride = in(reg) stride,
                    strides = const STRIDES, offset = const OFFSET,
                    low = inout(zmm_reg) sums[0], high = inout(zmm_reg) sums[1],
                    w0 = in(zmm_reg) w[0], w1 = in(zmm_reg) w[1],
                    options(readonly, nostack, preserves_flags),
                );
            }
        }
    }

    /// Four products added in 32 bits.
    #[derive(Clone, Copy)]
    pub(super) struct Dot4;

    impl Dot for Dot4 {
        const ROWS: usize = super::most_rows(super::Isa::Avx512Vnni);
        const LANES: usize = 16;
        type V = __m512i;

        #[inline(always)]
        fn zero() -> __m512i {
            // SAFETY: see the trait.
            unsafe { _mm512_setzero_si512() }
        }
        #[inline(always)]
        unsafe fn load(from: *const u8) -> __m512i {
            // SAFETY: the caller's promise.
            unsafe { _mm512_loadu_si512(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store(to: *mut i32, x: __m512i) {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_si512(to.cast(), x) }
        }
        #[inline(always)]
        unsafe fn pair<const STRIDES: usize, const OFFSET: usize>(
            from: *const u8,
            stride: usize,
            w: [__m512i; 2],
            sums: &mut [__m512i; 2],
        ) {
            // SAFETY: the caller's promise.
            unsafe { dot::<STRIDES, OFFSET>(from, stride, w, sums) }
        }
    }
}
