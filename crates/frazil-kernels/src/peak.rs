//! What this machine can do at most: multiplications of numbers and of bytes, and reading memory.
//!
//! Each function measures with all threads of its pool, several times over, and returns the best
//! one, so that a share of the machine that others take for a moment does not count. Kernels are
//! judged by these figures measured in the same minute, never by a data sheet. Only the forms that
//! the kernels use are measured, in registers, without a load or a store.

use std::time::Instant;

use crate::cpu::Isa;
use crate::par::Pool;
use crate::simd::{Kernel, Simd, dispatch};

/// Rounds of a measurement; the best one counts.
const ROUNDS: usize = 12;

/// Multiplications and additions of 32-bit numbers per second, in units of 10⁹ (GFLOP/s).
///
/// # Panics
/// If this machine lacks the instructions.
pub fn multiply_f32(pool: &Pool, isa: Isa) -> f64 {
    assert!(isa.is_available(), "this machine has no {isa}");
    best(pool, |count| match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instructions, as just asked.
        Isa::Avx512 | Isa::Avx512Vnni => unsafe { loops::f32_avx512(count) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { loops::f32_avx2(count) },
        _ => plain_f32(count),
    })
}

/// Multiplications and additions of bytes, `u8` by `s8` to `i32`, per second, in units of 10⁹, by
/// the instructions that `gemm::i8` uses: one with VNNI, else five for the work of two (`vpmaddubsw`
/// twice, `vpaddw`, `vpmaddwd`, `vpaddd`).
///
/// # Panics
/// If this machine lacks the instructions.
pub fn multiply_i8(pool: &Pool, isa: Isa) -> f64 {
    assert!(isa.is_available(), "this machine has no {isa}");
    best(pool, |count| match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the CPU has the instructions, as just asked.
        Isa::Avx512Vnni => unsafe { loops::i8_vnni(count) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx512 => unsafe { loops::i8_avx512(count) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { loops::i8_avx2(count) },
        _ => plain_i8(count),
    })
}

/// Bytes read from memory per second, in units of 10⁹ (GB/s). `memory` should be several times
/// larger than the last-level cache: what is in the cache is faster.
pub fn read(pool: &Pool, isa: Isa, memory: &[f32]) -> f64 {
    let parts = pool.threads() * 8;
    let at = |part| memory.len() / parts * part;
    let mut best = 0f64;
    for _ in 0..ROUNDS / 2 {
        let start = Instant::now();
        pool.run(parts, &|part, _| {
            std::hint::black_box(dispatch(isa, Read(&memory[at(part)..at(part + 1)])));
        });
        let bytes = (at(parts) * size_of::<f32>()) as f64;
        best = best.max(bytes / start.elapsed().as_secs_f64() / 1e9);
    }
    best
}

/// The best speed of a loop that tells the operations of one time around, with all threads at once.
fn best(pool: &Pool, run: impl Fn(u64) -> f64 + Sync) -> f64 {
    const COUNT: u64 = 200_000;
    let mut best = 0f64;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        pool.run(pool.threads(), &|_, _| {
            run(COUNT);
        });
        let time = start.elapsed().as_secs_f64();
        let operations = run(0) * COUNT as f64 * pool.threads() as f64;
        best = best.max(operations / time / 1e9);
    }
    best
}

fn plain_f32(count: u64) -> f64 {
    let mut x = [0.5f32; 8];
    for _ in 0..count {
        for x in &mut x {
            *x = *x * std::hint::black_box(0.999) + 1e-3;
        }
    }
    std::hint::black_box(x);
    2.0 * 8.0
}

fn plain_i8(count: u64) -> f64 {
    let mut x = [1i32; 8];
    for _ in 0..count {
        let (a, w) = (std::hint::black_box(200u8), std::hint::black_box(-3i8));
        for x in &mut x {
            *x = x.wrapping_add(i32::from(a) * i32::from(w));
        }
    }
    std::hint::black_box(x);
    2.0 * 8.0
}

/// Adds up memory, to read it.
struct Read<'a>(&'a [f32]);

