//! The report as a page that needs nothing beside it.

use std::collections::BTreeSet;

use frazil_tune::{OpKind, Verdict};

use super::report::{Operation, Report, Tensor, Trial};
use crate::page::chart::{
    Axis, Better, Front, HeatMap, Point, Range, Ranges, Rule, Scatter, Strip, Strips,
};
use crate::page::{Cell, Page, Section, Table, Tone, number};

/// The page of a report.
pub fn page(report: &Report) -> Page {
    let model = report.model.display();
    let (verdict, tone) = verdict(report);
    let mut page = Page::new(format!("int8 of {model}")).lead(verdict.clone());
    if let Some(task) = &report.task {
        let score = format!("The score is {task}'s {}.", report.metric.name);
        page = page.lead(score);
    }
    page.section(summary(report, &verdict, tone))
        .section(trials(report))
        .section(sensitivity(report))
        .section(ranges(report))
        .section(again(report))
        .section(notes(report))
}

fn verdict(report: &Report) -> (String, Tone) {
    let (metric, threshold) = (&report.metric.name, score(report.threshold));
    match (report.verdict, report.missed_by) {
        (Verdict::Met, _) => {
            (format!("The goal is met: {metric} of {threshold} or better."), Tone::Good)
        }
        (Verdict::Missed, by) => {
            let by = by.map_or_else(String::new, |by| format!(" by {}", score(by)));
            let text =
                format!("The goal is missed{by}: {metric} of {threshold} or better was asked for.");
            (text, Tone::Bad)
        }
        (Verdict::NotAsked, _) => (format!("One trial, whatever its {metric}."), Tone::Plain),
    }
}

fn summary(report: &Report, verdict: &str, tone: Tone) -> Section {
    let base = &report.baseline;
    let mut section = Section::new("Before and after");
    let mut table = Table::new(["", &format!(">{}", report.metric.name), ">time, ms", ">weights"])
        .row(["f32".into(), cell(base.accuracy), ms(report.baseline_ms()), Cell::size(base.bytes)]);
    if let Some(best) = &report.best {
        let measured = &best.measured;
        let relative = 100.0 * best.loss / base.accuracy.abs().max(f64::MIN_POSITIVE);
        let smaller = base.bytes as f64 / measured.bytes.max(1) as f64;
        let (int8, all) = best.int8_linears;
        section = section
            .judged(report.metric.name.clone(), score(measured.accuracy), loss(relative), tone)
            .figure("speed-up", format!("{:.2}×", best.speedup), "measured in turn with f32")
            .figure("weights", number::size(measured.bytes), format!("{smaller:.1}× smaller"))
            .figure("linear layers in int8", format!("{int8} of {all}"), others(best));
        table.push([
            "int8".into(),
            cell(measured.accuracy),
            ms(measured.latency_ms),
            Cell::size(measured.bytes),
        ]);
        table.push([
            "difference".into(),
            cell(-best.loss),
            ms(measured.latency_ms - measured.baseline_ms),
            match base.bytes.checked_sub(measured.bytes) {
                Some(less) => Cell::number(-(less as f64), format!("-{}", number::size(less))),
                None => Cell::size(measured.bytes - base.bytes),
            },
        ]);
    }
    section = section.table(table).note(tone, verdict);
    let on = &report.calibrated_on;
    let mut data = format!(
        "Calibrated on {} sequences ({} tokens) of {}.",
        on.sequences,
        on.tokens,
        on.path.display()
    );
    if let Some(on) = &report.evaluated_on {
        data += &format!(" Evaluated on {} examples of {}.", on.examples, on.path.display());
    }
    section.text(data)
}

/// What else is in bytes.
fn others(trial: &Trial) -> String {
    let says = |(int8, all): (usize, usize), what: &str| format!("{int8} of {all} {what}");
    [says(trial.int8_attentions, "attentions"), says(trial.int8_tables, "tables")].join(", ")
}

