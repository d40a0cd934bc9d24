//! `extract_features`: hidden states of every word piece as lines of JSON, as the program of that
//! name of google-research/bert writes them.
//!
//! A line of the input is a text, or two with ` ||| ` between them. The flags of the original are
//! read in the binary; this takes them as options. Left out: TPUs.

use std::io::Write;
use std::path::{Path, PathBuf};

use frazil_bert::features::Features;
use frazil_bert::features::classifier::{ClassifierInput, Labels};
use frazil_bert::python;
use frazil_tensor::file::AtomicFile;
use serde::Serialize;

use super::predict::texts::{self, Format, Source, Texts};
use super::text_model::{self, Item, Said, TextModel, Want};
use crate::Result;

/// How features are extracted.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the model is opened: `init_checkpoint` and its configuration, vocabulary and lengths.
    pub model: text_model::Options,
    /// Which layers, counted from 0, or from the last one as -1, in the order of the output.
    pub layers: Vec<i32>,
}

/// What was written.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Where.
    pub output: PathBuf,
    /// Lines.
    pub lines: usize,
    /// Those of them whose text was too long and has lost its end.
    pub cut: usize,
    /// `max_seq_length`
    pub max_seq_length: usize,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// Reads the lines of `input` and writes `output`; `progress` is told how many are done. Nothing is
/// written unless everything worked.
pub fn extract_features(
    model: &Path,
    input: &Path,
    output: &Path,
    options: &Options,
    mut progress: impl FnMut(usize),
) -> Result<Report> {
    let how = texts::Options { format: Format::Lines, ..texts::Options::default() };
    let mut texts = Texts::open(Source::File(input.to_path_buf()), &how)?;
    let model = TextModel::open(model, &Want::Hidden(options.layers.clone()), &options.model)?;
    let tokenizer = model.tokenizer().clone();
    let max_seq_length = model.max_seq_length();
    let features = ClassifierInput::new(tokenizer, Labels::classes([""; 0]), max_seq_length)
        .map_err(|error| error.in_file(model.vocabulary()))?;
    let mut file = AtomicFile::create(output)?;
    let (mut lines, mut cut) = (0, 0);
    let mut text = String::new();
    let sequences = std::iter::from_fn(|| {
        let item = |texts: &mut Texts| -> Result<Option<Item<(Features, bool)>>> {
            let Some(next) = texts.next().transpose()? else { return Ok(None) };
            let (first, second) = split(&next.text);
            let sequence = features.sequence(first, second);
            if let Err(problem) = model.check(&sequence) {
                texts.refuse(next.line, problem)?;
            }
            let pieces = |text: &str| model.tokenizer().encode(text).len();
            let long = sequence.len() == max_seq_length
                && pieces(first) + second.map_or(0, pieces) + frame(&sequence) > max_seq_length;
            Ok(Some(Item::new((sequence.clone(), long), sequence)))
        };
        item(&mut texts).transpose()
    });
    model.run(sequences, |(sequence, long), said| {
        text.clear();
        push_line(&mut text, lines, &sequence, &model, &options.layers, &said);
        let written = file.write_all(text.as_bytes());
        let path = output.to_path_buf();
        let action = "write";
        written.map_err(|source| frazil_tensor::Error::Io { action, path, source })?;
        lines += 1;
        cut += usize::from(long);
        progress(lines);
        Ok::<(), crate::Error>(())
    })?;
    file.commit()?;
    let notes = model.notes().to_vec();
    Ok(Report { output: output.to_path_buf(), lines, cut, max_seq_length, notes })
}

/// A line without the space around it, at its last ` ||| `.
fn split(line: &str) -> (&str, Option<&str>) {
    // Python's `str.strip` knows four separators more than Rust's `trim`.
    let blank = |c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c);
    let line = line.trim_matches(blank);
    match line.rsplit_once(" ||| ") {
        Some((first, second)) => (first, Some(second).filter(|second| !second.is_empty())),
        None => (line, None),
    }
}

