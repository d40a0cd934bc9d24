//! The report as a page.

use std::collections::BTreeMap;

use super::graph::OpCount;
use super::{GraphReport, ModelReport, RecordsReport, Report, TaggedGraph, Why};
use crate::Result;
use crate::page::chart::{Axis, Bars};
use crate::page::{Cell, Page, Section, Table, Tone, number};
use crate::source::Kind;

/// Bars of a chart that shows the largest of many.
const LARGEST: usize = 15;

impl Report {
    /// The report as a page; `why` is what fusing and packing find in the graph, or why that cannot
    /// be told.
    pub fn page(&self, why: Result<Why>) -> Page {
        let title = format!("What is in {}", self.asked.display());
        let lead = format!("{} {}", self.kind.describe(), self.path.display());
        let mut page = Page::new(title).lead(lead).section(self.summary()).section(self.heads());
        for graph in &self.graphs {
            page = page.section(graph.section(self.graphs.len() > 1));
        }
        if let Some(model) = &self.model {
            page = page.section(model.section());
        }
        page = page.section(self.by_size());
        let graph = self.model.is_some() || !self.graphs.is_empty();
        page = match why {
            Ok(why) => page.section(why.section(&self.notes)),
            Err(error) if graph => page.section(
                Section::new("Fused, and not").note(Tone::Plain, format!("Not told here: {error}")),
            ),
            Err(_) => page,
        };
        if let Some(records) = &self.records {
            page = page.section(records.section());
        }
        page
    }

    fn summary(&self) -> Section {
        let mut section = Section::new("In short");
        if let Some(inventory) = &self.bert {
            section = section
                .figure(
                    "parameters",
                    number::thousands(inventory.parameters),
                    format!("in {} variables", inventory.variables),
                )
                .figure("size", number::size(inventory.bytes), "");
            if let Some(read) = &inventory.from_shapes {
                let config = &read.config;
                let heads = match self.heads {
                    Some(heads) => format!("{heads} heads"),
                    None => format!("probably {} heads", config.num_attention_heads),
                };
                section = section
                    .figure("layers", config.num_hidden_layers.to_string(), heads)
                    .figure(
                        "hidden size",
                        config.hidden_size.to_string(),
                        format!("intermediate {}", config.intermediate_size),
                    )
                    .figure(
                        "vocabulary",
                        number::thousands(config.vocab_size as u64),
                        format!(
                            "{} positions, {} token types",
                            config.max_position_embeddings, config.type_vocab_size
                        ),
                    );
            } else if let Some(reason) = &inventory.no_bert {
                section = section.note(Tone::Plain, reason);
            }
        }
        if let Some(checkpoint) = &self.checkpoint {
            let files = if checkpoint.shards == 1 { "data file" } else { "data files" };
            section = section.text(format!(
                "Variables in format V{}, {} {files}.",
                checkpoint.version, checkpoint.shards
            ));
            for missing in &checkpoint.missing_data {
                let text = format!("`{}` is missing: values are not known.", missing.display());
                section = section.note(Tone::Warning, text);
            }
        }
        if let Some(config) = &self.config {
            let path = config.path.display();
            section = match (&config.error, config.differences.as_slice()) {
                (Some(error), _) => {
                    section.note(Tone::Bad, format!("`{path}` cannot be used: {error}"))
                }
                (None, []) => {
                    section.note(Tone::Good, format!("`{path}` agrees with the variables."))
                }
                (None, differences) => differences.iter().fold(section, |section, difference| {
                    section.note(
                        Tone::Bad,
                        format!("`{path}` contradicts the variables: {difference}"),
                    )
                }),
            };
        }
        self.notes.iter().fold(section, |section, note| section.note(Tone::Plain, note))
    }

