//! Pre-training checkpoints of BERT's shapes with pseudo-random values, of any size: what the
//! benchmark reads and the peers compare.

use std::path::Path;

use anyhow::Result;
use frazil_tf::bundle::{BundleWriter, WriteOptions};

use crate::peers::synthetic::{self, Entry};

/// The sizes that decide a BERT's variables.
#[derive(Clone, Copy)]
pub struct Size {
    /// Encoder layers.
    pub layers: usize,
    /// Width of the hidden state; four times that is the feed-forward's.
    pub hidden: usize,
    /// Word pieces.
    pub vocabulary: usize,
    /// Positions.
    pub positions: usize,
}

/// Google's uncased BERT-large: 398 variables, 336,226,108 parameters.
pub const LARGE: Size = Size { layers: 24, hidden: 1024, vocabulary: 30_522, positions: 512 };
/// 46 variables, a megabyte: to see that everything works.
pub const SMALL: Size = Size { layers: 2, hidden: 64, vocabulary: 838, positions: 128 };

/// Names and shapes of a pre-training checkpoint's variables, without optimizer slots.
pub fn table(size: Size) -> Vec<Entry> {
    let (h, f, v) = (size.hidden, 4 * size.hidden, size.vocabulary);
    let mut table: Vec<(String, Vec<usize>)> = Vec::new();
    let mut add = |name: String, shape: &[usize]| table.push((name, shape.to_vec()));
    add("bert/embeddings/word_embeddings".into(), &[v, h]);
    add("bert/embeddings/token_type_embeddings".into(), &[2, h]);
    add("bert/embeddings/position_embeddings".into(), &[size.positions, h]);
    let mut norms = vec!["bert/embeddings".to_owned(), "cls/predictions/transform".to_owned()];
    let mut denses = vec![
        ("bert/pooler/dense".to_owned(), h, h),
        ("cls/predictions/transform/dense".to_owned(), h, h),
    ];
    for layer in 0..size.layers {
        let layer = format!("bert/encoder/layer_{layer}");
        for part in ["query", "key", "value"] {
            denses.push((format!("{layer}/attention/self/{part}"), h, h));
        }
        denses.push((format!("{layer}/attention/output/dense"), h, h));
        denses.push((format!("{layer}/intermediate/dense"), h, f));
        denses.push((format!("{layer}/output/dense"), f, h));
        norms.push(format!("{layer}/attention/output"));
        norms.push(format!("{layer}/output"));
    }
    for norm in norms {
        add(format!("{norm}/LayerNorm/beta"), &[h]);
        add(format!("{norm}/LayerNorm/gamma"), &[h]);
    }
    for (dense, from, to) in denses {
        add(format!("{dense}/kernel"), &[from, to]);
        add(format!("{dense}/bias"), &[to]);
    }
    add("cls/predictions/output_bias".into(), &[v]);
    add("cls/seq_relationship/output_weights".into(), &[2, h]);
    add("cls/seq_relationship/output_bias".into(), &[2]);
    table.sort();
    let entry = |(name, shape)| Entry { name, dtype: "float32".into(), shape, parts: Vec::new() };
    table.into_iter().map(entry).collect()
}

/// Writes a checkpoint of the table's variables.
pub fn write(prefix: &Path, table: &[Entry], options: WriteOptions) -> Result<()> {
    let mut writer = BundleWriter::create(prefix, options)?;
    for (i, entry) in table.iter().enumerate() {
        writer.add(&entry.name, &synthetic::tensor(entry, i as u64 + 1)?)?;
    }
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_large_one_is_googles() {
        let table = table(LARGE);
        assert_eq!(table.len(), 398);
        let parameters: usize = table.iter().map(|e| e.shape.iter().product::<usize>()).sum();
        assert_eq!(parameters, 336_226_108);
        assert_eq!(super::table(SMALL).len(), 46);
    }
}
