//! Hints in the words of the command that runs.
//!
//! Libraries do not know who uses them. Where a hint of theirs names a flag, it is one of
//! [`SETTINGS`], by the name that most commands have for it, in a clause of its own. Here the clause
//! gets the name that the running command has; where it has none, the clause goes.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use clap::{ArgMatches, Command};

/// What libraries speak of.
struct Setting {
    flag: &'static str,
    /// What else commands call it.
    also: &'static [&'static str],
    /// What to do where there is no such flag.
    without: Option<&'static str>,
}

const SETTINGS: [Setting; 9] = [
    Setting {
        flag: "skip-bad-rows",
        also: &["skip_bad_rows"],
        without: Some("mend the line, or take it out"),
    },
    Setting { flag: "no-checksum", also: &[], without: None },
    Setting { flag: "v2", also: &["version_2_with_negative"], without: None },
    Setting {
        flag: "max-seq-length",
        also: &["max_seq_length", "max-sequence-length", "sequence-length"],
        without: None,
    },
    Setting {
        flag: "max-predictions",
        also: &["max_predictions_per_seq", "max-predictions-per-sequence", "mask-tokens"],
        without: None,
    },
    Setting { flag: "depth", also: &["max-sequences-per-pack"], without: None },
    Setting { flag: "duplication-factor", also: &[], without: None },
    Setting { flag: "algorithm", also: &[], without: None },
    Setting { flag: "loss-scaling", also: &[], without: None },
];

/// The flags of the command that runs.
static FLAGS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Remembers the flags of the command that runs, without hyphens before them.
pub fn running(flags: impl IntoIterator<Item = impl Into<String>>) {
    *FLAGS.lock().unwrap_or_else(PoisonError::into_inner) =
        flags.into_iter().map(Into::into).collect();
}

/// The flags of what a line asks for.
pub fn flags_of(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let own = command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned));
    let below = matches
        .subcommand()
        .and_then(|(name, matches)| Some(flags_of(command.find_subcommand(name)?, matches)));
    own.chain(below.into_iter().flatten()).collect()
}

/// A hint for the command that runs; none if it has nothing to say there.
pub fn spoken(hint: &str) -> Option<String> {
    in_words_of(&FLAGS.lock().unwrap_or_else(PoisonError::into_inner), hint)
}

fn in_words_of(flags: &BTreeSet<String>, hint: &str) -> Option<String> {
    let clauses: Vec<String> =
        hint.split("; ").filter_map(|clause| clause_in_words_of(flags, clause)).collect();
    (!clauses.is_empty()).then(|| clauses.join("; "))
}

fn clause_in_words_of(flags: &BTreeSet<String>, clause: &str) -> Option<String> {
    // Alone, or with a value behind it.
    let forms = |flag: &str| ["`", " "].map(|end| format!("`--{flag}{end}"));
    let named =
        |setting: &&Setting| forms(setting.flag).iter().any(|written| clause.contains(written));
    let Some(setting) = SETTINGS.iter().find(named) else { return Some(clause.to_owned()) };
    let mut names = [&[setting.flag], setting.also].concat().into_iter();
    match names.find(|name| flags.contains(*name)) {
        Some(name) => {
            let renamed = forms(setting.flag).into_iter().zip(forms(name));
            Some(renamed.fold(clause.to_owned(), |text, (from, to)| text.replace(&from, &to)))
        }
        None => setting.without.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_names_of_its_own() {
        let said = |flags: &[&str], hint| {
            in_words_of(&flags.iter().map(|flag| (*flag).to_owned()).collect(), hint)
        };
        let skip = "`--skip-bad-rows` leaves such rows out";
        assert_eq!(said(&["skip-bad-rows"], skip).unwrap(), skip);
        let old = said(&["x", "skip_bad_rows"], skip).unwrap();
        assert_eq!(old, "`--skip_bad_rows` leaves such rows out");
        assert_eq!(said(&[], skip).unwrap(), "mend the line, or take it out");
        let damaged = "copy it again; `--no-checksum` reads it as it is";
        assert_eq!(said(&["no-checksum"], damaged).unwrap(), damaged);
        assert_eq!(said(&["check"], damaged).unwrap(), "copy it again");
        assert_eq!(said(&[], "`--depth` is how many"), None);
        let value = said(&["max-sequences-per-pack"], "`--depth 2` is enough");
        assert_eq!(value.unwrap(), "`--max-sequences-per-pack 2` is enough");
        let v2 = "`--v2` learns it; `--skip-bad-rows` leaves such rows out";
        let old = said(&["version_2_with_negative", "skip_bad_rows"], v2).unwrap();
        assert_eq!(
            old,
            "`--version_2_with_negative` learns it; `--skip_bad_rows` leaves such rows out"
        );
        // What commands say of themselves stays.
        assert_eq!(said(&[], "give `--check`; or not").unwrap(), "give `--check`; or not");
    }

    #[test]
    fn flags_are_those_of_the_line() {
        let command = crate::help::command();
        let line = ["frazil", "predict", "classify", "m", "a"];
        let matches = command.clone().try_get_matches_from(line).unwrap();
        let flags = flags_of(&command, &matches);
        let has = |name: &str| flags.iter().any(|flag| flag == name);
        assert!(has("skip-bad-rows") && has("no-checksum") && !has("depth"), "{flags:?}");
    }

    /// A hint may name nothing that no command has.
    #[test]
    fn settings_are_flags() {
        let command = crate::help::shown();
        for Setting { flag, .. } in &SETTINGS {
            let has = |command: &Command| {
                command.get_arguments().any(|known| known.get_long() == Some(flag))
            };
            let below = |command: &Command| has(command) || command.get_subcommands().any(has);
            assert!(command.get_subcommands().any(below), "{flag}");
        }
    }
}
