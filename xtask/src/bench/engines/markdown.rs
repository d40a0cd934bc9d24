//! The record as a page for people.

use std::fmt::Write;

use frazil::page::chart::{Axis, Bars, Series};

use super::arms::OURS;
use super::record::{ArmRecord, Record};
use super::rounds::Measure;
use super::workload::{WORKLOADS, Workload};

/// The page. `name` is the file's, without its ending: the chart has the same one.
pub fn page(record: &Record, name: &str) -> String {
    let mut out = String::new();
    let machine = &record.machine;
    let _ = writeln!(out, "# frazil and its peers: {}, {}\n", machine.cpu, record.date);
    let _ = writeln!(
        out,
        "Class {}; {} threads for each engine of {} that the machine has; {} GiB; {}.\n\
         frazil {}; {}. {} rounds, all engines in turn, the order rotating; medians, quartiles in \
         parentheses.\n\
         Something else took {:.1}% of the machine's time meanwhile.\n",
        record.class,
        record.threads,
        machine.threads,
        machine.memory_gib,
        machine.system,
        record.frazil,
        record.rustc,
        record.rounds,
        100.0 * record.others
    );
    let _ = writeln!(out, "![speed against the best peer]({name}.svg)\n");
    ratios(&mut out, record);
    for precision in ["f32", "int8"] {
        times(&mut out, record, precision);
    }
    arms(&mut out, record);
    if !record.complaints.is_empty() {
        let _ = writeln!(out, "## What did not run\n");
        for complaint in &record.complaints {
            let _ = writeln!(out, "- {complaint}");
        }
    }
    out.trim_end().to_owned() + "\n"
}

fn ratios(out: &mut String, record: &Record) {
    if record.ratios.is_empty() {
        return;
    }
    let _ = writeln!(out, "## frazil against the best peer\n");
    let _ = writeln!(out, "| workload | precision | best peer | times faster | goal | |");
    let _ = writeln!(out, "|---|---|---|---|---|---|");
    for ratio in &record.ratios {
        let about = about(ratio.workload).map_or("", |row| row.about);
        let times = &ratio.times;
        let _ = writeln!(
            out,
            "| {} {about} | {} | {} | {:.2} ({:.2}–{:.2}) | {:.2} | {} |",
            ratio.workload,
            ratio.precision,
            ratio.peer,
            times.median,
            times.q1,
            times.q3,
            ratio.goal,
            verdict(ratio.met)
        );
    }
    for row in &record.end_to_end {
        let _ = writeln!(
            out,
            "\n{} {}: {:.0} of {:.0} billion operations a second, {:.0}% of the measured peak (goal \
             {:.0}%): {}.",
            row.workload,
            row.precision,
            row.giga_operations,
            row.peak,
            row.percent,
            row.goal,
            verdict(row.met)
        );
    }
    for (when, peaks) in ["before", "after"].iter().zip(&record.peaks) {
        let figure = |key: &str| peaks[key].as_f64().unwrap_or(f64::NAN);
        let _ = writeln!(
            out,
            "\nPeaks {when} the run: f32 {:.0} GFLOP/s, int8 {:.0} GOP/s, memory {:.1} GB/s ({}, {} \
             threads).",
            figure("f32_gflops"),
            figure("int8_gops"),
            figure("memory_gbs"),
            peaks["isa"].as_str().unwrap_or("unknown"),
            peaks["threads"]
        );
    }
    out.push('\n');
}

fn times(out: &mut String, record: &Record, precision: &str) {
    let here: Vec<&Measure> = record.measures.iter().filter(|m| m.precision == precision).collect();
    if here.is_empty() {
        return;
    }
    let engines = order(&here, |m| m.engine);
    let workloads = order(&here, |m| m.workload);
    let _ = writeln!(
        out,
        "## Times, {precision}\n\nMilliseconds; for lists of sequences, sequences a second; `about` where a \
         part of the list was far behind the best peer and the rest was not run.\n"
    );
    let _ = writeln!(out, "| engine | {} |", workloads.join(" | "));
    let _ = writeln!(out, "|---|{}", "---|".repeat(workloads.len()));
    for engine in engines {
        let cell = |workload: &&str| {
            let found = here.iter().find(|m| m.engine == engine && m.workload == *workload);
            found.map_or("–".to_owned(), |m| cell(m))
        };
        let cells: Vec<String> = workloads.iter().map(cell).collect();
        let _ = writeln!(out, "| {engine} | {} |", cells.join(" | "));
    }
    out.push('\n');
    for measure in here.iter().filter(|m| m.workload == "W6" || m.engine == OURS && is_list(m)) {
        let Measure { engine, workload, batching, .. } = measure;
        let _ = writeln!(out, "- {workload}, {engine}: {batching}");
    }
    out.push('\n');
}

fn is_list(measure: &Measure) -> bool {
    measure.sequences > 8
}

fn cell(measure: &Measure) -> String {
    let seconds = &measure.seconds;
    if is_list(measure) {
        let speed = |seconds: f64| measure.sequences as f64 / seconds;
        let (low, high) = (speed(seconds.q3), speed(seconds.q1));
        if measure.estimated {
            return format!("about {:.1}/s", measure.sequences_per_s);
        }
        return format!("{:.1}/s ({low:.1}–{high:.1})", measure.sequences_per_s);
    }
    let [median, q1, q3] = [seconds.median, seconds.q1, seconds.q3].map(|s| s * 1e3);
    format!("{median:.1} ({q1:.1}–{q3:.1})")
}

