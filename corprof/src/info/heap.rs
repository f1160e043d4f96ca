//! The managed heap: its generations, its part that is not collected, and a walk over all objects.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use corprof_sys as sys;
use windows_core::BOOL;

use crate::args::Generation;
use crate::context::{Heap, InCallback, InNoGc};
use crate::error::{E_FAIL, Error, Result};
use crate::event_mask::Phase;
use crate::ffi::buffer::read_blank_list;
use crate::ffi::enumerate::read_all;
use crate::ffi::visitor::Visitor;
use crate::generated::contract::contract;
use crate::id::ObjectId;
use crate::info::Info;
#[cfg(doc)]
use crate::profiler_thread::ProfilerThread;
use crate::session::{Call, ReleaseFact, profiler_threads};
use crate::suspension::Turn;

/// A range of the heap that belongs to one generation. Addresses are numbers here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GenerationRange {
    /// The generation.
    pub generation: Generation,
    /// Its start address.
    pub start: usize,
    /// How many bytes of it the last collection left in use. Objects allocated since then are beyond.
    pub length: usize,
    /// Its reserved size in bytes.
    pub reserved: usize,
}

/// A range of the heap that is not collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NonGcRange {
    /// Its start address.
    pub start: usize,
    /// How many bytes of it are in use.
    pub length: usize,
    /// Its reserved size in bytes.
    pub reserved: usize,
}

impl GenerationRange {
    /// Whether the object at this address is in it.
    pub fn contains(&self, address: usize) -> bool {
        address.checked_sub(self.start).is_some_and(|offset| offset < self.length.max(self.reserved))
    }
}

pub(super) const BLANK_RANGE: sys::COR_PRF_GC_GENERATION_RANGE = sys::COR_PRF_GC_GENERATION_RANGE {
    generation: sys::COR_PRF_GC_GENERATION(0),
    rangeStart: 0,
    rangeLength: 0,
    rangeLengthReserved: 0,
};

/// Adds the missing flag to an error about generations.
fn explain_generations(error: Error) -> Error {
    if error.code() != E_FAIL {
        return error;
    }
    error.about(
        "generations",
        "the runtime keeps the ranges of its generations only while collections are monitored: turn on MONITOR_GC or \
         HIGH_BASIC_GC in `initialize`",
    )
}

impl From<sys::COR_PRF_GC_GENERATION_RANGE> for GenerationRange {
    fn from(range: sys::COR_PRF_GC_GENERATION_RANGE) -> Self {
        Self {
            generation: range.generation.into(),
            start: range.rangeStart,
            length: range.rangeLength,
            reserved: range.rangeLengthReserved,
        }
    }
}

impl Info {
    /// The ranges of the heap that is not collected, which holds string literals, for example.
    #[doc = contract!(GetNonGCHeapBounds)]
    #[doc(alias = "GetNonGCHeapBounds")]
    pub fn non_gc_heap_bounds(&self) -> Result<Vec<NonGcRange>> {
        const CALL: &str = "GetNonGCHeapBounds";
        const BLANK: sys::COR_PRF_NONGC_HEAP_RANGE =
            sys::COR_PRF_NONGC_HEAP_RANGE { rangeStart: 0, rangeLength: 0, rangeLengthReserved: 0 };
        let info = self.as_version::<sys::ICorProfilerInfo14>(CALL)?;
        let ranges = read_blank_list(CALL, BLANK, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges (fact: outputs).
            unsafe { info.GetNonGCHeapBounds(room, count, start) }
        })?;
        let ranges = ranges.iter().map(|range| NonGcRange {
            start: range.rangeStart,
            length: range.rangeLength,
            reserved: range.rangeLengthReserved,
        });
        Ok(ranges.collect())
    }
}