impl Kernel for Read<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut sums = [s.splat(0.0); 4];
        for four in self.0.chunks_exact(4 * S::LANES) {
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: there are four vectors in the chunk.
                *sum = s.add(*sum, unsafe { s.load(four.as_ptr().add(i * S::LANES)) });
            }
        }
        s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
    }
}

/// The loops in assembly: a compiler would see that they compute nothing, or put sums into memory.
#[cfg(target_arch = "x86_64")]
mod loops {
    use std::arch::asm;

    /// A function that runs one instruction, or a sequence through registers 12 and 13, on each of
    /// twelve registers `count` times, and returns the operations of one time.
    macro_rules! register_loop {
        ($(#[$doc:meta])* $name:ident, $feature:literal, $kind:literal, $operations:expr, $($line:literal),*) => {
            register_loop!(@function $(#[$doc])* $name, $feature, $kind,
                [0 1 2 3 4 5 6 7 8 9 10 11], $operations, $($line),*);
        };
        (@function $(#[$doc:meta])* $name:ident, $feature:literal, $kind:literal, [$($register:literal)*], $operations:expr, $($line:literal),*) => {
            $(#[$doc])*
            #[target_feature(enable = $feature)]
            pub(super) unsafe fn $name(count: u64) -> f64 {
                if count > 0 {
                    // SAFETY: only registers, which are declared.
                    unsafe {
                        asm!(
                            $(concat!("vpxor xmm", $register, ", xmm", $register, ", xmm", $register),)*
                            "vpxor xmm14, xmm14, xmm14",
                            "vpxor xmm15, xmm15, xmm15",
                            "2:",
                            register_loop!(@lines $kind, [$($register)*], $($line),*),
                            "dec {count}",
                            "jnz 2b",
                            count = inout(reg) count => _,
                            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                            out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                            out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                            out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                            options(nomem, nostack),
                        );
                    }
                }
                $operations
            }
        };
        (@lines $kind:literal, [$($register:literal)*], $a:literal) => {
            concat!($($a, " ", $kind, $register, ", ", $kind, "14, ", $kind, "15\n",)*)
        };
        (@lines $kind:literal, [$($register:literal)*], $a:literal, $b:literal, $c:literal, $d:literal) => {
            concat!($(
                $a, " ", $kind, "12, ", $kind, "14, ", $kind, "15\n",
                $a, " ", $kind, "13, ", $kind, "14, ", $kind, "15\n",
                $b, " ", $kind, "13, ", $kind, "13, ", $kind, "12\n",
                $c, " ", $kind, "13, ", $kind, "13, ", $kind, "15\n",
                $d, " ", $kind, $register, ", ", $kind, $register, ", ", $kind, "13\n",
            )*)
        };
    }

    register_loop!(
        /// # Safety
        /// The CPU has AVX-512 F.
        f32_avx512, "avx512f", "zmm", 12.0 * 32.0, "vfmadd231ps");
    register_loop!(
        /// # Safety
        /// The CPU has FMA.
        f32_avx2, "avx2,fma", "ymm", 12.0 * 16.0, "vfmadd231ps");
    register_loop!(
        /// # Safety
        /// The CPU has AVX-512 VNNI.
        i8_vnni, "avx512f,avx512vnni", "zmm", 12.0 * 128.0, "vpdpbusd");
    register_loop!(
        /// # Safety
        /// The CPU has AVX-512 BW.
        i8_avx512, "avx512f,avx512bw", "zmm", 12.0 * 256.0, "vpmaddubsw", "vpaddw", "vpmaddwd", "vpaddd");
    register_loop!(
        /// # Safety
        /// The CPU has AVX2.
        i8_avx2, "avx2", "ymm", 12.0 * 128.0, "vpmaddubsw", "vpaddw", "vpmaddwd", "vpaddd");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_loop_runs() {
        let pool = Pool::new(1);
        for isa in Isa::available() {
            let (numbers, bytes) = (multiply_f32(&pool, isa), multiply_i8(&pool, isa));
            assert!(numbers > 0.01 && numbers < 1e4, "{isa} {numbers}");
            assert!(bytes > 0.01 && bytes < 1e5, "{isa} {bytes}");
        }
        assert!(read(&pool, Isa::Scalar, &[0.0; 1000]) > 0.0);
    }
}
