//! `freeze_graph` of TensorFlow 1.15: the same flags, read as Python's argparse reads them, the
//! same messages, the same exit codes (1 where the original raises, 2 for a wrong command line).
//! Flags that nobody knows are ignored as there, but reported; `--noclear_devices` and
//! `--noinput_binary`, which the original ignores too, mean what they say.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Arg;
use frazil::Error;
use frazil::ops::freeze_graph::{Event, Options, freeze_graph};
use frazil::tensor::nearest;

use crate::cli::{self, Outcome};
use crate::help::tools;

/// Turn the variables of a graph into constants, as TensorFlow 1.15's tool does
#[derive(Debug, clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  frazil freeze_graph --input_meta_graph=model.ckpt-0.meta \\
      --input_checkpoint=model.ckpt-0 --output_node_names=add_1 \\
      --output_graph=frozen.pb --input_binary=true
  frazil freeze_graph --input_saved_model_dir=export/1564086017 \\
      --output_node_names=loss/Softmax --output_graph=frozen.pb"
)]
pub struct Args {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Whether a flag takes a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Value,
    /// `true` or anything else; `true` if there is none.
    Truth,
}

/// Every flag, with its help.
const FLAGS: [(&str, Takes, &str); 16] = [
    ("input_graph", Takes::Value, "GraphDef to freeze"),
    ("input_saver", Takes::Value, "SaverDef that says how the checkpoint is restored"),
    ("input_checkpoint", Takes::Value, "prefix of the checkpoint with the weights"),
    ("checkpoint_version", Takes::Value, "1 or 2; both are read, whatever it says"),
    ("output_graph", Takes::Value, "file to write the frozen GraphDef to"),
    ("input_binary", Takes::Truth, "whether the input files are binary (default: false)"),
    ("output_node_names", Takes::Value, "nodes whose values are wanted, separated by `,`"),
    ("restore_op_name", Takes::Value, "has no effect"),
    ("filename_tensor_name", Takes::Value, "has no effect"),
    ("clear_devices", Takes::Truth, "whether nodes lose their devices (default: true)"),
    ("initializer_nodes", Takes::Value, "nodes to run before freezing, separated by `,`"),
    ("variable_names_whitelist", Takes::Value, "variables to freeze, if not all"),
    ("variable_names_blacklist", Takes::Value, "variables not to freeze"),
    ("input_meta_graph", Takes::Value, "MetaGraphDef to freeze"),
    ("input_saved_model_dir", Takes::Value, "folder of the SavedModel to freeze"),
    ("saved_model_tags", Takes::Value, "all tags of the MetaGraph in it (default: serve)"),
];

/// Runs the command. The original's log goes to stderr.
pub fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let words: Vec<String> =
        args.arguments.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let parsed = parse(&words)?;
    if parsed.help {
        write!(out, "{}", usage())?;
        return Ok(Outcome::Done);
    }
    for word in &parsed.unknown {
        let name = word.trim_start_matches('-').split('=').next().unwrap_or_default();
        let near = nearest(name, FLAGS.iter().map(|(flag, ..)| *flag));
        let near = near.first().filter(|_| word.starts_with('-'));
        let near = near.map(|near| format!("; did you mean `--{near}`?")).unwrap_or_default();
        say!("warning: `{word}` is no flag of freeze_graph; it is ignored{near}");
    }
    let mut failed = Ok(());
    let result = options(&parsed).and_then(|options| {
        freeze_graph(&options, &mut |event| match event {
            Event::LoadedMetaGraph(path) => {
                let written = writeln!(out, "Loaded meta graph file '{}", path.display());
                if written.is_err() {
                    failed = written;
                }
            }
            Event::Restoring(path) => {
                say!("INFO:tensorflow:Restoring parameters from {}", path.display());
            }
            Event::NoVariables => say!(
                "INFO:tensorflow:The specified SavedModel has no variables; no checkpoints were \
                 restored."
            ),
            Event::Froze(count) => say!("INFO:tensorflow:Froze {count} variables."),
            Event::Converted(count) => {
                say!("INFO:tensorflow:Converted {count} variables to const ops.");
            }
            Event::Note(note) => say!("note: {note}"),
        })
    });
    failed?;
    match result {
        Ok(_) => Ok(Outcome::Done),
        Err(error) => {
            // What ends the original with a traceback ends it with exit code 1.
            cli::report(&error.into());
            Ok(Outcome::CheckFailed)
        }
    }
}

