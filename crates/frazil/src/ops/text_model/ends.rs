//! What in a graph gives the thing that is wanted, and what its inputs are fed with.
//!
//! An output is known by its name, as google-research/bert and transformers give them, else by its
//! shape and by what computes it: a softmax ends a classifier, two rows of the length are a span.
//! Layers are found by [`hidden`].

use frazil_graph::op::Unary;
use frazil_graph::pass;
use frazil_graph::{Dim, Facts, Graph, Op, Port, Value, infer};
use frazil_tensor::DType;

use super::Want;
use crate::ops::hidden;
use crate::ops::role::{InputRole, Role};
use crate::{Error, Result};

/// How an output's numbers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `[b, c]`: a row for each sequence.
    Sequence,
    /// `[b, s]`: a number for each token.
    Tokens,
    /// `[b, s, h]` or `[b*s, h]`: a row for each token.
    TokenRows,
    /// `[b, s, 2]`: two numbers for each token.
    TokenPairs,
    /// `[2, b, s]`
    PairOfTokens,
    /// `[b*p, v]` or `[b, p, v]`: a row for each position that was asked for.
    Positions,
}

/// What the numbers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Anything.
    Plain,
    /// The result of a softmax.
    Probabilities,
    /// Its logarithm.
    LogProbabilities,
}

/// The outputs that give what is wanted.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub ports: Vec<Port>,
    pub form: Form,
    pub scale: Scale,
    pub want: Want,
    pub notes: Vec<String>,
}

/// What an input is fed with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Food {
    Ids,
    Mask,
    Segments,
    /// 0, 1, 2, …
    Places,
    /// The positions that are asked for.
    Asked,
    /// Zeros of these extents; the first open one is the batch, the second the length.
    Zeros(Vec<Option<usize>>),
}

/// An input.
#[derive(Clone, Debug)]
pub(super) struct Fed {
    pub name: String,
    pub dtype: DType,
    pub food: Food,
}

/// How a graph is fed and read.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    pub inputs: Vec<Fed>,
    pub outputs: usize,
    pub form: Form,
    pub scale: Scale,
    pub want: Want,
}

impl Ends {
    /// For a graph that is cut and has the chosen outputs.
    pub fn new(graph: &Graph, chosen: Chosen, roles: Vec<InputRole>) -> Result<Self> {
        let ids = roles.iter().find(|input| input.role == Role::Ids);
        let like_ids = ids.map(|ids| ids.dims.clone());
        let food = |input: &InputRole| match input.role {
            Role::Ids => Food::Ids,
            Role::Mask => Food::Mask,
            Role::Segments => Food::Segments,
            Role::Positions if Some(&input.dims) == like_ids.as_ref() => Food::Places,
            Role::Positions => Food::Asked,
            Role::Other => {
                let known = |dim: &Dim| usize::try_from(dim.as_known()?).ok();
                Food::Zeros(input.dims.iter().flatten().map(known).collect())
            }
        };
        let inputs: Vec<Fed> = roles
            .iter()
            .map(|input| Fed { name: input.name.clone(), dtype: input.dtype, food: food(input) })
            .collect();
        let asked = inputs.iter().any(|input| input.food == Food::Asked);
        let form = match chosen.form {
            // A graph that is not told positions computes all of them.
            Form::Positions if !asked => Form::TokenRows,
            form => form,
        };
        let outputs = graph.outputs.len();
        Ok(Self { inputs, outputs, form, scale: chosen.scale, want: chosen.want })
    }
}

/// The graph's outputs, with what is known of them.
struct Candidates<'a> {
    graph: &'a Graph,
    ports: Vec<Port>,
    facts: Option<Facts>,
    /// Whether no other value can be had.
    fixed: bool,
}

