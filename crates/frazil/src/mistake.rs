//! A command line that cannot be read, told as all else that is wrong: `error:` and `hint:`.

use std::ffi::OsString;
use std::path::Path;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::help;

/// What is wrong and what to write instead; nothing for what is no mistake but a help text.
pub fn told(error: &clap::Error, words: &[OsString]) -> Option<(String, String)> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let path = command_in(words);
    let near = suggested(error);
    let more = format!(
        "`{}` tells more",
        ["frazil", "help"]
            .iter()
            .copied()
            .chain(path.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(" ")
    );
    if let (ErrorKind::InvalidSubcommand, Some(word)) =
        (error.kind(), text(error, ContextKind::InvalidSubcommand))
    {
        let what = match path.is_empty() {
            true => format!("there is no command `{word}`"),
            false => format!("`frazil {}` has no command `{word}`", path.join(" ")),
        };
        let near = near.filter(|_| !is_path(&word));
        return Some((what, near.unwrap_or_else(|| instead(&path, &word))));
    }
    let rendered = error.render().to_string();
    let message = rendered.split("\n\n").next().unwrap_or_default();
    let message = message.strip_prefix("error: ").unwrap_or(message);
    let lines: Vec<&str> = message.lines().map(str::trim).collect();
    let usage = rendered.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = match (near, usage) {
        (Some(near), _) => near,
        (None, Some(usage)) if error.kind() == ErrorKind::MissingRequiredArgument => {
            format!("write `{usage}`; {more}")
        }
        (None, _) => more,
    };
    Some((quoted(&lines.join(" ")), hint))
}

/// The command that a line is of: the words that lead to it.
fn command_in(words: &[OsString]) -> Vec<String> {
    let mut command = &help::command();
    let mut path = Vec::new();
    for word in words.iter().skip(1).filter_map(|word| word.to_str()) {
        match command.find_subcommand(word) {
            Some(sub) => {
                path.push(word.to_owned());
                command = sub;
            }
            None => break,
        }
    }
    path
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => texts.first().cloned(),
        _ => None,
    }
}

fn suggested(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let near = kinds.into_iter().find_map(|kind| text(error, kind));
    near.map(|near| format!("did you mean `{near}`?"))
}

fn is_path(word: &str) -> bool {
    Path::new(word).exists() || word.contains(['/', '.'])
}

/// The line that works, where a word is given that is no command: often a path, which is given first.
fn instead(path: &[String], word: &str) -> String {
    let is_path = is_path(word);
    if path.is_empty() {
        return match is_path {
            true => format!("`frazil inspect {word}` tells what is in it"),
            false => "`frazil help` lists the commands".to_owned(),
        };
    }
    let mut command = &help::command();
    for word in path {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let path = path.join(" ");
    let subs = command.get_subcommands();
    let lines = subs.map(|sub| format!("`frazil {path} {} {word} …`", sub.get_name()));
    let lines: Vec<String> = lines.collect();
    match lines.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("write {} or {last}", rest.join(", ")),
        _ => format!("`frazil help {path}` tells more"),
    }
}

/// Backticks for the quotes that clap writes, but not for apostrophes.
fn quoted(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let is_letter = |at: Option<usize>| {
        at.and_then(|at| letters.get(at)).is_some_and(|letter| letter.is_alphanumeric())
    };
    let inside = |at: usize| is_letter(at.checked_sub(1)) && is_letter(Some(at + 1));
    let mended = letters.iter().enumerate();
    mended.map(|(at, &c)| if c == '\'' && !inside(at) { '`' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (String, String) {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        told(&help::command().try_get_matches_from(&words).unwrap_err(), &words).unwrap()
    }

    #[test]
    fn mistakes_are_told_in_one_form() {
        for (line, what, hint) in [
            ("frazil inspekt x", "there is no command `inspekt`", "did you mean `inspect`?"),
            ("frazil qqqq", "there is no command `qqqq`", "`frazil help` lists the commands"),
            (
                "frazil my/model.pb",
                "there is no command `my/model.pb`",
                "`frazil inspect my/model.pb` tells what is in it",
            ),
            (
                "frazil finetune a/b",
                "`frazil finetune` has no command `a/b`",
                "write `frazil finetune classifier a/b …` or `frazil finetune squad a/b …`",
            ),
            (
                "frazil predict classfy x",
                "`frazil predict` has no command `classfy`",
                "did you mean `classify`?",
            ),
            (
                "frazil convert m --to onx -o x",
                "invalid value `onx` for `--to <TO>`",
                "did you mean `onnx`?",
            ),
            (
                "frazil convert m",
                "the following required arguments were not provided: --to <TO> --out <OUT>",
                "write `frazil convert --to <TO> --out <OUT> <SRC>`; `frazil help convert` tells more",
            ),
            ("frazil bench --frob", "unexpected argument `--frob` found", "`frazil help bench`"),
            ("frazil bench --compar x", "unexpected argument `--compar` found", "`--compare`?"),
        ] {
            let (found, said) = of(line);
            assert!(found.starts_with(what) && said.contains(hint), "{line}: {found} / {said}");
        }
        assert_eq!(quoted("what's '--a' for"), "what's `--a` for");
        let help = help::command().try_get_matches_from(["frazil", "bench", "--help"]);
        assert_eq!(told(&help.unwrap_err(), &[]), None);
    }
}
