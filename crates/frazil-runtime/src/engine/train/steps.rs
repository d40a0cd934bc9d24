//! The steps of training: each finds its operands and calls one kernel.

use frazil_kernels::OutOfRange;
use frazil_kernels::attention::{
    PackedDropout, PackedGrads, grad_scratch_len, packed_attention_grad_f32,
};
use frazil_kernels::columns::add_up;
use frazil_kernels::dropout::{Dropout, dropout_f32};
use frazil_kernels::embed::{EmbedRows, Table, embed_rows_f32, scatter_rows_f32};
use frazil_kernels::gelu::{Slopes, gelu_grad_f32};
use frazil_kernels::gemm::{Epilogue, Output, Residual, f32 as gemm};
use frazil_kernels::loss::{Scores, cross_entropy_f32, cross_entropy_grad_f32};
use frazil_kernels::norm::{
    Affine, LayerNorm, LayerNormGrad, fused_layer_norm_f32, layer_norm_grad_f32, norm_scratch_len,
};
use frazil_kernels::random::Key;

use super::{Dropped, Lookup, Product, Train};
use crate::Result;
use crate::engine::block::Block;
use crate::engine::program::{Attention, Place, View};
use crate::engine::steps::out_of_range;
use crate::engine::worker::{Context, Rows, Worker};

