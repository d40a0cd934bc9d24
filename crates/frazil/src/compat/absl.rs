//! Flags as TensorFlow 1.15's `tf.flags` and `tf.app.run` take them, which are absl's: the programs
//! of google-research/bert are called so.
//!
//! `--name=value`, `--name value`, one hyphen or two; `--x`, `--nox` and `--x=true|false|1|0|…` for
//! truths (`--x false` is `--x` and a stray word, there as here); `--flagfile=FILE`; everything
//! behind `--` is no flag. A flag that nobody knows is passed over by `tf.app.run`; here it is, too,
//! with a warning, and there is one for each flag that has no effect here. What is wrong is said in
//! absl's words, with its exit code 1. Left out: flags of absl itself that only concern Python
//! (`--pdb`, `--run_with_profiling`).

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::num::IntErrorKind;
use std::path::{Path, PathBuf};

use clap::Arg;
use frazil::Error;
use frazil::tensor::nearest;

use crate::cli::Outcome;
use crate::help::tools;
use crate::hints;

/// What a flag's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Anything.
    Text,
    /// A whole number; also `0x1f` and `0o17`.
    Integer,
    /// A number.
    Float,
    /// True or false.
    Truth,
}

/// A flag.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    required: bool,
    has_effect: bool,
    help: &'static str,
}

impl Flag {
    const fn new(
        name: &'static str,
        kind: Kind,
        default: Option<&'static str>,
        help: &'static str,
    ) -> Self {
        Self { name, kind, default, required: false, has_effect: true, help }
    }

    /// `flags.DEFINE_string`
    pub const fn text(
        name: &'static str,
        default: Option<&'static str>,
        help: &'static str,
    ) -> Self {
        Self::new(name, Kind::Text, default, help)
    }

    /// `flags.DEFINE_integer`
    pub const fn integer(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Integer, Some(default), help)
    }

    /// `flags.DEFINE_float`
    pub const fn float(name: &'static str, default: &'static str, help: &'static str) -> Self {
        Self::new(name, Kind::Float, Some(default), help)
    }

    /// `flags.DEFINE_bool`
    pub const fn truth(name: &'static str, default: bool, help: &'static str) -> Self {
        Self::new(name, Kind::Truth, Some(if default { "true" } else { "false" }), help)
    }

    /// `flags.mark_flag_as_required`
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Whoever gives it is told that it has no effect here; `help` says why.
    pub const fn without_effect(mut self) -> Self {
        self.has_effect = false;
        self
    }
}

/// Why flags for other machines have no effect.
pub const ON_CPU: &str = "frazil runs on the CPU";

/// Flags that absl itself has; they are read and have no effect here.
const OF_ABSL: [Flag; 9] = [
    Flag::text("undefok", None, ""),
    Flag::integer("verbosity", "-1", ""),
    Flag::integer("v", "-1", ""),
    Flag::text("log_dir", None, ""),
    Flag::text("stderrthreshold", None, ""),
    Flag::truth("logtostderr", false, ""),
    Flag::truth("alsologtostderr", false, ""),
    Flag::truth("showprefixforinfo", true, ""),
    Flag::truth("only_check_args", false, ""),
];

/// Flag files may name others; deeper than that they name each other.
const DEEPEST_FILE: usize = 16;

/// A program and its flags.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a sentence.
    pub about: &'static str,
    /// Its flags.
    pub flags: &'static [Flag],
}

/// What was given, with the defaults of the rest.
#[derive(Clone, Debug)]
pub struct Values {
    flags: &'static [Flag],
    /// In order; the last one of a name counts.
    given: Vec<(&'static str, String)>,
    /// Words that are no flags of the program.
    pub unknown: Vec<String>,
}

impl Values {
    fn raw(&self, name: &str) -> Option<&str> {
        let given = self.given.iter().rev().find(|(known, _)| *known == name);
        given.map(|(_, value)| value.as_str()).or_else(|| {
            let flag = self.flags.iter().find(|flag| flag.name == name);
            flag.expect("the program defines every flag that it asks for").default
        })
    }

    /// A text that was given and is not empty, or a default.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).filter(|value| !value.is_empty())
    }

    /// The same as a path.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A whole number.
    pub fn integer(&self, name: &str) -> i64 {
        let value = self.raw(name).and_then(|text| integer(text).ok());
        value.expect("integers are checked when they are read, and have defaults")
    }

