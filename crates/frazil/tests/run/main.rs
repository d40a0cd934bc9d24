//! The models that TensorFlow 1.15 wrote, run by frazil: every output within 2e-5 of TensorFlow's,
//! as they are, folded, and with everything fused.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::Read;
use std::path::Path;

use frazil::bert::Head;
use frazil::graph::pass::{self, Fusions};
use frazil::graph::{Graph, Port, Value};
use frazil::kernels::Isa;
use frazil::ops::cut_spec::{CutSpec, CutTexts};
use frazil::ops::role;
use frazil::runtime::{Engine, EngineOptions, Inputs, Options, Session};
use frazil::source::{GraphOptions, open_graph};
use frazil::tensor::npy::Npz;
use frazil::tensor::testing::shared;
use frazil::tensor::{Tensor, TensorStore};
use frazil::tf::example::Example;
use frazil::tf::tfrecord::Records;

mod rows;
mod verify;

/// Largest difference to TensorFlow's output that counts as equal.
const TOLERANCE: f64 = 2e-5;

/// BERT's three inputs.
const BERT: [&str; 3] = ["input_ids", "input_mask", "segment_ids"];

fn opened(path: &Path, input: Option<&str>, output: Option<&str>, more: GraphOptions) -> Graph {
    let cut = CutSpec::parse(&CutTexts { input, output, ..CutTexts::default() }).unwrap();
    open_graph(path, &GraphOptions { cut, ..more }).unwrap().graph
}

fn cut(path: &Path, input: Option<&str>, output: &str) -> Graph {
    opened(path, input, Some(output), GraphOptions::default())
}

/// Runs `graph` as it is, folded and fused on `rows` examples at a time, and compares all outputs
/// with the golden ones. The fusions named must have fired as often as said.
fn check(
    mut graph: Graph,
    inputs: &dyn TensorStore,
    rows: usize,
    golden: &[Tensor],
    fused: &[(&str, usize)],
) {
    // Inputs by what they are used for, while the graph is still as TensorFlow wrote it.
    let roles = role::roles(&graph).unwrap();
    let (fed, _) = role::assign(&roles, inputs, &Default::default()).unwrap();
    compare(&graph, &fed, rows, golden, "as it is");
    compare_fast(&graph, &roles, &fed, rows, golden);
    pass::fold(&mut graph).unwrap();
    graph.check().unwrap();
    compare(&graph, &fed, rows, golden, "folded");
    let report = pass::fuse(&mut graph, &Fusions::all()).unwrap();
    graph.check().unwrap();
    let missed: Vec<String> = report.missed.iter().map(ToString::to_string).collect();
    for (rule, count) in fused {
        assert_eq!(report.count(rule), *count, "{rule}: {missed:#?}");
    }
    compare(&graph, &fed, rows, golden, "fused");
}

fn compare(graph: &Graph, fed: &Inputs, rows: usize, golden: &[Tensor], how: &str) {
    let session = Session::new(graph, Options::default()).unwrap();
    let run = |batch: &Inputs| session.run(batch).unwrap().outputs;
    compare_run(graph, fed, rows, golden, how, &run, &|_, _, _| true);
}

/// The engine on every instruction set of this machine: padding computed, and dropped. What it
/// gives at padding positions is then of no interest.
fn compare_fast(
    graph: &Graph,
    roles: &[role::InputRole],
    fed: &Inputs,
    rows: usize,
    golden: &[Tensor],
) {
    let mask = roles.iter().find(|input| input.role == role::Role::Mask);
    let mask = mask.map(|input| (fed[&input.name].shape()[1], fed[&input.name].to_f64().unwrap()));
    // A real model by plain loops takes a minute.
    let large = graph.nodes().count() > 1000;
    for isa in Isa::available().filter(|&isa| isa != Isa::Scalar || !large) {
        for packed in [false, true] {
            let options =
                EngineOptions { isa: Some(isa), threads: Some(2), packed, ..Default::default() };
            let engine = Engine::new(graph, &options).unwrap();
            let run = |batch: &Inputs| engine.run(batch).unwrap().outputs;
            let counts = |port: &Port, shape: &[usize], at: usize| -> bool {
                let Some((s, mask)) = mask.as_ref().filter(|_| packed) else { return true };
                // The words to predict were drawn without a look at the mask.
                if port.name.starts_with("cls/predictions") {
                    return false;
                }
                let real = |sequence: usize, position: usize| mask[sequence * s + position] != 0.0;
                match *shape {
                    [b, n, queries, keys] if queries == *s && keys == *s => {
                        let sequence = at / (n * s * s);
                        assert!(sequence < b);
                        real(sequence, at / s % s) && real(sequence, at % s)
                    }
                    [rows, width] if rows == mask.len() => mask[at / width] != 0.0,
                    [_, positions] if positions == *s => mask[at] != 0.0,
                    [_, positions, width] if positions == *s => mask[at / width] != 0.0,
                    _ => true,
                }
            };
            let how = format!("engine, {isa}, {}", if packed { "packed" } else { "padded" });
            compare_run(graph, fed, rows, golden, &how, &run, &counts);
        }
    }
}

