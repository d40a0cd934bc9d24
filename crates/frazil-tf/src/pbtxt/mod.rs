//! Protobuf's text format, as in `graph.pbtxt`, `saved_model.pbtxt` and `checkpoint`.
//!
//! The parser turns text into the message's binary form, the printer the binary form into text;
//! both are driven by the tables of [`schema`](crate::schema), and prost does the rest. Text is
//! printed byte for byte as TensorFlow 1.15 does it, with each `float` as the `double` that it
//! is; it is parsed as liberally as protobuf's own parsers do together. Left out: extensions and
//! the expanded form of `Any`, which TensorFlow's files do not have (an `Any` is read and written
//! as its two fields).

mod lex;
mod number;
mod parse;
mod print;

use bytes::Bytes;

use crate::schema::Described;
use crate::{Result, decode};

/// The message that a text describes. Errors tell line and column.
pub fn parse<M: Described>(text: &str) -> Result<M> {
    parse_bytes(text.as_bytes())
}

/// [`parse`] for a file's bytes: raw bytes in a `bytes` field need not be UTF-8.
pub fn parse_bytes<M: Described>(text: &[u8]) -> Result<M> {
    let binary = parse::to_binary(text, M::SCHEMA)?;
    decode::decode(Bytes::from(binary))
}

/// The text of a message, as TensorFlow 1.15 writes it.
pub fn print<M: Described>(message: &M) -> String {
    print::to_text(&message.encode_to_vec(), M::SCHEMA)
}

