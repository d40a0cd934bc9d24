//! The memory of one run at a time: where values lie, and how steps get at them.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use frazil_graph::dim::Sizes;
use frazil_graph::{NodeId, Op, Port, Symbol};
use frazil_kernels::attention::Sequence;
use frazil_kernels::par::Pool;
use frazil_tensor::{DType, Shape, Tensor};

use super::block::Block;
use super::program::{Kind, Place, Program, Stride, View, Work};
use super::train::Parameters;
use crate::feed::Fed;
use crate::{Error, Inputs, Result};

/// Everything that changes while a program runs. Blocks grow to what the largest batch needs and
/// stay.
pub struct Worker {
    program: Arc<Program>,
    pub(super) pool: Arc<Pool>,
    blocks: Vec<Block>,
    pub(super) tensors: Vec<Option<Tensor>>,
    pub(super) lists: Vec<Vec<i32>>,
    pub(super) extents: Vec<usize>,
    pub(super) sizes: Sizes,
    /// A new symbol is an allocation.
    pub(super) rows_symbol: Symbol,
    /// Integers as kernels read them: ids and segments, or a mask.
    pub(super) integers: [Vec<i32>; 2],
    /// What embeddings look up: ids, segments and positions of the packed rows.
    pub(super) lookups: [Vec<u32>; 3],
    pub(super) sequences: Vec<Sequence>,
    pub(super) key_rows: Vec<u32>,
    /// Of kernels, for all threads.
    pub(super) scratch: Block,
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

/// What a site of a marked graph reads, see [`super::Engine::watch`].
#[derive(Clone, Copy, Debug)]
pub struct Watched<'a> {
    /// The site's name.
    pub site: &'a str,
    /// Which of the values that the site observes.
    pub place: usize,
    /// Numbers of a row.
    pub width: usize,
    /// The rows, one after the other: `[t, width]`.
    pub rows: &'a [f32],
}

/// A run under way: what steps need beside the worker.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub program: &'a Program,
    pub feed: &'a Fed<'a>,
    /// What [`Place::Parameter`] stands for.
    pub parameters: &'a Parameters,
    /// The node of the step.
    pub node: NodeId,
}

/// What a run gave, where it lies until the worker runs again.
pub struct Outputs<'a> {
    worker: &'a Worker,
    program: Arc<Program>,
    feed: Fed<'a>,
}

/// Rows of an output.
#[derive(Clone, Copy, Debug)]
pub struct OutputRows<'a> {
    /// The numbers: `rows` rows, of which `width` count.
    pub data: &'a [f32],
    /// Numbers from one row to the next.
    pub stride: usize,
    /// Rows: the product of all extents but the last.
    pub rows: usize,
    /// Numbers of a row.
    pub width: usize,
}

impl Outputs<'_> {
    /// The names, in the model's order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.program.outputs.iter().map(|(name, _)| name.as_str())
    }

    /// The numbers of an output by its place; `None` if it is none, or no float32 that a fast step made.
    pub fn rows(&self, at: usize) -> Option<OutputRows<'_>> {
        let (_, Place::View(view)) = self.program.outputs.get(at)? else { return None };
        let (rows, width) = self.worker.extents_of(view);
        let stride = self.worker.stride_of(&self.program, view);
        let block = &self.worker.blocks[self.program.storages[view.storage].block];
        Some(OutputRows { data: block.f32().get(view.column..)?, stride, rows, width })
    }

    /// The numbers of an output by its place, one after the other: where they lie, if they lie so.
    pub fn numbers(&self, at: usize) -> Result<Cow<'_, [f32]>> {
        if let Some(rows) = self.rows(at).filter(|rows| rows.stride == rows.width) {
            return Ok(Cow::Borrowed(&rows.data[..rows.rows * rows.width]));
        }
        let (program, feed, none) = (&*self.program, &self.feed, Parameters::default());
        let (port, place) = match (program.graph.outputs.get(at), program.outputs.get(at)) {
            (Some(port), Some((_, place))) => (port, place),
            _ => return Err(Error::NoOutputs),
        };
        let context = Context { program, feed, parameters: &none, node: port.value.node };
        Ok(Cow::Owned(self.worker.rows(context, place)?.dense()))
    }

    /// All outputs as tensors of their own.
    pub fn tensors(&self) -> Result<Vec<(String, Tensor)>> {
        let ports = self.program.outputs.iter().zip(&self.program.graph.outputs);
        let tensor = |((name, place), port): (&(String, Place), &Port)| {
            // A weight is no output: whoever gave it has it.
            let (program, feed, none) = (&*self.program, &self.feed, Parameters::default());
            let context = Context { program, feed, parameters: &none, node: port.value.node };
            Ok((name.clone(), self.worker.tensor(context, place)?))
        };
        ports.map(tensor).collect()
    }

    /// What was done to the inputs.
    pub fn notes(&self) -> &[String] {
        self.feed.notes()
    }
}

