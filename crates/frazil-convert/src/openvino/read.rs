//! The `.xml` as it stands: layers with their attributes and ports, and edges. What they mean is
//! for [`super::import`].

use frazil_tensor::DType;
use quick_xml::XmlVersion;
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;

use super::net::dtype_named;
use crate::{Error, Result};

/// More layers than any model has. What a few bytes of text ask for is many times as large in
/// memory, so it is counted.
const MOST_LAYERS: usize = 1 << 16;
/// The same of ports, names, attributes and edges together.
const MOST_PARTS: usize = 1 << 19;

/// A port of a layer.
#[derive(Clone, Debug, Default)]
pub(super) struct Port {
    pub id: u64,
    /// `None` where the file does not say, or names a type that frazil lacks.
    pub dtype: Option<DType>,
    /// Extents, -1 for unknown ones.
    pub dims: Vec<i64>,
    pub names: Vec<String>,
}

/// A layer, nothing of it understood yet.
#[derive(Clone, Debug, Default)]
pub(super) struct RawLayer {
    pub id: u64,
    pub name: String,
    pub kind: String,
    /// `opset1` for example.
    pub opset: String,
    pub data: Vec<(String, String)>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
}

impl RawLayer {
    /// An attribute's text.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.data.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// An error that names this layer.
    pub fn wrong(&self, reason: impl Into<String>) -> Error {
        let (layer, kind) = (self.name.clone(), self.kind.clone());
        Error::IrLayer { layer, kind, reason: reason.into() }
    }
}

/// From one port to another.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Edge {
    pub from_layer: u64,
    pub from_port: u64,
    pub to_layer: u64,
    pub to_port: u64,
}

/// The whole file.
#[derive(Clone, Debug, Default)]
pub(super) struct RawNet {
    pub name: String,
    /// Of the format: 10 or 11.
    pub version: i64,
    /// The program that wrote it, and its version, where the file says so.
    pub producer: Option<String>,
    pub layers: Vec<RawLayer>,
    pub edges: Vec<Edge>,
    parts: usize,
}

impl RawNet {
    /// Counts parts of the file that take memory.
    fn count(&mut self, parts: usize, place: u64) -> Result<()> {
        self.parts = self.parts.saturating_add(parts);
        if self.parts > MOST_PARTS || self.layers.len() > MOST_LAYERS {
            return Err(bad(place, "it has more layers and ports than any model"));
        }
        Ok(())
    }
}

/// Where in the file the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    File,
    Net,
    Layers,
    Layer,
    Inputs,
    Outputs,
    Port,
    Dim,
    Edges,
    About,
}

/// Reads the file. Elements that say nothing of the computation are passed over.
pub(super) fn read(xml: &[u8]) -> Result<RawNet> {
    let text = match std::str::from_utf8(xml) {
        Ok(text) => text,
        Err(error) => return Err(bad(error.valid_up_to() as u64, "the text is not UTF-8")),
    };
    let mut reader = Reader::from_str(text);
    reader.config_mut().expand_empty_elements = true;
    let mut net = RawNet::default();
    let mut seen = false;
    let mut path = vec![At::File];
    loop {
        let place = reader.buffer_position();
        let event = reader.read_event().map_err(|e| bad(place, e.to_string()))?;
        let at = *path.last().expect("the file itself is never left");
        match event {
            Event::Start(element) => {
                let name = element.name();
                match next(at, name.as_ref()) {
                    Some(inner) => {
                        seen |= inner == At::Net;
                        enter(&mut net, inner, at, &element, place)?;
                        path.push(inner);
                    }
                    None => {
                        if at == At::File {
                            return Err(bad(place, "the outermost element is not `net`"));
                        }
                        match (at, name.as_ref()) {
                            (At::Layer, "data") => data(&mut net, &element, place)?,
                            (At::Edges, "edge") => edge(&mut net, &element, place)?,
                            (At::About, name) => about(&mut net, name, &element, place)?,
                            _ => {}
                        }
                        let end = element.to_end().into_owned();
                        reader.read_to_end(end.name()).map_err(|e| bad(place, e.to_string()))?;
                    }
                }
            }
            Event::End(_) => {
                path.pop();
                if path.is_empty() {
                    return Err(bad(place, "an element ends that did not begin"));
                }
            }
            Event::Text(text) if at == At::Dim => {
                let text = text.trim();
                let extent = text.parse::<i64>().ok().filter(|extent| *extent >= -1);
                let extent = extent.ok_or_else(|| bad(place, format!("`{text}` is no extent")))?;
                let outputs = path.contains(&At::Outputs);
                if let Some(port) = last_port(&mut net, outputs) {
                    port.dims.push(extent);
                }
            }
            Event::Eof if path.len() > 1 => return Err(bad(place, "the text ends too early")),
            Event::Eof if !seen => return Err(bad(place, "there is no `net` in it")),
            Event::Eof => return Ok(net),
            _ => {}
        }
    }
}

