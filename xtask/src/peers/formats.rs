//! Every file of TensorFlow 1 that frazil writes, for `xtask/peers/formats.py` to read.
//!
//! A copy of an original gets the original's path below the output folder. What is no copy has
//! values by formula ([`super::synthetic`]).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use frazil::ops::{export_weights, import_weights};
use frazil_tensor::npy::{Npz, NpzWriter};
use frazil_tensor::safetensors::SafeTensorsWriter;
use frazil_tensor::{DType, Tensor, TensorInfo, TensorStore};
use frazil_tf::bundle::{BundleWriter, WriteOptions};
use frazil_tf::checkpoint::{Checkpoint, Options};
use frazil_tf::checkpoint_state::CheckpointState;
use frazil_tf::events::EventWriter;
use frazil_tf::example::Example;
use frazil_tf::saved_model::{self, SavedModelDir};
use frazil_tf::slice::{Extent, TensorSlice};
use frazil_tf::tfrecord::{Compression, RecordReader, RecordWriter};
use frazil_tf::{graph_def, meta_graph};

use super::{Task, make_parent, synthetic};

const CHECKPOINTS: [&str; 5] = [
    "fixtures/classifier/model.ckpt-27",
    "fixtures/pretrain/model.ckpt-40",
    "fixtures/numerics/model.ckpt",
    "fixtures/meta/bert_model.ckpt",
    "models/squad/model.ckpt-2232",
];
const IMPORTED: [&str; 2] = ["fixtures/meta/bert_model.ckpt", "models/squad/model.ckpt-2232"];
const META_GRAPHS: [&str; 5] = [
    "fixtures/meta/bert_model.ckpt.meta",
    "fixtures/meta/bert_model_dyn.ckpt.meta",
    "fixtures/classifier/model.ckpt-27.meta",
    "fixtures/pretrain/model.ckpt-40.meta",
    "models/squad/model.ckpt-2232.meta",
];
const GRAPHS: [&str; 5] = [
    "fixtures/classifier/frozen_from_saved_model.pb",
    "fixtures/classifier/frozen_from_graph_pbtxt.pb",
    "fixtures/classifier/graph.pbtxt",
    "fixtures/reshapable/inference_graph.pb",
    "fixtures/squad/lpot/bert_int8_lpot1.3.pb",
];
const RECORDS: [&str; 2] =
    ["fixtures/classifier/train.tf_record", "fixtures/pretrain/tf_examples.tfrecord"];
const COMPRESSIONS: [(&str, Compression); 3] =
    [("plain", Compression::None), ("gzip", Compression::Gzip), ("zlib", Compression::Zlib)];
const EXAMPLES: u64 = 40;

/// Fills the task's folder.
pub(super) fn write(task: &Task) -> Result<()> {
    synthetic_checkpoints(&task.out)?;
    synthetic_arrays(&task.out)?;
    synthetic_records(&task.out)?;
    events(task)?;
    if let Some(shared) = &task.shared {
        for prefix in CHECKPOINTS {
            let options = WriteOptions::default();
            copy_checkpoint(&shared.join(prefix), &task.out.join(prefix), options)?;
            let sharded = task.out.join("sharded").join(prefix);
            copy_checkpoint(&shared.join(prefix), &sharded, options.shards(4))?;
        }
        copy_graphs(shared, &task.out)?;
        copy_saved_model(shared, &task.out)?;
        copy_records(shared, &task.out)?;
        copy_npz(shared, &task.out)?;
        through_hugging_face(shared, &task.out)?;
    }
    if task.full {
        large(&task.out)?;
    }
    Ok(())
}

fn synthetic_checkpoints(out: &Path) -> Result<()> {
    let options = WriteOptions::default();
    for (name, options) in [
        ("plain", options),
        ("sharded", options.shards(3)),
        ("compressed", options.shards(2).compress(true)),
    ] {
        let mut writer = BundleWriter::create(out.join(format!("synthetic/{name}.ckpt")), options)?;
        for (entry, tensor) in synthetic::tensors()? {
            if entry.parts.is_empty() {
                writer.add(&entry.name, &tensor)?;
            } else {
                for (slice, part) in cut(&tensor, &entry.parts)? {
                    writer.add_slice(&entry.name, tensor.shape(), &slice, &part)?;
                }
            }
        }
        writer.finish()?;
    }
    state(
        &out.join("synthetic"),
        "sharded.ckpt",
        &["plain.ckpt", "compressed.ckpt", "sharded.ckpt"],
    )
}

/// The tensor in `parts[axis]` parts along each axis, as even as can be, the larger first.
fn cut(tensor: &Tensor, parts: &[usize]) -> Result<Vec<(TensorSlice, Tensor)>> {
    ensure!(parts.len() == tensor.shape().len(), "synthetic.json: parts for every axis");
    let mut cuts = vec![Vec::new()];
    for (&extent, &parts) in tensor.shape().iter().zip(parts) {
        let pieces = (0..parts).map(|i| {
            let at = |i: usize| i * (extent / parts) + i.min(extent % parts);
            Extent { start: at(i), length: at(i + 1) - at(i) }
        });
        let pieces: Vec<Extent> = pieces.collect();
        let longer = |cut: &Vec<Extent>| {
            let cut = cut.clone();
            pieces.iter().map(move |&piece| [cut.as_slice(), &[piece]].concat()).collect::<Vec<_>>()
        };
        cuts = cuts.iter().flat_map(longer).collect();
    }
    cuts.into_iter()
        .map(|cut| {
            let part = window(tensor, &cut)?;
            Ok((TensorSlice::new(cut.into_iter().map(Some).collect()), part))
        })
        .collect()
}

