//! Sequences into runs, and the results apart again.
//!
//! An engine that drops padding takes sequences as they come; one that cannot (a graph whose mask
//! it did not recognise) takes those of like length together, out of a window of them. Results come
//! in the order of the sequences either way. What lies behind the end of a sequence is cut off,
//! unless padding was asked for.

use frazil_bert::features::Features;
use frazil_graph::Op;
use frazil_runtime::{Inputs, Worker};
use frazil_tensor::{DType, Tensor};

use super::ends::{Fed, Food, Form, Scale};
use super::{About, TextModel, Want};
use crate::{Error, Result};

/// Sequences among which like ones are looked for, where padding costs.
const WINDOW: usize = 512;
/// A batch has at most this many times as many places as rows were asked for: one long sequence
/// among many short ones must not blow it up.
const SPARSE: usize = 4;
/// Numbers of an output at most, 256 MB of them: a row for each token over a vocabulary is wide.
const NUMBERS: usize = 64 << 20;

/// A sequence, and what it is to the caller.
#[derive(Clone, Debug)]
pub struct Item<T> {
    /// Comes back with the result.
    pub tag: T,
    /// The sequence.
    pub features: Features,
    /// For [`Want::Words`], which of its tokens; else empty.
    pub positions: Vec<i32>,
}

impl<T> Item<T> {
    /// A sequence of which no single tokens are asked for.
    pub fn new(tag: T, features: Features) -> Self {
        Self { tag, features, positions: Vec::new() }
    }
}

/// What the model says of one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Said {
    /// What [`Want`] lists.
    pub outputs: Vec<Output>,
}

/// An output for one sequence.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The numbers, row by row.
    pub values: Vec<f32>,
    /// Extents: `[c]`, `[len]`, `[len, h]` and so on.
    pub dims: Vec<usize>,
}

impl Output {
    /// The rows; of one axis, a single one.
    pub fn rows(&self) -> impl Iterator<Item = &[f32]> {
        let width = self.dims.last().copied().unwrap_or(1).max(1);
        self.values.chunks_exact(width)
    }
}

/// Rows as a run gave them.
struct Given<'a> {
    data: &'a [f32],
    stride: usize,
    rows: usize,
    width: usize,
}

impl Given<'_> {
    fn row(&self, at: usize) -> &[f32] {
        &self.data[at * self.stride..][..self.width]
    }
}

/// The extents of a batch.
#[derive(Clone, Copy)]
struct Extents {
    b: usize,
    s: usize,
    /// Positions that are asked for of each sequence.
    p: usize,
}

impl About {
    /// As many places as a sequence takes.
    fn len<T>(&self, item: &Item<T>) -> usize {
        if self.padded { item.features.padded_len() } else { item.features.len() }
    }

    fn extents<T>(&self, items: &[&Item<T>]) -> Extents {
        let longest = items.iter().map(|item| self.len(item)).max().unwrap_or(0);
        let asked = items.iter().map(|item| item.positions.len()).max().unwrap_or(0);
        let b = self.sizes.batch.unwrap_or(items.len());
        Extents { b, s: self.sizes.seq.unwrap_or(longest), p: asked.max(1) }
    }

    /// What a run of these sequences is fed with.
    fn feed<T>(&self, items: &[&Item<T>], extents: Extents) -> Result<Inputs> {
        let tensor = |input: &Fed| Ok((input.name.clone(), tensor(input, items, extents)?));
        self.ends.inputs.iter().map(tensor).collect()
    }

    /// Refuses what the model cannot read.
    fn admit<T>(&self, item: &Item<T>) -> Result<()> {
        let refuse = |what: String| Error::Usage {
            what,
            hint: "leave it out, or give another model or vocabulary".into(),
        };
        if item.features.is_empty() {
            return Err(refuse("a sequence has no pieces at all".into()));
        }
        self.check(&item.features).map_err(|problem| refuse(format!("a sequence: {problem}")))?;
        let len = item.features.len();
        let outside = |at: &&i32| usize::try_from(**at).map_or(true, |at| at >= len);
        match item.positions.iter().find(outside) {
            Some(at) => Err(refuse(format!("position {at} is none of a sequence of {len} pieces"))),
            None => Ok(()),
        }
    }

    /// Whether sequences of these lengths are more than one run.
    fn is_full(&self, lengths: impl Iterator<Item = usize>) -> bool {
        let (mut b, mut longest, mut rows) = (0, 0, 0);
        for length in lengths {
            (b, longest, rows) = (b + 1, longest.max(length), rows + length);
        }
        if b < 2 {
            return false;
        }
        if let Some(batch) = self.sizes.batch {
            return b > batch;
        }
        let places = b * self.sizes.seq.unwrap_or(longest);
        let width = match self.ends.form {
            Form::TokenRows => self.sizes.widths.iter().flatten().copied().max().unwrap_or(1),
            _ => 1,
        };
        rows > self.rows
            || places > self.rows.saturating_mul(SPARSE)
            || places.saturating_mul(width) > NUMBERS
    }

