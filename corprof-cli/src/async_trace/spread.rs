//! Durations of something that happens often: how many, their sum, and percentiles.

use hdrhistogram::Histogram;

/// Durations, in ticks.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    count: u64,
    sum: u64,
    longest: u64,
    /// Within 1 %. It grows with what it gets.
    histogram: Option<Histogram<u64>>,
}

impl Default for Spread {
    fn default() -> Self {
        Self { count: 0, sum: 0, longest: 0, histogram: Histogram::new(2).ok() }
    }
}

impl Spread {
    pub(crate) fn add(&mut self, ticks: u64) {
        self.count += 1;
        self.sum = self.sum.saturating_add(ticks);
        self.longest = self.longest.max(ticks);
        if let Some(histogram) = &mut self.histogram {
            let _ = histogram.record(ticks); // without memory for it, the percentile lacks this one
        }
    }

    /// Adds those of another one.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
        if let (Some(histogram), Some(others)) = (&mut self.histogram, &other.histogram) {
            let _ = histogram.add(others); // as above
        }
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or_default()
    }

    /// 99 of a hundred are at most this long.
    pub(crate) fn most(&self) -> u64 {
        let most = self.histogram.as_ref().map(|histogram| histogram.value_at_quantile(0.99));
        // It is the end of an interval of the histogram, which none may have reached.
        most.unwrap_or_default().min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_within_a_hundredth() {
        let mut spread = Spread::default();
        for ticks in 1..=1000 {
            spread.add(ticks * 1_000_000);
        }
        assert_eq!((spread.count(), spread.sum(), spread.mean()), (1000, 500_500_000_000, 500_500_000));
        let most = spread.most();
        assert!((980_000_000..=1_000_000_000).contains(&most), "{most}");
        let mut both = Spread::default();
        both.merge(&spread);
        both.merge(&spread);
        assert_eq!((both.count(), both.mean(), both.most()), (2000, spread.mean(), spread.most()));
        let mut one = Spread::default();
        one.add(1_805_800_001);
        assert_eq!(one.most(), 1_805_800_001);
        assert_eq!((Spread::default().mean(), Spread::default().most()), (0, 0));
    }
}
