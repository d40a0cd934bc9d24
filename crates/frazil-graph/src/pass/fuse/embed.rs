//! The sum of three lookups at the bottom of BERT, and lookups written as products with a one-hot
//! matrix.

use frazil_tensor::{DType, Tensor};

use super::{Operand, Rewrite, Rule, Site};
use crate::dim::show;
use crate::op::{Binary, Compare, Gather, Op};
use crate::pattern::{
    Pattern, any, compare, constant, leaf, list, matmul, node, one_of, reshaped, scalar, source,
    sum, weight,
};
use crate::{Dim, Value};

pub(super) fn rule() -> Rule {
    Rule {
        name: "embed",
        anchors: |op| matches!(op, Op::Binary(Binary::Add) | Op::AddN),
        forms: vec![sum(&[
            reshaped(lookup("word_table", "word_ids")).bind("words"),
            reshaped(lookup("type_table", "type_ids")).bind("types"),
            positions().bind("positions"),
        ])],
        rewrite,
    }
}

pub(super) fn one_hot_rule() -> Rule {
    Rule {
        name: "one_hot",
        anchors: |op| matches!(op, Op::MatMul(_)),
        forms: one_hot(any("ids")).map(|hot| matmul(hot, any("table"))).into(),
        rewrite: rewrite_one_hot,
    }
}

/// Rows of a table, by index or by a product with a one-hot matrix.
fn lookup(table: &'static str, ids: &'static str) -> Pattern {
    let [hot, compared] = one_hot(any(ids)).map(|hot| matmul(hot.key(), weight(table)));
    one_of([gather(weight(table), any(ids)).key(), hot, compared])
}

fn gather(table: Pattern, ids: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::Gather(op) if op.batch_dims == 0)
    }
    node("Gather", test, vec![table, ids, constant(0.0)])
}

/// 1 in the place of the id, along a new last axis; also as a comparison with 0, 1, 2, …, as files have
/// it whose own operation means something else by negative ids.
fn one_hot(ids: Pattern) -> [Pattern; 2] {
    fn test(op: &Op) -> bool {
        matches!(op, Op::OneHot(op) if op.axis == -1)
    }
    let column = |op: &Op| *op == Op::ExpandDims;
    let column = node("ExpandDims", column, vec![ids.clone(), any("axis")]).bind("column");
    let number = |op: &Op| matches!(op, Op::Cast(op) if op.to == DType::F32);
    [
        node("OneHot", test, vec![ids, any("depth"), constant(1.0), constant(0.0)]),
        node("Cast", number, vec![compare(Compare::Equal, column, any("classes"))]),
    ]
}

/// Whether a comparison, if there is one, is with 0, 1, 2, … along a new last axis.
fn check_one_hot(site: &Site<'_>) -> Result<(), String> {
    let Some(column) = site.found.get("column") else { return Ok(()) };
    let last = site.dims(column)?.len() as i64 - 1;
    if !matches!(site.integers(site.value("axis"))?[..], [axis] if axis == -1 || axis == last) {
        return Err(format!("the new axis of {} is not the last one", site.name(column)));
    }
    counts_up(site, site.value("classes"))
}

/// The first rows of a table: sliced off (once or, in graphs that were generalised, twice), looked
/// up by 0, 1, 2, …, or all there are.
fn positions() -> Pattern {
    let slice = |x: Pattern, size: &'static str| {
        node("Slice", |op| *op == Op::Slice, vec![x, list(&[0, 0]), any(size)])
    };
    let whole = || weight("position_table");
    let table = || one_of([whole(), slice(whole(), "prefix")]);
    let ids = reshaped(any_of_known().bind("position_ids"));
    reshaped(one_of([slice(table(), "size"), first_rows(table()), gather(table(), ids), whole()]))
}

/// `table[:n]`, also as `table[:n, :]`.
fn first_rows(table: Pattern) -> Pattern {
    fn test(op: &Op) -> bool {
        matches!(op, Op::StridedSlice(op)
            if op.ellipsis_mask == 0 && op.new_axis_mask == 0 && op.shrink_axis_mask == 0)
    }
    let begins = one_of([list(&[0]), list(&[0, 0])]);
    let strides = one_of([list(&[1]), list(&[1, 1])]);
    node("StridedSlice from the first row", test, vec![table, begins, any("end"), strides])
}

