//! Packed rows: padding left out of a batch, put back, and lookups without it. Plain and in order;
//! this is what faster ways are compared with.

use frazil_graph::op::PackRows;
use frazil_kernels::embed::{self, EmbedError, Embeddings};
use frazil_kernels::{Number, OutOfRange};
use frazil_tensor::{DType, Element, Tensor};

use super::call::{Block, Call, by_real, by_size};
use crate::Result;

/// Index `[t]` and bounds `[b+1]` of a mask `[b, s]`.
pub fn pack(call: &Call<'_>, op: PackRows) -> Result<Vec<Tensor>> {
    let mask = call.x();
    let &[b, s] = &**mask.shape() else {
        return Err(call.fail(format!("the mask is {}, [b, s] expected", mask.shape())));
    };
    if i32::try_from(mask.elements()).is_err() {
        return Err(call.fail(format!("a mask of {} is beyond all bounds", mask.shape())));
    }
    let mask = mask.to_f64().map_err(|source| call.tensor(source))?;
    let mut index: Vec<i32> = Vec::new();
    let mut bounds = vec![0i32];
    for i in 0..b {
        let sequence = &mask[i * s..][..s];
        let before = index.len();
        index.extend((0..s).filter(|&j| sequence[j] != 0.0).map(|j| (i * s + j) as i32));
        if index.len() == before {
            return Err(call.fail(format!("sequence {i} is empty: its mask has no 1")));
        }
        if op.first && sequence[0] == 0.0 {
            let what = "is masked at position 0, which an output is computed from";
            return Err(call.fail(format!("sequence {i} {what}")));
        }
        bounds.push(index.len() as i32);
    }
    let list = |values: Vec<i32>| {
        Tensor::from_vec([values.len()], values).map_err(|source| call.tensor(source))
    };
    Ok(vec![list(index)?, list(bounds)?])
}

/// Inputs: x `[t, ..]`, index `[t]`, mask `[b, s]`.
pub fn unpack(call: &Call<'_>) -> Result<Tensor> {
    fn place<T: Block>(call: &Call<'_>, index: &[usize], dims: &[usize]) -> Result<Tensor> {
        let x = call.blocks::<T>(0)?;
        let width: usize = dims[2..].iter().product();
        call.move_to(call.x().dtype(), dims, |out| {
            for (row, &at) in index.iter().enumerate() {
                out[at * width..][..width].clone_from_slice(&x[row * width..][..width]);
            }
            Ok(())
        })
    }
    let [x, index, mask] = [0, 1, 2].map(|i| call.inputs[i].shape());
    let clash = || call.fail(format!("x {x}, index {index} and mask {mask} do not go together"));
    let (&[t], &[b, s]) = (&**index, &**mask) else { return Err(clash()) };
    if x.first() != Some(&t) {
        return Err(clash());
    }
    let index = places(call, 1, b * s)?;
    let dims = [&[b, s], &x[1..]].concat();
    by_size!(call.x().dtype(), T => place::<T>(call, &index, &dims))
}

/// Inputs: as without packing, and then the index `[t]`. Output `[t, h]`.
pub fn embed(call: &Call<'_>) -> Result<Tensor> {
    let shapes = [0, 1, 2, 3, 4, 5].map(|i| call.inputs[i].shape());
    let [ids, segments, words, types, positions, index] = shapes;
    let (&[b, s], &[_, h], &[_, types_h], &[most, positions_h], &[t]) =
        (&**ids, &**words, &**types, &**positions, &**index)
    else {
        return Err(call.fail(format!(
            "ids {ids}, words {words}, types {types}, positions {positions} or index {index} \
             has a wrong rank"
        )));
    };
    if ids != segments || types_h != h || positions_h != h {
        return Err(call.fail(format!(
            "ids {ids} and segments {segments}, or words {words}, types {types} and positions \
             {positions} do not go together"
        )));
    }
    let index = places(call, 5, b * s)?;
    let furthest = index.iter().map(|at| at % s).max();
    if furthest.is_some_and(|at| at >= most) {
        return Err(call.fail(format!("a sequence of {s}, but the model has {most} positions")));
    }
    by_real!(call, call.inputs[2].dtype(), T => lookup::<T>(call, &index, [t, h], s))
}

