//! The graph with bytes in it.

use std::collections::HashMap;

use frazil_tensor::Tensor;

use super::{
    AttentionGrid, Grids, LinearGrid, Site, SiteKind, chain, f32_constant, scale_of, short, sites,
};
use crate::op::{Binary, Op, Scaled, Steps};
use crate::pass::Report;
use crate::{Error, Graph, Node, NodeId, Result, Value};

/// The softmax's bytes: its numbers lie between 0 and 1.
const WEIGHTS: Steps = Steps::Tensor { scale: 1.0 / 255.0, zero: 0 };

/// Lets the named sites compute in bytes. Names of sites that are not there, scales that are too
/// few or no numbers are refused before anything is changed.
///
/// A weight `NAME` becomes `NAME/bytes`, `NAME/scales` and an [`Op::Scaled`] that keeps the name,
/// or, if others read it too, one under the product's name. What a product reads passes an
/// [`Op::FakeQuantize`], `PRODUCT/input_steps`, which products of one value share where they
/// can.
///
/// The scales of steps are rounded to 16 significant bits: some formats have a range in the place
/// of a scale, and the scale that follows from it is then the same everywhere.
pub fn quantize(graph: &mut Graph, grids: &Grids) -> Result<Report> {
    let sites = sites(graph)?;
    let by_name: HashMap<&str, &Site> = sites.iter().map(|site| (&*site.name, site)).collect();
    check(graph, &by_name, grids)?;
    let mut rewrite = Rewrite { graph, report: Report::default(), steps: Vec::new() };
    for site in &sites {
        match &site.kind {
            SiteKind::Linear { weight, k, n, transposed, bias, .. } => {
                if let Some(grid) = grids.linears.get(&site.name) {
                    let product = Product {
                        id: rewrite.id(&site.name)?,
                        weight: *weight,
                        k: *k,
                        n: *n,
                        transposed: *transposed,
                        bias: *bias,
                    };
                    rewrite.linear(&product, grid)?;
                }
            }
            SiteKind::Attention { context } => {
                if let Some(grid) = grids.attentions.get(&site.name) {
                    let (scores, context) = (rewrite.id(&site.name)?, rewrite.id(context)?);
                    rewrite.attention(scores, context, grid)?;
                }
            }
            SiteKind::Table { table, .. } => {
                if grids.tables.contains(&site.name) {
                    let lookup = rewrite.id(&site.name)?;
                    rewrite.table(lookup, *table)?;
                }
            }
        }
    }
    let report = rewrite.report;
    // Weights that nobody reads any more.
    if !graph.outputs.is_empty() {
        graph.prune();
    }
    debug_assert!(graph.check().is_ok(), "{:?}", graph.check());
    Ok(report)
}

/// An error unless every name is that of a site, with as many numbers as it needs.
fn check(graph: &Graph, sites: &HashMap<&str, &Site>, grids: &Grids) -> Result<()> {
    let no_site = |name: &str, wanted: &'static str| Error::NoSite {
        name: name.to_owned(),
        wanted,
        known: graph.find(name).is_some(),
    };
    let wrong = |name: &str, reason: String| Error::Grid { name: name.to_owned(), reason };
    let is_scale = |scale: &f32| scale.is_normal() && *scale > 0.0;
    for (name, grid) in &grids.linears {
        let Some(SiteKind::Linear { weight, k, n, .. }) = sites.get(&**name).map(|site| &site.kind)
        else {
            return Err(no_site(name, "product of a constant weight"));
        };
        match grid.input {
            Steps::Tensor { scale, .. } if is_scale(&scale) => {}
            Steps::Rows => {}
            other => return Err(wrong(name, format!("its input cannot be {other:?}"))),
        }
        if ![1, *n].contains(&grid.scales.len()) {
            let reason = format!("{} scales for {n} columns", grid.scales.len());
            return Err(wrong(name, reason));
        }
        let columns = grid.columns.as_deref().unwrap_or_default();
        if grid.columns.is_some() && columns.len() != *k {
            return Err(wrong(name, format!("{} factors for {k} columns of x", columns.len())));
        }
        if let Some(scale) = grid.scales.iter().chain(columns).find(|scale| !is_scale(scale)) {
            return Err(wrong(name, format!("a scale of {scale}")));
        }
        if let Some(correction) = &grid.correction {
            if correction.len() != *n {
                let reason = format!("{} corrections for {n} columns", correction.len());
                return Err(wrong(name, reason));
            }
            if let Some(one) = correction.iter().find(|one| !one.is_finite()) {
                return Err(wrong(name, format!("a correction of {one}")));
            }
        }
        let weight = f32_constant(graph, *weight).and_then(|weight| weight.values::<f32>().ok());
        if weight.is_none_or(|weight| weight.iter().any(|x| !x.is_finite())) {
            return Err(wrong(name, "its weight is not all numbers".to_owned()));
        }
    }
    for (name, grid) in &grids.attentions {
        if !matches!(sites.get(&**name).map(|s| &s.kind), Some(SiteKind::Attention { .. })) {
            return Err(no_site(name, "attention"));
        }
        let scales = [grid.q.0, grid.k, grid.v];
        if let Some(scale) = scales.iter().find(|scale| !is_scale(scale)) {
            return Err(wrong(name, format!("a scale of {scale}")));
        }
    }
    for name in &grids.tables {
        if !matches!(sites.get(&**name).map(|s| &s.kind), Some(SiteKind::Table { .. })) {
            return Err(no_site(name, "lookup in a constant table"));
        }
    }
    Ok(())
}

