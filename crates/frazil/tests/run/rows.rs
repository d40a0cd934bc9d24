//! Packed rows: with padding left out, and rows that no output needs, every real position has the
//! value that it has without, and TensorFlow's.

use std::collections::BTreeMap;

use frazil::graph::pass::Report;
use frazil::graph::{Dim, Op, infer};
use frazil::runtime::Run;

use super::*;

/// What packing may change at a position that is no padding.
const NOTHING: f64 = 1e-6;

/// A graph raised, and the same with its rows packed and demanded.
struct Pair {
    raised: Graph,
    packed: Graph,
    report: Report,
}

impl Pair {
    fn new(mut graph: Graph) -> Self {
        pass::fold(&mut graph).unwrap();
        pass::fuse(&mut graph, &Fusions::all()).unwrap();
        let raised = graph.clone();
        let mut report = pass::pack_rows(&mut graph).unwrap();
        graph.check().unwrap();
        infer(&graph).unwrap();
        report.extend(pass::demand_rows(&mut graph).unwrap());
        graph.check().unwrap();
        let names = |graph: &Graph| -> Vec<String> {
            graph.outputs.iter().map(|port| port.name.clone()).collect()
        };
        assert_eq!(names(&graph), names(&raised));
        Self { raised, packed: graph, report }
    }

    /// How many nodes of that kind compute so many rows.
    fn counts(&self) -> BTreeMap<(String, String), usize> {
        let facts = infer(&self.packed).unwrap();
        let mut counts = BTreeMap::new();
        for (id, node) in self.packed.nodes() {
            if let Op::Linear(_) | Op::Attention(_) | Op::LayerNorm(_) | Op::Gelu(_) = node.op
                && let Some(rows) = facts[id.into()].dims.as_deref().and_then(<[Dim]>::first)
            {
                *counts.entry((node.op.to_string(), rows.to_string())).or_default() += 1;
            }
        }
        counts
    }
}

/// Which rows of an output stand for a position that is no padding.
type Real<'a> = &'a dyn Fn(&str, &Tensor, &Tensor) -> Vec<bool>;

/// Outputs are by position, `[b, s, ..]` or `[b*s, ..]`, or one for each sequence.
fn by_position(_: &str, output: &Tensor, mask: &Tensor) -> Vec<bool> {
    let positions = mask.elements();
    match **output.shape() {
        [b, s, ..] if [b, s] == **mask.shape() => {}
        [rows, ..] if rows == positions => {}
        [rows, ..] => return vec![true; rows],
        [] => return vec![true],
    }
    mask.to_f64().unwrap().iter().map(|&m| m != 0.0).collect()
}

/// The largest difference in the rows that are real.
fn difference(found: &Tensor, expected: &Tensor, real: &[bool]) -> f64 {
    assert_eq!(found.elements(), expected.elements());
    assert!(real.iter().any(|&real| real), "something is compared");
    let (found, expected) = (found.to_f64().unwrap(), expected.to_f64().unwrap());
    let width = found.len() / real.len();
    let rows = found.chunks(width).zip(expected.chunks(width)).zip(real);
    let pairs = rows.filter(|(_, real)| **real).flat_map(|((f, e), _)| f.iter().zip(e));
    // Written so that not-a-number counts.
    pairs.map(|(f, e)| (f - e).abs()).fold(0.0, |worst, d| if d <= worst { worst } else { d })
}

fn run(graph: &Graph, fed: &Inputs) -> Run {
    Session::new(graph, Options::default()).unwrap().run(fed).unwrap()
}

/// The mask among what is fed.
fn mask_name(roles: &[role::InputRole]) -> String {
    roles.iter().find(|input| input.role == role::Role::Mask).unwrap().name.clone()
}

