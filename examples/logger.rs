//! Logs what happens in an application, by name, indented by what happens inside what.
//!
//! `cargo xtask demo logger`. A line is the thread's number, `+` for a beginning, `-` for an end, `*` for what has neither,
//! and the event. LOGGER_EVENTS=jit,gc picks categories (those of `CATEGORIES`; all by default); with LOGGER_DIR=logs each
//! managed thread writes a file of its own there, else everything goes to standard error.

use corprof::{prelude::*, sync::Mutex};
use std::collections::HashMap;
use std::env::{var, var_os};
use std::io::{LineWriter, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{fmt::Arguments, fs::File, path::Path};

const CATEGORIES: [(&str, EventMask); 15] = [
    ("appdomain", EventMask::MONITOR_APPDOMAIN_LOADS),
    ("assembly", EventMask::MONITOR_ASSEMBLY_LOADS),
    ("module", EventMask::MONITOR_MODULE_LOADS),
    ("class", EventMask::MONITOR_CLASS_LOADS),
    ("unload", EventMask::MONITOR_FUNCTION_UNLOADS.union(EventMask::HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS)),
    ("jit", EventMask::MONITOR_JIT_COMPILATION),
    ("inlining", EventMask::MONITOR_JIT_COMPILATION),
    ("search", EventMask::MONITOR_CACHE_SEARCHES),
    ("thread", EventMask::MONITOR_THREADS),
    ("transition", EventMask::MONITOR_CODE_TRANSITIONS),
    ("suspension", EventMask::MONITOR_SUSPENDS),
    ("gc", EventMask::MONITOR_GC),
    ("allocation", EventMask::MONITOR_GC),
    ("exception", EventMask::MONITOR_EXCEPTIONS),
    ("com", EventMask::MONITOR_CCW),
];

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A02")]
struct Logger {
    /// Which of `CATEGORIES` are logged, by a bit each.
    wanted: AtomicUsize,
    /// By managed thread; `None` stands for all threads that never ran managed code.
    threads: Mutex<HashMap<Option<ThreadId>, Thread>>,
    /// How many threads there have been: their numbers.
    seen: AtomicUsize,
}

struct Thread {
    number: usize,
    depth: usize,
    out: Box<dyn Write + Send>,
}

impl Logger {
    fn log(&self, cx: &InCallback<'_>, category: &str, kind: char, event: Arguments<'_>) {
        let at = CATEGORIES.iter().position(|(name, _)| *name == category);
        if at.is_none_or(|at| self.wanted.load(Relaxed) & 1 << at == 0) {
            return;
        }
        let id = cx.current_thread().unwrap_or(None);
        let mut threads = self.threads.lock(cx);
        let thread = threads.entry(id).or_insert_with(|| {
            let number = self.seen.fetch_add(1, Relaxed);
            let file = var_os("LOGGER_DIR").map(|dir| File::create(Path::new(&dir).join(format!("{number}.log"))));
            let out: Box<dyn Write + Send> = match file {
                Some(Ok(file)) => Box::new(LineWriter::new(file)),
                _ => Box::new(LineWriter::new(std::io::stderr())),
            };
            Thread { number, depth: 0, out }
        });
        thread.depth = thread.depth.saturating_sub((kind == '-') as usize);
        let indent = thread.depth * 2;
        let _ = writeln!(thread.out, "{:>4} {:indent$}{kind} {category}: {event}", thread.number, "");
        thread.depth += (kind == '+') as usize;
    }
}

/// Whether a transition begins or ends something.
fn side(reason: TransitionReason) -> char {
    if reason == TransitionReason::Call { '+' } else { '-' }
}

fn function(cx: &InCallback<'_>, id: Option<FunctionId>) -> Name {
    id.map_or("?".into(), |id| cx.names().function(id))
}

/// How something ended.
fn outcome(status: Result<()>) -> String {
    status.map_or_else(|error| format!(" FAILED: {error}"), |()| String::new())
}

/// The callbacks, a line each: category, kind, what to say.
macro_rules! logger {
    ($(in ($context:ty) { $($name:ident($cx:ident $(, $arg:ident: $ty:ty)*) => $category:literal, $kind:expr, $($say:expr),*;)* })*) => {
        #[callbacks]
        impl Callbacks for Logger {
            fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
                let all = CATEGORIES.map(|(name, _)| name).join(",");
                let mut mask = EventMask::MONITOR_THREADS;
                for wanted in var("LOGGER_EVENTS").unwrap_or(all.clone()).split(',') {
                    let at = CATEGORIES.iter().position(|(name, _)| *name == wanted.trim());
                    let at = at.ok_or_else(|| format!("LOGGER_EVENTS: no category '{wanted}'; there are {all}"))?;
                    self.wanted.fetch_or(1 << at, Relaxed);
                    mask |= CATEGORIES[at].1;
                }
                var_os("LOGGER_DIR").map(std::fs::create_dir_all).transpose().map_err(|error| format!("LOGGER_DIR: {error}"))?;
                Ok(cx.set_event_mask(mask)?)
            }

            fn thread_destroyed(&self, cx: &mut InTriggers<'_>, thread: ThreadId) {
                self.log(cx, "thread", '*', format_args!("{thread:x} destroyed"));
                self.threads.lock(cx).remove(&Some(thread));
            }

            fn jit_inlining(&self, cx: &mut InTriggers<'_>, caller: FunctionId, callee: FunctionId) -> bool {
                let (caller, callee) = (cx.names().function(caller), cx.names().function(callee));
                self.log(cx, "inlining", '*', format_args!("{callee} into {caller}"));
                true
            }

            fn objects_allocated_by_class(&self, cx: &InCallback<'_>, counts: ClassCounts<'_>) {
                for (class, count) in counts.iter() {
                    self.log(cx, "allocation", '*', format_args!("{count} of {}", cx.names().class(class)));
                }
            }

            fn exception_catcher_enter(&self, cx: &InCallback<'_>, function: FunctionId, thrown: Option<ObjectId<'_>>) {
                let class = thrown.and_then(|object| cx.class_of(object).ok()).map(|class| cx.names().class(class));
                let class = class.as_deref().unwrap_or("an exception");
                // The unwinding of the function that catches has no end of its own.
                self.log(cx, "exception", '-', format_args!("unwind"));
                self.log(cx, "exception", '+', format_args!("catch {class} in {}", cx.names().function(function)));
            }

            $($(fn $name(&self, $cx: $context $(, $arg: $ty)*) {
                self.log($cx, $category, $kind, format_args!($($say),*));
            })*)*
        }
    };
}