/// The elements inside the extents.
fn window(tensor: &Tensor, extents: &[Extent]) -> Result<Tensor> {
    let size = tensor.dtype().size().context("strings are not cut")?;
    let bytes = tensor.bytes()?;
    let shape: Vec<usize> = extents.iter().map(|extent| extent.length).collect();
    let elements = shape.iter().product::<usize>();
    let mut part = Vec::with_capacity(elements * size);
    for i in 0..elements {
        // i counts the window's elements in row-major order; `from` is the same element outside.
        let (mut rest, mut from, mut stride) = (i, 0, 1);
        for (extent, &full) in extents.iter().zip(&**tensor.shape()).rev() {
            from += (extent.start + rest % extent.length) * stride;
            rest /= extent.length;
            stride *= full;
        }
        part.extend_from_slice(&bytes[from * size..][..size]);
    }
    Ok(Tensor::new(tensor.dtype(), shape, part)?)
}

fn synthetic_arrays(out: &Path) -> Result<()> {
    let tensors = synthetic::tensors()?;
    let quantized = |dtype: DType| dtype != DType::Bool && dtype.storage() != dtype;
    let mut npz = NpzWriter::create(out.join("synthetic/tensors.npz"))?;
    for (entry, tensor) in &tensors {
        if !quantized(tensor.dtype()) && !matches!(tensor.dtype(), DType::String | DType::BF16) {
            npz.add(&entry.name, tensor)?;
        }
    }
    npz.finish()?;
    let storable =
        |dtype: DType| !quantized(dtype) && !matches!(dtype, DType::String | DType::C128);
    let chosen: Vec<_> = tensors.iter().filter(|(_, t)| storable(t.dtype())).collect();
    let infos: Vec<TensorInfo> = chosen
        .iter()
        .map(|(entry, t)| TensorInfo {
            name: entry.name.clone(),
            dtype: t.dtype(),
            shape: t.shape().clone(),
        })
        .collect();
    let metadata = [("format", "frazil"), ("größe", "数量")];
    let metadata: BTreeMap<_, _> =
        metadata.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let path = out.join("synthetic/tensors.safetensors");
    let mut writer = SafeTensorsWriter::create(path, &infos, &metadata)?;
    for (_, tensor) in chosen {
        writer.add(tensor)?;
    }
    Ok(writer.finish()?)
}

fn synthetic_records(out: &Path) -> Result<()> {
    fs::create_dir_all(out.join("records"))?;
    for (name, compression) in COMPRESSIONS {
        let path = out.join(format!("records/examples.{name}.tfrecord"));
        let mut writer = RecordWriter::create(path, compression)?;
        for seed in 0..EXAMPLES {
            writer.add(&example(seed).encode())?;
        }
        writer.finish()?;
    }
    Ok(())
}

/// The first has no features at all; one feature of the others has no values.
fn example(seed: u64) -> Example {
    if seed == 0 {
        return Example::default();
    }
    let count = seed as usize;
    let ids: Vec<i64> = synthetic::stream(seed).take(count * 3).map(|n| n as i64).collect();
    // Masked so that all are finite: NaN equals nothing in Python.
    let bits = synthetic::bytes(seed, count * 4);
    let weight =
        |b: &[u8]| f32::from_bits(u32::from_le_bytes([b[0], b[1], b[2], b[3]]) & 0x3fff_ffff);
    let weights: Vec<f32> = bits.chunks_exact(4).map(weight).collect();
    let text: Vec<Bytes> = synthetic::strings(seed, 3).into_iter().map(Bytes::from).collect();
    Example::default()
        .with_int64s("ids", ids)
        .with_floats("weights", weights)
        .with_bytes("text", text)
        .with_int64s("none", Vec::new())
}

fn events(task: &Task) -> Result<()> {
    let mut writer = EventWriter::create(task.out.join("events"), "")?;
    if let Some(shared) = &task.shared {
        writer.graph(&graph_def::read(shared.join("fixtures/classifier/graph.pbtxt"))?)?;
    }
    for step in 0..20 {
        writer.scalar(step, "loss", step as f32 / 3.0)?;
        writer.scalar(step, "train/lr", step as f32 / 7.0)?;
    }
    let values = synthetic::stream(1).take(1000).map(|n| (n >> 40) as f64 / 1e6 - 8.0);
    writer.histogram(20, "weights", values)?;
    writer.text(20, "note", "größe, 数量\n")?;
    Ok(writer.flush()?)
}

fn state(folder: &Path, latest: &str, all: &[&str]) -> Result<()> {
    let state = CheckpointState {
        model_checkpoint_path: folder.join(latest),
        all_model_checkpoint_paths: all.iter().map(|path| folder.join(path)).collect(),
        ..CheckpointState::default()
    };
    Ok(state.write(folder)?)
}

