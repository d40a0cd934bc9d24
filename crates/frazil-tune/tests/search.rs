//! Every strategy against a model that is a formula: goals, limits, and what is said at the end.

mod synthetic;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use frazil_tune::config::{Criterion, Objective, Strategy};
use frazil_tune::{Error, Event, History, Outcome, Settings, Space, Stop, Verdict, tune};
use synthetic::{BASELINE, Synthetic, settings};

const ALL: [Strategy; 7] = [
    Strategy::Sensitivity,
    Strategy::Basic,
    Strategy::Exhaustive,
    Strategy::Random,
    Strategy::Mse,
    Strategy::Bayesian,
    Strategy::Tpe,
];

fn search(subject: &mut Synthetic, settings: &Settings) -> Outcome {
    let space = subject.space();
    let mut history = History::in_memory();
    tune(subject, &space, settings, &mut history, &mut |_| ControlFlow::Continue(()))
        .expect("the subject does not fail")
}

#[test]
fn every_strategy_meets_a_goal_that_fall_backs_can_meet() {
    for strategy in ALL {
        // All in bytes loses 1.2 points, 0.9 are allowed: some setting or fall-back does it.
        let mut subject = Synthetic::new(10, 1.2);
        let outcome = search(&mut subject, &settings(strategy, 0.01));
        assert_eq!(outcome.verdict, Verdict::Met, "{strategy:?}: {:?}", outcome.stop);
        assert_eq!(outcome.stop, Stop::GoalMet, "{strategy:?}");
        let best = outcome.best().unwrap();
        assert!(best.met && best.measured.full && best.measured.accuracy >= BASELINE * 0.99);
        assert!(best.configuration.int8_ops() > 0, "{strategy:?}");
        assert_eq!(subject.calls.0, 1, "one baseline");
    }
}

#[test]
fn an_easy_goal_takes_one_trial() {
    for strategy in ALL {
        let mut subject = Synthetic::new(48, 0.3);
        let outcome = search(&mut subject, &settings(strategy, 0.01));
        assert_eq!((outcome.verdict, outcome.trials.len()), (Verdict::Met, 1), "{strategy:?}");
        let int8 = outcome.best().unwrap().configuration.int8_ops();
        assert!(int8 == 48 || strategy == Strategy::Random, "{strategy:?}: {int8}");
    }
}

#[test]
fn sensitivity_needs_few_evaluations_and_few_fall_backs() {
    for (total, goal) in [(3.0, 0.005), (2.0, 0.01), (6.0, 0.005), (1.0, 0.0075), (20.0, 0.01)] {
        let mut subject = Synthetic::new(150, total);
        let outcome = search(&mut subject, &settings(Strategy::Sensitivity, goal));
        assert_eq!(outcome.verdict, Verdict::Met, "{total} {goal}");
        assert!(subject.calls.2 <= 8, "{total} {goal}: {} full evaluations", subject.calls.2);
        assert_eq!(subject.calls.3, 1, "damage is measured once");
        assert_eq!(outcome.full_evaluations, subject.calls.2);
        let best = outcome.best().unwrap();
        // Nobody could know less than the costs themselves: falling back in their order.
        let mut order = outcome.damage.clone();
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut lost: f64 = order.iter().map(|(_, cost)| cost).sum();
        let least = order
            .iter()
            .take_while(|(_, cost)| {
                let more = lost > goal * BASELINE;
                lost -= cost;
                more
            })
            .count();
        let back = 150 - best.configuration.int8_ops();
        assert!(back <= least + 8, "{total} {goal}: {back} fall back where {least} might do");
    }
}

#[test]
fn sensitivity_keeps_what_saves_time_or_bytes() {
    let mut subject = Synthetic::new(60, 3.0);
    let mut by_size = settings(Strategy::Sensitivity, 0.01);
    by_size.objective = Objective::Modelsize;
    let outcome = search(&mut subject, &by_size);
    assert_eq!(outcome.verdict, Verdict::Met);
    let best = outcome.best().unwrap().measured.bytes;
    let met = outcome.trials.iter().filter(|trial| trial.met);
    assert_eq!(met.map(|trial| trial.measured.bytes).min(), Some(best));
}

