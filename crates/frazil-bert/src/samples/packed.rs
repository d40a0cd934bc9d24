//! Packs as records: several samples in the places of one.
//!
//! `input_mask` says which sequence a token belongs to (1, 2, …; 0 is padding), `positions` begin at
//! 0 in each, and whatever points into a sequence points into the pack: see [`FEATURES`]. Taking a
//! pack apart is strict. A mask that is not one run after the other, positions that do not restart,
//! a masked piece that lies in another sequence than it says: each lets sequences see each other
//! in silence, so each is an error. Left out: files, see [`SampleFile`](super::SampleFile).

use frazil_tf::example::{Example, Kind as ListKind};

use super::{Labels, Sample};
use crate::features::{
    ClassifierFeatures, Features, INPUT_IDS, INPUT_MASK, Masked, PretrainingFeatures, SEGMENT_IDS,
    Target, int32s,
};
use crate::squad::SquadRecord;
use crate::{Error, Result};

pub(super) const POSITIONS: &str = "positions";
pub(super) const MASKED_POSITIONS: &str = "masked_lm_positions";
pub(super) const MASKED_IDS: &str = "masked_lm_ids";
pub(super) const MASKED_WEIGHTS: &str = "masked_lm_weights";
pub(super) const MASKED_SEQUENCES: &str = "masked_lm_sequences";
pub(super) const NSP_POSITIONS: &str = "nsp_positions";
pub(super) const NSP_LABELS: &str = "nsp_labels";
pub(super) const NSP_WEIGHTS: &str = "nsp_weights";
const CLS_POSITIONS: &str = "cls_positions";
const CLS_WEIGHTS: &str = "cls_weights";
const LABEL_IDS: &str = "label_ids";
const IS_REAL_EXAMPLE: &str = "is_real_example";
const UNIQUE_IDS: &str = "unique_ids";
const START_POSITIONS: &str = "start_positions";
const END_POSITIONS: &str = "end_positions";
const IS_IMPOSSIBLE: &str = "is_impossible";

/// The features of a packed record, and what each is: `S` the length of a pack, `M` places for
/// masked pieces, `N` places for sequences.
pub const FEATURES: [(&str, &str); 19] = [
    (INPUT_IDS, "[S] pieces, one sequence after the other, then 0"),
    (INPUT_MASK, "[S] which sequence: 1, 2, …; 0 is padding"),
    (SEGMENT_IDS, "[S] 0 for the first text of a sequence, 1 for the second, 0 for padding"),
    (POSITIONS, "[S] from 0 in every sequence; 0 for padding"),
    (MASKED_POSITIONS, "[M] pre-training: where in the pack"),
    (MASKED_IDS, "[M] pre-training: what it was"),
    (MASKED_WEIGHTS, "[M] pre-training: 1.0; 0.0 where nothing is"),
    (MASKED_SEQUENCES, "[M] pre-training: in which sequence; 0 where nothing is"),
    (NSP_POSITIONS, "[N] pre-training: the `[CLS]` of each sequence"),
    (NSP_LABELS, "[N] pre-training: 1 if the second text is from elsewhere"),
    (NSP_WEIGHTS, "[N] pre-training: 1 for each sequence that there is"),
    (CLS_POSITIONS, "[N] classifier and SQuAD: the `[CLS]` of each sequence"),
    (CLS_WEIGHTS, "[N] classifier and SQuAD: 1 for each sequence that there is"),
    (LABEL_IDS, "[N] classifier: the class, or the score as a float"),
    (IS_REAL_EXAMPLE, "[N] classifier: 0 for what fills up a batch"),
    (UNIQUE_IDS, "[N] SQuAD: the window's number"),
    (START_POSITIONS, "[N] SQuAD: where in the pack the answer begins"),
    (END_POSITIONS, "[N] SQuAD: where in the pack it ends"),
    (IS_IMPOSSIBLE, "[N] SQuAD: 1 if there is none"),
];

/// How large a pack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// For tokens.
    pub tokens: usize,
    /// For masked pieces.
    pub masked: usize,
    /// For sequences.
    pub sequences: usize,
}

