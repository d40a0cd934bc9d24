//! What the keys say about the optimizer and its schedules.

use frazil_train::optim::{self, Adam, Lamb, Method as Way, Sgd};
use frazil_train::schedule::{Bert, Linear, LossScale, Schedule, Transition};
use serde_json::{Map, Value};

use super::{Settings, wrong};
use crate::Result;

/// Epsilon of MLPerf's LAMB, and of all others here.
const EPSILON: f64 = 1e-6;

/// Stands in where a schedule follows.
pub(super) const NO_RATE: Bert = Bert { rate: 0.0, steps: 1, warmup: 0 };

/// How weights are changed.
pub(super) struct Method {
    pub(super) optimizer: optim::Options,
    pub(super) schedule: Schedule,
    pub(super) beta1: Option<Transition>,
    pub(super) loss_scale: LossScale,
}

/// Reads the keys. How many steps a pass over the data has is asked where it is needed.
pub(super) fn read(settings: &Settings, pass: impl FnOnce() -> Result<u64>) -> Result<Method> {
    let number = |name: &str| settings.number(name);
    let beta1 = match settings.table("beta1_schedule") {
        Some(_) if settings.is_given("beta1") => {
            return Err(wrong(
                "`beta1` and `beta1_schedule` are both given",
                "give one of the two",
            ));
        }
        Some(table) => {
            let key = "beta1_schedule";
            let [init, last, steps] =
                entries(key, &table, ["init", "final", "num_transition_steps"])?;
            for (_, name, value) in [init, last] {
                if !(0.0..1.0).contains(&real((key, name, value))) {
                    let what = format!("`{name}` of `{key}` is {value}");
                    return Err(wrong(what, "give a number from 0 to less than 1"));
                }
            }
            Some(Transition { init: real(init), last: real(last), steps: whole(steps)? })
        }
        None => None,
    };
    let weight_decay = number("weight_decay").unwrap_or(0.0);
    let adam = |bias_correction: bool| Adam {
        beta1: beta1.map_or(number("beta1").unwrap_or(0.9), |beta| beta.init),
        beta2: number("beta2").unwrap_or(0.999),
        epsilon: EPSILON,
        weight_decay,
        bias_correction,
    };
    let max_weight_norm = number("max_weight_norm");
    let method = match settings.text("optimizer").unwrap_or_default().as_str() {
        "SGD" => {
            let momentum = number("momentum").unwrap_or(0.0);
            let dampening = number("dampening").unwrap_or(momentum);
            Way::Sgd(Sgd { momentum, dampening, weight_decay })
        }
        "ADAM" => Way::Adam(adam(true)),
        "ADAM_NO_BIAS" => Way::Adam(adam(false)),
        "LAMB" => Way::Lamb(Lamb { adam: adam(true), max_weight_norm }),
        "LAMB_NO_BIAS" => Way::Lamb(Lamb { adam: adam(false), max_weight_norm }),
        other => {
            let hint = "give SGD, ADAM, ADAM_NO_BIAS, LAMB or LAMB_NO_BIAS";
            return Err(wrong(format!("`optimizer` is `{other}`"), hint));
        }
    };
    let clip_norm = number("gradient_clipping_norm").map(|norm| norm as f32);
    let scale = number("loss_scaling").unwrap_or(1.0) as f32;
    if !(scale.is_finite() && scale > 0.0) {
        return Err(wrong(format!("`loss_scaling` is {scale}"), "give a number above 0"));
    }
    Ok(Method {
        optimizer: optim::Options::new(method, clip_norm),
        schedule: schedule(settings, pass)?,
        beta1,
        loss_scale: LossScale::Static(scale),
    })
}

/// What a table says, and where.
type Entry<'t> = (&'t str, &'t str, &'t Value);

/// The entries of a table, which has these and no others.
fn entries<'t, const N: usize>(
    key: &'t str,
    table: &'t Map<String, Value>,
    names: [&'t str; N],
) -> Result<[Entry<'t>; N]> {
    if let Some(other) = table.keys().find(|name| !names.contains(&name.as_str())) {
        let near = frazil_tensor::nearest(other, names);
        let hint = match near.first() {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its entries are `{}`", names.join("`, `")),
        };
        return Err(wrong(format!("`{key}` has no entry `{other}`"), hint));
    }
    if let Some(missing) = names.iter().find(|name| !table.contains_key(**name)) {
        let hint = format!("its entries are `{}`", names.join("`, `"));
        return Err(wrong(format!("`{key}` lacks `{missing}`"), hint));
    }
    Ok(names.map(|name| (key, name, &table[name])))
}

