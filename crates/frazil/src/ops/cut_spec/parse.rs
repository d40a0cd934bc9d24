//! From text to places, shapes, types and values.

use frazil_tensor::{DType, Element, Tensor};

use super::{DimSpec, Error, FrozenValue, InputSpec, OutputSpec, Result, show_shape};

const INPUT: &str = "--input";
const SHAPE: &str = "--input_shape";
const OUTPUT: &str = "--output";
const FREEZE: &str = "--freeze_placeholder_with_value";

/// The inputs of `--input`, in order.
pub fn parse_inputs(text: &str) -> Result<Vec<InputSpec>> {
    let items = items(INPUT, text)?;
    let inputs = items.into_iter().map(|item| input(INPUT, item)).collect::<Result<Vec<_>>>()?;
    refuse_duplicates(INPUT, inputs.iter().map(InputSpec::place))?;
    Ok(inputs)
}

/// The shapes of `--input_shape`, in order.
pub fn parse_shapes(text: &str) -> Result<Vec<Vec<DimSpec>>> {
    items(SHAPE, text)?
        .into_iter()
        .map(|item| match group(item) {
            Some(('[' | '(', inner, "")) => shape(SHAPE, inner),
            _ => {
                let found = item.to_owned();
                Err(Error::Unexpected { flag: SHAPE, item: text.to_owned(), found })
            }
        })
        .collect()
}

/// The outputs of `--output`, in order.
pub fn parse_outputs(text: &str) -> Result<Vec<OutputSpec>> {
    let items = items(OUTPUT, text)?;
    let outputs = items
        .into_iter()
        .map(|item| {
            let (name, port, in_port) = place(OUTPUT, item, item)?;
            Ok(OutputSpec { name, port, in_port })
        })
        .collect::<Result<Vec<_>>>()?;
    refuse_duplicates(OUTPUT, outputs.iter().map(OutputSpec::place))?;
    Ok(outputs)
}

/// The frozen inputs of `--freeze_placeholder_with_value`, each once.
pub fn parse_freeze(text: &str) -> Result<Vec<(OutputSpec, FrozenValue)>> {
    let mut frozen: Vec<(OutputSpec, FrozenValue)> = Vec::new();
    for item in items(FREEZE, text)? {
        let Some((left, right)) = item.split_once("->") else {
            return Err(Error::NotFrozen { flag: FREEZE, item: item.to_owned() });
        };
        let (name, port, in_port) = place(FREEZE, item, left.trim())?;
        let (place, value) = (OutputSpec { name, port, in_port }, value(FREEZE, item, right)?);
        match frozen.iter().find(|(known, _)| *known == place) {
            None => frozen.push((place, value)),
            Some((_, first)) if *first == value => {}
            Some((_, first)) => {
                let (first, second) = (first.to_string(), value.to_string());
                return Err(Error::TwoValues { name: place.place(), first, second });
            }
        }
    }
    Ok(frozen)
}

/// The element type of that name: OpenVINO's (`i32`, `boolean`, `FP32`) or TensorFlow's (`int32`).
pub fn dtype_of(name: &str) -> Option<DType> {
    Some(match name.to_ascii_lowercase().as_str() {
        "f64" | "fp64" => DType::F64,
        "f32" | "fp32" | "float" => DType::F32,
        "f16" | "fp16" | "half" => DType::F16,
        "bf16" => DType::BF16,
        "i64" => DType::I64,
        "i32" => DType::I32,
        "i16" => DType::I16,
        "i8" => DType::I8,
        "u64" => DType::U64,
        "u32" => DType::U32,
        "u16" => DType::U16,
        "u8" => DType::U8,
        "boolean" => DType::Bool,
        "string" => return None,
        other => DType::from_name(other)?,
    })
}

fn refuse_duplicates(flag: &'static str, places: impl Iterator<Item = String>) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for name in places {
        if !seen.insert(name.clone()) {
            return Err(Error::Duplicate { flag, name });
        }
    }
    Ok(())
}

/// The items between commas, but for those in brackets; trimmed, none of them empty.
fn items<'t>(flag: &'static str, text: &'t str) -> Result<Vec<&'t str>> {
    let mut open: Vec<char> = Vec::new();
    let mut items = Vec::new();
    let mut start = 0;
    let unmatched = || Error::Brackets { flag, text: text.to_owned() };
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' | '{' => open.push(c),
            ']' | ')' | '}' if open.pop() != Some(opening(c)) => return Err(unmatched()),
            ',' if open.is_empty() => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !open.is_empty() {
        return Err(unmatched());
    }
    items.push(text[start..].trim());
    if items.iter().any(|item| item.is_empty()) {
        return Err(Error::Empty { flag, text: text.to_owned() });
    }
    Ok(items)
}

fn opening(closing: char) -> char {
    match closing {
        ']' => '[',
        ')' => '(',
        _ => '{',
    }
}

/// The first bracketed group of a text that starts with one: its bracket, its inside, the rest.
fn group(text: &str) -> Option<(char, &str, &str)> {
    let text = text.trim_start();
    let bracket = text.chars().next().filter(|c| "[({".contains(*c))?;
    // `items` has seen to it that brackets match.
    let mut depth = 0usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some((bracket, &text[1..at], text[at + 1..].trim()));
        }
    }
    None
}

