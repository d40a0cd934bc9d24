//! The step of an attention: which queries see which keys, and the kernel that takes it from there.

use frazil_kernels::attention::{PackedAttention, Sequence, dropped_attention_f32, scratch_len};
use frazil_kernels::quantize::{on_steps, quantize_rows_f32, quantize_symmetric};
use frazil_tensor::Tensor;

use super::output;
use crate::engine::program::{Attention, Place, Sequences, Target};
use crate::engine::train::{Dropped, room};
use crate::engine::worker::{Context, Rows, Worker};
use crate::{Error, Result, ops};

impl Worker {
    /// Which queries see which keys, into `sequences` and, if that is said, `key_rows`; `None` for a
    /// mask that is neither 0 nor 1.
    pub(in crate::engine) fn read_sequences(
        &mut self,
        context: Context<'_>,
        of: &Sequences,
    ) -> Result<Option<bool>> {
        let [mut first, mut second] = std::mem::take(&mut self.integers);
        let mut sequences = std::mem::take(&mut self.sequences);
        let mut key_rows = std::mem::take(&mut self.key_rows);
        sequences.clear();
        key_rows.clear();
        let gathered = match of {
            Sequences::Packed { queries, keys } => {
                self.read_integers(context, queries, &mut first)?;
                self.read_integers(context, keys, &mut second)?;
                let range = |bounds: &[i32]| bounds[0] as usize..bounds[1] as usize;
                let pairs = first.windows(2).zip(second.windows(2));
                sequences
                    .extend(pairs.map(|(q, k)| Sequence { queries: range(q), keys: range(k) }));
                false
            }
            Sequences::Mask(mask) => {
                let (b, s) = self.read_mask(context, mask, &mut first)?;
                if first.contains(&2) {
                    return Ok(None);
                }
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
        self.integers = [first, second];
        self.sequences = sequences;
        self.key_rows = key_rows;
        Ok(Some(gathered))
    }

    /// `dropped`: what its probabilities go through, if they do.
    pub(in crate::engine) fn attention(
        &mut self,
        context: Context<'_>,
        attention: &Attention,
        dropped: Option<&Dropped>,
    ) -> Result<()> {
        let read = self.read_sequences(context, &attention.sequences)?;
        let gathered = match (read, &attention.sequences, dropped) {
            (Some(gathered), ..) => gathered,
            // Neither padding nor not: the formula as it stands.
            (None, Sequences::Mask(mask), None) => {
                return self.plain_attention(context, attention, mask);
            }
            (None, ..) => return Err(context.fail("a mask that is neither 0 nor 1, with dropout")),
        };
        let dropout =
            dropped.map(|dropped| self.read_dropped(context, dropped, gathered)).transpose()?;
        let isa = context.program.isa;
        let longest = self.sequences.iter().map(|sequence| sequence.keys.len()).max().unwrap_or(0);
        let each = scratch_len(isa, attention.size, longest);
        let mut scratch = std::mem::take(&mut self.scratch);
        let room = room(context, &mut scratch, each.saturating_mul(self.pool.threads()))?;
        let mut lent = self.take(context, attention.out.view())?;
        let operands = [&attention.q, &attention.k, &attention.v];
        let [q, k, v] = operands.map(|place| self.rows(context, place));
        let (q, k, v) = (q?, k?, v?);
        let rows = self.packed(attention, [&q, &k, &v], gathered);
        let dropout = dropout.map(|dropout| self.packed_dropout(dropout));
        let ld = lent.stride;
        let out = output(&mut lent, &attention.out);
        dropped_attention_f32(&self.pool, isa, &rows, dropout.as_ref(), out, ld, room);
        self.give(lent);
        self.scratch = scratch;
        Ok(())
    }

    /// The attention of sequences that were read.
    pub(in crate::engine) fn packed<'a>(
        &'a self,
        attention: &Attention,
        [q, k, v]: [&'a Rows<'a>; 3],
        gathered: bool,
    ) -> PackedAttention<'a> {
        PackedAttention {
            heads: attention.heads,
            size: attention.size,
            scale: attention.scale,
            steps: attention.steps,
            q: &q.data,
            q_ld: q.stride,
            k: &k.data,
            k_ld: k.stride,
            v: &v.data,
            v_ld: v.stride,
            sequences: &self.sequences,
            key_rows: gathered.then_some(self.key_rows.as_slice()),
        }
    }

    /// Attention by the plain kernel.
    fn plain_attention(
        &mut self,
        context: Context<'_>,
        attention: &Attention,
        mask: &Place,
    ) -> Result<()> {
        let steps = &attention.steps;
        let unsigned = |x: f32| match steps.queries {
            Some((scale, zero)) => on_steps(x, scale, zero),
            None => x,
        };
        let signed = |x: f32, scale: Option<f32>| match scale {
            Some(scale) => f32::from(quantize_symmetric(x, scale)) * scale,
            None => x,
        };
        let inputs = [
            self.mapped(context, &attention.q, unsigned),
            self.mapped(context, &attention.k, |x| signed(x, steps.keys)),
            self.mapped(context, &attention.v, |x| signed(x, steps.values)),
            self.tensor(context, mask),
        ];
        let inputs: Result<Vec<_>> = inputs.into_iter().collect();
        let made = ops::run(&context.program.graph, context.node, inputs?)?;
        let made = made.first().and_then(|tensor| tensor.values::<f32>().ok());
        let made = made.ok_or_else(|| context.fail("attention gave no float32"))?;
        let (rows, width) = self.extents_of(attention.out.view());
        match &attention.out {
            Target::F32(out) => {
                let mut lent = self.take(context, out)?;
                let stride = lent.stride;
                for (to, from) in lent.f32().chunks_mut(stride).zip(made.chunks(width)) {
                    to[..width].copy_from_slice(from);
                }
                self.give(lent);
            }
            Target::U8(out) => {
                let mut lent = self.take_bytes(context, out)?;
                let (isa, bytes) = (context.program.isa, lent.bytes(out, 0));
                quantize_rows_f32(&self.pool, isa, [rows, width], &made, width, bytes);
                self.give_bytes(lent);
            }
        }
        Ok(())
    }

    /// A value as a tensor of its own, each number of which went through a function.
    fn mapped(
        &self,
        context: Context<'_>,
        place: &Place,
        each: impl Fn(f32) -> f32,
    ) -> Result<Tensor> {
        let tensor = self.tensor(context, place)?;
        let mapped = tensor.values::<f32>().and_then(|values| {
            let values: Vec<f32> = values.iter().map(|&x| each(x)).collect();
            Tensor::from_vec(tensor.shape().clone(), values)
        });
        mapped.map_err(|source| {
            let (name, op) = context.name_and_op();
            Error::Tensor { name, op, source }
        })
    }
}
