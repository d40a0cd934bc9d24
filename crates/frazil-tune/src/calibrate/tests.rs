//! Ranges of numbers whose best ranges are known.

use super::*;

/// Even numbers between two ends, and `outliers` at 100 times the upper one.
fn collector(lowest: f32, highest: f32, outliers: usize) -> Collector {
    let mut collector = Collector::new("x");
    let steps = 20_000;
    let even = (0..=steps).map(|i| lowest + (highest - lowest) * i as f32 / steps as f32);
    let values: Vec<f32> = even.chain(std::iter::repeat_n(highest * 100.0, outliers)).collect();
    for batch in values.chunks(1000) {
        collector.batch(batch).unwrap();
    }
    collector
}

/// The mean squared error of a range on what `collector` makes.
fn loss(range: Range, lowest: f32, highest: f32, outliers: usize) -> f64 {
    let (scale, zero) = range.scale_and_zero();
    let steps = 20_000;
    let even = (0..=steps).map(|i| lowest + (highest - lowest) * i as f32 / steps as f32);
    even.chain(std::iter::repeat_n(highest * 100.0, outliers))
        .map(|value| {
            let byte = (value / scale + f32::from(zero)).round_ties_even().clamp(0.0, 255.0);
            f64::from((byte - f32::from(zero)) * scale - value).powi(2)
        })
        .sum()
}

#[test]
fn extremes_are_exact_and_zero_is_a_byte() {
    let range = collector(-1.5, 3.0, 0).range(Algorithm::MinMax).unwrap();
    assert_eq!(range, Range { lowest: -1.5, highest: 3.0 });
    let (scale, zero) = range.scale_and_zero();
    assert_eq!(zero, 85);
    assert!((scale - 4.5 / 255.0).abs() < 1e-9);
    // Numbers on one side of 0 only: 0 is in the range all the same.
    let range = collector(1.0, 3.0, 0).range(Algorithm::MinMax).unwrap();
    assert_eq!((range.lowest, range.scale_and_zero().1), (0.0, 0));
    let range = collector(-3.0, -1.0, 0).range(Algorithm::MinMax).unwrap();
    assert_eq!((range.highest, range.scale_and_zero().1), (0.0, 255));
}

#[test]
fn every_algorithm_but_minmax_cuts_off_a_lonely_outlier() {
    let collector = collector(-1.0, 1.0, 1);
    assert_eq!(collector.range(Algorithm::MinMax).unwrap().highest, 100.0);
    let percentile = collector.range(Algorithm::Percentile(99.9)).unwrap();
    assert!((percentile.highest - 1.0).abs() < 0.05, "{percentile:?}");
    assert!((percentile.lowest + 1.0).abs() < 0.05, "{percentile:?}");
    let average = collector.range(Algorithm::MovingAverage).unwrap();
    assert!(average.highest < 20.0, "{average:?}");
    let kl = collector.range(Algorithm::Kl).unwrap();
    assert!(kl.highest < 50.0, "{kl:?}");
    assert!(collector.clipped(percentile) > 0.0 && collector.clipped(percentile) < 0.002);
    assert_eq!(collector.clipped(collector.range(Algorithm::MinMax).unwrap()), 0.0);
}

#[test]
fn mse_is_never_worse_than_the_extremes() {
    for (lowest, highest, outliers) in
        [(-1.0, 1.0, 0), (-1.0, 1.0, 1), (-0.17, 8.0, 3), (0.0, 5.0, 20), (-7.0, 0.5, 0)]
    {
        let collector = collector(lowest, highest, outliers);
        let all = loss(collector.range(Algorithm::MinMax).unwrap(), lowest, highest, outliers);
        let best = loss(collector.range(Algorithm::Mse).unwrap(), lowest, highest, outliers);
        assert!(best <= all * 1.01, "{lowest} {highest} {outliers}: {best} against {all}");
    }
}

#[test]
fn a_bell_is_cut_off_by_mse_and_kl_alike() {
    // The sum of uniform numbers: a bell without outliers of any weight.
    let mut random = crate::dice::Random::new(3);
    let values: Vec<f32> =
        (0..50_000).map(|_| (0..12).map(|_| random.unit() as f32).sum::<f32>() - 6.0).collect();
    let mut collector = Collector::new("bell");
    collector.batch(&values).unwrap();
    let (_, highest) = collector.extremes().unwrap();
    let mse = collector.symmetric(Algorithm::Mse).unwrap() * 127.0;
    assert!(mse > 2.5 && mse <= highest, "{mse} of {highest}");
    let kl = collector.range(Algorithm::Kl).unwrap();
    assert!(kl.highest > 1.5 && kl.highest <= highest, "{kl:?}");
}

