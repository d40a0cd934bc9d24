//! Several ranks, as threads, come to what one process comes to with whole batches.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "other tests use the rest")]
mod goldens;

use std::sync::Arc;
use std::thread;

use frazil_runtime::{EngineOptions, Inputs};
use frazil_tensor::{Shape, Tensor, TensorStore};
use frazil_train::comm::{Comm, Solo, Threads};
use frazil_train::dropout::Rates;
use frazil_train::optim::{self, Lamb, Method};
use frazil_train::schedule::{LossScale, Schedule};
use frazil_train::trainer::{Options, Report, Trainer};
use frazil_train::{Error, Result};

use goldens::{Golden, Weights, goldens};

/// Losses after all steps.
const TOLERANCE: f64 = 1e-5;
const STEPS: usize = 50;

fn options(comm: Arc<dyn Comm>) -> Options {
    let mut options = Options::bert(Schedule::Constant(2e-4));
    options.engine = EngineOptions { threads: Some(1), ..EngineOptions::default() };
    options.dropout = Some(Rates { hidden: 0.1, attention: 0.1, pooled: 0.1 });
    options.seed = 99;
    options.comm = comm;
    options
}

/// The examples of a batch from `begin` to `end`.
fn part(batch: &Inputs, begin: usize, end: usize) -> Inputs {
    let rows = |(name, tensor): (&String, &Tensor)| {
        let dims = tensor.shape().to_vec();
        let width: usize = dims[1..].iter().product();
        let shape = Shape::from([&[end - begin], &dims[1..]].concat());
        let part = match name.as_str() {
            "masked_lm_weights" => {
                let values = tensor.values::<f32>().unwrap();
                Tensor::from_vec(shape, values[begin * width..end * width].to_vec())
            }
            _ => {
                let values = tensor.values::<i64>().unwrap();
                Tensor::from_vec(shape, values[begin * width..end * width].to_vec())
            }
        };
        (name.clone(), part.unwrap())
    };
    batch.iter().map(rows).collect()
}

struct Ended {
    reports: Vec<Report>,
    weights: Vec<u32>,
    state: Vec<(String, Tensor)>,
    memory: usize,
    optimizer_memory: usize,
}

/// Trains as one rank, which has the examples between two bounds of each batch, with `accumulate`
/// batches a step.
fn train(
    golden: &Golden,
    options: Options,
    batches: &[Inputs],
    accumulate: usize,
    steps: usize,
) -> Result<Ended> {
    let mut trainer = Trainer::new(golden.graph(), options)?;
    trainer.load(&golden.initial())?;
    let mut batches = batches.iter().cycle();
    let reports = (0..steps).map(|_| {
        let step: Vec<&Inputs> = batches.by_ref().take(accumulate).collect();
        trainer.step(&step)
    });
    let reports = reports.collect::<Result<Vec<_>>>()?;
    let parameters = trainer.parameters();
    let values = (0..parameters.len()).flat_map(|at| parameters.values(at));
    let weights = values.map(|x| x.to_bits()).collect();
    let (memory, optimizer_memory) = (trainer.memory(), trainer.optimizer_memory());
    let state = trainer.state().collect::<Result<_>>()?;
    Ok(Ended { reports, weights, state, memory, optimizer_memory })
}

