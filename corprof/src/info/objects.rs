//! Objects. Only callbacks in which the runtime allows these calls have an [`ObjectId`].

use std::ffi::c_void;
use std::ops::ControlFlow;

use corprof_sys as sys;
use windows_core::BOOL;

use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::ffi::visitor::Visitor;
use crate::generated::contract::contract;
use crate::id::{ClassId, ObjectId};
use crate::info::heap::{BLANK_RANGE, GenerationRange};

/// The most dimensions that an array can have.
const MOST_DIMENSIONS: usize = 32;

/// An array: its dimensions, and the address of its elements.
#[derive(Clone, Copy, Debug)]
pub struct ArrayObject {
    lengths: [u32; MOST_DIMENSIONS],
    lower_bounds: [i32; MOST_DIMENSIONS],
    data: usize,
}

/// One dimension of an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ArrayDimension {
    /// The number of its elements.
    pub length: u32,
    /// The index of its first element: 0, except in arrays of other languages than C#.
    pub lower_bound: i32,
}

impl ArrayObject {
    /// Marks an unused dimension: no array is that long.
    const NO_LENGTH: u32 = u32::MAX;

    /// Its dimensions, from left to right.
    pub fn dimensions(&self) -> impl Iterator<Item = ArrayDimension> {
        self.lengths
            .iter()
            .zip(&self.lower_bounds)
            .take_while(|&(&length, _)| length != Self::NO_LENGTH)
            .map(|(&length, &lower_bound)| ArrayDimension { length, lower_bound })
    }