/// Indices that do not come from outside: a constant, a part of one, or a range.
fn any_of_known() -> Pattern {
    let constant = || leaf("Const", |op| matches!(op, Op::Const(_)));
    let slice = |op: &Op| matches!(op, Op::Slice | Op::StridedSlice(_));
    one_of([
        constant(),
        leaf("Range", |op| *op == Op::Range),
        node("Slice", slice, vec![constant(), any("begin"), any("size")]),
        node("StridedSlice", slice, vec![constant(), any("begin"), any("size"), any("strides")]),
    ])
}

fn rewrite(site: &Site<'_>) -> Result<Rewrite, String> {
    // words: [b, s, h]
    let [b, s, h] = site.dims(site.value("words"))? else {
        return Err(format!("{} has not three axes", site.name(site.value("words"))));
    };
    let types = site.dims(site.value("types"))?;
    let same_batch = |d: &Dim| d == b || (d.as_known().is_none() && b.as_known().is_none());
    if !matches!(types, [d, e, f] if same_batch(d) && e == s && f == h) {
        let name = site.name(site.value("types"));
        return Err(format!("{name} is {}, [{b}, {s}, {h}] expected", show(types)));
    }
    let positions = site.dims(site.value("positions"))?;
    let (outer, rows) = positions.split_at(positions.len().saturating_sub(2));
    let each =
        matches!(rows, [n, f] if f == h && (n == s || (n.as_known().is_none() && cut_at(site, s))));
    if !each || !outer.iter().all(|d| d.is(1)) {
        let name = site.name(site.value("positions"));
        return Err(format!("{name} is {}, one row for each of {s} expected", show(positions)));
    }
    if let Some(ids) = site.found.get("position_ids") {
        counts_up(site, ids)?;
    }
    let tables = ["word_table", "type_table", "position_table"].map(|name| site.value(name));
    for table in tables {
        let dims = site.dims(table)?;
        if !matches!(dims, [_, f] if f == h) {
            return Err(format!("{} is {}, [.., {h}] expected", site.name(table), show(dims)));
        }
    }
    check_one_hot(site)?;
    let ids = ["word_ids", "type_ids"].map(|name| by_position(site, site.value(name), b, s));
    let [Ok(words), Ok(types)] = ids else {
        return Err(ids.into_iter().find_map(Result::err).unwrap_or_default());
    };
    // The formula does not tell words from token types; there are more of the former.
    let rows = |table: Value| site.dims(table).ok().and_then(|dims| dims[0].as_known());
    let inputs = if rows(tables[0]) >= rows(tables[1]) {
        [words, types, tables[0], tables[1], tables[2]]
    } else {
        [types, words, tables[1], tables[0], tables[2]]
    };
    Ok(Rewrite { op: Op::Embed, inputs: inputs.map(Operand::As).into(), reshape_stays: false })
}

/// The ids as `[b, s]`: the value furthest up behind reshapes that has these extents. One extent
/// that agrees is enough, since the reshapes keep the number of elements.
fn by_position(site: &Site<'_>, ids: Value, b: &Dim, s: &Dim) -> Result<Value, String> {
    let mut found = None;
    for value in site.behind_reshapes(ids) {
        if matches!(site.dims(value), Ok([d, e]) if d == b || e == s) {
            found = Some(value);
        }
    }
    found.ok_or_else(|| format!("{} comes from nothing of the shape [{b}, {s}]", site.name(ids)))
}

/// Whether the positions are the first `s` of a longer table, or of a longer list of ids. How many there
/// are is not known then, since there may be fewer; but these would not go with the words.
fn cut_at(site: &Site<'_>, s: &Dim) -> bool {
    let ends = |value: Value| site.fact(value).and_then(|fact| fact.elements.as_deref());
    if let Some(rows) = site.found.get("end") {
        return ends(rows).and_then(<[Dim]>::first) == Some(s);
    }
    let Some(ids) = site.found.get("position_ids") else { return false };
    let node = site.graph.node(source(site.graph, ids).node);
    matches!(node.op, Op::StridedSlice(_))
        && ends(node.inputs[2]).and_then(<[Dim]>::last) == Some(s)
}

