//! A lock that cannot be held while a garbage collection starts (suspension rule 3).
//!
//! A thread that holds a lock and makes a call which may start a collection can wait for other managed threads to stop,
//! while one of those waits for the lock: the application hangs. The guard here borrows the callback's context, and calls
//! that may start a collection need that context exclusively, so holding the one while making the other does not compile:
//!
//! ```compile_fail,E0502
//! # use corprof::prelude::*;
//! fn count(table: &corprof::sync::Mutex<u32>, cx: &mut InTriggers<'_>, domain: AppDomainId) {
//!     let mut guard = table.lock(cx);
//!     let _ = cx.app_domain_info(domain); // may start a collection
//!     *guard += 1;
//! }
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError};

use crate::context::Context;

/// A mutual exclusion lock whose guard borrows the context of the callback that takes it.
///
/// A panic while it is held does not poison it: the profiler goes quiet then, and only `shutdown` looks at the data again.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// Access to the data of a [`Mutex`], for as long as the context is only shared.
pub struct MutexGuard<'a, T: ?Sized> {
    guard: sync::MutexGuard<'a, T>,
    _context: PhantomData<&'a dyn Context>,
}

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// The data, when the lock is no longer needed.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// Taking one lock twice on one thread waits for ever, as with the standard library's.
    ///
    /// A test under the fake CLR has no context: it looks by `corprof::testing::FakeClr::lock`.
    pub fn lock<'a>(&'a self, _cx: &'a impl Context) -> MutexGuard<'a, T> {
        self.lock_anywhere()
    }

    /// For those who know that no collection starts while the guard lives, whatever the types say.
    pub(crate) fn lock_anywhere(&self) -> MutexGuard<'_, T> {
        crate::walk::standstill::forbid("a lock of the profiler's");
        MutexGuard { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _context: PhantomData }
    }

    /// The data, without locking: `&mut self` says that nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
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
        self.0.fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