#[test]
fn the_histogram_grows_without_losing_a_number() {
    let mut collector = Collector::new("x");
    for power in -20..20 {
        collector.batch(&[2f32.powi(power), -(2f32.powi(power)) * 1.5, 0.0]).unwrap();
    }
    assert_eq!(collector.picture(7).iter().sum::<u64>(), 120);
    assert_eq!(collector.count(), 120);
    let whole = collector.range(Algorithm::Percentile(100.0)).unwrap();
    assert_eq!(whole, collector.range(Algorithm::MinMax).unwrap());
    // The order of the batches does not matter.
    let mut backwards = Collector::new("x");
    for power in (-20..20).rev() {
        backwards.batch(&[2f32.powi(power), -(2f32.powi(power)) * 1.5, 0.0]).unwrap();
    }
    for algorithm in [Algorithm::Percentile(90.0), Algorithm::Mse, Algorithm::Kl] {
        assert_eq!(collector.range(algorithm).unwrap(), backwards.range(algorithm).unwrap());
    }
}

#[test]
fn zeros_alone_and_extremes_of_floats_are_no_trouble() {
    let all = [
        Algorithm::MinMax,
        Algorithm::MovingAverage,
        Algorithm::Percentile(99.0),
        Algorithm::Kl,
        Algorithm::Mse,
    ];
    for values in [
        vec![0.0; 10],
        vec![f32::MAX, f32::MIN],
        vec![f32::MIN_POSITIVE / 4.0, -f32::MIN_POSITIVE],
        vec![1.0],
        vec![-0.0, 1e-38, 3e38],
    ] {
        let mut collector = Collector::new("x");
        collector.batch(&values).unwrap();
        for algorithm in all {
            let (scale, _) = collector.range(algorithm).unwrap().scale_and_zero();
            assert!(scale.is_finite() && scale > 0.0, "{algorithm} of {values:?}: {scale}");
            let scale = collector.symmetric(algorithm).unwrap();
            assert!(scale.is_finite() && scale > 0.0, "{algorithm} of {values:?}: {scale}");
        }
    }
}

#[test]
fn what_is_no_number_is_named_and_nothing_is_an_error() {
    let mut collector = Collector::new("bert/encoder/x");
    assert!(matches!(collector.steps(Algorithm::MinMax), Err(Error::NoData { .. })));
    collector.batch(&[]).unwrap();
    assert!(matches!(collector.steps(Algorithm::Kl), Err(Error::NoData { .. })));
    collector.batch(&[1.0]).unwrap();
    let error = collector.batch(&[1.0, f32::NAN]).unwrap_err();
    assert_eq!(error.to_string(), "`bert/encoder/x` has NaN at element 1 of batch 2");
    assert!(collector.batch(&[f32::INFINITY]).is_err());
    assert_eq!(collector.count(), 1, "a bad batch is not counted");
    let wrong = collector.range(Algorithm::Percentile(12.0));
    assert!(matches!(wrong, Err(Error::OutOfRange { .. })));
}

#[test]
fn columns_have_means_and_magnitudes() {
    let mut columns = Columns::new("x", 2);
    assert!(matches!(columns.means(), Err(Error::NoData { .. })));
    columns.batch(&[1.0, -4.0, 3.0, 2.0]).unwrap();
    columns.batch(&[-1.0, 2.0]).unwrap();
    assert_eq!(columns.largest().unwrap(), [3.0, 4.0]);
    assert_eq!(columns.means().unwrap(), [1.0, 0.0]);
    let range = columns.range_after(&[2.0, 0.5]).unwrap();
    assert_eq!(range, Range { lowest: -2.0, highest: 6.0 });
    assert!(columns.batch(&[1.0]).is_err() && columns.batch(&[1.0, f32::NAN]).is_err());
    let mut collector = Collector::new("x");
    collector.scaled_batch(&[1.0, -4.0, 3.0, 2.0, -1.0, 2.0], &[2.0, 0.5]).unwrap();
    assert_eq!(collector.range(Algorithm::MinMax).unwrap(), range);
    assert!(collector.scaled_batch(&[1.0], &[2.0, 0.5]).is_err());
}
