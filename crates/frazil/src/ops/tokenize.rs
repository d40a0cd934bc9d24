//! `tokenize`: texts to word pieces, ids and places, as google-research/bert's tokenizer gives
//! them, with the vocabulary of a model or of a file.
//!
//! Texts come as they are, or as lines of a file; of a large file only some are in memory at a
//! time. Left out: padding and truncation, which depend on the task.

use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frazil_bert::tokenizer::{Casing, Encoding, Tokenizer, Vocabulary};
use serde::Serialize;

use crate::source::{Need, locate};
use crate::{Error, Result};

/// Pieces that stand for no text.
pub(crate) const SPECIAL: [&str; 5] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
/// Lines that are in memory at a time.
const BATCH: usize = 4096;

/// How texts are cut.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether text is lowered; what the model's files say if none, and what the pieces look like
    /// if they say nothing.
    pub casing: Option<Casing>,
    /// A text is two, with a tab between them: `[CLS]` first `[SEP]` second `[SEP]`.
    pub pair: bool,
    /// `[MASK]` and the like are pieces where they stand in a text, not brackets and a word.
    pub keep_special: bool,
    /// Threads; `FRAZIL_THREADS`, or one for each core, if 0.
    pub threads: usize,
}

/// What was cut, and by what.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What `casing` and the pieces were taken from.
    #[serde(flatten)]
    pub about: About,
    /// In the order given.
    pub texts: Vec<Text>,
}

/// The tokenizer.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The file or folder of the vocabulary.
    pub vocabulary: PathBuf,
    /// The number of its pieces.
    pub pieces: usize,
    /// Whether text is lowered.
    pub lower_case: bool,
    /// Whether anybody said so: the user or the model's files.
    pub lower_case_guessed: bool,
}

/// One text, or one pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Text {
    /// The pieces.
    pub tokens: Vec<String>,
    /// Their ids.
    pub ids: Vec<u32>,
    /// The bytes of the text that each came from; none for `[CLS]` and `[SEP]`. In a pair, those
    /// of the second text count from its own beginning.
    pub offsets: Vec<Option<(u32, u32)>>,
    /// Of a pair: 0 for pieces of the first text, 1 for those of the second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub segment_ids: Option<Vec<u32>>,
}

/// A tokenizer, opened.
#[derive(Debug)]
pub struct Opened {
    about: About,
    tokenizer: Tokenizer,
    threads: usize,
    /// The ids of `[CLS]` and `[SEP]`, where pairs are wanted.
    pair: Option<(u32, u32)>,
}

/// Opens the vocabulary that `model` is, or that lies beside it.
pub fn open(model: impl AsRef<Path>, options: &Options) -> Result<Opened> {
    let vocabulary = find(model.as_ref())?;
    let read = Vocabulary::open(&vocabulary)?;
    let told = options.casing.or(read.casing());
    let casing = told.unwrap_or_else(|| read.guess_casing());
    let in_file = |error: frazil_bert::Error| error.in_file(&vocabulary);
    let special =
        |name| read.id(name).ok_or_else(|| in_file(frazil_bert::Error::NoSpecialToken(name)));
    let pair = if options.pair { Some((special("[CLS]")?, special("[SEP]")?)) } else { None };
    let about = About {
        pieces: read.len(),
        lower_case: casing == Casing::Lower,
        lower_case_guessed: told.is_none(),
        vocabulary: vocabulary.clone(),
    };
    let mut tokenizer = Tokenizer::new(Arc::new(read), casing).map_err(in_file)?;
    if options.keep_special {
        tokenizer = tokenizer.keep_whole(&SPECIAL);
    }
    let threads = match options.threads {
        0 => frazil_runtime::default_threads()?,
        threads => threads,
    };
    Ok(Opened { about, tokenizer, threads, pair })
}

/// Opens, and cuts all texts.
pub fn tokenize(
    model: impl AsRef<Path>,
    texts: &[impl AsRef<str> + Sync],
    options: &Options,
) -> Result<Report> {
    let opened = open(model, options)?;
    Ok(Report { texts: opened.cut(texts)?, about: opened.about })
}

/// The vocabulary's file or folder.
fn find(model: &Path) -> Result<PathBuf> {
    const NAMES: [&str; 2] = ["vocab.txt", "tokenizer.json"];
    let is_text = model.extension().is_some_and(|e| e == "txt" || e == "json");
    if model.is_file() && is_text || NAMES.iter().any(|name| model.join(name).is_file()) {
        return Ok(model.to_path_buf());
    }
    match locate(model, Need::Names) {
        // What lies in a zip is gone when the located thing is.
        Ok(found) if found.in_zip() => Err(Error::Usage {
            what: format!("`{}` is a zip", model.display()),
            hint: "unpack it first, and name the folder".into(),
        }),
        Ok(found) => found.beside(&NAMES).ok_or_else(|| {
            let folder = found.path.parent().unwrap_or(Path::new(".")).to_path_buf();
            frazil_bert::Error::NoVocabulary { folder }.into()
        }),
        Err(Error::NotAModel { .. }) if model.is_file() => Ok(model.to_path_buf()),
        Err(Error::NotFound { path, near }) if near.is_empty() => Err(Error::Usage {
            what: format!("there is no `{}`", path.display()),
            hint: "give a vocab.txt, a tokenizer.json, or a model that has one beside it".into(),
        }),
        Err(Error::NothingInFolder { path, .. }) => {
            Err(frazil_bert::Error::NoVocabulary { folder: path }.into())
        }
        Err(error) => Err(error),
    }
}

