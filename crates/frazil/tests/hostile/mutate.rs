//! Damage done to a file on purpose, the same on every run.

/// Marsaglia's xorshift, 64 bits: small, and the same everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // A zero would stay zero; the multiplier spreads small seeds.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Less than `bound`, which may be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { ((self.next() >> 16) % bound as u64) as usize }
    }
}

/// Pieces of text that upset parsers of text.
const TOKENS: [&[u8]; 14] = [
    b"{",
    b"}",
    b"\"",
    b"\\",
    b"\\x",
    b"\\777",
    b"[",
    b"<",
    b":",
    b"#",
    b"-",
    b"1e999",
    b"nan",
    b"99999999999999999999",
];

/// One to four kinds of damage. `other` is a file to splice from.
pub fn mutate(original: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = original.to_vec();
    for _ in 0..=random.below(4) {
        damage(&mut bytes, other, random);
    }
    bytes
}

fn damage(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let len = bytes.len();
    let at = random.below(len);
    match random.below(12) {
        0 => bytes.truncate(at),
        1 | 2 => {
            for _ in 0..=random.below(8) {
                let bit = random.below(len * 8);
                if let Some(byte) = bytes.get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
        }
        3 => overwrite(bytes, at, &[random.next() as u8]),
        // A piece of the other file, in place or between.
        4 => {
            let piece = piece(other, random);
            overwrite(bytes, at, &piece);
        }
        5 => {
            let piece = piece(other, random);
            bytes.splice(at..at, piece);
        }
        // A number where a length may be: little- or big-endian, of any width, or a varint.
        6..=8 => {
            let number = number(len, random);
            let width = 1 << random.below(4);
            let encoded = match random.below(3) {
                0 => number.to_le_bytes()[..width].to_vec(),
                1 => number.to_be_bytes()[8 - width..].to_vec(),
                _ => varint(number),
            };
            // Lengths are near the beginning, and in many formats near the end.
            let at = match random.below(4) {
                0 => random.below(len.min(64)),
                1 => len.saturating_sub(1 + random.below(len.min(64))),
                _ => at,
            };
            overwrite(bytes, at, &encoded);
        }
        // Two blocks change places.
        9 => {
            let size = 1 + random.below((len / 2).min(512));
            let (a, b) = (random.below(len), random.below(len));
            let (a, b) = (a.min(b), a.max(b));
            if a + size <= b && b + size <= len {
                let (head, tail) = bytes.split_at_mut(b);
                head[a..a + size].swap_with_slice(&mut tail[..size]);
            }
        }
        // A block goes, or comes again many times.
        10 => {
            let end = len.min(at + random.below(64));
            if random.below(2) == 0 {
                bytes.drain(at..end);
            } else {
                let block = bytes[at..end].repeat(1 + random.below(200));
                bytes.splice(at..at, block);
            }
        }
        _ => {
            let token = TOKENS[random.below(TOKENS.len())];
            let token = token.repeat(if random.below(8) == 0 { 500 } else { 1 });
            bytes.splice(at..at, token);
        }
    }
}

fn piece(other: &[u8], random: &mut Random) -> Vec<u8> {
    let start = random.below(other.len());
    let end = other.len().min(start + 1 + random.below(256));
    other[start..end].to_vec()
}

fn overwrite(bytes: &mut [u8], at: usize, piece: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(piece) {
        *to = *from;
    }
}

/// A number that lengths and counts trip over.
fn number(len: usize, random: &mut Random) -> u64 {
    let len = len as u64;
    let interesting = [
        0,
        1,
        len,
        len + 1,
        len.wrapping_sub(1),
        0x7f,
        0x80,
        0xffff,
        i32::MAX as u64,
        u64::from(u32::MAX),
        1 << 40,
        i64::MAX as u64,
        1 << 63,
        u64::MAX,
        random.next(),
        random.next() >> 32,
    ];
    interesting[random.below(interesting.len())]
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}
