//! The operations of training: losses, dropout, and the gradients of what is fused.
//!
//! They are made by `frazil-train` and run here only: no file format has them. In what follows `dx`
//! is the gradient of the loss for `x`, and `dy` that for an operation's output.

use serde::{Deserialize, Serialize};

use super::{Attention, Gelu, LayerNorm, StridedSlice};

/// See [`super::Op::Training`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Training {
    /// Of [`super::Op::LayerNorm`]. Inputs: x, gamma `[h]`, dy. Outputs: dx, and the gradients of
    /// gamma and beta, `[h]` each.
    LayerNormGrad(LayerNorm),
    /// Of [`super::Op::Gelu`]. Inputs: x, dy.
    GeluGrad(Gelu),
    /// [`super::Op::Attention`] whose probabilities go through dropout. Inputs: those of the
    /// attention, the key, the places of the queries and the places of the keys: see [`Dropout`].
    Attention(DroppedAttention),
    /// Of [`super::Op::Attention`], with or without dropout. Inputs: those of the operation, then
    /// dy. Outputs: dq, dk, dv.
    AttentionGrad(AttentionGrad),
    /// Of [`super::Op::Embed`]. Inputs: dy, `input_ids [b, s]`, `segment_ids [b, s]`, and the
    /// `index [t]` where rows are packed. Outputs: the gradients of the three tables.
    EmbedGrad(EmbedGrad),
    /// Zeros to which blocks are added along the first axis: the opposite of [`super::Op::Gather`].
    /// Inputs: the extents, indices of any rank, and a block for each index.
    ScatterAdd,
    /// Of [`super::Op::StridedSlice`]: dy in its places, zeros elsewhere. Inputs: the extents of x,
    /// begin, end, strides, dy.
    StridedSliceGrad(StridedSlice),
    /// `log Σ e^x - x[label]` of each row. Inputs: x `[r, c]`, labels `[r]` of any integer type. A
    /// row whose label is negative counts for nothing. Output `[r]`.
    CrossEntropy,
    /// Inputs: x `[r, c]`, labels `[r]`, dy `[r]`.
    CrossEntropyGrad,
    /// Elements by chance set to 0, the others divided by the probability that they stay. It is its
    /// own gradient. Inputs: x `[.., w]`, the key, the places of the rows: see [`Dropout`].
    Dropout(Dropout),
}

/// Which elements are dropped follows from the key (`int64 [2]`: seed and step), the site, the place
/// of the row (`[t]` of any integer type: one number for each row of the operation, the same
/// wherever the row lies) and the column, and from nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dropout {
    /// The probability that an element is dropped, in `0..1`.
    pub rate: f32,
    /// Tells the places of one graph apart.
    pub site: u32,
}

/// See [`Training::Attention`]. An element is a query, a head and a key: the row is that of the query,
/// the column the place of the key in its sequence, which are the low 16 bits of its place.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DroppedAttention {
    /// The attention.
    pub attention: Attention,
    /// Of its probabilities.
    pub dropout: Dropout,
}

/// See [`Training::AttentionGrad`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionGrad {
    /// The attention.
    pub attention: Attention,
    /// Of its probabilities.
    pub dropout: Option<Dropout>,
}

/// See [`Training::EmbedGrad`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EmbedGrad {
    /// Rows of the word table.
    pub words: usize,
    /// Rows of the token-type table.
    pub types: usize,
    /// Rows of the position table.
    pub positions: usize,
}

impl Training {
    /// Number of outputs.
    pub(super) fn outputs(&self) -> usize {
        match self {
            Training::LayerNormGrad(_) | Training::AttentionGrad(_) | Training::EmbedGrad(_) => 3,
            _ => 1,
        }
    }

    /// How many inputs a node of this kind has: at least and at most.
    pub(super) fn arity(&self) -> (usize, usize) {
        let attention = |op: &Attention, dropped: bool| {
            let count = if op.packed { 5 } else { 4 };
            if dropped { count + 3 } else { count }
        };
        let exactly = |count: usize| (count, count);
        match self {
            Training::GeluGrad(_) | Training::CrossEntropy => exactly(2),
            Training::LayerNormGrad(_)
            | Training::ScatterAdd
            | Training::CrossEntropyGrad
            | Training::Dropout(_) => exactly(3),
            Training::EmbedGrad(_) => (3, 4),
            Training::StridedSliceGrad(_) => exactly(5),
            Training::Attention(op) => exactly(attention(&op.attention, true)),
            Training::AttentionGrad(op) => {
                exactly(attention(&op.attention, op.dropout.is_some()) + 1)
            }
        }
    }

    /// Attributes by name, for dumps.
    pub(crate) fn attributes(&self) -> Vec<(&'static str, String)> {
        let attention = |op: &Attention| {
            let mut list = vec![("heads", op.heads.to_string()), ("scale", op.scale.to_string())];
            if op.packed {
                list.push(("packed", "true".to_owned()));
            }
            list
        };
        let dropout =
            |op: &Dropout| vec![("rate", op.rate.to_string()), ("site", op.site.to_string())];
        match self {
            Training::LayerNormGrad(op) => vec![("epsilon", format!("{:e}", op.epsilon))],
            Training::GeluGrad(op) => vec![("form", format!("{:?}", op.form).to_lowercase())],
            Training::Attention(op) => [attention(&op.attention), dropout(&op.dropout)].concat(),
            Training::AttentionGrad(op) => {
                let mut list = attention(&op.attention);
                list.extend(op.dropout.iter().flat_map(dropout));
                list
            }
            Training::EmbedGrad(op) => vec![
                ("words", op.words.to_string()),
                ("types", op.types.to_string()),
                ("positions", op.positions.to_string()),
            ],
            Training::Dropout(op) => dropout(op),
            Training::ScatterAdd
            | Training::StridedSliceGrad(_)
            | Training::CrossEntropy
            | Training::CrossEntropyGrad => vec![],
        }
    }

    /// The kind, without attributes.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Training::LayerNormGrad(_) => "LayerNormGrad",
            Training::GeluGrad(_) => "GeluGrad",
            Training::Attention(_) => "DroppedAttention",
            Training::AttentionGrad(_) => "AttentionGrad",
            Training::EmbedGrad(_) => "EmbedGrad",
            Training::ScatterAdd => "ScatterAdd",
            Training::StridedSliceGrad(_) => "StridedSliceGrad",
            Training::CrossEntropy => "CrossEntropy",
            Training::CrossEntropyGrad => "CrossEntropyGrad",
            Training::Dropout(_) => "Dropout",
        }
    }
}
