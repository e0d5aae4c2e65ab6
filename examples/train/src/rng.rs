//! Random numbers that are the same on every rank and every machine, so that all copies of the network start alike and see the same batches.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, good enough to shuffle and to initialise.
pub(crate) struct Rng(u64);

impl Rng {
    /// Numbers of a seed; each `stream` of one seed is independent of the others.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut rng = Self(seed);
        // Mixing the seed first keeps (seed, stream + 1) apart from (seed + 1, stream).
        rng.0 = rng.next() ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        rng
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number in `-limit..limit`.
    pub(crate) fn symmetric(&mut self, limit: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (2.0 * unit - 1.0) * limit
    }

    /// Brings the items into a random order (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // The remainder is at most `last`, so the conversion back to usize cannot fail.
            let other = usize::try_from(self.next() % (last as u64 + 1)).unwrap_or(last);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn a_seed_gives_one_order_and_another_seed_or_stream_gives_another() {
        let order = |seed, stream| {
            let mut items: Vec<u32> = (0..100).collect();
            Rng::new(seed, stream).shuffle(&mut items);
            items
        };
        assert_eq!(order(1, 1), order(1, 1));
        assert_ne!(order(1, 1), order(1, 2));
        assert_ne!(order(1, 2), order(2, 1));
        let mut sorted = order(1, 1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_stay_within_the_limit_and_balance() {
        let mut rng = Rng::new(7, 0);
        let numbers: Vec<f64> = (0..10_000).map(|_| rng.symmetric(0.5)).collect();
        assert!(numbers.iter().all(|n| n.abs() <= 0.5));
        assert!((numbers.iter().sum::<f64>() / 10_000.0).abs() < 0.02);
    }
}
