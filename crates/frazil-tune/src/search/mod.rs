//! The strategies: in what order configurations are tried.
//!
//! - `sensitivity` (ours, the default): fall-backs by damage per microsecond, few evaluations.
//! - `basic`, `mse`: settings for kinds of operations, then fall-backs one by one.
//! - `exhaustive`, `random`: everything, anything.
//! - `bayesian`: a Gaussian process; `tpe`: Parzen estimators.
//!
//! The original's, where they are sound; ours differ where theirs are not. `random` and `bayesian`
//! end when a small space is used up, where theirs looped forever. `mse` ranks every operation,
//! where theirs looked at convolutions only. `bayesian` and `tpe` look for speed within the goal
//! and know fall-backs; theirs went after accuracy alone, or a mixture without regard to the goal.
//! No strategy tries the model with nothing in bytes: that is the baseline.
//!
//! When a search ends is said in [`tuner`](crate::tuner). The same seed gives the same search.

mod fallback;
mod gauss;
mod parzen;
mod sensitivity;
mod walk;

use crate::choice::Configuration;
use crate::config::Strategy;
use crate::dice::Random;
use crate::space::Space;
use crate::tuner::{Halt, Stop, Trials};

/// Goes through the space as the settings say.
pub(crate) fn run(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    match trials.settings.strategy {
        Strategy::Sensitivity => sensitivity::run(trials),
        Strategy::Basic => fallback::basic(trials),
        Strategy::Mse => fallback::mse(trials),
        Strategy::Exhaustive => walk::exhaustive(trials),
        Strategy::Random => walk::random(trials),
        Strategy::Bayesian => gauss::run(trials),
        Strategy::Tpe => parzen::run(trials),
    }
}

/// A point of the space: the place of each operation's choice.
type Point = Vec<usize>;

/// Draws that are made for a new point before a space counts as used up.
const DRAWS: usize = 200;

fn configuration(space: &Space, point: &[usize]) -> Configuration {
    space.configuration(point, space.migrations[0])
}

fn draw(space: &Space, random: &mut Random) -> Point {
    space.ops.iter().map(|op| random.below(op.choices.len())).collect()
}

/// The point of the most wanted configuration.
fn most_wanted(space: &Space) -> Point {
    let place = |op: &crate::choice::Op| op.choices.iter().position(|choice| choice.is_int8());
    space.ops.iter().map(|op| place(op).unwrap_or(0)).collect()
}

/// Worth a trial: not known yet, and something is in bytes.
fn is_new(trials: &Trials<'_>, configuration: &Configuration) -> bool {
    configuration.int8_ops() > 0 && !trials.knows(configuration)
}

/// A point that was not tried: drawn, and if draws hit only what is known, the next one in order.
fn new_point(trials: &Trials<'_>, mut draw: impl FnMut() -> Point) -> Option<Point> {
    for _ in 0..DRAWS {
        let point = draw();
        if is_new(trials, &configuration(trials.space, &point)) {
            return Some(point);
        }
    }
    let mut all = walk::Points::new(trials.space);
    let known = trials.settings.max_trials.saturating_add(2);
    // More points than trials: one of the first is new, unless there are no others.
    (0..known)
        .map_while(|_| all.next())
        .find(|point| is_new(trials, &configuration(trials.space, point)))
}
