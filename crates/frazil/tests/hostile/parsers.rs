//! Every parser of the program, fed bytes as far as they go: opened, listed, read, printed. Used
//! by the mutation run beside this file and by the fuzz targets in `fuzz/`.
//!
//! Errors are what most inputs should give, so results are dropped; what is asserted is that
//! what was accepted can be written and reads back the same.

use std::path::Path;

use bytes::Bytes;
use frazil_bert::packing::Histogram;
use frazil_bert::samples::packed::{self, Places};
use frazil_bert::samples::{Checker, Sample, SampleFile, Shape};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use frazil_convert::{onnx, openvino};
use frazil_tensor::TensorStore;
use frazil_tensor::npy::{self, Npz};
use frazil_tensor::safetensors::SafeTensors;
use frazil_tf::archive::Archive;
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::example::{Example, SequenceExample};
use frazil_tf::proto::{CheckpointState, GraphDef, MetaGraphDef, SavedModel, SaverDef};
use frazil_tf::schema::Described;
use frazil_tf::sstable::Table;
use frazil_tf::tfrecord::{RecordReader, Records};
use frazil_tf::{graph_def, meta_graph, pbtxt, saved_model, sniff, tensor_proto};

/// Constants beyond this are read, but not written and read again.
const LARGE: usize = 1 << 20;

fn read_all(store: &dyn TensorStore) {
    for info in store.infos() {
        let _ = store.tensor(&info.name);
    }
}

/// `.npy`
pub fn npy(bytes: &[u8]) {
    let Ok(tensor) = npy::read(Bytes::copy_from_slice(bytes)) else { return };
    let mut written = Vec::new();
    if npy::write(&mut written, &tensor).is_ok() {
        let again = npy::read(written.into()).expect("what was written reads");
        assert_eq!(again, tensor, "an array changed on its way");
    }
}

/// `.npz`
pub fn npz(bytes: &[u8]) {
    if let Ok(npz) = Npz::read(Bytes::copy_from_slice(bytes), "fuzz.npz") {
        read_all(&npz);
    }
}

/// `.safetensors`
pub fn safetensors(bytes: &[u8]) {
    if let Ok(file) = SafeTensors::read(Bytes::copy_from_slice(bytes), "fuzz.safetensors") {
        read_all(&file);
    }
}

/// `vocab.txt` and `tokenizer.json`; the file is cut by its own vocabulary.
pub fn vocabulary(bytes: &[u8]) {
    for read in [Vocabulary::from_lines(bytes), Vocabulary::from_json(bytes)] {
        let Ok(vocabulary) = read else { continue };
        let text = &bytes[..bytes.len().min(LARGE / 64)];
        let text = String::from_utf8_lossy(text);
        let Ok(tokenizer) = Tokenizer::new(vocabulary.into(), Casing::Lower) else { continue };
        for (start, end) in tokenizer.encode(&text).offsets {
            assert!(text.get(start as usize..end as usize).is_some_and(|slice| !slice.is_empty()));
        }
    }
}

/// Samples in records and binaries, alone and in packs; what is read can be packed, and is then the
/// same. The file is read as a histogram of lengths, too.
pub fn samples(bytes: &[u8]) {
    let _ = Histogram::from_csv(bytes, None);
    let shape = Shape { max_length: 16, max_predictions: 3, sequences: 2 };
    let bytes = Bytes::copy_from_slice(bytes);
    let Ok(file) = SampleFile::of_bytes(bytes, Path::new("fuzz"), shape) else { return };
    for samples in file.iter().take(1000).flatten() {
        let places = Places {
            tokens: samples.iter().map(Sample::len).sum(),
            masked: samples.iter().map(|sample| sample.masked().len()).sum(),
            sequences: samples.len(),
        };
        let Ok(example) = packed::pack(&samples, places) else { continue };
        let mut checker = Checker::default();
        samples.iter().for_each(|sample| checker.expect(sample));
        checker.found(&packed::unpack(&example).expect("what was packed is a pack"));
        assert!(checker.finish().is_equal(), "a sample changed on its way");
    }
}

/// Zip archives.
pub fn zip(bytes: &[u8]) {
    let Ok(archive) = Archive::from_bytes(Bytes::copy_from_slice(bytes), "fuzz.zip") else {
        return;
    };
    for member in archive.entries() {
        let _ = archive.read(&member.name, 1 << 24);
    }
}