/// Whether indices are 0, 1, 2, …
fn counts_up(site: &Site<'_>, ids: Value) -> Result<(), String> {
    let wrong = || Err(format!("{} does not count up from 0", site.name(ids)));
    let node = site.graph.node(source(site.graph, ids).node);
    let starts = |i: usize, at: i64| {
        site.integers(node.inputs[i]).is_ok_and(|values| values.iter().all(|v| *v == at))
    };
    match &node.op {
        Op::Const(op) => {
            let values = op.value.to_f64().map_err(|error| error.to_string())?;
            // Leading axes of extent 1 do not count.
            let rows = op.value.shape().last() == Some(&values.len());
            let counts = values.iter().enumerate().all(|(i, v)| *v == i as f64);
            if rows && counts { Ok(()) } else { wrong() }
        }
        Op::Range => {
            let number = |i: usize| scalar(site.graph, node.inputs[i]).map(|(value, _)| value);
            if number(0) == Some(0.0) && number(2) == Some(1.0) { Ok(()) } else { wrong() }
        }
        Op::Slice if starts(1, 0) => counts_up(site, node.inputs[0]),
        Op::StridedSlice(op)
            if starts(1, 0)
                && starts(3, 1)
                && op.shrink_axis_mask == 0
                && op.new_axis_mask == 0 =>
        {
            counts_up(site, node.inputs[0])
        }
        _ => wrong(),
    }
}

