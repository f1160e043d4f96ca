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
    /// The callbacks in the block, and those of [`EVERY`](Self::EVERY).
    const EVENTS: EventSet;
    /// The callbacks that [`every`](Callbacks::every) is for.
    const EVERY: EventSet;

    /// [`ByInitialize`] or [`WithoutInitialize`].
    #[doc(hidden)]
    type Making;
}

/// A struct without fields, or with [`Default`]: [`#[derive(Profiler)]`](derive@crate::Profiler) writes it.
#[doc(hidden)]
pub trait ByDefault {
    fn by_default() -> Self;
}

/// Has the profiler made without its `initialize`, if it has none.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{P}` has neither `initialize` nor `Default`, and one of them must make it",
    label = "nothing makes this profiler",
    note = "derive `Default`, or write `fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError>` among its callbacks"
)]
pub trait Making<P> {
    fn without_initialize() -> Option<P>;
}

/// The profiler has an `initialize`.
#[doc(hidden)]
#[derive(Debug)]
pub enum ByInitialize {}

impl<P> Making<P> for ByInitialize {
    fn without_initialize() -> Option<P> {
        None
    }
}

/// The profiler has none, so it needs `Default`.
#[doc(hidden)]
#[derive(Debug)]
pub enum WithoutInitialize {}

#[diagnostic::do_not_recommend]
impl<P: ByDefault> Making<P> for WithoutInitialize {
    fn without_initialize() -> Option<P> {
        Some(P::by_default())
    }
}

/// The default bodies of the two beginnings, which corprof calls only if they are implemented.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the profiler does not implement it")]
pub struct NotImplemented;

/// A profiler: a type with [`Callbacks`] that the runtime can ask for by its CLSID.
///
/// [`#[derive(Profiler)]`](derive@crate::Profiler) writes the implementation, and exports it from the library.
pub trait Profiler: Callbacks {
    /// The CLSID, as in `CORECLR_PROFILER`.
    const CLSID: GUID;
    /// The struct's name, for messages.
    const NAME: &'static str;
    /// The oldest `ICorProfilerInfo` version that the profiler accepts: 14 (.NET 8) or 15 (.NET 9). An older runtime
    /// runs without the profiler and reports that.
    const MIN_INFO: u8 = 14;
    /// Whether the runtime loads the profiler as one of several notification-only profilers. They run beside a main
    /// profiler and beside each other. They receive events, and may not change code: no hooks, no other bodies, no
    /// ReJIT. They are loaded at start-up and stay: they cannot be attached or detached. A main profiler must stay,
    /// too, and must not fail in its initialization: otherwise the runtime makes no more callbacks to them. corprof's
    /// stay loaded then, disabled.
    const NOTIFICATION_ONLY: bool = false;

    /// Makes a profiler that has no `initialize`.
    #[doc(hidden)]
    fn without_initialize() -> Option<Self>;
}
