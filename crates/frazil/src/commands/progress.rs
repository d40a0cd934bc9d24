//! Progress of long work: a bar on a terminal, plain lines otherwise, nothing with `--quiet`.

use std::cell::Cell;
use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Work that ends before this shows nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two plain lines.
const PAUSE: Duration = Duration::from_secs(5);

/// The progress of one piece of work.
pub struct Progress {
    what: &'static str,
    unit: &'static str,
    quiet: bool,
    bar: Option<ProgressBar>,
    started: Instant,
    last: Cell<Instant>,
}

impl Progress {
    /// `what` is being done to so many `unit`.
    pub fn new(what: &'static str, unit: &'static str, quiet: bool) -> Self {
        let now = Instant::now();
        let bar = (!quiet && stderr().is_terminal()).then(|| {
            let style =
                ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {prefix}, {eta} left");
            ProgressBar::hidden()
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_message(what)
                .with_prefix(unit)
        });
        Self { what, unit, quiet, bar, started: now, last: Cell::new(now) }
    }

    /// So much is done.
    pub fn at(&self, done: u64, total: u64) {
        if self.quiet || self.started.elapsed() < PATIENCE {
            return;
        }
        match &self.bar {
            Some(bar) => {
                if bar.is_hidden() {
                    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                }
                bar.set_length(total);
                bar.set_position(done);
            }
            None if self.last.get().elapsed() >= PAUSE => {
                self.last.set(Instant::now());
                say!("{}: {done} of {total} {}", self.what, self.unit);
            }
            None => {}
        }
    }

    /// So much is done, of nobody knows how much.
    pub fn so_far(&self, done: u64) {
        if self.quiet || self.started.elapsed() < PATIENCE {
            return;
        }
        match &self.bar {
            Some(bar) => {
                if bar.is_hidden() {
                    let style = ProgressStyle::with_template("{msg}: {pos} {prefix}, {per_sec}");
                    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
                    bar.set_draw_target(indicatif::ProgressDrawTarget::stderr());
                }
                bar.set_position(done);
            }
            None if self.last.get().elapsed() >= PAUSE => {
                self.last.set(Instant::now());
                say!("{}: {done} {}", self.what, self.unit);
            }
            None => {}
        }
    }

    /// Clears the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
