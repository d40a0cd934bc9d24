//! From every kind of source to every target: what was written is opened again and computes the
//! same; what cannot be written is refused before there is a file.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::{Path, PathBuf};

use frazil::graph::pass::{Reshape, Size};
use frazil::ops::convert::{Options, Reader, Report, Target, convert};
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::verify;
use frazil::source::GraphOptions;
use frazil_tensor::testing::shared;

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tf1")
}

const TARGETS: [(Target, &str); 6] = [
    (Target::Tf, "model.pb"),
    (Target::SavedModel, "saved_model"),
    (Target::Onnx, "model.onnx"),
    (Target::Openvino, "model.xml"),
    (Target::Huggingface, "huggingface"),
    (Target::Checkpoint, "checkpoint/bert_model.ckpt"),
];

/// Every output of the result, run beside the source, within 2e-5.
fn assert_equal(report: &Report, what: &str) {
    let verification = report.verification.as_ref().unwrap();
    assert!(!verification.outputs.is_empty(), "{what}");
    for output in &verification.outputs {
        assert!(output.max_abs.is_some_and(|max| max <= 2e-5), "{what}: {output:?}");
    }
}

#[test]
fn every_target_from_a_bare_checkpoint() {
    use frazil::bert::Head;
    for head in [Head::Encoder, Head::Pretraining] {
        for (to, name) in TARGETS {
            let folder = tempfile::tempdir().unwrap();
            let mut options = Options { verify: true, ..Options::new(to) };
            options.graph.head = Some(head);
            let output = folder.path().join(name);
            let report = convert(assets().join("bert_model.ckpt"), &output, &options).unwrap();
            assert_equal(&report, &format!("{head} {to:?}"));
            assert!(report.files.iter().all(|file| file.path.is_file() && file.bytes > 0));
        }
    }
}

#[test]
fn every_target_from_graphs() {
    for source in ["bert_model.ckpt.meta", "saved_model"] {
        for (to, name) in TARGETS.into_iter().filter(|(to, _)| *to != Target::Checkpoint) {
            let folder = tempfile::tempdir().unwrap();
            let options = Options { verify: true, ..Options::new(to) };
            let report = convert(assets().join(source), folder.path().join(name), &options);
            // A .meta with two heads leaves open which class of transformers it is to be.
            match (source, to) {
                (_, Target::Huggingface) => continue,
                _ => assert_equal(&report.unwrap(), &format!("{source} {to:?}")),
            }
        }
    }
}

/// From one format to the next and back to TensorFlow: still the same model.
#[test]
fn round_the_formats() {
    let folder = tempfile::tempdir().unwrap();
    let mut source = assets().join("saved_model");
    for (to, name) in
        [(Target::Onnx, "a.onnx"), (Target::Openvino, "b.xml"), (Target::Onnx, "c.onnx")]
    {
        let output = folder.path().join(name);
        let options = Options { verify: true, ..Options::new(to) };
        assert_equal(&convert(&source, &output, &options).unwrap(), name);
        source = output;
    }
    let output = folder.path().join("d.pb");
    convert(&source, &output, &Options::new(Target::Tf)).unwrap();
    let options = verify::Options { tolerance: 2e-5, ..verify::Options::default() };
    let first = assets().join("saved_model");
    let report = verify::verify(&first, &output, &options, &mut |_, _| {}).unwrap();
    assert!(report.equal, "{:?}", report.outputs);
}

#[test]
fn baked_sizes_open_and_close() {
    let folder = tempfile::tempdir().unwrap();
    let sized = |batch, seq| Options {
        sizes: Reshape { batch, seq },
        verify: true,
        ..Options::new(Target::Tf)
    };
    let any = folder.path().join("any.pb");
    let open = sized(Size::Dynamic, Size::Dynamic);
    let report = convert(assets().join("bert_model.ckpt.meta"), &any, &open).unwrap();
    assert_equal(&report, "open");
    assert_eq!(report.inputs[0].shape, "[batch, seq]");
    let fixed = folder.path().join("fixed.pb");
    let report = convert(&any, &fixed, &sized(Size::Known(3), Size::Known(40))).unwrap();
    assert_equal(&report, "fixed");
    assert_eq!(report.inputs[0].shape, "[3, 40]");
}

#[test]
fn migraphx_takes_a_bare_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options {
        reader: Reader::Migraphx,
        sizes: Reshape { batch: Size::Known(1), seq: Size::Known(128) },
        verify: true,
        ..Options::new(Target::Tf)
    };
    options.graph.head = Some(frazil::bert::Head::Encoder);
    let output = folder.path().join("m.pb");
    let report = convert(assets().join("bert_model.ckpt"), &output, &options).unwrap();
    assert_equal(&report, "migraphx");
}

