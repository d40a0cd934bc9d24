//! The trainer: the original's runs again, fast, and what must not make a difference to them.

#![allow(clippy::unwrap_used, reason = "tests")]

mod goldens;

use frazil_kernels::Isa;
use frazil_runtime::{EngineOptions, Inputs};
use frazil_tensor::{Tensor, TensorStore};
use frazil_train::Error;
use frazil_train::dropout::Rates;
use frazil_train::optim::{self, Adam, Lamb, Method};
use frazil_train::schedule::{LossScale, Schedule, Transition};
use frazil_train::trainer::{Options, Report, Trainer};

use goldens::{Golden, Weights, goldens};

/// Losses and norms, relative.
const TOLERANCE: f64 = 2e-5;
/// The largest difference of a weight, relative to its largest number.
const WEIGHTS: f64 = 1e-4;

/// With the rates of the golden's updates.
fn trainer(golden: &Golden, change: impl FnOnce(&mut Options)) -> Trainer {
    let mut options = Options::bert(golden.updates());
    options.engine = EngineOptions { threads: Some(2), ..EngineOptions::default() };
    change(&mut options);
    let mut trainer = Trainer::new(golden.graph(), options).unwrap();
    assert_eq!(trainer.engine().slow(), [], "everything has a fast kernel");
    trainer.load(&golden.initial()).unwrap();
    trainer
}

fn run(trainer: &mut Trainer, batches: &[Inputs]) -> Vec<Report> {
    batches.iter().map(|batch| trainer.step(&[batch]).unwrap()).collect()
}

/// All weights, one after the other, bit for bit.
fn bits(trainer: &Trainer) -> Vec<u32> {
    let parameters = trainer.parameters();
    let values = (0..parameters.len()).flat_map(|at| parameters.values(at));
    values.map(|x| x.to_bits()).collect()
}

fn dropout(options: &mut Options) {
    options.dropout = Some(Rates { hidden: 0.1, attention: 0.1, pooled: 0.1 });
    options.seed = 99;
}

/// The largest difference of all weights, relative to the largest of each.
fn apart(a: &Trainer, b: &dyn TensorStore) -> f64 {
    let parameters = a.parameters();
    let mut worst = 0f64;
    for at in 0..parameters.len() {
        let other = b.tensor(parameters.name(at)).unwrap().to_f64().unwrap();
        let largest = other.iter().fold(0f64, |largest, x| largest.max(x.abs()));
        for (a, b) in parameters.values(at).iter().zip(&other) {
            worst = worst.max((f64::from(*a) - b).abs() / largest);
        }
    }
    worst
}

#[test]
fn the_originals_runs() {
    for golden in goldens() {
        for packed in [false, true] {
            for isa in Isa::available() {
                let mut trainer = trainer(&golden, |options| {
                    options.packed = packed;
                    options.engine.isa = Some(isa);
                });
                let batches = golden.batches(4);
                let reports = run(&mut trainer, &batches[..8]);
                for (report, step) in reports.iter().zip(golden.steps()) {
                    let close = |found: f64, name: &str| {
                        let golden = step[name].as_f64().unwrap();
                        let off = (found / golden - 1.0).abs();
                        assert!(off <= TOLERANCE, "{} {name}: {found} for {golden}", report.step);
                    };
                    close(report.loss, "loss_before");
                    close(report.norm, "global_norm_used_by_clip");
                }
                let off = apart(&trainer, &golden.last());
                assert!(off <= WEIGHTS, "{} {isa} packed {packed}: {off:.1e}", golden.head);
            }
        }
    }
}

/// Neither the number of threads nor computing again changes a bit.
#[test]
fn threads_and_recomputation_make_no_difference() {
    for golden in goldens() {
        let batches = golden.batches(4);
        let of = |threads: usize, recompute: bool| {
            let mut trainer = trainer(&golden, |options| {
                dropout(options);
                options.recompute = recompute;
                options.engine.threads = Some(threads);
            });
            let reports = run(&mut trainer, &batches[..3]);
            (reports, bits(&trainer))
        };
        let expected = of(1, false);
        assert!(of(2, false) == expected, "{}: threads", golden.head);
        assert!(of(3, true) == expected, "{}: recomputation", golden.head);
    }
}

