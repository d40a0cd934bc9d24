//! The memory of one run at a time, and the steps that use it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use frazil_graph::dim::Sizes;
use frazil_graph::{NodeId, Op, Symbol};
use frazil_kernels::OutOfRange;
use frazil_kernels::gemm::f32::{self as gemm, Gemm};
use frazil_kernels::gemm::{Epilogue, Output, Residual};
use frazil_kernels::par::Pool;
use frazil_tensor::{DType, Shape, Tensor};

use super::block::Block;
use super::program::{Embed, Place, Program, Step, Stride, View, Work};
use super::steps::Sequence;
use crate::feed::Feed;
use crate::{Error, Inputs, Result, ops};

/// Everything that changes while a program runs. Blocks grow to what the largest batch needs and
/// stay.
pub struct Worker {
    program: Arc<Program>,
    pool: Arc<Pool>,
    blocks: Vec<Block>,
    tensors: Vec<Option<Tensor>>,
    lists: Vec<Vec<i32>>,
    extents: Vec<usize>,
    sizes: Sizes,
    /// Integers as kernels read them: ids and segments, or a mask.
    pub(super) integers: [Vec<i32>; 2],
    pub(super) sequences: Vec<Sequence>,
    pub(super) key_rows: Vec<u32>,
    /// What each step took, while that is wanted.
    times: Option<Vec<StepTime>>,
}

/// What one step took.
#[derive(Clone, Debug, Default)]
pub struct StepTime {
    /// The node whose value it computes.
    pub node: String,
    /// What it does.
    pub kind: String,
    /// Seconds.
    pub seconds: f64,
    /// Multiplications and additions that it must make.
    pub operations: f64,
    /// Bytes that it must read and write, each once.
    pub bytes: f64,
}

/// Rows that a kernel reads.
pub(super) struct Rows<'a> {
    pub data: Cow<'a, [f32]>,
    /// Numbers from one row to the next.
    pub stride: usize,
    pub rows: usize,
    pub width: usize,
}

impl Worker {
    pub(crate) fn new(program: Arc<Program>, pool: Arc<Pool>) -> Self {
        Self {
            blocks: vec![Block::default(); program.blocks],
            tensors: vec![None; program.tensors],
            lists: vec![Vec::new(); program.lists],
            extents: vec![0; program.extents.len()],
            sizes: Sizes::new(),
            integers: Default::default(),
            sequences: Vec::new(),
            key_rows: Vec::new(),
            times: None,
            program,
            pool,
        }
    }

    /// Runs the program and gives the outputs as tensors, with what was done to the inputs.
    pub(crate) fn run(&mut self, inputs: &Inputs) -> Result<(Vec<Tensor>, Vec<String>)> {
        let program = Arc::clone(&self.program);
        let feed = Feed::new(&program.graph, inputs, |_| true)?;
        self.measure(&program, &feed);
        for step in &program.steps {
            let start = Instant::now();
            self.step(&program, step, &feed)?;
            if self.times.is_some() {
                let time = self.time(&program, step, start.elapsed().as_secs_f64());
                self.times.iter_mut().for_each(|times| times.push(time.clone()));
            }
        }
        let outputs = program.outputs.iter().zip(&program.graph.outputs);
        let outputs: Result<Vec<Tensor>> = outputs
            .map(|((_, place), port)| self.tensor(&program, place, &feed, port.value.node))
            .collect();
        let outputs = outputs?;
        self.tensors.fill(None);
        Ok((outputs, feed.notes))
    }

    /// Runs the program and tells what each step took.
    pub fn profile(&mut self, inputs: &Inputs) -> Result<Vec<StepTime>> {
        self.times = Some(Vec::new());
        let done = self.run(inputs);
        let times = self.times.take().unwrap_or_default();
        done.map(|_| times)
    }

    /// What the symbols of the inputs stand for in this batch.
    fn measure(&mut self, program: &Program, feed: &Feed) {
        self.sizes.clear();
        for port in &program.graph.inputs {
            if let (Op::Input(input) | Op::InputWithDefault(input), Some(tensor)) =
                (program.graph.op(port.value), feed.values.get(&port.value.node))
            {
                let dims = input.dims.iter().flatten().zip(tensor.shape().iter());
                for (symbol, &size) in dims.filter_map(|(dim, size)| Some((dim.as_symbol()?, size)))
                {
                    self.sizes.insert(symbol.clone(), size as i64);
                }
            }
        }
        self.evaluate(program);
    }

    fn evaluate(&mut self, program: &Program) {
        for (extent, dim) in self.extents.iter_mut().zip(&program.extents) {
            *extent =
                dim.at(&self.sizes).and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
        }
    }

