//! [`HookSetup`]: who calls the hooks of a profiler.

use std::sync::OnceLock;

use super::inserted::{Precompiled, attach, install as install_inserted};
use super::install::install;
use super::installed::{AnyHooks, Installed};
use super::{FunctionHooks, HookKinds, HookValues, HookedFunctions};
use crate::context::{InAttach, InInitialize};
use crate::error::{E_FAIL, Error, Result};
use crate::instrumentation::StartError;
use crate::session::{Info, Observer};

/// Hooks that are to be set: made by [`InInitialize::hooks`] and [`InAttach::hooks`]. [`install`](Self::install) sets
/// them.
///
/// `W` is who will call them: the runtime (`()`) or inserted code ([`Precompiled`]).
#[must_use = "hooks are set by `install`"]
pub struct HookSetup<C, H, W = ()> {
    cx: C,
    hooks: H,
    way: W,
}

impl<'i> InInitialize<'i> {
    /// Sets hooks: `cx.hooks(hooks).install()?` has the runtime call them,
    /// `cx.hooks(hooks).inserted(Precompiled::Keep).install()?` inserted code. [The module](crate::hooks) compares the
    /// two.
    pub fn hooks<H: FunctionHooks>(&mut self, hooks: H) -> HookSetup<&mut InInitialize<'i>, H> {
        HookSetup { cx: self, hooks, way: () }
    }
}

impl<'i> InAttach<'i> {
    /// Sets hooks after an attach: `cx.hooks(hooks).install()?`. Inserted code calls them, because the runtime's own
    /// hooks can be set at start-up only.
    pub fn hooks<H: FunctionHooks>(&mut self, hooks: H) -> HookSetup<&mut InAttach<'i>, H> {
        HookSetup { cx: self, hooks, way: () }
    }
}

impl<'a, 'i, H: FunctionHooks> HookSetup<&'a mut InInitialize<'i>, H> {
    /// Has inserted code call the hooks, in place of the runtime: the calls are added to the IL of the methods. Code
    /// that is precompiled can be kept, and so the application starts faster.
    ///
    /// What differs from hooks that the runtime calls:
    /// - Methods with hooks are never inlined. Those that the compiler would inline (small ones, and those that ask for
    ///   it) are left out if `select` answers [`Hook::Inlinable`](super::Hook::Inlinable).
    /// - All instantiations of a generic method share its IL: `select` is called for the first one that is compiled,
    ///   and its answer is for all. [`InHook::function`](super::InHook::function) is that one.
    /// - [`unwound`](FunctionHooks::unwound) is called when an exception leaves a hooked method, after the method's own
    ///   `finally` blocks. It needs no events about exceptions. Not in methods with an explicit tail call (F#), which
    ///   cannot catch: the next hook on the thread shows that they are gone.
    /// - The compiler makes no tail calls of its own in hooked methods: their frames stay until the calls return, as in
    ///   code that is not optimised.
    /// - Suspensions are not reported ([`SUSPENDS`](FunctionHooks::SUSPENDS)). Runtime-async methods have hooks only if
    ///   these are of the beginning alone ([`KINDS`](FunctionHooks::KINDS) is [`ENTER`](super::HookKinds::ENTER)): once
    ///   for each call, however often it waits.
    /// - Line numbers of hooked methods are lost in stack traces.
    /// - A static constructor that runs before the code of a hooked method is called before `enter`.
    /// - The profiler's own edits of a method replace its calls of hooks, because each edit begins with the original
    ///   body.
    ///
    /// And, if the hooks receive values ([`VALUES`](FunctionHooks::VALUES)):
    /// - Compiled code calls them directly, as it calls a [`Probe`](crate::edit::Probe), and not by the runtime's slow
    ///   path.
    /// - The first 16 arguments are passed, `this` included; more are
    ///   [`TooManyArguments`](crate::values::Unreadable::TooManyArguments).
    /// - Values whose types depend on a type parameter are [`TypeParameter`](crate::values::Unreadable::TypeParameter),
    ///   because instantiations share the code. There is no frame info: [`FRAME`](HookValues::FRAME) does not compile.
    /// - [`InSlowHook`](super::InSlowHook) has only what [`InHook`](super::InHook) has, because the thread is not
    ///   inside a callback. The calls of a callback return `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`, and walks `E_FAIL`.
    /// - In methods that were compiled before an attach, or are precompiled ([`Precompiled::Compile`]), structs of
    ///   other assemblies than the method's own and the core library are
    ///   [`AmbiguousType`](crate::values::Unreadable::AmbiguousType).
    /// - Methods that native code calls have hooks as well.
    pub fn inserted(self, precompiled: Precompiled) -> HookSetup<&'a mut InInitialize<'i>, H, Precompiled> {
        HookSetup { cx: self.cx, hooks: self.hooks, way: precompiled }
    }

