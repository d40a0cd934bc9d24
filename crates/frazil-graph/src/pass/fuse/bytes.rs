//! Bytes that stand for numbers, from the formulas that formats without a word for them use: the
//! inverse of what [`lower`](crate::pass::lower()) makes of such bytes.

use frazil_tensor::{DType, Tensor};

use super::{Operand, Rewrite, Rule, Site, apply};
use crate::op::{Binary, Cast, Compare, Gather, Op, Reduce, ReduceKind, Scaled, Steps, Unary};
use crate::pass::Report;
use crate::pattern::{
    Pattern, any, binary, compare, constant, node, one_of, reshaped, source, unary, weight,
};
use crate::{Graph, Result, Value, infer};

/// Raises weights of bytes to [`Op::Scaled`], also where a lookup reads them, and numbers on steps
/// of their rows to [`Op::FakeQuantize`]. Without bytes in the graph, nothing happens.
pub fn raise_bytes(graph: &mut Graph) -> Result<Report> {
    let mut report = Report::default();
    let has_bytes = graph.nodes().any(|(_, node)| match &node.op {
        Op::Const(constant) => is_byte(constant.value.dtype()),
        Op::FakeQuantize(_) | Op::Unary(Unary::Round) => true,
        _ => false,
    });
    if !has_bytes {
        return Ok(report);
    }
    for rule in [constant_rule(), scaled_rule(), lookup_rule(), rows_rule()] {
        // A graph whose shapes contradict each other stays as it is, for others to complain about.
        let Ok(facts) = infer(graph) else { return Ok(report) };
        apply(graph, &facts, &rule, &mut report)?;
    }
    Ok(report)
}

fn is_byte(dtype: DType) -> bool {
    matches!(dtype, DType::I8 | DType::U8)
}

/// Signed steps of a constant are bytes that can be stored.
fn constant_rule() -> Rule {
    let symmetric = |op: &Op| matches!(op, Op::FakeQuantize(Steps::Symmetric { .. }));
    Rule {
        name: "bytes",
        anchors: symmetric,
        forms: vec![node("FakeQuantize", symmetric, vec![weight("w")])],
        rewrite: |site| {
            let Op::FakeQuantize(Steps::Symmetric { scale }) = site.graph.op(site.anchor.into())
            else {
                return Err("there are no steps".to_owned());
            };
            let w = tensor(site, "w")?;
            if w.shape().is_empty() {
                return Err("a single number".to_owned());
            }
            let values = w.values::<f32>().map_err(|error| error.to_string())?;
            let step = |x: &f32| (x * (1.0 / scale)).round_ties_even().clamp(-127.0, 127.0) as i8;
            let bytes = Tensor::from_vec(w.shape().clone(), values.iter().map(step).collect());
            scaled(0, new("bytes", bytes)?, new("scales", Tensor::from_vec([1], vec![*scale]))?)
        },
    }
}

/// `numbers(w) * s`, or `(numbers(w) - zero) * s`
fn scaled_rule() -> Rule {
    let factor = || reshaped(weight("s")).bind("factors");
    let zero = |of: Pattern| reshaped(of).bind("zeros");
    Rule {
        name: "bytes",
        anchors: |op| *op == Op::Binary(Binary::Mul),
        forms: vec![
            binary(Binary::Mul, numbers(weight("w")), factor()),
            binary(Binary::Mul, numbers(weight("w")) - zero(weight("zero")), factor()),
            binary(Binary::Mul, numbers(weight("w")) - zero(numbers(weight("zero"))), factor()),
        ],
        rewrite: |site| {
            let w = tensor(site, "w")?;
            let (axis, scales) = scales(site, w)?;
            let bytes = match site.found.get("zero") {
                None if w.dtype() == DType::I8 => Operand::As(site.value("w")),
                None => Operand::New("bytes", Op::constant(from_zero(w, &[0.0], 1)?), vec![]),
                Some(_) => {
                    let zeros =
                        tensor(site, "zero")?.to_f64().map_err(|error| error.to_string())?;
                    let alike =
                        site.dims(site.value("zeros"))? == site.dims(site.value("factors"))?;
                    if zeros.len() != 1 && !alike {
                        return Err("zeros along another axis than scales".to_owned());
                    }
                    let stride = w.shape()[axis + 1..].iter().product();
                    Operand::New("bytes", Op::constant(from_zero(w, &zeros, stride)?), vec![])
                }
            };
            scaled(axis as i64, bytes, scales)
        },
    }
}

