//! Which peer runs when, and what that takes on the disk.
//!
//! A round is everything small, or with `--full` one published model. `goldens` begins every round
//! in which graphs run, and its files are there to the round's end.

use super::python::Requirements;
use super::{GOLDENS, Model, PEERS, Peer, WEIGHTS, graphs};

/// One peer in one round.
pub struct Step {
    pub(super) peer: &'static Peer,
    /// The one model of this round; without it, everything small.
    pub(super) model: Option<&'static Model>,
    /// Nothing follows in its round.
    pub last_of_round: bool,
    /// Nothing that follows needs its environment.
    pub last_of_environment: bool,
}

/// The peers of these names, or all, and `goldens` where one of them needs it; in a round for each
/// model of `only`, if there are any.
pub fn steps(names: &[&str], full: bool, only: &[&'static Model]) -> Vec<Step> {
    let named = |peer: &Peer| match names {
        [] => full || !peer.optional,
        names => names.contains(&peer.name),
    };
    let any_graphs = PEERS.iter().any(|peer| named(peer) && peer.graphs);
    let models = graphs::MODELS.iter().filter(|_| full && any_graphs).map(Some);
    let rounds: Vec<Option<&Model>> = match only {
        [] => std::iter::once(None).chain(models).collect(),
        only => only.iter().copied().map(Some).collect(),
    };
    let mut steps: Vec<Step> = Vec::new();
    for model in rounds {
        for peer in &PEERS {
            let wanted = named(peer) || any_graphs && peer.name == GOLDENS;
            if wanted && (model.is_none() || peer.graphs) {
                steps.push(Step { peer, model, last_of_round: false, last_of_environment: false });
            }
        }
        if let Some(step) = steps.last_mut() {
            step.last_of_round = true;
        }
    }
    let mut seen = Vec::new();
    for step in steps.iter_mut().rev() {
        let name = step.peer.requirements.name;
        step.last_of_environment = !seen.contains(&name);
        seen.push(name);
    }
    steps
}

/// The most megabytes that the steps add to the disk at any time. `made` says which environments
/// are there; with `clean`, each goes after its last step.
pub fn peak(steps: &[Step], made: impl Fn(Requirements) -> bool, clean: bool) -> u64 {
    let mut environments: Vec<Requirements> = Vec::new();
    let (mut peak, mut goldens) = (0, 0);
    for step in steps {
        let requirements = step.peer.requirements;
        let there = environments.iter().any(|made| made.name == requirements.name);
        let mut installing = 0;
        if !there && !made(requirements) {
            environments.push(requirements);
            installing = requirements.packages;
        }
        let files = if step.model.is_some() { WEIGHTS } else { step.peer.megabytes };
        let standing = environments.iter().map(|e| e.megabytes).sum::<u64>();
        if step.peer.name == GOLDENS {
            goldens = 0; // those of the round before are gone
        }
        peak = peak.max(standing + goldens + files.max(installing));
        if step.peer.name == GOLDENS {
            goldens = files;
        }
        if clean && step.last_of_environment {
            environments.retain(|made| made.name != requirements.name);
        }
    }
    peak
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.peer.name).collect()
    }

    #[test]
    fn goldens_come_first_and_pytorch_only_when_wanted() {
        assert_eq!(names(&steps(&["openvino"], false, &[])), [GOLDENS, "openvino"]);
        assert_eq!(names(&steps(&["formats"], true, &[])), ["formats"]);
        assert_eq!(names(&steps(&["pytorch"], false, &[])), [GOLDENS, "pytorch"]);
        assert!(!names(&steps(&[], false, &[])).contains(&"pytorch"));
        let full = steps(&[], true, &[]);
        let count = |name| names(&full).iter().filter(|&&n| n == name).count();
        assert_eq!((count("formats"), count(GOLDENS), count("pytorch")), (1, 8, 8));
        let one = steps(&["openvino"], true, &[&graphs::MODELS[1]]);
        assert_eq!(names(&one), [GOLDENS, "openvino"]);
        assert!(one.iter().all(|step| step.model.is_some_and(|m| m.name.starts_with("uncased"))));
    }

    #[test]
    fn the_end_of_a_round_and_of_an_environment_is_marked_once() {
        let steps = steps(&[], false, &[]);
        let rounds: Vec<&str> =
            steps.iter().filter(|s| s.last_of_round).map(|s| s.peer.name).collect();
        let environments: Vec<&str> =
            steps.iter().filter(|s| s.last_of_environment).map(|s| s.peer.name).collect();
        assert_eq!(rounds, ["int8"]);
        assert_eq!(environments, ["tokenizers", "finetuned", "int8"]);
    }

    #[test]
    fn what_guards_main_fits_three_gigabytes() {
        let steps = steps(&[], false, &[]);
        let (kept, cleaned) = (peak(&steps, |_| false, false), peak(&steps, |_| false, true));
        assert!(cleaned <= 3000, "{cleaned} MB");
        assert!(cleaned < kept, "{cleaned} of {kept} MB");
        assert!(peak(&steps, |_| true, false) < cleaned - 1000);
    }
}
