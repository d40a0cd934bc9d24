//! The steps that call one kernel over rows, and what each of them costs.

use frazil_graph::{NodeId, Value};
use frazil_kernels::OutOfRange;
use frazil_kernels::attention::{self, attention_f32};
use frazil_kernels::gelu::{gelu_erf_f32, gelu_tanh_f32};
use frazil_kernels::gemm::Activation;
use frazil_kernels::norm::layer_norm_f32;
use frazil_kernels::softmax::{log_softmax, softmax};

use super::program::{Attention, Embed, Program, Sequences, Step, Work};
use super::worker::{Rows, StepTime, Worker};
use crate::feed::Feed;
use crate::{Error, Result};

/// Queries and the keys that they see, both as ranges of rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub queries: std::ops::Range<usize>,
    pub keys: std::ops::Range<usize>,
}

impl Worker {
    pub(super) fn layer_norm(
        &self,
        _program: &Program,
        x: &Rows<'_>,
        (gamma, beta, epsilon): (&[f32], &[f32], f32),
        to: &mut [f32],
        stride: usize,
    ) {
        for row in 0..x.rows {
            let from = &x.data[row * x.stride..][..x.width];
            layer_norm_f32(from, gamma, beta, &mut to[row * stride..][..x.width], epsilon);
        }
    }

    pub(super) fn map(
        &self,
        _program: &Program,
        x: &Rows<'_>,
        activation: Activation,
        to: &mut [f32],
        stride: usize,
    ) {
        for row in 0..x.rows {
            let from = &x.data[row * x.stride..][..x.width];
            let to = &mut to[row * stride..][..x.width];
            match activation {
                Activation::None => to.copy_from_slice(from),
                Activation::Relu => to.iter_mut().zip(from).for_each(|(to, x)| *to = x.max(0.0)),
                Activation::Tanh => to.iter_mut().zip(from).for_each(|(to, x)| *to = x.tanh()),
                Activation::GeluTanh => gelu_tanh_f32(from, to),
                Activation::GeluErf => gelu_erf_f32(from, to),
            }
        }
    }

    pub(super) fn softmax(
        &self,
        _program: &Program,
        x: &Rows<'_>,
        log: bool,
        to: &mut [f32],
        stride: usize,
    ) {
        for row in 0..x.rows {
            let from = &x.data[row * x.stride..][..x.width];
            let to = &mut to[row * stride..][..x.width];
            if log { log_softmax(from, to, x.width) } else { softmax(from, to, x.width) }
        }
    }

    pub(super) fn embed_kernel(
        &self,
        _program: &Program,
        embed: &Embed,
        (ids, segments, index, s): (&[i32], &[i32], Option<&[i32]>, usize),
        to: &mut [f32],
        stride: usize,
    ) {
        let (words, types, positions) =
            (embed.words.values(), embed.types.values(), embed.positions.values());
        let width = embed.words.width;
        let rows = index.map_or(ids.len(), <[i32]>::len);
        for row in 0..rows {
            let at = index.map_or(row, |index| index[row] as usize);
            let to = &mut to[row * stride..][..width];
            let w = &words[ids[at] as usize * width..];
            let t = &types[segments[at] as usize * width..];
            let p = &positions[at % s * width..];
            for i in 0..width {
                to[i] = w[i] + t[i] + p[i];
            }
            if let Some(norm) = &embed.norm {
                let x = to.to_vec();
                layer_norm_f32(&x, &norm.gamma, &norm.beta, to, norm.epsilon);
            }
        }
    }

    pub(super) fn out_of_range(
        &self,
        program: &Program,
        node: NodeId,
        what: &'static str,
        indices: Value,
        OutOfRange { at, index, limit }: OutOfRange,
    ) -> Error {
        let indices = program.graph.value_name(indices);
        let node = program.graph.node(node);
        let (name, op) = (node.name.clone(), node.op.to_string());
        Error::Index { name, op, what, index, at, indices, limit }
    }

