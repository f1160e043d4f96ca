//! Logs what happens in an application, by name, indented by what happens inside what.
//!
//! `cargo xtask demo logger`. A line is the thread's number, `+` for a beginning, `-` for an end, `*` for what has neither,
//! and the event. LOGGER_EVENTS=jit,gc picks categories (those of `CATEGORIES`; all by default), and of one that cannot be heard
//! here says so; with LOGGER_DIR=logs each managed thread writes a file of its own there, else everything goes to standard error.

use corprof::{prelude::*, settings::Setting, sync::Mutex};
use std::io::{LineWriter, Write, stderr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::{collections::HashMap, env::var, env::var_os, fs::File, path::Path};

#[rustfmt::skip]
const CATEGORIES: [(&str, EventMask); 15] = [
    ("appdomain", EventMask::MONITOR_APPDOMAIN_LOADS),     ("assembly", EventMask::MONITOR_ASSEMBLY_LOADS),
    ("module", EventMask::MONITOR_MODULE_LOADS),           ("class", EventMask::MONITOR_CLASS_LOADS),
    ("unload", EventMask::HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS.union(EventMask::MONITOR_FUNCTION_UNLOADS)),
    ("jit", EventMask::MONITOR_JIT_COMPILATION),           ("inlining", EventMask::MONITOR_JIT_COMPILATION),
    ("search", EventMask::MONITOR_CACHE_SEARCHES),         ("thread", EventMask::MONITOR_THREADS),
    ("transition", EventMask::MONITOR_CODE_TRANSITIONS),   ("suspension", EventMask::MONITOR_SUSPENDS),
    ("gc", EventMask::MONITOR_GC),                         ("allocation", EventMask::MONITOR_GC),
    ("exception", EventMask::MONITOR_EXCEPTIONS),          ("com", EventMask::MONITOR_CCW),
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
    out: LineWriter<Box<dyn Write + Send>>,
}

impl Logger {
    fn log(&self, cx: &InCallback<'_>, category: &str, kind: char, event: String) {
        let wanted = self.wanted.load(Relaxed);
        if !CATEGORIES.iter().enumerate().any(|(at, (name, _))| *name == category && wanted & 1 << at != 0) {
            return;
        }
        let mut threads = self.threads.lock(cx);
        let Thread { number, depth, out } = threads.entry(cx.current_thread().unwrap_or(None)).or_insert_with(|| {
            let number = self.seen.fetch_add(1, Relaxed);
            let file = var_os("LOGGER_DIR").map(|dir| File::create(Path::new(&dir).join(format!("{number}.log"))));
            let out = file.and_then(Result::ok).map_or(Box::new(stderr()) as _, |file| Box::new(file) as _);
            Thread { number, depth: 0, out: LineWriter::new(out) }
        });
        *depth = depth.saturating_sub((kind == '-') as usize);
        let _ = writeln!(out, "{number:>4} {:1$}{kind} {category}: {event}", "", *depth * 2);
        *depth += (kind == '+') as usize;
    }
}

/// Why a category is silent on this system, whatever the runtime is asked for.
fn silence(category: &str) -> Option<&'static str> {
    (category == "com" && cfg!(not(windows))).then_some("COM interop is there on Windows only")
}

/// How something ended.
fn outcome(status: Result<()>) -> String {
    status.map_or_else(|error| format!(" FAILED: {error}"), |()| String::new())
}

fn domain(cx: &mut InTriggers<'_>, id: AppDomainId) -> String {
    cx.app_domain_info(id).map_or_else(|_| format!("{id:x}"), |info| info.name)
}

fn class_of(cx: &InCallback<'_>, object: ObjectId<'_>) -> Name {
    cx.class_of(object).map_or("?".into(), |class| cx.names().class(class))
}