impl InNoGc<'_> {
    /// The ranges of the collected heap, each with its generation.
    #[doc = contract!(GetGenerationBounds)]
    #[doc(alias = "GetGenerationBounds")]
    pub fn generation_bounds(&self) -> Result<Vec<GenerationRange>> {
        const CALL: &str = "GetGenerationBounds";
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let ranges = read_blank_list(CALL, BLANK_RANGE, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges (fact: outputs).
            unsafe { info.GetGenerationBounds(room, count, start) }
        })
        .map_err(explain_generations)?;
        Ok(ranges.into_iter().map(GenerationRange::from).collect())
    }

    /// The size in bytes from which on an object counts as large.
    #[doc = contract!(GetLOHObjectSizeThreshold)]
    #[doc(alias = "GetLOHObjectSizeThreshold")]
    pub fn loh_object_size_threshold(&self) -> Result<u32> {
        const CALL: &str = "GetLOHObjectSizeThreshold";
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        let mut threshold = 0;
        // SAFETY: the call writes one number and keeps nothing (fact: outputs).
        let code = unsafe { info.GetLOHObjectSizeThreshold(&mut threshold) };
        Error::check(code, CALL)?;
        Ok(threshold)
    }

    /// The objects of the heap that is not collected: they neither move nor die.
    #[doc = contract!(EnumerateNonGCObjects)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: before .NET 10, once an assembly has been unloaded, or after an attach,
    /// before which one may have been. Objects of its classes stay in this heap, and the runtime would read their size
    /// from freed memory.
    #[doc(alias = "EnumerateNonGCObjects")]
    #[doc(alias = "EnumModuleFrozenObjects")]
    pub fn enumerate_non_gc_objects(&self) -> Result<Vec<ObjectId<'_>>> {
        const CALL: &str = "EnumerateNonGCObjects";
        let info = self.as_version::<sys::ICorProfilerInfo14>(CALL)?;
        let liveness = self.liveness();
        // No module begins to unload before this is dropped.
        let _look_up = liveness.look_up();
        let may_have_unloaded = liveness.has_unloaded() || self.phase() == Phase::Attached;
        if may_have_unloaded && self.runtime_info()?.has(ReleaseFact::KeepsObjectsOfUnloadedClasses) {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, CALL).about(
                "after an unload",
                "an assembly may have been unloaded, and this runtime would read freed classes of its objects: make this call before the \
                 first `module_unload_started` of a profiler that is there from the start, or on .NET 10",
            ));
        }
        // SAFETY: to get from one object to the next, the runtime reads the class of each. All classes are in memory:
        // none was freed before the look-up began, or this runtime puts no object of a collectible class into this
        // heap; and none is freed before the look-up ends. The call writes one interface pointer, whose reference the
        // caller owns (fact: outputs, pinned).
        let enumerate = |objects| unsafe { info.EnumerateNonGCObjects(objects) };
        // SAFETY: an object outside of the collected heap does not move (fact: still).
        read_all(CALL, enumerate, |raw| unsafe { ObjectId::from_raw(raw) })
    }
}