impl Worker {
    pub(in crate::engine) fn train(&mut self, context: Context<'_>, train: &Train) -> Result<()> {
        let isa = context.program.isa;
        match train {
            Train::Product(product) => self.product(context, product),
            Train::Transpose { x, out } => {
                let mut lent = self.take(context, out)?;
                let (x, ld) = (self.rows(context, x)?, lent.stride);
                let extents = [x.rows, x.width];
                gemm::transpose_f32(
                    &self.pool,
                    isa,
                    (&x.data, x.stride),
                    extents,
                    (lent.f32(), ld),
                );
                self.give(lent);
                Ok(())
            }
            Train::Embed { lookup, tables, out } => self.embed_rows(context, lookup, tables, out),
            Train::LayerNorm { x, norm, out } => {
                let mut lent = self.take(context, out)?;
                let (x, ld) = (self.rows(context, x)?, lent.stride);
                let gamma = self.rows(context, &norm.gamma)?;
                let beta = match &norm.beta {
                    Some(beta) => self.rows(context, beta)?,
                    None => return Err(context.fail("there is no beta")),
                };
                let (gamma, beta) = (&gamma.data[..x.width], &beta.data[..x.width]);
                let affine = Affine { gamma, beta, epsilon: norm.epsilon };
                let norm =
                    LayerNorm { rows: x.rows, x: &x.data, x_ld: x.stride, residual: None, affine };
                fused_layer_norm_f32(&self.pool, isa, &norm, lent.f32(), ld, None);
                self.give(lent);
                Ok(())
            }
            Train::LayerNormGrad { x, norm, dy, grads } => {
                let [dx, dgamma, dbeta] = &**grads;
                let mut dx = self.take(context, dx)?;
                let (mut dgamma, mut dbeta) =
                    (self.take(context, dgamma)?, self.take(context, dbeta)?);
                let mut scratch = std::mem::take(&mut self.scratch);
                let (x, dy) = (self.rows(context, x)?, self.rows(context, dy)?);
                let gamma = self.rows(context, &norm.gamma)?;
                let room = room(context, &mut scratch, norm_scratch_len(x.rows, x.width))?;
                let grad = LayerNormGrad {
                    rows: x.rows,
                    x: (&x.data, x.stride),
                    dy: (&dy.data, dy.stride),
                    gamma: &gamma.data[..x.width],
                    epsilon: norm.epsilon,
                };
                let ld = dx.stride;
                let both = [&mut dgamma.f32()[..x.width], &mut dbeta.f32()[..x.width]];
                layer_norm_grad_f32(&self.pool, isa, &grad, (dx.f32(), ld), both, room);
                self.scratch = scratch;
                [dx, dgamma, dbeta].into_iter().for_each(|lent| self.give(lent));
                Ok(())
            }
            Train::GeluGrad { x, dy, form, out } => {
                let mut lent = self.take(context, out)?;
                let (x, dy, ld) = (self.rows(context, x)?, self.rows(context, dy)?, lent.stride);
                let slopes = Slopes {
                    extents: [x.rows, x.width],
                    x: (&x.data, x.stride),
                    dy: (&dy.data, dy.stride),
                };
                gelu_grad_f32(&self.pool, isa, *form, &slopes, lent.f32(), ld);
                self.give(lent);
                Ok(())
            }
            Train::AddUp { x, out } => {
                let mut lent = self.take(context, out)?;
                let x = self.rows(context, x)?;
                let sums = &mut lent.f32()[..x.width];
                add_up(&self.pool, isa, &x.data, x.stride, [x.rows, x.width], sums);
                self.give(lent);
                Ok(())
            }
            Train::Attention { attention, dropped } => {
                self.attention(context, attention, Some(dropped))
            }
            Train::AttentionGrad { attention, dropped, dy, grads } => {
                self.attention_grad(context, attention, dropped.as_ref(), dy, grads)
            }
            Train::EmbedGrad { lookup, dy, grads, onto } => {
                self.embed_grad(context, lookup, dy, grads, *onto)
            }
            Train::Scatter { indices, source, dy, out } => {
                let mut lent = self.take(context, out)?;
                let (entries, width) = self.extents_of(out);
                let mut places = std::mem::take(&mut self.integers[0]);
                self.read_integers(context, indices, &mut places)?;
                let outside = |&x: &i32| usize::try_from(x).map_or(true, |x| x >= entries);
                if let Some(at) = places.iter().position(outside) {
                    let error = OutOfRange { at, index: places[at].into(), limit: entries };
                    return Err(out_of_range(context, "id", *source, error));
                }
                let mut rows = std::mem::take(&mut self.lookups[0]);
                rows.clear();
                rows.extend(places.iter().map(|&place| place as u32));
                let dy = self.rows(context, dy)?;
                let (from, to) = ((&*dy.data, dy.stride), &mut lent.f32()[..entries * width]);
                scatter_rows_f32(&self.pool, isa, from, width, &rows, to, false);
                self.give(lent);
                self.lookups[0] = rows;
                self.integers[0] = places;
                Ok(())
            }
            Train::CrossEntropy { x, labels, source, out } => {
                let mut lent = self.take(context, out)?;
                let list = self.labels(context, labels)?;
                let x = self.rows(context, x)?;
                let scores = scores(context, &x, &list, *source)?;
                let losses = &mut lent.f32()[..list.len()];
                cross_entropy_f32(&self.pool, isa, &scores, losses);
                self.give(lent);
                self.integers[0] = list;
                Ok(())
            }
            Train::CrossEntropyGrad { x, labels, source, dy, out } => {
                let mut lent = self.take(context, out)?;
                let list = self.labels(context, labels)?;
                let (x, dy, ld) = (self.rows(context, x)?, self.rows(context, dy)?, lent.stride);
                let scores = scores(context, &x, &list, *source)?;
                let dy = &dy.data[..list.len()];
                cross_entropy_grad_f32(&self.pool, isa, &scores, dy, lent.f32(), ld);
                self.give(lent);
                self.integers[0] = list;
                Ok(())
            }
            Train::Dropout { x, dropped, out } => {
                let mut lent = self.take(context, out)?;
                let how = self.dropout_of(context, dropped)?;
                let mut places = std::mem::take(&mut self.lookups[0]);
                self.read_places(context, &dropped.places, &mut places)?;
                let (x, ld) = (self.rows(context, x)?, lent.stride);
                if places.len() != x.rows {
                    return Err(context.fail(format!(
                        "{} places for {} rows",
                        places.len(),
                        x.rows
                    )));
                }
                let (from, to) = ((&*x.data, x.stride), (lent.f32(), ld));
                dropout_f32(&self.pool, isa, from, x.width, &places, to, &how);
                self.give(lent);
                self.lookups[0] = places;
                Ok(())
            }
        }
    }

