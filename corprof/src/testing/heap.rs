//! The heap: allocations, and collections that move objects.
//!
//! Objects have addresses, but no memory: a profiler that reads an object's fields finds no data.

use std::sync::atomic::Ordering;

use corprof_sys as sys;
use windows_core::{BOOL, HRESULT};

use crate::error::E_INVALIDARG;
use crate::event_mask::EventMask;
use crate::id::ClassId;
use crate::lock::unpoisoned;

use super::clr::{FakeClr, make, misuse};
use super::contract::{Release, Standing};
use super::here;
use super::runtime::{Runtime, lock};
use super::spec::FakeObject;
use super::world::{Collected, Handle, LARGE, Object};

/// The first release that leaves out the counts of objects by class if the event mask says so.
const KNOWS_SKIP: Release = Release(11, 0);

impl FakeClr {
    /// Allocates a small object: `ObjectAllocated`.
    ///
    /// # Panics
    /// If there is no such class.
    #[track_caller]
    pub fn allocate(&self, class: ClassId) -> FakeObject {
        self.allocate_sized(class, 24)
    }

    /// Allocates an object of this many bytes: `ObjectAllocated`.
    ///
    /// # Panics
    /// If there is no such class.
    #[track_caller]
    pub fn allocate_sized(&self, class: ClassId, size: usize) -> FakeObject {
        self.current_thread();
        let raw = class.as_raw();
        let object = {
            let mut world = self.runtime.world_mut();
            if !world.classes.contains_key(&raw) {
                misuse(format_args!("{class:?} is not loaded"));
            }
            let key = world.new_id();
            world.heap.allocate(key, raw, size);
            FakeObject(key)
        };
        // Small objects are reported only if both flags are set.
        let all = EventMask::MONITOR_OBJECT_ALLOCATED | EventMask::ENABLE_OBJECT_ALLOCATED;
        if size >= LARGE || self.event_mask().contains(all) {
            // The object's address is certain only inside the callback: a collection may have come first.
            make!(self, ObjectAllocated, |callback| callback.ObjectAllocated(self.address_of(object), raw));
        }
        object
    }

    /// The current address of an object; none if it was collected.
    pub fn address(&self, object: FakeObject) -> Option<usize> {
        self.runtime.world().heap.objects.get(&object.0).map(|object| object.address)
    }

    pub(super) fn address_of(&self, object: FakeObject) -> usize {
        self.address(object).unwrap_or(0)
    }

    /// Pins an object by a handle, so that collections do not move it: `HandleCreated`.
    pub fn pin(&self, object: FakeObject) {
        self.change_object(object, |object| object.pinned = true);
        self.create_handle(object.0, object);
    }

    /// Destroys the handle that pins an object: `HandleDestroyed`.
    pub fn unpin(&self, object: FakeObject) {
        self.change_object(object, |object| object.pinned = false);
        self.destroy_handle(object.0);
    }

    /// Whether a handle pins an object: one of [`pin`](Self::pin), or one that the profiler has made.
    pub fn is_pinned(&self, object: FakeObject) -> bool {
        self.runtime.world().heap.is_pinned(object.0)
    }

    pub(super) fn create_handle(&self, handle: usize, object: FakeObject) {
        self.current_thread();
        make!(self, HandleCreated, |callback| callback.HandleCreated(handle, self.address_of(object)));
    }

    pub(super) fn destroy_handle(&self, handle: usize) {
        self.current_thread();
        make!(self, HandleDestroyed, |callback| callback.HandleDestroyed(handle));
    }

    /// Makes an object garbage: the next collection frees it.
    pub fn release(&self, object: FakeObject) {
        self.change_object(object, |object| object.garbage = true);
    }

    /// Adds a reference from one object to another, which `ObjectReferences` reports; it does not keep the object
    /// alive.
    pub fn refer(&self, from: FakeObject, to: FakeObject) {
        self.runtime.world_mut().heap.references.entry(from.0).or_default().push(to.0);
    }

    fn change_object(&self, object: FakeObject, change: impl FnOnce(&mut Object)) {
        if let Some(object) = self.runtime.world_mut().heap.objects.get_mut(&object.0) {
            change(object);
        }
    }

