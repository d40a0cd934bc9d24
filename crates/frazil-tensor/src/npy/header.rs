//! The header of an `.npy` array: a Python dictionary with three keys, read without Python.
//!
//! The dictionary has one fixed form, so this is a scanner for that form, not for Python
//! literals at large; a general parser would bring big integers and a grammar along.

use crate::{DType, Shape};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses longer headers unless it is told to trust the file.
const LONGEST: usize = 10_000;
/// Bytes from the start of an array that surely hold its whole header.
pub(super) const PREFIX: usize = 12 + LONGEST;

/// What stands before the elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Shape,
    /// Where the elements begin.
    pub(super) data_start: usize,
}

/// How an element is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain(DType),
    /// So many bytes, padded with NUL.
    Bytes(usize),
    /// So many UTF-32 characters, padded with NUL.
    Unicode(usize),
}

/// Why a header does not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It contradicts the format.
    Malformed(String),
    /// The format allows it, but these elements are not numbers or strings.
    Descr(String),
}

impl Kind {
    pub(super) fn dtype(self) -> DType {
        match self {
            Self::Plain(dtype) => dtype,
            Self::Bytes(_) | Self::Unicode(_) => DType::String,
        }
    }

    /// Bytes of one element; `None` if they are beyond all bounds.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Self::Plain(dtype) => dtype.size(),
            Self::Bytes(width) => Some(width),
            Self::Unicode(width) => width.checked_mul(4),
        }
    }
}

impl Header {
    /// Bytes of all elements; `None` if they are beyond all bounds.
    pub(super) fn data_len(&self) -> Option<usize> {
        self.shape.elements()?.checked_mul(self.kind.size()?)
    }

    /// Reads the header at the start of `bytes`, which may end anywhere after it.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let malformed = |reason: &str| Refusal::Malformed(reason.to_owned());
        if !bytes.starts_with(MAGIC) {
            return Err(malformed("it does not begin with NumPy's magic"));
        }
        let ended = || malformed("it ends within the header");
        let major = *bytes.get(6).ok_or_else(ended)?;
        let (at, len) = match major {
            1 => {
                let len = bytes.get(8..10).ok_or_else(ended)?;
                (10, usize::from(u16::from_le_bytes([len[0], len[1]])))
            }
            2 | 3 => {
                let len = bytes.get(8..12).ok_or_else(ended)?;
                (12, u32::from_le_bytes([len[0], len[1], len[2], len[3]]) as usize)
            }
            other => {
                return Err(Refusal::Malformed(format!("format version {other} is not known")));
            }
        };
        if len > LONGEST {
            return Err(Refusal::Malformed(format!(
                "its header of {len} bytes is longer than NumPy accepts"
            )));
        }
        let text = bytes.get(at..at + len).ok_or_else(ended)?;
        let mut scan = Scanner { rest: text };
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        scan.expect(b'{')?;
        while !scan.eat(b'}') {
            let key = scan.string()?;
            scan.expect(b':')?;
            match key.as_str() {
                "descr" => descr = Some(scan.descr()?),
                "fortran_order" => fortran = Some(scan.boolean()?),
                "shape" => shape = Some(scan.tuple()?),
                other => {
                    return Err(Refusal::Malformed(format!("its header has a key `{other}`")));
                }
            }
            if !scan.eat(b',') {
                scan.expect(b'}')?;
                break;
            }
        }
        let (Some(descr), Some(fortran), Some(shape)) = (descr, fortran, shape) else {
            return Err(malformed("its header lacks `descr`, `fortran_order` or `shape`"));
        };
        let (kind, big_endian) = element(&descr).ok_or(Refusal::Descr(descr))?;
        Ok(Self { kind, big_endian, fortran, shape, data_start: at + len })
    }

    /// The header that goes before the elements of a plain, row-major array.
    pub(super) fn encode(descr: &str, shape: &Shape) -> Vec<u8> {
        let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (");
        for (i, dim) in shape.iter().enumerate() {
            if i > 0 {
                text.push_str(", ");
            }
            text.push_str(&dim.to_string());
        }
        // `(3)` is a number in Python, `(3,)` a tuple.
        text.push_str(if shape.len() == 1 { ",), }" } else { "), }" });
        // Elements begin at a multiple of 64, so that a mapped array is aligned.
        let wide = text.len() + 74 > usize::from(u16::MAX);
        let before = if wide { 12 } else { 10 };
        let padded = (before + text.len() + 1).next_multiple_of(64) - before;
        text.extend(std::iter::repeat_n(' ', padded - text.len() - 1));
        text.push('\n');
        let mut header = MAGIC.to_vec();
        if wide {
            header.extend_from_slice(&[2, 0]);
            header.extend_from_slice(&(padded as u32).to_le_bytes());
        } else {
            header.extend_from_slice(&[1, 0]);
            header.extend_from_slice(&(padded as u16).to_le_bytes());
        }
        header.extend_from_slice(text.as_bytes());
        header
    }
}

