//! `bayesian`: a Gaussian process over what was tried, and its upper confidence bound.
//!
//! The kernel is Matérn's with 5/2; the length scale is the likeliest of a few; the bound is 2.576
//! deviations above the mean, and its maximum is looked for among random points and neighbours of
//! the best.

use super::{Point, configuration, draw, most_wanted, new_point};
use crate::dice::Random;
use crate::space::Space;
use crate::tuner::{Halt, Stop, Trials};

/// Random trials to begin with.
const START: usize = 5;
/// Points that are compared for the next trial.
const RANDOM_POINTS: usize = 1000;
const NEIGHBOURS: usize = 400;
/// Trials that the process looks at: the newest. Its work grows with the cube.
const MEMORY: usize = 200;
const KAPPA: f64 = 2.576;
const NOISE: f64 = 1e-6;

pub(super) fn run(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let mut random = Random::new(trials.settings.seed);
    let space = trials.space;
    let mut tried: Vec<(Point, f64)> = Vec::new();
    let mut next = Some(most_wanted(space));
    if configuration(space, next.as_deref().unwrap_or_default()).int8_ops() == 0 {
        return Ok(Stop::Exhausted);
    }
    while let Some(point) = next {
        let measured = trials.full(&configuration(space, &point))?;
        tried.push((point, trials.utility(&measured)));
        next = match tried.len() <= START {
            true => new_point(trials, || draw(space, &mut random)),
            false => {
                let recent = &tried[tried.len().saturating_sub(MEMORY)..];
                let mut wanted = candidates(space, recent, &mut random).into_iter();
                let mut draw = || wanted.next().unwrap_or_else(|| draw(space, &mut random));
                new_point(trials, &mut draw)
            }
        };
    }
    Ok(Stop::Exhausted)
}

/// Points, the most promising first.
fn candidates(space: &Space, tried: &[(Point, f64)], random: &mut Random) -> Vec<Point> {
    let process = Process::fit(space, tried);
    let best = tried.iter().max_by(|a, b| a.1.total_cmp(&b.1)).map(|(point, _)| point);
    let mut points: Vec<Point> = (0..RANDOM_POINTS).map(|_| draw(space, random)).collect();
    if let Some(best) = best {
        for _ in 0..NEIGHBOURS {
            let mut near = best.clone();
            for _ in 0..=random.below(3) {
                let op = random.below(near.len());
                near[op] = random.below(space.ops[op].choices.len());
            }
            points.push(near);
        }
    }
    let mut ranked: Vec<(f64, Point)> = points
        .into_iter()
        .map(|point| (process.bound(&coordinates(space, &point)), point))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    ranked.into_iter().map(|(_, point)| point).collect()
}

/// Each operation's place from 0 to 1.
fn coordinates(space: &Space, point: &[usize]) -> Vec<f64> {
    space
        .ops
        .iter()
        .zip(point)
        .filter(|(op, _)| op.choices.len() > 1)
        .map(|(op, &place)| place as f64 / (op.choices.len() - 1) as f64)
        .collect()
}

fn matern(a: &[f64], b: &[f64], length: f64) -> f64 {
    let square: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    let r = (5.0 * square).sqrt() / length;
    (1.0 + r + r * r / 3.0) * (-r).exp()
}

/// What is believed of all points after some were tried.
struct Process {
    points: Vec<Vec<f64>>,
    length: f64,
    /// Lower triangle of the covariance's root, row by row.
    root: Vec<Vec<f64>>,
    /// Covariance's inverse times the values.
    weights: Vec<f64>,
}

impl Process {
    fn fit(space: &Space, tried: &[(Point, f64)]) -> Self {
        let points: Vec<Vec<f64>> = tried.iter().map(|(p, _)| coordinates(space, p)).collect();
        let count = tried.len().max(1) as f64;
        let mean = tried.iter().map(|(_, value)| value).sum::<f64>() / count;
        let spread = tried.iter().map(|(_, value)| (value - mean).powi(2)).sum::<f64>() / count;
        let spread = spread.sqrt().max(1e-12);
        let values: Vec<f64> = tried.iter().map(|(_, value)| (value - mean) / spread).collect();
        let width = (points.first().map_or(1, Vec::len).max(1) as f64).sqrt();
        let mut best: Option<(f64, Self)> = None;
        for factor in [0.25, 0.5, 1.0, 2.0] {
            let length = factor * width;
            let root = cholesky(&points, length);
            let half = forward(&root, &values);
            let weights = backward(&root, &half);
            let fit: f64 = half.iter().map(|h| h * h).sum();
            let size: f64 = root.iter().enumerate().map(|(i, row)| row[i].ln()).sum();
            let likelihood = -0.5 * fit - size;
            if best.as_ref().is_none_or(|(known, _)| likelihood > *known) {
                let points = points.clone();
                best = Some((likelihood, Self { points, length, root, weights }));
            }
        }
        best.expect("a few lengths were tried").1
    }

    /// Mean and what it may be above that.
    fn bound(&self, x: &[f64]) -> f64 {
        let near: Vec<f64> = self.points.iter().map(|p| matern(p, x, self.length)).collect();
        let mean: f64 = near.iter().zip(&self.weights).map(|(k, w)| k * w).sum();
        let half = forward(&self.root, &near);
        let variance = 1.0 - half.iter().map(|h| h * h).sum::<f64>();
        mean + KAPPA * variance.max(0.0).sqrt()
    }
}

fn cholesky(points: &[Vec<f64>], length: f64) -> Vec<Vec<f64>> {
    let mut root: Vec<Vec<f64>> = Vec::with_capacity(points.len());
    for i in 0..points.len() {
        let mut row = vec![0.0; i + 1];
        for j in 0..=i {
            let above = if i == j { &row } else { &root[j] };
            let dot: f64 = row[..j].iter().zip(&above[..j]).map(|(a, b)| a * b).sum();
            let noise = if i == j { NOISE } else { 0.0 };
            let rest = matern(&points[i], &points[j], length) + noise - dot;
            row[j] = if i == j { rest.max(NOISE).sqrt() } else { rest / root[j][j] };
        }
        root.push(row);
    }
    root
}

/// Solves `root · x = b`.
fn forward(root: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(b.len());
    for (row, &b) in root.iter().zip(b) {
        let i = x.len();
        let dot: f64 = row[..i].iter().zip(&x).map(|(a, x)| a * x).sum();
        x.push((b - dot) / row[i]);
    }
    x
}

/// Solves `rootᵀ · x = b`.
fn backward(root: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    for i in (0..x.len()).rev() {
        x[i] /= root[i][i];
        let known = x[i];
        for (place, entry) in root[i][..i].iter().enumerate() {
            x[place] -= entry * known;
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_goes_through_its_points_and_is_unsure_elsewhere() {
        let points = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]].map(|p| p.to_vec()).to_vec();
        let values = [1.0, -1.0, 0.5];
        let root = cholesky(&points, 1.0);
        let weights = backward(&root, &forward(&root, &values));
        let process = Process { points: points.clone(), length: 1.0, root, weights };
        for (point, value) in points.iter().zip(values) {
            assert!((process.bound(point) - value).abs() < 0.02, "{}", process.bound(point));
        }
        assert!(process.bound(&[9.0, 9.0]) > 2.5, "nothing is known there");
    }
}
