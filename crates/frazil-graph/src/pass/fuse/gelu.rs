//! GELU, by the error function and by its approximation with tanh.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use super::{Operand, Rewrite, Rule, Site};
use crate::op::{Binary, Gelu, GeluForm, Op, Unary};
use crate::pattern::{Pattern, any, constant, cube, erf, one_of, product, source, square, tanh};

pub(super) fn rule() -> Rule {
    Rule {
        name: "gelu",
        anchors: |op| *op == Op::Binary(Binary::Mul),
        forms: vec![by_tanh(), by_tanh_factored(), by_erf()],
        rewrite,
    }
}

/// `0.5 x (1 + tanh(sqrt(2/π) (x + 0.044715 x³)))`
fn by_tanh() -> Pattern {
    let x = any("x");
    let inner = (2.0 / PI).sqrt() * (x.clone() + 0.044715 * cube(x.clone()));
    product(&[constant(0.5), x, 1.0 + tanh(inner).key().bind("curve")])
}

/// `0.5 x (1 + tanh(sqrt(2/π) x (1 + 0.044715 x²)))`
fn by_tanh_factored() -> Pattern {
    let x = any("x");
    let squared = one_of([
        0.044715 * square(x.clone()),
        product(&[constant(0.044715), x.clone(), x.clone()]),
    ]);
    let inner = product(&[constant((2.0 / PI).sqrt()), x.clone(), 1.0 + squared]);
    product(&[constant(0.5), x, 1.0 + tanh(inner).key().bind("curve")])
}

/// `0.5 x (1 + erf(x / sqrt(2)))`
fn by_erf() -> Pattern {
    let x = any("x");
    let inner = one_of([x.clone() / SQRT_2, FRAC_1_SQRT_2 * x.clone()]);
    product(&[constant(0.5), x, 1.0 + erf(inner).key().bind("curve")])
}

fn rewrite(site: &Site<'_>) -> Result<Rewrite, String> {
    let x = site.value("x");
    site.same_shape(x)?;
    let erf = *site.graph.op(source(site.graph, site.value("curve"))) == Op::Unary(Unary::Erf);
    let form = if erf { GeluForm::Erf } else { GeluForm::Tanh };
    Ok(Rewrite { op: Op::Gelu(Gelu { form }), inputs: vec![Operand::As(x)], reshape_stays: false })
}

#[cfg(test)]
mod tests {
    use frazil_tensor::DType;

    use super::*;
    use crate::pass::{Fusions, Report, fuse};
    use crate::testing::{Build, batch_by_seq};

    /// TF1's graph, with numbers of choice.
    fn tanh_graph(cubic: f32) -> Build {
        let mut g = Build::default();
        g.input("x", DType::F32, &batch_by_seq());
        for (name, value) in
            [("3", 3.0), ("k", cubic), ("c", 0.797_884_6), ("1", 1.0), ("half", 0.5)]
        {
            g.number(name, value);
        }
        g.binary("Pow", Binary::Pow, "x", "3");
        g.binary("mul", Binary::Mul, "k", "Pow");
        g.binary("add", Binary::Add, "x", "mul");
        g.binary("mul_1", Binary::Mul, "c", "add");
        g.unary("Tanh", Unary::Tanh, "mul_1");
        g.binary("add_1", Binary::Add, "1", "Tanh");
        g.binary("mul_2", Binary::Mul, "half", "add_1");
        g.binary("mul_3", Binary::Mul, "x", "mul_2");
        g.unary("out", Unary::Neg, "mul_3");
        g.output("out");
        g
    }

    fn run(g: &mut Build) -> Report {
        fuse(&mut g.graph, &Fusions::all()).unwrap()
    }

    #[test]
    fn tf1_tanh_form() {
        let mut g = tanh_graph(0.044715);
        let report = run(&mut g);
        assert_eq!(report.done[0].to_string(), "gelu: `mul_3`: 8 nodes became Gelu");
        assert!(report.missed.is_empty(), "{:?}", report.missed);
        let names: Vec<&str> = g.graph.nodes().map(|(_, node)| node.name.as_str()).collect();
        assert_eq!(names, ["x", "mul_3", "out"]);
        assert_eq!(*g.graph.op(g.value("mul_3")), Op::Gelu(Gelu { form: GeluForm::Tanh }));
    }

    #[test]
    fn a_number_that_is_off_is_named() {
        let mut g = tanh_graph(0.054715);
        let report = run(&mut g);
        assert_eq!(report.count("gelu"), 0);
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("gelu: `mul_3`: `k` is 0.0547"), "{notes:?}");
    }

    #[test]
    fn what_others_read_stays() {
        let mut g = tanh_graph(0.044715);
        g.output("Tanh");
        assert_eq!(run(&mut g).count("gelu"), 1);
        assert!(g.graph.find("mul_2").is_none());
        assert_eq!(g.of_kind("Tanh"), ["Tanh"]);
        g.graph.check().unwrap();
    }

    /// Google's old graphs divide by a square root; PyTorch's multiply last by 0.5.
    #[test]
    fn erf_forms() {
        let mut g = Build::default();
        g.input("x", DType::F32, &batch_by_seq());
        let short = (FRAC_1_SQRT_2 as f32 * 1e4).floor() / 1e4;
        for (name, value) in [("2", 2.0), ("r", short), ("1", 1.0), ("half", 0.5)] {
            g.number(name, value);
        }
        g.unary("Sqrt", Unary::Sqrt, "2");
        g.binary("truediv", Binary::Div, "x", "Sqrt");
        g.unary("Erf", Unary::Erf, "truediv");
        g.binary("add", Binary::Add, "1", "Erf");
        g.binary("mul", Binary::Mul, "half", "add");
        g.binary("mul_1", Binary::Mul, "x", "mul");
        g.binary("scaled", Binary::Mul, "mul_1", "r");
        g.unary("erf_2", Unary::Erf, "scaled");
        g.binary("add_2", Binary::Add, "erf_2", "1");
        g.binary("mul_2", Binary::Mul, "mul_1", "add_2");
        g.binary("mul_3", Binary::Mul, "mul_2", "half");
        g.output("mul_3");
        let report = run(&mut g);
        assert_eq!(g.of_kind("Gelu"), ["mul_1", "mul_3"]);
        assert_eq!((g.graph.len(), report.missed.len()), (3, 0));
        assert_eq!(*g.graph.op(g.value("mul_3")), Op::Gelu(Gelu { form: GeluForm::Erf }));
    }

    #[test]
    fn a_pooler_is_no_miss() {
        let mut g = Build::default();
        g.input("x", DType::F32, &batch_by_seq());
        g.unary("Tanh", Unary::Tanh, "x");
        g.binary("square", Binary::Mul, "Tanh", "Tanh");
        g.output("square");
        assert_eq!(run(&mut g), Report::default());
    }
}
