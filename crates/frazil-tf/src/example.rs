//! `tf.train.Example`: named lists of integers, floats or byte strings, the usual content of a
//! TFRecord; and `SequenceExample`, which adds lists of such lists.
//!
//! Access is typed and says what went wrong by the feature's name. The order of features in
//! an Example has no meaning and TensorFlow's own varies from run to run; here it is sorted,
//! so that equal examples encode to equal bytes.

use std::fmt;

use bytes::Bytes;
use prost::Message;

use crate::decode::decode;
use crate::proto::{self, feature};
use crate::{Error, Result};

/// What a feature's list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Int64List`
    Int64s,
    /// `FloatList`
    Floats,
    /// `BytesList`
    Bytes,
    /// No list at all: TensorFlow takes such a feature as missing.
    Nothing,
}

impl Kind {
    fn of(feature: &proto::Feature) -> Self {
        match &feature.kind {
            Some(feature::Kind::Int64List(_)) => Self::Int64s,
            Some(feature::Kind::FloatList(_)) => Self::Floats,
            Some(feature::Kind::BytesList(_)) => Self::Bytes,
            None => Self::Nothing,
        }
    }
}

/// TensorFlow's name of the list, with its article.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Int64s => "an int64_list",
            Self::Floats => "a float_list",
            Self::Bytes => "a bytes_list",
            Self::Nothing => "no list",
        })
    }
}

/// Features by name: an Example, or the context of a SequenceExample.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features(proto::Features);

impl Features {
    /// All names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.feature.keys().map(String::as_str)
    }

    /// What the feature of that name holds; `None` if there is none.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        self.0.feature.get(name).map(Kind::of)
    }

    /// The integers of a feature.
    pub fn int64s(&self, name: &str) -> Result<&[i64]> {
        int64s(name, self.feature(name)?)
    }

    /// The floats of a feature.
    pub fn floats(&self, name: &str) -> Result<&[f32]> {
        floats(name, self.feature(name)?)
    }

    /// The byte strings of a feature.
    pub fn bytes(&self, name: &str) -> Result<&[Bytes]> {
        byte_strings(name, self.feature(name)?)
    }

    fn feature(&self, name: &str) -> Result<&proto::Feature> {
        self.0.feature.get(name).ok_or_else(|| no_feature(name, self.0.feature.keys()))
    }
}

fn no_feature<'a>(name: &str, present: impl Iterator<Item = &'a String>) -> Error {
    // The first few suffice to see what kind of example this is.
    let present: Vec<String> = present.take(12).map(|name| format!("`{name}`")).collect();
    Error::NoFeature { name: name.to_owned(), present: present.join(", ") }
}

fn wrong_kind(name: &str, expected: Kind, feature: &proto::Feature) -> Error {
    Error::FeatureKind { name: name.to_owned(), expected, found: Kind::of(feature) }
}

fn int64s<'a>(name: &str, feature: &'a proto::Feature) -> Result<&'a [i64]> {
    match &feature.kind {
        Some(feature::Kind::Int64List(list)) => Ok(&list.value),
        _ => Err(wrong_kind(name, Kind::Int64s, feature)),
    }
}

fn floats<'a>(name: &str, feature: &'a proto::Feature) -> Result<&'a [f32]> {
    match &feature.kind {
        Some(feature::Kind::FloatList(list)) => Ok(&list.value),
        _ => Err(wrong_kind(name, Kind::Floats, feature)),
    }
}

fn byte_strings<'a>(name: &str, feature: &'a proto::Feature) -> Result<&'a [Bytes]> {
    match &feature.kind {
        Some(feature::Kind::BytesList(list)) => Ok(&list.value),
        _ => Err(wrong_kind(name, Kind::Bytes, feature)),
    }
}

/// A `tf.train.Example`. Build one with `Example::default().with_int64s("input_ids", ids)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Example(Features);

impl Example {
    /// Reads an example; its byte strings are windows on `record`.
    pub fn decode(record: Bytes) -> Result<Self> {
        Ok(decode::<proto::Example>(record)?.into())
    }

    /// The message's bytes. Features are sorted by name.
    pub fn encode(&self) -> Vec<u8> {
        proto::Example::from(self.clone()).encode_to_vec()
    }

