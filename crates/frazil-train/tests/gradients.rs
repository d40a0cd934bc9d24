//! The gradients of whole models against TensorFlow 1.15's, for every weight: the original graph,
//! the same raised, and over packed rows; and as the engine computes them.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use frazil_bert::build::{self, build};
use frazil_bert::{BertConfig, Head};
use frazil_graph::{Graph, NodeId, Op, Port, Value, pass};
use frazil_kernels::Isa;
use frazil_runtime::{Engine, EngineOptions, Inputs, Options, Parameters, Session, raise};
use frazil_tensor::npy::Npz;
use frazil_tensor::testing::shared;
use frazil_tensor::{Shape, Tensor, TensorStore};
use frazil_train::{gradients, loss};

/// The largest difference of a gradient, relative to its largest number.
const TOLERANCE: f64 = 1e-4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Operation for operation as the original has it.
    Original,
    Raised,
    Packed,
}

/// The graph of a head with its loss, and under `d/NAME` the gradient of each weight.
fn model(head: Head, options: loss::Options, form: Form) -> Graph {
    let config = shared("fixtures/data/bert_config_small.json").unwrap();
    let config = BertConfig::read(&config).unwrap();
    let of_head = build::Options { labels: 3, ..build::Options::default() };
    let mut graph = build(&config, head, &of_head).unwrap();
    loss::attach(&mut graph, head, options).unwrap();
    if form != Form::Original {
        raise(&mut graph, form == Form::Packed).unwrap();
        let kinds = |kind: &str| graph.nodes().filter(|(_, n)| n.op.to_string() == kind).count();
        assert_eq!((kinds("Attention"), kinds("LayerNorm") >= 5, kinds("Embed")), (2, true, 1));
        assert_eq!(kinds("PackRows"), usize::from(form == Form::Packed));
    }
    let variables: Vec<NodeId> =
        graph.ids().filter(|&id| matches!(graph.node(id).op, Op::Variable(_))).collect();
    let names: Vec<String> = variables.iter().map(|&id| graph.node(id).name.clone()).collect();
    let wrt: Vec<Value> = variables.into_iter().map(Value::from).collect();
    let total = graph.outputs[0].value;
    let grads = gradients(&mut graph, total, &wrt).unwrap();
    let ports =
        names.iter().zip(grads).map(|(name, value)| Port { name: format!("d/{name}"), value });
    graph.outputs.extend(ports);
    graph
}

/// The outputs of a model with the weights and inputs of the fixtures.
fn run(graph: Graph, folder: &Path) -> Vec<(String, Tensor)> {
    run_with(graph, folder, |_| {})
}

/// The same with other inputs.
fn run_with(
    mut graph: Graph,
    folder: &Path,
    change: impl FnOnce(&mut Inputs),
) -> Vec<(String, Tensor)> {
    let weights = Npz::open(folder.join("weights.npz")).unwrap();
    pass::freeze(&mut graph, &weights).unwrap();
    let all = Npz::open(folder.join("inputs.npz")).unwrap();
    let mut inputs: Inputs = graph
        .inputs
        .iter()
        .map(|port| (port.name.clone(), all.tensor(&port.name).unwrap()))
        .collect();
    change(&mut inputs);
    let session = Session::new(&graph, Options::default()).unwrap();
    session.run(&inputs).unwrap().outputs
}

/// What is 0 but for rounding, and by whose numbers it is measured: a softmax does not see what is added
/// to all of its inputs. So the bias of keys does not matter, nor what comes to all of SQuAD's logits:
/// their own bias, and that of the last norm.
const ZEROS: [(&str, &str); 3] = [
    ("attention/self/key/bias", "attention/self/key/kernel"),
    ("cls/squad/output_bias", "cls/squad/output_weights"),
    ("layer_1/output/LayerNorm/beta", "layer_1/output/LayerNorm/gamma"),
];

fn measured_by(name: &str, head: Head) -> String {
    let applies =
        |zero: &str| name.ends_with(zero) && (zero.contains("key") || head == Head::Squad);
    match ZEROS.into_iter().find(|(zero, _)| applies(zero)) {
        Some((zero, other)) => name.replace(zero, other),
        None => name.to_owned(),
    }
}

/// Panics with what is furthest off, if that is too far.
fn compare(what: &str, head: Head, found: &[(String, Tensor)], golden: &[(String, Tensor)]) {
    let numbers = |all: &[(String, Tensor)], name: &str| {
        let (_, tensor) = all.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("{name}"));
        (tensor.shape().clone(), tensor.to_f64().unwrap())
    };
    let mut worst = (0.0, "");
    for (name, _) in golden {
        let (found, expected) = (numbers(found, name), numbers(golden, name));
        assert_eq!(found.0, expected.0, "{what}: {name}");
        let (_, measure) = numbers(golden, &measured_by(name, head));
        let largest = measure.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        let off = found.1.iter().zip(&expected.1).map(|(f, g)| (f - g).abs()).fold(0.0, f64::max);
        let distance = if largest == 0.0 { off } else { off / largest };
        if distance > worst.0 || distance.is_nan() {
            worst = (distance, name);
        }
    }
    assert!(worst.0 <= TOLERANCE, "{what}: {} is off by {:.2e}", worst.1, worst.0);
}

