//! Hooks by inserted code: the same [`FunctionHooks`], called by instructions that are added to the methods.
//!
//! The runtime's own hooks are calls that its compiler adds. These are added to the IL before a method is compiled, so
//! the runtime keeps its precompiled code. The way to the user is the same: compiled code has the number of a record,
//! and calls a function here, which goes through [`Installed::run`].

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};

use corprof_sys as sys;

use super::answers::Answers;
use super::inlined::is_inlined;
use super::inserted_calls::calls;
use super::installed::{Installed, Record};
use super::left_out::broken;
use super::setup::{refuse_second, set_hooks};
use super::stubs::OURS;
use super::suspensions::Role;
use super::{FunctionHooks, Hook, HookedFunctions, fitness};
use crate::context::{InAttach, InCallback};
use crate::edit::{EditError, HookCalls, MethodEdit};
use crate::error::{E_NOTIMPL, Error, Result};
use crate::event_mask::EventMask;
use crate::id::FunctionId;
use crate::info::Info;
use crate::instrumentation::{Instrumentation, StartError};
use crate::lock::unpoisoned;
use crate::metadata::is_of_the_runtime;
use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::session::event_pipe_sessions::Callback;
use crate::session::panics::catch;
use crate::session::{Interests, MethodKey as Key, Observer};
use crate::suspension;
use crate::values::{Lookup, Plan, Types};

/// What becomes of methods for which the application has precompiled (ReadyToRun) code, such as most of the
/// framework's.
///
/// With the runtime's own hooks it is ignored, and all methods are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precompiled {
    /// It is used, and those methods have no hooks, also when the runtime compiles them again: the application starts
    /// as fast as without hooks. [`select`](FunctionHooks::select) is called for them only if the compiler wants to
    /// inline them into others. A precompiled instantiation of a generic method of which another one is hooked has
    /// hooks when it is compiled again.
    Keep,
    /// `select` is called for them, and those that it wants are compiled. The others stay precompiled.
    Compile,
}

/// Why a method that the compiler inlines has no hooks.
const INLINED: &str = "the compiler inlines it, which a hook would prevent (`Hook::Exact` hooks it all the same)";

/// What was decided about a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// A thread adds the calls. Another one that compiles the method now adds them as well: it does not wait for a
    /// thread that calls the runtime.
    Editing,
    Hooked,
    NotHooked,
}

impl Decision {
    fn of(is_hooked: bool) -> Self {
        if is_hooked { Self::Hooked } else { Self::NotHooked }
    }
}

/// The hooks of a profiler, and what was decided about methods. It lives as long as the process.
struct Inserted<H: FunctionHooks> {
    installed: &'static Installed<H>,
    precompiled: Precompiled,
    /// After an attach: what has methods compiled again.
    instrumentation: Option<Instrumentation>,
    methods: Mutex<HashMap<Key, Decision>>,
    /// What the user has answered about methods, with the functions that were asked about.
    answers: Answers<Key, (FunctionId, H::Function)>,
    /// The functions whose precompiled code is used. Such code is never unloaded.
    kept: Mutex<HashSet<FunctionId>>,
}

/// Has inserted code call `hooks`.
pub(super) fn install<H: FunctionHooks>(
    cx: &InCallback<'_>,
    hooks: H,
    precompiled: Precompiled,
) -> Result<HookedFunctions> {
    Ok(prepare(cx, hooks, precompiled, None, EventMask::MONITOR_CACHE_SEARCHES)?.hooked().clone())
}

/// The same after an attach.
pub(super) fn attach<H: FunctionHooks>(
    cx: &mut InAttach<'_>,
    hooks: H,
) -> std::result::Result<HookedFunctions, StartError> {
    let instrumentation = cx.start_instrumentation()?;
    // The flag for precompiled code can be set at start-up only.
    let inserted = prepare(cx, hooks, Precompiled::Compile, Some(instrumentation.clone()), EventMask::empty())?;
    cx.spawn_profiler_thread("hooks", move |cx| {
        cx.wait_for_attach();
        // Those that are compiled from here on are reported.
        let functions = cx.wait_for_jitted_functions().unwrap_or_else(|error| {
            report::line(format_args!("what was compiled before the attach has no hooks: {error}"));
            Vec::new()
        });
        for function in functions {
            if cx.is_stopping() {
                break;
            }
            inserted.rewrite(cx, &instrumentation, function);
        }
    })?;
    Ok(inserted.hooked().clone())
}

