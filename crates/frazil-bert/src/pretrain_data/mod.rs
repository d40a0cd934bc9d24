//! Text to what BERT is pre-trained on: pairs of sentences with masked pieces, made as
//! google-research/bert's `create_pretraining_data.py` makes them.
//!
//! [`Corpus`] reads text, [`create`] makes instances of it, [`Instances`] gives them in their
//! order. In [`Order::Original`] the same seed gives the very instances of the original, since
//! every random number is asked for in the same place; that is the work of one thread. In
//! [`Order::Parallel`] each document has numbers of its own, so that threads can share the work,
//! and the result depends on the seed only. Left out: the file names and the flags.

mod corpus;
mod document;
mod mask;
mod sentences;

use std::path::PathBuf;

use frazil_tensor::file;
use rayon::prelude::*;
use serde::Serialize;

pub use corpus::{Corpus, CorpusReport, Document, FileReport, Format, ReadOptions};

use crate::features::{Features, Frame, Masked, PretrainingFeatures, narrow};
use crate::packing::at_most;
use crate::python::random::{Random, mix};
use crate::spool::{Spool, Words};
use crate::tokenizer::{Tokenizer, Vocabulary};
use crate::{Error, Result};
use document::Pairs;
use mask::Masker;

/// `[CLS]`, a piece, `[SEP]`, a piece, `[SEP]`.
const SHORTEST: usize = 5;
/// Pairs of a duplicate and a document that threads share at a time.
const SHARED: usize = 4096;

/// In which order random numbers are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The original's: one generator for everything.
    #[default]
    Original,
    /// A generator for each document and duplicate, on so many threads (0: as many as there are
    /// CPUs), or a few for each CPU if that is less. The instances do not depend on their number.
    Parallel {
        /// How many threads.
        threads: usize,
    },
}

/// The original's flags.
#[derive(Clone, Debug)]
pub struct Options {
    /// Pieces of a sequence, `[CLS]` and two times `[SEP]` included.
    pub max_seq_length: usize,
    /// Pieces that are masked at most.
    pub max_predictions_per_seq: usize,
    /// Where random numbers begin.
    pub random_seed: i64,
    /// How often each document is used, each time masked anew.
    pub dupe_factor: usize,
    /// The part of the pieces that is masked.
    pub masked_lm_prob: f64,
    /// How often a document gives sequences that are shorter than they could be.
    pub short_seq_prob: f64,
    /// Whether all pieces of a word are masked together.
    pub do_whole_word_mask: bool,
    /// In which order random numbers are asked for.
    pub order: Order,
    /// Where instances that do not fit into memory go meanwhile.
    pub scratch: PathBuf,
}

/// The original's defaults.
impl Default for Options {
    fn default() -> Self {
        Self {
            max_seq_length: 128,
            max_predictions_per_seq: 20,
            random_seed: 12345,
            dupe_factor: 10,
            masked_lm_prob: 0.15,
            short_seq_prob: 0.1,
            do_whole_word_mask: false,
            order: Order::Original,
            scratch: std::env::temp_dir(),
        }
    }
}

impl Options {
    /// Refuses what no instances can be made by.
    pub fn check(&self) -> Result<()> {
        let least = |name, found, least, why| match found < least {
            true => Err(Error::FeatureLength { name, found, least, why }),
            false => Ok(()),
        };
        let why = ": `[CLS]`, a piece, `[SEP]`, a piece, `[SEP]`";
        least("max_seq_length", self.max_seq_length, SHORTEST, why)?;
        least("dupe_factor", self.dupe_factor, 1, "")?;
        for (what, found) in [
            ("tokens of a sequence", self.max_seq_length),
            ("masked pieces of a sequence", self.max_predictions_per_seq),
        ] {
            at_most(what, found)?;
        }
        let probabilities =
            [("masked_lm_prob", self.masked_lm_prob), ("short_seq_prob", self.short_seq_prob)];
        for (name, found) in probabilities {
            if !(0.0..=1.0).contains(&found) {
                return Err(Error::Probability { name, found });
            }
        }
        Ok(())
    }

