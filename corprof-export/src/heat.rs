//! When samples were: a heat map or a timeline that the page shows above the flame graph.

use std::io::{self, Write};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::{StackId, ThreadId};

/// Entries up to here have their weights as they are.
const MOST_EXACT: u64 = 100_000;
/// What a mean weight is in the page if there are more entries, so that most are one byte.
const MEAN: u64 = 64;

/// The weight of a thread's stack in a cell of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heat {
    /// The number of the cell, since the beginning.
    pub cell: u32,
    /// The thread.
    pub thread: ThreadId,
    /// The stack.
    pub stack: StackId,
    /// Its weight in the cell.
    pub weight: u64,
}

/// The moments of a profile: columns of cells of time, each with the weights of its stacks. The page draws each column
/// from top to bottom, or, [as a timeline](Self::as_timeline), all cells side by side.
///
/// ```
/// use std::time::Duration;
///
/// use corprof_export::{Frame, Heat, HeatMap, Profile, Unit};
///
/// let mut profile = Profile::summed("shop", Unit::Samples);
/// let main = profile.frame(Frame::managed("Shop.Main()"));
/// let stack = profile.stack_root_first([main]);
/// let thread = profile.thread(0, "all threads");
/// profile.sample(thread, Duration::ZERO, stack, 3);
/// let heat = Heat { cell: 7, thread, stack, weight: 3 };
/// // Two columns of a second in cells of 20 ms.
/// profile.set_heat_map(HeatMap::new(Duration::from_millis(20), 50, 0, 2, vec![heat]));
/// ```
#[derive(Debug, Clone)]
pub struct HeatMap {
    cell: Duration,
    rows: u32,
    first: u32,
    columns: u32,
    heats: Vec<Heat>,
    levels: Vec<(u32, u32)>,
    timeline: Option<Timeline>,
}

/// What a timeline has beside the cells.
#[derive(Debug, Clone)]
struct Timeline {
    title: String,
    lanes: Vec<Lane>,
}

/// A line of a timeline, for what happened beside the samples, such as collections.
#[derive(Debug, Clone)]
pub struct Lane {
    title: String,
    is_time: bool,
    /// By cell.
    weights: Vec<(u32, u64)>,
}

/// A lane in the page's data.
#[derive(Debug, Serialize)]
struct PackedLane<'a> {
    title: &'a str,
    #[serde(rename = "isTime")]
    is_time: bool,
}

/// A heat map in the page's data.
#[derive(Debug, Serialize)]
pub(crate) struct Packed<'a> {
    /// Seconds.
    cell: f64,
    rows: u32,
    first: u32,
    columns: u32,
    /// How many cells may be drawn as one, and how many of these in a column.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    levels: &'a [(u32, u32)],
    /// Weights are multiples of it.
    quantum: u64,
    /// The title of the samples in a timeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    /// Those of a timeline.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lanes: Vec<PackedLane<'a>>,
    /// Stacks, entries and lanes: `html/moments.js` reads them.
    packed: String,
}

impl Lane {
    /// Things that are counted, by their cells.
    #[must_use]
    pub fn counted(title: impl Into<String>, weights: Vec<(u32, u64)>) -> Self {
        Self { title: title.into(), is_time: false, weights }.sorted()
    }

    /// Things that take time, in nanoseconds, by their cells.
    #[must_use]
    pub fn timed(title: impl Into<String>, weights: Vec<(u32, u64)>) -> Self {
        Self { title: title.into(), is_time: true, weights }.sorted()
    }

    fn sorted(mut self) -> Self {
        self.weights.sort_unstable();
        self
    }
}

impl HeatMap {
    /// A map of columns of `rows` cells, from the column `first` on.
    #[must_use]
    pub fn new(cell: Duration, rows: u32, first: u32, columns: u32, mut heats: Vec<Heat>) -> Self {
        heats.sort_unstable_by_key(|heat| heat.cell);
        Self { cell, rows, first, columns, heats, levels: Vec::new(), timeline: None }
    }

    /// Has the page draw several cells as one where there is no room for all, from the shortest to the longest: how
    /// many as one, and how many of these are in a column. A button of the page shows shorter ones.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use corprof_export::HeatMap;
    /// // A day in cells of 20 ms, drawn in columns of a minute.
    /// let map = HeatMap::new(Duration::from_millis(20), 50, 0, 86_400, Vec::new()).with_levels(vec![(50, 60)]);
    /// ```
    #[must_use]
    pub fn with_levels(mut self, levels: Vec<(u32, u32)>) -> Self {
        self.levels = levels;
        self
    }

