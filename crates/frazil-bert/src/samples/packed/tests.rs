//! Packs and back, and everything that makes a pack none.

use super::super::testing::{classifier, pretraining, squad};
use super::*;

const PLACES: Places = Places { tokens: 32, masked: 8, sequences: 3 };

/// Where the length with padding is the pack's, since records of one do not say another.
fn alike(sample: &Sample) -> Vec<u32> {
    let mut words = Vec::new();
    sample.words(&mut words);
    words
}

fn assert_round_trip(samples: &[Sample]) -> Example {
    let example = pack(samples, PLACES).unwrap();
    let back = unpack(&example).unwrap();
    assert_eq!(back.len(), samples.len());
    for (back, sample) in back.iter().zip(samples) {
        assert_eq!(alike(back), alike(sample));
        assert_eq!(back.features().padded_len(), 32);
    }
    example
}

#[test]
fn packs_of_every_kind_and_back() {
    for samples in [
        vec![pretraining(9, 1)],
        vec![pretraining(9, 1), pretraining(12, 2), pretraining(11, 3)],
        vec![pretraining(4, 0), pretraining(28, 5)],
        vec![classifier(Target::Class(1)), classifier(Target::Class(0))],
        vec![classifier(Target::Score(0.25)); 3],
        vec![squad(None), squad(None)],
        vec![squad(Some((3, 4))), squad(Some((0, 0))), squad(Some((0, 5)))],
    ] {
        assert!(is_packed(&assert_round_trip(&samples)));
        assert!(!is_packed(&samples[0].to_example()));
    }
}

