//! Prints each exception as it happens, and when it is asked (`question`), the counts by class, thread and catching
//! method. For a command that has attached it, it only counts.
//!
//! Each exception is a tree, with the number of its thread in front: the functions that the search for a handler
//! visits, the filters it runs, the function that will catch; then the unwound functions, the finally blocks, and the
//! catch. An exception thrown inside a filter, finally or catch block is indented below it; `throw;` throws a new one.
//! An unhandled exception ends the process without a summary.
//!
//! The runtime does not report everything. The following holds for .NET 10 and .NET 8 (x64):
//! - A finally or catch block that another exception leaves has no end: see `may_be_over`.
//! - An exception that goes from managed code into the runtime has no end either. The exception of a static constructor
//!   is unwound, then a TypeInitializationException is thrown.
//! - An exception that leaves a filter is unwound up to the filter, which then declines.
//! - A function whose finally block throws is unwound twice, once for each exception.
//!
//! The framework has frames of its own: managed code of `MethodInfo.Invoke` catches the method's exception and throws a
//! TargetInvocationException. On .NET 10 managed code runs static constructors (`InitHelpers.InitClassSlow`), and is
//! searched and unwound like other functions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{Write, stderr};
use std::mem;
use std::time::Instant;

use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::EXCEPTIONS;

use crate::question::{Answer, Asker, answer_when_asked};

const THROWN: &str = "thrown";
const CATCH: &str = "catch in";
const ON_THREAD: &str = "on thread";

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A03", no_export)]
pub struct Exceptions {
    start: Instant,
    state: Mutex<State>,
    asker: Asker,
}

#[derive(Default)]
struct State {
    threads: BTreeMap<Option<ThreadId>, Thread>,
    /// The number of threads so far, and the number of the next thread.
    threads_seen: usize,
    /// Counts by event (`THROWN`, `CATCH`, `ON_THREAD` and others) and by its class, function or thread.
    counts: BTreeMap<(&'static str, Name), usize>,
}

struct Thread {
    number: usize,
    /// The active exceptions. Each was thrown inside a block that runs for the one before it.
    exceptions: Vec<Exception>,
}

struct Exception {
    /// The filter, finally or catch block that runs for it.
    block: Option<Block>,
    /// Either no block runs, or an exception thrown in the block has unwound the block's function. The runtime does not
    /// report whether that exception left the block, and so ended this one, or was caught inside.
    may_be_over: bool,
}

#[derive(Clone, Copy)]
struct Block {
    kind: &'static str,
    function: FunctionId,
}

impl State {
    fn thread(&mut self, cx: &InNoGc<'_>) -> &mut Thread {
        let id = cx.current_thread().unwrap_or(None);
        self.threads.entry(id).or_insert_with(|| {
            let number = self.threads_seen;
            self.threads_seen += 1;
            Thread { number, exceptions: Vec::new() }
        })
    }

    fn count(&mut self, event: &'static str, name: Name) {
        *self.counts.entry((event, name)).or_default() += 1;
    }
}

impl State {
    fn answer(&self, start: Instant, answer: &mut Answer) {
        let rows = |heading| {
            let mut rows: Vec<_> = self.counts.iter().filter(|((event, _), _)| *event == heading).collect();
            rows.sort_by_key(|&(_, count)| Reverse(count));
            rows
        };
        if answer.is_for_command() {
            let count: usize = rows(THROWN).into_iter().map(|(_, count)| count).sum();
            let seconds = start.elapsed().as_secs_f64();
            say!(answer, "{count} exceptions in {seconds:.1} s");
        }
        for heading in [THROWN, ON_THREAD, CATCH] {
            for ((event, name), count) in rows(heading) {
                answer.plain(format_args!("{count:>8} {event} {name}"));
            }
        }
    }
}

impl Exceptions {
    fn start(cx: &InCallback<'_>, asker: Asker) -> Result<Self, BoxError> {
        answer_when_asked(cx, &asker)?;
        Ok(Self { start: Instant::now(), state: Mutex::default(), asker })
    }

