//! Stacks and their walks: a suspension that stops no thread, and a walk over the frames that the test has set.

use std::ffi::c_void;
use std::sync::atomic::Ordering;

use corprof_sys as sys;
use windows_core::HRESULT;

use crate::error::{E_FAIL, E_INVALIDARG, E_NOTIMPL, S_OK};
use crate::event_mask::EventMask;
use crate::id::{FunctionId, ThreadId};

use super::clr::{FakeClr, misuse};
use super::contract::Status;
use super::here;
use super::runtime::{Runtime, lock};

impl FakeClr {
    /// Sets the stack of a thread, for walks: its frames, the innermost first; `None` is a block of native frames. A
    /// thread without a stack has no managed frame, and a walk of it fails with `E_FAIL` as in a runtime.
    ///
    /// A function's instruction pointer lies in its code, if it has been compiled.
    ///
    /// # Panics
    /// If there is no such thread.
    #[track_caller]
    pub fn set_stack(&self, thread: ThreadId, frames: impl IntoIterator<Item = Option<FunctionId>>) {
        let mut world = self.runtime.world_mut();
        let ip = |function: usize| {
            let code = world.functions.get(&function).and_then(|function| function.code.clone());
            code.map_or(0, |code| code.start + 1)
        };
        let frames = frames.into_iter().map(|frame| frame.map_or(0, FunctionId::as_raw));
        let stack: Vec<_> = frames.map(|function| (function, ip(function))).collect();
        match world.threads.get_mut(&thread.as_raw()) {
            Some(found) => found.stack = stack,
            None => misuse(format_args!("{thread:?} is not there")),
        }
        drop(world);
        // A thread with a new stack must have run: a sampler reads the processor time that the system counts.
        let is_own = lock(&self.workers).contains_key(&thread.as_raw());
        if is_own {
            self.on_thread(thread, || ());
        }
    }

    /// Whether the profiler has suspended the runtime, and not yet resumed it.
    pub fn is_suspended(&self) -> bool {
        lock(&self.runtime.suspender).is_some()
    }

    /// How many times the profiler has suspended the runtime.
    pub fn suspensions(&self) -> u64 {
        self.runtime.suspensions.load(Ordering::Relaxed)
    }
}

/// `SuspendRuntime`.
pub(super) fn suspend(runtime: &Runtime) -> Result<(), HRESULT> {
    if matches!(runtime.status(), Status::Initializing | Status::Attaching) {
        return Err(sys::CORPROF_E_RUNTIME_UNINITIALIZED);
    }
    let mut suspender = lock(&runtime.suspender);
    if suspender.is_some() || runtime.collector.load(Ordering::Acquire) != 0 {
        return Err(sys::CORPROF_E_SUSPENSION_IN_PROGRESS);
    }
    *suspender = Some(std::thread::current().id());
    runtime.suspensions.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// `ResumeRuntime`.
pub(super) fn resume(runtime: &Runtime) -> Result<(), HRESULT> {
    let mut suspender = lock(&runtime.suspender);
    if *suspender != Some(std::thread::current().id()) {
        return Err(sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE);
    }
    *suspender = None;
    Ok(())
}

/// `DoStackSnapshot`, with the checks of a runtime that is not on Windows.
///
/// # Safety
/// `callback` may be called with `data`.
pub(super) unsafe fn snapshot(
    runtime: &Runtime,
    thread: usize,
    callback: sys::StackSnapshotCallback,
    flags: u32,
    data: *mut c_void,
) -> Result<(), HRESULT> {
    if matches!(runtime.status(), Status::Initializing | Status::Attaching) {
        return Err(sys::CORPROF_E_STACKSNAPSHOT_UNSAFE);
    }
    if !runtime.mask().contains(EventMask::ENABLE_STACK_SNAPSHOT) {
        return Err(sys::CORPROF_E_INCONSISTENT_WITH_FLAGS);
    }
    if flags & !sys::COR_PRF_SNAPSHOT_REGISTER_CONTEXT.bits() != 0 {
        return Err(E_INVALIDARG);
    }
    let own = here::thread(runtime.id);
    let thread = if thread == 0 { own } else { thread };
    let Some(stack) = runtime.world().threads.get(&thread).map(|thread| thread.stack.clone()) else { return Ok(()) };
    if thread != own && lock(&runtime.suspender).is_none() {
        return Err(E_NOTIMPL);
    }
    let callback = callback.ok_or(E_INVALIDARG)?;
    if stack.is_empty() {
        return Err(E_FAIL);
    }
    for (function, ip) in stack {
        let info = 0_usize;
        // SAFETY: the caller's promise; the frame info is the address of a local that lives during the call.
        let answer = unsafe { callback(function, ip, (&raw const info).addr(), 0, std::ptr::null_mut(), data) };
        if answer != S_OK {
            return Err(sys::CORPROF_E_STACKSNAPSHOT_ABORTED);
        }
    }
    Ok(())
}