/// One variant for each way in which a pack can be none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackProblem {
    /// More than fits.
    #[error("{found} {what} do not fit into {places} places")]
    Full {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many fit.
        places: usize,
    },
    /// Samples to learn different things from.
    #[error("samples of different kinds are in one pack")]
    Mixed,
    /// Nothing in it, or a sequence with nothing in it.
    #[error("there is no sequence in the pack, or one without tokens")]
    Empty,
    /// Sequences that are not numbered 1, 2, ….
    #[error(
        "`input_mask` goes from {before} to {found} at {at}; sequences are numbered 1, 2, …, and 0 ends them"
    )]
    Order {
        /// Where.
        at: usize,
        /// The number before.
        before: i32,
        /// The number there.
        found: i32,
    },
    /// A position that is not the place in the sequence.
    #[error("`positions` is {found} at {at}, which is place {expected} of sequence {sequence}")]
    Position {
        /// Where.
        at: usize,
        /// Which sequence, counted from 1.
        sequence: usize,
        /// The place.
        expected: usize,
        /// What is there.
        found: i32,
    },
    /// Padding that is not 0.
    #[error("`{name}` is {found} at {at}, which is padding")]
    Padding {
        /// The feature.
        name: &'static str,
        /// Where.
        at: usize,
        /// What is there.
        found: i32,
    },
    /// A masked piece that lies in another sequence.
    #[error("masked piece {slot} is at {at}, but not in sequence {sequence}, which it names")]
    MaskedElsewhere {
        /// Which of the masked pieces.
        slot: usize,
        /// Where it is.
        at: i32,
        /// Where it should be.
        sequence: i32,
    },
    /// A sequence without its label, or a label without its sequence.
    #[error("`{name}` of sequence {sequence} is {found}, where {expected} is expected")]
    Label {
        /// The feature.
        name: &'static str,
        /// Which sequence, counted from 1.
        sequence: usize,
        /// What it should be.
        expected: i64,
        /// What is there.
        found: i64,
    },
    /// An answer that lies in another sequence.
    #[error("the answer of sequence {sequence} goes from {start} to {end}, which is not in it")]
    AnswerElsewhere {
        /// Which sequence, counted from 1.
        sequence: usize,
        /// Where it begins.
        start: i64,
        /// Where it ends.
        end: i64,
    },
}

impl From<PackProblem> for Error {
    fn from(problem: PackProblem) -> Self {
        Self::Pack(Box::new(problem))
    }
}

/// Several samples as one record.
pub fn pack(samples: &[Sample], places: Places) -> Result<Example> {
    let labels = samples.first().ok_or(PackProblem::Empty)?.labels();
    if samples.iter().any(|sample| sample.labels() != labels) {
        return Err(PackProblem::Mixed.into());
    }
    if samples.iter().any(Sample::is_empty) {
        return Err(PackProblem::Empty.into());
    }
    let tokens = samples.iter().map(Sample::len).sum();
    let masked = samples.iter().map(|sample| sample.masked().len()).sum();
    for (what, found, places) in [
        ("tokens", tokens, places.tokens),
        ("masked pieces", masked, places.masked),
        ("sequences", samples.len(), places.sequences),
    ] {
        if found > places {
            return Err(PackProblem::Full { what, found, places }.into());
        }
    }
    let mut rows = [const { Vec::new() }; 4];
    let mut starts = Vec::with_capacity(samples.len());
    for (sample, number) in samples.iter().zip(1..) {
        let (features, [ids, mask, segments, positions]) = (sample.features(), &mut rows);
        starts.push(ids.len() as i64);
        ids.extend(features.ids().iter().map(|id| i64::from(*id)));
        mask.resize(ids.len(), number);
        segments.resize(segments.len() + features.first_segment(), 0);
        segments.resize(ids.len(), 1);
        positions.extend(0..features.len() as i64);
    }
    let mut example = Example::default();
    for (name, mut row) in [INPUT_IDS, INPUT_MASK, SEGMENT_IDS, POSITIONS].into_iter().zip(rows) {
        row.resize(places.tokens, 0);
        example = example.with_int64s(name, row);
    }
    let of_sequences = |of: &dyn Fn(usize) -> i64| -> Vec<i64> {
        let there = |i: usize| if i < samples.len() { of(i) } else { 0 };
        (0..places.sequences).map(there).collect()
    };
    let there = of_sequences(&|_| 1);
    let firsts = of_sequences(&|i| starts[i]);
    Ok(match labels {
        Labels::Masked => {
            let labels = of_sequences(&|i| match &samples[i] {
                Sample::Pretraining(sample) => i64::from(sample.is_random_next),
                _ => 0,
            });
            with_masked(example, samples, &starts, places.masked)
                .with_int64s(NSP_POSITIONS, firsts)
                .with_int64s(NSP_LABELS, labels)
                .with_int64s(NSP_WEIGHTS, there)
        }
        Labels::Class | Labels::Score => with_targets(example, samples, places.sequences)
            .with_int64s(CLS_POSITIONS, firsts)
            .with_int64s(CLS_WEIGHTS, there),
        Labels::Answer | Labels::Question => {
            let squad = |i: usize| match &samples[i] {
                Sample::Squad(record) => Some(record),
                _ => None,
            };
            let of = |of: &dyn Fn(&SquadRecord) -> i64| of_sequences(&|i| squad(i).map_or(0, of));
            let example = example
                .with_int64s(UNIQUE_IDS, of(&|record| record.unique_id))
                .with_int64s(CLS_POSITIONS, firsts)
                .with_int64s(CLS_WEIGHTS, there);
            let answer = |i: usize| squad(i).and_then(|record| record.answer).unwrap_or_default();
            match labels {
                Labels::Question => example,
                _ => example
                    .with_int64s(START_POSITIONS, of_sequences(&|i| answer(i).0 + starts[i]))
                    .with_int64s(END_POSITIONS, of_sequences(&|i| answer(i).1 + starts[i]))
                    .with_int64s(IS_IMPOSSIBLE, of(&|record| i64::from(record.is_impossible))),
            }
        }
    })
}