fn copy_checkpoint(from: &Path, to: &Path, options: WriteOptions) -> Result<()> {
    let source = Checkpoint::open(from, Options::default())?;
    let mut writer = BundleWriter::create(to, options)?;
    for info in source.infos() {
        writer.add(&info.name, &source.tensor(&info.name)?)?;
    }
    Ok(writer.finish()?)
}

fn copy_graphs(shared: &Path, out: &Path) -> Result<()> {
    for path in META_GRAPHS {
        let meta = meta_graph::read(shared.join(path))?;
        make_parent(&out.join(path))?;
        meta_graph::write(out.join(path), &meta)?;
        meta_graph::write_text(out.join(format!("{path}.pbtxt")), &meta)?;
    }
    for path in GRAPHS {
        let graph = graph_def::read(shared.join(path))?;
        let path = out.join(path);
        make_parent(&path)?;
        graph_def::write(path.with_extension("pb"), &graph)?;
        graph_def::write_text(path.with_extension("pbtxt"), &graph)?;
    }
    Ok(())
}

fn copy_saved_model(shared: &Path, out: &Path) -> Result<()> {
    let models = "fixtures/classifier/saved_models";
    for entry in fs::read_dir(shared.join(models))? {
        let entry = entry?;
        let source = SavedModelDir::open(entry.path())?;
        let variables = Checkpoint::open(source.variables_prefix(), Options::default())?;
        let relative = Path::new(models).join(entry.file_name());
        for (to, text) in [(out.join(&relative), false), (out.join("text").join(&relative), true)] {
            let options = saved_model::WriteOptions {
                variables: Some(&variables),
                text,
                ..Default::default()
            };
            saved_model::write(to, source.proto(), options)?;
        }
    }
    Ok(())
}

fn copy_records(shared: &Path, out: &Path) -> Result<()> {
    for path in RECORDS {
        let records: Vec<Bytes> = RecordReader::open(shared.join(path))?
            .map(|record| Ok(record?))
            .collect::<Result<_>>()?;
        let to = |end: &str| out.join(format!("{path}.{end}"));
        make_parent(&to("plain"))?;
        for (name, compression) in COMPRESSIONS {
            let mut writer = RecordWriter::create(to(name), compression)?;
            for record in &records {
                writer.add(record)?;
            }
            writer.finish()?;
        }
        let mut writer = RecordWriter::create(to("remade"), Compression::None)?;
        for record in &records {
            writer.add(&Example::decode(record.clone())?.encode())?;
        }
        writer.finish()?;
    }
    Ok(())
}

fn copy_npz(shared: &Path, out: &Path) -> Result<()> {
    let path = "fixtures/numerics/weights.npz";
    let source = Npz::open(shared.join(path))?;
    make_parent(&out.join(path))?;
    let mut writer = NpzWriter::create(out.join(path))?;
    for info in source.infos() {
        writer.add(&info.name, &source.tensor(&info.name).map_err(anyhow::Error::from_boxed)?)?;
    }
    Ok(writer.finish()?)
}

/// Checkpoints that have been Hugging Face's in between.
fn through_hugging_face(shared: &Path, out: &Path) -> Result<()> {
    // Hugging Face's class for questions has no pooler; TensorFlow's graph does.
    let export = export_weights::Options {
        names: export_weights::Names::HuggingFace,
        keep_pooler: true,
        ..Default::default()
    };
    for prefix in IMPORTED {
        let model = out.join("huggingface").join(prefix).join("model.safetensors");
        make_parent(&model)?;
        export_weights::export_weights(shared.join(prefix), &model, &export, &mut |_, _| ())?;
        let back = out.join("imported").join(prefix);
        let import = import_weights::Options::default();
        import_weights::import_weights(&model, back, &import, &mut |_, _| ())?;
    }
    Ok(())
}

/// A checkpoint of BERT-large's size, and its table.
fn large(out: &Path) -> Result<()> {
    let table = crate::large::table(crate::large::LARGE);
    fs::write(out.join("large.json"), serde_json::to_string(&table)?)?;
    let options = WriteOptions::default().shards(4);
    crate::large::write(&out.join("large/bert_model.ckpt"), &table, options)
}

#[cfg(test)]
mod tests {
    use frazil_tensor::Shape;

    use super::*;

    #[test]
    fn cuts_cover_the_tensor_once() {
        let tensor = Tensor::from_vec([5, 4], (0..20).collect::<Vec<i32>>()).unwrap();
        let cuts = cut(&tensor, &[2, 3]).unwrap();
        assert_eq!(cuts.len(), 6);
        let first = &cuts[0].1;
        assert_eq!(*first.shape(), Shape::from([3, 2]));
        assert_eq!(&*first.values::<i32>().unwrap(), &[0, 1, 4, 5, 8, 9]);
        let mut all: Vec<i32> =
            cuts.iter().flat_map(|(_, part)| part.values::<i32>().unwrap().into_owned()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..20).collect::<Vec<_>>());
    }
}
