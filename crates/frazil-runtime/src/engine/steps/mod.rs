//! The steps: each finds its operands, calls one kernel, and can say what it cost.

mod attention;

use frazil_graph::Value;
use frazil_kernels::OutOfRange;
use frazil_kernels::attention::{OperandSteps, Sequence};
use frazil_kernels::embed::{EmbedNorm, EmbedRows, embed_norm_f32, embed_rows_f32};
use frazil_kernels::gemm::{Activation, Epilogue, Output, Residual, f32 as gemm, i8 as gemm_i8};
use frazil_kernels::norm::{Affine, LayerNorm, fused_layer_norm_f32};
use frazil_kernels::pointwise::{Function, add_rows_f32, map_rows_f32};
use frazil_kernels::quantize::{
    Bytes, MIDDLE, Scales as ByteScales, Steps, dequantize_rows_f32, quantize_rows_f32,
};
use frazil_kernels::softmax::{log_softmax_f32, softmax_f32};

use super::program::{Embed, Norm, Place, Quantized, Scales, Step, Target, View, Work};
use super::worker::{Context, Lent, Rows, StepTime, Worker};
use crate::{Error, Result, ops};

/// Numbers of each thread that wait in its cache to become bytes: half a megabyte.
const WAITING: usize = 1 << 17;
/// The fewest rows of a product that are worth a call.
const BLOCK: usize = 96;

impl Norm {
    fn affine(&self) -> Affine<'_> {
        Affine { gamma: &self.gamma, beta: &self.beta, epsilon: self.epsilon }
    }
}

/// The output of a kernel that writes numbers or bytes.
fn output<'a>(lent: &'a mut Lent, target: &'a Target) -> Output<'a> {
    match target {
        Target::F32(_) => Output::F32(lent.f32()),
        Target::U8(bytes) => {
            let (scale, zero) = bytes.fixed();
            Output::U8 { out: lent.u8(), scale, zero, factors: bytes.factors.as_deref() }
        }
    }
}

impl Quantized {
    /// Scale and zero that are known beforehand.
    fn fixed(&self) -> (f32, u8) {
        match self.scales {
            Scales::Tensor { scale, zero } => (scale, zero),
            Scales::Symmetric { scale } => (scale, MIDDLE),
            Scales::Rows { .. } => unreachable!("rows get their scales when they are there"),
        }
    }
}

/// Blocks on loan for rows of bytes, and for their scales where each row has its own.
struct LentBytes {
    bytes: Lent,
    rows: Option<(Lent, Lent)>,
}

impl LentBytes {
    /// The bytes that a kernel writes, from a row on.
    fn bytes<'a>(&'a mut self, quantized: &'a Quantized, first: usize) -> Bytes<'a> {
        let scales = match (&quantized.scales, &mut self.rows) {
            (_, Some((scale, zero))) => ByteScales::Rows {
                scale: &mut scale.f32()[first..],
                zero: &mut zero.u8()[first..],
                top: u8::MAX,
            },
            (Scales::Symmetric { scale }, None) => ByteScales::Symmetric { scale: *scale },
            (_, None) => {
                let (scale, zero) = quantized.fixed();
                ByteScales::Tensor { scale, zero }
            }
        };
        let factors = quantized.factors.as_deref();
        let ld = self.bytes.stride;
        Bytes { ld, out: &mut self.bytes.u8()[first * ld..], scales, factors }
    }
}