logger! {
    in (&mut InTriggers<'_>) {
        app_domain_creation_started(cx, id: AppDomainId) => "appdomain", '+', "create {id:x}";
        app_domain_creation_finished(cx, id: AppDomainId, status: Result<()>) => "appdomain", '-', "create {id:x}{}", outcome(status);
        app_domain_shutdown_started(cx, id: AppDomainId) => "appdomain", '+', "shut down {id:x}";
        app_domain_shutdown_finished(cx, id: AppDomainId, status: Result<()>) => "appdomain", '-', "shut down {id:x}{}", outcome(status);
        assembly_load_started(cx, id: AssemblyId) => "assembly", '+', "load {id:x}";
        assembly_load_finished(cx, id: AssemblyId, status: Result<()>) => "assembly", '-', "load {}{}", cx.names().assembly(id), outcome(status);
        assembly_unload_started(cx, id: AssemblyId) => "assembly", '+', "unload {}", cx.names().assembly(id);
        assembly_unload_finished(cx, id: AssemblyId, status: Result<()>) => "assembly", '-', "unload {id:x}{}", outcome(status);
        module_load_started(cx, id: ModuleId) => "module", '+', "load {id:x}";
        module_load_finished(cx, id: ModuleId, status: Result<()>) => "module", '-', "load {}{}", cx.names().module(id), outcome(status);
        module_unload_started(cx, id: ModuleId) => "module", '+', "unload {}", cx.names().module(id);
        module_unload_finished(cx, id: ModuleId, status: Result<()>) => "module", '-', "unload {id:x}{}", outcome(status);
        module_attached_to_assembly(cx, id: ModuleId, to: AssemblyId) => "module", '*', "{} is in {}", cx.names().module(id), cx.names().assembly(to);
        class_load_started(cx, id: ClassId) => "class", '+', "load {id:x}";
        class_load_finished(cx, id: ClassId, status: Result<()>) => "class", '-', "load {}{}", cx.names().class(id), outcome(status);
        class_unload_started(cx, id: ClassId) => "class", '+', "unload {}", cx.names().class(id);
        class_unload_finished(cx, id: ClassId, status: Result<()>) => "class", '-', "unload {id:x}{}", outcome(status);
        dynamic_method_unloaded(cx, id: FunctionId) => "unload", '*', "dynamic method {id:x}";
        jit_compilation_started(cx, id: FunctionId, _safe: bool) => "jit", '+', "{}", cx.names().function(id);
        jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool) => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        dynamic_method_jit_compilation_started(cx, id: FunctionId, _safe: bool, _il: &[u8]) => "jit", '+', "{}", cx.names().function(id);
        dynamic_method_jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool) => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        jit_cached_function_search_finished(cx, id: FunctionId, result: JitCache) => "search", '*', "{} {result}", cx.names().function(id);
        thread_created(cx, id: ThreadId) => "thread", '*', "{id:x} created";
        thread_name_changed(cx, id: ThreadId, name: &str) => "thread", '*', "{id:x} is called {name}";
        managed_to_unmanaged_transition(cx, id: Option<FunctionId>, reason: TransitionReason) => "transition", side(reason), "native code {reason} from {}", function(cx, id);
        unmanaged_to_managed_transition(cx, id: Option<FunctionId>, reason: TransitionReason) => "transition", side(reason), "native code {reason} to {}", function(cx, id);
        exception_search_function_enter(cx, id: FunctionId) => "exception", '+', "search {}", cx.names().function(id);
        exception_search_function_leave(cx) => "exception", '-', "search";
        exception_search_filter_enter(cx, id: FunctionId) => "exception", '+', "filter {}", cx.names().function(id);
        exception_search_filter_leave(cx) => "exception", '-', "filter";
        exception_search_catcher_found(cx, id: FunctionId) => "exception", '*', "will be caught in {}", cx.names().function(id);
        exception_catcher_leave(cx) => "exception", '-', "catch";
        runtime_resume_finished(cx) => "suspension", '-', "resumed";
        com_classic_vtable_created(cx, id: ClassId, _iid: Option<&Guid>, at: usize, slots: u32) => "com", '*', "{} slots of {} at {at:x}", slots, cx.names().class(id);
        com_classic_vtable_destroyed(cx, id: ClassId, _iid: Option<&Guid>, at: usize) => "com", '*', "{} at {at:x} gone", cx.names().class(id);
    }
    in (&InCallback<'_>) {
        function_unload_started(cx, id: FunctionId) => "unload", '*', "{}", cx.names().function(id);
        jit_function_pitched(cx, id: FunctionId) => "jit", '*', "{} pitched", cx.names().function(id);
        thread_assigned_to_os_thread(cx, id: ThreadId, os_id: u32) => "thread", '*', "{id:x} runs on system thread {os_id}";
        runtime_suspend_started(cx, reason: SuspendReason) => "suspension", '+', "for {reason}";
        runtime_suspend_finished(cx) => "suspension", '*', "all threads stopped";
        runtime_suspend_aborted(cx) => "suspension", '-', "aborted";
        garbage_collection_started(cx, generations: Generations, reason: GcReason) => "gc", '+', "{generations}, {reason}";
        garbage_collection_finished(cx) => "gc", '-', "done";
        exception_thrown(cx, thrown: ObjectId<'_>) => "exception", '*', "{} thrown", cx.class_of(thrown).map_or("?".into(), |class| cx.names().class(class));
        exception_unwind_function_enter(cx, id: FunctionId) => "exception", '+', "unwind {}", cx.names().function(id);
        exception_unwind_function_leave(cx) => "exception", '-', "unwind";
        exception_unwind_finally_enter(cx, id: FunctionId) => "exception", '+', "finally {}", cx.names().function(id);
        exception_unwind_finally_leave(cx) => "exception", '-', "finally";
    }
}
