//! What `frazil help` shows: the commands by what they are for. Each command's own help has
//! examples; tests see to it that every command has a group and examples that can be read.

pub mod tools;

use std::sync::LazyLock;

use clap::{Command, CommandFactory};

use crate::cli::Cli;

/// The old tools: a link of one of these names to the binary is that tool.
pub const TOOLS: &[&str] = &[
    "bert",
    "create_pretraining_data",
    "create_submission",
    "create_tf_record",
    "extract_features",
    "freeze_graph",
    "mo",
    "pack_pretraining_data",
    "record_to_binary",
    "run_classifier",
    "run_pretraining",
    "run_squad",
    "saved_model_cli",
    "tune_squad",
];

/// Every command under what it is for, in the order of the help.
const GROUPS: [(&str, &[&str]); 9] = [
    ("See what you have", &["inspect", "graph", "verify-weights"]),
    (
        "Bring it into another form",
        &["convert", "freeze", "reshape", "export-weights", "import-weights"],
    ),
    ("Make sure that it is the same", &["verify", "evaluate"]),
    ("Run it", &["predict", "run", "tokenize"]),
    ("Make data", &["pack"]),
    ("Train it", &["finetune", "pretrain"]),
    ("Make it fast", &["bench", "compile", "quantize"]),
    ("The old tools, with their flags", TOOLS),
    ("frazil itself", &["demo", "doctor", "shims", "completions", "man", "help"]),
];

/// What stands below the commands.
const CLOSING: &str = "Examples:
  frazil inspect uncased_L-12_H-768_A-12.zip
  frazil convert bert_model.ckpt.meta --to onnx -o bert.onnx --batch dynamic \\
      --seq dynamic --verify

`frazil help COMMAND` tells the flags of one, with examples; `frazil demo`
shows them all at work.
Exit codes: 0 done, 1 a check failed, 2 error. The old tools of TensorFlow and
google-research/bert end with 1 where the originals did.";

/// Columns of a terminal that every text fits into.
const WIDTH: usize = 80;

/// What `--version` says: the version, the commit of a release build, and the instructions that kernels
/// use on this machine.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let isa = frazil::kernels::cpu::Isa::chosen().map_or("unknown FRAZIL_ISA", |isa| isa.name());
    let commit = frazil::commit().map_or(String::new(), |commit| format!("{commit}, "));
    format!("{} ({commit}{isa})", env!("CARGO_PKG_VERSION"))
});

/// The command line as it is shown: with the flags of commands that read their words themselves.
pub fn shown() -> Command {
    tools::with_flags(command())
}

/// The long help of one command.
pub fn of(name: &str) -> String {
    let mut all = shown();
    all.build(); // gives it its full name
    let command = all.find_subcommand_mut(name).expect("only commands ask for their own help");
    command.render_long_help().to_string()
}

/// The command line with its help.
pub fn command() -> Command {
    let command = Cli::command().version(VERSION.as_str());
    let groups = grouped(&command);
    command.help_template(format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}\n\n{CLOSING}"
    ))
}

/// The commands with what they do, under the names of their groups.
fn grouped(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        text.push_str(&format!("{title}:\n"));
        for name in names {
            let about = match command.find_subcommand(name).and_then(Command::get_about) {
                Some(about) => about.to_string(),
                // clap adds this one.
                None => "Tell about a command".to_owned(),
            };
            let mut lines = wrapped(about.trim_end_matches('.'), WIDTH - width - 4).into_iter();
            text.push_str(&format!("  {name:width$}  {}\n", lines.next().unwrap_or_default()));
            for line in lines {
                text.push_str(&format!("  {:width$}  {line}\n", ""));
            }
        }
        text.push('\n');
    }
    text
}

