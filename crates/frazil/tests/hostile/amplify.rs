//! Files that are well-formed and small but would be large in memory: the least bytes per thing,
//! as many things as a few megabytes hold.

use frazil_tensor::{DType, Tensor, npy};

/// Things per file.
const MANY: usize = 200_000;

pub fn npy_of_short_strings() -> Vec<u8> {
    let bytes = Tensor::new(DType::U8, [0], Vec::new()).expect("nothing is enough for nothing");
    let mut file = Vec::new();
    npy::write(&mut file, &bytes).expect("memory takes it");
    // The same length of header, another type and shape.
    let header = format!("{{'descr': '|S1', 'fortran_order': False, 'shape': ({},), }}", MANY * 40);
    let space = file.len() - 10;
    file.truncate(10);
    file.extend_from_slice(format!("{header:<space$}").as_bytes());
    file.resize(file.len() + MANY * 40, b'x');
    file
}

fn safetensors(header: String) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file
}

pub fn safetensors_of_empty_tensors() -> Vec<u8> {
    let entry = |i| format!(r#""{i}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#);
    let entries: Vec<String> = (0..MANY).map(entry).collect();
    safetensors(format!("{{{}}}", entries.join(",")))
}

pub fn safetensors_of_many_axes() -> Vec<u8> {
    let axes = vec!["0"; MANY * 20].join(",");
    safetensors(format!(r#"{{"a":{{"dtype":"U8","shape":[{axes}],"data_offsets":[0,0]}}}}"#))
}

/// Empty members, each with a local header and an entry in the directory.
pub fn zip_of_empty_members() -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    let count = 60_000u16;
    for i in 0..count {
        let name = format!("{i:x}");
        let at = file.len() as u32;
        file.extend_from_slice(b"PK\x03\x04\x0a\0\0\0\0\0\0\0\x21\0");
        file.extend_from_slice(&[0; 12]);
        file.extend_from_slice(&(name.len() as u16).to_le_bytes());
        file.extend_from_slice(&[0; 2]);
        file.extend_from_slice(name.as_bytes());
        directory.extend_from_slice(b"PK\x01\x02\x0a\0\x0a\0\0\0\0\0\0\0\x21\0");
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&(name.len() as u16).to_le_bytes());
        directory.extend_from_slice(&[0; 12]);
        directory.extend_from_slice(&at.to_le_bytes());
        directory.extend_from_slice(name.as_bytes());
    }
    let start = file.len() as u32;
    file.extend_from_slice(&directory);
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&count.to_le_bytes());
    file.extend_from_slice(&(directory.len() as u32).to_le_bytes());
    file.extend_from_slice(&start.to_le_bytes());
    file.extend_from_slice(&[0; 2]);
    file
}

pub fn binary_of_empty_nodes() -> Vec<u8> {
    [0x0a, 0x00].repeat(MANY * 10)
}

/// A model whose graph is nothing but nodes without names.
pub fn onnx_of_empty_nodes() -> Vec<u8> {
    let nodes = binary_of_empty_nodes();
    let mut file = vec![0x3a];
    let mut length = nodes.len();
    while length >= 0x80 {
        file.push(length as u8 | 0x80);
        length >>= 7;
    }
    file.push(length as u8);
    file.extend_from_slice(&nodes);
    file
}

pub fn text_of_empty_nodes() -> Vec<u8> {
    b"node{}".repeat(MANY * 5)
}

pub fn text_of_empty_values() -> Vec<u8> {
    let mut text = b"node{name:\"a\"attr{key:\"value\"value{list{".to_vec();
    text.extend_from_slice(&b"shape{}".repeat(MANY * 5));
    text.extend_from_slice(b"}}}}");
    text
}

pub fn deep_text() -> Vec<u8> {
    b"node{attr{value{func{".repeat(MANY)
}

fn xml(layers: &[u8]) -> Vec<u8> {
    [b"<net version=\"11\"><layers>", layers, b"</layers></net>"].concat()
}

pub fn xml_of_empty_layers() -> Vec<u8> {
    let layers: Vec<String> =
        (0..MANY).map(|i| format!("<layer id=\"{i}\" name=\"a\" type=\"b\"/>")).collect();
    xml(layers.concat().as_bytes())
}

pub fn xml_of_empty_ports() -> Vec<u8> {
    let ports = b"<port names=\"a,b,c,d\"/>".repeat(MANY * 5);
    xml(&[b"<layer id=\"1\" name=\"a\" type=\"b\"><output>", &*ports, b"</output></layer>"]
        .concat())
}

pub fn deep_xml() -> Vec<u8> {
    xml(&b"<a>".repeat(MANY * 5))
}

pub fn lines_of_short_pieces() -> Vec<u8> {
    let lines: Vec<String> = (0..MANY * 2).map(|i| format!("{i:x}\n")).collect();
    ["[UNK]\n", &lines.concat()].concat().into_bytes()
}

/// Nearly as many nodes of a trie as there are bytes.
pub fn lines_of_long_pieces() -> Vec<u8> {
    let rest = "z".repeat(780);
    let lines: Vec<String> = (0..MANY / 55).map(|i| format!("##{i:04x}{rest}\n")).collect();
    ["[UNK]\n", &lines.concat()].concat().into_bytes()
}

fn tokenizer_json(pieces: &str) -> Vec<u8> {
    let model = format!(r#"{{"type":"WordPiece","vocab":{{"[UNK]":0,{pieces}}}}}"#);
    format!(r#"{{"normalizer":{{"type":"BertNormalizer"}},"model":{model}}}"#).into_bytes()
}

pub fn json_of_short_pieces() -> Vec<u8> {
    let pieces: Vec<String> = (1..MANY * 2).map(|i| format!(r#""{i:x}":{i}"#)).collect();
    tokenizer_json(&pieces.join(","))
}

pub fn json_of_a_large_id() -> Vec<u8> {
    tokenizer_json(r#""a":2000000"#)
}