/// The pieces of a sequence that are none of its texts.
fn frame(sequence: &Features) -> usize {
    if sequence.first_segment() < sequence.len() { 3 } else { 2 }
}

/// What the original writes of a sequence.
fn push_line(
    text: &mut String,
    index: usize,
    sequence: &Features,
    model: &TextModel,
    layers: &[i32],
    said: &Said,
) {
    let vocabulary = model.tokenizer().vocabulary();
    text.push_str(&format!("{{\"linex_index\": {index}, \"features\": ["));
    let mut rows: Vec<_> = said.outputs.iter().map(|output| output.rows()).collect();
    for (i, id) in sequence.ids().iter().enumerate() {
        text.push_str(if i > 0 { ", {\"token\": " } else { "{\"token\": " });
        let token = u32::try_from(*id).ok().and_then(|id| vocabulary.token(id));
        python::push_string(text, token.unwrap_or_default());
        text.push_str(", \"layers\": [");
        for (j, (layer, rows)) in layers.iter().zip(&mut rows).enumerate() {
            let comma = if j > 0 { ", " } else { "" };
            text.push_str(&format!("{comma}{{\"index\": {layer}, \"values\": ["));
            for (k, value) in rows.next().unwrap_or_default().iter().enumerate() {
                if k > 0 {
                    text.push_str(", ");
                }
                push_rounded(text, *value);
            }
            text.push_str("]}");
        }
        text.push_str("]}");
    }
    text.push_str("]}\n");
}

/// `round(float(x), 6)` as Python prints it.
fn push_rounded(text: &mut String, value: f32) {
    /// From here on, six places are more digits than a number of 64 bits has.
    const LARGE: f32 = 1e8;
    if !value.is_finite() || value.abs() >= LARGE {
        // The nearest of six places is the number itself, or its own text says what it is.
        let rounded = format!("{:.6}", f64::from(value)).parse().unwrap_or(f64::from(value));
        return python::push_float(text, rounded);
    }
    let digits = format!("{:.6}", f64::from(value));
    let digits = digits.trim_end_matches('0');
    let small = digits.strip_prefix('-').unwrap_or(digits).strip_prefix("0.0000");
    if small.is_some_and(|rest| !rest.is_empty()) {
        // `1e-05`
        return python::push_float(text, digits.parse().unwrap_or(0.0));
    }
    text.push_str(digits);
    if digits.ends_with('.') {
        text.push('0');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_split_at_the_last_bars() {
        assert_eq!(split(" a b \r"), ("a b", None));
        assert_eq!(split("a ||| b"), ("a", Some("b")));
        assert_eq!(split("a ||| b ||| c"), ("a ||| b", Some("c")));
        assert_eq!(split("a ||| ||| c"), ("a |||", Some("c")));
        assert_eq!(split("a ||| "), ("a |||", None));
        assert_eq!(split("a|||b\u{1f}"), ("a|||b", None));
        assert_eq!(split(""), ("", None));
    }

    #[test]
    fn numbers_as_python_rounds_and_prints_them() {
        // Each was printed by `repr(round(float(numpy.float32(x)), 6))`.
        for (value, expected) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-2.5, "-2.5"),
            (0.123_456_78, "0.123457"),
            (1.2e-5, "1.2e-05"),
            (-9.0e-6, "-9e-06"),
            (1e-4, "0.0001"),
            (1.0001e-4, "0.0001"),
            (4e-7, "0.0"),
            (-4e-7, "-0.0"),
            (0.5e-6, "0.0"),
            (1.5e-6, "2e-06"),
            (100.0, "100.0"),
            (16_777_216.0, "16777216.0"),
            (3.0e10, "30000001024.0"),
            (1.0e20, "1.0000000200408773e+20"),
            (f32::INFINITY, "Infinity"),
            (f32::NAN, "NaN"),
        ] {
            let mut text = String::new();
            push_rounded(&mut text, value);
            assert_eq!(text, expected, "{value}");
        }
    }
}
