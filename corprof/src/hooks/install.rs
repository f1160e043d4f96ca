//! Installs hooks: sets the flags and stubs in the order that the runtime needs, and refuses what it would refuse.

use super::either::{EitherHooks, Fast, Slow};
use super::installed::Installed;
use super::{FunctionHooks, HookKinds, HookValues, HookedFunctions, ValueHooks, stubs};
use crate::context::InInitialize;
use crate::error::{E_FAIL, E_NOTIMPL, Error, Result};
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

impl InInitialize<'_> {
    /// Calls `hooks` from now on for every function that it [selects](FunctionHooks::select).
    ///
    /// Sets the necessary flags: `MONITOR_THREADS` and `MONITOR_ENTERLEAVE`. The latter makes the runtime compile all code
    /// again instead of using precompiled code. It may be cleared later: functions compiled from then on have no hooks. With
    /// [`FunctionHooks::UNWINDS`] it also sets `MONITOR_EXCEPTIONS` and `ENABLE_STACK_SNAPSHOT`, which make each exception more
    /// expensive.
    ///
    /// The hooks use the runtime's fast path, without arguments and results: for those see
    /// [`hook_functions_with_values`](Self::hook_functions_with_values).
    ///
    /// Call class: **init-only**, not allowed after attach, never starts a GC. A profiler that has called it cannot be
    /// detached.
    ///
    /// # Errors
    /// `CORPROF_E_INCONSISTENT_WITH_FLAGS`: `ENABLE_FUNCTION_ARGS`, `ENABLE_FUNCTION_RETVAL` or `ENABLE_FRAME_INFO` is set, so
    /// that the runtime would use the slow path. `E_NOTIMPL`: corprof has no stubs for this processor and system.
    /// `E_FAIL`: hooks are already set; [`Hook::Yes`](super::Hook::Yes) can carry data for several purposes.
    pub fn hook_functions<H: FunctionHooks>(&self, hooks: H) -> Result<()> {
        const {
            assert!(
                !H::SUSPENDS || H::KINDS.contains(HookKinds::ENTER.union(HookKinds::LEAVE)),
                "`FunctionHooks::SUSPENDS` needs `ENTER` and `LEAVE` in `KINDS`"
            );
        }
        self.install(Fast(hooks)).map(drop)
    }

    /// Like [`hook_functions`](Self::hook_functions), for hooks that receive arguments and results.
    ///
    /// The hooks use the runtime's slow path. This sets `ENABLE_FUNCTION_ARGS`, `ENABLE_FUNCTION_RETVAL` and
    /// `ENABLE_FRAME_INFO` as [`VALUES`](ValueHooks::VALUES) says; empty `VALUES` do not compile.
    ///
    /// The answer tells how many functions have hooks, and which could not have them, by reason: see [`ValueHooks`].
    ///
    /// Call class: **init-only**, not allowed after attach, never starts a GC. A profiler that has called it cannot be
    /// detached.
    ///
    /// # Errors
    /// As [`hook_functions`](Self::hook_functions), except that those flags may be set.
    pub fn hook_functions_with_values<H: ValueHooks>(&self, hooks: H) -> Result<HookedFunctions> {
        const {
            assert!(
                !H::VALUES.is_empty(),
                "`ValueHooks::VALUES` is empty: name the values that the hooks need, or implement `FunctionHooks`, whose hooks \
                 are much faster"
            );
        }
        self.install(Slow(hooks))
    }

    fn install<H: EitherHooks>(&self, hooks: H) -> Result<HookedFunctions> {
        const CALL: &str = "SetEnterLeaveFunctionHooks3";
        let is_slow = !H::VALUES.is_empty();
        let (Some(stubs), Some(slow_stubs)) = (stubs::of::<Installed<H>>(), stubs::slow_of::<Installed<H>>()) else {
            let rule = "corprof has no hook stubs for this processor: use x86-64, or arm64 outside of Windows";
            return Err(Error::new(E_NOTIMPL, CALL).about(std::env::consts::ARCH, rule));
        };
        if self.hooks().is_some() {
            let rule = "a profiler has one `FunctionHooks` or `ValueHooks`: combine the two";
            return Err(Error::new(E_FAIL, CALL).about("hooks that are set already", rule));
        }
        let before = self.event_mask()?;
        if !is_slow && before.intersects(SLOW) {
            let rule = "these hooks receive no values: turn this flag off, or call `hook_functions_with_values`";
            return Err(Error::new(corprof_sys::CORPROF_E_INCONSISTENT_WITH_FLAGS, CALL)
                .about("ENABLE_FUNCTION_ARGS, ENABLE_FUNCTION_RETVAL or ENABLE_FRAME_INFO", rule));
        }
        // The runtime checks the mask when the hooks are set.
        let unwinds = EventMask::MONITOR_EXCEPTIONS | EventMask::ENABLE_STACK_SNAPSHOT;
        let unwinds = if H::UNWINDS { unwinds } else { EventMask::empty() };
        let wanted = EventMask::MONITOR_ENTERLEAVE | EventMask::MONITOR_THREADS | flags(H::VALUES);
        self.add_events(wanted | unwinds)?;
        let set = Installed::leak(hooks, self).and_then(|installed| {
            self.set_function_mapper(installed)?;
            if is_slow {
                self.set_slow_hooks(H::KINDS, slow_stubs)?;
            } else {
                self.set_fast_hooks(H::KINDS, stubs)?;
            }
            self.set_hooks(installed);
            Ok(installed.told().clone())
        });
        if set.is_err() {
            self.set_event_mask(before)?;
        }
        set
    }
}