/// `numbers(w[ids]) * s[ids]`
fn lookup_rule() -> Rule {
    let is_lookup = |op: &Op| matches!(op, Op::Gather(Gather { batch_dims: 0 }));
    let lookup = |table: &'static str, axis: &'static str| {
        node("Gather", is_lookup, vec![weight(table), any("ids"), any(axis)])
    };
    let expand =
        |x: Pattern| node("ExpandDims", |op| matches!(op, Op::ExpandDims), vec![x, any("last")]);
    let rows = || numbers(lookup("w", "axis"));
    Rule {
        name: "bytes",
        anchors: |op| *op == Op::Binary(Binary::Mul),
        forms: vec![
            binary(Binary::Mul, rows(), expand(lookup("s", "scales_axis"))),
            binary(Binary::Mul, rows(), weight("s")),
        ],
        rewrite: |site| {
            let (w, s) = (tensor(site, "w")?, tensor(site, "s")?);
            let &[rows, _] = &**w.shape() else { return Err("not a table".to_owned()) };
            let by_row = site.found.get("last").is_some();
            let wanted = if by_row { rows } else { 1 };
            if w.dtype() != DType::I8 || s.dtype() != DType::F32 || **s.shape() != [wanted] {
                return Err("not a table of bytes with a scale for each row".to_owned());
            }
            for axis in ["axis", "scales_axis"].iter().filter_map(|name| site.found.get(name)) {
                if site.integers(axis)? != [0] {
                    return Err("another axis than that of the rows".to_owned());
                }
            }
            if by_row {
                let places = site.dims(site.value("ids"))?.len() as i64;
                let last = site.integers(site.value("last"))?;
                if last != [-1] && last != [places] {
                    return Err("the scales are not those of rows".to_owned());
                }
            }
            let table = ["w", "s"].map(|name| Operand::As(site.value(name)));
            let table = Operand::New("table", Op::Scaled(Scaled { axis: 0 }), table.into());
            Ok(Rewrite {
                op: Op::Gather(Gather { batch_dims: 0 }),
                inputs: vec![
                    table,
                    Operand::As(site.value("ids")),
                    Operand::As(site.value("axis")),
                ],
                reshape_stays: false,
            })
        },
    }
}

/// `(clamp(round(x / scale + zero), 0, 255) - zero) * scale`, with `scale` and `zero` from the
/// least and the largest number of each row, and 0.
fn rows_rule() -> Rule {
    let is_least = |op: &Op| *op == Op::Reduce(Reduce { kind: ReduceKind::Min, keep_dims: true });
    let is_most = |op: &Op| *op == Op::Reduce(Reduce { kind: ReduceKind::Max, keep_dims: true });
    let least = node("ReduceMin", is_least, vec![any("x"), any("least_axes")]);
    let most = node("ReduceMax", is_most, vec![any("x"), any("most_axes")]);
    let least = binary(Binary::Minimum, least, constant(0.0));
    let most = binary(Binary::Maximum, most, constant(0.0));
    let step = (most - least.clone()) / 255.0;
    let smallest = constant(f64::from(f32::MIN_POSITIVE));
    let flat = compare(Compare::Less, step.clone(), smallest);
    let select = |op: &Op| matches!(op, Op::Select);
    let scale = node("Select", select, vec![flat, constant(1.0), step]).bind("scale");
    let zero = unary(Unary::Round, unary(Unary::Neg, least) / scale.clone()).bind("zero");
    let per_unit = one_of([unary(Unary::Reciprocal, scale.clone()), 1.0 / scale.clone()]);
    let steps = any("x") * per_unit + zero.clone();
    let bytes = binary(Binary::Maximum, unary(Unary::Round, steps), constant(0.0));
    let bytes = binary(Binary::Minimum, bytes, constant(255.0));
    Rule {
        name: "bytes",
        anchors: |op| *op == Op::Binary(Binary::Mul),
        forms: vec![(bytes - zero) * scale],
        rewrite: |site| {
            let x = site.value("x");
            site.same_shape(x)?;
            let last = site.dims(x)?.len() as i64 - 1;
            for axes in ["least_axes", "most_axes"] {
                let axes = site.integers(site.value(axes))?;
                if axes != [-1] && axes != [last] {
                    return Err("the steps are not those of rows".to_owned());
                }
            }
            let op = Op::FakeQuantize(Steps::Rows);
            Ok(Rewrite { op, inputs: vec![Operand::As(x)], reshape_stays: false })
        },
    }
}

/// Integers as float32.
fn numbers(x: Pattern) -> Pattern {
    node("Cast", |op| matches!(op, Op::Cast(Cast { to: DType::F32 })), vec![x])
}

/// The constant behind a name of the formula.
fn tensor<'a>(site: &Site<'a>, name: &str) -> std::result::Result<&'a Tensor, String> {
    let value: Value = source(site.graph, site.value(name));
    site.graph.op(value).as_const().ok_or_else(|| format!("{} is no constant", site.name(value)))
}

