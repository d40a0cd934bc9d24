//! A training as it goes on: on a terminal a line that changes, else a new one now and then; nothing
//! with `--quiet`.

use std::io::{IsTerminal, stderr};
use std::path::Path;
use std::time::{Duration, Instant};

use frazil::ops::plan_cache::Kept;
use frazil::ops::train::{self, Changes, Step};
use frazil::train::initial;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};

use crate::hints;

/// Between two plain lines.
const PAUSE: Duration = Duration::from_secs(5);

/// The line that shows how it goes.
pub struct Live {
    quiet: bool,
    bar: Option<ProgressBar>,
    last: Instant,
    recent: Recent,
    /// When the step before was drawn.
    drawn: Option<Instant>,
}

impl Live {
    pub fn new(quiet: bool) -> Self {
        let bar = (!quiet && stderr().is_terminal()).then(|| {
            // Nothing is drawn before the first step: until then nobody knows how many there are.
            ProgressBar::no_length().with_style(style())
        });
        Self { quiet, bar, last: Instant::now(), recent: Recent::default(), drawn: None }
    }

    pub fn say(&self, line: &str) {
        match &self.bar {
            _ if self.quiet => {}
            // Printed through a bar, a line draws it.
            Some(bar) if bar.length().is_some() => bar.println(line),
            _ => say!("{line}"),
        }
    }

    /// A note of an operation, in the words of the command that runs.
    pub fn note(&self, note: &str) {
        if let Some(note) = hints::spoken(note) {
            self.say(&format!("note: {note}"));
        }
    }

    /// Whether there is a line that changes.
    pub fn is_drawn(&self) -> bool {
        self.bar.is_some()
    }

    /// What happens in any training.
    pub fn train(&mut self, event: &train::Event<'_>) {
        match event {
            train::Event::Planned(path, kept) => self.say(&planned(path, kept)),
            train::Event::Initialized(report) if report.loaded == 0 => {
                self.say(&format!("{} new weights", report.fresh.len()));
            }
            train::Event::Initialized(report) => {
                let (loaded, fresh) = (report.loaded, report.fresh.join(", "));
                let fresh = if fresh.is_empty() { fresh } else { format!("; new: {fresh}") };
                let slots = match report.slots {
                    Some(0) => "; nothing that an optimizer remembers".to_owned(),
                    Some(slots) => format!("; {slots} slots of the optimizer"),
                    None => String::new(),
                };
                self.say(&format!("{loaded} weights from the checkpoint{slots}{fresh}"));
                self.unused(report);
            }
            train::Event::Resuming(path, step, changes) => {
                self.say(&format!("goes on from {} after {step} steps", path.display()));
                self.changed(changes);
            }
            train::Event::Begin(_) | train::Event::NoNumber(_) => {}
            train::Event::Step(step, of, _) => self.step(step, *of),
            train::Event::Saved(path, ..) => self.say(&format!("wrote {}", path.display())),
        }
    }

    /// Says what the model has no place for. Other heads are left behind as a matter of course, parts of the
    /// encoder are not.
    pub fn unused(&self, report: &initial::Report) {
        let unused = report.unused.iter().filter(|name| name.starts_with("bert/"));
        let unused: Vec<&String> = unused.collect();
        if let Some(first) = unused.first() {
            let more = match unused.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.say(&format!("note: the model has no place for `{first}`{more}"));
        }
    }

    /// Says what is not as it was before a run went on.
    pub fn changed(&self, changes: &Changes) {
        if changes.samples {
            self.say(
                "note: what is trained on is not what it was, or comes in another order: it is read \
                 from its beginning",
            );
        }
        if let Some((before, now)) = changes.packs {
            self.say(&format!("note: steps are of {now} sequences or packs now, {before} before"));
        }
        if changes.optimizer {
            self.say("note: the optimizer is another one now, or has other numbers");
        }
        if let Some((before, now)) = changes.rate {
            self.say(&format!("note: the learning rate is {now:e} now, {before:e} before"));
        }
        if let Some((before, now)) = changes.next_rate {
            self.say(&format!(
                "note: the learning rate of the next step is {now:e} now, {before:e} before: another \
                 warm-up, or another number of steps"
            ));
        }
    }

    fn step(&mut self, step: &Step, of: u64) {
        let line = self.draw(step, of);
        if self.bar.is_none() && self.last.elapsed() >= PAUSE {
            self.last = Instant::now();
            self.say(&format!("step {} of {of}: {line}", step.report.step + 1));
        }
    }

    /// Draws how it goes on a terminal; what is drawn.
    pub fn draw(&mut self, step: &Step, of: u64) -> String {
        let taken = step.report.step + 1;
        let now = Instant::now();
        let passed = self.drawn.replace(now).map(|before| (now - before).as_secs_f64());
        self.recent.add(step.report.loss, step.tokens as f64, step.seconds);
        self.recent.pause(passed.unwrap_or(0.0) - step.seconds);
        let line = self.recent.line(of.saturating_sub(taken));
        if let Some(bar) = &self.bar {
            bar.set_length(of);
            bar.set_position(taken);
            bar.set_message(line.clone());
            if taken >= of {
                bar.finish_and_clear();
            }
        }
        line
    }
}