impl Worker {
    pub(super) fn step(&mut self, context: Context<'_>, work: &Work) -> Result<()> {
        match work {
            Work::PackRows { mask, first, index, bounds } => {
                self.pack_rows(context, mask, *first, (*index, *bounds))
            }
            Work::Embed(embed) => self.embed(context, embed),
            Work::Attention(attention) => self.attention(context, attention, None),
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
                    epilogue: epilogue(&linear.bias, *activation, sum.as_ref(), 0),
                };
                gemm::run(&self.pool, context.program.isa, product);
                self.give(lent);
                Ok(())
            }
            Work::LinearI8 { x, linear, activation, residual, out, bytes: also } => {
                let linear = &context.program.linears_i8[*linear];
                let mut lent = self.take(context, out.view())?;
                let mut beside =
                    also.as_ref().map(|also| self.take_bytes(context, also)).transpose()?;
                let (rows, _) = self.extents_of(&x.view);
                let (a, lda) = self.bytes(context.program, &x.view);
                let (isa, ldc) = (context.program.isa, lent.stride);
                let sum = residual.as_ref().map(|place| self.rows(context, place)).transpose()?;
                // A block's numbers are in the caches when they become bytes, and the next block's
                // take their place.
                let block = match also {
                    Some(_) => (self.pool.threads() * WAITING / linear.n.max(1)).max(BLOCK),
                    None => rows.max(1),
                };
                for first in (0..rows).step_by(block) {
                    let m = block.min(rows - first);
                    let (zeros, scales) = match self.stand_for(context, x) {
                        Steps::Tensor { scale, zero } => {
                            (gemm_i8::Zeros::Tensor(zero), gemm_i8::Scales::Tensor(scale))
                        }
                        Steps::Rows { scale, zero } => (
                            gemm_i8::Zeros::Rows(&zero[first..]),
                            gemm_i8::Scales::Rows(&scale[first..]),
                        ),
                    };
                    let product = gemm_i8::Gemm {
                        factors: gemm_i8::Factors {
                            m,
                            n: linear.n,
                            k: linear.k,
                            a: &a[first * lda..],
                            lda,
                            zeros,
                            w: linear.packed(),
                        },
                        scales,
                        column_scales: &linear.scales,
                        ldc,
                        out: output(&mut lent, out),
                        epilogue: epilogue(&linear.bias, *activation, sum.as_ref(), first),
                    };
                    gemm_i8::run(&self.pool, isa, product);
                    if let Some((lent_bytes, also)) = beside.as_mut().zip(also.as_ref()) {
                        let bytes = lent_bytes.bytes(also, first);
                        let extents = [m, linear.n];
                        quantize_rows_f32(&self.pool, isa, extents, lent.f32(), ldc, bytes);
                    }
                }
                self.give(lent);
                beside.into_iter().for_each(|beside| self.give_bytes(beside));
                Ok(())
            }
            Work::LayerNorm { x, norm, out, bytes: also } => {
                let mut lent = self.take(context, out)?;
                let mut beside =
                    also.as_ref().map(|also| self.take_bytes(context, also)).transpose()?;
                let x = self.rows(context, x)?;
                let norm = LayerNorm {
                    rows: x.rows,
                    x: &x.data,
                    x_ld: x.stride,
                    residual: None,
                    affine: norm.affine(),
                };
                let (ld, isa) = (lent.stride, context.program.isa);
                let also = beside.as_mut().zip(also.as_ref()).map(|(lent, q)| lent.bytes(q, 0));
                fused_layer_norm_f32(&self.pool, isa, &norm, lent.f32(), ld, also);
                self.give(lent);
                beside.into_iter().for_each(|beside| self.give_bytes(beside));
                Ok(())
            }
            Work::Quantize { x, out } => {
                let mut lent = self.take_bytes(context, out)?;
                let x = self.rows(context, x)?;
                let (extents, isa) = ([x.rows, x.width], context.program.isa);
                let bytes = lent.bytes(out, 0);
                quantize_rows_f32(&self.pool, isa, extents, &x.data, x.stride, bytes);
                self.give_bytes(lent);
                Ok(())
            }
            Work::Dequantize { x, out } => {
                let mut lent = self.take(context, out)?;
                let (rows, width) = self.extents_of(&x.view);
                let (bytes, steps) =
                    (self.bytes(context.program, &x.view), self.stand_for(context, x));
                let (isa, ld) = (context.program.isa, lent.stride);
                let to = (lent.f32(), ld);
                dequantize_rows_f32(&self.pool, isa, [rows, width], bytes, steps, to);
                self.give(lent);
                Ok(())
            }
            Work::Map { x, activation, out } => {
                let function = match activation {
                    Activation::None => return Err(context.fail("there is nothing to apply")),
                    Activation::Relu => Function::Relu,
                    Activation::Tanh => Function::Tanh,
                    Activation::GeluTanh => Function::GeluTanh,
                    Activation::GeluErf => Function::GeluErf,
                };
                let mut lent = self.take(context, out)?;
                let (x, ld, isa) = (self.rows(context, x)?, lent.stride, context.program.isa);
                let (from, to) = ((&*x.data, x.stride), (lent.f32(), ld));
                map_rows_f32(&self.pool, isa, function, [x.rows, x.width], from, to);
                self.give(lent);
                Ok(())
            }
            Work::Softmax { x, log, out } => self.for_rows(context, x, out, |worker, from, to| {
                let softmax = if *log { log_softmax_f32 } else { softmax_f32 };
                softmax(&worker.pool, context.program.isa, from, to, from.len());
            }),
            Work::Add { a, b, out } => {
                let mut lent = self.take(context, out)?;
                let (ld, isa) = (lent.stride, context.program.isa);
                let (a, b) = (self.rows(context, a)?, self.rows(context, b)?);
                let (extents, to) = ([a.rows, a.width], (lent.f32(), ld));
                let (a, b) = ((&*a.data, a.stride), (&*b.data, b.stride));
                add_rows_f32(&self.pool, isa, extents, a, b, to);
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
            Work::Train(train) => self.train(context, train),
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

    /// Takes the blocks of rows of bytes out.
    fn take_bytes(&mut self, context: Context<'_>, to: &Quantized) -> Result<LentBytes> {
        let bytes = self.take(context, &to.view)?;
        let rows = match &to.scales {
            Scales::Rows { scale, zero } => {
                Some((self.take(context, scale)?, self.take(context, zero)?))
            }
            _ => None,
        };
        Ok(LentBytes { bytes, rows })
    }

    /// Puts them back.
    fn give_bytes(&mut self, lent: LentBytes) {
        self.give(lent.bytes);
        let (scale, zero) = lent.rows.unzip();
        scale.into_iter().chain(zero).for_each(|lent| self.give(lent));
    }

    /// What bytes stand for that are there.
    fn stand_for<'a>(&'a self, context: Context<'a>, x: &Quantized) -> Steps<'a> {
        match &x.scales {
            Scales::Rows { scale, zero } => Steps::Rows {
                scale: self.numbers(context.program, scale),
                zero: self.bytes(context.program, zero).0,
            },
            _ => {
                let (scale, zero) = x.fixed();
                Steps::Tensor { scale, zero }
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

    /// What embeddings look up, checked, into `lookups`: ids, segments and positions of the rows that
    /// count. `limits`: rows of the tables.
    pub(super) fn read_lookups(
        &mut self,
        context: Context<'_>,
        [of_ids, of_segments]: [&Place; 2],
        index: Option<&Place>,
        limits: [usize; 3],
        sources: [Value; 2],
    ) -> Result<()> {
        let s = self.given(context, of_ids)?.shape().last().copied().unwrap_or(0);
        if s > limits[2] {
            let most = limits[2];
            let reason = format!("a sequence of {s}, but the model has {most} positions");
            return Err(context.fail(reason));
        }
        let [mut ids, mut segments] = std::mem::take(&mut self.integers);
        self.read_integers(context, of_ids, &mut ids)?;
        self.read_integers(context, of_segments, &mut segments)?;
        if ids.len() != segments.len() {
            return Err(context.fail("ids and segments are of different extents"));
        }
        let limits = [("id", &ids, limits[0]), ("segment", &segments, limits[1])];
        for ((what, given, limit), source) in limits.into_iter().zip(sources) {
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
        match index {
            Some(Place::List(list)) => {
                self.lists[*list].iter().for_each(|&at| push(at as usize));
            }
            Some(_) => return Err(context.fail("the rows are no list")),
            None => (0..ids.len()).for_each(push),
        }
        self.integers = [ids, segments];
        self.lookups = [words, types, places];
        Ok(())
    }

    fn embed(&mut self, context: Context<'_>, embed: &Embed) -> Result<()> {
        let limits = [&embed.words, &embed.types, &embed.positions].map(|table| table.rows);
        let (places, index) = ([&embed.ids, &embed.segments], embed.index.as_ref());
        self.read_lookups(context, places, index, limits, embed.sources)?;
        let [words, types, places] = std::mem::take(&mut self.lookups);
        let mut lent = self.take(context, &embed.out)?;
        let beside = embed.bytes.as_ref().map(|also| self.take_bytes(context, also));
        let mut beside = beside.transpose()?;
        let also = beside.as_mut().zip(embed.bytes.as_ref()).map(|(lent, q)| lent.bytes(q, 0));
        let (tables, ld) = ([&embed.words, &embed.types, &embed.positions], lent.stride);
        let tables = tables.map(|table| table.values());
        let [word_table, type_table, position_table] = [0, 1, 2].map(|i| tables[i].table());
        if let Some(norm) = &embed.norm {
            let lookup = EmbedNorm {
                words: word_table,
                types: type_table,
                positions: position_table,
                ids: &words,
                segments: &types,
                places: &places,
                affine: norm.affine(),
            };
            embed_norm_f32(&self.pool, context.program.isa, &lookup, lent.f32(), ld, also);
        } else {
            let rows = EmbedRows {
                tables: [word_table, type_table, position_table],
                indices: [&words, &types, &places],
                width: embed.words.width,
            };
            embed_rows_f32(&self.pool, context.program.isa, &rows, lent.f32(), ld);
        }
        self.give(lent);
        beside.into_iter().for_each(|beside| self.give_bytes(beside));
        self.lookups = [words, types, places];
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
                let kind = match attention.steps == OperandSteps::default() {
                    true => "attention",
                    false => "int8 attention",
                };
                (kind.into(), 4.0 * (pairs * attention.heads * attention.size) as f64)
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
            Work::Quantize { .. } | Work::Dequantize { .. } => ("quantize".into(), 0.0),
            Work::Watch { .. } => ("watch".into(), 0.0),
            Work::Train(train) => self.cost(train),
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

/// The end of a product whose rows are those from `first` on.
fn epilogue<'a>(
    bias: &'a [f32],
    activation: Activation,
    sum: Option<&'a Rows<'_>>,
    first: usize,
) -> Epilogue<'a> {
    let residual =
        sum.map(|rows| Residual { x: &rows.data[first * rows.stride..], ld: rows.stride });
    Epilogue { bias: Some(bias), activation, residual }
}

pub(super) fn out_of_range(
    context: Context<'_>,
    what: &'static str,
    indices: Value,
    OutOfRange { at, index, limit }: OutOfRange,
) -> Error {
    let (name, op) = context.name_and_op();
    let indices = context.program.graph.value_name(indices);
    Error::Index { name, op, what, index, at, indices, limit }
}
