//! TensorFlow's `AttrValue` as the graph's [`Attr`], and back without loss.
//!
//! What [`Attr`] cannot say exactly (a tensor in an unusual form, named extents, a list of several
//! kinds) is kept as the message's own bytes.

use bytes::Bytes;
use frazil_graph::op::{Attr, Attrs};
use frazil_tf::proto::attr_value::{ListValue, Value};
use frazil_tf::proto::tensor_shape_proto::Dim;
use frazil_tf::proto::{AttrValue, DataType, NameAttrList, TensorProto, TensorShapeProto};
use frazil_tf::{dtype, tensor_proto};
use prost::Message;

/// The attribute of a message.
pub(super) fn from_proto(proto: &AttrValue) -> Attr {
    exact(proto).unwrap_or_else(|| Attr::Opaque(proto.encode_to_vec().into()))
}

/// All attributes of a message.
pub(super) fn map_from_proto<'a>(
    attrs: impl IntoIterator<Item = (&'a String, &'a AttrValue)>,
) -> Attrs {
    attrs.into_iter().map(|(name, attr)| (name.clone(), from_proto(attr))).collect()
}

/// The message of an attribute; the reason where it has none.
pub(super) fn to_proto(attr: &Attr) -> Result<AttrValue, String> {
    let value = match attr {
        Attr::Str(bytes) => Value::S(bytes.clone()),
        Attr::Int(value) => Value::I(*value),
        Attr::Float(value) => Value::F(*value),
        Attr::Bool(value) => Value::B(*value),
        Attr::Type(name) => Value::Type(type_number(name)?),
        Attr::Shape(dims) => Value::Shape(shape_proto(dims.as_deref())),
        Attr::Tensor(tensor) => Value::Tensor(Box::new(tensor_proto::from_tensor(tensor))),
        Attr::Function(name, attrs) => Value::Func(function(name, attrs)?),
        Attr::List(list) => Value::List(Box::new(list_proto(list)?)),
        Attr::Opaque(bytes) => {
            return AttrValue::decode(bytes.clone()).map_err(|error| error.to_string());
        }
    };
    Ok(AttrValue { value: Some(value) })
}

/// A shape as a message; -1 is an unknown extent, `None` an unknown rank.
pub(super) fn shape_proto(dims: Option<&[i64]>) -> TensorShapeProto {
    let dim = |&size: &i64| Dim { size, name: String::new() };
    TensorShapeProto {
        dim: dims.unwrap_or_default().iter().map(dim).collect(),
        unknown_rank: dims.is_none(),
    }
}

fn exact(proto: &AttrValue) -> Option<Attr> {
    Some(match proto.value.as_ref()? {
        Value::S(bytes) => Attr::Str(bytes.clone()),
        Value::I(value) => Attr::Int(*value),
        Value::F(value) => Attr::Float(*value),
        Value::B(value) => Attr::Bool(*value),
        Value::Type(number) => type_name(*number)?,
        Value::Shape(proto) => shape(proto)?,
        Value::Tensor(proto) => tensor(proto)?,
        Value::Func(function) => named(function),
        Value::List(list) => Attr::List(list_items(list)?),
        Value::Placeholder(_) => return None,
    })
}

fn type_name(number: i32) -> Option<Attr> {
    DataType::try_from(number).ok().map(|_| Attr::Type(dtype::name(number)))
}

fn type_number(name: &str) -> Result<i32, String> {
    let known = DataType::from_str_name(name);
    known.map(|known| known as i32).ok_or_else(|| format!("no type is named `{name}`"))
}

fn shape(proto: &TensorShapeProto) -> Option<Attr> {
    if proto.unknown_rank {
        return proto.dim.is_empty().then_some(Attr::Shape(None));
    }
    let dims = proto.dim.iter().map(|dim| dim.name.is_empty().then_some(dim.size));
    Some(Attr::Shape(Some(dims.collect::<Option<_>>()?)))
}

fn tensor(proto: &TensorProto) -> Option<Attr> {
    let tensor = tensor_proto::to_tensor(proto).ok()?;
    (tensor_proto::from_tensor(&tensor) == *proto).then_some(Attr::Tensor(tensor))
}

fn named(function: &NameAttrList) -> Attr {
    Attr::Function(function.name.clone(), map_from_proto(&function.attr))
}

fn function(name: &str, attrs: &Attrs) -> Result<NameAttrList, String> {
    let attr = attrs
        .iter()
        .map(|(name, attr)| Ok((name.clone(), to_proto(attr)?)))
        .collect::<Result<_, String>>()?;
    Ok(NameAttrList { name: name.to_owned(), attr })
}