/// The bar has what the words leave of the line, so that one line is enough.
fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {msg}");
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// What is said of a run that was told to stop.
pub fn stopped(steps: u64) -> String {
    format!("stopped after step {steps}; the same command goes on from there")
}

/// Where the plan of a training is.
pub fn planned(path: &Path, kept: &Kept) -> String {
    let path = path.display();
    match kept {
        Kept::Before => format!("planned before: {path}"),
        Kept::Now => format!("the plan is stored: {path}"),
        Kept::Not(Some(why)) => format!("note: the plan is not stored for later runs: {why}"),
        Kept::Not(None) => format!("planned, and not stored: {path}"),
    }
}

/// Sums over the steps of this run, each older one counting less.
#[derive(Default)]
struct Recent {
    /// What the steps count together.
    weight: f64,
    loss: f64,
    tokens: f64,
    seconds: f64,
    /// All steps, and the seconds between them: of checkpoints and evaluations, which are far apart.
    steps: f64,
    between: f64,
}

impl Recent {
    fn add(&mut self, loss: f64, tokens: f64, seconds: f64) {
        const OLD: f64 = 0.95;
        let sums = [&mut self.weight, &mut self.loss, &mut self.tokens, &mut self.seconds];
        for (sum, new) in sums.into_iter().zip([1.0, loss, tokens, seconds]) {
            *sum = OLD * *sum + new;
        }
    }

    /// Counts what has passed before the last step.
    fn pause(&mut self, seconds: f64) {
        self.steps += 1.0;
        self.between += seconds.max(0.0);
    }

    /// How it goes, with so many steps left.
    fn line(&self, left: u64) -> String {
        let loss = self.loss / self.weight;
        let speed = self.tokens / self.seconds.max(f64::MIN_POSITIVE);
        let left = self.time_of(left).map(|left| format!(", {} left", HumanDuration(left)));
        format!("loss {loss:.4}, {speed:.0} pieces/s{}", left.unwrap_or_default())
    }

    /// How long so many steps take, if that is a time that can be said.
    fn time_of(&self, steps: u64) -> Option<Duration> {
        let each = self.seconds / self.weight + self.between / self.steps.max(1.0);
        Duration::try_from_secs_f64(steps as f64 * each).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use indicatif::{ProgressDrawTarget, TermLike};

    use super::*;

    /// A terminal of 80 columns, and what is written there.
    #[derive(Clone, Debug, Default)]
    struct Terminal(Arc<Mutex<Vec<String>>>);

    impl TermLike for Terminal {
        fn width(&self) -> u16 {
            80
        }

        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }

        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(line)
        }

        fn write_str(&self, line: &str) -> io::Result<()> {
            self.0.lock().unwrap().push(line.to_owned());
            Ok(())
        }

        fn clear_line(&self) -> io::Result<()> {
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_a_terminal_is_enough() {
        let terminal = Terminal::default();
        let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
        let bar = ProgressBar::with_draw_target(Some(123_456), target).with_style(style());
        bar.set_position(12_345);
        bar.set_message("loss 0.5000, 12345 pieces/s, 12 minutes left");
        bar.force_draw();
        let lines = terminal.0.lock().unwrap();
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap();
        assert!(widest > 70 && widest <= 80, "{lines:?}");
    }

    #[test]
    fn steps_that_take_alike_are_foretold() {
        let mut recent = Recent::default();
        for _ in 0..100 {
            recent.add(0.5, 1000.0, 2.0);
            let left = recent.time_of(30).unwrap().as_secs_f64();
            assert!((left - 60.0).abs() < 1e-9, "{left}");
            assert_eq!(recent.line(30), "loss 0.5000, 500 pieces/s, 60 seconds left");
        }
    }

    /// An evaluation of a minute after each ten steps of a second.
    #[test]
    fn evaluations_take_time_too() {
        let mut recent = Recent::default();
        for step in 0..100 {
            recent.add(0.5, 1000.0, 1.0);
            recent.pause(if step % 10 == 0 && step > 0 { 60.0 } else { -0.001 });
        }
        let left = recent.time_of(100).unwrap().as_secs_f64();
        assert!((left - (100.0 + 9.0 * 60.0)).abs() < 1e-9, "{left}");
        assert!(recent.line(100).starts_with("loss 0.5000, 1000 pieces/s"));
    }

    #[test]
    fn newer_steps_count_more() {
        let mut recent = Recent::default();
        recent.add(1.0, 1.0, 1.0);
        recent.add(2.0, 1.0, 3.0);
        let left = recent.time_of(1).unwrap().as_secs_f64();
        assert!((left - (0.95 + 3.0) / 1.95).abs() < 1e-9, "{left}");
    }

    #[test]
    fn a_time_beyond_all_time_is_not_said() {
        let mut recent = Recent::default();
        recent.add(0.5, 1000.0, 100.0);
        assert_eq!(recent.line(u64::MAX), "loss 0.5000, 10 pieces/s");
        recent.add(0.5, 1000.0, f64::NAN);
        assert_eq!(recent.time_of(1), None);
    }
}