fn with_masked(example: Example, samples: &[Sample], starts: &[i64], places: usize) -> Example {
    let (mut positions, mut ids) = (Vec::with_capacity(places), Vec::with_capacity(places));
    let (mut weights, mut sequences) = (Vec::with_capacity(places), Vec::with_capacity(places));
    for ((sample, start), number) in samples.iter().zip(starts).zip(1..) {
        for masked in sample.masked() {
            positions.push(start + i64::from(masked.position));
            ids.push(i64::from(masked.id));
            weights.push(masked.weight);
            sequences.push(number);
        }
    }
    [&mut positions, &mut ids, &mut sequences].into_iter().for_each(|row| row.resize(places, 0));
    weights.resize(places, 0.0);
    example
        .with_int64s(MASKED_POSITIONS, positions)
        .with_int64s(MASKED_IDS, ids)
        .with_floats(MASKED_WEIGHTS, weights)
        .with_int64s(MASKED_SEQUENCES, sequences)
}

fn with_targets(example: Example, samples: &[Sample], places: usize) -> Example {
    let (mut classes, mut scores, mut real) = (Vec::new(), Vec::new(), Vec::new());
    for sample in samples {
        let Sample::Classifier(sample) = sample else { continue };
        real.push(i64::from(sample.is_real_example));
        match sample.target {
            Target::Class(class) => classes.push(i64::from(class)),
            Target::Score(score) => scores.push(score),
        }
    }
    real.resize(places, 0);
    let example = example.with_int64s(IS_REAL_EXAMPLE, real);
    if scores.is_empty() {
        classes.resize(places, 0);
        example.with_int64s(LABEL_IDS, classes)
    } else {
        scores.resize(places, 0.0);
        example.with_floats(LABEL_IDS, scores)
    }
}

/// Whether a record is a pack.
pub fn is_packed(example: &Example) -> bool {
    example.features().kind(POSITIONS).is_some()
}

/// Whether a pack is nothing but padding: every token is 0, and belongs to no sequence.
pub(super) fn is_padding(example: &Example) -> bool {
    let is_zero = |name| example.int64s(name).is_ok_and(|row| row.iter().all(|word| *word == 0));
    [INPUT_MASK, INPUT_IDS].into_iter().all(is_zero)
}

