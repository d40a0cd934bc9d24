//! GLUE's scores, as its official evaluation computes them with scikit-learn and SciPy.
//!
//! A score that has no value, a correlation with a constant for example, is `NaN` where SciPy
//! gives that and 0 where scikit-learn does.

use crate::glue::Task;
use crate::{Error, Result};

/// A score by its name, a fraction and no percentage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// As GLUE calls it.
    pub name: &'static str,
    /// The score.
    pub value: f64,
}

/// The share of right classes, as GLUE calls it.
pub const ACCURACY: &str = "acc";

/// The score that GLUE goes by; where it has two, their mean.
pub fn official(task: Task) -> &'static str {
    match task {
        Task::Cola => "mcc",
        Task::Mrpc | Task::Qqp => "acc_and_f1",
        Task::StsB => "corr",
        _ => ACCURACY,
    }
}

fn check(predictions: usize, labels: usize) -> Result<()> {
    if labels == 0 {
        return Err(Error::NoUsableRow { skipped: 0 });
    }
    if predictions != labels {
        return Err(Error::PredictionCount { predictions, labels });
    }
    Ok(())
}

/// The scores of a task whose labels are classes.
pub fn score_classes(task: Task, predictions: &[i32], labels: &[i32]) -> Result<Vec<Metric>> {
    check(predictions.len(), labels.len())?;
    let metric = |name, value| Metric { name, value };
    let accuracy = accuracy(predictions, labels);
    Ok(match task {
        Task::Cola => vec![metric("mcc", matthews(predictions, labels))],
        Task::Mrpc | Task::Qqp => {
            let f1 = f1(predictions, labels);
            vec![
                metric(ACCURACY, accuracy),
                metric("f1", f1),
                metric("acc_and_f1", (accuracy + f1) / 2.0),
            ]
        }
        _ => vec![metric(ACCURACY, accuracy)],
    })
}

/// The scores of a task whose labels are numbers.
pub fn score_numbers(predictions: &[f64], labels: &[f64]) -> Result<Vec<Metric>> {
    check(predictions.len(), labels.len())?;
    let (pearson, spearman) = (pearson(predictions, labels), spearman(predictions, labels));
    Ok(vec![
        Metric { name: "pearson", value: pearson },
        Metric { name: "spearmanr", value: spearman },
        Metric { name: "corr", value: (pearson + spearman) / 2.0 },
    ])
}

fn pairs<T: Copy>(a: &[T], b: &[T]) -> impl Iterator<Item = (T, T)> {
    a.iter().copied().zip(b.iter().copied())
}

/// The share of equal labels.
pub fn accuracy(predictions: &[i32], labels: &[i32]) -> f64 {
    let right = pairs(predictions, labels).filter(|(p, l)| p == l).count();
    right as f64 / labels.len() as f64
}

/// F1 of class 1; 0 if it is nowhere.
pub fn f1(predictions: &[i32], labels: &[i32]) -> f64 {
    let count = |wanted: fn(bool, bool) -> bool| {
        pairs(predictions, labels).filter(|&(p, l)| wanted(p == 1, l == 1)).count() as f64
    };
    let (both, either) = (count(|p, l| p && l), count(|p, l| p || l));
    if either == 0.0 {
        return 0.0;
    }
    2.0 * both / (both + either)
}

/// Matthews' correlation of any number of classes; 0 if predictions or labels are all the same.
pub fn matthews(predictions: &[i32], labels: &[i32]) -> f64 {
    let mut classes: Vec<i32> = predictions.iter().chain(labels).copied().collect();
    classes.sort_unstable();
    classes.dedup();
    let mut predicted = vec![0.0; classes.len()];
    let mut real = vec![0.0; classes.len()];
    let mut right = 0.0;
    let mut total = 0.0;
    for (p, l) in pairs(predictions, labels) {
        let place = |class: i32| classes.partition_point(|&known| known < class);
        predicted[place(p)] += 1.0;
        real[place(l)] += 1.0;
        right += f64::from(u8::from(p == l));
        total += 1.0;
    }
    let dot = |a: &[f64], b: &[f64]| pairs(a, b).map(|(a, b)| a * b).sum::<f64>();
    let both = right * total - dot(&predicted, &real);
    let spread_predicted = total * total - dot(&predicted, &predicted);
    let spread_real = total * total - dot(&real, &real);
    if spread_predicted == 0.0 || spread_real == 0.0 {
        return 0.0;
    }
    both / (spread_predicted * spread_real).sqrt()
}

