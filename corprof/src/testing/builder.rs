//! [`Builder`]: describes the fake runtime.

use windows_core::HRESULT;

use crate::error::Result;
use crate::profiler::Profiler;

use super::clr::{FakeClr, misuse};
use super::contract::Release;
use super::runtime::{Faults, Runtime};

/// Describes a runtime before a profiler is loaded into it: see [`FakeClr::builder`].
#[must_use]
pub struct Builder {
    info_version: u8,
    release: Release,
    concurrent_gc: bool,
    start: Start,
    faults: Faults,
}

/// How the profiler is loaded.
#[derive(Default)]
pub(super) struct Start {
    /// The data of the attach.
    pub(super) attach: Option<Vec<u8>>,
    pub(super) before: Option<Application>,
    pub(super) meanwhile: Option<Application>,
}

/// A part of the application, on a thread of its own.
pub(super) type Application = Box<dyn FnOnce(&FakeClr) + Send>;

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
            start: Start::default(),
            faults: Faults::default(),
        }
    }

    /// The runtime has `ICorProfilerInfo` up to this version, and is the first release with it: 14 for .NET 8. The
    /// default is .NET 10, with version 15. Profilers refuse to load into a runtime with less than 14, which is older
    /// than .NET 8.
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

    /// Another release with the same version of the interface: .NET 9, 10 and 11 have the same. It selects the rules in
    /// the contract table that depend on the release. `release(11, 0)` is .NET 11: it reports the loads of arrays,
    /// makes classes without metadata ([`FakeClr::load_continuation`]), holds a thrown exception by one handle, and
    /// lists no body of a method that was not recompiled.
    pub fn release(mut self, major: u32, minor: u32) -> Self {
        self.release = Release(major, minor);
        self
    }

    /// Whether concurrent collection is on, as by default: then `MONITOR_GC` can be set in `Initialize` only.
    pub fn concurrent_gc(mut self, is_on: bool) -> Self {
        self.concurrent_gc = is_on;
        self
    }

    /// The profiler is attached to a running process: `InitializeForAttach`, with this data.
    pub fn attach(mut self, data: &[u8]) -> Self {
        self.start.attach = Some(data.to_owned());
        self
    }

    /// What the application has done before the profiler [attaches](Self::attach), which the profiler does not see.
    pub fn before_attach(mut self, application: impl FnOnce(&FakeClr) + Send + 'static) -> Self {
        self.start.before = Some(Box::new(application));
        self
    }

    /// What the application does while the attach is completed, on a thread of its own: its callbacks are made at the
    /// same time as `ProfilerAttachComplete`.
    ///
    /// ```
    /// # use corprof::{prelude::*, testing::FakeClr};
    /// # #[derive(Default, Profiler)]
    /// # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C02", no_export)]
    /// # struct Late;
    /// # #[callbacks] impl Callbacks for Late {
    /// #     fn initialize_for_attach(cx: &mut InAttach<'_>, _: &[u8]) -> Result<Self, BoxError> { cx.catch_up(); Ok(Self) }
    /// #     fn module_load_finished(&self, _: &mut InCallback<'_>, _: ModuleId, _: Result<()>) {}
    /// # }
    /// # fn main() -> corprof::Result<()> {
    /// let attach = FakeClr::builder().attach(&[]);
    /// let attach = attach.before_attach(|clr| _ = clr.load_assembly("App"));
    /// let clr = attach.while_attaching(|clr| _ = clr.load_assembly("Plugin")).load::<Late>()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn while_attaching(mut self, application: impl FnOnce(&FakeClr) + Send + 'static) -> Self {
        self.start.meanwhile = Some(Box::new(application));
        self
    }

    /// Like [`FakeClr::fail_next`], effective already in `Initialize`.
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

    /// Like [`FakeClr::fail_always`], effective already in `Initialize`.
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
    /// The error of `Initialize`, if the profiler refuses to be loaded; it is dropped then.
    pub fn load<P: Profiler>(self) -> Result<FakeClr> {
        let attached = self.start.attach.is_some();
        let runtime = Runtime::new(self.info_version, self.release, self.concurrent_gc, attached, self.faults);
        FakeClr::start::<P>(runtime, self.start)
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("Builder");
        debug.field("info_version", &self.info_version).field("release", &self.release).finish_non_exhaustive()
    }
}
