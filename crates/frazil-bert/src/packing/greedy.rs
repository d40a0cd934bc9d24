//! Greedy packing of whole counts at once: from the longest length to the shortest.

use super::{Group, Histogram};

/// Packs that still have room, and those that are done.
pub(super) struct Packs {
    depth: usize,
    /// By the room that is left.
    open: Vec<Vec<Group>>,
    done: Vec<Group>,
}

impl Packs {
    /// Of this length, with at most so many sequences each.
    pub(super) fn new(max_length: usize, depth: usize) -> Self {
        Self { depth, open: vec![Vec::new(); max_length + 1], done: Vec::new() }
    }

    /// Adds packs, full or not.
    pub(super) fn add(&mut self, group: Group) {
        let room = self.open.len() - 1 - group.length();
        match room == 0 || group.lengths.len() >= self.depth {
            true => self.done.push(group),
            false => self.open[room].push(group),
        }
    }

    /// Puts `repeat` sequences of a length into each of the last opened packs of this room, as far
    /// as there are sequences. How many sequences went in; none if there is no such pack.
    fn put(&mut self, length: usize, repeat: usize, sequences: u64, room: usize) -> u64 {
        let Some(mut group) = self.open[room].pop() else { return 0 };
        let count = group.count.min(sequences / repeat as u64);
        let mut grown = Group { lengths: group.lengths.clone(), count };
        grown.lengths.extend(std::iter::repeat_n(length as u32, repeat));
        group.count -= count;
        if group.count > 0 {
            self.open[room].push(group);
        }
        self.add(grown);
        count * repeat as u64
    }

    /// Puts all sequences of a length where they leave the least room; equal ones side by side, as
    /// far as they fit.
    pub(super) fn best_fit(&mut self, length: usize, mut sequences: u64) {
        let max_length = self.open.len() - 1;
        while sequences > 0 {
            let room = (length..=max_length).find(|room| !self.open[*room].is_empty());
            let last = room.and_then(|room| self.open[room].last());
            let (room, depth) = match (room, last) {
                (Some(room), Some(pack)) => (room, self.depth - pack.lengths.len()),
                _ => {
                    // A new one, which is filled like any other.
                    self.open[max_length].push(Group { lengths: Vec::new(), count: u64::MAX });
                    (max_length, self.depth)
                }
            };
            // Both limits are at least 1: it fits, and there is one.
            let fit = (room / length).min(depth).min(usize::try_from(sequences).unwrap_or(depth));
            sequences -= self.put(length, fit, sequences, room);
            self.open[max_length].clear();
        }
    }

    /// Puts all sequences of a length where they leave the most room.
    fn worst_fit(&mut self, length: usize, mut sequences: u64) {
        let max_length = self.open.len() - 1;
        // Room only shrinks, so no larger one comes back.
        let mut room = max_length;
        while sequences > 0 && room >= length {
            match self.put(length, 1, sequences, room) {
                0 => room -= 1,
                put => sequences -= put,
            }
        }
        if sequences > 0 {
            self.add(Group { lengths: vec![length as u32], count: sequences });
        }
    }

    /// All packs.
    pub(super) fn finish(self) -> Vec<Group> {
        let mut groups = self.done;
        groups.extend(self.open.into_iter().flatten());
        groups
    }
}

/// Shortest-pack-first.
pub(super) fn spfhp(histogram: &Histogram, depth: usize) -> Vec<Group> {
    let mut packs = Packs::new(histogram.max_length(), depth);
    histogram.longest_first().for_each(|(length, count)| packs.worst_fit(length, count));
    packs.finish()
}

/// Longest-pack-first.
pub(super) fn lpfhp(histogram: &Histogram, depth: usize) -> Vec<Group> {
    let mut packs = Packs::new(histogram.max_length(), depth);
    histogram.longest_first().for_each(|(length, count)| packs.best_fit(length, count));
    packs.finish()
}