    /// Runs a collection of all generations, which moves every object that is neither pinned nor large. The runtime is
    /// suspended, `GarbageCollectionStarted`, `ObjectsAllocatedByClass`, `SurvivingReferences2` of large objects,
    /// `MovedReferences2` of the others (pinned ones have moved to where they were), the roots (every object is one),
    /// `ObjectReferences` of each object, `GarbageCollectionFinished`, and the runtime is resumed.
    pub fn collect(&self) {
        self.current_thread();
        let _one_at_a_time = lock(&self.runtime.suspension);
        let this = here::thread(self.runtime.id);
        make!(self, RuntimeSuspendStarted, |callback| callback.RuntimeSuspendStarted(sys::COR_PRF_SUSPEND_FOR_GC));
        // No thread is inside a callback that a collection waits for, until it ends.
        let stopped = unpoisoned(self.runtime.execution.write());
        // As seen on .NET 8, only the collecting thread is reported: the others are in code that need not be stopped.
        make!(self, RuntimeThreadSuspended, |callback| callback.RuntimeThreadSuspended(this));
        make!(self, RuntimeSuspendFinished, |callback| callback.RuntimeSuspendFinished());
        self.runtime.collector.store(this, Ordering::Release);
        let generations = [BOOL(1); 5];
        let count = generations.len() as i32;
        let start = generations.as_ptr();
        make!(self, GarbageCollectionStarted, |callback| callback.GarbageCollectionStarted(
            count,
            start,
            sys::COR_PRF_GC_INDUCED
        ));
        let (allocated, collected) = {
            let mut world = self.runtime.world_mut();
            (world.heap.allocated.clone(), world.heap.compact())
        };
        let is_skipped = self.event_mask().contains(EventMask::HIGH_MONITOR_GC_SKIP_ALLOCATED_BY_CLASS_STATISTIC);
        if !is_skipped || self.runtime.release < KNOWS_SKIP {
            let (classes, counts): (Vec<usize>, Vec<u32>) = allocated.into_iter().unzip();
            let count = classes.len() as u32;
            let classes = classes.as_ptr();
            let counts = counts.as_ptr();
            make!(self, ObjectsAllocatedByClass, |callback| callback.ObjectsAllocatedByClass(count, classes, counts));
        }
        self.report_ranges(&collected);
        self.report_roots();
        self.report_references();
        make!(self, GarbageCollectionFinished, |callback| callback.GarbageCollectionFinished());
        self.runtime.collector.store(0, Ordering::Release);
        make!(self, RuntimeResumeStarted, |callback| callback.RuntimeResumeStarted());
        make!(self, RuntimeThreadResumed, |callback| callback.RuntimeThreadResumed(this));
        drop(stopped);
        make!(self, RuntimeResumeFinished, |callback| callback.RuntimeResumeFinished());
    }

    /// The newer form of each callback comes first, followed by the older one.
    fn report_ranges(&self, collected: &Collected) {
        // Like the runtime, this reports a number that does not fit as the greatest that does.
        let narrow = |lengths: &[usize]| -> Vec<u32> {
            lengths.iter().map(|&length| u32::try_from(length).unwrap_or(u32::MAX)).collect()
        };
        if !collected.survivor_starts.is_empty() {
            let starts = collected.survivor_starts.as_ptr();
            let count = collected.survivor_starts.len() as u32;
            let lengths = narrow(&collected.survivor_lengths);
            let wide = collected.survivor_lengths.as_ptr();
            let narrow = lengths.as_ptr();
            make!(self, SurvivingReferences2, |callback| callback.SurvivingReferences2(count, starts, wide));
            make!(self, SurvivingReferences, |callback| callback.SurvivingReferences(count, starts, narrow));
        }
        if !collected.old_starts.is_empty() {
            let old = collected.old_starts.as_ptr();
            let new = collected.new_starts.as_ptr();
            let count = collected.old_starts.len() as u32;
            let wide = collected.moved_lengths.as_ptr();
            let lengths = narrow(&collected.moved_lengths);
            let narrow = lengths.as_ptr();
            make!(self, MovedReferences2, |callback| callback.MovedReferences2(count, old, new, wide));
            make!(self, MovedReferences, |callback| callback.MovedReferences(count, old, new, narrow));
        }
    }

