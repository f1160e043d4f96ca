//! Hooks by inserted code: the same [`FunctionHooks`], called by instructions that are added to the methods.
//!
//! The runtime's own hooks are calls that its compiler adds. These are added to the IL before a method is compiled, so the runtime
//! keeps its precompiled code. The way to the user is the same: compiled code has the number of a record, and calls a function
//! here, which goes through [`Installed::run`].

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use corprof_il::verify::IlError;

use super::either::{EitherHooks, Fast, Slow};
use super::inlined::is_inlined;
use super::inserted_calls::calls;
use super::installed::{Installed, Record};
use super::left_out::{LeftOut, Reasons};
use super::stubs::OURS;
use super::suspensions::Role;
use super::{FunctionHooks, Hook, HookValues, ValueHooks, fitness};
use crate::context::{InAttach, InCallback, InInitialize};
use crate::edit::{EditError, HookCalls, MethodEdit};
use crate::error::{E_FAIL, E_NOTIMPL, Error, Result};
use crate::event_mask::EventMask;
use crate::id::FunctionId;
use crate::instrumentation::{Instrumentation, Outcome, Rewrite, StartError};
use crate::lock::unpoisoned;
use crate::metadata::is_of_the_runtime;
use crate::profiler_thread::ProfilerThread;
use crate::report;
use crate::session::CompileSlot;
use crate::session::event_pipe_sessions::Callback;
use crate::session::panics::catch;
use crate::suspension;
use crate::values::{Lookup, Plan, Types};

/// What becomes of methods for which the application has precompiled (ReadyToRun) code, such as most of the framework's.
///
/// With the runtime's own hooks it is ignored, and all methods are compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Precompiled {
    /// It is used, and those methods have no hooks, also when the runtime compiles them again: the application starts as fast as
    /// without hooks. [`select`](FunctionHooks::select) is not called for them. A precompiled instantiation of a generic method
    /// of which another one is hooked has hooks when it is compiled again.
    Kept,
    /// `select` is called for them, and those that it wants are compiled. The others stay precompiled.
    Compiled,
}

/// What became of the methods that were selected: returned by [`hook_functions_by_il`](InInitialize::hook_functions_by_il). A
/// clone is another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct InsertedHooks(Arc<Mutex<Books>>);

#[derive(Debug, Default)]
struct Books {
    hooked: usize,
    precompiled: usize,
    left_out: Reasons,
    /// The methods that were compiled before the profiler attached.
    rewrites: Vec<(FunctionId, Rewrite)>,
}

impl InsertedHooks {
    fn books(&self) -> MutexGuard<'_, Books> {
        suspension::forbid("the books of the inserted hooks");
        unpoisoned(self.0.lock())
    }

    /// How many methods have hooks.
    pub fn hooked(&self) -> usize {
        let books = self.books();
        let is_active = |rewrite: &&(FunctionId, Rewrite)| matches!(rewrite.1.outcome(), Outcome::Active(_));
        books.hooked + books.rewrites.iter().filter(is_active).count()
    }

    /// How many functions run precompiled code, and so have no hooks.
    pub fn precompiled(&self) -> usize {
        self.books().precompiled
    }

    /// The methods that were selected and have no hooks, by reason.
    pub fn left_out(&self) -> Vec<LeftOut> {
        let books = self.books();
        let mut all = books.left_out.clone();
        for (function, rewrite) in &books.rewrites {
            let reason = match rewrite.outcome() {
                Outcome::Refused(why) => why.to_string(),
                Outcome::Rejected(errors) => broken(&errors),
                Outcome::Failed(error, _) => error.to_string(),
                _ => continue,
            };
            all.add(reason, *function);
        }
        all.list()
    }

    /// How many methods are to have hooks when they are called next: nobody has called them since the profiler attached.
    pub fn waiting(&self) -> usize {
        let books = self.books();
        books.rewrites.iter().filter(|(_, rewrite)| !rewrite.outcome().is_known()).count()
    }

    fn leave_out(&self, function: FunctionId, reason: String) {
        self.books().left_out.add(reason, function);
    }
}

/// What a body with the calls breaks.
fn broken(errors: &[IlError]) -> String {
    let rules: Vec<_> = errors.iter().map(|error| format!("{:?}", error.rule)).collect();
    format!("the body with the calls breaks rules: {}", rules.join(", "))
}

/// Why a method that the compiler inlines has no hooks.
const INLINED: &str = "the compiler inlines it, which a hook would prevent (`Hook::Always` hooks it all the same)";

