//! The command line of `bench peers` and `bench growth`.

use anyhow::{Context, Result, bail, ensure};

use super::arms::{ENGINES, Precision};
use super::workload::WORKLOADS;

/// What to run.
#[derive(Debug)]
pub struct Options {
    /// Names of engines; `None` for the usual ones.
    pub arms: Option<Vec<String>>,
    /// Engines besides the usual ones.
    pub with: Vec<String>,
    /// Names of workloads.
    pub workloads: Vec<String>,
    /// Of all arms.
    pub precisions: Vec<Precision>,
    /// Samples of each arm and workload.
    pub rounds: usize,
    /// Threads of each arm.
    pub threads: usize,
    /// On a tiny model, one round, to see that it works; nothing is recorded.
    pub quick: bool,
    /// The Python to make environments with.
    pub python: Option<String>,
}

impl Options {
    /// Reads the words after `bench peers` or `bench growth`.
    pub fn parse(args: &[&str], rounds_if_not_told: usize) -> Result<Self> {
        let mut options = Self {
            arms: None,
            with: Vec::new(),
            workloads: names(WORKLOADS.iter().map(|row| row.name)),
            precisions: vec![Precision::F32, Precision::Int8],
            rounds: rounds_if_not_told,
            threads: 2,
            quick: false,
            python: None,
        };
        let mut args = args.iter();
        let mut rounds = None;
        while let Some(&arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("`{arg}` needs a value"));
            let number = |text: &str| text.parse().ok().filter(|&number: &usize| number > 0);
            match arg {
                "--quick" => options.quick = true,
                "--arms" => options.arms = Some(list(value()?, &engines())?),
                "--with" => options.with = list(value()?, &engines())?,
                "--workloads" => {
                    let known = names(WORKLOADS.iter().map(|row| row.name));
                    options.workloads = list(value()?, &known)?;
                }
                "--precision" => {
                    let chosen = list(value()?, &["f32".to_owned(), "int8".to_owned()])?;
                    options.precisions.retain(|p| chosen.iter().any(|name| name == p.name()));
                }
                "--rounds" => {
                    rounds = Some(number(value()?).context("`--rounds` needs a number from 1")?);
                }
                "--threads" => {
                    options.threads =
                        number(value()?).context("`--threads` needs a number from 1")?;
                }
                "--python" => options.python = Some((*value()?).to_owned()),
                other => bail!("no option `{other}`"),
            }
        }
        options.rounds = rounds.unwrap_or(if options.quick { 1 } else { options.rounds });
        Ok(options)
    }

    /// Whether this is a run to keep: with everything that takes part unasked, and not just once.
    pub fn complete(&self) -> bool {
        let all = self.workloads.len() >= WORKLOADS.len() && self.precisions.len() == 2;
        all && self.arms.is_none() && self.rounds >= 3 && !self.quick
    }

    /// Whether an engine takes part.
    pub fn takes(&self, engine: &str, usual: bool) -> bool {
        let named = |names: &[String]| names.iter().any(|name| name == engine);
        named(&self.with) || self.arms.as_deref().map_or(usual, named)
    }
}

fn engines() -> Vec<String> {
    names(ENGINES.iter().map(|engine| engine.name))
}

fn names(rows: impl Iterator<Item = &'static str>) -> Vec<String> {
    rows.map(str::to_owned).collect()
}

/// `a,b`, all of them known. `W5` stands for all whose names begin so.
fn list(text: &str, known: &[String]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for word in text.split(',').filter(|word| !word.is_empty()) {
        let exact: Vec<&String> = known.iter().filter(|name| *name == word).collect();
        let begun = || known.iter().filter(|name| name.starts_with(word)).collect();
        let meant = if exact.is_empty() { begun() } else { exact };
        ensure!(!meant.is_empty(), "no `{word}`; there is: {}", known.join(", "));
        found.extend(meant.into_iter().cloned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        let options =
            Options::parse(&["--arms", "frazil,rten", "--workloads", "W1,W5"], 5).unwrap();
        assert!(options.takes("rten", false) && !options.takes("openvino", true));
        assert_eq!(options.workloads, ["W1", "W5a", "W5b", "W5c"]);
        assert_eq!(options.rounds, 5);
        assert!(!options.complete());
        assert!(Options::parse(&["--with", "tract"], 5).unwrap().complete());
        let options =
            Options::parse(&["--quick", "--with", "torch", "--precision", "int8"], 5).unwrap();
        assert_eq!((options.rounds, options.precisions), (1, vec![Precision::Int8]));
        assert!(options.with == ["torch"]);
        for wrong in [&["--arms", "nobody"][..], &["--rounds", "0"], &["--fast"], &["--arms"]] {
            assert!(Options::parse(wrong, 5).is_err(), "{wrong:?}");
        }
    }
}