    /// Has the page draw a timeline, with `title` for the samples, and lanes below them.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use corprof_export::{HeatMap, Lane};
    /// let map = HeatMap::new(Duration::from_millis(20), 50, 0, 2, Vec::new());
    /// // A collection of 3 ms after 1.2 s.
    /// let map = map.as_timeline("processor time", vec![Lane::timed("collections", vec![(60, 3_000_000)])]);
    /// ```
    #[must_use]
    pub fn as_timeline(mut self, title: impl Into<String>, lanes: Vec<Lane>) -> Self {
        self.timeline = Some(Timeline { title: title.into(), lanes });
        self
    }

    /// Whether it is drawn as a timeline.
    pub(crate) fn is_timeline(&self) -> bool {
        self.timeline.is_some()
    }

    /// Packs the map with the stacks, given as callers and frames, that it is of.
    pub(crate) fn packed(&self, callers: &[i64], frames: &[u32], numbers: &FxHashMap<StackId, i64>) -> Packed<'_> {
        let total = self.heats.iter().fold(0u64, |total, heat| total.saturating_add(heat.weight));
        let count = self.heats.len() as u64;
        let quantum = if count <= MOST_EXACT { 1 } else { (total / count / MEAN).max(1) };
        let mut numbers_out = Vec::new();
        // A caller is often the stack before: then it is 1.
        let far = callers.iter().enumerate().map(|(number, caller)| (number as i64 - caller).unsigned_abs());
        column(&mut numbers_out, far);
        column(&mut numbers_out, frames.iter().map(|frame| u64::from(*frame)));
        self.entries(&mut numbers_out, numbers, quantum);
        let lanes = self.timeline.iter().flat_map(|timeline| &timeline.lanes);
        for lane in lanes.clone() {
            let mut last_cell = 0;
            let distances =
                lane.weights.iter().map(|(cell, _)| u64::from(cell - std::mem::replace(&mut last_cell, *cell)));
            column(&mut numbers_out, distances);
            column(&mut numbers_out, lane.weights.iter().map(|(_, weight)| *weight));
        }
        Packed {
            cell: self.cell.as_secs_f64(),
            rows: self.rows,
            first: self.first,
            columns: self.columns,
            levels: &self.levels,
            quantum,
            title: self.timeline.as_ref().map(|timeline| timeline.title.as_str()),
            lanes: lanes.map(|lane| PackedLane { title: &lane.title, is_time: lane.is_time }).collect(),
            packed: STANDARD.encode(compressed(&numbers_out)),
        }
    }

    /// Columns: stacks, those with the most weight first, and their threads; cells, as distances, and how many entries
    /// each has; the entries' stacks, each as distance from the one before in the cell, first the low bytes of all and
    /// then the rest, which compresses better; and weights.
    fn entries(&self, out: &mut Vec<u8>, numbers: &FxHashMap<StackId, i64>, quantum: u64) {
        let mut by_stack: FxHashMap<(StackId, ThreadId), u64> = FxHashMap::default();
        for heat in &self.heats {
            let sum = by_stack.entry((heat.stack, heat.thread)).or_default();
            *sum = sum.saturating_add(heat.weight);
        }
        let mut ranked: Vec<_> = by_stack.into_iter().collect();
        ranked.sort_unstable_by_key(|&(stack, weight)| (std::cmp::Reverse(weight), stack));
        let number_of = |stack: &StackId| numbers.get(stack).map_or(0, |number| number.unsigned_abs() + 1);
        column(out, ranked.iter().map(|((stack, _), _)| number_of(stack)));
        column(out, ranked.iter().map(|((_, thread), _)| thread.0 as u64));
        let ranks: FxHashMap<(StackId, ThreadId), u64> =
            ranked.iter().zip(0..).map(|((stack, _), rank)| (*stack, rank)).collect();
        let mut cells = Vec::new();
        let mut counts = Vec::new();
        let mut low_bytes = Vec::new();
        let mut high_parts = Vec::new();
        let mut weights = Vec::new();
        let mut last_cell = 0;
        let mut rest = 0;
        for heats in self.heats.chunk_by(|a, b| a.cell == b.cell) {
            let rank = |heat: &Heat| (ranks.get(&(heat.stack, heat.thread)).copied().unwrap_or_default(), heat.weight);
            let mut ranked: Vec<(u64, u64)> = heats.iter().map(rank).collect();
            ranked.sort_unstable();
            let mut last_rank = 0;
            let mut shown = 0;
            for (rank, weight) in ranked {
                // What is lost by rounding goes to the next, so that sums are right.
                rest += weight;
                let weight = rest / quantum;
                if weight == 0 {
                    continue;
                }
                rest %= quantum;
                let distance = rank - last_rank;
                low_bytes.push((distance & 0xff) as u8);
                number(&mut high_parts, distance >> 8);
                number(&mut weights, weight);
                last_rank = rank;
                shown += 1;
            }
            let Some(cell) = heats.first().map(|heat| heat.cell).filter(|_| shown > 0) else { continue };
            cells.push(u64::from(cell - last_cell));
            counts.push(shown);
            last_cell = cell;
        }
        let entries = counts.iter().sum();
        column(out, cells);
        counts.into_iter().for_each(|count| number(out, count));
        number(out, entries);
        out.extend(low_bytes);
        out.extend(high_parts);
        out.extend(weights);
    }
}

