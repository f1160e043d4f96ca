//! Whether a difference is more than chance.
//!
//! Samples are not independent: those of one long call come together. So each recording is cut into blocks of time, and
//! what its numbers vary by is found from how they differ between its blocks, which has all of that. Blocks that follow
//! each other may still be alike (a call that is longer than a block, a phase of the program): their correlation widens
//! the variance. Welch's test then says how likely it is that chance alone makes a difference as large.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The numbers of blocks, and the samples that each should have at least.
const MOST_BLOCKS: usize = 40;
const LEAST_BLOCKS: usize = 8;
const SAMPLES_OF_A_BLOCK: u64 = 25;

/// Below so many samples in a row, its blocks say too little, and the variance is at least that of independent samples.
const FEW: f64 = 200.0;
/// The least part of the variance of independent samples that is believed.
const LEAST_VARIANCE: f64 = 0.05;

/// What numbers are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Normalised {
    /// Shares of all samples
    Count,
    /// Weight for each second of the recording
    Time,
    /// The weights as they are, for recordings of the same work
    None,
}

/// The blocks that a recording of so many samples is cut into.
pub(crate) fn block_count(samples: u64) -> usize {
    usize::try_from(samples / SAMPLES_OF_A_BLOCK).unwrap_or(MOST_BLOCKS).clamp(LEAST_BLOCKS, MOST_BLOCKS)
}

/// What all rows of a recording have in common.
#[derive(Debug, Clone)]
pub(crate) struct Recording {
    /// The weight of all samples, by block.
    pub(crate) all: Vec<f64>,
    pub(crate) samples: u64,
    pub(crate) seconds: f64,
    pub(crate) normalised: Normalised,
}

/// A number of a recording, with what it varies by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    variance: f64,
    /// Degrees of freedom.
    freedom: f64,
}

impl Estimate {
    /// Of a row with these weights in the blocks, and so many samples.
    pub(crate) fn new(blocks: &[f64], samples: u64, recording: &Recording) -> Self {
        let Recording { all, samples: all_samples, seconds, normalised } = recording;
        let count = blocks.len() as f64;
        let sum: f64 = blocks.iter().sum();
        let whole: f64 = all.iter().sum();
        let share_of_whole = if whole > 0.0 { sum / whole } else { 0.0 };
        let of_all = || all.iter().map(|all| share_of_whole * all).collect();
        let (expected, scale): (Vec<f64>, f64) = match normalised {
            Normalised::Count => (of_all(), 1.0 / whole.max(f64::MIN_POSITIVE)),
            Normalised::Time => (vec![sum / count; blocks.len()], 1.0 / seconds.max(1e-9)),
            // A busy machine has the same work take longer in one block than in another, and the work is the same.
            Normalised::None => (of_all(), 1.0),
        };
        let rests: Vec<f64> = blocks.iter().zip(&expected).map(|(block, expected)| block - expected).collect();
        let squares: f64 = rests.iter().map(|rest| rest * rest).sum();
        let between = squares * count / (count - 1.0);
        let following: f64 = rests.iter().zip(rests.iter().skip(1)).map(|(one, next)| one * next).sum();
        let correlation = if squares > 0.0 { (following / squares).clamp(0.0, 0.8) } else { 0.0 };
        let correlated = between * (1.0 + correlation) / (1.0 - correlation);
        // That of as many independent samples.
        let number = samples as f64;
        let weight_of_any = whole / (*all_samples as f64).max(1.0);
        let weight_of_one = if samples > 0 { sum / number } else { weight_of_any };
        let share = if *normalised == Normalised::Time { 0.0 } else { share_of_whole };
        let independent = number.max(1.0) * weight_of_one * weight_of_one * (1.0 - share);
        let least = if number < FEW { independent } else { independent * LEAST_VARIANCE };
        let of_the_whole = match normalised {
            Normalised::None => share_of_whole * share_of_whole * variance_of_the_whole(recording),
            Normalised::Count | Normalised::Time => 0.0,
        };
        let variance = correlated.max(least) + of_the_whole;
        Self { value: sum * scale, variance: variance * scale * scale, freedom: count - 1.0 }
    }

    /// The difference of another one from it.
    pub(crate) fn difference(&self, new: &Self) -> Difference {
        let variance = self.variance + new.variance;
        let error = variance.sqrt();
        let difference = new.value - self.value;
        let part = |estimate: &Self| estimate.variance * estimate.variance / estimate.freedom;
        let freedom = (variance * variance / (part(self) + part(new)).max(f64::MIN_POSITIVE)).max(1.0);
        let Ok(student) = StudentsT::new(0.0, 1.0, freedom) else {
            return Difference { value: difference, chance: 1.0, error: 0.0 };
        };
        let chance = if error > 0.0 { 2.0 * student.cdf(-(difference / error).abs()) } else { 1.0 };
        // 95 of 100 such differences are that near to the truth.
        Difference { value: difference, chance, error: error * student.inverse_cdf(0.975) }
    }
}

/// How much the weight of the same work varies because it is sampled: by what its blocks differ, and no more than as
/// many independent samples do, as blocks differ by what else the machine has to do, too.
fn variance_of_the_whole(recording: &Recording) -> f64 {
    let count = recording.all.len() as f64;
    let whole: f64 = recording.all.iter().sum();
    let mean = whole / count;
    let squares: f64 = recording.all.iter().map(|block| (block - mean) * (block - mean)).sum();
    let between = squares * count / (count - 1.0);
    let independent = whole * whole / (recording.samples as f64).max(1.0);
    between.min(independent)
}

/// The difference of two numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Difference {
    pub(crate) value: f64,
    /// How likely chance alone makes it as large.
    pub(crate) chance: f64,
    /// With 95 %, the truth is no further away.
    pub(crate) error: f64,
}

/// Makes the chances of single rows those that any of all rows is taken for changed by mistake (Holm's method).
pub(crate) fn correct_for_many(chances: &mut [f64]) {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances.get(*a).partial_cmp(&chances.get(*b)).unwrap_or(std::cmp::Ordering::Equal));
    let mut largest: f64 = 0.0;
    let count = chances.len();
    for (rank, place) in order.into_iter().enumerate() {
        if let Some(chance) = chances.get_mut(place) {
            largest = largest.max((*chance * (count - rank) as f64).min(1.0));
            *chance = largest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_counts_by_what_the_blocks_vary() {
        let recording =
            Recording { all: vec![100.0; 20], samples: 2_000, seconds: 20.0, normalised: Normalised::Count };
        let of = |blocks: &[f64]| Estimate::new(blocks, 1_000, &recording);
        let steady = of(&[50.0; 20]);
        let bursts: Vec<f64> = (0..20).map(|block| if block % 4 == 0 { 100.0 } else { 33.3 }).collect();
        assert!((of(&bursts).value - 0.5).abs() < 0.001);
        let more = of(&[56.0; 20]);
        assert!(steady.difference(&more).chance < 1e-6);
        assert!(of(&bursts).difference(&more).chance > 0.1, "{:?}", of(&bursts).difference(&more));
        assert!(steady.difference(&steady).chance > 0.99);
    }

    #[test]
    fn chances_of_many_rows_are_larger() {
        let mut chances = [0.04, 0.001, 0.5];
        correct_for_many(&mut chances);
        assert!(chances.iter().zip([0.08, 0.003, 0.5]).all(|(found, expected)| (found - expected).abs() < 1e-12));
    }
}