impl InCallback<'_> {
    /// Calls `visit` with every object of the collected heap, until it returns `Break`.
    ///
    /// The application's threads are suspended meanwhile, so `visit` must be quick and must not wait for any of them.
    /// It may make calls about the object, with the context that it receives.
    ///
    /// The runtime must know whether the calling thread has already suspended it, which it can tell for managed threads
    /// only. So a callback on a thread of the collector gets `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`. On a
    /// [`ProfilerThread`] corprof suspends the runtime itself, and retries for up to ten seconds while a collection is
    /// under way.
    #[doc = contract!(EnumerateGCHeapObjects)]
    #[doc(alias = "EnumerateGCHeapObjects")]
    pub fn enumerate_gc_heap_objects(
        &mut self,
        visit: impl FnMut(&InNoGc<'_>, ObjectId<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        const CALL: &str = "EnumerateGCHeapObjects";
        let info = self.as_version::<sys::ICorProfilerInfo15>(CALL)?;
        let suspension = self.suspend_for_heap(CALL)?;
        // SAFETY: only `visit` uses it. The runtime has suspended all threads by then, and treats its call like one
        // during a collection (fact: visits).
        let inside = unsafe { InNoGc::new(self, Heap::Still) };
        let mut walk = Walk { visitor: Visitor::new(visit), inside: &inside };
        // SAFETY: the trampoline belongs to this walk, and is called during this call only (fact: visits).
        let code = unsafe {
            let trampoline = heap_trampoline(&walk);
            info.EnumerateGCHeapObjects(Some(trampoline), (&raw mut walk).cast())
        };
        drop(suspension);
        walk.visitor.rethrow();
        Error::check(code, CALL)
    }

    /// Prepares a heap walk on a thread that never ran managed code.
    ///
    /// To find out whether the calling thread has suspended it, the runtime compares the suspending thread with the
    /// calling one. If the calling one is not managed and no thread suspends, both are null, and it returns
    /// `CORPROF_E_SUSPENSION_IN_PROGRESS` (proftoeeinterfaceimpl.cpp, EnumerateGCHeapObjects; live, 10). If another
    /// thread of the profiler has suspended it, both are null as well, and it would walk a heap that the other thread
    /// may resume at any moment. So a thread like this suspends the runtime itself, which waits for the others.
    fn suspend_for_heap(&self, call: &'static str) -> Result<Option<HeapSuspension<'_>>> {
        let is_profilers = profiler_threads::is_current();
        // A profiler thread may get to the call after `initialize` has returned.
        let is_in_initialize = self.phase() == Phase::Initialize && !is_profilers;
        if is_in_initialize || self.current_thread()?.is_some() {
            return Ok(None);
        }
        if !is_profilers {
            return Err(Error::new(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE, call).about(
                "a thread that is not managed",
                "walk the heap on a managed thread or on a profiler thread (`spawn_profiler_thread`)",
            ));
        }
        let info = self.as_version::<sys::ICorProfilerInfo10>(call)?;
        let begun = Instant::now();
        let mut wait = Duration::from_micros(50);
        loop {
            if let Some(turn) = Turn::wait(wait) {
                // SAFETY: the calling thread never ran managed code. Dropping the result resumes the runtime (fact:
                // suspension).
                let code = unsafe { info.SuspendRuntime() };
                if code != sys::CORPROF_E_SUSPENSION_IN_PROGRESS {
                    Error::check(code, call)?;
                    return Ok(Some(HeapSuspension { info, _turn: turn }));
                }
            }
            if begun.elapsed() > SUSPENSION_PATIENCE || self.profiler_threads().is_stopping() {
                return Err(Error::new(sys::CORPROF_E_SUSPENSION_IN_PROGRESS, call));
            }
            std::thread::sleep(wait);
            wait = (wait * 2).min(Duration::from_millis(5));
        }
    }
}

/// How long [`enumerate_gc_heap_objects`](InCallback::enumerate_gc_heap_objects) waits for other suspensions on a
/// [`ProfilerThread`].
const SUSPENSION_PATIENCE: Duration = Duration::from_secs(10);

/// This thread has suspended the runtime, until this is dropped.
struct HeapSuspension<'i> {
    info: Call<'i, sys::ICorProfilerInfo10>,
    /// Given up when the runtime has been resumed.
    _turn: Turn,
}

impl Drop for HeapSuspension<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread has suspended the runtime, and resumes it once. The call fails only if no thread has
        // suspended it (fact: suspension).
        let _ = unsafe { self.info.ResumeRuntime() };
    }
}

/// The data that the runtime passes to the trampoline of a heap walk.
struct Walk<'cx, F> {
    visitor: Visitor<F>,
    inside: &'cx InNoGc<'cx>,
}

type HeapTrampoline = unsafe extern "system" fn(usize, *mut c_void) -> BOOL;

/// The trampoline for a walk's type.
fn heap_trampoline<F: FnMut(&InNoGc<'_>, ObjectId<'_>) -> ControlFlow<()>>(_: &Walk<'_, F>) -> HeapTrampoline {
    unsafe extern "system" fn trampoline<F: FnMut(&InNoGc<'_>, ObjectId<'_>) -> ControlFlow<()>>(
        object: usize,
        walk: *mut c_void,
    ) -> BOOL {
        // SAFETY: the runtime passes back the walk that it received, which has no other user during the call (fact:
        // visits).
        let walk = unsafe { &mut *walk.cast::<Walk<'_, F>>() };
        let inside = walk.inside;
        // SAFETY: the runtime passes an object of the heap, which does not move until the call is over (fact: visits).
        match unsafe { ObjectId::from_raw(object) } {
            Some(object) => BOOL::from(walk.visitor.call(|visit| visit(inside, object)).is_continue()),
            None => BOOL(1),
        }
    }
    trampoline::<F>
}