/// Writes how many numbers there are, and the numbers.
fn column(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u64, IntoIter: ExactSizeIterator>) {
    let numbers = numbers.into_iter();
    number(out, numbers.len() as u64);
    numbers.for_each(|value| number(out, value));
}

/// Writes a number in as many groups of seven bits as it needs, the lowest first.
fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let compress = || -> io::Result<Vec<u8>> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes)?;
        encoder.finish()
    };
    // Memory takes all.
    compress().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    #[test]
    fn a_map_is_packed_in_columns() {
        let [often, seldom] = [StackId(4), StackId(9)];
        let thread = ThreadId(0);
        let heat = |cell, stack, weight| Heat { cell, thread, stack, weight };
        let heats = vec![heat(300, seldom, 1), heat(3, often, 200), heat(300, often, 2)];
        let lanes = vec![Lane::counted("thrown", vec![(300, 130), (2, 1)])];
        let map = HeatMap::new(Duration::from_millis(20), 50, 0, 7, heats).as_timeline("time", lanes);
        let numbers = FxHashMap::from_iter([(often, 0), (seldom, 1)]);
        let packed = map.packed(&[-1, 0], &[5, 6], &numbers);
        assert_eq!((packed.cell, packed.rows, packed.columns, packed.quantum), (0.02, 50, 7, 1));
        let bytes = STANDARD.decode(packed.packed).unwrap();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut read).unwrap();
        let expected: [&[u8]; 11] = [
            &[2, 1, 1],             // distances of callers
            &[2, 5, 6],             // frames
            &[2, 1, 2],             // stacks, the one with 202 first
            &[2, 0, 0],             // their threads
            &[2, 3, 0xa9, 2, 1, 2], // cells 3 and 300, with one and two entries
            &[3, 0, 0, 1],          // stacks of entries, their low bytes
            &[0, 0, 0],             // and the rest
            &[0xc8, 1],             // 200
            &[2, 1],
            &[2, 2, 0xaa, 2], // cells 2 and 300 of the lane
            &[2, 1, 0x82, 1], // 1 and 130
        ];
        assert_eq!(read, expected.concat());
    }

    #[test]
    fn weights_of_many_entries_are_rounded_and_their_sum_stays() {
        let heats = (0..200_000).map(|cell| Heat {
            cell,
            thread: ThreadId(0),
            stack: StackId(0),
            weight: 10_000_000 + u64::from(cell),
        });
        let map = HeatMap::new(Duration::from_millis(20), 50, 0, 4_000, heats.collect());
        let packed = map.packed(&[-1], &[0], &FxHashMap::from_iter([(StackId(0), 0)]));
        assert_eq!(packed.quantum, 10_099_999 / MEAN);
        let bytes = STANDARD.decode(packed.packed).unwrap();
        let mut read = Vec::new();
        flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut read).unwrap();
        let weights = read.get(read.len() - 200_000..).unwrap();
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum::<u64>() * packed.quantum;
        let whole: u64 = (0..200_000u64).map(|cell| 10_000_000 + cell).sum();
        assert!(sum.abs_diff(whole) <= packed.quantum, "{sum} of {whole}");
    }
}