    /// Options that have no effect, or not the one that they look like.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let (predictions, length) = (self.max_predictions_per_seq, self.max_seq_length);
        let most = mask::wanted(length, self.masked_lm_prob, usize::MAX);
        if predictions > length {
            warnings.push(format!(
                "`max_predictions_per_seq` is {predictions}, but a sequence has {length} pieces: \
                 records are longer than they need to be"
            ));
        } else if predictions < most {
            warnings.push(format!(
                "`max_predictions_per_seq` is {predictions}, but `masked_lm_prob` asks for {most} \
                 in a sequence of {length} pieces: long sequences are masked less"
            ));
        }
        warnings
    }
}

/// A sequence, as it comes out of the generator.
#[derive(Debug, Default)]
struct Instance {
    ids: Vec<u32>,
    /// How many are of segment 0.
    first: usize,
    is_random_next: bool,
    /// Where something is masked, and what it was; in the order of the text.
    masked: Vec<(u32, u32)>,
}

impl Instance {
    /// Words before the ids: how many there are of what.
    const HEAD: usize = 4;

    fn store(&self, words: &mut Vec<u32>) {
        let counts = [self.ids.len(), self.first, self.masked.len()];
        words.extend(counts.map(|count| count as u32)); // at most `max_seq_length`
        words.push(u32::from(self.is_random_next));
        words.extend(&self.ids);
        words.extend(self.masked.iter().map(|(position, _)| position));
        words.extend(self.masked.iter().map(|(_, id)| id));
    }

    /// How many words a stored one has.
    fn size(words: &[u32]) -> usize {
        Self::HEAD + words[0] as usize + 2 * words[2] as usize
    }
}

/// What was made, in its order.
#[derive(Debug)]
pub struct Instances {
    words: Words,
    /// Where each begins.
    starts: Vec<u64>,
    max_seq_length: usize,
    max_predictions: usize,
}

impl Instances {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// One of them.
    pub fn get(&self, index: usize) -> PretrainingFeatures {
        let words = &self.words[self.starts[index] as usize..];
        let (head, words) = words[..Instance::size(words)].split_at(Instance::HEAD);
        let (ids, masked) = words.split_at(head[0] as usize);
        let (positions, labels) = masked.split_at(head[2] as usize);
        let ids = ids.iter().copied().map(narrow).collect();
        let masked = positions.iter().zip(labels).map(|(&position, &label)| Masked {
            position,
            id: narrow(label),
            weight: 1.0,
        });
        PretrainingFeatures {
            features: Features::of_ids(ids, head[1] as usize, self.max_seq_length),
            masked: masked.collect(),
            max_predictions: self.max_predictions,
            is_random_next: head[3] == 1,
        }
    }

