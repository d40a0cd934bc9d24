//! The `.xml`: layers, then edges.

use std::io::{self, Write};

use frazil_graph::Dim;
use quick_xml::escape::escape;

use super::blob::{Layout, Place};
use super::net::{Layer, Net, Out, type_names};

/// The version that OpenVINO 2022.1 introduced, and that all later ones read and write.
const VERSION: u32 = 11;

/// Writes the representation; constants get their places in the order of the layers.
pub(super) fn write(
    net: &Net,
    name: &str,
    layout: &mut Layout,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "<?xml version=\"1.0\"?>")?;
    writeln!(out, "<net name=\"{}\" version=\"{VERSION}\">", escape(name))?;
    writeln!(out, "\t<layers>")?;
    for (id, layer) in net.layers.iter().enumerate() {
        let place = layer.blob.as_ref().map(|blob| layout.place(blob));
        write_layer(net, id, layer, place, out)?;
    }
    writeln!(out, "\t</layers>")?;
    writeln!(out, "\t<edges>")?;
    for (to, layer) in net.layers.iter().enumerate() {
        for (port, wire) in layer.inputs.iter().enumerate() {
            let from = wire.layer;
            // A layer's ports are numbered through, inputs first.
            let from_port = net.layers[from].inputs.len() + wire.output;
            writeln!(
                out,
                "\t\t<edge from-layer=\"{from}\" from-port=\"{from_port}\" to-layer=\"{to}\" to-port=\"{port}\" />"
            )?;
        }
    }
    writeln!(out, "\t</edges>")?;
    writeln!(out, "\t<rt_info>")?;
    writeln!(out, "\t\t<frazil_version value=\"{}\" />", env!("CARGO_PKG_VERSION"))?;
    writeln!(out, "\t</rt_info>")?;
    writeln!(out, "</net>")
}

fn write_layer(
    net: &Net,
    id: usize,
    layer: &Layer,
    place: Option<Place>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let (name, kind, opset) = (escape(&layer.name), layer.kind, layer.opset);
    writeln!(
        out,
        "\t\t<layer id=\"{id}\" name=\"{name}\" type=\"{kind}\" version=\"opset{opset}\">"
    )?;
    if !layer.data.is_empty() {
        write!(out, "\t\t\t<data")?;
        for (key, value) in &layer.data {
            write!(out, " {key}=\"{}\"", escape(value))?;
        }
        if let Some(Place { offset, size }) = place {
            write!(out, " offset=\"{offset}\" size=\"{size}\"")?;
        }
        writeln!(out, " />")?;
    }
    if layer.decompression {
        writeln!(out, "\t\t\t<rt_info>")?;
        writeln!(out, "\t\t\t\t<attribute name=\"decompression\" version=\"0\" />")?;
        writeln!(out, "\t\t\t</rt_info>")?;
    }
    if !layer.inputs.is_empty() {
        writeln!(out, "\t\t\t<input>")?;
        for (port, wire) in layer.inputs.iter().enumerate() {
            write_port(port, net.out(*wire), &[], out)?;
        }
        writeln!(out, "\t\t\t</input>")?;
    }
    if !layer.outputs.is_empty() {
        writeln!(out, "\t\t\t<output>")?;
        for (i, port) in layer.outputs.iter().enumerate() {
            write_port(layer.inputs.len() + i, port, &port.names, out)?;
        }
        writeln!(out, "\t\t\t</output>")?;
    }
    writeln!(out, "\t\t</layer>")
}

fn write_port(id: usize, port: &Out, names: &[String], out: &mut dyn Write) -> io::Result<()> {
    let (precision, _) =
        type_names(port.dtype).expect("types that OpenVINO lacks were refused before");
    write!(out, "\t\t\t\t<port id=\"{id}\" precision=\"{precision}\"")?;
    if !names.is_empty() {
        // A comma separates names, so one in a name is escaped.
        let names: Vec<String> = names.iter().map(|name| name.replace(',', "\\,")).collect();
        write!(out, " names=\"{}\"", escape(names.join(",")))?;
    }
    let dims = port.dims.as_deref().unwrap_or_default();
    if dims.is_empty() {
        return writeln!(out, " />");
    }
    writeln!(out, ">")?;
    for dim in dims {
        writeln!(out, "\t\t\t\t\t<dim>{}</dim>", extent(dim))?;
    }
    writeln!(out, "\t\t\t\t</port>")
}

/// The number, or -1 for what is known at run time only.
fn extent(dim: &Dim) -> i64 {
    dim.as_known().unwrap_or(-1)
}
