//! From characters to tokens, and from offsets to lines and columns.

use crate::Error;

/// The smallest meaningful piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A field's or a value's name.
    Word(&'a str),
    /// Anything that begins like a number; what it is worth depends on the field.
    Number(&'a str),
    /// What stands between two quotes, escapes and all.
    Quoted(&'a [u8]),
    Symbol(u8),
    End,
}

/// A position in a text.
#[derive(Clone, Copy)]
pub(super) struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at }
    }

    /// The next token and where it begins.
    pub fn next(&mut self) -> Result<(Token<'a>, usize), Error> {
        self.skip_blanks();
        let at = self.at;
        let rest = &self.text[at..];
        let Some(&first) = rest.first() else { return Ok((Token::End, at)) };
        let second_is_digit = rest.get(1).is_some_and(u8::is_ascii_digit);
        let token = match first {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                Token::Word(self.take_while(|c| c.is_ascii_alphanumeric() || c == b'_'))
            }
            b'0'..=b'9' => Token::Number(self.take_number()),
            b'.' if second_is_digit => Token::Number(self.take_number()),
            b'"' | b'\'' => Token::Quoted(self.take_quoted(first)?),
            b'{' | b'}' | b'<' | b'>' | b'[' | b']' | b':' | b',' | b';' | b'-' => {
                self.at += 1;
                Token::Symbol(first)
            }
            b'/' if rest.starts_with(b"//") || rest.starts_with(b"/*") => {
                return Err(self.error(at, "comments begin with `#` in this format"));
            }
            _ => {
                let shown = String::from_utf8_lossy(&rest[..rest.len().min(4)]).chars().next();
                let shown = shown.unwrap_or(char::REPLACEMENT_CHARACTER);
                let reason = match first {
                    0x80.. if shown == char::REPLACEMENT_CHARACTER => {
                        format!("byte {first:#04x} is not text")
                    }
                    _ => format!("unexpected character `{}`", shown.escape_default()),
                };
                return Err(self.error(at, reason));
            }
        };
        Ok((token, at))
    }

    /// The next token, left in place.
    pub fn peek(&self) -> Result<Token<'a>, Error> {
        Ok(Lexer { ..*self }.next()?.0)
    }

    /// The error that `reason` is, at an offset.
    pub fn error(&self, at: usize, reason: impl Into<String>) -> Error {
        let before = &self.text[..at];
        let line_start = before.iter().rposition(|&c| c == b'\n').map_or(0, |i| i + 1);
        Error::Text {
            line: 1 + before.iter().filter(|&&c| c == b'\n').count(),
            column: 1 + before[line_start..].iter().filter(|&&c| c & 0xc0 != 0x80).count(),
            reason: reason.into(),
        }
    }

    fn skip_blanks(&mut self) {
        while let Some(&c) = self.text.get(self.at) {
            match c {
                b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => self.at += 1,
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    fn take_while(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.iter().position(|&c| !belongs(c)).unwrap_or(rest.len());
        self.at += length;
        str::from_utf8(&rest[..length]).expect("only ASCII was taken")
    }

    /// Digits, letters and points, and a sign after an exponent's `e`.
    fn take_number(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let is_hex = rest.starts_with(b"0x") || rest.starts_with(b"0X");
        let mut length = 0;
        while let Some(&c) = rest.get(length) {
            let signs_exponent = matches!(c, b'+' | b'-')
                && !is_hex
                && length > 0
                && matches!(rest[length - 1], b'e' | b'E');
            if !c.is_ascii_alphanumeric() && c != b'.' && c != b'_' && !signs_exponent {
                break;
            }
            length += 1;
        }
        self.at += length;
        str::from_utf8(&rest[..length]).expect("only ASCII was taken")
    }

    fn take_quoted(&mut self, quote: u8) -> Result<&'a [u8], Error> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            let stop = |&c: &u8| c == quote || c == b'\\' || c == b'\n';
            at += self.text[at..].iter().position(stop).unwrap_or(self.text.len() - at);
            match self.text.get(at) {
                Some(&c) if c == quote => {
                    self.at = at + 1;
                    return Ok(&self.text[start..at]);
                }
                // The escaped character is looked at later; here it must only not end the string.
                Some(b'\\') if self.text.get(at + 1).is_some_and(|&c| c != b'\n') => at += 2,
                _ => return Err(self.error(self.at, "this string is not closed on its line")),
            }
        }
    }
}