/// Runs both graphs on all masks, and the packed one on the given mask against the golden outputs.
fn check_rows(
    graph: Graph,
    inputs: &dyn TensorStore,
    batch: usize,
    golden: &[Tensor],
    masks: &[Vec<i32>],
    real: Real<'_>,
) -> Pair {
    let roles = role::roles(&graph).unwrap();
    let (all, _) = role::assign(&roles, inputs, &Default::default()).unwrap();
    let mask = mask_name(&roles);
    let pair = Pair::new(graph);
    assert!(pair.report.count("pack_rows") > 0, "{:#?}", pair.report);
    let fed: Inputs = all.iter().map(|(name, t)| (name.clone(), window(t, 0, batch))).collect();
    let found = run(&pair.packed, &fed);
    for ((name, found), golden) in found.outputs.iter().zip(golden) {
        let golden = window(golden, 0, golden.shape()[0] * batch / all[&mask].shape()[0]);
        let worst = difference(found, &golden, &real(name, found, &fed[&mask]));
        assert!(worst <= TOLERANCE, "`{name}` is {worst:e} from TensorFlow's");
    }
    for values in masks {
        let mut fed = fed.clone();
        let ragged = Tensor::from_vec(fed[&mask].shape().clone(), values.clone()).unwrap();
        fed.insert(mask.clone(), ragged);
        let (found, expected) = (run(&pair.packed, &fed), run(&pair.raised, &fed));
        for ((name, found), (_, expected)) in found.outputs.iter().zip(&expected.outputs) {
            assert_eq!(found.shape(), expected.shape(), "`{name}`");
            let worst = difference(found, expected, &real(name, found, &fed[&mask]));
            assert!(worst <= NOTHING, "`{name}` is {worst:e} from the value with padding");
        }
    }
    pair
}

/// A mask with sequences of these lengths.
fn of_lengths(lengths: &[usize], s: usize) -> Vec<i32> {
    lengths.iter().flat_map(|&n| (0..s).map(move |j| i32::from(j < n))).collect()
}

/// Sequences with holes, as nobody writes them but everybody may.
fn with_holes(b: usize, s: usize) -> Vec<i32> {
    let real = |at: usize| at.is_multiple_of(s) || !(at * 7 + at / s).is_multiple_of(3);
    (0..b * s).map(|at| i32::from(real(at))).collect()
}

fn counted(pair: &Pair, kind: &str, rows: &str) -> usize {
    pair.counts().get(&(kind.to_owned(), rows.to_owned())).copied().unwrap_or(0)
}

fn numerics(head: Head, outputs: &str) -> Option<(Graph, Npz)> {
    let folder = shared("fixtures/numerics")?;
    let config = shared("fixtures/data/bert_config_small.json")?;
    let options = GraphOptions { config: Some(config), head: Some(head), ..Default::default() };
    let inputs = Npz::open(folder.join("inputs.npz")).unwrap();
    Some((opened(&folder.join("model.ckpt"), None, Some(outputs), options), inputs))
}

fn golden(file: &str, names: &[&str]) -> Vec<Tensor> {
    let folder = shared("fixtures/numerics").unwrap();
    arrays(&Npz::open(folder.join(file)).unwrap(), names)
}

/// Lengths and holes for a batch of three.
fn ragged() -> Vec<Vec<i32>> {
    vec![
        of_lengths(&[1, 17, 48], 48),
        of_lengths(&[48, 48, 48], 48),
        of_lengths(&[7, 2, 7], 48),
        with_holes(3, 48),
    ]
}

#[test]
fn squad_head() {
    let Some((graph, inputs)) = numerics(Head::Squad, "unstack:0,unstack:1") else { return };
    let golden = golden("squad_out.npz", &["start_logits", "end_logits"]);
    let pair = check_rows(graph, &inputs, 3, &golden, &ragged(), &by_position);
    assert_eq!(pair.report.missed, []);
    // Everything between the embeddings and the two logits of a position.
    assert_eq!(counted(&pair, "Attention", "rows"), 2);
    assert_eq!(counted(&pair, "Linear", "rows"), 13);
    assert_eq!(pair.counts().len(), 4, "{:?}", pair.counts());
}

