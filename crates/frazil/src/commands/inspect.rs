//! `frazil inspect PATH`

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;
use frazil::bert::inventory::{HeadReport, Inventory};
use frazil::bert::names::Head;
use frazil::ops::compile::Description;
use frazil::ops::inspect::graph::OpCount;
use frazil::ops::inspect::{
    self, GraphReport, ModelReport, Options, RecordsReport, Report, TaggedGraph, TensorReport, Why,
};
use frazil::source::{GraphOptions, Kind};
use frazil::tensor::words::plural;

use super::flags::{Flags, PageFlag};
use super::table::{Table, size, thousands};
use crate::cli::Outcome;

/// Tell what is in a model, checkpoint, graph, record file, zip or folder
///
/// The path may be a folder, a checkpoint's prefix, its `.index`, `.data-…` or `.meta`, a `.pb` or
/// `.pbtxt`, a SavedModel, an `.onnx`, an OpenVINO `.xml`, a TFRecord, an `.npz`, a `.safetensors`, a
/// model that `frazil compile` made, or a zip as Google ships them.
/// What it is is found by its content. Tensors are not read unless one is named.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  frazil inspect uncased_L-12_H-768_A-12.zip
  frazil inspect bert_model.ckpt.meta --report bert.html
  frazil inspect model.ckpt-1000 --tensor bert/pooler/dense/bias \\
      --npz pooler.npz")]
pub struct Args {
    /// What to look at
    path: PathBuf,
    /// Print a tensor's statistics and values (can be repeated)
    #[arg(long = "tensor", value_name = "NAME")]
    tensors: Vec<String>,
    /// Extract the named tensors, or all of them, to an `.npz`
    #[arg(long, value_name = "OUT")]
    npz: Option<PathBuf>,
    /// List everything: optimizer slots, a graph's variables, all outputs, sizes and op types
    #[arg(long)]
    all: bool,
    /// List the nodes of the graph: what each reads and what is known of its values
    #[arg(long, conflicts_with_all = ["tensors", "npz", "all"])]
    nodes: bool,
    /// Say what can be raised to LayerNorm, GELU, linear, embedding and attention, and what not
    #[arg(long, conflicts_with_all = ["tensors", "npz", "all", "nodes"])]
    why: bool,
    #[command(flatten)]
    page: PageFlag,
    #[command(flatten)]
    flags: Flags,
}

pub fn run(args: Args, out: &mut dyn Write) -> Result<Outcome> {
    let graph = GraphOptions { source: args.flags.source(), ..GraphOptions::default() };
    if args.page.is_wanted() && (args.nodes || args.why) {
        return Err(frazil::Error::Usage {
            what: "`--report` has no `--nodes`, and tells what `--why` tells anyway".into(),
            hint: "give one or the other; `frazil graph` draws the nodes".into(),
        }
        .into());
    }
    if args.nodes {
        write!(out, "{}", inspect::nodes(&args.path, &graph)?)?;
        return Ok(Outcome::Done);
    }
    if args.why {
        let why = inspect::why(&args.path, &graph)?;
        args.flags.print(&why, out, |why, out| Ok(print_why(why, out)?))?;
        return Ok(Outcome::Done);
    }
    let options = Options { tensors: args.tensors, npz: args.npz, source: args.flags.source() };
    let report = inspect::inspect(&args.path, &options)?;
    args.page.write(|| {
        let page = report.page(inspect::why(&args.path, &graph));
        match &report.compiled {
            Some(compiled) => page.section(compiled.section()),
            None => page,
        }
    })?;
    args.flags.print(&report, out, |report, out| {
        if report.tensors.is_empty() {
            print(report, args.all, out)?;
        }
        for tensor in &report.tensors {
            print_tensor(tensor, out)?;
        }
        if let Some(npz) = &report.npz {
            writeln!(out, "wrote `{}`", npz.display())?;
        }
        Ok(())
    })?;
    Ok(Outcome::Done)
}