#[test]
fn a_goal_that_cannot_be_met_still_gives_the_best() {
    for strategy in ALL {
        let mut subject = Synthetic::new(16, 8.0);
        subject.noise = 0.0;
        let mut settings = settings(strategy, 0.0);
        settings.max_trials = 3;
        let outcome = search(&mut subject, &settings);
        assert_eq!(outcome.verdict, Verdict::Missed, "{strategy:?}");
        assert!(outcome.trials.len() <= 3, "{strategy:?}");
        let best = outcome.best().unwrap();
        assert!(!best.met);
        let full = outcome.trials.iter().filter(|trial| trial.measured.full);
        for other in full {
            assert!(best.measured.accuracy >= other.measured.accuracy, "{strategy:?}");
        }
    }
}

#[test]
fn limits_hold() {
    for strategy in ALL {
        let mut subject = Synthetic::new(16, 8.0);
        subject.noise = 0.0;
        let mut settings = settings(strategy, 0.0);
        settings.max_trials = 5;
        let outcome = search(&mut subject, &settings);
        assert!(outcome.trials.len() <= 5);
        let keys: BTreeSet<&str> = outcome.trials.iter().map(|t| t.key.as_str()).collect();
        assert_eq!(keys.len(), outcome.trials.len(), "{strategy:?}: no trial twice");
        if strategy != Strategy::Sensitivity {
            assert_eq!(outcome.stop, Stop::MaxTrials, "{strategy:?}");
        }

        settings.performance_only = true;
        let outcome = search(&mut Synthetic::new(16, 8.0), &settings);
        assert_eq!(outcome.trials.len(), 1);
        assert_eq!(outcome.verdict, Verdict::NotAsked);
        assert_eq!(outcome.stop, Stop::PerformanceOnly);
    }
}

#[test]
fn a_timeout_keeps_the_fastest_that_is_good_enough() {
    let mut subject = Synthetic::new(16, 0.5);
    subject.pause = Duration::from_millis(2);
    let mut settings = settings(Strategy::Random, 0.01);
    settings.timeout = Duration::from_millis(60);
    let outcome = search(&mut subject, &settings);
    assert_eq!((outcome.verdict, outcome.stop), (Verdict::Met, Stop::Timeout));
    assert!(outcome.trials.len() > 1, "it does not end with the first");
    let best = outcome.best().unwrap().measured.latency_ms;
    let met = outcome.trials.iter().filter(|trial| trial.met);
    assert!(met.map(|trial| trial.measured.latency_ms).all(|latency| latency >= best));
    // One that is over at once still makes a trial.
    settings.timeout = Duration::from_nanos(1);
    for strategy in ALL {
        settings.strategy = strategy;
        let outcome = search(&mut Synthetic::new(16, 8.0), &settings);
        assert!(outcome.best().is_some_and(|best| best.measured.full), "{strategy:?}");
    }
}

