//! A thread that searches for code on behalf of threads that have never run managed code.
//!
//! Some time after an unload, when no thread is suspended, the runtime frees the list entries of stubs, under a lock
//! that a search takes only on threads that the runtime knows (`ExecutionManager::GetScanFlags` and `DeleteRange` in
//! vm/codeman.cpp; without the lock 2 of 7 runs died on .NET 10). corprof's threads must not become known: then the
//! runtime would refuse most calls there. So one more thread becomes known, and searches for the others.
//!
//! The runtime makes the calling thread known before it stops an EventPipe session, even if there is none
//! (`disable_helper` in ep.c). On such a thread it answers only inside of callbacks. It reports the new thread, so the
//! thread does its work inside its own `ThreadCreated`. The application does not end while the thread is there, as it
//! is not a background thread: so it soon goes, and another is made for the next search.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use corprof_sys as sys;

use crate::lock::unpoisoned;

use super::profiler_threads::ThreadPermit;
use super::{Info, Runtime};

/// What the thread does for another; it gets no runtime if the thread could not begin to work.
type Task = Box<dyn FnOnce(Option<&Runtime>) + Send>;

/// The thread and its tasks.
#[derive(Default)]
pub(super) struct Searcher {
    state: Mutex<State>,
    has_task: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether there is a thread.
    is_there: bool,
    tasks: VecDeque<Task>,
}

/// Why a search was not made.
pub(super) enum NotMade {
    /// The thread has no time; it has later.
    Busy,
    /// The runtime does not report new threads, as at the begin of an attach; or the system makes none.
    NoThread,
}

/// Where the thread puts an answer.
struct Exchange<R> {
    progress: Mutex<Progress<R>>,
    changed: Condvar,
}

enum Progress<R> {
    Waiting,
    Running,
    Done(R),
    /// Nobody waits any more: the task must not be begun.
    GivenUp,
}

thread_local! {
    /// Whether the calling thread is the searcher, and has not begun to serve.
    static IS_WANTED: Cell<bool> = const { Cell::new(false) };
}

impl Searcher {
    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// Has `task` run by the thread, which is made first if there is none.
    ///
    /// If the thread does not begin the task soon, it is busy: it may wait for the end of a suspension, and the caller
    /// must not, as it may hold a lock that a callback of the collection wants (suspension rule 3).
    pub(super) fn run<R: Send + 'static>(
        &self,
        info: &Info,
        task: impl FnOnce(&Runtime) -> R + Send + 'static,
    ) -> Result<R, NotMade> {
        let exchange = Arc::new(Exchange { progress: Mutex::new(Progress::Waiting), changed: Condvar::new() });
        let theirs = Arc::clone(&exchange);
        {
            let mut state = self.state();
            if !state.is_there && !begin(info) {
                return Err(NotMade::NoThread);
            }
            state.is_there = true;
            state.tasks.push_back(Box::new(move |runtime| theirs.answer(|| runtime.map(task))));
        }
        self.has_task.notify_one();
        exchange.wait().ok_or(NotMade::Busy)?.ok_or(NotMade::NoThread)
    }

    /// The next task, if there is one before `longest` is over.
    fn next(&self, longest: Duration) -> Option<Task> {
        let is_idle = |state: &mut State| state.tasks.is_empty();
        unpoisoned(self.has_task.wait_timeout_while(self.state(), longest, is_idle)).0.tasks.pop_front()
    }

    /// At the end of the thread. Another goes on with what is left, if this one was able to work.
    fn end(&self, info: &Info, has_served: bool) {
        let mut state = self.state();
        state.is_there = has_served && !state.tasks.is_empty() && begin(info);
        if !state.is_there {
            state.tasks.drain(..).for_each(|task| task(None));
        }
    }
}

/// Makes the thread; returns whether it is there.
fn begin(info: &Info) -> bool {
    const NAME: &str = "code searcher";
    let Ok(permit) = info.profiler_threads().permit(NAME) else { return false };
    let own = info.clone();
    let number = permit.number();
    let thread = std::thread::Builder::new().name(NAME.to_owned());
    let Ok(handle) = thread.spawn(move || live(&permit, &own)) else { return false };
    info.profiler_threads().keep(number, handle);
    true
}

/// The thread, from start to end.
fn live(permit: &ThreadPermit, info: &Info) {
    permit.take();
    IS_WANTED.set(true);
    if let Ok(sessions) = info.as_version::<sys::ICorProfilerInfo12>("EventPipeStopSession") {
        // SAFETY: the call takes a number, and checks that a session has it; none has 0 (fact: event-pipe).
        let _ = unsafe { sessions.EventPipeStopSession(0) };
    }
    let has_served = !IS_WANTED.replace(false);
    info.runtime().searcher().end(info, has_served);
}

/// Call it in `ThreadCreated`, after the user's method: if the thread is the searcher, it works for a while.
pub(crate) fn serve(info: &Info) {
    /// The application may be waiting for the end of the thread.
    const WHILE: Duration = Duration::from_millis(50);
    if !IS_WANTED.replace(false) {
        return;
    }
    let searcher = info.runtime().searcher();
    let begin = Instant::now();
    while begin.elapsed() < WHILE {
        if let Some(task) = searcher.next(WHILE.saturating_sub(begin.elapsed())) {
            task(Some(info.runtime()));
        }
    }
}

impl<R> Exchange<R> {
    fn progress(&self) -> MutexGuard<'_, Progress<R>> {
        unpoisoned(self.progress.lock())
    }

    /// On the searcher.
    fn answer(&self, ask: impl FnOnce() -> R) {
        {
            let mut progress = self.progress();
            if matches!(*progress, Progress::GivenUp) {
                return;
            }
            *progress = Progress::Running;
        }
        let answer = ask();
        *self.progress() = Progress::Done(answer);
        self.changed.notify_all();
    }

    /// On the thread that wants the answer. A search that has begun is waited for: what it is about may be pinned by
    /// the caller.
    fn wait(&self) -> Option<R> {
        const PATIENCE: Duration = Duration::from_millis(50);
        let waiting = |progress: &mut Progress<R>| matches!(progress, Progress::Waiting);
        let mut progress = unpoisoned(self.changed.wait_timeout_while(self.progress(), PATIENCE, waiting)).0;
        if matches!(*progress, Progress::Waiting) {
            *progress = Progress::GivenUp;
            return None;
        }
        let running = |progress: &mut Progress<R>| matches!(progress, Progress::Running);
        progress = unpoisoned(self.changed.wait_while(progress, running));
        match std::mem::replace(&mut *progress, Progress::GivenUp) {
            Progress::Done(answer) => Some(answer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> Exchange<u32> {
        Exchange { progress: Mutex::new(Progress::Waiting), changed: Condvar::new() }
    }

    #[test]
    fn an_answer_reaches_the_thread_that_waits_for_it() {
        let exchange = exchange();
        std::thread::scope(|scope| {
            scope.spawn(|| exchange.answer(|| 5));
            assert_eq!(exchange.wait(), Some(5));
        });
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_begun() {
        let exchange = exchange();
        assert_eq!(exchange.wait(), None);
        exchange.answer(|| panic!("the caller has gone on"));
    }
}