fn print_why(why: &Why, out: &mut dyn Write) -> io::Result<()> {
    for note in &why.notes {
        writeln!(out, "note: {note}")?;
    }
    for note in &why.raised {
        writeln!(out, "{}: `{}`: {}", note.rule, note.node, note.text)?;
    }
    for note in &why.missed {
        writeln!(out, "not {}: `{}`: {}", note.rule, note.node, note.text)?;
    }
    for (name, op) in &why.foreign {
        writeln!(out, "cannot run: `{name}` ({op})")?;
    }
    writeln!(out, "{} nodes, {} as it runs: folded, fused and packed", why.before, why.after)
}

fn print(report: &Report, all: bool, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} `{}`", report.kind.describe(), report.path.display())?;
    if let Some(checkpoint) = &report.checkpoint {
        let files = plural(checkpoint.shards, "file");
        write!(
            out,
            "  variables in format V{}, {} data {files}",
            checkpoint.version, checkpoint.shards
        )?;
        if checkpoint.partitioned > 0 {
            write!(out, ", {} of them in slices", checkpoint.partitioned)?;
        }
        if checkpoint.objects {
            write!(out, ", written by TensorFlow 2 as objects")?;
        }
        writeln!(out)?;
    }
    for note in &report.notes {
        writeln!(out, "  {note}")?;
    }
    for missing in report.checkpoint.iter().flat_map(|checkpoint| &checkpoint.missing_data) {
        writeln!(
            out,
            "  `{}` is missing: names and shapes are known, values are not",
            missing.display()
        )?;
    }
    if let Some(inventory) = &report.bert {
        print_inventory(inventory, report, out)?;
    }
    if let Some(config) = &report.config {
        let path = config.path.display();
        match (&config.error, config.differences.as_slice()) {
            (Some(error), _) => writeln!(out, "  `{path}` cannot be used: {error}")?,
            (None, []) => writeln!(out, "  `{path}` agrees with the variables")?,
            (None, differences) => {
                writeln!(out, "  `{path}` contradicts the variables:")?;
                for difference in differences {
                    writeln!(out, "    {difference}")?;
                }
            }
        }
    }
    for graph in &report.graphs {
        print_graph(graph, all, out)?;
    }
    if let Some(model) = &report.model {
        print_model(model, report, all, out)?;
    }
    if let Some(compiled) = &report.compiled {
        print_compiled(compiled, out)?;
    }
    print_variables(report, all, out)?;
    if let Some(records) = &report.records {
        print_records(records, out)?;
    }
    Ok(())
}