/// Fixture graphs that are not in the demo: training graphs, iterators, other ages.
#[test]
fn real_graphs_convert() {
    let Some(fixtures) = shared("fixtures") else { return };
    for (source, output) in [
        ("classifier/frozen_from_graph_pbtxt.pb", "loss/output"),
        ("classifier/model.ckpt-27.meta", "loss/output"),
        ("meta_tf111/bert_model.ckpt.meta", "bert/pooler/dense/Tanh"),
        ("reshapable/inference_graph.pb", "bert/pooler/dense/Tanh"),
        ("squad/lpot/bert_fp32_google_modeling.pb", "unstack:0,unstack:1"),
        ("squad/lpot/bert_fp32_intel_modeling.pb", "unstack:0,unstack:1"),
    ] {
        for (to, name) in &TARGETS[..4] {
            let folder = tempfile::tempdir().unwrap();
            let texts = CutTexts { output: Some(output), ..CutTexts::default() };
            let cut = CutSpec::parse(&texts).unwrap();
            let options = Options {
                graph: GraphOptions { cut, ..GraphOptions::default() },
                verify: true,
                ..Options::new(*to)
            };
            let report =
                convert(fixtures.join(source), folder.path().join(name), &options).unwrap();
            assert_equal(&report, &format!("{source} {to:?}"));
        }
    }
}

/// A mistake, and what the message must say.
struct Mistake {
    source: &'static str,
    to: Target,
    change: fn(&mut Options),
    says: &'static [&'static str],
}

fn cut(options: &mut Options, input: Option<&str>, output: Option<&str>) {
    options.graph.cut = CutSpec::parse(&CutTexts { input, output, ..CutTexts::default() }).unwrap();
}

const MISTAKES: &[Mistake] = &[
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Onnx,
        change: |o| cut(o, None, Some("bert/pooler/dense/Tahn")),
        says: &["`bert/pooler/dense/Tahn`", "did you mean `bert/pooler/dense/Tanh`"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Onnx,
        change: |o| cut(o, None, Some("bert/pooler/dense/Tanh:3")),
        says: &["there is no `bert/pooler/dense/Tanh:3`", "counted from 0"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Openvino,
        change: |o| {
            cut(o, Some("cls/predictions/LogSoftmax"), Some("bert/pooler/dense/Tanh"));
        },
        says: &["does not depend on `cls/predictions/LogSoftmax`", "--nodes"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Tf,
        change: |o| cut(o, Some("Placeholder{f64}"), Some("bert/pooler/dense/Tanh")),
        says: &["`bert/embeddings/GatherV2`", "whole numbers"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Tf,
        change: |o| cut(o, Some("Placeholder[4 128 3]"), Some("bert/pooler/dense/Tanh")),
        says: &["`Placeholder`", "[4, 128, 3]"],
    },
    Mistake {
        source: "bert_model.ckpt",
        to: Target::Onnx,
        change: |o| {
            o.graph.head = Some(frazil::bert::Head::Encoder);
            o.sizes.seq = Size::Known(129);
        },
        says: &["position_embeddings", "129", "128"],
    },
    Mistake {
        source: "bert_model.ckpt",
        to: Target::Onnx,
        change: |o| o.graph.head = Some(frazil::bert::Head::Squad),
        says: &["`cls/squad/", "frazil inspect"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Onnx,
        change: |o| o.opset = Some(99),
        says: &["99", "13 to 21"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Tf,
        change: |o| o.opset = Some(17),
        says: &["`--opset` has no meaning here"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Tf,
        change: |o| o.reader = Reader::Migraphx,
        says: &["MIGraphX cannot hold", "LogSoftmax"],
    },
    Mistake {
        source: "bert_model.ckpt.meta",
        to: Target::Openvino,
        change: |o| cut(o, None, Some("save/SaveV2")),
        says: &["`save/SaveV2`"],
    },
    Mistake {
        source: "saved_model",
        to: Target::Tf,
        change: |o| o.graph.signature = Some("classify".into()),
        says: &["no signature `classify`", "`serving_default`"],
    },
];

#[test]
fn mistakes_are_named_and_leave_no_file() {
    for mistake in MISTAKES {
        let folder = tempfile::tempdir().unwrap();
        let name = TARGETS.iter().find(|(to, _)| *to == mistake.to).unwrap().1;
        let mut options = Options::new(mistake.to);
        (mistake.change)(&mut options);
        let error = convert(assets().join(mistake.source), folder.path().join(name), &options)
            .expect_err(mistake.says[0]);
        let text = format!("{error} {}", error.hint().unwrap_or_default());
        for says in mistake.says {
            assert!(text.contains(says), "`{says}` is not in: {text}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "{text}");
    }
}
