//! Numbers that look random, the same from the same seed (SplitMix64: Steele et al., OOPSLA 2014).

/// A source of numbers.
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A time with an exponential distribution, at least 1.
    pub fn exponential_us(&mut self, mean_us: f64) -> u64 {
        // 53 bits, never 0.
        let part = ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        (-part.ln() * mean_us) as u64 + 1
    }
}
