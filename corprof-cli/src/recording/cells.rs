//! When samples were: weights of threads and stacks in cells of time, which become longer if there are too many.

use std::time::Duration;

use super::stacks::Path;

/// A length of cells, and how many of them are in a column of the heat map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) cell: Duration,
    pub(crate) rows: u32,
}

/// From the shortest to the longest. Each length is a multiple of the one before.
const LEVELS: [Level; 5] = [
    Level { cell: Duration::from_millis(20), rows: 50 },
    Level { cell: Duration::from_secs(1), rows: 60 },
    Level { cell: Duration::from_secs(5), rows: 12 },
    Level { cell: Duration::from_secs(60), rows: 60 },
    Level { cell: Duration::from_secs(3600), rows: 24 },
];

/// The most columns of cells that are drawn: 25 minutes in columns of a second, 25 hours in columns of a minute.
const MOST_COLUMNS: u32 = 1_500;

/// The most entries, 24 bytes each: a day of 100 samples a second, each with another stack.
const MOST: usize = 10_000_000;

/// What samples are kept apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellsOf {
    /// Stacks, of all threads together.
    Stacks,
    /// Threads and stacks.
    Threads,
}

/// The weight of a stack in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) cell: u32,
    /// 0 if threads are not kept apart.
    pub(crate) thread: u32,
    pub(crate) stack: Path,
    pub(crate) weight: u64,
}

impl Entry {
    fn key(&self) -> (u32, u32, Path) {
        (self.cell, self.thread, self.stack)
    }
}

/// The samples by cells.
#[derive(Debug, Clone)]
pub(crate) struct Cells {
    of: CellsOf,
    level: usize,
    entries: Vec<Entry>,
    most: usize,
    /// Whether there are too many even of the longest.
    is_full: bool,
    from: Duration,
    to: Duration,
}

impl Cells {
    /// Those between two moments.
    pub(super) fn new(of: CellsOf, from: Duration, to: Duration) -> Self {
        Self { of, level: 0, entries: Vec::new(), most: MOST, is_full: false, from, to }
    }

    pub(super) fn clear(&mut self) {
        (self.level, self.is_full) = (0, false);
        self.entries.clear();
    }

    pub(super) fn add(&mut self, at: Duration, thread: u32, stack: Path, weight: u64) {
        if weight == 0 {
            return;
        }
        if !self.is_full && self.entries.len() >= self.most {
            self.thin();
        }
        if self.is_full {
            return;
        }
        let cell = self.cell_of(at);
        let thread = if self.of == CellsOf::Threads { thread } else { 0 };
        self.entries.push(Entry { cell, thread, stack, weight });
    }

    fn cell_of(&self, at: Duration) -> u32 {
        u32::try_from(at.as_nanos() / self.level().cell.as_nanos()).unwrap_or(u32::MAX)
    }

    /// Makes room for as many again as a quarter of the most.
    fn thin(&mut self) {
        self.merge();
        while self.entries.len() > self.most / 4 * 3 {
            if !self.coarsen() {
                self.is_full = true;
                self.entries.clear();
            }
        }
    }

    /// Has one entry for each cell, thread and stack, in this order.
    fn merge(&mut self) {
        self.entries.sort_unstable_by_key(Entry::key);
        self.entries.dedup_by(|later, kept| {
            let is_same = later.key() == kept.key();
            if is_same {
                kept.weight = kept.weight.saturating_add(later.weight);
            }
            is_same
        });
    }

    /// Takes longer cells. Answers whether there are any.
    pub(crate) fn coarsen(&mut self) -> bool {
        let shorter = self.level().cell;
        let Some(longer) = LEVELS.get(self.level + 1) else { return false };
        let factor = u32::try_from(longer.cell.as_nanos() / shorter.as_nanos()).unwrap_or(u32::MAX);
        self.level += 1;
        self.entries.iter_mut().for_each(|entry| entry.cell /= factor);
        self.merge();
        true
    }

    /// Takes cells that are long enough for a recording of this duration: a timeline draws all, a heat map those of a
    /// part of the time.
    pub(super) fn finish(&mut self, duration: Duration) {
        self.to = self.to.min(duration).max(self.from);
        self.merge();
        while self.of == CellsOf::Threads && self.columns().1 > MOST_COLUMNS && self.coarsen() {}
    }

    /// Longer cells in which these can be drawn: how many as one, and how many of these are in a column.
    pub(crate) fn longer(&self) -> Vec<(u32, u32)> {
        let shortest = self.level().cell.as_nanos();
        let longer = LEVELS.iter().skip(self.level + 1);
        longer.filter_map(|level| Some((u32::try_from(level.cell.as_nanos() / shortest).ok()?, level.rows))).collect()
    }

