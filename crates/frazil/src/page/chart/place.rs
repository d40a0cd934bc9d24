//! Labels that do not run into each other.

use super::svg::{At, FONT, wide};

/// Left, top, right, bottom.
pub type Box4 = [f64; 4];

/// What is taken already, within bounds.
pub struct Places {
    bounds: Box4,
    taken: Vec<Box4>,
}

/// What a text that begins at `at` covers.
pub fn extent((x, y): At, words: &str) -> Box4 {
    [x, y - FONT, x + wide(words), y + FONT * 0.35]
}

impl Places {
    pub fn new(bounds: Box4) -> Self {
        Self { bounds, taken: Vec::new() }
    }

    pub fn take(&mut self, area: Box4) {
        self.taken.push(area);
    }

    /// A point, and the room around it.
    pub fn take_mark(&mut self, (x, y): At) {
        self.take([x - 6.0, y - 6.0, x + 6.0, y + 6.0]);
    }

    /// A line that runs straight across or down.
    pub fn take_line(&mut self, a: At, b: At) {
        self.take([a.0.min(b.0), a.1.min(b.1) - 1.0, a.0.max(b.0), a.1.max(b.1) + 1.0]);
    }

    fn free(&self, [l, t, r, b]: Box4) -> bool {
        let inside = l >= self.bounds[0]
            && t >= self.bounds[1]
            && r <= self.bounds[2]
            && b <= self.bounds[3];
        inside && self.taken.iter().all(|o| r <= o[0] || l >= o[2] || b <= o[1] || t >= o[3])
    }

    /// The first of these places where the text stands free, which is then taken.
    pub fn find(&mut self, words: &str, places: impl IntoIterator<Item = At>) -> Option<At> {
        let found = places.into_iter().find(|&at| self.free(extent(at, words)))?;
        self.take(extent(found, words));
        Some(found)
    }

    /// Beside a point: where its name begins.
    pub fn beside(&mut self, words: &str, (x, y): At) -> Option<At> {
        let (w, gap) = (wide(words), 9.0);
        let (left, middle) = (x - w - gap, x - w / 2.0);
        let (over, under) = (y - 10.0, y + 19.0);
        let near = [
            (x + gap, y + 4.0),
            (left, y + 4.0),
            (middle, over),
            (middle, under),
            (x + gap - 3.0, over),
            (left + 3.0, over),
            (x + gap - 3.0, under),
            (left + 3.0, under),
        ];
        self.find(words, near)
    }
}