fn new(
    name: &'static str,
    tensor: frazil_tensor::Result<Tensor>,
) -> std::result::Result<Operand, String> {
    Ok(Operand::New(name, Op::constant(tensor.map_err(|error| error.to_string())?), vec![]))
}

fn scaled(axis: i64, bytes: Operand, scales: Operand) -> std::result::Result<Rewrite, String> {
    let op = Op::Scaled(Scaled { axis });
    Ok(Rewrite { op, inputs: vec![bytes, scales], reshape_stays: false })
}

/// The axis of `w` that the factors go along, and the factors as a list.
fn scales(site: &Site<'_>, w: &Tensor) -> std::result::Result<(usize, Operand), String> {
    if !is_byte(w.dtype()) || w.shape().is_empty() {
        return Err(format!("{} {}, not bytes", w.dtype(), w.shape()));
    }
    let s = tensor(site, "s")?;
    if s.dtype() != DType::F32 {
        return Err(format!("scales of {}", s.dtype()));
    }
    let dims = site.dims(site.value("factors"))?;
    let known: Option<Vec<usize>> =
        dims.iter().map(|dim| usize::try_from(dim.as_known()?).ok()).collect();
    let shape = known.ok_or("scales of an unknown shape")?;
    let rank = w.shape().len();
    let Some(missing) = rank.checked_sub(shape.len()) else {
        return Err(format!("{} axes of scales for {rank}", shape.len()));
    };
    let long: Vec<usize> = (0..shape.len()).filter(|&i| shape[i] != 1).collect();
    let axis = match long.as_slice() {
        [] => 0,
        &[place] if shape[place] == w.shape()[missing + place] => missing + place,
        _ => return Err(format!("scales {shape:?} along more than one axis of {}", w.shape())),
    };
    if s.shape().len() == 1 {
        return Ok((axis, Operand::As(source(site.graph, site.value("s")))));
    }
    let flat = s.bytes().and_then(|bytes| Tensor::new(DType::F32, [s.elements()], bytes.clone()));
    Ok((axis, new("scales", flat)?))
}

