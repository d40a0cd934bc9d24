//! Attention over all heads, with the mask that keeps padding out.

use frazil_tensor::Tensor;

use super::{Operand, Rewrite, Rule, Site};
use crate::dim::show;
use crate::op::{Attention, Binary, Op, Steps};
use crate::pattern::{
    Pattern, any, matmul, matmul_transposed, node, number, one_of, reshape, reshaped, scalar,
    softmax, source, transpose,
};
use crate::{Dim, Value};

pub(super) fn rule() -> Rule {
    Rule { name: "attention", anchors: |op| *op == Op::Reshape, forms: vec![attention()], rewrite }
}

/// `softmax(q kᵀ scale + (1 - mask) mask_value) v` per head, the heads side by side again.
fn attention() -> Pattern {
    let mask = reshaped((1.0 - any("mask")) * number("mask_value")).bind("masked");
    let scores = scaled(scores()) + mask;
    // context: [b, n, s, d]
    let v = on_steps("v_steps", transpose(split("v"), &[0, 2, 1, 3]));
    let context = matmul(on_steps("softmax_steps", softmax(scores).key()), v);
    reshape(transpose(context, &[0, 2, 1, 3]), any("shape"))
}

/// A value, or the same on steps that all its numbers have in common.
fn on_steps(name: &'static str, x: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::FakeQuantize(Steps::Tensor { .. } | Steps::Symmetric { .. }))
    }
    one_of([node("FakeQuantize", test, vec![x.clone()]).bind(name), x])
}

/// `[b, s, n, d]` of rows or of `[b, s, n*d]`.
fn split(name: &'static str) -> Pattern {
    let (heads, shape) = match name {
        "q" => ("q_heads", "q_shape"),
        "k" => ("k_heads", "k_shape"),
        _ => ("v_heads", "v_shape"),
    };
    reshape(any(name), any(shape)).bind(heads)
}

/// `q kᵀ`: transposed by the product, by the second permutation, or by one of its own.
fn scores() -> Pattern {
    let q = on_steps("q_steps", transpose(split("q"), &[0, 2, 1, 3]));
    let k = transpose(split("k"), &[0, 2, 1, 3]);
    let on_steps = |k: Pattern| on_steps("k_steps", k);
    one_of([
        matmul_transposed(q.clone(), on_steps(k.clone())),
        matmul(q.clone(), on_steps(transpose(split("k"), &[0, 2, 3, 1]))),
        matmul(q, on_steps(transpose(k, &[0, 1, 3, 2]))),
    ])
}

/// Times a number, over a number, or (where it was put into the query) neither.
fn scaled(scores: Pattern) -> Pattern {
    one_of([scores.clone() * number("scale"), scores.clone() / number("divisor"), scores])
}

