//! The graph of a BERT from its configuration alone, under the names that google-research/bert
//! gives its nodes: what a checkpoint without a `.meta` lacks.
//!
//! It is the original's inference graph, operation for operation, so that a cut by a well-known
//! name (`bert/pooler/dense/Tanh`, `loss/BiasAdd`, `unstack`) works as on a graph that TensorFlow
//! wrote. Left out: dropout, losses, the assertion on the length (the position table's slice
//! refuses what is too long), and shape arithmetic whose result nobody reads. Batch and length
//! are dynamic unless they are given.

mod scope;

use frazil_graph::op::{
    Binary, Gather, GeluForm, Input, OneHot, Squeeze, StridedSlice, Unary, Unpack,
};
use frazil_graph::{Dim, Graph, Op, Port, Symbol, Value};
use frazil_tensor::DType;

use crate::config::{Activation, Formulas};
use crate::{BertConfig, Error, Head, Result};
use scope::{Builder, Extent, Side};

/// What the configuration leaves open.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Number of examples; any if not given.
    pub batch: Option<usize>,
    /// Number of positions; any if not given.
    pub seq: Option<usize>,
    /// Classes of the classifier.
    pub labels: usize,
    /// What the configuration cannot say.
    pub formulas: Formulas,
    /// Whether there is a pooler. Without it the encoder gives its rows alone.
    pub pooler: bool,
    /// Whether the pooler is there for heads that do not need it, too, as in the original's graphs: its
    /// output is the last.
    pub whole: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            batch: None,
            seq: None,
            labels: 2,
            formulas: Formulas::default(),
            pooler: true,
            whole: false,
        }
    }
}

/// The graph, with a variable for every weight.
///
/// Inputs `input_ids`, `input_mask`, `segment_ids`, and `masked_lm_positions` for the heads
/// that predict words. Outputs by head: `sequence_output` and `pooled_output`;
/// `masked_lm_log_probs`; `next_sentence_log_probs`; `logits` and `probabilities`; `start_logits`
/// and `end_logits`.
pub fn build(config: &BertConfig, head: Head, options: &Options) -> Result<Graph> {
    config.check()?;
    let positions = config.max_position_embeddings;
    if let Some(seq) = options.seq.filter(|seq| *seq > positions) {
        return Err(Error::TooLong { seq, positions });
    }
    if options.batch == Some(0) || options.seq == Some(0) {
        return Err(Error::EmptyBatch);
    }
    let pooled = options.pooler || matches!(head, Head::Pretraining | Head::Nsp | Head::Classifier);
    let mut model = Model { b: Builder::new(), config, options };
    let ids = model.input("input_ids", Symbol::seq())?;
    let mask = model.input("input_mask", Symbol::seq())?;
    let segments = model.input("segment_ids", Symbol::seq())?;
    let embedded = model.embeddings(ids, segments)?;
    let layers = model.encoder(ids, mask, embedded)?;
    let sequence = *layers.last().ok_or_else(|| Error::NotBert("it has no layers".into()))?;
    let mut outputs: Vec<(&str, Value)> = Vec::new();
    let pooler = if pooled { Some(model.pooler(sequence)?) } else { None };
    let needs_words = matches!(head, Head::Pretraining | Head::Mlm);
    match head {
        Head::Encoder => {
            outputs.push(("sequence_output", sequence));
            outputs.extend(pooler.map(|pooler| ("pooled_output", pooler)));
        }
        Head::Pretraining | Head::Mlm | Head::Nsp => {
            if needs_words {
                outputs.push(("masked_lm_log_probs", model.masked_words(sequence)?));
            }
            if let Some(pooler) = pooler.filter(|_| head != Head::Mlm) {
                outputs.push(("next_sentence_log_probs", model.next_sentence(pooler)?));
            }
        }
        Head::Classifier => {
            let pooler = pooler.expect("a classifier is built with its pooler");
            let logits = model.classifier(pooler)?;
            let probabilities = model.b.node("loss/Softmax", Op::Softmax, &[logits])?;
            outputs.extend([("logits", logits), ("probabilities", probabilities)]);
        }
        Head::Squad => {
            let ends = model.squad(sequence)?;
            let end = Value { port: 1, ..ends };
            outputs.extend([("start_logits", ends), ("end_logits", end)]);
        }
    }
    if options.whole && matches!(head, Head::Squad | Head::Mlm) {
        outputs.extend(pooler.map(|pooler| ("pooled_output", pooler)));
    }
    let mut graph = model.b.graph;
    let port = |(name, value): (&str, Value)| Port { name: name.to_owned(), value };
    graph.outputs = outputs.into_iter().map(port).collect();
    graph.prune();
    graph.check()?;
    Ok(graph)
}