/// Appends the bytes that a quoted text stands for. An error is an offset in it and a reason.
pub(super) fn unescape(quoted: &[u8], out: &mut Vec<u8>) -> Result<(), (usize, String)> {
    let mut at = 0;
    while at < quoted.len() {
        let plain = quoted[at..].iter().position(|&c| c == b'\\').unwrap_or(quoted.len() - at);
        out.extend_from_slice(&quoted[at..at + plain]);
        at += plain;
        if at == quoted.len() {
            break;
        }
        let escape = at;
        let kind = quoted[at + 1]; // the lexer lets no lone backslash through
        at += 2;
        let mut digits = |radix: u32, most: usize| {
            let (mut value, mut count) = (0u32, 0);
            while count < most
                && let Some(digit) = quoted.get(at).and_then(|&c| char::from(c).to_digit(radix))
            {
                value = value * radix + digit;
                count += 1;
                at += 1;
            }
            (value, count)
        };
        match kind {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'\\' | b'\'' | b'"' | b'?' => out.push(kind),
            b'0'..=b'7' => {
                let (rest, count) = digits(8, 2);
                let value = (u32::from(kind - b'0') << (3 * count)) + rest;
                let byte = u8::try_from(value);
                out.push(byte.map_err(|_| (escape, format!("`\\{value:o}` is more than a byte")))?);
            }
            b'x' | b'X' => match digits(16, 2) {
                (_, 0) => return Err((escape, "`\\x` needs a hexadecimal digit".into())),
                (value, _) => out.push(value as u8),
            },
            b'u' | b'U' => {
                let width = if kind == b'u' { 4 } else { 8 };
                let (mut value, count) = digits(16, width);
                if count != width {
                    let reason =
                        format!("`\\{}` needs {width} hexadecimal digits", char::from(kind));
                    return Err((escape, reason));
                }
                // Two halves of one character, as UTF-16 has them.
                if (0xd800..0xdc00).contains(&value)
                    && quoted.get(at..at + 2) == Some(b"\\u")
                    && let Some(low) = quoted.get(at + 2..at + 6)
                    && let Ok(low) = u32::from_str_radix(&String::from_utf8_lossy(low), 16)
                    && (0xdc00..0xe000).contains(&low)
                {
                    value = 0x1_0000 + ((value - 0xd800) << 10) + (low - 0xdc00);
                    at += 6;
                }
                let Some(c) = char::from_u32(value) else {
                    return Err((escape, format!("U+{value:04X} is not a character")));
                };
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => {
                let other = char::from(other).escape_default();
                return Err((escape, format!("`\\{other}` is no escape sequence")));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match lexer.next().unwrap().0 {
                Token::End => return all,
                token => all.push(token),
            }
        }
    }

    #[test]
    fn pieces() {
        use Token::{Number, Quoted, Symbol, Word};
        assert_eq!(
            tokens("a_1:-1.5e-3f#x\n 'q\\'' .5[0x1e-2"),
            [
                Word("a_1"),
                Symbol(b':'),
                Symbol(b'-'),
                Number("1.5e-3f"),
                Quoted(b"q\\'"),
                Number(".5"),
                Symbol(b'['),
                Number("0x1e"),
                Symbol(b'-'),
                Number("2"),
            ]
        );
    }

    #[test]
    fn escapes() {
        let text = br#"\a\b\f\n\r\t\v\\\'\"\?\0\12\377\x4a\x7\u00e9\U0001F600\ud83d\ude00z"#;
        let mut out = Vec::new();
        unescape(text, &mut out).unwrap();
        let wanted = b"\x07\x08\x0c\n\r\t\x0b\\'\"?\0\x0a\xff\x4a\x07\xc3\xa9";
        assert_eq!(out, [&wanted[..], "😀😀z".as_bytes()].concat());
        for wrong in [r"\400", r"\x", r"\u12", r"\ud800", r"\U00110000", r"\q"] {
            assert!(unescape(wrong.as_bytes(), &mut Vec::new()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn places_count_characters() {
        let lexer = Lexer::new("a\nüx".as_bytes());
        let Error::Text { line, column, .. } = lexer.error(4, "") else { panic!() };
        assert_eq!((line, column), (2, 2));
    }

    #[test]
    fn what_is_no_token() {
        for text in ["\"a", "\"a\nb\"", "'a\\", "\"\\\n\"", "$", "\u{e9}", "//"] {
            let mut lexer = Lexer::new(text.as_bytes());
            assert!(lexer.next().is_err(), "{text:?}");
        }
        assert!(Lexer::new(b"\xff").next().is_err());
    }
}
