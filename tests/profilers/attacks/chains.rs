//! Follows chains of objects of waiting threads from any pointer on their stacks by any fields, while collections run
//! and assemblies come and go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use corprof::object_chains::ChainStart;
use corprof::prelude::*;
use corprof::sampler::{Mode, Round, Sampler};

/// How many frames of a stack are tried.
const MOST_FRAMES: usize = 12;

#[derive(Default)]
struct Counts {
    asked: AtomicU64,
    found: AtomicU64,
    objects: AtomicU64,
    learned: AtomicU64,
    errors: AtomicU64,
}

/// Chooses what is tried next; always the same in the same order.
struct Choice {
    number: u64,
    /// The names of fields so far, which stay for ever.
    names: BTreeMap<String, &'static str>,
}

impl Choice {
    fn next(&mut self, limit: usize) -> usize {
        self.number = self.number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.number >> 33) as usize % limit.max(1)
    }

    /// Any field of a class or its base classes: also ones that have no objects.
    fn field(&mut self, cx: &InNoGc<'_>, class: ClassId) -> Option<&'static str> {
        let mut names = super::links::fields(cx, class);
        names.push("no such field".to_owned());
        let name = names.swap_remove(self.next(names.len()));
        let kept = self.names.entry(name).or_insert_with_key(|name| name.clone().leak());
        Some(kept)
    }

    /// A class and a number that an object of it has behind its first four bytes: half of its class.
    fn mark(&mut self, class: ClassId) -> (usize, u32) {
        match self.next(4) {
            0 => (8 * self.next(6), 0),
            1 => (usize::MAX - self.next(16), 0),
            _ => (4, (class.as_raw() >> 32) as u32),
        }
    }
}

fn follow(round: &mut Round<'_, '_>, choice: &mut Choice, counts: &Counts) {
    let mut starts = Vec::new();
    for sample in round.samples().filter(|sample| sample.is_waiting()) {
        for (frame, sampled) in sample.frames().iter().enumerate().take(MOST_FRAMES) {
            let class = sampled.function.and_then(|function| round.cx().function_info(function).ok()?.class);
            let Some(class) = class else { continue };
            let outermost = frame + choice.next(3);
            let offset = [0, 0, 8, 24, usize::MAX][choice.next(5)];
            starts.push(ChainStart { sample, frame, outermost, class, offset, mark: choice.mark(class) });
        }
    }
    counts.asked.fetch_add(starts.len() as u64, Relaxed);
    let chains = round.object_chains(&starts, |cx, class| {
        counts.learned.fetch_add(1, Relaxed);
        ((), choice.field(cx, class))
    });
    match chains {
        Ok(chains) => {
            for chain in chains.into_iter().flatten() {
                counts.found.fetch_add(1, Relaxed);
                counts.objects.fetch_add(chain.objects.len() as u64, Relaxed);
            }
        }
        Err(_) => {
            counts.errors.fetch_add(1, Relaxed);
        }
    }
}

#[derive(Profiler)]
#[profiler(clsid = "1F915C74-A1B1-43A4-A141-DB9B98B2C90D", no_export)]
pub(crate) struct FollowsChains(Arc<Counts>);

#[callbacks]
impl Callbacks for FollowsChains {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let counts = Arc::new(Counts::default());
        let of_round = Arc::clone(&counts);
        let mut choice = Choice { number: 1, names: BTreeMap::new() };
        let sampler = Sampler::every(Duration::from_millis(2)).budget(1.0).mode(Mode::Wall);
        sampler.start(cx, move |round| follow(round, &mut choice, &of_round))?;
        Ok(Self(counts))
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = &self.0;
        let all = [&counts.asked, &counts.found, &counts.objects, &counts.learned, &counts.errors];
        let [asked, found, objects, learned, errors] = all.map(|count| count.load(Relaxed));
        eprintln!("attacks| asked={asked} found={found} objects={objects} learned={learned} errors={errors}");
    }
}