/// Rows that a kernel reads.
pub(super) struct Rows<'a> {
    pub data: Cow<'a, [f32]>,
    /// Numbers from one row to the next.
    pub stride: usize,
    pub rows: usize,
    pub width: usize,
}

impl Rows<'_> {
    /// The rows one after the other: where they lie, if they lie so.
    pub fn close(&self) -> Cow<'_, [f32]> {
        match self.stride == self.width {
            true => Cow::Borrowed(&self.data[..self.rows * self.width]),
            false => Cow::Owned(self.dense()),
        }
    }

    /// The rows one after the other.
    fn dense(&self) -> Vec<f32> {
        let mut dense = Vec::with_capacity(self.rows * self.width);
        for row in 0..self.rows {
            dense.extend_from_slice(&self.data[row * self.stride..][..self.width]);
        }
        dense
    }
}

/// A block on loan to the step that writes it; [`Worker::give`] it back.
pub(super) struct Lent {
    block: usize,
    memory: Block,
    /// In elements.
    len: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Lent {
    pub fn f32(&mut self) -> &mut [f32] {
        &mut self.memory.f32_mut()[..self.len]
    }

    pub fn u8(&mut self) -> &mut [u8] {
        &mut self.memory.u8_mut()[..self.len]
    }
}

impl Context<'_> {
    pub fn fail(&self, reason: impl Into<String>) -> Error {
        let (name, op) = self.name_and_op();
        Error::Operands { name, op, reason: reason.into() }
    }

    pub fn name_and_op(&self) -> (String, String) {
        let node = self.program.graph.node(self.node);
        (node.name.clone(), node.op.to_string())
    }
}

impl Worker {
    pub(super) fn new(program: Arc<Program>, pool: Arc<Pool>) -> Self {
        Self {
            blocks: vec![Block::default(); program.blocks],
            tensors: vec![None; program.tensors],
            lists: vec![Vec::new(); program.lists],
            extents: vec![0; program.extents.len()],
            sizes: Sizes::new(),
            rows_symbol: Symbol::rows(),
            integers: Default::default(),
            lookups: Default::default(),
            sequences: Vec::new(),
            key_rows: Vec::new(),
            scratch: Block::default(),
            times: None,
            program,
            pool,
        }
    }

    /// Runs the program. Once it has run a batch of the same sizes, a model that has a fast kernel
    /// for everything makes no allocation here; integers of another type than the model's do.
    pub fn run<'a>(&'a mut self, inputs: &'a Inputs) -> Result<Outputs<'a>> {
        let program = Arc::clone(&self.program);
        let feed = self.execute(&program, inputs, None, |_, _, _| Ok(()))?;
        Ok(Outputs { worker: self, program, feed })
    }

    /// Bytes of memory that runs have taken so far, but for tensors of plain steps.
    pub fn memory(&self) -> usize {
        let blocks = self.blocks.iter().chain([&self.scratch]);
        blocks.map(|block| size_of_val(block.f32())).sum()
    }