impl Opened {
    /// What was opened.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Cuts texts, or pairs with a tab between the two.
    pub fn cut(&self, texts: &[impl AsRef<str> + Sync]) -> Result<Vec<Text>> {
        let Some((cls, sep)) = self.pair else {
            let encodings = self.tokenizer.encode_batch(texts, self.threads);
            return Ok(encodings.into_iter().map(|encoding| self.single(encoding)).collect());
        };
        let mut halves = Vec::with_capacity(texts.len() * 2);
        for (i, text) in texts.iter().enumerate() {
            let (first, second) = text.as_ref().split_once('\t').ok_or_else(|| Error::Usage {
                what: format!("text {} is no pair: it has no tab", i + 1),
                hint: "`--pair` takes the two texts with a tab between them".into(),
            })?;
            halves.extend([first, second]);
        }
        let encodings = self.tokenizer.encode_batch(&halves, self.threads);
        Ok(encodings.chunks_exact(2).map(|pair| self.pair(cls, sep, pair)).collect())
    }

    fn single(&self, encoding: Encoding) -> Text {
        let tokens = self.tokens(&encoding.ids);
        let offsets = encoding.offsets.into_iter().map(Some).collect();
        Text { tokens, ids: encoding.ids, offsets, segment_ids: None }
    }

    /// `[CLS]` first `[SEP]` second `[SEP]`
    fn pair(&self, cls: u32, sep: u32, pair: &[Encoding]) -> Text {
        let (mut ids, mut offsets, mut segments) = (vec![cls], vec![None], vec![0]);
        for (encoding, segment) in pair.iter().zip(0..) {
            ids.extend(encoding.ids.iter().chain([&sep]));
            offsets.extend(encoding.offsets.iter().copied().map(Some).chain([None]));
            segments.resize(ids.len(), segment);
        }
        Text { tokens: self.tokens(&ids), ids, offsets, segment_ids: Some(segments) }
    }

    fn tokens(&self, ids: &[u32]) -> Vec<String> {
        let vocabulary = self.tokenizer.vocabulary();
        ids.iter().map(|id| vocabulary.token(*id).unwrap_or_default().to_owned()).collect()
    }

    /// Cuts each line of a file and gives the results away, some thousand at a time. `name` is
    /// what the file is called in errors.
    pub fn cut_lines<E: From<Error>>(
        &self,
        mut file: impl BufRead,
        name: &Path,
        mut each: impl FnMut(Vec<Text>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut line_number = 0;
        loop {
            let first = line_number + 1;
            let mut lines = Vec::new();
            while lines.len() < BATCH {
                let mut line = Vec::new();
                let read = file
                    .read_until(b'\n', &mut line)
                    .map_err(|source| Error::Read { path: name.to_path_buf(), source })?;
                if read == 0 {
                    break;
                }
                line_number += 1;
                let line = String::from_utf8(line)
                    .map_err(|_| Error::NotUtf8 { path: name.to_path_buf(), line: line_number })?;
                let line = line.strip_suffix('\n').unwrap_or(&line);
                lines.push(line.strip_suffix('\r').unwrap_or(line).to_owned());
            }
            if lines.is_empty() {
                return Ok(());
            }
            if self.pair.is_some()
                && let Some(i) = lines.iter().position(|line| !line.contains('\t'))
            {
                return Err(Error::Usage {
                    what: format!("line {} of `{}` has no tab", first + i, name.display()),
                    hint: "`--pair` takes lines of two texts with a tab between them".into(),
                }
                .into());
            }
            each(self.cut(&lines)?)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let vocab = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nice\n##s\nmelt\n[\n]\n";
        std::fs::write(folder.path().join("vocab.txt"), vocab).unwrap();
        folder
    }

    #[test]
    fn texts_and_pairs() {
        let folder = folder();
        let report = tokenize(folder.path(), &["Ice melts"], &Options::default()).unwrap();
        assert!(report.about.lower_case && report.about.lower_case_guessed);
        assert_eq!(report.texts[0].tokens, ["ice", "melt", "##s"]);
        assert_eq!(report.texts[0].offsets, [Some((0, 3)), Some((4, 8)), Some((8, 9))]);
        let options = Options { pair: true, keep_special: true, ..Options::default() };
        let report = tokenize(folder.path(), &["ice\t[MASK]s"], &options).unwrap();
        let pair = &report.texts[0];
        assert_eq!(pair.tokens, ["[CLS]", "ice", "[SEP]", "[MASK]", "[UNK]", "[SEP]"]);
        assert_eq!(pair.segment_ids.as_deref(), Some(&[0, 0, 0, 1, 1, 1][..]));
        assert_eq!(pair.offsets[2..4], [None, Some((0, 6))]);
        assert!(tokenize(folder.path(), &["ice"], &options).is_err());
    }

    #[test]
    fn lines_are_counted() {
        let folder = folder();
        let opened = open(folder.path(), &Options::default()).unwrap();
        let run = |bytes: &[u8]| {
            let mut texts = Vec::new();
            let each = |more: Vec<Text>| -> Result<()> {
                texts.extend(more);
                Ok(())
            };
            opened.cut_lines(bytes, Path::new("texts.txt"), each).map(|()| texts)
        };
        let texts = run(b"ice\r\n\nmelts").unwrap();
        let lengths: Vec<usize> = texts.iter().map(|text| text.ids.len()).collect();
        assert_eq!(lengths, [1, 0, 2]);
        let error = run(b"ice\nice\n\xff\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3 of `texts.txt` is not UTF-8");
        let many = "ice\n".repeat(BATCH + 1);
        assert_eq!(run(many.as_bytes()).unwrap().len(), BATCH + 1);
    }

    #[test]
    fn a_folder_without_a_vocabulary_says_so() {
        let empty = tempfile::tempdir().unwrap();
        let error = open(empty.path(), &Options::default()).unwrap_err();
        assert!(error.to_string().contains("neither `vocab.txt` nor"), "{error}");
    }
}
