//! Packing against the published numbers for Wikipedia and SQuAD, and what must hold for any
//! lengths.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use frazil_bert::packing::{Algorithm, Depth, Group, Histogram, Options, Packing, Rounding, Stats};
use frazil_tensor::testing::shared;
use proptest::prelude::*;

fn histogram(name: &str) -> Option<Histogram> {
    Some(
        Histogram::read_csv(shared(&format!("data/histograms/{name}_histogram.csv"))?, None)
            .unwrap(),
    )
}

fn pack(histogram: &Histogram, algorithm: Algorithm, depth: Depth, rounding: Rounding) -> Packing {
    Packing::find(histogram, &Options { algorithm, depth, rounding }).unwrap()
}

fn greedy(histogram: &Histogram, algorithm: Algorithm, depth: Depth) -> Stats {
    let packing = pack(histogram, algorithm, depth, Rounding::Nearest);
    holds(histogram, &packing, depth);
    packing.stats()
}

/// Every sequence once, no pack too long or too deep.
fn holds(histogram: &Histogram, packing: &Packing, depth: Depth) {
    let most = histogram.max_length();
    let mut used = vec![0; most];
    for Group { lengths, count } in &packing.groups {
        assert!(!lengths.is_empty() && lengths.len() <= depth.limit(most) && *count > 0);
        assert!(lengths.iter().sum::<u32>() as usize <= most, "{lengths:?}");
        assert!(lengths.is_sorted_by(|a, b| a >= b));
        lengths.iter().for_each(|length| used[*length as usize - 1] += count);
    }
    assert_eq!(used, histogram.counts());
}

/// Packs, efficiency in percent, speed-up.
type Golden = (Algorithm, Depth, u64, &'static str, &'static str);

fn check(histogram: &Histogram, goldens: &[Golden]) {
    for &(algorithm, depth, packs, efficiency, speed_up) in goldens {
        let stats = greedy(histogram, algorithm, depth);
        let case = format!("{algorithm} {depth}");
        assert_eq!(stats.packs, packs, "{case}");
        assert_eq!(format!("{:.4}", stats.efficiency * 100.0), efficiency, "{case}");
        assert_eq!(format!("{:.5}", stats.sequences_per_pack), speed_up, "{case}");
    }
}

use Algorithm::{Lpfhp, Nnlshp, Spfhp};
use Depth::{AtMost as D, Max};

#[test]
fn wikipedia_as_published() {
    let Some(wikipedia) = histogram("wikipedia") else { return };
    let stats = greedy(&wikipedia, Spfhp, D(1));
    assert_eq!((stats.sequences, stats.packs), (16_279_552, 16_279_552));
    assert_eq!(format!("{:.2} {:.5}", stats.mean_length, stats.limit), "255.83 2.00133");
    check(
        &wikipedia,
        &[
            (Spfhp, D(1), 16_279_552, "49.9668", "1.00000"),
            (Spfhp, D(2), 10_101_683, "80.5249", "1.61157"),
            (Spfhp, D(3), 9_094_695, "89.4408", "1.79001"),
            (Spfhp, D(4), 8_658_996, "93.9412", "1.88007"),
            (Spfhp, D(6), 8_324_436, "97.7167", "1.95563"),
            (Spfhp, D(8), 8_224_673, "98.9020", "1.97936"),
            (Spfhp, D(12), 8_166_708, "99.6040", "1.99340"),
            (Spfhp, D(16), 8_166_708, "99.6040", "1.99340"),
            (Spfhp, Max, 8_166_708, "99.6040", "1.99340"),
            (Lpfhp, D(2), 10_099_081, "80.5456", "1.61198"),
            (Lpfhp, D(3), 9_090_154, "89.4855", "1.79090"),
            (Lpfhp, D(4), 8_657_119, "93.9616", "1.88048"),
            (Lpfhp, D(6), 8_319_358, "97.7764", "1.95683"),
            (Lpfhp, D(8), 8_207_569, "99.1081", "1.98348"),
            (Lpfhp, D(12), 8_149_619, "99.8129", "1.99758"),
            (Lpfhp, D(16), 8_140_006, "99.9307", "1.99994"),
            (Lpfhp, Max, 8_138_483, "99.9494", "2.00032"),
        ],
    );
    assert_eq!(greedy(&wikipedia, Spfhp, Max).deepest, 16);
    assert_eq!(greedy(&wikipedia, Lpfhp, Max).deepest, 29);
}

#[test]
fn squad_as_published() {
    let Some(squad) = histogram("squad_1_1") else { return };
    check(
        &squad,
        &[
            (Spfhp, D(2), 45_335, "87.5972", "1.95524"),
            (Spfhp, D(3), 40_711, "97.5466", "2.17732"),
            (Spfhp, D(4), 40_711, "97.5466", "2.17732"),
            (Spfhp, Max, 40_711, "97.5466", "2.17732"),
            (Lpfhp, D(2), 45_335, "87.5972", "1.95524"),
            (Lpfhp, D(3), 40_631, "97.7386", "2.18161"),
            (Lpfhp, D(4), 40_631, "97.7386", "2.18161"),
            (Lpfhp, Max, 40_631, "97.7386", "2.18161"),
        ],
    );
    let stats = greedy(&squad, Spfhp, D(1));
    assert_eq!((stats.sequences, format!("{:.2}", stats.mean_length)), (88_641, "172.04".into()));
}

