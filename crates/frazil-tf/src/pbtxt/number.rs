//! Numbers as text: what a token is worth, and floating point as Python prints it.

use std::fmt::Write as _;

/// Why a token is not the number that a field needs.
pub(super) type Reason = String;

/// An integer in decimal, hexadecimal (`0x`) or octal (`0`) digits.
pub(super) fn integer(token: &str) -> Result<u64, Reason> {
    let (digits, radix) =
        if let Some(hex) = token.strip_prefix("0x").or_else(|| token.strip_prefix("0X")) {
            (hex, 16)
        } else if token.len() > 1 && token.starts_with('0') {
            (&token[1..], 8)
        } else {
            (token, 10)
        };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(format!("`{token}` is not an integer"));
    }
    u64::from_str_radix(digits, radix).map_err(|_| format!("`{token}` has more than 64 bits"))
}

/// A decimal number, with or without a point, an exponent and C's `f` at the end.
pub(super) fn float(token: &str) -> Result<f64, Reason> {
    let wrong = || format!("`{token}` is not a decimal number");
    let digits = token.strip_suffix(['f', 'F']).unwrap_or(token);
    let is_octal =
        digits.len() > 1 && digits.starts_with('0') && digits.chars().all(|c| c.is_ascii_digit());
    // What Rust accepts beyond this, `inf` and `nan`, are words, not numbers.
    if is_octal || !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(wrong());
    }
    digits.parse().map_err(|_| wrong())
}

/// The words that are floating-point numbers.
pub(super) fn float_word(word: &str) -> Option<f64> {
    let is = |name: &str| word.eq_ignore_ascii_case(name);
    if is("inf") || is("infinity") || is("inff") || is("infinityf") {
        Some(f64::INFINITY)
    } else if is("nan") || is("nanf") {
        Some(f64::NAN)
    } else {
        None
    }
}

/// The shortest text that reads back as the same number, in Python's layout: `1.0`, `1e-05`,
/// `1e+16`, `nan`.
pub(super) fn print_float(value: f64, out: &mut String) {
    if value.is_nan() {
        out.push_str("nan");
        return;
    }
    if value.is_infinite() {
        out.push_str(if value > 0.0 { "inf" } else { "-inf" });
        return;
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("`{:e}` prints an exponent");
    let exponent: i32 = exponent.parse().expect("`{:e}` prints an integer exponent");
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        out.push_str(&plain);
        if !plain.contains('.') {
            out.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("a string takes everything");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_python_does() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (10000.0, "10000.0"),
            (f64::from(0.1f32), "0.10000000149011612"),
            (f64::from(1e-12f32), "9.999999960041972e-13"),
            (1e-4, "0.0001"),
            (1e-5, "1e-05"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (f64::NAN, "nan"),
            (f64::NEG_INFINITY, "-inf"),
        ];
        for (value, text) in cases {
            let mut out = String::new();
            print_float(value, &mut out);
            assert_eq!(out, text);
        }
    }

    #[test]
    fn reads_what_protobuf_reads() {
        assert_eq!(integer("0x1F"), Ok(31));
        assert_eq!(integer("017"), Ok(15));
        assert_eq!(integer("0"), Ok(0));
        assert_eq!(integer("18446744073709551615"), Ok(u64::MAX));
        for wrong in ["18446744073709551616", "08", "1.0", "0x", "1f", "12_3"] {
            assert!(integer(wrong).is_err(), "{wrong}");
        }
        assert_eq!(float("1.5f"), Ok(1.5));
        assert_eq!(float("1."), Ok(1.0));
        assert_eq!(float(".5e+1"), Ok(5.0));
        assert_eq!(float("3"), Ok(3.0));
        assert_eq!(float("1e999"), Ok(f64::INFINITY));
        for wrong in ["0x1", "017", "1.2.3", "1e", "1_0", "f", ""] {
            assert!(float(wrong).is_err(), "{wrong}");
        }
    }
}