fn against_tensorflow(head: Head, file: &str, losses: &[(&str, &str)]) {
    let Some(folder) = shared("fixtures/numerics") else { return };
    let golden = |file: String| Npz::open(folder.join(file)).unwrap();
    let (grads, out) = (golden(format!("{file}_grads.npz")), golden(format!("{file}_out.npz")));
    let mut expected: Vec<(String, Tensor)> =
        losses.iter().map(|(ours, its)| ((*ours).into(), out.tensor(its).unwrap())).collect();
    for info in grads.infos() {
        expected.push((format!("d/{}", info.name), grads.tensor(&info.name).unwrap()));
    }
    // The original counts padding in for answers: there is nothing to leave out.
    let forms = match head {
        Head::Squad => &[Form::Original, Form::Raised][..],
        _ => &[Form::Original, Form::Raised, Form::Packed],
    };
    for &form in forms {
        let graph = || model(head, loss::Options { padding: true, outputs: false }, form);
        let found = run(graph(), &folder);
        assert_eq!(found.len(), expected.len(), "{form:?}: a gradient for each weight");
        compare(&format!("{head} {form:?}"), head, &found, &expected);
        if form == Form::Original {
            continue;
        }
        for isa in Isa::available() {
            let found = run_fast(graph(), &folder, isa);
            compare(&format!("{head} {form:?} {isa}"), head, &found, &expected);
        }
    }
}

/// The same outputs as every training computes them.
fn run_fast(graph: Graph, folder: &Path, isa: Isa) -> Vec<(String, Tensor)> {
    let options = EngineOptions { threads: Some(2), isa: Some(isa), ..EngineOptions::default() };
    let engine = Engine::for_training(graph, &options).unwrap();
    assert_eq!(engine.slow(), [], "everything has a fast kernel");
    let weights = Npz::open(folder.join("weights.npz")).unwrap();
    let parameters = Parameters::read(engine.graph(), &weights).unwrap();
    let all = Npz::open(folder.join("inputs.npz")).unwrap();
    let input = |port: &Port| (port.name.clone(), all.tensor(&port.name).unwrap());
    let inputs: Inputs = engine.graph().inputs.iter().map(input).collect();
    let shape = |name: &str| {
        let weight = name.strip_prefix("d/");
        weight.map_or(Shape::from([]), |weight| weights.info(weight).unwrap().shape.clone())
    };
    let mut worker = engine.worker();
    let outputs = worker.run_with(&inputs, &parameters).unwrap();
    let names: Vec<String> = outputs.names().map(str::to_owned).collect();
    let tensor = |(at, name): (usize, &String)| {
        let numbers = outputs.numbers(at).unwrap().into_owned();
        (name.clone(), Tensor::from_vec(shape(name), numbers).unwrap())
    };
    names.iter().enumerate().map(tensor).collect()
}

#[test]
fn pretraining() {
    let losses = [
        ("loss", "total_loss"),
        ("masked_lm_loss", "masked_lm_loss"),
        ("next_sentence_loss", "next_sentence_loss"),
    ];
    against_tensorflow(Head::Pretraining, "pretrain", &losses);
}

#[test]
fn classifier() {
    against_tensorflow(Head::Classifier, "classifier", &[("loss", "loss")]);
}

#[test]
fn squad() {
    against_tensorflow(Head::Squad, "squad", &[("loss", "loss")]);
}

/// Without padding among the answers, packed rows give what the original graph does. The fixtures'
/// answers may lie in the padding: here they are in the text.
#[test]
fn squad_without_padding() {
    let Some(folder) = shared("fixtures/numerics") else { return };
    let within = |inputs: &mut Inputs| {
        let mask = inputs["input_mask"].to_f64().unwrap();
        for name in ["start_positions", "end_positions"] {
            let places = inputs[name].to_f64().unwrap();
            let rows = mask.chunks(mask.len() / places.len()).zip(&places);
            let place = |(row, place): (&[f64], &f64)| place.min(row.iter().sum::<f64>() - 1.0);
            let places: Vec<i32> = rows.map(|row| place(row) as i32).collect();
            let tensor = Tensor::from_vec([places.len()], places).unwrap();
            inputs.insert(name.to_owned(), tensor);
        }
    };
    let of =
        |form: Form| run_with(model(Head::Squad, loss::Options::default(), form), &folder, within);
    compare("packed", Head::Squad, &of(Form::Packed), &of(Form::Original));
}
