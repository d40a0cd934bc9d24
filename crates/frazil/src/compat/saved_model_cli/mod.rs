//! `saved_model_cli` of TensorFlow 1.15: `show` and `scan`, with the same output. What the
//! original answers with a Python traceback is an error here, and so is a signature that does
//! not exist (the original prints an empty one). Running and converting a model are not here.

mod functions;
mod python;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Subcommand;
use frazil::Error;
use frazil::tf::proto::{MetaGraphDef, SignatureDef, TensorInfo, tensor_info::Encoding};
use frazil::tf::saved_model::SavedModelDir;
use frazil::tf::{dtype, meta_graph, nearest};

use crate::cli::Outcome;

/// Look into SavedModels
#[derive(Debug, clap::Args)]
#[command(
    infer_long_args = true,
    after_help = "Examples:
  frazil saved_model_cli show --dir export/1571234567 --all
  frazil saved_model_cli scan --dir export/1571234567"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows tag-sets, signatures, inputs and outputs
    Show(ShowArgs),
    /// Scans for ops that read or write files, or print
    Scan(ScanArgs),
    /// Runs a model: not part of this tool
    #[command(hide = true)]
    Run(Refused),
    /// Converts a model: not part of this tool
    #[command(hide = true)]
    Convert(Refused),
}

#[derive(Debug, clap::Args)]
#[command(
    infer_long_args = true,
    after_help = "Examples:
  frazil saved_model_cli show --dir export/1571234567 --all
  frazil saved_model_cli show --dir export/1571234567 --tag_set serve \\
      --signature_def serving_default"
)]
struct ShowArgs {
    /// Folder of the SavedModel
    #[arg(long)]
    dir: PathBuf,
    /// Show everything
    #[arg(long)]
    all: bool,
    /// Tag-set of the MetaGraph to show: all of its tags, separated by `,`
    #[arg(long = "tag_set")]
    tag_set: Option<String>,
    /// Signature whose inputs and outputs to show
    #[arg(long = "signature_def", value_name = "SIGNATURE_DEF_KEY")]
    signature_def: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(
    infer_long_args = true,
    after_help = "Examples:
  frazil saved_model_cli scan --dir export/1571234567
  frazil saved_model_cli scan --dir export/1571234567 --tag_set serve"
)]
struct ScanArgs {
    /// Folder of the SavedModel
    #[arg(long)]
    dir: PathBuf,
    /// Tag-set of the MetaGraph to scan: all of its tags, separated by `,`
    #[arg(long = "tag_set")]
    tag_set: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
struct Refused {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Runs the command; its output goes to `out`.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    match args.command {
        Command::Show(args) => show(&args, out)?,
        Command::Scan(args) => scan(&args, out)?,
        Command::Run(_) => return Err(refused("run").into()),
        Command::Convert(_) => return Err(refused("convert").into()),
    }
    Ok(Outcome::Done)
}

fn refused(command: &str) -> Error {
    Error::Usage {
        what: format!("this `saved_model_cli` has no `{command}`"),
        hint: "it has only `show` and `scan`".into(),
    }
}

fn show(args: &ShowArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let model = SavedModelDir::open(&args.dir)?;
    let idle = match (args.all, &args.tag_set, &args.signature_def) {
        (true, Some(_), _) => Some("`--tag_set` has no effect with `--all`"),
        (true, None, Some(_)) => Some("`--signature_def` has no effect with `--all`"),
        (false, None, Some(_)) => Some("`--signature_def` has no effect without `--tag_set`"),
        _ => None,
    };
    if let Some(idle) = idle {
        say!("warning: {idle}");
    }
    if args.all {
        return Ok(show_all(&model, out)?);
    }
    let Some(tags) = &args.tag_set else { return Ok(show_tag_sets(&model, out)?) };
    let meta = meta_graph(&model, tags)?;
    match &args.signature_def {
        None => show_signature_keys(meta, out)?,
        Some(key) => {
            let signature = meta.signature_def.get(key).ok_or_else(|| no_signature(meta, key))?;
            show_signature(signature, "", out)?;
        }
    }
    Ok(())
}

fn meta_graph<'m>(model: &'m SavedModelDir, tags: &str) -> anyhow::Result<&'m MetaGraphDef> {
    Ok(model.meta_graph(&tags.split(',').collect::<Vec<_>>())?)
}