/// Finds what gives the thing that is wanted. `fixed`: among the outputs that the graph has.
pub(super) fn choose(
    graph: &Graph,
    outputs: Result<Vec<Port>>,
    want: &Want,
    fixed: bool,
) -> Result<Chosen> {
    let (ports, error) = match outputs {
        Ok(ports) => (ports, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let found = Candidates { graph, ports, facts: infer(graph).ok(), fixed };
    let chosen = match want {
        Want::Classes => found.classes(),
        Want::Span => found.span(),
        Want::Hidden(layers) => return found.hidden(layers),
        Want::Pooled => found.pooled(),
        Want::Words => found.words(),
        Want::NextSentence => found.next_sentence(),
    };
    let Some((values, form)) = chosen else {
        return Err(error.unwrap_or_else(|| found.refuse(want)));
    };
    let mut notes = Vec::new();
    let mut ports = Vec::with_capacity(values.len());
    for value in values {
        let known = found.ports.iter().find(|port| port.value == value);
        ports.push(known.cloned().unwrap_or_else(|| {
            let name = graph.value_name(value);
            notes.push(format!("what is wanted is read at `{name}`"));
            Port { name, value }
        }));
    }
    let scale = match ports.first().map(|port| graph.op(found.through(port.value))) {
        Some(Op::Softmax) => Scale::Probabilities,
        Some(Op::LogSoftmax) => Scale::LogProbabilities,
        _ => Scale::Plain,
    };
    if *want == Want::Classes && scale == Scale::Probabilities {
        notes.push("the model gives probabilities only: logits are their logarithms".into());
    }
    Ok(Chosen { ports, form, scale, want: want.clone(), notes })
}

impl Candidates<'_> {
    /// The value behind nodes that pass it on.
    fn through(&self, mut value: Value) -> Value {
        while let Op::Unary(Unary::Identity | Unary::StopGradient) = self.graph.op(value) {
            value = self.graph.node(value.node).inputs[0];
        }
        value
    }

    fn dims(&self, value: Value) -> Option<&[Dim]> {
        self.facts.as_ref()?[value].dims.as_deref()
    }

    fn rank(&self, value: Value) -> Option<usize> {
        self.dims(value).map(<[Dim]>::len)
    }

    /// The last extent, if it is a number.
    fn width(&self, value: Value) -> Option<i64> {
        self.dims(value)?.last()?.as_known()
    }

    /// The first output whose name, or whose node's, has one of these parts, and none of those.
    fn named(&self, parts: &[&str], never: &[&str]) -> Option<Value> {
        let has = |port: &Port, part: &str| {
            let node = &self.graph.node(port.value.node).name;
            port.name.to_ascii_lowercase().contains(part)
                || node.to_ascii_lowercase().contains(part)
        };
        let fits =
            |port: &&Port, part: &str| has(port, part) && !never.iter().any(|n| has(port, n));
        let find = |part: &&str| self.ports.iter().find(|port| fits(port, part));
        parts.iter().find_map(find).map(|port| port.value)
    }

    /// The value of a node whose name ends so; among the outputs if these are fixed.
    fn node(&self, end: &str) -> Option<Value> {
        let (name, number) = match end.split_once(':') {
            Some((name, number)) => (name, number.parse().ok()?),
            None => (end, 0),
        };
        let ends = |full: &str| {
            full.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        };
        let mut nodes = self.graph.nodes();
        let (id, node) = nodes.find(|(_, node)| ends(&node.name))?;
        let value = Value { node: id, port: number };
        let there = (number as usize) < node.op.outputs();
        let listed = !self.fixed || self.ports.iter().any(|port| port.value == value);
        (there && listed).then_some(value)
    }

    /// The logits under a softmax, where others than the outputs can be had.
    fn logits(&self, value: Value) -> Value {
        let inner = self.through(value);
        match self.graph.op(inner) {
            Op::Softmax | Op::LogSoftmax if !self.fixed => self.graph.node(inner.node).inputs[0],
            _ => value,
        }
    }

    /// Batch and length of every input that has both; some may be of no use to the outputs.
    fn sizes(&self) -> impl Iterator<Item = (&Dim, &Dim)> {
        self.graph.inputs.iter().filter_map(|port| match self.graph.op(port.value) {
            Op::Input(input) | Op::InputWithDefault(input) => match input.dims.as_deref() {
                Some([batch, seq]) => Some((batch, seq)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Whether two axes may be `[b, ..]`, as far as can be told: not `[b*s, ..]`, not another number.
    fn is_by_sequence(&self, value: Value) -> bool {
        let fits = |b: &Dim, batch: &Dim, seq: &Dim| {
            b == batch || b.as_symbol().is_some() && b != seq && batch.as_known().is_none()
        };
        match self.dims(value) {
            Some([b, _]) if self.sizes().next().is_some() => {
                self.sizes().any(|(batch, seq)| fits(b, batch, seq))
            }
            dims => dims.is_none_or(|dims| dims.len() == 2),
        }
    }

    fn is_tanh(&self, value: Value) -> bool {
        matches!(self.graph.op(self.through(value)), Op::Unary(Unary::Tanh))
    }

    /// `[b, c]`, and not the pooler's.
    fn is_classes(&self, value: Value) -> bool {
        let number = self.width(value).is_some();
        self.is_by_sequence(value) && number && !self.is_tanh(value) && !self.is_span(value)
    }

    fn classes(&self) -> Option<(Vec<Value>, Form)> {
        const NOT: [&str; 7] =
            ["start", "end_", "prediction_", "masked", "seq_relationship", "next_sentence", "pool"];
        let flat = |value: &Value| self.is_by_sequence(*value) && !self.is_span(*value);
        let found = self
            .node("loss/BiasAdd")
            .filter(|value| self.is_classes(*value))
            .or_else(|| self.named(&["logits", "probabilities", "loss/"], &NOT).filter(flat))
            .or_else(|| {
                let mut values = self.ports.iter().map(|port| port.value);
                values.find(|value| self.is_classes(*value))
            })?;
        Some((vec![self.logits(found)], Form::Sequence))
    }

    /// `[b, s]`
    fn is_span(&self, value: Value) -> bool {
        match self.dims(value) {
            Some([_, last]) => self.sizes().any(|(_, seq)| seq == last),
            _ => false,
        }
    }

    fn span(&self) -> Option<(Vec<Value>, Form)> {
        let pair = |start: Option<Value>, end: Option<Value>| Some(vec![start?, end?]);
        let named = pair(self.named(&["start"], &[]), self.named(&["end_", "end"], &["start"]));
        let named = named.filter(|pair| pair[0] != pair[1]);
        let two = named.or_else(|| pair(self.node("unstack:0"), self.node("unstack:1")));
        let two = two.or_else(|| {
            let values = self.ports.iter().map(|port| port.value);
            let rows: Vec<Value> = values.filter(|value| self.is_span(*value)).collect();
            (rows.len() == 2).then_some(rows)
        });
        if let Some(two) = two {
            return Some((two, Form::Tokens));
        }
        self.ports.iter().find_map(|port| {
            let form = match self.dims(port.value)? {
                [_, _, last] if last.is(2) => Form::TokenPairs,
                [first, _, _] if first.is(2) => Form::PairOfTokens,
                _ => return None,
            };
            Some((vec![port.value], form))
        })
    }

    fn pooled(&self) -> Option<(Vec<Value>, Form)> {
        let named = self.named(&["pooler", "pooled"], &["last_hidden", "sequence"]);
        let found = named.or_else(|| self.node("pooler/dense/Tanh")).or_else(|| {
            let pooled = |value: &Value| {
                self.is_tanh(*value) && self.rank(*value) == Some(2) && self.is_by_sequence(*value)
            };
            if self.fixed {
                return self.ports.iter().map(|port| port.value).find(pooled);
            }
            self.sizes().next()?;
            self.graph.ids().map(Value::from).find(pooled)
        })?;
        Some((vec![found], Form::Sequence))
    }

    fn words(&self) -> Option<(Vec<Value>, Form)> {
        /// No vocabulary is smaller, no head of classes wider.
        const FEWEST_WORDS: i64 = 100;
        const NOT: [&str; 3] = ["seq_relationship", "next_sentence", "pool"];
        let named = self.named(&["masked_lm", "prediction", "logits"], &NOT);
        let wide = |value: &Value| self.width(*value).is_none_or(|width| width >= FEWEST_WORDS);
        let found =
            self.node("cls/predictions/LogSoftmax").or(named.filter(wide)).or_else(|| {
                let values = self.ports.iter().map(|port| port.value);
                let words = |value: &Value| {
                    let width = self.width(*value).filter(|width| *width >= FEWEST_WORDS);
                    width.filter(|_| self.rank(*value).is_some_and(|rank| rank >= 2))
                };
                values.filter(|value| words(value).is_some()).max_by_key(words)
            })?;
        Some((vec![found], Form::Positions))
    }

    fn next_sentence(&self) -> Option<(Vec<Value>, Form)> {
        let found = self
            .named(&["next_sentence", "seq_relationship"], &[])
            .or_else(|| self.node("cls/seq_relationship/LogSoftmax"))
            .or_else(|| {
                let mut values = self.ports.iter().map(|port| port.value);
                values.find(|value| self.is_classes(*value) && self.width(*value) == Some(2))
            })?;
        Some((vec![found], Form::Sequence))
    }

    fn hidden(&self, layers: &[i32]) -> Result<Chosen> {
        let want = Want::Hidden(layers.to_vec());
        let mut ports = Vec::with_capacity(layers.len());
        let add = |layer: &i32, value| Port { name: format!("layer {layer}"), value };
        match (self.layers(), layers) {
            (Ok(all), _) => {
                for layer in layers {
                    let name = &all[hidden::layer_of(*layer, all.len())?];
                    ports.push(add(layer, self.graph.find_value(name)?));
                }
            }
            // The last one may be an output of that name.
            (Err(error), [-1]) => {
                let last = self.named(&["sequence_output", "last_hidden"], &["pool"]);
                ports.push(add(&-1, last.ok_or(error)?));
            }
            (Err(error), _) => return Err(error),
        }
        Ok(Chosen { ports, form: Form::TokenRows, scale: Scale::Plain, want, notes: Vec::new() })
    }

    /// The nodes that give the output of every encoder layer.
    fn layers(&self) -> Result<Vec<String>> {
        let mut graph = self.graph.clone();
        if !self.ports.is_empty() {
            pass::cut(&mut graph, &[], &self.ports)?;
        }
        pass::remove_dropout(&mut graph)?;
        hidden::layers(&mut graph)
    }

    fn refuse(&self, want: &Want) -> Error {
        let what = match want {
            Want::Classes => "logits or probabilities of classes",
            Want::Span => "logits of where an answer begins and ends",
            Want::Hidden(_) => "hidden layers",
            Want::Pooled => "pooled first row",
            Want::Words => "predictions of masked words",
            Want::NextSentence => "predictions of the next sentence",
        };
        let show = |port: &Port| match self.dims(port.value) {
            Some(dims) => format!("`{}` {}", port.name, frazil_graph::dim::show(dims)),
            None => format!("`{}`", port.name),
        };
        let list: Vec<String> = self.ports.iter().take(8).map(show).collect();
        Error::Usage {
            what: format!("the model gives no {what}; its outputs are {}", list.join(", ")),
            hint: "name the output with `--output` if it is another node of the graph, or give \
                   another model"
                .into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use frazil_bert::build::{self, build};
    use frazil_bert::{BertConfig, Head};

    use super::*;

    /// A small BERT of which nothing has a name that tells anything.
    fn anonymous(head: Head) -> Graph {
        let config = BertConfig {
            hidden_size: 8,
            num_hidden_layers: 3,
            num_attention_heads: 2,
            intermediate_size: 16,
            max_position_embeddings: 20,
            ..BertConfig::new(200)
        };
        let options = build::Options { labels: 3, ..build::Options::default() };
        let mut graph = build(&config, head, &options).unwrap();
        for id in graph.ids() {
            graph.rename(id, format!("n{}", id.index())).unwrap();
        }
        for (i, port) in graph.outputs.iter_mut().enumerate() {
            port.name = format!("y{i}");
        }
        graph
    }

    fn chosen(graph: &Graph, want: Want, fixed: bool) -> Result<Chosen> {
        choose(graph, Ok(graph.outputs.clone()), &want, fixed)
    }

    fn values(chosen: &Chosen) -> Vec<Value> {
        chosen.ports.iter().map(|port| port.value).collect()
    }

    #[test]
    fn outputs_are_known_by_what_they_are() {
        let cases = [
            (Head::Classifier, Want::Classes, Form::Sequence, vec![0]),
            (Head::Squad, Want::Span, Form::Tokens, vec![0, 1]),
            (Head::Encoder, Want::Pooled, Form::Sequence, vec![1]),
            (Head::Mlm, Want::Words, Form::Positions, vec![0]),
            (Head::Nsp, Want::NextSentence, Form::Sequence, vec![0]),
            (Head::Pretraining, Want::NextSentence, Form::Sequence, vec![1]),
        ];
        for (head, want, form, places) in cases {
            let graph = anonymous(head);
            let expected: Vec<Value> = places.iter().map(|&i| graph.outputs[i].value).collect();
            for fixed in [false, true] {
                let found = chosen(&graph, want.clone(), fixed).unwrap();
                assert_eq!((values(&found), found.form), (expected.clone(), form), "{want:?}");
            }
        }
    }

    #[test]
    fn layers_are_known_by_their_norms() {
        for head in [Head::Encoder, Head::Mlm, Head::Classifier] {
            let graph = anonymous(head);
            let found = chosen(&graph, Want::Hidden(vec![0, -1, 2, -3]), false).unwrap();
            let all = values(&found);
            assert_eq!((all[0], all[1]), (all[3], all[2]), "{head}");
            assert_ne!(all[0], all[1]);
            let error = chosen(&graph, Want::Hidden(vec![-4]), false).unwrap_err().to_string();
            assert_eq!(error, "there is no layer -4: the model has 3 layers");
        }
    }

    #[test]
    fn the_logits_lie_under_the_softmax() {
        let mut graph = anonymous(Head::Classifier);
        let logits = graph.outputs.remove(0).value;
        let found = chosen(&graph, Want::Classes, false).unwrap();
        assert_eq!((values(&found), found.scale), (vec![logits], Scale::Plain));
        let found = chosen(&graph, Want::Classes, true).unwrap();
        assert_eq!(found.scale, Scale::Probabilities);
        assert!(found.notes[0].contains("probabilities only"));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for (head, want) in [
            (Head::Squad, Want::Classes),
            (Head::Encoder, Want::Classes),
            (Head::Mlm, Want::Classes),
            (Head::Classifier, Want::Span),
            (Head::Squad, Want::Words),
            (Head::Squad, Want::NextSentence),
        ] {
            let error = chosen(&anonymous(head), want.clone(), false).unwrap_err().to_string();
            assert!(error.contains("its outputs are `y0` ["), "{want:?}: {error}");
        }
    }
}
