//! The times of methods by the runtime's own sampler, for a process that another profiler stays in.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use corprof_diagnostics::Process;

use super::LOOK;
use super::counts::{Method, Snapshot, Times};
use crate::event_pipe_samples::{Sample, Sampling, UNKNOWN};
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
    shown: Instant,
    /// When the methods were listed again.
    learnt: Option<Instant>,
}

impl Sampled {
    pub(super) fn start(process: &Process, names: Names) -> Result<Self> {
        let client = process.client();
        let info = client.process_info()?;
        let sampling = Sampling::start(&client, &info, false)?;
        let shown = Instant::now();
        Ok(Self { sampling, sums: Snapshot::default(), by_name: HashMap::new(), names, shown, learnt: None })
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

    /// Adds the new samples.
    fn add(&mut self) {
        let gathered = &mut self.sampling.gathered;
        let mut threads = HashSet::new();
        for sample in &gathered.samples {
            threads.insert(sample.thread);
            if !gathered.is_managed(sample) {
                continue;
            }
            self.sums.processor += sample.weight;
            let mut seen = HashSet::new();
            let names: Vec<&str> =
                gathered.stack(sample).map(|method| method.map_or(UNKNOWN, |method| method.name)).collect();
            for (depth, name) in names.iter().enumerate() {
                let name = self.names.method(name, names.get(depth + 1).copied());
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
        self.sums.elapsed = gathered.samples.last().map_or(self.sums.elapsed, |Sample { at, .. }| *at);
        self.sums.rounds = gathered.rounds();
        self.sums.threads = threads.len() as u64;
        gathered.forget();
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
