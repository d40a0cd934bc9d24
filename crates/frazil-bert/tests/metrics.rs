//! Scores against the official scripts: evaluate-v1.1.py and evaluate-v2.0.py under Python 3.7
//! gave the numbers here.

#![allow(clippy::unwrap_used, reason = "a test")]

use frazil_bert::metrics::squad::{NullOdds, Reference, read_predictions, unknown_ids};
use frazil_bert::rows::OnBadRow;
use frazil_tensor::testing::shared;

/// The project's own demand.
const TOLERANCE: f64 = 1e-9;

fn close(found: f64, expected: f64) {
    assert!((found - expected).abs() < TOLERANCE, "{found} is not {expected}");
}

#[test]
fn version_1_on_three_files_of_predictions() {
    let Some(data) = shared("data/squad/dev-v1.1.json") else { return };
    let reference = Reference::open(data, OnBadRow::Stop).unwrap();
    assert_eq!(reference.len(), 10_570);
    for (name, exact_match, f1, missing) in [
        ("models/squad/golden/predictions.json", 54.12488174077578, 66.07384465718413, 0),
        (
            "data/squad/predictions/bert_ensemble_google.json",
            86.20624408703878,
            92.19557978351145,
            0,
        ),
        ("data/squad/predictions/lr_baseline.json", 40.14191106906339, 50.98153647324461, 13),
    ] {
        let Some(path) = shared(name) else { return };
        let predictions = read_predictions(path).unwrap();
        let score = reference.score(&predictions);
        close(score.exact_match, exact_match);
        close(score.f1, f1);
        assert_eq!(score.missing.len(), missing, "{:?}", score.missing);
        assert_eq!(unknown_ids(&reference, &predictions).is_empty(), missing == 0);
    }
}

#[test]
fn version_1_on_the_fixture() {
    let (Some(data), Some(predictions)) = (
        shared("fixtures/data/squad/dev-v1.1.json"),
        shared("fixtures/squad/v1.1/predictions.json"),
    ) else {
        return;
    };
    let score = Reference::open(data, OnBadRow::Stop)
        .unwrap()
        .score(&read_predictions(predictions).unwrap());
    close(score.exact_match, 69.23076923076923);
    close(score.f1, 69.23076923076923);
}

#[test]
fn version_2_with_thresholds() {
    let (Some(data), Some(folder)) =
        (shared("fixtures/data/squad/dev-v2.0.json"), shared("fixtures/squad/v2.0"))
    else {
        return;
    };
    let reference = Reference::open(data, OnBadRow::Stop).unwrap();
    let predictions = read_predictions(folder.join("predictions.json")).unwrap();
    let odds = NullOdds::open(folder.join("null_odds.json")).unwrap();
    for (threshold, exact, f1, with_answer) in [
        (1.0, 62.5, 63.888888888888886, (61.53846153846154, 63.24786324786324)),
        (-1.0, 43.75, 43.75, (38.46153846153846, 38.46153846153846)),
    ] {
        let score = reference.score_v2(&predictions, Some(&odds), threshold).unwrap();
        close(score.all.exact, exact);
        close(score.all.f1, f1);
        assert_eq!(score.all.total, 16);
        let part = score.has_answer.unwrap();
        close(part.exact, with_answer.0);
        close(part.f1, with_answer.1);
        assert_eq!(part.total, 13);
        let part = score.no_answer.unwrap();
        close(part.exact, 66.66666666666667);
        close(part.f1, 66.66666666666667);
        let (best_exact, best_f1) = (score.best_exact.unwrap(), score.best_f1.unwrap());
        close(best_exact.score, 62.5);
        close(best_f1.score, 63.888888888888886);
        close(best_exact.threshold, -0.1491222381591797);
        close(best_f1.threshold, -0.1491222381591797);
    }
    let without = reference.score_v2(&predictions, None, 1.0).unwrap();
    assert_eq!((without.best_exact, without.all.total), (None, 16));
}

#[test]
fn files_that_are_no_predictions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("predictions.json");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = read_predictions(&path).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(error.to_string().contains("predictions.json"));
        cause
    };
    assert!(refused("").contains("the file is empty"));
    assert!(refused("[]").contains("a JSON object with a string for each id"));
    assert!(refused("{\"a\": 3}").ends_with("that of `a` is none"));
    assert!(refused("{\"a\": ").contains("line 1"));
}
