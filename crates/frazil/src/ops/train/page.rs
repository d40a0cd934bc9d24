//! The report of a training as a page: figures, curves, scores.

use super::{History, Trained};
use crate::page::chart::{Axis, Line, Lines};
use crate::page::{Cell, Page, Section, Table};

/// The page. `title` says what was trained for what; `settings` are shown as they are.
pub fn page(
    title: &str,
    settings: &[(&str, String)],
    trained: &Trained,
    history: &History,
) -> Page {
    let per_second = |count: u64| match trained.seconds > 0.0 {
        true => format!("{:.1}", count as f64 / trained.seconds),
        false => "–".to_owned(),
    };
    let last = history.curve("loss").last().map(|(_, loss)| format!("{loss:.4}"));
    let mut figures = Section::new("Summary")
        .figure("steps", trained.steps.to_string(), format!("{} in this run", trained.taken))
        .figure("last loss", last.unwrap_or_else(|| "–".into()), "mean of the last few steps")
        .figure("pieces a second", per_second(trained.tokens), "without padding")
        .figure("steps a second", per_second(trained.taken), "");
    if let Some(last) = history.evaluations.last() {
        for (name, value) in &last.scores {
            figures = figures.figure(name.clone(), format!("{value:.4}"), "last evaluation");
        }
    }
    let mut list = Table::new(["setting", "value"]).caption("What it was trained with");
    for (name, value) in settings {
        list = list.row([Cell::code(*name), Cell::code(value.clone())]);
    }
    let mut curves = Section::new("Curves");
    let losses = ["loss", "masked_lm_loss", "next_sentence_loss"];
    let lines: Vec<Line> = losses
        .into_iter()
        .map(|name| Line::new(name, history.curve(name)))
        .filter(|line| !line.points.is_empty())
        .collect();
    let axis = |label: &str| Axis::new(label, "");
    curves = curves.chart(chart("Loss", "of training, by the step", axis("loss"), lines));
    for (title, name, label) in [
        ("Learning rate", "learning_rate", "learning rate"),
        ("Norm of the gradients, before clipping", "global_norm", "norm"),
        ("Speed", "tokens/sec", "pieces a second"),
    ] {
        let lines = vec![Line::new(name, history.curve(name))];
        curves = curves.chart(chart(title, "by the step", axis(label), lines));
    }
    let mut scores = Section::new("Evaluations");
    let names: std::collections::BTreeSet<&String> =
        history.evaluations.iter().flat_map(|of| of.scores.keys()).collect();
    if !names.is_empty() {
        let mut table = Table::new(std::iter::once("step").chain(names.iter().map(|n| n.as_str())));
        for of in &history.evaluations {
            let number = |name: &&String| match of.scores.get(*name) {
                Some(value) => Cell::number(*value, format!("{value:.4}")),
                None => Cell::code("–"),
            };
            let step = Cell::number(of.step as f64, of.step.to_string());
            table = table.row(std::iter::once(step).chain(names.iter().map(number)));
        }
        let line = |name: &&String| {
            let points = history.evaluations.iter();
            let point = |of: &super::Evaluation| Some((of.step as f64, *of.scores.get(*name)?));
            Line::new((*name).clone(), points.filter_map(point))
        };
        let (losses, others): (Vec<Line>, Vec<Line>) = names
            .iter()
            .filter(|n| !n.ends_with("_thresh"))
            .map(line)
            .partition(|line| line.name.ends_with("loss"));
        let about = "on data that is not trained on";
        for (title, axis, lines) in [
            ("Scores", score_axis(&others), others),
            ("Losses of the evaluations", axis("loss"), losses),
        ] {
            if !lines.is_empty() {
                scores = scores.chart(chart(title, about, axis, lines));
            }
        }
        scores = scores.table(table);
    }
    Page::new(title)
        .lead(format!("Last checkpoint: `{}`.", trained.checkpoint.display()))
        .section(figures)
        .section(curves)
        .section(scores)
        .section(Section::new("Settings").table(list))
}

/// Scores are parts of 1 or of 100, as far as these tell.
fn score_axis(lines: &[Line]) -> Axis {
    let values = lines.iter().flat_map(|line| &line.points).map(|point| point.1);
    let (low, high) = values.fold((0.0, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
    let axis = Axis::new("score", "");
    match high {
        _ if low < 0.0 => axis,
        ..=1.0 => axis.within(0.0, 1.0),
        ..=100.0 => axis.within(0.0, 100.0),
        _ => axis,
    }
}

fn chart(title: &str, about: &str, y: Axis, lines: Vec<Line>) -> Lines {
    Lines {
        title: title.to_owned(),
        about: format!("{title} {about}."),
        x: Axis::new("step", ""),
        y,
        lines,
        ..Lines::default()
    }
}
