//! What is kept of the samples of a file: sums by thread, stack and label, and their times if these are wanted.

use std::time::Duration;

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};

use super::stacks::{Path, Stacks};
use super::symbols::Symbols;
use super::{Cells, Frame, Measure, Options, Sum, Timed};

/// The most samples that are kept with their times, 32 bytes each. If there are more, only sums are kept.
const MOST_TIMED: usize = 4_000_000;

/// So many sums are added at once: the processor then waits for the memory of several at a time. Of a file with a
/// million sums, `view` reads a seventh more in the same time.
const AT_ONCE: usize = 256;

/// The samples so far.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) stacks: Stacks,
    /// Frames that the file names.
    pub(super) frames: IndexSet<Frame, FxBuildHasher>,
    /// By process.
    pub(super) symbols: FxHashMap<u64, Symbols>,
    /// The types on stacks.
    pub(super) types: IndexSet<String, FxBuildHasher>,
    /// Values of the label that sums are kept apart by.
    pub(super) groups: IndexSet<String, FxBuildHasher>,
    /// By thread, stack and group.
    pub(super) sums: FxHashMap<(u32, Path, u32), Sum>,
    /// Those that are not among the sums yet.
    waiting: Vec<((u32, Path, u32), Sum)>,
    /// None if times are not wanted, or there are too many.
    pub(super) timed: Option<Vec<Timed>>,
    pub(super) cells: Option<Cells>,
    time: Time,
    /// The best events so far.
    best: Option<(usize, Measure)>,
}

/// The part of a recording that is looked at, since its beginning.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    pub(super) from: Duration,
    pub(super) to: Duration,
    /// How long after the first of several recordings it began.
    pub(super) after: Duration,
}

/// A sample of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) at: Duration,
    pub(super) thread: u32,
    pub(super) stack: Path,
    /// The number of its label's value.
    pub(super) group: u32,
    pub(super) weight: u64,
}

/// A sample whose weight is known later.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenSample {
    sample: Sample,
    /// Its place among the samples with times.
    index: usize,
}

impl OpenSample {
    pub(super) fn at(&self) -> Duration {
        self.sample.at
    }
}

impl Samples {
    /// None yet.
    pub(super) fn new(options: &Options, time: Time) -> Self {
        let Time { from, to, after } = time;
        Self {
            stacks: Stacks::default(),
            frames: IndexSet::default(),
            symbols: FxHashMap::default(),
            types: IndexSet::default(),
            groups: IndexSet::from_iter([String::new()]),
            sums: FxHashMap::default(),
            waiting: Vec::with_capacity(AT_ONCE),
            timed: options.is_timed.then(Vec::new),
            cells: options.cells.map(|of| Cells::new(of, from + after, to.saturating_add(after))),
            time,
            best: None,
        }
    }

    /// Whether samples of this rank are taken: there are none of a lower one. Forgets those of a higher one, and calls
    /// `forget` then.
    pub(super) fn takes(&mut self, rank: usize, measure: Measure, options: &Options, forget: impl FnOnce()) -> bool {
        match self.best {
            Some((best, _)) if best < rank => return false,
            Some((best, _)) if best == rank => {}
            _ => {
                self.best = Some((rank, measure));
                self.clear(options);
                forget();
            }
        }
        true
    }

    /// What the samples are. None: there are none.
    pub(super) fn measure(&self) -> Option<Measure> {
        self.best.map(|(_, measure)| measure)
    }

    /// No sample is added any more, of a recording of this duration.
    pub(super) fn finish(&mut self, duration: Duration) {
        self.stacks.finish();
        self.add_waiting();
        if let Some(cells) = &mut self.cells {
            cells.finish(duration + self.time.after);
        }
    }

    fn clear(&mut self, options: &Options) {
        self.sums.clear();
        self.waiting.clear();
        self.types.clear();
        self.timed = options.is_timed.then(Vec::new);
        self.cells.iter_mut().for_each(Cells::clear);
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, sample: Sample) {
        let Sample { at, thread, stack, group, weight } = sample;
        self.sum((thread, stack, group), Sum { samples: 1, weight });
        if let Some(cells) = &mut self.cells {
            cells.add(self.time.after + at, thread, stack, weight);
        }
        if let Some(timed) = &mut self.timed {
            timed.push(Timed { at, thread, stack, weight });
            if timed.len() > MOST_TIMED {
                self.timed = None;
            }
        }
    }

    fn sum(&mut self, place: (u32, Path, u32), sum: Sum) {
        self.waiting.push((place, sum));
        if self.waiting.len() >= AT_ONCE {
            self.add_waiting();
        }
    }

    fn add_waiting(&mut self) {
        for (place, sum) in self.waiting.drain(..) {
            self.sums.entry(place).or_default().add(sum);
        }
    }

    /// Adds a sample whose weight is not known yet, and is 0 until then.
    pub(super) fn open(&mut self, sample: Sample) -> OpenSample {
        let index = self.timed.as_ref().map_or(0, Vec::len);
        let sample = Sample { weight: 0, ..sample };
        self.add(sample);
        OpenSample { sample, index }
    }

    /// Gives a sample its weight.
    pub(super) fn close(&mut self, open: OpenSample, weight: u64) {
        let Sample { at, thread, stack, group, .. } = open.sample;
        self.sum((thread, stack, group), Sum { samples: 0, weight });
        if let Some(cells) = &mut self.cells {
            cells.add(self.time.after + at, thread, stack, weight);
        }
        if let Some(sample) = self.timed.as_mut().and_then(|timed| timed.get_mut(open.index)) {
            sample.weight = weight;
        }
    }

    /// The number of a frame that the file names.
    pub(super) fn frame(&mut self, frame: Frame) -> u32 {
        u32::try_from(self.frames.insert_full(frame).0).unwrap_or(u32::MAX)
    }

    /// The number of a value of the label that sums are kept apart by.
    pub(super) fn group(&mut self, value: String) -> u32 {
        u32::try_from(self.groups.insert_full(value).0).unwrap_or(u32::MAX)
    }
}
