//! [`ThreadState`]: a value for each thread, merged when it is read.

mod own;
mod table;

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::{self, Arc};

use super::Mutex;
use super::thread_end::{EndsWithThread, OwnThings};
use crate::context::Context;
use crate::lock::unpoisoned;
use crate::report;
use crate::session::panics::catch;
use own::Own;
use table::ThreadTable;

/// The values of a [`ThreadState`]: two of them can be merged into one.
pub trait Merge: Default + Send + 'static {
    /// Adds the value of another thread.
    fn merge(&mut self, other: Self);
}

/// A value for each thread that runs callbacks: made when the thread first uses it, merged when it is read.
///
/// Callbacks come on many threads at once. If all wrote to one table, they would wait for each other, or pay for
/// avoiding that; here each has its own value, as hooks have by
/// [`FunctionHooks::Thread`](crate::hooks::FunctionHooks::Thread). When a thread ends, its value is merged with those
/// of earlier threads, so memory does not grow with the number of threads over time.
///
/// ```
/// use corprof::prelude::*;
/// use corprof::sync::{Merge, ThreadState};
///
/// #[derive(Default)]
/// struct Count(u64);
///
/// impl Merge for Count {
///     fn merge(&mut self, other: Self) {
///         self.0 += other.0;
///     }
/// }
///
/// #[derive(Default, Profiler)]
/// #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C07", no_export)]
/// struct Objects(ThreadState<Count>);
///
/// #[callbacks]
/// impl Callbacks for Objects {
///     fn object_allocated(&self, cx: &InNoGc<'_>, _object: ObjectId<'_>, _class: ClassId) {
///         self.0.with(cx, |count| count.0 += 1);
///     }
///     fn shutdown(&self, cx: &mut InCallback<'_>) {
///         self.0.read(cx, |count| eprintln!("{} objects", count.0));
///     }
/// }
/// ```
///
/// # Locks
///
/// Each value is behind a lock of its own, which only a reader contends for, so a thread does not wait for others. As
/// with [`Mutex`], no collection can start while a value is in use: that would need the context exclusively.
///
/// ```compile_fail,E0500
/// # use corprof::prelude::*;
/// # use corprof::sync::{Merge, ThreadState};
/// # #[derive(Default)]
/// # struct Names(Vec<String>);
/// # impl Merge for Names { fn merge(&mut self, mut other: Self) { self.0.append(&mut other.0); } }
/// fn note(names: &ThreadState<Names>, cx: &mut InCallback<'_>, domain: AppDomainId) {
///     names.with(cx, |names| names.0.extend(cx.app_domain_info(domain).map(|info| info.name))); // may start a collection
/// }
/// ```
pub struct ThreadState<T: Merge>(Arc<Shared<T>>);

/// The state that threads share. Locks are taken in the order of these fields.
struct Shared<T> {
    /// The values of ended threads, and the values of others that were read.
    merged: Mutex<T>,
    /// The values of living threads.
    live: sync::Mutex<Vec<Arc<Own<T>>>>,
    /// The same, each for its own thread.
    table: ThreadTable<Own<T>>,
}

/// A thread's reference to its value.
struct Handle<T: Merge> {
    shared: Arc<Shared<T>>,
    own: Arc<Own<T>>,
}

/// A thread's handle to one state, type-erased, with that state's address: no other state has the address while the
/// handle exists.
struct AnyHandle(usize, Rc<dyn End>);

/// The operations of a type-erased handle.
trait End: Any {
    fn end(&self);
}

thread_local! {
    static OWN: OwnThings<AnyHandle> = const { OwnThings::new() };
}

