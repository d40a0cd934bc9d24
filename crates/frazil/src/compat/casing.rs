//! The check of google-research/bert's programs that `--do_lower_case` fits the checkpoint, by the
//! name of the folder that Google ships it in.

use frazil::Error;

const LOWERED: [&str; 4] = [
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
];
const CASED: [&str; 3] =
    ["cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16", "multi_cased_L-12_H-768_A-12"];

/// Refuses a checkpoint of Google's that was trained on the other case. Others pass.
pub fn check(lower: bool, checkpoint: Option<&str>) -> Result<(), Error> {
    let Some((folder, _)) = checkpoint.and_then(|path| path.split_once("/bert_model.ckpt")) else {
        return Ok(());
    };
    let name = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let model = folder.rsplit(name).next().unwrap_or_default();
    let (is, given, wanted) = match lower {
        true if CASED.contains(&model) => ("cased", "True", "False"),
        false if LOWERED.contains(&model) => ("lowercased", "False", "True"),
        _ => return Ok(()),
    };
    Err(Error::Usage {
        what: format!("`--do_lower_case={given}` does not fit `{model}`, which is a {is} model"),
        hint: format!("give `--do_lower_case={wanted}`"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_googles_names_tell() {
        let uncased = "/models/uncased_L-12_H-768_A-12/bert_model.ckpt";
        assert!(check(true, Some(uncased)).is_ok());
        assert!(check(false, Some(uncased)).is_err());
        assert!(check(true, Some("multi_cased_L-12_H-768_A-12/bert_model.ckpt")).is_err());
        for other in [None, Some("my_cased_model/bert_model.ckpt"), Some("model.ckpt-27")] {
            assert!(check(true, other).is_ok() && check(false, other).is_ok());
        }
    }
}