    pub(super) fn attention(
        &mut self,
        program: &Program,
        node: NodeId,
        feed: &Feed,
        attention: &Attention,
    ) -> Result<()> {
        let [mut first, mut second] = std::mem::take(&mut self.integers);
        let mut sequences = std::mem::take(&mut self.sequences);
        let mut key_rows = std::mem::take(&mut self.key_rows);
        sequences.clear();
        key_rows.clear();
        let gathered = match &attention.sequences {
            Sequences::Packed { queries, keys } => {
                self.read_integers(program, queries, feed, node, &mut first)?;
                self.read_integers(program, keys, feed, node, &mut second)?;
                let range = |bounds: &[i32]| bounds[0] as usize..bounds[1] as usize;
                let pairs = first.windows(2).zip(second.windows(2));
                sequences
                    .extend(pairs.map(|(q, k)| Sequence { queries: range(q), keys: range(k) }));
                false
            }
            Sequences::Mask(mask) => {
                let (b, s) = self.read_mask(program, mask, feed, node, &mut first)?;
                for sequence in 0..b {
                    let rows = sequence * s..(sequence + 1) * s;
                    let begin = key_rows.len();
                    let kept = rows.clone().filter(|&row| first[row] == 1).map(|row| row as u32);
                    key_rows.extend(kept);
                    if key_rows.len() == begin {
                        // Every key is as good as the others: the softmax does not see a shift.
                        key_rows.extend(rows.clone().map(|row| row as u32));
                    }
                    sequences.push(Sequence { queries: rows, keys: begin..key_rows.len() });
                }
                true
            }
        };
        let done = self.write(program, node, &attention.out, |worker, to, stride| {
            let q = worker.rows(program, &attention.q, feed, node)?;
            let k = worker.rows(program, &attention.k, feed, node)?;
            let v = worker.rows(program, &attention.v, feed, node)?;
            let width = attention.heads * attention.size;
            for sequence in &sequences {
                let take = |rows: &Rows<'_>, which: &mut dyn Iterator<Item = usize>| -> Vec<f32> {
                    which
                        .flat_map(|row| rows.data[row * rows.stride..][..width].iter().copied())
                        .collect()
                };
                let keys: Vec<usize> = sequence
                    .keys
                    .clone()
                    .map(|slot| if gathered { key_rows[slot] as usize } else { slot })
                    .collect();
                let (qs, ks, vs) = (
                    take(&q, &mut sequence.queries.clone()),
                    take(&k, &mut keys.iter().copied()),
                    take(&v, &mut keys.iter().copied()),
                );
                let mut out = vec![0.0; qs.len()];
                let mut scores = vec![0.0; keys.len()];
                let extents = attention::Attention {
                    batch: 1,
                    heads: attention.heads,
                    size: attention.size,
                    queries: sequence.queries.len(),
                    keys: keys.len(),
                    scale: attention.scale,
                    mask_value: 0.0,
                };
                attention_f32([&qs, &ks, &vs], None, &mut out, &mut scores, &extents);
                for (row, from) in sequence.queries.clone().zip(out.chunks(width)) {
                    to[row * stride..][..width].copy_from_slice(from);
                }
            }
            Ok(())
        });
        self.integers = [first, second];
        self.sequences = sequences;
        self.key_rows = key_rows;
        done
    }

    /// What a step took, and what it had to do.
    pub(super) fn time(&self, program: &Program, step: &Step, seconds: f64) -> StepTime {
        let node = program.graph.node(step.node);
        let (kind, operations) = match &step.work {
            Work::Linear { linear, out, activation, residual, .. } => {
                let linear = &program.linears[*linear];
                let (rows, _) = self.extents_of(out);
                let act = if *activation == Activation::None { "" } else { " + activation" };
                let sum = if residual.is_some() { " + sum" } else { "" };
                let kind = format!("linear {} x {}{act}{sum}", linear.k, linear.n);
                (kind, 2.0 * (rows * linear.k * linear.n) as f64)
            }
            Work::Attention(attention) => {
                let pairs: usize =
                    self.sequences.iter().map(|s| s.queries.len() * s.keys.len()).sum();
                ("attention".into(), 4.0 * (pairs * attention.heads * attention.size) as f64)
            }
            Work::Embed(_) => ("embeddings".into(), 0.0),
            Work::LayerNorm { .. } => ("layer norm".into(), 0.0),
            Work::PackRows { .. } | Work::UnpackRows { .. } => ("rows".into(), 0.0),
            Work::Map { .. } | Work::Add { .. } | Work::Softmax { .. } => {
                ("elementwise".into(), 0.0)
            }
            Work::Gather { .. } => ("gather".into(), 0.0),
            Work::Plain { .. } => (format!("plain {}", node.op), 0.0),
        };
        let mut bytes = match &step.work {
            Work::Linear { linear, .. } => 4.0 * program.linears[*linear].packed().len() as f64,
            _ => 0.0,
        };
        step.work.views(&mut |view| {
            let (rows, width) = self.extents_of(view);
            bytes += 4.0 * (rows * width) as f64;
        });
        StepTime { node: node.name.clone(), kind, seconds, operations, bytes }
    }
}
