//! Handles keep an object findable, and on request alive or in place, until they are dropped.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use corprof_sys as sys;

use crate::context::InNoGc;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::ObjectId;
use crate::info::Info;
use crate::session::ending_threads::AnyCall;

use super::nested::Nested;

/// The effect of a handle on its object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum HandleKind {
    /// It follows the object, until that is collected.
    Weak,
    /// It keeps the object alive.
    Strong,
    /// It keeps the object alive and in place.
    Pinned,
}

/// A handle to an object. It may be kept and sent to other threads; get the object in a callback where objects can be
/// read.
///
/// Dropping it frees it. A strong or pinned handle that is never dropped keeps its object for ever.
///
/// With `MONITOR_GC` on, freeing it makes [`handle_destroyed`](crate::Callbacks::handle_destroyed) on the calling
/// thread. Hold no lock that this callback takes ([`sync`](crate::sync)) when a handle is dropped. If
/// `handle_destroyed` frees handles recursively, handles beyond a certain depth are freed when the outer calls return.
pub struct ObjectHandle {
    info: Info,
    raw: sys::ObjectHandleID,
    kind: HandleKind,
}

// SAFETY: the handle is a place in one of the runtime's tables; the runtime accepts it from any thread (fact: handles).
unsafe impl Send for ObjectHandle {}
// SAFETY: as above; shared access only reads it.
unsafe impl Sync for ObjectHandle {}

impl InNoGc<'_> {
    /// Makes a handle to `object`.
    ///
    /// With `MONITOR_GC` on, the call makes [`handle_created`](crate::Callbacks::handle_created) on the calling thread.
    /// Hold no lock that this callback takes ([`sync`](crate::sync)). A callback that makes a handle in turn gets an
    /// error before the stack is exhausted.
    #[doc = contract!(CreateHandle)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: `handle_created` makes handles recursively.
    #[doc(alias = "CreateHandle")]
    pub fn create_handle(&self, object: ObjectId<'_>, kind: HandleKind) -> Result<ObjectHandle> {
        const CALL: &str = "CreateHandle";
        let info = self.as_version::<sys::ICorProfilerInfo13>(CALL)?;
        let wire = match kind {
            HandleKind::Weak => sys::COR_PRF_HANDLE_TYPE_WEAK,
            HandleKind::Strong => sys::COR_PRF_HANDLE_TYPE_STRONG,
            HandleKind::Pinned => sys::COR_PRF_HANDLE_TYPE_PINNED,
        };
        let _nested = Nested::begin(CALL)?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the object is alive while its id is; the call writes one handle (fact: still, outputs).
        let code = unsafe { info.CreateHandle(object.as_raw(), wire, &mut raw) };
        Error::check(code, CALL)?;
        if raw.is_null() {
            return Err(Error::new(E_INVALIDARG, CALL));
        }
        Ok(ObjectHandle { info: Info::clone(self), raw, kind })
    }
}

impl ObjectHandle {
    /// Its effect on its object.
    pub fn kind(&self) -> HandleKind {
        self.kind
    }

    /// The object, unless it has been collected.
    #[doc = contract!(GetObjectIDFromHandle)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: a collection could move the object while it is read. Call this in a
    /// callback with an object argument (`object_allocated`, `exception_thrown`…), or in `garbage_collection_finished`
    /// with `MONITOR_GC` on: under `HIGH_BASIC_GC` alone that also comes at the end of background collections, while
    /// threads run. Whether the object exists, [`is_alive`](Self::is_alive) tells anywhere.
    #[doc(alias = "GetObjectIDFromHandle")]
    pub fn get<'cx>(&self, cx: &'cx InNoGc<'_>) -> Result<Option<ObjectId<'cx>>> {
        const CALL: &str = "GetObjectIDFromHandle";
        cx.check_still(CALL)?;
        let object = self.object(CALL)?;
        // SAFETY: the runtime says that the object exists, and `check_still` that nothing moves it while `cx` is
        // borrowed (fact: still, handles).
        Ok(unsafe { ObjectId::from_raw(object) })
    }

    /// Whether its object exists: it does until the handle is freed, unless the handle is weak and the object has been
    /// collected.
    ///
    /// Unlike [`get`](Self::get) it may be asked anywhere, also in `garbage_collection_finished` with `HIGH_BASIC_GC`
    /// alone. The object of a weak handle may die right after.
    ///
    /// # Errors
    /// Those of `GetObjectIDFromHandle`: `CORPROF_E_PROFILER_DETACHING`.
    pub fn is_alive(&self) -> Result<bool> {
        Ok(self.object("GetObjectIDFromHandle")? != 0)
    }

    /// The object's address, or 0: it may be another one at once.
    fn object(&self, call: &'static str) -> Result<usize> {
        let info = self.info.as_version::<sys::ICorProfilerInfo13>(call)?;
        let mut object = 0;
        // SAFETY: the handle lives as long as this value; the call writes one id (fact: handles, outputs).
        let code = unsafe { info.GetObjectIDFromHandle(self.raw, &mut object) };
        Error::check(code, call)?;
        Ok(object)
    }

    /// Frees the handle and returns the result; dropping it ignores the result. `Ok` if the handle is to be freed when
    /// the outer calls return.
    #[doc = contract!(DestroyHandle)]
    #[doc(alias = "DestroyHandle")]
    pub fn destroy(self) -> Result<()> {
        let this = ManuallyDrop::new(self);
        let done = this.free();
        // SAFETY: `this` is neither used again nor dropped, so its reference to the runtime is released once.
        drop(unsafe { std::ptr::read(&this.info) });
        done
    }

    /// Frees the handle. Call it once, as the last use.
    fn free(&self) -> Result<()> {
        const CALL: &str = "DestroyHandle";
        let info = self.info.as_version::<sys::ICorProfilerInfo13>(CALL)?;
        let late = self.info.deferred_handles();
        let _call = AnyCall::begin();
        let Some(_freeing) = Freeing::begin() else {
            late.push(self.raw);
            return Ok(());
        };
        // SAFETY: the handle is alive, and nothing uses it after this (fact: handles).
        let done = unsafe { info.DestroyHandle(self.raw) };
        while let Some(raw) = late.next() {
            // SAFETY: the same; its owner has dropped it, and it is removed from the list once.
            let _ = unsafe { info.DestroyHandle(raw) }; // as in `drop`
        }
        Error::check(done, CALL)
    }
}

/// How deep `handle_destroyed` may free handles recursively on one thread. The innermost call frees the handles beyond
/// that.
const DEEPEST: u32 = 8;

thread_local! {
    /// How many handles are being freed on the calling thread. It has no destructor, so it is usable until the end of
    /// the thread.
    static FREEING: Cell<u32> = const { Cell::new(0) };
}

/// Marks that a handle is being freed on the calling thread, until it is dropped.
struct Freeing(PhantomData<*mut ()>);

impl Freeing {
    /// None if too many are being freed.
    fn begin() -> Option<Self> {
        let depth = FREEING.get();
        if depth >= DEEPEST {
            return None;
        }
        FREEING.set(depth + 1);
        Some(Self(PhantomData))
    }
}

impl Drop for Freeing {
    fn drop(&mut self) {
        FREEING.set(FREEING.get() - 1);
    }
}

impl Drop for ObjectHandle {
    fn drop(&mut self) {
        // Only a profiler that is being detached gets an error, and there is nobody left to report it to.
        let _ = self.free();
    }
}

impl fmt::Debug for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectHandle").field(&self.kind).finish()
    }
}
