//! The Gaussian error linear unit in both of its forms.

use crate::elementwise::unary;
use crate::number::{Real, erf};

/// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`: the form in Google's `modeling.py`.
pub fn gelu_tanh_f32(x: &[f32], out: &mut [f32]) {
    const SQRT_2_OVER_PI: f32 = 0.797_884_6;
    unary(x, out, |x| 0.5 * x * (1.0 + Real::tanh(SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x))));
}

/// `x/2 · (1 + erf(x / √2))`: the definition.
pub fn gelu_erf_f32(x: &[f32], out: &mut [f32]) {
    unary(x, out, |x| {
        let wide = f64::from(x);
        (0.5 * wide * (1.0 + erf(wide * std::f64::consts::FRAC_1_SQRT_2))) as f32
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_by_hand() {
        let x = [-3.0, -1.0, 0.0, 1.0, 3.0, 20.0];
        let (mut tanh, mut exact) = ([9.0; 6], [9.0; 6]);
        gelu_tanh_f32(&x, &mut tanh);
        gelu_erf_f32(&x, &mut exact);
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
            gelu_tanh_f32(&[x], &mut out);
            let x = f64::from(x);
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            let expected = 0.5 * x * (1.0 + inner.tanh());
            assert!((f64::from(out[0]) - expected).abs() < 1e-6, "at {x}");
        }
    }
}