    /// The features.
    pub fn features(&self) -> &Features {
        &self.0
    }

    /// The integers of a feature.
    pub fn int64s(&self, name: &str) -> Result<&[i64]> {
        self.0.int64s(name)
    }

    /// The floats of a feature.
    pub fn floats(&self, name: &str) -> Result<&[f32]> {
        self.0.floats(name)
    }

    /// The byte strings of a feature.
    pub fn bytes(&self, name: &str) -> Result<&[Bytes]> {
        self.0.bytes(name)
    }

    /// Adds or replaces a feature of integers.
    pub fn with_int64s(self, name: impl Into<String>, values: impl Into<Vec<i64>>) -> Self {
        let list = proto::Int64List { value: values.into() };
        self.with(name, feature::Kind::Int64List(list))
    }

    /// Adds or replaces a feature of floats.
    pub fn with_floats(self, name: impl Into<String>, values: impl Into<Vec<f32>>) -> Self {
        let list = proto::FloatList { value: values.into() };
        self.with(name, feature::Kind::FloatList(list))
    }

    /// Adds or replaces a feature of byte strings.
    pub fn with_bytes(self, name: impl Into<String>, values: impl Into<Vec<Bytes>>) -> Self {
        let list = proto::BytesList { value: values.into() };
        self.with(name, feature::Kind::BytesList(list))
    }

    fn with(mut self, name: impl Into<String>, kind: feature::Kind) -> Self {
        self.0.0.feature.insert(name.into(), proto::Feature { kind: Some(kind) });
        self
    }
}

impl From<proto::Example> for Example {
    fn from(message: proto::Example) -> Self {
        Self(Features(message.features.unwrap_or_default()))
    }
}

impl From<Example> for proto::Example {
    fn from(example: Example) -> Self {
        Self { features: Some(example.0.0) }
    }
}

/// A `tf.train.SequenceExample`: features of the whole, and per name a list with one entry for
/// each step of the sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SequenceExample {
    context: Features,
    lists: proto::FeatureLists,
}

impl SequenceExample {
    /// Reads a sequence example; its byte strings are windows on `record`.
    pub fn decode(record: Bytes) -> Result<Self> {
        let message: proto::SequenceExample = decode(record)?;
        let context = Features(message.context.unwrap_or_default());
        Ok(Self { context, lists: message.feature_lists.unwrap_or_default() })
    }

    /// The features of the whole sequence.
    pub fn context(&self) -> &Features {
        &self.context
    }