    /// Runs a program that was made for weights that change ([`super::Engine::for_training`]).
    pub fn run_with<'a>(
        &'a mut self,
        inputs: &'a Inputs,
        parameters: &Parameters,
    ) -> Result<Outputs<'a>> {
        let program = Arc::clone(&self.program);
        let feed = self.execute(&program, inputs, Some(parameters), |_, _, _| Ok(()))?;
        Ok(Outputs { worker: self, program, feed })
    }

    /// The same, and shows each output as soon as no later step changes it: its place among the outputs,
    /// and its numbers, one after the other.
    pub fn run_showing<'a>(
        &'a mut self,
        inputs: &'a Inputs,
        parameters: &Parameters,
        see: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<Outputs<'a>> {
        let program = Arc::clone(&self.program);
        let mut left = program.ready.iter().copied().peekable();
        let feed = self.execute(&program, inputs, Some(parameters), |worker, context, at| {
            while let Some((_, output)) = left.next_if(|(step, _)| *step <= at) {
                let rows = worker.rows(context, &program.outputs[output].1)?;
                see(output, &rows.close());
            }
            Ok(())
        })?;
        Ok(Outputs { worker: self, program, feed })
    }

    /// In which order [`Worker::run_showing`] shows the outputs.
    pub fn showing_order(&self) -> impl Iterator<Item = usize> {
        self.program.ready.iter().map(|(_, output)| *output)
    }

    /// Runs all steps; `after` sees every step, by its number, when it is done.
    fn execute<'a>(
        &mut self,
        program: &Program,
        inputs: &'a Inputs,
        parameters: Option<&Parameters>,
        mut after: impl FnMut(&Self, Context<'_>, usize) -> Result<()>,
    ) -> Result<Fed<'a>> {
        self.tensors.fill(None);
        let feed = Fed::new(&program.graph, inputs)?;
        self.measure(program, &feed)?;
        let none = Parameters::default();
        let parameters = parameters.unwrap_or(&none);
        if parameters.len() != program.parameters {
            return Err(Error::Parameters { found: parameters.len(), wanted: program.parameters });
        }
        for (at, step) in program.steps.iter().enumerate() {
            let context = Context { program, feed: &feed, parameters, node: step.node };
            let start = Instant::now();
            self.step(context, &step.work)?;
            if self.times.is_some() {
                let time = self.time(context, step, start.elapsed().as_secs_f64());
                self.times.iter_mut().for_each(|times| times.push(time.clone()));
            }
            after(self, context, at)?;
        }
        Ok(feed)
    }

    /// Runs the program and tells what each step took.
    pub(super) fn profile(&mut self, inputs: &Inputs) -> Result<Vec<StepTime>> {
        self.profile_with(inputs, None)
    }

    /// The same of a program for weights that change.
    pub fn profile_with(
        &mut self,
        inputs: &Inputs,
        parameters: Option<&Parameters>,
    ) -> Result<Vec<StepTime>> {
        self.times = Some(Vec::new());
        let program = Arc::clone(&self.program);
        let done = self.execute(&program, inputs, parameters, |_, _, _| Ok(())).map(|_| ());
        let times = self.times.take().unwrap_or_default();
        done.map(|()| times)
    }

    /// Runs the program and shows what it comes by at marks.
    pub(super) fn watch(
        &mut self,
        inputs: &Inputs,
        see: &mut dyn FnMut(Watched<'_>),
    ) -> Result<()> {
        let program = Arc::clone(&self.program);
        let done = self.execute(&program, inputs, None, |worker, context, at| {
            let Work::Watch { x, site, place } = &program.steps[at].work else { return Ok(()) };
            let x = worker.rows(context, x)?;
            see(Watched { site, place: *place, width: x.width, rows: &x.close() });
            Ok(())
        });
        done.map(|_| ())
    }

    /// What the symbols of the inputs stand for in this batch.
    fn measure(&mut self, program: &Program, feed: &Fed<'_>) -> Result<()> {
        for port in &program.graph.inputs {
            if let (Op::Input(input) | Op::InputWithDefault(input), Some(tensor)) =
                (program.graph.op(port.value), feed.get(port))
            {
                let dims = input.dims.iter().flatten().zip(tensor.shape().iter());
                for (symbol, &size) in dims.filter_map(|(dim, size)| Some((dim.as_symbol()?, size)))
                {
                    if size == 0 {
                        let (name, found) = (port.name.clone(), tensor.shape().clone());
                        let extent = symbol.to_string();
                        return Err(Error::EmptyInput { name, found, extent });
                    }
                    self.sizes.insert(symbol.clone(), size as i64);
                }
            }
        }
        self.evaluate(program);
        Ok(())
    }

    /// The extents by the sizes that are known by now.
    pub(super) fn evaluate(&mut self, program: &Program) {
        for (extent, dim) in self.extents.iter_mut().zip(&program.extents) {
            let value = dim.at(&self.sizes).and_then(|value| usize::try_from(value).ok());
            *extent = value.unwrap_or(0);
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

    /// Takes the block of a view out, with room for it.
    pub(super) fn take(&mut self, context: Context<'_>, view: &View) -> Result<Lent> {
        let (rows, width) = self.extents_of(view);
        let stride = self.stride_of(context.program, view);
        let storage = &context.program.storages[view.storage];
        let mut memory = std::mem::take(&mut self.blocks[storage.block]);
        let room = rows.checked_mul(stride).and_then(|len| {
            let numbers = if storage.kind == Kind::U8 { len.div_ceil(4) } else { len };
            memory.reserve(numbers).map(|()| len)
        });
        let too_large = || {
            let (name, op) = context.name_and_op();
            let shape = Shape::from(vec![rows, width]);
            Error::TooLarge { name, op, dtype: DType::F32, shape }
        };
        Ok(Lent { block: storage.block, len: room.ok_or_else(too_large)?, stride, memory })
    }

    /// Puts a block back.
    pub(super) fn give(&mut self, lent: Lent) {
        self.blocks[lent.block] = lent.memory;
    }

    /// The rows of a value.
    pub(super) fn rows<'a>(&'a self, context: Context<'a>, place: &Place) -> Result<Rows<'a>> {
        if let Place::View(view) = place {
            let (rows, width) = self.extents_of(view);
            let block = &self.blocks[context.program.storages[view.storage].block];
            let stride = self.stride_of(context.program, view);
            let data = Cow::Borrowed(block.f32().get(view.column..).unwrap_or_default());
            return Ok(Rows { data, stride, rows, width });
        }
        if let Place::Parameter(at) = place {
            let (data, shape) = (context.parameters.values(*at), context.parameters.shape(*at));
            let width = shape.last().copied().unwrap_or(1);
            let rows = data.len().checked_div(width).unwrap_or(0);
            return Ok(Rows { data: Cow::Borrowed(data), stride: width, rows, width });
        }
        let tensor = self.given(context, place)?;
        let width = tensor.shape().last().copied().unwrap_or(1);
        let rows = tensor.elements().checked_div(width).unwrap_or(0);
        let wrong = |_| context.fail(format!("an operand is {}, no float32", tensor.dtype()));
        Ok(Rows { data: tensor.values::<f32>().map_err(wrong)?, stride: width, rows, width })
    }

    /// The bytes of a view, and how many there are from row to row.
    pub(super) fn bytes(&self, program: &Program, view: &View) -> (&[u8], usize) {
        let block = &self.blocks[program.storages[view.storage].block];
        (block.u8(), self.stride_of(program, view))
    }

    /// The numbers of a view that are close together.
    pub(super) fn numbers(&self, program: &Program, view: &View) -> &[f32] {
        self.blocks[program.storages[view.storage].block].f32()
    }

    /// A value that is a tensor.
    pub(super) fn given<'a>(&'a self, context: Context<'a>, place: &Place) -> Result<&'a Tensor> {
        let Context { program, feed, .. } = context;
        let found = match place {
            Place::Input(at) => feed.get(&program.graph.inputs[*at]),
            Place::Constant(at) => program.constants.get(*at),
            Place::Tensor(at) => self.tensors[*at].as_ref(),
            Place::View(_) | Place::List(_) | Place::Parameter(_) => None,
        };
        found.ok_or_else(|| context.fail("an operand is not there"))
    }

    /// A value as a tensor of its own.
    pub(super) fn tensor(&self, context: Context<'_>, place: &Place) -> Result<Tensor> {
        let made = match place {
            Place::View(view) => {
                let shape: Vec<usize> = view.dims.iter().map(|&id| self.extents[id]).collect();
                Tensor::from_vec(shape, self.rows(context, place)?.dense())
            }
            Place::List(at) => {
                let list = self.lists[*at].clone();
                Tensor::from_vec([list.len()], list)
            }
            Place::Parameter(at) if *at < context.parameters.len() => {
                return Ok(context.parameters.to_tensor(*at));
            }
            _ => return self.given(context, place).cloned(),
        };
        made.map_err(|source| {
            let (name, op) = context.name_and_op();
            Error::Tensor { name, op, source }
        })
    }

    /// A value of whole numbers as `i32`, into `to`.
    pub(super) fn read_integers(
        &self,
        context: Context<'_>,
        place: &Place,
        to: &mut Vec<i32>,
    ) -> Result<()> {
        to.clear();
        if let Place::List(at) = place {
            to.extend_from_slice(&self.lists[*at]);
            return Ok(());
        }
        let tensor = self.given(context, place)?;
        let wrong = |_| context.fail(format!("{} are no whole numbers", tensor.dtype()));
        // What does not fit in 32 bits is outside of every table.
        let narrow = |x: i64| i32::try_from(x).unwrap_or(-1);
        match tensor.dtype() {
            DType::I32 => to.extend_from_slice(&tensor.values::<i32>().map_err(wrong)?),
            DType::I64 => {
                to.extend(tensor.values::<i64>().map_err(wrong)?.iter().map(|&x| narrow(x)));
            }
            _ => to.extend(tensor.to_f64().map_err(wrong)?.iter().map(|&x| x as i32)),
        }
        Ok(())
    }

    /// A mask `[b, s]` into `to`: 0 for padding, 1 for what counts, 2 for other numbers.
    pub(super) fn read_mask(
        &self,
        context: Context<'_>,
        place: &Place,
        to: &mut Vec<i32>,
    ) -> Result<(usize, usize)> {
        let tensor = self.given(context, place)?;
        let &[b, s] = &**tensor.shape() else {
            return Err(context.fail(format!("the mask is {}", tensor.shape())));
        };
        let wrong = |_| context.fail(format!("a mask of {}", tensor.dtype()));
        let flag = |x: f64| match x {
            0.0 => 0,
            1.0 => 1,
            _ => 2,
        };
        to.clear();
        match tensor.dtype() {
            DType::I32 => {
                to.extend(tensor.values::<i32>().map_err(wrong)?.iter().map(|&x| flag(x.into())));
            }
            _ => to.extend(tensor.to_f64().map_err(wrong)?.iter().map(|&x| flag(x))),
        }
        Ok((b, s))
    }
}
