//! What all programs of google-research/bert check alike: whether the casing is that of one of
//! Google's own models, by the name of its folder.

use frazil::Error;

/// Google's models whose text is lowered.
const LOWERED: [&str; 4] = [
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
];
/// Those whose text is not.
const CASED: [&str; 3] =
    ["cased_L-12_H-768_A-12", "cased_L-24_H-1024_A-16", "multi_cased_L-12_H-768_A-12"];

/// Refuses a casing that contradicts the folder of `…/bert_model.ckpt`.
pub fn check_casing(do_lower_case: bool, init_checkpoint: Option<&str>) -> Result<(), Error> {
    let Some(checkpoint) = init_checkpoint else { return Ok(()) };
    let Some((folder, _)) = checkpoint.split_once("/bert_model.ckpt") else { return Ok(()) };
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let model = folder.rsplit(|c| !is_part(c)).next().unwrap_or_default();
    let (given, kind, other) = match do_lower_case {
        false if LOWERED.contains(&model) => ("False", "lowercased", "True"),
        true if CASED.contains(&model) => ("True", "cased", "False"),
        _ => return Ok(()),
    };
    Err(Error::Usage {
        what: format!(
            "You passed in `--do_lower_case={given}` with `--init_checkpoint={checkpoint}`. \
             However, `{model}` seems to be a {kind} model, so you should pass in \
             `--do_lower_case={other}` so that the fine-tuning matches how the model was \
             pre-training."
        ),
        hint: format!("give `--do_lower_case={other}`, or rename the folder"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_s_name_tells() {
        let check = |lower, path: &str| check_casing(lower, Some(path)).is_ok();
        assert!(check(true, "/m/uncased_L-12_H-768_A-12/bert_model.ckpt"));
        assert!(!check(false, "/m/uncased_L-12_H-768_A-12/bert_model.ckpt"));
        assert!(!check(true, "cased_L-24_H-1024_A-16/bert_model.ckpt"));
        assert!(check(false, "cased_L-24_H-1024_A-16/bert_model.ckpt"));
        assert!(check(false, "uncased_L-12_H-768_A-12/model.ckpt"));
        assert!(check(false, "bert_model.ckpt") && check_casing(true, None).is_ok());
        assert!(!check(true, "/m/x:cased_L-12_H-768_A-12/bert_model.ckpt"));
        let error = check_casing(true, Some("cased_L-12_H-768_A-12/bert_model.ckpt"));
        assert!(error.unwrap_err().to_string().contains("seems to be a cased model"));
    }
}
