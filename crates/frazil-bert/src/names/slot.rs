//! What training leaves in a checkpoint beside the model: optimizer slots and counters.
//!
//! Slots are found by rule, not by a list of optimizers: a variable below another variable, of
//! its shape or of a shape that is derived from it, is that one's slot, and the rest of its
//! name is the slot's kind. So Adam's, LAMB's and tomorrow's are all the same.

use std::collections::HashMap;

use frazil_tensor::{DType, Shape, TensorInfo};

/// Suffix of every variable in a TensorFlow 2 object checkpoint.
pub(super) const OBJECT_VALUE: &str = "/.ATTRIBUTES/VARIABLE_VALUE";
const OBJECT_SLOT: &str = "/.OPTIMIZER_SLOT/";
const OBJECT_GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";

/// A slot's owner and kind, as read off its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Name of the variable it belongs to.
    pub of: String,
    /// What kind of slot.
    pub kind: String,
    /// Whether that variable is not in the file.
    pub orphan: bool,
}

/// Finds slots among the variables of a file.
pub(super) struct Slots<'a> {
    shapes: HashMap<&'a str, &'a Shape>,
}

impl<'a> Slots<'a> {
    pub fn new(infos: &'a [TensorInfo]) -> Self {
        Self { shapes: infos.iter().map(|info| (info.name.as_str(), &info.shape)).collect() }
    }

    /// Whose slot the variable is, if it is one. `is_model` tells model variables that were
    /// stripped from the file by their names.
    pub fn find(&self, info: &TensorInfo, is_model: impl Fn(&str) -> bool) -> Option<Found> {
        let name = info.name.as_str();
        if let Some((owner, rest)) = name.split_once(OBJECT_SLOT) {
            let of = format!("{owner}{OBJECT_VALUE}");
            let kind = rest.strip_suffix(OBJECT_VALUE).unwrap_or(rest).to_string();
            let orphan = !self.shapes.contains_key(of.as_str());
            return Some(Found { of, kind, orphan });
        }
        let (plain, port) = match name.strip_suffix(":0") {
            Some(plain) => (plain, ":0"),
            None => (name, ""),
        };
        // `X/adam_m` first; then `Adam/X/m`, as Keras names them.
        let starts = std::iter::once(0).chain(plain.match_indices('/').map(|(at, _)| at + 1));
        for start in starts {
            let rest = &plain[start..];
            for (at, _) in rest.match_indices('/') {
                let of = format!("{}{port}", &rest[..at]);
                let Some(shape) = self.shapes.get(of.as_str()) else { continue };
                if derived(&info.shape, shape, start == 0) {
                    let kind = format!("{}{}", &plain[..start], &rest[at + 1..]);
                    return Some(Found { of, kind, orphan: false });
                }
            }
        }
        // The owner is not in the file: its name alone must do.
        for (at, _) in plain.match_indices('/') {
            let of = format!("{}{port}", &plain[..at]);
            if is_model(&of) {
                return Some(Found { of, kind: plain[at + 1..].to_string(), orphan: true });
            }
        }
        None
    }
}

/// Whether a slot can have this shape: the owner's own, one of its factors (rows or columns, as
/// Adafactor keeps), or a scalar if the name alone is proof enough.
fn derived(slot: &Shape, owner: &Shape, scalar_too: bool) -> bool {
    if slot == owner || (scalar_too && slot.is_empty()) {
        return true;
    }
    slot.len() + 1 == owner.len()
        && (0..owner.len()).any(|dropped| {
            let rest = owner.iter().enumerate().filter(|(i, _)| *i != dropped);
            rest.map(|(_, dim)| dim).eq(slot.iter())
        })
}