fn lookup<T: Element + Number>(
    call: &Call<'_>,
    index: &[usize],
    dims: [usize; 2],
    s: usize,
) -> Result<Tensor> {
    let h = dims[1];
    let (words, types, positions) = (call.values(2)?, call.values(3)?, call.values::<T>(4)?);
    let (ids, segments) = (call.integers(0)?, call.integers(1)?);
    let mut checked = Ok(());
    let out = call.make(dims, |out| {
        for (row, &at) in index.iter().enumerate() {
            let positions = &positions[at % s * h..][..h];
            let tables =
                Embeddings { words: &words, positions, types: &types, hidden: h, sequence: 1 };
            let out = &mut out[row * h..][..h];
            if let Err(error) = embed::embed(&[ids[at]], &[segments[at]], &tables, out) {
                checked = Err((at, error));
                break;
            }
        }
    })?;
    match checked {
        Ok(()) => Ok(out),
        Err((at, EmbedError::Word(error))) => {
            Err(call.out_of_range("id", 0, OutOfRange { at, ..error }))
        }
        Err((at, EmbedError::Type(error))) => {
            Err(call.out_of_range("segment", 1, OutOfRange { at, ..error }))
        }
    }
}

/// Input `i` as places in a batch of `positions`.
pub fn places(call: &Call<'_>, i: usize, positions: usize) -> Result<Vec<usize>> {
    let limit = positions;
    let place = |(at, index): (usize, i64)| {
        usize::try_from(index)
            .ok()
            .filter(|&place| place < limit)
            .ok_or_else(|| call.out_of_range("place", i, OutOfRange { at, index, limit }))
    };
    call.integers(i)?.into_iter().enumerate().map(place).collect()
}

#[cfg(test)]
mod tests {
    use frazil_graph::Op;
    use frazil_graph::op::Attention;

    use super::*;
    use crate::ops::tests::{all, close, floats, message, one, tensor};

    fn packed(heads: usize) -> Op {
        Op::Attention(Attention {
            heads,
            scale: 0.5,
            mask_value: -10000.0,
            packed: true,
            steps: None,
        })
    }

    #[test]
    fn packs_what_is_no_padding() {
        let op = |first| Op::PackRows(PackRows { first });
        let mask = tensor([2, 3], [1i64, 0, 7, 0, 1, 0]);
        let out = all(op(false), std::slice::from_ref(&mask)).unwrap();
        assert_eq!(*out[0].values::<i32>().unwrap(), [0, 2, 4]);
        assert_eq!(*out[1].values::<i32>().unwrap(), [0, 2, 3]);
        let wrong = message(op(true), &[mask]);
        assert!(wrong.contains("sequence 1 is masked at position 0"), "{wrong}");
        let hollow = floats([2, 2], [1.0, 0.0, 0.0, 0.0]);
        let wrong = message(op(false), &[hollow]);
        assert_eq!(wrong, "`node` (PackRows): sequence 1 is empty: its mask has no 1");
        let none = all(op(true), &[tensor::<i32>([0, 4], [])]).unwrap();
        assert_eq!(*none[1].values::<i32>().unwrap(), [0]);
    }

