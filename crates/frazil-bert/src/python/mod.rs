//! What Python does: floats as `repr` prints them, JSON as `json.dumps(indent=4)` writes it, and
//! in [`random`] the numbers of `random.Random`.
//!
//! The original's output files are compared byte by byte, by people and by scripts, so frazil
//! writes them the same. Left out: any other layout of JSON, for which there is `serde_json`.

pub mod random;

use std::fmt::Write;

/// A float as Python's `repr` prints it, which is also its form in Python's JSON.
pub fn float(value: f64) -> String {
    let mut text = String::new();
    push_float(&mut text, value);
    text
}

/// The same, added to a text.
pub fn push_float(text: &mut String, value: f64) {
    if !value.is_finite() {
        text.push_str(match value {
            _ if value.is_nan() => "NaN",
            _ if value > 0.0 => "Infinity",
            _ => "-Infinity",
        });
        return;
    }
    let (negative, digits, exponent) = shortest(value);
    if negative {
        text.push('-');
    }
    let count = digits.len() as i32;
    // Writing to a string cannot fail.
    let _ = match exponent {
        -4..0 => write!(text, "0.{:0<zeros$}{digits}", "", zeros = (-exponent - 1) as usize),
        0..16 if count <= exponent + 1 => {
            write!(text, "{digits}{:0<zeros$}.0", "", zeros = (exponent + 1 - count) as usize)
        }
        0..16 => {
            let (whole, fraction) = digits.split_at(exponent as usize + 1);
            write!(text, "{whole}.{fraction}")
        }
        _ => {
            let (first, more) = digits.split_at(1);
            let point = if more.is_empty() { "" } else { "." };
            let sign = if exponent < 0 { '-' } else { '+' };
            write!(text, "{first}{point}{more}e{sign}{:02}", exponent.unsigned_abs())
        }
    };
}

/// The fewest digits that read back as the same number, nearest to it, and the exponent of the
/// first: what both Rust and Python print, but for one thing. Where two are equally near, Rust
/// takes the larger and Python the one that ends in an even digit.
fn shortest(value: f64) -> (bool, String, i32) {
    let (negative, digits, exponent) = parts(&format!("{value:e}"));
    let count = digits.len();
    // A tie has one digit more, a 5, and then nothing.
    let exact = |digits: usize| parts(&format!("{value:.digits$e}")).1;
    let is_tie = |places: usize| {
        let exact = exact(places);
        let tail = exact.as_bytes().get(count..).unwrap_or_default();
        tail.first() == Some(&b'5') && tail[1..].iter().all(|&digit| digit == b'0')
    };
    // The longest expansion of a float has 767 digits; few need to be looked at so closely.
    if is_tie(count) && is_tie(count + 20) && is_tie(800) {
        let lower = &exact(800)[..count];
        let even = lower.bytes().next_back().is_some_and(|digit| digit % 2 == 0);
        let first = lower.split_at(1);
        let reads_back = format!("{}.{}e{exponent}", first.0, first.1).parse() == Ok(value.abs());
        if even && reads_back {
            return (negative, lower.to_owned(), exponent);
        }
    }
    (negative, digits, exponent)
}

/// Sign, digits and exponent of a number in Rust's scientific form.
fn parts(scientific: &str) -> (bool, String, i32) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let negative = mantissa.starts_with('-');
    let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
    (negative, digits, exponent.parse().unwrap_or(0))
}

/// A string as `json.dumps` writes it: ASCII only.
pub fn push_string(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{c}' => text.push_str("\\f"),
            '\u{8}' => text.push_str("\\b"),
            ' '..='~' => text.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
        }
    }
    text.push('"');
}

/// Writes objects and lists as `json.dumps(…, indent=4)` does.
#[derive(Debug, Default)]
pub struct Json {
    text: String,
    /// For each bracket that is open, whether something is in it, and how it closes.
    open: Vec<(bool, char)>,
}

impl Json {
    /// Begins an object.
    pub fn begin_object(&mut self) {
        self.text.push('{');
        self.open.push((false, '}'));
    }

    /// Begins a list.
    pub fn begin_list(&mut self) {
        self.text.push('[');
        self.open.push((false, ']'));
    }

    /// Ends what was begun last.
    pub fn end(&mut self) {
        let Some((filled, bracket)) = self.open.pop() else { return };
        if filled {
            self.new_line();
        }
        self.text.push(bracket);
    }

    /// Begins an entry of a list.
    pub fn item(&mut self) {
        if let Some((filled, _)) = self.open.last_mut() {
            if std::mem::replace(filled, true) {
                self.text.push(',');
            }
            self.new_line();
        }
    }

    /// Begins an entry of an object.
    pub fn key(&mut self, key: &str) {
        self.item();
        push_string(&mut self.text, key);
        self.text.push_str(": ");
    }

    /// A string as the value.
    pub fn string(&mut self, value: &str) {
        push_string(&mut self.text, value);
    }

    /// A float as the value.
    pub fn float(&mut self, value: f64) {
        push_float(&mut self.text, value);
    }

    /// The whole, with a line end, as the original's files have one.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        self.text.push('\n');
        self.text
    }

    fn new_line(&mut self) {
        self.text.push('\n');
        for _ in &self.open {
            self.text.push_str("    ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_as_repr_prints_them() {
        // All of these were printed by Python.
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-1.7756597995758057, "-1.7756597995758057"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5e-7, "1.5e-07"),
            (1e15, "1000000000000000.0"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (1e16, "1e+16"),
            (1e22, "1e+22"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
            (0.1 + 0.2, "0.30000000000000004"),
            (0.000123, "0.000123"),
            (1200.0, "1200.0"),
            (1234.5, "1234.5"),
            (2f64.powi(54), "1.8014398509481984e+16"),
            // Halfway between two of 17 digits.
            (2.117_347_717_285_156_3, "2.1173477172851562"),
            (-2.324_684_143_066_406_3, "-2.3246841430664062"),
            (1.5e-323, "1.5e-323"),
        ] {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn strings_are_ascii() {
        let mut text = String::new();
        push_string(&mut text, "a\"\\/\n\r\t\u{8}\u{c}\u{1}\u{7f}é東😀~");
        let expected = r#""a\"\\/\n\r\t\b\f\u0001\u007f\u00e9\u6771\ud83d\ude00~""#;
        assert_eq!(text, expected);
    }

    #[test]
    fn nested_and_empty() {
        let mut json = Json::default();
        json.begin_object();
        json.key("a");
        json.begin_list();
        json.item();
        json.begin_object();
        json.key("x");
        json.float(1.0);
        json.key("y");
        json.string("z");
        json.end();
        json.item();
        json.begin_object();
        json.end();
        json.end();
        json.key("b");
        json.begin_list();
        let expected = "{\n    \"a\": [\n        {\n            \"x\": 1.0,\n            \"y\": \"z\"\n        },\n        {}\n    ],\n    \"b\": []\n}\n";
        assert_eq!(json.finish(), expected);
    }
}