    pub(super) fn inputs(&self, sequences: &[Features]) -> Result<Vec<Inputs>> {
        let items: Vec<Item<()>> =
            sequences.iter().map(|features| Item::new((), features.clone())).collect();
        items.iter().try_for_each(|item| self.admit(item))?;
        let all: Vec<&Item<()>> = items.iter().collect();
        let mut runs = Vec::new();
        let mut rest = &all[..];
        while !rest.is_empty() {
            let fits =
                |count: &usize| !self.is_full(rest[..*count].iter().map(|item| self.len(item)));
            let count = (1..=rest.len()).take_while(fits).last().unwrap_or(1);
            let (group, others) = rest.split_at(count);
            runs.push(self.feed(group, self.extents(group))?);
            rest = others;
        }
        Ok(runs)
    }
}

impl TextModel {
    /// Pulls sequences, runs the model on many of them at a time, and gives away what it says of
    /// each, in their order.
    pub fn run<T, E: From<Error>>(
        &self,
        sequences: impl IntoIterator<Item = Result<Item<T>, E>>,
        mut each: impl FnMut(T, Said) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut worker = self.engine.worker();
        let packs = |node: &frazil_graph::Node| matches!(node.op, Op::PackRows(_));
        let packed = self.engine.graph().nodes().any(|(_, node)| packs(node));
        let mut waiting: Vec<Item<T>> = Vec::new();
        let mut flush = |waiting: &mut Vec<Item<T>>| -> Result<(), E> {
            let said = self.flush(&mut worker, waiting, packed)?;
            waiting.drain(..).zip(said).try_for_each(|(item, said)| each(item.tag, said))
        };
        for item in sequences {
            let item = item?;
            self.about.admit(&item)?;
            // Before the one that would be too many.
            if packed
                && self.about.is_full(waiting.iter().chain([&item]).map(|i| self.about.len(i)))
            {
                flush(&mut waiting)?;
            }
            waiting.push(item);
            if waiting.len() >= if packed { usize::MAX } else { WINDOW } {
                flush(&mut waiting)?;
            }
        }
        flush(&mut waiting)
    }

    /// Runs all that wait; what the model says of each, in their order.
    fn flush<T>(
        &self,
        worker: &mut Worker,
        waiting: &[Item<T>],
        packed: bool,
    ) -> Result<Vec<Said>> {
        if packed {
            let all: Vec<&Item<T>> = waiting.iter().collect();
            return if all.is_empty() { Ok(Vec::new()) } else { self.batch(worker, &all) };
        }
        let mut order: Vec<usize> = (0..waiting.len()).collect();
        order.sort_by_key(|&i| self.about.len(&waiting[i]));
        let mut said = vec![Said::default(); waiting.len()];
        let mut rest = &order[..];
        while !rest.is_empty() {
            // All are computed as long as the longest, which is the last.
            let fits = |count: &usize| {
                let longest = self.about.len(&waiting[rest[count - 1]]);
                !self.about.is_full(std::iter::repeat_n(longest, *count))
            };
            let count = (1..=rest.len()).take_while(fits).last().unwrap_or(1);
            let (group, others) = rest.split_at(count);
            let items: Vec<&Item<T>> = group.iter().map(|&i| &waiting[i]).collect();
            for (&i, found) in group.iter().zip(self.batch(worker, &items)?) {
                said[i] = found;
            }
            rest = others;
        }
        Ok(said)
    }

    /// One run.
    fn batch<T>(&self, worker: &mut Worker, items: &[&Item<T>]) -> Result<Vec<Said>> {
        let extents = self.about.extents(items);
        let inputs = self.about.feed(items, extents)?;
        let outputs = worker.run(&inputs)?;
        let mut said = vec![Said::default(); items.len()];
        // Outputs that no fast step made.
        let whole = match (0..self.about.ends.outputs).all(|at| outputs.rows(at).is_some()) {
            true => Vec::new(),
            false => outputs.tensors()?,
        };
        for at in 0..self.about.ends.outputs {
            let values;
            let given = match outputs.rows(at) {
                Some(rows) => Given {
                    data: rows.data,
                    stride: rows.stride,
                    rows: rows.rows,
                    width: rows.width,
                },
                None => {
                    let Some((_, tensor)) = whole.get(at) else { continue };
                    values = tensor.cast(DType::F32)?.values::<f32>()?.into_owned();
                    let width = tensor.shape().last().copied().unwrap_or(1);
                    let rows = values.len().checked_div(width).unwrap_or(0);
                    Given { data: &values, stride: width, rows, width }
                }
            };
            self.read(&given, items, extents, &mut said)?;
        }
        Ok(said)
    }