    fn report_roots(&self) {
        let objects: Vec<(usize, usize, bool)> = {
            let world = self.runtime.world();
            let heap = &world.heap;
            heap.objects.iter().map(|(&key, object)| (object.address, key, heap.is_pinned(key))).collect()
        };
        let addresses: Vec<usize> = objects.iter().map(|&(address, ..)| address).collect();
        // A handle holds each object; its number is the object's own.
        let handles: Vec<usize> = objects.iter().map(|&(_, key, _)| key).collect();
        let kinds = vec![sys::COR_PRF_GC_ROOT_HANDLE; objects.len()];
        let flag = |pinned| if pinned { sys::COR_PRF_GC_ROOT_PINNING } else { sys::COR_PRF_GC_ROOT_FLAGS::empty() };
        let flags: Vec<_> = objects.iter().map(|&(.., pinned)| flag(pinned)).collect();
        let count = objects.len() as u32;
        let roots = addresses.as_ptr();
        let kinds = kinds.as_ptr();
        let flags = flags.as_ptr();
        let handles = handles.as_ptr();
        make!(self, RootReferences2, |callback| callback.RootReferences2(count, roots, kinds, flags, handles));
        make!(self, RootReferences, |callback| callback.RootReferences(count, roots));
    }

    /// For every object, including those without references.
    fn report_references(&self) {
        let objects: Vec<(usize, usize, Vec<usize>)> = {
            let heap = &self.runtime.world().heap;
            let address = |key: &usize| heap.objects.get(key).map(|object| object.address);
            let references = |key| heap.references.get(key).into_iter().flatten().filter_map(address).collect();
            heap.objects.iter().map(|(key, object)| (object.address, object.class, references(key))).collect()
        };
        for (object, class, references) in objects {
            let count = references.len() as u32;
            let start = references.as_ptr();
            make!(self, ObjectReferences, |callback| callback.ObjectReferences(object, class, count, start));
        }
    }
}

impl Runtime {
    /// `CreateHandle`, without a callback.
    pub(super) fn make_handle(&self, address: usize, kind: sys::COR_PRF_HANDLE_TYPE) -> Result<usize, HRESULT> {
        let mut world = self.world_mut();
        let found = world.heap.objects.iter().find(|(_, object)| object.address == address).map(|(&key, _)| key);
        let object = found.ok_or(E_INVALIDARG)?;
        let handle = world.new_id();
        world.heap.handles.insert(handle, Handle { object, kind });
        Ok(handle)
    }

    /// `DestroyHandle`.
    pub(super) fn free_handle(&self, handle: usize) -> Result<(), HRESULT> {
        self.world_mut().heap.handles.remove(&handle).map(drop).ok_or(E_INVALIDARG)
    }

    /// `GetObjectIDFromHandle`: 0 for an object that has been collected.
    pub(super) fn handled_object(&self, handle: usize) -> Result<usize, HRESULT> {
        let heap = &self.world().heap;
        let handle = heap.handles.get(&handle).ok_or(E_INVALIDARG)?;
        Ok(heap.objects.get(&handle.object).map_or(0, |object| object.address))
    }

    /// `EnumerateGCHeapObjects`: calls `visit` with every object, until it returns `false`. Where a runtime waits for
    /// the end of another suspension, this returns an error.
    pub(super) fn visit_heap(&self, mut visit: impl FnMut(usize) -> bool) -> Result<(), HRESULT> {
        let standing = here::standing(self.id);
        if standing.in_callback && !standing.may_trigger {
            return Err(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
        }
        let Ok(_suspended) = self.suspension.try_lock() else { return Err(sys::CORPROF_E_SUSPENSION_IN_PROGRESS) };
        let addresses: Vec<usize> = self.world().heap.objects.values().map(|object| object.address).collect();
        // During the visit, calls about objects are allowed, as during a collection.
        let visiting = Standing { in_callback: true, may_trigger: false, in_collection: true, ..standing };
        let _inside = here::enter(self.id, |_| visiting);
        let _ = addresses.into_iter().all(&mut visit);
        Ok(())
    }
}
