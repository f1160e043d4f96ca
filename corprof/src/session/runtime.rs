//! [`Runtime`]: the pointer to the runtime, and the version of its interface.
//!
//! The interface is negotiated once, from the newest version down, and a runtime older than .NET 8 is refused. From
//! then on one pointer serves all versions, as each extends the one before. A call says which version it needs, and
//! returns an error on an older runtime.

use std::mem::ManuallyDrop;
use std::sync::{OnceLock, Weak};

use corprof_sys as sys;
use windows_core::{HRESULT, IUnknown, Interface};

use super::calls::{Call, Calls};
use super::ending::DETACH;
use super::ending_threads;
use super::runtime_info::RuntimeInfo;
use super::searcher::{NotMade, Searcher};
use super::searches::{self, Search, Searches};
use super::thread_slot;
use super::{Info, ReleaseFact, Session};
use crate::error::{E_NOINTERFACE, E_OUTOFMEMORY, Error, Result};

/// The runtime, as a COM object.
pub(crate) struct Runtime {
    /// The newest version that the runtime has; all older ones are its prefix.
    raw: ManuallyDrop<sys::ICorProfilerInfo>,
    /// The number in that version's name.
    version: u8,
    /// Counts calls, and refuses them after a detach.
    calls: Calls,
    searches: Searches,
    searcher: Searcher,
    drops_tables_early: OnceLock<bool>,
    /// The session that has this.
    session: OnceLock<Weak<Session>>,
}

// SAFETY: the profiling API is free-threaded: the runtime accepts calls on any thread (contexts say which calls), and
// AddRef and Release on its Info object do nothing (the runtime's proftoeeinterfaceimpl.cpp). The object lives as long
// as the process, with two exceptions: a failed `Initialize`, which the adapter therefore does not report while a clone
// of `Info` exists, and a detach, before which calls are closed (`calls.rs`) (fact: info-object).
unsafe impl Send for Runtime {}
// SAFETY: as above.
unsafe impl Sync for Runtime {}

/// The thread on which a search for code is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadKind {
    /// It runs managed code, or has run some: a search on it takes the lock of the runtime's lists.
    Known,
    /// It searches for others, and takes that lock too.
    Searcher,
    /// The runtime does not know it.
    Unknown,
}

/// The version of .NET 8: a runtime without it is older, or is .NET Framework, and is refused.
pub(crate) const LEAST_INFO: u8 = 14;

/// The error for a runtime that is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it needs .NET 8 or later, and this runtime is {found}")]
pub(crate) struct UnsupportedRuntime {
    /// The runtime's name and version.
    found: String,
}

impl UnsupportedRuntime {
    /// The result of `Initialize`.
    pub(crate) const CODE: HRESULT = E_NOINTERFACE;

    /// `newest` is the newest version of the interface that the runtime has; 0 if it has none.
    fn new(runtime: &IUnknown, newest: u8) -> Self {
        let info = runtime.cast::<sys::ICorProfilerInfo3>().ok();
        let known = info.and_then(|info| RuntimeInfo::read(&info).ok());
        Self { found: name(known, newest) }
    }
}

/// The name of a runtime by what is known of it, for a message.
fn name(known: Option<(sys::COR_PRF_RUNTIME_TYPE, RuntimeInfo)>, newest: u8) -> String {
    match known {
        Some((sys::COR_PRF_DESKTOP_CLR, RuntimeInfo { major, minor, build })) => {
            format!(".NET Framework {major}.{minor}.{build}")
        }
        // Up to .NET Core 3.1 the answer is always 4.0.30319, the version of .NET Framework.
        Some((_, info)) if info.major < 5 => first_runtime_with(newest).to_owned(),
        Some((_, info)) => info.to_string(),
        None => format!("older than that: it has ICorProfilerInfo{newest}"),
    }
}

/// One version of the runtime's interface: [`ICorProfilerInfo`](sys::ICorProfilerInfo) and its successors, for
/// [`as_raw`](crate::Info::as_raw).
pub trait InfoVersion: Interface + sealed::Sealed {
    /// The number in its name, 1 for the first.
    const VERSION: u8;
    /// Its name.
    const NAME: &'static str;
    /// The error message for a runtime that lacks it.
    #[doc(hidden)]
    const LACKING: &'static str;
}

