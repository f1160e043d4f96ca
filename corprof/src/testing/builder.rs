//! [`Builder`]: which runtime it is to be.

use windows_core::HRESULT;

use crate::error::Result;
use crate::profiler::Profiler;

use super::clr::{FakeClr, misuse};
use super::contract::Release;
use super::runtime::{Faults, Runtime};

/// A runtime to be described before a profiler is loaded into it: from [`FakeClr::builder`].
#[must_use]
pub struct Builder {
    info_version: u8,
    release: Release,
    concurrent_gc: bool,
    start: Start,
    faults: Faults,
}

/// How the profiler comes in.
pub(super) enum Start {
    Startup,
    /// With the data of who attached it.
    Attach(Vec<u8>),
}

/// The first release with each version of the interface.
fn first_release_with(info_version: u8) -> Release {
    match info_version {
        0..=8 => Release(2, 0),
        9 => Release(2, 1),
        10 => Release(3, 0),
        11 => Release(3, 1),
        12 => Release(5, 0),
        13 => Release(7, 0),
        14 => Release(8, 0),
        _ => Release(9, 0),
    }
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            info_version: 15,
            release: Release(10, 0),
            concurrent_gc: true,
            start: Start::Startup,
            faults: Faults::default(),
        }
    }

    /// The runtime offers `ICorProfilerInfo` up to this version, and is the first release that does: 11 for .NET Core 3.1,
    /// 14 for .NET 8. Without this it is .NET 10, with version 15.
    ///
    /// # Panics
    /// If there is no such version: they are 1 to 15.
    #[track_caller]
    pub fn info_version(mut self, version: u8) -> Self {
        if !(1..=15).contains(&version) {
            misuse(format_args!("there is no ICorProfilerInfo{version}"));
        }
        self.info_version = version;
        self.release = first_release_with(version);
        self
    }

    /// Another release with the same version of the interface: .NET 6 has that of .NET 5, and .NET 10 that of .NET 9. It
    /// decides what the contract table says of releases.
    pub fn release(mut self, major: u32, minor: u32) -> Self {
        self.release = Release(major, minor);
        self
    }

    /// Whether concurrent collection is on, as it is without this: then `MONITOR_GC` can be asked for in `Initialize` only.
    pub fn concurrent_gc(mut self, is_on: bool) -> Self {
        self.concurrent_gc = is_on;
        self
    }

    /// The profiler attaches to a process that runs already: `InitializeForAttach`, with this data of whoever attached it.
    pub fn attach(mut self, data: &[u8]) -> Self {
        self.start = Start::Attach(data.to_owned());
        self
    }

    /// As [`FakeClr::fail_next`], already in `Initialize`.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn fail_next(self, call: &str, code: HRESULT) -> Self {
        if !self.faults.next(call, code) {
            misuse(format_args!("there is no call {call}"));
        }
        self
    }

    /// As [`FakeClr::fail_always`], already in `Initialize`.
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    pub fn fail_always(self, call: &str, code: HRESULT) -> Self {
        if !self.faults.always(call, Some(code)) {
            misuse(format_args!("there is no call {call}"));
        }
        self
    }

    /// Loads a profiler into it: class factory, `CreateInstance`, `Initialize`.
    ///
    /// # Errors
    /// What `Initialize` answers when the profiler does not want to be loaded; it has been dropped then.
    pub fn load<P: Profiler>(self) -> Result<FakeClr> {
        let attached = matches!(self.start, Start::Attach(_));
        let runtime = Runtime::new(self.info_version, self.release, self.concurrent_gc, attached, self.faults);
        FakeClr::start::<P>(runtime, &self.start)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Builder");
        debug.field("info_version", &self.info_version).field("release", &self.release).finish_non_exhaustive()
    }
}
