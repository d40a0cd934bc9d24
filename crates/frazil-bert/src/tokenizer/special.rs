//! Pieces that are kept whole where they stand in a text, like `[MASK]` in a text with blanks.

/// What to look for.
#[derive(Debug)]
pub(super) struct Special {
    /// The longest first, so that no piece hides one that it begins.
    pieces: Vec<(Box<[u8]>, u32)>,
    /// The bytes that one of them begins with.
    first: [bool; 256],
}

impl Special {
    /// None where there is nothing to look for.
    pub(super) fn new<'a>(pieces: impl Iterator<Item = (&'a str, u32)>) -> Option<Self> {
        let mut pieces: Vec<(Box<[u8]>, u32)> = pieces
            .filter(|(piece, _)| !piece.is_empty())
            .map(|(piece, id)| (piece.as_bytes().into(), id))
            .collect();
        pieces.sort_by_key(|(piece, _)| std::cmp::Reverse(piece.len()));
        let mut first = [false; 256];
        for (piece, _) in &pieces {
            first[piece[0] as usize] = true;
        }
        (!pieces.is_empty()).then_some(Self { pieces, first })
    }

    /// The next of them in the text: its id, first byte and the byte after it. These are between
    /// characters, since a piece is text itself.
    pub(super) fn next(&self, text: &str, from: usize) -> Option<(u32, usize, usize)> {
        let bytes = text.as_bytes();
        (from..bytes.len()).filter(|at| self.first[bytes[*at] as usize]).find_map(|at| {
            let found = self.pieces.iter().find(|(piece, _)| bytes[at..].starts_with(piece));
            found.map(|(piece, id)| (*id, at, at + piece.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_longest_is_found() {
        let special = Special::new([("[M]", 1), ("[M]s", 2), ("", 3)].into_iter()).unwrap();
        assert_eq!(special.next("é[ [M]s", 0), Some((2, 4, 8)));
        assert_eq!(special.next("é[ [M] s", 0), Some((1, 4, 7)));
        assert_eq!(special.next("[M]", 1), None);
        assert!(Special::new([("", 3)].into_iter()).is_none());
    }
}