/// The items of a list of one kind.
fn list_items(list: &ListValue) -> Option<Vec<Attr>> {
    let ListValue { s, i, f, b, r#type, shape: shapes, tensor: tensors, func } = list;
    let kinds = [
        s.is_empty(),
        i.is_empty(),
        f.is_empty(),
        b.is_empty(),
        r#type.is_empty(),
        shapes.is_empty(),
        tensors.is_empty(),
        func.is_empty(),
    ];
    if kinds.iter().filter(|empty| !**empty).count() > 1 {
        return None;
    }
    let mut items: Vec<Option<Attr>> = Vec::new();
    items.extend(s.iter().map(|x| Some(Attr::Str(Bytes::clone(x)))));
    items.extend(i.iter().map(|&x| Some(Attr::Int(x))));
    items.extend(f.iter().map(|&x| Some(Attr::Float(x))));
    items.extend(b.iter().map(|&x| Some(Attr::Bool(x))));
    items.extend(r#type.iter().map(|&x| type_name(x)));
    items.extend(shapes.iter().map(shape));
    items.extend(tensors.iter().map(tensor));
    items.extend(func.iter().map(|x| Some(named(x))));
    items.into_iter().collect()
}

fn list_proto(items: &[Attr]) -> Result<ListValue, String> {
    let mut list = ListValue::default();
    for item in items {
        match item {
            Attr::Str(bytes) => list.s.push(bytes.clone()),
            Attr::Int(value) => list.i.push(*value),
            Attr::Float(value) => list.f.push(*value),
            Attr::Bool(value) => list.b.push(*value),
            Attr::Type(name) => list.r#type.push(type_number(name)?),
            Attr::Shape(dims) => list.shape.push(shape_proto(dims.as_deref())),
            Attr::Tensor(tensor) => list.tensor.push(tensor_proto::from_tensor(tensor)),
            Attr::Function(name, attrs) => list.func.push(function(name, attrs)?),
            Attr::List(_) | Attr::Opaque(_) => {
                return Err("TensorFlow has no list of lists".to_owned());
            }
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_tensor::Tensor;

    fn there_and_back(value: Option<Value>) -> Attr {
        let proto = AttrValue { value };
        let attr = from_proto(&proto);
        assert_eq!(to_proto(&attr).unwrap(), proto);
        attr
    }

    #[test]
    fn every_kind_goes_there_and_back() {
        let content = tensor_proto::from_tensor(&Tensor::from_vec([2], vec![1f32, 2.0]).unwrap());
        let shape = shape_proto(Some(&[-1, 3]));
        let func = NameAttrList {
            name: "f".into(),
            attr: [("T".to_owned(), AttrValue { value: Some(Value::I(3)) })].into(),
        };
        let exact = [
            Value::S(Bytes::from_static(b"x\xff")),
            Value::I(-5),
            Value::F(0.5),
            Value::B(true),
            Value::Type(DataType::DtFloatRef as i32),
            Value::Shape(shape.clone()),
            Value::Shape(shape_proto(None)),
            Value::Tensor(Box::new(content.clone())),
            Value::Func(func.clone()),
            Value::List(Box::default()),
            Value::List(Box::new(ListValue { i: vec![1, 2], ..Default::default() })),
            Value::List(Box::new(ListValue { shape: vec![shape], ..Default::default() })),
            Value::List(Box::new(ListValue { r#type: vec![20, 1], ..Default::default() })),
            Value::List(Box::new(ListValue { func: vec![func], ..Default::default() })),
            Value::List(Box::new(ListValue { tensor: vec![content], ..Default::default() })),
        ];
        for value in exact {
            let attr = there_and_back(Some(value.clone()));
            assert!(!matches!(attr, Attr::Opaque(_)), "{value:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_kept_as_bytes() {
        // A list of values that is shorter than the shape.
        let short = TensorProto {
            dtype: DataType::DtFloat as i32,
            tensor_shape: Some(shape_proto(Some(&[3]))),
            float_val: vec![1.0],
            ..TensorProto::default()
        };
        let named =
            TensorShapeProto { dim: vec![Dim { size: 1, name: "n".into() }], unknown_rank: false };
        let mixed = ListValue { i: vec![1], f: vec![2.0], ..Default::default() };
        let odd = [
            Some(Value::Tensor(Box::new(short))),
            Some(Value::Shape(named)),
            Some(Value::List(Box::new(mixed))),
            Some(Value::Placeholder("T".into())),
            Some(Value::Type(999)),
            None,
        ];
        for value in odd {
            assert!(matches!(there_and_back(value), Attr::Opaque(_)));
        }
    }

    #[test]
    fn what_tensorflow_cannot_say_is_refused() {
        assert!(to_proto(&Attr::Type("DT_NOTHING".into())).is_err());
        assert!(to_proto(&Attr::List(vec![Attr::List(vec![])])).is_err());
        assert!(to_proto(&Attr::Opaque(Bytes::from_static(b"\xff\xff"))).is_err());
    }
}
