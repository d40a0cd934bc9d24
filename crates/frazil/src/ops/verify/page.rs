//! The report as a page.

use super::{NodeDifference, Report};
use crate::page::chart::{Axis, Line, Lines, Rule};
use crate::page::{Cell, Page, Section, Table, Tone, number};

/// Nodes that the table of the largest differences has.
const WORST: usize = 20;

impl Report {
    /// The report as a page.
    pub fn page(&self) -> Page {
        let name = |side: usize, otherwise: &str| {
            let side = self.sides.get(side);
            side.map_or(otherwise.to_owned(), |side| side.path.display().to_string())
        };
        let verdict = match self.equal {
            true => format!("Equal: every output is within {:e}.", self.tolerance),
            false => format!("Different: an output is beyond {:e}.", self.tolerance),
        };
        let (a, b) = (name(0, "the first model"), name(1, "the second"));
        Page::new(format!("Is {a} the same as {b}?"))
            .lead(verdict)
            .section(self.figures())
            .section(self.outputs())
            .section(self.course())
            .section(self.models())
    }

    fn figures(&self) -> Section {
        let tone = if self.equal { Tone::Good } else { Tone::Bad };
        let worst = self.outputs.iter().filter_map(|output| output.max_abs);
        let worst = worst.fold(None, |most: Option<f64>, d| Some(most.map_or(d, |m| m.max(d))));
        let section = Section::new("In short")
            .judged(
                "largest difference of an output",
                worst.map_or("–".into(), number::short),
                format!("at most {:e} counts as equal", self.tolerance),
                tone,
            )
            .figure("examples", self.samples.to_string(), "")
            .figure("nodes of the same name", number::thousands(self.nodes as u64), "compared");
        match &self.parted {
            _ if self.equal => section,
            Some(first) => section.note(Tone::Bad, parting(first)),
            None => section.note(Tone::Warning, "No node that both have by name differs."),
        }
    }

    fn outputs(&self) -> Section {
        let columns =
            ["output", ">max |a-b|", ">mean |a-b|", ">cosine", ">max |a|", "shape", "verdict"];
        let mut table = Table::new(columns);
        for output in &self.outputs {
            let name = both(&output.names.a, &output.names.b);
            let shape = both(&format!("{:?}", output.shape), &format!("{:?}", output.other_shape));
            let cosine = output.cosine.map(|c| Cell::number(c, format!("{c:.9}")));
            let verdict = match output.within {
                true => Cell::from("equal").tone(Tone::Good),
                false => Cell::from("different").tone(Tone::Bad),
            };
            table.push([
                Cell::code(name),
                output.max_abs.into(),
                output.mean_abs.into(),
                cosine.into(),
                output.largest.into(),
                shape.into(),
                verdict,
            ]);
        }
        Section::new("Outputs").table(table)
    }

    /// Differences along the way, where nodes have the same names.
    fn course(&self) -> Section {
        let section = Section::new("Along the way");
        if self.along.is_empty() {
            return section;
        }
        let relative = |node: &NodeDifference| node.max_abs / node.largest.max(1.0);
        let points = self.along.iter().enumerate().map(|(i, node)| (i as f64, relative(node)));
        let chart = Lines {
            title: "How the difference grows".into(),
            about:
                "The largest difference of each node that both models have by name, in the order \
                    of computing, relative to its largest number. Nodes without any difference are \
                    not drawn."
                    .into(),
            x: Axis::new("node, in the order of computing", ""),
            y: Axis::new("largest difference", "").log(),
            lines: vec![Line::new("largest difference", points)],
            rules: vec![Rule { value: self.tolerance, label: "tolerance".into() }],
        };
        let table = |nodes: &[&NodeDifference]| {
            let mut table =
                Table::new(["node", "operation", ">max |a-b|", ">max |a|", ">relative", "shape"]);
            for node in nodes {
                table.push([
                    Cell::code(&node.node),
                    both(&node.op, &node.other_op).into(),
                    node.max_abs.into(),
                    node.largest.into(),
                    relative(node).into(),
                    format!("{:?}", node.shape).into(),
                ]);
            }
            table
        };
        let mut worst: Vec<&NodeDifference> =
            self.along.iter().filter(|node| node.max_abs != 0.0).collect();
        worst.sort_by(|a, b| relative(b).total_cmp(&relative(a)));
        worst.truncate(WORST);
        let all: Vec<&NodeDifference> = self.along.iter().collect();
        section
            .chart(chart)
            .table(table(&worst).caption("Where they differ most"))
            .folded(Section::new("All nodes, in the order of computing").table(table(&all)))
    }

    fn models(&self) -> Section {
        let mut table = Table::new(["", "model", "kind", ">nodes"]);
        for (side, letter) in self.sides.iter().zip(["A", "B"]) {
            let path = Cell::code(side.path.display().to_string());
            table.push([letter.into(), path, side.kind.as_str().into(), side.nodes.into()]);
        }
        let mut inputs = Table::new(["input of A", "input of B"]);
        for pair in &self.inputs {
            inputs.push([Cell::code(&pair.a), Cell::code(&pair.b)]);
        }
        let notes = self.sides.iter().zip(["A", "B"]);
        let notes = notes.flat_map(|(side, letter)| {
            side.notes.iter().map(move |note| format!("{letter}: {note}"))
        });
        let section = Section::new("Models").table(table).table(inputs);
        notes
            .chain(self.notes.iter().cloned())
            .fold(section, |section, note| section.note(Tone::Plain, note))
    }
}

/// One of two things that are the same, else both.
fn both(a: &str, b: &str) -> String {
    if a == b { a.to_owned() } else { format!("{a} / {b}") }
}

fn parting(first: &NodeDifference) -> String {
    format!(
        "They part at `{}` ({}) {:?}: off by {} where the largest is {}.",
        first.node,
        both(&first.op, &first.other_op),
        first.shape,
        number::short(first.max_abs),
        number::short(first.largest)
    )
}
