//! The inputs' types and extents. Extents have names in the file, or none; here they are symbols,
//! of which two have a meaning: the batch and the length.

use std::collections::{HashMap, HashSet};

use frazil_graph::op::Input;
use frazil_graph::{Dim, Symbol};

use super::bad;
use crate::Result;
use crate::onnx::dtype::from_onnx;
use crate::onnx::proto::{ValueInfoProto, tensor_shape_proto::dimension, type_proto};

/// Longer names are no polynomials of ours.
const LONGEST: usize = 200;

/// Which symbol each of the file's names for extents is.
pub(super) struct Symbols {
    names: HashMap<String, Symbol>,
    taken: HashSet<Symbol>,
}

impl Symbols {
    /// For a model with these inputs: what they call batch and length is not given to others.
    pub fn new(inputs: &[ValueInfoProto]) -> Self {
        let mut symbols = Self { names: HashMap::new(), taken: HashSet::new() };
        for info in inputs {
            let kind = info.r#type.as_ref().and_then(|kind| kind.value.as_ref());
            let Some(type_proto::Value::TensorType(tensor)) = kind else { continue };
            for dim in tensor.shape.iter().flat_map(|shape| &shape.dim) {
                if let Some(dimension::Value::DimParam(name)) = &dim.value {
                    symbols.taken.extend(well_known(name));
                }
            }
        }
        symbols
    }

    /// Unknown extents are named by place: the first axis is the batch, the second the length.
    /// One name of the file is one symbol, and a polynomial is one again.
    fn extent(&mut self, name: Option<&str>, input: &str, axis: usize) -> Dim {
        let by_place = match axis {
            0 => Symbol::batch(),
            1 => Symbol::seq(),
            _ => Symbol::new(format!("?{input}.{axis}")),
        };
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Dim::symbol(by_place);
        };
        if let Some(dim) = self.polynomial(name) {
            return dim;
        }
        Dim::symbol(self.symbol(name, by_place))
    }

    fn symbol(&mut self, name: &str, by_place: Symbol) -> Symbol {
        let symbol = match (well_known(name), self.names.get(name)) {
            (Some(symbol), _) => symbol,
            (None, Some(symbol)) => symbol.clone(),
            (None, None) if !self.taken.contains(&by_place) => by_place,
            (None, None) => Symbol::new(format!("?{name}")),
        };
        self.names.insert(name.to_owned(), symbol.clone());
        self.taken.insert(symbol.clone());
        symbol
    }

    /// `2*batch*sequence - 1`: what [`Dim`] prints.
    fn polynomial(&mut self, text: &str) -> Option<Dim> {
        let is_name = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let text = text.trim();
        if is_name(text) || text.len() > LONGEST {
            return None;
        }
        let signed = text.replace(" - ", " + -");
        let mut sum = Dim::known(0);
        for term in signed.split(" + ") {
            let (factor, term) = match term.strip_prefix('-') {
                Some(rest) => (-1, rest),
                None => (1, term),
            };
            let mut product = Dim::known(factor);
            for part in term.split('*') {
                if part.is_empty() || !is_name(part) {
                    return None;
                }
                product = match part.parse::<i64>() {
                    Ok(number) => product.times(&Dim::known(number))?,
                    Err(_) => {
                        let own = Symbol::new(format!("?{part}"));
                        product.times(&Dim::symbol(self.symbol(part, own)))?
                    }
                };
            }
            sum = sum.plus(&product)?;
        }
        Some(sum)
    }
}

/// What exporters call the two.
fn well_known(name: &str) -> Option<Symbol> {
    match name {
        "batch" | "batch_size" => Some(Symbol::batch()),
        "seq" | "sequence" | "sequence_length" | "seq_len" | "seq_length" => Some(Symbol::seq()),
        _ => None,
    }
}

/// An input's type and extents.
pub(super) fn declared(info: &ValueInfoProto, symbols: &mut Symbols) -> Result<Input> {
    let name = info.name();
    let kind = info.r#type.as_ref().and_then(|kind| kind.value.as_ref());
    let Some(type_proto::Value::TensorType(tensor)) = kind else {
        return Err(bad(format!("input `{name}` is not a tensor")));
    };
    let Some(dtype) = from_onnx(tensor.elem_type()) else {
        let number = tensor.elem_type();
        return Err(bad(format!("input `{name}` is of type {number}, which is unknown")));
    };
    let dims = tensor.shape.as_ref().map(|shape| {
        let extents = shape.dim.iter().enumerate().map(|(axis, dim)| match &dim.value {
            Some(dimension::Value::DimValue(known)) if *known >= 0 => Dim::known(*known),
            Some(dimension::Value::DimParam(param)) => symbols.extent(Some(param), name, axis),
            _ => symbols.extent(None, name, axis),
        });
        extents.collect()
    });
    Ok(Input { dtype, dims })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_symbols() {
        let mut symbols = Symbols::new(&[]);
        let mut extent = |name: &str, axis| symbols.extent(Some(name), "x", axis).to_string();
        assert_eq!(extent("N", 0), "batch");
        assert_eq!(extent("sequence", 3), "seq");
        assert_eq!(extent("L", 1), "?L");
        assert_eq!(extent("N", 2), "batch");
        assert_eq!(extent("2*batch*sequence - 1", 0), "2*batch*seq - 1");
        assert_eq!(extent("dynamic::axis", 2), "?x.2");
        assert_eq!(extent("a*", 4), "?x.4");
        assert_eq!(symbols.extent(None, "y", 1).to_string(), "seq");
    }
}
