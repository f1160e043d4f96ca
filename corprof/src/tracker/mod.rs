//! Tracks objects across collections, on runtimes without handles (before .NET 7).
//!
//! A collection moves objects and reports it in ranges. An [`ObjectTracker`] receives those callbacks and updates the addresses
//! of its objects:
//!
//! ```
//! # use corprof::args::{GcReason, Generations, MovedRanges, SurvivingRanges};
//! # use corprof::prelude::*;
//! # use corprof::tracker::{ObjectTracker, TrackedId};
//! # use corprof::sync::Mutex;
//! #[derive(Default)]
//! struct Watch { tracker: ObjectTracker, watched: Mutex<Option<TrackedId>> }
//!
//! #[callbacks]
//! impl Callbacks for Watch {
//!     fn object_allocated(&self, cx: &InCallback<'_>, object: ObjectId<'_>, _class: ClassId) {
//!         self.watched.lock(cx).get_or_insert_with(|| self.tracker.track(cx, object).unwrap_or_default());
//!     }
//!     fn garbage_collection_started(&self, cx: &InCallback<'_>, generations: Generations<'_>, _reason: GcReason) {
//!         self.tracker.garbage_collection_started(cx, generations);
//!     }
//!     fn moved_references2(&self, cx: &InCallback<'_>, ranges: MovedRanges<'_>) {
//!         self.tracker.moved_references(cx, ranges);
//!     }
//!     fn surviving_references2(&self, cx: &InCallback<'_>, ranges: SurvivingRanges<'_>) {
//!         self.tracker.surviving_references(cx, ranges);
//!     }
//!     fn garbage_collection_finished(&self, cx: &InCallback<'_>) {
//!         self.tracker.garbage_collection_finished(cx);
//!         if let Some(watched) = *self.watched.lock(cx) {
//!             eprintln!("{:?}", self.tracker.find(cx, watched));
//!         }
//!     }
//! }
//! ```
//!
//! corprof counts these callbacks itself. A tracker that has missed one, or received none while collections were not monitored,
//! drops all its objects instead of returning wrong addresses.

mod ledger;

use std::sync::{Mutex, MutexGuard};

use corprof_sys as sys;

use crate::args::{Generations, MovedRanges, SurvivingRanges};
use crate::context::InCallback;
use crate::error::{Error, Result};
use crate::event_mask::EventMask;
use crate::id::ObjectId;
use crate::lock::unpoisoned;
use crate::session::reports;

use ledger::Ledger;

/// A tracker's id for an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TrackedId(u64);

/// Finds its objects across collections; see the [module](self).
///
/// Tracking does not keep an object alive.
#[derive(Default, Debug)]
pub struct ObjectTracker {
    /// Never held across a call that may start a collection, nor across a call of the user's code.
    ledger: Mutex<Ledger>,
}

impl ObjectTracker {
    /// An empty tracker.
    pub fn new() -> Self {
        Self::default()
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        unpoisoned(self.ledger.lock())
    }

    /// Tracks `object` from now on.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in the middle of a collection, or in a callback that does not hold up
    /// collections. `CORPROF_E_INCONSISTENT_WITH_FLAGS`: `MONITOR_GC` is off, so that moves are not reported.
    pub fn track(&self, cx: &InCallback<'_>, object: ObjectId<'_>) -> Result<TrackedId> {
        const CALL: &str = "track";
        cx.check_still(CALL)?;
        if !cx.event_mask()?.contains(EventMask::MONITOR_GC) {
            return Err(Error::new(sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL).about(
                "tracker",
                "with MONITOR_GC off the runtime does not report moves: turn it on in `initialize`",
            ));
        }
        let id = self.ledger().track(object.as_raw(), reports());
        id.map(TrackedId).ok_or(Self::unsettled(CALL))
    }

    /// Stops tracking the object.
    pub fn untrack(&self, id: TrackedId) {
        self.ledger().untrack(id.0);
    }

    /// The object; none if it was collected or dropped from the tracker.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in the middle of a collection (between `garbage_collection_started` and
    /// `garbage_collection_finished`, which must be passed to the tracker first), or in a callback that does not hold up
    /// collections.
    pub fn find<'cx>(&self, cx: &'cx InCallback<'_>, id: TrackedId) -> Result<Option<ObjectId<'cx>>> {
        const CALL: &str = "find";
        cx.check_still(CALL)?;
        match self.ledger().find(id.0, reports()) {
            // SAFETY: the ledger has tracked the object through every collection up to this one, and `check_still` says that
            // nothing moves it while `cx` is borrowed.
            Some(address) => Ok(address.and_then(|address| unsafe { ObjectId::from_raw(address) })),
            None => Err(Self::unsettled(CALL)),
        }
    }

    /// The number of tracked objects.
    pub fn len(&self) -> usize {
        self.ledger().len()
    }

    /// Whether no object is tracked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Call this in the callback of this name, with its arguments.
    pub fn garbage_collection_started(&self, cx: &InCallback<'_>, generations: Generations<'_>) {
        // Without the bounds, the generations that this collection leaves alone are unknown, and no unreported object counts as
        // alive.
        let ranges = cx.generation_bounds().ok();
        let collected = ranges.map(|ranges| {
            ranges.into_iter().filter(|range| generations.contains(range.generation)).collect::<Vec<_>>()
        });
        self.ledger().started(cx.report(), collected);
    }

    /// Call this in `moved_references2`. The runtime makes `moved_references` as well, with the same content.
    pub fn moved_references(&self, cx: &InCallback<'_>, ranges: MovedRanges<'_>) {
        let ranges = ranges.iter().map(|range| (range.old_start, range.new_start, range.length));
        self.ledger().survived(cx.report(), ranges);
    }

    /// Call this in `surviving_references2`. The runtime makes `surviving_references` as well, with the same content.
    pub fn surviving_references(&self, cx: &InCallback<'_>, ranges: SurvivingRanges<'_>) {
        let ranges = ranges.iter().map(|range| (range.start, range.start, range.length));
        self.ledger().survived(cx.report(), ranges);
    }

    /// Call this in the callback of this name, before `find` there.
    pub fn garbage_collection_finished(&self, cx: &InCallback<'_>) {
        self.ledger().finished(cx.report());
    }

    fn unsettled(call: &'static str) -> Error {
        Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
            "tracker",
            "the objects are being moved: make this call before `garbage_collection_started`, or after passing \
             `garbage_collection_finished` to the tracker",
        )
    }
}