struct Model<'a> {
    b: Builder,
    config: &'a BertConfig,
    options: &'a Options,
}

impl Model<'_> {
    /// `[b, columns]` of `int32`.
    fn input(&mut self, name: &str, columns: Symbol) -> Result<Value> {
        let known = |given: Option<usize>, symbol: Symbol| match given {
            Some(extent) => Dim::from(extent),
            None => Dim::symbol(symbol),
        };
        let seq = self.options.seq.filter(|_| columns == Symbol::seq());
        let dims = vec![known(self.options.batch, Symbol::batch()), known(seq, columns)];
        let op = Op::Input(Input { dtype: DType::I32, dims: Some(dims) });
        let value = self.b.node(name, op, &[])?;
        self.b.graph.inputs.push(Port { name: name.to_owned(), value });
        Ok(value)
    }

    /// Batch and length of `x: [b, s, …]`.
    fn sizes(&mut self, scope: &str, x: Value) -> Result<(Extent, Extent)> {
        let given = [self.options.batch, self.options.seq];
        let extents = self.b.extents(scope, x, &given)?;
        Ok((extents[0], extents[1]))
    }

    /// `ids, segments: [b, s]` to `[b, s, h]`
    fn embeddings(&mut self, ids: Value, segments: Value) -> Result<Value> {
        let scope = "bert/embeddings/";
        let h = Extent::Known(self.config.hidden_size);
        let words = [self.config.vocab_size, self.config.hidden_size];
        let b = &mut self.b;
        let last = b.ints("bert/embeddings/ExpandDims/dim", &[-1])?;
        let expanded = b.node("bert/embeddings/ExpandDims", Op::ExpandDims, &[ids, last])?;
        let table = b.variable("bert/embeddings/word_embeddings", &words)?;
        let flat = b.reshape_to(scope, expanded, &[-1])?;
        let axis = b.int("bert/embeddings/GatherV2/axis", 0)?;
        let gather = Op::Gather(Gather::default());
        let rows = b.node("bert/embeddings/GatherV2", gather, &[table, flat, axis])?;
        let (batch, seq) = self.sizes(scope, expanded)?;
        let words = self.b.reshape(scope, rows, &[batch, seq, h])?;

        let types = [self.config.type_vocab_size, self.config.hidden_size];
        let b = &mut self.b;
        let table = b.variable("bert/embeddings/token_type_embeddings", &types)?;
        let flat = b.reshape_to(scope, segments, &[-1])?;
        let on = b.float("bert/embeddings/one_hot/on_value", 1.0)?;
        let off = b.float("bert/embeddings/one_hot/off_value", 0.0)?;
        let depth = b.scalar("bert/embeddings/one_hot/depth", Extent::Known(types[0]))?;
        let one_hot = Op::OneHot(OneHot { axis: -1 });
        let one_hot = b.node("bert/embeddings/one_hot", one_hot, &[flat, depth, on, off])?;
        let rows = b.matmul("bert/embeddings/MatMul", one_hot, table, false)?;
        let types = b.reshape(scope, rows, &[batch, seq, h])?;
        let sum = b.binary("bert/embeddings/add", Binary::Add, words, types)?;

        let positions = [self.config.max_position_embeddings, self.config.hidden_size];
        let table = b.variable("bert/embeddings/position_embeddings", &positions)?;
        let begin = b.ints("bert/embeddings/Slice/begin", &[0, 0])?;
        let size = match seq {
            Extent::Known(seq) => {
                b.ints("bert/embeddings/Slice/size", &[i32::try_from(seq).unwrap_or(i32::MAX), -1])?
            }
            Extent::Computed(seq) => {
                let rest = b.int("bert/embeddings/Slice/size/1", -1)?;
                let pack = Op::Pack(frazil_graph::op::Pack { axis: 0 });
                b.node("bert/embeddings/Slice/size", pack, &[seq, rest])?
            }
        };
        let rows = b.node("bert/embeddings/Slice", Op::Slice, &[table, begin, size])?;
        let rows = b.reshape(scope, rows, &[Extent::Known(1), seq, h])?;
        let sum = b.binary("bert/embeddings/add", Binary::Add, sum, rows)?;
        self.layer_norm("bert/embeddings/LayerNorm", sum, 2)
    }

    /// The outputs of all layers, `[b, s, h]` each.
    fn encoder(&mut self, ids: Value, mask: Value, embedded: Value) -> Result<Vec<Value>> {
        let scope = "bert/encoder/";
        let (one, h) = (Extent::Known(1), Extent::Known(self.config.hidden_size));
        let (batch, seq) = self.sizes(scope, ids)?;
        // Every position may look at every one that is not padding: [b, s, s].
        let keys = self.b.reshape(scope, mask, &[batch, one, seq])?;
        let keys = self.b.cast("bert/encoder/Cast", keys, DType::F32)?;
        let ones = self.ones(batch, seq)?;
        let mask = self.b.binary("bert/encoder/mul", Binary::Mul, ones, keys)?;
        let (batch, seq) = self.sizes(scope, embedded)?;
        let hidden = i32::try_from(self.config.hidden_size).unwrap_or(i32::MAX);
        let mut rows = self.b.reshape_to(scope, embedded, &[-1, hidden])?;
        let mut layers = Vec::with_capacity(self.config.num_hidden_layers);
        for i in 0..self.config.num_hidden_layers {
            rows = self.layer(&format!("bert/encoder/layer_{i}"), rows, mask, batch, seq)?;
            layers.push(rows);
        }
        layers.into_iter().map(|rows| self.b.reshape(scope, rows, &[batch, seq, h])).collect()
    }

    /// `[b, s, 1]`, all 1.
    fn ones(&mut self, batch: Extent, seq: Extent) -> Result<Value> {
        let name = "bert/encoder/ones";
        if let (Extent::Known(batch), Extent::Known(seq)) = (batch, seq) {
            let count = batch.checked_mul(seq).ok_or(Error::EmptyBatch)?;
            return self.b.constant(name, &[batch, seq, 1], vec![1f32; count]);
        }
        let dims = self.b.list(&format!("{name}/packed"), &[batch, seq, Extent::Known(1)])?;
        let one = self.b.float(&format!("{name}/Const"), 1.0)?;
        self.b.node(name, Op::Fill, &[dims, one])
    }

    /// `rows: [b*s, h]`, `mask: [b, s, s]`
    fn layer(
        &mut self,
        scope: &str,
        rows: Value,
        mask: Value,
        batch: Extent,
        seq: Extent,
    ) -> Result<Value> {
        let (h, f) = (self.config.hidden_size, self.config.intermediate_size);
        let context = self.attention(&format!("{scope}/attention/self"), rows, mask, batch, seq)?;
        let output = format!("{scope}/attention/output");
        let dense = self.dense(&format!("{output}/dense"), context, h, h)?;
        let sum = self.b.binary(&format!("{output}/add"), Binary::Add, dense, rows)?;
        let attended = self.layer_norm(&format!("{output}/LayerNorm"), sum, 1)?;
        let inner = format!("{scope}/intermediate/dense");
        let wide = self.dense(&inner, attended, h, f)?;
        let wide = self.activation(&inner, wide)?;
        let output = format!("{scope}/output");
        let dense = self.dense(&format!("{output}/dense"), wide, f, h)?;
        let sum = self.b.binary(&format!("{output}/add"), Binary::Add, dense, attended)?;
        self.layer_norm(&format!("{output}/LayerNorm"), sum, 1)
    }

    fn attention(
        &mut self,
        scope: &str,
        rows: Value,
        mask: Value,
        batch: Extent,
        seq: Extent,
    ) -> Result<Value> {
        let h = self.config.hidden_size;
        let (n, d) = (self.config.num_attention_heads, h / self.config.num_attention_heads);
        let query = self.dense(&format!("{scope}/query"), rows, h, h)?;
        let key = self.dense(&format!("{scope}/key"), rows, h, h)?;
        let value = self.dense(&format!("{scope}/value"), rows, h, h)?;
        let inside = format!("{scope}/");
        let b = &mut self.b;
        // [b*s, n*d] to [b, n, s, d]
        let by_head = |b: &mut Builder, rows: Value| {
            let extents = [batch, seq, Extent::Known(n), Extent::Known(d)];
            let split = b.reshape(&inside, rows, &extents)?;
            b.transpose(&inside, split, &[0, 2, 1, 3])
        };
        let query = by_head(b, query)?;
        let key = by_head(b, key)?;
        let scores = b.matmul(&format!("{scope}/MatMul"), query, key, true)?;
        let scale = 1.0 / (d as f64).sqrt();
        let mul = format!("{scope}/Mul");
        let scores = b.with_number(&mul, Binary::Mul, Side::Right, scores, scale as f32)?;
        // Masked keys get -10000: [b, 1, s, s]
        let axis = b.ints(&format!("{scope}/ExpandDims/dim"), &[1])?;
        let mask = b.node(&format!("{scope}/ExpandDims"), Op::ExpandDims, &[mask, axis])?;
        let away = b.with_number(&format!("{scope}/sub"), Binary::Sub, Side::Left, mask, 1.0)?;
        let mul = format!("{scope}/mul");
        let adder = b.with_number(&mul, Binary::Mul, Side::Right, away, -10000.0)?;
        let scores = b.binary(&format!("{scope}/add"), Binary::Add, scores, adder)?;
        let probabilities = b.node(&format!("{scope}/Softmax"), Op::Softmax, &[scores])?;
        let value = by_head(b, value)?;
        let context = b.matmul(&format!("{scope}/MatMul"), probabilities, value, false)?;
        let context = b.transpose(&inside, context, &[0, 2, 1, 3])?;
        let rows = b.times(&inside, batch, seq)?;
        b.reshape(&inside, context, &[rows, Extent::Known(h)])
    }

    /// `x: [.., k]` to `[.., n]`
    fn dense(&mut self, scope: &str, x: Value, k: usize, n: usize) -> Result<Value> {
        let kernel = self.b.variable(&format!("{scope}/kernel"), &[k, n])?;
        let bias = self.b.variable(&format!("{scope}/bias"), &[n])?;
        let product = self.b.matmul(&format!("{scope}/MatMul"), x, kernel, false)?;
        self.b.node(&format!("{scope}/BiasAdd"), Op::BiasAdd, &[product, bias])
    }

    fn activation(&mut self, scope: &str, x: Value) -> Result<Value> {
        match self.config.hidden_act {
            Activation::Gelu => self.gelu(scope, x),
            Activation::Relu => self.b.unary(&format!("{scope}/Relu"), Unary::Relu, x),
            Activation::Tanh => self.b.unary(&format!("{scope}/Tanh"), Unary::Tanh, x),
            Activation::Linear => Ok(x),
        }
    }

    fn gelu(&mut self, scope: &str, x: Value) -> Result<Value> {
        let b = &mut self.b;
        let (mul, add) = (format!("{scope}/mul"), format!("{scope}/add"));
        let bell = match self.options.formulas.gelu {
            GeluForm::Tanh => {
                let pow = format!("{scope}/Pow");
                let cube = b.with_number(&pow, Binary::Pow, Side::Right, x, 3.0)?;
                let cube = b.with_number(&mul, Binary::Mul, Side::Left, cube, 0.044715)?;
                let sum = b.binary(&add, Binary::Add, x, cube)?;
                let factor = (2.0 / std::f64::consts::PI).sqrt() as f32;
                let inner = b.with_number(&mul, Binary::Mul, Side::Left, sum, factor)?;
                b.unary(&format!("{scope}/Tanh"), Unary::Tanh, inner)?
            }
            GeluForm::Erf => {
                let div = format!("{scope}/truediv");
                let root = std::f32::consts::SQRT_2;
                let inner = b.with_number(&div, Binary::Div, Side::Right, x, root)?;
                b.unary(&format!("{scope}/Erf"), Unary::Erf, inner)?
            }
        };
        let sum = b.with_number(&add, Binary::Add, Side::Left, bell, 1.0)?;
        let half = b.with_number(&mul, Binary::Mul, Side::Left, sum, 0.5)?;
        b.binary(&mul, Binary::Mul, x, half)
    }

    /// Over the last axis, number `axis`.
    fn layer_norm(&mut self, scope: &str, x: Value, axis: i32) -> Result<Value> {
        let h = [self.config.hidden_size];
        let b = &mut self.b;
        let beta = b.variable(&format!("{scope}/beta"), &h)?;
        let gamma = b.variable(&format!("{scope}/gamma"), &h)?;
        let mean = b.mean(&format!("{scope}/moments/mean"), x, axis)?;
        let still = format!("{scope}/moments/StopGradient");
        let still = b.unary(&still, Unary::StopGradient, mean)?;
        let square = format!("{scope}/moments/SquaredDifference");
        let square = b.binary(&square, Binary::SquaredDifference, x, still)?;
        let variance = b.mean(&format!("{scope}/moments/variance"), square, axis)?;
        let norm = format!("{scope}/batchnorm");
        let add = format!("{norm}/add");
        let epsilon = self.options.formulas.epsilon as f32;
        let sum = b.with_number(&add, Binary::Add, Side::Right, variance, epsilon)?;
        let root = b.unary(&format!("{norm}/Rsqrt"), Unary::Rsqrt, sum)?;
        let mul = format!("{norm}/mul");
        let scale = b.binary(&mul, Binary::Mul, root, gamma)?;
        let scaled = b.binary(&mul, Binary::Mul, x, scale)?;
        let moved = b.binary(&mul, Binary::Mul, mean, scale)?;
        let shift = b.binary(&format!("{norm}/sub"), Binary::Sub, beta, moved)?;
        b.binary(&add, Binary::Add, scaled, shift)
    }

    /// `sequence: [b, s, h]` to `[b, h]`: the first position through a dense layer.
    fn pooler(&mut self, sequence: Value) -> Result<Value> {
        let b = &mut self.b;
        let begin = b.ints("bert/pooler/strided_slice/stack", &[0, 0, 0])?;
        let end = b.ints("bert/pooler/strided_slice/stack_1", &[0, 1, 0])?;
        let strides = b.ints("bert/pooler/strided_slice/stack_2", &[1, 1, 1])?;
        let first = StridedSlice { begin_mask: 0b101, end_mask: 0b101, ..Default::default() };
        let inputs = [sequence, begin, end, strides];
        let first = b.node("bert/pooler/strided_slice", Op::StridedSlice(first), &inputs)?;
        let squeeze = Op::Squeeze(Squeeze { axes: vec![1] });
        let first = b.node("bert/pooler/Squeeze", squeeze, &[first])?;
        let h = self.config.hidden_size;
        let dense = self.dense("bert/pooler/dense", first, h, h)?;
        self.b.unary("bert/pooler/dense/Tanh", Unary::Tanh, dense)
    }

    /// `x: [r, h]` times a weight `[n, h]` plus a bias.
    fn project(&mut self, scope: &str, variables: &str, x: Value, n: usize) -> Result<Value> {
        let h = self.config.hidden_size;
        let weights = self.b.variable(&format!("{variables}output_weights"), &[n, h])?;
        let bias = self.b.variable(&format!("{variables}output_bias"), &[n])?;
        let product = self.b.matmul(&format!("{scope}MatMul"), x, weights, true)?;
        self.b.node(&format!("{scope}BiasAdd"), Op::BiasAdd, &[product, bias])
    }

    fn classifier(&mut self, pooled: Value) -> Result<Value> {
        if self.options.labels == 0 {
            return Err(Error::NoLabels);
        }
        self.project("loss/", "", pooled, self.options.labels)
    }

    fn next_sentence(&mut self, pooled: Value) -> Result<Value> {
        let scope = "cls/seq_relationship/";
        let logits = self.project(scope, scope, pooled, 2)?;
        self.b.node("cls/seq_relationship/LogSoftmax", Op::LogSoftmax, &[logits])
    }

    /// `[b, s, h]` to two rows of logits; the value is the first.
    fn squad(&mut self, sequence: Value) -> Result<Value> {
        let h = Extent::Known(self.config.hidden_size);
        let (batch, seq) = self.sizes("", sequence)?;
        let rows = self.b.times("", batch, seq)?;
        let rows = self.b.reshape("", sequence, &[rows, h])?;
        let logits = self.project("", "cls/squad/", rows, 2)?;
        let logits = self.b.reshape("", logits, &[batch, seq, Extent::Known(2)])?;
        let logits = self.b.transpose("", logits, &[2, 0, 1])?;
        self.b.node("unstack", Op::Unpack(Unpack { axis: 0, count: 2 }), &[logits])
    }

    /// Log-probabilities of all words at the asked positions, `[b*p, v]`.
    fn masked_words(&mut self, sequence: Value) -> Result<Value> {
        let positions = self.input("masked_lm_positions", Symbol::new("predictions"))?;
        let h = self.config.hidden_size;
        let (batch, seq) = self.sizes("", sequence)?;
        let b = &mut self.b;
        let start = b.int("range/start", 0)?;
        let limit = b.scalar("range/limit", batch)?;
        let delta = b.int("range/delta", 1)?;
        let range = b.node("range", Op::Range, &[start, limit, delta])?;
        let length = b.scalar("mul/y", seq)?;
        let offsets = b.binary("mul", Binary::Mul, range, length)?;
        let offsets = b.reshape_to("", offsets, &[-1, 1])?;
        let flat = b.binary("add", Binary::Add, positions, offsets)?;
        let flat = b.reshape_to("", flat, &[-1])?;
        let rows = b.times("", batch, seq)?;
        let rows = b.reshape("", sequence, &[rows, Extent::Known(h)])?;
        let axis = b.int("GatherV2/axis", 0)?;
        let picked = b.node("GatherV2", Op::Gather(Gather::default()), &[rows, flat, axis])?;
        let scope = "cls/predictions/transform";
        let dense = self.dense(&format!("{scope}/dense"), picked, h, h)?;
        let dense = self.activation(&format!("{scope}/dense"), dense)?;
        let normed = self.layer_norm(&format!("{scope}/LayerNorm"), dense, 1)?;
        let words = [self.config.vocab_size, h];
        let b = &mut self.b;
        let table = b.variable("bert/embeddings/word_embeddings", &words)?;
        let bias = b.variable("cls/predictions/output_bias", &words[..1])?;
        let logits = b.matmul("cls/predictions/MatMul", normed, table, true)?;
        let logits = b.node("cls/predictions/BiasAdd", Op::BiasAdd, &[logits, bias])?;
        b.node("cls/predictions/LogSoftmax", Op::LogSoftmax, &[logits])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use frazil_tensor::testing::shared;

    use super::*;

    fn small() -> BertConfig {
        BertConfig {
            hidden_size: 64,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            intermediate_size: 256,
            max_position_embeddings: 128,
            type_vocab_size: 2,
            ..BertConfig::new(838)
        }
    }

    /// With a fixed batch and length: TensorFlow's own frozen graph, node by node.
    #[test]
    fn names_are_the_originals() {
        let Some(path) = shared("fixtures/classifier/frozen_from_saved_model.pb") else { return };
        let golden = frazil_tf::graph_def::read(&path).unwrap();
        let golden: BTreeMap<&str, Vec<String>> = golden
            .node
            .iter()
            .filter(|node| !node.name.contains("/assert_less_equal/"))
            .map(|node| {
                let data = node.input.iter().filter(|input| !input.starts_with('^'));
                (node.name.as_str(), data.cloned().collect())
            })
            .collect();
        let options = Options { batch: Some(1), seq: Some(128), ..Options::default() };
        let graph = build(&small(), Head::Classifier, &options).unwrap();
        // The export renamed the probabilities and the inputs.
        let renamed = |name: &str| match name {
            "input_ids" | "input_mask" | "segment_ids" => format!("{name}_1"),
            "loss/Softmax" => "loss/output".to_owned(),
            other => other.to_owned(),
        };
        let mut built = BTreeMap::new();
        for (_, node) in graph.nodes() {
            let inputs = node.inputs.iter().map(|&v| renamed(&graph.value_name(v)));
            built.insert(renamed(&node.name), inputs.collect::<Vec<_>>());
        }
        let golden: BTreeMap<String, Vec<String>> =
            golden.into_iter().map(|(name, inputs)| (name.to_owned(), inputs)).collect();
        for (name, inputs) in &golden {
            assert_eq!(built.get(name), Some(inputs), "{name}");
        }
        assert_eq!(built.len(), golden.len());
    }

    #[test]
    fn every_head_is_dynamic() {
        for (head, outputs) in [
            (Head::Encoder, "float32 [batch, seq, 64]; float32 [batch, 64]"),
            (Head::Pretraining, "float32 [batch*predictions, 838]; float32 [batch, 2]"),
            (Head::Mlm, "float32 [batch*predictions, 838]"),
            (Head::Nsp, "float32 [batch, 2]"),
            (Head::Classifier, "float32 [batch, 3]; float32 [batch, 3]"),
            (Head::Squad, "float32 [batch, seq]; float32 [batch, seq]"),
        ] {
            let options = Options { labels: 3, ..Options::default() };
            let graph = build(&small(), head, &options).unwrap();
            let facts = frazil_graph::infer(&graph).unwrap();
            let found: Vec<String> =
                graph.outputs.iter().map(|port| facts[port.value].to_string()).collect();
            assert_eq!(found.join("; "), outputs, "{head}");
        }
    }

    #[test]
    fn sizes_are_checked() {
        let options = Options { seq: Some(129), ..Options::default() };
        assert!(matches!(
            build(&small(), Head::Encoder, &options),
            Err(Error::TooLong { seq: 129, positions: 128 })
        ));
    }
}
