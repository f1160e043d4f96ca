//! Slow-path hooks: from the runtime's own wrapper to the user's method, with the values in between.
//!
//! Compiled code calls the wrapper. It saves the registers, notes the places of all values, and calls the hook like any
//! C function, in cooperative mode. It returns the places on request, during that hook only.

use std::mem::{MaybeUninit, offset_of};

use corprof_sys as sys;

use super::installed::{Installed, Record};
use super::stubs::{OURS, SlowTarget};
use super::{FunctionHooks, HookValues, InHook, InSlowHook, wrapper};
use crate::context::{Heap, InNoGc};
use crate::error::{E_NOTIMPL, Error, INSUFFICIENT_BUFFER, Result};
use crate::info::Info;
use crate::session::FrameInfo;
use crate::values::{Arguments, MOST_RANGES, Plan, Ranges, ReturnValue, Unreadable};

/// A buffer for the places of arguments: a `COR_PRF_FUNCTION_ARGUMENT_INFO` that is long enough for most functions.
#[repr(C)]
pub(crate) struct ArgumentRoom {
    count: u32,
    total: u32,
    ranges: [MaybeUninit<sys::COR_PRF_FUNCTION_ARGUMENT_RANGE>; MOST_RANGES],
}

static_assertions::const_assert_eq!(
    offset_of!(ArgumentRoom, ranges),
    offset_of!(sys::COR_PRF_FUNCTION_ARGUMENT_INFO, ranges)
);
static_assertions::const_assert_eq!(
    offset_of!(ArgumentRoom, count),
    offset_of!(sys::COR_PRF_FUNCTION_ARGUMENT_INFO, numRanges)
);

impl ArgumentRoom {
    fn new() -> Self {
        Self { count: 0, total: 0, ranges: [const { MaybeUninit::uninit() }; MOST_RANGES] }
    }

    /// The pointer for the runtime, and the size in bytes.
    pub(crate) fn as_raw(&mut self) -> (*mut sys::COR_PRF_FUNCTION_ARGUMENT_INFO, u32) {
        (std::ptr::from_mut(self).cast(), size_of::<Self>() as u32)
    }

    /// The ranges that the runtime has written.
    ///
    /// # Safety
    /// A call that succeeded has filled the buffer, or no call was made with it.
    unsafe fn filled(&self) -> &[sys::COR_PRF_FUNCTION_ARGUMENT_RANGE] {
        let filled = self.ranges.get(..self.count as usize).unwrap_or_default();
        // SAFETY: a call that succeeds writes as many ranges as it counts; before any call the count is 0 (fact:
        // hook-values).
        unsafe { &*(std::ptr::from_ref(filled) as *const [sys::COR_PRF_FUNCTION_ARGUMENT_RANGE]) }
    }
}

/// One call of a slow-path hook.
struct Call<H: FunctionHooks> {
    record: &'static Record<H>,
    elt: sys::COR_PRF_ELT_INFO,
}

impl<H: FunctionHooks> Call<H> {
    fn info(&self) -> &'static Info {
        self.record.hooks.info()
    }

    /// The context for the calls to the runtime.
    fn callback(&self) -> InNoGc<'static> {
        // SAFETY: a `Call` is made in a hook that the runtime's wrapper has called: the wrapper has marked the thread
        // as inside a callback, and switched it to cooperative mode, which no call by `&InNoGc` leaves (contracts.toml:
        // lets_gc_in) (fact: hook-mode).
        let cx = unsafe { InNoGc::new(self.info(), Heap::Still) };
        cx.in_slow_hook(wrapper::walk_start(self.elt))
    }

    /// The user's context, with the frame info that the runtime wrote.
    fn cx(&self, frame: Result<sys::COR_PRF_FRAME_INFO>, begun: Option<u64>) -> InSlowHook<'_> {
        let function = self.record.function;
        let frame = if H::VALUES.contains(HookValues::FRAME) {
            let none = Error::new(E_NOTIMPL, "frame_info");
            // SAFETY: its lifetime ends with the call, which is in the hook that the runtime wrote it for (fact:
            // hook-values).
            frame.and_then(|raw| unsafe { FrameInfo::new(function, raw) }.ok_or(none))
        } else {
            Err(InSlowHook::no_frame())
        };
        // SAFETY: a `Call` is made in the hook of its function, and borrows of it end before the hook does.
        unsafe {
            let hook = InHook::new(self.info(), function, wrapper::stack_pointer(self.elt), begun);
            InSlowHook::new(hook, self.callback(), frame)
        }
    }
}

/// The error for values that were not requested.
pub(super) fn not_asked(what: &'static str) -> Unreadable {
    Unreadable::NotTold(Error::new(E_NOTIMPL, what).about("values", "`FunctionHooks::VALUES` lacks them: add them"))
}