    fn product(&mut self, context: Context<'_>, product: &Product) -> Result<()> {
        let isa = context.program.isa;
        let mut lent = self.take(context, &product.out)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        let (a, b) = (self.rows(context, &product.a)?, self.rows(context, &product.b)?);
        let (_, n) = self.extents_of(&product.out);
        let k = a.width;
        let packed = room(context, &mut scratch, gemm::packed_len(isa, k, n))?;
        let matrix = gemm::Matrix { x: &b.data, ld: b.stride, order: product.order };
        gemm::pack_matrix(&self.pool, isa, &matrix, [k, n], packed);
        let rows = |place: &Option<Place>| {
            place.as_ref().map(|place| self.rows(context, place)).transpose()
        };
        let (bias, sum) = (rows(&product.bias)?, rows(&product.residual)?);
        let residual = sum.as_ref().map(|rows| Residual { x: &rows.data, ld: rows.stride });
        let product = gemm::Gemm {
            m: a.rows,
            n,
            k,
            a: &a.data,
            lda: a.stride,
            w: packed,
            ldc: lent.stride,
            out: Output::F32(lent.f32()),
            epilogue: Epilogue {
                bias: bias.as_ref().map(|bias| &*bias.data),
                activation: product.activation,
                residual,
            },
        };
        gemm::run(&self.pool, isa, product);
        self.scratch = scratch;
        self.give(lent);
        Ok(())
    }

    /// Labels as the kernels read them; to be put back into `integers[0]`.
    fn labels(&mut self, context: Context<'_>, labels: &Place) -> Result<Vec<i32>> {
        let mut list = std::mem::take(&mut self.integers[0]);
        self.read_integers(context, labels, &mut list)?;
        Ok(list)
    }

    /// Integers as places of rows.
    fn read_places(&mut self, context: Context<'_>, from: &Place, to: &mut Vec<u32>) -> Result<()> {
        let mut list = std::mem::take(&mut self.integers[0]);
        self.read_integers(context, from, &mut list)?;
        to.clear();
        to.extend(list.iter().map(|&place| place as u32));
        self.integers[0] = list;
        Ok(())
    }

    /// Dropout with the seed and the step of this run.
    fn dropout_of(&self, context: Context<'_>, dropped: &Dropped) -> Result<Dropout> {
        let key = self.given(context, &dropped.key)?;
        let wrong = || context.fail(format!("the key is {} {}", key.dtype(), key.shape()));
        let values = key.values::<i64>().map_err(|_| wrong())?;
        let &[seed, step] = &*values else { return Err(wrong()) };
        let key = Key { seed: seed as u64, step: step as u64 };
        Ok(Dropout { rate: dropped.dropout.rate, site: dropped.dropout.site, key })
    }

    fn embed_rows(
        &mut self,
        context: Context<'_>,
        lookup: &Lookup,
        tables: &[Place; 3],
        out: &View,
    ) -> Result<()> {
        self.look_up(context, lookup)?;
        let mut lent = self.take(context, out)?;
        let (stride, isa) = (lent.stride, context.program.isa);
        let [words, types, positions] = [0, 1, 2].map(|i| self.rows(context, &tables[i]));
        let tables = [words?, types?, positions?];
        let rows = EmbedRows {
            tables: [0, 1, 2].map(|i| Table::F32(&tables[i].data)),
            indices: [0, 1, 2].map(|i| self.lookups[i].as_slice()),
            width: tables[0].width,
        };
        embed_rows_f32(&self.pool, isa, &rows, lent.f32(), stride);
        self.give(lent);
        Ok(())
    }

