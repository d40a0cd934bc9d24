//! Inputs that look like those of real texts: ids of the vocabulary, lengths that differ, padding
//! that is masked, two segments. The same seed makes the same inputs.

use std::collections::BTreeMap;

use frazil_graph::{Dim, Symbol};
use frazil_runtime::Inputs;
use frazil_tensor::{DType, Shape, Tensor};

use super::{Options, Pair};
use crate::ops::role::{InputRole, Role};
use crate::{Error, Result};

/// Examples at a time and their length, where nothing says.
const BATCH: usize = 4;
const SEQ: usize = 32;
/// An extent that nothing is known about.
const UNKNOWN: usize = 4;
/// Ids where no table tells how many there are.
const VOCABULARY: usize = 100;

/// Batches for both sides.
pub fn generate(
    roles: &[Vec<InputRole>; 2],
    pairs: &[Pair],
    options: &Options,
    notes: &mut Vec<String>,
) -> Result<Vec<[Inputs; 2]>> {
    let sizes = Sizes::unify(roles, pairs, options)?;
    let examples = sizes.batch(roles);
    let count = options.samples.div_ceil(examples.max(1)).max(1);
    let mut random = Random(options.seed);
    let mut batches = Vec::with_capacity(count);
    for _ in 0..count {
        let mut texts = Texts::default();
        let mut fed = [Inputs::new(), Inputs::new()];
        for (side, inputs) in roles.iter().enumerate() {
            for input in inputs {
                let twin = match side {
                    0 => None,
                    _ => pairs.iter().find(|pair| pair.b == input.name).map(|pair| &pair.a),
                };
                let twin = twin.and_then(|name| fed[0].get(name).cloned());
                let tensor = match twin {
                    Some(tensor) => as_type(&tensor, input.dtype)?,
                    None => {
                        let dims = sizes.dims(side, input)?;
                        let limit = limit(roles, pairs, side, input);
                        make(input, limit, &dims, &mut texts, &mut random)?
                    }
                };
                fed[side].insert(input.name.clone(), tensor);
            }
        }
        batches.push(fed);
    }
    if count * examples != options.samples {
        notes.push(format!("{} examples, in {count} batches of {examples}", count * examples));
    }
    Ok(batches)
}

/// The smaller one of both sides' limits.
fn limit(
    roles: &[Vec<InputRole>; 2],
    pairs: &[Pair],
    side: usize,
    input: &InputRole,
) -> Option<usize> {
    let pair = pairs.iter().find(|pair| side == 0 && pair.a == input.name);
    let twin = pair.and_then(|pair| roles[1].iter().find(|other| other.name == pair.b));
    [input.limit, twin.and_then(|twin| twin.limit)].into_iter().flatten().min()
}

/// What the symbols of each side stand for, such that both sides get the same.
struct Sizes {
    known: [BTreeMap<Symbol, i64>; 2],
}

impl Sizes {
    fn unify(roles: &[Vec<InputRole>; 2], pairs: &[Pair], options: &Options) -> Result<Self> {
        let mut sizes = Self { known: Default::default() };
        let dims = |side: usize, name: &str| -> Option<&Vec<Dim>> {
            roles[side].iter().find(|input| input.name == name)?.dims.as_ref()
        };
        let paired: Vec<(&Pair, &Vec<Dim>, &Vec<Dim>)> = pairs
            .iter()
            .filter_map(|pair| Some((pair, dims(0, &pair.a)?, dims(1, &pair.b)?)))
            .collect();
        for (pair, a, b) in &paired {
            if a.len() != b.len() {
                return Err(clash(pair, a, b));
            }
            for (x, y) in a.iter().zip(b.iter()) {
                match (x.as_known(), y.as_known()) {
                    (Some(x), Some(y)) if x != y => return Err(clash(pair, a, b)),
                    (Some(x), None) => sizes.set(1, y, x).map_err(|()| clash(pair, a, b))?,
                    (None, Some(y)) => sizes.set(0, x, y).map_err(|()| clash(pair, a, b))?,
                    _ => {}
                }
            }
        }
        // What both leave open: as asked for, the same for both.
        for (pair, a, b) in &paired {
            for (x, y) in a.iter().zip(b.iter()) {
                let (Some(p), Some(q)) = (x.as_symbol(), y.as_symbol()) else { continue };
                let size = match (sizes.known[0].get(p), sizes.known[1].get(q)) {
                    (Some(&size), _) | (None, Some(&size)) => size,
                    (None, None) => wanted(p, options),
                };
                sizes.set(0, x, size).map_err(|()| clash(pair, a, b))?;
                sizes.set(1, y, size).map_err(|()| clash(pair, a, b))?;
            }
        }
        // What only one side has.
        for (side, inputs) in roles.iter().enumerate() {
            for symbol in inputs.iter().flat_map(|input| input.dims.iter().flatten()) {
                for symbol in symbol.symbols() {
                    let size = wanted(&symbol, options);
                    sizes.known[side].entry(symbol).or_insert(size);
                }
            }
        }
        sizes.check(roles, options)?;
        Ok(sizes)
    }

