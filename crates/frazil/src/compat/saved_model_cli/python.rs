//! Values of function arguments as Python 3.7 and TensorFlow 1.15 print them.

use frazil::tf::proto::{
    DataType, StructuredValue, TensorShapeProto, TypeSpecProto, structured_value::Kind,
};
use frazil::tf::{dtype, pbtxt};

/// `type(value).__name__`
pub fn type_name(value: &StructuredValue) -> &str {
    match &value.kind {
        None | Some(Kind::NoneValue(_)) => "NoneType",
        Some(Kind::Float64Value(_)) => "float",
        Some(Kind::Int64Value(_)) => "int",
        Some(Kind::StringValue(_)) => "str",
        Some(Kind::BoolValue(_)) => "bool",
        Some(Kind::TensorShapeValue(_)) => "TensorShape",
        Some(Kind::TensorDtypeValue(_)) => "DType",
        Some(Kind::TensorSpecValue(_)) => "TensorSpec",
        Some(Kind::BoundedTensorSpecValue(_)) => "BoundedTensorSpec",
        Some(Kind::TypeSpecValue(spec)) => class(spec),
        Some(Kind::ListValue(_)) => "list",
        Some(Kind::TupleValue(_)) => "tuple",
        Some(Kind::DictValue(_)) => "dict",
        Some(Kind::NamedTupleValue(value)) => &value.name,
        Some(Kind::TensorValue(_)) => "Tensor",
        Some(Kind::NumpyValue(_)) => "ndarray",
    }
}

