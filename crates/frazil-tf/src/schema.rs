//! What a message's fields are called and what they hold: the tables behind the text format, the
//! size check and the recognition of files. The tables themselves are generated into
//! `proto/schema.rs` by `cargo xtask codegen`; this module has their types and the look-ups.

/// A message that has a table.
pub trait Described: prost::Message + Default {
    /// The table.
    const SCHEMA: &'static Message;
}

/// A message, or a map's entry.
#[derive(Debug)]
pub struct Message {
    /// TensorFlow's name, as in `AttrValue.ListValue`.
    pub name: &'static str,
    /// Bytes that one of these takes in memory before anything that it points to.
    pub size: usize,
    /// By ascending number.
    pub fields: &'static [Field],
}

/// A field of a message.
#[derive(Debug)]
pub struct Field {
    /// Its number in the binary form.
    pub number: u32,
    /// Its name in the text form.
    pub name: &'static str,
    /// Whether it may occur many times.
    pub repeated: bool,
    /// The group of fields of which only one can be set, if it is in one.
    pub oneof: Option<&'static str>,
    /// What it holds.
    pub kind: Kind,
}

/// What a field holds.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "protobuf's own names")]
pub enum Kind {
    Double,
    Float,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Bool,
    String,
    Bytes,
    Enum(&'static Enum),
    Message(&'static Message),
    /// A map: repeated messages with the fields `key` (1) and `value` (2).
    Map(&'static Message),
}

/// An enumeration.
#[derive(Debug)]
pub struct Enum {
    /// TensorFlow's name.
    pub name: &'static str,
    /// Names and numbers.
    pub values: &'static [(&'static str, i32)],
}

/// How a value is laid out in the binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Seven bits a byte.
    Varint,
    /// Eight bytes.
    Eight,
    /// A length and as many bytes.
    Length,
    /// Four bytes.
    Four,
}

impl Message {
    /// The field with this number, and its place in [`fields`](Self::fields).
    pub fn by_number(&self, number: u32) -> Option<(usize, &'static Field)> {
        let index = self.fields.binary_search_by_key(&number, |field| field.number).ok()?;
        Some((index, &self.fields[index]))
    }

    /// The field with this name, and its place in [`fields`](Self::fields).
    pub fn by_name(&self, name: &str) -> Option<(usize, &'static Field)> {
        let index = self.fields.iter().position(|field| field.name == name)?;
        Some((index, &self.fields[index]))
    }
}

impl Kind {
    /// The layout of one value.
    pub fn wire(self) -> Wire {
        match self {
            Kind::Double | Kind::Fixed64 | Kind::Sfixed64 => Wire::Eight,
            Kind::Float | Kind::Fixed32 | Kind::Sfixed32 => Wire::Four,
            Kind::String | Kind::Bytes | Kind::Message(_) | Kind::Map(_) => Wire::Length,
            _ => Wire::Varint,
        }
    }

    /// Whether a repeated field of this kind may come as one run of values.
    pub fn packs(self) -> bool {
        self.wire() != Wire::Length
    }

    /// Bytes that one value takes in memory before anything that it points to.
    pub fn size(self) -> usize {
        match self {
            Kind::Bool => 1,
            Kind::Float
            | Kind::Int32
            | Kind::Uint32
            | Kind::Sint32
            | Kind::Fixed32
            | Kind::Sfixed32
            | Kind::Enum(_) => 4,
            Kind::Double
            | Kind::Int64
            | Kind::Uint64
            | Kind::Sint64
            | Kind::Fixed64
            | Kind::Sfixed64 => 8,
            Kind::String => size_of::<String>(),
            Kind::Bytes => size_of::<bytes::Bytes>(),
            Kind::Message(message) | Kind::Map(message) => message.size,
        }
    }
}

impl Enum {
    /// The number of a name.
    pub fn number(&self, name: &str) -> Option<i32> {
        self.values.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
    }

    /// The name of a number.
    pub fn name(&self, number: i32) -> Option<&'static str> {
        self.values.iter().find(|(_, known)| *known == number).map(|&(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttrValue, GraphDef};

    #[test]
    fn tables_lead_from_message_to_message() {
        let (_, node) = GraphDef::SCHEMA.by_name("node").unwrap();
        assert!(node.repeated && node.number == 1);
        let Kind::Message(node) = node.kind else { panic!("{node:?}") };
        let (_, attr) = node.by_number(5).unwrap();
        let Kind::Map(entry) = attr.kind else { panic!("{attr:?}") };
        let Kind::Message(value) = entry.fields[1].kind else { panic!("{entry:?}") };
        assert!(std::ptr::eq(value, AttrValue::SCHEMA));
        let (_, dtype) = value.by_name("type").unwrap();
        let Kind::Enum(types) = dtype.kind else { panic!("{dtype:?}") };
        assert_eq!((types.number("DT_FLOAT"), types.name(101)), (Some(1), Some("DT_FLOAT_REF")));
        assert_eq!(dtype.oneof, Some("value"));
    }

    #[test]
    fn an_attribute_is_small() {
        // A graph has a hundred thousand of these.
        assert!(size_of::<AttrValue>() <= 64, "{}", size_of::<AttrValue>());
    }
}