/// Which element leads where; `None` for those that are not followed.
fn next(at: At, name: &str) -> Option<At> {
    Some(match (at, name) {
        (At::File, "net") => At::Net,
        (At::Net, "layers") => At::Layers,
        (At::Net, "edges") => At::Edges,
        (At::Net, "rt_info" | "meta_data") => At::About,
        (At::Layers, "layer") => At::Layer,
        (At::Layer, "input") => At::Inputs,
        (At::Layer, "output") => At::Outputs,
        (At::Inputs | At::Outputs, "port") => At::Port,
        (At::Port, "dim") => At::Dim,
        _ => return None,
    })
}

fn bad(at: u64, reason: impl Into<String>) -> Error {
    Error::IrText { at, reason: reason.into() }
}

fn enter(net: &mut RawNet, into: At, from: At, element: &BytesStart<'_>, place: u64) -> Result<()> {
    match into {
        At::Net => {
            let mut version = None;
            attributes(element, place, |key, value| {
                match key {
                    "version" => version = Some(value),
                    "name" => net.name = value,
                    _ => {}
                }
                Ok(())
            })?;
            match version.as_deref() {
                Some(known @ ("10" | "11")) => {
                    net.version = if known == "10" { 10 } else { 11 };
                    Ok(())
                }
                Some(other) => Err(bad(place, format!("version {other} is neither 10 nor 11"))),
                None => Err(bad(place, "`net` has no version")),
            }
        }
        At::Layer => {
            let mut layer = RawLayer::default();
            let mut id = None;
            attributes(element, place, |key, value| {
                match key {
                    "id" => id = Some(number(&value, place)?),
                    "name" => layer.name = value,
                    "type" => layer.kind = value,
                    "version" => layer.opset = value,
                    _ => {}
                }
                Ok(())
            })?;
            layer.id = id.ok_or_else(|| bad(place, "a layer has no `id`"))?;
            if layer.name.is_empty() || layer.kind.is_empty() {
                return Err(bad(place, "a layer has no name or no type"));
            }
            net.layers.push(layer);
            net.count(0, place)
        }
        At::Port => {
            let mut port = Port::default();
            attributes(element, place, |key, value| {
                match key {
                    "id" => port.id = number(&value, place)?,
                    "precision" => port.dtype = dtype_named(&value),
                    "names" if value.matches(',').count() > MOST_PARTS => {
                        return Err(bad(place, "a port has more names than any"));
                    }
                    "names" => port.names = names(&value),
                    _ => {}
                }
                Ok(())
            })?;
            let parts = 1 + port.names.len();
            if let Some(layer) = net.layers.last_mut() {
                let ports =
                    if from == At::Outputs { &mut layer.outputs } else { &mut layer.inputs };
                ports.push(port);
            }
            net.count(parts, place)
        }
        _ => Ok(()),
    }
}

fn last_port(net: &mut RawNet, outputs: bool) -> Option<&mut Port> {
    let layer = net.layers.last_mut()?;
    if outputs { layer.outputs.last_mut() } else { layer.inputs.last_mut() }
}

fn data(net: &mut RawNet, element: &BytesStart<'_>, place: u64) -> Result<()> {
    let mut data = Vec::new();
    attributes(element, place, |key, value| {
        data.push((key.to_owned(), value));
        if data.len() > MOST_PARTS {
            return Err(bad(place, "a layer has more attributes than any"));
        }
        Ok(())
    })?;
    let parts = data.len();
    if let Some(layer) = net.layers.last_mut() {
        layer.data.append(&mut data);
    }
    net.count(parts, place)
}

fn edge(net: &mut RawNet, element: &BytesStart<'_>, place: u64) -> Result<()> {
    let mut edge = Edge::default();
    let mut found = 0;
    attributes(element, place, |key, value| {
        let field = match key {
            "from-layer" => &mut edge.from_layer,
            "from-port" => &mut edge.from_port,
            "to-layer" => &mut edge.to_layer,
            "to-port" => &mut edge.to_port,
            _ => return Ok(()),
        };
        *field = number(&value, place)?;
        found += 1;
        Ok(())
    })?;
    if found != 4 {
        return Err(bad(place, "an edge lacks one of its four ends"));
    }
    net.edges.push(edge);
    net.count(1, place)
}