    fn step(&mut self, program: &Program, step: &Step, feed: &Feed) -> Result<()> {
        let node = step.node;
        match &step.work {
            Work::PackRows { mask, first, index, bounds } => {
                self.pack_rows(program, node, feed, (mask, *first), (*index, *bounds))
            }
            Work::Embed(embed) => self.embed(program, node, feed, embed),
            Work::Attention(attention) => self.attention(program, node, feed, attention),
            Work::Plain { inputs, outputs } => {
                let inputs: Result<Vec<Tensor>> =
                    inputs.iter().map(|place| self.tensor(program, place, feed, node)).collect();
                let made = ops::run(&program.graph, node, inputs?)?;
                for (&at, tensor) in outputs.iter().zip(made) {
                    self.tensors[at] = Some(ops::aligned(tensor));
                }
                Ok(())
            }
            Work::Linear { x, linear, activation, residual, out } => {
                let linear = &program.linears[*linear];
                self.write(program, node, out, |worker, c, ldc| {
                    let a = worker.rows(program, x, feed, node)?;
                    let sum =
                        residual.as_ref().map(|place| worker.rows(program, place, feed, node));
                    let sum = sum.transpose()?;
                    let residual =
                        sum.as_ref().map(|rows| Residual { x: &rows.data, ld: rows.stride });
                    let bias = Some(linear.bias.as_slice());
                    let epilogue = Epilogue { bias, activation: *activation, residual };
                    let product = Gemm {
                        m: a.rows,
                        n: linear.n,
                        k: linear.k,
                        a: &a.data,
                        lda: a.stride,
                        w: linear.packed(),
                        out: Output::F32(c),
                        ldc,
                        epilogue,
                    };
                    gemm::run(&worker.pool, program.isa, product);
                    Ok(())
                })
            }
            Work::LayerNorm { x, gamma, beta, epsilon, out } => {
                self.write(program, node, out, |worker, to, stride| {
                    let x = worker.rows(program, x, feed, node)?;
                    worker.layer_norm(program, &x, (gamma, beta, *epsilon), to, stride);
                    Ok(())
                })
            }
            Work::Map { x, activation, out } => {
                self.write(program, node, out, |worker, to, stride| {
                    let x = worker.rows(program, x, feed, node)?;
                    worker.map(program, &x, *activation, to, stride);
                    Ok(())
                })
            }
            Work::Add { a, b, out } => self.write(program, node, out, |worker, to, stride| {
                let a = worker.rows(program, a, feed, node)?;
                let b = worker.rows(program, b, feed, node)?;
                for row in 0..a.rows {
                    let to = &mut to[row * stride..][..a.width];
                    let summands = a.data[row * a.stride..].iter().zip(&b.data[row * b.stride..]);
                    to.iter_mut().zip(summands).for_each(|(to, (a, b))| *to = a + b);
                }
                Ok(())
            }),
            Work::Softmax { x, log, out } => {
                self.write(program, node, out, |worker, to, stride| {
                    let x = worker.rows(program, x, feed, node)?;
                    worker.softmax(program, &x, *log, to, stride);
                    Ok(())
                })
            }
            Work::Gather { x, rows, out } => {
                let mut wanted = std::mem::take(&mut self.integers[0]);
                self.read_integers(program, rows, feed, node, &mut wanted)?;
                let done = self.write(program, node, out, |worker, to, stride| {
                    let x = worker.rows(program, x, feed, node)?;
                    for (to, &row) in to.chunks_mut(stride).zip(&wanted) {
                        let row = usize::try_from(row).ok().filter(|&row| row < x.rows);
                        let row =
                            row.ok_or_else(|| fail(program, node, "a row that is not there"))?;
                        to[..x.width].copy_from_slice(&x.data[row * x.stride..][..x.width]);
                    }
                    Ok(())
                });
                self.integers[0] = wanted;
                done
            }
            Work::UnpackRows { x, index, out } => {
                let mut index_of = std::mem::take(&mut self.integers[0]);
                self.read_integers(program, index, feed, node, &mut index_of)?;
                let done = self.write(program, node, out, |worker, to, stride| {
                    let x = worker.rows(program, x, feed, node)?;
                    to.fill(0.0);
                    for (row, &place) in index_of.iter().enumerate() {
                        let to = &mut to[place as usize * stride..][..x.width];
                        to.copy_from_slice(&x.data[row * x.stride..][..x.width]);
                    }
                    Ok(())
                });
                self.integers[0] = index_of;
                done
            }
        }
    }

    /// Extents of a view: how many rows, and how wide they are.
    pub(super) fn extents_of(&self, view: &View) -> (usize, usize) {
        let (&last, rows) = view.dims.split_last().expect("a view has a last axis");
        (rows.iter().map(|&id| self.extents[id]).product(), self.extents[last])
    }