#[test]
fn a_pack_looks_as_documented() {
    let example = assert_round_trip(&[pretraining(5, 0), pretraining(8, 1)]);
    let row = |name: &str| example.int64s(name).unwrap()[..14].to_vec();
    assert_eq!(row(INPUT_MASK), [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 0]);
    assert_eq!(row(POSITIONS), [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(row(SEGMENT_IDS), [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0]);
    assert_eq!(example.int64s(MASKED_POSITIONS).unwrap(), [1, 6, 12, 0, 0, 0, 0, 0]);
    assert_eq!(example.int64s(MASKED_SEQUENCES).unwrap(), [1, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!(example.floats(MASKED_WEIGHTS).unwrap()[..4], [1.0, 1.0, 1.0, 0.0]);
    assert_eq!(example.int64s(NSP_POSITIONS).unwrap(), [0, 5, 0]);
    assert_eq!(example.int64s(NSP_LABELS).unwrap(), [0, 1, 0]);
    assert_eq!(example.int64s(NSP_WEIGHTS).unwrap(), [1, 1, 0]);
    // All that is written is documented.
    for samples in [&[squad(Some((3, 4)))], &[classifier(Target::Class(1))], &[pretraining(5, 0)]] {
        let example = pack(samples, PLACES).unwrap();
        let mut names = example.features().names();
        assert!(names.all(|name| FEATURES.iter().any(|(known, _)| *known == name)));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |samples: &[Sample]| match pack(samples, PLACES) {
        Err(Error::Pack(problem)) => *problem,
        other => panic!("{other:?}"),
    };
    let full = |what, found, places| PackProblem::Full { what, found, places };
    assert_eq!(refused(&[pretraining(20, 0), pretraining(13, 0)]), full("tokens", 33, 32));
    assert_eq!(refused(&vec![pretraining(5, 0); 4]), full("sequences", 4, 3));
    let masked = vec![pretraining(10, 0); 3];
    let Err(Error::Pack(problem)) = pack(&masked, Places { masked: 5, ..PLACES }) else { panic!() };
    assert_eq!(*problem, full("masked pieces", 6, 5));
    assert!(pack(&masked, Places { masked: 6, ..PLACES }).is_ok());
    assert_eq!(refused(&[]), PackProblem::Empty);
    let padding = Sample::Classifier(ClassifierFeatures::padding(8));
    assert_eq!(refused(&[classifier(Target::Class(1)), padding]), PackProblem::Empty);
    assert_eq!(refused(&[pretraining(5, 0), squad(None)]), PackProblem::Mixed);
    assert_eq!(refused(&[squad(None), squad(Some((0, 0)))]), PackProblem::Mixed);
    let mixed = [classifier(Target::Class(1)), classifier(Target::Score(1.0))];
    assert_eq!(refused(&mixed), PackProblem::Mixed);
}

/// Changes one number of a feature.
fn with(example: &Example, name: &str, at: usize, value: i64) -> Example {
    let mut row = example.int64s(name).unwrap().to_vec();
    row[at] = value;
    example.clone().with_int64s(name, row)
}

#[test]
fn whatever_lets_sequences_see_each_other_is_refused() {
    let good = pack(&[pretraining(5, 0), pretraining(8, 1)], PLACES).unwrap();
    let problem = |example: Example| match unpack(&example) {
        Err(Error::Pack(problem)) => *problem,
        other => panic!("{other:?}"),
    };
    let changed = |name, at, value| problem(with(&good, name, at, value));
    use PackProblem as P;
    assert_eq!(changed(INPUT_MASK, 0, 2), P::Order { at: 0, before: 0, found: 2 });
    assert_eq!(changed(INPUT_MASK, 2, 0), P::Order { at: 3, before: 0, found: 1 });
    assert_eq!(changed(INPUT_MASK, 12, 4), P::Order { at: 12, before: 2, found: 4 });
    assert_eq!(changed(INPUT_MASK, 12, 1), P::Order { at: 12, before: 2, found: 1 });
    assert_eq!(changed(INPUT_MASK, 20, 2), P::Order { at: 20, before: 0, found: 2 });
    assert_eq!(changed(INPUT_MASK, 3, -1), P::Order { at: 3, before: 1, found: -1 });
    // Positions that go on instead of restarting: the classic.
    let position = P::Position { at: 5, sequence: 2, expected: 0, found: 5 };
    assert_eq!(changed(POSITIONS, 5, 5), position);
    // One mask for both.
    let ones = (0..32).map(|at| i64::from(at < 13)).collect::<Vec<_>>();
    let joined = problem(good.clone().with_int64s(INPUT_MASK, ones));
    assert_eq!(joined, P::Position { at: 5, sequence: 1, expected: 5, found: 0 });
    assert_eq!(changed(INPUT_IDS, 20, 9), P::Padding { name: INPUT_IDS, at: 20, found: 9 });
    assert_eq!(changed(POSITIONS, 31, 1), P::Padding { name: POSITIONS, at: 31, found: 1 });
    assert_eq!(changed(MASKED_POSITIONS, 0, 6), P::MaskedElsewhere { slot: 0, at: 6, sequence: 1 });
    assert_eq!(
        changed(MASKED_SEQUENCES, 2, 3),
        P::MaskedElsewhere { slot: 2, at: 12, sequence: 3 }
    );
    let label = |name, sequence, expected, found| P::Label { name, sequence, expected, found };
    assert_eq!(changed(NSP_POSITIONS, 1, 0), label(NSP_POSITIONS, 2, 5, 0));
    assert_eq!(changed(NSP_WEIGHTS, 1, 0), label(NSP_WEIGHTS, 2, 1, 0));
    assert_eq!(changed(NSP_WEIGHTS, 2, 1), label(NSP_WEIGHTS, 3, 0, 1));
    assert_eq!(changed(NSP_LABELS, 0, 7), label(NSP_LABELS, 1, 1, 7));
    let empty = good.clone().with_int64s(INPUT_MASK, vec![0; 32]);
    assert_eq!(problem(empty), P::Empty);

    let answers = pack(&[squad(Some((3, 4))), squad(Some((0, 0)))], PLACES).unwrap();
    let elsewhere = problem(with(&answers, START_POSITIONS, 1, 0));
    assert_eq!(elsewhere, P::AnswerElsewhere { sequence: 2, start: 0, end: 6 });

    let segment = unpack(&with(&good, SEGMENT_IDS, 5, 1)).unwrap_err().to_string();
    assert!(segment.contains("`segment_ids`"), "{segment}");
    let short = unpack(&good.clone().with_int64s(POSITIONS, [0; 31])).unwrap_err().to_string();
    assert!(short.contains("31 values, not 32"), "{short}");
}