/// A method: its module and its token.
type Key = (usize, u32);

/// What was decided about a method.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decision {
    /// A thread adds the calls. Another one that compiles the method now adds them as well: it does not wait for a thread that
    /// calls the runtime.
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
struct Inserted<H: EitherHooks> {
    installed: &'static Installed<H>,
    precompiled: Precompiled,
    told: InsertedHooks,
    methods: Mutex<HashMap<Key, Decision>>,
    /// The functions whose precompiled code is used. Such code is never unloaded.
    kept: Mutex<HashSet<FunctionId>>,
}

impl InInitialize<'_> {
    /// Like [`hook_functions`](Self::hook_functions), but the calls of the hooks are added to the IL of the methods. Code that is
    /// precompiled can be kept, and so the application starts faster.
    ///
    /// What differs:
    /// - A hooked method is never inlined, so its calls are exact. Methods that the compiler would inline (small ones, and those that
    ///   ask for it) are left out, unless `select` answers [`Hook::Always`]. Methods that were inlined into code before they were first
    ///   compiled by themselves run there without hooks, as with `hook_functions`.
    /// - All instantiations of a generic method share its IL: `select` is called for the first one that is compiled, and its answer
    ///   is for all. [`InHook::function`](super::InHook::function) is that one.
    /// - [`unwound`](FunctionHooks::unwound) is called when an exception leaves a hooked method, after the method's own `finally`
    ///   blocks. It needs no events about exceptions. Not in methods with an explicit tail call (F#), which cannot catch: the next
    ///   hook on the thread shows that they are gone.
    /// - The compiler makes no tail calls of its own in hooked methods: their frames stay until the calls return, as in code that
    ///   is not optimised.
    /// - Line numbers of hooked methods are lost in stack traces.
    /// - A static constructor that runs before the code of a hooked method is called before `enter`.
    /// - The profiler's own edits of a method replace its calls of hooks, because each edit begins with the original body.
    ///
    /// The answer tells how many methods have hooks, and which could not have them, by reason.
    ///
    /// Sets `MONITOR_JIT_COMPILATION`, `MONITOR_THREADS` and `MONITOR_CACHE_SEARCHES`. A profiler that has called it cannot be
    /// detached. If the profiler implements `jit_inlining` or `jit_cached_function_search_started`, its own answers count.
    ///
    /// # Errors
    /// `E_FAIL`: hooks are already set. `E_NOTIMPL`: not a 64-bit process. `E_INVALIDARG`: the profiler is `notification_only`.
    pub fn hook_functions_by_il<H: FunctionHooks>(
        &mut self,
        hooks: H,
        precompiled: Precompiled,
    ) -> Result<InsertedHooks> {
        Ok(install(self, Fast(hooks), precompiled, EventMask::MONITOR_CACHE_SEARCHES)?.told.clone())
    }

    /// Like [`hook_functions_by_il`](Self::hook_functions_by_il), for hooks that receive arguments and results: the same hooks as
    /// those of [`hook_functions_with_values`](Self::hook_functions_with_values), and the same values.
    ///
    /// Compiled code calls them directly, as it calls a [`Probe`](crate::edit::Probe), and not by the runtime's slow path. What
    /// differs from the runtime's own hooks, besides what is said there:
    /// - The first 16 arguments are passed, `this` included; more are
    ///   [`TooManyArguments`](crate::values::Unreadable::TooManyArguments).
    /// - All instantiations of a generic method share its code, so values whose types depend on a type parameter are
    ///   [`TypeParameter`](crate::values::Unreadable::TypeParameter). There is no frame info: `VALUES` with
    ///   [`FRAME`](HookValues::FRAME) do not compile.
    /// - [`InSlowHook`](super::InSlowHook) has only what [`InHook`](super::InHook) has, because the thread is not inside a callback.
    ///   The calls of a callback return `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`, and walks `E_FAIL`.
    /// - In methods that were compiled before an attach, or are precompiled ([`Precompiled::Compiled`]), structs of other assemblies
    ///   than the method's own and the core library are [`AmbiguousType`](crate::values::Unreadable::AmbiguousType).
    /// - Methods that native code calls have hooks as well.
    ///
    /// # Errors
    /// As [`hook_functions_by_il`](Self::hook_functions_by_il).
    pub fn hook_functions_with_values_by_il<H: ValueHooks>(
        &mut self,
        hooks: H,
        precompiled: Precompiled,
    ) -> Result<InsertedHooks> {
        check_values::<H>();
        Ok(install(self, Slow(hooks), precompiled, EventMask::MONITOR_CACHE_SEARCHES)?.told.clone())
    }
}