    /// Has the runtime call the hooks from now on, for every function that they [select](FunctionHooks::select).
    ///
    /// Sets `MONITOR_ENTERLEAVE`, `MONITOR_THREADS` and `MONITOR_JIT_COMPILATION`. The first makes the runtime compile
    /// all code again instead of using precompiled code. It may be cleared later: functions compiled from then on have
    /// no hooks. Without the last, functions are inlined whatever `select` answers. With [`FunctionHooks::UNWINDS`] it
    /// also sets `MONITOR_EXCEPTIONS` and `ENABLE_STACK_SNAPSHOT`, which make each exception more expensive.
    ///
    /// Hooks without values use the runtime's fast path. With [`VALUES`](FunctionHooks::VALUES) all of them use the
    /// slow path, for which this sets `ENABLE_FUNCTION_ARGS`, `ENABLE_FUNCTION_RETVAL` and `ENABLE_FRAME_INFO` as they
    /// say.
    ///
    /// The answer tells how many functions have hooks, and which could not have them, by reason.
    ///
    /// Call class: **init-only**, not allowed after attach, never starts a GC. A profiler that has called it cannot be
    /// detached.
    ///
    /// # Errors
    /// `CORPROF_E_INCONSISTENT_WITH_FLAGS`: the hooks receive no values, and `ENABLE_FUNCTION_ARGS`,
    /// `ENABLE_FUNCTION_RETVAL` or `ENABLE_FRAME_INFO` is set, so that the runtime would use the slow path.
    /// `E_NOTIMPL`: corprof has no stubs for this processor and system. `E_FAIL`: hooks are already set;
    /// [`Hook`](super::Hook) can carry data for several purposes.
    pub fn install(self) -> Result<HookedFunctions> {
        check_suspensions::<H>();
        install(self.cx, self.hooks)
    }
}

impl<H: FunctionHooks> HookSetup<&mut InInitialize<'_>, H, Precompiled> {
    /// Adds the calls of the hooks, from now on, to every method that they [select](FunctionHooks::select).
    ///
    /// The answer tells how many methods have hooks, and which could not have them, by reason.
    ///
    /// Sets `MONITOR_JIT_COMPILATION`, `MONITOR_THREADS` and `MONITOR_CACHE_SEARCHES`. A profiler that has called it
    /// cannot be detached.
    ///
    /// # Errors
    /// `E_FAIL`: hooks are already set. `E_NOTIMPL`: not a 64-bit process. `E_INVALIDARG`: the profiler is
    /// `notification_only`.
    pub fn install(self) -> Result<HookedFunctions> {
        check_suspensions::<H>();
        check_frames::<H>();
        install_inserted(self.cx, self.hooks, self.way)
    }
}

impl<H: FunctionHooks> HookSetup<&mut InAttach<'_>, H> {
    /// Adds the calls of the hooks to every method that they [select](FunctionHooks::select): see
    /// [`inserted`](HookSetup::inserted). Methods that are compiled later have hooks from their first call on; those
    /// that are compiled already are [recompiled](crate::instrumentation) with hooks, and have them from their next
    /// call on. Calls that are under way have none. Precompiled methods have hooks once the runtime compiles them
    /// again, because they are called often.
    ///
    /// `select` is called for the compiled methods on a thread of its own.
    ///
    /// # Errors
    /// As at start-up, and those of [`start_instrumentation`](InAttach::start_instrumentation).
    pub fn install(self) -> std::result::Result<HookedFunctions, StartError> {
        check_suspensions::<H>();
        check_frames::<H>();
        attach(self.cx, self.hooks)
    }
}

/// Stops the compilation for hooks that would miss a part of what they ask for.
const fn check_suspensions<H: FunctionHooks>() {
    const {
        assert!(
            !H::SUSPENDS || H::KINDS.contains(HookKinds::ENTER.union(HookKinds::LEAVE)),
            "`FunctionHooks::SUSPENDS` needs `ENTER` and `LEAVE` in `KINDS`"
        );
        assert!(
            !H::SUSPENDS || H::VALUES.is_empty(),
            "hooks with values are not told of suspensions: leave out `FunctionHooks::SUSPENDS` or `VALUES`"
        );
    }
}

/// Stops the compilation for values that inserted code cannot pass.
const fn check_frames<H: FunctionHooks>() {
    const {
        assert!(
            !H::VALUES.contains(HookValues::FRAME),
            "inserted code has no frame info: remove `HookValues::FRAME` from `FunctionHooks::VALUES`"
        );
    }
}

/// The hooks of a session, once they are set: in `initialize`, or never.
#[derive(Default)]
struct SetHooks(OnceLock<&'static dyn AnyHooks>);

impl Observer for SetHooks {}

/// The hooks of the session, if they are set.
pub(super) fn known_hooks(info: &Info) -> Option<&'static dyn AnyHooks> {
    info.find_observer::<SetHooks>()?.0.get().copied()
}

/// Sets the hooks, and has them hear of callbacks.
pub(super) fn set_hooks<H: FunctionHooks>(info: &Info, hooks: &'static Installed<H>) {
    let _ = info.extension::<SetHooks>().0.set(hooks); // `refuse_second` has found none
    info.register_observer(hooks);
}

/// An error if hooks are set already.
pub(super) fn refuse_second(info: &Info, call: &'static str) -> Result<()> {
    if known_hooks(info).is_none() {
        return Ok(());
    }
    let rule = "a profiler has one `FunctionHooks`: combine the two";
    Err(Error::new(E_FAIL, call).about("hooks that are set already", rule))
}