fn input(flag: &'static str, item: &str) -> Result<InputSpec> {
    let twice = |what| Error::Twice { flag, item: item.to_owned(), what };
    let (left, right) = match item.split_once("->") {
        None => (item, None),
        Some((_, right)) if right.contains("->") => return Err(twice("value")),
        Some((left, right)) => (left.trim_end(), Some(right)),
    };
    let end = left.find(['[', '(', '{']).unwrap_or(left.len());
    let (name, port, in_port) = place(flag, item, left[..end].trim_end())?;
    let mut spec = InputSpec { name, port, in_port, ..InputSpec::default() };
    let mut rest = &left[end..];
    while !rest.is_empty() {
        let Some((bracket, inner, behind)) = group(rest) else {
            let (item, found) = (item.to_owned(), rest.to_owned());
            return Err(Error::Unexpected { flag, item, found });
        };
        rest = behind;
        if bracket == '{' {
            let dtype = dtype_of(inner.trim()).ok_or_else(|| Error::Type {
                flag,
                item: item.to_owned(),
                found: inner.to_owned(),
            })?;
            if spec.dtype.replace(dtype).is_some() {
                return Err(twice("type"));
            }
        } else if spec.shape.replace(shape(flag, inner)?).is_some() {
            return Err(twice("shape"));
        }
    }
    spec.value = right.map(|text| value(flag, item, text)).transpose()?;
    Ok(spec)
}

/// A name with at most one port: the name, its output port, its input port.
type Place = (String, Option<u32>, Option<u32>);

fn place(flag: &'static str, item: &str, text: &str) -> Result<Place> {
    let unexpected =
        |found: &str| Error::Unexpected { flag, item: item.to_owned(), found: found.to_owned() };
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    let (in_port, rest) = match text.split_once(':') {
        Some((port, rest)) if number(port).is_some() => (number(port), rest),
        _ => (None, text),
    };
    let (name, port) = match rest.split_once(':') {
        None => (rest, None),
        Some((name, port)) => (name, Some(number(port).ok_or_else(|| unexpected(port))?)),
    };
    if in_port.is_some() && port.is_some() {
        return Err(Error::BothPorts { flag, item: item.to_owned() });
    }
    if name.is_empty() {
        return Err(Error::Empty { flag, text: item.to_owned() });
    }
    if name.contains("->") {
        return Err(unexpected("->"));
    }
    if let Some(found) = name.chars().find(|c| c.is_whitespace() || "[](){}".contains(*c)) {
        return Err(unexpected(found.encode_utf8(&mut [0; 4])));
    }
    Ok((name.to_owned(), port, in_port))
}

/// The extents between the brackets, separated by commas or spaces.
fn shape(flag: &'static str, inner: &str) -> Result<Vec<DimSpec>> {
    if inner.trim().is_empty() {
        return Ok(Vec::new());
    }
    let mut dims = Vec::new();
    for part in inner.split(',') {
        let mut words = part.split_whitespace().peekable();
        if words.peek().is_none() {
            let (text, dim) = (inner.to_owned(), String::new());
            return Err(Error::Shape { flag, text, dim, reason: "is no extent" });
        }
        for word in words {
            let dim = extent(word).map_err(|reason| Error::Shape {
                flag,
                text: inner.to_owned(),
                dim: word.to_owned(),
                reason,
            })?;
            dims.push(dim);
        }
    }
    Ok(dims)
}

fn extent(word: &str) -> std::result::Result<DimSpec, &'static str> {
    // Extents are signed 64-bit numbers in every format there is.
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits {
            return Err("is no extent");
        }
        text.parse::<i64>().map(i64::unsigned_abs).map_err(|_| "is too large")
    };
    if let Some((least, most)) = word.split_once("..") {
        let least = if least.is_empty() { 0 } else { number(least)? };
        let most = if most.is_empty() { None } else { Some(number(most)?) };
        return match most {
            None if least == 0 => Ok(DimSpec::Dynamic),
            Some(0) => Err("is no extent"),
            Some(most) if most < least => Err("has its bounds the wrong way round"),
            Some(most) if most == least => Ok(DimSpec::Known(most)),
            most => Ok(DimSpec::Between { least, most }),
        };
    }
    match word {
        "?" | "-1" => Ok(DimSpec::Dynamic),
        _ => match number(word)? {
            0 => Err("is not positive"),
            extent => Ok(DimSpec::Known(extent)),
        },
    }
}