impl InAttach<'_> {
    /// Like [`InInitialize::hook_functions_by_il`], after attach. Methods that are compiled later have hooks from their first call
    /// on; those that are compiled already are [recompiled](crate::instrumentation) with hooks, and have them from their next call
    /// on. Calls that are under way have none. Precompiled methods have hooks once the runtime compiles them again, because they
    /// are called often.
    ///
    /// `select` is called for the compiled methods on a thread of its own.
    ///
    /// # Errors
    /// As there, and those of [`start_instrumentation`](Self::start_instrumentation).
    pub fn hook_functions_by_il<H: FunctionHooks>(
        &mut self,
        hooks: H,
    ) -> std::result::Result<InsertedHooks, StartError> {
        attach(self, Fast(hooks))
    }

    /// Like [`hook_functions_by_il`](Self::hook_functions_by_il), for hooks that receive arguments and results: see
    /// [`InInitialize::hook_functions_with_values_by_il`].
    ///
    /// # Errors
    /// As there, and those of [`start_instrumentation`](Self::start_instrumentation).
    pub fn hook_functions_with_values_by_il<H: ValueHooks>(
        &mut self,
        hooks: H,
    ) -> std::result::Result<InsertedHooks, StartError> {
        check_values::<H>();
        attach(self, Slow(hooks))
    }
}

/// Stops the compilation for values that inserted code cannot pass.
const fn check_values<H: ValueHooks>() {
    const {
        assert!(
            !H::VALUES.is_empty(),
            "`ValueHooks::VALUES` is empty: name the values that the hooks need, or implement `FunctionHooks`"
        );
        assert!(
            !H::VALUES.contains(HookValues::FRAME),
            "inserted code has no frame info: remove `HookValues::FRAME` from `ValueHooks::VALUES`"
        );
    }
}