    /// The names of the lists, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lists.feature_list.keys().map(String::as_str)
    }

    /// The integers of each step.
    pub fn int64s(&self, name: &str) -> Result<Vec<&[i64]>> {
        self.list(name)?.iter().map(|feature| int64s(name, feature)).collect()
    }

    /// The floats of each step.
    pub fn floats(&self, name: &str) -> Result<Vec<&[f32]>> {
        self.list(name)?.iter().map(|feature| floats(name, feature)).collect()
    }

    /// The byte strings of each step.
    pub fn bytes(&self, name: &str) -> Result<Vec<&[Bytes]>> {
        self.list(name)?.iter().map(|feature| byte_strings(name, feature)).collect()
    }

    fn list(&self, name: &str) -> Result<&[proto::Feature]> {
        let lists = &self.lists.feature_list;
        let list = lists.get(name).ok_or_else(|| no_feature(name, lists.keys()))?;
        Ok(&list.feature)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> Example {
        Example::default()
            .with_int64s("ids", [1, -2, i64::MIN])
            .with_floats("weights", [0.5, f32::INFINITY])
            .with_bytes("text", ["a".into(), Bytes::new()])
            .with_int64s("empty", [])
    }

    #[test]
    fn typed_access() {
        let example = Example::decode(sample().encode().into()).unwrap();
        assert_eq!(example, sample());
        assert_eq!(example.int64s("ids").unwrap(), [1, -2, i64::MIN]);
        assert_eq!(example.floats("weights").unwrap(), [0.5, f32::INFINITY]);
        assert_eq!(example.bytes("text").unwrap(), ["a", ""]);
        assert!(example.int64s("empty").unwrap().is_empty());
        let names: Vec<&str> = example.features().names().collect();
        assert_eq!(names, ["empty", "ids", "text", "weights"]);
        assert_eq!(example.features().kind("text"), Some(Kind::Bytes));
    }

    #[test]
    fn errors_name_the_feature_and_what_it_is() {
        let error = sample().floats("ids").unwrap_err().to_string();
        assert_eq!(error, "feature `ids` is an int64_list, not a float_list");
        let error = sample().int64s("id").unwrap_err().to_string();
        assert!(error.contains("`id`") && error.contains("`ids`"), "{error}");
        let nothing = proto::Features { feature: [("x".to_owned(), Default::default())].into() };
        let example = Example(Features(nothing));
        let error = example.bytes("x").unwrap_err().to_string();
        assert!(error.contains("no list"), "{error}");
    }

    #[test]
    fn byte_strings_are_windows() {
        let record = Bytes::from(sample().encode());
        let example = Example::decode(record.clone()).unwrap();
        let text = &example.bytes("text").unwrap()[0];
        assert!(record.as_ptr_range().contains(&text.as_ptr()));
    }

    #[test]
    fn unpacked_lists_of_old_writers_read_the_same() {
        // features { feature { key: "a" value { int64_list { value: 1 value: 2 } } } }
        let list = b"\x08\x01\x08\x02";
        let feature = [b"\x1a\x04".as_slice(), list].concat();
        let entry = [b"\x0a\x01a\x12\x06".as_slice(), &feature].concat();
        let features = [b"\x0a\x0b".as_slice(), &entry].concat();
        let example = [b"\x0a\x0d".as_slice(), &features].concat();
        let example = Example::decode(example.into()).unwrap();
        assert_eq!(example.int64s("a").unwrap(), [1, 2]);
    }

    #[test]
    fn sequences() {
        let step = |x: i64| proto::Feature {
            kind: Some(feature::Kind::Int64List(proto::Int64List { value: vec![x, x] })),
        };
        let list = proto::FeatureList { feature: vec![step(1), step(2)] };
        let message = proto::SequenceExample {
            context: proto::Example::from(sample()).features,
            feature_lists: Some(proto::FeatureLists {
                feature_list: [("steps".to_owned(), list)].into(),
            }),
        };
        let decoded = SequenceExample::decode(message.encode_to_vec().into()).unwrap();
        assert_eq!(decoded.context().int64s("ids").unwrap().len(), 3);
        assert_eq!(decoded.names().collect::<Vec<_>>(), ["steps"]);
        assert_eq!(decoded.int64s("steps").unwrap(), [&[1, 1][..], &[2, 2]]);
        assert!(matches!(decoded.floats("steps"), Err(Error::FeatureKind { .. })));
        assert!(matches!(decoded.bytes("other"), Err(Error::NoFeature { .. })));
    }

    proptest! {
        #[test]
        fn round_trip(
            ids in prop::collection::vec(any::<i64>(), 0..20),
            floats in prop::collection::vec(any::<u32>(), 0..20),
            text in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            name in "\\PC{0,6}",
        ) {
            let text: Vec<Bytes> = text.into_iter().map(Bytes::from).collect();
            // Bit patterns, so that NaNs compare.
            let bits: Vec<f32> = floats.iter().map(|&bits| f32::from_bits(bits)).collect();
            let example = Example::default()
                .with_int64s(format!("i{name}"), &ids[..])
                .with_floats(format!("f{name}"), bits)
                .with_bytes(format!("b{name}"), &text[..]);
            let encoded = example.encode();
            let back = Example::decode(encoded.clone().into()).unwrap();
            prop_assert_eq!(back.int64s(&format!("i{name}")).unwrap(), ids);
            prop_assert_eq!(back.bytes(&format!("b{name}")).unwrap(), text);
            let back_bits: Vec<u32> =
                back.floats(&format!("f{name}")).unwrap().iter().map(|x| x.to_bits()).collect();
            prop_assert_eq!(back_bits, floats);
            prop_assert_eq!(back.encode(), encoded);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = Example::decode(bytes.clone().into());
            let _ = SequenceExample::decode(bytes.into());
        }
    }
}