    /// A number.
    pub fn float(&self, name: &str) -> f64 {
        let value = self.raw(name).and_then(float);
        value.expect("numbers are checked when they are read, and have defaults")
    }

    /// True or false.
    pub fn truth(&self, name: &str) -> bool {
        let value = self.raw(name).and_then(truth);
        value.expect("truths are checked when they are read, and have defaults")
    }

    /// A whole number that is not too small.
    pub fn count<T>(&self, name: &str, least: T) -> Result<T, Error>
    where
        T: TryFrom<i64> + PartialOrd + Display,
    {
        let value = self.integer(name);
        let count = T::try_from(value).ok().filter(|count| *count >= least);
        count.ok_or_else(|| Error::Usage {
            what: format!("`--{name}` is {value}"),
            hint: format!("give a number from {least} on"),
        })
    }

    /// A text that there is no doing without.
    pub fn needed(&self, name: &str) -> Result<&str, Error> {
        self.text(name).ok_or_else(|| Error::Usage {
            what: format!("`--{name}` must not be empty"),
            hint: "give it a value".into(),
        })
    }

    /// Whether the user gave it.
    pub fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(known, _)| *known == name)
    }
}

/// What a command line asks for.
#[derive(Debug)]
pub enum Asked {
    /// To run.
    Run(Values),
    /// What the flags are.
    Help,
}

impl Program {
    /// Reads the words and does what absl does before `main`: prints the help, says what is wrong.
    /// The values, or how the program ends.
    pub fn start(
        &self,
        words: &[OsString],
        out: &mut dyn Write,
    ) -> std::io::Result<Result<Values, Outcome>> {
        hints::running(self.flags.iter().map(|flag| flag.name));
        let words: Vec<String> =
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let mistyped = self.mistyped(&words);
        Ok(match self.parse(words) {
            Ok(Asked::Help) => {
                write!(out, "{}", self.help())?;
                Err(Outcome::Done)
            }
            Ok(Asked::Run(values)) => {
                for warning in self.warnings(&values) {
                    say!("warning: {warning}");
                }
                Ok(values)
            }
            Err(message) => {
                say!("FATAL Flags parsing error: {message}");
                for (word, near) in mistyped {
                    say!("hint: `{word}` is no flag of {}; did you mean `--{near}`?", self.name);
                }
                say!("Pass --helpshort or --helpfull to see help on flags.");
                Err(Outcome::CheckFailed)
            }
        })
    }

    /// What was given in vain.
    fn warnings(&self, values: &Values) -> Vec<String> {
        let unknown = values.unknown.iter().map(|word| {
            let near = self.near(word).map(|near| format!("; did you mean `--{near}`?"));
            format!(
                "`{word}` is no flag of {}; it is ignored{}",
                self.name,
                near.unwrap_or_default()
            )
        });
        let idle = self.flags.iter().filter(|flag| !flag.has_effect && values.is_given(flag.name));
        let idle = idle.map(|flag| format!("`--{}` has no effect: {}", flag.name, flag.help));
        unknown.chain(idle).collect()
    }

    /// Reads the words; what is wrong, in absl's.
    pub fn parse(&self, words: Vec<String>) -> Result<Asked, String> {
        let words = with_files(words, &mut Vec::new())?;
        let mut values = Values { flags: self.flags, given: Vec::new(), unknown: Vec::new() };
        let mut rest = words.into_iter();
        while let Some(word) = rest.next() {
            if word == "--" {
                values.unknown.extend(rest);
                break;
            }
            let flag = bare(&word);
            if !word.starts_with('-') || flag.is_empty() {
                values.unknown.push(word);
                continue;
            }
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            if matches!(name, "help" | "h" | "?" | "helpshort" | "helpfull" | "helpxml") {
                return Ok(Asked::Help);
            }
            if let Some(known) = self.find(name) {
                let value = match (value, known.kind) {
                    (Some(value), _) => value,
                    (None, Kind::Truth) => "true".to_owned(),
                    (None, _) => {
                        rest.next().ok_or_else(|| format!("Missing value for flag {word}"))?
                    }
                };
                check(known, &value)?;
                values.given.push((known.name, value));
                continue;
            }
            let negated = name.strip_prefix("no").and_then(|name| self.find(name));
            match negated.filter(|flag| flag.kind == Kind::Truth) {
                Some(_) if value.is_some() => {
                    return Err(format!("{word} does not take an argument"));
                }
                Some(known) => values.given.push((known.name, "false".to_owned())),
                None => values.unknown.push(word),
            }
        }
        let missing = |flag: &&Flag| flag.required && values.raw(flag.name).is_none();
        let missing: Vec<String> = self
            .flags
            .iter()
            .filter(missing)
            .map(|Flag { name, .. }| {
                format!("flag --{name}=None: Flag --{name} must have a value other than None.")
            })
            .collect();
        if !missing.is_empty() {
            return Err(missing.join("\n"));
        }
        Ok(Asked::Run(values))
    }

