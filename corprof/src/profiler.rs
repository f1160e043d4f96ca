//! The traits of a profiler.

use windows_core::GUID;

pub use crate::error::context::BoxError;
use crate::event_mask::EventSet;
pub use crate::generated::callbacks::Callbacks;

/// The callbacks that a profiler implements: written by [`#[callbacks]`](macro@crate::callbacks).
#[diagnostic::on_unimplemented(
    message = "`#[callbacks]` is missing on `impl Callbacks for {Self}`",
    label = "the implemented callbacks are unknown",
    note = "write `#[callbacks]` above the `impl Callbacks for {Self}` block: it turns on the events of the callbacks in it"
)]
pub trait Subscriber: Sized {
    /// The callbacks in the block.
    const EVENTS: EventSet;

    /// The profiler without an `initialize`; none if it has one.
    #[doc(hidden)]
    fn by_default() -> Option<Self> {
        None
    }
}

/// A profiler that needs no `initialize`: written by [`#[derive(Profiler)]`](derive@crate::Profiler), for structs without fields
/// and those with [`Default`].
#[doc(hidden)]
pub trait ByDefault {
    fn by_default() -> Self;
}

/// Why there is no profiler: the default bodies of its two beginnings. `#[callbacks]` lets neither be reached.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotMade {
    #[error("the profiler has neither `initialize` nor `Default`: write one of them")]
    AtStart,
    #[error("the profiler does not support attach: implement `initialize_for_attach`")]
    ByAttach,
}

/// A profiler: a type with [`Callbacks`] that the runtime can ask for by its CLSID.
///
/// [`#[derive(Profiler)]`](derive@crate::Profiler) writes the implementation, and exports it from the library.
pub trait Profiler: Callbacks {
    /// The CLSID, as in `CORECLR_PROFILER`.
    const CLSID: GUID;
    /// The struct's name, for messages.
    const NAME: &'static str;
    /// The oldest `ICorProfilerInfo` version that the profiler accepts: 14 (.NET 8) or 15 (.NET 9). An older runtime runs without
    /// the profiler and reports that.
    const MIN_INFO: u8 = 14;
    /// Whether the runtime loads the profiler as one of several notification-only profilers. They run beside a main profiler
    /// and beside each other. They receive events, and may not change code: no hooks, no other bodies, no ReJIT.
    const NOTIFICATION_ONLY: bool = false;
}