#[allow(clippy::type_complexity, reason = "said once")]
fn compare_run(
    graph: &Graph,
    fed: &Inputs,
    rows: usize,
    golden: &[Tensor],
    how: &str,
    run: &dyn Fn(&Inputs) -> Vec<(String, Tensor)>,
    counts: &dyn Fn(&Port, &[usize], usize) -> bool,
) {
    let total = fed.values().next().unwrap().shape()[0];
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); golden.len()];
    for begin in (0..total).step_by(rows) {
        // The last batch is filled up with its first example, as Estimator does on TPUs.
        let batch = fed.iter().map(|(name, t)| (name.clone(), window(t, begin, rows))).collect();
        let kept = rows.min(total - begin);
        for (found, (_, output)) in found.iter_mut().zip(&run(&batch)) {
            let values = output.to_f64().unwrap();
            found.extend_from_slice(&values[..values.len() / rows * kept]);
        }
    }
    let mut wrong = Vec::new();
    for ((found, golden), port) in found.iter().zip(golden).zip(&graph.outputs) {
        let expected = golden.to_f64().unwrap();
        assert_eq!(found.len(), expected.len(), "{how}: `{}`", port.name);
        // Masked scores are about -10000, where one unit in the last place is 1e-3.
        let excess = |(f, e): (&f64, &f64)| (f - e).abs() - TOLERANCE.max(2.4e-7 * e.abs());
        // Written so that not-a-number counts.
        let counted = found.iter().zip(&expected).enumerate();
        let counted = counted.filter(|(at, _)| counts(port, golden.shape(), *at));
        let counted = counted.map(|(_, pair)| pair);
        let worst = counted.map(excess);
        let worst = worst.fold(-1.0, |worst, x| if x <= worst { worst } else { x });
        if worst > 0.0 || worst.is_nan() {
            wrong.push(format!("`{}` is beyond by {worst:e}", port.name));
        }
    }
    assert!(wrong.is_empty(), "{how}: {wrong:#?}");
}

/// `count` entries of the outermost axis from `begin` on; past the end, `begin` again.
fn window(tensor: &Tensor, begin: usize, count: usize) -> Tensor {
    let mut dims = tensor.shape().to_vec();
    let row = tensor.byte_len() / dims[0];
    let bytes = tensor.bytes().unwrap();
    let rows = (begin..begin + count).map(|i| if i < dims[0] { i } else { begin });
    let picked: Vec<u8> = rows.flat_map(|i| bytes[i * row..][..row].to_vec()).collect();
    dims[0] = count;
    Tensor::new(tensor.dtype(), dims, picked).unwrap()
}

fn arrays(npz: &Npz, names: &[&str]) -> Vec<Tensor> {
    names.iter().map(|name| npz.tensor(name).unwrap()).collect()
}

/// A two-layer BERT: norms, activations, attentions.
const TWO_LAYERS: [(&str, usize); 3] = [("layer_norm", 5), ("gelu", 2), ("attention", 2)];

#[test]
fn frozen_classifier() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let io = Npz::open(folder.join("test_set_io.npz")).unwrap();
    let outputs = "loss/output,loss/BiasAdd,bert/pooler/dense/Tanh";
    let golden = arrays(&io, &["probabilities_frozen", "logits_frozen", "pooled_frozen"]);
    let graph = cut(&folder.join("frozen_from_saved_model.pb"), None, outputs);
    check(graph, &io, 1, &golden, &TWO_LAYERS);
    // The training graph of the same weights: dropout taken out, fed behind the iterator.
    let graph = cut(&folder.join("frozen_from_graph_pbtxt.pb"), None, outputs);
    check(graph, &io, 8, &golden, &TWO_LAYERS);
}