    /// All of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PretrainingFeatures> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// The ids that instances are made with, and what is known of each.
struct Pieces {
    frame: Frame,
    mask: u32,
    /// Whether a piece goes on where another ended: `##`.
    continues: Vec<bool>,
    /// What a piece may be replaced by: all of the vocabulary, a piece that it has twice once.
    words: Vec<u32>,
}

impl Pieces {
    fn of(vocabulary: &Vocabulary) -> Result<Self> {
        let mask = vocabulary.id("[MASK]").ok_or(Error::NoSpecialToken("[MASK]"))?;
        let mut continues = vec![false; vocabulary.len()];
        let mut seen = vec![false; vocabulary.len()];
        let mut words = Vec::with_capacity(vocabulary.len());
        for (id, piece) in vocabulary.pieces() {
            continues[id as usize] = piece.starts_with(vocabulary.continuation());
            // Python's dictionary keeps the place of the first and the id of the last.
            let last = vocabulary.id(piece).unwrap_or(id);
            if !std::mem::replace(&mut seen[last as usize], true) {
                words.push(last);
            }
        }
        Ok(Self { frame: Frame::of(vocabulary)?, mask, continues, words })
    }
}

/// Makes instances. `progress` is told how many documents of how many, counted once for each
/// duplicate, are done.
pub fn create(
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    options: &Options,
    progress: impl FnMut(u64, u64),
) -> Result<Instances> {
    options.check()?;
    let pieces = Pieces::of(tokenizer.vocabulary())?;
    let mut random = Random::new(options.random_seed.unsigned_abs());
    let mut documents: Vec<u32> = (0..corpus.len() as u32).collect();
    random.shuffle(&mut documents);
    let maker = Maker { corpus, documents, options, pieces };
    let mut made = Made { spool: Spool::new(&options.scratch), starts: Vec::new() };
    match options.order {
        Order::Original => maker.in_order(&mut random, &mut made, progress)?,
        Order::Parallel { threads } => maker.in_parallel(threads, &mut made, progress)?,
    }
    random.shuffle(&mut made.starts);
    Ok(Instances {
        words: made.spool.finish()?,
        starts: made.starts,
        max_seq_length: options.max_seq_length,
        max_predictions: options.max_predictions_per_seq,
    })
}

/// Instances as they are made.
struct Made {
    spool: Spool,
    starts: Vec<u64>,
}

impl Made {
    /// Takes stored instances.
    fn add(&mut self, words: &[u32]) -> Result<()> {
        let (mut at, base) = (0, self.spool.len());
        while at < words.len() {
            self.starts.push(base + at as u64);
            at += Instance::size(&words[at..]);
        }
        self.spool.push(words)
    }
}

struct Maker<'a> {
    corpus: &'a Corpus,
    /// The documents in the order in which they are used.
    documents: Vec<u32>,
    options: &'a Options,
    pieces: Pieces,
}

impl Maker<'_> {
    /// The instances of a document, stored.
    fn of_document(&self, index: usize, random: &mut Random, words: &mut Vec<u32>) {
        let mut masker = Masker::new(&self.pieces, self.options);
        Pairs::new(self, index).each(random, |instance, random| {
            masker.mask(instance, random);
            instance.store(words);
        });
    }

    fn in_order(
        &self,
        random: &mut Random,
        made: &mut Made,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<()> {
        let total = self.options.dupe_factor.saturating_mul(self.documents.len()) as u64;
        let mut words = Vec::new();
        for done in 0..total {
            let index = (done % self.documents.len() as u64) as usize;
            words.clear();
            self.of_document(index, random, &mut words);
            made.add(&words)?;
            progress(done + 1, total);
        }
        Ok(())
    }

    fn in_parallel(
        &self,
        threads: usize,
        made: &mut Made,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<()> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(few(threads)).build();
        let pool = pool.map_err(|error| Error::Threads { reason: error.to_string() })?;
        let total = self.options.dupe_factor.saturating_mul(self.documents.len());
        for begin in (0..total).step_by(SHARED) {
            let end = total.min(begin.saturating_add(SHARED));
            let of = |job: usize| {
                file::go_on()?;
                let seed = seed_of(self.options.random_seed, job as u64);
                let mut words = Vec::new();
                let index = job % self.documents.len();
                self.of_document(index, &mut Random::new(seed), &mut words);
                Ok(words)
            };
            let stored: Result<Vec<Vec<u32>>> =
                pool.install(|| (begin..end).into_par_iter().map(of).collect());
            stored?.iter().try_for_each(|words| made.add(words))?;
            progress(end as u64, total as u64);
        }
        Ok(())
    }
}

/// As many threads as are asked for, but not more than are of use: very many would take minutes to start, and
/// hear of no interruption meanwhile.
fn few(threads: usize) -> usize {
    const OF_A_CPU: usize = 4;
    threads.min(OF_A_CPU * std::thread::available_parallelism().map_or(1, usize::from))
}

/// The seed of a job: the whole's, and the job's number, well mixed.
fn seed_of(seed: i64, job: u64) -> u64 {
    mix(mix(seed as u64).wrapping_add(job))
}
