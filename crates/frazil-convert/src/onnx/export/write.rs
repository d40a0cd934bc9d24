//! The model's bytes: initializers go to the file one by one, straight from where they lie, so
//! that the weights are never in memory a second time.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use frazil_tensor::file::AtomicFile;
use half::f16;
use half::slice::HalfFloatSliceExt;
use prost::Message;
use prost::encoding::{encode_varint, encoded_len_varint};

use super::builder::{Initializer, Payload};
use crate::onnx::proto::{ModelProto, StringStringEntryProto, TensorProto, tensor_proto};
use crate::{Error, Result};

/// Field numbers of the messages that are written piece by piece, with wire type 2.
const MODEL_GRAPH: u8 = 7 << 3 | 2;
const GRAPH_INITIALIZER: u8 = 5 << 3 | 2;
const TENSOR_RAW_DATA: u8 = 9 << 3 | 2;

/// Where external data begins: whole pages, so that engines can map it.
const ALIGNMENT: u64 = 4096;
/// Less than this stays in the model in any case: engines look at small constants early.
const LEAST_EXTERNAL: u64 = 1024;
/// Elements that are converted at a time.
const HALVES: usize = 1 << 16;
/// What protobuf can hold.
const MOST: u64 = i32::MAX as u64;

/// Writes the model, and its weights beside it if it would be larger than `external_above`.
pub(super) fn write(
    model: ModelProto,
    mut initializers: Vec<Initializer>,
    external_above: u64,
    path: &Path,
) -> Result<Vec<PathBuf>> {
    let mut outer = model;
    let graph = outer.graph.take().unwrap_or_default();
    let mut files = vec![path.to_path_buf()];
    let mut data = None;
    if size(&graph, &initializers) + outer.encoded_len() as u64 > external_above.min(MOST) {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".data");
        let beside = path.with_file_name(&name);
        data = Some((beside.clone(), move_out(&mut initializers, &name.to_string_lossy())));
        files.push(beside);
    }
    let graph_size = size(&graph, &initializers);
    let bytes = graph_size + outer.encoded_len() as u64;
    if bytes > MOST {
        return Err(Error::TooLarge { bytes, target: super::TARGET });
    }
    // The weights first: a model whose weights are missing would be worse than none.
    if let Some((beside, pieces)) = data {
        put(&beside, |file| write_data(file, &pieces))?;
    }
    put(path, |file| {
        let mut head = outer.encode_to_vec();
        head.push(MODEL_GRAPH);
        encode_varint(graph_size, &mut head);
        graph.encode(&mut head).map_err(io::Error::other)?;
        file.write_all(&head)?;
        initializers.iter().try_for_each(|initializer| write_initializer(file, initializer))
    })?;
    Ok(files)
}

fn put(path: &Path, fill: impl FnOnce(&mut AtomicFile) -> io::Result<()>) -> Result<()> {
    let mut file = AtomicFile::create(path)?;
    fill(&mut file).map_err(|source| frazil_tensor::Error::Io {
        action: "write",
        path: path.to_path_buf(),
        source,
    })?;
    Ok(file.commit()?)
}

/// Bytes of the graph with its initializers.
fn size(graph: &impl Message, initializers: &[Initializer]) -> u64 {
    let all: u64 = initializers.iter().map(|i| with_header(initializer_size(i))).sum();
    graph.encoded_len() as u64 + all
}

/// A field of that many bytes, with its number and length.
fn with_header(bytes: u64) -> u64 {
    1 + encoded_len_varint(bytes) as u64 + bytes
}

fn initializer_size(initializer: &Initializer) -> u64 {
    let header = initializer.header.encoded_len() as u64;
    header + payload_size(&initializer.payload).map_or(0, with_header)
}

fn payload_size(payload: &Payload) -> Option<u64> {
    match payload {
        Payload::Plain(bytes) => Some(bytes.len() as u64),
        Payload::Half(bytes) => Some(bytes.len() as u64 / 2),
        Payload::None => None,
    }
}