/// The same by as many ranks as there are bounds but one.
fn together(
    golden: &Golden,
    change: impl Fn(&mut Options) + Sync,
    batches: &[Inputs],
    bounds: &[usize],
    accumulate: usize,
    steps: usize,
) -> Vec<Result<Ended>> {
    thread::scope(|scope| {
        let change = &change;
        let rank = |comm: Threads| {
            scope.spawn(move || {
                let [begin, end] = [bounds[comm.rank()], bounds[comm.rank() + 1]];
                let own: Vec<Inputs> = batches.iter().map(|b| part(b, begin, end)).collect();
                let mut options = options(Arc::new(comm));
                change(&mut options);
                train(golden, options, &own, accumulate, steps)
            })
        };
        let ranks: Vec<_> = Threads::group(bounds.len() - 1).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The largest difference of two states, relative to the largest number of each tensor. Left out are
/// biases of keys, which make no difference to any loss: their gradients are noise around 0.
fn apart(a: &[(String, Tensor)], b: &[(String, Tensor)]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut worst = 0f64;
    for ((name, a), (other, b)) in a.iter().zip(b) {
        assert_eq!((name, a.shape()), (other, b.shape()));
        if name.contains("key/bias") {
            continue;
        }
        let (a, b) = (a.to_f64().unwrap(), b.to_f64().unwrap());
        let largest = b.iter().fold(1e-12f64, |largest, x| largest.max(x.abs()));
        let off = a.iter().zip(&b).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        worst = worst.max(off / largest);
    }
    worst
}

/// What the optimizer remembers is shared out whole, and each rank has about as much as any other. So weights and
/// gradients come from all ranks and go to all.
fn shared_out(ranks: &[Ended], alone: &Ended, name: &str) {
    let memory: Vec<usize> = ranks.iter().map(|ended| ended.optimizer_memory).collect();
    let whole = alone.optimizer_memory;
    assert_eq!(memory.iter().sum::<usize>(), whole, "{name}");
    let part = whole / ranks.len();
    assert!(memory.iter().all(|own| own.abs_diff(part) <= part / 10), "{name}: {memory:?}");
}

#[test]
fn ranks_come_to_what_one_process_comes_to() {
    let lamb = |options: &mut Options| {
        options.optimizer = optim::Options::new(Method::Lamb(Lamb::MLPERF), Some(1.0));
        options.schedule = Schedule::Constant(1e-3);
        options.loss_scale = LossScale::Dynamic { scale: 64.0, interval: 20, since: 0 };
    };
    let unpacked = |options: &mut Options| options.packed = false;
    type Change<'c> = (&'c str, &'c (dyn Fn(&mut Options) + Sync), &'c [usize], usize, usize);
    let cases: [Change<'_>; 4] = [
        ("halves", &|_| (), &[0, 2, 4], 1, STEPS),
        ("with LAMB", &lamb, &[0, 1, 4], 1, STEPS),
        ("three, two batches a step", &|_| (), &[0, 2, 3, 4], 2, 8),
        ("with padding", &unpacked, &[0, 3, 4], 1, 8),
    ];
    for golden in goldens() {
        let batches = golden.batches(4);
        for (name, change, bounds, accumulate, steps) in cases {
            let mut alone = options(Arc::new(Solo));
            change(&mut alone);
            let expected = train(&golden, alone, &batches, accumulate, steps).unwrap();
            let found = together(&golden, change, &batches, bounds, accumulate, steps);
            let found: Vec<Ended> = found.into_iter().map(Result::unwrap).collect();
            for ended in &found {
                assert!(ended.weights == found[0].weights, "all ranks have the same weights");
                assert_eq!(ended.reports, found[0].reports);
                assert!(ended.memory > 0);
            }
            shared_out(&found, &expected, name);
            for (found, expected) in found[0].reports.iter().zip(&expected.reports) {
                let place = format!("{} {name}: {found:?} {expected:?}", golden.head);
                assert!((found.loss - expected.loss).abs() <= TOLERANCE, "{place}");
                assert!((found.norm / expected.norm - 1.0).abs() < 1e-3, "{place}");
                for ((a, found), (b, expected)) in found.parts.iter().zip(&expected.parts) {
                    assert!(a == b && (found - expected).abs() <= TOLERANCE, "{place}");
                }
                assert_eq!((found.step, found.changed), (expected.step, expected.changed));
            }
            let off = apart(&found[0].state, &expected.state);
            assert!(off < 2e-3, "{} {name}: {off:.1e}", golden.head);
        }
    }
}

/// What two ranks store is the state of one process, and the other way round.
#[test]
fn a_state_does_not_depend_on_the_ranks() {
    let Some(golden) = goldens().into_iter().next() else { return };
    let batches = golden.batches(4);
    let two = together(&golden, |_| (), &batches, &[0, 2, 4], 1, 3).remove(0).unwrap();
    let mut one = Trainer::new(golden.graph(), options(Arc::new(Solo))).unwrap();
    one.restore(&Weights::new(two.state.clone())).unwrap();
    assert_eq!(one.steps(), 3);
    let again: Vec<(String, Tensor)> = one.state().collect::<Result<_>>().unwrap();
    assert_eq!(apart(&again, &two.state), 0.0);
    let ranks = thread::scope(|scope| {
        let rank = |comm: Threads| {
            let (golden, state) = (&golden, Weights::new(two.state.clone()));
            scope.spawn(move || {
                let mut trainer = Trainer::new(golden.graph(), options(Arc::new(comm))).unwrap();
                trainer.restore(&state).unwrap();
                assert!(state.tensor("global_step").is_ok());
                trainer.state().collect::<Result<Vec<_>>>().unwrap()
            })
        };
        let ranks: Vec<_> = Threads::group(3).into_iter().map(rank).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<Vec<_>>()
    });
    for state in ranks {
        assert_eq!(apart(&state, &two.state), 0.0);
    }
}

/// A loss that is no number ends all ranks alike; a rank that fails alone is missed by the others.
#[test]
fn one_that_fails_is_missed() {
    let Some(golden) = goldens().into_iter().next() else { return };
    let batches = golden.batches(4);
    let change = |options: &mut Options| options.loss_scale = LossScale::Static(1e38);
    for ended in together(&golden, change, &batches, &[0, 2, 4], 1, 1) {
        assert!(matches!(ended.err(), Some(Error::NotFinite { .. })));
    }
    let mut bad = batches[..1].to_vec();
    let labels = Tensor::from_vec([4], vec![0i64, 0, 0, 77]).unwrap();
    bad[0].insert("label_ids".to_owned(), labels);
    let ended = together(&golden, |_| (), &bad, &[0, 2, 4], 1, 1);
    let errors: Vec<Error> = ended.into_iter().map(|ended| ended.err().unwrap()).collect();
    assert!(matches!(errors[0], Error::LostRank { rank: 1 }), "{}", errors[0]);
    assert!(matches!(errors[1], Error::Runtime(_)), "{}", errors[1]);
}
