//! Every rule of `grad`, by differences in `f64`: one table.
//!
//! A case is a small graph over numbers that are fed; the loss is the sum of its outputs times
//! fixed weights. Each number is moved a little both ways, and what the loss makes of it is compared
//! with the gradient.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod sketch;

use std::collections::BTreeSet;

use frazil_graph::Value;
use frazil_runtime::{Inputs, Options, Session};
use frazil_tensor::Tensor;
use frazil_train::gradients;

use cases::CASES;
use sketch::Sketch;

/// How far a number is moved.
const STEP: f64 = 1e-5;
/// How far a gradient may be from the difference, relative to it where it is large. The difference
/// itself is off by the square of the step times the third derivative.
const TOLERANCE: f64 = 2e-7;

#[test]
fn every_rule() {
    let mut failures = Vec::new();
    for case in CASES {
        let worst = check(case);
        if worst.0 > TOLERANCE {
            failures.push(format!("{}: {:.1e} at {}", case.name, worst.0, worst.1));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Builds the case, and gives the largest error and where it is.
fn check(case: &cases::Case) -> (f64, String) {
    let mut sketch = Sketch::default();
    let outputs = (case.build)(&mut sketch);
    let loss = sketch.loss(&outputs);
    let (names, wrt): (Vec<String>, Vec<Value>) = sketch.numbers().into_iter().unzip();
    let grads = gradients(&mut sketch.graph, loss, &wrt)
        .unwrap_or_else(|error| panic!("{}: {error}", case.name));
    sketch.output("loss", loss);
    grads.iter().zip(&names).for_each(|(grad, name)| sketch.output(&format!("d{name}"), *grad));
    sketch.graph.check().unwrap();
    let session = Session::new(&sketch.graph, Options::default()).unwrap();
    let run = |inputs: &Inputs| -> Vec<Tensor> {
        let run = session.run(inputs).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        run.outputs.into_iter().map(|(_, tensor)| tensor).collect()
    };
    let at = run(&sketch.fed);
    let mut worst = (0.0, String::new());
    for (which, name) in names.iter().enumerate() {
        let (x, grad) = (&sketch.fed[name], &at[which + 1]);
        assert_eq!(x.shape(), grad.shape(), "{}: d{name}", case.name);
        let values = x.values::<f64>().unwrap().into_owned();
        for (i, &found) in grad.values::<f64>().unwrap().iter().enumerate() {
            let loss = |by: f64| {
                let mut moved = values.clone();
                moved[i] += by;
                let mut inputs = sketch.fed.clone();
                inputs.insert(name.clone(), Tensor::from_vec(x.shape().clone(), moved).unwrap());
                run(&inputs)[0].values::<f64>().unwrap()[0]
            };
            let slope = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
            let error = (found - slope).abs() / slope.abs().max(1.0);
            if error > worst.0 || error.is_nan() {
                worst = (error, format!("{name}[{i}]: {found} for {slope}"));
            }
        }
    }
    worst
}

/// Operations, and kinds of them, through which no gradient passes: they have no slope, or give no real
/// numbers; and those of files that frazil does not train.
const WITHOUT: &[&str] = &[
    "Input",
    "InputWithDefault",
    "Const",
    "Variable",
    "ReadVariable",
    "Compare",
    "ArgMax",
    "Shape",
    "Size",
    "Rank",
    "OneHot",
    "Range",
    "PackRows",
    "Quantize",
    "Dequantize",
    "Requantize",
    "QuantizedLinear",
    "FakeQuantize",
    "Scaled",
    "Foreign",
    "Unary(StopGradient",
    "Unary(Not",
    "Binary(FloorDiv",
    "Binary(FloorMod",
    "Binary(And",
    "Binary(Or",
];

/// What an enumeration of a source file has.
fn names<'s>(source: &'s str, of: &str) -> Vec<&'s str> {
    let body = source.split(&format!("pub enum {of} {{")).nth(1).unwrap();
    let lines = body.split("\n}").next().unwrap().lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with(char::is_uppercase));
    lines.map(|line| line.split(['(', ',']).next().unwrap()).collect()
}

/// The table has a case for each operation, and each kind of one, of the source files that say which ones
/// there are.
#[test]
fn no_rule_without_a_case() {
    let source = include_str!("../../../frazil-graph/src/op.rs");
    let training = include_str!("../../../frazil-graph/src/op/training.rs");
    let mut all = BTreeSet::new();
    all.extend(names(source, "Op").into_iter().map(str::to_owned));
    for (of, source) in [("Unary", source), ("Binary", source), ("Training", training)] {
        all.extend(names(source, of).into_iter().map(|name| format!("{of}({name}")));
    }
    let mut covered = BTreeSet::new();
    for case in CASES {
        let mut sketch = Sketch::default();
        let outputs = (case.build)(&mut sketch);
        kinds(&sketch, &mut covered);
        // What only gradients are made of is tried with them.
        let loss = sketch.loss(&outputs);
        let wrt: Vec<Value> = sketch.numbers().into_iter().map(|(_, value)| value).collect();
        gradients(&mut sketch.graph, loss, &wrt).unwrap();
        let mut made = BTreeSet::new();
        kinds(&sketch, &mut made);
        covered.extend(made.into_iter().filter(|kind| kind.starts_with("Training(")));
    }
    let has_one = |name: &str| covered.contains(name) || WITHOUT.contains(&name);
    let missing: Vec<&String> = all.iter().filter(|name| !has_one(name)).collect();
    assert!(all.len() > 80 && missing.is_empty(), "no case for {missing:?}");
}

/// The operations of a graph, `Unary`, and their kinds, `Unary(Tanh`.
fn kinds(sketch: &Sketch, to: &mut BTreeSet<String>) {
    for (_, node) in sketch.graph.nodes() {
        let text = format!("{:?}", node.op);
        let words: Vec<&str> = text.split(['(', ')', ' ', '{']).collect();
        to.insert(words[0].to_owned());
        to.extend(words.get(1).map(|kind| format!("{}({kind}", words[0])));
    }
}

#[test]
fn what_has_no_slope_is_refused_by_name() {
    use frazil_graph::op::{Binary, Foreign, Op};
    let mut sketch = Sketch::default();
    let x = sketch.x("x", &[3]);
    let y = sketch.push("mod", Op::Binary(Binary::FloorMod), &[x, x]);
    let loss = sketch.loss(&[y]);
    let error = gradients(&mut sketch.graph, loss, &[x]).unwrap_err().to_string();
    assert_eq!(error, "`mod` (FloorMod) has no gradient: it has no slope");

    let mut sketch = Sketch::default();
    let x = sketch.x("x", &[]);
    let foreign = Foreign {
        op: "Bessel".into(),
        attrs: Default::default(),
        outputs: vec![frazil_graph::op::Declared {
            dtype: Some(frazil_tensor::DType::F64),
            dims: Some(vec![]),
        }],
    };
    let y = sketch.push("bessel", Op::Foreign(foreign), &[x]);
    let error = gradients(&mut sketch.graph, y, &[x]).unwrap_err().to_string();
    assert_eq!(error, "`bessel` (Bessel) has no gradient: frazil does not know it");
    let other = sketch.x("other", &[]);
    let error = gradients(&mut sketch.graph, x, &[other]).unwrap_err().to_string();
    assert_eq!(error, "the loss does not depend on `other`");
    let list = sketch.x("list", &[2]);
    let error = gradients(&mut sketch.graph, list, &[x]).unwrap_err().to_string();
    assert_eq!(error, "the loss `list` is float64 [2], one real number expected");
}
