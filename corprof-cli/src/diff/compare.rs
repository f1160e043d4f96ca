//! The rows of two recordings, side by side.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Result, bail};

use super::statistics::{Difference, Estimate, Normalised, Recording, block_count, correct_for_many};
use crate::recording::picture::Picture;
use crate::recording::table::{By, Subjects};

/// Numbers with a smaller share in both recordings are not compared: chance is all that they can show.
const LEAST_SHARE: f64 = 0.002;
/// The least number of samples of a recording of which anything is said.
const LEAST_SAMPLES: u64 = 100;

/// What a row is compared by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Compared {
    pub(crate) base: f64,
    pub(crate) new: f64,
    pub(crate) difference: Difference,
    /// Whether it has a share that can be compared: see [`LEAST_SHARE`].
    is_tested: bool,
    pub(crate) is_changed: bool,
}

/// A method, or another subject, of two recordings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) own: Compared,
    pub(crate) total: Compared,
}

/// When a difference is called a change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    /// The chance of one mistake among all rows, at most.
    pub(crate) chance: f64,
    /// The part of the larger number that it is at least.
    pub(crate) least: f64,
}

/// The weights of the rows of a recording in its blocks.
struct Blocks {
    recording: Recording,
    /// Own and total by name.
    rows: HashMap<String, [Weights; 2]>,
}

#[derive(Debug, Clone, Default)]
struct Weights {
    blocks: Vec<f64>,
    samples: u64,
}

impl Weights {
    fn add(&mut self, blocks: usize, block: usize, weight: f64) {
        if self.blocks.is_empty() {
            self.blocks = vec![0.0; blocks];
        }
        if let Some(sum) = self.blocks.get_mut(block) {
            *sum += weight;
        }
        self.samples += 1;
    }
}

/// Compares two recordings.
///
/// # Errors
/// If one has too few samples, or too many to keep their times.
pub(crate) fn compare(
    [base, new]: [&Picture; 2],
    by: &By,
    only_mine: bool,
    normalised: Normalised,
    rule: Rule,
) -> Result<Vec<Row>> {
    let base = Blocks::new(base, by, only_mine, normalised)?;
    let new = Blocks::new(new, by, only_mine, normalised)?;
    let mut names: Vec<&String> = base.rows.keys().chain(new.rows.keys()).collect();
    names.sort();
    names.dedup();
    let is_tested = |name: &String, which: usize| base.share(name, which).max(new.share(name, which)) >= LEAST_SHARE;
    names.retain(|name| is_tested(name, 1));
    let compared = |name: &String, which: usize| {
        let one = base.estimate(name, which);
        let other = new.estimate(name, which);
        let difference = one.difference(&other);
        let is_tested = is_tested(name, which);
        Compared { base: one.value, new: other.value, difference, is_tested, is_changed: false }
    };
    let mut rows: Vec<Row> = names
        .into_iter()
        .map(|name| Row { name: name.clone(), own: compared(name, 0), total: compared(name, 1) })
        .collect();
    decide(&mut rows, rule);
    rows.sort_by(|a, b| order(b).partial_cmp(&order(a)).unwrap_or(std::cmp::Ordering::Equal));
    Ok(rows)
}

/// Own changes first, then the largest; what has not changed by how near to a change it is.
fn order(row: &Row) -> (bool, bool, f64) {
    let is_changed = row.own.is_changed || row.total.is_changed;
    let shown = row.shown().1;
    let size = if is_changed { shown.difference.value.abs() } else { shown.distance() };
    (row.own.is_changed, row.total.is_changed, size)
}

impl Row {
    /// The number that says the most, and whether it is the method's own: an own change says where, and those of
    /// callers follow from it.
    pub(crate) fn shown(&self) -> (bool, &Compared) {
        let is_own = match (self.own.is_changed, self.total.is_changed) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.own.distance() >= self.total.distance(),
        };
        (is_own, if is_own { &self.own } else { &self.total })
    }
}

impl Compared {
    /// The difference in parts of its error.
    fn distance(&self) -> f64 {
        if self.difference.error > 0.0 { self.difference.value.abs() / self.difference.error } else { 0.0 }
    }

    /// What tells one test from another: comparisons of the same samples have the same numbers.
    fn test(&self) -> [u64; 4] {
        [self.base, self.new, self.difference.error, self.difference.chance].map(f64::to_bits)
    }
}

/// Decides which rows have changed.
fn decide(rows: &mut [Row], rule: Rule) {
    let tested = rows.iter().flat_map(|row| [row.own, row.total]).filter(|compared| compared.is_tested);
    // A method that calls nothing has one number twice, and callers that do nothing else share the number of what they
    // call. Each is one test, and a deep stack does not make a change less certain.
    let mut tests: Vec<([u64; 4], f64)> =
        tested.map(|compared| (compared.test(), compared.difference.chance)).collect();
    tests.sort_by_key(|(test, _)| *test);
    tests.dedup_by_key(|(test, _)| *test);
    let mut chances: Vec<f64> = tests.iter().map(|(_, chance)| *chance).collect();
    correct_for_many(&mut chances);
    let corrected: HashMap<[u64; 4], f64> = tests.into_iter().map(|(test, _)| test).zip(chances).collect();
    for compared in rows.iter_mut().flat_map(|row| [&mut row.own, &mut row.total]) {
        let chance = corrected.get(&compared.test()).copied().filter(|_| compared.is_tested).unwrap_or(1.0);
        compared.difference.chance = chance;
        let is_large = compared.difference.value.abs() >= rule.least * compared.base.max(compared.new);
        compared.is_changed = chance < rule.chance && is_large;
    }
}