/// The words as flags and the rest.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parsed {
    /// Name and value, in order; the last one of a name counts.
    values: Vec<(&'static str, String)>,
    unknown: Vec<String>,
    help: bool,
}

impl Parsed {
    fn get(&self, name: &str) -> &str {
        self.values.iter().rev().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }
}

fn parse(words: &[String]) -> Result<Parsed, Error> {
    let mut parsed = Parsed::default();
    let mut rest = words.iter().peekable();
    while let Some(word) = rest.next() {
        if matches!(word.as_str(), "-h" | "--help") {
            parsed.help = true;
            return Ok(parsed);
        }
        let Some(flag) = word.strip_prefix("--").filter(|flag| !flag.is_empty()) else {
            if word != "--" {
                parsed.unknown.push(word.clone());
            }
            continue;
        };
        let (name, mut value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, None),
        };
        let Some((name, takes)) = find(name, word)? else {
            match name.strip_prefix("no").and_then(truth_flag) {
                Some(known) if value.is_none() => parsed.values.push((known, "false".to_owned())),
                _ => parsed.unknown.push(word.clone()),
            }
            continue;
        };
        if value.is_none() {
            value = rest.next_if(|next| !next.starts_with('-')).cloned();
        }
        match (value, takes) {
            (Some(value), _) if name == "checkpoint_version" && value.parse::<i64>().is_err() => {
                return Err(Error::Usage {
                    what: format!("argument --{name}: invalid int value: '{value}'"),
                    hint: "write 1 or 2".into(),
                });
            }
            (Some(value), _) => parsed.values.push((name, value)),
            (None, Takes::Truth) => parsed.values.push((name, "true".to_owned())),
            (None, Takes::Value) => {
                return Err(Error::Usage {
                    what: format!("argument --{name}: expected one argument"),
                    hint: format!("write `--{name}=VALUE`"),
                });
            }
        }
    }
    Ok(parsed)
}

/// The flag of that name, or the only one that begins with it.
fn find(name: &str, word: &str) -> Result<Option<(&'static str, Takes)>, Error> {
    let exact = FLAGS.iter().find(|(flag, ..)| *flag == name);
    if let Some(&(flag, takes, _)) = exact {
        return Ok(Some((flag, takes)));
    }
    let likely: Vec<_> = FLAGS.iter().filter(|(flag, ..)| flag.starts_with(name)).collect();
    match likely.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((one.0, one.1))),
        several => {
            let names: Vec<String> = several.iter().map(|(n, ..)| format!("--{n}")).collect();
            Err(Error::Usage {
                what: format!("ambiguous option: {word} could match {}", names.join(", ")),
                hint: "write the flag in full".into(),
            })
        }
    }
}

fn truth_flag(name: &str) -> Option<&'static str> {
    let flag = FLAGS.iter().find(|(flag, takes, _)| *flag == name && *takes == Takes::Truth);
    flag.map(|(flag, ..)| *flag)
}

/// What the flags mean. An empty value is none.
fn options(parsed: &Parsed) -> Result<Options, Error> {
    let version = parsed.get("checkpoint_version");
    if !matches!(version, "" | "1" | "2") {
        let what = format!("Invalid checkpoint version (must be '1' or '2'): {version}");
        return Err(Error::Usage { what, hint: "leave it out: both are read".into() });
    }
    let text = |name: &str| Some(parsed.get(name)).filter(|value| !value.is_empty());
    let path = |name: &str| text(name).map(PathBuf::from);
    let truth = |name: &str, default: bool| match text(name) {
        Some(value) => value.eq_ignore_ascii_case("true"),
        None => default,
    };
    let list = |name: &str| -> Vec<String> {
        let without_spaces = text(name).map(|value| value.replace(' ', ""));
        without_spaces.iter().flat_map(|v| v.split(',')).map(str::to_owned).collect()
    };
    Ok(Options {
        input_graph: path("input_graph"),
        input_saver: path("input_saver"),
        input_checkpoint: path("input_checkpoint"),
        output_graph: path("output_graph"),
        input_binary: truth("input_binary", false),
        output_node_names: list("output_node_names"),
        clear_devices: truth("clear_devices", true),
        initializer_nodes: list("initializer_nodes"),
        variable_names_whitelist: text("variable_names_whitelist")
            .map(|_| list("variable_names_whitelist").into_iter().collect()),
        variable_names_blacklist: list("variable_names_blacklist").into_iter().collect(),
        input_meta_graph: path("input_meta_graph"),
        input_saved_model_dir: path("input_saved_model_dir"),
        saved_model_tags: match list("saved_model_tags") {
            tags if tags.is_empty() => vec!["serve".to_owned()],
            tags => tags,
        },
    })
}