#[test]
fn classifier_saved_model() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let io = Npz::open(folder.join("test_set_io.npz")).unwrap();
    let golden = arrays(&io, &["probabilities_saved_model"]);
    let model = std::fs::read_dir(folder.join("saved_models")).unwrap().next().unwrap().unwrap();
    let graph = opened(&model.path(), None, None, GraphOptions::default());
    check(graph, &io, 1, &golden, &TWO_LAYERS);
}

#[test]
fn classifier_from_the_bare_checkpoint() {
    let Some(folder) = shared("fixtures/classifier") else { return };
    let io = Npz::open(folder.join("test_set_io.npz")).unwrap();
    let Some(config) = shared("fixtures/data/bert_config_small.json") else { return };
    let golden = arrays(&io, &["probabilities_frozen", "logits_frozen", "pooled_frozen"]);
    let options = GraphOptions {
        config: Some(config),
        head: Some(Head::Classifier),
        ..GraphOptions::default()
    };
    let outputs = "loss/Softmax,loss/BiasAdd,bert/pooler/dense/Tanh";
    for rows in [17, 5] {
        let path = folder.join("model.ckpt-27");
        let graph = opened(&path, None, Some(outputs), options.clone());
        check(graph, &io, rows, &golden, &TWO_LAYERS);
    }
}

#[test]
fn meta_graphs() {
    for (folder, name, rows) in [
        ("fixtures/meta", "bert_model.ckpt", 4),
        ("fixtures/meta", "bert_model_dyn.ckpt", 3),
        ("fixtures/meta", "bert_model_dyn.ckpt", 1),
        ("fixtures/meta_tf111", "bert_model.ckpt", 4),
    ] {
        let Some(folder) = shared(folder) else { return };
        let io = Npz::open(folder.join(format!("{name}.io.npz"))).unwrap();
        let golden = arrays(&io, &["pooled", "sequence_output"]);
        let outputs = Some("bert/pooler/dense/Tanh,bert/encoder/Reshape_3");
        let options = GraphOptions {
            checkpoint: Some(folder.join("bert_model.ckpt")),
            ..GraphOptions::default()
        };
        let graph = opened(&folder.join(format!("{name}.meta")), None, outputs, options);
        check(graph, &io, rows, &golden, &TWO_LAYERS);
    }
}

#[test]
fn reshapable_graph_at_three_batch_sizes() {
    let Some(folder) = shared("fixtures/reshapable") else { return };
    let io = Npz::open(folder.join("io.npz")).unwrap();
    let input = Some("IteratorGetNext:0,IteratorGetNext:1,IteratorGetNext:4");
    let graph = cut(&folder.join("inference_graph.pb"), input, "bert/pooler/dense/Tanh");
    let golden = arrays(&io, &["pooled_b5"]);
    for rows in [1, 3, 5] {
        check(graph.clone(), &io, rows, &golden, &TWO_LAYERS);
    }
}

/// The features of an `eval.tf_record`, as arrays.
struct Features {
    infos: Vec<frazil::tensor::TensorInfo>,
    tensors: Vec<Tensor>,
}

impl Features {
    fn read(path: &Path) -> Self {
        let mut columns: [Vec<i32>; 3] = Default::default();
        let mut count = 0;
        for record in Records::map(path).unwrap() {
            let example = Example::decode(record.unwrap()).unwrap();
            for (column, name) in columns.iter_mut().zip(BERT) {
                column.extend(example.int64s(name).unwrap().iter().map(|&id| id as i32));
            }
            count += 1;
        }
        let width = columns[0].len() / count;
        let tensors = columns.map(|column| Tensor::from_vec([count, width], column).unwrap());
        Self::new(BERT.map(str::to_owned).to_vec(), tensors.to_vec())
    }

    fn new(names: Vec<String>, tensors: Vec<Tensor>) -> Self {
        let info = |(name, tensor): (String, &Tensor)| frazil::tensor::TensorInfo {
            name,
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
        };
        Self { infos: names.into_iter().zip(&tensors).map(info).collect(), tensors }
    }
}

