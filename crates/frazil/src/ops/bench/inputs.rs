//! What is fed to a model that is measured: made-up sequences of wanted lengths.

use frazil_runtime::Inputs;
use frazil_tensor::{DType, Tensor};

use crate::ops::role::{InputRole, Role};
use crate::{Error, Result};

/// Ids, mask and segments for sequences of these lengths, padded to the longest.
pub fn batch(roles: &[InputRole], lengths: &[usize]) -> Result<Inputs> {
    let longest = lengths.iter().copied().max().unwrap_or(0);
    let shape = [lengths.len(), longest];
    let mut inputs = Inputs::new();
    for input in roles {
        let limit = input.limit.unwrap_or(2).max(1) as i64;
        let real = |row: usize, column: usize| column < lengths[row];
        let value = |row: usize, column: usize| match input.role {
            // Anything in the vocabulary: how it is chosen does not matter.
            Role::Ids => (row * 7919 + column * 104_729 + 1) as i64 % limit,
            Role::Mask => i64::from(real(row, column)),
            Role::Segments => i64::from(2 * column >= lengths[row]) % limit,
            Role::Positions => column as i64,
            Role::Other => 0,
        };
        let padding = |row, column| real(row, column) || input.role == Role::Positions;
        let values: Vec<i64> = (0..shape[0])
            .flat_map(|row| (0..shape[1]).map(move |column| (row, column)))
            .map(|(row, column)| if padding(row, column) { value(row, column) } else { 0 })
            .collect();
        let known = |dim: &frazil_graph::Dim| dim.as_known().is_some();
        let fits = input.dims.as_ref().is_none_or(|dims| {
            dims.len() == 2
                && dims.iter().zip(shape).all(|(dim, extent)| !known(dim) || dim.is(extent as i64))
        });
        if input.role == Role::Other || !fits {
            return Err(Error::Usage {
                what: format!("input `{}` does not take {} x {longest}", input.name, lengths.len()),
                hint: "make the batch and the length dynamic with `frazil reshape`, or give the \
                       model's own with `--batch` and `--seq`; a model that predicts words needs \
                       `--head encoder`"
                    .into(),
            });
        }
        let tensor = Tensor::from_vec(shape, values)?;
        let tensor = match input.dtype {
            DType::I64 => tensor,
            DType::I32 => {
                let narrow = tensor.values::<i64>()?.iter().map(|&x| x as i32).collect();
                Tensor::from_vec(shape, narrow)?
            }
            other => tensor.cast(other)?,
        };
        inputs.insert(input.name.clone(), tensor);
    }
    Ok(inputs)
}
