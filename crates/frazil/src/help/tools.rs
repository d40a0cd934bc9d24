//! Flags of the commands that read their words themselves, as clap's: only to be shown in the help, the
//! reference and manual pages, and to be completed in shells. A command line is never read by them.

use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::commands::pretrain;
use crate::compat::{self, mo};

/// The command line with all flags of all commands.
pub fn with_flags(command: Command) -> Command {
    let tools: [(&str, Vec<Arg>); 12] = [
        ("pretrain", pretrain::flags(false)),
        ("bert", pretrain::flags(false)),
        ("create_submission", pretrain::flags(true)),
        ("freeze_graph", compat::freeze_graph::flags()),
        ("mo", mo::Flags::command().get_arguments().cloned().collect()),
        ("create_pretraining_data", compat::create_pretraining_data::PROGRAM.args()),
        ("create_tf_record", compat::create_tf_record::PROGRAM.args()),
        ("extract_features", compat::extract_features::PROGRAM.args()),
        ("run_classifier", compat::run_classifier::PROGRAM.args()),
        ("run_pretraining", compat::run_pretraining::PROGRAM.args()),
        ("run_squad", compat::run_squad::PROGRAM.args()),
        ("tune_squad", compat::tune_squad::PROGRAM.args()),
    ];
    tools.into_iter().fold(command, |command, (name, flags)| {
        command.mut_subcommand(name, |tool| {
            let own = tool.disable_help_flag(false).mut_args(|arg| arg.hide(true));
            own.args(flags)
        })
    })
}

/// A flag as the old tools have them: `--name` with a value.
pub fn flag(name: &'static str, help: impl Into<String>) -> Arg {
    Arg::new(name).long(name).value_name("VALUE").help(sentence(help.into()))
}

/// A flag that is there or not, or says so.
pub fn truth(name: &'static str, help: impl Into<String>) -> Arg {
    flag(name, help).value_name("true|false").num_args(0..=1).require_equals(true)
}

/// A flag that is there or not.
pub fn switch(name: &'static str, help: impl Into<String>) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(sentence(help.into()))
}

/// Help texts of the old tools begin small, these here do not.
fn sentence(text: String) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if text.chars().nth(1).is_some_and(char::is_lowercase) => {
            first.to_uppercase().chain(letters).collect()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_shows_its_flags() {
        let command = with_flags(crate::cli::Cli::command());
        for command in command.get_subcommands().filter(|command| !command.has_subcommands()) {
            let name = command.get_name();
            assert!(command.get_arguments().any(|arg| !arg.is_hide_set()), "{name}");
        }
        for (tool, flag) in [
            ("run_squad", "doc_stride"),
            ("freeze_graph", "output_node_names"),
            ("mo", "input_model"),
            ("pretrain", "lr-bert-schedule"),
            ("create_submission", "end-index"),
        ] {
            let tool = command.find_subcommand(tool).unwrap();
            let known = |arg: &Arg| arg.get_long() == Some(flag) && arg.get_help().is_some();
            assert!(tool.get_arguments().any(known), "{flag}");
        }
    }

    #[test]
    fn sentences_begin_large() {
        assert_eq!(sentence("the data".into()), "The data");
        assert_eq!(sentence("dev-v1.1.json".into()), "Dev-v1.1.json");
        assert_eq!(sentence("`a`".into()), "`a`");
        assert_eq!(sentence(String::new()), "");
    }
}