impl TensorStore for Features {
    fn infos(&self) -> &[frazil::tensor::TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, frazil::tensor::StoreError> {
        let at = self.infos.iter().position(|info| info.name == name);
        Ok(self.tensors[at.ok_or("no such feature")?].clone())
    }
}

#[test]
fn squad() {
    let Some(folder) = shared("fixtures/squad") else { return };
    let features = Features::read(&folder.join("v1.1/eval.tf_record"));
    for (name, outputs) in [
        ("bert_fp32_google_modeling.pb", "outputs_google.npz"),
        ("bert_fp32_intel_modeling.pb", "outputs_intel.npz"),
    ] {
        let io = Npz::open(folder.join("lpot").join(outputs)).unwrap();
        let golden = arrays(&io, &["start_logits", "end_logits"]);
        let graph = cut(&folder.join("lpot").join(name), None, "unstack:0,unstack:1");
        check(graph, &features, 37, &golden, &TWO_LAYERS);
    }
    // From the checkpoint alone.
    let io = Npz::open(folder.join("v1.1/raw_logits.npz")).unwrap();
    let golden = arrays(&io, &["start_logits", "end_logits"]);
    let checkpoint = std::fs::read_dir(folder.join("v1.1")).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".index").map(str::to_owned)
    });
    let options = GraphOptions {
        config: shared("fixtures/data/bert_config_small.json"),
        head: Some(Head::Squad),
        ..GraphOptions::default()
    };
    let path = folder.join("v1.1").join(checkpoint.unwrap());
    let graph = opened(&path, None, Some("unstack:0,unstack:1"), options);
    check(graph, &features, 37, &golden, &TWO_LAYERS);
    // The training graph beside it: dropout taken out, fed behind the iterator.
    let unpacked = tempfile::tempdir().unwrap();
    let meta = unpacked.path().join("model.ckpt.meta");
    let packed = std::fs::File::open(path.with_extension("ckpt-65.meta.gz")).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
    std::fs::write(&meta, bytes).unwrap();
    let options = GraphOptions { checkpoint: Some(path), ..GraphOptions::default() };
    let graph = opened(&meta, None, Some("unstack:0,unstack:1"), options);
    check(graph, &features, 4, &golden, &TWO_LAYERS);
}

/// What Intel's LPOT 1.3 made of that model, run by Intel's TensorFlow: eight-bit products.
///
/// A number that lies between two steps may be rounded to the other one than there, since all that
/// comes before is summed in another order; then what follows differs by that step. So almost all
/// logits are equal (fewer where fusing changes the order once more), and the others are near.
#[test]
fn quantized_squad() {
    let Some(folder) = shared("fixtures/squad") else { return };
    let features = Features::read(&folder.join("v1.1/eval.tf_record"));
    let io = Npz::open(folder.join("lpot/outputs_int8.npz")).unwrap();
    let golden = arrays(&io, &["start_logits", "end_logits"]);
    let path = folder.join("lpot/bert_int8_lpot1.3.pb");
    let mut graph = cut(&path, None, "unstack:0,unstack:1");
    let roles = role::roles(&graph).unwrap();
    let (fed, _) = role::assign(&roles, &features, &Default::default()).unwrap();
    let cases = [("as it is", 99, 1e-2), ("folded and fused", 90, 5e-2)];
    for (how, percent, step) in cases {
        let session = Session::new(&graph, Options::default()).unwrap();
        let run = session.run(&fed).unwrap();
        for ((name, found), golden) in run.outputs.iter().zip(&golden) {
            let (found, golden) = (found.to_f64().unwrap(), golden.to_f64().unwrap());
            assert_eq!(found.len(), golden.len());
            let off: Vec<f64> = found.iter().zip(&golden).map(|(f, g)| (f - g).abs()).collect();
            let most = off.iter().fold(0.0, |most: f64, &off| if off <= most { most } else { off });
            let equal = off.iter().filter(|&&off| off <= TOLERANCE).count();
            assert!(most <= step, "{how}: `{name}` is off by {most:e}");
            let wanted = off.len() * percent / 100;
            assert!(equal >= wanted, "{how}: {equal} of {} are equal", off.len());
        }
        pass::fold(&mut graph).unwrap();
        let report = pass::fuse(&mut graph, &Fusions::all()).unwrap();
        graph.check().unwrap();
        if how == "as it is" {
            for (rule, count) in TWO_LAYERS {
                assert_eq!(report.count(rule), count, "{rule}");
            }
        }
    }
}

