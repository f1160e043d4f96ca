//! A lock that cannot be held while a garbage collection starts (suspension rule 3), and [`ThreadState`], a value for
//! each thread that needs no common lock.
//!
//! A thread that holds a lock and makes a call which may start a collection can wait for other managed threads to stop,
//! while one of those waits for the lock: the application hangs. The guard here borrows the callback's context, and
//! calls that may start a collection need that context exclusively, so holding the one while making the other does not
//! compile:
//!
//! ```compile_fail,E0502
//! # use corprof::prelude::*;
//! fn count(table: &corprof::sync::Mutex<u32>, cx: &mut InCallback<'_>, domain: AppDomainId) {
//!     let mut guard = table.lock(cx);
//!     let _ = cx.app_domain_info(domain); // may start a collection
//!     *guard += 1;
//! }
//! ```
//!
//! # Calls that make a callback on the calling thread
//!
//! Some calls that may be made under a lock make a callback before they return, on the same thread. A callback that
//! takes the same lock can never get it:
//!
//! | call | callback | when |
//! |---|---|---|
//! | [`create_handle`](crate::InNoGc::create_handle) | `handle_created` | with `MONITOR_GC` |
//! | [`ObjectHandle::destroy`](crate::info::ObjectHandle::destroy), and dropping an `ObjectHandle` | `handle_destroyed` | with `MONITOR_GC` |
//! | [`event_pipe_write_event`](crate::Info::event_pipe_write_event) | `event_pipe_event_delivered` | while a session listens to the provider |
//! | any call in which the runtime writes an event of its own | `event_pipe_event_delivered` | while a session listens to that event |
//!
//! [`Mutex`] knows which thread holds it, and panics in this case instead of waiting for ever; the message names both
//! places. The adapter catches the panic like any other: the profiler is disabled, and the application goes on. The
//! standard library's `Mutex` would wait for ever, and the application with it. Keep the data of such a callback under
//! a lock of its own, or drop the guard before the call.

pub(crate) mod thread_end;
mod thread_state;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::ptr;
use std::sync;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use crate::context::Context;
use crate::lock::{try_unpoisoned, unpoisoned};
use crate::system;

pub use thread_state::{Merge, ThreadState};

/// A mutual exclusion lock whose guard borrows the context of the callback that takes it.
///
/// A panic while it is held does not poison it: the profiler is disabled then, and only `shutdown` sees the data again.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    holder: Holder,
    data: sync::Mutex<T>,
}

/// Access to the data of a [`Mutex`], for as long as the context is only shared.
pub struct MutexGuard<'a, T: ?Sized> {
    holder: &'a Holder,
    guard: sync::MutexGuard<'a, T>,
    _context: PhantomData<&'a dyn Context>,
}

/// The thread that holds a lock, and the place where it took it.
///
/// Relaxed loads and stores are enough: a thread only compares `thread` with its own key, which no other thread stores,
/// and reads `place` only after that comparison has found its own store.
#[derive(Default)]
struct Holder {
    /// The [`system::thread_key`] of the holder, or 0 while the lock is free.
    thread: AtomicUsize,
    /// From a `&'static Location`, or null before the first time.
    place: AtomicPtr<Location<'static>>,
}

impl Holder {
    const fn nobody() -> Self {
        Self { thread: AtomicUsize::new(0), place: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The calling thread has taken the lock.
    #[inline]
    fn set(&self, place: &'static Location<'static>) {
        self.place.store(ptr::from_ref(place).cast_mut(), Relaxed);
        self.thread.store(system::thread_key(), Relaxed);
    }

    /// The calling thread is about to release the lock.
    #[inline]
    fn clear(&self) {
        self.thread.store(0, Relaxed);
    }

    /// Panics if the calling thread already holds the lock.
    #[track_caller]
    fn forbid_second_time(&self) {
        if self.thread.load(Relaxed) != system::thread_key() {
            return;
        }
        // SAFETY: only `set` writes it, from a reference that is always valid; it may be null.
        let first = unsafe { self.place.load(Relaxed).as_ref() };
        second_time("a corprof::sync::Mutex is locked", first);
    }
}

/// Panics in place of a wait for a lock that the calling thread itself holds.
#[cold]
#[track_caller]
#[allow(clippy::panic, reason = "waiting would hang the application; the caller of the user's code catches this panic")]
fn second_time(what: &str, first: Option<&Location<'_>>) -> ! {
    let second = Location::caller();
    let first: &dyn fmt::Display = first.map_or(&"an unknown place", |place| place as &dyn fmt::Display);
    panic!(
        "{what} twice on one thread: at {first}, and again at {second} before that guard ended. \
         If the second place is in another callback, a call under the first guard made it (see corprof::sync): drop the guard \
         before the call, or keep the callback's data under a lock of its own"
    )
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self { holder: Holder::nobody(), data: sync::Mutex::new(value) }
    }

    /// The data, when the lock is no longer needed.
    pub fn into_inner(self) -> T {
        unpoisoned(self.data.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// A test under the fake CLR has no context: use `corprof::testing::FakeClr::lock`.
    ///
    /// # Panics
    /// If the calling thread holds this lock already. This happens when a call under the lock makes a callback that
    /// takes the same lock: see the [module](self).
    #[track_caller]
    #[inline]
    pub fn lock<'a>(&'a self, _cx: &'a impl Context) -> MutexGuard<'a, T> {
        self.lock_anywhere()
    }

    /// For callers that know that no collection starts while the guard lives, whatever the types say.
    #[track_caller]
    #[inline]
    pub(crate) fn lock_anywhere(&self) -> MutexGuard<'_, T> {
        crate::suspension::forbid("a lock of the profiler's");
        let guard = match try_unpoisoned(self.data.try_lock()) {
            Some(guard) => guard,
            None => self.wait(),
        };
        self.holder.set(Location::caller());
        MutexGuard { holder: &self.holder, guard, _context: PhantomData }
    }

    /// Like [`lock_anywhere`](Self::lock_anywhere), when the lock is held.
    #[cold]
    #[track_caller]
    fn wait(&self) -> sync::MutexGuard<'_, T> {
        self.holder.forbid_second_time();
        unpoisoned(self.data.lock())
    }

    /// The data, without locking: `&mut self` proves exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.data.get_mut())
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.holder.clear();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.data.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// The panic message of a second lock on this thread.
    fn second_lock(lock: &Mutex<u32>) -> String {
        let panic = catch_unwind(AssertUnwindSafe(|| drop(lock.lock_anywhere()))).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    }

    #[test]
    fn a_second_time_on_one_thread_names_both_places() {
        let lock = Mutex::new(1);
        let guard = lock.lock_anywhere();
        let first = line!() - 1;
        let text = second_lock(&lock);
        let file = file!();
        assert!(text.contains(&format!("at {file}:{first}:")) && text.matches(file).count() == 2, "{text}");
        drop(guard);
        assert_eq!(*lock.lock_anywhere(), 1);
    }

    #[test]
    fn other_threads_wait() {
        let lock = Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| *lock.lock_anywhere() += 1));
            }
        });
        assert_eq!(lock.into_inner(), 40_000);
    }

    #[test]
    fn a_panic_under_the_lock_leaves_it_usable() {
        let lock = Mutex::new(0);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let _guard = lock.lock_anywhere();
            std::panic::resume_unwind(Box::new(()));
        }));
        *lock.lock_anywhere() += 1;
        assert_eq!(lock.into_inner(), 1);
    }
}
