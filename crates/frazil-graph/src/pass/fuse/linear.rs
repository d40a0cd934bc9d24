//! A product with a weight, plus a bias.

use super::{Operand, Rewrite, Rule, Site};
use crate::dim::show;
use crate::op::{Binary, Linear, Op};
use crate::pattern::{Pattern, any, node, source, transpose, weight};

pub(super) fn rule() -> Rule {
    Rule {
        name: "linear",
        anchors: |op| matches!(op, Op::Binary(Binary::Add) | Op::BiasAdd),
        forms: vec![
            product(weight("w").key()) + weight("bias"),
            product(transpose(weight("w").key(), &[1, 0]).bind("transposed")) + weight("bias"),
        ],
        rewrite,
    }
}

/// `x w`, whichever of the two is transposed.
fn product(w: Pattern) -> Pattern {
    node("MatMul", |op| matches!(op, Op::MatMul(_)), vec![any("x"), w]).bind("product")
}

fn rewrite(site: &Site<'_>) -> Result<Rewrite, String> {
    let (x, w, bias) = (site.value("x"), site.value("w"), site.value("bias"));
    let Op::MatMul(product) = site.graph.op(source(site.graph, site.value("product"))) else {
        return Err("there is no product".to_owned());
    };
    if product.transpose_a {
        return Err(format!("{} is transposed", site.name(x)));
    }
    let transpose_w = product.transpose_b != site.found.get("transposed").is_some();
    let [rows, columns] = site.dims(w)? else {
        let dims = show(site.dims(w)?);
        return Err(format!("{} is {dims}, two axes expected", site.name(w)));
    };
    let outputs = if transpose_w { rows } else { columns };
    if site.dims(bias)? != [outputs.clone()] {
        let dims = show(site.dims(bias)?);
        return Err(format!("{} is {dims}, [{outputs}] expected", site.name(bias)));
    }
    Ok(Rewrite {
        op: Op::Linear(Linear { transpose_w }),
        inputs: [x, w, bias].map(Operand::As).into(),
        reshape_stays: false,
    })
}

#[cfg(test)]
mod tests {
    use frazil_tensor::{DType, Shape};

    use super::*;
    use crate::Dim;
    use crate::op::{ReadVariable, Unary, Variable};
    use crate::pass::{Fusions, Report, fuse};
    use crate::testing::Build;

    fn start() -> Build {
        let mut g = Build::default();
        g.input("x", DType::F32, &[Dim::batch(), Dim::known(8)]);
        g.weight("w", &[8, 4]);
        g.weight("bias", &[4]);
        g
    }

    fn run(g: &mut Build) -> Report {
        fuse(&mut g.graph, &Fusions::all()).unwrap()
    }

    #[test]
    fn weights_may_be_constants_or_variables() {
        let mut g = start();
        let variable = |shape: &[usize], resource| {
            let shape = Some(Shape::from(shape));
            Op::Variable(Variable { dtype: DType::F32, shape, resource })
        };
        g.node("v", variable(&[4, 6], true), &[]);
        g.node("v/read", Op::ReadVariable(ReadVariable { dtype: DType::F32 }), &["v"]);
        g.node("c", variable(&[6], false), &[]);
        g.unary("c/read", Unary::Identity, "c");
        g.matmul("MatMul", "x", "w");
        g.node("BiasAdd", Op::BiasAdd, &["MatMul", "bias"]);
        g.matmul("MatMul_1", "BiasAdd", "v/read");
        g.binary("add", Binary::Add, "c/read", "MatMul_1");
        g.output("add");
        assert_eq!(run(&mut g).count("linear"), 2);
        assert_eq!(g.of_kind("Linear"), ["BiasAdd", "add"]);
        let id = g.value("add").node;
        let inputs = ["BiasAdd", "v/read", "c/read"].map(|name| g.value(name));
        assert_eq!(g.graph.node(id).inputs, inputs);
        assert_eq!(g.of_kind("MatMul"), [""; 0]);
    }

    #[test]
    fn transposed_weights() {
        let mut g = start();
        g.weight("u", &[4, 8]);
        g.list("perm", &[1, 0]);
        g.matmul_transposed("MatMul", "x", "u");
        g.node("BiasAdd", Op::BiasAdd, &["MatMul", "bias"]);
        g.node("transpose", Op::Transpose, &["u", "perm"]);
        g.matmul("MatMul_1", "x", "transpose");
        g.node("BiasAdd_1", Op::BiasAdd, &["MatMul_1", "bias"]);
        g.output("BiasAdd");
        g.output("BiasAdd_1");
        assert_eq!(run(&mut g).count("linear"), 2);
        for name in ["BiasAdd", "BiasAdd_1"] {
            assert_eq!(*g.graph.op(g.value(name)), Op::Linear(Linear { transpose_w: true }));
        }
    }

    #[test]
    fn a_product_of_two_activations_is_no_miss() {
        let mut g = start();
        g.input("y", DType::F32, &[Dim::known(8), Dim::known(4)]);
        g.matmul("MatMul", "x", "y");
        g.node("BiasAdd", Op::BiasAdd, &["MatMul", "bias"]);
        g.output("BiasAdd");
        assert_eq!(run(&mut g), Report::default());
    }

    #[test]
    fn a_sum_that_is_no_bias_is_explained() {
        let mut g = start();
        g.input("y", DType::F32, &[Dim::batch(), Dim::known(4)]);
        g.matmul("MatMul", "x", "w");
        g.binary("add", Binary::Add, "MatMul", "y");
        g.weight("row", &[1, 4]);
        g.binary("add_1", Binary::Add, "MatMul", "row");
        g.output("add");
        g.output("add_1");
        let report = run(&mut g);
        assert_eq!(report.count("linear"), 0);
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["linear: `add_1`: `row` is [1, 4], [4] expected"]);
    }
}