    fn find(&self, name: &str) -> Option<&'static Flag> {
        let mut all = self.flags.iter().chain(&OF_ABSL);
        all.find(|flag| flag.name == name)
    }

    /// What the flags are, laid out as absl does.
    pub fn help(&self) -> String {
        let mut text = format!("\n{}\n\nflags:\n\n{}:\n", self.about, self.name);
        let mut flags: Vec<&Flag> = self.flags.iter().collect();
        flags.sort_by_key(|flag| flag.name);
        for flag in flags {
            let no = if flag.kind == Kind::Truth { "[no]" } else { "" };
            let idle = if flag.has_effect { "" } else { "has no effect: " };
            text.push_str(&format!("  --{no}{}: {idle}{}\n", flag.name, flag.help));
            if let Some(default) = flag.default {
                text.push_str(&format!("    (default: '{default}')\n"));
            }
            match flag.kind {
                Kind::Integer => text.push_str("    (an integer)\n"),
                Kind::Float => text.push_str("    (a number)\n"),
                Kind::Text | Kind::Truth => {}
            }
        }
        text
    }
}

impl Program {
    /// The flags as clap's, to be shown and completed.
    pub fn args(&self) -> Vec<Arg> {
        let arg = |flag: &Flag| {
            let default = flag.default.filter(|default| !default.is_empty());
            let default = default.map_or(String::new(), |default| format!(" [default: {default}]"));
            let idle = if flag.has_effect { "" } else { "has no effect: " };
            let help = format!("{idle}{}{default}", flag.help);
            let arg = match flag.kind {
                Kind::Truth => tools::truth(flag.name, help),
                Kind::Integer | Kind::Float => tools::flag(flag.name, help).value_name("N"),
                Kind::Text => tools::flag(flag.name, help),
            };
            arg.required(flag.required)
        };
        self.flags.iter().map(arg).collect()
    }

    /// Words that look like a flag with a typing error, and the flags that they may be.
    fn mistyped(&self, words: &[String]) -> Vec<(String, String)> {
        let mistyped = |word: &String| {
            let name = name_of(word);
            let truth = name.strip_prefix("no").and_then(|name| self.find(name));
            let is_known = self.find(name).or(truth).is_some();
            Some((word.clone(), self.near(word).filter(|_| !is_known)?))
        };
        words.iter().take_while(|word| *word != "--").filter_map(mistyped).collect()
    }

    /// The flag that a word may be meant for.
    fn near(&self, word: &str) -> Option<String> {
        let near = nearest(name_of(word), self.flags.iter().map(|flag| flag.name));
        near.into_iter().next().filter(|_| word.starts_with('-'))
    }
}

/// The name in `--name=value`.
fn name_of(word: &str) -> &str {
    bare(word).split('=').next().unwrap_or_default()
}

/// Without its hyphens: one or two.
fn bare(word: &str) -> &str {
    let one = word.strip_prefix('-').unwrap_or(word);
    one.strip_prefix('-').unwrap_or(one)
}