fn no_signature(meta: &MetaGraphDef, key: &str) -> Error {
    let keys: Vec<&str> = meta.signature_def.keys().map(String::as_str).collect();
    let hint = match nearest(key, keys.iter().copied()).first() {
        Some(near) => format!("did you mean `{near}`?"),
        None if keys.is_empty() => "this MetaGraph has no signatures at all".into(),
        None => format!("the signatures are: `{}`", keys.join("`, `")),
    };
    Error::Usage { what: format!("no signature is named `{key}`"), hint }
}

/// The MetaGraphs in the order of their tags as the file lists them.
fn in_order(model: &SavedModelDir) -> Vec<&MetaGraphDef> {
    let mut metas: Vec<&MetaGraphDef> = model.proto().meta_graphs.iter().collect();
    metas.sort_by_key(|meta| meta_graph::tags(meta));
    metas
}

fn show_tag_sets(model: &SavedModelDir, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "The given SavedModel contains the following tag-sets:")?;
    for meta in in_order(model) {
        let mut tags = meta_graph::tags(meta).to_vec();
        tags.sort();
        writeln!(out, "{}", tags.join(", "))?;
    }
    Ok(())
}

fn show_signature_keys(meta: &MetaGraphDef, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "The given SavedModel MetaGraphDef contains SignatureDefs with the following keys:"
    )?;
    for key in meta.signature_def.keys() {
        writeln!(out, "SignatureDef key: \"{key}\"")?;
    }
    Ok(())
}

fn show_all(model: &SavedModelDir, out: &mut dyn Write) -> io::Result<()> {
    for meta in in_order(model) {
        let tags = meta_graph::tags(meta).join(", ");
        writeln!(
            out,
            "\nMetaGraphDef with tag-set: '{tags}' contains the following SignatureDefs:"
        )?;
        for (key, signature) in &meta.signature_def {
            writeln!(out, "\nsignature_def['{key}']:")?;
            show_signature(signature, "  ", out)?;
        }
    }
    functions::show(model.proto(), out)
}

fn show_signature(signature: &SignatureDef, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let sides = [("input", "inputs", &signature.inputs), ("output", "outputs", &signature.outputs)];
    for (side, field, tensors) in sides {
        writeln!(
            out,
            "{indent}The given SavedModel SignatureDef contains the following {side}(s):"
        )?;
        for (key, tensor) in tensors {
            writeln!(out, "{indent}  {field}['{key}'] tensor_info:")?;
            show_tensor(tensor, indent, out)?;
        }
    }
    writeln!(out, "{indent}Method name is: {}", signature.method_name)
}

fn show_tensor(tensor: &TensorInfo, indent: &str, out: &mut dyn Write) -> io::Result<()> {
    let shape = match &tensor.tensor_shape {
        Some(shape) if shape.unknown_rank => "unknown_rank".into(),
        shape => {
            let dims = shape.iter().flat_map(|shape| &shape.dim);
            let dims: Vec<String> = dims.map(|dim| dim.size.to_string()).collect();
            format!("({})", dims.join(", "))
        }
    };
    // A sparse or composite tensor has several names, and the original shows none of them.
    let name = match &tensor.encoding {
        Some(Encoding::Name(name)) => name,
        _ => "",
    };
    writeln!(out, "{indent}      dtype: {}", dtype::name(tensor.dtype))?;
    writeln!(out, "{indent}      shape: {shape}")?;
    writeln!(out, "{indent}      name: {name}")
}

/// The ops that a model from elsewhere should not have.
const DENIED: [&str; 3] = ["PrintV2", "ReadFile", "WriteFile"];

fn scan(args: &ScanArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let model = SavedModelDir::open(&args.dir)?;
    match args.tag_set.as_deref() {
        None | Some("") => {
            for meta in &model.proto().meta_graphs {
                scan_meta_graph(meta, out)?;
            }
        }
        Some(tags) => scan_meta_graph(meta_graph(&model, tags)?, out)?,
    }
    Ok(())
}

fn scan_meta_graph(meta: &MetaGraphDef, out: &mut dyn Write) -> io::Result<()> {
    let tags: Vec<String> = meta_graph::tags(meta).iter().map(|tag| python::quoted(tag)).collect();
    let tags = tags.join(", ");
    let found: Vec<String> =
        ops(meta).into_iter().filter(|op| DENIED.contains(op)).map(python::quoted).collect();
    if found.is_empty() {
        return writeln!(out, "MetaGraph with tag set [{tags}] does not contain blacklisted ops.");
    }
    let found = found.join(", ");
    writeln!(
        out,
        "MetaGraph with tag set [{tags}] contains the following blacklisted ops: {{{found}}}"
    )
}