/// `repr(value)`
pub fn repr(value: &StructuredValue) -> String {
    let Some(kind) = &value.kind else { return "None".into() };
    let join = |values: &[StructuredValue]| -> String {
        values.iter().map(repr).collect::<Vec<_>>().join(", ")
    };
    match kind {
        Kind::NoneValue(_) => "None".into(),
        Kind::Float64Value(value) => pbtxt::float_text(*value),
        Kind::Int64Value(value) => value.to_string(),
        Kind::StringValue(value) => quoted(value),
        Kind::BoolValue(true) => "True".into(),
        Kind::BoolValue(false) => "False".into(),
        Kind::TensorShapeValue(shape) if shape.unknown_rank => "TensorShape(None)".into(),
        Kind::TensorShapeValue(shape) => {
            let dim = |size: i64| match size {
                ..0 => "Dimension(None)".to_owned(),
                size => format!("Dimension({size})"),
            };
            let dims: Vec<String> = shape.dim.iter().map(|d| dim(d.size)).collect();
            format!("TensorShape([{}])", dims.join(", "))
        }
        Kind::TensorDtypeValue(number) => format!("tf.{}", dtype_name(*number)),
        Kind::TensorSpecValue(spec) => {
            tensor_spec("TensorSpec", spec.shape.as_ref(), spec.dtype, &spec.name)
        }
        Kind::BoundedTensorSpecValue(spec) => {
            tensor_spec("BoundedTensorSpec", spec.shape.as_ref(), spec.dtype, &spec.name)
        }
        Kind::TypeSpecValue(spec) => {
            let state = spec.type_state.as_deref().map_or_else(|| "()".into(), repr);
            format!("{}{state}", class(spec))
        }
        Kind::ListValue(list) => format!("[{}]", join(&list.values)),
        Kind::TupleValue(tuple) if tuple.values.len() == 1 => {
            format!("({},)", join(&tuple.values))
        }
        Kind::TupleValue(tuple) => format!("({})", join(&tuple.values)),
        Kind::DictValue(dict) => {
            let pair = |(key, value): (&String, _)| format!("{}: {}", quoted(key), repr(value));
            format!("{{{}}}", dict.fields.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        Kind::NamedTupleValue(tuple) => {
            let pairs: Vec<String> = (tuple.values.iter())
                .map(|pair| {
                    let value = pair.value.as_ref().map_or_else(|| "None".into(), repr);
                    format!("{}={value}", pair.key)
                })
                .collect();
            format!("{}({})", tuple.name, pairs.join(", "))
        }
        Kind::TensorValue(tensor) | Kind::NumpyValue(tensor) => {
            let shape = shape_text(tensor.tensor_shape.as_ref());
            format!("<tensor of {} {shape}>", dtype_name(tensor.dtype))
        }
    }
}

/// `str(value)`
pub fn str(value: &StructuredValue) -> String {
    match &value.kind {
        Some(Kind::StringValue(value)) => value.clone(),
        Some(Kind::TensorShapeValue(shape)) => shape_text(Some(shape)),
        Some(Kind::TensorDtypeValue(number)) => format!("<dtype: '{}'>", dtype_name(*number)),
        _ => repr(value),
    }
}

/// `str(value)`, between quotes if it is a string, whatever is in it.
pub fn bare_quotes(value: &StructuredValue) -> String {
    match &value.kind {
        Some(Kind::StringValue(value)) => format!("'{value}'"),
        _ => str(value),
    }
}

/// What iterating over a value gives, each as [`bare_quotes`]; `None` if it cannot be iterated.
pub fn items(value: &StructuredValue) -> Option<Vec<String>> {
    Some(match value.kind.as_ref()? {
        Kind::ListValue(list) => list.values.iter().map(bare_quotes).collect(),
        Kind::TupleValue(tuple) => tuple.values.iter().map(bare_quotes).collect(),
        Kind::NamedTupleValue(tuple) => (tuple.values.iter())
            .map(|pair| pair.value.as_ref().map_or_else(|| "None".into(), bare_quotes))
            .collect(),
        Kind::StringValue(text) => text.chars().map(|c| format!("'{c}'")).collect(),
        Kind::TensorShapeValue(shape) => shape.dim.iter().map(|d| dim_text(d.size)).collect(),
        _ => return None,
    })
}

/// `repr` of a string.
pub fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

fn tensor_spec(class: &str, shape: Option<&TensorShapeProto>, dtype: i32, name: &str) -> String {
    let name = if name.is_empty() { "None".into() } else { quoted(name) };
    let shape = shape_text(shape);
    format!("{class}(shape={shape}, dtype=tf.{}, name={name})", dtype_name(dtype))
}

/// `str` of a TensorShape: `(?, 3)`, `(3,)`, `<unknown>`.
fn shape_text(shape: Option<&TensorShapeProto>) -> String {
    let dims = match shape {
        Some(shape) if shape.unknown_rank => return "<unknown>".into(),
        Some(shape) => shape.dim.iter().map(|dim| dim_text(dim.size)).collect(),
        None => Vec::new(),
    };
    match dims.as_slice() {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.join(", ")),
    }
}

fn dim_text(size: i64) -> String {
    if size < 0 { "?".into() } else { size.to_string() }
}

/// `float32`, `int64_ref`, `resource`.
fn dtype_name(number: i32) -> String {
    let (plain, suffix) = match number {
        dtype::REF_OFFSET.. => (number - dtype::REF_OFFSET, "_ref"),
        _ => (number, ""),
    };
    let name = match dtype::from_proto(plain) {
        Ok(dtype) => dtype.name().to_owned(),
        Err(_) => DataType::try_from(plain).map_or_else(
            |_| plain.to_string(),
            |known| known.as_str_name().trim_start_matches("DT_").to_lowercase(),
        ),
    };
    name + suffix
}

/// The class of a TypeSpec, without its module.
fn class(spec: &TypeSpecProto) -> &str {
    let name = &spec.type_spec_class_name;
    name.rsplit_once('.').map_or(name, |(_, class)| class)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> StructuredValue {
        pbtxt::parse(text).unwrap()
    }

    #[test]
    fn values_as_python_prints_them() {
        let cases = [
            ("none_value {}", "NoneType", "None"),
            ("float64_value: 0.5", "float", "0.5"),
            ("float64_value: 1e-7", "float", "1e-07"),
            ("int64_value: -3", "int", "-3"),
            ("bool_value: true", "bool", "True"),
            ("string_value: \"it's\"", "str", "\"it's\""),
            ("tensor_dtype_value: DT_INT64_REF", "DType", "tf.int64_ref"),
            ("tensor_dtype_value: DT_RESOURCE", "DType", "tf.resource"),
            (
                "tensor_shape_value { dim { size: -1 } dim { size: 3 } }",
                "TensorShape",
                "TensorShape([Dimension(None), Dimension(3)])",
            ),
            (
                "tensor_spec_value { shape { dim { size: 3 } } dtype: DT_FLOAT }",
                "TensorSpec",
                "TensorSpec(shape=(3,), dtype=tf.float32, name=None)",
            ),
            (
                "tensor_spec_value { shape { unknown_rank: true } dtype: DT_BOOL name: 'x' }",
                "TensorSpec",
                "TensorSpec(shape=<unknown>, dtype=tf.bool, name='x')",
            ),
            ("tuple_value { values { int64_value: 1 } }", "tuple", "(1,)"),
            (
                "list_value { values { string_value: 'a' } values { none_value {} } }",
                "list",
                "['a', None]",
            ),
            (
                "dict_value { fields { key: 'k' value { bool_value: false } } }",
                "dict",
                "{'k': False}",
            ),
            (
                "named_tuple_value { name: 'P' values { key: 'a' value { int64_value: 1 } } }",
                "P",
                "P(a=1)",
            ),
        ];
        for (text, type_, wanted) in cases {
            let value = parse(text);
            assert_eq!((type_name(&value), repr(&value).as_str()), (type_, wanted));
        }
        assert_eq!(str(&parse("tensor_dtype_value: DT_FLOAT")), "<dtype: 'float32'>");
        assert_eq!(items(&parse("string_value: 'ab'")).unwrap(), ["'a'", "'b'"]);
        assert_eq!(items(&parse("int64_value: 1")), None);
    }
}