/// The words with those of flag files in the place of `--flagfile`; `open` are the files that lead
/// here.
fn with_files(words: Vec<String>, open: &mut Vec<PathBuf>) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            all.push(word);
            all.extend(rest);
            break;
        }
        let Some(flag) = bare(&word).strip_prefix("flagfile").filter(|_| word.starts_with('-'))
        else {
            all.push(word);
            continue;
        };
        let path = match flag.strip_prefix('=') {
            Some(path) => path.to_owned(),
            None if flag.is_empty() => {
                rest.next().ok_or_else(|| "--flagfile with no argument".to_owned())?
            }
            None => {
                all.push(word);
                continue;
            }
        };
        let path = PathBuf::from(path);
        if open.contains(&path) || open.len() == DEEPEST_FILE {
            continue; // absl warns of a circle and goes on
        }
        let text = std::fs::read_to_string(&path)
            .map_err(|error| format!("Unable to open flagfile: {}: {error}", show(&path)))?;
        let lines = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#') && !line.starts_with("//"));
        open.push(path);
        all.extend(with_files(lines.map(str::to_owned).collect(), open)?);
        open.pop();
    }
    Ok(all)
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// Whether the value is one; why not, in Python's words.
fn check(flag: &Flag, value: &str) -> Result<(), String> {
    let reason = match flag.kind {
        Kind::Integer => match integer(value) {
            Ok(_) => return Ok(()),
            // Python has no end of numbers; all that take one do.
            Err(IntErrorKind::PosOverflow) => "it can be 2^63-1 at most".to_owned(),
            Err(IntErrorKind::NegOverflow) => "it can be -2^63 at least".to_owned(),
            Err(_) => format!("invalid literal for int() with base 10: '{value}'"),
        },
        Kind::Float if float(value).is_none() => {
            format!("could not convert string to float: '{value}'")
        }
        Kind::Truth if truth(value).is_none() => {
            format!("('Non-boolean argument to boolean flag', '{value}')")
        }
        _ => return Ok(()),
    };
    Err(format!("flag --{}={value}: {reason}", flag.name))
}

fn integer(text: &str) -> Result<i64, IntErrorKind> {
    let text = text.trim();
    let radix = |prefix: &str| text.strip_prefix(prefix);
    let number = if let Some(digits) = radix("0x").or_else(|| radix("0X")) {
        i64::from_str_radix(digits, 16)
    } else if let Some(digits) = radix("0o") {
        i64::from_str_radix(digits, 8)
    } else {
        text.parse()
    };
    number.map_err(|error| *error.kind())
}