fn prepare<H: FunctionHooks>(
    cx: &InCallback<'_>,
    hooks: H,
    precompiled: Precompiled,
    instrumentation: Option<Instrumentation>,
    more: EventMask,
) -> Result<&'static Inserted<H>> {
    const CALL: &str = "SetILFunctionBody";
    if size_of::<usize>() != 8 {
        return Err(Error::new(E_NOTIMPL, CALL).about("hooks by inserted code", "they need a 64-bit process"));
    }
    refuse_second(cx, CALL)?;
    cx.refuse_notification_only(CALL)?;
    cx.add_events(EventMask::MONITOR_JIT_COMPILATION | EventMask::MONITOR_THREADS | more)?;
    // As long as there is code with calls: the compiler must not inline it.
    cx.add_lasting_events(EventMask::MONITOR_JIT_COMPILATION)?;
    let installed = Installed::leak_inserted(hooks, cx)?;
    let inserted = Inserted {
        installed,
        precompiled,
        instrumentation,
        methods: Mutex::default(),
        answers: Answers::default(),
        kept: Mutex::default(),
    };
    let inserted: &'static Inserted<H> = Box::leak(Box::new(inserted));
    cx.prevent_detach(CALL);
    set_hooks(cx, installed);
    cx.register_observer(inserted);
    Ok(inserted)
}

impl<H: FunctionHooks> Inserted<H> {
    /// What became of the methods that were selected.
    fn hooked(&self) -> &HookedFunctions {
        self.installed.hooked()
    }

