//! Which input and output of one model is which of the other.

use frazil_graph::{Graph, Port, Value};
use serde::Serialize;

use crate::ops::role::{InputRole, Role};
use crate::{Error, Result};

/// The same thing under two names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// In the first model.
    pub a: String,
    /// In the second one.
    pub b: String,
}

fn bare(name: &str) -> &str {
    name.strip_suffix(":0").unwrap_or(name)
}

/// The inputs of both sides: by name, then by role, then what is left in its order. An input that
/// only one side has is fed to that side alone.
pub fn inputs(roles: &[Vec<InputRole>; 2], notes: &mut Vec<String>) -> Result<Vec<Pair>> {
    let [a, b] = roles;
    let mut pairs: Vec<Pair> = Vec::new();
    let mut taken = vec![false; b.len()];
    let mut left = Vec::new();
    for input in a {
        let same = b.iter().position(|other| bare(&other.name) == bare(&input.name));
        match same {
            Some(at) => {
                taken[at] = true;
                pairs.push(Pair { a: input.name.clone(), b: b[at].name.clone() });
            }
            None => left.push(input),
        }
    }
    for input in left {
        let like = |other: &InputRole| match input.role {
            Role::Other | Role::Positions => other.role == input.role && other.dtype == input.dtype,
            role => other.role == role,
        };
        let Some(at) = (0..b.len()).find(|&at| !taken[at] && like(&b[at])) else {
            notes.push(format!("only A has an input `{}`", input.name));
            continue;
        };
        taken[at] = true;
        let pair = Pair { a: input.name.clone(), b: b[at].name.clone() };
        let role = match input.role {
            Role::Ids => "the ids",
            Role::Mask => "the mask",
            Role::Segments => "the segments",
            Role::Positions => "positions",
            Role::Other => "an input that is left",
        };
        notes.push(format!("`{}` of A is `{}` of B: {role}", pair.a, pair.b));
        pairs.push(pair);
    }
    for (input, _) in b.iter().zip(&taken).filter(|(_, taken)| !**taken) {
        notes.push(format!("only B has an input `{}`", input.name));
    }
    Ok(pairs)
}

/// The outputs of both sides: by name, or in their order if there are as many.
pub fn outputs(graphs: [&Graph; 2], notes: &mut Vec<String>) -> Result<Vec<(Pair, [Value; 2])>> {
    let [a, b] = graphs.map(|graph| graph.outputs.as_slice());
    let pair =
        |a: &Port, b: &Port| (Pair { a: a.name.clone(), b: b.name.clone() }, [a.value, b.value]);
    let named: Vec<_> = a
        .iter()
        .filter_map(|own| {
            let other = b.iter().find(|other| bare(&other.name) == bare(&own.name))?;
            Some(pair(own, other))
        })
        .collect();
    if named.len() == a.len() && named.len() == b.len() {
        return Ok(named);
    }
    if a.len() == b.len() {
        let pairs: Vec<_> = a.iter().zip(b).map(|(a, b)| pair(a, b)).collect();
        for (pair, _) in pairs.iter().filter(|(pair, _)| bare(&pair.a) != bare(&pair.b)) {
            let Pair { a, b } = pair;
            notes.push(format!("output `{a}` of A is compared with `{b}` of B, by their order"));
        }
        return Ok(pairs);
    }
    let list = |ports: &[Port]| {
        let names: Vec<String> = ports.iter().map(|port| format!("`{}`", port.name)).collect();
        names.join(", ")
    };
    if named.is_empty() {
        return Err(Error::Usage {
            what: format!("A's outputs are {}, B's are {}", list(a), list(b)),
            hint: "name the outputs to compare with `--output`".into(),
        });
    }
    let missing = |ports: &[Port], side: fn(&Pair) -> &String| -> Vec<Port> {
        ports.iter().filter(|p| !named.iter().any(|(n, _)| *side(n) == p.name)).cloned().collect()
    };
    for (letter, left) in [("A", missing(a, |n| &n.a)), ("B", missing(b, |n| &n.b))] {
        if !left.is_empty() {
            notes.push(format!("only {letter} has {}", list(&left)));
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use frazil_graph::Dim;
    use frazil_tensor::DType;

    use super::*;

    fn input(name: &str, role: Role) -> InputRole {
        let dims = Some(vec![Dim::batch(), Dim::seq()]);
        InputRole { name: name.into(), dtype: DType::I32, dims, role, limit: None }
    }

    #[test]
    fn by_name_then_by_role() {
        let a = vec![
            input("input_mask", Role::Mask),
            input("Placeholder", Role::Ids),
            input("extra", Role::Other),
        ];
        let b = vec![input("input_ids", Role::Ids), input("input_mask:0", Role::Mask)];
        let mut notes = Vec::new();
        let pairs = inputs(&[a, b], &mut notes).unwrap();
        let expected = [("input_mask", "input_mask:0"), ("Placeholder", "input_ids")];
        assert_eq!(pairs, expected.map(|(a, b)| Pair { a: a.into(), b: b.into() }));
        assert_eq!(
            notes,
            ["`Placeholder` of A is `input_ids` of B: the ids", "only A has an input `extra`"]
        );
    }
}