    fn set(&mut self, side: usize, dim: &Dim, size: i64) -> std::result::Result<(), ()> {
        let Some(symbol) = dim.as_symbol() else { return Ok(()) };
        let set = self.known[side].entry(symbol.clone()).or_insert(size);
        if *set == size { Ok(()) } else { Err(()) }
    }

    /// A size that was asked for and that a model does not leave open is an error.
    fn check(&self, roles: &[Vec<InputRole>; 2], options: &Options) -> Result<()> {
        let asked = [("--batch", 0, options.batch), ("--seq", 1, options.seq)];
        for (flag, axis, asked) in asked {
            let Some(asked) = asked else { continue };
            for (side, letter) in ["A", "B"].iter().enumerate() {
                let ids = roles[side].iter().find(|input| input.role == Role::Ids);
                let Some(ids) = ids.or(roles[side].first()) else { continue };
                let found = self.dims(side, ids)?.get(axis).copied();
                if found.is_some_and(|found| found != asked) {
                    return Err(Error::Usage {
                        what: format!(
                            "`{flag} {asked}` contradicts {letter}, whose `{}` is {}",
                            ids.name,
                            frazil_graph::dim::show(ids.dims.as_deref().unwrap_or(&[]))
                        ),
                        hint: format!(
                            "leave `{flag}` out, or make it dynamic with `frazil reshape`"
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    fn dims(&self, side: usize, input: &InputRole) -> Result<Vec<usize>> {
        let unknown = || Error::Usage {
            what: format!("the extents of input `{}` are not known", input.name),
            hint: "give inputs with `--inputs FILE.npz`".into(),
        };
        let dims = input.dims.as_ref().ok_or_else(unknown)?;
        let extent = |dim: &Dim| {
            dim.at(&self.known[side])
                .and_then(|size| usize::try_from(size).ok())
                .ok_or_else(unknown)
        };
        dims.iter().map(extent).collect()
    }

    fn batch(&self, roles: &[Vec<InputRole>; 2]) -> usize {
        let first = |inputs: &Vec<InputRole>| {
            inputs.iter().find_map(|input| self.dims(0, input).ok()?.first().copied())
        };
        first(&roles[0]).unwrap_or(1)
    }
}

fn wanted(symbol: &Symbol, options: &Options) -> i64 {
    let size = if *symbol == Symbol::batch() {
        options.batch.unwrap_or(BATCH.min(options.samples.max(1)))
    } else if *symbol == Symbol::seq() {
        options.seq.unwrap_or(SEQ)
    } else {
        UNKNOWN
    };
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn clash(pair: &Pair, a: &[Dim], b: &[Dim]) -> Error {
    let (a, b) = (frazil_graph::dim::show(a), frazil_graph::dim::show(b));
    Error::Usage {
        what: format!("input `{}` is {a} in A, and `{}` is {b} in B", pair.a, pair.b),
        hint: "make one of them dynamic with `frazil reshape`".into(),
    }
}

/// Lengths and boundaries of one batch's texts, the same for ids, mask and segments.
#[derive(Default)]
struct Texts {
    lengths: Vec<usize>,
    boundaries: Vec<usize>,
}

impl Texts {
    /// Length and boundary of text `i` of at most `seq` words. The first text is as long as can be.
    fn text(&mut self, i: usize, seq: usize, random: &mut Random) -> (usize, usize) {
        while self.lengths.len() <= i {
            let shortest = (seq / 4).max(1).min(seq);
            let length = match self.lengths.len() {
                0 => seq,
                _ => shortest + random.below(seq - shortest + 1),
            };
            self.lengths.push(length);
            self.boundaries.push(random.below(length.max(1)) + 1);
        }
        (self.lengths[i].min(seq), self.boundaries[i])
    }
}

fn make(
    input: &InputRole,
    limit: Option<usize>,
    dims: &[usize],
    texts: &mut Texts,
    random: &mut Random,
) -> Result<Tensor> {
    let shape = Shape::from(dims);
    let elements = shape.elements().filter(|&elements| elements < 1 << 31);
    let elements = elements.ok_or_else(|| Error::Usage {
        what: format!("input `{}` would be {shape}", input.name),
        hint: "ask for a smaller `--batch` or `--seq`".into(),
    })?;
    let row = dims.last().copied().unwrap_or(1);
    let mut values = Vec::with_capacity(elements);
    for at in 0..elements {
        let (i, j) = (at / row.max(1), at % row.max(1));
        values.push(match input.role {
            Role::Ids | Role::Mask | Role::Segments => {
                let (length, boundary) = texts.text(i, row, random);
                let inside = j < length;
                match input.role {
                    // 0 is padding.
                    Role::Ids if inside => random.below(limit.unwrap_or(VOCABULARY)) as f64,
                    Role::Mask if inside => 1.0,
                    Role::Segments if inside && j >= boundary && limit != Some(1) => 1.0,
                    _ => 0.0,
                }
            }
            // Distinct places behind the first, as long as there are any in the text.
            Role::Positions => {
                let most = texts.lengths.get(i).copied().or(limit).unwrap_or(row);
                (j + 1).min(most.saturating_sub(1)) as f64
            }
            Role::Other if input.dtype.is_float() => 1.0,
            Role::Other => random.below(limit.unwrap_or(1)) as f64,
        });
    }
    as_type(&Tensor::from_vec(shape, values)?, input.dtype).map_err(|_| Error::Usage {
        what: format!("input `{}` is {}, which cannot be generated", input.name, input.dtype),
        hint: "give inputs with `--inputs FILE.npz`".into(),
    })
}

/// The same numbers as another type.
fn as_type(tensor: &Tensor, dtype: DType) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    let (wide, shape) = (tensor.to_f64()?, tensor.shape().clone());
    Ok(match dtype {
        DType::I32 => Tensor::from_vec(shape, wide.iter().map(|&x| x as i32).collect())?,
        DType::I64 => Tensor::from_vec(shape, wide.iter().map(|&x| x as i64).collect())?,
        DType::Bool => {
            let bytes: Vec<u8> = wide.iter().map(|&x| u8::from(x != 0.0)).collect();
            Tensor::new(DType::Bool, shape, bytes)?
        }
        float => Tensor::from_vec(shape, wide)?.cast(float)?,
    })
}

/// `inputs` in `count` equal parts of the outermost axis.
pub fn split(inputs: &Inputs, count: usize) -> Result<Vec<Inputs>> {
    let mut parts = vec![Inputs::new(); count];
    for (name, tensor) in inputs {
        let dims = tensor.shape();
        let rows = dims.first().copied().unwrap_or(0);
        if rows == 0 || !rows.is_multiple_of(count) {
            return Err(Error::Usage {
                what: format!("input `{name}` of {dims} cannot be cut into {count} batches"),
                hint: "give inputs of as many examples as the models take at a time".into(),
            });
        }
        let size = tensor.byte_len() / count;
        let mut dims = dims.to_vec();
        dims[0] = rows / count;
        for (i, part) in parts.iter_mut().enumerate() {
            let bytes = tensor.bytes()?.slice(i * size..(i + 1) * size);
            part.insert(name.clone(), Tensor::new(tensor.dtype(), dims.clone(), bytes)?);
        }
    }
    Ok(parts)
}

/// SplitMix64: small, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if there is none.
    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.next() % limit as u64) as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(name: &str, role: Role, dims: Vec<Dim>, limit: Option<usize>) -> InputRole {
        InputRole { name: name.into(), dtype: DType::I32, dims: Some(dims), role, limit }
    }

    fn bert(batch: Dim, seq: Dim, words: usize) -> Vec<InputRole> {
        let dims = || vec![batch.clone(), seq.clone()];
        vec![
            input("ids", Role::Ids, dims(), Some(words)),
            input("mask", Role::Mask, dims(), None),
            input("segments", Role::Segments, dims(), Some(2)),
        ]
    }

    fn pairs() -> Vec<Pair> {
        ["ids", "mask", "segments"].map(|name| Pair { a: name.into(), b: name.into() }).into()
    }

    #[test]
    fn texts_are_realistic_and_the_same_on_both_sides() {
        let roles = [bert(Dim::batch(), Dim::seq(), 500), bert(Dim::batch(), Dim::known(16), 300)];
        let options = Options { samples: 8, ..Options::default() };
        let mut notes = Vec::new();
        let batches = generate(&roles, &pairs(), &options, &mut notes).unwrap();
        assert_eq!(batches.len(), 2);
        let mut used = 0;
        for [a, b] in &batches {
            assert_eq!(a, b);
            let [ids, mask, segments] = ["ids", "mask", "segments"]
                .map(|name| a[name].values::<i32>().unwrap().into_owned());
            assert_eq!(a["ids"].shape().to_vec(), [4, 16]);
            for i in 0..ids.len() {
                assert!((0..300).contains(&ids[i]));
                assert!(mask[i] == 0 || mask[i] == 1);
                assert!(mask[i] == 1 || (ids[i] == 0 && segments[i] == 0));
                used += mask[i];
            }
            assert!(mask[..16].iter().all(|&m| m == 1));
            assert!(segments.contains(&1) && mask.contains(&0));
        }
        assert!(used < 2 * 4 * 16);
        assert_eq!(batches, generate(&roles, &pairs(), &options, &mut notes).unwrap());
    }

    #[test]
    fn sizes_that_contradict_are_refused() {
        let baked =
            [bert(Dim::known(1), Dim::known(16), 500), bert(Dim::known(4), Dim::known(16), 500)];
        let refused = |roles: &[Vec<InputRole>; 2], options: &Options| {
            generate(roles, &pairs(), options, &mut Vec::new()).unwrap_err().to_string()
        };
        let error = refused(&baked, &Options::default());
        assert_eq!(error, "input `ids` is [1, 16] in A, and `ids` is [4, 16] in B");
        let one = [bert(Dim::batch(), Dim::seq(), 5), bert(Dim::known(2), Dim::seq(), 5)];
        let error = refused(&one, &Options { batch: Some(3), ..Options::default() });
        assert!(error.contains("`--batch 3` contradicts A"), "{error}");
    }
}
