//! How long the features of a SQuAD file take: `squad_feature_speed dev-v1.1.json vocab.txt`.
//!
//! Reading and building apart, several times, so that the first round's page faults can be told
//! from the rest.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use frazil_bert::squad::{FeatureOptions, ReadOptions, build_features, read_examples};
use frazil_bert::tokenizer::{Casing, Tokenizer, Vocabulary};

const ROUNDS: usize = 5;

#[allow(clippy::print_stdout, reason = "this is what it is for")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(data), Some(vocabulary)) = (arguments.next(), arguments.next()) else {
        return Err("give a SQuAD file and a vocabulary".into());
    };
    let tokenizer = Tokenizer::new(Arc::new(Vocabulary::open(vocabulary)?), Casing::Lower)?;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let examples = read_examples(&data, ReadOptions::default())?.items;
        let read = start.elapsed();
        let start = Instant::now();
        let features = build_features(&examples, &tokenizer, FeatureOptions::default())?;
        println!(
            "{} questions read in {read:.1?}, {} features in {:.1?}",
            examples.len(),
            features.len(),
            start.elapsed()
        );
    }
    Ok(())
}
