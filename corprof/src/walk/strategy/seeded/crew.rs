//! Threads that each stop and walk one thread at a time, while the sampler's thread goes on.
//!
//! A thread that waits for a processor stops only once it has one, which takes several time slices on a full machine. If the
//! sampler's thread waited for that, it would miss its next rounds. So it passes each thread to a *hand*, and collects the stack
//! in a later round. Most rounds need one hand; others are made when all are busy.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::id::ThreadId;
use crate::info::Info;
use crate::lock::unpoisoned;
use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::session::panics::{PanicPlace, catch};
use crate::walk::round::SampledThread;
use crate::walk::sample_buffer::SampleBuffer;
use crate::walk::sampler::Mode;
use crate::walk::strategy::{Hands, Outcome, Target, Walker};

use super::Seeder;
use super::watchdog::Tally;

/// The name of a hand's thread.
const NAME: &str = "corprof hand";

/// The most hands. On a full machine most threads wait for a processor, and each of these keeps a hand busy.
const MOST: usize = 4;

/// The hands of a sampler. They end when this is dropped.
pub(super) struct Crew {
    info: Info,
    depth: usize,
    hands: Vec<Hand>,
    /// The most hands; fewer once the system could not make another thread.
    most: usize,
    tally: Tally,
}

/// A thread that stops others.
struct Hand {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// The thread that it walks.
    walks: Option<SampledThread>,
}

struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

/// What a hand does. The buffer goes to it and comes back.
enum Work {
    Nothing(SampleBuffer),
    Asked(ThreadId, u32, SampleBuffer),
    InHand,
    Done(Outcome, SampleBuffer),
    Over,
}

impl Crew {
    pub(super) fn new(depth: usize, cx: &ProfilerThread<'_>) -> Self {
        Self { info: Info::clone(cx), depth, hands: Vec::new(), most: MOST, tally: Tally::default() }
    }
}

impl Hands for Crew {
    fn is_walking(&self, thread: ThreadId) -> bool {
        self.hands.iter().filter_map(|hand| hand.walks.as_ref()).any(|walked| walked.id.0 == thread)
    }

    fn walk(&mut self, thread: SampledThread) {
        if self.hands.len() < self.most && self.hands.iter().all(|hand| hand.walks.is_some()) {
            match Hand::new(&self.info, self.depth) {
                Ok(hand) => self.hands.push(hand),
                Err(error) => {
                    self.most = self.hands.len();
                    report::line(format_args!("the sampler cannot make another thread: {error}"));
                }
            }
        }
        let hand = self.hands.iter_mut().find(|hand| hand.walks.is_none());
        if let Some((hand, os_id)) = hand.zip(thread.os_id) {
            hand.shared.begin(thread.id.0, os_id);
            hand.walks = Some(thread);
        }
    }

    fn collect(&mut self, take: &mut dyn FnMut(SampledThread, Outcome, &SampleBuffer)) {
        for hand in &mut self.hands {
            let Some(thread) = hand.walks.take() else { continue };
            let mut work = hand.shared.work();
            match std::mem::replace(&mut *work, Work::InHand) {
                Work::Done(mut outcome, buffer) => {
                    if outcome.abandoned > 0 {
                        outcome.gives_up |= self.tally.add(thread.id.0.as_raw(), Instant::now());
                    }
                    take(thread, outcome, &buffer);
                    *work = Work::Nothing(buffer);
                }
                other => {
                    *work = other;
                    hand.walks = Some(thread);
                }
            }
        }
    }
}

impl Hand {
    fn new(info: &Info, depth: usize) -> io::Result<Self> {
        let work = Mutex::new(Work::Nothing(SampleBuffer::new(depth)));
        let shared = Arc::new(Shared { work, changed: Condvar::new() });
        let (theirs, info) = (Arc::clone(&shared), info.clone());
        let on_panic = |info: &Info| info.profiler().disable_after_panic(PanicPlace::ProfilerThread(NAME));
        let serve = move || {
            catch(|| theirs.serve(&info), || on_panic(&info));
        };
        let thread = std::thread::Builder::new().name(NAME.to_owned()).spawn(serve)?;
        Ok(Self { shared, thread: Some(thread), walks: None })
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // All of them, before the first is waited for.
        self.hands.iter().for_each(|hand| hand.shared.end());
    }
}

impl Drop for Hand {
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

    /// Asks the hand, which has nothing to do, to walk a thread.
    fn begin(&self, thread: ThreadId, os_id: u32) {
        let mut work = self.work();
        if let Work::Nothing(buffer) = std::mem::replace(&mut *work, Work::InHand) {
            *work = Work::Asked(thread, os_id, buffer);
        }
        drop(work);
        self.changed.notify_all();
    }

    /// Asks the hand to end.
    fn end(&self) {
        *self.work() = Work::Over;
        self.changed.notify_all();
    }

    /// The hand's thread, from start to end.
    fn serve(&self, info: &Info) {
        // SAFETY: this thread runs no code but this. The crew waits for its end, before the closure of the sampler's thread ends.
        let mut seeder = unsafe { Seeder::new(Mode::Cpu, info) };
        if let Err(error) = &seeder {
            report::line(format_args!("the sampler cannot stop single threads: {error}"));
        }
        let mut work = self.work();
        loop {
            match std::mem::replace(&mut *work, Work::InHand) {
                Work::Over => return,
                Work::Asked(thread, os_id, mut buffer) => {
                    drop(work);
                    buffer.prepare(1);
                    let outcome = match &mut seeder {
                        Ok(seeder) => seeder.walk_thread(info, thread, os_id, &mut buffer),
                        Err(_) => Outcome { abandoned: 1, gives_up: true, ..Outcome::default() },
                    };
                    work = self.work();
                    if !matches!(*work, Work::Over) {
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

impl Seeder<'_> {
    /// Walks one thread, if it is still alive.
    fn walk_thread(&mut self, info: &Info, thread: ThreadId, os_id: u32, buffer: &mut SampleBuffer) -> Outcome {
        let Some(claim) = info.liveness().walk_candidate(thread) else {
            return Outcome { ended: 1, ..Outcome::default() };
        };
        // No function is unloaded before it is recorded.
        let _look_up = info.liveness().look_up();
        let target = Target { thread, os_id: Some(os_id), claim };
        let outcome = self.walk(&[target], buffer, std::time::Duration::MAX);
        buffer.take_note(info);
        outcome
    }
}
