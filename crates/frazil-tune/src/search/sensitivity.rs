//! Fall-backs by damage per microsecond, and few evaluations.
//!
//! 1. The whole model as it is most wanted, on a subset; if that is not good enough, other settings
//!    for the whole model too, and the best is kept.
//! 2. Once: what each operation does alone to the final logits, from one run.
//! 3. Operations in the order of damage per microsecond that bytes save there. Falling back the
//!    first `k` of them is a ladder from all in bytes (`k = 0`) to nothing: the fewest that meet the
//!    goal are found by halving. The first guess is better than the middle: damages add up, so the
//!    loss that was measured says how much damage may remain.
//! 4. A rung that even the better end of the subset's interval does not let pass is rejected
//!    without the full set; whatever is accepted was measured on the full set.

use std::collections::BTreeMap;

use crate::choice::{Choice, Configuration};
use crate::config::Objective;
use crate::tuner::{Halt, Measured, Stop, Trials};

/// A guess stays this much below the damage that may remain, since damages add up only roughly.
const CAUTION: f64 = 0.8;
/// Savings that are not worth an evaluation, as a share of all savings.
const NEGLIGIBLE: f64 = 0.01;

pub(super) fn run(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let whole = choose_profile(trials)?;
    let damage: BTreeMap<String, f64> = trials.damage(&whole)?.into_iter().collect();
    let ladder = Ladder::new(trials, whole, &damage);
    let (passed, measured) = try_rung(trials, &ladder, 0)?;
    if passed {
        return Ok(Stop::GoalMet);
    }
    // Between `low`, which does not pass, and `high`, which does or is the end.
    let (mut low, mut high) = (0, ladder.names.len());
    let mut low_loss = trials.loss(&measured);
    let mut met = false;
    let mut steps = 0;
    while high - low > 1 && trials.full_evaluations() < trials.settings.full_evaluations {
        if met && ladder.savings(low + 1, high) < NEGLIGIBLE {
            break;
        }
        let middle = low + (high - low) / 2;
        // Guess every other time: a wrong guess costs one step more than halving, never many.
        let rung = match steps % 2 {
            0 => ladder.guess(low, low_loss, trials.allowance()).clamp(low + 1, high - 1),
            _ => middle,
        };
        let (passed, measured) = try_rung(trials, &ladder, rung)?;
        if passed {
            (high, met) = (rung, true);
        } else {
            (low, low_loss) = (rung, trials.loss(&measured));
        }
        steps += 1;
    }
    Ok(if met { Stop::GoalMet } else { Stop::Exhausted })
}

/// The most wanted settings for the whole model, or others if a subset says they are better.
fn choose_profile(trials: &mut Trials<'_>) -> Result<Configuration, Halt> {
    let mut profiles = trials.space.profiles().into_iter().filter(|p| p.int8_ops() > 0);
    let Some(mut chosen) = profiles.next() else {
        return Err(Halt::Stop(Stop::Exhausted));
    };
    let measured = trials.subset(&chosen)?;
    if trials.met(&measured) {
        return Ok(chosen);
    }
    let mut loss = trials.loss(&measured);
    for profile in profiles {
        let measured = trials.subset(&profile)?;
        if trials.loss(&measured) < loss {
            (chosen, loss) = (profile, trials.loss(&measured));
        }
        if trials.met(&measured) {
            break;
        }
    }
    Ok(chosen)
}

/// Is it good enough on the full set? And what it is worth, as far as it was measured.
fn try_rung(
    trials: &mut Trials<'_>,
    ladder: &Ladder,
    rung: usize,
) -> Result<(bool, Measured), Halt> {
    let configuration = ladder.rung(rung);
    let guess = trials.subset(&configuration)?;
    if trials.surely_missed(&guess) {
        return Ok((false, guess));
    }
    let measured = trials.full(&configuration)?;
    Ok((trials.met(&measured), measured))
}

struct Ladder {
    whole: Configuration,
    /// In the order in which they fall back.
    names: Vec<String>,
    saves: Vec<f64>,
    /// `[names + 1]`: the damage that remains when so many have fallen back.
    remaining: Vec<f64>,
}

impl Ladder {
    fn new(trials: &Trials<'_>, whole: Configuration, damage: &BTreeMap<String, f64>) -> Self {
        let of = |name: &str| damage.get(name).copied().unwrap_or(0.0).max(0.0);
        let mut ops: Vec<(String, f64, f64)> = trials
            .space
            .can_fall_back(&whole)
            .into_iter()
            .map(|op| {
                let saves = match trials.settings.objective {
                    Objective::Performance => op.saves_us,
                    Objective::Footprint | Objective::Modelsize => op.saves_bytes as f64,
                };
                (op.name.clone(), of(&op.name), saves.max(1e-9))
            })
            .collect();
        ops.sort_by(|a, b| (b.1 / b.2).total_cmp(&(a.1 / a.2)).then_with(|| a.0.cmp(&b.0)));
        // What can never fall back remains at every rung.
        let stuck: f64 = whole
            .ops
            .iter()
            .filter(|(name, choice)| choice.is_int8() && !ops.iter().any(|op| op.0 == **name))
            .map(|(name, _)| of(name))
            .sum();
        let mut remaining = vec![stuck];
        for op in ops.iter().rev() {
            remaining.push(remaining[remaining.len() - 1] + op.1);
        }
        remaining.reverse();
        let saves = ops.iter().map(|op| op.2).collect();
        Self { whole, names: ops.into_iter().map(|op| op.0).collect(), saves, remaining }
    }

    fn rung(&self, k: usize) -> Configuration {
        let mut configuration = self.whole.clone();
        for name in &self.names[..k] {
            configuration.ops.insert(name.clone(), Choice::F32);
        }
        configuration
    }

    /// The share of all savings that lies between two rungs.
    fn savings(&self, from: usize, to: usize) -> f64 {
        let all: f64 = self.saves.iter().sum();
        self.saves[from.min(to)..to].iter().sum::<f64>() / all.max(f64::MIN_POSITIVE)
    }

    /// The first rung whose remaining damage should lose no more than is allowed.
    fn guess(&self, low: usize, loss: f64, allowance: f64) -> usize {
        if loss <= 0.0 {
            return low + 1;
        }
        let may_remain = self.remaining[low] * (CAUTION * allowance / loss).clamp(0.0, 1.0);
        (low..self.remaining.len())
            .find(|&rung| self.remaining[rung] <= may_remain)
            .unwrap_or(self.names.len())
    }
}