    /// No user code and no call of the runtime runs under this lock.
    fn methods(&self) -> MutexGuard<'_, HashMap<Key, Decision>> {
        suspension::forbid("the methods with inserted hooks");
        unpoisoned(self.methods.lock())
    }

    /// No user code and no call of the runtime runs under this lock.
    fn kept(&self) -> MutexGuard<'_, HashSet<FunctionId>> {
        suspension::forbid("the functions with precompiled code");
        unpoisoned(self.kept.lock())
    }

    /// Whether a function has hooks: the first time, the user decides.
    ///
    /// # Safety
    /// The calling thread is inside a callback about the function, from which a collection may start.
    unsafe fn decide(&'static self, function: FunctionId, types: Types) -> bool {
        let Some(_inside) = self.installed.gate().enter() else { return false };
        // SAFETY: the caller's promise.
        let mut cx = unsafe { InCallback::new(self.installed.info()) };
        let Ok((key, decision)) = self.known(&cx, function) else { return false };
        match decision {
            Some(Decision::Hooked) => return true,
            Some(Decision::NotHooked) => return false,
            // Threads that compile a method at the same time all ask the user, as with the runtime's own hooks.
            Some(Decision::Editing) | None => {}
        }
        let select = || self.select(&mut cx, key, function, types);
        let selected = catch(select, || self.installed.disable_after_panic("select")).unwrap_or(Ok(false));
        self.settle(key, function, selected)
    }

    /// Enters what one thread has found out about a method, and answers whether it has hooks: it has if any thread has
    /// added them.
    fn settle(&self, key: Key, function: FunctionId, selected: std::result::Result<bool, String>) -> bool {
        let is_hooked = selected == Ok(true);
        let before = {
            let mut methods = self.methods();
            let before = methods.get(&key).copied();
            if before != Some(Decision::Hooked) {
                methods.insert(key, Decision::of(is_hooked));
            }
            before
        };
        match (before, selected) {
            (Some(Decision::Hooked), _) => return true,
            (_, Ok(true)) => self.hooked().note_hooked(),
            (None | Some(Decision::Editing), Err(reason)) => self.hooked().leave_out(function, reason),
            _ => {}
        }
        is_hooked
    }

    /// The method of a function, and what was decided about it.
    fn known(&self, cx: &InCallback<'_>, function: FunctionId) -> Result<(Key, Option<Decision>)> {
        let info = cx.function_info(function)?;
        let key = (info.module.as_raw(), info.token.as_raw());
        Ok((key, self.methods().get(&key).copied()))
    }

    /// Whether the user may be asked about a function. As with the runtime's own hooks not about one without metadata,
    /// and those that handle exceptions. And not about one without IL, to which nothing can be added.
    fn is_fit(cx: &InCallback<'_>, function: FunctionId) -> bool {
        let has_il = match fitness::method(cx, function) {
            Ok((metadata, method)) => fitness::has_il(&method) && !is_of_the_runtime(&metadata, &method),
            Err(_) => false,
        };
        has_il && cx.is_function_dynamic(function) == Ok(false)
    }

    /// Asks the user about a function.
    fn ask(&self, cx: &mut InCallback<'_>, function: FunctionId) -> Hook<(FunctionId, H::Function)> {
        let _selecting = Callback::begin_select();
        match self.installed.user().select(cx, function) {
            Hook::No => Hook::No,
            Hook::Inlinable(data) => Hook::Inlinable((function, data)),
            Hook::Exact(data) => Hook::Exact((function, data)),
        }
    }

    /// What the method of a function should call, if the user wants that. `types`: whether those of its signature are
    /// loaded.
    fn wanted(
        &'static self,
        cx: &mut InCallback<'_>,
        key: Key,
        function: FunctionId,
        types: Types,
    ) -> Option<HookCalls> {
        if !Self::is_fit(cx, function) {
            return None;
        }
        let (asked, data) = match self.answers.take(key, || self.ask(cx, function)) {
            Hook::Exact(hooked) => hooked,
            Hook::Inlinable(_) if is_inlined(cx, function) => {
                self.hooked().leave_out(function, INLINED.to_owned());
                return None;
            }
            Hook::Inlinable(hooked) => hooked,
            Hook::No => return None,
        };
        let hooks = self.installed;
        let plan = match cx.function_info(function) {
            Ok(info) if !H::VALUES.is_empty() => Lookup::new(cx).plan_of_method(info.module, info.token, types),
            _ => Plan::default(),
        };
        let role = Role::Function(data);
        let record = Record { hooks, gate: hooks.gate(), tag: hooks.tag, function: asked, role, plan };
        let record: *const Record<H> = Box::leak(Box::new(record));
        Some(calls::<H>(record.expose_provenance() | OURS))
    }

    /// Has a method recompiled that was compiled before the profiler attached.
    fn rewrite(&'static self, cx: &mut ProfilerThread<'_>, instrumentation: &Instrumentation, function: FunctionId) {
        let Some(_inside) = self.installed.gate().enter() else { return };
        let Ok((key, None)) = self.known(cx, function) else { return };
        let wanted =
            catch(|| self.wanted(cx, key, function, Types::MayLoad), || self.installed.disable_after_panic("select"))
                .flatten();
        let before = self.methods().insert(key, Decision::of(wanted.is_some()));
        // The compiler may have begun its next tier meanwhile.
        let Some(calls) = wanted.filter(|_| before != Some(Decision::Hooked)) else { return };
        if let Err(error) = self.recompile(cx, instrumentation, function, calls) {
            self.hooked().leave_out(function, error.to_string());
        }
    }

    /// Asks the user about a function that is about to be compiled, and adds the calls. Answers whether it has them, or
    /// why it cannot have them.
    fn select(
        &'static self,
        cx: &mut InCallback<'_>,
        key: Key,
        function: FunctionId,
        types: Types,
    ) -> std::result::Result<bool, String> {
        let Some(calls) = self.wanted(cx, key, function, types) else { return Ok(false) };
        // In this order: a thread that adds the calls says so before it replaces the body.
        let is_replaced = cx.original_bodies().is_replaced(key.0, key.1);
        match self.methods().entry(key) {
            Entry::Vacant(_) if is_replaced => return Err("the profiler has replaced the body by itself".to_owned()),
            entry => entry.or_insert(Decision::Editing),
        };
        // SAFETY: the functions are those of these hooks, and take the numbers of their records, which are never freed;
        // they are in a library that stays in memory (`prevent_detach`), catch panics, and are what hooks are.
        match (cx.edit_once(function, |edit| unsafe { edit.call_hooks(&calls) }), &self.instrumentation) {
            // If it was not this thread that has replaced the body, it was another one, with the same calls.
            (Ok(_), _) => Ok(true),
            // It was compiled before the attach, and the compiler begins the next tier.
            (Err(EditError::Runtime(error)), Some(instrumentation))
                if error.code() == sys::CORPROF_E_UNSUPPORTED_CALL_SEQUENCE =>
            {
                let is_known = self.methods().insert(key, Decision::Hooked) == Some(Decision::Hooked);
                if !is_known {
                    self.recompile(cx, instrumentation, function, calls).map_err(|error| error.to_string())?;
                }
                Ok(true)
            }
            (Err(EditError::Rejected(errors)), _) => Err(broken(&errors)),
            (Err(error), _) => Err(error.to_string()),
        }
    }

    /// Has a method that was compiled before the attach compiled again, with calls.
    fn recompile(
        &self,
        info: &Info,
        instrumentation: &Instrumentation,
        function: FunctionId,
        calls: HookCalls,
    ) -> Result<()> {
        let method = info.function_info(function)?;
        // SAFETY: as in `select`.
        let edit = move |edit: &mut MethodEdit<'_>| unsafe { edit.call_hooks(&calls) };
        let rewrite = instrumentation.edit(method.module, method.token, edit);
        self.hooked().note_rewrite(function, rewrite);
        Ok(())
    }
}