    #[test]
    fn unpacks_to_the_same_places() {
        let mask = tensor([2, 2], [1, 0, 0, 1]);
        let x = floats([2, 2], [1.0, 2.0, 3.0, 4.0]);
        let out = one(Op::UnpackRows, &[x.clone(), tensor([2], [0, 3]), mask.clone()]);
        close(&out, [2, 2, 2], &[1.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 4.0]);
        let flat = one(Op::UnpackRows, &[tensor([1], [9]), tensor([1], [2]), mask.clone()]);
        assert_eq!(*flat.values::<i32>().unwrap(), [0, 0, 9, 0]);
        let wrong = message(Op::UnpackRows, &[x, tensor([2], [0, 4]), mask]);
        assert!(wrong.contains("place 4 (element 1 of `in1`) is not in 0..4"), "{wrong}");
    }

    #[test]
    fn embeds_the_rows_that_are_there() {
        let (words, types) = (floats([2, 1], [1.0, 2.0]), floats([1, 1], [10.0]));
        let positions = floats([2, 1], [100.0, 200.0]);
        let embed = |ids: Tensor, index: Tensor| {
            let segments = tensor([2, 2], [0i64; 4]);
            let tables = [words.clone(), types.clone(), positions.clone()];
            let [words, types, positions] = tables;
            all(Op::Embed, &[ids, segments, words, types, positions, index])
        };
        // What stands in the place of padding is not looked at.
        let ids = tensor([2, 2], [1, 99, 0, 1]);
        let out = embed(ids.clone(), tensor([3], [0, 2, 3])).unwrap().remove(0);
        close(&out, [3, 1], &[112.0, 111.0, 212.0]);
        let wrong = embed(ids.clone(), tensor([2], [0, 1])).unwrap_err().to_string();
        assert_eq!(wrong, "`node` (Embed): id 99 (element 1 of `in0`) is not in 0..2");
        assert!(embed(ids, tensor([1], [-1])).is_err());
    }

    /// Each sequence by itself is what the masked form computes of it.
    #[test]
    fn attends_within_sequences() {
        let numbers = |rows: usize, step: f32| -> Vec<f32> {
            (0..rows * 4).map(|i| (i as f32 * step).sin()).collect()
        };
        let tables = [0.3f32, 0.7, 1.9].map(|step| numbers(5, step));
        let rows = |from: usize, to: usize| -> Vec<Tensor> {
            let part = |table: &Vec<f32>| {
                Tensor::from_vec([to - from, 4], table[from * 4..to * 4].to_vec()).unwrap()
            };
            tables.iter().map(part).collect()
        };
        let ends = tensor([3], [0, 2, 5]);
        let together = one(packed(2), &[rows(0, 5), vec![ends.clone(), ends.clone()]].concat());
        let whole = Op::Attention(Attention {
            heads: 2,
            scale: 0.5,
            mask_value: -10000.0,
            packed: false,
            steps: None,
        });
        for (from, to) in [(0, 2), (2, 5)] {
            let mask = Tensor::from_vec([1, to - from], vec![1f32; to - from]).unwrap();
            let alone = one(whole.clone(), &[rows(from, to), vec![mask]].concat());
            let expected = alone.values::<f32>().unwrap().into_owned();
            let part = &together.values::<f32>().unwrap()[from * 4..to * 4];
            assert_eq!(*part, *expected);
        }
        // One query of each sequence: its row of the whole result.
        let q = tables[0].chunks(4).enumerate().filter(|(i, _)| [0, 2].contains(i));
        let q = Tensor::from_vec([2, 4], q.flat_map(|(_, row)| row.to_vec()).collect()).unwrap();
        let mut operands = rows(0, 5);
        operands[0] = q;
        let first =
            one(packed(2), &[operands, vec![tensor([3], [0, 1, 2]), ends.clone()]].concat());
        let all = together.values::<f32>().unwrap();
        close(&first, [2, 4], &[&all[..4], &all[8..12]].concat());
        for wrong in [[0, 2, 4], [1, 2, 5], [0, 6, 5]] {
            let operands = [rows(0, 5), vec![tensor([3], wrong), ends.clone()]].concat();
            let wrong = message(packed(2), &operands);
            assert!(wrong.contains("`in3` does not part 5 rows into sequences"), "{wrong}");
        }
    }
}