/// Six layers of real weights, which TensorFlow ran at length 384.
#[test]
fn a_real_model() {
    let Some(folder) = shared("models/squad") else { return };
    let io = Npz::open(folder.join("golden/first64_io.npz")).unwrap();
    let first = |name: &str| window(&io.tensor(name).unwrap(), 0, 2);
    let names = BERT.map(str::to_owned).to_vec();
    let features = Features::new(names, BERT.map(first).to_vec());
    let golden = ["start_logits", "end_logits"].map(first);
    let options = GraphOptions { head: Some(Head::Squad), ..GraphOptions::default() };
    let graph = opened(&folder.join("model.ckpt-2232"), None, None, options);
    let fused = [("layer_norm", 13), ("gelu", 6), ("attention", 6)];
    check(graph, &features, 2, &golden, &fused);
}

/// Random weights large enough that every parameter matters, and inner values of every kind.
#[test]
fn numerics_of_every_hidden_state() {
    let Some(folder) = shared("fixtures/numerics") else { return };
    let Some(config) = shared("fixtures/data/bert_config_small.json") else { return };
    let inputs = Npz::open(folder.join("inputs.npz")).unwrap();
    let layer = "bert/encoder/layer_0";
    let of_layer = |name: &str| format!("{layer}/{name}");
    type Case<'a> = (Head, &'a str, Vec<(String, &'a str)>);
    let cases: [Case<'_>; 3] = [
        (
            Head::Pretraining,
            "pretrain_out.npz",
            vec![
                ("bert/embeddings/LayerNorm/batchnorm/add_1".into(), "embedding_output"),
                (of_layer("attention/self/query/BiasAdd"), "l0_query"),
                (of_layer("attention/self/Mul"), "l0_scores_scaled"),
                (of_layer("attention/self/add"), "l0_scores_masked"),
                (of_layer("attention/self/Softmax"), "l0_probs"),
                (of_layer("attention/self/Reshape_3"), "l0_context"),
                (of_layer("attention/output/LayerNorm/batchnorm/add_1"), "l0_attention_output"),
                (of_layer("intermediate/dense/mul_3"), "l0_gelu"),
                (of_layer("output/LayerNorm/batchnorm/add_1"), "layer_0"),
                ("bert/encoder/layer_1/output/LayerNorm/batchnorm/add_1".into(), "layer_1"),
                ("bert/pooler/dense/Tanh".into(), "pooled_output"),
                ("cls/predictions/transform/LayerNorm/batchnorm/add_1".into(), "mlm_transform"),
                ("cls/predictions/BiasAdd".into(), "mlm_logits"),
                ("cls/predictions/LogSoftmax".into(), "masked_lm_log_probs"),
                ("cls/seq_relationship/BiasAdd".into(), "nsp_logits"),
                ("cls/seq_relationship/LogSoftmax".into(), "next_sentence_log_probs"),
            ],
        ),
        (
            Head::Classifier,
            "classifier_out.npz",
            vec![("loss/BiasAdd".into(), "logits"), ("loss/Softmax".into(), "probabilities")],
        ),
        (
            Head::Squad,
            "squad_out.npz",
            vec![("unstack:0".into(), "start_logits"), ("unstack:1".into(), "end_logits")],
        ),
    ];
    for (head, golden, outputs) in cases {
        let golden = Npz::open(folder.join(golden)).unwrap();
        let options = GraphOptions {
            config: Some(config.clone()),
            head: Some(head),
            ..GraphOptions::default()
        };
        let names: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
        let graph = opened(&folder.join("model.ckpt"), None, Some(&names.join(",")), options);
        let golden: Vec<Tensor> =
            outputs.iter().map(|(_, name)| golden.tensor(name).unwrap()).collect();
        check(graph, &inputs, 3, &golden, &[]);
    }
}

/// A value in the middle, asked for by name, is the same as when it is an output.
#[test]
fn hidden_states_on_demand() {
    let Some(folder) = shared("fixtures/meta") else { return };
    let io = Npz::open(folder.join("bert_model.ckpt.io.npz")).unwrap();
    let graph = cut(&folder.join("bert_model.ckpt.meta"), None, "bert/pooler/dense/Tanh");
    let session = Session::new(&graph, Options::default()).unwrap();
    let names = ["Placeholder", "Placeholder_1", "Placeholder_2"];
    let fed: Inputs = names.map(|name| (name.to_owned(), io.tensor(name).unwrap())).into();
    let wanted: Value = graph.find_value("bert/encoder/Reshape_3").unwrap();
    let found = session.run_values(&fed, &[wanted]).unwrap().remove(0).to_f64().unwrap();
    let expected = io.tensor("sequence_output").unwrap().to_f64().unwrap();
    assert!(found.iter().zip(&expected).all(|(f, e)| (f - e).abs() <= TOLERANCE));
}
