//! The losses of google-research/bert, attached to the graphs that `frazil_bert::build` makes.
//!
//! What a batch needs beside the model's inputs are inputs of the graph, under the names that the
//! original's records have: `label_ids`; `start_positions` and `end_positions`; `masked_lm_ids`,
//! `masked_lm_weights` and `next_sentence_labels`.

use frazil_bert::Head;
use frazil_graph::op::{Binary, Cast, Input, Reduce, ReduceKind, Training};
use frazil_graph::{Dim, Graph, Node, Op, Port, Symbol, Value, infer};
use frazil_runtime::Inputs;
use frazil_tensor::{DType, Element, Shape, Tensor};

use crate::{Error, Result};

/// How losses are computed where there is a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether positions of padding can be the beginning or the end of an answer, as in the original:
    /// then padding has to be computed. Without, they are left out of the softmax.
    pub padding: bool,
    /// Whether what the model gives stays among the outputs, behind the loss.
    pub outputs: bool,
}

/// Adds the loss of a head and gives it; the total has the name that it has in the original's graph
/// (`loss/Mean`, `truediv`, `add_1`). The graph's outputs become the loss, `loss`, and what it is
/// the sum of, if there are several: `masked_lm_loss` and `next_sentence_loss`.
pub fn attach(graph: &mut Graph, head: Head, options: Options) -> Result<Value> {
    let mut b = Losses { graph };
    let mut parts = Vec::new();
    let loss = match head {
        Head::Classifier => {
            let logits = b.output("logits", "classifier")?;
            let labels = b.input("label_ids", DType::I32, vec![Dim::batch()])?;
            let each = b.entropy(logits, labels)?;
            b.mean("loss/Mean", each)?
        }
        Head::Squad => {
            let mut ends = Vec::new();
            for (logits, labels) in
                [("start_logits", "start_positions"), ("end_logits", "end_positions")]
            {
                let mut logits = b.output(logits, "SQuAD")?;
                if !options.padding {
                    logits = b.without_padding(logits)?;
                }
                let labels = b.input(labels, DType::I32, vec![Dim::batch()])?;
                let each = b.entropy(logits, labels)?;
                ends.push(b.mean("loss/end", each)?);
            }
            let sum = b.binary("loss/sum", Binary::Add, ends[0], ends[1])?;
            let two = b.constant("loss/two", [], vec![2f32])?;
            b.binary("truediv", Binary::Div, sum, two)?
        }
        Head::Pretraining | Head::Mlm | Head::Nsp => {
            if head != Head::Nsp {
                parts.push(("masked_lm_loss", b.masked_words()?));
            }
            if head != Head::Mlm {
                parts.push(("next_sentence_loss", b.next_sentence()?));
            }
            match parts[..] {
                [(_, words), (_, next)] => b.binary("add_1", Binary::Add, words, next)?,
                _ => parts[0].1,
            }
        }
        Head::Encoder => return Err(Error::NoLossFor { head: head.to_string() }),
    };
    let port = |(name, value): (&str, Value)| Port { name: name.to_owned(), value };
    let before = if options.outputs { std::mem::take(&mut graph.outputs) } else { Vec::new() };
    let several = parts.into_iter().filter(|(_, value)| *value != loss);
    graph.outputs = [("loss", loss)].into_iter().chain(several).map(port).chain(before).collect();
    graph.prune();
    let at = graph.outputs[0].value;
    graph.check()?;
    Ok(at)
}

/// What a loss of one batch is the mean over.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// How many examples, or the sum of the weights of masked words.
    pub over: f64,
    /// What is added to that.
    pub small: f64,
}

impl Mean {
    /// How much this loss counts in one over several batches, which have `total` in all.
    pub fn share_of(&self, total: f64) -> f64 {
        (self.over + self.small) / (total + self.small)
    }
}

/// What the losses of these names ([`attach`]'s outputs) are means over in a batch. One that is a sum
/// of others has no part of its own in that, and counts its examples.
pub fn means(losses: &[String], batch: &Inputs) -> Result<Vec<Mean>> {
    let examples = batch.get("input_ids").and_then(|ids| ids.shape().first().copied());
    let examples = Mean { over: examples.unwrap_or(0) as f64, small: 0.0 };
    let weights = batch.get("masked_lm_weights");
    let words = weights.map(|weights| weights.to_f64()).transpose()?;
    let words = words.map(|weights| Mean { over: weights.iter().sum(), small: SMALL.into() });
    let is_words = |name: &str| name == "masked_lm_loss" || losses.len() == 1;
    let mean = |name: &String| words.filter(|_| is_words(name)).unwrap_or(examples);
    Ok(losses.iter().map(mean).collect())
}

/// Added to the sum of the weights of masked words.
const SMALL: f32 = 1e-5;

struct Losses<'g> {
    graph: &'g mut Graph,
}