/// NumPy's letter and size of each plain type; everything else is read off this table.
const PLAIN: [(&str, DType); 14] = [
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
    ("b1", DType::Bool),
    ("c8", DType::C64),
    ("c16", DType::C128),
];

/// `<f4` for example; `None` for types that NumPy lacks.
pub(super) fn descr(dtype: DType) -> Option<String> {
    let (letter, _) = PLAIN.iter().find(|(_, plain)| *plain == dtype)?;
    let order = if dtype.size() == Some(1) { '|' } else { '<' };
    Some(format!("{order}{letter}"))
}

/// The element of a `descr`, and whether it is big-endian.
fn element(descr: &str) -> Option<(Kind, bool)> {
    let order = descr.chars().next()?;
    let big_endian = match order {
        '<' | '|' | '=' => false,
        '>' => true,
        _ => return None,
    };
    let letter = &descr[1..];
    if let Some(&(_, dtype)) = PLAIN.iter().find(|(plain, _)| *plain == letter) {
        return Some((Kind::Plain(dtype), big_endian));
    }
    let width = letter.get(1..).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    let width = width?.parse().ok()?;
    match letter.as_bytes()[0] {
        b'S' | b'a' => Some((Kind::Bytes(width), false)),
        b'U' => Some((Kind::Unicode(width), big_endian)),
        _ => None,
    }
}

struct Scanner<'a> {
    rest: &'a [u8],
}

impl Scanner<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    fn eat(&mut self, wanted: u8) -> bool {
        self.skip_space();
        match self.rest.split_first() {
            Some((&first, rest)) if first == wanted => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, wanted: u8) -> Result<(), Refusal> {
        if self.eat(wanted) {
            Ok(())
        } else {
            Err(self.unexpected(&format!("`{}`", wanted as char)))
        }
    }

    fn unexpected(&self, wanted: &str) -> Refusal {
        let found = match self.rest.first() {
            Some(byte) => format!("`{}`", byte.escape_ascii()),
            None => "its end".to_owned(),
        };
        Refusal::Malformed(format!("its header has {found} where {wanted} should be"))
    }

    fn string(&mut self) -> Result<String, Refusal> {
        self.skip_space();
        let quote = match self.rest.first() {
            Some(&quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.unexpected("a string")),
        };
        let Some(end) = self.rest[1..].iter().position(|&byte| byte == quote) else {
            return Err(Refusal::Malformed("a string in its header has no end".into()));
        };
        let text = String::from_utf8_lossy(&self.rest[1..=end]).into_owned();
        self.rest = &self.rest[end + 2..];
        Ok(text)
    }

    /// A type string; a record's field list comes back as the text that it is.
    fn descr(&mut self) -> Result<String, Refusal> {
        self.skip_space();
        if self.rest.first() != Some(&b'[') {
            return self.string();
        }
        let mut depth = 0usize;
        for (i, byte) in self.rest.iter().enumerate() {
            match byte {
                b'[' => depth += 1,
                b']' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let text = String::from_utf8_lossy(&self.rest[..=i]).into_owned();
                self.rest = &self.rest[i + 1..];
                return Ok(text);
            }
        }
        Err(Refusal::Malformed("a list in its header has no end".into()))
    }

