//! The search as it goes on: a table that grows, with the work of the moment below it on a terminal;
//! plain lines otherwise; nothing with `--quiet`.

use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, stderr};

use frazil::ops::quantize::Doing;
use frazil::page::number::places;
use frazil::tune::{Choice, Event, Extent, Measured, Trial};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Everything that is said while a search goes on.
pub struct Live {
    quiet: bool,
    bar: Option<ProgressBar>,
    /// What is being done, in words.
    work: RefCell<String>,
    baseline: Cell<f64>,
}

impl Live {
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && stderr().is_terminal()).then(|| {
            let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {eta} left");
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr())
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Self { quiet, bar, work: RefCell::default(), baseline: Cell::new(f64::NAN) }
    }

    /// Hears what is being done.
    pub fn hear(&self, doing: Doing<'_>) {
        match doing {
            Doing::Note(note) => self.line(&format!("note: {note}")),
            Doing::Calibrating { done, total } => {
                *self.work.borrow_mut() = "calibrating".into();
                self.at(done, total);
            }
            Doing::Evaluating { done, total } => self.at(done, total),
            Doing::Alone { done, total } => self.at(done, total),
            Doing::Search(event) => self.search(event),
            Doing::Writing(path) => self.line(&format!("writing {}", path.display())),
            _ => {}
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn at(&self, done: usize, total: usize) {
        if let Some(bar) = &self.bar {
            let work = self.work.borrow();
            bar.set_message(if work.is_empty() { "f32 model".into() } else { work.clone() });
            bar.set_length(total as u64);
            bar.set_position(done as u64);
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None if !self.quiet => say!("{text}"),
            None => {}
        }
    }

    fn search(&self, event: &Event<'_>) {
        match event {
            Event::Baseline(measured) => {
                self.baseline.set(measured.accuracy);
                self.line(
                    "trial  set      score     loss  between              ms  speed-up  in bytes",
                );
                let ms = format!("{:.1}", measured.baseline_ms);
                self.line(&format!(
                    "  f32  full  {:>8}  {:>27}  {ms:>6}",
                    score(measured.accuracy),
                    ""
                ));
            }
            Event::MeasuringDamage(_) => {
                *self.work.borrow_mut() = "operations one by one".into();
            }
            Event::Damage(damage) => {
                let worst = damage.iter().max_by(|a, b| a.1.total_cmp(&b.1));
                if let Some((name, _)) = worst {
                    self.line(&format!(
                        "       of {} operations, `{name}` matters most",
                        damage.len()
                    ));
                }
            }
            Event::Started { number, extent, .. } => {
                let set = set(*extent);
                *self.work.borrow_mut() = format!("trial {number}, {set}");
            }
            Event::Finished { trial, extent, best } => self.line(&self.row(trial, *extent, *best)),
            _ => {}
        }
    }

    fn row(&self, trial: &Trial, extent: Extent, best: bool) -> String {
        let Measured { accuracy, interval, full, latency_ms, .. } = trial.measured;
        let extent = if full { Extent::Full } else { extent };
        let base = self.baseline.get();
        let between = interval
            .map_or_else(String::new, |(low, high)| format!("{} to {}", score(low), score(high)));
        let int8 = trial.configuration.ops.values().filter(|choice| choice.is_int8()).count();
        let mut says = Vec::new();
        if trial.met {
            says.push("good enough");
        }
        if best {
            says.push("best so far");
        }
        if trial.cached {
            says.push("known");
        }
        let settings = setting(trial);
        format!(
            "{:>5}  {:<6}{:>8}  {:>7}  {between:<17} {latency_ms:>6.1}  {:>7.2}x  {int8:>4} of {}  {settings}  {}",
            trial.number,
            set(extent),
            score(accuracy),
            loss(base - accuracy, base),
            trial.measured.speedup(),
            trial.configuration.ops.len(),
            says.join(", "),
        )
    }
}

/// What most operations in bytes are.
fn setting(trial: &Trial) -> String {
    let mut counts: Vec<(Choice, usize)> = Vec::new();
    for choice in trial.configuration.ops.values().filter(|choice| choice.is_int8()) {
        match counts.iter_mut().find(|(known, _)| known == choice) {
            Some((_, count)) => *count += 1,
            None => counts.push((*choice, 1)),
        }
    }
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    most.map(|(choice, _)| choice.to_string().replace("int8, ", "")).unwrap_or_default()
}

fn set(extent: Extent) -> &'static str {
    match extent {
        Extent::Subset => "part",
        Extent::Full => "full",
    }
}

/// A score with four digits behind the point.
pub fn score(score: f64) -> String {
    format!("{score:.4}")
}

/// A loss as a share of the baseline.
pub fn loss(loss: f64, baseline: f64) -> String {
    match baseline.abs() > 0.0 {
        true => format!("{}%", places(100.0 * loss / baseline.abs(), 2)),
        false => places(loss, 4),
    }
}
