//! The stacks of a process that another profiler stays in, by the runtime's own sampler.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use corprof_diagnostics::Process;
use corprof_launch::processes;

use super::{Frame, Stacks, Thread};
use crate::event_pipe_samples::{Callers, Gathered, MISSING, Sample, Sampling, thread_name};
use crate::signals::Signals;

/// The time for which threads are sampled: many rounds, so that the last one has each thread.
const SAMPLED: Duration = Duration::from_millis(100);

/// Takes the last stack of each thread in a short session.
pub(super) fn take(process: &Process, callers: Callers, timeout: Duration, signals: &Signals) -> Result<Stacks> {
    let pid = process.pid();
    let client = process.client();
    let info = client.process_info()?;
    let mut sampling = Sampling::start(&client, &info, callers)?;
    let begin = Instant::now();
    while sampling.gathered.rounds() == 0 && !sampling.is_over() {
        ensure!(!signals.is_interrupted(), "interrupted before the threads of process {pid} were suspended");
        ensure!(begin.elapsed() < timeout, "the threads of process {pid} were not suspended within {timeout:?}");
        sampling.read(SAMPLED)?;
    }
    sampling.finish(signals)?;
    let threads = last(&sampling.gathered, pid);
    ensure!(!threads.is_empty(), "the runtime has sampled no thread of process {pid}");
    let mut stacks =
        Stacks { pid, command: processes::command_line(pid), by_event_pipe: true, threads, ..Stacks::default() };
    if callers != Callers::Physical {
        let is_unknown = |sample: &&&Sample| !sample.has_callers && sampling.gathered.is_resumed(sample);
        stacks.callers_unknown = last_samples(&sampling.gathered).values().filter(is_unknown).count();
    }
    Ok(stacks)
}

/// The last sample of each thread.
fn last_samples(gathered: &Gathered) -> BTreeMap<u64, &Sample> {
    gathered.samples.iter().map(|sample| (sample.thread, sample)).collect()
}

/// Their stacks.
fn last(gathered: &Gathered, pid: u32) -> Vec<Thread> {
    let thread = |(id, sample): (u64, &Sample)| {
        let missing = gathered.is_cut(sample).then_some(MISSING);
        Thread {
            id: u32::try_from(id).unwrap_or_default(),
            name: thread_name(pid, id),
            state: if gathered.is_managed(sample) { "in managed code" } else { "in native code" }.to_owned(),
            is_cut: missing.is_some(),
            frames: gathered.names(sample).into_iter().chain(missing).map(Frame::named).collect(),
        }
    };
    last_samples(gathered).into_iter().map(thread).collect()
}
