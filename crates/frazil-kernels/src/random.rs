//! Random bits that are looked up, not drawn: a number follows from its address alone, whoever asks
//! for it and in which order.
//!
//! A row's key comes from Philox 4x32 with ten rounds (Salmon and others, 2011), with seed, step,
//! site, row and head as its address. The elements of a row come from a 32-bit mix of their number
//! with that key, which costs two multiplications and fits vectors.

use crate::simd::Simd;

/// What all numbers of one step have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Of the whole training.
    pub seed: u64,
    /// Of the optimizer; of steps that differ by 2³² the numbers are the same.
    pub step: u64,
}

/// The numbers of one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    first: u32,
    second: u32,
}

/// Between the numbers of neighbouring elements.
const STEP: u32 = 0x9E37_79B9;
/// The multipliers of the mix.
const MIX: [u32; 2] = [0x7FEB_352D, 0x846C_A68B];

impl Key {
    /// The numbers of a row at a site; `head` tells apart what lies in one row.
    pub fn row(self, site: u32, row: u32, head: u32) -> Row {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let [first, second, ..] = philox([row, site, head, self.step as u32], key);
        Row { first, second }
    }
}

impl Row {
    /// Number `i` of the row: 32 random bits.
    #[inline]
    pub fn word(self, i: u32) -> u32 {
        let mut x = i.wrapping_mul(STEP).wrapping_add(self.first);
        x ^= x >> 16;
        x = x.wrapping_mul(MIX[0]) ^ self.second;
        x ^= x >> 15;
        x = x.wrapping_mul(MIX[1]);
        x ^ (x >> 16)
    }
}

/// [`Row::word`] of as many elements as a vector has.
#[inline(always)]
pub(crate) fn words<S: Simd>(s: S, row: Row, i: S::I32) -> S::I32 {
    let number = |x: u32| s.splat_i32(x as i32);
    let x = s.add_i32(s.mul_i32(i, number(STEP)), number(row.first));
    let x = s.xor_i32(x, s.shr_i32::<16>(x));
    let x = s.xor_i32(s.mul_i32(x, number(MIX[0])), number(row.second));
    let x = s.xor_i32(x, s.shr_i32::<15>(x));
    let x = s.mul_i32(x, number(MIX[1]));
    s.xor_i32(x, s.shr_i32::<16>(x))
}

/// Philox 4x32 with ten rounds.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for _ in 0..10 {
        let wide = |i: usize, x: u32| u64::from(MULTIPLIERS[i]) * u64::from(x);
        let (a, b) = (wide(0, counter[0]), wide(1, counter[2]));
        counter = [
            (b >> 32) as u32 ^ counter[1] ^ key[0],
            b as u32,
            (a >> 32) as u32 ^ counter[3] ^ key[1],
            a as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers that come with the reference implementation.
    #[test]
    fn philox_by_its_known_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    /// As far as dropout is concerned: how many are below a bound, in rows, in columns, and in
    /// neighbours of either kind, by the normal approximation.
    #[test]
    fn rows_and_columns_look_random() {
        const ROWS: u32 = 512;
        const COLUMNS: u32 = 768;
        let key = Key { seed: 12345, step: 7 };
        let rows: Vec<Row> = (0..ROWS).map(|row| key.row(3, row, 0)).collect();
        for rate in [0.1f64, 0.5] {
            let bound = (rate * 4_294_967_296.0) as u32;
            let below = |row: u32, column: u32| rows[row as usize].word(column) < bound;
            let deviations = |hits: u32, of: u32, rate: f64| {
                let of = f64::from(of);
                (f64::from(hits) - of * rate) / (of * rate * (1.0 - rate)).sqrt()
            };
            let mut total = 0;
            let mut worst = 0f64;
            for row in 0..ROWS {
                let hits = (0..COLUMNS).filter(|&column| below(row, column)).count() as u32;
                worst = worst.max(deviations(hits, COLUMNS, rate).abs());
                total += hits;
            }
            for column in 0..COLUMNS {
                let hits = (0..ROWS).filter(|&row| below(row, column)).count() as u32;
                worst = worst.max(deviations(hits, ROWS, rate).abs());
            }
            // The largest of 1280 normal deviations is above 5 once in a thousand times.
            assert!(worst < 5.0, "{worst}");
            assert!(deviations(total, ROWS * COLUMNS, rate).abs() < 4.0);
            for (down, right) in [(1, 0), (0, 1), (1, 1), (0, 16), (2, 0)] {
                let pairs =
                    (0..ROWS - down).flat_map(|r| (0..COLUMNS - right).map(move |c| (r, c)));
                let both =
                    pairs.filter(|&(r, c)| below(r, c) && below(r + down, c + right)).count();
                let of = (ROWS - down) * (COLUMNS - right);
                let off = deviations(both as u32, of, rate * rate);
                assert!(off.abs() < 4.5, "{rate} {down} {right}: {off}");
            }
        }
    }

    #[test]
    fn every_part_of_the_address_counts() {
        let key = Key { seed: 1, step: 2 };
        let base = key.row(3, 4, 5);
        assert_ne!(base, Key { seed: 1 + (1 << 32), ..key }.row(3, 4, 5));
        assert_ne!(base, Key { step: 3, ..key }.row(3, 4, 5));
        assert_ne!(base, key.row(2, 4, 5));
        assert_ne!(base, key.row(3, 5, 5));
        assert_ne!(base, key.row(3, 4, 6));
        assert_eq!(base, key.row(3, 4, 5));
        assert_ne!(base.word(0), base.word(1));
    }
}