fn arms(out: &mut String, record: &Record) {
    let _ = writeln!(
        out,
        "## The engines\n\nLoading is from warm files to the model in memory; `first` is until the answer for \
         1 x 128, with loading. Memory is resident: after that answer, and at most. Differences are the \
         largest of a logit from those of {} with f32.\n\n\
         | engine | precision | model | version | load s | first s | first MB | most MB | idle CPU s | \
         difference | kernels |\n|---|---|---|---|---|---|---|---|---|---|---|",
        record.reference
    );
    for arm in &record.arms {
        let hello = &arm.hello;
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {:.2} | {:.2} | {:.0} | {:.0} | {:.1} | {} | {} |",
            arm.engine,
            arm.precision.name(),
            arm.model,
            hello.version,
            hello.load_seconds,
            hello.first_seconds,
            arm.resident_mb,
            arm.memory_mb,
            arm.idle_seconds,
            difference(arm),
            kernels(arm)
        );
    }
    for arm in &record.arms {
        if let Some(seconds) = arm.hello.about["compiled_first_seconds"].as_f64() {
            let _ = writeln!(
                out,
                "\nfrazil, {}, compiled: {:.0} ms from opening the file to the answer for 1 x 128.",
                arm.model,
                seconds * 1e3
            );
        }
    }
    out.push('\n');
}

fn difference(arm: &ArmRecord) -> String {
    match arm.largest_difference {
        Some(found) if arm.agrees => format!("{found:.1e}"),
        Some(found) => format!("{found:.1e}: NOT EQUAL, left out of the comparison"),
        None => "–".to_owned(),
    }
}

fn kernels(arm: &ArmRecord) -> String {
    match &arm.hello.about["kernels"] {
        serde_json::Value::String(name) => name.clone(),
        serde_json::Value::Array(names) => {
            names.iter().filter_map(|name| name.as_str()).collect::<Vec<_>>().join(", ")
        }
        _ => String::new(),
    }
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn about(workload: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|row| row.name == workload)
}

fn goal(workload: &str, precision: &str) -> Option<f64> {
    let [f32, int8] = about(workload)?.goals;
    Some(if precision == "f32" { f32 } else { int8 })
}

/// Names in the order in which they first appear.
fn order<'a>(measures: &[&'a Measure], name: impl Fn(&'a Measure) -> &'a str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for &measure in measures {
        if !found.contains(&name(measure)) {
            found.push(name(measure));
        }
    }
    found
}

/// A panel for each precision: how fast each engine is, the best peer being 1.
pub fn bars(record: &Record) -> Vec<Bars> {
    let panel = |precision: &str| {
        let here: Vec<&Measure> =
            record.measures.iter().filter(|m| m.precision == precision).collect();
        let groups = order(&here, |m| m.workload);
        let height = |engine: &str, workload: &str| {
            let of = |engine: &str| {
                here.iter().find(|m| m.engine == engine && m.workload == workload).copied()
            };
            let ratio =
                record.ratios.iter().find(|r| r.workload == workload && r.precision == precision);
            let fastest = || {
                let times = here.iter().filter(|m| m.workload == workload && m.engine != OURS);
                times.min_by(|a, b| a.seconds.median.total_cmp(&b.seconds.median)).copied()
            };
            let best = ratio.and_then(|ratio| of(ratio.peer)).or_else(fastest)?;
            Some(best.seconds.over(&of(engine)?.seconds).median)
        };
        let bars = order(&here, |m| m.engine)
            .into_iter()
            .map(|engine| Series::new(engine, groups.iter().map(|group| height(engine, group))));
        Bars {
            title: format!("{precision}: times as fast as the best peer"),
            about: "A group for each workload, a bar for each engine, a mark for frazil's goal."
                .into(),
            value: Axis::new("times as fast", ""),
            goals: groups.iter().map(|group| goal(group, precision)).collect(),
            series: bars.collect(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    };
    ["f32", "int8"].map(panel).into_iter().filter(|panel| !panel.groups.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::tests::{arm, measure};
    use super::super::record::{end_to_end, ratios};
    use super::*;
    use crate::bench::machine::Machine;

    #[test]
    fn the_page_says_it_all() {
        let measures = vec![
            measure(OURS, "W2", &[0.6, 0.7, 0.6]),
            measure("openvino", "W2", &[0.7, 0.8, 0.7]),
        ];
        let arms = vec![arm(OURS, true), arm("openvino", true), arm("tensorflow", false)];
        let peaks = vec![json!({ "isa": "avx512", "threads": 2, "f32_gflops": 340.0 })];
        let record = Record {
            benchmark: "peers",
            date: "2026-01-31".into(),
            machine: Machine::here(),
            class: "A",
            frazil: "abc".into(),
            rustc: "rustc".into(),
            threads: 2,
            rounds: 3,
            others: 0.01,
            reference: OURS,
            ratios: ratios(&measures, &arms),
            end_to_end: end_to_end(&measures, &peaks, "avx512_vnni"),
            peaks,
            arms,
            measures,
            complaints: vec!["W5a: rten: too long".into()],
        };
        let page = page(&record, "x");
        for part in ["(x.svg)", "| 1.17 (1.15–1.17) | 1.10 | met |", "88% of", "NOT EQUAL", "- W5a"]
        {
            assert!(page.contains(part), "no `{part}` in\n{page}");
        }
        let panels = bars(&record);
        assert_eq!(panels.len(), 1);
        assert_eq!(panels[0].series[1].values, [Some(1.0)]);
        assert_eq!(panels[0].goals, [Some(1.1)]);
    }
}