    /// Updates the exceptions of the current thread, then prints the event and counts it.
    fn note(&self, cx: &InNoGc<'_>, event: &'static str, name: Name, update: impl FnOnce(&mut Vec<Exception>)) {
        let mut state = self.state.lock(cx);
        let thread = state.thread(cx);
        update(&mut thread.exceptions);
        let number = thread.number;
        let depth = (2 * thread.exceptions.len()).saturating_sub(if event == THROWN { 2 } else { 1 });
        if !self.asker.is_command() && !crate::sdk::is_tool() {
            // A single write, because the application writes to the same stream.
            let line = format!("{number:>4} {:indent$}{event} {name}\n", "", indent = 2 * depth);
            let _ = stderr().write_all(line.as_bytes());
        }
        if event == THROWN {
            state.count(ON_THREAD, number.to_string().into());
        }
        state.count(event, name);
    }

    fn enter_block(&self, cx: &InNoGc<'_>, kind: &'static str, function: FunctionId) {
        self.note(cx, kind, cx.names().function(function), |exceptions| {
            exceptions.pop();
            exceptions.push(Exception { block: Some(Block { kind, function }), may_be_over: false });
        });
    }

    /// The innermost block of this kind has ended, and with it all exceptions thrown inside.
    fn leave_block(&self, cx: &InNoGc<'_>, kind: &'static str) {
        let mut state = self.state.lock(cx);
        let id = cx.current_thread().unwrap_or(None);
        let Some(Thread { exceptions, .. }) = state.threads.get_mut(&id) else { return };
        let is_of_kind = |exception: &Exception| exception.block.is_some_and(|block| block.kind == kind);
        let Some(at) = exceptions.iter().rposition(is_of_kind) else { return };
        let left = mem::replace(&mut exceptions[at], Exception { block: None, may_be_over: true });
        // A catch ends its exception; the others go on.
        exceptions.truncate(if kind == CATCH { at } else { at + 1 });
        // If an exception had left that catch block already, then it is the block around it that has ended now.
        if let Some(around) = exceptions.last_mut() {
            around.may_be_over |= left.may_be_over;
        }
    }
}

#[callbacks]
impl Callbacks for Exceptions {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let asker = Asker::of_start(cx, &Settings::of_environment(&EXCEPTIONS)?)?;
        Self::start(cx, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let asker = Asker::of_attach(cx, &Settings::of_attach(&EXCEPTIONS, data)?)?;
        Self::start(cx, asker)
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let class = cx.class_of(thrown).map_or("?".into(), |class| cx.names().class(class));
        self.note(cx, THROWN, class, |exceptions| {
            while exceptions.pop_if(|last| last.may_be_over).is_some() {}
            exceptions.push(Exception { block: None, may_be_over: true });
        });
    }

    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        self.note(cx, "search", cx.names().function(function), |_| ());
    }

    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        self.enter_block(cx, "filter", function);
    }

    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        self.leave_block(cx, "filter");
    }

    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        self.note(cx, "caught in", cx.names().function(function), |_| ());
    }

    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.note(cx, "unwind", cx.names().function(function), |exceptions| {
            // The exception is the last; the one whose block it was thrown in may end with that block's function.
            let around = exceptions.iter_mut().rev().skip(1).find(|around| !around.may_be_over);
            if let Some(around) = around {
                around.may_be_over = around.block.is_some_and(|block| block.function == function);
            }
        });
    }

    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        self.enter_block(cx, "finally", function);
    }

    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        self.leave_block(cx, "finally");
    }

    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, function: FunctionId, _thrown: Option<ObjectId<'_>>) {
        self.enter_block(cx, CATCH, function);
    }

    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.leave_block(cx, CATCH);
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.state.lock(cx).threads.remove(&Some(thread));
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        self.asker.answer(|answer| self.state.lock(cx).answer(self.start, answer));
    }
}
