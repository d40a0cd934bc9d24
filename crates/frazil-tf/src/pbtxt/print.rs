//! Binary to text, laid out as TensorFlow 1.15 lays it out: two spaces a level, one value a
//! line, fields by number, map entries by key, floats as Python's `repr`, bytes beyond ASCII as
//! three octal digits.

use super::number::print_float;
use crate::schema::{Field, Kind, Message};
use crate::wire::{RawField, RawValue, Reader};

/// The text of a message that prost encoded (maps sorted, nothing unknown in it).
pub(super) fn to_text(binary: &[u8], schema: &'static Message) -> String {
    let mut printer = Printer { out: String::with_capacity(2 * binary.len()), indent: 0 };
    printer.message(Reader::new(binary), schema);
    printer.out
}

const OURS: &str = "prost encoded these bytes";

struct Printer {
    out: String,
    indent: usize,
}

impl Printer {
    fn message(&mut self, reader: Reader<'_>, schema: &'static Message) {
        for raw in sorted(reader) {
            let Some((_, field)) = schema.by_number(raw.number) else { continue };
            match raw.value {
                RawValue::Length(mut run) if field.kind.packs() => {
                    while let Some(value) = run.packed(field.kind.wire()).expect(OURS) {
                        self.field(field, value);
                    }
                }
                value => self.field(field, value),
            }
        }
    }

    fn field(&mut self, field: &'static Field, value: RawValue<'_>) {
        self.begin(field.name);
        match (field.kind, value) {
            (Kind::Message(inner), RawValue::Length(content)) => {
                self.open();
                self.message(content, inner);
                self.close();
            }
            (Kind::Map(entry), RawValue::Length(content)) => {
                self.open();
                self.message(content, entry);
                // prost leaves out a value that is an empty message; TensorFlow prints it.
                let value = &entry.fields[1];
                if matches!(value.kind, Kind::Message(_))
                    && !sorted(content).iter().any(|raw| raw.number == value.number)
                {
                    self.begin(value.name);
                    self.open();
                    self.close();
                }
                self.close();
            }
            (kind, value) => {
                self.out.push_str(": ");
                self.scalar(kind, value);
                self.out.push('\n');
            }
        }
    }

    fn scalar(&mut self, kind: Kind, value: RawValue<'_>) {
        let out = &mut self.out;
        match (kind, value) {
            (Kind::String | Kind::Bytes, RawValue::Length(content)) => escape(content.rest(), out),
            (Kind::Double, RawValue::Eight(bytes)) => print_float(f64::from_le_bytes(bytes), out),
            (Kind::Float, RawValue::Four(bytes)) => {
                print_float(f32::from_le_bytes(bytes).into(), out);
            }
            (Kind::Bool, RawValue::Varint(value)) => {
                out.push_str(if value == 0 { "false" } else { "true" });
            }
            (Kind::Enum(names), RawValue::Varint(value)) => match names.name(value as i32) {
                Some(name) => out.push_str(name),
                None => out.push_str(&(value as i32).to_string()),
            },
            (Kind::Sint32 | Kind::Sint64, RawValue::Varint(value)) => {
                let value = (value >> 1) as i64 ^ -((value & 1) as i64);
                out.push_str(&value.to_string());
            }
            (Kind::Uint32 | Kind::Uint64, RawValue::Varint(value)) => {
                out.push_str(&value.to_string());
            }
            (_, RawValue::Varint(value)) => out.push_str(&(value as i64).to_string()),
            (Kind::Sfixed32, RawValue::Four(bytes)) => {
                out.push_str(&i32::from_le_bytes(bytes).to_string());
            }
            (_, RawValue::Four(bytes)) => out.push_str(&u32::from_le_bytes(bytes).to_string()),
            (Kind::Sfixed64, RawValue::Eight(bytes)) => {
                out.push_str(&i64::from_le_bytes(bytes).to_string());
            }
            (_, RawValue::Eight(bytes)) => out.push_str(&u64::from_le_bytes(bytes).to_string()),
            (_, RawValue::Length(_) | RawValue::Group) => unreachable!("{OURS}"),
        }
    }

    fn begin(&mut self, name: &str) {
        for _ in 0..self.indent {
            self.out.push_str("  ");
        }
        self.out.push_str(name);
    }

    fn open(&mut self) {
        self.out.push_str(" {\n");
        self.indent += 1;
    }

    fn close(&mut self) {
        self.indent -= 1;
        self.begin("}\n");
    }
}

/// A message's fields by number; prost encodes a oneof at the place of its lowest member.
fn sorted(mut reader: Reader<'_>) -> Vec<RawField<'_>> {
    let mut fields = Vec::new();
    while let Some(raw) = reader.field().expect(OURS) {
        fields.push(raw);
    }
    fields.sort_by_key(|raw| raw.number);
    fields
}

fn escape(bytes: &[u8], out: &mut String) {
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'"' | b'\'' | b'\\' => {
                out.push('\\');
                out.push(byte.into());
            }
            b' '..=b'~' => out.push(byte.into()),
            _ => {
                out.push('\\');
                for shift in [6, 3, 0] {
                    out.push(char::from(b'0' + (byte >> shift & 7)));
                }
            }
        }
    }
    out.push('"');
}