    fn boolean(&mut self) -> Result<bool, Refusal> {
        self.skip_space();
        for (word, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(word.as_bytes()) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err(self.unexpected("`True` or `False`"))
    }

    fn tuple(&mut self) -> Result<Shape, Refusal> {
        self.expect(b'(')?;
        let mut dims = Vec::new();
        while !self.eat(b')') {
            dims.push(self.extent()?);
            if !self.eat(b',') {
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims.into())
    }

    fn extent(&mut self) -> Result<usize, Refusal> {
        self.skip_space();
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Err(self.unexpected("an extent"));
        }
        let (number, rest) = self.rest.split_at(digits);
        let mut value = 0usize;
        for digit in number {
            value = value
                .checked_mul(10)
                .and_then(|v| v.checked_add(usize::from(digit - b'0')))
                .ok_or_else(|| Refusal::Malformed("an extent is beyond all bounds".into()))?;
        }
        // Python 2 wrote long integers as `3L`.
        self.rest = rest.strip_prefix(b"L").unwrap_or(rest);
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v1(text: &str) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    }

    #[test]
    fn the_forms_that_numpy_has_written() {
        for text in [
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   \n",
            "{'shape': (2L, 3L), 'fortran_order': False, 'descr': '<f4'}",
            "{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(2,3,)}",
        ] {
            let header = Header::parse(&v1(text)).unwrap();
            assert_eq!(header.kind, Kind::Plain(DType::F32));
            assert_eq!(header.shape, Shape::from([2, 3]));
            assert_eq!(header.data_start, 10 + text.len());
        }
        let scalar = "{'descr': '>U7', 'fortran_order': True, 'shape': (), }";
        let header = Header::parse(&v1(scalar)).unwrap();
        assert_eq!((header.kind, header.big_endian), (Kind::Unicode(7), true));
        assert!(header.fortran && header.shape.is_empty());
    }

    #[test]
    fn what_is_written_is_read() {
        for dims in [vec![], vec![7], vec![2, 0, 5], vec![1; 30_000]] {
            let shape = Shape::from(dims);
            let bytes = Header::encode("<i8", &shape);
            assert_eq!(bytes.len() % 64, 0);
            match Header::parse(&bytes) {
                Ok(header) => {
                    assert_eq!((header.shape, header.data_start), (shape, bytes.len()));
                }
                Err(refusal) => {
                    assert!(shape.len() == 30_000, "{refusal:?}");
                    assert_eq!(bytes[6], 2);
                }
            }
        }
    }

    #[test]
    fn other_types_are_named() {
        for (value, name) in [
            ("'|O'", "|O"),
            ("'<V2'", "<V2"),
            ("'<M8[ns]'", "<M8[ns]"),
            ("[('a', '<f4'), ('b', [('c', '<i4')])]", "[('a', '<f4'), ('b', [('c', '<i4')])]"),
        ] {
            let text = format!("{{'descr': {value}, 'fortran_order': False, 'shape': (1,), }}");
            assert_eq!(Header::parse(&v1(&text)), Err(Refusal::Descr(name.into())));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
        let bytes = v1(good);
        for end in 0..bytes.len() {
            assert!(matches!(Header::parse(&bytes[..end]), Err(Refusal::Malformed(_))));
            let cut = v1(&good[..end.saturating_sub(10)]);
            assert!(
                end == bytes.len() || matches!(Header::parse(&cut), Err(Refusal::Malformed(_)))
            );
        }
        for text in [
            "{'descr': '', 'fortran_order': False, 'shape': ()}",
            "{'descr': 'é4', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<é', 'fortran_order': False, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': 1, 'shape': ()}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'extra': 1}",
            "{'descr': [[[[, 'fortran_order': False, 'shape': (1,)}",
        ] {
            assert!(Header::parse(&v1(text)).is_err(), "{text}");
        }
        let mut long = b"\x93NUMPY\x02\x00".to_vec();
        long.extend_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(Header::parse(&long), Err(Refusal::Malformed(_))));
    }
}