fn rewrite(site: &Site<'_>) -> Result<Rewrite, String> {
    let [b, s, n, d] = site.dims(site.value("q_heads"))? else {
        return Err(format!("{} has not four axes", site.name(site.value("q_heads"))));
    };
    let (Some(heads), Some(size)) = (n.as_known(), d.as_known()) else {
        return Err(format!("the number or the size of the heads is unknown: [{n}, {d}]"));
    };
    let hidden = Dim::known(heads.saturating_mul(size));
    for other in ["k_heads", "v_heads"] {
        let dims = site.dims(site.value(other))?;
        if dims != [b.clone(), s.clone(), n.clone(), d.clone()] {
            let name = site.name(site.value(other));
            return Err(format!("{name} is {}, [{b}, {s}, {n}, {d}] expected", show(dims)));
        }
    }
    let masked = site.dims(site.value("masked"))?;
    if !matches!(masked, [_, one, queries, e] if one.is(1) && (queries.is(1) || queries == s) && e == s)
    {
        let name = site.name(site.value("masked"));
        return Err(format!("{name} is {}, [{b}, 1, 1 or {s}, {s}] expected", show(masked)));
    }
    let mask = key_mask(site, b, s)?;
    let mut inputs = Vec::with_capacity(4);
    for (name, suffix, on, steps) in [
        ("q", "query_rows", "q_steps", "query_steps"),
        ("k", "key_rows", "k_steps", "key_steps"),
        ("v", "value_rows", "v_steps", "value_steps"),
    ] {
        let rows = rows(site, site.value(name), &hidden, suffix)?;
        // What all numbers have in common does not care how they lie.
        inputs.push(match site.steps(on) {
            Some(on) => Operand::New(steps, Op::FakeQuantize(on), vec![rows]),
            None => rows,
        });
    }
    inputs.push(Operand::As(mask));
    let scale = match (site.found.number("scale"), site.found.number("divisor")) {
        (Some(scale), _) => scale,
        (None, Some(divisor)) => 1.0 / divisor,
        (None, None) => 1.0,
    };
    let value = site.found.number("mask_value").ok_or("the mask's value is not constant")?;
    let op = Op::Attention(Attention {
        heads: usize::try_from(heads).map_err(|_| format!("{heads} heads"))?,
        scale: scale as f32,
        mask_value: value as f32,
        packed: false,
        steps: match site.steps("softmax_steps") {
            Some(Steps::Symmetric { .. }) => return Err("its softmax is in signed bytes".into()),
            other => other,
        },
    });
    let reshape_stays = match site.dims(site.anchor.into())? {
        [_, columns] if *columns == hidden => false,
        [_, _, columns] if *columns == hidden => true,
        dims => return Err(format!("the result is {}, [.., {hidden}] expected", show(dims))),
    };
    Ok(Rewrite { op, inputs, reshape_stays })
}

/// `x` as rows `[b*s, n*d]`.
fn rows(site: &Site<'_>, x: Value, hidden: &Dim, suffix: &'static str) -> Result<Operand, String> {
    match site.dims(x)? {
        [_, columns] if columns == hidden => Ok(Operand::As(x)),
        [_, _, columns] if columns == hidden => {
            let columns = hidden.as_known().and_then(|h| i32::try_from(h).ok());
            let columns = columns.ok_or_else(|| format!("{hidden} columns"))?;
            let shape = Tensor::from_vec([2], vec![-1i32, columns]);
            let shape = Op::constant(shape.map_err(|error| error.to_string())?);
            let shape = Operand::New("rows_shape", shape, vec![]);
            Ok(Operand::New(suffix, Op::Reshape, vec![Operand::As(x), shape]))
        }
        dims => Err(format!("{} is {}, [.., {hidden}] expected", site.name(x), show(dims))),
    }
}

/// The mask of the keys as it was fed, `[b, s]`, from what is subtracted from 1.
///
/// On the way lie reshapes that put in axes of extent 1, casts, and one product with ones that
/// repeats the mask for every query.
fn key_mask(site: &Site<'_>, b: &Dim, s: &Dim) -> Result<Value, String> {
    let graph = site.graph;
    let mut value = source(graph, site.value("mask"));
    let mut found = None;
    let mut repeated = false;
    for _ in 0..16 {
        if matches!(site.dims(value), Ok([d, e]) if d == b || e == s) {
            found = Some(value);
        }
        let node = graph.node(value.node);
        value = match &node.op {
            Op::Reshape | Op::ExpandDims | Op::Squeeze(_) => node.inputs[0],
            Op::StridedSlice(_) if site.only_new_axes(value.node) => node.inputs[0],
            // From a float to an integer, a cast rounds.
            Op::Cast(op) => {
                let from = site.fact(node.inputs[0]).and_then(|fact| fact.dtype);
                if from.is_none_or(|from| from.is_float() && !op.to.is_float()) {
                    break;
                }
                node.inputs[0]
            }
            Op::Binary(Binary::Mul) if !repeated => {
                let ones = |i: usize| all_ones(site, node.inputs[i]);
                let mask = match (ones(0), ones(1)) {
                    (true, _) => node.inputs[1],
                    (_, true) => node.inputs[0],
                    _ => break,
                };
                // mask: [b, 1, s] or [b, 1, 1, s]
                let dims = site.dims(mask)?;
                let keys_only = match dims {
                    [_, inner @ .., last] => last == s && inner.iter().all(|d| d.is(1)),
                    _ => false,
                };
                if !keys_only || dims.len() < 3 {
                    return Err(format!(
                        "{} is {}, [{b}, 1, {s}] expected",
                        site.name(mask),
                        show(dims)
                    ));
                }
                repeated = true;
                mask
            }
            _ => break,
        };
        value = source(graph, value);
    }
    let name = || site.name(site.value("mask"));
    found.ok_or_else(|| format!("{} comes from nothing of the shape [{b}, {s}]", name()))
}

