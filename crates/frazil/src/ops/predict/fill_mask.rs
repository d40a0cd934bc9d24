//! `predict fill-mask`: the likeliest word pieces for each `[MASK]` of a text.
//!
//! The model is one with a head for masked words: a checkpoint of pre-training, a graph that gives
//! their probabilities, or a BertForMaskedLM or BertForPreTraining of Hugging Face. Left out: words of
//! several pieces.

use std::path::{Path, PathBuf};

use frazil_bert::features::{Features, Frame};
use frazil_bert::rows::RowProblem;
use frazil_bert::tokenizer::Encoding;
use serde::Serialize;

use super::texts::{Text, Texts};
use crate::ops::text_model::{self, Item, Output, TextModel, Want};
use crate::{Error, Result};

const MASK: &str = "[MASK]";
/// `[CLS]` and `[SEP]`.
const FRAME: usize = 2;

/// How masks are filled.
#[derive(Clone, Debug)]
pub struct Options {
    /// How the model is opened; `[MASK]` in a text is the piece of that name in any case.
    pub model: text_model::Options,
    /// How many pieces for each mask.
    pub top: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { model: text_model::Options::default(), top: 5 }
    }
}

/// What fills.
#[derive(Clone, Debug, Serialize)]
pub struct About {
    /// The model.
    pub model: PathBuf,
    /// Texts are cut to so many pieces, `[CLS]` and `[SEP]` included.
    pub max_seq_length: usize,
    /// Choices that were made.
    pub notes: Vec<String>,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Texts.
    pub texts: usize,
    /// Those of them that were too long and have lost their end.
    pub cut: usize,
    /// Rows that were left out.
    pub skipped: usize,
    /// Masks that were filled.
    pub masks: usize,
    /// Masks that were in an end that was cut off.
    pub masks_cut: usize,
}

/// A text and what its masks could be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filled {
    /// The place of the text among all, counted from 1: its line, in a file.
    pub line: usize,
    /// The text.
    pub text: String,
    /// Its masks, in order.
    pub masks: Vec<Mask>,
}

/// A mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mask {
    /// The bytes of the text that it is: first, and one past the last.
    pub offsets: (u32, u32),
    /// The likeliest pieces, the likeliest first.
    pub pieces: Vec<Piece>,
}

/// A piece that a mask could be.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Piece {
    /// The piece.
    pub token: String,
    /// Its id.
    pub id: u32,
    /// From 0 to 1.
    pub probability: f32,
}

/// A model that is ready to fill masks.
pub struct Filler {
    model: TextModel,
    frame: Frame,
    mask: u32,
    top: usize,
    about: About,
}

/// What comes back with the result of a sequence.
struct Asked {
    text: Text,
    places: Vec<(u32, u32)>,
    cut: bool,
    masks_cut: usize,
}

