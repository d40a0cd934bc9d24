//! The steps: each finds its operands, calls one kernel, and can say what it cost.

use frazil_graph::Value;
use frazil_kernels::OutOfRange;
use frazil_kernels::attention::{PackedAttention, Sequence, packed_attention_f32, scratch_len};
use frazil_kernels::embed::{EmbedNorm, embed_norm_f32};
use frazil_kernels::gemm::{Activation, Epilogue, Output, Residual, f32 as gemm, i8 as gemm_i8};
use frazil_kernels::norm::{Affine, LayerNorm, fused_layer_norm_f32};
use frazil_kernels::pointwise::{Function, map_f32};
use frazil_kernels::quantize::{Bytes, Scales, quantize_rows_f32};
use frazil_kernels::softmax::{log_softmax_f32, softmax_f32};

use super::program::{
    Attention, Embed, Norm, Place, Quantized, Sequences, Step, Target, View, Work,
};
use super::worker::{Context, Lent, Rows, StepTime, Worker};
use crate::{Error, Result, ops};

impl Norm {
    fn affine(&self) -> Affine<'_> {
        Affine { gamma: &self.gamma, beta: &self.beta, epsilon: self.epsilon }
    }
}

/// The output of a kernel that writes numbers or bytes.
fn output<'a>(lent: &'a mut Lent, target: &Target) -> Output<'a> {
    match target {
        Target::F32(_) => Output::F32(lent.f32()),
        Target::U8(bytes) => Output::U8 { out: lent.u8(), scale: bytes.scale, zero: bytes.zero },
    }
}

/// The bytes that a kernel writes beside its numbers.
fn bytes<'a>(lent: &'a mut Lent, quantized: &Quantized) -> Bytes<'a> {
    let scales = Scales::Tensor { scale: quantized.scale, zero: quantized.zero };
    Bytes { ld: lent.stride, out: lent.u8(), scales }
}

