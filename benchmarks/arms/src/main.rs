//! One engine, one model, one process: `frazil-arms ENGINE PRECISION FOLDER THREADS [prepare]`.
//!
//! It loads the model in FOLDER, answers one line of JSON to each line of JSON on stdin, and sleeps
//! in between, so that `cargo xtask bench peers` can take turns among many engines. With `prepare` it
//! only writes what the engine needs besides, so that this costs the later process no memory. The protocol is
//! told in `benchmarks/README.md`; `xtask/peers/arms/arm.py` speaks the same one for Python. What is
//! asked, in which order, and what is made of the answers is xtask's business.

mod batch;
mod serve;
#[cfg(feature = "candle")]
mod with_candle;
#[cfg(feature = "frazil")]
mod with_frazil;
#[cfg(feature = "rten")]
mod with_rten;
#[cfg(feature = "tract")]
mod with_tract;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use serve::{Setup, serve};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<()> {
    let (words, prepare) = match words {
        [words @ .., last] if last == "prepare" => (words, true),
        words => (words, false),
    };
    let [engine, precision, folder, threads] = words else {
        bail!("usage: frazil-arms ENGINE PRECISION FOLDER THREADS [prepare]");
    };
    let threads = threads.parse().context("THREADS is a number")?;
    let setup =
        Setup { precision: precision.clone(), folder: PathBuf::from(folder), threads, prepare };
    match engine.as_str() {
        #[cfg(feature = "candle")]
        "candle" => serve::<with_candle::Candle>(&setup),
        #[cfg(feature = "frazil")]
        "frazil" => serve::<with_frazil::Frazil>(&setup),
        #[cfg(feature = "rten")]
        "rten" => serve::<with_rten::Rten>(&setup),
        #[cfg(feature = "tract")]
        "tract" => serve::<with_tract::Tract>(&setup),
        other => bail!("no engine `{other}` is built in"),
    }
}