/// The last layer of a classifier has a row for each sequence: only keys and values are whole.
#[test]
fn classifier_head() {
    let outputs = "loss/BiasAdd,loss/Softmax,bert/pooler/dense/Tanh";
    let Some((graph, inputs)) = numerics(Head::Classifier, outputs) else { return };
    let golden = golden("classifier_out.npz", &["logits", "probabilities"]);
    let pair = check_rows(graph, &inputs, 3, &golden, &ragged(), &by_position);
    assert_eq!(pair.report.missed, []);
    let counts = pair.counts();
    let count = |kind: &str, rows: &str| counted(&pair, kind, rows);
    // Layer 0: q, k, v, output, up, down; layer 1: k, v.
    assert_eq!(count("Linear", "rows"), 8, "{counts:?}");
    // Layer 1: q, output, up, down; then the pooler and the logits.
    assert_eq!(count("Linear", "batch"), 6, "{counts:?}");
    assert_eq!((count("Attention", "rows"), count("Attention", "batch")), (1, 1));
    assert_eq!((count("Gelu", "rows"), count("Gelu", "batch")), (1, 1));
    assert_eq!((count("LayerNorm", "rows"), count("LayerNorm", "batch")), (3, 2));
    assert!(!pair.packed.nodes().any(|(_, node)| matches!(node.op, Op::UnpackRows)));
}

/// Predictions are wanted at some positions; those of them that are padding are nobody's.
#[test]
fn pretraining_head() {
    let outputs = [
        ("bert/embeddings/LayerNorm/batchnorm/add_1", "embedding_output"),
        ("bert/encoder/layer_0/attention/self/query/BiasAdd", "l0_query"),
        ("bert/encoder/layer_0/attention/self/Reshape_3", "l0_context"),
        ("bert/encoder/layer_0/intermediate/dense/mul_3", "l0_gelu"),
        ("bert/encoder/layer_0/output/LayerNorm/batchnorm/add_1", "layer_0"),
        ("bert/encoder/layer_1/output/LayerNorm/batchnorm/add_1", "layer_1"),
        ("bert/pooler/dense/Tanh", "pooled_output"),
        ("cls/predictions/BiasAdd", "mlm_logits"),
        ("cls/predictions/LogSoftmax", "masked_lm_log_probs"),
        ("cls/seq_relationship/LogSoftmax", "next_sentence_log_probs"),
    ];
    let ends = outputs.map(|(name, _)| name);
    let Some((graph, inputs)) = numerics(Head::Pretraining, &ends.join(",")) else { return };
    let golden = golden("pretrain_out.npz", &outputs.map(|(_, name)| name));
    let wanted = inputs.tensor("masked_lm_positions").unwrap().to_f64().unwrap();
    let real = |name: &str, output: &Tensor, mask: &Tensor| {
        if !name.starts_with("cls/predictions") {
            return by_position(name, output, mask);
        }
        let (mask, s) = (mask.to_f64().unwrap(), mask.shape()[1]);
        let per_sequence = wanted.len() / (mask.len() / s);
        let real = |(i, &at): (usize, &f64)| mask[i / per_sequence * s + at as usize] != 0.0;
        wanted.iter().enumerate().map(real).collect()
    };
    let pair = check_rows(graph, &inputs, 3, &golden, &ragged(), &real);
    // All rows of the last layer are wanted, for the predictions.
    assert_eq!(counted(&pair, "Attention", "rows"), 2);
    assert_eq!(pair.report.count("demand_rows"), 0);
}

/// Batch and length are numbers in these graphs.
#[test]
fn baked_graphs() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let io = Npz::open(folder.join("test_set_io.npz")).unwrap();
    let model = std::fs::read_dir(folder.join("saved_models")).unwrap().next().unwrap().unwrap();
    let saved = opened(&model.path(), None, None, GraphOptions::default());
    let golden = arrays(&io, &["probabilities_saved_model"]);
    let masks = [of_lengths(&[5], 128), of_lengths(&[128], 128), with_holes(1, 128)];
    let pair = check_rows(saved, &io, 1, &golden, &masks, &by_position);
    assert_eq!(pair.report.missed, []);
    assert_eq!(counted(&pair, "Linear", "rows"), 8);
    assert_eq!(counted(&pair, "Linear", "1"), 6);
    let outputs = "loss/output,loss/BiasAdd,bert/pooler/dense/Tanh";
    let golden = arrays(&io, &["probabilities_frozen", "logits_frozen", "pooled_frozen"]);
    let frozen = cut(&folder.join("frozen_from_graph_pbtxt.pb"), None, outputs);
    let masks = [of_lengths(&[128, 1, 2, 33, 64, 5, 127, 9], 128)];
    let pair = check_rows(frozen, &io, 8, &golden, &masks, &by_position);
    assert_eq!((counted(&pair, "Linear", "rows"), counted(&pair, "Linear", "8")), (8, 6));
}