impl Worker {
    pub(super) fn step(&mut self, context: Context<'_>, work: &Work) -> Result<()> {
        match work {
            Work::PackRows { mask, first, index, bounds } => {
                self.pack_rows(context, mask, *first, (*index, *bounds))
            }
            Work::Embed(embed) => self.embed(context, embed),
            Work::Attention(attention) => self.attention(context, attention),
            Work::Linear { x, linear, activation, residual, out } => {
                let linear = &context.program.linears[*linear];
                let mut lent = self.take(context, out.view())?;
                let a = self.rows(context, x)?;
                let sum = residual.as_ref().map(|place| self.rows(context, place)).transpose()?;
                let product = gemm::Gemm {
                    m: a.rows,
                    n: linear.n,
                    k: linear.k,
                    a: &a.data,
                    lda: a.stride,
                    w: linear.packed(),
                    ldc: lent.stride,
                    out: output(&mut lent, out),
                    epilogue: epilogue(&linear.bias, *activation, sum.as_ref()),
                };
                gemm::run(&self.pool, context.program.isa, product);
                self.give(lent);
                Ok(())
            }
            Work::LinearI8 { x, linear, activation, residual, out } => {
                let linear = &context.program.linears_i8[*linear];
                let mut lent = self.take(context, out.view())?;
                let (rows, _) = self.extents_of(&x.view);
                let (a, lda) = self.bytes(context.program, &x.view);
                let sum = residual.as_ref().map(|place| self.rows(context, place)).transpose()?;
                let product = gemm_i8::Gemm {
                    factors: gemm_i8::Factors {
                        m: rows,
                        n: linear.n,
                        k: linear.k,
                        a,
                        lda,
                        zeros: gemm_i8::Zeros::Tensor(x.zero),
                        w: linear.packed(),
                    },
                    scales: gemm_i8::Scales::Tensor(x.scale),
                    column_scales: &linear.scales,
                    ldc: lent.stride,
                    out: output(&mut lent, out),
                    epilogue: epilogue(&linear.bias, *activation, sum.as_ref()),
                };
                gemm_i8::run(&self.pool, context.program.isa, product);
                self.give(lent);
                Ok(())
            }
            Work::LayerNorm { x, norm, out, bytes: also } => {
                let mut lent = self.take(context, out)?;
                let mut beside =
                    also.as_ref().map(|also| self.take(context, &also.view)).transpose()?;
                let x = self.rows(context, x)?;
                let norm = LayerNorm {
                    rows: x.rows,
                    x: &x.data,
                    x_ld: x.stride,
                    residual: None,
                    affine: norm.affine(),
                };
                let (ld, isa) = (lent.stride, context.program.isa);
                let also = beside.as_mut().zip(also.as_ref()).map(|(lent, q)| bytes(lent, q));
                fused_layer_norm_f32(&self.pool, isa, &norm, lent.f32(), ld, also);
                self.give(lent);
                beside.into_iter().for_each(|beside| self.give(beside));
                Ok(())
            }
            Work::Quantize { x, out } => {
                let mut lent = self.take(context, &out.view)?;
                let x = self.rows(context, x)?;
                let (extents, isa) = ([x.rows, x.width], context.program.isa);
                quantize_rows_f32(
                    &self.pool,
                    isa,
                    extents,
                    &x.data,
                    x.stride,
                    bytes(&mut lent, out),
                );
                self.give(lent);
                Ok(())
            }
            Work::Map { x, activation, out } => {
                self.for_rows(context, x, out, |worker, from, to| {
                    let function = match activation {
                        Activation::None => return to.copy_from_slice(from),
                        Activation::Relu => Function::Relu,
                        Activation::Tanh => Function::Tanh,
                        Activation::GeluTanh => Function::GeluTanh,
                        Activation::GeluErf => Function::GeluErf,
                    };
                    map_f32(&worker.pool, context.program.isa, function, from, to);
                })
            }
            Work::Softmax { x, log, out } => self.for_rows(context, x, out, |worker, from, to| {
                let softmax = if *log { log_softmax_f32 } else { softmax_f32 };
                softmax(&worker.pool, context.program.isa, from, to, from.len());
            }),
            Work::Add { a, b, out } => {
                let mut lent = self.take(context, out)?;
                let stride = lent.stride;
                let (a, b) = (self.rows(context, a)?, self.rows(context, b)?);
                for (row, to) in lent.f32().chunks_mut(stride.max(1)).enumerate() {
                    let summands = a.data[row * a.stride..].iter().zip(&b.data[row * b.stride..]);
                    to[..a.width].iter_mut().zip(summands).for_each(|(to, (a, b))| *to = a + b);
                }
                self.give(lent);
                Ok(())
            }
            Work::Column { x, column, out } => {
                let mut lent = self.take(context, out)?;
                let (stride, (_, width)) = (lent.stride, self.extents_of(out));
                let x = self.rows(context, x)?;
                // The output's rows are shorter ones: [b, s] of [b, s, w].
                for row in 0..x.rows {
                    lent.f32()[row / width * stride + row % width] =
                        x.data[row * x.stride + column];
                }
                self.give(lent);
                Ok(())
            }
            Work::Head { list, out } => {
                let mut head = std::mem::take(&mut self.lists[*out]);
                self.read_integers(context, list, &mut head)?;
                head.pop();
                self.lists[*out] = head;
                Ok(())
            }
            Work::Count { extent, out } => {
                let count = self.extents[*extent] as i32;
                self.lists[*out].clear();
                self.lists[*out].extend(0..count);
                Ok(())
            }
            Work::Watch { .. } => Ok(()),
            Work::Gather { x, rows, out } => self.gather(context, x, rows, out),
            Work::UnpackRows { x, index, out } => self.unpack_rows(context, x, index, out),
            Work::Plain { inputs, outputs } => {
                let inputs: Result<Vec<_>> =
                    inputs.iter().map(|place| self.tensor(context, place)).collect();
                let made = ops::run(&context.program.graph, context.node, inputs?)?;
                for (&at, tensor) in outputs.iter().zip(made) {
                    self.tensors[at] = Some(ops::aligned(tensor));
                }
                Ok(())
            }
        }
    }

    /// Calls `each` with every row of `x` and of the output.
    fn for_rows(
        &mut self,
        context: Context<'_>,
        x: &Place,
        out: &View,
        each: impl Fn(&Self, &[f32], &mut [f32]),
    ) -> Result<()> {
        let mut lent = self.take(context, out)?;
        let stride = lent.stride;
        let x = self.rows(context, x)?;
        for (row, to) in lent.f32().chunks_mut(stride.max(1)).enumerate() {
            each(self, &x.data[row * x.stride..][..x.width], &mut to[..x.width]);
        }
        self.give(lent);
        Ok(())
    }

