//! One setting for every kind of operation, then fall-backs to f32: `basic` and `mse`.

use std::collections::{BTreeMap, BTreeSet};

use crate::choice::{Choice, Configuration, OpKind};
use crate::space::Space;
use crate::tuner::{Halt, Measured, Stop, Trials};

/// Combinations of settings that are looked at: more would be tried by nobody.
const MOST_COMBINATIONS: usize = 4096;

/// Ranks operations by what falling back alone brings, measured one by one from the last.
pub(super) fn basic(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let Some((best, measured)) = by_kind(trials)? else { return Ok(Stop::Exhausted) };
    let names: Vec<String> =
        trials.space.can_fall_back(&best).iter().rev().map(|op| op.name.clone()).collect();
    let mut ranked = Vec::new();
    for name in names {
        let alone = without(&best, &name);
        if alone.int8_ops() == 0 {
            continue;
        }
        let found = trials.full(&alone)?;
        ranked.push((trials.loss(&found), name));
    }
    // Stable: of equals the later operation falls back first.
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    accumulate(trials, &best, &measured, ranked.into_iter().map(|(_, name)| name).collect())
}

/// Ranks operations by the damage that each does alone.
pub(super) fn mse(trials: &mut Trials<'_>) -> Result<Stop, Halt> {
    let Some((best, measured)) = by_kind(trials)? else { return Ok(Stop::Exhausted) };
    let damage: BTreeMap<String, f64> = trials.damage(&best)?.into_iter().collect();
    let mut names: Vec<String> =
        trials.space.can_fall_back(&best).iter().rev().map(|op| op.name.clone()).collect();
    let of = |name: &String| damage.get(name).copied().unwrap_or(0.0);
    names.sort_by(|a, b| of(b).total_cmp(&of(a)));
    accumulate(trials, &best, &measured, names)
}

/// Tries every combination of settings for kinds of operations, and gives the most accurate.
fn by_kind(trials: &mut Trials<'_>) -> Result<Option<(Configuration, Measured)>, Halt> {
    let mut best: Option<(Configuration, Measured)> = None;
    for configuration in combinations(trials.space) {
        let measured = trials.full(&configuration)?;
        let better = |(_, known): &(_, Measured)| trials.loss(&measured) < trials.loss(known);
        if best.as_ref().is_none_or(better) {
            best = Some((configuration, measured));
        }
    }
    Ok(best)
}

/// Those with the fewest different settings first.
fn combinations(space: &Space) -> Vec<Configuration> {
    let mut combined: Vec<BTreeMap<OpKind, Choice>> = vec![BTreeMap::new()];
    for (kind, settings) in space.settings() {
        combined = combined
            .iter()
            .flat_map(|known| {
                settings.iter().map(move |setting| {
                    let mut more = known.clone();
                    more.insert(kind, *setting);
                    more
                })
            })
            .take(MOST_COMBINATIONS)
            .collect();
    }
    combined.sort_by_key(|settings| {
        settings.values().map(|choice| choice.to_string()).collect::<BTreeSet<_>>().len()
    });
    let mut configurations: Vec<Configuration> = Vec::new();
    for settings in combined {
        let configuration = space.by_kind(&settings);
        if configuration.int8_ops() > 0 && !configurations.contains(&configuration) {
            configurations.push(configuration);
        }
    }
    configurations
}

fn without(configuration: &Configuration, name: &str) -> Configuration {
    let mut without = configuration.clone();
    without.ops.insert(name.into(), Choice::F32);
    without
}

/// Adds fall-backs in order: first only those that help, then all of them.
fn accumulate(
    trials: &mut Trials<'_>,
    best: &Configuration,
    measured: &Measured,
    names: Vec<String>,
) -> Result<Stop, Halt> {
    let (mut kept, mut loss) = (best.clone(), trials.loss(measured));
    for name in &names {
        let more = without(&kept, name);
        if more.int8_ops() == 0 {
            break;
        }
        let found = trials.full(&more)?;
        if trials.loss(&found) < loss {
            (kept, loss) = (more, trials.loss(&found));
        }
    }
    let mut all = best.clone();
    for name in &names {
        all = without(&all, name);
        if all.int8_ops() == 0 {
            break;
        }
        trials.full(&all)?;
    }
    Ok(Stop::Exhausted)
}