fn real((_, _, value): Entry<'_>) -> f64 {
    value.as_f64().expect("a table has numbers, which its kind says")
}

fn whole((key, name, value): Entry<'_>) -> Result<u64> {
    value.as_u64().ok_or_else(|| {
        wrong(format!("`{name}` of `{key}` is {value}"), "give a whole number of steps")
    })
}

fn schedule(settings: &Settings, pass: impl FnOnce() -> Result<u64>) -> Result<Schedule> {
    let keys = ["lr_bert_schedule", "lr_schedule_by_step", "lr_schedule_by_epoch"];
    let given: Vec<&str> = keys.into_iter().filter(|key| settings.is_given(key)).collect();
    let key = match given[..] {
        [] => return Ok(Schedule::Constant(settings.number("learning_rate").unwrap_or(0.0))),
        [key] => key,
        _ => {
            let what = format!("`{}` are given together", given.join("` and `"));
            return Err(wrong(what, "give one schedule"));
        }
    };
    let table = settings.table(key).unwrap_or_default();
    if key == "lr_bert_schedule" {
        let names = ["init_lr", "num_training_steps", "num_warmup_steps"];
        let [rate, steps, warmup] = entries(key, &table, names)?;
        let steps = whole(steps)?;
        if steps == 0 {
            return Err(wrong("`lr_bert_schedule` has no steps", "give `num_training_steps`"));
        }
        return Ok(Schedule::Linear(Linear { rate: real(rate), steps, warmup: whole(warmup)? }));
    }
    let mut rates = Vec::new();
    for (from, rate) in &table {
        let number = from.parse::<u64>().ok().zip(rate.as_f64());
        let wrong = || wrong(format!("`{key}` has `{from}`"), "give steps or epochs and rates");
        rates.push(number.ok_or_else(wrong)?);
    }
    if rates.is_empty() {
        return Err(wrong(format!("`{key}` has no rates"), "give pairs such as `0:1e-3`"));
    }
    rates.sort_by_key(|(from, _)| *from);
    if rates[0].0 > 0 {
        rates.insert(0, (0, settings.number("learning_rate").unwrap_or(0.0)));
    }
    Ok(match key {
        "lr_schedule_by_step" => Schedule::Steps(rates),
        _ => Schedule::Epochs { steps: pass()?, rates },
    })
}

/// What is to be said of a rate that no step has.
pub(super) fn unused_rate(settings: &Settings) -> Option<String> {
    let by_table = |key: &&str| settings.table(key).is_some_and(|table| table.contains_key("0"));
    let tables = ["lr_schedule_by_step", "lr_schedule_by_epoch"];
    let other = tables
        .into_iter()
        .find(by_table)
        .or_else(|| Some("lr_bert_schedule").filter(|key| settings.is_given(key)))?;
    let note = || format!("`learning_rate` (no effect): `{other}` says all rates");
    settings.is_given("learning_rate").then(note)
}

impl Method {
    /// What the log says of all that, in its order.
    pub(super) fn logged(
        &self,
        settings: &Settings,
        global_batch: u64,
        accumulation: u64,
        seed: u64,
        length: usize,
    ) -> Vec<(&'static str, Value)> {
        let (steps, warmup) = match &self.schedule {
            Schedule::Linear(linear) => (linear.steps, linear.warmup),
            _ => (settings.count("max_training_sequences").unwrap_or(0) / global_batch.max(1), 0),
        };
        let beta1 = self.beta1.map_or(settings.number("beta1"), |beta| Some(beta.init));
        vec![
            ("seed", seed.into()),
            ("max_sequence_length", length.into()),
            ("global_batch_size", global_batch.into()),
            ("gradient_accumulation_steps", accumulation.into()),
            ("opt_base_learning_rate", self.schedule.largest().into()),
            ("opt_lamb_weight_decay_rate", settings.number("weight_decay").into()),
            ("opt_lamb_beta_1", beta1.into()),
            ("opt_lamb_beta_2", settings.number("beta2").into()),
            ("opt_learning_rate_warmup_steps", warmup.into()),
            ("num_warmup_steps", warmup.into()),
            ("start_warmup_step", 0.into()),
            ("opt_learning_rate_training_steps", steps.into()),
            ("opt_epsilon", EPSILON.into()),
            ("opt_lamb_learning_rate_decay_poly_power", 1.0.into()),
        ]
    }
}
