//! The binary form of messages, field by field, without decoding: what the size check, the
//! recognition of files and the text printer walk over. Values with a length are stepped over,
//! not read, so a walk over a 400 MB graph touches its field headers only.

use crate::schema::Wire;

/// Messages within messages beyond this depth are refused; protobuf's own limit.
pub(crate) const MAX_DEPTH: usize = 100;

/// One field as it lies in the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawField<'a> {
    pub number: u32,
    /// Where the field's header begins.
    pub at: usize,
    pub value: RawValue<'a>,
}

/// A field's value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawValue<'a> {
    Varint(u64),
    Eight([u8; 8]),
    Length(Reader<'a>),
    Four([u8; 4]),
    /// The deprecated way of nesting; no TensorFlow message has one, and it is stepped over.
    Group,
}

impl RawValue<'_> {
    pub fn wire(&self) -> Option<Wire> {
        match self {
            RawValue::Varint(_) => Some(Wire::Varint),
            RawValue::Eight(_) => Some(Wire::Eight),
            RawValue::Length(_) => Some(Wire::Length),
            RawValue::Four(_) => Some(Wire::Four),
            RawValue::Group => None,
        }
    }
}

/// Why the bytes are not a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// A value ends after the data does.
    Cut { at: usize, needed: u64, available: u64 },
    /// The structure makes no sense.
    Wrong { at: usize, reason: String },
}

fn wrong(at: usize, reason: impl Into<String>) -> Broken {
    Broken::Wrong { at, reason: reason.into() }
}

/// A position in a message's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    /// Offset of `rest` from the start of the outermost message.
    at: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { at: 0, rest: bytes }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next field; `None` at the end.
    pub fn field(&mut self) -> Result<Option<RawField<'a>>, Broken> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let (number, wire_type) = self.header()?;
        let value = match wire_type {
            3 => {
                self.skip_group(number)?;
                RawValue::Group
            }
            4 => return Err(wrong(at, "a group ends that did not begin")),
            _ => self.value(wire_type)?,
        };
        Ok(Some(RawField { number, at, value }))
    }

    /// The next value of a packed run.
    pub fn packed(&mut self, wire: Wire) -> Result<Option<RawValue<'a>>, Broken> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        Ok(Some(match wire {
            Wire::Varint => RawValue::Varint(self.varint()?),
            Wire::Eight => RawValue::Eight(self.array()?),
            Wire::Four => RawValue::Four(self.array()?),
            Wire::Length => return Err(wrong(self.at, "values with a length do not pack")),
        }))
    }

    fn header(&mut self) -> Result<(u32, u32), Broken> {
        let at = self.at;
        let header = self.varint()?;
        let header = u32::try_from(header).map_err(|_| wrong(at, "a field number is too large"))?;
        if header >> 3 == 0 {
            return Err(wrong(at, "a field has number 0"));
        }
        Ok((header >> 3, header & 7))
    }

    fn value(&mut self, wire_type: u32) -> Result<RawValue<'a>, Broken> {
        Ok(match wire_type {
            0 => RawValue::Varint(self.varint()?),
            1 => RawValue::Eight(self.array()?),
            2 => {
                let at = self.at;
                let needed = self.varint()?;
                let available = self.rest.len() as u64;
                if needed > available {
                    return Err(Broken::Cut { at, needed, available });
                }
                RawValue::Length(self.split(needed as usize))
            }
            5 => RawValue::Four(self.array()?),
            other => return Err(wrong(self.at, format!("{other} is no wire type"))),
        })
    }

    fn split(&mut self, length: usize) -> Self {
        let (head, rest) = self.rest.split_at(length);
        let part = Self { at: self.at, rest: head };
        self.rest = rest;
        self.at += length;
        part
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        let Some((&array, rest)) = self.rest.split_first_chunk::<N>() else {
            let (needed, available) = (N as u64, self.rest.len() as u64);
            return Err(Broken::Cut { at: self.at, needed, available });
        };
        self.rest = rest;
        self.at += N;
        Ok(array)
    }

    fn varint(&mut self) -> Result<u64, Broken> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            if i == 9 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[i + 1..];
                self.at += i + 1;
                return Ok(value);
            }
        }
        if self.rest.len() < 10 {
            let available = self.rest.len() as u64;
            return Err(Broken::Cut { at: self.at, needed: available + 1, available });
        }
        Err(wrong(self.at, "a number has more than 64 bits"))
    }

    fn skip_group(&mut self, number: u32) -> Result<(), Broken> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let at = self.at;
            let (number, wire_type) = self.header()?;
            match wire_type {
                3 if open.len() == MAX_DEPTH => return Err(wrong(at, too_deep())),
                3 => open.push(number),
                4 if number == innermost => drop(open.pop()),
                4 => return Err(wrong(at, "a group ends that did not begin")),
                _ => drop(self.value(wire_type)?),
            }
        }
        Ok(())
    }
}

/// The reason for refusing depth.
pub(crate) fn too_deep() -> String {
    format!("messages are nested more than {MAX_DEPTH} deep")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Option<Wire>)>, Broken> {
        let mut reader = Reader::new(bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.field()? {
            fields.push((field.number, field.value.wire()));
        }
        Ok(fields)
    }

    #[test]
    fn fields_of_every_wire_type() {
        let bytes = b"\x08\x96\x01\x11abcdefgh\x1a\x02hi\x25abcd\x2b\x08\x01\x2c";
        assert_eq!(
            all(bytes).unwrap(),
            [
                (1, Some(Wire::Varint)),
                (2, Some(Wire::Eight)),
                (3, Some(Wire::Length)),
                (4, Some(Wire::Four)),
                (5, None)
            ]
        );
    }

    #[test]
    fn every_prefix_is_cut_or_whole() {
        let bytes = b"\x08\x96\x01\x11abcdefgh\x1a\x02hi\x25abcd";
        let ends = [0, 3, 12, 16, 21];
        for end in 0..=bytes.len() {
            let cut = matches!(all(&bytes[..end]), Err(Broken::Cut { .. }));
            assert_eq!(cut, !ends.contains(&end), "{end}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let wrong: [&[u8]; 6] = [
            b"\x00\x01",                                     // field 0
            b"\x0c",                                         // an end without a start
            b"\x0f\x00",                                     // wire type 7
            b"\x0b\x14",                                     // another group's end
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", // 65 bits
            &[0x0b; 300],                                    // groups without end
        ];
        for bytes in wrong {
            assert!(matches!(all(bytes), Err(Broken::Wrong { .. })), "{bytes:x?}");
        }
    }
}