/// Pearson's correlation.
pub fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut spread_a, mut spread_b) = (0.0, 0.0, 0.0);
    for (a, b) in pairs(a, b) {
        let (a, b) = (a - mean_a, b - mean_b);
        both += a * b;
        spread_a += a * a;
        spread_b += b * b;
    }
    // Square roots first, or tiny spreads would vanish; rounding must not lead out of [-1, 1].
    (both / (f64::sqrt(spread_a) * f64::sqrt(spread_b))).clamp(-1.0, 1.0)
}

/// Spearman's correlation: Pearson's of the ranks.
pub fn spearman(a: &[f64], b: &[f64]) -> f64 {
    pearson(&ranks(a), &ranks(b))
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0;
    for equals in order.chunk_by(|&a, &b| values[a] == values[b]) {
        // Ranks before + 1 to before + length.
        let rank = before as f64 + (equals.len() + 1) as f64 / 2.0;
        for &place in equals {
            ranks[place] = rank;
        }
        before += equals.len();
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-12, "{found} is not {expected}");
    }

    #[test]
    fn classes_by_hand() {
        let (predictions, labels) = ([1, 0, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 0, 1]);
        close(accuracy(&predictions, &labels), 5.0 / 7.0);
        // 3 right of class 1, 1 wrong, 1 missed; 2 right of class 0.
        close(f1(&predictions, &labels), 6.0 / 8.0);
        close(
            matthews(&predictions, &labels),
            (3.0 * 2.0 - 1.0) / (4.0 * 4.0 * 3.0 * 3.0_f64).sqrt(),
        );
        assert_eq!(f1(&[0, 0], &[0, 0]), 0.0);
        assert_eq!(matthews(&[1, 1], &[0, 1]), 0.0);
        let metrics = score_classes(Task::Mrpc, &predictions, &labels).unwrap();
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name).collect();
        assert_eq!(names, ["acc", "f1", "acc_and_f1"]);
        for task in Task::ALL {
            let metrics = match task {
                Task::StsB => score_numbers(&[0.5, 1.0], &[1.0, 2.0]),
                _ => score_classes(task, &predictions, &labels),
            };
            assert!(metrics.unwrap().iter().any(|metric| metric.name == official(task)), "{task}");
        }
        assert!(score_classes(Task::Rte, &[1], &[1, 0]).is_err());
        assert!(score_classes(Task::Rte, &[], &[]).is_err());
    }

    #[test]
    fn correlations_as_numpy_computes_them() {
        // numpy.corrcoef of these, and of their ranks.
        let a = [0.5, 2.25, 2.25, 4.0, -1.0, 3.5, 5.0];
        let b = [1.0, 2.0, 3.0, 3.0, 0.0, 5.0, 4.0];
        close(pearson(&a, &b), PEARSON);
        close(spearman(&a, &b), SPEARMAN);
        assert_eq!(ranks(&a), [2.0, 3.5, 3.5, 6.0, 1.0, 5.0, 7.0]);
        assert!(pearson(&[1.0, 1.0], &[0.0, 2.0]).is_nan());
        let metrics = score_numbers(&a, &b).unwrap();
        close(metrics[2].value, (PEARSON + SPEARMAN) / 2.0);
    }

    const PEARSON: f64 = 0.881_561_843_452_104_6;
    const SPEARMAN: f64 = 0.845_454_545_454_545_6;
}