fn rewrite_one_hot(site: &Site<'_>) -> Result<Rewrite, String> {
    let (ids, table) = (site.value("ids"), site.value("table"));
    check_one_hot(site)?;
    let (rank, dims) = (site.dims(ids)?.len(), site.dims(table)?);
    if rank == 0 || dims.len() != 2 {
        return Err(format!("{} is {}, two axes expected", site.name(table), show(dims)));
    }
    let axis = Tensor::from_vec([], vec![0i32]).map_err(|error| error.to_string())?;
    Ok(Rewrite {
        op: Op::Gather(Gather { batch_dims: 0 }),
        inputs: vec![
            Operand::As(table),
            Operand::As(ids),
            Operand::New("axis", Op::constant(axis), vec![]),
        ],
        reshape_stays: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Cast, OneHot, Pack, ShapeOp, StridedSlice};
    use crate::pass::{Fusions, Report, fuse};
    use crate::testing::{Build, batch_by_seq};

    /// TF1's graph with a free batch: `[batch, 6]` ids, hidden 4.
    fn tf1() -> Build {
        let mut g = Build::default();
        let dims = [Dim::batch(), Dim::known(6)];
        g.input("ids", DType::I32, &dims);
        g.input("segments", DType::I32, &dims);
        g.weight("word", &[30, 4]);
        g.weight("type", &[2, 4]);
        g.weight("position", &[9, 4]);
        for (name, value) in [("zero", 0), ("last", -1), ("depth", 2), ("six", 6), ("four", 4)] {
            g.int(name, value);
        }
        g.number("on", 1.0);
        g.number("off", 0.0);
        for (name, list) in [("flat", &[-1][..]), ("l0", &[0]), ("l1", &[1]), ("b", &[0, 0])] {
            g.list(name, list);
        }
        g.list("size", &[6, -1]);
        g.list("pshape", &[1, 6, 4]);
        g.node("ExpandDims", Op::ExpandDims, &["ids", "last"]);
        g.node("Reshape", Op::Reshape, &["ExpandDims", "flat"]);
        g.node("GatherV2", Op::Gather(Gather::default()), &["word", "Reshape", "zero"]);
        g.node("Shape", Op::Shape(ShapeOp { to: DType::I32 }), &["ExpandDims"]);
        let first = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        g.node("strided_slice", first, &["Shape", "l0", "l1", "l1"]);
        g.node("shape", Op::Pack(Pack { axis: 0 }), &["strided_slice", "six", "four"]);
        g.node("Reshape_1", Op::Reshape, &["GatherV2", "shape"]);
        g.node("Reshape_2", Op::Reshape, &["segments", "flat"]);
        g.node("one_hot", Op::OneHot(OneHot { axis: -1 }), &["Reshape_2", "depth", "on", "off"]);
        g.matmul("MatMul", "one_hot", "type");
        g.node("Reshape_3", Op::Reshape, &["MatMul", "shape"]);
        g.binary("add", Binary::Add, "Reshape_1", "Reshape_3");
        g.node("Slice", Op::Slice, &["position", "b", "size"]);
        g.node("Reshape_4", Op::Reshape, &["Slice", "pshape"]);
        g.binary("add_1", Binary::Add, "add", "Reshape_4");
        g.output("add_1");
        g
    }

    fn run(g: &mut Build, fusions: &Fusions) -> Report {
        fuse(&mut g.graph, fusions).unwrap()
    }

    #[test]
    fn tf1_embeddings() {
        let mut g = tf1();
        let report = run(&mut g, &Fusions::all());
        assert_eq!((report.count("embed"), report.count("one_hot")), (1, 0), "{report:?}");
        let id = g.value("add_1").node;
        let inputs = ["ids", "segments", "word", "type", "position"].map(|name| g.value(name));
        assert_eq!(g.graph.node(id).inputs, inputs);
        assert_eq!(g.graph.len(), 6);
        assert!(report.missed.is_empty(), "{report:?}");
    }

    #[test]
    fn one_hot_products_become_lookups() {
        let mut g = tf1();
        let report = run(&mut g, &Fusions { one_hot: true, ..Fusions::none() });
        assert_eq!(report.count("one_hot"), 1, "{report:?}");
        assert_eq!(g.of_kind("Gather"), ["GatherV2", "MatMul"]);
        assert_eq!(g.of_kind("OneHot"), [""; 0]);
        // And what the rule has taken apart is still found.
        assert_eq!(run(&mut g, &Fusions::all()).count("embed"), 1);
    }

    #[test]
    fn positions_that_do_not_start_at_the_first_row_are_explained() {
        let mut g = tf1();
        let begin = Op::constant(Tensor::from_vec([2], vec![2i32, 0]).unwrap());
        let id = g.value("b").node;
        g.graph.node_mut(id).op = begin;
        let report = run(&mut g, &Fusions { embed: true, ..Fusions::none() });
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["embed: `add_1`: `b` is Const, not the constant [0, 0]"]);
    }

    /// PyTorch's: all three by index, the positions by a constant that counts up.
    #[test]
    fn positions_by_index() {
        for (first, fits) in [(0, true), (1, false)] {
            let mut g = Build::default();
            for name in ["ids", "segments"] {
                g.input(name, DType::I64, &[Dim::batch(), Dim::known(3)]);
            }
            g.weight("word", &[30, 4]);
            g.weight("type", &[2, 4]);
            g.weight("position", &[9, 4]);
            g.int("zero", 0);
            let rows = Tensor::from_vec([1, 3], vec![first, 1i64, 2]).unwrap();
            g.node("rows", Op::constant(rows), &[]);
            let gather = || Op::Gather(Gather::default());
            g.node("p", gather(), &["position", "rows", "zero"]);
            g.node("w", gather(), &["word", "ids", "zero"]);
            g.node("t", gather(), &["type", "segments", "zero"]);
            g.binary("add", Binary::Add, "w", "p");
            g.binary("add_1", Binary::Add, "add", "t");
            g.output("add_1");
            let report = run(&mut g, &Fusions::all());
            assert_eq!(report.count("embed"), usize::from(fits), "{report:?}");
            assert_eq!(report.missed.len(), usize::from(!fits), "{report:?}");
        }
    }

    /// The same with a free length: `rows[:, :seq]` of a longer list.
    #[test]
    fn positions_by_index_with_a_dynamic_length() {
        for (end, fits) in [("length", true), ("one", false)] {
            let mut g = Build::default();
            for name in ["ids", "segments"] {
                g.input(name, DType::I32, &batch_by_seq());
            }
            g.weight("word", &[30, 4]);
            g.weight("type", &[2, 4]);
            g.weight("position", &[9, 4]);
            g.int("zero", 0);
            g.int("one", 1);
            for (name, list) in [("l1", &[1][..]), ("l2", &[2]), ("00", &[0, 0]), ("11", &[1, 1])] {
                g.list(name, list);
            }
            let rows = Tensor::from_vec([1, 9], (0..9).collect::<Vec<i32>>()).unwrap();
            g.node("rows", Op::constant(rows), &[]);
            g.node("Shape", Op::Shape(ShapeOp { to: DType::I32 }), &["ids"]);
            let one = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
            g.node("length", one, &["Shape", "l1", "l2", "l1"]);
            g.node("end", Op::Pack(Pack { axis: 0 }), &["zero", end]);
            let masks = StridedSlice { begin_mask: 3, end_mask: 1, ..Default::default() };
            g.node("slice", Op::StridedSlice(masks), &["rows", "00", "end", "11"]);
            let gather = || Op::Gather(Gather::default());
            g.node("p", gather(), &["position", "slice", "zero"]);
            g.node("w", gather(), &["word", "ids", "zero"]);
            g.node("t", gather(), &["type", "segments", "zero"]);
            g.binary("add", Binary::Add, "w", "t");
            g.binary("add_1", Binary::Add, "add", "p");
            g.output("add_1");
            let report = run(&mut g, &Fusions::all());
            assert_eq!(report.count("embed"), usize::from(fits), "{report:?}");
        }
    }

    /// As ONNX files have it: a one-hot matrix by comparison, and the first rows of the table.
    #[test]
    fn comparisons_and_first_rows_with_a_dynamic_length() {
        for (classes, end, fits) in
            [([0, 1], "length", true), ([1, 0], "length", false), ([0, 1], "l2", false)]
        {
            let mut g = Build::default();
            for name in ["ids", "segments"] {
                g.input(name, DType::I32, &batch_by_seq());
            }
            g.weight("word", &[30, 4]);
            g.weight("type", &[2, 4]);
            g.weight("position", &[9, 4]);
            g.int("zero", 0);
            g.int("last", -1);
            for (name, list) in [("l0", &[0][..]), ("l1", &[1]), ("l2", &[2])] {
                g.list(name, list);
            }
            let classes = Tensor::from_vec([2], classes.to_vec()).unwrap();
            g.node("classes", Op::constant(classes), &[]);
            g.node("Shape", Op::Shape(ShapeOp { to: DType::I32 }), &["ids"]);
            let part = || Op::StridedSlice(StridedSlice::default());
            g.node("length", part(), &["Shape", "l1", "l2", "l1"]);
            g.node("p", part(), &["position", "l0", end, "l1"]);
            g.node("w", Op::Gather(Gather::default()), &["word", "ids", "zero"]);
            g.node("column", Op::ExpandDims, &["segments", "last"]);
            g.node("same", Op::Compare(Compare::Equal), &["column", "classes"]);
            g.node("hot", Op::Cast(Cast { to: DType::F32 }), &["same"]);
            g.matmul("t", "hot", "type");
            g.binary("add", Binary::Add, "w", "t");
            g.binary("add_1", Binary::Add, "add", "p");
            g.output("add_1");
            let report = run(&mut g, &Fusions::all());
            assert_eq!(report.count("embed"), usize::from(fits), "{report:?}");
        }
    }

    #[test]
    fn a_dynamic_length() {
        let mut g = tf1();
        for name in ["ids", "segments"] {
            let id = g.value(name).node;
            let dims = Some(batch_by_seq());
            g.graph.node_mut(id).op = Op::Input(crate::op::Input { dtype: DType::I32, dims });
        }
        g.list("l2", &[2]);
        let one = Op::StridedSlice(StridedSlice { shrink_axis_mask: 1, ..Default::default() });
        g.node("length", one, &["Shape", "l1", "l2", "l1"]);
        g.int("one", 1);
        g.int("all", -1);
        g.node("dynamic", Op::Pack(Pack { axis: 0 }), &["strided_slice", "length", "four"]);
        g.node("dynamic_size", Op::Pack(Pack { axis: 0 }), &["length", "all"]);
        g.node("dynamic_pshape", Op::Pack(Pack { axis: 0 }), &["one", "length", "four"]);
        for (node, input) in [
            ("Reshape_1", "dynamic"),
            ("Reshape_3", "dynamic"),
            ("Reshape_4", "dynamic_pshape"),
            ("Slice", "dynamic_size"),
        ] {
            let (id, value) = (g.value(node).node, g.value(input));
            *g.graph.node_mut(id).inputs.last_mut().unwrap() = value;
        }
        let report = run(&mut g, &Fusions::all());
        assert_eq!(report.count("embed"), 1, "{report:?}");
        let facts = crate::infer(&g.graph).unwrap();
        assert_eq!(facts[g.value("add_1")].to_string(), "float32 [batch, seq, 4]");
    }
}
