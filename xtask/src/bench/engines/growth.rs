//! `cargo xtask bench growth`: how time grows with length, batch, layers and threads, for frazil and
//! for the peer that is best on this class of machine.

use std::fs;

use anyhow::{Context, Result};
use frazil::page::Chart;
use frazil::page::chart::{self, Line, Lines, Scale};
use serde::Serialize;

use super::arms::{Arm, OURS};
use super::model::Size;
use super::options::Options;
use super::rounds::{self, Measure, Task};
use super::workload::Batching;
use super::{Stage, record};
use crate::bench::machine::{Machine, first_line};

/// Samples of each point, unless told otherwise: curves show a law, not a difference of a percent.
const ROUNDS: usize = 3;

/// A curve's axis.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Axis {
    Length,
    Batch,
    Layers,
    Threads,
}

/// One point of a curve.
#[derive(Serialize)]
struct Point {
    axis: Axis,
    x: usize,
    #[serde(flatten)]
    measure: Measure,
}

#[derive(Serialize)]
struct Record {
    benchmark: &'static str,
    date: String,
    machine: Machine,
    class: &'static str,
    frazil: String,
    threads: usize,
    rounds: usize,
    points: Vec<Point>,
    complaints: Vec<String>,
}

/// Measures, draws, and records unless it is a quick one.
pub fn run(args: &[&str]) -> Result<()> {
    let mut options = Options::parse(args, ROUNDS)?;
    let (machine, complete) = (Machine::here(), options.complete());
    if options.arms.is_none() {
        // Measured: ONNX Runtime leads where there is no AVX-512, OpenVINO where there is.
        let peer = if machine.isa.starts_with("avx512") { "openvino" } else { "onnxruntime" };
        options.arms = Some(vec![OURS.to_owned(), peer.to_owned()]);
    }
    let mut stage = Stage::set(&options)?;
    let (size, lengths, batches, layers): (_, &[usize], &[usize], &[usize]) = match options.quick {
        true => (Size::TINY, &[16, 64], &[1, 4], &[1, 2]),
        false => (
            Size::BASE,
            &[16, 32, 64, 96, 128, 192, 256, 384, 512],
            &[1, 2, 4, 8, 16, 32, 64],
            &[1, 3, 6, 12],
        ),
    };
    let mut points = Vec::new();
    for &precision in &options.precisions {
        let mut arms = stage.arms(&options, precision, size)?;
        for &s in lengths {
            let batching = Batching::same(1, s);
            points.extend(measure(&mut arms, &mut stage, &options, Axis::Length, s, &batching));
        }
        for &b in batches {
            let batching = Batching::same(b, 128);
            points.extend(measure(&mut arms, &mut stage, &options, Axis::Batch, b, &batching));
        }
        drop(arms);
        let one = Batching::same(1, 128);
        for &count in layers {
            let mut arms = stage.arms(&options, precision, size.with_layers(count))?;
            points.extend(measure(&mut arms, &mut stage, &options, Axis::Layers, count, &one));
        }
        let doubled = std::iter::successors(Some(1), |threads| Some(threads * 2));
        for threads in doubled.take_while(|&threads| threads <= machine.threads) {
            stage.starter.threads = threads;
            let mut arms = stage.arms(&options, precision, size)?;
            points.extend(measure(&mut arms, &mut stage, &options, Axis::Threads, threads, &one));
        }
        stage.starter.threads = options.threads;
    }
    for point in &points {
        let Measure { engine, precision, seconds, .. } = &point.measure;
        let axis = serde_json::to_value(point.axis)?;
        let axis = axis.as_str().unwrap_or_default();
        println!("{axis:>8} {:>4} {engine} {precision}: {:.2} ms", point.x, seconds.median * 1e3);
    }
    let name = format!("{}-growth", stage.name(&machine));
    let record = Record {
        benchmark: "growth",
        date: stage.date.clone(),
        class: record::class(machine.isa),
        machine,
        frazil: first_line("git", &["describe", "--always", "--dirty"]),
        threads: options.threads,
        rounds: options.rounds,
        points,
        complaints: stage.complaints.clone(),
    };
    let folder = stage.folder(complete)?;
    let svg = Chart::file(panels(&record));
    for (ending, text) in [("json", serde_json::to_string_pretty(&record)? + "\n"), ("svg", svg)] {
        let path = folder.join(format!("{name}.{ending}"));
        fs::write(&path, text).with_context(|| format!("writing `{}`", path.display()))?;
        println!("wrote `{}`", path.display());
    }
    Ok(())
}

fn measure(
    arms: &mut [Arm],
    stage: &mut Stage,
    options: &Options,
    axis: Axis,
    x: usize,
    batching: &Batching,
) -> Vec<Point> {
    // Short runs are repeated, long ones speak for themselves.
    let tokens: usize = batching.batches.iter().flatten().sum();
    let repeat = (512 / tokens).clamp(1, 5);
    let mut task = Task::same("growth", batching, arms.len(), repeat);
    // After a second's run, caches and threads are as warm as they get.
    task.warm = usize::from(tokens <= 1024);
    eprintln!("{} by {}: {x}", batching.name, serde_json::to_value(axis).unwrap_or_default());
    let complaints = &mut stage.complaints;
    let measures = rounds::run(arms, &[task], options.rounds, &mut |what| complaints.push(what));
    measures.into_iter().map(|measure| Point { axis, x, measure }).collect()
}

fn panels(record: &Record) -> Vec<Lines> {
    let rows = [
        (Axis::Length, "length, batch 1", "tokens"),
        (Axis::Batch, "batch, 128 tokens each", "sequences"),
        (Axis::Layers, "layers, 1 x 128", "layers"),
        (Axis::Threads, "threads, 1 x 128", "threads"),
    ];
    let panel = |(axis, title, x): (Axis, &str, &str)| {
        let mut lines: Vec<Line> = Vec::new();
        for point in record.points.iter().filter(|point| point.axis == axis) {
            let measure = &point.measure;
            let name = format!("{} {}", measure.engine, measure.precision);
            let at = (point.x as f64, measure.seconds.median * 1e3);
            match lines.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(at),
                None => lines.push(Line::new(name, [at])),
            }
        }
        let doubling = |axis| chart::Axis { scale: Scale::Log2, ..axis };
        Lines {
            title: format!("Time by {title}"),
            about: "A curve for each engine and precision.".into(),
            x: doubling(chart::Axis::new(x, "")),
            y: doubling(chart::Axis::new("median", "ms")),
            lines,
            rules: Vec::new(),
        }
    };
    rows.map(panel).into()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::measure;
    use super::*;

    #[test]
    fn a_line_for_each_engine_and_precision() {
        let point = |axis, x, engine, ms: f64| Point {
            axis,
            x,
            measure: measure(engine, "growth", &[ms / 1e3]),
        };
        let record = Record {
            benchmark: "growth",
            date: String::new(),
            machine: Machine::here(),
            class: "A",
            frazil: String::new(),
            threads: 2,
            rounds: 1,
            points: vec![
                point(Axis::Length, 16, OURS, 5.0),
                point(Axis::Length, 16, "openvino", 6.0),
                point(Axis::Length, 32, OURS, 9.0),
            ],
            complaints: Vec::new(),
        };
        let panels = panels(&record);
        assert_eq!(panels[0].lines.len(), 2);
        assert_eq!(panels[0].lines[0].points.len(), 2);
        assert!(panels[1].lines.is_empty());
    }
}