    fn embed_grad(
        &mut self,
        context: Context<'_>,
        lookup: &Lookup,
        dy: &Place,
        grads: &[View; 3],
        onto: bool,
    ) -> Result<()> {
        self.look_up(context, lookup)?;
        for (i, view) in grads.iter().enumerate() {
            let mut lent = self.take(context, view)?;
            let (entries, width) = self.extents_of(view);
            let dy = self.rows(context, dy)?;
            let (from, to) = ((&*dy.data, dy.stride), &mut lent.f32()[..entries * width]);
            let (isa, add) = (context.program.isa, onto && i == 0);
            scatter_rows_f32(&self.pool, isa, from, width, &self.lookups[i], to, add);
            self.give(lent);
        }
        Ok(())
    }

    /// What embeddings look up, into `lookups`.
    fn look_up(&mut self, context: Context<'_>, lookup: &Lookup) -> Result<()> {
        let index = lookup.index.as_ref();
        let (ids, segments) = (&lookup.ids, &lookup.segments);
        self.read_lookups(context, [ids, segments], index, lookup.limits, lookup.sources)
    }

    /// The places of queries, and the columns of the keys' slots, into `lookups[0]` and
    /// `integers[1]`.
    pub(in crate::engine) fn read_dropped(
        &mut self,
        context: Context<'_>,
        dropped: &Dropped,
        gathered: bool,
    ) -> Result<Dropout> {
        let mut queries = std::mem::take(&mut self.lookups[0]);
        self.read_places(context, &dropped.places, &mut queries)?;
        self.lookups[0] = queries;
        let mut keys = std::mem::take(&mut self.integers[1]);
        match &dropped.keys {
            Some(place) => self.read_integers(context, place, &mut keys)?,
            None => return Err(context.fail("the keys have no places")),
        }
        if gathered {
            let of_slot = |&row: &u32| keys.get(row as usize).copied().unwrap_or(0);
            let of_slots: Vec<i32> = self.key_rows.iter().map(of_slot).collect();
            keys = of_slots;
        }
        keys.iter_mut().for_each(|key| *key &= 0xffff);
        self.integers[1] = keys;
        self.dropout_of(context, dropped)
    }

    /// The same as the kernels want it.
    pub(in crate::engine) fn packed_dropout(&self, dropout: Dropout) -> PackedDropout<'_> {
        PackedDropout { dropout, queries: &self.lookups[0], keys: &self.integers[1] }
    }

    fn attention_grad(
        &mut self,
        context: Context<'_>,
        attention: &Attention,
        dropped: Option<&Dropped>,
        dy: &Place,
        grads: &[View; 3],
    ) -> Result<()> {
        let Some(gathered) = self.read_sequences(context, &attention.sequences)? else {
            return Err(context.fail("a mask that is neither 0 nor 1 has no gradient"));
        };
        let dropout =
            dropped.map(|dropped| self.read_dropped(context, dropped, gathered)).transpose()?;
        let isa = context.program.isa;
        let most = |of: fn(&frazil_kernels::attention::Sequence) -> usize| {
            self.sequences.iter().map(of).max().unwrap_or(0)
        };
        let (queries, keys) = (most(|s| s.queries.len()), most(|s| s.keys.len()));
        let each = grad_scratch_len(isa, attention.size, queries, keys);
        let mut scratch = std::mem::take(&mut self.scratch);
        let room = room(context, &mut scratch, each.saturating_mul(self.pool.threads()))?;
        let [dq, dk, dv] = grads;
        let mut dq = self.take(context, dq)?;
        let (mut dk, mut dv) = (self.take(context, dk)?, self.take(context, dv)?);
        let operands = [&attention.q, &attention.k, &attention.v];
        let [q, k, v] = operands.map(|place| self.rows(context, place));
        let (q, k, v, dy) = (q?, k?, v?, self.rows(context, dy)?);
        let rows = self.packed(attention, [&q, &k, &v], gathered);
        let dropout = dropout.map(|dropout| self.packed_dropout(dropout));
        let strides = [dq.stride, dk.stride, dv.stride];
        let to = PackedGrads {
            dq: (dq.f32(), strides[0]),
            dk: (dk.f32(), strides[1]),
            dv: (dv.f32(), strides[2]),
            keys: k.rows,
        };
        let dy = (&*dy.data, dy.stride);
        packed_attention_grad_f32(&self.pool, isa, &rows, dropout.as_ref(), dy, to, room);
        [dq, dk, dv].into_iter().for_each(|lent| self.give(lent));
        self.scratch = scratch;
        Ok(())
    }
}

