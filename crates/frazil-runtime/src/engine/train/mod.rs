//! What only training does: products with weights that change from step to step, losses, dropout and
//! gradients. The steps are planned and run like all others.
//!
//! Weights are [`Parameters`]: they belong to the caller, who changes them between runs.

mod parameters;
mod steps;

use frazil_graph::Value;
use frazil_graph::op::Dropout;
use frazil_kernels::gelu::Form;
use frazil_kernels::gemm::{Activation, Orientation};

pub use parameters::Parameters;
pub(super) use steps::room;

use super::program::{Attention, Place, View};

/// A step of training.
pub(crate) enum Train {
    /// `a b`, with what follows it.
    Product(Box<Product>),
    /// Rows as columns.
    Transpose {
        x: Place,
        out: View,
    },
    Embed {
        lookup: Box<Lookup>,
        tables: [Place; 3],
        out: View,
    },
    LayerNorm {
        x: Place,
        norm: Norm,
        out: View,
    },
    /// `grads`: dx, and those of gamma and beta.
    LayerNormGrad {
        x: Place,
        norm: Norm,
        dy: Place,
        grads: Box<[View; 3]>,
    },
    GeluGrad {
        x: Place,
        dy: Place,
        form: Form,
        out: View,
    },
    /// The sum of all rows.
    AddUp {
        x: Place,
        out: View,
    },
    /// Attention whose probabilities go through dropout.
    Attention {
        attention: Box<Attention>,
        dropped: Dropped,
    },
    /// `grads`: dq, dk and dv. The attention's own output is not computed.
    AttentionGrad {
        attention: Box<Attention>,
        dropped: Option<Dropped>,
        dy: Place,
        grads: Box<[View; 3]>,
    },
    /// `grads`: those of the three tables. `onto`: that of the words is added to what is there.
    EmbedGrad {
        lookup: Box<Lookup>,
        dy: Place,
        grads: Box<[View; 3]>,
        onto: bool,
    },
    /// Rows added up in their places.
    Scatter {
        indices: Place,
        source: Value,
        dy: Place,
        out: View,
    },
    CrossEntropy {
        x: Place,
        labels: Place,
        source: Value,
        out: View,
    },
    CrossEntropyGrad {
        x: Place,
        labels: Place,
        source: Value,
        dy: Place,
        out: View,
    },
    Dropout {
        x: Place,
        dropped: Dropped,
        out: View,
    },
}

/// A product of two matrices; the right one is packed on the way.
pub(crate) struct Product {
    /// `[m, k]`
    pub a: Place,
    /// `[k, n]` or `[n, k]`
    pub b: Place,
    pub order: Orientation,
    pub bias: Option<Place>,
    pub activation: Activation,
    pub residual: Option<Place>,
    /// `[m, n]`
    pub out: View,
}

/// What is looked up.
pub(crate) struct Lookup {
    pub ids: Place,
    pub segments: Place,
    pub index: Option<Place>,
    /// Rows of the three tables.
    pub limits: [usize; 3],
    /// The values of ids and segments, for messages.
    pub sources: [Value; 2],
}

/// The parameters of a normalisation; gradients do without beta.
pub(crate) struct Norm {
    pub gamma: Place,
    pub beta: Option<Place>,
    pub epsilon: f32,
}

/// Dropout, with where its key and the places of rows are; attention has other rows for its keys.
pub(crate) struct Dropped {
    pub dropout: Dropout,
    pub key: Place,
    pub places: Place,
    pub keys: Option<Place>,
}

impl Train {
    /// What the step writes.
    pub(crate) fn written(&self, seen: &mut dyn FnMut(&View)) {
        match self {
            Train::Product(product) => seen(&product.out),
            Train::Attention { attention, .. } => seen(attention.out.view()),
            Train::Transpose { out, .. }
            | Train::Embed { out, .. }
            | Train::LayerNorm { out, .. }
            | Train::GeluGrad { out, .. }
            | Train::AddUp { out, .. }
            | Train::Scatter { out, .. }
            | Train::CrossEntropy { out, .. }
            | Train::CrossEntropyGrad { out, .. }
            | Train::Dropout { out, .. } => seen(out),
            Train::LayerNormGrad { grads, .. }
            | Train::AttentionGrad { grads, .. }
            | Train::EmbedGrad { grads, .. } => grads.iter().for_each(seen),
        }
    }

    /// Every place that the step reads.
    pub(crate) fn places(&self, seen: &mut dyn FnMut(&Place)) {
        let lookup = |lookup: &Lookup, seen: &mut dyn FnMut(&Place)| {
            seen(&lookup.ids);
            seen(&lookup.segments);
            lookup.index.iter().for_each(seen);
        };
        let norm = |norm: &Norm, seen: &mut dyn FnMut(&Place)| {
            seen(&norm.gamma);
            norm.beta.iter().for_each(seen);
        };
        let dropped = |dropped: &Dropped, seen: &mut dyn FnMut(&Place)| {
            seen(&dropped.key);
            seen(&dropped.places);
            dropped.keys.iter().for_each(seen);
        };
        match self {
            Train::Product(product) => {
                seen(&product.a);
                seen(&product.b);
                product.bias.iter().chain(&product.residual).for_each(seen);
            }
            Train::Transpose { x, .. } | Train::AddUp { x, .. } => seen(x),
            Train::Embed { lookup: of, tables, .. } => {
                lookup(of, seen);
                tables.iter().for_each(seen);
            }
            Train::LayerNorm { x, norm: of, .. } => {
                seen(x);
                norm(of, seen);
            }
            Train::LayerNormGrad { x, norm: of, dy, .. } => {
                seen(x);
                seen(dy);
                norm(of, seen);
            }
            Train::GeluGrad { x, dy, .. } => {
                seen(x);
                seen(dy);
            }
            Train::Attention { attention, dropped: of } => {
                attention.places(seen);
                dropped(of, seen);
            }
            Train::AttentionGrad { attention, dropped: of, dy, .. } => {
                attention.places(seen);
                of.iter().for_each(|of| dropped(of, seen));
                seen(dy);
            }
            Train::EmbedGrad { lookup: of, dy, .. } => {
                lookup(of, seen);
                seen(dy);
            }
            Train::Scatter { indices, dy, .. } => {
                seen(indices);
                seen(dy);
            }
            Train::CrossEntropy { x, labels, .. } => {
                seen(x);
                seen(labels);
            }
            Train::CrossEntropyGrad { x, labels, dy, .. } => {
                seen(x);
                seen(labels);
                seen(dy);
            }
            Train::Dropout { x, dropped: of, .. } => {
                seen(x);
                dropped(of, seen);
            }
        }
    }
}
