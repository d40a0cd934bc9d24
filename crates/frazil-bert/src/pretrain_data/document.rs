//! A document to pairs: the original's `create_instances_from_document`, number for number.

use super::{Instance, Maker};
use crate::python::random::Random;

/// `[CLS]` and two times `[SEP]`.
const FRAME: usize = 3;
/// How often the original tries to find another document than the one it is in.
const TRIES: usize = 10;

/// The pairs of a document.
pub(super) struct Pairs<'a> {
    maker: &'a Maker<'a>,
    index: usize,
    instance: Instance,
}

impl<'a> Pairs<'a> {
    /// Of the document that is used in this place.
    pub(super) fn new(maker: &'a Maker<'a>, index: usize) -> Self {
        Self { maker, index, instance: Instance::default() }
    }

    /// Makes them, one after the other, and hands out each before the next is begun: what is done
    /// with it takes random numbers, too.
    pub(super) fn each(
        mut self,
        random: &mut Random,
        mut take: impl FnMut(&mut Instance, &mut Random),
    ) {
        let document = self.document(self.index);
        let most = self.maker.options.max_seq_length - FRAME;
        let mut target = most;
        if random.random() < self.maker.options.short_seq_prob {
            target = random.between(2, most);
        }
        // Sentences `begin..end` are the chunk that a pair is made of.
        let (mut begin, mut end) = (0, 0);
        while end < document.len() {
            end += 1;
            let full = document.sentences(begin..end).len() >= target;
            if end < document.len() && !full {
                continue;
            }
            let sentences = end - begin;
            let of_first = match sentences {
                1 => 1,
                _ => random.between(1, sentences - 1),
            };
            let first = document.sentences(begin..begin + of_first);
            let is_random_next = sentences == 1 || random.random() < 0.5;
            let second = if is_random_next {
                // Those that were not used are put back.
                end = begin + of_first;
                self.elsewhere(target as i64 - first.len() as i64, random)
            } else {
                document.sentences(begin + of_first..end)
            };
            self.frame(first, second, most, random);
            self.instance.is_random_next = is_random_next;
            take(&mut self.instance, random);
            begin = end;
        }
    }

    fn document(&self, index: usize) -> super::Document<'a> {
        self.maker.corpus.document(self.maker.documents[index] as usize)
    }

    /// Sentences of another document, if there is one, from anywhere to where they suffice.
    fn elsewhere(&self, wanted: i64, random: &mut Random) -> &'a [u32] {
        let last = self.maker.documents.len() - 1;
        let mut other = self.index;
        for _ in 0..TRIES {
            other = random.between(0, last);
            if other != self.index {
                break;
            }
        }
        let document = self.document(other);
        let start = random.between(0, document.len() - 1);
        let enough = |end: &usize| document.sentences(start..*end).len() as i64 >= wanted;
        let end = (start + 1..document.len()).find(enough).unwrap_or(document.len());
        document.sentences(start..end)
    }

    /// Cuts the longer of the two, piece by piece and at either end, until both fit.
    fn frame(
        &mut self,
        mut first: &'a [u32],
        mut second: &'a [u32],
        most: usize,
        random: &mut Random,
    ) {
        while first.len() + second.len() > most {
            let longer = if first.len() > second.len() { &mut first } else { &mut second };
            *longer = match random.random() < 0.5 {
                true => &longer[1..],
                false => &longer[..longer.len() - 1],
            };
        }
        let frame = self.maker.pieces.frame;
        let Instance { ids, first: of_first, .. } = &mut self.instance;
        ids.clear();
        ids.push(frame.cls as u32);
        ids.extend_from_slice(first);
        ids.push(frame.sep as u32);
        *of_first = ids.len();
        ids.extend_from_slice(second);
        ids.push(frame.sep as u32);
    }
}