fn write_initializer(file: &mut impl Write, initializer: &Initializer) -> io::Result<()> {
    let mut head = vec![GRAPH_INITIALIZER];
    encode_varint(initializer_size(initializer), &mut head);
    initializer.header.encode(&mut head).map_err(io::Error::other)?;
    if let Some(bytes) = payload_size(&initializer.payload) {
        head.push(TENSOR_RAW_DATA);
        encode_varint(bytes, &mut head);
    }
    file.write_all(&head)?;
    write_payload(file, &initializer.payload)
}

fn write_payload(file: &mut impl Write, payload: &Payload) -> io::Result<()> {
    match payload {
        Payload::Plain(bytes) => file.write_all(bytes),
        Payload::Half(bytes) => {
            // In pieces: the largest table as a whole would be half of it once more in memory.
            let mut halves = vec![f16::ZERO; HALVES];
            for piece in bytes.chunks(HALVES * size_of::<f32>()) {
                let floats: Vec<f32> = bytemuck::pod_collect_to_vec(piece);
                let halves = &mut halves[..floats.len()];
                halves.convert_from_f32_slice(&floats);
                file.write_all(bytemuck::cast_slice(halves))?;
            }
            Ok(())
        }
        Payload::None => Ok(()),
    }
}

/// A run of the data file.
struct Piece {
    offset: u64,
    payload: Payload,
}

/// Replaces the elements of large initializers by their place in a data file, and returns what
/// that file is made of. What is there already is not put there again.
fn move_out(initializers: &mut [Initializer], location: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut by_sample: HashMap<(bool, Bytes), Vec<usize>> = HashMap::new();
    let mut end = 0u64;
    for initializer in initializers {
        let Some(length) = payload_size(&initializer.payload) else { continue };
        if length < LEAST_EXTERNAL {
            continue;
        }
        let candidates = by_sample.entry(sample(&initializer.payload)).or_default();
        let known =
            candidates.iter().find(|&&i| same(&pieces[i].payload, &initializer.payload)).copied();
        let offset = match known {
            Some(i) => pieces[i].offset,
            None => {
                let offset = end.next_multiple_of(ALIGNMENT);
                end = offset + length;
                candidates.push(pieces.len());
                pieces.push(Piece { offset, payload: initializer.payload.clone() });
                offset
            }
        };
        let entry = |key: &str, value: String| StringStringEntryProto {
            key: Some(key.to_owned()),
            value: Some(value),
        };
        let header: &mut TensorProto = &mut initializer.header;
        header.external_data = vec![
            entry("location", location.to_owned()),
            entry("offset", offset.to_string()),
            entry("length", length.to_string()),
        ];
        header.data_location = Some(tensor_proto::DataLocation::External as i32);
        initializer.payload = Payload::None;
    }
    pieces
}

/// Enough of the elements to tell most weights apart without reading all of them.
fn sample(payload: &Payload) -> (bool, Bytes) {
    let (half, bytes) = match payload {
        Payload::Plain(bytes) => (false, bytes),
        Payload::Half(bytes) => (true, bytes),
        Payload::None => return (false, Bytes::new()),
    };
    let mut picked = (bytes.len() as u64).to_le_bytes().to_vec();
    for at in [0, bytes.len() / 3, bytes.len() / 2, bytes.len().saturating_sub(64)] {
        picked.extend_from_slice(&bytes[at..bytes.len().min(at + 64)]);
    }
    (half, picked.into())
}

fn same(a: &Payload, b: &Payload) -> bool {
    match (a, b) {
        (Payload::Plain(a), Payload::Plain(b)) | (Payload::Half(a), Payload::Half(b)) => {
            (a.as_ptr() == b.as_ptr() && a.len() == b.len()) || a == b
        }
        _ => false,
    }
}

fn write_data(file: &mut impl Write, pieces: &[Piece]) -> io::Result<()> {
    let mut at = 0u64;
    let gap = vec![0u8; ALIGNMENT as usize];
    for piece in pieces {
        file.write_all(&gap[..(piece.offset - at) as usize])?;
        write_payload(file, &piece.payload)?;
        at = piece.offset + payload_size(&piece.payload).unwrap_or(0);
    }
    Ok(())
}