/// Least squares need three sequences in a pack for what is greedy with twelve.
#[test]
fn least_squares_fill_three_deep_packs() {
    let Some(wikipedia) = histogram("wikipedia") else { return };
    let begun = std::time::Instant::now();
    let packing = pack(&wikipedia, Nnlshp, D(3), Rounding::Nearest);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    holds(&wikipedia, &packing, D(3));
    let stats = packing.stats();
    assert!(stats.efficiency >= 0.9974, "{stats:?}");
    assert!(stats.sequences_per_pack >= 1.9962, "{stats:?}");
}

/// Deep packs take no longer than shallow ones: what a depth costs is its logarithm.
#[test]
fn least_squares_are_quick_at_any_depth() {
    let Some(wikipedia) = histogram("wikipedia") else { return };
    let begun = std::time::Instant::now();
    for depth in [D(50), D(400)] {
        let packing = pack(&wikipedia, Nnlshp, depth, Rounding::Nearest);
        holds(&wikipedia, &packing, depth);
        assert!(packing.stats().efficiency >= 0.9994, "{depth}: {:?}", packing.stats());
    }
    assert!(begun.elapsed().as_secs() < 40, "{:?}", begun.elapsed());
}

/// A case that a test can afford to solve many times over: an eighth of the length.
fn small_wikipedia() -> Option<Histogram> {
    let wikipedia = histogram("wikipedia")?;
    let mut small = Histogram::new(64).unwrap();
    for (count, length) in wikipedia.counts().iter().zip(1_usize..) {
        small.add(length.div_ceil(8), *count).unwrap();
    }
    Some(small)
}

#[test]
fn every_way_at_every_depth() {
    let Some(small) = small_wikipedia() else { return };
    for depth in [D(1), D(2), D(3), D(5), Max] {
        for algorithm in Algorithm::ALL {
            let packing = pack(&small, algorithm, depth, Rounding::Nearest);
            holds(&small, &packing, depth);
            let efficiency = packing.stats().efficiency;
            let least = match depth {
                D(1) => 0.5,
                D(2) => 0.75,
                _ if algorithm == Nnlshp => 0.98,
                _ => 0.85,
            };
            assert!(efficiency > least, "{algorithm} {depth}: {efficiency}");
        }
        holds(&small, &pack(&small, Nnlshp, depth, Rounding::Mlperf), depth);
    }
    let mlperf = pack(&small, Nnlshp, D(3), Rounding::Mlperf).stats();
    assert!(mlperf.efficiency > 0.99, "{mlperf:?}");
}

/// What least squares use too often is taken out of packs again; what is left there is packed, too.
#[test]
fn sequences_of_one_length_share_packs() {
    for length in [1, 2, 3, 7, 9, 85, 128, 170, 171, 200, 256, 257, 300, 400, 511, 512] {
        let histogram = Histogram::of(512, vec![length; 1000]).unwrap();
        for depth in [2, 3, 4] {
            let fewest = 1000_u64.div_ceil(depth.min(512 / length) as u64);
            for rounding in [Rounding::Nearest, Rounding::Mlperf] {
                let packing = pack(&histogram, Nnlshp, D(depth), rounding);
                holds(&histogram, &packing, D(depth));
                assert_eq!(packing.packs(), fewest, "{length} {depth} {rounding:?}");
            }
        }
    }
}

#[test]
fn nothing_the_shortest_and_the_longest() {
    let histograms = [
        Histogram::new(16).unwrap(),
        Histogram::of(16, [1]).unwrap(),
        Histogram::of(16, [1; 40]).unwrap(),
        Histogram::of(16, [16; 3]).unwrap(),
        Histogram::of(16, [1, 16, 16, 1, 1]).unwrap(),
        Histogram::of(1, [1, 1]).unwrap(),
    ];
    for histogram in &histograms {
        for algorithm in Algorithm::ALL {
            for depth in [D(1), D(2), D(3), Max] {
                for rounding in [Rounding::Nearest, Rounding::Mlperf] {
                    let packing = pack(histogram, algorithm, depth, rounding);
                    holds(histogram, &packing, depth);
                    if depth == D(1) {
                        assert_eq!(packing.packs(), histogram.sequences());
                    }
                }
            }
        }
    }
    let stats = greedy(&histograms[0], Lpfhp, Max);
    assert_eq!((stats.packs, stats.efficiency, stats.deepest), (0, 1.0, 0));
    assert_eq!(stats.mean_length, 0.0);
    assert_eq!(greedy(&histograms[2], Lpfhp, Max).packs, 3);
    // Full sequences that are left over were looked up as `[0, 512]` by MLPerf's code.
    assert_eq!(greedy(&histograms[3], Lpfhp, D(3)).packs, 3);
}