fn value(flag: &'static str, item: &str, text: &str) -> Result<FrozenValue> {
    let text = text.trim();
    let unexpected = |found: &str| {
        let (item, found) = (item.to_owned(), found.to_owned());
        Err(Error::Unexpected { flag, item, found })
    };
    let Some((bracket, inner, behind)) = group(text) else {
        if text.is_empty() {
            return Err(Error::Empty { flag, text: item.to_owned() });
        }
        if text.contains([' ', '[', ']', '(', ')', '{', '}', '>']) {
            return unexpected(text);
        }
        return Ok(FrozenValue::Scalar(text.to_owned()));
    };
    if bracket == '{' || !behind.is_empty() {
        return unexpected(if behind.is_empty() { text } else { behind });
    }
    // Rows in brackets of their own are the same elements.
    let flat = inner.replace(['[', ']', ','], " ");
    let elements: Vec<String> = flat.split_whitespace().map(str::to_owned).collect();
    if let Some(strange) = elements.iter().find(|e| e.contains(['(', ')', '{', '}'])) {
        return unexpected(strange);
    }
    if elements.is_empty() {
        return Err(Error::Empty { flag, text: item.to_owned() });
    }
    Ok(FrozenValue::List(elements))
}

pub(super) fn tensor(
    value: &FrozenValue,
    name: &str,
    dtype: DType,
    shape: Option<&[usize]>,
) -> Result<Tensor> {
    let (own, elements): (Vec<usize>, &[String]) = match value {
        FrozenValue::Scalar(element) => (vec![], std::slice::from_ref(element)),
        FrozenValue::List(elements) => (vec![elements.len()], elements),
    };
    let shape = shape.map_or(own, <[usize]>::to_vec);
    let expected = shape.iter().try_fold(1usize, |all, &dim| all.checked_mul(dim));
    if expected != Some(elements.len()) {
        let dims: Vec<DimSpec> = shape.iter().map(|&dim| DimSpec::Known(dim as u64)).collect();
        return Err(Error::ElementCount {
            name: name.to_owned(),
            shape: show_shape(&dims),
            expected: expected.unwrap_or(usize::MAX),
            found: elements.len(),
        });
    }
    let wrong = |found: &str, expected| Error::Element {
        name: name.to_owned(),
        found: found.to_owned(),
        expected,
    };
    macro_rules! plain {
        ($t:ty, $name:literal) => {
            all::<$t>(elements, shape, |e| e.parse().map_err(|_| wrong(e, $name)))
        };
    }
    match dtype {
        DType::F64 => plain!(f64, "f64"),
        DType::F32 => plain!(f32, "f32"),
        DType::F16 => all(elements, shape, |e| {
            e.parse().map(half::f16::from_f64).map_err(|_| wrong(e, "f16"))
        }),
        DType::BF16 => all(elements, shape, |e| {
            e.parse().map(half::bf16::from_f64).map_err(|_| wrong(e, "bf16"))
        }),
        DType::I64 => plain!(i64, "i64"),
        DType::I32 => plain!(i32, "i32"),
        DType::I16 => plain!(i16, "i16"),
        DType::I8 => plain!(i8, "i8"),
        DType::U64 => plain!(u64, "u64"),
        DType::U32 => plain!(u32, "u32"),
        DType::U16 => plain!(u16, "u16"),
        DType::U8 => plain!(u8, "u8"),
        DType::Bool => {
            let truth = |e: &str| match e {
                "True" | "true" | "1" => Ok(1u8),
                "False" | "false" | "0" => Ok(0),
                other => Err(wrong(other, "boolean")),
            };
            let bytes = elements.iter().map(|e| truth(e)).collect::<Result<Vec<u8>>>()?;
            Ok(Tensor::new(DType::Bool, shape, bytes).expect("the elements were counted"))
        }
        _ => Err(wrong(&value.to_string(), "number")),
    }
}

fn all<T: Element>(
    elements: &[String],
    shape: Vec<usize>,
    parse: impl Fn(&str) -> Result<T>,
) -> Result<Tensor> {
    let values = elements.iter().map(|e| parse(e)).collect::<Result<Vec<T>>>()?;
    Ok(Tensor::from_vec(shape, values).expect("the elements were counted"))
}