impl Blocks {
    fn new(picture: &Picture, by: &By, only_mine: bool, normalised: Normalised) -> Result<Self> {
        let file = picture.files.first().map(|file| file.path.display().to_string()).unwrap_or_default();
        let samples = picture.total().samples;
        let Some(timed) = &picture.timed else {
            bail!(
                "{file} has too many samples ({samples}) to be compared: leave fewer by --from and --to, or --thread"
            );
        };
        if samples < LEAST_SAMPLES {
            bail!("{file} has {samples} samples, too few to compare: record longer, or leave more of them");
        }
        let first = timed.iter().map(|sample| sample.at).min().unwrap_or_default();
        let last = timed.iter().map(|sample| sample.at).max().unwrap_or_default();
        let length = last.saturating_sub(first).max(Duration::from_nanos(1)).as_secs_f64();
        let count = block_count(samples);
        let subjects = Subjects::new(picture, by, only_mine);
        let mut rows: Vec<[Weights; 2]> = vec![Default::default(); subjects.names.len()];
        let mut all = vec![0.0; count];
        let mut on_stack: Vec<usize> = Vec::new();
        for sample in timed {
            let place = sample.at.saturating_sub(first).as_secs_f64() / length;
            let block = ((place * count as f64) as usize).min(count - 1);
            let weight = sample.weight as f64;
            if let Some(all) = all.get_mut(block) {
                *all += weight;
            }
            on_stack.clear();
            for frame in picture.frames_of(sample.stack) {
                if let Some(subject) = subjects.of_frame.get(frame as usize).copied().flatten()
                    && !on_stack.contains(&subject)
                {
                    on_stack.push(subject);
                }
            }
            if on_stack.is_empty() {
                on_stack.push(subjects.none);
            }
            for (depth, subject) in on_stack.iter().enumerate() {
                let Some([own, total]) = rows.get_mut(*subject) else { continue };
                total.add(count, block, weight);
                if depth == 0 {
                    own.add(count, block, weight);
                }
            }
        }
        let rows = subjects.names.into_iter().zip(rows).filter(|(_, [_, total])| total.samples > 0).collect();
        Ok(Self { recording: Recording { all, samples, seconds: length, normalised }, rows })
    }

    /// The part of the whole that a row has itself (0), or with what it calls (1).
    fn share(&self, name: &str, which: usize) -> f64 {
        let weights = self.rows.get(name).and_then(|row| row.get(which));
        let sum: f64 = weights.map_or(0.0, |weights| weights.blocks.iter().sum());
        sum / self.recording.all.iter().sum::<f64>().max(f64::MIN_POSITIVE)
    }

    fn estimate(&self, name: &str, which: usize) -> Estimate {
        let weights = self.rows.get(name).and_then(|row| row.get(which)).filter(|weights| weights.samples > 0);
        let none = vec![0.0; self.recording.all.len()];
        let (blocks, samples) = weights.map_or((&none, 0), |weights| (&weights.blocks, weights.samples));
        Estimate::new(blocks, samples, &self.recording)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a share of a half that has become a bit larger.
    fn compared(chance: f64, is_tested: bool) -> Compared {
        let difference = Difference { value: 0.03, chance, error: 0.015 };
        Compared { base: 0.5, new: 0.53, difference, is_tested, is_changed: false }
    }

    #[test]
    fn a_number_that_many_rows_share_is_one_test() {
        let rule = Rule { chance: 0.001, least: 0.02 };
        let row = |name: String, own, total| Row { name, own, total };
        let untested = compared(1.0, false);
        let mut rows: Vec<Row> =
            (0..30).map(|depth| row(format!("Caller{depth}"), untested, compared(0.0004, true))).collect();
        rows.push(row("Leaf".to_owned(), compared(0.0004, true), compared(0.0004, true)));
        rows.push(row("Other".to_owned(), untested, compared(0.3, true)));
        decide(&mut rows, rule);
        assert!(rows.iter().take(31).all(|row| row.total.is_changed), "{rows:?}");
        assert!(rows.iter().take(31).all(|row| (row.total.difference.chance - 0.0008).abs() < 1e-9), "{rows:?}");
        assert!(!rows[31].total.is_changed && !rows[0].own.is_changed);
        // As many numbers of their own are as many tests.
        let mut others: Vec<Row> = (0..30_i32)
            .map(|number| row(format!("Method{number}"), untested, compared(0.0004 + f64::from(number) * 1e-9, true)))
            .collect();
        decide(&mut others, rule);
        assert!(others.iter().all(|row| !row.total.is_changed), "{others:?}");
    }
}