    fn stride_of(&self, program: &Program, view: &View) -> usize {
        match program.storages[view.storage].stride {
            Stride::Known(stride) => stride,
            Stride::Extent(id) => self.extents[id],
        }
    }

    /// Lets `fill` write a view's block: its numbers, and how many there are from row to row.
    pub(super) fn write(
        &mut self,
        program: &Program,
        node: NodeId,
        out: &View,
        fill: impl FnOnce(&Self, &mut [f32], usize) -> Result<()>,
    ) -> Result<()> {
        let (rows, width) = self.extents_of(out);
        let stride = self.stride_of(program, out);
        let block = program.storages[out.storage].block;
        let mut memory = std::mem::take(&mut self.blocks[block]);
        let len = rows.checked_mul(stride);
        let done = match len.and_then(|len| memory.reserve(len).map(|()| len)) {
            Some(len) => fill(self, &mut memory.f32_mut()[..len], stride),
            None => {
                let node = program.graph.node(node);
                let (name, op) = (node.name.clone(), node.op.to_string());
                let shape = Shape::from(vec![rows, width]);
                Err(Error::TooLarge { name, op, dtype: DType::F32, shape })
            }
        };
        self.blocks[block] = memory;
        done
    }

    /// The rows of a value.
    pub(super) fn rows<'a>(
        &'a self,
        program: &'a Program,
        place: &Place,
        feed: &'a Feed,
        node: NodeId,
    ) -> Result<Rows<'a>> {
        if let Place::View(view) = place {
            let (rows, width) = self.extents_of(view);
            let block = &self.blocks[program.storages[view.storage].block];
            let stride = self.stride_of(program, view);
            let data = Cow::Borrowed(&block.f32()[view.column..]);
            return Ok(Rows { data, stride, rows, width });
        }
        let tensor = self.given(program, place, feed, node)?;
        let width = tensor.shape().last().copied().unwrap_or(1);
        let rows = tensor.elements().checked_div(width).unwrap_or(0);
        let data =
            tensor.values::<f32>().map_err(|_| fail(program, node, "an operand is no float32"))?;
        Ok(Rows { data, stride: width, rows, width })
    }

    /// A value that is a tensor.
    fn given<'a>(
        &'a self,
        program: &'a Program,
        place: &Place,
        feed: &'a Feed,
        node: NodeId,
    ) -> Result<&'a Tensor> {
        let found = match place {
            Place::Input(at) => feed.values.get(&program.graph.inputs[*at].value.node),
            Place::Constant(at) => program.constants.get(*at),
            Place::Tensor(at) => self.tensors[*at].as_ref(),
            Place::View(_) | Place::List(_) => None,
        };
        found.ok_or_else(|| fail(program, node, "an operand is not there"))
    }

    /// A value as a tensor of its own.
    fn tensor(
        &self,
        program: &Program,
        place: &Place,
        feed: &Feed,
        node: NodeId,
    ) -> Result<Tensor> {
        let made = match place {
            Place::View(view) => {
                let x = self.rows(program, place, feed, node)?;
                let mut dense = Vec::with_capacity(x.rows * x.width);
                for row in 0..x.rows {
                    dense.extend_from_slice(&x.data[row * x.stride..][..x.width]);
                }
                let shape: Vec<usize> = view.dims.iter().map(|&id| self.extents[id]).collect();
                Tensor::from_vec(shape, dense)
            }
            Place::List(at) => {
                let list = self.lists[*at].clone();
                Tensor::from_vec([list.len()], list)
            }
            _ => return self.given(program, place, feed, node).cloned(),
        };
        made.map_err(|source| {
            let node = program.graph.node(node);
            Error::Tensor { name: node.name.clone(), op: node.op.to_string(), source }
        })
    }

    /// A value of whole numbers as `i32`, into `to`.
    pub(super) fn read_integers(
        &self,
        program: &Program,
        place: &Place,
        feed: &Feed,
        node: NodeId,
        to: &mut Vec<i32>,
    ) -> Result<()> {
        to.clear();
        if let Place::List(at) = place {
            to.extend_from_slice(&self.lists[*at]);
            return Ok(());
        }
        let tensor = self.given(program, place, feed, node)?;
        let wrong = |_| fail(program, node, "an operand has no whole numbers");
        // What does not fit in 32 bits is outside of every table.
        let narrow = |x: i64| i32::try_from(x).unwrap_or(-1);
        match tensor.dtype() {
            DType::I32 => to.extend_from_slice(&tensor.values::<i32>().map_err(wrong)?),
            DType::I64 => {
                to.extend(tensor.values::<i64>().map_err(wrong)?.iter().map(|&x| narrow(x)))
            }
            _ => to.extend(tensor.to_f64().map_err(wrong)?.iter().map(|&x| x as i32)),
        }
        Ok(())
    }

    /// Whether each position of a mask counts, into `to`: 1 or 0; `None` if it has other numbers.
    pub(super) fn read_mask(
        &self,
        program: &Program,
        place: &Place,
        feed: &Feed,
        node: NodeId,
        to: &mut Vec<i32>,
    ) -> Result<(usize, usize)> {
        let tensor = self.given(program, place, feed, node)?;
        let &[b, s] = &**tensor.shape() else {
            return Err(fail(program, node, format!("the mask is {}", tensor.shape())));
        };
        to.clear();
        let wrong = |_| fail(program, node, "the mask has no numbers");
        match tensor.dtype() {
            DType::I32 => to.extend_from_slice(&tensor.values::<i32>().map_err(wrong)?),
            _ => to.extend(tensor.to_f64().map_err(wrong)?.iter().map(|&x| {
                // Neither 0 nor 1 stays neither.
                if x == 0.0 {
                    0
                } else if x == 1.0 {
                    1
                } else {
                    2
                }
            })),
        }
        Ok((b, s))
    }

    fn pack_rows(
        &mut self,
        program: &Program,
        node: NodeId,
        feed: &Feed,
        (mask, first): (&Place, bool),
        (index, bounds): (usize, usize),
    ) -> Result<()> {
        let mut flags = std::mem::take(&mut self.integers[0]);
        let (b, s) = self.read_mask(program, mask, feed, node, &mut flags)?;
        let mut rows = std::mem::take(&mut self.lists[index]);
        let mut ends = std::mem::take(&mut self.lists[bounds]);
        rows.clear();
        ends.clear();
        ends.push(0);
        let mut problem = None;
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
            }
            ends.push(rows.len() as i32);
        }
        if b == 0 {
            problem = Some("the batch has no sequences".into());
        }
        self.sizes.insert(Symbol::rows(), rows.len() as i64);
        self.integers[0] = flags;
        self.lists[index] = rows;
        self.lists[bounds] = ends;
        self.evaluate(program);
        match problem {
            Some(reason) => Err(fail(program, node, reason)),
            None => Ok(()),
        }
    }

    fn embed(&mut self, program: &Program, node: NodeId, feed: &Feed, embed: &Embed) -> Result<()> {
        let [mut ids, mut segments] = std::mem::take(&mut self.integers);
        let done = self.embed_rows(program, node, feed, embed, (&mut ids, &mut segments));
        self.integers = [ids, segments];
        done
    }

    fn embed_rows(
        &mut self,
        program: &Program,
        node: NodeId,
        feed: &Feed,
        embed: &Embed,
        (ids, segments): (&mut Vec<i32>, &mut Vec<i32>),
    ) -> Result<()> {
        let shape = self.given(program, &embed.ids, feed, node)?.shape().clone();
        let &[_, s] = &*shape else {
            return Err(fail(program, node, format!("the ids are {shape}")));
        };
        if s > embed.positions.rows {
            let most = embed.positions.rows;
            let reason = format!("a sequence of {s}, but the model has {most} positions");
            return Err(fail(program, node, reason));
        }
        self.read_integers(program, &embed.ids, feed, node, ids)?;
        self.read_integers(program, &embed.segments, feed, node, segments)?;
        if ids.len() != segments.len() {
            return Err(fail(program, node, "ids and segments are of different extents"));
        }
        let limits = [("id", &*ids, embed.words.rows), ("segment", &*segments, embed.types.rows)];
        for (i, (what, given, limit)) in limits.into_iter().enumerate() {
            let outside = |&x: &i32| usize::try_from(x).map_or(true, |x| x >= limit);
            if let Some(at) = given.iter().position(outside) {
                let error = OutOfRange { at, index: given[at].into(), limit };
                return Err(self.out_of_range(program, node, what, embed.sources[i], error));
            }
        }
        let index = match &embed.index {
            Some(Place::List(at)) => Some(self.lists[*at].as_slice()),
            Some(_) => return Err(fail(program, node, "the rows are no list")),
            None => None,
        };
        // Borrowed apart from `self`, which lends its blocks out.
        let index = index.map(<[i32]>::to_vec);
        self.write(program, node, &embed.out, |worker, to, stride| {
            worker.embed_kernel(program, embed, (ids, segments, index.as_deref(), s), to, stride);
            Ok(())
        })
    }
}

pub(super) fn fail(program: &Program, node: NodeId, reason: impl Into<String>) -> Error {
    let node = program.graph.node(node);
    Error::Operands { name: node.name.clone(), op: node.op.to_string(), reason: reason.into() }
}
