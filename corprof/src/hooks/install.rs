//! Installs hooks that the runtime calls: sets the flags and stubs in the order that the runtime needs, and refuses
//! what it would refuse.

use super::installed::Installed;
use super::setup::{refuse_second, set_hooks};
use super::{FunctionHooks, HookValues, HookedFunctions, stubs};
use crate::context::InInitialize;
use crate::error::{E_NOTIMPL, Error, Result};
use crate::event_mask::EventMask;

/// The flags that select the runtime's slow path.
const SLOW: EventMask =
    EventMask::ENABLE_FUNCTION_ARGS.union(EventMask::ENABLE_FUNCTION_RETVAL).union(EventMask::ENABLE_FRAME_INFO);

/// The flags for these values.
fn flags(values: HookValues) -> EventMask {
    let flag = |value, flag| if values.contains(value) { flag } else { EventMask::empty() };
    flag(HookValues::ARGUMENTS, EventMask::ENABLE_FUNCTION_ARGS)
        | flag(HookValues::RESULT, EventMask::ENABLE_FUNCTION_RETVAL)
        | flag(HookValues::FRAME, EventMask::ENABLE_FRAME_INFO)
}

/// Has the runtime call `hooks`.
pub(super) fn install<H: FunctionHooks>(cx: &InInitialize<'_>, hooks: H) -> Result<HookedFunctions> {
    const CALL: &str = "SetEnterLeaveFunctionHooks3";
    let is_slow = !H::VALUES.is_empty();
    let (Some(stubs), Some(slow_stubs)) = (stubs::of::<Installed<H>>(), stubs::slow_of::<Installed<H>>()) else {
        let rule = "corprof has no hook stubs for this processor: use x86-64, or arm64 outside of Windows";
        return Err(Error::new(E_NOTIMPL, CALL).about(std::env::consts::ARCH, rule));
    };
    refuse_second(cx, CALL)?;
    let before = cx.event_mask()?;
    if !is_slow && before.intersects(SLOW) {
        let rule = "these hooks receive no values: turn this flag off, or name values in `FunctionHooks::VALUES`";
        return Err(Error::new(corprof_sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL)
            .about("ENABLE_FUNCTION_ARGS, ENABLE_FUNCTION_RETVAL or ENABLE_FRAME_INFO", rule));
    }
    // The runtime checks the mask when the hooks are set.
    let unwinds = EventMask::MONITOR_EXCEPTIONS | EventMask::ENABLE_STACK_SNAPSHOT;
    let unwinds = if H::UNWINDS { unwinds } else { EventMask::empty() };
    // The compiler asks whether it may inline.
    let asks = EventMask::MONITOR_JIT_COMPILATION;
    let wanted = EventMask::MONITOR_ENTERLEAVE | EventMask::MONITOR_THREADS | asks | flags(H::VALUES);
    cx.add_events(wanted | unwinds)?;
    let set = Installed::leak(hooks, cx).and_then(|installed| {
        cx.set_function_mapper(installed)?;
        if is_slow {
            cx.set_slow_hooks(H::KINDS, slow_stubs)?;
        } else {
            cx.set_fast_hooks(H::KINDS, stubs)?;
        }
        set_hooks(cx, installed);
        Ok(installed.hooked().clone())
    });
    if set.is_err() {
        cx.set_event_mask(before)?;
    }
    set
}