    /// Gives stacks other numbers.
    pub(super) fn renumber(&mut self, stack_of: impl Fn(Path) -> u32) {
        self.entries.iter_mut().for_each(|entry| entry.stack = stack_of(entry.stack));
        self.merge();
    }

    pub(super) fn retain(&mut self, is_left: impl Fn(u32) -> bool) {
        self.entries.retain(|entry| is_left(entry.stack));
    }

    pub(crate) fn of(&self) -> CellsOf {
        self.of
    }

    /// Adds the cells of another recording.
    pub(super) fn join(&mut self, mut other: Self) {
        self.coarsen_to(&other);
        other.coarsen_to(self);
        self.from = self.from.min(other.from);
        self.to = self.to.max(other.to);
        self.is_full |= other.is_full;
        self.entries.append(&mut other.entries);
        self.merge();
        if self.entries.len() > self.most {
            self.thin();
        }
    }

    /// Takes cells that are at least as long as others.
    pub(super) fn coarsen_to(&mut self, other: &Self) {
        while self.level < other.level && self.coarsen() {}
    }

    /// The first cell, and how many there are.
    pub(crate) fn span(&self) -> (u32, u32) {
        let first = self.cell_of(self.from);
        (first, self.cell_of(self.to).saturating_sub(first).saturating_add(1))
    }

    pub(crate) fn level(&self) -> Level {
        LEVELS.get(self.level).copied().unwrap_or(LEVELS[0])
    }

    /// The first column, and how many there are.
    pub(crate) fn columns(&self) -> (u32, u32) {
        let rows = self.level().rows;
        let column = |at| self.cell_of(at) / rows;
        let first = column(self.from);
        (first, column(self.to).saturating_sub(first).saturating_add(1))
    }

    /// Whether there were too many to keep any.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(cell: u32, stack: Path, weight: u64) -> Entry {
        Entry { cell, thread: 0, stack, weight }
    }

    #[test]
    fn a_cell_has_the_weights_of_its_time() {
        let mut cells = Cells::new(CellsOf::Stacks, Duration::ZERO, Duration::MAX);
        for (milliseconds, stack) in [(25, 1), (39, 1), (19, 2), (20, 0), (1_000, 1)] {
            cells.add(Duration::from_millis(milliseconds), 7, stack, 3);
        }
        cells.add(Duration::from_millis(60), 7, 1, 0);
        cells.finish(Duration::from_millis(1_500));
        assert_eq!(cells.entries(), [entry(0, 2, 3), entry(1, 0, 3), entry(1, 1, 6), entry(50, 1, 3)]);
        assert_eq!((cells.level(), cells.columns()), (LEVELS[0], (0, 2)));
    }

    #[test]
    fn of_a_long_recording_a_timeline_has_longer_cells_and_a_heat_map_says_which_there_are() {
        let finished = |of| {
            let mut cells = Cells::new(of, Duration::from_secs(3600), Duration::MAX);
            cells.add(Duration::from_millis(3_660_700), 0, 1, 1);
            cells.add(Duration::from_millis(3_660_900), 0, 1, 1);
            cells.finish(Duration::from_secs(24 * 3600));
            cells
        };
        let timeline = finished(CellsOf::Threads);
        assert_eq!((timeline.level(), timeline.columns()), (LEVELS[1], (60, 23 * 60 + 1)));
        assert_eq!(timeline.entries(), [entry(3_660, 1, 2)]);
        let map = finished(CellsOf::Stacks);
        assert_eq!((map.level(), map.columns()), (LEVELS[0], (3_600, 23 * 3_600 + 1)));
        assert_eq!(map.longer(), [(50, 60), (250, 12), (3_000, 60), (180_000, 24)]);
    }

    #[test]
    fn too_many_entries_lead_to_longer_cells() {
        let mut cells = Cells::new(CellsOf::Stacks, Duration::ZERO, Duration::MAX);
        cells.most = 1_000;
        // In each second one stack, 50 times: too many cells of 20 ms, but not of a second.
        for cell in 0..5_000 {
            cells.add(Duration::from_millis(20 * cell), 7, 1, 1);
        }
        cells.finish(Duration::from_secs(100));
        assert_eq!((cells.level(), cells.entries().len()), (LEVELS[1], 100));
        assert!(cells.entries().iter().all(|entry| entry.weight == 50));
        for stack in 0..5_000 {
            cells.add(Duration::ZERO, 7, stack, 1);
        }
        assert!(cells.is_full() && cells.entries().is_empty(), "no length of cells helps");
    }

    #[test]
    fn each_length_is_a_multiple_of_the_one_before() {
        for two in LEVELS.windows(2) {
            assert_eq!(two[1].cell.as_nanos() % two[0].cell.as_nanos(), 0);
        }
    }
}
