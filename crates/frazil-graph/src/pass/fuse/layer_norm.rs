//! LayerNorm as TensorFlow 1 writes it (through its batch normalisation) and as it is defined.

use super::{Operand, Rewrite, Rule, Site};
use crate::dim::show;
use crate::op::{Binary, LayerNorm, Op};
use crate::pattern::{Pattern, any, binary, mean, number, one_of, product, rsqrt, sqrt, square};

pub(super) fn rule() -> Rule {
    Rule {
        name: "layer_norm",
        anchors: |op| matches!(op, Op::Binary(Binary::Add) | Op::BiasAdd),
        forms: vec![batch_norm_form(), moments_form()],
        rewrite,
    }
}

/// The mean of x, and the variance as the mean of squared differences in any spelling.
fn moments() -> (Pattern, Pattern) {
    let x = any("x");
    let centre = mean(x.clone(), any("mean_axes"));
    let squares = one_of([
        binary(Binary::SquaredDifference, x.clone(), centre.clone()),
        square(x - centre.clone()),
    ]);
    (centre, mean(squares, any("variance_axes")).key())
}

/// `variance + epsilon`, or an epsilon of 0.
fn shifted(variance: Pattern) -> Pattern {
    one_of([variance.clone() + number("epsilon"), variance])
}

/// `x s + (beta - mean s)` with `s = gamma / sqrt(variance + epsilon)`
fn batch_norm_form() -> Pattern {
    let (mean, variance) = moments();
    let (x, gamma, beta) = (any("x"), any("gamma"), any("beta"));
    let scale = rsqrt(shifted(variance)) * gamma;
    x * scale.clone() + (beta - mean * scale)
}

/// `(x - mean) / sqrt(variance + epsilon) gamma + beta`
fn moments_form() -> Pattern {
    let (mean, variance) = moments();
    let (x, gamma, beta) = (any("x"), any("gamma"), any("beta"));
    let centered = x - mean;
    let root = sqrt(shifted(variance.clone()));
    let inverse = rsqrt(shifted(variance));
    let normed = one_of([
        centered.clone() / root.clone() * gamma.clone(),
        centered.clone() * gamma.clone() / root.clone(),
        centered.clone() * (gamma.clone() / root),
        product(&[inverse, centered, gamma]),
    ]);
    normed + beta
}

fn rewrite(site: &Site<'_>) -> Result<Rewrite, String> {
    let (x, gamma, beta) = (site.value("x"), site.value("gamma"), site.value("beta"));
    for axes in ["mean_axes", "variance_axes"] {
        let axes = site.integers(site.value(axes))?;
        let last = match site.dims(x) {
            Ok(dims) => dims.len() as i64 - 1,
            Err(_) if axes == [-1] => -1,
            Err(why) => return Err(why),
        };
        if axes != [-1] && axes != [last] {
            return Err(format!("it normalises axes {axes:?}, not the last one"));
        }
    }
    for weight in [gamma, beta] {
        let dims = site.dims(weight)?;
        if dims.len() != 1 {
            return Err(format!("{} is {}, one axis expected", site.name(weight), show(dims)));
        }
    }
    site.same_shape(x)?;
    let epsilon = site.found.number("epsilon").unwrap_or(0.0) as f32;
    Ok(Rewrite {
        op: Op::LayerNorm(LayerNorm { epsilon }),
        inputs: [x, gamma, beta].map(Operand::As).into(),
        reshape_stays: false,
    })
}

#[cfg(test)]
mod tests {
    use frazil_tensor::DType;

    use super::*;
    use crate::Dim;
    use crate::op::Unary;
    use crate::pass::{Fusions, Report, fuse};
    use crate::testing::Build;

    fn start(axis: i32) -> Build {
        let mut g = Build::default();
        g.input("x", DType::F32, &[Dim::batch(), Dim::seq(), Dim::known(8)]);
        g.weight("gamma", &[8]);
        g.weight("beta", &[8]);
        g.list("axes", &[axis]);
        g.number("eps", 1e-12);
        g
    }