fn attach<H: EitherHooks>(cx: &mut InAttach<'_>, hooks: H) -> std::result::Result<InsertedHooks, StartError> {
    let inserted = install(cx, hooks, Precompiled::Compiled, EventMask::empty())?;
    let instrumentation = cx.start_instrumentation()?;
    cx.spawn_profiler_thread("hooks", move |cx| {
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
    Ok(inserted.told.clone())
}

fn install<H: EitherHooks>(
    cx: &InCallback<'_>,
    hooks: H,
    precompiled: Precompiled,
    more: EventMask,
) -> Result<&'static Inserted<H>> {
    const CALL: &str = "SetILFunctionBody";
    if size_of::<usize>() != 8 {
        return Err(Error::new(E_NOTIMPL, CALL).about("hooks by inserted code", "they need a 64-bit process"));
    }
    if cx.hooks().is_some() {
        let rule = "a profiler has one `FunctionHooks` or `ValueHooks`: combine the two";
        return Err(Error::new(E_FAIL, CALL).about("hooks that are set already", rule));
    }
    cx.refuse_notification_only(CALL)?;
    cx.add_events(EventMask::MONITOR_JIT_COMPILATION | EventMask::MONITOR_THREADS | more)?;
    let installed = Installed::leak_inserted(hooks, cx)?;
    let (methods, kept) = (Mutex::default(), Mutex::default());
    let inserted = Inserted { installed, precompiled, told: InsertedHooks::default(), methods, kept };
    let inserted: &'static Inserted<H> = Box::leak(Box::new(inserted));
    cx.prevent_detach(CALL);
    cx.set_hooks(installed);
    cx.set_inserted_hooks(inserted);
    Ok(inserted)
}

impl<H: EitherHooks> Inserted<H> {
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

    /// Enters what one thread has found out about a method, and answers whether it has hooks: it has if any thread has added them.
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
            (_, Ok(true)) => self.told.books().hooked += 1,
            (None | Some(Decision::Editing), Err(reason)) => self.told.leave_out(function, reason),
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

    /// What the method of a function should call, if the user wants that. `types`: whether those of its signature are loaded.
    fn wanted(&'static self, cx: &mut InCallback<'_>, function: FunctionId, types: Types) -> Option<HookCalls> {
        // As with the runtime's own hooks: a function without metadata, and those that handle exceptions. And one without IL, to
        // which nothing can be added.
        let is_fit = match fitness::method(cx, function) {
            Ok((metadata, method)) => fitness::has_il(&method) && !is_of_the_runtime(&metadata, &method),
            Err(_) => false,
        };
        if !is_fit || cx.is_function_dynamic(function) != Ok(false) {
            return None;
        }
        let hooks = self.installed;
        let _selecting = Callback::begin_select();
        let (data, is_always) = match hooks.user().select(cx, function) {
            Hook::Yes(data) => (data, !H::VALUES.is_empty()),
            Hook::Always(data) => (data, true),
            Hook::No => return None,
        };
        if !is_always && is_inlined(cx, function) {
            self.told.leave_out(function, INLINED.to_owned());
            return None;
        }
        let plan = match cx.function_info(function) {
            Ok(info) if !H::VALUES.is_empty() => Lookup::new(cx).plan_of_method(info.module, info.token, types),
            _ => Plan::default(),
        };
        let record = Record { hooks, gate: hooks.gate(), tag: hooks.tag, function, role: Role::Function(data), plan };
        let record: *const Record<H> = Box::leak(Box::new(record));
        Some(calls::<H>(record.expose_provenance() | OURS))
    }

    /// Has a method recompiled that was compiled before the profiler attached.
    fn rewrite(&'static self, cx: &mut ProfilerThread<'_>, instrumentation: &Instrumentation, function: FunctionId) {
        let Some(_inside) = self.installed.gate().enter() else { return };
        let (Ok((key, None)), Ok(info)) = (self.known(cx, function), cx.function_info(function)) else { return };
        let wanted =
            catch(|| self.wanted(cx, function, Types::MayLoad), || self.installed.disable_after_panic("select"))
                .flatten();
        self.methods().insert(key, Decision::of(wanted.is_some()));
        if let Some(calls) = wanted {
            // SAFETY: as in `select`.
            let edit = move |edit: &mut MethodEdit<'_>| unsafe { edit.call_hooks(&calls) };
            let rewrite = instrumentation.edit(info.module, info.token, edit);
            self.told.books().rewrites.push((function, rewrite));
        }
    }

    /// Asks the user about a function that is about to be compiled, and adds the calls. Answers whether it has them, or why it
    /// cannot have them.
    fn select(
        &'static self,
        cx: &mut InCallback<'_>,
        key: Key,
        function: FunctionId,
        types: Types,
    ) -> std::result::Result<bool, String> {
        let Some(calls) = self.wanted(cx, function, types) else { return Ok(false) };
        // In this order: a thread that adds the calls says so before it replaces the body.
        let is_replaced = cx.original_bodies().is_replaced(key.0, key.1);
        match self.methods().entry(key) {
            Entry::Vacant(_) if is_replaced => return Err("the profiler has replaced the body by itself".to_owned()),
            entry => entry.or_insert(Decision::Editing),
        };
        // SAFETY: the functions are those of these hooks, and take the numbers of their records, which are never freed; they are in
        // a library that stays in memory (`prevent_detach`), catch panics, and are what hooks are.
        match cx.edit_once(function, |edit| unsafe { edit.call_hooks(&calls) }) {
            // If it was not this thread that has replaced the body, it was another one, with the same calls.
            Ok(_) => Ok(true),
            Err(EditError::Rejected(errors)) => Err(broken(&errors)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl<H: EitherHooks> CompileSlot for Inserted<H> {
    unsafe fn compiling(&'static self, function: FunctionId) {
        if self.precompiled == Precompiled::Compiled || !self.kept().contains(&function) {
            // SAFETY: the caller's promise.
            unsafe { self.decide(function, Types::AreLoaded) };
        }
    }

    fn may_inline(&'static self, function: FunctionId) -> bool {
        let Some(_inside) = self.installed.gate().enter() else { return true };
        // SAFETY: the callback about inlining, which lets no collection in by what is called here (fact: contexts).
        let cx = unsafe { InCallback::new(self.installed.info()) };
        !matches!(self.known(&cx, function), Ok((_, Some(Decision::Hooked | Decision::Editing))))
    }

    unsafe fn may_use_precompiled(&'static self, function: FunctionId) -> bool {
        // SAFETY: the caller's promise.
        self.precompiled == Precompiled::Kept || unsafe { !self.decide(function, Types::MayLoad) }
    }

    fn uses_precompiled(&'static self, function: FunctionId) {
        let is_new = self.kept().insert(function);
        if is_new {
            self.told.books().precompiled += 1;
        }
    }

    fn module_gone(&'static self, module: usize) {
        self.methods().retain(|(of, _), _| *of != module);
    }
}