/// The types of all ops, those in functions among them. (The original does not look into
/// functions that are called by an attribute, as all of TensorFlow 2's are.)
fn ops(meta: &MetaGraphDef) -> BTreeSet<&str> {
    let graphs = meta.graph_def.iter();
    let functions = graphs.clone().flat_map(|graph| &graph.library).flat_map(|l| &l.function);
    let nodes = graphs.flat_map(|graph| &graph.node);
    nodes.chain(functions.flat_map(|f| &f.node_def)).map(|node| node.op.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use frazil::tensor::testing::shared;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn output(arguments: &[&str]) -> Result<String, String> {
        let cli = Cli::try_parse_from(["saved_model_cli"].iter().chain(arguments))
            .map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        run(cli.args, &mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn fixture(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/saved_model_cli");
        folder.join(name).to_str().unwrap().to_owned()
    }

    #[test]
    fn the_classifier_word_for_word() {
        let Some(folder) = shared("fixtures/classifier") else { return };
        let dir = folder.join("saved_models/1794770949");
        let dir = dir.to_str().unwrap();
        let cases: [(&str, &[&str]); 4] = [
            ("dir", &["show", "--dir", dir]),
            ("tag_set", &["show", "--dir", dir, "--tag_set", "serve"]),
            (
                "signature",
                &["show", "--dir", dir, "--tag_set=serve", "--signature_def", "serving_default"],
            ),
            ("all", &["show", "--dir", dir, "--all"]),
        ];
        for (name, arguments) in cases {
            let wanted = folder.join(format!("saved_model_cli_show_{name}.txt"));
            let wanted = std::fs::read_to_string(wanted).unwrap();
            assert_eq!(output(arguments).unwrap(), wanted, "{name}");
        }
    }

    #[test]
    fn odd_models_word_for_word() {
        for name in ["variety", "functions", "call"] {
            let wanted = std::fs::read_to_string(fixture(&format!("{name}.txt"))).unwrap();
            let shown = output(&["show", "--dir", &fixture(name), "--all"]).unwrap();
            assert_eq!(shown, wanted, "{name}");
        }
        let shown = output(&["show", "--dir", &fixture("variety")]).unwrap();
        let wanted = "The given SavedModel contains the following tag-sets:\nserve\ngpu, serve\n";
        assert_eq!(shown, wanted);
    }

    #[test]
    fn scanning() {
        let dir = fixture("variety");
        let wanted = "MetaGraph with tag set ['serve', 'gpu'] does not contain blacklisted ops.\n\
                      MetaGraph with tag set ['serve'] contains the following blacklisted ops: \
                      {'ReadFile', 'WriteFile'}\n";
        assert_eq!(output(&["scan", "--dir", &dir]).unwrap(), wanted);
        let wanted = wanted.lines().next().unwrap().to_owned() + "\n";
        assert_eq!(output(&["scan", "--dir", &dir, "--tag_set", "gpu,serve"]).unwrap(), wanted);
        // In a function that a node calls by an attribute: more than the original finds.
        let wanted = "MetaGraph with tag set ['serve'] contains the following blacklisted ops: \
                      {'ReadFile'}\n";
        assert_eq!(output(&["scan", "--dir", &fixture("call")]).unwrap(), wanted);
    }

    #[test]
    fn errors_name_what_is_missing() {
        let dir = fixture("variety");
        let error = |arguments: &[&str]| output(arguments).unwrap_err();
        assert!(
            error(&["show", "--dir", "/nowhere"]).starts_with("`/nowhere` is not a SavedModel")
        );
        assert_eq!(
            error(&["show", "--dir", &dir, "--tag_set", "gpu"]),
            "no MetaGraph has exactly the tags `gpu`"
        );
        let show = ["show", "--dir", &dir, "--tag_set", "serve,gpu", "--signature_def", "serving"];
        assert_eq!(error(&show), "no signature is named `serving`");
        assert_eq!(
            error(&["run", "--dir", &dir, "--inputs", "x=y"]),
            "this `saved_model_cli` has no `run`"
        );
        assert_eq!(
            error(&["convert", "--dir", &dir, "tensorrt"]),
            "this `saved_model_cli` has no `convert`"
        );
    }
}