#[test]
fn what_is_no_packing_is_refused() {
    assert!("best".parse::<Algorithm>().unwrap_err().to_string().contains("nnlshp"));
    assert_eq!("NNLSHP".parse::<Algorithm>().unwrap(), Nnlshp);
    assert_eq!(("max".parse::<Depth>().unwrap(), "3".parse::<Depth>().unwrap()), (Max, D(3)));
    for none in ["0", "-1", "", "deep"] {
        assert!(none.parse::<Depth>().is_err());
    }
    let long = Histogram::of(5000, [4000]).unwrap();
    let options = Options { algorithm: Nnlshp, ..Options::default() };
    assert!(Packing::find(&long, &options).unwrap_err().hint().unwrap().contains("lpfhp"));
    assert_eq!(greedy(&long, Lpfhp, D(3)).packs, 1);
}

/// As many tokens as a histogram takes: no sum overflows on the way.
#[test]
fn the_largest_counts_are_packed() {
    let most = 1_u64 << 53;
    for (length, rest) in [(1, 0), (3, 0), (33, 1), (64, 0), (40, 24)] {
        let mut histogram = Histogram::new(64).unwrap();
        let count = most / (length + rest) as u64;
        histogram.add(length, count).unwrap();
        if rest > 0 {
            histogram.add(rest, count).unwrap();
        }
        for algorithm in Algorithm::ALL {
            for rounding in [Rounding::Nearest, Rounding::Mlperf] {
                for depth in [D(3), Max] {
                    let packing = pack(&histogram, algorithm, depth, rounding);
                    holds(&histogram, &packing, depth);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_sequence_is_used_once(
        counts in prop::collection::vec(prop_oneof![Just(0_u64), 1..5_u64, 1..3000_u64], 1..40),
        depth in 1..9_usize,
        which in 0..Algorithm::ALL.len(),
        mlperf in any::<bool>(),
    ) {
        let mut histogram = Histogram::new(counts.len()).unwrap();
        for (count, length) in counts.iter().zip(1..) {
            histogram.add(length, *count).unwrap();
        }
        let depth = if depth == 8 { Max } else { D(depth) };
        let rounding = if mlperf { Rounding::Mlperf } else { Rounding::Nearest };
        let packing = pack(&histogram, Algorithm::ALL[which], depth, rounding);
        holds(&histogram, &packing, depth);
        // No way is worse than no packing, and none beats the limit.
        let stats = packing.stats();
        prop_assert!(stats.packs <= stats.sequences);
        prop_assert!(stats.sequences_per_pack <= stats.limit + 1e-12 || stats.sequences == 0);
    }

    /// Lengths that fill no pack together: what least squares leave over is more than the greedy way.
    #[test]
    fn least_squares_are_never_worse(
        lengths in prop::collection::vec((1..65_usize, 1..3000_u64), 1..5),
        depth in 2..9_usize,
    ) {
        let mut histogram = Histogram::new(64).unwrap();
        for (length, count) in lengths {
            histogram.add(length, count).unwrap();
        }
        let greedy = pack(&histogram, Lpfhp, D(depth), Rounding::Nearest);
        prop_assert_eq!(greedy.found_by, Some(Lpfhp));
        for rounding in [Rounding::Nearest, Rounding::Mlperf] {
            let solved = pack(&histogram, Nnlshp, D(depth), rounding);
            prop_assert!(solved.packs() <= greedy.packs());
            // Whose packs they are is not hidden.
            prop_assert!(solved.found_by == Some(Nnlshp) || solved == greedy);
        }
    }

    #[test]
    fn every_sequence_has_a_place(
        lengths in prop::collection::vec(1..33_u32, 0..200),
        seed in any::<u64>(),
    ) {
        let histogram = Histogram::of(32, lengths.iter().map(|l| *l as usize)).unwrap();
        let packing = pack(&histogram, Lpfhp, D(4), Rounding::Nearest);
        let assignment = packing.assign(&lengths, seed).unwrap();
        prop_assert_eq!(assignment.len() as u64, packing.packs());
        let mut seen = vec![false; lengths.len()];
        for pack in assignment.packs() {
            prop_assert!(!pack.is_empty() && pack.len() <= 4);
            prop_assert!(pack.iter().map(|s| lengths[*s as usize]).sum::<u32>() <= 32);
            for sequence in pack {
                prop_assert!(!std::mem::replace(&mut seen[*sequence as usize], true));
            }
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
        prop_assert_eq!(packing.assign(&lengths, seed).unwrap(), assignment);
    }
}

#[test]
fn only_what_was_packed_is_assigned() {
    let histogram = Histogram::of(8, [3, 3, 5]).unwrap();
    let packing = pack(&histogram, Lpfhp, D(2), Rounding::Nearest);
    let refused = |lengths: &[u32]| packing.assign(lengths, 1).unwrap_err().to_string();
    assert_eq!(refused(&[3, 5]), "there are 1 sequences of length 3, but 2 were packed");
    assert!(refused(&[3, 3, 5, 9]).contains("9 tokens"));
    assert!(refused(&[3, 3, 5, 0]).contains("0 tokens"));
}