/// The same elements are dropped with padding and without, and other ones at every step.
#[test]
fn dropout_does_not_depend_on_packing() {
    for golden in goldens() {
        let batches = golden.batches(4);
        let mut one = trainer(&golden, dropout);
        let mut other = trainer(&golden, |options| {
            dropout(options);
            options.packed = false;
        });
        let (a, b) = (run(&mut one, &batches[..4]), run(&mut other, &batches[..4]));
        for (a, b) in a.iter().zip(&b) {
            assert!((a.loss / b.loss - 1.0).abs() < 1e-5, "{}: {a:?} {b:?}", golden.head);
            assert!((a.norm / b.norm - 1.0).abs() < 1e-4, "{}: {a:?} {b:?}", golden.head);
        }
        // Without any, losses are others; and at a rate of 0 they stay what they are from step to step.
        let mut plain = trainer(&golden, |_| {});
        let without = run(&mut plain, &batches[..1]);
        assert!((without[0].loss / a[0].loss - 1.0).abs() > 1e-4);
        let same = |options: &mut Options| {
            dropout(options);
            options.schedule = Schedule::Constant(0.0);
        };
        let mut still = trainer(&golden, same);
        let twice = run(&mut still, &[batches[0].clone(), batches[0].clone()]);
        assert!((twice[0].loss / twice[1].loss - 1.0).abs() > 1e-4, "{twice:?}");
    }
}

/// Two batches of two, added up, are one of four: also where one of them has more masked pieces than the
/// other, where rows are looked up, and in what is dropped.
#[test]
fn batches_add_up() {
    for golden in goldens() {
        let (fours, twos) = (golden.batches(4), golden.batches(2));
        let (mut one, mut other) = (trainer(&golden, dropout), trainer(&golden, dropout));
        for i in 0..4 {
            let a = one.step(&[&fours[i]]).unwrap();
            let b = other.step(&[&twos[2 * i], &twos[2 * i + 1]]).unwrap();
            assert!((a.loss / b.loss - 1.0).abs() < 1e-5, "{a:?} {b:?}");
            assert!((a.norm / b.norm - 1.0).abs() < 1e-5, "{a:?} {b:?}");
            for ((_, a), (name, b)) in a.parts.iter().zip(&b.parts) {
                assert!((a / b - 1.0).abs() < 1e-5, "{name}: {a} {b}");
            }
        }
        let state = other.state().collect::<Result<Vec<(String, Tensor)>, _>>().unwrap();
        let off = apart(&one, &Weights::new(state));
        assert!(off < 1e-4, "{}: {off:.1e}", golden.head);
        let Some(_) = fours[0].get("masked_lm_weights") else { continue };
        let pieces =
            |batch: &Inputs| batch["masked_lm_weights"].to_f64().unwrap().iter().sum::<f64>();
        assert!((0..4).any(|i| pieces(&twos[2 * i]) != pieces(&twos[2 * i + 1])));
    }
}

/// What was learnt elsewhere counts for the correction of means that began at 0: Adam goes on from slots as if
/// it had never been stopped.
#[test]
fn slots_of_another_training_are_no_new_ones() {
    let Some(golden) = goldens().into_iter().next() else { return };
    let batches = golden.batches(4);
    let adam = |options: &mut Options| {
        options.optimizer = optim::Options::new(Method::Adam(Adam::DECOUPLED), None);
        options.schedule = Schedule::Constant(1e-4);
    };
    let mut whole = trainer(&golden, adam);
    run(&mut whole, &batches[..3]);
    let state = Weights::new(whole.state().collect::<Result<_, _>>().unwrap());
    let mut other = trainer(&golden, adam);
    other.load(&state).unwrap();
    assert!(other.load_slots(&state).unwrap() > 0);
    assert_eq!(other.steps(), 0);
    run(&mut whole, &batches[3..4]);
    run(&mut other, &batches[3..4]);
    assert!(bits(&whole) == bits(&other));
    // And it stays so when it is stored.
    let state = Weights::new(other.state().collect::<Result<_, _>>().unwrap());
    let mut again = trainer(&golden, adam);
    again.restore(&state).unwrap();
    assert_eq!(again.steps(), 1);
    for trainer in [&mut whole, &mut other, &mut again] {
        run(trainer, &batches[4..5]);
    }
    assert!(bits(&whole) == bits(&other) && bits(&again) == bits(&other));
}

