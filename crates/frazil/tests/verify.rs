//! `verify-weights` on pairs that TensorFlow made: the same weights in every kind of file.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::Path;
use std::process::Command;

use frazil::bert::names::Head;
use frazil::ops::verify_weights::{Options, Report, verify_weights};
use frazil::tensor::testing::shared;

fn compare(a: &Path, b: &Path, task: Option<Head>) -> Report {
    let options = Options { task, ..Options::default() };
    verify_weights(a, Some(b), &options, &mut |_, _| {}).unwrap()
}

#[test]
fn the_same_weights_in_every_kind_of_file() {
    let Some(fixtures) = shared("fixtures") else { return };
    let pairs = [
        ("classifier/model.ckpt-27", "classifier/frozen_from_saved_model.pb", "classifier", 41),
        ("classifier/model.ckpt-27", "classifier/frozen_from_graph_pbtxt.pb", "classifier", 41),
        ("classifier/model.ckpt-27.meta", "classifier/saved_models", "classifier", 41),
        ("pretrain", "meta/bert_model.ckpt.meta", "pretraining", 46),
        ("meta", "meta_tf111", "pretraining", 46),
        ("numerics/model.ckpt", "numerics/weights.npz", "pretraining", 46),
        ("numerics/model.ckpt", "numerics/weights.npz", "squad", 41),
        ("squad/v1.1", "squad/lpot/bert_fp32_google_modeling.pb", "squad", 39),
    ];
    for (a, b, task, identical) in pairs {
        let (a, b) = (fixtures.join(a), fixtures.join(b));
        let report = compare(&a, &b, Some(task.parse().unwrap()));
        assert!(report.equal, "{} {}: {report:?}", a.display(), b.display());
        assert_eq!(report.identical, identical, "{} {}", a.display(), b.display());
    }
}

#[test]
fn other_weights_and_other_heads_differ() {
    let Some(fixtures) = shared("fixtures") else { return };
    let report = compare(&fixtures.join("pretrain"), &fixtures.join("numerics/model.ckpt"), None);
    assert!(!report.equal && report.identical == 0);
    assert!(
        report.differences.iter().all(|difference| difference.squared_relative.unwrap() > 1e-3)
    );
    let report = compare(&fixtures.join("pretrain"), &fixtures.join("classifier"), None);
    assert!(!report.equal);
    assert!(report.sides[0].missing.contains(&"output_weights".to_owned()));
    assert!(report.sides[1].missing.contains(&"cls/predictions/output_bias".to_owned()));
}

/// Both lines of the loader test's recipe, with its own options.
#[test]
fn the_loader_test_s_command_lines() {
    let Some(fixtures) = shared("fixtures") else { return };
    let run = |line: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_frazil"))
            .arg("verify-weights")
            .args(line)
            .current_dir(&fixtures)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let config = ["--config-path", "data/bert_config_small.json"];
    let checkpoint = ["--chkpt-path", "pretrain/model.ckpt-40"];
    let (code, said) = run(&[config, checkpoint].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.ends_with("complete for pretraining\n"), "{said}");
    let classifier = ["--chkpt-path", "classifier/model.ckpt-27", "--chkpt-task", "CLASSIFIER"];
    let frozen = ["--frozen-path", "classifier/frozen_from_saved_model.pb"];
    let (code, said) = run(&[&config[..], &classifier, &frozen].concat());
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("41 variables are identical bit for bit"), "{said}");
    // The default task is pre-training: a classifier's checkpoint lacks its heads.
    let (code, said) = run(&[&config[..], &classifier[..2], &frozen].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("missing: `cls/predictions/output_bias`"), "{said}");
}
