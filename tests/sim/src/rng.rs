//! Randomness that a seed fixes for ever: splitmix64.

/// A stream of numbers.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring streams.
        let mut rng = Self(seed ^ 0x5851_f42d_4c95_7f2d);
        rng.next();
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 where there is none.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next().checked_rem(limit).unwrap_or(0)
    }

    /// A number from `low` to `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in so many of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// A random element of a list.
    pub(crate) fn pick<T: Copy>(&mut self, from: &[T; 4]) -> T {
        let [a, b, c, d] = *from;
        match self.below(4) {
            0 => a,
            1 => b,
            2 => c,
            _ => d,
        }
    }

    /// A time in nanoseconds from `low` to `high` microseconds, short ones as likely as long ones: most races are short.
    pub(crate) fn micros(&mut self, low: u64, high: u64) -> u64 {
        let high = if self.chance(50) { low + (high - low) / 20 } else { high };
        self.between(low * 1000, high * 1000)
    }
}
