//! Prints what becomes of each exception, as it happens; at the end how many there were, by class, thread and catcher.
//!
//! `cargo xtask demo exceptions`. Each exception is a tree, after its thread's number: whom the search for a handler
//! visits, which filters it asks, who will catch; then who is unwound, which finally blocks run, and the catch. What is
//! thrown inside of a filter, finally or catch block stands under it; `throw;` throws anew. An exception that nobody
//! catches ends the process, and there is no summary.
//!
//! How versions differ: .NET 10, .NET 8 and .NET Core 3.1 (x64) tell the same of the same frames, and leave out the same.
//! - A finally or catch block that another exception leaves has no end: see `may_be_over`.
//! - Nor has an exception that goes from managed code into the runtime. That of a static constructor is unwound, then a
//!   TypeInitializationException is thrown.
//! - An exception that leaves a filter is unwound up to the filter, which then declines.
//! - A function whose finally block throws is unwound twice, for both exceptions.
//!
//! What differs is the framework in between: from .NET 8 on `MethodInfo.Invoke` catches what the method throws, and throws a
//! TargetInvocationException; on 3.1 the runtime does, and no catch is told. On .NET 10 managed code runs static constructors
//! (`InitHelpers.InitClassSlow`), and is searched and unwound like any other.

use corprof::{prelude::*, sync::Mutex};
use std::io::{Write, stderr};
use std::{cmp::Reverse, collections::BTreeMap, mem::replace};

const THROWN: &str = "thrown";
const CATCH: &str = "catch in";
const ON_THREAD: &str = "on thread";

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A03")]
struct Exceptions(Mutex<State>);

#[derive(Default)]
struct State {
    /// By thread its number, and its exceptions under way, each thrown inside of a block of the one before.
    threads: BTreeMap<Option<ThreadId>, (usize, Vec<Exception>)>,
    threads_seen: usize,
    /// How often what happened to whom.
    counts: BTreeMap<(&'static str, Name), usize>,
}

struct Exception {
    /// The filter, finally or catch that is being run for it, and whose.
    block: Option<(&'static str, FunctionId)>,
    /// No block is being run, or an exception thrown there has unwound the function. Whether that one left the block, and
    /// so ended this one, or was caught inside, is not told.
    may_be_over: bool,
}

impl Exceptions {
    /// Brings the thread's exceptions up to date, then prints and counts what happened to whom.
    fn note(&self, cx: &InCallback<'_>, what: &'static str, whom: Name, update: impl FnOnce(&mut Vec<Exception>)) {
        let State { threads, threads_seen, counts } = &mut *self.0.lock(cx);
        let new = || (replace(threads_seen, *threads_seen + 1), Vec::new());
        let (number, exceptions) = threads.entry(cx.current_thread().unwrap_or(None)).or_insert_with(new);
        update(exceptions);
        // In one piece, as the application writes there too.
        let indent = (2 * exceptions.len()).saturating_sub(if what == THROWN { 2 } else { 1 });
        let _ = stderr().write_all(format!("{number:>4} {:1$}{what} {whom}\n", "", 2 * indent).as_bytes());
        let on_thread = (what == THROWN).then(|| (ON_THREAD, number.to_string().into()));
        on_thread.into_iter().chain([(what, whom)]).for_each(|key| *counts.entry(key).or_default() += 1);
    }

    fn enter(&self, cx: &InCallback<'_>, block: &'static str, function: FunctionId) {
        self.note(cx, block, cx.names().function(function), |exceptions| {
            exceptions.pop();
            exceptions.push(Exception { block: Some((block, function)), may_be_over: false });
        });
    }

    /// The innermost block of this kind has ended, and with it what was thrown inside.
    fn leave(&self, cx: &InCallback<'_>, block: &'static str) {
        let mut state = self.0.lock(cx);
        let Some((_, exceptions)) = state.threads.get_mut(&cx.current_thread().unwrap_or(None)) else { return };
        let Some(at) = exceptions.iter().rposition(|e| e.block.is_some_and(|(kind, _)| kind == block)) else { return };
        let was_doubtful = replace(&mut exceptions[at], Exception { block: None, may_be_over: true }).may_be_over;
        exceptions.truncate(at + usize::from(block != CATCH));
        // If that catch had been left before, then it was the one around it that has ended now.
        exceptions.last_mut().into_iter().for_each(|around| around.may_be_over |= was_doubtful);
    }
}

#[callbacks]
#[rustfmt::skip]
impl Callbacks for Exceptions {
    fn exception_search_function_enter(&self, cx: &mut InTriggers<'_>, id: FunctionId) { self.note(cx, "search", cx.names().function(id), |_| ()); }
    fn exception_search_filter_enter(&self, cx: &mut InTriggers<'_>, id: FunctionId) { self.enter(cx, "filter", id); }
    fn exception_search_filter_leave(&self, cx: &mut InTriggers<'_>) { self.leave(cx, "filter"); }
    fn exception_search_catcher_found(&self, cx: &mut InTriggers<'_>, id: FunctionId) { self.note(cx, "caught in", cx.names().function(id), |_| ()); }
    fn exception_unwind_finally_enter(&self, cx: &InCallback<'_>, id: FunctionId) { self.enter(cx, "finally", id); }
    fn exception_unwind_finally_leave(&self, cx: &InCallback<'_>) { self.leave(cx, "finally"); }
    fn exception_catcher_enter(&self, cx: &InCallback<'_>, id: FunctionId, _: Option<ObjectId<'_>>) { self.enter(cx, CATCH, id); }
    fn exception_catcher_leave(&self, cx: &mut InTriggers<'_>) { self.leave(cx, CATCH); }
    fn thread_destroyed(&self, cx: &mut InTriggers<'_>, id: ThreadId) { self.0.lock(cx).threads.remove(&Some(id)); }

    fn exception_thrown(&self, cx: &InCallback<'_>, thrown: ObjectId<'_>) {
        let class = cx.class_of(thrown).map_or("?".into(), |class| cx.names().class(class));
        self.note(cx, THROWN, class, |exceptions| {
            while exceptions.pop_if(|last| last.may_be_over).is_some() {}
            exceptions.push(Exception { block: None, may_be_over: true });
        });
    }

    fn exception_unwind_function_enter(&self, cx: &InCallback<'_>, id: FunctionId) {
        self.note(cx, "unwind", cx.names().function(id), |exceptions| {
            let around = exceptions.iter_mut().rev().skip(1).find(|around| !around.may_be_over);
            around.into_iter().for_each(|around| around.may_be_over = around.block.is_some_and(|(_, runs)| runs == id));
        });
    }

    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        let counts = &self.0.lock(cx).counts;
        for heading in [THROWN, ON_THREAD, CATCH] {
            let mut rows: Vec<_> = counts.iter().filter(|((what, _), _)| *what == heading).collect();
            rows.sort_by_key(|&(_, count)| Reverse(count));
            rows.iter().for_each(|((what, whom), count)| eprintln!("{count:>8} {what} {whom}"));
        }
    }
}