/// The flags as clap's, to be shown and completed.
pub fn flags() -> Vec<Arg> {
    let arg = |(name, takes, help): (&'static str, Takes, &'static str)| match takes {
        Takes::Value => tools::flag(name, help),
        Takes::Truth => tools::truth(name, help).require_equals(false),
    };
    FLAGS.map(arg).to_vec()
}

fn usage() -> String {
    let mut text = "usage: freeze_graph [--FLAG=VALUE ...]\n\n\
                    Turns the variables of a graph into constants, as TensorFlow 1.15 does it.\n\n"
        .to_owned();
    for (name, takes, help) in FLAGS {
        let flag = match takes {
            Takes::Value => format!("--{name} VALUE"),
            Takes::Truth => format!("--{name} [true|false]"),
        };
        text.push_str(&format!("  {flag:<36} {help}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Parsed {
        parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap()
    }

    fn error(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        parse(&words).and_then(|parsed| options(&parsed).map(|_| ())).unwrap_err().to_string()
    }

    #[test]
    fn all_the_ways_to_write_a_flag() {
        let words = ["--input_graph", "a", "--input_binary", "--output_node_names=x, y"];
        let found = options(&read(&words)).unwrap();
        assert_eq!(found.input_graph, Some("a".into()));
        assert!(found.input_binary && found.clear_devices);
        assert_eq!(found.output_node_names, ["x", "y"]);
        // Anything but `true` is false, a later flag wins, and a beginning will do.
        for (words, binary) in [
            (&["--input_binary=True"][..], true),
            (&["--input_binary", "TRUE"], true),
            (&["--input_binary=1"], false),
            (&["--input_binary", "--clear_devices=false"], true),
            (&["--input_b", "--noinput_binary"], false),
        ] {
            assert_eq!(options(&read(words)).unwrap().input_binary, binary, "{words:?}");
        }
        for words in [&["--clear_devices=false"][..], &["--noclear_devices"], &["--clear", "no"]] {
            assert!(!options(&read(words)).unwrap().clear_devices, "{words:?}");
        }
        let lists = ["--variable_names_w=a, b", "--variable_names_b", "c"];
        let found = options(&read(&lists)).unwrap();
        assert_eq!(found.variable_names_whitelist, Some(["a".into(), "b".into()].into()));
        assert_eq!(found.variable_names_blacklist, ["c".into()].into());
    }

    #[test]
    fn what_is_unknown_is_kept_apart() {
        let parsed = read(&["--nonsense=3", "stray", "--input_graph=a", "--nothing", "-x", "--"]);
        assert_eq!(parsed.unknown, ["--nonsense=3", "stray", "--nothing", "-x"]);
        assert_eq!(parsed.get("input_graph"), "a");
        assert!(read(&["--input_graph=a", "--help", "--input"]).help);
        assert!(usage().contains("--input_saved_model_dir VALUE"));
    }

    #[test]
    fn wrong_lines_are_answered_in_the_originals_words() {
        assert_eq!(error(&["--input_graph"]), "argument --input_graph: expected one argument");
        assert!(error(&["--input=x"]).starts_with("ambiguous option: --input=x could match"));
        assert_eq!(
            error(&["--checkpoint_version=3"]),
            "Invalid checkpoint version (must be '1' or '2'): 3"
        );
        assert_eq!(
            error(&["--checkpoint_version=x"]),
            "argument --checkpoint_version: invalid int value: 'x'"
        );
    }
}
