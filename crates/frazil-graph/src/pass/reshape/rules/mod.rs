//! The rules: what each operation makes of shapes, accepting only what holds for every size.
//!
//! They are stricter than [`crate::infer`], which lets a symbol meet a number. Small integer tensors
//! (shape arithmetic) are computed by `infer`'s own rules. `compute` has the operations that
//! calculate, `shape` those that move elements.

mod compute;
mod shape;

use super::axis::{Atom, Axis, axis_of, extent, has};
use super::open::{Answer, Origin, Slot};
use super::pattern::Pattern;
use super::prove::{Edit, Prover, Ramp, Seen, StrideAt};
use crate::infer::apply;
use crate::op::{Foreign, Op};
use crate::{Dim, Fact, Value};

type Ruled = Result<Vec<Seen>, String>;

/// Why packed rows have no rule.
const PACKED: &str = "its rows are packed: reshape the graph before packing";

impl Prover<'_> {
    /// What is known of the outputs of the node at hand.
    pub(super) fn rule(&mut self) -> Ruled {
        let graph = self.graph;
        let node = graph.node(self.node);
        match &node.op {
            Op::Foreign(op) => return self.foreign(op),
            Op::Const(_) | Op::Variable(_) | Op::Input(_) | Op::InputWithDefault(_) => {
                return self.source();
            }
            _ => {}
        }
        let facts: Vec<Fact> = node.inputs.iter().map(|&value| self.listed(value)).collect();
        let inferred = apply(node, facts)?;
        let sized = node.inputs.iter().any(|&value| self.is_sized(value));
        let shapes = if self.is_arithmetic(&inferred) {
            inferred.iter().map(|fact| fact.dims.as_ref().map(|d| literal(d))).collect()
        } else {
            self.axes()?.into_iter().map(Some).collect::<Vec<_>>()
        };
        let ramp = self.ramp()?;
        let mut seen = Vec::with_capacity(shapes.len());
        for (axes, fact) in shapes.into_iter().zip(inferred) {
            // A list that grows with the size has no fixed elements.
            let fixed =
                axes.as_ref().is_some_and(|axes| axes.iter().all(|axis| self.is_fixed(axis)));
            let elements = fact.elements.filter(|_| fixed);
            let sized = sized && elements.is_none();
            seen.push(Seen { dtype: fact.dtype, axes, elements, ramp: ramp.clone(), sized });
        }
        Ok(seen)
    }

    /// Whether the node at hand calculates with sizes: all elements are known, and so are those
    /// of what it reads.
    fn is_arithmetic(&self, inferred: &[Fact]) -> bool {
        let node = self.graph.node(self.node);
        let known = inferred.iter().all(|fact| {
            fact.elements.is_some()
                && fact.dims.as_ref().is_some_and(|d| d.iter().all(|d| d.as_known().is_some()))
        });
        let reads = |op: &Op| match op {
            Op::Shape(_) | Op::Size(_) | Op::Rank => true,
            // A range or a fill is as long as its operand says, which is a question.
            Op::Range | Op::Fill | Op::BroadcastTo | Op::Tile => false,
            _ => node.inputs.iter().all(|&value| {
                self.seen[value.node.index()][value.port as usize].elements.is_some()
                    && self
                        .listed(value)
                        .dims
                        .is_some_and(|d| d.iter().all(|d| d.as_known().is_some()))
            }),
        };
        known && reads(&node.op)
    }

    /// The facts of a value that shape arithmetic may read. Where the size was 1, every short list
    /// might be longer; lists that index or scale sizes are what they are.
    fn listed(&self, value: Value) -> Fact {
        let mut fact = self.fact(value);
        if let Some(list) = self.graph.op(value).as_const()
            && fact.elements.is_some()
            && self.question.baked == 1
        {
            fact.dims = Some(list.shape().iter().map(|&extent| extent.into()).collect());
        }
        fact
    }

    /// The axes of the outputs.
    fn axes(&mut self) -> Result<Vec<Vec<Axis>>, String> {
        let graph = self.graph;
        let node = graph.node(self.node);
        let inputs = node.inputs.as_slice();
        let one = |axes: Vec<Axis>| Ok(vec![axes]);
        match &node.op {
            Op::ReadVariable(_) | Op::Unary(_) | Op::Cast(_) => one(self.pass(inputs[0])?),
            Op::Gelu(_) | Op::FakeQuantize(_) => one(self.data(inputs[0])?),
            Op::Scaled(op) => one(self.scaled(op.axis)?),
            Op::Binary(_) | Op::Compare(_) | Op::AddN | Op::Select => one(self.elementwise()?),
            Op::BiasAdd => one(self.bias_add()?),
            Op::MatMul(op) => one(self.matmul(*op)?),
            Op::Reduce(op) => one(self.reduce(op.keep_dims)?),
            Op::ArgMax(_) => one(self.reduce(false)?),
            Op::Softmax | Op::LogSoftmax => one(self.over_last()?),
            Op::LayerNorm(_) => one(self.layer_norm()?),
            Op::Linear(op) => one(self.linear(op.transpose_w)?),
            Op::PackRows(_) | Op::UnpackRows => Err(PACKED.to_owned()),
            Op::Training(_) => Err("a training step keeps its sizes".to_owned()),
            Op::Embed if inputs.len() > 5 => Err(PACKED.to_owned()),
            Op::Attention(op) if op.packed => Err(PACKED.to_owned()),
            Op::Embed => one(self.embed()?),
            Op::Attention(_) => one(self.attention()?),
            Op::Shape(_) => {
                let rank = self.seen_axes(inputs[0])?.len();
                one(vec![axis_of(&Dim::from(rank))])
            }
            Op::Size(_) | Op::Rank => one(vec![]),
            Op::Reshape => one(self.reshape()?),
            Op::ExpandDims => one(self.expand_dims()?),
            Op::Squeeze(op) => one(self.squeeze(&op.axes)?),
            Op::Transpose => one(self.transpose()?),
            Op::Concat => one(self.concat()?),
            Op::Pack(op) => one(self.pack(op.axis)?),
            Op::Unpack(op) => self.unpack(*op),
            Op::Split(op) => self.split(op.count),
            Op::SplitV(op) => self.split_v(op.count),
            Op::Slice => one(self.slice()?),
            Op::StridedSlice(op) => one(self.strided_slice(*op)?),
            Op::Gather(op) => one(self.gather(op.batch_dims)?),
            Op::OneHot(op) => one(self.one_hot(op.axis)?),
            Op::Range => one(self.range()?),
            Op::Fill => one(self.extents(0)?),
            Op::Tile => one(self.tile()?),
            Op::BroadcastTo => one(self.broadcast_to()?),
            Op::Pad => one(self.pad()?),
            // Beside the steps, the ends of their range.
            Op::Quantize(_) | Op::Requantize(_) => {
                Ok(vec![self.data(inputs[0])?, Vec::new(), Vec::new()])
            }
            Op::Dequantize => one(self.data(inputs[0])?),
            Op::QuantizedLinear => Ok(vec![self.linear(false)?, Vec::new(), Vec::new()]),
            Op::Input(_)
            | Op::InputWithDefault(_)
            | Op::Const(_)
            | Op::Variable(_)
            | Op::Foreign(_) => Err("has no rule".to_owned()),
        }
    }

    /// What the graph starts from.
    fn source(&mut self) -> Ruled {
        let graph = self.graph;
        let id = self.node;
        let inferred = match &graph.node(id).op {
            Op::InputWithDefault(_) => {
                let default = graph.node(id).inputs[0];
                apply(graph.node(id), vec![self.fact(default)])?
            }
            _ => apply(graph.node(id), vec![])?,
        };
        let Some(fact) = inferred.into_iter().next() else { return Ok(vec![]) };
        let Some(dims) = &fact.dims else {
            return Ok(vec![Seen { dtype: fact.dtype, ..Seen::default() }]);
        };
        let mut axes = Vec::with_capacity(dims.len());
        for (i, dim) in dims.iter().enumerate() {
            axes.push(self.source_axis(i, dim));
        }
        self.source_edits(dims, &axes);
        if let Op::InputWithDefault(_) = &graph.node(id).op {
            let default = self.data(graph.node(id).inputs[0])?;
            for (a, b) in default.iter().zip(&axes) {
                self.agree(a, b, "the value that stands in for the input must have its shape")?;
            }
        }
        let ramp = match self.patterns.get(&id) {
            Some(Pattern::Progression { axis, start: 0, step }) => Some(Ramp {
                count: axes[*axis].clone(),
                stride: Dim::known(*step),
                at: StrideAt::Const(id),
                added: false,
            }),
            _ => None,
        };
        Ok(vec![Seen {
            dtype: fact.dtype,
            axes: Some(axes),
            elements: fact.elements,
            ramp,
            sized: false,
        }])
    }

    fn source_axis(&mut self, axis: usize, dim: &Dim) -> Axis {
        let here = (self.node, axis);
        let ask = |slot| Origin { node: here.0, slot };
        if self.question.certain.contains(&here) {
            return vec![Atom::Symbol(self.question.symbol.clone())];
        }
        if self.question.possible.contains(&here) {
            return vec![Atom::Symbol(self.ask(ask(Slot::Input(axis))))];
        }
        let whole = dim.is(self.question.baked);
        match (&self.graph.node(self.node).op, self.patterns.get(&self.node)) {
            (Op::Const(_), Some(Pattern::Uniform)) => self.open_axis(dim, ask(Slot::Axis(axis))),
            (Op::Const(_), Some(pattern)) if whole && pattern.extends(axis, self.stacked) => {
                vec![Atom::Symbol(self.ask(ask(Slot::Axis(axis))))]
            }
            (Op::Const(_) | Op::Variable(_), _) if whole && self.prefixes => {
                vec![Atom::Symbol(self.ask(ask(Slot::Weight(axis))))]
            }
            _ => axis_of(dim),
        }
    }

    /// Notes what the answers change at a source.
    fn source_edits(&mut self, dims: &[Dim], axes: &[Axis]) {
        let node = self.node;
        let now: Option<Vec<Dim>> =
            axes.iter().map(|axis| extent(&self.ledger.resolve(axis))).collect();
        let Some(now) = now.filter(|now| now.as_slice() != dims) else { return };
        let prefix = now.iter().enumerate().any(|(axis, dim)| {
            let origin = Origin { node, slot: Slot::Weight(axis) };
            *dim != dims[axis] && self.ledger.because(origin).is_some()
        });
        let edit = match &self.graph.node(node).op {
            Op::Input(_) | Op::InputWithDefault(_) => Edit::Input { node, dims: now },
            Op::Const(_) if !prefix => Edit::Const { node, dims: now, step: None },
            _ => {
                let sizes = now
                    .into_iter()
                    .zip(dims)
                    .map(|(now, before)| if now == *before { Dim::known(-1) } else { now });
                Edit::Prefix { node, sizes: sizes.collect() }
            }
        };
        self.edits.push(edit);
    }

    /// Operations of other systems whose shapes are plain; the others are not understood.
    fn foreign(&mut self, op: &Foreign) -> Ruled {
        let graph = self.graph;
        let inputs = graph.node(self.node).inputs.as_slice();
        let outputs = |axes: Vec<Axis>| -> Vec<Seen> {
            let one = |(i, declared): (usize, &crate::op::Declared)| Seen {
                dtype: declared.dtype,
                // The first is the tensor, the others are the ends of its range.
                axes: Some(if i == 0 { axes.clone() } else { vec![] }),
                ..Seen::default()
            };
            op.outputs.iter().enumerate().map(one).collect()
        };
        match op.op.as_str() {
            "QuantizeV2" | "Dequantize" | "Requantize" | "RequantizePerChannel" => {
                Ok(outputs(self.data(inputs[0])?))
            }
            "QuantizedMatMulWithBias"
            | "QuantizedMatMulWithBiasAndRelu"
            | "QuantizedMatMulWithBiasAndRequantize"
            | "QuantizedMatMulWithBiasAndReluAndRequantize" => {
                let flag =
                    |name: &str| matches!(op.attrs.get(name), Some(crate::op::Attr::Bool(true)));
                let kind = crate::op::MatMul {
                    transpose_a: flag("transpose_a"),
                    transpose_b: flag("transpose_b"),
                };
                Ok(outputs(self.matmul(kind)?))
            }
            _ => {
                let mut fixed = true;
                for &value in inputs {
                    let seen = &self.seen[value.node.index()][value.port as usize];
                    fixed &= !seen.sized
                        && seen.axes.as_ref().is_some_and(|a| a.iter().all(|a| self.is_fixed(a)));
                }
                if inputs.is_empty() || !fixed {
                    return Err(format!(
                        "what `{}` makes of {} is not known",
                        op.op, self.question.symbol
                    ));
                }
                Ok(op
                    .outputs
                    .iter()
                    .map(|declared| Seen {
                        dtype: declared.dtype,
                        axes: declared.dims.as_ref().map(|dims| literal(dims)),
                        ..Seen::default()
                    })
                    .collect())
            }
        }
    }

    // What rules are written in.

    /// The axes of a value, which must be known.
    pub(super) fn seen_axes(&self, value: Value) -> Result<Vec<Axis>, String> {
        let seen = &self.seen[value.node.index()][value.port as usize];
        match &seen.axes {
            Some(axes) => Ok(axes.iter().map(|axis| self.ledger.resolve(axis)).collect()),
            None => Err(format!("the shape of `{}` is not known", self.graph.value_name(value))),
        }
    }

    /// The axes of a value that is calculated with.
    pub(super) fn data(&mut self, value: Value) -> Result<Vec<Axis>, String> {
        let axes = self.pass(value)?;
        let seen = &self.seen[value.node.index()][value.port as usize];
        if let Some(ramp) = seen.ramp.as_ref().filter(|_| self.stacked)
            && has(&self.ledger.resolve(&ramp.count), &self.question.symbol)
        {
            return Err(compute::NUMBERED.to_owned());
        }
        Ok(axes)
    }

    /// The axes of a value that is handed on or moved.
    pub(super) fn pass(&mut self, value: Value) -> Result<Vec<Axis>, String> {
        let axes = self.seen_axes(value)?;
        for axis in &axes {
            self.ledger.mark_used(axis);
        }
        if self.stacked && self.is_sized(value) {
            return Err("the number of examples enters the result".to_owned());
        }
        Ok(axes)
    }

    /// Whether the number that the size is went into a value.
    fn is_sized(&self, value: Value) -> bool {
        let seen = &self.seen[value.node.index()][value.port as usize];
        let named =
            |dim: &Dim| self.ledger.resolve_dim(dim).symbols().contains(&self.question.symbol);
        seen.sized || seen.elements.as_ref().is_some_and(|list| list.iter().any(named))
    }

    /// Whether an axis has neither the size nor a question in it.
    pub(super) fn is_fixed(&self, axis: &[Atom]) -> bool {
        let axis = self.ledger.resolve(axis);
        !has(&axis, &self.question.symbol) && self.ledger.opens_in(&axis).is_empty()
    }

    /// Whether the size is in an axis.
    pub(super) fn varies(&self, axis: &[Atom]) -> bool {
        has(&self.ledger.resolve(axis), &self.question.symbol)
    }

    /// The entries of an operand, which must be known.
    pub(super) fn list(&self, input: usize) -> Result<Vec<Dim>, String> {
        let value = self.graph.node(self.node).inputs[input];
        let name = || self.graph.value_name(value);
        self.fact(value).elements.ok_or_else(|| format!("`{}` is not known before a run", name()))
    }

    /// The entries of an operand that must be numbers.
    pub(super) fn numbers(&self, input: usize) -> Result<Vec<i64>, String> {
        let value = self.graph.node(self.node).inputs[input];
        let list = self.list(input)?;
        let known: Option<Vec<i64>> = list.iter().map(Dim::as_known).collect();
        known.ok_or_else(|| format!("`{}` is not constant", self.graph.value_name(value)))
    }

    /// An operand that is one number.
    pub(super) fn number(&self, input: usize) -> Result<i64, String> {
        match self.numbers(input)?.as_slice() {
            [one] => Ok(*one),
            many => Err(format!("one number expected, there are {}", many.len())),
        }
    }

    /// Notes what an operand has to be.
    pub(super) fn set_operand(&mut self, input: usize, elements: Vec<Dim>) -> Result<(), String> {
        if self.list(input)? != elements {
            self.edits.push(Edit::Operand { node: self.node, input, elements });
        }
        Ok(())
    }

    /// The extents that an operand lists, each of them perhaps the size.
    pub(super) fn extents(&mut self, input: usize) -> Result<Vec<Axis>, String> {
        let list = self.list(input)?;
        let mut axes = Vec::with_capacity(list.len());
        for (entry, dim) in list.iter().enumerate() {
            let origin = Origin { node: self.node, slot: Slot::Operand(input, entry) };
            axes.push(self.open_axis(dim, origin));
        }
        let now: Option<Vec<Dim>> =
            axes.iter().map(|axis| extent(&self.ledger.resolve(axis))).collect();
        let now = now.ok_or("an extent is beyond all bounds")?;
        self.set_operand(input, now)?;
        Ok(axes)
    }

    /// The factors of a number that may be, or hold, the size.
    pub(super) fn open_axis(&mut self, dim: &Dim, origin: Origin) -> Axis {
        let dim = self.ledger.resolve_dim(dim);
        let plain = axis_of(&dim);
        if !self.is_fixed(&plain) {
            return plain;
        }
        let Some((factor, symbols)) = dim.as_product().filter(|(factor, _)| *factor > 0) else {
            return plain;
        };
        if factor % self.question.baked != 0 {
            return plain;
        }
        let open = Atom::Symbol(self.ask(origin));
        let rest = Atom::Size(factor / self.question.baked);
        let batch = crate::Symbol::batch();
        let named = |wanted: bool| {
            let list = symbols.iter().filter(|symbol| (**symbol == batch) == wanted);
            list.cloned().map(Atom::Symbol).collect::<Vec<_>>()
        };
        // Rows are laid out example by example: `batch·rest`, and `batch·seq` for flattened rows.
        let axis = if self.stacked {
            [vec![open, rest], named(false)].concat()
        } else {
            [named(true), vec![rest, open], named(false)].concat()
        };
        self.ledger.resolve(&axis)
    }

    /// The symbol of a question, which counts as what the size was.
    fn ask(&mut self, origin: Origin) -> crate::Symbol {
        let symbol = self.ledger.ask(origin);
        self.witness.set(symbol.clone(), self.question.baked);
        symbol
    }

    /// Two axes that must be one.
    pub(super) fn agree(&mut self, a: &[Atom], b: &[Atom], why: &str) -> Result<Axis, String> {
        let because = self.because(why);
        match self.ledger.unify(a, b, &because) {
            Some(axis) => Ok(axis),
            None => {
                let pair = self.show(&[a.to_vec(), b.to_vec()]);
                Err(format!("{why}, but the extents are {pair}"))
            }
        }
    }

    pub(super) fn because(&self, why: &str) -> String {
        format!("`{}`: {why}", self.graph.node(self.node).name)
    }

    /// An axis over which the operation sums or normalises: examples must not be in it, and a
    /// weight that is summed over must be whole.
    pub(super) fn contract(&mut self, axis: &[Atom]) -> Result<(), String> {
        let axis = self.ledger.resolve(axis);
        if self.stacked && self.varies(&axis) {
            return Err("examples of one batch would be mixed".to_owned());
        }
        let opens =
            if self.stacked { self.ledger.opens_in(&axis) } else { self.ledger.of_weight(&axis) };
        let because = self.because("summed over");
        for open in opens {
            self.ledger.decide(open, Answer::Literal, &because);
        }
        Ok(())
    }
}

/// Axes of extents that are what they are.
pub(super) fn literal(dims: &[Dim]) -> Vec<Axis> {
    dims.iter().map(axis_of).collect()
}

/// An axis that may count from the end, as an index.
pub(super) fn index(axis: i64, rank: usize) -> Result<usize, String> {
    let at = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(at)
        .ok()
        .filter(|at| *at < rank)
        .ok_or_else(|| format!("axis {axis} is outside of {rank} axes"))
}
