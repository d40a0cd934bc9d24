//! Windows of a document, and which of them sees a piece best.

/// Pieces `start..start + length` of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) length: usize,
}

/// The windows of at most `longest` pieces, `stride` apart, that cover a document.
pub(super) fn spans(pieces: usize, longest: usize, stride: usize) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = 0;
    while start < pieces {
        let length = (pieces - start).min(longest);
        spans.push(Span { start, length });
        if start + length == pieces {
            break;
        }
        start += length.min(stride);
    }
    spans
}

/// For each piece of the document the window in which it has most pieces on its poorer side; of
/// equals, the first.
pub(super) fn best_spans(pieces: usize, spans: &[Span]) -> Vec<usize> {
    let mut best = vec![(f64::NEG_INFINITY, 0); pieces];
    for (index, span) in spans.iter().enumerate() {
        let covered = best.iter_mut().skip(span.start).take(span.length);
        for (left, best) in covered.enumerate() {
            let right = span.length - 1 - left;
            // In double precision, as the original: equal sums must be equal here too.
            let score = left.min(right) as f64 + 0.01 * span.length as f64;
            if score > best.0 {
                *best = (score, index);
            }
        }
    }
    best.into_iter().map(|(_, index)| index).collect()
}

/// Narrows `start..=end`, whole words around an answer, to the pieces of the answer itself, if
/// they are there. Ends may be -1 or lie before the start, where words have no pieces.
pub(super) fn improve(pieces: &[i32], start: i64, end: i64, answer: &[i32]) -> (i64, i64) {
    let range = usize::try_from(start).ok().zip(usize::try_from(end + 1).ok());
    let within = range.and_then(|(from, to)| pieces.get(from..to)).unwrap_or_default();
    if answer.is_empty() {
        return (start, end);
    }
    match within.windows(answer.len()).position(|window| window == answer) {
        Some(at) => (start + at as i64, start + (at + answer.len()) as i64 - 1),
        None => (start, end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_cover_the_document() {
        let span = |start, length| Span { start, length };
        assert_eq!(spans(5, 10, 3), [span(0, 5)]);
        assert_eq!(spans(10, 4, 3), [span(0, 4), span(3, 4), span(6, 4)]);
        assert_eq!(spans(10, 4, 9), [span(0, 4), span(4, 4), span(8, 2)]);
        assert_eq!(spans(0, 4, 3), []);
    }

    /// The original's rule, piece by piece.
    fn slow_best(spans: &[Span], piece: usize) -> usize {
        let mut best: Option<(f64, usize)> = None;
        for (index, span) in spans.iter().enumerate() {
            if piece < span.start || piece >= span.start + span.length {
                continue;
            }
            let (left, right) = (piece - span.start, span.start + span.length - 1 - piece);
            let score = left.min(right) as f64 + 0.01 * span.length as f64;
            if best.is_none_or(|(best, _)| score > best) {
                best = Some((score, index));
            }
        }
        best.unwrap().1
    }

    #[test]
    fn every_piece_has_its_best_window() {
        for (pieces, longest, stride) in [(30, 10, 3), (31, 7, 7), (100, 33, 16), (5, 9, 1)] {
            let spans = spans(pieces, longest, stride);
            let slow: Vec<usize> = (0..pieces).map(|piece| slow_best(&spans, piece)).collect();
            assert_eq!(best_spans(pieces, &spans), slow);
        }
    }

    #[test]
    fn answers_are_narrowed() {
        let pieces = [5, 1, 2, 1, 2, 6];
        assert_eq!(improve(&pieces, 0, 5, &[1, 2]), (1, 2));
        assert_eq!(improve(&pieces, 2, 5, &[1, 2]), (3, 4));
        assert_eq!(improve(&pieces, 0, 5, &[7]), (0, 5));
        assert_eq!(improve(&pieces, 0, 5, &[]), (0, 5));
        assert_eq!(improve(&pieces, 3, 2, &[1]), (3, 2));
        assert_eq!(improve(&pieces, 0, -1, &[1]), (0, -1));
        assert_eq!(improve(&pieces, 2, 9, &[1]), (2, 9));
    }
}
