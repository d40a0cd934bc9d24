//! The report of a tour: what was measured, and each step with its command and output.

use std::path::Path;

use anyhow::Result;
use frazil::ops::train::History;
use frazil::page::chart::{Axis, Bars, Line, Lines};
use frazil::page::{Cell, Page, Section, Table, Tone};

use super::{Numbers, Taken};

/// A number somewhere in what a step measured.
fn number(numbers: &Numbers, key: &str, path: &str) -> Option<f64> {
    numbers.get(key)?.pointer(path)?.as_f64()
}

/// As text; a dash where there is none.
fn say(value: Option<f64>, places: usize, unit: &str) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}{unit}"))
}

pub fn page(folder: &Path, taken: &[Taken], numbers: &Numbers, seconds: f64) -> Result<Page> {
    let history = History::read(&folder.join("finetuned"))?;
    let machine = |path: &str| numbers.get("f32").and_then(|of| of.pointer(path)?.as_str());
    let isa = machine("/isa").unwrap_or("unknown instructions");
    let threads = number(numbers, "f32", "/threads").unwrap_or(0.0);
    let mut steps = Table::new(["step", ">seconds", "command"]);
    for step in taken {
        let time = Cell::number(step.seconds, format!("{:.2}", step.seconds));
        steps.push([step.title.into(), time, Cell::code(format!("frazil {}", step.line))]);
    }
    let mut page = Page::new("From a TensorFlow 1 checkpoint to production")
        .lead(format!(
            "The embedded model on the whole road in {seconds:.1} s, on {isa} with {threads:.0} threads. \
             Every number here was measured in this run."
        ))
        .section(summary(numbers, &history))
        .section(speed(numbers))
        .section(packing(numbers))
        .section(learning(&history))
        .section(Section::new("Steps").table(steps));
    let mut road = Section::new("What each step said");
    for (i, step) in taken.iter().enumerate() {
        let said = format!("$ frazil {}\n{}", step.line, step.output);
        road = road.folded(
            Section::new(format!("{}. {}", i + 1, step.title))
                .code(said.trim_end())
                .text("For your own files:")
                .code(format!("frazil {}", step.yours)),
        );
    }
    page = page.section(road);
    Ok(page.foot("`frazil demo` makes this page."))
}

fn summary(numbers: &Numbers, history: &History) -> Section {
    let f1 = number(numbers, "squad", "/f1");
    let questions = number(numbers, "squad", "/questions");
    let int8 = number(numbers, "quantize", "/best/measured/accuracy");
    let met = numbers.get("quantize").is_some_and(|of| of["verdict"] == "met");
    let goal =
        if met { (Tone::Good, "the goal is met") } else { (Tone::Bad, "the goal is missed") };
    let differs = numbers.get("verify").and_then(|of| {
        let outputs = of.get("outputs")?.as_array()?;
        outputs.iter().filter_map(|output| output.get("max_abs")?.as_f64()).reduce(f64::max)
    });
    let tuned = history.evaluations.last().and_then(|of| of.scores.get("f1").copied());
    let accuracy = number(numbers, "glue", "/scores/0/value").map(|part| 100.0 * part);
    Section::new("Measured")
        .figure(
            "F1, f32",
            say(f1, 2, ""),
            format!("{} questions about unseen texts", say(questions, 0, "")),
        )
        .judged("F1, int8", say(int8, 2, ""), goal.1, goal.0)
        .figure(
            "int8 beside f32",
            say(number(numbers, "int8", "/variants/1/speedup"), 2, "x"),
            "as fast, in turns",
        )
        .figure(
            "Without padding",
            say(number(numbers, "f32", "/variants/1/speedup"), 2, "x"),
            "as fast as padded",
        )
        .figure("Classifier", say(accuracy, 1, " %"), "right on unseen pairs")
        .figure(
            "Checkpoint and IR",
            differs.map_or_else(|| "–".to_owned(), |most| format!("{most:.1e}")),
            "largest difference of an output",
        )
        .figure(
            "Packing",
            say(number(numbers, "pack", "/sequences_per_pack"), 2, "x"),
            "sequences in the length of one",
        )
        .figure(
            "Fine-tuned",
            say(tuned, 1, ""),
            "F1 after a few seconds from the pre-trained model",
        )
}

fn speed(numbers: &Numbers) -> Section {
    // Two that took turns can be compared; what was measured at another time cannot.
    let pairs = [
        ("f32", "f32 with padding and without", ["padded", "packed"]),
        ("int8", "f32 and int8, both without padding", ["f32", "int8"]),
    ];
    let mut section = Section::new("Speed");
    for (key, title, names) in pairs {
        let bar = |(at, name): (usize, &str)| {
            let value = number(numbers, key, &format!("/variants/{at}/sequences_per_s"))?;
            Some((name.to_owned(), value))
        };
        let bars: Vec<(String, f64)> = names.into_iter().enumerate().filter_map(bar).collect();
        if bars.is_empty() {
            return Section::default();
        }
        section = section.chart(Bars {
            about: "More is better. The two took turns.".to_owned(),
            ..Bars::of(title, Axis::new("sequences a second", ""), bars)
        });
    }
    section.text(
        "The two of a chart took turns; between one chart and the other the machine may have changed. \
         A model this small spends little time in products of matrices, which is where int8 gains; \
         the README has figures of real sizes.",
    )
}

fn packing(numbers: &Numbers) -> Section {
    let part = |path: &str| number(numbers, "pack", path).map(|part| 100.0 * part);
    let (Some(alone), Some(packed)) = (part("/unpacked_efficiency"), part("/efficiency")) else {
        return Section::default();
    };
    let bars = [("a sequence in each row".to_owned(), alone), ("packed".to_owned(), packed)];
    let chart = Bars {
        about: "The part of all places that is text, the rest being padding.".to_owned(),
        ..Bars::of("Places that hold text", Axis::new("of all places", "%"), bars)
    };
    Section::new("Packing").chart(chart)
}

fn learning(history: &History) -> Section {
    let loss = Line::new("loss", history.curve("loss"));
    if loss.points.is_empty() {
        return Section::default();
    }
    let chart = Lines {
        title: "Loss".to_owned(),
        about: "Of the few steps of fine-tuning, by the step.".to_owned(),
        x: Axis::new("step", ""),
        y: Axis::new("loss", ""),
        lines: vec![loss],
        ..Lines::default()
    };
    let line = |title: &str, name: &str| {
        let points = history.evaluations.iter();
        Line::new(title, points.filter_map(|of| Some((of.step as f64, *of.scores.get(name)?))))
    };
    let scores = Lines {
        title: "F1 and exact match".to_owned(),
        about: "On texts that were not trained on, by the step.".to_owned(),
        x: Axis::new("step", ""),
        y: Axis::new("score", "").from_zero().within(0.0, 100.0),
        lines: vec![line("F1", "f1"), line("exact match", "exact_match")],
        ..Lines::default()
    };
    let section = Section::new("Fine-tuning").chart(chart).chart(scores);
    let mut table =
        Table::new([">step", ">F1", ">exact match"]).caption("On texts that were not trained on");
    for of in &history.evaluations {
        let score = |name: &str| of.scores.get(name).copied().unwrap_or(f64::NAN);
        let cell = |value: f64| Cell::number(value, format!("{value:.2}"));
        let step = Cell::number(of.step as f64, of.step.to_string());
        table.push([step, cell(score("f1")), cell(score("exact_match"))]);
    }
    section.table(table)
}
