//! Texts and the word pieces that frazil finds in them, for a comparison with Hugging Face's
//! `tokenizers`.
//!
//! The two are meant to differ where Hugging Face's tables of characters are not Python 3.7's.
//! `xtask/peers/tokenizers_differences.json` lists those characters with reasons. Written here:
//! every character by itself, 5 MB of made-up text of all scripts, the same text without the
//! listed characters, and real text where there is some.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use frazil::bert::tokenizer::{Casing, Tokenizer, Vocabulary};
use serde::Deserialize;

use super::{Task, synthetic};

/// Where characters are: the planes that have any.
const PLANES: [u32; 5] = [0, 1, 2, 3, 14];
/// Bytes of made-up text.
const MIXED: usize = 5_000_000;
const CASINGS: [(&str, Casing); 2] = [("lower", Casing::Lower), ("keep", Casing::Keep)];

/// Characters that made-up words draw from, one range for each word.
const SCRIPTS: [(u32, u32); 26] = [
    (0x20, 0x7e),
    (0x41, 0x7a),
    (0x80, 0x17f),
    (0x180, 0x2ff),
    (0x300, 0x3ff),
    (0x391, 0x3c9),
    (0x400, 0x52f),
    (0x590, 0x6ff),
    (0x900, 0xdff),
    (0xe00, 0xfff),
    (0x1000, 0x11ff),
    (0x1b00, 0x1bff),
    (0x1e00, 0x1fff),
    (0x2000, 0x206f),
    (0x2070, 0x2bff),
    (0x2e00, 0x303f),
    (0x3040, 0x30ff),
    (0x4e00, 0x9fff),
    (0xac00, 0xd7a3),
    (0xf900, 0xffff),
    (0x10000, 0x11fff),
    (0x1d100, 0x1d1ff),
    (0x1f300, 0x1faff),
    (0x2b700, 0x2cfff),
    (0, 0xffff),
    (0, 0x1ffff),
];

/// A class of characters that the two treat differently.
#[derive(Deserialize)]
struct Difference {
    lower: Vec<(u32, u32)>,
    keep: Vec<(u32, u32)>,
}

/// Fills the task's folder: `NAME.txt`, `NAME.vocab`, and for each of the two ways to treat upper
/// case `NAME.lower.ids` and `NAME.keep.ids`.
pub(super) fn write(task: &Task) -> Result<()> {
    let alphabet = alphabet();
    let characters: Vec<char> = characters().collect();
    let lines: Vec<String> = characters.iter().map(|c| format!("a{c}b a{c} {c}b {c}")).collect();
    texts(&task.out, "characters", &alphabet, &lines)?;
    let mixed = mixed();
    let listed = listed()?;
    let clean: Vec<String> =
        mixed.iter().map(|line| line.chars().filter(|c| !listed.contains(c)).collect()).collect();
    texts(&task.out, "mixed", &alphabet, &mixed)?;
    texts(&task.out, "clean", &alphabet, &clean)?;
    if let Some(shared) = &task.shared {
        let text = crate::bench::english(shared)?;
        let lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        for name in ["uncased", "cased", "chinese", "multilingual_cased"] {
            let path = shared.join(format!("data/vocab/bert_{name}_vocab.txt"));
            let vocabulary = fs::read_to_string(&path)
                .with_context(|| format!("reading `{}`", path.display()))?;
            texts(&task.out, name, &vocabulary, &lines)?;
        }
    }
    Ok(())
}

/// All characters of the planes that have any; a line feed would end the line.
fn characters() -> impl Iterator<Item = char> {
    let planes = PLANES.into_iter().flat_map(|plane| plane << 16..(plane + 1) << 16);
    planes.filter_map(char::from_u32).filter(|c| *c != '\n')
}

/// A vocabulary of every character, so that no difference hides behind `[UNK]`.
fn alphabet() -> String {
    let mut vocabulary = String::from("[UNK]\n");
    for c in characters().filter(|c| !c.is_whitespace() && !c.is_control()) {
        let _ = writeln!(vocabulary, "{c}\n##{c}"); // a string takes everything
    }
    vocabulary
}

/// The characters of the list, whatever becomes of upper case.
fn listed() -> Result<std::collections::HashSet<char>> {
    let differences: Vec<Difference> =
        serde_json::from_str(include_str!("../../peers/tokenizers_differences.json"))
            .context("tokenizers_differences.json")?;
    let ranges = differences.into_iter().flat_map(|d| d.lower.into_iter().chain(d.keep));
    Ok(ranges.flat_map(|(first, last)| first..=last).filter_map(char::from_u32).collect())
}

/// Lines of a dozen words; the letters of a word are of one script.
fn mixed() -> Vec<String> {
    let mut numbers = synthetic::stream(6);
    let mut draw = |below: u64| numbers.next().unwrap_or(0) % below;
    let mut lines = Vec::new();
    let mut size = 0;
    while size < MIXED {
        let mut line = String::new();
        for _ in 0..1 + draw(16) {
            let (first, last) = SCRIPTS[draw(SCRIPTS.len() as u64) as usize];
            for _ in 0..1 + draw(9) {
                let code = first + draw(u64::from(last - first + 1)) as u32;
                line.extend(char::from_u32(code).filter(|c| *c != '\n'));
            }
            if draw(5) > 0 {
                line.push(' ');
            }
        }
        size += line.len() + 1;
        lines.push(line);
    }
    lines
}

fn texts(out: &Path, name: &str, vocabulary: &str, lines: &[String]) -> Result<()> {
    fs::write(out.join(format!("{name}.vocab")), vocabulary)?;
    fs::write(out.join(format!("{name}.txt")), lines.join("\n"))?;
    let vocabulary = std::sync::Arc::new(Vocabulary::from_lines(vocabulary.as_bytes())?);
    for (casing_name, casing) in CASINGS {
        let tokenizer = Tokenizer::new(vocabulary.clone(), casing)?;
        let mut text = String::new();
        for encoding in tokenizer.encode_batch(lines, 0) {
            for (id, (start, end)) in encoding.ids.iter().zip(&encoding.offsets) {
                write!(text, "{id}:{start}:{end} ")?;
            }
            text.push('\n');
        }
        fs::write(out.join(format!("{name}.{casing_name}.ids")), text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_text_is_the_same_every_time_and_has_all_scripts() {
        let lines = mixed();
        assert_eq!(lines, mixed());
        for (first, last) in SCRIPTS {
            let inside = |c: char| (first..=last).contains(&(c as u32));
            assert!(lines.iter().any(|line| line.contains(inside)), "{first:x}");
        }
    }

    #[test]
    fn the_list_can_be_read() {
        assert!(listed().unwrap().contains(&'\u{e000}'));
    }
}
