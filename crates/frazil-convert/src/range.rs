//! Steps of bytes as the range of numbers that they cover, which is how TensorFlow and OpenVINO
//! say it.

use frazil_graph::op::Steps;

/// The numbers that the first and the last step stand for, and how many steps there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub least: f32,
    pub most: f32,
    /// 256 for all bytes, 255 for those from -127 to 127.
    pub levels: u32,
}

impl Range {
    /// `None` where every row has a range of its own, or nothing has.
    pub fn of(steps: Steps) -> Option<Self> {
        match steps {
            Steps::Tensor { scale, zero } => {
                let zero = f32::from(zero);
                Some(Self { least: -zero * scale, most: (255.0 - zero) * scale, levels: 256 })
            }
            Steps::Symmetric { scale } => {
                Some(Self { least: -127.0 * scale, most: 127.0 * scale, levels: 255 })
            }
            Steps::Rows | Steps::Watched { .. } => None,
        }
    }

    /// What a step of one stands for, and which step stands for 0; `None` if there is none that
    /// does.
    pub fn scale_and_zero(self) -> Option<(f32, f32)> {
        // What rounding may have moved an end by, in steps: 255 of them, each by half of an ulp.
        const ROUNDING: f32 = 1e-4;
        let Self { least, most, levels } = self;
        let scale = (most - least) / (levels.checked_sub(1)? as f32);
        let is_scale = scale.is_normal() && scale > 0.0 && least <= 0.0 && most >= 0.0;
        let zero = (-least / scale).round();
        (is_scale && (-least / scale - zero).abs() <= ROUNDING).then_some((scale, zero))
    }

    /// The steps of this range: `None` if no step stands for 0, or another number of steps is
    /// meant than bytes have.
    pub fn steps(self) -> Option<Steps> {
        let (scale, zero) = self.scale_and_zero()?;
        match self.levels {
            256 => Some(Steps::Tensor { scale, zero: zero as u8 }),
            255 if zero == 127.0 => Some(Steps::Symmetric { scale }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_of_16_bits_come_back() {
        for i in 0..1000u32 {
            let scale = f32::from_bits(0x3c00_0000 + i * 0x0001_3700);
            for zero in [0, 1, 77, 128, 254, 255] {
                let steps = Steps::Tensor { scale, zero };
                assert_eq!(Range::of(steps).unwrap().steps(), Some(steps));
            }
            let steps = Steps::Symmetric { scale };
            assert_eq!(Range::of(steps).unwrap().steps(), Some(steps));
        }
    }

    #[test]
    fn any_scale_comes_back_to_a_millionth() {
        for i in 0..1000u32 {
            let scale = f32::from_bits(0x3c00_0000 + i * 0x0001_3713);
            let range = Range::of(Steps::Tensor { scale, zero: 77 }).unwrap();
            let Some(Steps::Tensor { scale: back, zero: 77 }) = range.steps() else {
                panic!("{range:?}")
            };
            assert!((back / scale - 1.0).abs() < 1e-6, "{back} {scale}");
        }
    }

    #[test]
    fn ranges_without_a_step_for_zero_are_none() {
        let steps = |least, most, levels| Range { least, most, levels }.steps();
        assert_eq!(steps(-1.004, 254.0, 256), None);
        assert_eq!(steps(1.0, 256.0, 256), None);
        assert_eq!(steps(-255.0, 0.0, 256), Some(Steps::Tensor { scale: 1.0, zero: 255 }));
        assert_eq!(steps(-128.0, 127.0, 256), Some(Steps::Tensor { scale: 1.0, zero: 128 }));
        assert_eq!(steps(-127.0, 127.0, 255), Some(Steps::Symmetric { scale: 1.0 }));
        assert_eq!(steps(-126.0, 128.0, 255), None);
        for (least, most) in [(0.0, 0.0), (f32::NAN, 1.0), (0.0, f32::INFINITY), (3.0, -3.0)] {
            assert_eq!(steps(least, most, 256), None);
        }
        assert_eq!(steps(0.0, 15.0, 16), None);
        assert_eq!(steps(0.0, 15.0, 0), None);
    }
}