    /// The total number of elements.
    pub fn len(&self) -> u64 {
        self.dimensions().map(|dimension| u64::from(dimension.length)).product()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of its first element, valid until the next collection.
    pub fn data(&self) -> usize {
        self.data
    }
}

impl InNoGc<'_> {
    /// The class of `object`.
    #[doc = contract!(GetClassFromObject)]
    #[doc(alias = "GetClassFromObject")]
    #[inline]
    pub fn class_of(&self, object: ObjectId<'_>) -> Result<ClassId> {
        const CALL: &str = "GetClassFromObject";
        let mut class = 0;
        // SAFETY: the object is alive while its id is; the call writes one id and keeps nothing (fact: still, outputs).
        let code = unsafe { self.first_version(CALL)?.GetClassFromObject(object.as_raw(), &mut class) };
        Error::check(code, CALL)?;
        self.class(class).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// The size of `object` in bytes.
    #[doc = contract!(GetObjectSize2)]
    #[doc(alias = "GetObjectSize2")]
    #[doc(alias = "GetObjectSize")]
    #[inline]
    pub fn object_size(&self, object: ObjectId<'_>) -> Result<usize> {
        const CALL: &str = "GetObjectSize2";
        let info = self.as_version::<sys::ICorProfilerInfo4>(CALL)?;
        let mut size = 0;
        // SAFETY: the object is alive while its id is; the call writes one number and keeps nothing (fact: still,
        // outputs).
        let code = unsafe { info.GetObjectSize2(object.as_raw(), &mut size) };
        Error::check(code, CALL)?;
        Ok(size)
    }

    /// The dimensions of the array `object`, and the address of its elements.
    #[doc = contract!(GetArrayObjectInfo)]
    ///
    /// `E_INVALIDARG`: the object is not an array. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in
    /// `finalizeable_object_queued`, where the collector marks objects.
    #[doc(alias = "GetArrayObjectInfo")]
    pub fn array_object_info(&self, object: ObjectId<'_>) -> Result<ArrayObject> {
        const CALL: &str = "GetArrayObjectInfo";
        self.check_unmarked(CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut lengths = [ArrayObject::NO_LENGTH; MOST_DIMENSIONS];
        let mut lower_bounds = [0; MOST_DIMENSIONS];
        let mut data = std::ptr::null_mut();
        // SAFETY: the object is alive while its id is; there is room for as many dimensions as an array can have
        // (fact: still, outputs).
        let code = unsafe {
            info.GetArrayObjectInfo(
                object.as_raw(),
                MOST_DIMENSIONS as u32,
                lengths.as_mut_ptr(),
                lower_bounds.as_mut_ptr(),
                &mut data,
            )
        };
        Error::check(code, CALL)?;
        Ok(ArrayObject { lengths, lower_bounds, data: data.addr() })
    }

    /// The generation of `object`, and the range of it that contains the object.
    #[doc = contract!(GetObjectGeneration)]
    #[doc(alias = "GetObjectGeneration")]
    pub fn object_generation(&self, object: ObjectId<'_>) -> Result<GenerationRange> {
        const CALL: &str = "GetObjectGeneration";
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut range = BLANK_RANGE;
        // SAFETY: the object is alive while its id is; the call writes one range and keeps nothing (fact: still,
        // outputs).
        let code = unsafe { info.GetObjectGeneration(object.as_raw(), &mut range) };
        Error::check(code, CALL)?;
        Ok(GenerationRange::from(range))
    }

    /// Whether `object` lies outside the collected heap, where it neither moves nor dies: a string literal, for
    /// example.
    #[doc = contract!(IsFrozenObject)]
    #[doc(alias = "IsFrozenObject")]
    pub fn is_frozen_object(&self, object: ObjectId<'_>) -> Result<bool> {
        const CALL: &str = "IsFrozenObject";
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        let mut is_frozen = BOOL(0);
        // SAFETY: the object is alive while its id is; the call writes one truth value and keeps nothing
        // (fact: still, outputs).
        let code = unsafe { info.IsFrozenObject(object.as_raw(), &mut is_frozen) };
        Error::check(code, CALL)?;
        Ok(is_frozen.as_bool())
    }

    /// Calls `visit` with every object that `object` refers to, until it returns `Break`.
    #[doc = contract!(EnumerateObjectReferences)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `finalizeable_object_queued`, where the collector marks objects.
    #[doc(alias = "EnumerateObjectReferences")]
    pub fn enumerate_object_references<'gc>(
        &self,
        object: ObjectId<'gc>,
        visit: impl FnMut(ObjectId<'gc>) -> ControlFlow<()>,
    ) -> Result<()> {
        const CALL: &str = "EnumerateObjectReferences";
        self.check_unmarked(CALL)?;
        let info = self.as_version::<sys::ICorProfilerInfo10>(CALL)?;
        let mut visitor = Visitor::new(visit);
        // SAFETY: the object is alive while its id is; the trampoline belongs to this visitor, and is called during
        // this call only (fact: still, visits).
        let code = unsafe {
            let trampoline = reference_trampoline(&visitor);
            info.EnumerateObjectReferences(object.as_raw(), Some(trampoline), (&raw mut visitor).cast())
        };
        visitor.rethrow();
        Error::check(code, CALL)
    }
}

type ReferenceTrampoline = unsafe extern "system" fn(usize, *mut usize, *mut c_void) -> BOOL;

/// The trampoline for a visitor's type.
fn reference_trampoline<'gc, F: FnMut(ObjectId<'gc>) -> ControlFlow<()>>(_: &Visitor<F>) -> ReferenceTrampoline {
    unsafe extern "system" fn trampoline<'gc, F: FnMut(ObjectId<'gc>) -> ControlFlow<()>>(
        _root: usize,
        reference: *mut usize,
        visitor: *mut c_void,
    ) -> BOOL {
        // SAFETY: the runtime passes back the visitor that it received, which has no other user during the call, and
        // the address of a field of the object (fact: visits).
        let (visitor, reference) = unsafe { (&mut *visitor.cast::<Visitor<F>>(), reference.as_ref()) };
        // SAFETY: a field of an object that does not move during `'gc` refers to an object that does not move either
        // (fact: still).
        match reference.and_then(|&reference| unsafe { ObjectId::from_raw(reference) }) {
            Some(object) => BOOL::from(visitor.call(|visit| visit(object)).is_continue()),
            None => BOOL(1),
        }
    }
    trampoline::<F>
}