/// Bytes less their zeros, of which there is one for all, or one for each place of an axis whose
/// places are `stride` elements apart; an error if the difference is no signed byte.
fn from_zero(w: &Tensor, zeros: &[f64], stride: usize) -> std::result::Result<Tensor, String> {
    let bytes = w.bytes().map_err(|error| error.to_string())?;
    let signed = w.dtype() == DType::I8;
    let mut moved = Vec::with_capacity(bytes.len());
    for (i, &byte) in bytes.iter().enumerate() {
        let value = if signed { f64::from(byte as i8) } else { f64::from(byte) };
        let difference = value - zeros[i / stride.max(1) % zeros.len()];
        if difference.fract() != 0.0 || !(-128.0..=127.0).contains(&difference) {
            return Err(format!("{difference} is no signed byte"));
        }
        moved.push(difference as i8);
    }
    Tensor::from_vec(w.shape().clone(), moved).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::lower;
    use crate::testing::{Build, batch_by_seq};
    use crate::{Dim, dump};

    fn bytes(g: &mut Build, name: &str, shape: &[usize], first: i8) {
        let count = shape.iter().product::<usize>();
        let values = (0..count).map(|i| first.wrapping_add(i as i8)).collect();
        g.node(name, Op::constant(Tensor::from_vec(shape, values).unwrap()), &[]);
    }

    /// Weights with scales along either axis and one for all, a table, and steps of rows.
    fn model() -> Build {
        let mut g = Build::default();
        g.input("ids", DType::I32, &batch_by_seq());
        g.input("x", DType::F32, &[Dim::batch(), Dim::known(3)]);
        g.int("axis", 0);
        for (name, scales, axis) in [("rows", 4, 0), ("columns", 3, 1), ("all", 1, 0)] {
            bytes(&mut g, &format!("{name}/bytes"), &[4, 3], -5);
            g.weight(&format!("{name}/scales"), &[scales]);
            let inputs = [format!("{name}/bytes"), format!("{name}/scales")];
            g.node(name, Op::Scaled(Scaled { axis }), &[&inputs[0], &inputs[1]]);
            g.output(name);
        }
        for (table, name) in [("rows", "found"), ("all", "found_1")] {
            let table = [format!("{table}/bytes"), format!("{table}/scales")];
            let scaled = Op::Scaled(Scaled { axis: 0 });
            g.node(&format!("{name}/table"), scaled, &[&table[0], &table[1]]);
            let lookup = Op::Gather(Gather { batch_dims: 0 });
            g.node(name, lookup, &[&format!("{name}/table"), "ids", "axis"]);
            g.output(name);
        }
        g.node("steps", Op::FakeQuantize(Steps::Rows), &["x"]);
        g.output("steps");
        g
    }

    #[test]
    fn what_is_lowered_is_raised_to_the_same() {
        let mut g = model();
        let before = dump(&g.graph);
        lower(&mut g.graph, &|_| false).unwrap();
        let kinds = ["Scaled", "FakeQuantize"];
        g.graph.prune();
        assert!(kinds.iter().all(|kind| g.of_kind(kind).is_empty()), "{}", dump(&g.graph));
        // A lookup reads bytes, not a table of numbers.
        assert_eq!(g.of_kind("Gather").len(), 3);
        let report = raise_bytes(&mut g.graph).unwrap();
        assert!(report.missed.is_empty(), "{report:?}");
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&dump(&g.graph)), sorted(&before));
    }

    /// `(numbers(w) - zero) * s`
    fn asymmetric(values: &[u8], zeros: &[u8], scales: &[f32]) -> Build {
        let mut g = Build::default();
        let constant = |tensor: frazil_tensor::Result<Tensor>| Op::constant(tensor.unwrap());
        let along = |n: usize| if n == 1 { vec![] } else { vec![n, 1] };
        g.node("w", constant(Tensor::from_vec([2, 2], values.to_vec())), &[]);
        g.node("zeros", constant(Tensor::from_vec(along(zeros.len()), zeros.to_vec())), &[]);
        g.node("s", constant(Tensor::from_vec(along(scales.len()), scales.to_vec())), &[]);
        let cast = || Op::Cast(Cast { to: DType::F32 });
        g.node("numbers", cast(), &["w"]);
        g.node("zero_numbers", cast(), &["zeros"]);
        g.binary("from_zero", Binary::Sub, "numbers", "zero_numbers");
        g.binary("y", Binary::Mul, "from_zero", "s");
        g.output("y");
        g
    }

    #[test]
    fn bytes_are_counted_from_their_zero() {
        let moved = |mut g: Build| {
            raise_bytes(&mut g.graph).unwrap();
            let node = g.graph.node(g.value("y").node);
            let Op::Scaled(Scaled { axis }) = node.op else { return None };
            let bytes = g.graph.op(node.inputs[0]).as_const().unwrap();
            Some((axis, bytes.values::<i8>().unwrap().into_owned()))
        };
        let all = asymmetric(&[0, 128, 255, 129], &[128], &[0.5]);
        assert_eq!(moved(all), Some((0, vec![-128, 0, 127, 1])));
        let rows = asymmetric(&[0, 1, 255, 200], &[0, 200], &[0.5, 0.25]);
        assert_eq!(moved(rows), Some((0, vec![0, 1, 55, 0])));
        // 255 from 100 on is no signed byte.
        assert_eq!(moved(asymmetric(&[0, 128, 255, 129], &[100], &[0.5])), None);
        // Zeros by row, scales for all: no axis of scales to put them on.
        assert_eq!(moved(asymmetric(&[0, 1, 1, 0], &[0, 1], &[0.5])), None);
    }

    #[test]
    fn signed_steps_of_a_constant_are_bytes() {
        let mut g = Build::default();
        let values = vec![0.25f32, -100.0, 0.74, 0.0];
        g.node("w", Op::constant(Tensor::from_vec([2, 2], values).unwrap()), &[]);
        g.node("y", Op::FakeQuantize(Steps::Symmetric { scale: 0.5 }), &["w"]);
        g.output("y");
        raise_bytes(&mut g.graph).unwrap();
        assert_eq!(g.of_kind("Scaled"), ["y"]);
        let bytes = g.graph.op(g.value("y/bytes")).as_const().unwrap();
        assert_eq!(*bytes.values::<i8>().unwrap(), [0, -127, 1, 0]);
        assert!(g.graph.find("w").is_none());
    }

    #[test]
    fn other_products_stay() {
        let mut g = Build::default();
        bytes(&mut g, "w", &[2, 3], 1);
        g.weight("everywhere", &[2, 3]);
        g.input("x", DType::F32, &[Dim::known(3)]);
        g.node("numbers", Op::Cast(Cast { to: DType::F32 }), &["w"]);
        g.binary("a", Binary::Mul, "numbers", "everywhere");
        g.binary("b", Binary::Mul, "numbers", "x");
        g.output("a");
        g.output("b");
        let before = dump(&g.graph);
        raise_bytes(&mut g.graph).unwrap();
        assert_eq!(dump(&g.graph), before);
    }
}