    fn pack_rows(
        &mut self,
        context: Context<'_>,
        mask: &Place,
        first: bool,
        (index, bounds): (usize, usize),
    ) -> Result<()> {
        let mut flags = std::mem::take(&mut self.integers[0]);
        let (b, s) = self.read_mask(context, mask, &mut flags)?;
        let mut rows = std::mem::take(&mut self.lists[index]);
        let mut ends = std::mem::take(&mut self.lists[bounds]);
        rows.clear();
        ends.clear();
        ends.push(0);
        let mut problem = (b == 0).then(|| "the batch has no sequences".to_owned());
        for sequence in 0..b {
            let before = rows.len();
            let flags = &flags[sequence * s..][..s];
            for (position, _) in flags.iter().enumerate().filter(|(_, flag)| **flag != 0) {
                rows.push((sequence * s + position) as i32);
            }
            if rows.len() == before {
                problem = Some(format!("sequence {sequence} is empty: its mask has no 1"));
            } else if first && flags[0] == 0 {
                problem = Some(format!("sequence {sequence} begins with padding"));
            } else if flags.contains(&2) {
                problem = Some(format!("the mask of sequence {sequence} is neither 0 nor 1"));
            }
            ends.push(rows.len() as i32);
        }
        self.sizes.insert(self.rows_symbol.clone(), rows.len() as i64);
        self.integers[0] = flags;
        self.lists[index] = rows;
        self.lists[bounds] = ends;
        self.evaluate(context.program);
        problem.map_or(Ok(()), |reason| Err(context.fail(reason)))
    }

    fn gather(&mut self, context: Context<'_>, x: &Place, rows: &Place, out: &View) -> Result<()> {
        let mut wanted = std::mem::take(&mut self.integers[0]);
        self.read_integers(context, rows, &mut wanted)?;
        let mut lent = self.take(context, out)?;
        let stride = lent.stride;
        let x = self.rows(context, x)?;
        for (to, &row) in lent.f32().chunks_mut(stride).zip(&wanted) {
            let row = usize::try_from(row).ok().filter(|&row| row < x.rows);
            let row = row.ok_or_else(|| context.fail("a row that is not there"))?;
            to[..x.width].copy_from_slice(&x.data[row * x.stride..][..x.width]);
        }
        self.give(lent);
        self.integers[0] = wanted;
        Ok(())
    }

    fn unpack_rows(
        &mut self,
        context: Context<'_>,
        x: &Place,
        index: &Place,
        out: &View,
    ) -> Result<()> {
        let mut places = std::mem::take(&mut self.integers[0]);
        self.read_integers(context, index, &mut places)?;
        let mut lent = self.take(context, out)?;
        let stride = lent.stride;
        let x = self.rows(context, x)?;
        lent.f32().fill(0.0);
        for (row, &place) in places.iter().enumerate() {
            let to = &mut lent.f32()[place as usize * stride..][..x.width];
            to.copy_from_slice(&x.data[row * x.stride..][..x.width]);
        }
        self.give(lent);
        self.integers[0] = places;
        Ok(())
    }