    /// Cuts an output apart.
    fn read<T>(
        &self,
        given: &Given<'_>,
        items: &[&Item<T>],
        Extents { b, s, p }: Extents,
        said: &mut [Said],
    ) -> Result<()> {
        let (rows, width) = match self.about.ends.form {
            Form::Sequence => (b, given.width),
            Form::Tokens => (b, s),
            Form::TokenRows => (b * s, given.width),
            Form::TokenPairs => (b * s, 2),
            Form::PairOfTokens => (2 * b, s),
            Form::Positions => (b * p, given.width),
        };
        if (given.rows, given.width) != (rows, width) {
            return Err(Error::Usage {
                what: format!(
                    "an output has {} rows of {}, not the {rows} of {width} that are expected for \
                     {b} sequences of {s}",
                    given.rows, given.width
                ),
                hint: "name another output with `--output`".into(),
            });
        }
        for (i, (item, said)) in items.iter().zip(said).enumerate() {
            let len = self.about.len(item);
            let joined = |rows: &mut dyn Iterator<Item = usize>| {
                let mut values = Vec::new();
                let count = rows.map(|row| values.extend_from_slice(given.row(row))).count();
                Output { values, dims: vec![count, given.width] }
            };
            let line = |row: usize, len: usize| {
                let values = given.row(row)[..len].to_vec();
                Output { values, dims: vec![len] }
            };
            let positions = item.positions.iter().map(|&at| at as usize);
            match self.about.ends.form {
                Form::Sequence => said.outputs.push(line(i, given.width)),
                Form::Tokens => said.outputs.push(line(i, len)),
                Form::TokenRows if self.about.ends.want == Want::Words => {
                    said.outputs.push(joined(&mut positions.map(|at| i * s + at)));
                }
                Form::TokenRows => said.outputs.push(joined(&mut (i * s..i * s + len))),
                Form::Positions => {
                    said.outputs.push(joined(&mut (i * p..i * p + item.positions.len())));
                }
                Form::TokenPairs => said.outputs.extend([0, 1].map(|column| {
                    let values = (i * s..i * s + len).map(|row| given.row(row)[column]).collect();
                    Output { values, dims: vec![len] }
                })),
                Form::PairOfTokens => said.outputs.extend([line(i, len), line(b + i, len)]),
            }
            if let Some(output) = said.outputs.last_mut() {
                self.rescale(output);
            }
        }
        Ok(())
    }

    /// Logits for classes, log probabilities for words and the next sentence.
    fn rescale(&self, output: &mut Output) {
        let logs = matches!(self.about.ends.want, Want::Words | Want::NextSentence);
        match self.about.ends.scale {
            Scale::Probabilities if logs || self.about.ends.want == Want::Classes => {
                output.values.iter_mut().for_each(|value| *value = value.ln());
            }
            Scale::Plain if logs => {
                let width = output.dims.last().copied().unwrap_or(1).max(1);
                output.values.chunks_exact_mut(width).for_each(log_softmax);
            }
            _ => {}
        }
    }
}

/// `x - log(sum(exp(x)))`
fn log_softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|x| f64::from(x - most).exp()).sum();
    let log = sum.ln() as f32;
    row.iter_mut().for_each(|x| *x = *x - most - log);
}

/// What an input is fed with. Places of a batch that no sequence takes are copies of the last one.
fn tensor<T>(input: &Fed, items: &[&Item<T>], Extents { b, s, p }: Extents) -> Result<Tensor> {
    let row = |i: usize| items[i.min(items.len() - 1)];
    let by_token = |value: &dyn Fn(&Features, usize) -> i32| {
        let mut values = vec![0; b * s];
        for (i, line) in values.chunks_exact_mut(s).enumerate() {
            let features = &row(i).features;
            for (j, place) in line.iter_mut().enumerate().take(features.len()) {
                *place = value(features, j);
            }
        }
        (vec![b, s], values)
    };
    let (shape, values) = match &input.food {
        Food::Ids => by_token(&|features, j| features.ids()[j]),
        Food::Mask => by_token(&|_, _| 1),
        Food::Segments => by_token(&|features, j| i32::from(j >= features.first_segment())),
        Food::Places => {
            let count = i32::try_from(s).unwrap_or(i32::MAX);
            (vec![b, s], (0..b).flat_map(|_| 0..count).collect())
        }
        Food::Asked => {
            let asked = |i: usize| {
                let positions = &row(i).positions;
                (0..p).map(|j| positions.get(j).copied().unwrap_or(0))
            };
            (vec![b, p], (0..b).flat_map(asked).collect())
        }
        Food::Zeros(dims) => {
            let mut open = [b, s, 1].into_iter();
            let extent = |dim: &Option<usize>| dim.unwrap_or_else(|| open.next().unwrap_or(1));
            let shape: Vec<usize> = dims.iter().map(extent).collect();
            let count = shape.iter().product();
            (shape, vec![0; count])
        }
    };
    Ok(match input.dtype {
        DType::I32 => Tensor::from_vec(shape, values)?,
        DType::I64 => Tensor::from_vec(shape, values.into_iter().map(i64::from).collect())?,
        other => Tensor::from_vec(shape, values)?.cast(other)?,
    })
}
