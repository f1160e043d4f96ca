//! The managed heap: its generations, the part that is not collected, and a walk over all of it.

use std::ffi::c_void;
use std::ops::ControlFlow;

use corprof_sys as sys;
use windows_core::BOOL;

use crate::args::Generation;
use crate::buffer::read_blank_list;
use crate::context::{Heap, InCallback, InTriggers};
use crate::enumerate::read_all;
use crate::error::{Error, Result};
use crate::generated::contract::contract;
use crate::id::ObjectId;
use crate::info::Info;
use crate::own_thread::OwnThread;
use crate::visitor::Visitor;

/// A range of the heap that belongs to one generation. Addresses are numbers here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GenerationRange {
    /// Whose range it is.
    pub generation: Generation,
    /// Where it begins.
    pub start: usize,
    /// How many bytes of it the last collection left in use. Objects made since then lie beyond.
    pub length: usize,
    /// How many bytes are set aside for it.
    pub reserved: usize,
}

/// A range of the heap that is not collected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NonGcRange {
    /// Where it begins.
    pub start: usize,
    /// How many bytes of it are in use.
    pub length: usize,
    /// How many bytes are set aside for it.
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
    /// The ranges of the heap that is not collected, where string literals and the like are.
    #[doc = contract!(GetNonGCHeapBounds)]
    #[doc(alias = "GetNonGCHeapBounds")]
    pub fn non_gc_heap_bounds(&self) -> Result<Vec<NonGcRange>> {
        const CALL: &str = "GetNonGCHeapBounds";
        const BLANK: sys::COR_PRF_NONGC_HEAP_RANGE =
            sys::COR_PRF_NONGC_HEAP_RANGE { rangeStart: 0, rangeLength: 0, rangeLengthReserved: 0 };
        let info = self.as_version::<sys::ICorProfilerInfo14>(CALL)?;
        let ranges = read_blank_list(CALL, BLANK, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges.
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

impl InCallback<'_> {
    /// The ranges of the collected heap, each with its generation.
    #[doc = contract!(GetGenerationBounds)]
    #[doc(alias = "GetGenerationBounds")]
    pub fn generation_bounds(&self) -> Result<Vec<GenerationRange>> {
        const CALL: &str = "GetGenerationBounds";
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let ranges = read_blank_list(CALL, BLANK_RANGE, |room, count, start| {
            // SAFETY: the call writes the count and at most `room` ranges.
            unsafe { info.GetGenerationBounds(room, count, start) }
        })?;
        Ok(ranges.into_iter().map(GenerationRange::from).collect())
    }

    /// The size in bytes from which on an object is a large one.
    #[doc = contract!(GetLOHObjectSizeThreshold)]
    #[doc(alias = "GetLOHObjectSizeThreshold")]
    pub fn loh_object_size_threshold(&self) -> Result<u32> {
        const CALL: &str = "GetLOHObjectSizeThreshold";
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        let mut threshold = 0;
        // SAFETY: the call writes one number and keeps nothing.
        let code = unsafe { info.GetLOHObjectSizeThreshold(&mut threshold) };
        Error::check(code, CALL)?;
        Ok(threshold)
    }

    /// The objects of the heap that is not collected: they neither move nor die.
    #[doc = contract!(EnumerateNonGCObjects)]
    #[doc(alias = "EnumerateNonGCObjects")]
    #[doc(alias = "EnumModuleFrozenObjects")]
    pub fn enumerate_non_gc_objects(&self) -> Result<Vec<ObjectId<'_>>> {
        const CALL: &str = "EnumerateNonGCObjects";
        let info = self.as_version::<sys::ICorProfilerInfo14>(CALL)?;
        // SAFETY: the call writes one interface pointer, and the reference to it is given away.
        read_all(CALL, |objects| unsafe { info.EnumerateNonGCObjects(objects) }, ObjectId::from_raw)
    }
}

impl InTriggers<'_> {
    /// Shows `visit` every object of the collected heap, until it breaks off.
    ///
    /// The application's threads stand still meanwhile, so `visit` must be quick and must not wait for any of them. It may ask
    /// about the object, with the context that it is given.
    #[doc = contract!(EnumerateGCHeapObjects)]
    #[doc(alias = "EnumerateGCHeapObjects")]
    pub fn enumerate_gc_heap_objects(
        &mut self,
        visit: impl FnMut(&InCallback<'_>, ObjectId<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        const CALL: &str = "EnumerateGCHeapObjects";
        let info = self.as_version::<sys::ICorProfilerInfo15>(CALL)?;
        // The runtime counts its call as one during a collection: the heap stands still.
        let inside = InCallback::new(self, Heap::Still, 0);
        let mut walk = Walk { visitor: Visitor::new(visit), inside: &inside };
        // SAFETY: the trampoline is that of this walk, and is called during this call only.
        let code = unsafe {
            let trampoline = heap_trampoline(&walk);
            info.EnumerateGCHeapObjects(Some(trampoline), (&raw mut walk).cast())
        };
        walk.visitor.rethrow();
        Error::check(code, CALL)
    }
}

impl OwnThread<'_> {
    /// Collects the whole heap, and returns when that is done.
    #[doc = contract!(ForceGC)]
    ///
    /// `CORPROF_E_NOT_YET_AVAILABLE`: the runtime has not started yet; wait a little.
    #[doc(alias = "ForceGC")]
    pub fn force_gc(&mut self) -> Result<()> {
        // SAFETY: the call takes nothing.
        Error::check(unsafe { self.as_raw().ForceGC() }, "ForceGC")
    }
}

/// What the runtime passes on while it walks the heap.
struct Walk<'cx, F> {
    visitor: Visitor<F>,
    inside: &'cx InCallback<'cx>,
}

type HeapTrampoline = unsafe extern "system" fn(usize, *mut c_void) -> BOOL;

/// The trampoline of a walk's type.
fn heap_trampoline<F: FnMut(&InCallback<'_>, ObjectId<'_>) -> ControlFlow<()>>(_: &Walk<'_, F>) -> HeapTrampoline {
    unsafe extern "system" fn trampoline<F: FnMut(&InCallback<'_>, ObjectId<'_>) -> ControlFlow<()>>(
        object: usize,
        walk: *mut c_void,
    ) -> BOOL {
        // SAFETY: the runtime passes on the walk that it was given, which nobody else uses during the call.
        let walk = unsafe { &mut *walk.cast::<Walk<'_, F>>() };
        let inside = walk.inside;
        match ObjectId::from_raw(object) {
            Some(object) => BOOL::from(walk.visitor.call(|visit| visit(inside, object)).is_continue()),
            None => BOOL(1),
        }
    }
    trampoline::<F>
}