/// The samples of a pack, if it is one in every respect.
pub fn unpack(example: &Example) -> Result<Vec<Sample>> {
    let rows = Rows::read(example)?;
    let has = |name| example.features().kind(name).is_some();
    if has(MASKED_POSITIONS) {
        rows.pretraining(example)
    } else if has(LABEL_IDS) {
        rows.classifier(example)
    } else if has(UNIQUE_IDS) {
        rows.squad(example)
    } else {
        let features = example.features().names().map(str::to_owned).collect();
        Err(Error::UnknownRecord { features })
    }
}

/// The tokens of a pack, and where its sequences are.
struct Rows {
    features: Vec<Features>,
    starts: Vec<usize>,
}

impl Rows {
    fn read(example: &Example) -> Result<Self> {
        let ids = int32s(example, INPUT_IDS)?;
        let tokens = ids.len();
        let row = |name| of_length(int32s(example, name)?, name, tokens);
        let (mask, segments, positions) = (row(INPUT_MASK)?, row(SEGMENT_IDS)?, row(POSITIONS)?);
        let mut starts = Vec::new();
        let mut before = 0;
        for (at, &found) in mask.iter().enumerate() {
            if found != before {
                // The next number, or the end; nothing follows the end.
                let is_next = found == before + 1 && (before > 0 || at == 0);
                if !is_next && (found != 0 || before == 0) {
                    return Err(PackProblem::Order { at, before, found }.into());
                }
                if is_next {
                    starts.push(at);
                }
            }
            before = found;
        }
        let end = mask.iter().position(|number| *number == 0).unwrap_or(tokens);
        if starts.is_empty() {
            return Err(PackProblem::Empty.into());
        }
        for (name, row) in [(INPUT_IDS, &ids), (SEGMENT_IDS, &segments), (POSITIONS, &positions)] {
            if let Some(at) = (end..tokens).find(|at| row[*at] != 0) {
                return Err(PackProblem::Padding { name, at, found: row[at] }.into());
            }
        }
        let ends = starts.iter().skip(1).copied().chain([end]);
        let mut features = Vec::with_capacity(starts.len());
        for ((&start, end), sequence) in starts.iter().zip(ends).zip(1..) {
            let wrong = (start..end).find(|at| positions[*at] != (at - start) as i32);
            if let Some(at) = wrong {
                let (expected, found) = (at - start, positions[at]);
                return Err(PackProblem::Position { at, sequence, expected, found }.into());
            }
            let segments = &segments[start..end];
            let first = segments.iter().take_while(|segment| **segment == 0).count();
            if segments[first..].iter().any(|segment| *segment != 1) {
                let expected = "zeros, then ones in every sequence";
                return Err(Error::RecordLayout { name: SEGMENT_IDS, expected });
            }
            features.push(Features::of_ids(ids[start..end].to_vec(), first, tokens));
        }
        Ok(Self { features, starts })
    }

    fn len(&self) -> usize {
        self.features.len()
    }

    /// Places for sequences; what is said of those that are there must hold, and nothing may be
    /// said of others.
    fn check_labels(
        &self,
        example: &Example,
        firsts: &'static str,
        there: &'static str,
    ) -> Result<usize> {
        let starts = example.int64s(firsts)?;
        let weights = of_length(example.int64s(there)?.to_vec(), there, starts.len())?;
        if self.len() > starts.len() {
            let (what, found, places) = ("sequences", self.len(), starts.len());
            return Err(PackProblem::Full { what, found, places }.into());
        }
        for place in 0..starts.len() {
            let start = self.starts.get(place).map_or(0, |start| *start as i64);
            let weight = i64::from(place < self.len());
            for (name, expected, found) in
                [(firsts, start, starts[place]), (there, weight, weights[place])]
            {
                if expected != found {
                    let sequence = place + 1;
                    return Err(PackProblem::Label { name, sequence, expected, found }.into());
                }
            }
        }
        Ok(starts.len())
    }

