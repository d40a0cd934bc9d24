//! The pages that operations make, of the embedded model, in a real browser.

use std::path::PathBuf;

use frazil::graph::pass::Reshape;
use frazil::ops::bench::{self, Variant, bench};
use frazil::ops::convert::{self, Target};
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::graph::draw;
use frazil::ops::inspect::{self, inspect, why};
use frazil::ops::train::{self, Evaluation, History, Point, Trained};
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
        let why = why(&path, &GraphOptions::default());
        if let Ok(why) = &why {
            // What runs is the same number on the page of the graph.
            let drawn = draw(&path, &GraphOptions::default()).unwrap().report;
            assert_eq!(Some(why.after), drawn.running_nodes, "{name}");
        }
        let page = report.page(why);
        look_at(&page, texts);
        let html = page.render();
        for note in &report.notes {
            let note = frazil::page::escape(note.split('`').next().unwrap()).into_owned();
            assert_eq!(html.matches(&format!("</b> {note}")).count(), 1, "{name}: {note}");
        }
        let small =
            |text: &str| text.contains("e-") || text.contains(" MB") && text.contains("0.0");
        let svg = html.split("<text").skip(1).filter_map(|text| text.split(['>', '<']).nth(1));
        let odd: Vec<&str> = svg.filter(|text| small(text)).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
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

/// Two forms of one model that write down shapes in their own ways, and compute the same.
#[test]
fn verified_in_another_form() {
    let folder = tempfile::tempdir().unwrap();
    let output = Some("bert/pooler/dense/Tanh");
    let graph = GraphOptions {
        head: Some(frazil::bert::Head::Encoder),
        config: Some(demo("bert_config.json")),
        cut: CutSpec::parse(&CutTexts { output, ..CutTexts::default() }).unwrap(),
        ..GraphOptions::default()
    };
    let (source, other) = (demo("bert_model.ckpt"), demo("bert_model.ckpt.meta"));
    for (to, name) in [(Target::Openvino, "any.xml"), (Target::Tf, "any.pb")] {
        let path = folder.path().join(name);
        let options = convert::Options { sizes: Reshape::dynamic(), ..convert::Options::new(to) };
        convert::convert(&other, &path, &options).unwrap();
        let options =
            verify::Options { a: graph.clone(), b: graph.clone(), ..verify::Options::default() };
        let report = verify(&source, &path, &options, &mut |_, _| {}).unwrap();
        assert!(report.equal && report.nodes > 50, "{name}: {report:?}");
        assert!(report.parted.is_none(), "{name}: {:?}", report.parted);
        let far = report.along.iter().find(|node| node.max_abs > 1e-3);
        assert!(far.is_none(), "{name}: {far:?}");
        let page = report.page();
        look_at(&page, &["Equal: every output is within 1e-4."]);
        let html = page.render();
        assert!(!html.contains("Failed:") && !html.contains("They part at"), "{name}");
    }
}

#[test]
fn trained() {
    let scalars = |pairs: &[(&str, f64)]| {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    };
    let point = |step: u64| Point {
        step,
        values: scalars(&[
            ("loss", 8.0 - step as f64 / 10.0),
            ("masked_lm_loss", 7.3),
            ("next_sentence_loss", 0.7),
            ("learning_rate", 1e-4),
            ("global_norm", 1.5),
            ("tokens/sec", 12_345.0),
        ]),
    };
    let evaluation = |step: u64, accuracy| Evaluation {
        step,
        scores: scalars(&[("masked_lm_accuracy", accuracy), ("masked_lm_loss", 7.2)]),
        judged_on: None,
    };
    let history = History {
        points: (1..30).map(point).collect(),
        evaluations: vec![evaluation(10, 0.412), evaluation(20, 0.409)],
    };
    let trained = Trained {
        steps: 29,
        taken: 29,
        stopped: false,
        tokens: 1000,
        seconds: 2.0,
        checkpoint: "model.ckpt-29".into(),
    };
    let page = train::page("Pre-training", &[("seed", "1".into())], &trained, &history);
    look_at(&page, &["<h1>Pre-training</h1>", "Losses of the evaluations", "masked_lm_accuracy"]);
    // From 0.409 to 0.412 is no fall: the axis shows a tenth of what can be.
    let html = page.render();
    let scores = &html[html.find("<figcaption>Scores").unwrap()..];
    let scores = &scores[..scores.find("</svg>").unwrap()];
    for tick in [">0.36</text>", ">0.46</text>"] {
        assert!(scores.contains(tick), "{tick}: {scores}");
    }
    assert!(!html.contains("Loss, loss") && !html.contains(">Loss</text>"));
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
        variants: vec![
            variant("f32", false, 1),
            variant("int8 & two", true, 2),
            variant("a folder/of somebody/with a model/int8.frazil", true, 1),
        ],
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
    let fastest = report.variants.iter().max_by(|a, b| a.speedup.total_cmp(&b.speedup)).unwrap();
    let whose = match fastest.name.as_str() {
        "f32" => "Of <code>f32</code>, the fastest of 3",
        "int8 & two" => "Of <code>int8 &amp; two</code>, the fastest of 3",
        _ => "<wbr/>int8.frazil</code>, the fastest of 3",
    };
    look_at(
        &report.page(),
        &["int8 &amp; two: each of the 2 instances", "Time by kind of step", whose, ">2 × 1</td>"],
    );
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
            &[
                "F1, f32",
                "f32 with padding and without",
                "f32 and int8, both without padding",
                "Places that hold text",
                "F1 and exact match",
                "For your own files",
            ][..],
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
    // What is called learning is to be seen as such.
    let steps = said.lines().filter_map(|line| line.trim().strip_prefix("step "));
    let learnt: Vec<f64> =
        steps.map(|step| step.rsplit_once("f1 ").unwrap().1.parse().unwrap()).collect();
    let (first, last) = (learnt[0], learnt[learnt.len() - 1]);
    assert!(learnt.len() > 2 && last > 35.0 && last > first + 5.0, "{learnt:?}");
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
