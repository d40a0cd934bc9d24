//! `cargo xtask bench`: frazil against its peers, on one machine, in one run.
//!
//! Rounds are interleaved, so that a machine that slows down slows everybody down. The parent
//! builds optimised programs and only starts and times them; what runs inside frazil's library
//! is measured by `crates/frazil-tf/examples/checkpoint_speed.rs`.

mod engines;
mod finetune;
mod formats;
mod machine;
mod memory;
mod pretrain;
mod report;
mod squad;
mod tokenize;
mod train;

use anyhow::{Context, Result, bail};

pub use tokenize::english;

const NAMES: &str =
    "finetune, formats, growth, memory, padding, peers, pretrain, squad, tokenize, train";

/// What `formats` is to run.
struct Options<'a> {
    /// Samples of each measure.
    rounds: usize,
    /// On a tiny model, to see that it works; nothing is recorded.
    small: bool,
    /// The Python to make the peers' environment with.
    python: Option<&'a str>,
}

/// Runs the benchmark that `args` names.
pub fn run(args: &[&str]) -> Result<()> {
    let [name, args @ ..] = args else { bail!("which benchmark? There are: {NAMES}") };
    match *name {
        "formats" => {}
        "finetune" => return finetune::run(args),
        "growth" => return engines::growth::run(args),
        "memory" => return memory::run(args),
        "peers" => return engines::run(args),
        "padding" => return pretrain::padding(args),
        "pretrain" => return pretrain::learn(args),
        "squad" => return squad::run(args),
        "tokenize" => return tokenize::run(args),
        "train" => return train::run(args),
        other => bail!("no benchmark `{other}`; there are: {NAMES}"),
    }
    let mut options = Options { rounds: 5, small: false, python: None };
    let mut args = args.iter();
    while let Some(&arg) = args.next() {
        match arg {
            "--small" => options.small = true,
            "--python" => options.python = Some(args.next().context("`--python` needs a program")?),
            "--rounds" => {
                let rounds = args.next().and_then(|rounds| rounds.parse().ok());
                options.rounds =
                    rounds.filter(|&n| n > 0).context("`--rounds` needs a number from 1")?;
            }
            other => bail!("no option `{other}`"),
        }
    }
    formats::run(&options)
}