/// Slots of which nobody says how many steps they had are as good as those of many; the number may be narrow.
#[test]
fn slots_do_not_need_a_step() {
    let Some(golden) = goldens().into_iter().next() else { return };
    let batches = golden.batches(4);
    let method = |method: Adam| {
        move |options: &mut Options| {
            options.optimizer = optim::Options::new(Method::Adam(method), None);
        }
    };
    let mut first = trainer(&golden, method(Adam::DECOUPLED));
    run(&mut first, &batches[..3]);
    let state: Vec<(String, Tensor)> = first.state().collect::<Result<_, _>>().unwrap();
    let with_step = |step: Option<Tensor>| {
        let others = state.iter().filter(|(name, _)| name != "global_step").cloned();
        Weights::new(others.chain(step.map(|step| ("global_step".to_owned(), step))).collect())
    };
    let gone_on = |of: Adam, state: &Weights| {
        let mut trainer = trainer(&golden, method(of));
        trainer.load(state).unwrap();
        trainer.load_slots(state).unwrap();
        run(&mut trainer, &batches[3..4]);
        bits(&trainer)
    };
    let scalar = |step: Tensor| with_step(Some(step));
    let wide = scalar(Tensor::from_vec([], vec![3i64]).unwrap());
    let narrow = scalar(Tensor::from_vec([], vec![3i32]).unwrap());
    assert!(gone_on(Adam::DECOUPLED, &wide) == gone_on(Adam::DECOUPLED, &narrow));
    let plain = Adam { bias_correction: false, ..Adam::DECOUPLED };
    assert!(gone_on(Adam::DECOUPLED, &with_step(None)) == gone_on(plain, &wide));
    let two = scalar(Tensor::from_vec([2], vec![3i64, 4]).unwrap());
    let mut other = trainer(&golden, method(plain));
    assert!(matches!(other.load_slots(&two), Err(Error::WrongState { .. })));
    let mut cut = state.clone();
    let slot = cut.iter_mut().find(|(name, _)| name.ends_with("/adam_v")).unwrap();
    slot.1 = Tensor::from_vec([1], vec![0f32]).unwrap();
    assert!(matches!(other.load_slots(&Weights::new(cut)), Err(Error::OtherSlot { .. })));
}

/// A training that is stored and goes on elsewhere is the one that was never stopped.
#[test]
fn stored_and_restored() {
    for golden in goldens() {
        let batches = golden.batches(4);
        let with = |options: &mut Options| {
            dropout(options);
            options.optimizer = optim::Options::new(Method::Lamb(Lamb::PLAIN), Some(1.0));
            options.loss_scale = LossScale::Dynamic { scale: 64.0, interval: 3, since: 0 };
            options.beta1 = Some(Transition { init: 0.9, last: 0.8, steps: 5 });
        };
        let mut whole = trainer(&golden, with);
        let expected = run(&mut whole, &batches[..8]);
        let mut first = trainer(&golden, with);
        run(&mut first, &batches[..3]);
        let state = Weights::new(first.state().collect::<Result<_, _>>().unwrap());
        drop(first);
        let mut second = trainer(&golden, |options| {
            with(options);
            options.seed = 1; // The stored one counts.
        });
        second.restore(&state).unwrap();
        assert_eq!(second.steps(), 3);
        assert_eq!(run(&mut second, &batches[3..8]), expected[3..]);
        assert!(bits(&whole) == bits(&second), "{}", golden.head);
        assert!(state.tensor("bert/pooler/dense/kernel/adam_m").is_ok());
        let mut third = trainer(&golden, |_| {});
        let error = third.restore(&golden.initial()).unwrap_err();
        assert!(
            matches!(error, Error::NoState { ref name, .. } if name == "global_step"),
            "{error}"
        );
    }
}