impl<T: Merge> ThreadState<T> {
    /// A state without values.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            merged: Mutex::new(T::default()),
            live: sync::Mutex::default(),
            table: ThreadTable::new(),
        }))
    }

    /// Calls `f` with the calling thread's value. It is `T::default()` the first time, and again after it was read.
    ///
    /// # Panics
    /// If the closure uses this state again, itself or by a call that makes a callback (see [`sync`](crate::sync)).
    #[inline]
    #[track_caller]
    pub fn with<R>(&self, _cx: &impl Context, f: impl FnOnce(&mut T) -> R) -> R {
        self.with_anywhere(f)
    }

    #[inline]
    #[track_caller]
    fn with_anywhere<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.0.table.get() {
            // SAFETY: the value is in `live` until the thread's handle ends, which clears the entry first.
            Some(own) => unsafe { own.as_ref() }.with(f),
            None => self.with_slowly(f),
        }
    }

    /// For a thread without an entry in the table: one that has no value yet, or whose entry belongs to another thread.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn with_slowly<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        match self.handle() {
            Some(handle) => handle.own.with(f),
            // The system is ending the thread, and a callback is still made on it.
            None => f(&mut self.0.merged.lock_anywhere()),
        }
    }

    /// Merges the values of all threads, including ended ones, and calls `f` with the result. The threads start with
    /// new values; the next read merges them with the value that the closure leaves.
    ///
    /// # Panics
    /// As [`with`](Self::with).
    #[track_caller]
    pub fn read<R>(&self, _cx: &impl Context, f: impl FnOnce(&mut T) -> R) -> R {
        self.read_anywhere(f)
    }

    #[track_caller]
    fn read_anywhere<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        // In the closure of `with` this thread would wait for itself, and all readers for this thread.
        if let Some(handle) = self.known_handle() {
            handle.own.forbid_use();
        }
        let mut merged = self.0.merged.lock_anywhere();
        for own in self.0.live() {
            let value = own.take();
            value.into_iter().for_each(|value| merged.merge(value));
        }
        f(&mut merged)
    }

    /// The calling thread's handle; none when the thread is ending.
    #[inline]
    fn handle(&self) -> Option<Rc<Handle<T>>> {
        match self.known_handle() {
            Some(handle) => Some(handle),
            None => self.new_handle(),
        }
    }

    #[inline]
    fn known_handle(&self) -> Option<Rc<Handle<T>>> {
        let address = Arc::as_ptr(&self.0).addr();
        let is_ours = |AnyHandle(of, handle): &AnyHandle| (*of == address).then(|| Rc::clone(handle));
        let handle: Rc<dyn Any> = OWN.try_with(|own| own.find(is_ours)).ok()??;
        handle.downcast().ok()
    }

    #[cold]
    fn new_handle(&self) -> Option<Rc<Handle<T>>> {
        let own = Arc::new(Own::new());
        let handle = Rc::new(Handle { shared: Arc::clone(&self.0), own: Arc::clone(&own) });
        let address = Arc::as_ptr(&self.0).addr();
        OWN.try_with(|things| things.push(AnyHandle(address, Rc::clone(&handle) as _))).ok()?;
        self.0.table.set(NonNull::from(&*own));
        unpoisoned(self.0.live.lock()).push(own);
        Some(handle)
    }
}

impl<T> Shared<T> {
    fn live(&self) -> Vec<Arc<Own<T>>> {
        unpoisoned(self.live.lock()).clone()
    }
}

impl<T: Merge> End for Handle<T> {
    fn end(&self) {
        self.shared.table.clear();
        // A reader holds this lock from the first value to the last, so it gets all of this value or nothing.
        let mut merged = self.shared.merged.lock_anywhere();
        let value = self.own.take();
        unpoisoned(self.shared.live.lock()).retain(|own| !Arc::ptr_eq(own, &self.own));
        value.into_iter().for_each(|value| merged.merge(value));
    }
}

impl EndsWithThread for AnyHandle {
    fn end(self) {
        catch(|| self.1.end(), tell_panic);
        catch(|| drop(self.1), tell_panic);
    }
}

/// Reports a panic outside any callback.
fn tell_panic() {
    report::line(format_args!("a value of a ThreadState panicked when its thread ended, and is lost"));
}

impl<T: Merge> Default for ThreadState<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Merge> Drop for ThreadState<T> {
    /// Threads keep an empty shell until they end.
    fn drop(&mut self) {
        let merged = std::mem::take(&mut *self.0.merged.lock_anywhere());
        let values = self.0.live().into_iter().filter_map(|own| own.take());
        for value in values.chain([merged]) {
            catch(|| drop(value), tell_panic);
        }
    }
}

impl<T: Merge> fmt::Debug for ThreadState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadState").field("threads", &self.0.live().len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
