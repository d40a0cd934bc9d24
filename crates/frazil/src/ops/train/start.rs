//! The weights that a training begins with, as its model wants them: a vocabulary of another size is
//! cut or filled up, positions are cut, and what another optimizer remembered has the names of ours.

use std::path::Path;

use frazil_bert::names::popart::moment_kinds;
use frazil_tensor::{Shape, StoreError, Tensor, TensorInfo, TensorStore};

use crate::{Error, Result as Checked};

/// What has a row for each piece of the vocabulary.
const BY_PIECE: [&str; 2] = ["bert/embeddings/word_embeddings", "cls/predictions/output_bias"];

/// What has a row for each position.
const BY_POSITION: &str = "bert/embeddings/position_embeddings";

/// The names of ours.
const SLOTS: [&str; 2] = ["adam_m", "adam_v"];

/// See the module.
pub(super) struct Start<'w> {
    weights: &'w dyn TensorStore,
    /// What there is, and under which name the checkpoint has it.
    infos: Vec<TensorInfo>,
    names: Vec<String>,
}

/// What a model has rows for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) pieces: usize,
    pub(super) positions: usize,
}

impl Sizes {
    /// Rows of a table, if it may have others.
    fn rows_of(self, name: &str) -> Option<usize> {
        let of = name.rsplit_once('/').filter(|(_, kind)| SLOTS.contains(kind));
        match of.map_or(name, |(of, _)| of) {
            BY_POSITION => Some(self.positions),
            name => BY_PIECE.contains(&name).then_some(self.pieces),
        }
    }
}

/// Refuses a checkpoint that has fewer positions than are wanted: nobody can tell what the others would be.
pub(super) fn check(weights: &dyn TensorStore, path: &Path, sizes: Sizes) -> Checked<()> {
    let there = weights.info(BY_POSITION).and_then(|info| info.shape.first().copied());
    let Some(there) = there.filter(|there| *there < sizes.positions) else { return Ok(()) };
    Err(Error::Usage {
        what: format!(
            "`{}` knows {there} positions, and {} are wanted",
            path.display(),
            sizes.positions
        ),
        hint: format!("give `--max-positional-length {there}` at most"),
    })
}

impl<'w> Start<'w> {
    /// Of a checkpoint, for a model of these sizes, if they may differ.
    pub(super) fn new(weights: &'w dyn TensorStore, sizes: Option<Sizes>) -> Self {
        let moments = moment_kinds(weights.infos());
        let ours = |name: &str| {
            let (of, kind) = name.rsplit_once('/')?;
            let (first, second) = moments?;
            let at = [first, second].iter().position(|theirs| *theirs == kind)?;
            Some(format!("{of}/{}", SLOTS[at]))
        };
        let mut all: Vec<(TensorInfo, String)> = weights
            .infos()
            .iter()
            .map(|info| {
                let name = ours(&info.name).unwrap_or_else(|| info.name.clone());
                let rows = sizes.and_then(|sizes| sizes.rows_of(&name));
                let shape = resized(&info.shape, rows);
                (TensorInfo { name, dtype: info.dtype, shape }, info.name.clone())
            })
            .collect();
        all.sort_by(|a, b| a.0.name.cmp(&b.0.name));
        let (infos, names) = all.into_iter().unzip();
        Self { weights, infos, names }
    }
}

/// With so many rows.
fn resized(shape: &Shape, rows: Option<usize>) -> Shape {
    let mut dims = shape.to_vec();
    if let (Some(rows), Some(first)) = (rows, dims.first_mut()) {
        *first = rows;
    }
    Shape::from(dims)
}

impl TensorStore for Start<'_> {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let at = self.infos.binary_search_by(|info| info.name.as_str().cmp(name));
        let at = at.map_err(|_| format!("there is no `{name}`"))?;
        let tensor = self.weights.tensor(&self.names[at])?;
        let wanted = &self.infos[at].shape;
        if tensor.shape() == wanted {
            return Ok(tensor);
        }
        // New rows are 0: no text has their pieces.
        let mut values = tensor.values::<f32>()?.into_owned();
        values.resize(wanted.elements().unwrap_or(0), 0.0);
        tensor.release();
        Ok(Tensor::from_vec(wanted.clone(), values)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two(Vec<TensorInfo>);

    impl TensorStore for Two {
        fn infos(&self) -> &[TensorInfo] {
            &self.0
        }

        fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
            let info = self.info(name).ok_or("no such tensor")?;
            let values = (0..info.shape.elements().unwrap()).map(|i| i as f32).collect();
            Ok(Tensor::from_vec(info.shape.clone(), values)?)
        }
    }

    fn store() -> Two {
        let info = |name: &str, shape: Vec<usize>| TensorInfo {
            name: name.to_owned(),
            dtype: frazil_tensor::DType::F32,
            shape: shape.into(),
        };
        Two(vec![
            info("bert/embeddings/word_embeddings", vec![3, 2]),
            info("bert/embeddings/word_embeddings/LAMB", vec![3, 2]),
            info("bert/embeddings/word_embeddings/LAMB_1", vec![3, 2]),
            info("w", vec![2]),
        ])
    }

    #[test]
    fn vocabularies_are_cut_and_filled_up() {
        let store = store();
        let name = "bert/embeddings/word_embeddings";
        let values = |rows: usize, name: &str| {
            let start = Start::new(&store, Some(Sizes { pieces: rows, positions: 2 }));
            assert_eq!(start.info(name).unwrap().shape.to_vec(), [rows, 2]);
            start.tensor(name).unwrap().values::<f32>().unwrap().into_owned()
        };
        assert_eq!(values(2, name), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(values(4, name), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 0.0]);
        assert_eq!(values(1, &format!("{name}/adam_v")), [0.0, 1.0]);
        let same = Start::new(&store, None);
        assert_eq!(same.tensor(name).unwrap().shape().to_vec(), [3, 2]);
        assert_eq!(same.tensor("w").unwrap().shape().to_vec(), [2]);
    }
}
