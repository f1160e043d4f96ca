//! Combines many measurements into one figure.
//!
//! Disturbances only ever make a measurement longer. So the figure is the lower quartile of all measurements: it
//! represents the undisturbed ones as long as a quarter of them are undisturbed, and unlike the minimum it does not
//! depend on a single one.

/// Measurements of one thing, by round.
#[derive(Debug, Default)]
pub(super) struct Samples {
    rounds: Vec<Vec<f64>>,
}

/// The comparison of two figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Compared {
    /// Over all rounds.
    pub(super) value: f64,
    /// By round: the middle half lies between these.
    pub(super) spread: (f64, f64),
}

impl Samples {
    /// Adds the measurements of one round.
    pub(super) fn push(&mut self, round: Vec<f64>) {
        self.rounds.push(round);
    }

    /// The figure over all rounds.
    pub(super) fn figure(&self) -> f64 {
        quantile(self.rounds.concat(), 0.25)
    }

    /// Applies `compare` to the figures of `self` and `other`: over all rounds, and round by round.
    pub(super) fn compared(&self, other: &Self, compare: impl Fn(f64, f64) -> f64) -> Compared {
        let value = compare(self.figure(), other.figure());
        Compared { value, spread: middle_half(self.by_round(other, compare)) }
    }

    /// Like [`compared`](Self::compared), for a small difference between long measurements: round by round, because the
    /// speed of the machine itself changes from minute to minute.
    pub(super) fn compared_by_round(&self, other: &Self, compare: impl Fn(f64, f64) -> f64) -> Compared {
        let by_round = self.by_round(other, compare);
        Compared { value: quantile(by_round.clone(), 0.5), spread: middle_half(by_round) }
    }

    fn by_round(&self, other: &Self, compare: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let low = |round: &Vec<f64>| quantile(round.clone(), 0.25);
        self.rounds.iter().zip(&other.rounds).map(|(own, other)| compare(low(own), low(other))).collect()
    }

    /// The ratio of this to `other`.
    pub(super) fn ratio(&self, other: &Self) -> Compared {
        self.compared(other, |own, other| own / other)
    }
}

/// The quartiles.
pub(super) fn middle_half(values: Vec<f64>) -> (f64, f64) {
    (quantile(values.clone(), 0.25), quantile(values, 0.75))
}

/// The value below which this share of the values lies, interpolated; NaN if there are none.
pub(super) fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = values.len().saturating_sub(1) as f64 * share;
    let at = |place: f64| values.get(place as usize).copied().unwrap_or(f64::NAN);
    let low = at(place.floor());
    let high = at(place.ceil());
    low + (high - low) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_the_values() {
        assert_eq!(quantile(vec![3.0, 1.0, 2.0], 0.5), 2.0);
        assert_eq!(quantile(vec![1.0, 2.0], 0.25), 1.25);
        assert_eq!(quantile(vec![7.0], 0.75), 7.0);
        assert!(quantile(Vec::new(), 0.5).is_nan());
    }

    #[test]
    fn a_disturbed_round_shows_in_the_spread_only() {
        let mut own = Samples::default();
        let mut other = Samples::default();
        for disturbance in [1.0, 1.0, 1.0, 5.0] {
            own.push([2.2; 4].map(|time| time * disturbance).to_vec());
            other.push(vec![2.0; 4]);
        }
        let ratio = own.ratio(&other);
        assert!((ratio.value - 1.1).abs() < 1e-9, "{ratio:?}");
        assert!(ratio.spread.1 > 2.0, "{ratio:?}");
    }
}
