//! Decoding with a bound on memory. Two bytes can say "an empty message here" where the decoded
//! message takes two hundred, so a few hostile megabytes could fill a machine. Before prost sees
//! the bytes, a walk over them adds up what the result will take, with the tables of
//! [`schema`](crate::schema), and refuses what the file's size cannot justify.

use bytes::Bytes;

use crate::schema::{Described, Field, Kind, Message, Wire};
use crate::wire::{self, Broken, MAX_DEPTH, RawField, RawValue, Reader};
use crate::{Error, Result};

/// What any file may take in memory …
const FREE: u64 = 64 << 20;
/// … and on top of that, for each byte of the file.
const PER_BYTE: u64 = 4;

/// Decodes a message. Its byte fields are windows on `bytes`.
pub fn decode<M: Described>(bytes: Bytes) -> Result<M> {
    let limit = FREE + PER_BYTE * bytes.len() as u64;
    let mut walk = Walk { limit, ..Walk::default() };
    let message = M::SCHEMA.name;
    match walk.message(Reader::new(&bytes), M::SCHEMA, 0) {
        Ok(()) => {}
        Err(Stop::Broken(Broken::Cut { needed, available, .. })) => {
            return Err(Error::Truncated { what: message, needed, available });
        }
        Err(Stop::Broken(Broken::Wrong { at, reason })) => {
            return Err(Error::Corrupt { what: message, at: at as u64, reason });
        }
        Err(Stop::Limit) => return Err(Error::Inflated { message, limit }),
    }
    M::decode(bytes).map_err(|source| Error::Proto { message, source })
}

/// How likely it is that bytes are a message of this kind: looks at the first few hundred fields
/// and wants every one of them to be known, of the right kind and, where it is text, readable.
/// A file that is cut off counts if it made sense until then.
pub fn plausible(bytes: &[u8], schema: &'static Message) -> bool {
    const ENOUGH: u64 = 500;
    let mut walk = Walk { limit: u64::MAX, strict: Some(ENOUGH), ..Walk::default() };
    match walk.message(Reader::new(bytes), schema, 0) {
        Ok(()) => walk.fields > 0,
        Err(Stop::Limit) => true,
        Err(Stop::Broken(Broken::Cut { .. })) => walk.fields >= 8,
        Err(Stop::Broken(Broken::Wrong { .. })) => false,
    }
}

#[derive(Default)]
struct Walk {
    /// Bytes of memory so far, and the most there may be.
    cost: u64,
    limit: u64,
    /// Fields so far, and in a strict walk the number that suffices.
    fields: u64,
    strict: Option<u64>,
    /// Fields that a later TensorFlow may have added.
    newer: u64,
}

enum Stop {
    Broken(Broken),
    Limit,
}

