//! Prints the calls of an application as a tree: each call below and to the right of its caller, thread by thread.
//!
//! `cargo xtask demo tracer`. A line is the thread's number, the depth as dots (at most 100), and the name of what is called.
//! TRACER_FILTER='Shop.*' traces only functions whose whole names match that glob, such as `Shop.Order.Total(int32)`. Calls
//! are buffered by thread and written by a thread of the tracer's own; when that is slower than the application, some are
//! dropped, and how many is said at the end. What a `finally` calls because of an exception stands below what threw it,
//! which is still there then.

use corprof::prelude::*;
use globset::{Glob, GlobMatcher};
use rtrb::{Consumer, Producer, RingBuffer};
use std::io::{BufWriter, Write, stderr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::{env::var, time::Duration};

/// How many beginnings and ends a thread may be ahead of the writer: 1.5 MiB of them.
const ROOM: usize = 1 << 16;

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05")]
struct Tracer(Arc<Calls>);

#[derive(Default)]
struct Calls {
    filter: OnceLock<GlobMatcher>,
    threads: Mutex<Vec<Thread>>,
    seen: AtomicUsize,
    dropped: AtomicU64,
}

/// The writer's view of a thread: its number, its calls, and the stack pointers of the callers that it is inside of. An
/// exception leaves functions without a word, but the next call shows where the stack is.
struct Thread(usize, Consumer<Call>, Vec<usize>);

/// The name of a function that begins, none if one ends; and the stack pointer of its caller.
type Call = (Option<&'static str>, usize);

impl FunctionHooks for Calls {
    type Function = &'static str;
    type Thread = Producer<Call>;

    fn select(&self, cx: &mut InTriggers<'_>, function: FunctionId) -> Hook<&'static str> {
        let name = cx.names().function(function).to_string();
        let is_wanted = self.filter.get().is_some_and(|filter| filter.is_match(&name));
        if is_wanted { Hook::Yes(name.leak()) } else { Hook::No } // what is kept for a function is kept for ever
    }
    fn thread_started(&self) -> Producer<Call> {
        let (calls, reader) = RingBuffer::new(ROOM);
        let thread = Thread(self.seen.fetch_add(1, Relaxed), reader, Vec::new());
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        calls
    }
    fn enter(&self, cx: &InHook<'_>, calls: &mut Producer<Call>, name: &&'static str) {
        self.tell(calls, (Some(name), cx.stack_pointer()));
    }
    fn leave(&self, cx: &InHook<'_>, calls: &mut Producer<Call>, _name: &&'static str) {
        self.tell(calls, (None, cx.stack_pointer()));
    }
}

impl Calls {
    fn tell(&self, calls: &mut Producer<Call>, call: Call) {
        if calls.push(call).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// Writes what has come together.
    fn write(&self) {
        let threads = || self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut out, mut taken) = (BufWriter::new(stderr()), std::mem::take(&mut *threads()));
        for Thread(number, calls, stack) in &mut taken {
            for (name, stack_pointer) in (0..calls.slots()).map_while(|_| calls.pop().ok()) {
                stack.truncate(stack.partition_point(|&caller| caller > stack_pointer));
                let Some(name) = name else { continue };
                let _ = writeln!(out, "{number:>4} {:.<1$}{name}", "", stack.len().min(100));
                stack.push(stack_pointer);
            }
        }
        taken.retain(|Thread(_, calls, _)| !(calls.is_abandoned() && calls.is_empty()));
        threads().append(&mut taken); // no new thread has waited for the disk
    }
}

#[callbacks]
impl Callbacks for Tracer {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let filter = Glob::new(&var("TRACER_FILTER").unwrap_or("*".into()))?;
        self.0.filter.get_or_init(|| filter.compile_matcher());
        cx.hook_functions(self.0.clone())?;
        let calls = self.0.clone();
        cx.spawn_own_thread("tracer", move |cx| {
            while cx.wait(Duration::from_millis(5)).is_continue() {
                calls.write();
            }
        })?;
        Ok(())
    }
    fn shutdown(&self, _cx: &mut InTriggers<'_>) {
        self.0.write();
        eprintln!("tracer: {} beginnings and ends of calls were dropped", self.0.dropped.load(Relaxed));
    }
}