/// A floating-point number as these texts have it, which is as Python prints it: `1.0`, `1e-05`.
pub fn float_text(value: f64) -> String {
    let mut text = String::new();
    number::print_float(value, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::proto::{
        AttrValue, FunctionDef, GraphDef, NodeDef, SaverDef, StructuredValue, TensorProto,
        attr_value::Value, structured_value::Kind,
    };

    fn reason<M: Described + std::fmt::Debug>(text: &str) -> (usize, usize, String) {
        match parse::<M>(text) {
            Err(Error::Text { line, column, reason }) => (line, column, reason),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn all_the_ways_to_write_the_same() {
        let plain = parse::<GraphDef>(
            "node {\n  name: \"a\"\n  op: \"Const\"\n  input: \"x\"\n  input: \"y\"\n}\n\
             node {\n  name: \"b\"\n}\nversions {\n  producer: 24\n  bad_consumers: 1\n}\n",
        )
        .unwrap();
        let odd = "\u{feff}# a comment\nnode: < name: 'a', op: \"Co\" # in between\n 'ns' \"t\";\
                   input: ['x', \"y\"] >\nnode [ { name: \"\\142\" } ] \
                   versions: { producer: 0x18; bad_consumers: [01] }";
        assert_eq!(parse::<GraphDef>(odd).unwrap(), plain);
        assert_eq!(parse::<GraphDef>("").unwrap(), GraphDef::default());
        assert_eq!(parse::<GraphDef>("node: []").unwrap(), GraphDef::default());
    }

    #[test]
    fn values_of_every_kind() {
        let tensor: TensorProto = parse(
            "dtype: DT_FLOAT float_val: [1, -2.5, 1e-3f, inf, -Infinity, nan, .5] \
             double_val: - 3.0 int_val: -2147483648 int64_val: 9223372036854775807 \
             uint64_val: 18446744073709551615 bool_val: [true, t, 1, True, false, f, 0] \
             tensor_content: \"\\000\\377\\x41\" \"B\"",
        )
        .unwrap();
        assert_eq!(tensor.dtype, 1);
        assert_eq!(tensor.float_val[..5], [1.0, -2.5, 1e-3, f32::INFINITY, f32::NEG_INFINITY]);
        assert!(tensor.float_val[5].is_nan());
        assert_eq!(tensor.double_val, [-3.0]);
        assert_eq!((tensor.int_val[0], tensor.int64_val[0]), (i32::MIN, i64::MAX));
        assert_eq!(tensor.uint64_val, [u64::MAX]);
        assert_eq!(tensor.bool_val, [true, true, true, true, false, false, false]);
        assert_eq!(&tensor.tensor_content[..], b"\0\xffAB");
        // An enum by number, known or not; a sint64; a map with its parts in any order.
        assert_eq!(parse::<TensorProto>("dtype: 101").unwrap().dtype, 101);
        assert_eq!(parse::<TensorProto>("dtype: -7").unwrap().dtype, -7);
        let value: StructuredValue = parse("int64_value: -5").unwrap();
        assert_eq!(value.kind, Some(Kind::Int64Value(-5)));
        let node: NodeDef = parse("attr { value { i: 3 } key: 'k' } attr { key: 'e' }").unwrap();
        assert_eq!(node.attr["k"], AttrValue { value: Some(Value::I(3)) });
        assert_eq!(node.attr["e"], AttrValue::default());
        // Raw bytes in a `bytes` field.
        let tensor: TensorProto = parse_bytes(b"tensor_content: \"\xff\"").unwrap();
        assert_eq!(&tensor.tensor_content[..], b"\xff");
    }

    #[test]
    fn errors_say_where_and_what() {
        let cases = [
            ("nodes {", (1, 1, "GraphDef has no field `nodes`; did you mean `node`?")),
            ("node {\n  nane: 1\n}", (2, 3, "NodeDef has no field `nane`; did you mean `name`?")),
            ("zzz: 1", (1, 1, "GraphDef has no field `zzz`")),
            ("node { name: 1 }", (1, 14, "expected a string for `name`, found `1`")),
            ("node { name \"x\" }", (1, 13, "expected `:` after `name`, found a string")),
            ("node { name: \"a\" name: \"b\" }", (1, 18, "field `name` of NodeDef is given twice")),
            ("node {", (1, 7, "expected a field of NodeDef or `}`, found the end of the text")),
            ("node { >", (1, 8, "expected a field of NodeDef or `}`, found `>`")),
            ("}", (1, 1, "expected a field of GraphDef, found `}`")),
            ("node: 3", (1, 7, "expected `{` after `node`, found `3`")),
            ("version: [1]", (1, 10, "`version` holds one value, not a list")),
            (
                "version: 3000000000",
                (1, 10, "3000000000 is out of range for `version` (-2147483648 to 2147483647)"),
            ),
            ("version: 1.5", (1, 10, "`1.5` is not an integer")),
            ("version: - x", (1, 12, "expected an integer for `version`, found `x`")),
            ("node { name: \"\\xc3\" }", (1, 14, "`name` holds text, but this is not UTF-8")),
            ("node { name: \"é\\q\" }", (1, 16, "`\\q` is no escape sequence")),
            ("node { name: \"abc\n", (1, 14, "this string is not closed on its line")),
            ("node { [x.y] { } }", (1, 8, "extensions are not supported")),
            ("node [{} {}]", (1, 10, "expected `,` or `]`, found `{`")),
            ("\n\n  $", (3, 3, "unexpected character `$`")),
        ];
        for (text, (line, column, wanted)) in cases {
            assert_eq!(reason::<GraphDef>(text), (line, column, wanted.to_owned()), "{text}");
        }
        assert_eq!(
            reason::<AttrValue>("i: 1 f: 2").2,
            "`i` and `f` are both given, but AttrValue has only one `value`"
        );
        assert_eq!(
            reason::<AttrValue>("type: DT_FLAOT").2,
            "DataType has no value `DT_FLAOT`; did you mean `DT_FLOAT`?"
        );
        assert_eq!(
            reason::<AttrValue>("b: yes").2,
            "expected `true` or `false` for `b`, found `yes`"
        );
    }

    #[test]
    fn depth_is_bounded() {
        let deep = "list { func { attr { value { ".repeat(5000);
        assert!(reason::<AttrValue>(&deep).2.contains("deep"));
    }

    #[test]
    fn prints_as_tensorflow_does() {
        let text = "filename_tensor_name: \"save/Const:0\"\nmax_to_keep: 5\nsharded: true\n\
                    keep_checkpoint_every_n_hours: 10000.0\nversion: V2\n";
        assert_eq!(print(&parse::<SaverDef>(text).unwrap()), text);
        let text = "attr {\n  key: \"\\\"\\'\\\\\\n\\001\\303\\251\"\n  value {\n    f: \
                    0.10000000149011612\n  }\n}\nattr {\n  key: \"e\"\n  value {\n  }\n}\n\
                    control_ret {\n  key: \"b\"\n  value: \"a\"\n}\narg_attr {\n  value {\n    \
                    attr {\n      key: \"k\"\n      value {\n        i: -1\n      }\n    }\n  \
                    }\n}\n";
        assert_eq!(print(&parse::<FunctionDef>(text).unwrap()), text);
    }
}