/// Words in lines of at most so many columns.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The examples of an old tool, whose `--help` is its own: to be shown below it.
pub fn examples_of(tool: &str) -> Option<String> {
    if ["bert", "create_submission"].contains(&tool) {
        return None; // theirs is `of`, which has them
    }
    let command = Cli::command();
    let help = command.find_subcommand(tool)?.get_after_help()?;
    Some(help.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::FromArgMatches;

    use super::*;

    /// Commands that a user sees, with those below them: the words that lead there.
    fn all(command: &Command, words: &[String], found: &mut Vec<(Vec<String>, Command)>) {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let words = [words, &[sub.get_name().to_owned()]].concat();
            found.push((words.clone(), sub.clone()));
            all(sub, &words, found);
        }
    }

    /// Words as a shell takes them: quotes, and lines that go on. What follows a `|`, `>` or `&&` is the
    /// shell's own.
    fn split(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (Some(_), c) => word.get_or_insert_default().push(c),
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ' | '\n') => words.extend(word.take()),
                (None, c) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    /// Every command with its flags, as a page.
    fn reference() -> String {
        let mut found = Vec::new();
        all(&shown(), &[], &mut found);
        let mut text = "# Every command and its flags\n\nMade of the program's own help; a test keeps it \
                        fresh (`SNAPSHOTS=overwrite cargo test --workspace --bin frazil` writes it anew).\n\
                        \nExit codes: 0 done, 1 a check failed, 2 error. The old tools of TensorFlow and \
                        google-research/bert (`freeze_graph`, `run_squad` and the others) end with 1 where \
                        the originals did.\n"
            .to_owned();
        for (words, command) in found.iter().filter(|(_, command)| !command.has_subcommands()) {
            let words = format!("frazil {}", words.join(" "));
            let help = command.clone().bin_name(&words).term_width(100).render_long_help();
            let help: Vec<String> =
                help.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
            text.push_str(&format!(
                "\n## `{words}`\n\n```text\n{}\n```\n",
                help.join("\n").trim_end()
            ));
        }
        text
    }

    #[test]
    fn the_reference_is_fresh() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/commands.md");
        let kept = snapbox::Data::read_from(path.as_ref(), None).raw();
        snapbox::assert_data_eq!(snapbox::Data::text(reference()).raw(), kept);
    }

    /// The command lines below `Examples:`.
    fn examples(help: &str) -> Vec<Vec<String>> {
        let Some((_, text)) = help.split_once("Examples:\n") else { return Vec::new() };
        let joined = text.replace("\\\n", " ");
        let lines = joined.lines().take_while(|line| line.starts_with("  "));
        let ours = |words: Vec<String>| {
            let begin = words.iter().position(|word| word == "frazil")?;
            let shell = |word: &String| matches!(word.as_str(), "|" | ">" | "&&");
            let end = words[begin..].iter().position(shell).map_or(words.len(), |at| begin + at);
            Some(words[begin..end].to_vec())
        };
        lines.filter_map(|line| ours(split(line))).collect()
    }

    fn check(name: &str, help: &str, complaints: &mut Vec<String>) {
        let examples = examples(help);
        if examples.len() < 2 {
            complaints.push(format!("{name}: its help needs two examples: {examples:?}"));
        }
        for words in examples {
            let read = command().try_get_matches_from(&words);
            if let Err(error) = read.and_then(|matches| Cli::from_arg_matches(&matches)) {
                complaints.push(format!("{name}: `{}`: {error}", words.join(" ")));
            }
            let own = words.join(" ").starts_with(&format!("frazil {name}").trim_end().to_owned());
            if !own {
                complaints.push(format!("{name}: `{}` is of another command", words.join(" ")));
            }
        }
    }

    /// Lines below `Examples:` that a terminal would break, so that they could not be copied.
    fn too_wide(name: &str, help: &str) -> Vec<String> {
        let lines = help.lines().filter(|line| line.chars().count() > WIDTH - 2);
        lines.map(|line| format!("{name}: wider than a terminal: `{line}`")).collect()
    }

    #[test]
    fn every_command_has_a_group() {
        let command = Cli::command();
        let commands: BTreeSet<&str> = command
            .get_subcommands()
            .filter(|sub| !sub.is_hide_set())
            .map(Command::get_name)
            .chain(["help"])
            .collect();
        let listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let grouped: BTreeSet<&str> = listed.iter().copied().collect();
        assert_eq!(listed.len(), grouped.len(), "a command stands in two groups");
        assert_eq!(commands, grouped, "give a new command its place in `GROUPS`");
    }

    #[test]
    fn every_help_has_examples_that_can_be_read() {
        let mut complaints = Vec::new();
        let mut found = Vec::new();
        all(&Cli::command(), &[], &mut found);
        assert!(found.len() > 25, "{}", found.len());
        for (words, command) in &found {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            check(&words.join(" "), &help, &mut complaints);
            complaints.extend(too_wide(&words.join(" "), &help));
            if command.get_about().is_none() {
                complaints.push(format!("{words:?} does not say what it does"));
            }
        }
        check("", CLOSING, &mut complaints);
        complaints.extend(too_wide("", CLOSING));
        assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    }

    #[test]
    fn what_a_shell_makes_of_a_line() {
        let help =
            "Examples:\n  cat x | frazil run a 'b c' \\\n      --d \"e\" > out\n  X=1 frazil y\n";
        assert_eq!(
            examples(help),
            [vec!["frazil", "run", "a", "b c", "--d", "e"], vec!["frazil", "y"]]
        );
    }

    #[test]
    fn the_help_names_groups_and_commands() {
        let help = command().render_help().to_string();
        for text in
            ["See what you have:\n  inspect ", "The old tools, with their flags:", "Options:\n  -h"]
        {
            assert!(help.contains(text), "{help}");
        }
        let longest = help.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= WIDTH), "{longest:?}: {help}");
    }
}