/// Gradients that overflow are passed over with a dynamic factor, and else stop everything; the
/// weights stay as they were.
#[test]
fn overflow() {
    let Some(golden) = goldens().into_iter().next() else { return };
    let batches = golden.batches(4);
    let mut dynamic = trainer(&golden, |options| {
        options.loss_scale = LossScale::Dynamic { scale: 1e38, interval: 100, since: 0 };
    });
    let before = bits(&dynamic);
    let report = dynamic.step(&[&batches[0]]).unwrap();
    assert!(!report.changed && dynamic.steps() == 0 && bits(&dynamic) == before);
    let tried = (0..130).find(|_| dynamic.step(&[&batches[0]]).unwrap().changed);
    assert!(tried.is_some() && dynamic.steps() == 1);
    let mut fixed = trainer(&golden, |options| options.loss_scale = LossScale::Static(1e38));
    let error = fixed.step(&[&batches[0]]).unwrap_err();
    assert!(matches!(error, Error::NotFinite { .. }), "{error}");
    assert!(bits(&fixed) == before);
    // A factor that is a power of two changes nothing but rounding of the smallest numbers.
    let mut scaled = trainer(&golden, |options| options.loss_scale = LossScale::Static(1024.0));
    let mut plain = trainer(&golden, |_| {});
    let (a, b) = (run(&mut scaled, &batches[..3]), run(&mut plain, &batches[..3]));
    assert!(a.iter().zip(&b).all(|(a, b)| (a.norm / b.norm - 1.0).abs() < 1e-5), "{a:?} {b:?}");
    assert!(matches!(plain.step(&[]), Err(Error::NoBatch)));
}

#[test]
fn recomputation_takes_less_memory() {
    let Some(golden) = goldens().into_iter().last() else { return };
    let batches = golden.batches(32);
    let memory = |recompute: bool| {
        let mut trainer = trainer(&golden, |options| options.recompute = recompute);
        trainer.step(&[&batches[0]]).unwrap();
        trainer.memory()
    };
    // One of two layers is computed again; the other one, and the heads, are kept.
    let (less, more) = (memory(true), memory(false));
    assert!(less < more * 9 / 10, "{less} of {more}");
}

/// What a step takes, counted: gradients, and for each row what the layers keep of it. Whoever keeps more,
/// or lets a block go unused, has to say so here.
#[test]
fn a_step_takes_no_more_memory_than_it_must() {
    let (layers, h, f, rows) = (6, 64, 256, 8 * 32);
    let config = serde_json::json!({
        "vocab_size": 500, "hidden_size": h, "num_hidden_layers": layers, "num_attention_heads": 2,
        "intermediate_size": f, "max_position_embeddings": 32, "type_vocab_size": 2,
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bert_config.json");
    std::fs::write(&file, config.to_string()).unwrap();
    let config = frazil_bert::BertConfig::read(&file).unwrap();
    let head = frazil_bert::Head::Classifier;
    let memory = |recompute: bool| {
        let how = frazil_bert::build::Options::default();
        let mut graph = frazil_bert::build::build(&config, head, &how).unwrap();
        frazil_train::loss::attach(&mut graph, head, Default::default()).unwrap();
        let mut options = Options::bert(Schedule::Constant(0.0));
        options.engine = EngineOptions { threads: Some(1), ..EngineOptions::default() };
        options.recompute = recompute;
        dropout(&mut options);
        let mut trainer = Trainer::new(graph, options).unwrap();
        let ones = |shape: &[usize]| {
            Tensor::from_vec(shape.to_vec(), vec![1i32; shape.iter().product()]).unwrap()
        };
        let names = ["input_ids", "input_mask", "segment_ids"];
        let mut batch: Inputs =
            names.iter().map(|name| ((*name).to_owned(), ones(&[8, 32]))).collect();
        batch.insert("label_ids".to_owned(), ones(&[8]));
        trainer.step(&[&batch]).unwrap();
        let parameters = trainer.parameters();
        let weights: usize = (0..parameters.len()).map(|at| parameters.values(at).len()).sum();
        (trainer.memory() / 4, weights)
    };
    let (kept, weights) = memory(false);
    // Of a row, a layer keeps queries, keys, values, what attention gives, two sums and two norms, and
    // what is before and behind the GELU.
    let layer = rows * (8 * h + 2 * f);
    let beside = kept - weights - layers * layer;
    assert!(beside < 2 * layer, "{kept}: {weights} of gradients, {layers} of {layer}, {beside}");
    // Of a layer that is computed again only its input stays.
    let (again, _) = memory(true);
    let beside = again - weights - layers * rows * h;
    assert!(beside < 4 * layer, "{again}: {weights} of gradients, {beside} of {layer} beside");
}