/// TFRecords, plain and packed, with and without checksums.
pub fn tfrecord(bytes: &[u8]) {
    let bytes = Bytes::copy_from_slice(bytes);
    for verify in [true, false] {
        let packed = RecordReader::from_bytes(bytes.clone()).record_limit(1 << 24);
        for record in packed.verify_checksums(verify) {
            drop(record.map(Example::decode));
        }
        let stream = RecordReader::new(&bytes[..]).verify_checksums(verify);
        let streamed: Vec<Option<Bytes>> = stream.map(Result::ok).collect();
        let mapped = Records::new(bytes.clone()).verify_checksums(verify);
        let mapped: Vec<Option<Bytes>> = mapped.map(Result::ok).collect();
        assert_eq!(streamed, mapped, "the two readers differ");
    }
}

/// Examples of both kinds.
pub fn example(bytes: &[u8]) {
    if let Ok(example) = Example::decode(Bytes::copy_from_slice(bytes)) {
        let encoded = example.encode();
        let again = Example::decode(encoded.clone().into()).expect("what was written reads");
        // By bytes: a NaN does not equal itself.
        assert_eq!(again.encode(), encoded, "an example changed on its way");
    }
    let _ = SequenceExample::decode(Bytes::copy_from_slice(bytes));
}

/// LevelDB's tables, with and without checksums.
pub fn sstable(bytes: &[u8]) {
    for verify in [true, false] {
        let Ok(table) = Table::open(Bytes::copy_from_slice(bytes), verify) else { continue };
        let mut keys = Vec::new();
        for entry in table.entries().take(10_000) {
            let Ok((key, _)) = entry else { break };
            keys.push(key);
        }
        for key in keys.iter().take(100) {
            let _ = table.get(key);
        }
    }
}

/// A checkpoint of either version, by its prefix.
pub fn checkpoint(prefix: &Path) {
    for verify_checksums in [true, false] {
        let options = Options { verify_checksums };
        let Ok(checkpoint) = Checkpoint::open(prefix, options) else { continue };
        for entry in checkpoint.entries() {
            drop(checkpoint.tensor(&entry.info.name));
        }
        let _ = checkpoint.objects();
        let _ = checkpoint.verify(|_| {});
    }
}

fn consts(graph: &GraphDef) {
    for node in &graph.node {
        // Reading is the parser's cost; the copies of the way back and forth are this test's.
        if let Ok(tensor) = graph_def::const_tensor(node)
            && tensor.elements() <= LARGE
        {
            let again = tensor_proto::to_tensor(&tensor_proto::from_tensor(&tensor));
            assert_eq!(again.ok(), Some(tensor), "a constant changed on its way");
        }
    }
    let _ = graph_def::consts(graph).count();
}

fn reprint<M: Described>(message: &M) {
    let text = pbtxt::print(message);
    let again: M = pbtxt::parse(&text).expect("what was printed parses");
    assert_eq!(pbtxt::print(&again), text, "a message changed on its way through text");
}

/// Graphs, binary or text by content.
pub fn graph_def(bytes: &[u8]) {
    let _ = sniff::of(bytes);
    if let Ok(graph) = graph_def::decode(Bytes::copy_from_slice(bytes)) {
        consts(&graph);
        reprint(&graph);
    }
}

/// MetaGraphs, binary or text by content.
pub fn meta_graph(bytes: &[u8]) {
    if let Ok(meta) = meta_graph::decode(Bytes::copy_from_slice(bytes)) {
        reprint(&meta);
    }
}

/// SavedModels, binary or text by content.
pub fn saved_model(bytes: &[u8]) {
    if let Ok(model) = saved_model::decode(Bytes::copy_from_slice(bytes)) {
        reprint(&model);
    }
}

/// The text form of a graph, parsed only.
pub fn graph_text(bytes: &[u8]) {
    let _ = pbtxt::parse_bytes::<GraphDef>(bytes);
}

/// The text form, as each of the messages that have text files.
pub fn pbtxt(bytes: &[u8]) {
    fn as_message<M: Described>(bytes: &[u8]) {
        if let Ok(message) = pbtxt::parse_bytes::<M>(bytes) {
            reprint(&message);
        }
    }
    as_message::<GraphDef>(bytes);
    as_message::<MetaGraphDef>(bytes);
    as_message::<SavedModel>(bytes);
    as_message::<SaverDef>(bytes);
    as_message::<CheckpointState>(bytes);
}

/// OpenVINO's `.xml`, with weights that are plain bytes.
pub fn openvino(xml: &[u8]) {
    let weights: Bytes = (0..8192u32).map(|i| i as u8).collect();
    if let Ok(graph) = openvino::import_bytes(xml, &weights) {
        let _ = frazil_graph::infer(&graph);
    }
}

/// ONNX models, as far as the graph with its extents.
pub fn onnx(bytes: &[u8]) {
    // No folder: what a model says of files beside it leads nowhere.
    let read = onnx::decode(Bytes::copy_from_slice(bytes), Path::new("/nowhere"));
    if let Ok(graph) = read {
        let _ = frazil_graph::infer(&graph);
    }
    let _ = onnx::looks_like(bytes);
}
