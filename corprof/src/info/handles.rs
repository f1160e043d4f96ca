//! Handles: they keep an object findable, and if wanted alive or in place, until they are dropped. They need .NET 7; for
//! older runtimes there is [`ObjectTracker`](crate::tracker::ObjectTracker).

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use corprof_sys as sys;

use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::generated::contract::contract;
use crate::id::ObjectId;
use crate::info::Info;

use super::nested::Nested;

/// What a handle does for its object.
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

/// A handle to an object. It may be kept and sent to other threads; the object is asked for where objects can be looked at.
///
/// Dropping it frees it. A strong or pinned one that is never dropped keeps its object for ever.
///
/// With `MONITOR_GC` on, freeing it makes [`handle_destroyed`](crate::Callbacks::handle_destroyed) on the calling thread. Hold
/// no lock that this callback takes ([`sync`](crate::sync)) when a handle is dropped. Where handles are freed from within each
/// other's `handle_destroyed`, from some depth on one is freed when those around it are.
pub struct ObjectHandle {
    info: Info,
    raw: sys::ObjectHandleID,
    kind: HandleKind,
}

// SAFETY: the handle is a place in a table of the runtime's, which takes calls on it from any thread.
unsafe impl Send for ObjectHandle {}
// SAFETY: as above; through a shared reference it is only read.
unsafe impl Sync for ObjectHandle {}

impl InCallback<'_> {
    /// Makes a handle to `object`.
    ///
    /// With `MONITOR_GC` on, the call makes [`handle_created`](crate::Callbacks::handle_created) on the calling thread. Hold no
    /// lock that this callback takes ([`sync`](crate::sync)). A callback that makes a handle in turn is refused that before the
    /// stack is used up.
    #[doc = contract!(CreateHandle)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: handles are made from within each other's `handle_created`.
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
        // SAFETY: the object is alive while its id is; the call writes one handle.
        let code = unsafe { info.CreateHandle(object.as_raw(), wire, &mut raw) };
        Error::check(code, CALL)?;
        if raw.is_null() {
            return Err(Error::new(E_INVALIDARG, CALL));
        }
        Ok(ObjectHandle { info: Info::clone(self), raw, kind })
    }
}

impl ObjectHandle {
    /// What it does for its object.
    pub fn kind(&self) -> HandleKind {
        self.kind
    }

    /// The object, unless it has been collected.
    #[doc = contract!(GetObjectIDFromHandle)]
    ///
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: a collection could move the object while it is looked at. Ask from a callback
    /// that is given an object (`object_allocated`, `exception_thrown`…), or from `garbage_collection_finished` with
    /// `MONITOR_GC` on.
    #[doc(alias = "GetObjectIDFromHandle")]
    pub fn get<'cx>(&self, cx: &'cx InCallback<'_>) -> Result<Option<ObjectId<'cx>>> {
        const CALL: &str = "GetObjectIDFromHandle";
        cx.check_still(CALL)?;
        let info = self.info.as_version::<sys::ICorProfilerInfo13>(CALL)?;
        let mut object = 0;
        // SAFETY: the handle is alive as long as this is; the call writes one id.
        let code = unsafe { info.GetObjectIDFromHandle(self.raw, &mut object) };
        Error::check(code, CALL)?;
        // SAFETY: the runtime says that the object is there, and `check_still` that nothing moves it while `cx` is borrowed.
        Ok(unsafe { ObjectId::from_raw(object) })
    }

    /// Frees the handle and says how that went; dropping it does the same and says nothing. A handle that is freed when those
    /// around it are is answered with `Ok`.
    #[doc = contract!(DestroyHandle)]
    #[doc(alias = "DestroyHandle")]
    pub fn destroy(self) -> Result<()> {
        let this = ManuallyDrop::new(self);
        let done = this.free();
        // SAFETY: `this` is neither used again nor dropped, so its reference to the runtime is given up once.
        drop(unsafe { std::ptr::read(&this.info) });
        done
    }

    /// To be called once, as the handle's last.
    fn free(&self) -> Result<()> {
        const CALL: &str = "DestroyHandle";
        let info = self.info.as_version::<sys::ICorProfilerInfo13>(CALL)?;
        let late = self.info.late_handles();
        let Some(_freeing) = Freeing::begin() else {
            late.push(self.raw);
            return Ok(());
        };
        // SAFETY: the handle is alive, and nobody uses it after this.
        let done = unsafe { info.DestroyHandle(self.raw) };
        while let Some(raw) = late.next() {
            // SAFETY: the same; who put it there has given it up, and it is taken out once.
            let _ = unsafe { info.DestroyHandle(raw) }; // as in `drop`
        }
        Error::check(done, CALL)
    }
}

/// How deep handles are freed from within each other on one thread. The innermost frees what is given up beyond that.
const DEEPEST: u32 = 8;

thread_local! {
    /// How many handles are being freed on the calling thread. Without a destructor, so it is there to the thread's end.
    static FREEING: Cell<u32> = const { Cell::new(0) };
}

/// A handle is being freed on the calling thread, until this is dropped.
struct Freeing(PhantomData<*mut ()>);

impl Freeing {
    /// None if too many are.
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
        // Only a profiler that is being detached is refused, and then there is nobody left to tell.
        let _ = self.free();
    }
}

impl fmt::Debug for ObjectHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObjectHandle").field(&self.kind).finish()
    }
}