mod sealed {
    pub trait Sealed {}
}

impl sealed::Sealed for sys::ICorProfilerInfo {}
impl InfoVersion for sys::ICorProfilerInfo {
    const VERSION: u8 = 1;
    const NAME: &'static str = "ICorProfilerInfo";
    const LACKING: &'static str = "every runtime has it";
}

macro_rules! info_versions {
    ($($version:literal $runtime:literal,)*) => { paste::paste! {
        $(impl sealed::Sealed for sys::[<ICorProfilerInfo $version>] {}
        impl InfoVersion for sys::[<ICorProfilerInfo $version>] {
            const VERSION: u8 = $version;
            const NAME: &'static str = stringify!([<ICorProfilerInfo $version>]);
            const LACKING: &'static str =
                concat!("this runtime lacks the interface, the first to have it is ", $runtime);
        })*

        /// The newest version that the runtime has, and its number.
        fn negotiate(runtime: &IUnknown) -> Option<(sys::ICorProfilerInfo, u8)> {
            $(if let Ok(info) = runtime.cast::<sys::[<ICorProfilerInfo $version>]>() {
                // SAFETY: every version's vtable begins with the first version's, so the pointer serves as either
                // (fact: info-object).
                return Some((unsafe { sys::ICorProfilerInfo::from_raw(info.into_raw()) }, $version));
            })*
            runtime.cast().ok().map(|info| (info, 1))
        }

        /// The first runtime that has a version, for messages.
        pub(crate) const fn first_runtime_with(version: u8) -> &'static str {
            match version {
                $($version => $runtime,)*
                _ => ".NET Framework 2.0",
            }
        }
    } };
}

info_versions! {
    15 ".NET 9", 14 ".NET 8", 13 ".NET 7", 12 ".NET 5", 11 ".NET Core 3.1", 10 ".NET Core 3.0", 9 ".NET Core 2.1",
    8 ".NET Core 2.0", 7 ".NET Core 2.0", 6 ".NET Core 2.0", 5 ".NET Core 2.0", 4 ".NET Core 2.0", 3 ".NET Core 2.0",
    2 ".NET Core 2.0",
}

impl Runtime {
    /// Asks the runtime for its newest interface. `may_end`: whether the runtime may release the profiler before the
    /// process ends.
    pub(super) fn negotiate(runtime: &IUnknown, may_end: bool) -> Result<Self, UnsupportedRuntime> {
        match negotiate(runtime) {
            Some((raw, version)) if version >= LEAST_INFO => Ok(Self {
                raw: ManuallyDrop::new(raw),
                version,
                calls: Calls::new(may_end),
                searches: Searches::default(),
                searcher: Searcher::default(),
                drops_tables_early: OnceLock::new(),
                session: OnceLock::new(),
            }),
            older => Err(UnsupportedRuntime::new(runtime, older.map_or(0, |(_, version)| version))),
        }
    }

    /// The number by which the runtime differs from others in the process; 0 if it does not say.
    pub(super) fn number(&self) -> u16 {
        let info = self.as_version::<sys::ICorProfilerInfo3>("GetRuntimeInformation");
        info.and_then(|info| RuntimeInfo::read_with_number(&info)).map_or(0, |(number, ..)| number)
    }

    /// The count of calls under way.
    pub(super) fn calls(&self) -> &Calls {
        &self.calls
    }

    /// The searches for code under way.
    pub(crate) fn searches(&self) -> &Searches {
        &self.searches
    }

    pub(super) fn set_session(&self, session: Weak<Session>) {
        let _ = self.session.set(session); // once, when the session is made
    }

    /// The thread that searches for others.
    pub(super) fn searcher(&self) -> &Searcher {
        &self.searcher
    }