    fn heads(&self) -> Section {
        let section = Section::new("Heads");
        let Some(inventory) = &self.bert else { return section };
        let mut table = Table::new(["head", ">found", ">of", "state"]);
        for head in &inventory.heads {
            let state = match head.is_complete() {
                true => Cell::from("complete").tone(Tone::Good),
                false => {
                    let missing = head.missing.iter().filter(|missing| missing.needed);
                    let missing = missing.map(|missing| format!("missing `{}`", missing.name));
                    let wrong = head.wrong.iter().map(|wrong| {
                        format!("`{}` is {:?}, not {:?}", wrong.name, wrong.found, wrong.expected)
                    });
                    let all: Vec<String> = missing.chain(wrong).collect();
                    Cell::from(all.join("; ")).tone(Tone::Bad)
                }
            };
            table.push([
                head.head.to_string().into(),
                head.found.into(),
                head.expected.into(),
                state,
            ]);
        }
        let mut slots = Table::new(["optimizer slot", ">variables", ">size", ">of no variable"]);
        for slot in &inventory.slots {
            slots.push([
                Cell::code(&slot.kind),
                slot.count.into(),
                Cell::size(slot.bytes),
                slot.orphans.into(),
            ]);
        }
        let mut strangers = Table::new(["variable", "type", "shape"])
            .caption("Unexpected, of no head that frazil knows");
        // A graph's other constants are no variables.
        for variable in inventory.unexpected.iter().filter(|_| self.kind != Kind::Graph) {
            let shape = format!("{:?}", variable.shape);
            strangers.push([Cell::code(&variable.name), variable.dtype.into(), shape.into()]);
        }
        section.table(table).table(slots).table(strangers)
    }

    /// Variables, the largest first, alone and by the scope that they stand in.
    fn by_size(&self) -> Section {
        let word = if self.model.is_some() { "constants" } else { "variables" };
        let section = Section::new(format!("The {word}"));
        let mut sized: Vec<(&str, u64)> = self
            .variables
            .iter()
            .map(|variable| (variable.name.as_str(), variable.bytes.unwrap_or(0) as u64))
            .collect();
        if sized.is_empty() {
            return section;
        }
        let mut scopes: BTreeMap<String, u64> = BTreeMap::new();
        for (name, bytes) in &sized {
            let sum = scopes.entry(scope(name)).or_default();
            *sum = sum.saturating_add(*bytes);
        }
        sized.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let bar = |(name, bytes): (String, u64)| (name, bytes as f64);
        let axis = || Axis::bytes("size");
        let largest = sized.iter().take(LARGEST).map(|(name, bytes)| ((*name).to_owned(), *bytes));
        let alone = Bars {
            about: format!("Of {} {word}, those that take the most room.", sized.len()),
            ..Bars::of(format!("The largest {word}"), axis(), largest.map(bar))
        };
        let mut table = Table::new([word, "type", "shape", ">bytes"]);
        for variable in &self.variables {
            let bytes = variable.bytes.map(|bytes| bytes as u64);
            let shape = format!("{:?}", variable.shape);
            let name = match &variable.key {
                Some(key) => format!("{} = {key}", variable.name),
                None => variable.name.clone(),
            };
            table.push([
                Cell::code(name),
                variable.dtype.as_str().into(),
                shape.into(),
                bytes.into(),
            ]);
        }
        let section = section.chart(alone);
        let section = if scopes.len() > 1 && scopes.len() < sized.len() {
            let mut scopes: Vec<(String, u64)> = scopes.into_iter().collect();
            scopes.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
            scopes.truncate(2 * LARGEST);
            section.chart(Bars {
                about: format!("What the {word} of a part of the model take together."),
                ..Bars::of("By part of the model", axis(), scopes.into_iter().map(bar))
            })
        } else {
            section
        };
        section.table(table)
    }
}

