//! Has the threads prepared that are older than the sampler: after an attach, all of them.
//!
//! A thread that waits in a system call is asked by a signal to prepare itself
//! (`corprof/src/system/linux/signals/older.rs`). One that is still running after a while is asked while the runtime is
//! suspended, when it waits as well.

use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::profiler_thread::ProfilerThread;
use crate::system::signals::{Mappings, OlderThread, Requested};
use crate::walk::suspended::Suspender;

use super::threads::PreparedThreads;

/// The time between two looks, as long as threads are unprepared; later ones come every second.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_secs(1);

/// In how many looks a thread must have run until the runtime is suspended for it.
const LOOKS_BEFORE_SUSPENSION: u32 = 5;

/// How often the runtime is suspended at most: a thread that runs native code does not wait then either.
const MOST_SUSPENSIONS: u32 = 10;

/// How long the threads are asked within a suspension, and the time between. One that has stopped may not be in its wait
/// yet: on a busy machine it has no processor on its way there.
const ASKED_IN_SUSPENSION: Duration = Duration::from_millis(5);
const BETWEEN: Duration = Duration::from_micros(100);

/// Which threads are still to be prepared.
pub(super) struct OlderThreads {
    prepared: &'static PreparedThreads,
    next_look: Instant,
    /// Looks in a row that have found a running thread.
    looks: u32,
    suspensions: u32,
}

/// A thread that is asked.
struct Candidate {
    thread: ThreadId,
    older: OlderThread,
}

impl OlderThreads {
    pub(super) fn new(prepared: &'static PreparedThreads) -> Self {
        Self { prepared, next_look: Instant::now(), looks: 0, suspensions: 0 }
    }

    /// Takes over those that have answered, and asks others.
    pub(super) fn prepare_some(&mut self, cx: &mut ProfilerThread<'_>, now: Instant) {
        self.prepared.take_answers();
        if now < self.next_look {
            return;
        }
        let candidates = self.candidates(cx);
        let running = self.ask_waiting(cx, candidates);
        if running.is_empty() {
            self.looks = 0;
            self.next_look = now + LATER;
            return;
        }
        self.looks += 1;
        self.next_look = now + SOON;
        if self.looks >= LOOKS_BEFORE_SUSPENSION {
            self.looks = 0;
            self.next_look = now + LATER;
            if self.suspensions < MOST_SUSPENSIONS {
                self.suspensions += 1;
                self.ask_suspended(cx, running);
            }
        }
    }

    /// The managed threads that are neither prepared nor asked.
    fn candidates(&self, cx: &mut ProfilerThread<'_>) -> Vec<Candidate> {
        let threads = cx.enum_threads().unwrap_or_default();
        let unknown = threads.into_iter().filter(|thread| !self.prepared.knows(*thread));
        unknown
            .filter_map(|thread| {
                let older = OlderThread::open(cx.os_thread_id(thread).ok()?)?;
                Some(Candidate { thread, older })
            })
            .collect()
    }

    /// Asks those that wait, and returns the others.
    fn ask_waiting(&self, cx: &ProfilerThread<'_>, candidates: Vec<Candidate>) -> Vec<Candidate> {
        if candidates.is_empty() {
            return candidates;
        }
        let mappings = Mappings::read();
        candidates.into_iter().filter(|candidate| self.ask(cx, candidate, &mappings) == Some(Requested::Runs)).collect()
    }

    /// Asks one. None if it has ended, or cannot be prepared.
    fn ask(&self, cx: &ProfilerThread<'_>, candidate: &Candidate, mappings: &Mappings) -> Option<Requested> {
        let claim = cx.liveness().walk_candidate(candidate.thread)?;
        let request = self.prepared.ready(candidate.thread, candidate.older.address())?;
        // It does not end while it is pinned.
        let answer = claim.pin().map(|_pinned| request.send(&candidate.older, mappings));
        self.prepared.settle(candidate.thread, answer == Some(Requested::Yes));
        answer
    }

    /// Asks those that run while the runtime is suspended: then they wait.
    fn ask_suspended(&self, cx: &ProfilerThread<'_>, candidates: Vec<Candidate>) {
        let Ok(mut suspender) = Suspender::new(cx) else { return };
        let mappings = Mappings::read();
        let liveness = cx.liveness();
        let mut ready = Vec::new();
        for candidate in &candidates {
            let Some(claim) = liveness.walk_candidate(candidate.thread) else { continue };
            if let Some(request) = self.prepared.ready(candidate.thread, candidate.older.address()) {
                ready.push((candidate, claim, request, Requested::Runs));
            }
        }
        if let Ok(suspension) = suspender.suspend(&mut 0) {
            let end = Instant::now() + ASKED_IN_SUSPENSION;
            loop {
                for (candidate, claim, request, answer) in &mut ready {
                    if *answer != Requested::Runs {
                        continue;
                    }
                    let Some(_pinned) = claim.pin() else { continue };
                    *answer = request.send(&candidate.older, &mappings);
                }
                let is_done = ready.iter().all(|(_, _, _, answer)| *answer != Requested::Runs);
                if is_done || Instant::now() >= end {
                    break;
                }
                std::thread::sleep(BETWEEN);
            }
            suspension.end();
        }
        for (candidate, _, _, answer) in ready {
            self.prepared.settle(candidate.thread, answer == Requested::Yes);
        }
    }
}
