//! `docs/reference/ops.md`: which of TensorFlow's operations frazil knows, and what each target
//! makes of them. Made by asking the importer and the exporters, so it says what they do.

mod samples;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use frazil::convert::{onnx, openvino, tf};
use frazil::graph::{Graph, Op};
use frazil::tf::proto::attr_value::Value as AttrKind;
use frazil::tf::proto::tensor_shape_proto::Dim;
use frazil::tf::proto::{AttrValue, DataType, GraphDef, NodeDef, TensorShapeProto};

/// Where the importer has its table.
const TABLE: &str = "crates/frazil-convert/src/tf/op.rs";

/// The page.
pub fn page() -> Result<String> {
    let mut text = String::from(HEADER);
    text.push_str("| TensorFlow | frazil |\n|---|---|\n");
    for (kind, names) in imported()? {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        writeln!(text, "| {} | `{kind}` |", names.join(", "))?;
    }
    text.push_str(TARGETS);
    text.push_str("| frazil | TensorFlow | ONNX 17 | ONNX 20 | OpenVINO | MIGraphX |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for (name, graph) in samples::all()? {
        let cells = [
            in_tensorflow(&graph),
            in_onnx(&graph, 17),
            in_onnx(&graph, 20),
            in_openvino(&graph),
            in_migraphx(&graph),
        ];
        let cells: Vec<String> = cells.into_iter().map(|cell| cell.unwrap_or("–".into())).collect();
        writeln!(text, "| `{name}` | {} |", cells.join(" | "))?;
    }
    Ok(text)
}

const HEADER: &str = "# Operations

Made by `cargo xtask codegen` from what the importer and the exporters do; do not edit.

## Read from TensorFlow

Any other operation is carried along under its own name: it survives freezing, cutting and TensorFlow export, and
cannot run. Calls of functions are put in place, and conditionals whose predicate is known are decided.

";

const TARGETS: &str = "
## Written

What one operation becomes, constants and reshaping of operands left out; – where the target has no way to say it.

";

/// TensorFlow's names by frazil's operation.
fn imported() -> Result<BTreeMap<String, BTreeSet<String>>> {
    let path = crate::root().join(TABLE);
    let source = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for word in source.split('"').skip(1).step_by(2) {
        let is_name = word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_alphanumeric());
        if let Some(kind) = is_name.then(|| kind_of(word)).flatten() {
            found.entry(kind).or_default().insert(word.to_owned());
        }
    }
    Ok(found)
}

/// What the importer makes of an operation, given as many inputs as it takes.
fn kind_of(name: &str) -> Option<String> {
    (0..=7).find_map(|inputs| {
        let imported = tf::import(&probe(name, inputs), &tf::ImportOptions::default()).ok()?;
        let node = imported.graph.node(imported.graph.find("y")?);
        match &node.op {
            Op::Foreign(_) => None,
            op => Some(op.to_string()),
        }
    })
}

/// A graph with a node of that operation under every attribute that one might ask for.
fn probe(name: &str, inputs: usize) -> GraphDef {
    let attr = |value| AttrValue { value: Some(value) };
    let dtype = |dtype: DataType| attr(AttrKind::Type(dtype as i32));
    let node = |name: &str, op: &str, input: Vec<String>, attrs: Vec<(&str, AttrValue)>| NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input,
        attr: attrs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        ..NodeDef::default()
    };
    let truth = matches!(name, "LogicalAnd" | "LogicalOr" | "LogicalNot" | "All" | "Any");
    let element = if truth { DataType::DtBool } else { DataType::DtFloat };
    let mut nodes: Vec<NodeDef> = (0..inputs)
        .map(|i| {
            let chooses = name == "Select" && i == 0;
            let element = if chooses { DataType::DtBool } else { element };
            let attrs = vec![("dtype", dtype(element)), ("shape", attr(AttrKind::Shape(pair())))];
            node(&format!("x{i}"), "Placeholder", vec![], attrs)
        })
        .collect();
    let reads = (0..inputs).map(|i| format!("x{i}")).collect();
    let value = frazil::tensor::Tensor::from_vec([], vec![0f32]).map(|tensor| {
        attr(AttrKind::Tensor(Box::new(frazil::tf::tensor_proto::from_tensor(&tensor))))
    });
    let mut attrs = vec![
        ("T", dtype(element)),
        ("dtype", dtype(element)),
        ("DstT", dtype(DataType::DtFloat)),
        ("Ta", dtype(element)),
        ("Tb", dtype(element)),
        ("Tout", dtype(element)),
        ("SrcT", dtype(DataType::DtInt32)),
        ("N", attr(AttrKind::I(inputs.max(1) as i64))),
        ("num", attr(AttrKind::I(2))),
        ("num_split", attr(AttrKind::I(2))),
    ];
    attrs.extend(value.ok().map(|value| ("value", value)));
    if name.contains("uantize") {
        attrs.extend([
            ("T", dtype(DataType::DtQuint8)),
            ("mode", attr(AttrKind::S("MIN_FIRST".into()))),
            ("Tinput", dtype(DataType::DtQint32)),
            ("out_type", dtype(DataType::DtQint8)),
            ("T1", dtype(DataType::DtQuint8)),
            ("T2", dtype(DataType::DtQint8)),
            ("Tbias", dtype(DataType::DtFloat)),
        ]);
    }
    nodes.push(node("y", name, reads, attrs));
    GraphDef { node: nodes, ..GraphDef::default() }
}

/// The shape `[2, 2]`.
fn pair() -> TensorShapeProto {
    let dim = Dim { size: 2, ..Dim::default() };
    TensorShapeProto { dim: vec![dim.clone(), dim], ..TensorShapeProto::default() }
}

fn list(names: impl IntoIterator<Item = String>) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    Some(if seen.is_empty() { "passed through".to_owned() } else { seen.join(", ") })
}

fn in_tensorflow(graph: &Graph) -> Option<String> {
    let def = tf::export(graph, None).ok()?;
    let plain = |op: &str| !matches!(op, "Const" | "Placeholder");
    list(def.node.into_iter().map(|node| node.op).filter(|op| plain(op)))
}

fn in_onnx(graph: &Graph, opset: u32) -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    let path = folder.path().join("y.onnx");
    let options = onnx::ExportOptions { opset, ..onnx::ExportOptions::default() };
    onnx::export(graph, &options, &path).ok()?;
    let bytes = frazil::tensor::file::map(&path).ok()?;
    let model: onnx::proto::ModelProto = frazil::tf::decode::decode(bytes).ok()?;
    let kinds = model.graph?.node.into_iter().filter_map(|node| node.op_type);
    list(kinds.filter(|kind| kind != "Constant"))
}

fn in_openvino(graph: &Graph) -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    let path = folder.path().join("y.xml");
    openvino::export(graph, &openvino::ExportOptions::default(), &path).ok()?;
    layers(&path)
}

fn layers(xml: &Path) -> Option<String> {
    let text = fs::read_to_string(xml).ok()?;
    let kinds = text.split("<layer ").skip(1).filter_map(|layer| {
        let kind = layer.split(" type=\"").nth(1)?.split('"').next()?;
        let plain = !matches!(kind, "Const" | "Parameter" | "Result");
        plain.then(|| kind.to_owned())
    });
    list(kinds)
}

fn in_migraphx(graph: &Graph) -> Option<String> {
    let mut graph = graph.clone();
    tf::migraphx::adapt(&mut graph).ok()?;
    tf::migraphx::check(&graph).ok()?.is_empty().then(|| "yes".to_owned())
}