/// Whether a variable is a counter, a power, a loss scale or a program's bookkeeping.
pub(super) fn is_state(info: &TensorInfo) -> bool {
    const STATE: &[&str] = &[
        "global_step",
        "beta1_power",
        "beta2_power",
        "beta_1",
        "beta_2",
        "loss_scale",
        "current_loss_scale",
        "good_steps",
        "num_good_steps",
        "bad_steps",
        "num_bad_steps",
        "local_step",
        "accum_step",
        "accumulation_step",
        "learning_rate",
        "weight_decay_rate",
        "decay",
        "iter",
        "iterations",
        "save_counter",
        "step",
    ];
    // The one string of an object checkpoint, and those of its objects. Strings elsewhere are
    // constants of a graph.
    if info.name == OBJECT_GRAPH
        || (info.dtype == DType::String && info.name.contains("/.ATTRIBUTES/"))
    {
        return true;
    }
    // What a training of frazil needs to go on.
    if info.name.starts_with("frazil/") {
        return true;
    }
    let name = info.name.strip_suffix(":0").unwrap_or(&info.name);
    let name = name.strip_suffix(OBJECT_VALUE).unwrap_or(name);
    let last = name.rsplit('/').next().unwrap_or(name);
    let numbered = last.rsplit_once('_').filter(|(_, n)| n.bytes().all(|b| b.is_ascii_digit()));
    let known = |name: &str| STATE.contains(&name);
    // A scalar by rule: a matrix named `decay` would be somebody's weights.
    info.shape.elements().is_some_and(|n| n <= 1)
        && (known(last) || numbered.is_some_and(|(stem, _)| known(stem)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn infos(list: &[(&str, &[usize])]) -> Vec<TensorInfo> {
        let one = |(name, shape): &(&str, &[usize])| TensorInfo {
            name: name.to_string(),
            dtype: DType::F32,
            shape: Shape::from(*shape),
        };
        list.iter().map(one).collect()
    }

    #[test]
    fn every_optimizer_by_one_rule() {
        let all = infos(&[
            ("x/kernel", &[2, 3]),
            ("x/kernel/adam_m", &[2, 3]),
            ("x/kernel/LAMB_1", &[2, 3]),
            ("x/kernel/BERTAdam", &[2, 3]),
            ("x/kernel/Some/day", &[2, 3]),
            ("x/kernel/vr", &[2]),
            ("x/kernel/vc", &[3]),
            ("x/kernel/step", &[]),
            ("training/Adam/x/kernel/m", &[2, 3]),
            ("x/kernel/other", &[5]),
            ("gone/kernel/adam_m", &[2, 3]),
            ("foreign/adam_m", &[2, 3]),
        ]);
        let slots = Slots::new(&all);
        let found = |i: usize| slots.find(&all[i], |name| name == "gone/kernel");
        let kinds: Vec<Option<String>> = (0..all.len()).map(|i| found(i).map(|f| f.kind)).collect();
        let kinds: Vec<Option<&str>> = kinds.iter().map(Option::as_deref).collect();
        assert_eq!(
            kinds,
            [
                None,
                Some("adam_m"),
                Some("LAMB_1"),
                Some("BERTAdam"),
                Some("Some/day"),
                Some("vr"),
                Some("vc"),
                Some("step"),
                Some("training/Adam/m"),
                None,
                Some("adam_m"),
                None,
            ]
        );
        assert!(found(10).unwrap().orphan);
        assert_eq!(found(8).unwrap().of, "x/kernel");
    }

    #[test]
    fn object_checkpoints() {
        let all = infos(&[
            ("m/k/.ATTRIBUTES/VARIABLE_VALUE", &[2]),
            ("m/k/.OPTIMIZER_SLOT/optimizer/v/.ATTRIBUTES/VARIABLE_VALUE", &[2]),
            ("optimizer/beta_1/.ATTRIBUTES/VARIABLE_VALUE", &[]),
            ("_CHECKPOINTABLE_OBJECT_GRAPH", &[]),
        ]);
        let slots = Slots::new(&all);
        let slot = slots.find(&all[1], |_| false).unwrap();
        assert_eq!((slot.of.as_str(), slot.kind.as_str()), (all[0].name.as_str(), "optimizer/v"));
        assert!(!slot.orphan);
        assert!(slots.find(&all[2], |_| false).is_none() && is_state(&all[2]));
        assert!(is_state(&all[3]));
    }

    #[test]
    fn counters_are_scalars() {
        let all = infos(&[
            ("global_step", &[]),
            ("beta1_power_1", &[]),
            ("scope/loss_scale:0", &[]),
            ("decay", &[4, 4]),
            ("bert/x/bias", &[1]),
        ]);
        let state: Vec<bool> = all.iter().map(is_state).collect();
        assert_eq!(state, [true, true, true, false, false]);
    }
}