    fn pretraining(self, example: &Example) -> Result<Vec<Sample>> {
        let sequences = self.check_labels(example, NSP_POSITIONS, NSP_WEIGHTS)?;
        let labels = of_length(example.int64s(NSP_LABELS)?.to_vec(), NSP_LABELS, sequences)?;
        let positions = int32s(example, MASKED_POSITIONS)?;
        let places = positions.len();
        let ids = of_length(int32s(example, MASKED_IDS)?, MASKED_IDS, places)?;
        let numbers = of_length(int32s(example, MASKED_SEQUENCES)?, MASKED_SEQUENCES, places)?;
        let weights = of_length(example.floats(MASKED_WEIGHTS)?.to_vec(), MASKED_WEIGHTS, places)?;
        let mut masked = vec![Vec::new(); self.len()];
        for slot in 0..places {
            let (at, sequence, weight) = (positions[slot], numbers[slot], weights[slot]);
            if sequence == 0 && weight == 0.0 {
                continue;
            }
            let index = usize::try_from(sequence).ok().and_then(|number| number.checked_sub(1));
            let place = index.filter(|index| *index < self.len()).and_then(|index| {
                let position = usize::try_from(at).ok()?.checked_sub(self.starts[index])?;
                (position < self.features[index].len()).then_some((index, position as u32))
            });
            let Some((index, position)) = place else {
                return Err(PackProblem::MaskedElsewhere { slot, at, sequence }.into());
            };
            masked[index].push(Masked { position, id: ids[slot], weight });
        }
        let mut samples = Vec::with_capacity(self.len());
        for (((features, masked), label), sequence) in
            self.features.into_iter().zip(masked).zip(&labels).zip(1..)
        {
            let is_random_next = match label {
                0 => false,
                1 => true,
                found => {
                    let (name, expected, found) = (NSP_LABELS, 1, *found);
                    return Err(PackProblem::Label { name, sequence, expected, found }.into());
                }
            };
            let max_predictions = places.saturating_sub(sequences).max(masked.len());
            let sample = PretrainingFeatures { features, masked, max_predictions, is_random_next };
            samples.push(Sample::Pretraining(sample));
        }
        Ok(samples)
    }

    fn classifier(self, example: &Example) -> Result<Vec<Sample>> {
        let places = self.check_labels(example, CLS_POSITIONS, CLS_WEIGHTS)?;
        let real = of_length(example.int64s(IS_REAL_EXAMPLE)?.to_vec(), IS_REAL_EXAMPLE, places)?;
        let targets: Vec<Target> = if example.features().kind(LABEL_IDS) == Some(ListKind::Floats) {
            example.floats(LABEL_IDS)?.iter().map(|score| Target::Score(*score)).collect()
        } else {
            int32s(example, LABEL_IDS)?.into_iter().map(Target::Class).collect()
        };
        let targets = of_length(targets, LABEL_IDS, places)?;
        let all = self.features.into_iter().zip(targets).zip(real);
        Ok(all
            .map(|((features, target), real)| {
                let is_real_example = real != 0;
                Sample::Classifier(ClassifierFeatures { features, target, is_real_example })
            })
            .collect())
    }

    fn squad(self, example: &Example) -> Result<Vec<Sample>> {
        let places = self.check_labels(example, CLS_POSITIONS, CLS_WEIGHTS)?;
        let row = |name| of_length(example.int64s(name)?.to_vec(), name, places);
        let unique = row(UNIQUE_IDS)?;
        let has_answers = example.features().kind(START_POSITIONS).is_some();
        let answers = match has_answers {
            true => Some((row(START_POSITIONS)?, row(END_POSITIONS)?, row(IS_IMPOSSIBLE)?)),
            false => None,
        };
        let mut samples = Vec::with_capacity(self.len());
        for (place, features) in self.features.into_iter().enumerate() {
            let (mut answer, mut is_impossible) = (None, false);
            if let Some((starts, ends, impossible)) = &answers {
                let (sequence, start, end) = (place + 1, starts[place], ends[place]);
                let offset = self.starts[place] as i64;
                if start < offset || end < start || end >= offset + features.len() as i64 {
                    return Err(PackProblem::AnswerElsewhere { sequence, start, end }.into());
                }
                answer = Some((start - offset, end - offset));
                is_impossible = impossible[place] != 0;
            }
            let unique_id = unique[place];
            samples.push(Sample::Squad(SquadRecord { unique_id, features, answer, is_impossible }));
        }
        Ok(samples)
    }
}

fn of_length<T>(row: Vec<T>, name: &'static str, expected: usize) -> Result<Vec<T>> {
    match row.len() {
        found if found == expected => Ok(row),
        found => Err(Error::RecordLength { name, expected, found }),
    }
}

#[cfg(test)]
mod tests;
