//! Numbers for people.

/// `1,234,567`.
pub fn thousands(number: u64) -> String {
    group(&number.to_string())
}

fn group(digits: &str) -> String {
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1.3 GB`, `12 kB`, `17 bytes`; decimal units, as disks are sold.
pub fn size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        1_000_000_000.. => (1e9, "GB"),
        1_000_000.. => (1e6, "MB"),
        10_000.. => (1e3, "kB"),
        _ => return format!("{bytes} bytes"),
    };
    let value = bytes as f64 / unit;
    if value < 10.0 { format!("{value:.1} {name}") } else { format!("{value:.0} {name}") }
}

/// About four digits that count: `1,235`, `12.35`, `0.01235`, `1.235e-7`; `–` where there is no
/// number.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        return "–".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞".into() } else { "-∞".into() };
    }
    if size != 0.0 && !(1e-3..1e9).contains(&size) {
        let text = format!("{value:.3e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trim(digits));
    }
    let decimals = match size {
        1000.0.. => 0,
        100.0.. => 1,
        10.0.. => 2,
        1.0.. => 3,
        0.1.. => 4,
        0.01.. => 5,
        _ => 6,
    };
    fixed(value, decimals, true)
}

/// With so many decimals, as in a column of such numbers: `12,345.60`, `0.00` and never `-0.00`.
pub fn places(value: f64, decimals: usize) -> String {
    fixed(value, decimals, false)
}

/// With so many decimals, and with commas from 10,000 on.
pub(super) fn fixed(value: f64, decimals: usize, trimmed: bool) -> String {
    let text = format!("{value:.decimals$}");
    let text = if trimmed { trim(&text) } else { &text };
    let (sign, text) = text.strip_prefix('-').map_or(("", text), |rest| ("-", rest));
    let (whole, part) = text.find('.').map_or((text, ""), |dot| text.split_at(dot));
    if text.chars().all(|c| matches!(c, '0' | '.')) {
        return text.to_owned(); // never `-0`
    }
    let whole = if whole.len() > 4 { group(whole) } else { whole.to_owned() };
    format!("{sign}{whole}{part}")
}

fn trim(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!(thousands(110_106_428), "110,106,428");
        assert_eq!(thousands(999), "999");
        assert_eq!(size(1_345_000_000), "1.3 GB");
        assert_eq!(size(685_856), "686 kB");
        assert_eq!(size(17), "17 bytes");
        assert_eq!(places(12_345.6, 2), "12,345.60");
        assert_eq!(places(-1e-9, 4), "0.0000");
        assert_eq!(places(-0.00006, 4), "-0.0001");
    }

    #[test]
    fn four_digits_count() {
        let cases = [
            (0.0, "0"),
            (-0.0, "0"),
            (1234.6, "1235"),
            (12_345.6, "12,346"),
            (12.3456, "12.35"),
            (2.0, "2"),
            (0.0123456, "0.01235"),
            (-0.5, "-0.5"),
            (1.2344e-7, "1.234e-7"),
            (4e12, "4e12"),
            (f64::NAN, "–"),
            (f64::NEG_INFINITY, "-∞"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text, "{value}");
        }
    }
}