impl<H: FunctionHooks> Observer for &'static Inserted<H> {
    fn interests(&self) -> Interests {
        Interests::COMPILATIONS | Interests::MODULES
    }

    unsafe fn compilation_started(&self, function: FunctionId) {
        if self.precompiled == Precompiled::Compile || !self.kept().contains(&function) {
            // SAFETY: the caller's promise.
            unsafe { self.decide(function, Types::AreLoaded) };
        }
    }

    unsafe fn may_inline(&self, _: &Info, _caller: usize, function: FunctionId) -> bool {
        // Its code is not hooked, whatever the user says.
        if self.precompiled == Precompiled::Keep && self.kept().contains(&function) {
            return true;
        }
        let runtime = self.installed.info().runtime();
        let Some(key) = runtime.method_in_callback(function) else { return true };
        let decision = self.methods().get(&key).copied();
        match decision {
            // Code with calls is not inlined, also when the profiler is disabled: the addresses that it passes would be
            // of its caller's frame, and in a caller that native code calls they would return in cooperative mode.
            Some(Decision::Hooked | Decision::Editing) => return false,
            Some(Decision::NotHooked) => return true,
            None => {}
        }
        let Some(_inside) = self.installed.gate().enter() else { return true };
        // SAFETY: the caller's promise.
        let mut cx = unsafe { InCallback::new(self.installed.info()) };
        let ask = || {
            if !Inserted::<H>::is_fit(&cx, function) {
                return None;
            }
            catch(|| self.ask(&mut cx, function), || self.installed.disable_after_panic("select"))
        };
        !self.answers.is_exact(key, ask)
    }

    unsafe fn may_use_precompiled(&self, function: FunctionId) -> bool {
        // SAFETY: the caller's promise.
        self.precompiled == Precompiled::Keep || unsafe { !self.decide(function, Types::MayLoad) }
    }

    fn precompiled_code_found(&self, function: FunctionId) {
        let is_new = self.kept().insert(function);
        if is_new {
            self.hooked().note_precompiled();
        }
    }

    fn module_gone(&self, module: usize) {
        self.methods().retain(|(of, _), _| *of != module);
        self.answers.forget(|(of, _)| *of == module);
    }
}