/// Whether a value is 1 everywhere.
fn all_ones(site: &Site<'_>, value: Value) -> bool {
    let node = site.graph.node(source(site.graph, value).node);
    match &node.op {
        Op::Const(op) => {
            op.value.to_f64().is_ok_and(|values| values.iter().all(|value| *value == 1.0))
        }
        Op::Fill => scalar(site.graph, node.inputs[1]).is_some_and(|(value, _)| value == 1.0),
        Op::Cast(_) => all_ones(site, node.inputs[0]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use frazil_tensor::DType;

    use super::*;
    use crate::op::{Cast, Pack, ShapeOp, StridedSlice};
    use crate::pass::{Fusions, Report, fuse};
    use crate::testing::{Build, batch_by_seq};

    /// TF1's graph with a free batch: `[batch, 6]`, two heads of 4.
    fn tf1() -> Build {
        let mut g = Build::default();
        let rows = Dim::batch().times(&Dim::known(6)).unwrap();
        for name in ["q", "k", "v"] {
            g.input(name, DType::F32, &[rows.clone(), Dim::known(8)]);
        }
        g.input("mask", DType::I32, &[Dim::batch(), Dim::known(6)]);
        for (name, value) in [("one", 1), ("two", 2), ("four", 4), ("six", 6), ("eight", 8)] {
            g.int(name, value);
        }
        for (name, value) in [("1", 1.0), ("scale", 0.5), ("masked", -10000.0)] {
            g.number(name, value);
        }
        g.list("perm", &[0, 2, 1, 3]);
        g.list("l0", &[0]);
        g.list("l1", &[1]);
        g.node("Shape", Op::Shape(ShapeOp { to: DType::I32 }), &["mask"]);
        let first = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        g.node("batch", first, &["Shape", "l0", "l1", "l1"]);
        let pack = || Op::Pack(Pack { axis: 0 });
        g.node("mask_shape", pack(), &["batch", "one", "six"]);
        g.node("mask_rows", Op::Reshape, &["mask", "mask_shape"]);
        g.node("Cast", Op::Cast(Cast { to: DType::F32 }), &["mask_rows"]);
        g.node("ones_shape", pack(), &["batch", "six", "one"]);
        g.node("ones", Op::Fill, &["ones_shape", "1"]);
        g.binary("mul", Binary::Mul, "ones", "Cast");
        g.node("ExpandDims", Op::ExpandDims, &["mul", "l1"]);
        g.binary("sub", Binary::Sub, "1", "ExpandDims");
        g.binary("adder", Binary::Mul, "sub", "masked");
        g.node("split", pack(), &["batch", "six", "two", "four"]);
        for (name, x) in [("0", "q"), ("_1", "k"), ("_2", "v")] {
            g.node(&format!("Reshape{name}"), Op::Reshape, &[x, "split"]);
            g.node(
                &format!("transpose{name}"),
                Op::Transpose,
                &[&format!("Reshape{name}"), "perm"],
            );
        }
        g.matmul_transposed("MatMul", "transpose0", "transpose_1");
        g.binary("Mul", Binary::Mul, "MatMul", "scale");
        g.binary("add", Binary::Add, "Mul", "adder");
        g.node("Softmax", Op::Softmax, &["add"]);
        g.matmul("MatMul_1", "Softmax", "transpose_2");
        g.node("transpose_3", Op::Transpose, &["MatMul_1", "perm"]);
        g.binary("rows", Binary::Mul, "batch", "six");
        g.node("rows_shape", pack(), &["rows", "eight"]);
        g.node("Reshape_3", Op::Reshape, &["transpose_3", "rows_shape"]);
        g.output("Reshape_3");
        g
    }

    fn run(g: &mut Build) -> Report {
        fuse(&mut g.graph, &Fusions::all()).unwrap()
    }

    fn expected() -> Op {
        Op::Attention(Attention {
            heads: 2,
            scale: 0.5,
            mask_value: -10000.0,
            packed: false,
            steps: None,
        })
    }

    #[test]
    fn tf1_attention() {
        let mut g = tf1();
        let report = run(&mut g);
        assert_eq!(report.count("attention"), 1, "{report:?}");
        assert!(report.missed.is_empty(), "{report:?}");
        let id = g.value("Reshape_3").node;
        let node = g.graph.node(id);
        assert_eq!(node.op, expected());
        assert_eq!(node.inputs, ["q", "k", "v", "mask"].map(|name| g.value(name)));
        assert_eq!(g.graph.len(), 5);
    }

    /// As [`crate::pass::quantize`] puts steps: behind the split into heads.
    #[test]
    fn operands_on_steps() {
        let mut g = tf1();
        let softmax = Steps::Tensor { scale: 0.125, zero: 3 };
        let operands = [
            ("MatMul", 0, "transpose0", Steps::Tensor { scale: 0.5, zero: 7 }),
            ("MatMul", 1, "transpose_1", Steps::Symmetric { scale: 0.25 }),
            ("MatMul_1", 0, "Softmax", softmax),
            ("MatMul_1", 1, "transpose_2", Steps::Symmetric { scale: 2.0 }),
        ];
        for (product, place, x, steps) in operands {
            let name = format!("{x}/steps");
            g.node(&name, Op::FakeQuantize(steps), &[x]);
            let (id, value) = (g.value(product).node, g.value(&name));
            g.graph.node_mut(id).inputs[place] = value;
        }
        let report = run(&mut g);
        assert_eq!((report.count("attention"), report.missed.len()), (1, 0), "{report:?}");
        let text = crate::dump(&g.graph);
        for line in [
            "Reshape_3/query_steps = FakeQuantize{scale=0.5, zero=7}(q)",
            "Reshape_3/key_steps = FakeQuantize{symmetric=0.25}(k)",
            "Reshape_3/value_steps = FakeQuantize{symmetric=2}(v)",
            "Reshape_3 = Attention{heads=2, scale=0.5, mask_value=-10000, \
             softmax=FakeQuantize{scale=0.125, zero=3}}",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        // Rows of heads are no rows of the model.
        let mut g = tf1();
        g.node("steps", Op::FakeQuantize(Steps::Rows), &["transpose0"]);
        let (id, value) = (g.value("MatMul").node, g.value("steps"));
        g.graph.node_mut(id).inputs[0] = value;
        assert_eq!(run(&mut g).count("attention"), 0);
    }

    #[test]
    fn what_prevents_it_is_said() {
        let miss = |change: fn(&mut Build)| {
            let mut g = tf1();
            change(&mut g);
            let report = run(&mut g);
            assert_eq!(report.count("attention"), 0, "{report:?}");
            assert_eq!(report.missed.len(), 1, "{report:?}");
            report.missed[0].to_string()
        };
        let constant = |g: &mut Build, name: &str, value: Tensor| {
            let id = g.value(name).node;
            g.graph.node_mut(id).op = Op::constant(value);
        };
        // The mask of the queries instead of the keys.
        let why = miss(|g| {
            g.node("by_query", Op::Pack(Pack { axis: 0 }), &["batch", "six", "one"]);
            let (shape, by_query) = (g.value("mask_rows").node, g.value("by_query"));
            g.graph.node_mut(shape).inputs[1] = by_query;
            g.node("by_key", Op::Pack(Pack { axis: 0 }), &["batch", "one", "six"]);
            let (ones, by_key) = (g.value("ones").node, g.value("by_key"));
            g.graph.node_mut(ones).inputs[0] = by_key;
        });
        assert_eq!(why, "attention: `Reshape_3`: `Cast` is [batch, 6, 1], [batch, 1, 6] expected");
        // Twos instead of ones.
        let why = miss(|g| {
            g.number("2", 2.0);
            let (ones, value) = (g.value("ones").node, g.value("2"));
            g.graph.node_mut(ones).inputs[1] = value;
        });
        assert_eq!(
            why,
            "attention: `Reshape_3`: `ExpandDims` comes from nothing of the shape [batch, 6]"
        );
        let mut g = tf1();
        constant(&mut g, "1", Tensor::from_vec([], vec![2f32]).unwrap());
        assert_eq!(run(&mut g).missed[0].text, "`1` is 2, not 1");
    }

    /// As PyTorch exports it: `[b, s, h]` all along, both extents free, a division, and a mask
    /// with two new axes.
    #[test]
    fn pytorch_attention() {
        let mut g = Build::default();
        let dims = [Dim::batch(), Dim::seq(), Dim::known(8)];
        for name in ["q", "k", "v"] {
            g.input(name, DType::F32, &dims);
        }
        g.input("mask", DType::I64, &batch_by_seq());
        for (name, value) in [("1", 1.0), ("root", 2.0), ("least", f32::MIN)] {
            g.number(name, value);
        }
        for (name, value) in [("axis1", 1), ("two", 2), ("four", 4), ("eight", 8)] {
            g.int(name, value);
        }
        g.node("Shape", Op::Shape(ShapeOp { to: DType::I32 }), &["mask"]);
        g.list("l0", &[0]);
        g.list("l1", &[1]);
        g.list("l2", &[2]);
        let one = || Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        g.node("b", one(), &["Shape", "l0", "l1", "l1"]);
        g.node("s", one(), &["Shape", "l1", "l2", "l1"]);
        g.node("heads", Op::Pack(Pack { axis: 0 }), &["b", "s", "two", "four"]);
        g.node("joined", Op::Pack(Pack { axis: 0 }), &["b", "s", "eight"]);
        g.list("forth", &[0, 2, 1, 3]);
        g.list("keys", &[0, 2, 3, 1]);
        for (name, perm) in [("q", "forth"), ("k", "keys"), ("v", "forth")] {
            g.node(&format!("{name}_split"), Op::Reshape, &[name, "heads"]);
            g.node(&format!("{name}_heads"), Op::Transpose, &[&format!("{name}_split"), perm]);
        }
        g.matmul("scores", "q_heads", "k_heads");
        g.binary("scaled", Binary::Div, "scores", "root");
        g.node("mask_1", Op::ExpandDims, &["mask", "axis1"]);
        g.node("mask_2", Op::ExpandDims, &["mask_1", "two"]);
        g.node("mask_3", Op::Cast(Cast { to: DType::F32 }), &["mask_2"]);
        g.binary("sub", Binary::Sub, "1", "mask_3");
        g.binary("adder", Binary::Mul, "sub", "least");
        g.binary("add", Binary::Add, "scaled", "adder");
        g.node("softmax", Op::Softmax, &["add"]);
        g.matmul("context", "softmax", "v_heads");
        g.node("back", Op::Transpose, &["context", "forth"]);
        g.node("out", Op::Reshape, &["back", "joined"]);
        g.output("out");
        let report = run(&mut g);
        assert_eq!(report.count("attention"), 1, "{report:?}");
        assert_eq!(g.of_kind("Attention"), ["out/attention"]);
        assert_eq!(g.of_kind("Softmax"), [""; 0]);
        let id = g.value("out/attention").node;
        assert_eq!(g.graph.node(id).inputs[3], g.value("mask"));
        let facts = crate::infer(&g.graph).unwrap();
        assert_eq!(facts[g.value("out")].to_string(), "float32 [batch, seq, 8]");
        assert_eq!(facts[g.value("out/attention")].to_string(), "float32 [batch*seq, 8]");
    }
}