impl<H: FunctionHooks> Installed<H> {
    /// Like [`run`](Self::run), for a number that may be the runtime's own, which it passes if it compiles with hooks
    /// after Shutdown, without asking `map`.
    fn run_slow(client: usize, name: &'static str, user: impl FnOnce(&'static Record<H>, &mut H::Thread, Option<u64>)) {
        if client & OURS != 0 {
            // SAFETY: the number is one of ours, which the runtime got from `map` (fact: hook-calls).
            unsafe { Self::run(client, name, user) };
        }
    }
}

impl<H: FunctionHooks> SlowTarget for Installed<H> {
    extern "C-unwind" fn enter(client: usize, elt: usize) {
        Self::run_slow(client, "enter_with_args", |record, thread, begun| {
            let call = Call { record, elt };
            let user = record.hooks.user();
            let plan = record.plan();
            let mut frame = 0;
            let mut room = ArgumentRoom::new();
            let is_asked = H::VALUES.contains(HookValues::ARGUMENTS) && plan.ranges() != 0;
            let answer = if is_asked || H::VALUES.contains(HookValues::FRAME) {
                // SAFETY: `elt` belongs to this hook, which is the enter hook of this function (fact: hook-values).
                unsafe { call.callback().function_enter_info(record.function, elt, &mut frame, &mut room) }
            } else {
                Ok(())
            };
            let ranges: Ranges<'_> = match answer {
                _ if !H::VALUES.contains(HookValues::ARGUMENTS) => Err(not_asked("enter_with_args")),
                Err(error) if error.code() == INSUFFICIENT_BUFFER => Err(Unreadable::TooManyArguments),
                Err(error) => Err(Unreadable::NotTold(error)),
                // SAFETY: the call succeeded, or was not made.
                Ok(()) => Ok(unsafe { room.filled() }),
            };
            // The frame is also written when there is no room for the arguments.
            let frame = if frame == 0 { answer.map(|()| frame) } else { Ok(frame) };
            // SAFETY: `ranges` are the places that `GetFunctionEnter3Info` has just returned for this `elt`, or empty.
            // They lie in the wrapper's notes (registers, and copies of structs that were in registers), in the memory
            // that `elt` points to (`this`), or in the frame of the caller. All of these stay until the wrapper
            // returns, which is after this hook. The plan belongs to the same function: `map` put both into one record.
            // No collection runs meanwhile: the wrapper has switched to cooperative mode (`ProfileEnter` in
            // vm/proftoeeinterfaceimpl.cpp), and `InSlowHook` offers only calls that never leave it, by the contract
            // table. `args` ends with this closure: its lifetime occurs in none of the user's types (fact: hook-values,
            // hook-mode).
            let args = unsafe { Arguments::new(plan, ranges, record.hooks.string_layout()) };
            let Some(data) = record.role.data() else { return };
            user.enter_with_args(&call.cx(frame, begun), thread, data, &args);
        });
    }

    extern "C-unwind" fn leave(client: usize, elt: usize) {
        Self::run_slow(client, "leave_with_value", |record, thread, begun| {
            let call = Call { record, elt };
            let user = record.hooks.user();
            let plan = record.plan();
            let mut frame = 0;
            let mut range = sys::COR_PRF_FUNCTION_ARGUMENT_RANGE { startAddress: 0, length: 0 };
            let is_asked = H::VALUES.contains(HookValues::RESULT) && plan.has_result();
            let answer = if is_asked || H::VALUES.contains(HookValues::FRAME) {
                // SAFETY: `elt` belongs to this hook, which is the leave hook of this function (fact: hook-values).
                unsafe { call.callback().function_leave_info(record.function, elt, &mut frame, &mut range) }
            } else {
                Ok(())
            };
            let range = match answer {
                _ if !H::VALUES.contains(HookValues::RESULT) => Err(not_asked("leave_with_value")),
                Err(error) => Err(Unreadable::NotTold(error)),
                Ok(()) => Ok(range),
            };
            // SAFETY: `range` is the place that `GetFunctionLeave3Info` has just returned for this `elt`, or empty, and
            // then nothing is read. It lies in the wrapper's notes, or is the return buffer, which belongs to the
            // caller and stays. The rest is as in `enter` (fact: hook-values).
            let value = unsafe { ReturnValue::new(plan, range, record.hooks.string_layout()) };
            let Some(data) = record.role.data() else { return };
            user.leave_with_value(&call.cx(answer.map(|()| frame), begun), thread, data, &value);
        });
    }

    extern "C-unwind" fn tailcall(client: usize, elt: usize) {
        Self::run_slow(client, "tailcall_with_frame", |record, thread, begun| {
            let call = Call { record, elt };
            let mut frame = 0;
            let answer = if H::VALUES.contains(HookValues::FRAME) {
                // SAFETY: `elt` belongs to this hook, which is the tailcall hook of this function (fact: hook-values).
                unsafe { call.callback().function_tailcall_info(record.function, elt, &mut frame) }
            } else {
                Ok(())
            };
            let Some(data) = record.role.data() else { return };
            record.hooks.user().tailcall_with_frame(&call.cx(answer.map(|()| frame), begun), thread, data);
        });
    }
}

impl<H: FunctionHooks> Record<H> {
    /// The places of its values.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }
}
