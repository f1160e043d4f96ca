//! Walks the calling thread's own stack.

use std::ffi::c_void;
use std::ops::ControlFlow;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::context::{InNoGc, Place};
use crate::error::{E_FAIL, Error, Result, S_FALSE, S_OK};
use crate::event_mask::EventMask;
use crate::ffi::visitor::Visitor;
use crate::generated::contract::contract;
use crate::id::FunctionId;
use crate::info::Info;
use crate::session::wire;

use super::start::Seed;
use super::{Frame, Registers};

const CALL: &str = "DoStackSnapshot";

impl InNoGc<'_> {
    /// Calls `visit` with each frame of the calling thread's stack, the innermost first, until it returns `Break`.
    ///
    /// The first walk sets `EventMask::ENABLE_STACK_SNAPSHOT`, which the runtime needs for walks. It
    /// shows each managed frame, and one [native](Frame::is_native) frame where native code has called managed code, in
    /// its own order. It leaves out frames without metadata: dynamic methods and the runtime's own stubs. On a thread
    /// without managed frames `visit` is not called.
    ///
    /// In a slow hook ([`InSlowHook`](crate::hooks::InSlowHook)) the walk begins with the hooked function. A slow hook
    /// has at least that frame; if the runtime shows none, the walk returns an error. In a hook that inserted code
    /// calls, it returns `E_FAIL`.
    ///
    /// `visit` may make the calls of this context, which start no collection: above all for the names of functions. It
    /// cannot walk again inside the walk (`CORPROF_E_STACKSNAPSHOT_UNSAFE`). If it panics, the walk ends and the panic
    /// continues.
    ///
    /// ```
    /// # use corprof::prelude::*;
    /// # use std::ops::ControlFlow;
    /// fn callers(cx: &InNoGc<'_>) -> Result<Vec<Name>> {
    ///     let mut callers = Vec::new();
    ///     cx.walk_own_stack(|frame| {
    ///         callers.extend(frame.function().map(|function| cx.names().function(function)));
    ///         if callers.len() < 10 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    ///     })?;
    ///     Ok(callers)
    /// }
    /// ```
    #[doc = contract!(DoStackSnapshot)]
    ///
    /// `CORPROF_E_STACKSNAPSHOT_UNSAFE`: the runtime has not started, or this thread is in an unsafe state; a later
    /// callback can walk. `CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX`: an exception is being unwound. A `Break` of `visit`
    /// is not an error.
    #[doc(alias = "DoStackSnapshot")]
    pub fn walk_own_stack(&self, visit: impl FnMut(Frame<'_>) -> ControlFlow<()>) -> Result<()> {
        self.walk(sys::COR_PRF_SNAPSHOT_DEFAULT, visit)
    }

    /// The managed functions on the calling thread's stack, the innermost first: at most `limit` of them.
    ///
    /// [`walk_own_stack`](Self::walk_own_stack) also shows where native code stands between them, and the places in
    /// the code. In [`exception_thrown`](crate::Callbacks::exception_thrown) the first one is the method that throws;
    /// of an exception that the runtime throws, such as for an index, it may be one of the runtime's own.
    ///
    /// # Errors
    /// As [`walk_own_stack`](Self::walk_own_stack).
    pub fn own_stack(&self, limit: usize) -> Result<Vec<FunctionId>> {
        let mut functions = Vec::new();
        self.walk_own_stack(|frame| {
            if functions.len() == limit {
                return ControlFlow::Break(());
            }
            functions.extend(frame.function());
            ControlFlow::Continue(())
        })?;
        Ok(functions)
    }

    /// Like [`walk_own_stack`](Self::walk_own_stack); each frame also has its [`registers`](Frame::registers).
    ///
    /// In a slow hook the instruction, stack and frame pointers are right; other registers are 0 if no function on the
    /// way has saved them.
    ///
    /// # Errors
    /// As [`walk_own_stack`](Self::walk_own_stack).
    pub fn walk_own_stack_with_registers(&self, visit: impl FnMut(Frame<'_>) -> ControlFlow<()>) -> Result<()> {
        self.walk(sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT, visit)
    }

    fn walk(&self, flags: sys::COR_PRF_SNAPSHOT_INFO, visit: impl FnMut(Frame<'_>) -> ControlFlow<()>) -> Result<()> {
        let info = self.as_version::<sys::ICorProfilerInfo2>(CALL)?;
        let mut walk = Walk { runtime: self, visitor: Visitor::new(visit), frames: 0, has_stopped: false };
        let seed = match self.place() {
            Place::Callback => None,
            Place::SlowHook(Some(start)) => Some(Seed::new(start)),
            Place::SlowHook(None) => return Err(Error::new(E_FAIL, CALL).about("a slow hook", NO_START)),
        };
        let (context, size) = seed.as_ref().map_or((std::ptr::null(), 0), Seed::as_raw);
        // SAFETY: 0 is the calling thread, which is alive. The seed, if there is one, has the registers of a function
        // that waits for the hook which makes this call, and is longer than the part that the runtime reads. The
        // trampoline belongs to this walk, and is called during this call only (fact: walks).
        let mut snapshot = || unsafe {
            let trampoline = trampoline_of(&walk);
            info.DoStackSnapshot(0, Some(trampoline), flags.bits(), (&raw mut walk).cast(), context, size)
        };
        let mut code = snapshot();
        // Without the flag the runtime refuses before it shows a frame. All that the flag does is to allow walks.
        if code == sys::CORPROF_E_INCONSISTENT_WITH_FLAGS && self.add_events(EventMask::ENABLE_STACK_SNAPSHOT).is_ok() {
            code = snapshot();
        }
        let Walk { visitor, frames, has_stopped, .. } = walk;
        visitor.rethrow();
        match code {
            sys::CORPROF_E_STACKSNAPSHOT_ABORTED if has_stopped => Ok(()),
            code => explain(code, frames, seed.is_some()),
        }
    }
}

/// The error of a slow hook without a start.
const NO_START: &str = "no start is known: by inserted code there is none, and a runtime newer than .NET 10 may not save the registers there; walk in a \
     callback instead";

/// The meaning of a result of `DoStackSnapshot`, after a walk that showed `frames` frames. `is_in_managed`: whether it
/// began in a managed function.
fn explain(code: HRESULT, frames: usize, is_in_managed: bool) -> Result<()> {
    match code {
        // The runtime's walker fails if there is no frame to walk.
        E_FAIL if frames == 0 && !is_in_managed => Ok(()),
        S_OK if frames == 0 && is_in_managed => Err(Error::new(E_FAIL, CALL).about(
            "a slow hook",
            "the runtime showed no frame, though a slow hook has at least one: walk in a callback instead",
        )),
        sys::CORPROF_E_INCONSISTENT_WITH_FLAGS => Err(Error::new(code, CALL).about(
            "COR_PRF_ENABLE_STACK_SNAPSHOT",
            "a stack walk needs this flag, and the runtime has refused to set it now",
        )),
        code => Error::check(code, CALL),
    }
}

/// The data that the runtime passes to the trampoline.
struct Walk<'i, F> {
    runtime: &'i Info,
    visitor: Visitor<F>,
    frames: usize,
    has_stopped: bool,
}

type Trampoline =
    unsafe extern "system" fn(sys::FunctionID, usize, sys::COR_PRF_FRAME_INFO, u32, *mut u8, *mut c_void) -> HRESULT;

/// The trampoline for a walk's type.
fn trampoline_of<F: FnMut(Frame<'_>) -> ControlFlow<()>>(_: &Walk<'_, F>) -> Trampoline {
    unsafe extern "system" fn trampoline<F: FnMut(Frame<'_>) -> ControlFlow<()>>(
        function: sys::FunctionID,
        ip: usize,
        info: sys::COR_PRF_FRAME_INFO,
        context_size: u32,
        context: *mut u8,
        walk: *mut c_void,
    ) -> HRESULT {
        // SAFETY: the runtime passes back the walk that it received, which has no other user during the call. The
        // context, if there is one, has that many bytes, and they do not change until this returns (fact: walks).
        let (walk, context) =
            unsafe { (&mut *walk.cast::<Walk<'_, F>>(), wire::slice(context_size, context.cast_const())) };
        walk.frames += 1;
        let registers = (!context.is_empty()).then(|| Registers::new(context));
        // SAFETY: the frame info belongs to this frame, and is valid until the trampoline returns; `visit` cannot keep
        // the frame (fact: walks).
        let frame = unsafe { Frame::new(walk.runtime.function(function), ip, info, registers) };
        match walk.visitor.call(|visit| visit(frame)) {
            ControlFlow::Continue(()) => S_OK,
            ControlFlow::Break(()) => {
                walk.has_stopped = true;
                S_FALSE
            }
        }
    }
    trampoline::<F>
}
