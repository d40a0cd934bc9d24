//! The Gaussian error linear unit in both of its forms, and their derivatives.

mod fast;

pub use fast::{Form, Slopes, gelu_grad_f32};

use crate::elementwise::unary;
use crate::number::{Real, erf};

/// `√(2/π)`
const SLOPE: f64 = 0.797_884_560_802_865_4;
/// Of x³ in the tanh form.
const CUBE: f64 = 0.044_715;

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`: the form in Google's `modeling.py`.
pub fn gelu_tanh<T: Real>(x: &[T], out: &mut [T]) {
    let [half, slope, cube] = [0.5, SLOPE, CUBE].map(T::narrow);
    unary(x, out, |x| {
        let inner = slope.mul(x.add(cube.mul(x).mul(x).mul(x)));
        half.mul(x).mul(T::ONE.add(inner.tanh()))
    });
}

/// `x/2 · (1 + erf(x / √2))`: the definition.
pub fn gelu_erf<T: Real>(x: &[T], out: &mut [T]) {
    unary(x, out, |x| {
        let wide = x.widen();
        T::narrow(0.5 * wide * (1.0 + erf(wide * std::f64::consts::FRAC_1_SQRT_2)))
    });
}

/// `dx = dy · gelu'(x)` of the tanh form.
pub fn gelu_tanh_grad<T: Real>(x: &[T], dy: &[T], dx: &mut [T]) {
    grad(x, dy, dx, |x| {
        let tanh = (SLOPE * (x + CUBE * x * x * x)).tanh();
        let inner = SLOPE * (1.0 + 3.0 * CUBE * x * x);
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * inner
    });
}

/// `dx = dy · gelu'(x)` of the erf form: `Φ(x) + x · φ(x)`.
pub fn gelu_erf_grad<T: Real>(x: &[T], dy: &[T], dx: &mut [T]) {
    grad(x, dy, dx, |x| {
        let density = (-0.5 * x * x).exp() * 0.5 * SLOPE;
        0.5 * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)) + x * density
    });
}

/// `dx = dy · slope(x)`
fn grad<T: Real>(x: &[T], dy: &[T], dx: &mut [T], slope: impl Fn(f64) -> f64) {
    assert_eq!(x.len(), dx.len(), "one output for each input");
    assert_eq!(dy.len(), dx.len(), "one output for each gradient");
    for ((dx, x), dy) in dx.iter_mut().zip(x).zip(dy) {
        *dx = T::narrow(dy.widen() * slope(x.widen()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_by_hand() {
        let x = [-3.0, -1.0, 0.0, 1.0, 3.0, 20.0];
        let (mut tanh, mut exact) = ([9.0f32; 6], [9.0f32; 6]);
        gelu_tanh(&x, &mut tanh);
        gelu_erf(&x, &mut exact);
        // x Φ(x), from a table of the normal distribution.
        let table = [-0.004_049_694, -0.158_655_25, 0.0, 0.841_344_8, 2.995_950_3, 20.0];
        for i in 0..x.len() {
            assert!((exact[i] - table[i]).abs() < 3e-7, "erf form of {}: {}", x[i], exact[i]);
            assert!((tanh[i] - table[i]).abs() < 5e-4, "tanh form of {}: {}", x[i], tanh[i]);
        }
    }

    #[test]
    fn tanh_form_against_f64() {
        for i in -80..=80 {
            let x = i as f32 / 10.0;
            let mut out = [0.0];
            gelu_tanh(&[x], &mut out);
            let x = f64::from(x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let expected = 0.5 * x * (1.0 + inner.tanh());
            assert!((f64::from(out[0]) - expected).abs() < 1e-6, "at {x}");
        }
    }

    #[test]
    fn derivatives_by_differences() {
        type Forms = (fn(&[f64], &mut [f64]), fn(&[f64], &[f64], &mut [f64]));
        let forms: [Forms; 2] = [(gelu_tanh, gelu_tanh_grad), (gelu_erf, gelu_erf_grad)];
        for (gelu, grad) in forms {
            for i in -80..=80 {
                let x = f64::from(i) / 10.0;
                let h = 1e-4;
                let (mut y, mut dx) = ([0.0; 2], [0.0]);
                gelu(&[x - h, x + h], &mut y);
                grad(&[x], &[3.0], &mut dx);
                let slope = 3.0 * (y[1] - y[0]) / (2.0 * h);
                assert!((dx[0] - slope).abs() < 1e-6, "{} for {slope} at {x}", dx[0]);
            }
        }
    }
}