#[test]
fn tiny_spaces_end() {
    for strategy in ALL {
        let mut subject = Synthetic::new(2, 30.0); // a table and a product
        subject.noise = 0.0;
        let outcome = search(&mut subject, &settings(strategy, 0.0));
        assert_eq!(outcome.stop, Stop::Exhausted, "{strategy:?}");
        assert!(outcome.trials.len() <= 7, "{strategy:?}: all but the baseline");
        if matches!(
            strategy,
            Strategy::Exhaustive | Strategy::Random | Strategy::Bayesian | Strategy::Tpe
        ) {
            // 2 * 4 choices, but static ones only, and not f32 for both.
            assert_eq!(outcome.trials.len(), 7, "{strategy:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_search() {
    for strategy in ALL {
        let mut settings = settings(strategy, 0.0);
        settings.max_trials = 30;
        let first = search(&mut Synthetic::new(20, 5.0), &settings);
        let again = search(&mut Synthetic::new(20, 5.0), &settings);
        let keys = |outcome: &Outcome| -> Vec<String> {
            outcome.trials.iter().map(|trial| trial.key.clone()).collect()
        };
        assert_eq!(keys(&first), keys(&again), "{strategy:?}");
        settings.seed += 1;
        let other = search(&mut Synthetic::new(20, 5.0), &settings);
        let random = matches!(strategy, Strategy::Random | Strategy::Tpe | Strategy::Bayesian);
        assert_eq!(keys(&first) != keys(&other), random, "{strategy:?}");
    }
}

#[test]
fn learning_beats_chance() {
    let mut settings = settings(Strategy::Random, 0.01);
    settings.timeout = Duration::from_secs(3600); // go on after the goal
    settings.max_trials = 60;
    let best = |strategy| {
        let settings = Settings { strategy, ..settings.clone() };
        let outcome = search(&mut Synthetic::new(24, 1.5), &settings);
        let best = outcome.best().unwrap();
        (best.met, best.measured.latency_ms)
    };
    let (_, chance) = best(Strategy::Random);
    for strategy in [Strategy::Tpe, Strategy::Bayesian] {
        let (met, latency) = best(strategy);
        assert!(met && latency <= chance, "{strategy:?}: {latency} against {chance}");
    }
}

#[test]
fn lower_may_be_better() {
    for strategy in [Strategy::Sensitivity, Strategy::Basic] {
        let mut subject = Synthetic::new(24, 2.0);
        subject.higher = false;
        let mut settings = settings(strategy, 0.01);
        settings.goal.higher_is_better = false;
        settings.goal.criterion = Criterion::Absolute(0.9);
        let outcome = search(&mut subject, &settings);
        assert_eq!(outcome.verdict, Verdict::Met, "{strategy:?}");
        assert!(outcome.best().unwrap().measured.accuracy <= BASELINE + 0.9);
    }
}

#[test]
fn what_goes_wrong_is_said_and_nothing_is_lost() {
    let mut subject = Synthetic::new(16, 8.0);
    subject.fails_at = Some(3);
    let (space, settings) = (subject.space(), settings(Strategy::Random, 0.0));
    let mut history = History::in_memory();
    let mut quiet = |_: &Event<'_>| ControlFlow::Continue(());
    let error = tune(&mut subject, &space, &settings, &mut history, &mut quiet).unwrap_err();
    assert_eq!(error.to_string(), "the evaluation failed");
    assert_eq!(history.len(), 2, "what was measured before is kept");

    let mut subject = Synthetic::new(16, 8.0);
    subject.accuracy_is = Some(f64::NAN);
    let error =
        tune(&mut subject, &space, &settings, &mut History::in_memory(), &mut quiet).unwrap_err();
    assert!(matches!(error, Error::Measurement { what: "accuracy", .. }), "{error}");
    assert!(error.to_string().contains("the baseline is NaN"));
}

#[test]
fn a_callback_sees_everything_and_can_end_it() {
    let mut subject = Synthetic::new(48, 4.0);
    let (space, settings) = (subject.space(), settings(Strategy::Sensitivity, 0.01));
    let mut seen = [0; 5];
    let outcome = tune(&mut subject, &space, &settings, &mut History::in_memory(), &mut |event| {
        match event {
            Event::Baseline(_) => seen[0] += 1,
            Event::MeasuringDamage(_) => seen[1] += 1,
            Event::Damage(damage) => seen[2] += damage.len(),
            Event::Started { .. } => seen[3] += 1,
            Event::Finished { .. } => seen[4] += 1,
            _ => {}
        }
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(seen, [1, 1, 48, subject.calls.1 + subject.calls.2, seen[3]]);
    assert_eq!(outcome.damage.len(), 48);

    let mut left = 4;
    let outcome = tune(
        &mut Synthetic::new(16, 8.0),
        &Synthetic::new(16, 8.0).space(),
        &Settings { strategy: Strategy::Random, ..settings },
        &mut History::in_memory(),
        &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )
    .unwrap();
    assert_eq!(outcome.stop, Stop::Interrupted);
    assert!(outcome.best().is_some());
}

#[test]
fn nothing_to_put_in_bytes_ends_at_once() {
    let subject = Synthetic::new(16, 1.0);
    let mut space: Space = subject.space();
    for op in &mut space.ops {
        op.choices.retain(|choice| !choice.is_int8());
    }
    for strategy in ALL {
        let mut subject = Synthetic::new(16, 1.0);
        let settings = settings(strategy, 0.01);
        let mut quiet = |_: &Event<'_>| ControlFlow::Continue(());
        let mut history = History::in_memory();
        let outcome = tune(&mut subject, &space, &settings, &mut history, &mut quiet).unwrap();
        assert_eq!((outcome.verdict, outcome.stop), (Verdict::Missed, Stop::Exhausted));
        assert!(outcome.best().is_none(), "{strategy:?}");
    }
}