    fn embed(&mut self, context: Context<'_>, embed: &Embed) -> Result<()> {
        let s = self.given(context, &embed.ids)?.shape().last().copied().unwrap_or(0);
        if s > embed.positions.rows {
            let most = embed.positions.rows;
            let reason = format!("a sequence of {s}, but the model has {most} positions");
            return Err(context.fail(reason));
        }
        let [mut ids, mut segments] = std::mem::take(&mut self.integers);
        self.read_integers(context, &embed.ids, &mut ids)?;
        self.read_integers(context, &embed.segments, &mut segments)?;
        if ids.len() != segments.len() {
            return Err(context.fail("ids and segments are of different extents"));
        }
        let limits = [("id", &ids, embed.words.rows), ("segment", &segments, embed.types.rows)];
        for ((what, given, limit), source) in limits.into_iter().zip(embed.sources) {
            let outside = |&x: &i32| usize::try_from(x).map_or(true, |x| x >= limit);
            if let Some(at) = given.iter().position(outside) {
                let error = OutOfRange { at, index: given[at].into(), limit };
                return Err(out_of_range(context, what, source, error));
            }
        }
        let [mut words, mut types, mut places] = std::mem::take(&mut self.lookups);
        [&mut words, &mut types, &mut places].into_iter().for_each(|list| list.clear());
        let mut push = |at: usize| {
            words.push(ids[at] as u32);
            types.push(segments[at] as u32);
            places.push((at % s.max(1)) as u32);
        };
        match &embed.index {
            Some(Place::List(list)) => {
                self.lists[*list].iter().for_each(|&at| push(at as usize));
            }
            Some(_) => return Err(context.fail("the rows are no list")),
            None => (0..ids.len()).for_each(push),
        }
        let mut lent = self.take(context, &embed.out)?;
        let beside = embed.bytes.as_ref().map(|also| self.take(context, &also.view));
        let mut beside = beside.transpose()?;
        let also = beside.as_mut().zip(embed.bytes.as_ref()).map(|(lent, q)| bytes(lent, q));
        let (tables, ld) = ([&embed.words, &embed.types, &embed.positions], lent.stride);
        let [word_table, type_table, position_table] = tables.map(|table| table.values());
        if let Some(norm) = &embed.norm {
            let lookup = EmbedNorm {
                words: &word_table,
                types: &type_table,
                positions: &position_table,
                ids: &words,
                segments: &types,
                places: &places,
                affine: norm.affine(),
            };
            embed_norm_f32(&self.pool, context.program.isa, &lookup, lent.f32(), ld, also);
        } else {
            let width = embed.words.width;
            for (row, to) in lent.f32().chunks_mut(ld.max(1)).enumerate().take(words.len()) {
                let word = &word_table[words[row] as usize * width..];
                let kind = &type_table[types[row] as usize * width..];
                let place = &position_table[places[row] as usize * width..];
                for (i, to) in to[..width].iter_mut().enumerate() {
                    *to = word[i] + kind[i] + place[i];
                }
            }
        }
        self.give(lent);
        beside.into_iter().for_each(|beside| self.give(beside));
        self.integers = [ids, segments];
        self.lookups = [words, types, places];
        Ok(())
    }

