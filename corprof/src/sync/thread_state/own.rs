//! The value of one thread, and its lock.

use std::cell::UnsafeCell;
use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use crate::sync::second_time;
use crate::{suspension, system};

/// The interval at which a thread that waits for the value checks whether it is free.
const LOOK: Duration = Duration::from_micros(50);

/// In place of a caller's location: another thread takes the value.
static TAKER: &Location<'static> = Location::caller();

/// One thread's value; none before its first use, and after it was taken.
///
/// The lock is the location of the code that uses the value: taking it is one locked instruction, releasing it none.
/// Counting an allocation by class takes 45.2 ns, and 50.2 with [`Mutex`](crate::sync::Mutex) (`cargo xtask bench
/// --only storm`).
pub(super) struct Own<T> {
    /// Null while nobody uses the value.
    user: AtomicPtr<Location<'static>>,
    /// The [`system::thread_key`] of the thread whose value it is.
    owner: usize,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: only the thread that has set `user` uses the value, so it is moved between threads but not shared.
unsafe impl<T: Send> Sync for Own<T> {}

/// The right to use the value. Dropping it ends the right, also after a panic.
struct Turn<'a, T>(&'a Own<T>);

impl<T> Drop for Turn<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.user.store(ptr::null_mut(), Ordering::Release);
    }
}

impl<T> Turn<'_, T> {
    #[inline]
    fn value(&mut self) -> &mut Option<T> {
        // SAFETY: there is one turn at a time, and it is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Own<T> {
    /// A value of the calling thread.
    pub(super) fn new() -> Self {
        Self { user: AtomicPtr::default(), owner: system::thread_key(), value: UnsafeCell::new(None) }
    }

    /// Uses the value on the thread whose value it is.
    ///
    /// # Panics
    /// If the closure uses it again.
    #[inline]
    #[track_caller]
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R
    where
        T: Default,
    {
        f(self.turn(Location::caller()).value().get_or_insert_with(T::default))
    }

    /// Takes the value, on any thread.
    ///
    /// # Panics
    /// If the calling thread is using it.
    #[track_caller]
    pub(super) fn take(&self) -> Option<T> {
        self.forbid_use();
        self.turn(TAKER).value().take()
    }

    /// Panics if the calling thread is using the value.
    #[track_caller]
    pub(super) fn forbid_use(&self) {
        let user = self.user();
        if self.owner == system::thread_key() && user.is_some_and(|user| !ptr::eq(user, TAKER)) {
            second_time("the value of a corprof::sync::ThreadState is used", user);
        }
    }

    #[inline]
    #[track_caller]
    fn turn(&self, user: &'static Location<'static>) -> Turn<'_, T> {
        suspension::forbid("a value of a ThreadState");
        while !self.try_turn(user) {
            self.wait();
        }
        Turn(self)
    }

    #[inline]
    fn try_turn(&self, user: &'static Location<'static>) -> bool {
        let user = ptr::from_ref(user).cast_mut();
        self.user.compare_exchange(ptr::null_mut(), user, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[track_caller]
    fn wait(&self) {
        self.forbid_use();
        thread::sleep(LOOK);
    }

    fn user(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null, or from a reference that is always valid.
        unsafe { self.user.load(Ordering::Relaxed).as_ref() }
    }
}
