//! Masks pieces: the original's `create_masked_lm_predictions`, number for number.

use super::{Instance, Options, Pieces};
use crate::python::random::Random;

/// Masks the pieces of instances.
pub(super) struct Masker<'a> {
    pieces: &'a Pieces,
    options: &'a Options,
    /// Places that can be masked, in the order of the text.
    places: Vec<u32>,
    /// Places that are masked together: from where to where in `places`.
    groups: Vec<(u32, u32)>,
}

impl<'a> Masker<'a> {
    pub(super) fn new(pieces: &'a Pieces, options: &'a Options) -> Self {
        Self { pieces, options, places: Vec::new(), groups: Vec::new() }
    }

    /// Masks an instance.
    pub(super) fn mask(&mut self, instance: &mut Instance, random: &mut Random) {
        self.find_groups(&instance.ids);
        random.shuffle(&mut self.groups);
        let most = self.options.max_predictions_per_seq;
        let wanted = wanted(instance.ids.len(), self.options.masked_lm_prob, most);
        let masked = &mut instance.masked;
        masked.clear();
        for &(from, to) in &self.groups {
            if masked.len() >= wanted {
                break;
            }
            if masked.len() + (to - from) as usize > wanted {
                continue;
            }
            for &place in &self.places[from as usize..to as usize] {
                let piece = &mut instance.ids[place as usize];
                masked.push((place, *piece));
                // 80% become `[MASK]`, 10% stay, 10% become any piece.
                if random.random() < 0.8 {
                    *piece = self.pieces.mask;
                } else if random.random() >= 0.5 {
                    *piece = self.pieces.words[random.between(0, self.pieces.words.len() - 1)];
                }
            }
        }
        masked.sort_unstable_by_key(|(place, _)| *place);
    }

    /// What can be masked: all but the frame; whole words together, if so asked. A piece that goes
    /// on belongs to what stands before it, also across a `[SEP]`, as in the original.
    fn find_groups(&mut self, ids: &[u32]) {
        self.places.clear();
        self.groups.clear();
        let frame = [self.pieces.frame.cls as u32, self.pieces.frame.sep as u32];
        for (place, id) in ids.iter().enumerate() {
            if frame.contains(id) {
                continue;
            }
            let at = self.places.len() as u32; // at most `max_seq_length`
            self.places.push(place as u32);
            let goes_on = self.options.do_whole_word_mask && self.pieces.continues[*id as usize];
            match self.groups.last_mut().filter(|_| goes_on) {
                Some(word) => word.1 = at + 1,
                None => self.groups.push((at, at + 1)),
            }
        }
    }
}

/// How many pieces of a sequence are masked. Python rounds halves to the even number.
pub(super) fn wanted(length: usize, probability: f64, most: usize) -> usize {
    let part = (length as f64 * probability).round_ties_even();
    (part as usize).max(1).min(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Frame;

    fn pieces() -> Pieces {
        let frame = Frame { cls: 1, sep: 2 };
        let continues = vec![false, false, false, false, false, true, false];
        Pieces { frame, mask: 3, continues, words: vec![4, 5, 6] }
    }

    #[test]
    fn halves_go_to_the_even_number() {
        assert_eq!([10, 30, 50, 3].map(|n| wanted(n, 0.15, 20)), [2, 4, 8, 1]);
        assert_eq!((wanted(512, 0.15, 76), wanted(100, 0.15, 0)), (76, 0));
    }

    #[test]
    fn a_word_is_masked_whole_or_not_at_all() {
        let pieces = pieces();
        let ids = [1, 4, 5, 5, 6, 2, 5, 4, 2];
        let options = Options { do_whole_word_mask: true, ..Options::default() };
        let mut masker = Masker::new(&pieces, &options);
        masker.find_groups(&ids);
        assert_eq!(masker.places, [1, 2, 3, 4, 6, 7]);
        assert_eq!(masker.groups, [(0, 3), (3, 5), (5, 6)]);
        for seed in 0..200 {
            let mut instance = Instance { ids: ids.into(), ..Instance::default() };
            let options = Options { masked_lm_prob: 0.34, ..options.clone() };
            Masker::new(&pieces, &options).mask(&mut instance, &mut Random::new(seed));
            let places: Vec<u32> = instance.masked.iter().map(|(place, _)| *place).collect();
            // Three of nine are wanted: one word of three, or one of two and the single.
            assert!(places == [1, 2, 3] || places == [4, 6, 7], "{places:?}");
            assert!(instance.masked.iter().all(|(place, id)| ids[*place as usize] == *id));
        }
        let plain = Options::default();
        let mut masker = Masker::new(&pieces, &plain);
        masker.find_groups(&ids);
        assert_eq!(masker.groups.len(), 6);
    }
}
