//! What a model has room for: samples that go beyond it are told where they are read, since only there
//! is it known which file they are from.

use super::Sample;
use crate::features::Target;
use crate::{BertConfig, Error, Result};

/// Each a number that the model stays below, or reaches for `positions`; what is not given is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Pieces that it knows.
    pub vocabulary: Option<usize>,
    /// Pieces of a sequence.
    pub positions: Option<usize>,
    /// Classes of a classifier.
    pub labels: Option<usize>,
}

impl Limits {
    /// Those of a model.
    pub fn of(config: &BertConfig, labels: usize) -> Self {
        Self {
            vocabulary: Some(config.vocab_size),
            positions: Some(config.max_position_embeddings),
            labels: Some(labels),
        }
    }

    /// Refuses a sample that the model cannot learn from.
    pub fn check(&self, sample: &Sample) -> Result<()> {
        let beyond = |what, found: i64, limit: Option<usize>| {
            let limit = limit.filter(|limit| !usize::try_from(found).is_ok_and(|at| at < *limit));
            limit.map_or(Ok(()), |limit| Err(Error::BeyondModel { what, found, limit }))
        };
        let (found, positions) = (sample.len(), self.positions);
        if let Some(positions) = positions.filter(|positions| found > *positions) {
            return Err(Error::BeyondPositions { found, positions });
        }
        for id in sample.features().ids() {
            beyond("input_ids", i64::from(*id), self.vocabulary)?;
        }
        for masked in sample.masked() {
            beyond("masked_lm_ids", i64::from(masked.id), self.vocabulary)?;
        }
        match sample {
            Sample::Classifier(sample) => match sample.target {
                Target::Class(class) => beyond("label_ids", i64::from(class), self.labels),
                Target::Score(_) => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{classifier, pretraining};
    use super::*;

    #[test]
    fn what_the_model_has_no_room_for_is_refused() {
        let said = |limits: Limits, sample: &Sample| limits.check(sample).unwrap_err().to_string();
        let all = Limits { vocabulary: Some(500), positions: Some(9), labels: Some(2) };
        let sample = pretraining(9, 1);
        let none = Limits::default();
        for limits in [none, all] {
            limits.check(&sample).unwrap();
            limits.check(&classifier(Target::Class(1))).unwrap();
        }
        none.check(&classifier(Target::Class(7))).unwrap();
        for (limits, expected) in [
            (Limits { positions: Some(8), ..none }, "has 9 pieces, and the model 8 positions"),
            (
                Limits { vocabulary: Some(15), ..none },
                "`input_ids` has 15, and the model knows 0 to 14",
            ),
            (Limits { vocabulary: Some(100), ..none }, "`masked_lm_ids` has 102"),
        ] {
            let said = said(limits, &sample);
            assert!(said.contains(expected), "{said}");
        }
        let said = |class| said(all, &classifier(Target::Class(class)));
        assert!(said(2).contains("`label_ids` has 2, and the model knows 0 to 1"), "{}", said(2));
        assert!(said(-1).contains("`label_ids` has -1"), "{}", said(-1));
    }
}
