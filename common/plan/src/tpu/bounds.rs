//! The shape of a group of chips or hosts: `2,2,1`.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// Numbers of chips, or of hosts, along three axes; none is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bounds([u16; 3]);

impl Bounds {
    /// One.
    pub const ONE: Self = Self([1, 1, 1]);

    /// Bounds along three axes; 0 counts as 1.
    #[must_use]
    pub const fn new(x: u16, y: u16, z: u16) -> Self {
        const fn some(n: u16) -> u16 {
            if n == 0 { 1 } else { n }
        }
        Self([some(x), some(y), some(z)])
    }

    /// Reads `2,2,1` (libtpu's variables) and `2x2x1` (a topology of GKE); axes at the end may be missing.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut axes = [1; 3];
        let separator = if text.contains('x') { 'x' } else { ',' };
        let mut words = text.trim().split(separator);
        for axis in &mut axes {
            let Some(word) = words.next() else { break };
            *axis = word.trim().parse().ok().filter(|n| *n > 0)?;
        }
        (words.next().is_none() && !text.trim().is_empty()).then_some(Self(axes))
    }

    /// The bounds of a host with so many chips: 1, 4 or 8 (the machine types of v2 to v6e).
    #[must_use]
    pub const fn of_chips(chips: u32) -> Option<Self> {
        match chips {
            1 => Some(Self::ONE),
            2 => Some(Self([1, 2, 1])),
            4 => Some(Self([2, 2, 1])),
            8 => Some(Self([2, 4, 1])),
            _ => None,
        }
    }

    /// How many chips or hosts they are.
    #[must_use]
    pub fn count(self) -> u32 {
        self.0.iter().fold(1, |all: u32, axis| all.saturating_mul(u32::from(*axis)))
    }

    /// The shape of as many of `other` as this has parts.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let ([a, b, c], [d, e, f]) = (self.0, other.0);
        Self([a.saturating_mul(d), b.saturating_mul(e), c.saturating_mul(f)])
    }

    /// How often `part` fits along each axis; `None`: it does not.
    #[must_use]
    pub fn divided_by(self, part: Self) -> Option<Self> {
        let along = |at: usize| {
            let (whole, part) = (*self.0.get(at)?, *part.0.get(at)?);
            whole.checked_rem(part).filter(|rest| *rest == 0)?;
            whole.checked_div(part)
        };
        Some(Self([along(0)?, along(1)?, along(2)?]))
    }

    /// `2,2,1`
    #[must_use]
    pub fn to_text(self) -> String {
        alloc::format!("{self}")
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x},{y},{z}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_three_numbers_above_0() {
        assert_eq!(Bounds::parse("2,2,1"), Some(Bounds::new(2, 2, 1)));
        assert_eq!(Bounds::parse("2x4"), Some(Bounds::new(2, 4, 1)));
        assert_eq!(Bounds::parse(" 16x16x1 "), Some(Bounds::new(16, 16, 1)));
        for wrong in ["", " ", "2,2,1,1", "0,1,1", "-1,1,1", "a", "2,,1", "70000,1,1"] {
            assert_eq!(Bounds::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn parts_fit_along_each_axis_or_not() {
        let host = Bounds::new(2, 2, 1);
        assert_eq!(host.divided_by(Bounds::new(1, 2, 1)), Some(Bounds::new(2, 1, 1)));
        assert_eq!(host.divided_by(Bounds::new(1, 1, 2)), None);
        assert_eq!(host.times(Bounds::new(1, 1, 4)).count(), 16);
        assert_eq!([1, 4, 8].map(|n| Bounds::of_chips(n).map(Bounds::count)), [Some(1), Some(4), Some(8)]);
        assert_eq!(Bounds::of_chips(3), None);
    }
}