/// A product that becomes one of bytes.
struct Product {
    id: NodeId,
    weight: Value,
    k: usize,
    n: usize,
    transposed: bool,
    bias: Option<Value>,
}

struct Rewrite<'a> {
    graph: &'a mut Graph,
    report: Report,
    /// Values on steps: what they are made of, and the factors of its columns.
    steps: Vec<(Value, Option<Vec<f32>>, Steps, Value)>,
}

impl Rewrite<'_> {
    fn id(&self, name: &str) -> Result<NodeId> {
        let lost = || Error::NoSite { name: name.to_owned(), wanted: "node", known: false };
        self.graph.find(name).ok_or_else(lost)
    }

    fn push(&mut self, name: String, op: Op, inputs: Vec<Value>) -> Result<Value> {
        Ok(self.graph.push_fresh(Node::new(name, op, inputs))?.into())
    }

    fn constant(&mut self, name: String, tensor: frazil_tensor::Result<Tensor>) -> Result<Value> {
        let tensor = tensor.map_err(|source| Error::Tensor { name: name.clone(), source })?;
        self.push(name, Op::constant(tensor), vec![])
    }

    /// The same value on steps, after its columns were multiplied.
    fn on_steps(
        &mut self,
        product: NodeId,
        part: &str,
        x: Value,
        columns: Option<&Vec<f32>>,
        steps: Steps,
    ) -> Result<Value> {
        let steps = match steps {
            Steps::Tensor { scale, zero } => Steps::Tensor { scale: short(scale), zero },
            Steps::Symmetric { scale } => Steps::Symmetric { scale: short(scale) },
            Steps::Rows | Steps::Watched { .. } => steps,
        };
        let known = |(of, by, at, _): &&(Value, Option<Vec<f32>>, Steps, Value)| {
            *of == x && by.as_ref() == columns && *at == steps
        };
        if let Some((.., made)) = self.steps.iter().find(known) {
            return Ok(*made);
        }
        let name = self.graph.node(product).name.clone();
        let scaled = match columns {
            Some(columns) => {
                let factors = Tensor::from_vec([columns.len()], columns.clone());
                let factors = self.constant(format!("{name}/{part}_factors"), factors)?;
                let mul = Op::Binary(Binary::Mul);
                self.push(format!("{name}/{part}_scale"), mul, vec![x, factors])?
            }
            None => x,
        };
        let fake = Op::FakeQuantize(steps);
        let made = self.push(format!("{name}/{part}_steps"), fake, vec![scaled])?;
        self.steps.push((x, columns.cloned(), steps, made));
        Ok(made)
    }

    fn linear(&mut self, product: &Product, grid: &LinearGrid) -> Result<()> {
        let &Product { id, weight, k, n, transposed, .. } = product;
        let x = self.graph.node(id).inputs[0];
        let on_steps = self.on_steps(id, "input", x, grid.columns.as_ref(), grid.input)?;
        self.graph.node_mut(id).inputs[0] = on_steps;
        let rounded = {
            let tensor = f32_constant(self.graph, weight);
            let values = tensor.and_then(|tensor| tensor.values::<f32>().ok());
            let values = values.unwrap_or_default();
            // w: [n, k] or [k, n]
            let width = if transposed { k } else { n };
            let mut rounded = Vec::with_capacity(values.len());
            for (row, values) in values.chunks(width).enumerate() {
                for (column, x) in values.iter().enumerate() {
                    let (place, by) = if transposed { (row, column) } else { (column, row) };
                    let scale = grid.scales[if grid.scales.len() == 1 { 0 } else { place }];
                    let factor = grid.columns.as_ref().map_or(1.0, |columns| columns[by]);
                    rounded.push(signed(x / factor, scale));
                }
            }
            rounded
        };
        let shape = if transposed { [n, k] } else { [k, n] };
        let bytes = Tensor::from_vec(shape, rounded);
        let scales = Tensor::from_vec([grid.scales.len()], grid.scales.clone());
        self.scaled(id, 1, weight, i64::from(!transposed), (bytes, scales))?;
        if let Some(correction) = &grid.correction {
            self.correct(product, correction)?;
        }
        let name = self.graph.node(id).name.clone();
        let text = match grid.input {
            Steps::Rows => format!("{k} x {n} in bytes, each row with a scale of its own"),
            _ => format!("{k} x {n} in bytes"),
        };
        self.report.did("quantize", name, text);
        Ok(())
    }

    /// Puts bytes in the place of a constant that a node reads as its input `place`: under the
    /// constant's name if nobody else reads it.
    fn scaled(
        &mut self,
        reader: NodeId,
        place: usize,
        constant: Value,
        axis: i64,
        (bytes, scales): (frazil_tensor::Result<Tensor>, frazil_tensor::Result<Tensor>),
    ) -> Result<()> {
        let chain = chain(self.graph, self.graph.node(reader).inputs[place], constant);
        let alone = self.only_chain_reads(constant, &chain, reader);
        let base = match alone {
            true => self.graph.value_name(constant),
            false => format!("{}/weight", self.graph.node(reader).name),
        };
        let bytes = self.constant(format!("{base}/bytes"), bytes)?;
        let scales = self.constant(format!("{base}/scales"), scales)?;
        let scaled = Op::Scaled(Scaled { axis });
        if alone {
            let node = self.graph.node_mut(constant.node);
            (node.op, node.inputs) = (scaled, vec![bytes, scales]);
            return Ok(());
        }
        let mut value = self.push(base, scaled, vec![bytes, scales])?;
        // Transpositions on the way there are made again.
        for id in chain.into_iter().rev() {
            let node = self.graph.node(id).clone();
            if matches!(node.op, Op::Transpose) {
                let name = format!("{}/weight/transposed", self.graph.node(reader).name);
                value = self.push(name, node.op, vec![value, node.inputs[1]])?;
            }
        }
        self.graph.node_mut(reader).inputs[place] = value;
        Ok(())
    }

    /// Whether nothing reads a constant but the chain, and nothing the chain but the reader.
    fn only_chain_reads(&self, constant: Value, chain: &[NodeId], reader: NodeId) -> bool {
        let mut read = vec![constant];
        read.extend(chain.iter().map(|&id| Value::from(id)));
        let readers = self.graph.nodes().filter(|(id, node)| {
            *id != reader
                && !chain.contains(id)
                && node.inputs.iter().any(|input| read.contains(input))
        });
        let twice = self.graph.node(reader).inputs.iter().filter(|input| read.contains(input));
        let is_output = self.graph.outputs.iter().any(|port| read.contains(&port.value));
        readers.count() == 0 && twice.count() == 1 && !is_output
    }

    /// Adds to the bias of a product, or gives it one.
    fn correct(&mut self, product: &Product, correction: &[f32]) -> Result<()> {
        let name = self.graph.node(product.id).name.clone();
        let Some(bias) = product.bias else {
            let added = Tensor::from_vec([product.n], correction.to_vec());
            let added = self.constant(format!("{name}/correction"), added)?;
            let sum = self.push(format!("{name}/corrected"), Op::BiasAdd, vec![])?;
            self.graph.replace_uses(product.id.into(), sum);
            self.graph.node_mut(sum.node).inputs = vec![product.id.into(), added];
            return Ok(());
        };
        let values = f32_constant(self.graph, bias).and_then(|bias| bias.values::<f32>().ok());
        let sums = values.unwrap_or_default().iter().zip(correction).map(|(a, b)| a + b).collect();
        let tensor = Tensor::from_vec([product.n], sums);
        // Who adds it: the product itself if it is raised, else what reads the product.
        let raised = matches!(self.graph.node(product.id).op, Op::Linear(_));
        let reads = |(id, node): &(NodeId, &Node)| {
            let sum = node.inputs.contains(&product.id.into());
            if raised { *id == product.id } else { sum }
        };
        let adder = self.graph.nodes().find(reads).map(|(id, _)| id);
        let adder = adder.ok_or_else(|| Error::Grid {
            name: name.clone(),
            reason: "its bias is added nowhere".to_owned(),
        })?;
        let behind = |value: &Value| crate::pattern::source(self.graph, *value) == bias;
        let place = self.graph.node(adder).inputs.iter().position(behind);
        let chain = chain(self.graph, self.graph.node(adder).inputs[place.unwrap_or(1)], bias);
        if self.only_chain_reads(bias, &chain, adder) {
            let tensor = tensor.map_err(|source| Error::Tensor { name, source })?;
            self.graph.node_mut(bias.node).op = Op::constant(tensor);
        } else {
            let own = self.constant(format!("{name}/bias"), tensor)?;
            self.graph.node_mut(adder).inputs[place.unwrap_or(1)] = own;
        }
        Ok(())
    }

    fn attention(&mut self, scores: NodeId, context: NodeId, grid: &AttentionGrid) -> Result<()> {
        let (scale, zero) = grid.q;
        let operands = [
            (scores, 0, "query", Steps::Tensor { scale, zero }),
            (scores, 1, "key", Steps::Symmetric { scale: grid.k }),
            (context, 0, "weight", WEIGHTS),
            (context, 1, "value", Steps::Symmetric { scale: grid.v }),
        ];
        for (product, place, part, steps) in operands {
            let x = self.graph.node(product).inputs[place];
            let on_steps = self.on_steps(product, part, x, None, steps)?;
            self.graph.node_mut(product).inputs[place] = on_steps;
        }
        let name = self.graph.node(scores).name.clone();
        self.report.did("quantize", name, "attention in bytes");
        Ok(())
    }

    fn table(&mut self, lookup: NodeId, table: Value) -> Result<()> {
        let Some(tensor) = f32_constant(self.graph, table).cloned() else { return Ok(()) };
        let name = self.graph.node(lookup).name.clone();
        let values = tensor.values::<f32>();
        let values =
            values.map_err(|source| Error::Tensor { name: name.clone(), source })?.into_owned();
        let &[rows, width] = &**tensor.shape() else { return Ok(()) };
        let mut bytes = Vec::with_capacity(values.len());
        let mut scales = Vec::with_capacity(rows);
        for row in values.chunks(width.max(1)) {
            let scale = scale_of(row.iter().fold(0f32, |most, x| most.max(x.abs())));
            bytes.extend(row.iter().map(|&x| signed(x, scale)));
            scales.push(scale);
        }
        let tensors = (Tensor::from_vec([rows, width], bytes), Tensor::from_vec([rows], scales));
        let place = usize::from(matches!(self.graph.node(lookup).op, Op::MatMul(_)));
        self.scaled(lookup, place, table, 0, tensors)?;
        self.report.did("quantize", name, format!("{rows} rows of {width} in bytes"));
        Ok(())
    }
}

/// The nearest step of signed bytes, halves to even.
fn signed(x: f32, scale: f32) -> i8 {
    (x / scale).round_ties_even().clamp(-127.0, 127.0) as i8
}