impl Losses<'_> {
    fn push(&mut self, name: &str, op: Op, inputs: Vec<Value>) -> Result<Value> {
        Ok(self.graph.push_fresh(Node::new(name, op, inputs))?.into())
    }

    fn binary(&mut self, name: &str, kind: Binary, x: Value, y: Value) -> Result<Value> {
        self.push(name, Op::Binary(kind), vec![x, y])
    }

    fn constant<T: Element>(
        &mut self,
        name: &str,
        shape: impl Into<Shape>,
        values: Vec<T>,
    ) -> Result<Value> {
        let tensor = Tensor::from_vec(shape, values)
            .map_err(|source| frazil_graph::Error::Tensor { name: name.to_owned(), source })?;
        self.push(name, Op::constant(tensor), vec![])
    }

    /// An output of the model.
    fn output(&self, name: &str, loss: &'static str) -> Result<Value> {
        let port = self.graph.outputs.iter().find(|port| port.name == name);
        let missing = || Error::NoOutput { name: name.to_owned(), loss };
        port.map(|port| port.value).ok_or_else(missing)
    }

    /// The scores of which an output is the logarithm of the softmax.
    fn scores(&self, name: &str, loss: &'static str) -> Result<Value> {
        let value = self.output(name, loss)?;
        let node = self.graph.node(value.node);
        Ok(if node.op == Op::LogSoftmax { node.inputs[0] } else { value })
    }

    /// One more thing to feed.
    fn input(&mut self, name: &str, dtype: DType, dims: Vec<Dim>) -> Result<Value> {
        let dims = self.with_known_batch(dims);
        let value = self.push(name, Op::Input(Input { dtype, dims: Some(dims) }), vec![])?;
        self.graph.inputs.push(Port { name: name.to_owned(), value });
        Ok(value)
    }

    /// The batch of the first input, where that is a number.
    fn with_known_batch(&self, mut dims: Vec<Dim>) -> Vec<Dim> {
        let first = self.graph.inputs.first().map(|port| self.graph.op(port.value));
        if let Some(Op::Input(Input { dims: Some(given), .. })) = first
            && let (Some(batch), Some(to)) = (given.first(), dims.first_mut())
        {
            *to = batch.clone();
        }
        dims
    }

    fn flat(&mut self, x: Value) -> Result<Value> {
        let shape = self.constant("loss/flat/shape", [1], vec![-1i32])?;
        self.push("loss/flat", Op::Reshape, vec![x, shape])
    }

    fn entropy(&mut self, logits: Value, labels: Value) -> Result<Value> {
        self.push("loss/per_example", Op::Training(Training::CrossEntropy), vec![logits, labels])
    }

    fn mean(&mut self, name: &str, x: Value) -> Result<Value> {
        self.reduce(name, ReduceKind::Mean, x)
    }

    /// Over the only axis.
    fn reduce(&mut self, name: &str, kind: ReduceKind, x: Value) -> Result<Value> {
        let axes = self.constant("loss/axes", [1], vec![0i32])?;
        self.push(name, Op::Reduce(Reduce { kind, keep_dims: false }), vec![x, axes])
    }

    /// `logits: [b, s]`, those of padding so low that they have no part in a softmax.
    fn without_padding(&mut self, logits: Value) -> Result<Value> {
        let port = self.graph.inputs.iter().find(|port| port.name == "input_mask");
        let missing = || Error::NoOutput { name: "input_mask".into(), loss: "SQuAD" };
        let mask = port.ok_or_else(missing)?.value;
        let facts = infer(self.graph)?;
        let to = facts[logits].dtype.unwrap_or(DType::F32);
        let mask = self.push("loss/mask", Op::Cast(Cast { to }), vec![mask])?;
        let one = self.constant("loss/mask/one", [], vec![1f32])?;
        let padding = self.binary("loss/padding", Binary::Sub, one, mask)?;
        let low = self.constant("loss/padding/low", [], vec![-10_000f32])?;
        let low = self.binary("loss/low", Binary::Mul, padding, low)?;
        self.binary("loss/masked", Binary::Add, logits, low)
    }

    /// `Σ weight · loss / (Σ weight + 1e-5)` over all predictions.
    fn masked_words(&mut self) -> Result<Value> {
        let logits = self.scores("masked_lm_log_probs", "masked-words")?;
        let dims = || vec![Dim::batch(), Dim::symbol(Symbol::new("predictions"))];
        let labels = self.input("masked_lm_ids", DType::I32, dims())?;
        let labels = self.flat(labels)?;
        let weights = self.input("masked_lm_weights", DType::F32, dims())?;
        let weights = self.flat(weights)?;
        let each = self.entropy(logits, labels)?;
        let weighted = self.binary("loss/weighted", Binary::Mul, weights, each)?;
        let numerator = self.reduce("loss/numerator", ReduceKind::Sum, weighted)?;
        let sum = self.reduce("loss/weights", ReduceKind::Sum, weights)?;
        let small = self.constant("loss/small", [], vec![SMALL])?;
        let denominator = self.binary("loss/denominator", Binary::Add, sum, small)?;
        self.binary("loss/masked_lm", Binary::Div, numerator, denominator)
    }

    fn next_sentence(&mut self) -> Result<Value> {
        let logits = self.scores("next_sentence_log_probs", "next-sentence")?;
        let dims = vec![Dim::batch(), Dim::known(1)];
        let labels = self.input("next_sentence_labels", DType::I32, dims)?;
        let labels = self.flat(labels)?;
        let each = self.entropy(logits, labels)?;
        self.mean("loss/next_sentence", each)
    }
}