/// The callbacks, a line each: category, kind, what to say.
macro_rules! logger {
    ($(in ($context:ty) { $($name:ident($cx:ident $(, $arg:ident: $ty:ty)*) => $category:literal, $kind:expr, $($say:expr),*;)* })*) => {
        #[callbacks]
        impl Callbacks for Logger {
            fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
                cx.set_event_mask(EventMask::MONITOR_THREADS)?;
                let all = CATEGORIES.map(|(name, _)| name).join(",");
                let named = var("LOGGER_EVENTS");
                for wanted in named.as_ref().unwrap_or(&all).split(',') {
                    let at = CATEGORIES.iter().position(|(name, _)| *name == wanted.trim());
                    let at = at.ok_or_else(|| format!("LOGGER_EVENTS: no category '{wanted}'; there are {all}"))?;
                    self.wanted.fetch_or(1 << at, Relaxed);
                    let (category, events) = CATEGORIES[at];
                    // The runtime may refuse one: an immutable flag after an attach, say. The others are heard all the same.
                    if let Err(error) = cx.add_events(events) {
                        eprintln!("logger: {category} cannot be heard: {error}");
                    } else if let Some(why) = silence(category).filter(|_| named.is_ok()) {
                        eprintln!("logger: {category} cannot be heard: {why}");
                    }
                }
                if let Some(folder) = var_os("LOGGER_DIR") {
                    std::fs::create_dir_all(&folder).context(format_args!("LOGGER_DIR={}", folder.display()))?;
                    Setting::with_value("LOGGER_DIR", Path::new(&folder).join("0.log")).output()?;
                }
                Ok(())
            }

            fn thread_destroyed(&self, cx: &mut InTriggers<'_>, thread: ThreadId) {
                self.log(cx, "thread", '*', format!("{thread:x} destroyed"));
                self.threads.lock(cx).remove(&Some(thread));
            }

            fn jit_inlining(&self, cx: &mut InTriggers<'_>, caller: FunctionId, callee: FunctionId) -> bool {
                let [caller, callee] = [caller, callee].map(|id| cx.names().function(id));
                self.log(cx, "inlining", '*', format!("{callee} into {caller}"));
                true
            }

            fn objects_allocated_by_class(&self, cx: &InCallback<'_>, counts: ClassCounts<'_>) {
                for (class, count) in counts.iter() {
                    self.log(cx, "allocation", '*', format!("{count} of {}", cx.names().class(class)));
                }
            }

            fn exception_catcher_enter(&self, cx: &InCallback<'_>, function: FunctionId, thrown: Option<ObjectId<'_>>) {
                self.log(cx, "exception", '-', "unwind".into()); // the unwinding of who catches has no end of its own
                let class = thrown.map_or("exception".into(), |object| class_of(cx, object));
                // No `+` either: a catch block that is left by an exception has no end that the runtime would tell.
                self.log(cx, "exception", '*', format!("catch {class} in {}", cx.names().function(function)));
            }

            $($(fn $name(&self, $cx: $context $(, $arg: $ty)*) {
                let event = format!($($say),*);
                self.log($cx, $category, $kind, event);
            })*)*
        }
    };
}

