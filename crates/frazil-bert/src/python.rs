//! Text as Python prints it: floats as `repr` does, JSON as `json.dumps(indent=4)` does.
//!
//! The original's output files are compared byte by byte, by people and by scripts, so frazil
//! writes them the same. Left out: any other layout of JSON, for which there is `serde_json`.

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
    // Rust and Python both print the fewest digits that read back as the same number.
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let plain = value.to_string();
        text.push_str(&plain);
        if !plain.contains('.') {
            text.push_str(".0");
        }
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        // Writing to a string cannot fail.
        let _ = write!(text, "{mantissa}e{sign}{:02}", exponent.unsigned_abs());
    }
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
