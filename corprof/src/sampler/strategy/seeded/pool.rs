//! Threads that each stop and walk one thread at a time, while the sampler's thread goes on.
//!
//! A thread that waits for a processor stops only once it has one, which takes several time slices on a full machine.
//! If the sampler's thread waited for that, it would miss its next rounds. So it passes each thread to a walker, and
//! collects the stack in a later round. Most rounds need one walker; others are made when all are busy.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::id::ThreadId;
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::sampler::round::SampledThread;
use crate::sampler::sample_buffer::SampleBuffer;
use crate::sampler::strategy::Outcome;
use crate::sampler::strategy::drawn::WalkerPool;
use crate::sampler::strategy::every_thread::{WalkTarget, Walker};
use crate::session::panics::{PanicPlace, catch};
use crate::walk::seeded::WaitingThreads;

use super::{AbandonedWalks, OneByOne};

/// The name of a walker's thread.
const THREAD_NAME: &str = "corprof walker";

/// The most walkers. On a full machine most threads wait for a processor, and each of these keeps a walker busy.
const MAX_WALKERS: usize = 4;

/// The walkers of a sampler. They end when this is dropped.
pub(super) struct SeederPool {
    info: Info,
    depth: usize,
    walkers: Vec<PoolWalker>,
    /// The most walkers; fewer once the system could not make another thread.
    limit: usize,
    abandoned_walks: AbandonedWalks,
}

/// A thread that stops others.
struct PoolWalker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The thread that it walks.
    walked: Option<SampledThread>,
}

/// What a walker's thread shares with the sampler's.
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

/// What a walker does. The buffer goes to it and comes back.
enum Work {
    Idle(SampleBuffer),
    Requested(ThreadId, u32, SampleBuffer),
    Walking,
    Done(Outcome, SampleBuffer),
    Ended,
}

impl SeederPool {
    pub(super) fn new(depth: usize, cx: &ProfilerThread<'_>) -> Self {
        Self {
            info: Info::clone(cx),
            depth,
            walkers: Vec::new(),
            limit: MAX_WALKERS,
            abandoned_walks: AbandonedWalks::default(),
        }
    }

    /// Makes another walker, if all are busy and one more is allowed.
    fn grow_if_busy(&mut self) {
        let are_busy = self.walkers.iter().all(|walker| walker.walked.is_some());
        if !are_busy || self.walkers.len() >= self.limit {
            return;
        }
        match PoolWalker::new(&self.info, self.depth) {
            Ok(walker) => self.walkers.push(walker),
            Err(error) => {
                self.limit = self.walkers.len();
                report::line(format_args!("the sampler cannot make another thread: {error}"));
            }
        }
    }
}

impl WalkerPool for SeederPool {
    fn is_walking(&self, thread: ThreadId) -> bool {
        self.walkers.iter().filter_map(|walker| walker.walked.as_ref()).any(|walked| walked.id.0 == thread)
    }

    fn walk(&mut self, thread: SampledThread) {
        self.grow_if_busy();
        let idle = self.walkers.iter_mut().find(|walker| walker.walked.is_none());
        if let Some((walker, os_id)) = idle.zip(thread.os_id) {
            walker.shared.request(thread.id.0, os_id);
            walker.walked = Some(thread);
        }
    }

    fn collect(&mut self, take: &mut dyn FnMut(SampledThread, Outcome, &SampleBuffer)) {
        for walker in &mut self.walkers {
            let Some(thread) = walker.walked.take() else { continue };
            let mut work = walker.shared.work();
            match std::mem::replace(&mut *work, Work::Walking) {
                Work::Done(mut outcome, buffer) => {
                    if outcome.abandoned > 0 {
                        outcome.gives_up |= self.abandoned_walks.add(thread.id.0.as_raw(), Instant::now());
                    }
                    take(thread, outcome, &buffer);
                    *work = Work::Idle(buffer);
                }
                other => {
                    *work = other;
                    walker.walked = Some(thread);
                }
            }
        }
    }
}

impl PoolWalker {
    fn new(info: &Info, depth: usize) -> io::Result<Self> {
        let work = Mutex::new(Work::Idle(SampleBuffer::new(depth)));
        let shared = Arc::new(Shared { work, changed: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let info = info.clone();
        let on_panic = |info: &Info| info.profiler().disable_after_panic(PanicPlace::ProfilerThread(THREAD_NAME));
        let serve = move || {
            catch(|| theirs.serve(&info), || on_panic(&info));
        };
        let thread = std::thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(serve)?;
        Ok(Self { shared, thread: Some(thread), walked: None })
    }
}

impl Drop for SeederPool {
    fn drop(&mut self) {
        // All of them, before the first is waited for.
        self.walkers.iter().for_each(|walker| walker.shared.end());
    }
}

impl Drop for PoolWalker {
    fn drop(&mut self) {
        self.shared.end();
        // It resumes its thread first, at the latest when the watchdog has.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        unpoisoned(self.work.lock())
    }

    /// Asks the walker, which is idle, to walk a thread.
    fn request(&self, thread: ThreadId, os_id: u32) {
        let mut work = self.work();
        if let Work::Idle(buffer) = std::mem::replace(&mut *work, Work::Walking) {
            *work = Work::Requested(thread, os_id, buffer);
        }
        drop(work);
        self.changed.notify_all();
    }

    /// Asks the walker to end.
    fn end(&self) {
        *self.work() = Work::Ended;
        self.changed.notify_all();
    }

    /// The walker's thread, from start to end.
    fn serve(&self, info: &Info) {
        // SAFETY: this thread runs no code but this. The pool waits for its end, before the closure of the sampler's
        // thread ends.
        let mut walker = unsafe { OneByOne::new(WaitingThreads::AreLeftOut, info) };
        if let Err(error) = &walker {
            report::line(format_args!("the sampler cannot stop single threads: {error}"));
        }
        let mut work = self.work();
        loop {
            match std::mem::replace(&mut *work, Work::Walking) {
                Work::Ended => return,
                Work::Requested(thread, os_id, mut buffer) => {
                    drop(work);
                    buffer.prepare(1);
                    let outcome = match &mut walker {
                        Ok(walker) => walk_thread(walker, info, thread, os_id, &mut buffer),
                        Err(_) => Outcome { abandoned: 1, gives_up: true, ..Outcome::default() },
                    };
                    work = self.work();
                    if !matches!(*work, Work::Ended) {
                        *work = Work::Done(outcome, buffer);
                    }
                }
                other => {
                    *work = other;
                    work = unpoisoned(self.changed.wait(work));
                }
            }
        }
    }
}

/// Walks one thread, if it is still alive.
fn walk_thread(
    walker: &mut OneByOne<'_>,
    info: &Info,
    thread: ThreadId,
    os_id: u32,
    buffer: &mut SampleBuffer,
) -> Outcome {
    let Some(candidate) = info.liveness().walk_candidate(thread) else {
        return Outcome { ended: 1, ..Outcome::default() };
    };
    // No function is unloaded before it is recorded.
    let _look_up = info.liveness().look_up();
    let target = WalkTarget { thread, os_id: Some(os_id), candidate };
    let outcome = walker.walk(&[target], buffer, Duration::MAX);
    buffer.record_functions(info);
    outcome
}
