//! What the CPU can do, and which of it is used.
//!
//! Every kernel is called with an [`Isa`]; nothing is decided when frazil is built. `FRAZIL_ISA`
//! lowers the choice, to look for a difference or to measure; it never raises it.

use std::fmt;
use std::str::FromStr;

/// A set of instructions that kernels are written for, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// Plain Rust, the specification.
    Scalar,
    /// AVX2 with FMA and F16C, 8 lanes.
    Avx2,
    /// AVX-512 F, BW, DQ and VL, 16 lanes.
    Avx512,
    /// The same with VNNI, the dot products of bytes.
    Avx512Vnni,
}

/// A name in `FRAZIL_ISA` that is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownIsa {
    /// What was given.
    pub name: String,
}

impl Isa {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Avx512Vnni];

    /// The best one of this machine.
    pub fn detect() -> Self {
        Self::available().last().unwrap_or(Self::Scalar)
    }

    /// The best one of this machine that `FRAZIL_ISA` allows.
    pub fn chosen() -> Result<Self, UnknownIsa> {
        match std::env::var("FRAZIL_ISA") {
            Ok(name) if !name.is_empty() => Ok(name.parse::<Self>()?.lowered()),
            _ => Ok(Self::detect()),
        }
    }

    /// Those that this machine can run, in ascending order.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// This one, or the best below it that the machine can run.
    pub fn lowered(self) -> Self {
        Self::available().take_while(|&isa| isa <= self).last().unwrap_or(Self::Scalar)
    }

    /// Whether this machine can run it.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = || has!("avx2") && has!("fma") && has!("f16c");
            let avx512 =
                || has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            match self {
                Self::Scalar => true,
                Self::Avx2 => avx2(),
                Self::Avx512 => avx2() && avx512(),
                Self::Avx512Vnni => avx2() && avx512() && has!("avx512vnni"),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Scalar
        }
    }

    /// Numbers of 32 bits in a vector.
    pub fn lanes(self) -> usize {
        match self {
            Self::Scalar => 1,
            Self::Avx2 => 8,
            Self::Avx512 | Self::Avx512Vnni => 16,
        }
    }

    /// The name in `FRAZIL_ISA`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Avx512Vnni => "avx512vnni",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        let known = Self::ALL.into_iter().find(|isa| isa.name().eq_ignore_ascii_case(name));
        known.ok_or_else(|| UnknownIsa { name: name.to_owned() })
    }
}

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Isa::ALL.map(|isa| format!("`{isa}`")).join(", ");
        write!(f, "`{}` is no instruction set; there are {names}", self.name)
    }
}

impl std::error::Error for UnknownIsa {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_again() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().parse(), Ok(isa));
        }
        let error = "avx1024".parse::<Isa>().unwrap_err();
        assert!(
            error.to_string().starts_with("`avx1024` is no instruction set; there are `scalar`")
        );
    }

    #[test]
    fn what_is_missing_is_lowered() {
        assert!(Isa::Scalar.is_available());
        for isa in Isa::ALL {
            assert!(isa.lowered() <= isa && isa.lowered().is_available());
        }
        assert_eq!(Isa::detect(), Isa::Avx512Vnni.lowered());
    }
}
