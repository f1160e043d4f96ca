//! The walk of one's own stack.

use std::ffi::c_void;
use std::ops::ControlFlow;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::context::{InCallback, Place};
use crate::error::{E_FAIL, Error, Result, S_FALSE, S_OK};
use crate::ffi::visitor::Visitor;
use crate::generated::contract::contract;
use crate::info::Info;
use crate::session::wire;

use super::start::Seed;
use super::{Frame, Registers};

const CALL: &str = "DoStackSnapshot";

impl InCallback<'_> {
    /// Shows `visit` the stack of the calling thread, the innermost frame first, until it breaks off.
    ///
    /// Needs `EventMask::ENABLE_STACK_SNAPSHOT`, which any [`add_events`](crate::Info::add_events) can turn on. What the
    /// runtime shows, in its order: each managed frame, and one [native](Frame::is_native) frame where native code has called
    /// managed code. It leaves out what has no metadata: dynamic methods and the runtime's own stubs. On a thread with no
    /// managed frames nothing is shown.
    ///
    /// In a slow hook ([`InSlowHook`](crate::hooks::InSlowHook)) the walk begins with the function that has called the hook. A slow
    /// hook has at least that frame; if the runtime shows none, that is an error.
    ///
    /// `visit` may ask by this context, whose calls start no collection: the names of the functions, above all. It cannot walk
    /// again inside of the walk (`CORPROF_E_STACKSNAPSHOT_UNSAFE`). If it panics, the walk ends, and the panic goes on from
    /// here.
    ///
    /// ```
    /// # use corprof::prelude::*;
    /// # use std::ops::ControlFlow;
    /// fn callers(cx: &InCallback<'_>) -> Result<Vec<Name>> {
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
    /// `CORPROF_E_STACKSNAPSHOT_UNSAFE`: the runtime has not started, or is in the middle of something in this thread; a later
    /// callback can walk. `CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX`: an exception is being unwound. That `visit` broke off is no
    /// error.
    #[doc(alias = "DoStackSnapshot")]
    pub fn walk_own_stack(&self, visit: impl FnMut(Frame<'_>) -> ControlFlow<()>) -> Result<()> {
        self.walk(sys::COR_PRF_SNAPSHOT_DEFAULT, visit)
    }

    /// As [`walk_own_stack`](Self::walk_own_stack), and each frame has its [`registers`](Frame::registers).
    ///
    /// In a slow hook the instruction, stack and frame pointers are right; of the other registers those that no function on the
    /// way has saved are 0.
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
        // SAFETY: 0 is the calling thread, which is alive; the seed, if there is one, has the registers of a function that waits
        // for the hook that this is called in, and is longer than what the runtime reads of it; the trampoline is that of this
        // walk, and is called during this call only.
        let code = unsafe {
            let trampoline = trampoline_of(&walk);
            info.DoStackSnapshot(0, Some(trampoline), flags.bits(), (&raw mut walk).cast(), context, size)
        };
        let Walk { visitor, frames, has_stopped, .. } = walk;
        visitor.rethrow();
        match code {
            sys::CORPROF_E_STACKSNAPSHOT_ABORTED if has_stopped => Ok(()),
            code => explain(code, frames, seed.is_some()),
        }
    }
}

/// What a slow hook says that does not know where to begin.
const NO_START: &str =
    "this runtime does not note the registers where all up to .NET 10 did: walk in a callback instead";

/// What an answer to `DoStackSnapshot` means, after a walk that showed this many frames and that began in a managed function or
/// not.
fn explain(code: HRESULT, frames: usize, is_in_managed: bool) -> Result<()> {
    match code {
        // The runtime's walker fails where there is nothing to walk.
        E_FAIL if frames == 0 && !is_in_managed => Ok(()),
        S_OK if frames == 0 && is_in_managed => Err(Error::new(E_FAIL, CALL).about(
            "a slow hook",
            "the runtime showed no frame, though there is one at least: walk in a callback instead",
        )),
        sys::CORPROF_E_INCONSISTENT_WITH_FLAGS => Err(Error::new(code, CALL).about(
            "COR_PRF_ENABLE_STACK_SNAPSHOT",
            "stacks are walked only with this flag: `cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)` in `initialize`",
        )),
        code => Error::check(code, CALL),
    }
}

/// What the runtime passes on while it walks.
struct Walk<'i, F> {
    runtime: &'i Info,
    visitor: Visitor<F>,
    frames: usize,
    has_stopped: bool,
}

type Trampoline =
    unsafe extern "system" fn(sys::FunctionID, usize, sys::COR_PRF_FRAME_INFO, u32, *mut u8, *mut c_void) -> HRESULT;

/// The trampoline of a walk's type.
fn trampoline_of<F: FnMut(Frame<'_>) -> ControlFlow<()>>(_: &Walk<'_, F>) -> Trampoline {
    unsafe extern "system" fn trampoline<F: FnMut(Frame<'_>) -> ControlFlow<()>>(
        function: sys::FunctionID,
        ip: usize,
        info: sys::COR_PRF_FRAME_INFO,
        context_size: u32,
        context: *mut u8,
        walk: *mut c_void,
    ) -> HRESULT {
        // SAFETY: the runtime passes on the walk that it was given, which nobody else uses during the call. The context, if
        // there is one, has that many bytes, and they stay as they are until this returns.
        let (walk, context) =
            unsafe { (&mut *walk.cast::<Walk<'_, F>>(), wire::slice(context_size, context.cast_const())) };
        walk.frames += 1;
        let registers = (!context.is_empty()).then(|| Registers::new(context));
        // SAFETY: the frame info is that of this frame, and good until the trampoline returns; `visit` cannot keep the frame.
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
