//! What a thread has resumed lately: written by its hooks, read by the sampler.
//!
//! A ring of words without a lock. The writer never waits, and overwrites the oldest; the reader copies what it needs,
//! and then looks whether that was still there. A sample is a few milliseconds old when it is read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The words of a ring, a power of two: some five thousand runs, of which a thread that does nothing else makes ten
/// thousand in a millisecond.
const WORDS: usize = 1 << 15;
/// How many methods of a chain are kept.
pub(super) const MOST_METHODS: usize = 64;
/// The time, the sizes, pairs of methods, and the length.
const LONGEST: usize = 2 + MOST_METHODS / 2 + 1;

/// The runs of a thread.
pub(super) struct Runs {
    words: Box<[AtomicU64]>,
    /// How many words were ever written.
    written: AtomicUsize,
}

/// A resumed method, with those that await it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Run {
    /// How many runs the thread was in, with this one: a method that completes may resume another one at once.
    pub(super) depth: u16,
    /// The numbers of the methods, the resumed one first.
    pub(super) methods: Vec<u32>,
    /// The number of what the chain ends at.
    pub(super) end: u32,
}

impl Default for Runs {
    fn default() -> Self {
        Self { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect(), written: AtomicUsize::new(0) }
    }
}

impl Runs {
    fn word(&self, place: usize) -> &AtomicU64 {
        &self.words[place & (WORDS - 1)]
    }

    /// Writes a run that begins at this time. Only the thread itself calls this.
    pub(super) fn begin(&self, time: u64, depth: u16, methods: &[u32], end: u32) {
        let start = self.written.load(Ordering::Relaxed);
        // Who reads a word that is written from here on sees that `written` has come this far.
        fence(Ordering::Release);
        let methods = methods.get(..MOST_METHODS).unwrap_or(methods);
        let mut place = start;
        let mut put = |word: u64| {
            self.word(place).store(word, Ordering::Relaxed);
            place += 1;
        };
        put(time);
        put(u64::from(depth) << 48 | (methods.len() as u64) << 32 | u64::from(end));
        for pair in methods.chunks(2) {
            let second = pair.get(1).copied().unwrap_or_default();
            put(u64::from(pair[0]) << 32 | u64::from(second));
        }
        let length = (place - start + 1) as u64;
        self.word(place).store(length, Ordering::Relaxed);
        self.written.store(place + 1, Ordering::Release);
    }

    /// The run that the thread was in at this time, in so many runs; none if it is not known (any more).
    pub(super) fn at(&self, time: u64, depth: u16) -> Option<Run> {
        let written = self.written.load(Ordering::Acquire);
        let mut end = written;
        while end > 0 && end + WORDS > written + 2 * LONGEST {
            let length = self.word(end - 1).load(Ordering::Relaxed) as usize;
            let start = end.checked_sub(length).filter(|_| (3..=LONGEST).contains(&length))?;
            let began = self.word(start).load(Ordering::Relaxed);
            let sizes = self.word(start + 1).load(Ordering::Relaxed);
            let run_depth = (sizes >> 48) as u16;
            if began <= time && run_depth <= depth {
                let run = self.read(start, sizes);
                return Some(run).filter(|_| run_depth == depth && self.is_there(start));
            }
            end = start;
        }
        None
    }

    fn read(&self, start: usize, sizes: u64) -> Run {
        let count = (sizes >> 32 & 0xffff) as usize;
        let method = |index: usize| {
            let pair = self.word(start + 2 + index / 2).load(Ordering::Relaxed);
            if index.is_multiple_of(2) { (pair >> 32) as u32 } else { pair as u32 }
        };
        let methods = (0..count.min(MOST_METHODS)).map(method).collect();
        Run { depth: (sizes >> 48) as u16, methods, end: sizes as u32 }
    }

    /// Whether what was read from here on was not being overwritten.
    fn is_there(&self, start: usize) -> bool {
        fence(Ordering::Acquire);
        start + WORDS >= self.written.load(Ordering::Relaxed) + LONGEST
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_run_is_found_by_its_time_and_depth() {
        let runs = Runs::default();
        assert_eq!(runs.at(100, 1), None);
        runs.begin(10, 1, &[1, 2, 3], 0);
        runs.begin(20, 2, &[4], 7);
        runs.begin(30, 1, &[], 0);
        let run = |depth, methods: &[u32], end| Some(Run { depth, methods: methods.to_vec(), end });
        assert_eq!(runs.at(9, 1), None);
        assert_eq!(runs.at(10, 1), run(1, &[1, 2, 3], 0));
        assert_eq!(runs.at(25, 2), run(2, &[4], 7));
        // The inner run has ended, and the outer one goes on.
        assert_eq!(runs.at(25, 1), run(1, &[1, 2, 3], 0));
        assert_eq!(runs.at(35, 1), run(1, &[], 0));
        assert_eq!(runs.at(35, 2), None);
    }

    #[test]
    fn long_chains_are_cut_and_old_runs_are_overwritten() {
        let runs = Runs::default();
        let long: Vec<u32> = (0..100).collect();
        for time in 0..10_000 {
            runs.begin(time, 1, &long, 0);
        }
        assert_eq!(runs.at(9_999, 1).unwrap().methods, &long[..MOST_METHODS]);
        assert_eq!(runs.at(10, 1), None);
    }

    /// Each run has its time in all of its methods.
    #[test]
    fn what_is_read_while_it_is_written_is_whole() {
        let runs = Runs::default();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for time in 1..200_000_u32 {
                    let methods = [time; MOST_METHODS];
                    runs.begin(u64::from(time), 1, &methods[..time as usize % MOST_METHODS], time);
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let mut found = 0;
            while !is_over.load(Ordering::Relaxed) {
                if let Some(run) = runs.at(u64::MAX, 1) {
                    found += 1;
                    assert_eq!(run.methods.len(), run.end as usize % MOST_METHODS);
                    assert!(run.methods.iter().all(|method| *method == run.end), "{run:?}");
                }
            }
            assert!(found > 0);
        });
    }
}