/// The part of the model that a name belongs to: a layer, else the first two steps of its path.
fn scope(name: &str) -> String {
    let separator = if name.contains('/') { '/' } else { '.' };
    let parts: Vec<&str> = name.split(separator).collect();
    let layer = parts.iter().position(|part| {
        part.starts_with("layer_") && part.ends_with(|c: char| c.is_ascii_digit())
            || part.chars().all(|c| c.is_ascii_digit()) && !part.is_empty()
    });
    let depth = layer.map_or(2, |at| at + 1).min(parts.len().saturating_sub(1)).max(1);
    parts[..depth].join(&separator.to_string())
}

fn operations(section: Section, ops: &[OpCount]) -> Section {
    let most = ops.iter().take(LARGEST).map(|op| (op.op.clone(), op.count as f64));
    let chart = Bars {
        about: format!("The most frequent of {} kinds of operations.", ops.len()),
        ..Bars::of("Operations", Axis::new("nodes", ""), most)
    };
    let mut table = Table::new(["operation", ">nodes"]);
    for op in ops {
        table.push([Cell::code(&op.op), op.count.into()]);
    }
    section.chart(chart).folded(Section::new("All kinds of operations").table(table))
}

impl TaggedGraph {
    fn section(&self, several: bool) -> Section {
        let GraphReport { nodes, functions, variables, training, .. } = self.graph;
        let title = match several {
            true => format!("Graph {}", self.tags.join(",")),
            false => "Graph".into(),
        };
        let state = if variables == 0 { "frozen".into() } else { format!("{variables} variables") };
        let mut section =
            Section::new(title).figure("nodes", number::thousands(nodes as u64), state);
        if functions > 0 {
            section = section.figure("functions", functions.to_string(), "");
        }
        if let Some(version) = &self.tensorflow {
            section = section.figure("written by", format!("TensorFlow {version}"), "");
        }
        if training {
            section = section.note(Tone::Plain, "It has training nodes.");
        }
        for signature in &self.signatures {
            let caption = format!("Signature `{}` ({})", signature.key, signature.method);
            let mut table = Table::new(["", "name", "tensor", "type"]).caption(caption);
            for (side, rows) in [("input", &signature.inputs), ("output", &signature.outputs)] {
                for [name, tensor, kind] in rows {
                    table.push([
                        side.into(),
                        Cell::code(name),
                        Cell::code(tensor),
                        kind.as_str().into(),
                    ]);
                }
            }
            section = section.table(table);
        }
        let mut inputs = Table::new(["input", "type", "shape", ""]);
        for input in &self.graph.inputs {
            let used = if input.used { "" } else { "nothing reads it" };
            let (dtype, shape) = (input.dtype.as_str(), input.shape.as_str());
            inputs.push([Cell::code(&input.tensor), dtype.into(), shape.into(), used.into()]);
        }
        let mut outputs = Table::new(["likely output", "operation", "why"]);
        for output in &self.graph.outputs {
            let (op, reason) = (output.op.as_str(), output.reason.as_str());
            outputs.push([Cell::code(&output.tensor), op.into(), reason.into()]);
        }
        section = section.table(inputs).table(outputs);
        section = self.graph.baked(section);
        operations(section, &self.graph.ops)
    }
}

impl GraphReport {
    fn baked(&self, section: Section) -> Section {
        let baked = &self.baked;
        let sizes = [("batch", baked.batch), ("sequence length", baked.sequence)];
        let sizes: Vec<String> =
            sizes.iter().filter_map(|(name, size)| Some(format!("{name} {}", (*size)?))).collect();
        if sizes.is_empty() {
            return section.note(Tone::Good, "Batch and sequence length are free.");
        }
        let mut table = Table::new(["node", "holds", "value"]);
        for place in &baked.places {
            let (holds, value) = (place.holds.as_str(), place.value.as_str());
            table.push([Cell::code(&place.node), holds.into(), value.into()]);
        }
        let places = baked.places.len();
        section
            .note(
                Tone::Warning,
                format!(
                    "Baked in: {}, in {places} places; `frazil reshape` opens them.",
                    sizes.join(" and ")
                ),
            )
            .folded(Section::new("Where").table(table))
    }
}