    fn attention(&mut self, context: Context<'_>, attention: &Attention) -> Result<()> {
        let [mut first, mut second] = std::mem::take(&mut self.integers);
        let mut sequences = std::mem::take(&mut self.sequences);
        let mut key_rows = std::mem::take(&mut self.key_rows);
        sequences.clear();
        key_rows.clear();
        let gathered = match &attention.sequences {
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
                    // Neither padding nor not: the formula as it stands.
                    return self.plain_attention(context, attention, mask);
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
        let longest = sequences.iter().map(|sequence| sequence.keys.len()).max().unwrap_or(0);
        let isa = context.program.isa;
        let room = scratch_len(isa, attention.size, longest).checked_mul(self.pool.threads());
        let mut scratch = std::mem::take(&mut self.scratch);
        let room = room.filter(|&room| scratch.reserve(room).is_some());
        let room = room.ok_or_else(|| context.fail("there is no room for the scores"))?;
        let mut lent = self.take(context, attention.out.view())?;
        let q = self.rows(context, &attention.q)?;
        let k = self.rows(context, &attention.k)?;
        let v = self.rows(context, &attention.v)?;
        let rows = PackedAttention {
            heads: attention.heads,
            size: attention.size,
            scale: attention.scale,
            q: &q.data,
            q_ld: q.stride,
            k: &k.data,
            k_ld: k.stride,
            v: &v.data,
            v_ld: v.stride,
            sequences: &sequences,
            key_rows: gathered.then_some(key_rows.as_slice()),
        };
        let ld = lent.stride;
        let out = output(&mut lent, &attention.out);
        packed_attention_f32(&self.pool, isa, &rows, out, ld, &mut scratch.f32_mut()[..room]);
        self.give(lent);
        self.scratch = scratch;
        self.integers = [first, second];
        self.sequences = sequences;
        self.key_rows = key_rows;
        Ok(())
    }

    /// Attention by the plain kernel.
    fn plain_attention(
        &mut self,
        context: Context<'_>,
        attention: &Attention,
        mask: &Place,
    ) -> Result<()> {
        let Target::F32(out) = &attention.out else {
            return Err(context.fail("a mask that is neither 0 nor 1, in bytes"));
        };
        let inputs = [&attention.q, &attention.k, &attention.v, mask];
        let inputs: Result<Vec<_>> =
            inputs.into_iter().map(|place| self.tensor(context, place)).collect();
        let made = ops::run(&context.program.graph, context.node, inputs?)?;
        let mut lent = self.take(context, out)?;
        let (stride, (_, width)) = (lent.stride, self.extents_of(out));
        let made = made.first().and_then(|tensor| tensor.values::<f32>().ok());
        let made = made.ok_or_else(|| context.fail("attention gave no float32"))?;
        for (to, from) in lent.f32().chunks_mut(stride).zip(made.chunks(width)) {
            to[..width].copy_from_slice(from);
        }
        self.give(lent);
        Ok(())
    }

    /// What a step took, and what it had to do.
    pub(super) fn time(&self, context: Context<'_>, step: &Step, seconds: f64) -> StepTime {
        let program = context.program;
        let node = program.graph.node(step.node);
        let linear = |k: usize, n: usize, out: &Target, joined: (Activation, bool), name: &str| {
            let (rows, _) = self.extents_of(out.view());
            let activation = if joined.0 == Activation::None { "" } else { " + activation" };
            let sum = if joined.1 { " + sum" } else { "" };
            (format!("{name} {k} x {n}{activation}{sum}"), 2.0 * (rows * k * n) as f64)
        };
        let (kind, operations) = match &step.work {
            Work::Linear { linear: at, out, activation, residual, .. } => {
                let weights = &program.linears[*at];
                let joined = (*activation, residual.is_some());
                linear(weights.k, weights.n, out, joined, "linear")
            }
            Work::LinearI8 { linear: at, out, activation, residual, .. } => {
                let weights = &program.linears_i8[*at];
                let joined = (*activation, residual.is_some());
                linear(weights.k, weights.n, out, joined, "int8 linear")
            }
            Work::Attention(attention) => {
                let pairs = |s: &Sequence| s.queries.len() * s.keys.len();
                let pairs: usize = self.sequences.iter().map(pairs).sum();
                ("attention".into(), 4.0 * (pairs * attention.heads * attention.size) as f64)
            }
            Work::Embed(_) => ("embeddings".into(), 0.0),
            Work::LayerNorm { .. } => ("layer norm".into(), 0.0),
            Work::PackRows { .. }
            | Work::UnpackRows { .. }
            | Work::Gather { .. }
            | Work::Column { .. }
            | Work::Head { .. }
            | Work::Count { .. } => ("rows".into(), 0.0),
            Work::Map { .. } | Work::Add { .. } | Work::Softmax { .. } => {
                ("elementwise".into(), 0.0)
            }
            Work::Quantize { .. } => ("quantize".into(), 0.0),
            Work::Watch { .. } => ("watch".into(), 0.0),
            Work::Plain { .. } => (format!("plain {}", node.op), 0.0),
        };
        let mut bytes = match &step.work {
            Work::Linear { linear, .. } => 4.0 * program.linears[*linear].packed().len() as f64,
            Work::LinearI8 { linear, .. } => program.linears_i8[*linear].packed().len() as f64,
            _ => 0.0,
        };
        step.work.views(&mut |view| {
            let (rows, width) = self.extents_of(view);
            bytes += (rows * width * program.storages[view.storage].kind.size()) as f64;
        });
        StepTime { node: node.name.clone(), kind, seconds, operations, bytes }
    }
}

fn epilogue<'a>(
    bias: &'a [f32],
    activation: Activation,
    sum: Option<&'a Rows<'_>>,
) -> Epilogue<'a> {
    let residual = sum.map(|rows| Residual { x: &rows.data, ld: rows.stride });
    Epilogue { bias: Some(bias), activation, residual }
}

fn out_of_range(
    context: Context<'_>,
    what: &'static str,
    indices: Value,
    OutOfRange { at, index, limit }: OutOfRange,
) -> Error {
    let (name, op) = context.name_and_op();
    let indices = context.program.graph.value_name(indices);
    Error::Index { name, op, what, index, at, indices, limit }
}