impl From<Broken> for Stop {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

fn wrong(at: usize, reason: String) -> Stop {
    Stop::Broken(Broken::Wrong { at, reason })
}

impl Walk {
    fn message(
        &mut self,
        mut reader: Reader<'_>,
        schema: &'static Message,
        depth: usize,
    ) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            return Err(wrong(reader.at(), wire::too_deep()));
        }
        let mut seen = 0u128;
        while let Some(raw) = reader.field()? {
            self.fields += 1;
            if self.strict.is_some_and(|enough| self.fields > enough) {
                return Err(Stop::Limit);
            }
            let Some((index, field)) = schema.by_number(raw.number) else {
                if self.strict.is_some() && !self.is_newer(raw.number, schema) {
                    return Err(wrong(raw.at, format!("unknown field {}", raw.number)));
                }
                continue;
            };
            let first = seen & (1 << index) == 0;
            seen |= 1 << index;
            if self.strict.is_some() && !first && !field.repeated {
                return Err(wrong(raw.at, format!("two fields `{}`", field.name)));
            }
            self.field(raw, field, first, schema, depth)?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        raw: RawField<'_>,
        field: &'static Field,
        first: bool,
        schema: &'static Message,
        depth: usize,
    ) -> Result<(), Stop> {
        let kind = field.kind;
        let size = kind.size() as u64;
        match raw.value {
            RawValue::Length(content) => match kind {
                Kind::Message(inner) => {
                    self.add(match (field.repeated, first) {
                        (true, true) => 4 * size,
                        (true, false) => 2 * size,
                        (false, _) => size,
                    })?;
                    self.message(content, inner, depth + 1)
                }
                Kind::Map(entry) => {
                    // A B-tree's node has room for eleven and is half full at least.
                    self.add(if first { 12 * size } else { 3 * size })?;
                    self.message(content, entry, depth + 1)
                }
                Kind::String => {
                    if self.strict.is_some() && !is_text(content.rest()) {
                        return Err(wrong(raw.at, format!("`{}` is not text", field.name)));
                    }
                    self.add(4 * size + content.rest().len() as u64)
                }
                // A window on the file.
                Kind::Bytes => self.add(if field.repeated { 4 * size } else { 0 }),
                _ if field.repeated => self.packed(content, kind),
                _ => Err(mismatch(raw.at, field, schema)),
            },
            value if value.wire() == Some(kind.wire()) => {
                self.add(if field.repeated { 4 * size } else { 0 })
            }
            _ => Err(mismatch(raw.at, field, schema)),
        }
    }

    /// Whether an unknown field may be one that a later TensorFlow added: they get the next
    /// numbers, and they are few.
    fn is_newer(&mut self, number: u32, schema: &'static Message) -> bool {
        self.newer += 1;
        let last = schema.fields.last().map_or(0, |field| field.number);
        (last + 1..=last + 16).contains(&number) && self.newer * 4 <= self.fields
    }

    fn packed(&mut self, content: Reader<'_>, kind: Kind) -> Result<(), Stop> {
        let bytes = content.rest();
        let count = match kind.wire() {
            Wire::Varint => bytes.iter().filter(|&&byte| byte < 0x80).count(),
            Wire::Eight => bytes.len() / 8,
            _ => bytes.len() / 4,
        };
        self.add(2 * (count as u64 + 4) * kind.size() as u64)
    }

    fn add(&mut self, cost: u64) -> Result<(), Stop> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit { Err(Stop::Limit) } else { Ok(()) }
    }
}

/// UTF-8, and no control characters: another kind's message within a string has those.
fn is_text(bytes: &[u8]) -> bool {
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    str::from_utf8(bytes).is_ok_and(|text| !text.contains(odd))
}