    fn tf1(axis: i32) -> Build {
        let mut g = start(axis);
        g.list("axes_1", &[axis]);
        g.mean("mean", "x", "axes");
        g.unary("StopGradient", Unary::StopGradient, "mean");
        g.binary("sd", Binary::SquaredDifference, "x", "StopGradient");
        g.mean("variance", "sd", "axes_1");
        g.binary("add", Binary::Add, "variance", "eps");
        g.unary("Rsqrt", Unary::Rsqrt, "add");
        g.binary("mul", Binary::Mul, "Rsqrt", "gamma");
        g.binary("mul_1", Binary::Mul, "x", "mul");
        g.binary("mul_2", Binary::Mul, "mean", "mul");
        g.binary("sub", Binary::Sub, "beta", "mul_2");
        g.binary("add_1", Binary::Add, "mul_1", "sub");
        g.output("add_1");
        g
    }

    fn run(g: &mut Build) -> Report {
        fuse(&mut g.graph, &Fusions::all()).unwrap()
    }

    #[test]
    fn tf1_form() {
        for axis in [2, -1] {
            let mut g = tf1(axis);
            let report = run(&mut g);
            assert_eq!(report.count("layer_norm"), 1, "{report:?}");
            assert!(report.missed.is_empty(), "{report:?}");
            let id = g.value("add_1").node;
            let node = g.graph.node(id);
            assert_eq!(node.op, Op::LayerNorm(LayerNorm { epsilon: 1e-12 }));
            assert_eq!(node.inputs, ["x", "gamma", "beta"].map(|name| g.value(name)));
            assert_eq!(g.graph.len(), 4);
        }
    }

    #[test]
    fn another_axis_is_a_miss() {
        let mut g = tf1(1);
        let before = g.graph.clone();
        let report = run(&mut g);
        assert_eq!(report.done, []);
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["layer_norm: `add_1`: it normalises axes [1], not the last one"]);
        assert_eq!(g.graph, before);
    }

    #[test]
    fn a_form_with_another_tail_is_explained() {
        let mut g = tf1(2);
        // beta + mean * scale, which is no normalisation.
        let id = g.value("sub").node;
        g.graph.node_mut(id).op = Op::Binary(Binary::Add);
        let report = run(&mut g);
        let notes: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["layer_norm: `add_1`: `sub` is Add, not Sub"]);
    }

    /// As PyTorch exports it: the difference by two nodes, a power, a root and a division.
    #[test]
    fn moments_form_with_division() {
        let mut g = start(-1);
        g.number("2", 2.0);
        g.mean("mean", "x", "axes");
        g.binary("centered", Binary::Sub, "x", "mean");
        g.binary("centered_1", Binary::Sub, "x", "mean");
        g.binary("pow", Binary::Pow, "centered_1", "2");
        g.mean("variance", "pow", "axes");
        g.binary("add", Binary::Add, "variance", "eps");
        g.unary("sqrt", Unary::Sqrt, "add");
        g.binary("div", Binary::Div, "centered", "sqrt");
        g.binary("mul", Binary::Mul, "div", "gamma");
        g.binary("out", Binary::Add, "mul", "beta");
        g.output("out");
        assert_eq!(run(&mut g).count("layer_norm"), 1);
        assert_eq!(g.graph.len(), 4);
    }

    #[test]
    fn moments_form_with_rsqrt() {
        let mut g = start(-1);
        g.mean("mean", "x", "axes");
        g.binary("centered", Binary::Sub, "x", "mean");
        g.unary("square", Unary::Square, "centered");
        g.mean("variance", "square", "axes");
        g.binary("add", Binary::Add, "eps", "variance");
        g.unary("rsqrt", Unary::Rsqrt, "add");
        g.binary("scale", Binary::Mul, "gamma", "rsqrt");
        g.binary("mul", Binary::Mul, "centered", "scale");
        g.binary("out", Binary::Add, "beta", "mul");
        g.output("out");
        assert_eq!(run(&mut g).count("layer_norm"), 1);
        assert_eq!(g.graph.len(), 4);
    }
}