/// So many numbers of scratch.
pub(in crate::engine) fn room<'a>(
    context: Context<'_>,
    scratch: &'a mut Block,
    len: usize,
) -> Result<&'a mut [f32]> {
    scratch.reserve(len).ok_or_else(|| context.fail("there is no room for its scratch"))?;
    Ok(&mut scratch.f32_mut()[..len])
}

/// Scores with their labels, which are checked.
fn scores<'a>(
    context: Context<'_>,
    x: &'a Rows<'_>,
    labels: &'a [i32],
    source: frazil_graph::Value,
) -> Result<Scores<'a>> {
    if labels.len() != x.rows {
        return Err(context.fail(format!("{} labels for {} rows", labels.len(), x.rows)));
    }
    let outside = |&label: &i32| usize::try_from(label).is_ok_and(|label| label >= x.width);
    if let Some(at) = labels.iter().position(outside) {
        let error = OutOfRange { at, index: labels[at].into(), limit: x.width };
        return Err(out_of_range(context, "label", source, error));
    }
    Ok(Scores { x: &x.data, ld: x.stride, columns: x.width, labels })
}

impl Worker {
    /// What a step of training is called in profiles, and the operations that it must make.
    pub(in crate::engine) fn cost(&self, train: &Train) -> (String, f64) {
        let pairs = |s: &frazil_kernels::attention::Sequence| s.queries.len() * s.keys.len();
        let attention = |of: &Attention, products: f64| {
            let pairs: usize = self.sequences.iter().map(pairs).sum();
            2.0 * products * (pairs * of.heads * of.size) as f64
        };
        match train {
            Train::Product(product) => {
                let (m, n) = self.extents_of(&product.out);
                let (what, k) = match (&product.a, &product.b) {
                    (Place::View(a), _) => ("product", self.extents_of(a).1),
                    (_, Place::View(b)) => ("product", self.extents_of(b).0),
                    _ => ("product", 0),
                };
                (format!("{what} {m} x {k} x {n}"), 2.0 * (m * k * n) as f64)
            }
            Train::Transpose { .. } => ("transpose".into(), 0.0),
            Train::Embed { .. } => ("embeddings".into(), 0.0),
            Train::LayerNorm { .. } => ("layer norm".into(), 0.0),
            Train::LayerNormGrad { .. } => ("layer norm gradient".into(), 0.0),
            Train::GeluGrad { .. } => ("gelu gradient".into(), 0.0),
            Train::AddUp { .. } => ("sums over rows".into(), 0.0),
            Train::Attention { attention: of, .. } => ("attention".into(), attention(of, 2.0)),
            Train::AttentionGrad { attention: of, .. } => {
                ("attention gradient".into(), attention(of, 5.0))
            }
            Train::EmbedGrad { .. } | Train::Scatter { .. } => ("lookup gradient".into(), 0.0),
            Train::CrossEntropy { .. } | Train::CrossEntropyGrad { .. } => {
                ("cross entropy".into(), 0.0)
            }
            Train::Dropout { .. } => ("dropout".into(), 0.0),
        }
    }
}
