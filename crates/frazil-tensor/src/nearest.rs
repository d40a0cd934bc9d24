//! Which known names a mistyped one may have meant.

/// Longer names and longer lists are not worth the time of an error message.
const LONGEST_NAME: usize = 512;
const MOST_NAMES: usize = 20_000;

/// Up to three of `names` that look like `wanted`, the likeliest first.
///
/// A name that contains `wanted`, or the other way round, is likely (people leave out or add a
/// scope); otherwise few letters may differ.
pub fn nearest<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    if wanted.is_empty() || wanted.len() > LONGEST_NAME {
        return Vec::new();
    }
    let folded = wanted.to_lowercase();
    let mut near: Vec<(usize, &str)> = names
        .into_iter()
        .take(MOST_NAMES)
        .filter(|name| !name.is_empty() && name.len() <= LONGEST_NAME)
        .filter_map(|name| distance(&folded, &name.to_lowercase()).map(|d| (d, name)))
        .collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}

/// How far apart two names are; `None` for strangers.
fn distance(wanted: &str, name: &str) -> Option<usize> {
    let limit = (wanted.len() / 3).max(2);
    let letters = edits(wanted.as_bytes(), name.as_bytes());
    let contained = name.contains(wanted) || wanted.contains(name) && name.len() > 3;
    match (contained, letters <= limit) {
        // Just behind the names that differ by a letter.
        (true, _) => Some(letters.min(2)),
        (false, true) => Some(letters),
        (false, false) => None,
    }
}

/// Levenshtein's distance.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 5] = [
        "bert/embeddings/LayerNorm/beta",
        "bert/embeddings/LayerNorm/gamma",
        "bert/embeddings/word_embeddings",
        "bert/pooler/dense/kernel",
        "global_step",
    ];

    #[test]
    fn typos_and_missing_scopes() {
        assert_eq!(nearest("bert/embeddings/layernorm/beta", NAMES)[0], NAMES[0]);
        assert_eq!(nearest("bert/embedings/word_embedding", NAMES)[0], NAMES[2]);
        assert_eq!(nearest("word_embeddings", NAMES), [NAMES[2]]);
        assert_eq!(nearest("module/global_step", NAMES), ["global_step"]);
        assert_eq!(nearest("globalstep", NAMES), ["global_step"]);
    }

    #[test]
    fn strangers_stay_out() {
        assert!(nearest("qqqqqq", NAMES).is_empty());
        assert!(nearest("", NAMES).is_empty());
        assert!(nearest(&"x".repeat(10_000), NAMES).is_empty());
    }
}