logger! {
    in (&mut InTriggers<'_>) {
        app_domain_creation_started(cx, id: Inert<AppDomainId>) => "appdomain", '+', "create {id:x}";
        app_domain_creation_finished(cx, id: AppDomainId, status: Result<()>) => "appdomain", '-', "create {}{}", domain(cx, id), outcome(status);
        app_domain_shutdown_started(cx, id: AppDomainId) => "appdomain", '+', "shut down {}", domain(cx, id);
        app_domain_shutdown_finished(cx, id: Inert<AppDomainId>, status: Result<()>) => "appdomain", '-', "shut down {id:x}{}", outcome(status);
        assembly_load_started(cx, id: Inert<AssemblyId>) => "assembly", '+', "load {id:x}";
        assembly_load_finished(cx, id: AssemblyId, status: Result<()>) => "assembly", '-', "load {}{}", cx.names().assembly(id), outcome(status);
        assembly_unload_started(cx, id: AssemblyId) => "assembly", '+', "unload {}", cx.names().assembly(id);
        assembly_unload_finished(cx, id: Inert<AssemblyId>, status: Result<()>) => "assembly", '-', "unload {id:x}{}", outcome(status);
        module_load_started(cx, id: Inert<ModuleId>) => "module", '+', "load {id:x}";
        module_load_finished(cx, id: ModuleId, status: Result<()>) => "module", '-', "load {}{}", cx.names().module(id), outcome(status);
        module_unload_started(cx, id: ModuleId) => "module", '+', "unload {}", cx.names().module(id);
        module_unload_finished(cx, id: Inert<ModuleId>, status: Result<()>) => "module", '-', "unload {id:x}{}", outcome(status);
        module_attached_to_assembly(cx, id: ModuleId, to: AssemblyId) => "module", '*', "{} is in {}", cx.names().module(id), cx.names().assembly(to);
        class_load_started(cx, id: Inert<ClassId>) => "class", '+', "load {id:x}";
        class_load_finished(cx, id: ClassId, status: Result<()>) => "class", '-', "load {}{}", cx.names().class(id), outcome(status);
        class_unload_started(cx, id: ClassId) => "class", '+', "unload {}", cx.names().class(id);
        class_unload_finished(cx, id: Inert<ClassId>, status: Result<()>) => "class", '-', "unload {id:x}{}", outcome(status);
        dynamic_method_unloaded(cx, id: Inert<FunctionId>) => "unload", '*', "dynamic method {id:x}";
        jit_compilation_started(cx, id: FunctionId, _safe: bool) => "jit", '+', "{}", cx.names().function(id);
        jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool) => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        dynamic_method_jit_compilation_started(cx, id: FunctionId, _safe: bool, _il: &[u8]) => "jit", '+', "{}", cx.names().function(id);
        dynamic_method_jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool) => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        jit_cached_function_search_finished(cx, id: FunctionId, result: JitCache) => "search", '*', "{} {result}", cx.names().function(id);
        thread_created(cx, id: ThreadId) => "thread", '*', "{id:x} created";
        thread_name_changed(cx, id: Inert<ThreadId>, name: &str) => "thread", '*', "{id:x} is called {name}";
        managed_to_unmanaged_transition(cx, id: Option<FunctionId>, reason: TransitionReason) => "transition", if reason == TransitionReason::Call { '+' } else { '-' }, "native code {reason} from {}", id.map_or("?".into(), |id| cx.names().function(id));
        unmanaged_to_managed_transition(cx, id: Option<FunctionId>, reason: TransitionReason) => "transition", if reason == TransitionReason::Call { '+' } else { '-' }, "native code {reason} to {}", id.map_or("?".into(), |id| cx.names().function(id));
        exception_search_function_enter(cx, id: FunctionId) => "exception", '+', "search {}", cx.names().function(id);
        exception_search_function_leave(cx) => "exception", '-', "search";
        exception_search_filter_enter(cx, id: FunctionId) => "exception", '+', "filter {}", cx.names().function(id);
        exception_search_filter_leave(cx) => "exception", '-', "filter";
        exception_search_catcher_found(cx, id: FunctionId) => "exception", '*', "will be caught in {}", cx.names().function(id);
        exception_catcher_leave(cx) => "exception", '*', "end of catch";
        runtime_resume_finished(cx) => "suspension", '-', "resumed";
        com_classic_vtable_created(cx, id: ClassId, _iid: Option<&Guid>, at: usize, slots: u32) => "com", '*', "{} slots of {} at {at:x}", slots, cx.names().class(id);
    }
    in (&InCallback<'_>) {
        function_unload_started(cx, id: FunctionId) => "unload", '*', "{}", cx.names().function(id);
        thread_assigned_to_os_thread(cx, id: ThreadId, os_id: u32) => "thread", '*', "{id:x} runs on system thread {os_id}";
        runtime_suspend_started(cx, reason: SuspendReason) => "suspension", '+', "for {reason}";
        runtime_suspend_finished(cx) => "suspension", '*', "all threads stopped";
        runtime_suspend_aborted(cx) => "suspension", '-', "aborted";
        garbage_collection_started(cx, generations: Generations<'_>, reason: GcReason) => "gc", '+', "{generations}, {reason}";
        garbage_collection_finished(cx) => "gc", '-', "done";
        exception_thrown(cx, thrown: ObjectId<'_>) => "exception", '*', "{} thrown", class_of(cx, thrown);
        exception_unwind_function_enter(cx, id: FunctionId) => "exception", '+', "unwind {}", cx.names().function(id);
        exception_unwind_function_leave(cx) => "exception", '-', "unwind";
        exception_unwind_finally_enter(cx, id: FunctionId) => "exception", '+', "finally {}", cx.names().function(id);
        exception_unwind_finally_leave(cx) => "exception", '-', "finally";
    }
}