fn trials(report: &Report) -> Section {
    let higher = report.goal.higher_is_better;
    let point = |trial: &Trial| Point {
        // As if the machine had always been as fast as it was beside the best trial.
        x: trial.measured.relative_latency() * report.baseline_ms(),
        y: trial.measured.accuracy,
        label: trial.number.to_string(),
        detail: settings(trial),
        series: usize::from(!trial.measured.full),
        chosen: report.best.as_ref().is_some_and(|best| best.number == trial.number),
    };
    let base = Point {
        x: report.baseline_ms(),
        y: report.baseline.accuracy,
        label: "f32".into(),
        detail: "the model as it was".into(),
        series: 2,
        chosen: false,
    };
    let chart = Scatter {
        title: format!("{} against time of a run", report.metric.name),
        about: format!(
            "{} trials, each timed in turn with the f32 model and drawn by its speed-up over it; the \
             line joins those that no other one beats in both.",
            report.trials.len()
        ),
        x: Axis::new("time of a run", "ms").from_zero(),
        y: Axis::new(report.metric.name.clone(), ""),
        series: vec!["full set".into(), "part of the set: a guess".into(), "f32".into()],
        points: report.trials.iter().map(point).chain([base]).collect(),
        front: Some(Front {
            name: "nothing is better in both".into(),
            x: Better::Lower,
            y: if higher { Better::Higher } else { Better::Lower },
        }),
        rules: vec![Rule { value: report.threshold, label: "goal".into() }],
    };
    let mut table = Table::new([
        ">trial",
        "set",
        &format!(">{}", report.metric.name),
        ">loss",
        "between",
        ">speed-up",
        ">weights",
        ">int8 linear",
        "verdict",
    ])
    .caption("All trials, in their order");
    for trial in &report.trials {
        let measured = &trial.measured;
        let between =
            measured.interval.map(|(low, high)| format!("{} to {}", score(low), score(high)));
        let chosen = report.best.as_ref().is_some_and(|best| best.number == trial.number);
        let says = match (chosen, trial.met) {
            (true, true) => Cell::from("best, good enough").tone(Tone::Good),
            (true, false) => Cell::from("best").tone(Tone::Warning),
            (false, true) => "good enough".into(),
            (false, false) => "".into(),
        };
        table.push([
            trial.number.into(),
            if measured.full { "full" } else { "part" }.into(),
            cell(measured.accuracy),
            cell(trial.loss),
            between.unwrap_or_default().into(),
            Cell::number(trial.speedup, format!("{:.2}×", trial.speedup)),
            Cell::size(measured.bytes),
            trial.int8_linears.0.into(),
            says,
        ]);
    }
    let mut chosen =
        Table::new([">trial", "settings"]).caption("How many operations have which setting");
    for trial in &report.trials {
        chosen.push([trial.number.into(), settings(trial).into()]);
    }
    Section::new("Trials").chart(chart).table(table).table(chosen)
}

fn settings(trial: &Trial) -> String {
    let says = trial.settings.iter().map(|(setting, count)| format!("{count} × {setting}"));
    says.collect::<Vec<_>>().join("; ")
}

fn sensitivity(report: &Report) -> Section {
    let section = Section::new("What each operation does alone");
    let measured = || report.ops.iter().filter(|op| op.damage.is_some());
    if measured().next().is_none() {
        return section;
    }
    let layers: BTreeSet<usize> = measured().filter_map(|op| op.layer).collect();
    let mut products: Vec<&str> = Vec::new();
    for op in measured().filter(|op| op.layer.is_some()) {
        if !products.contains(&op.product.as_str()) {
            products.push(&op.product);
        }
    }
    let value = |layer: usize, product: &str| {
        let mut ops = measured();
        ops.find(|op| op.layer == Some(layer) && op.product == product).and_then(|op| op.damage)
    };
    let chart = HeatMap {
        title: "Mean squared difference of the outputs, by layer and product".into(),
        about: "The stronger the shade, the more the outputs change if this operation alone is in \
                bytes."
            .into(),
        value: Axis::new("mean squared difference", "").log(),
        rows: layers.iter().map(|layer| format!("layer {layer}")).collect(),
        columns: products.iter().map(|&product| product.to_owned()).collect(),
        values: layers
            .iter()
            .map(|&layer| products.iter().map(|product| value(layer, product)).collect())
            .collect(),
    };
    let mut table = Table::new([
        "operation",
        "kind",
        ">difference",
        ">saves, µs",
        ">saves",
        "in the best model",
    ])
    .caption("Operations that can be in bytes");
    let mut ops: Vec<&Operation> = report.ops.iter().collect();
    ops.sort_by(|a, b| b.damage.unwrap_or(-1.0).total_cmp(&a.damage.unwrap_or(-1.0)));
    for op in ops {
        let kind = match op.kind {
            OpKind::Linear => "linear",
            OpKind::Attention => "attention",
            OpKind::Table => "table",
        };
        table.push([
            Cell::code(op.name.clone()),
            kind.into(),
            op.damage.into(),
            Cell::number(op.saves_us, format!("{:.0}", op.saves_us)),
            Cell::size(op.saves_bytes),
            op.says.clone().into(),
        ]);
    }
    let section = if layers.is_empty() { section } else { section.chart(chart) };
    section.table(table)
}