/// Six layers of real weights, at their own length and at a short one.
#[test]
fn real_weights() {
    let Some(folder) = shared("models/squad") else { return };
    let io = Npz::open(folder.join("golden/first64_io.npz")).unwrap();
    let first = |name: &str| window(&io.tensor(name).unwrap(), 0, 2);
    let features = Features::new(BERT.map(str::to_owned).to_vec(), BERT.map(first).to_vec());
    let golden = ["start_logits", "end_logits"].map(first);
    let options = GraphOptions { head: Some(Head::Squad), ..GraphOptions::default() };
    let graph = opened(&folder.join("model.ckpt-2232"), None, None, options);
    check_rows(graph.clone(), &features, 2, &golden, &[], &by_position);
    let short = |name: &str| {
        let all = first(name);
        let values = all.values::<i32>().unwrap();
        let cut: Vec<i32> = values.chunks(384).flat_map(|row| row[..40].to_vec()).collect();
        Tensor::from_vec([2, 40], cut).unwrap()
    };
    let features = Features::new(BERT.map(str::to_owned).to_vec(), BERT.map(short).to_vec());
    let masks = [of_lengths(&[40, 11], 40), with_holes(2, 40)];
    let pair = check_rows(graph, &features, 2, &[], &masks, &by_position);
    assert_eq!(pair.report.missed, []);
    assert_eq!(counted(&pair, "Attention", "rows"), 6);
}

/// A sequence that is all padding, or whose first position is, is refused by its number.
#[test]
fn empty_sequences_are_refused() {
    let Some((graph, inputs)) = numerics(Head::Classifier, "loss/Softmax") else { return };
    let roles = role::roles(&graph).unwrap();
    let (mut fed, _) = role::assign(&roles, &inputs, &Default::default()).unwrap();
    let mask = mask_name(&roles);
    let session = Session::new(&Pair::new(graph).packed, Options::default()).unwrap();
    let mut hidden = of_lengths(&[48, 48, 48], 48);
    hidden[48] = 0;
    for (values, expected) in [
        (of_lengths(&[4, 48, 0], 48), "sequence 2 is empty: its mask has no 1"),
        (hidden, "sequence 1 is masked at position 0, which an output is computed from"),
    ] {
        fed.insert(mask.clone(), Tensor::from_vec([3, 48], values).unwrap());
        let error = session.run(&fed).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    }
}

/// `frazil inspect --why` tells of both.
#[test]
fn inspect_tells() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let path = folder.join("frozen_from_saved_model.pb");
    let told = |output: &str| {
        let texts = CutTexts { output: Some(output), ..CutTexts::default() };
        let cut = CutSpec::parse(&texts).unwrap();
        let options = GraphOptions { cut, ..GraphOptions::default() };
        frazil::ops::inspect::why(&path, &options).unwrap()
    };
    let why = told("loss/output");
    let did = |rule: &str| why.raised.iter().filter(|note| note.rule == rule).count();
    assert!(did("pack_rows") >= 1 && did("demand_rows") >= 10, "{:?}", why.raised);
    assert!(why.missed.is_empty(), "{:?}", why.missed);
    let why = told("loss/output,bert/encoder/Reshape_3");
    let missed: Vec<String> =
        why.missed.iter().map(|note| format!("{}: {}", note.rule, note.text)).collect();
    let expected = "more than its first rows is read, by output `bert/encoder/Reshape_3`";
    assert_eq!(missed, [format!("demand_rows: {expected}")]);
}
