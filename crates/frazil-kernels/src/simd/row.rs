//! The instructions of [`Simd::fma_row`](super::Simd::fma_row) and its like for bytes, as a macro:
//! assembly has no generics for registers.

/// For the first `$columns` of three vectors: `$bring` puts the 32 bits that lie
/// `$strides · stride + $offset` after `from` into every lane of a register, `$multiply` multiplies
/// that with `w[i]` and adds it to `sums[i]`. Unsafe: the 32 bits can be read, and the CPU has the
/// instructions.
macro_rules! row {
    (($columns:expr, $strides:expr), $($rest:tt)*) => {
        match ($columns, $strides) {
            (1, 0) => row!(@ "[{from} + {offset}]", $strides, $($rest)*; s0 w0 0),
            (2, 0) => row!(@ "[{from} + {offset}]", $strides, $($rest)*; s0 w0 0 s1 w1 1),
            (_, 0) => row!(@ "[{from} + {offset}]", $strides, $($rest)*; s0 w0 0 s1 w1 1 s2 w2 2),
            (1, _) => row!(@ "[{from} + {stride}*{strides} + {offset}]", $strides, $($rest)*;
                s0 w0 0),
            (2, _) => row!(@ "[{from} + {stride}*{strides} + {offset}]", $strides, $($rest)*;
                s0 w0 0 s1 w1 1),
            _ => row!(@ "[{from} + {stride}*{strides} + {offset}]", $strides, $($rest)*;
                s0 w0 0 s1 w1 1 s2 w2 2),
        }
    };
    (@ $address:literal, $strides:expr, $offset:expr,
     ($from:ident, $stride:ident, $w:ident, $sums:ident),
     $vector:ty, $register:ident, $bring:literal, $multiply:literal;
     $($sum:ident $weight:ident $i:literal)*) => {{
        // The register between; untyped, it would get the name of another size.
        let _a: $vector;
        std::arch::asm!(
            // What an address does without is named in a comment: it has to be named.
            concat!($bring, " {a}, dword ptr ", $address, " /* {stride} {strides} */"),
            $(concat!($multiply, " {", stringify!($sum), "}, {a}, {", stringify!($weight), "}"),)*
            a = out($register) _a,
            from = in(reg) $from,
            stride = in(reg) $stride,
            strides = const if $strides == 0 { 1 } else { $strides },
            offset = const $offset,
            $($sum = inout($register) $sums[$i], $weight = in($register) $w[$i],)*
            options(readonly, nostack, preserves_flags),
        );
    }};
}
pub(crate) use row;