fn ranges(report: &Report) -> Section {
    let mut section = Section::new("Ranges and clipping");
    let group = |tensor: &Tensor| {
        let reader = tensor.readers.first().map_or("", String::as_str);
        let op = report.ops.iter().find(|op| op.name == reader);
        op.and_then(|op| op.layer).map_or_else(String::new, |layer| format!("layer {layer}"))
    };
    let wide = |(low, high): (f32, f32)| (f64::from(low), f64::from(high));
    let range = |tensor: &Tensor| {
        let full = (tensor.lowest.min(0.0), tensor.highest.max(0.0));
        let (kept, note) = match tensor.range {
            Some(kept) => (kept, format!("{:.3}% clipped", 100.0 * tensor.clipped)),
            None => (full, "by row".into()),
        };
        let full = (full.0.min(kept.0), full.1.max(kept.1));
        Range { group: group(tensor), name: what(tensor), full: wide(full), kept: wide(kept), note }
    };
    if report.tensors.is_empty() {
        return section;
    }
    section = section.chart(Ranges {
        title: "What bytes stand for, of all that was seen".into(),
        about:
            "Each bar goes from the least to the largest number of a tensor; the strong part is \
                what bytes stand for."
                .into(),
        value: Axis::new("value", ""),
        ranges: report.tensors.iter().map(range).collect(),
    });
    for tensors in report.tensors.chunk_by(|a, b| group(a) == group(b)) {
        let name = match group(&tensors[0]).as_str() {
            "" => "Histograms of other tensors".to_owned(),
            layer => format!("Histograms of {layer}"),
        };
        let mut folded = Section::new(name);
        for tensor in tensors {
            folded = folded.chart(histogram(tensor));
        }
        section = section.folded(folded);
    }
    section
}

/// The last parts of the names of what reads a tensor.
fn what(tensor: &Tensor) -> String {
    let short = |name: &String| {
        let name = name.trim_end_matches("/MatMul");
        name.rsplit('/').take(2).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("/")
    };
    tensor.readers.iter().map(short).collect::<Vec<_>>().join(", ")
}

fn histogram(tensor: &Tensor) -> Strips {
    let (low, high) = (f64::from(tensor.lowest), f64::from(tensor.highest));
    let bars = tensor.histogram.len().max(1) as f64;
    let edges = (0..=tensor.histogram.len()).map(|i| low + (high - low) * i as f64 / bars);
    let mark = |value: f32, name: &str| (f64::from(value), name.to_owned());
    let marks = tensor.range.map(|(low, high)| vec![mark(low, "least"), mark(high, "most")]);
    let strip = Strip {
        name: format!("read by {}", what(tensor)),
        edges: edges.collect(),
        counts: tensor.histogram.iter().map(|&count| count as f64).collect(),
        marks: marks.unwrap_or_default(),
    };
    Strips {
        title: tensor.name.clone(),
        about: format!("{} numbers, {:.4}% of them clipped.", tensor.count, 100.0 * tensor.clipped),
        x: Axis::new("value", ""),
        strips: vec![strip],
    }
}

fn again(report: &Report) -> Section {
    let mut section = Section::new("The same once more");
    let Some(recipe) = &report.recipe else { return section };
    section = section
        .text("The recipe has every number of the model; it needs neither data nor a search.")
        .code(format!(
            "frazil quantize {} --config {} -o int8.frazil",
            report.model.display(),
            recipe.display()
        ));
    let mut table = Table::new(["file", ">size"]);
    for file in &report.outputs {
        table.push([Cell::code(file.path.display().to_string()), Cell::size(file.bytes)]);
    }
    section.table(table)
}

fn notes(report: &Report) -> Section {
    report.notes.iter().fold(Section::new("Notes"), |section, note| section.text(note.clone()))
}

fn score(value: f64) -> String {
    number::places(value, 4)
}

fn loss(percent: f64) -> String {
    match (number::places(percent.abs(), 2).as_str(), percent > 0.0) {
        ("0.00", _) => "nothing lost".into(),
        (percent, true) => format!("{percent}% lost"),
        (percent, false) => format!("{percent}% won"),
    }
}

fn cell(value: f64) -> Cell {
    Cell::number(value, score(value))
}

fn ms(value: f64) -> Cell {
    Cell::number(value, number::places(value, 1))
}