fn float(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" => Some(true),
        "false" | "f" | "0" | "no" | "n" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Program = Program {
        name: "f",
        about: "Tests.",
        flags: &[
            Flag::text("data_dir", None, "the data").required(),
            Flag::integer("n", "32", "a number"),
            Flag::float("lr", "5e-05", "a rate"),
            Flag::truth("do_x", false, "do it"),
            Flag::text("tpu", None, "there is none").without_effect(),
        ],
    };

    fn parse(words: &[&str]) -> Result<Values, String> {
        let words = words.iter().map(|&word| word.to_owned()).collect();
        match PROGRAM.parse(words)? {
            Asked::Run(values) => Ok(values),
            Asked::Help => Err("help".into()),
        }
    }

    fn seen(words: &[&str]) -> (String, i64, f64, bool, Vec<String>) {
        let v = parse(words).unwrap();
        let text = v.text("data_dir").unwrap().to_owned();
        (text, v.integer("n"), v.float("lr"), v.truth("do_x"), v.unknown)
    }

    /// What `tf.app.run` of TensorFlow 1.15.5 gave for the same words.
    #[test]
    fn words_are_read_as_tensorflow_reads_them() {
        let expected = |n, x, unknown: &[&str]| {
            let unknown = unknown.iter().map(|&word| word.to_owned()).collect();
            ("a".to_owned(), n, 5e-5, x, unknown)
        };
        let unknown = ["--data_dir=a", "--unknown=3", "x", "--n", "5"];
        assert_eq!(seen(&unknown), expected(5, false, &["--unknown=3", "x"]));
        assert_eq!(seen(&["--data_dir=a", "-n", "7", "-do_x"]), expected(7, true, &[]));
        assert_eq!(seen(&["--data_dir=a", "--do_x", "false"]), expected(32, true, &["false"]));
        assert_eq!(seen(&["--data_dir=a", "--", "--n=3"]), expected(32, false, &["--n=3"]));
        assert_eq!(seen(&["--data_dir=a", "--dox"]), expected(32, false, &["--dox"]));
        assert_eq!(seen(&["--data_dir=a", "--n=0x10"]), expected(16, false, &[]));
        assert_eq!(seen(&["--data_dir=a", "--do_x", "--nodo_x"]), expected(32, false, &[]));
        assert_eq!(seen(&["--data_dir", "--n"]).0, "--n");
        for (word, x) in [("--do_x=True", true), ("--do_x=f", false), ("--do_x=1", true)] {
            assert_eq!(seen(&["--data_dir=a", word]), expected(32, x, &[]), "{word}");
        }
        assert!(!parse(&["--data_dir=a"]).unwrap().is_given("n"));
    }

    #[test]
    fn mistakes_are_said_in_absls_words() {
        let error = |words: &[&str]| parse(words).unwrap_err();
        let none = "flag --data_dir=None: Flag --data_dir must have a value other than None.";
        assert_eq!(error(&[]), none);
        assert_eq!(error(&["--dat=a"]), none);
        let int = "flag --n=1.5: invalid literal for int() with base 10: '1.5'";
        assert_eq!(error(&["--data_dir=a", "--n=1.5"]), int);
        let large = "flag --n=99999999999999999999: it can be 2^63-1 at most";
        assert_eq!(error(&["--data_dir=a", "--n=99999999999999999999"]), large);
        let float = "flag --lr=1e: could not convert string to float: '1e'";
        assert_eq!(error(&["--data_dir=a", "--lr=1e"]), float);
        let truth = "flag --do_x=maybe: ('Non-boolean argument to boolean flag', 'maybe')";
        assert_eq!(error(&["--data_dir=a", "--do_x=maybe"]), truth);
        assert_eq!(error(&["--nodo_x=1"]), "--nodo_x=1 does not take an argument");
        assert_eq!(error(&["--data_dir=a", "--n"]), "Missing value for flag --n");
    }

    #[test]
    fn files_of_flags_are_read_in_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flags");
        let text = format!("# a comment\n--n=7\n\n// another\n--flagfile={}\n", file.display());
        std::fs::write(&file, text).unwrap();
        let flag = format!("--flagfile={}", file.display());
        assert_eq!(seen(&["--data_dir=a", "--n=3", &flag]).1, 7);
        assert_eq!(seen(&["--data_dir=a", &flag, "--n=3"]).1, 3);
        let missing = parse(&["--flagfile", "nowhere"]).unwrap_err();
        assert!(missing.starts_with("Unable to open flagfile: nowhere"), "{missing}");
    }

    #[test]
    fn what_was_given_in_vain_is_said() {
        let said = |words: &[&str]| PROGRAM.warnings(&parse(words).unwrap());
        assert!(said(&["--data_dir=a", "--n=3"]).is_empty());
        let expected =
            ["`--data_dri=b` is no flag of f; it is ignored; did you mean `--data_dir`?"];
        assert_eq!(said(&["--data_dir=a", "--data_dri=b"]), expected);
        let expected = ["`--tpu` has no effect: there is none"];
        assert_eq!(said(&["--data_dir=a", "--tpu=x", "--tpu="]), expected);
    }

    #[test]
    fn values_that_cannot_be_are_named() {
        let values = parse(&["--data_dir=", "--n=-1"]).unwrap();
        let said = values.needed("data_dir").unwrap_err().to_string();
        assert_eq!(said, "`--data_dir` must not be empty");
        assert_eq!(values.count("n", 0usize).unwrap_err().to_string(), "`--n` is -1");
        let values = parse(&["--data_dir=a", "--n=3"]).unwrap();
        assert_eq!(values.needed("data_dir").unwrap(), "a");
        assert_eq!((values.count("n", 3usize).unwrap(), values.count("n", 0u64).unwrap()), (3, 3));
        assert!(matches!(
            values.count("n", 4u64).unwrap_err(),
            Error::Usage { hint, .. } if hint == "give a number from 4 on"
        ));
    }

    #[test]
    fn a_flag_that_is_nearly_one_is_told() {
        let words = ["--data_dri=a", "--nodo_x", "--n", "3", "--zzzzzz", "--", "--lt=1"];
        let words: Vec<String> = words.map(str::to_owned).to_vec();
        let expected = [("--data_dri=a".to_owned(), "data_dir".to_owned())];
        assert_eq!(PROGRAM.mistyped(&words), expected);
    }

    #[test]
    fn help_lists_all() {
        assert_eq!(parse(&["--help"]).unwrap_err(), "help");
        let help = PROGRAM.help();
        assert!(help.contains("  --[no]do_x: do it\n    (default: 'false')\n"), "{help}");
        assert!(help.contains("  --n: a number\n    (default: '32')\n    (an integer)\n"));
        assert!(help.contains("  --tpu: has no effect: there is none\n"));
        let mut printed = Vec::new();
        let end = PROGRAM.start(&["--helpshort".into()], &mut printed).unwrap();
        assert_eq!(end.unwrap_err(), Outcome::Done);
        assert_eq!(String::from_utf8(printed).unwrap(), help);
    }
}