    /// Has `search` made on a thread where it is safe: nearly always the calling one.
    ///
    /// # Errors
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS` if that is another thread, which has no time; and what `search` returns.
    #[inline]
    pub(crate) fn search<R: Send + 'static>(
        &self,
        call: &'static str,
        search: impl FnOnce(&Self, ThreadKind) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        ending_threads::refuse_search(call)?;
        let are_safe_everywhere = self.searches.are_safe_everywhere();
        // Callbacks come on threads that the runtime knows, or in suspensions. To ask would take half as long as the
        // search.
        if are_safe_everywhere && thread_slot::is_surely_inside() && !ending_threads::is_calling_from_outside() {
            return search(self, ThreadKind::Known);
        }
        let kind = self.thread_kind();
        let may_end = ending_threads::is_outside();
        if kind == ThreadKind::Known && may_end {
            return Err(ending_threads::refusal(call));
        }
        let is_safe = kind == ThreadKind::Known || are_safe_everywhere || self.searches.is_suspender();
        if is_safe && may_end && self.drops_tables_early() {
            return self.search_on_new_thread(call, search);
        }
        if is_safe {
            return search(self, kind);
        }
        let Some(session) = self.session.get().and_then(Weak::upgrade) else { return Err(searches::refusal(call)) };
        let answer = self.searcher.run(&Info(session), move |runtime| search(runtime, ThreadKind::Searcher));
        answer.unwrap_or_else(|why| match why {
            NotMade::Busy => Err(searches::refusal(call)),
            NotMade::NoThread => Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
                "code",
                "after an unload code is searched for by a thread of corprof's, and there is none yet: ask in a callback, or after \
                 `profiler_attach_complete`",
            )),
        })
    }

    /// Call it before a search for any address.
    ///
    /// # Errors
    /// As [`Searches::begin`].
    #[inline]
    pub(super) fn begin_search(&self, kind: ThreadKind, call: &'static str) -> Result<Search<'_>> {
        match kind {
            // A callback cannot wait, and what it asks about is nearly always alive.
            ThreadKind::Known => Ok(Search::NONE),
            ThreadKind::Searcher => self.searches.begin_on_known_thread(call),
            ThreadKind::Unknown => self.searches.begin(call),
        }
    }

    /// Call it before a search for code that is probably gone.
    ///
    /// # Errors
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS` while another thread has suspended the runtime, also in callbacks.
    pub(super) fn begin_search_for_what_goes(&self, kind: ThreadKind, call: &'static str) -> Result<Search<'_>> {
        match kind {
            ThreadKind::Known | ThreadKind::Searcher => self.searches.begin_on_known_thread(call),
            ThreadKind::Unknown => self.searches.begin(call),
        }
    }

    /// Call it before a search for code that is held, and so is not removed: on a thread that the runtime knows, the
    /// lock of its lists is enough.
    ///
    /// # Errors
    /// As [`Searches::begin`], on other threads.
    pub(crate) fn begin_search_for_held(&self, kind: ThreadKind, call: &'static str) -> Result<Search<'_>> {
        match kind {
            ThreadKind::Known | ThreadKind::Searcher => Ok(Search::NONE),
            ThreadKind::Unknown => self.searches.begin(call),
        }
    }

    /// Has `search` made on a thread that lives.
    #[cold]
    fn search_on_new_thread<R: Send + 'static>(
        &self,
        call: &'static str,
        search: impl FnOnce(&Self, ThreadKind) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        let none = || Error::new(E_OUTOFMEMORY, call).about("threads", "the system could not make a thread");
        let info = Info(self.session.get().and_then(Weak::upgrade).ok_or_else(|| searches::refusal(call))?);
        let make = move || search(info.runtime(), ThreadKind::Unknown);
        let thread = std::thread::Builder::new().name("code search".to_owned()).spawn(make).map_err(|_| none())?;
        thread.join().unwrap_or_else(|_| Err(none()))
    }

    /// Whether a thread may lack the tables for searches at its end (`ending_threads.rs`).
    fn drops_tables_early(&self) -> bool {
        let read = || {
            let info = self.as_version::<sys::ICorProfilerInfo3>("GetRuntimeInformation")?;
            RuntimeInfo::read(&info)
        };
        *self
            .drops_tables_early
            .get_or_init(|| read().is_ok_and(|(_, version)| version.has(ReleaseFact::DropsTablesOfEndingThreads)))
    }

    fn thread_kind(&self) -> ThreadKind {
        let Ok(info) = self.first_version("GetCurrentThreadID") else { return ThreadKind::Unknown };
        let mut thread = 0;
        // SAFETY: the call writes one number (fact: outputs).
        let is_known = unsafe { info.GetCurrentThreadID(&mut thread) }.is_ok();
        if is_known { ThreadKind::Known } else { ThreadKind::Unknown }
    }

    /// The number of the newest version that the runtime has.
    pub(crate) fn version(&self) -> u8 {
        self.version
    }

    /// The interface in its first version, which every runtime has, for one call.
    ///
    /// # Errors
    /// After a detach.
    #[inline]
    pub(crate) fn first_version(&self, call: &'static str) -> Result<Call<'_, sys::ICorProfilerInfo>> {
        self.calls.begin(&self.raw, call)
    }

    /// The interface in the version that `call` needs, for one call.
    ///
    /// # Errors
    /// If the runtime is older; after a detach.
    #[inline]
    pub(crate) fn as_version<V: InfoVersion>(&self, call: &'static str) -> Result<Call<'_, V>> {
        self.calls.begin(self.interface(call)?, call)
    }

    /// Like [`as_version`](Self::as_version), for any number of calls.
    ///
    /// # Safety
    /// The interface is not used after the end of the callback, or of the closure of the profiler's own thread, that
    /// the calling thread is in: a detach waits for the ends of both before it closes calls.
    pub(crate) unsafe fn as_version_for_long<V: InfoVersion>(&self, call: &'static str) -> Result<&V> {
        drop(self.calls.begin(&self.raw, call)?);
        self.interface(call)
    }

    /// The interface in the version that `call` needs, for calls in a callback of the runtime, also after calls are
    /// closed: as long as it makes callbacks, its object lives.
    pub(super) fn in_callback<V: InfoVersion>(&self, call: &'static str) -> Result<&V> {
        self.interface(call)
    }

    /// Turns all events off, and asks the runtime to release the profiler when no thread is in a callback: it checks
    /// after `milliseconds`, and again after as many.
    ///
    /// # Safety
    /// The application has not ended, and the runtime has not released the profiler.
    pub(crate) unsafe fn request_detach(&self, milliseconds: u32) -> Result<()> {
        let mask = self.interface::<sys::ICorProfilerInfo5>(DETACH)?;
        let info = self.interface::<sys::ICorProfilerInfo3>(DETACH)?;
        // SAFETY: the caller promises that the runtime's object is alive; the calls take numbers (fact: info-object).
        unsafe {
            let _ = mask.SetEventMask2(0, 0); // if this is refused, the detach itself ends them
            Error::check(info.RequestProfilerDetach(milliseconds), DETACH)
        }
    }

    #[inline]
    fn interface<V: InfoVersion>(&self, call: &'static str) -> Result<&V> {
        // No runtime with an older version than that gets an `Info`.
        if V::VERSION > LEAST_INFO && self.version < V::VERSION {
            return Err(Error::new(E_NOINTERFACE, call).about(V::NAME, V::LACKING));
        }
        // SAFETY: `V` is a transparent pointer like `ICorProfilerInfo`, and QueryInterface has returned a version at
        // least as new, whose vtable begins with that of `V` (fact: info-object).
        Ok(unsafe { &*std::ptr::from_ref(&*self.raw).cast::<V>() })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if self.calls.are_open() {
            // SAFETY: this runs once, and the runtime's object is alive: calls are closed before a detach is requested
            // (fact: info-object).
            unsafe { ManuallyDrop::drop(&mut self.raw) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_that_is_refused_has_a_name_and_a_version() {
        let info = |major, minor, build| RuntimeInfo { major, minor, build };
        let core = |major, minor, build| Some((sys::COR_PRF_CORE_CLR, info(major, minor, build)));
        assert_eq!(name(core(4, 0, 30319), 11), ".NET Core 3.1");
        assert_eq!(name(core(4, 0, 30319), 9), ".NET Core 2.1");
        assert_eq!(name(core(6, 0, 36), 12), ".NET 6.0.36");
        assert_eq!(name(core(7, 0, 20), 13), ".NET 7.0.20");
        assert_eq!(name(Some((sys::COR_PRF_DESKTOP_CLR, info(4, 0, 30319))), 10), ".NET Framework 4.0.30319");
        assert_eq!(name(None, 2), "older than that: it has ICorProfilerInfo2");
    }
}
