//! The times of methods by the runtime's own sampler, for a process that another profiler stays in.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use corprof_async::Origin;
use corprof_diagnostics::Process;
use corprof_profilers::known_callers;

use super::LOOK;
use super::counts::{Method, Snapshot, Times};
use crate::event_pipe_samples::{Callers, Gathered, Sample, Sampling, UNKNOWN};
use crate::options::Names;
use crate::signals::Signals;

/// The interval of snapshots.
const SNAPSHOT: Duration = Duration::from_secs(1);
/// The shortest time between two lists of the methods: one is asked for when there is code that no method has.
const LEARN: Duration = Duration::from_secs(10);

/// Samples, and the sums of their times by method.
pub(super) struct Sampled {
    sampling: Sampling,
    /// Since the begin.
    sums: Snapshot,
    by_name: HashMap<String, usize>,
    names: Names,
    resumed: Resumed,
    shown: Instant,
    /// When the methods were listed again.
    learnt: Option<Instant>,
}

impl Sampled {
    pub(super) fn start(process: &Process, callers: Callers, names: Names) -> Result<Self> {
        let client = process.client();
        let info = client.process_info()?;
        let sampling = Sampling::start(&client, &info, callers)?;
        let shown = Instant::now();
        Ok(Self {
            sampling,
            sums: Snapshot::default(),
            by_name: HashMap::new(),
            names,
            resumed: Resumed::default(),
            shown,
            learnt: None,
        })
    }

    /// The sums, each second.
    pub(super) fn look(&mut self) -> Result<Option<Snapshot>> {
        self.sampling.read(LOOK)?;
        if self.shown.elapsed() < SNAPSHOT {
            return Ok(None);
        }
        self.shown = Instant::now();
        let is_due = self.learnt.is_none_or(|learnt| learnt.elapsed() >= LEARN);
        if is_due && !self.sampling.is_over() && self.sampling.gathered.has_unknown_code() {
            self.sampling.learn_methods()?;
            self.learnt = Some(Instant::now());
        }
        self.add();
        Ok(Some(self.sums.clone()))
    }

    /// Ends the session.
    pub(super) fn finish(&mut self, signals: &Signals) -> Result<()> {
        self.sampling.finish(signals)
    }

    /// Adds the samples that have their callers by now.
    fn add(&mut self) {
        let gathered = &mut self.sampling.gathered;
        let mut threads = HashSet::new();
        for sample in gathered.settled() {
            threads.insert(sample.thread);
            if !gathered.is_managed(sample) {
                continue;
            }
            self.sums.processor += sample.weight;
            let mut seen = HashSet::new();
            self.resumed.count(gathered, sample);
            let frames: Vec<(Origin, &str)> = gathered
                .frames(sample)
                .map(|(origin, method)| (origin, method.map_or(UNKNOWN, |method| method.name)))
                .collect();
            for (depth, (origin, name)) in frames.iter().enumerate() {
                let caller = frames.get(depth + 1);
                // The resumed method is the last one that is on the thread's stack.
                let is_resumed = sample.has_callers && caller.is_none_or(|(origin, _)| *origin != Origin::Physical);
                let name = if is_resumed || *origin != Origin::Physical {
                    self.names.async_method(name)
                } else {
                    self.names.method(name, caller.map(|(_, name)| *name))
                };
                let row = row(&mut self.by_name, &mut self.sums.methods, &name);
                let Some(Method { times, .. }) = self.sums.methods.get_mut(row) else { continue };
                if depth == 0 {
                    times.own += sample.weight;
                }
                // A recursive method counts once.
                if seen.insert(row) {
                    times.total += sample.weight;
                }
            }
        }
        if let Some(last) = gathered.settled().last() {
            self.sums.elapsed = last.at;
            self.sums.rounds = last.round;
            self.sums.threads = threads.len() as u64;
        }
        self.sums.note = self.resumed.note();
        gathered.forget();
    }
}

/// The samples in resumed methods.
#[derive(Debug, Default)]
struct Resumed {
    with_callers: u64,
    without: u64,
}

impl Resumed {
    fn count(&mut self, gathered: &Gathered, sample: &Sample) {
        if sample.has_callers {
            self.with_callers += 1;
        } else if gathered.tells_callers() && gathered.is_resumed(sample) {
            self.without += 1;
        }
    }

    /// What a reader of the table should know.
    fn note(&self) -> Option<String> {
        known_callers(self.with_callers, self.with_callers + self.without, "")
    }
}

/// The number of the method with this name.
fn row(by_name: &mut HashMap<String, usize>, methods: &mut Vec<Method>, name: &str) -> usize {
    if let Some(known) = by_name.get(name) {
        return *known;
    }
    let number = methods.len();
    methods.push(Method { number, name: name.to_owned(), place: None, times: Times::default() });
    by_name.insert(name.to_owned(), number);
    number
}
