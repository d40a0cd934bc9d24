//! Somebody else's evaluation: a program that is given the path of a model and prints a number.

use std::path::Path;
use std::process::Command;

use super::evaluate::Evaluation;
use super::write::{Output, Source, Target};
use crate::{Error, Result};

/// Where the path of the model goes in a command line.
const PLACE: &str = "{model}";
/// Characters of what a program said that are shown.
const SHOWN: usize = 300;

/// A program that evaluates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalCommand {
    /// A line for the shell; the path of the model is put where `{model}` stands, or at its end.
    pub line: String,
    /// As what the model is written for it.
    pub target: Target,
}

impl EvalCommand {
    pub(super) fn evaluation(&self, source: Source) -> Evaluation<'static> {
        let command = self.clone();
        Evaluation::Whole(Box::new(move |candidate| {
            let folder = tempfile::tempdir()
                .map_err(|source| Error::Read { path: std::env::temp_dir(), source })?;
            let path = folder.path().join(command.target.file_name());
            let output = Output { path: path.clone(), target: command.target };
            source.write(candidate.graph, None, &output)?;
            command.run(&path)
        }))
    }

    /// The number that the program prints for the model at `path`.
    pub fn run(&self, path: &Path) -> Result<f64> {
        let quoted = format!("'{}'", path.display().to_string().replace('\'', r"'\''"));
        let line = match self.line.contains(PLACE) {
            true => self.line.replace(PLACE, &quoted),
            false => format!("{} {quoted}", self.line),
        };
        let failed = |status: String, said: &[u8]| Error::EvalCommand {
            command: line.clone(),
            status,
            said: last_line(said),
        };
        let done = Command::new("sh").arg("-c").arg(&line).output();
        let done = done.map_err(|error| failed(format!("cannot be started: {error}"), &[]))?;
        if !done.status.success() {
            return Err(failed(format!("failed: {}", done.status), &done.stderr));
        }
        let found = last_line(&done.stdout);
        found.parse().map_err(|_| Error::NoNumber {
            command: line,
            found: if found.is_empty() {
                "it printed nothing".into()
            } else {
                format!("`{found}`")
            },
        })
    }
}

/// The last line that is not blank.
fn last_line(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let line = said.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or_default().chars().take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<f64> {
        let command = EvalCommand { line: line.into(), target: Target::Compiled };
        command.run(Path::new("/tmp/it's a model"))
    }

    #[test]
    fn the_last_line_is_the_number() {
        assert_eq!(run("echo loading; echo ' 91.25 '; echo; true").unwrap(), 91.25);
        assert_eq!(run("printf '%s' {model} | wc -c; true").unwrap(), 17.0);
        assert_eq!(run("f() { printf '%s' \"$1\" | wc -c; }; f").unwrap(), 17.0, "at the end");
        assert!(run("echo nan; true").unwrap().is_nan(), "refused by the search");
    }

    #[test]
    fn whatever_else_happens_is_said() {
        let error = run("echo 1; echo 'no such data' >&2; exit 3; true").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("failed: exit status: 3"), "{text}");
        assert!(error.hint().unwrap().contains("no such data"));
        let error = run("echo accuracy: 91; true").unwrap_err();
        assert!(error.to_string().contains("is no number: `accuracy: 91`"), "{error}");
        assert!(error.hint().unwrap().contains("last line"));
        let error = run("true; true").unwrap_err();
        assert!(error.to_string().contains("it printed nothing"), "{error}");
    }
}
