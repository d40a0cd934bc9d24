//! Everything in order, and anything at random.

use super::{Point, configuration, draw, is_new, new_point};
use crate::dice::Random;
use crate::space::Space;
use crate::tuner::{Halt, Stop, Trials};

/// All points of a space; the last operation changes fastest.
pub(super) struct Points<'a> {
    space: &'a Space,
    next: Option<Point>,
}

impl<'a> Points<'a> {
    pub(super) fn new(space: &'a Space) -> Self {
        Self { space, next: Some(vec![0; space.ops.len()]) }
    }
}

impl Iterator for Points<'_> {
    type Item = Point;

    fn next(&mut self) -> Option<Point> {
        let point = self.next.take()?;
        let mut following = point.clone();
        for (place, op) in following.iter_mut().zip(&self.space.ops).rev() {
            *place += 1;
            if *place < op.choices.len() {
                self.next = Some(following);
                break;
            }
            *place = 0;
        }
        Some(point)
    }
}

/// The Cartesian product, operation by operation.
pub(super) fn exhaustive(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let space = trials.space;
    for point in Points::new(space) {
        let configuration = configuration(space, &point);
        if is_new(trials, &configuration) {
            trials.full(&configuration)?;
        }
    }
    Ok(Stop::Exhausted)
}

/// Any choice for every operation, each as likely as the next.
pub(super) fn random(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let mut random = Random::new(trials.settings.seed);
    let space = trials.space;
    while let Some(point) = new_point(trials, || draw(space, &mut random)) {
        trials.full(&configuration(space, &point))?;
    }
    Ok(Stop::Exhausted)
}