fn mismatch(at: usize, field: &Field, schema: &Message) -> Stop {
    let kind = match field.kind {
        Kind::Message(inner) => inner.name,
        Kind::Map(_) => "map entry",
        Kind::Enum(inner) => inner.name,
        Kind::String => "string",
        Kind::Bytes => "byte string",
        _ => "number",
    };
    wrong(at, format!("field `{}` of {} does not hold a {kind}", field.name, schema.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AttrValue, GraphDef, NodeDef, TensorProto, attr_value::Value};
    use prost::Message as _;

    fn graph() -> GraphDef {
        let tensor = TensorProto { tensor_content: vec![7u8; 4096].into(), ..Default::default() };
        let attr = AttrValue { value: Some(Value::Tensor(Box::new(tensor))) };
        let node = NodeDef {
            name: "a".into(),
            op: "Const".into(),
            attr: [("value".to_owned(), attr)].into(),
            ..Default::default()
        };
        GraphDef { node: vec![node; 20], ..Default::default() }
    }

    #[test]
    fn byte_fields_are_windows() {
        let bytes = Bytes::from(graph().encode_to_vec());
        let decoded: GraphDef = decode(bytes.clone()).unwrap();
        assert_eq!(decoded, graph());
        let Some(Value::Tensor(tensor)) = &decoded.node[3].attr["value"].value else { panic!() };
        assert!(bytes.as_ptr_range().contains(&tensor.tensor_content.as_ptr()));
    }

    #[test]
    fn empty_messages_do_not_fill_the_memory() {
        // Two bytes an empty node; three bytes an empty shape in a list in one attribute.
        let nodes = [0x0a, 0x00].repeat(4 << 20);
        assert!(matches!(decode::<GraphDef>(nodes.into()), Err(Error::Inflated { .. })));
        let few = [0x0a, 0x00].repeat(1000);
        assert_eq!(decode::<GraphDef>(few.into()).unwrap().node.len(), 1000);
        let numbers = vec![1u8; 32 << 20];
        let packed = TensorProto { tensor_content: numbers.into(), ..Default::default() };
        let mut bytes = packed.encode_to_vec();
        bytes[0] = (10 << 3) | 2; // `int64_val` instead of `tensor_content`
        assert!(matches!(decode::<TensorProto>(bytes.into()), Err(Error::Inflated { .. })));
    }

    #[test]
    fn what_is_cut_or_wrong_says_so() {
        let bytes = Bytes::from(graph().encode_to_vec());
        let cut = decode::<GraphDef>(bytes.slice(..bytes.len() - 1));
        assert!(matches!(cut, Err(Error::Truncated { what: "GraphDef", .. })), "{cut:?}");
        let wrong = decode::<GraphDef>(Bytes::from_static(b"\x08\x01"));
        let Err(Error::Corrupt { reason, at: 0, .. }) = wrong else { panic!("{wrong:?}") };
        assert_eq!(reason, "field `node` of GraphDef does not hold a NodeDef");
    }

    #[test]
    fn depth_is_bounded() {
        // A function attribute within a function attribute …
        let mut bytes = Vec::new();
        for _ in 0..200 {
            let attr = [b"\x12".as_slice(), &varint(bytes.len()), &bytes].concat(); // entry.value
            let list = [b"\x12".as_slice(), &varint(attr.len()), &attr].concat(); // func.attr
            bytes = [b"\x52".as_slice(), &varint(list.len()), &list].concat(); // value.func
        }
        let error = decode::<AttrValue>(bytes.into()).unwrap_err().to_string();
        assert!(error.contains("deep"), "{error}");
    }

    fn varint(n: usize) -> Vec<u8> {
        let mut out = Vec::new();
        prost::encoding::encode_varint(n as u64, &mut out);
        out
    }

    #[test]
    fn real_graphs_stay_far_below_the_limit() {
        // The largest graphs of BERTs have four times as many nodes as this one.
        let file = "data/checkpoints/google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta";
        let Some(path) = frazil_tensor::testing::shared(file) else { return };
        let bytes = std::fs::read(path).unwrap();
        let mut walk = Walk { limit: u64::MAX, ..Walk::default() };
        let schema = crate::proto::MetaGraphDef::SCHEMA;
        assert!(walk.message(Reader::new(&bytes), schema, 0).is_ok());
        assert!(walk.cost < FREE / 4, "{} MiB", walk.cost >> 20);
    }

    #[test]
    fn plausibility_tells_kinds_apart() {
        let bytes = graph().encode_to_vec();
        // What a later TensorFlow adds does not hide the kind; a stranger's fields do.
        let newer = [&bytes[..], b"\x30\x01"].concat();
        assert!(plausible(&newer, GraphDef::SCHEMA));
        let stranger = [&bytes[..], b"\xf8\x07\x01"].concat();
        assert!(!plausible(&stranger, GraphDef::SCHEMA));
        assert!(plausible(&bytes, GraphDef::SCHEMA));
        assert!(plausible(&bytes[..bytes.len() / 2], GraphDef::SCHEMA));
        assert!(!plausible(&bytes, crate::proto::MetaGraphDef::SCHEMA));
        assert!(!plausible(&bytes, crate::proto::SavedModel::SCHEMA));
        assert!(!plausible(b"", GraphDef::SCHEMA));
    }
}
