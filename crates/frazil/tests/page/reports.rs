//! The pages that operations make, of the embedded model, in a real browser.

use std::path::PathBuf;

use frazil::ops::bench::{self, Variant, bench};
use frazil::ops::inspect::{self, inspect, why};
use frazil::ops::verify::{self, verify};
use frazil::page::Page;
use frazil::source::GraphOptions;

use super::browser::checked;

fn demo(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/tests/fixtures/tf1/{name}", env!("CARGO_MANIFEST_DIR")))
}

fn look_at(page: &Page, texts: &[&str]) {
    let html = page.render();
    for text in texts {
        assert!(html.contains(text), "`{text}` is not in the page: {html}");
    }
    checked(&html, |found| assert_eq!(found.problems, ""));
}

#[test]
fn inspected() {
    for (name, texts) in [
        ("bert_model.ckpt", &["171,464", "The largest variables", "pretraining", "complete"][..]),
        (
            "bert_model.ckpt.meta",
            &["Baked in: batch 4 and sequence length 128", "likely output", "layer_norm"],
        ),
        ("saved_model", &["Signature `serving_default`", "Operations", "attention"]),
    ] {
        let path = demo(name);
        let report = inspect(&path, &inspect::Options::default()).unwrap();
        let page = report.page(why(&path, &GraphOptions::default()));
        look_at(&page, texts);
    }
}

#[test]
fn verified() {
    let options = verify::Options { samples: 2, seq: Some(16), ..verify::Options::default() };
    let (a, b) = (demo("bert_model.ckpt"), demo("squad/model.ckpt"));
    let encoder = GraphOptions {
        head: Some(frazil::bert::Head::Encoder),
        config: Some(demo("bert_config.json")),
        ..GraphOptions::default()
    };
    let options = verify::Options { a: encoder.clone(), b: encoder, ..options };
    let same = verify(&a, &a, &options, &mut |_, _| {}).unwrap();
    assert!(same.equal && same.along.len() > 50);
    assert_eq!(same.along.iter().map(|node| node.max_abs).fold(0.0, f64::max), 0.0);
    look_at(&same.page(), &["Equal: every output is within 1e-4."]);

    let other = verify(&a, &b, &options, &mut |_, _| {}).unwrap();
    assert!(!other.equal);
    let first = other.parted.as_ref().unwrap();
    // The first that parts is the first of all that is too far off.
    let bound = |node: &verify::NodeDifference| other.tolerance * node.largest.max(1.0);
    let found = other.along.iter().find(|node| node.max_abs > bound(node)).unwrap();
    assert_eq!(found.node, first.node);
    look_at(&other.page(), &["They part at", "How the difference grows", "Where they differ most"]);
}

#[test]
fn measured() {
    let variant = |name: &str, int8, instances| Variant {
        name: name.into(),
        int8,
        instances,
        threads: Some(1),
        ..Variant::default()
    };
    let options = bench::Options {
        batch: 2,
        seq: 16,
        lengths: None,
        sequences: 2,
        warmup: 1,
        iterations: Some(2),
        variants: vec![variant("f32", false, 1), variant("int8 & two", true, 2)],
        profile: true,
    };
    let graph = GraphOptions {
        head: Some(frazil::bert::Head::Encoder),
        config: Some(demo("bert_config.json")),
        ..GraphOptions::default()
    };
    let model = bench::Model::File(demo("bert_model.ckpt"), Box::new(graph));
    let report = bench(&model, &options).unwrap();
    assert_eq!(report.variants[1].speed.instance_median_ms.len(), 2);
    look_at(&report.page(), &["int8 &amp; two: each of the 2 instances", "Time by kind of step"]);
}

/// A tour leaves a page of its own, one of quantizing and one of training; a second one goes over the first.
#[test]
fn the_tour() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frazil"));
    command.arg("demo").current_dir(&folder);
    let first = command.output().unwrap();
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));
    let output = command.output().unwrap();
    let (said, err) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{said}{err}");
    let steps = said.matches("$ frazil ").count();
    assert!(steps >= 13);
    assert_eq!(said.matches("for your own files:  frazil ").count(), steps);
    let read =
        |name: &str| std::fs::read_to_string(folder.path().join("frazil-demo").join(name)).unwrap();
    for (name, texts) in [
        (
            "report.html",
            &["F1, f32", "Sequences a second", "Places that hold text", "For your own files"][..],
        ),
        ("int8.quantize/report.html", &["The goal is met", "Before and after"]),
        ("finetuned/report.html", &["Learning rate", "Evaluations"]),
    ] {
        let html = read(name);
        for text in texts {
            assert!(html.contains(text), "`{text}` is not in {name}");
        }
        assert!(!html.contains("–</dd>"), "a figure is missing in {name}");
        checked(&html, |found| assert_eq!(found.problems, "", "{name}"));
    }
    // The model is as good as it is said to be: these texts were not trained on.
    let f1 = said.lines().skip_while(|line| !line.contains("exact match")).nth(1).unwrap();
    let f1: f64 = f1.split_whitespace().last().unwrap().parse().unwrap();
    assert!(f1 >= 95.0, "{f1}");
}

#[test]
fn the_commands_write_them() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let frazil = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_frazil"));
        let output = command.args(words).arg("--report").arg(&page).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (model, graph) = (demo("bert_model.ckpt"), demo("bert_model.ckpt.meta"));
    let (model, graph) = (model.to_str().unwrap(), graph.to_str().unwrap());
    for (words, code, text) in [
        (&["inspect", graph][..], Some(0), "Baked in"),
        (&["verify", model, model, "--head", "encoder", "--seq", "8"], Some(0), "Equal:"),
    ] {
        let (ended, said) = frazil(words);
        assert_eq!(ended, code, "{said}");
        assert!(said.contains(&format!("wrote `{}`", page.display())), "{said}");
        assert!(std::fs::read_to_string(&page).unwrap().contains(text), "{words:?}");
    }
    std::fs::remove_file(&page).unwrap();
    let (ended, said) = frazil(&["inspect", graph, "--why"]);
    assert_eq!(ended, Some(2));
    assert!(said.contains("`--report` has no `--nodes`") && !page.exists(), "{said}");
}
