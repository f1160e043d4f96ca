//! Keeps inlining and requests to recompile apart on .NET 8, whose runtime crashes when they meet.
//!
//! When a compiler has inlined a function, the runtime looks whether somebody asked meanwhile for another body of it,
//! and if so, asks for the recompilation of the caller (`CEEInfo::reportInliningDecision`). .NET 8 passes the address
//! of something else in place of the caller's module there, and follows what it reads (dotnet/runtime#95653, mended in
//! .NET 9); and it has the lock of code versions while it takes that of requests, which a request takes the other way
//! round. So a request waits until the compilations that have inlined something are over, and from its beginning on
//! those that began before its end inline nothing more: a later one finds the other body, and inlines nothing of it.
//! `attacks::long::methods_are_requested_while_they_are_inlined` hung 4 times and crashed once in 5 runs without this.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::{ReleaseFact, RuntimeInfo};
use crate::error::Result;

/// How long a request waits. A compilation that lasts longer probably waits for the thread that makes the request: then
/// waiting does not help.
const PATIENCE: Duration = Duration::from_millis(500);
/// The polling interval: most compilations take less than a millisecond.
const PAUSE: Duration = Duration::from_micros(100);

/// The state of a session.
#[derive(Default)]
pub(crate) struct Inlinings {
    /// Whether the runtime has the fault: known once requests are possible.
    is_needed: OnceLock<bool>,
    /// How many requests are being made.
    requests: AtomicU32,
    /// How many requests have ended.
    ended: AtomicU64,
    /// How many compilations are under way that have inlined something.
    inlining: Arc<AtomicU32>,
}

struct Compilation {
    /// How many requests had ended at its beginning.
    began: u64,
    /// What it is counted in if it has inlined something.
    counted: Option<Arc<AtomicU32>>,
    /// An address in the frame of its beginning.
    frame: usize,
}

impl Drop for Compilation {
    fn drop(&mut self) {
        if let Some(inlining) = &self.counted {
            inlining.fetch_sub(1, SeqCst);
        }
    }
}

thread_local! {
    /// The compilations of a thread, one within the other: a class constructor runs, for example.
    static COMPILATIONS: RefCell<Vec<Compilation>> = const { RefCell::new(Vec::new()) };
}

impl Inlinings {
    /// The profiler can make requests of a runtime, whose version `ask` returns: in `initialize`, where the runtime
    /// answers. Returns whether it has to be told of compilations.
    pub(crate) fn watch(&self, ask: impl FnOnce() -> Result<RuntimeInfo>) -> Result<bool> {
        if let Some(&is_needed) = self.is_needed.get() {
            return Ok(is_needed);
        }
        let runtime = ask()?;
        Ok(*self.is_needed.get_or_init(|| runtime.has(ReleaseFact::CrashesWhenInliningMeetsRequests)))
    }

    fn with_compilations<R>(&self, act: impl FnOnce(&mut Vec<Compilation>) -> R) -> Option<R> {
        if self.is_needed.get() != Some(&true) {
            return None;
        }
        COMPILATIONS.try_with(|all| all.try_borrow_mut().ok().map(|mut all| act(&mut all))).ok().flatten()
    }

    /// The calling thread begins to compile a function.
    #[inline]
    pub(crate) fn compilation_begins(&self) {
        self.with_compilations(|all| {
            let here = 0_u8;
            let frame = std::ptr::from_ref(&here).addr();
            // Of those below the runtime has not reported the end: the frames of outer compilations lie above.
            while all.last().is_some_and(|last| last.frame <= frame) {
                all.pop();
            }
            all.push(Compilation { began: self.ended.load(SeqCst), counted: None, frame });
        });
    }

    /// The calling thread has compiled a function, or could not.
    #[inline]
    pub(crate) fn compilation_ends(&self) {
        self.with_compilations(|all| drop(all.pop()));
    }

    /// Whether the compilation of the calling thread may inline a function; if so, requests wait for its end.
    #[inline]
    pub(crate) fn may_inline(&self) -> bool {
        if self.is_needed.get() != Some(&true) {
            return true;
        }
        let may = self.with_compilations(|all| {
            let Some(compilation) = all.last_mut() else { return false };
            let is_new = compilation.counted.is_none();
            if is_new {
                self.inlining.fetch_add(1, SeqCst);
                compilation.counted = Some(Arc::clone(&self.inlining));
            }
            // In this order: a request counts itself first, and looks for compilations then.
            let is_undisturbed = self.requests.load(SeqCst) == 0 && compilation.began == self.ended.load(SeqCst);
            if is_new && !is_undisturbed {
                self.inlining.fetch_sub(1, SeqCst);
                compilation.counted = None;
            }
            is_undisturbed
        });
        may.unwrap_or(false)
    }

    /// See [`Waits`].
    pub(crate) fn waits(&self) -> Waits<'_> {
        let count =
            self.with_compilations(|all| all.iter().filter(|compilation| compilation.counted.is_some()).count());
        let count = u32::try_from(count.unwrap_or(0)).unwrap_or(0);
        self.inlining.fetch_sub(count, SeqCst);
        Waits(&self.inlining, count)
    }

    /// Makes a request when no compilation has inlined anything. The calling thread compiles nothing.
    pub(crate) fn request<R>(&self, call: impl FnOnce() -> R) -> R {
        if self.is_needed.get() != Some(&true) {
            return call();
        }
        let _request = Request::begin(self);
        let begin = Instant::now();
        while self.inlining.load(SeqCst) > 0 && begin.elapsed() < PATIENCE {
            std::thread::sleep(PAUSE);
        }
        call()
    }
}

/// While it lives, requests do not wait for the compilations of this thread, which waits for a request: about a module
/// that they have nothing of, as it is just being loaded.
pub(crate) struct Waits<'a>(&'a AtomicU32, u32);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, SeqCst);
    }
}

struct Request<'a>(&'a Inlinings);

impl<'a> Request<'a> {
    fn begin(inlinings: &'a Inlinings) -> Self {
        inlinings.requests.fetch_add(1, SeqCst);
        Self(inlinings)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        // In this order: a compilation that sees no request sees that one has ended.
        self.0.ended.fetch_add(1, SeqCst);
        self.0.requests.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlining_and_requests_exclude_each_other() {
        let inlinings = Inlinings::default();
        assert!(inlinings.may_inline(), "other runtimes have no such fault");
        let faulty = RuntimeInfo { major: 8, minor: 0, build: 0 };
        assert!(inlinings.watch(|| Ok(faulty)).unwrap());
        assert!(!inlinings.may_inline(), "its compilation is unknown");
        inlinings.compilation_begins();
        assert!(inlinings.may_inline() && inlinings.may_inline());
        std::thread::scope(|scope| {
            let counted = scope.spawn(|| inlinings.request(|| inlinings.inlining.load(SeqCst)));
            while inlinings.requests.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            assert!(!inlinings.may_inline(), "a request waits");
            inlinings.compilation_ends();
            assert_eq!(counted.join().unwrap(), 0);
        });
        inlinings.compilation_begins();
        inlinings.request(|| ());
        let rule = "the runtime may have looked before the request whether the function has another body";
        assert!(!inlinings.may_inline(), "{rule}");
        inlinings.compilation_ends();
        inlinings.compilation_begins();
        assert!(inlinings.may_inline());
        {
            let _waits = inlinings.waits();
            assert_eq!(inlinings.request(|| inlinings.inlining.load(SeqCst)), 0);
        }
        assert_eq!(inlinings.inlining.load(SeqCst), 1);
        inlinings.compilation_ends();
        assert_eq!(inlinings.inlining.load(SeqCst), 0);
    }
}
