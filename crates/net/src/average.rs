//! A moving average that forgets exponentially.

/// Weighted mean of samples: one that is a window old counts 1/e of the newest. Right from the
/// first sample on, as what it has not seen yet has no weight.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Average {
    sum: f64,
    weight: f64,
}

/// How much of the past is left a step later.
pub fn kept(step_us: u64, window_us: u64) -> f64 {
    (-(step_us as f64) / window_us as f64).exp()
}

impl Average {
    /// Takes a sample in; `keep` is what `kept` says of the step since the last one.
    pub fn add(&mut self, sample: f64, keep: f64) {
        self.sum = self.sum * keep + sample * (1.0 - keep);
        self.weight = self.weight * keep + (1.0 - keep);
    }

    /// The mean; 0 before the first sample.
    pub fn get(self) -> f64 {
        if self.weight > 0.0 { self.sum / self.weight } else { 0.0 }
    }

    /// The sum within the window, and how much of the window has been seen.
    pub fn seen(self) -> (f64, f64) {
        (self.sum, self.weight)
    }

    /// How many windows of samples that all count the same would be as certain: at most two.
    pub fn windows(self) -> f64 {
        2.0 * self.weight / (2.0 - self.weight)
    }

    /// Moves the mean to where it will be, by what has just been decided; never below 0.
    pub fn shift(&mut self, by: f64) {
        self.sum = (self.sum + by * self.weight).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_is_the_mean() {
        let mut average = Average::default();
        assert_eq!(average.get(), 0.0);
        average.add(7.0, kept(10, 200));
        assert!((average.get() - 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_later_a_sample_counts_a_third_of_the_newest() {
        let mut average = Average::default();
        (0..1000).for_each(|_| average.add(1.0, kept(20, 200)));
        (0..10).for_each(|_| average.add(0.0, kept(20, 200)));
        assert!((average.get() - (-1.0_f64).exp()).abs() < 1e-3, "{average:?}");
    }

    #[test]
    fn what_has_been_seen_grows_to_two_windows() {
        let mut average = Average::default();
        average.add(1.0, kept(1, 100));
        assert!((average.windows() - 0.01).abs() < 1e-3);
        (0..2000).for_each(|_| average.add(1.0, kept(1, 100)));
        assert!((average.windows() - 2.0).abs() < 1e-3);
    }

    #[test]
    fn a_shift_moves_the_mean_and_stops_at_nothing() {
        let mut average = Average::default();
        average.add(4.0, 0.5);
        average.shift(2.0);
        assert!((average.get() - 6.0).abs() < 1e-9);
        average.shift(-9.0);
        assert_eq!(average.get(), 0.0);
    }
}
