//! Every graph, MetaGraph and SavedModel of the shared goldens: decoded, written again in both
//! forms, and compared with what TensorFlow 1.15 says of it.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::TensorStore;
use frazil_tensor::testing::shared;
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::graph_def::GraphConsts;
use frazil_tf::proto::{CheckpointState, GraphDef, MetaGraphDef, SavedModel, SaverDef};
use frazil_tf::saved_model::SavedModelDir;
use frazil_tf::schema::Described;
use frazil_tf::sniff::{self, Content, Encoding};
use frazil_tf::{graph_def, meta_graph, pbtxt, saved_model};

/// All files below `folder` whose names (without `.gz`) end like a graph's.
fn graph_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let stem = name.strip_suffix(".gz").unwrap_or(&name);
        if path.is_dir() {
            graph_files(&path, found);
        } else if [".pb", ".pbtxt", ".meta"].iter().any(|end| stem.ends_with(end)) {
            found.push(path);
        }
    }
}

fn contents(path: &Path) -> Bytes {
    if path.extension().is_some_and(|e| e == "gz") {
        let mut unpacked = Vec::new();
        let file = std::fs::File::open(path).unwrap();
        flate2::read::GzDecoder::new(file).read_to_end(&mut unpacked).unwrap();
        return unpacked.into();
    }
    frazil_tensor::file::map(path).unwrap()
}

enum Decoded {
    Graph(GraphDef),
    Meta(Box<MetaGraphDef>),
    Model(SavedModel),
    Saver(SaverDef),
}

fn decode(path: &Path) -> Decoded {
    let bytes = contents(path);
    match sniff::of(&bytes) {
        Content::GraphDef(_) => Decoded::Graph(graph_def::decode(bytes).unwrap()),
        Content::MetaGraphDef(_) => Decoded::Meta(Box::new(meta_graph::decode(bytes).unwrap())),
        Content::SavedModel(_) => Decoded::Model(saved_model::decode(bytes).unwrap()),
        Content::SaverDef => Decoded::Saver(pbtxt::parse_bytes(&bytes).unwrap()),
        other => panic!("{}: {other}", path.display()),
    }
}

/// Binary there and back, text there and back. A NaN makes a message unequal to itself, so the
/// encodings are compared.
fn round_trip<M: Described>(path: &Path, message: &M) {
    let binary = message.encode_to_vec();
    let again = M::decode(Bytes::from(binary.clone())).unwrap();
    assert!(again.encode_to_vec() == binary, "{}: binary", path.display());
    let text = pbtxt::print(message);
    let again: M = pbtxt::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(again.encode_to_vec() == binary, "{}: text", path.display());
}

#[test]
fn every_file_goes_there_and_back() {
    let mut files = Vec::new();
    for folder in ["fixtures", "data/checkpoints", "models"] {
        let Some(folder) = shared(folder) else { return };
        graph_files(&folder, &mut files);
    }
    assert!(files.len() >= 20, "only {} files", files.len());
    for path in files {
        match decode(&path) {
            Decoded::Graph(message) => round_trip(&path, &message),
            Decoded::Meta(message) => round_trip(&path, &*message),
            Decoded::Model(message) => round_trip(&path, &message),
            Decoded::Saver(message) => round_trip(&path, &message),
        }
    }
}

#[test]
fn text_is_printed_byte_for_byte_as_tensorflow_does() {
    fn same<M: Described>(file: &str, kind: Content) {
        let Some(path) = shared(&format!("fixtures/{file}")) else { return };
        let text = contents(&path);
        assert_eq!(sniff::of(&text), kind, "{file}");
        let printed = pbtxt::print(&pbtxt::parse_bytes::<M>(&text).unwrap());
        let differs = text.iter().zip(printed.as_bytes()).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let line = text[..at].iter().filter(|&&c| c == b'\n').count() + 1;
            panic!("{file} differs on line {line}");
        }
        assert_eq!(text.len(), printed.len(), "{file}");
    }
    let graph = Content::GraphDef(Encoding::Text);
    same::<GraphDef>("classifier/graph.pbtxt", graph);
    same::<GraphDef>("pretrain/graph.pbtxt.gz", graph);
    same::<GraphDef>("squad/v1.1/graph.pbtxt.gz", graph);
    same::<SaverDef>("classifier/saver.pbtxt", Content::SaverDef);
    for file in ["classifier/checkpoint", "pretrain/checkpoint", "squad/v1.1/checkpoint"] {
        same::<CheckpointState>(file, Content::CheckpointState);
    }
}

/// `Const 1047, Mul 507`, most frequent first, then by name.
fn histogram<'a>(ops: impl Iterator<Item = &'a String>) -> String {
    let mut counts = BTreeMap::<&str, usize>::new();
    for op in ops {
        *counts.entry(op).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by(|(a, n), (b, m)| m.cmp(n).then(a.cmp(b)));
    let words: Vec<String> = counts.iter().map(|(op, n)| format!("{op} {n}")).collect();
    words.join(", ")
}

#[test]
fn op_types_are_those_that_tensorflow_counted() {
    let Some(listing) = shared("fixtures/op_types.txt") else { return };
    let folder = listing.parent().unwrap().to_path_buf();
    let listing = std::fs::read_to_string(&listing).unwrap();
    let mut wanted = BTreeMap::<&str, Vec<&str>>::new();
    let mut file = "";
    for line in listing.lines() {
        if !line.starts_with(' ') {
            file = line.split(' ').next().unwrap();
        }
        wanted.entry(file).or_default().push(line.trim());
    }
    assert!(wanted.len() >= 12, "only {} graphs", wanted.len());
    for (file, lines) in wanted {
        let plain = folder.join(file);
        let path = if plain.exists() { plain } else { folder.join(format!("{file}.gz")) };
        let graph = match decode(&path) {
            Decoded::Graph(graph) => graph,
            Decoded::Meta(meta) => meta.graph_def.unwrap(),
            Decoded::Model(model) => model.meta_graphs[0].graph_def.clone().unwrap(),
            Decoded::Saver(_) => panic!("{file}"),
        };
        let versions = graph.versions.clone().unwrap_or_default();
        let functions = graph.library.map(|library| library.function).unwrap_or_default();
        let mut found = vec![
            format!(
                "{file} nodes {} functions {} producer {} min_consumer {}",
                graph.node.len(),
                functions.len(),
                versions.producer,
                versions.min_consumer
            ),
            histogram(graph.node.iter().map(|node| &node.op)),
        ];
        for function in functions {
            let name = &function.signature.as_ref().unwrap().name;
            let ops = histogram(function.node_def.iter().map(|node| &node.op));
            found.push(format!("fn {name}: {ops}"));
        }
        assert_eq!(found, lines, "{file}");
    }
}

#[test]
fn frozen_constants_are_the_checkpoints_variables_bit_for_bit() {
    let Some(frozen) = shared("fixtures/classifier/frozen_from_saved_model.pb") else { return };
    let Some(model) = shared("fixtures/classifier/saved_models/1794770949") else { return };
    let model = SavedModelDir::open(model).unwrap();
    let variables = Checkpoint::open(model.variables_prefix(), Options::default()).unwrap();
    let frozen = GraphConsts::open(frozen).unwrap();
    let mut same = 0;
    for info in variables.infos() {
        let Some(constant) = frozen.info(&info.name) else { continue };
        assert_eq!(constant, info);
        assert_eq!(frozen.tensor(&info.name).unwrap(), variables.tensor(&info.name).unwrap());
        same += 1;
    }
    // All but the step counter, which the classifier does not need.
    assert_eq!(same, variables.infos().len() - 1);
}
