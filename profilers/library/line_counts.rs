//! The time of source lines: counts samples by their places in the IL of methods, for the sampler and for `top`.
//!
//! The place of an address is asked for after threads run again, while its method is certainly there (`code_frames`).
//! Files and lines are read later.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::prelude::*;
use corprof::sampler::SampledFrame;

use crate::code_frames::{CodeFrames, IlPlace};

/// The most places that are counted. Code that is compiled again and again would have more and more.
const MOST: usize = 100_000;

/// What a frame counts for.
pub(crate) enum LineOwner<M> {
    /// For a method.
    Method(M),
    /// For a method without lines.
    Unlined,
    /// For nothing: the runtime's own frame, which is not shown.
    Hidden,
}

/// The time at a place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTimes {
    /// The place itself ran.
    pub(crate) own: Duration,
    /// The place ran, or what it had called.
    pub(crate) total: Duration,
    /// When it was seen last.
    pub(crate) seen: Instant,
    /// The number of the last sample that has it: a method that calls itself counts once for each.
    sample: u64,
}

/// A method and a place in it; none where the runtime has no map of its code.
pub(crate) type LineKey<M> = (M, Option<Arc<IlPlace>>);

/// The times of places, by method.
pub(crate) struct LineCounts<M> {
    code: CodeFrames,
    times: HashMap<LineKey<M>, LineTimes>,
    samples: u64,
}

impl<M> Default for LineCounts<M> {
    fn default() -> Self {
        Self { code: CodeFrames::default(), times: HashMap::new(), samples: 0 }
    }
}

impl<M: Copy + Eq + Hash> LineCounts<M> {
    /// Adds a sample; `owner` knows what a function counts for.
    pub(crate) fn add(
        &mut self,
        cx: &InNoGc<'_>,
        frames: &[SampledFrame],
        weight: Duration,
        mut owner: impl FnMut(FunctionId) -> LineOwner<M>,
    ) {
        self.samples += 1;
        let now = Instant::now();
        let mut is_innermost = true;
        for (depth, frame) in frames.iter().enumerate() {
            let Some(function) = frame.function else {
                is_innermost = false; // native code ran
                continue;
            };
            let method = match owner(function) {
                LineOwner::Method(method) => method,
                LineOwner::Hidden => continue,
                LineOwner::Unlined => {
                    is_innermost = false;
                    continue;
                }
            };
            let key = (method, self.code.frame(cx, function, frame.ip, depth == 0).place());
            let sample = self.samples;
            if let Some(times) = self.times_of(key, now) {
                if is_innermost {
                    times.own += weight;
                }
                if times.sample != sample {
                    times.total += weight;
                    times.sample = sample;
                }
                times.seen = now;
            }
            is_innermost = false;
        }
    }

    /// The times at a place; none if there are too many places.
    fn times_of(&mut self, key: LineKey<M>, now: Instant) -> Option<&mut LineTimes> {
        if self.times.len() >= MOST && !self.times.contains_key(&key) {
            return None;
        }
        let zero = LineTimes { own: Duration::ZERO, total: Duration::ZERO, seen: now, sample: 0 };
        Some(self.times.entry(key).or_insert(zero))
    }

    /// The times so far.
    pub(crate) fn times(&self) -> impl Iterator<Item = (&LineKey<M>, &LineTimes)> {
        self.times.iter()
    }

    /// Takes the times since the last call.
    pub(crate) fn take(&mut self) -> HashMap<LineKey<M>, LineTimes> {
        std::mem::take(&mut self.times)
    }
}