fn print_inventory(inventory: &Inventory, report: &Report, out: &mut dyn Write) -> io::Result<()> {
    if let Some(read) = &inventory.from_shapes {
        let config = &read.config;
        // Shapes do not tell the number of heads; the configuration beside does.
        let count = report.heads.unwrap_or(config.num_attention_heads);
        let probably = if report.heads.is_some() { "" } else { "probably " };
        let heads = format!("{probably}{count} {}", plural(count, "head"));
        writeln!(
            out,
            "\nBERT: {} {}, hidden {}, {heads}, intermediate {}, vocabulary {}, {} positions, {} token types",
            config.num_hidden_layers,
            plural(config.num_hidden_layers, "layer"),
            config.hidden_size,
            config.intermediate_size,
            thousands(config.vocab_size as u64),
            config.max_position_embeddings,
            config.type_vocab_size,
        )?;
        writeln!(
            out,
            "  {} parameters in {} variables ({})",
            thousands(inventory.parameters),
            inventory.variables,
            size(inventory.bytes)
        )?;
    } else if let Some(reason) = &inventory.no_bert {
        writeln!(out, "\n{reason}")?;
        return Ok(());
    }
    for rule in &inventory.rules {
        writeln!(out, "  {} ({}, for example `{}`)", rule.rule, rule.count, rule.example)?;
    }
    let mut table = Table::new(&["head", ">found", ">of", "state"]);
    for head in &inventory.heads {
        let labels = match head.labels {
            Some(labels) if head.head == Head::Classifier => format!(", {labels} labels"),
            _ => String::new(),
        };
        table.row([
            format!("{}{labels}", head.head),
            head.found.to_string(),
            head.expected.to_string(),
            state(head),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.print(out)?;
        writeln!(out)?;
    }
    for slot in &inventory.slots {
        let orphans = match slot.orphans {
            0 => String::new(),
            n => format!(", {n} of variables that are not there"),
        };
        writeln!(
            out,
            "  optimizer slot `{}`: {} variables, {}{orphans}",
            slot.kind,
            slot.count,
            size(slot.bytes)
        )?;
    }
    if !inventory.training_state.is_empty() {
        let names: Vec<String> = inventory
            .training_state
            .iter()
            .map(|variable| format!("`{}`", variable.name))
            .collect();
        writeln!(out, "  training state: {}", names.join(", "))?;
    }
    // A graph's other constants are no variables.
    if report.kind != Kind::Graph && !inventory.unexpected.is_empty() {
        const SHOWN: usize = 3;
        let names: Vec<String> =
            inventory.unexpected.iter().take(SHOWN).map(|v| format!("`{}`", v.name)).collect();
        let more = inventory.unexpected.len() - names.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        writeln!(out, "  unexpected, of no head that frazil knows: {}{more}", names.join(", "))?;
    }
    Ok(())
}

fn state(head: &HeadReport) -> String {
    let missing: Vec<&str> = head
        .missing
        .iter()
        .filter(|missing| missing.needed)
        .map(|missing| missing.name.as_str())
        .collect();
    let spare = head.missing.len() - missing.len();
    let mut parts = Vec::new();
    match missing.as_slice() {
        [] => {}
        [one] => parts.push(format!("missing `{one}`")),
        [first, rest @ ..] => parts.push(format!("missing `{first}` and {} more", rest.len())),
    }
    if let Some(wrong) = head.wrong.first() {
        parts.push(format!("`{}` is {:?}, not {:?}", wrong.name, wrong.found, wrong.expected));
    }
    if parts.is_empty() {
        parts.push("complete".into());
    }
    if spare > 0 {
        parts.push(format!("{spare} variables that it does not need are not there"));
    }
    // The encoder leaves every head unused: that says nothing.
    if head.head != Head::Encoder && !head.unused.is_empty() {
        parts.push(format!("{} variables of other heads are unused", head.unused.len()));
    }
    parts.join("; ")
}

fn print_variables(report: &Report, all: bool, out: &mut dyn Write) -> io::Result<()> {
    // Of a graph one wants the nodes; its variables are in the summary.
    let graphs = [Kind::Graph, Kind::MetaGraph, Kind::Onnx, Kind::Openvino];
    if graphs.contains(&report.kind) && !all {
        return Ok(());
    }
    let kind = if report.model.is_some() { "constant" } else { "variable" };
    let mut table = Table::new(&[kind, "dtype", "shape", ">bytes"]);
    let mut hidden = 0;
    for variable in &report.variables {
        if !all && variable.slot {
            hidden += 1;
            continue;
        }
        let key = variable.key.as_ref().map_or(String::new(), |key| format!("  = {key}"));
        table.row([
            format!("{}{key}", variable.name),
            variable.dtype.clone(),
            format!("{:?}", variable.shape),
            variable.bytes.map_or("-".into(), |bytes| thousands(bytes as u64)),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.print(out)?;
    }
    if hidden > 0 {
        writeln!(out, "  … and {hidden} optimizer slots (`--all` lists them)")?;
    }
    Ok(())
}

fn print_graph(tagged: &TaggedGraph, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let GraphReport { nodes, functions, producer, variables, .. } = tagged.graph;
    writeln!(out)?;
    if !tagged.tags.is_empty() {
        write!(out, "tag set `{}`: ", tagged.tags.join(","))?;
    }
    let training = if tagged.graph.training { ", with training nodes" } else { "" };
    let variables =
        if variables == 0 { ", frozen".into() } else { format!(", {variables} variables") };
    write!(out, "graph of {} nodes{variables}{training}", thousands(nodes as u64))?;
    if functions > 0 {
        write!(out, ", {functions} functions")?;
    }
    if let Some(version) = &tagged.tensorflow {
        write!(out, ", TensorFlow {version}")?;
    } else if producer > 0 {
        write!(out, ", producer version {producer}")?;
    }
    writeln!(out)?;
    for signature in &tagged.signatures {
        writeln!(out, "\n  signature `{}` ({})", signature.key, signature.method)?;
        let mut table = Table::new(&["", "name", "tensor", "type"]);
        let sides = [("input", &signature.inputs), ("output", &signature.outputs)];
        for (side, rows) in sides {
            for [name, tensor, kind] in rows {
                table.row([side.into(), name.clone(), tensor.clone(), kind.clone()]);
            }
        }
        table.print(out)?;
    }
    let graph = &tagged.graph;
    let mut table = Table::new(&["input", "type", "shape", ""]);
    for input in &graph.inputs {
        let used = if input.used { "" } else { "nothing reads it" };
        table.row([input.tensor.clone(), input.dtype.clone(), input.shape.clone(), used.into()]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.print(out)?;
    }
    const OUTPUTS: usize = 8;
    let shown = if all { graph.outputs.len() } else { OUTPUTS };
    let mut table = Table::new(&["likely output", "op", "why"]);
    for output in graph.outputs.iter().take(shown) {
        table.row([output.tensor.clone(), output.op.clone(), output.reason.clone()]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        table.print(out)?;
    }
    if graph.outputs.len() > shown {
        writeln!(out, "  … and {} more (`--all`)", graph.outputs.len() - shown)?;
    }
    print_baked(graph, all, out)?;
    print_ops(&graph.ops, all, out)
}

fn print_ops(ops: &[OpCount], all: bool, out: &mut dyn Write) -> io::Result<()> {
    const OPS: usize = 12;
    let shown = if all { ops.len() } else { OPS };
    let more = ops.len().saturating_sub(shown);
    let ops: Vec<String> =
        ops.iter().take(shown).map(|op| format!("{} {}", op.op, op.count)).collect();
    let more = if more > 0 { format!(", … {more} more types (`--all`)") } else { String::new() };
    writeln!(out, "\n  ops: {}{more}", ops.join(", "))
}

fn print_model(
    model: &ModelReport,
    report: &Report,
    all: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let version = if report.kind == Kind::Onnx { "IR version" } else { "version" };
    write!(out, "  {version} {}", model.version)?;
    for set in &model.opsets {
        match (set.domain.as_str(), set.version) {
            ("", number) => write!(out, ", operation set {number}")?,
            (domain, 0) => write!(out, ", operations of `{domain}`")?,
            (domain, number) => write!(out, ", `{domain}` {number}")?,
        }
    }
    if let Some(producer) = &model.producer {
        write!(out, ", written by {producer}")?;
    }
    writeln!(out)?;
    if !model.beside.is_empty() {
        let files: Vec<String> = model.beside.iter().map(|file| format!("`{file}`")).collect();
        writeln!(out, "  weights in {}", files.join(", "))?;
    }
    let constants = thousands(report.variables.len() as u64);
    let (nodes, parameters) = (thousands(model.nodes as u64), thousands(model.parameters));
    writeln!(out, "\ngraph of {nodes} nodes, {parameters} parameters in {constants} constants\n")?;
    let mut table = Table::new(&["", "name", "type", "shape"]);
    for (side, ends) in [("input", &model.inputs), ("output", &model.outputs)] {
        for end in ends {
            table.row([side.into(), end.name.clone(), end.dtype.clone(), end.shape.clone()]);
        }
    }
    table.print(out)?;
    print_ops(&model.ops, all, out)
}

fn print_compiled(compiled: &Description, out: &mut dyn Write) -> io::Result<()> {
    let products = plural(compiled.products, "product");
    let bytes = compiled.products_in();
    writeln!(out, "  compiled by frazil {}, {}", compiled.frazil, size(compiled.bytes))?;
    writeln!(
        out,
        "  {} {products}, {bytes}, packed for {}",
        compiled.products,
        compiled.isas.join(" and ")
    )?;
    if !compiled.readable {
        writeln!(out, "  this frazil cannot run it: compile the model again")?;
    }
    let mut table = Table::new(&["", "name", "type", "shape"]);
    for end in &compiled.inputs {
        table.row(["input".into(), end.name.clone(), end.dtype.clone(), end.shape.clone()]);
    }
    for name in &compiled.outputs {
        table.row(["output".into(), name.clone(), String::new(), String::new()]);
    }
    writeln!(out)?;
    table.print(out)?;
    writeln!(out, "\n  `frazil run`, `bench` and `predict` take it")
}

fn print_baked(graph: &GraphReport, all: bool, out: &mut dyn Write) -> io::Result<()> {
    let baked = &graph.baked;
    let sizes = match (baked.batch, baked.sequence) {
        (None, None) => return writeln!(out, "\n  batch and sequence length are free"),
        (Some(batch), None) => format!("batch {batch}"),
        (None, Some(sequence)) => format!("sequence length {sequence}"),
        (Some(batch), Some(sequence)) => format!("batch {batch} and sequence length {sequence}"),
    };
    let places = plural(baked.places.len(), "place");
    writeln!(out, "\n  baked in: {sizes}, in {} {places}", baked.places.len())?;
    const PLACES: usize = 6;
    let shown = if all { baked.places.len() } else { PLACES };
    let mut table = Table::new(&["node", "holds", "value"]);
    for place in baked.places.iter().take(shown) {
        table.row([place.node.clone(), place.holds.clone(), place.value.clone()]);
    }
    table.print(out)?;
    if baked.places.len() > shown {
        writeln!(out, "  … and {} more (`--all`)", baked.places.len() - shown)?;
    }
    Ok(())
}

fn print_records(records: &RecordsReport, out: &mut dyn Write) -> io::Result<()> {
    let noun = plural(records.records, "record");
    write!(out, "\n{} {noun}", thousands(records.records))?;
    if records.bytes > 0 {
        write!(out, ", {}", size(records.bytes))?;
    }
    writeln!(out)?;
    let mut table = Table::new(&["feature", "type", ">examples", ">values"]);
    for feature in &records.features {
        let values = if feature.shortest == feature.longest {
            feature.longest.to_string()
        } else {
            format!("{} to {}", feature.shortest, feature.longest)
        };
        table.row([feature.name.clone(), feature.kind.into(), thousands(feature.examples), values]);
    }
    if !table.is_empty() {
        table.print(out)?;
    }
    let mut table = Table::new(&["tag", ">values"]);
    for (tag, count) in &records.tags {
        table.row([tag.clone(), thousands(*count)]);
    }
    if !table.is_empty() {
        table.print(out)?;
    }
    Ok(())
}

fn print_tensor(tensor: &TensorReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "`{}`: {} {:?}, {}",
        tensor.name,
        tensor.dtype,
        tensor.shape,
        size(tensor.bytes as u64)
    )?;
    if let Some(s) = &tensor.statistics {
        writeln!(
            out,
            "  min {:.6}  max {:.6}  mean {:.6}  std {:.6}",
            s.min, s.max, s.mean, s.std
        )?;
        for (count, what) in [(s.zeros, "zeros"), (s.nan, "not a number"), (s.infinite, "infinite")]
        {
            if count > 0 {
                writeln!(out, "  {} {what}", thousands(count as u64))?;
            }
        }
    }
    let gap = tensor.first.len() + tensor.last.len() < tensor.shape.iter().product();
    let parts = [tensor.first.join(", "), tensor.last.join(", ")];
    let parts: Vec<&str> =
        parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    writeln!(out, "  {}", parts.join(if gap { ", …, " } else { ", " }))
}