impl Filler {
    /// Opens a model.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let path = path.as_ref();
        if options.top == 0 {
            return Err(Error::Usage {
                what: "no pieces are asked for".into(),
                hint: "`--top` is at least 1".into(),
            });
        }
        let how = text_model::Options { keep_special: true, ..options.model.clone() };
        let model = TextModel::open(path, &Want::Words, &how)?;
        let vocabulary = model.tokenizer().vocabulary();
        let in_file = |error: frazil_bert::Error| error.in_file(model.vocabulary());
        let frame = Frame::of(vocabulary).map_err(in_file)?;
        let mask = vocabulary.id(MASK);
        let mask = mask.ok_or_else(|| in_file(frazil_bert::Error::NoSpecialToken(MASK)))?;
        let max_seq_length = model.max_seq_length();
        if max_seq_length <= FRAME {
            let (name, found, least) = ("max_seq_length", max_seq_length, FRAME + 1);
            let error = frazil_bert::Error::FeatureLength { name, found, least, why: "" };
            return Err(error.into());
        }
        let about =
            About { model: path.to_path_buf(), max_seq_length, notes: model.notes().to_vec() };
        Ok(Self { model, frame, mask, top: options.top, about })
    }

    /// What fills.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Fills the masks of texts as they come and gives them away, in their order.
    pub fn fill<E: From<Error>>(
        &self,
        texts: &mut Texts,
        mut each: impl FnMut(Filled) -> Result<(), E>,
    ) -> Result<Counts, E> {
        let mut counts = Counts::default();
        let mut encoding = Encoding::default();
        let sequences = std::iter::from_fn(|| self.next(texts, &mut encoding).transpose());
        self.model.run(sequences.map(|item| item.map_err(E::from)), |asked, said| {
            let words = said.outputs.first();
            let rows = words.into_iter().flat_map(Output::rows);
            let masks: Vec<Mask> = asked
                .places
                .iter()
                .zip(rows)
                .map(|(&offsets, row)| Mask { offsets, pieces: self.likeliest(row) })
                .collect();
            counts.texts += 1;
            counts.cut += usize::from(asked.cut);
            counts.masks += masks.len();
            counts.masks_cut += asked.masks_cut;
            each(Filled { line: asked.text.line, text: asked.text.text, masks })
        })?;
        counts.skipped = texts.skipped();
        Ok(counts)
    }

    /// The next text that has a mask.
    fn next(&self, texts: &mut Texts, encoding: &mut Encoding) -> Result<Option<Item<Asked>>> {
        while let Some(next) = texts.next() {
            let text = next?;
            self.model.tokenizer().encode_into(&text.text, encoding);
            let room = self.about.max_seq_length - FRAME;
            let is_mask = |id: &&u32| **id == self.mask;
            let all = encoding.ids.iter().filter(is_mask).count();
            let cut = encoding.ids.len() > room;
            encoding.ids.truncate(room);
            let masks = || (0..).zip(&encoding.ids).filter(|(_, id)| **id == self.mask);
            let places: Vec<(u32, u32)> = masks().map(|(i, _)| encoding.offsets[i]).collect();
            // `[CLS]` comes first.
            let positions = masks().map(|(i, _)| i32::try_from(i + 1).unwrap_or(i32::MAX));
            let positions: Vec<i32> = positions.collect();
            let narrow = |&id: &u32| i32::try_from(id).unwrap_or(i32::MAX);
            let ids: Vec<i32> = encoding.ids.iter().map(narrow).collect();
            let features = Features::new(self.frame, &ids, None, self.about.max_seq_length);
            let most = self.about.max_seq_length;
            let problem = match (places.len(), all) {
                (0, 0) => Some(RowProblem::NoMask),
                (0, _) => Some(RowProblem::MaskCutOff { most }),
                _ => self.model.check(&features).err(),
            };
            match problem {
                Some(problem) => texts.refuse(text.line, problem)?,
                None => {
                    let masks_cut = all - places.len();
                    let tag = Asked { text, places, cut, masks_cut };
                    return Ok(Some(Item { tag, features, positions }));
                }
            }
        }
        Ok(None)
    }

    /// Of `log_probs: [v]`. Rows of the table that no piece has are passed over.
    fn likeliest(&self, log_probs: &[f32]) -> Vec<Piece> {
        let vocabulary = self.model.tokenizer().vocabulary();
        let mut order: Vec<u32> = (0..).take(log_probs.len().min(vocabulary.len())).collect();
        let by = |a: &u32, b: &u32| {
            log_probs[*b as usize].total_cmp(&log_probs[*a as usize]).then(a.cmp(b))
        };
        if self.top < order.len() {
            order.select_nth_unstable_by(self.top - 1, by);
            order.truncate(self.top);
        }
        order.sort_unstable_by(by);
        let piece = |&id: &u32| {
            let token = vocabulary.token(id)?.to_owned();
            Some(Piece { token, id, probability: log_probs[id as usize].exp() })
        };
        order.iter().filter_map(piece).collect()
    }
}