impl ModelReport {
    fn section(&self) -> Section {
        let mut section = Section::new("Graph")
            .figure("nodes", number::thousands(self.nodes as u64), "")
            .figure("parameters", number::thousands(self.parameters), "")
            .figure("version", self.version.to_string(), "of the format");
        for set in &self.opsets {
            let name = match set.domain.as_str() {
                "" => "operation set",
                domain => domain,
            };
            section = section.figure(name, set.version.to_string(), "");
        }
        if let Some(producer) = &self.producer {
            section = section.text(format!("Written by {producer}."));
        }
        let mut ends = Table::new(["", "name", "type", "shape"]);
        for (side, list) in [("input", &self.inputs), ("output", &self.outputs)] {
            for end in list {
                let (dtype, shape) = (end.dtype.as_str(), end.shape.as_str());
                ends.push([side.into(), Cell::code(&end.name), dtype.into(), shape.into()]);
            }
        }
        operations(section.table(ends), &self.ops)
    }
}

impl Why {
    /// Without the notes that are `known`.
    fn section(&self, known: &[String]) -> Section {
        let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        self.raised.iter().for_each(|note| counts.entry(note.rule).or_default().0 += 1);
        self.missed.iter().for_each(|note| counts.entry(note.rule).or_default().1 += 1);
        let mut rules = Table::new(["rule", ">applied", ">not applied"]);
        for (rule, (done, missed)) in counts {
            rules.push([Cell::code(rule), done.into(), missed.into()]);
        }
        let list = |notes: &[crate::ops::convert::Note], what: &str| {
            let mut table = Table::new(["rule", "node", what]);
            for note in notes {
                table.push([note.rule.into(), Cell::code(&note.node), note.text.as_str().into()]);
            }
            table
        };
        let mut foreign = Table::new(["node", "operation"]).caption("What frazil cannot run");
        for (name, op) in &self.foreign {
            foreign.push([Cell::code(name), Cell::code(op)]);
        }
        let section = Section::new("Fused, and not")
            .figure("nodes", number::thousands(self.before as u64), "as it is, cut to its outputs")
            .figure(
                "nodes",
                number::thousands(self.after as u64),
                "as it runs: folded, fused and packed",
            )
            .table(rules)
            .table(list(&self.missed, "why not").caption("Left as it is, and why"))
            .folded(Section::new("What was fused and packed").table(list(&self.raised, "what")))
            .table(foreign);
        let notes = self.notes.iter().filter(|note| !known.contains(note));
        notes.fold(section, |section, note| section.note(Tone::Plain, note))
    }
}

impl RecordsReport {
    fn section(&self) -> Section {
        let mut features = Table::new(["feature", "type", ">examples", ">fewest values", ">most"]);
        for feature in &self.features {
            features.push([
                Cell::code(&feature.name),
                feature.kind.into(),
                feature.examples.into(),
                feature.shortest.into(),
                feature.longest.into(),
            ]);
        }
        let mut tags = Table::new(["tag", ">values"]);
        for (tag, count) in &self.tags {
            tags.push([Cell::code(tag), (*count).into()]);
        }
        let size = if self.bytes > 0 { number::size(self.bytes) } else { String::new() };
        Section::new("Records")
            .figure("records", number::thousands(self.records), size)
            .table(features)
            .table(tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_model() {
        let cases = [
            ("bert/encoder/layer_11/attention/self/query/kernel", "bert/encoder/layer_11"),
            ("bert/embeddings/word_embeddings", "bert/embeddings"),
            ("bert.encoder.layer.3.output.dense.weight", "bert.encoder.layer.3"),
            ("cls/predictions/output_bias", "cls/predictions"),
            ("global_step", "global_step"),
            ("", ""),
        ];
        for (name, part) in cases {
            assert_eq!(scope(name), part);
        }
    }
}