/// `<MO_version value="…"/>`, `<frazil_version value="…"/>`; the first that there is.
fn about(net: &mut RawNet, name: &str, element: &BytesStart<'_>, place: u64) -> Result<()> {
    let Some(program) = name.strip_suffix("_version") else { return Ok(()) };
    let program = match program {
        "MO" => "Model Optimizer",
        "Runtime" => "OpenVINO",
        other => other,
    };
    attributes(element, place, |key, value| {
        if key == "value" && net.producer.is_none() {
            net.producer = Some(format!("{program} {value}"));
        }
        Ok(())
    })
}

fn attributes(
    element: &BytesStart<'_>,
    place: u64,
    mut each: impl FnMut(&str, String) -> Result<()>,
) -> Result<()> {
    // Without the check for duplicates, which takes quadratic time; the last one counts.
    for attribute in element.attributes().with_checks(false) {
        let attribute = attribute.map_err(|e| bad(place, e.to_string()))?;
        let value = attribute
            .normalized_value(XmlVersion::Implicit1_0)
            .map_err(|e| bad(place, e.to_string()))?;
        each(attribute.key.as_ref(), value.into_owned())?;
    }
    Ok(())
}

fn number(text: &str, place: u64) -> Result<u64> {
    text.parse().map_err(|_| bad(place, format!("`{text}` is no number")))
}

/// Names are separated by commas; one in a name has a backslash before it.
fn names(text: &str) -> Vec<String> {
    let mut names = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let last = names.last_mut().expect("there is always one");
        match c {
            '\\' if chars.peek() == Some(&',') => {
                last.push(',');
                chars.next();
            }
            ',' => names.push(String::new()),
            c => last.push(c),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"<?xml version="1.0"?>
<net name="a &amp; b" version="11">
  <layers>
    <layer id="7" name="x" type="Parameter" version="opset1">
      <data shape="?,2" element_type="i32"/>
      <output><port id="0" precision="I32" names="x,x\,y:0"><dim>-1</dim><dim>2</dim></port></output>
    </layer>
    <layer id="9" name="x/result" type="Result" version="opset1">
      <rt_info><attribute name="whatever" version="0"><deep/></attribute></rt_info>
      <input><port id="0" precision="ODD"><dim>-1</dim><dim>2</dim></port></input>
    </layer>
  </layers>
  <edges><edge from-layer="7" from-port="0" to-layer="9" to-port="0"/></edges>
  <meta_data><layers><layer/></layers><MO_version value="2022.1"/></meta_data>
</net>"#;

    #[test]
    fn reads_layers_and_edges_only() {
        let net = read(SMALL.as_bytes()).unwrap();
        assert_eq!((net.layers.len(), net.edges.len()), (2, 1));
        assert_eq!((net.name.as_str(), net.version), ("a & b", 11));
        assert_eq!(net.producer.as_deref(), Some("Model Optimizer 2022.1"));
        assert_eq!(net.layers[1].opset, "opset1");
        let x = &net.layers[0];
        assert_eq!((x.id, x.get("shape"), x.get("nothing")), (7, Some("?,2"), None));
        assert_eq!(x.outputs[0].dims, [-1, 2]);
        assert_eq!(x.outputs[0].names, ["x", "x,y:0"]);
        assert_eq!(net.layers[1].inputs[0].dtype, None);
    }

    #[test]
    fn what_is_no_representation() {
        let wrong = |from: &str, to: &str| {
            let text = SMALL.replacen(from, to, 1);
            assert_ne!(text, SMALL);
            read(text.as_bytes()).unwrap_err().to_string()
        };
        assert!(wrong("version=\"11\"", "version=\"9\"").contains("neither 10 nor 11"));
        assert!(wrong("<net ", "<nut ").contains("not `net`"));
        assert!(wrong("id=\"7\"", "id=\"-7\"").contains("no number"));
        assert!(wrong("id=\"7\"", "").contains("no `id`"));
        assert!(wrong("<dim>-1", "<dim>x").contains("no extent"));
        assert!(wrong("<dim>-1", "<dim>-2").contains("no extent"));
        assert!(wrong("from-port=\"0\"", "").contains("four ends"));
        assert!(wrong("</net>", "").contains("too early"));
        assert!(read(b"").unwrap_err().to_string().contains("no `net`"));
        assert!(read(b"\xff\xfe").is_err());
        assert!(read(b"<net version=\"11\"></layers>").is_err());
        for end in 0..SMALL.len() - 1 {
            assert!(read(&SMALL.as_bytes()[..end]).is_err(), "{end}");
        }
    }
}
