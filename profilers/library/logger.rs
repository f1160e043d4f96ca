//! Logs the events of an application with names. An event inside another one is indented below it.
//!
//! A line has the number of the thread, a sign, and the event. The sign is `+` at the begin of an event, `-` at its
//! end, and `*` for an event without duration. At start-up the logger names categories that this runtime or system
//! cannot report.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{LineWriter, Write, sink, stderr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corprof::Guid;
use corprof::args::{ClassCounts, GcReason, Generations, JitCache, SuspendReason, TransitionReason};
use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sync::Mutex;
use corprof_profilers::settings::Settings;
use corprof_profilers::table::LOGGER;

/// The categories, with the events that each needs.
const CATEGORIES: [(&str, EventMask); 15] = [
    ("appdomain", EventMask::MONITOR_APPDOMAIN_LOADS),
    ("assembly", EventMask::MONITOR_ASSEMBLY_LOADS),
    ("module", EventMask::MONITOR_MODULE_LOADS),
    ("class", EventMask::MONITOR_CLASS_LOADS),
    ("unload", EventMask::HIGH_MONITOR_DYNAMIC_FUNCTION_UNLOADS.union(EventMask::MONITOR_FUNCTION_UNLOADS)),
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

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A02", no_export)]
pub struct Logger {
    options: Options,
    /// By managed thread; `None` stands for all threads that never ran managed code.
    threads: Mutex<HashMap<Option<ThreadId>, Thread>>,
    /// The number of threads so far, and the number of the next thread.
    threads_seen: AtomicUsize,
}

struct Options {
    categories: Vec<(&'static str, EventMask)>,
    /// Whether the user named the categories.
    is_selection: bool,
    folder: Option<PathBuf>,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, BoxError> {
        let wanted = settings.of("LOGGER_EVENTS").words()?;
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
        let categories = CATEGORIES.into_iter().filter(|(name, _)| is_wanted(name)).collect();
        let folder = settings.of("LOGGER_DIR").path();
        if let Some(folder) = &folder {
            fs::create_dir_all(folder).context(format_args!("LOGGER_DIR={}", folder.display()))?;
            // Refuses a folder that cannot be written to.
            settings.of("LOGGER_DIR").with(folder.join("0.log")).output()?;
        }
        Ok(Self { categories, is_selection: !wanted.is_empty(), folder })
    }
}

struct Thread {
    number: usize,
    depth: usize,
    out: LineWriter<Box<dyn Write + Send>>,
}

impl Logger {
    /// Logs a transition, unless it is one of the runtime's own ways to call managed code: there are hundreds for each
    /// exception.
    fn log_transition(&self, cx: &InNoGc<'_>, id: Option<FunctionId>, reason: TransitionReason, way: &str) {
        if id.is_some_and(|id| cx.is_runtime_entry(id)) {
            return;
        }
        self.log(cx, "transition", of_transition(reason), format!("native code {reason} {way} {}", function(cx, id)));
    }

    fn log(&self, cx: &InNoGc<'_>, category: &str, kind: char, event: String) {
        if !self.options.categories.iter().any(|(name, _)| *name == category) {
            return;
        }
        let mut threads = self.threads.lock(cx);
        let thread = threads.entry(cx.current_thread().unwrap_or(None)).or_insert_with(|| self.new_thread());
        if kind == '-' {
            thread.depth = thread.depth.saturating_sub(1);
        }
        let number = thread.number;
        let indent = 2 * thread.depth;
        let _ = writeln!(thread.out, "{number:>4} {:indent$}{kind} {category}: {event}", "");
        if kind == '+' {
            thread.depth += 1;
        }
    }

    fn new_thread(&self) -> Thread {
        let number = self.threads_seen.fetch_add(1, Relaxed);
        let folder = self.options.folder.as_ref();
        let file = folder.and_then(|folder| File::create(folder.join(format!("{number}.log"))).ok());
        let out: Box<dyn Write + Send> = match file {
            Some(file) => Box::new(file),
            None if crate::sdk::is_tool() => Box::new(sink()),
            None => Box::new(stderr()),
        };
        Thread { number, depth: 0, out: LineWriter::new(out) }
    }
}

/// The reason why a category never has events on this system.
fn no_events(category: &str) -> Option<&'static str> {
    (category == "com" && cfg!(not(windows))).then_some("COM interop exists on Windows only")
}

/// The end of the line: the error, if there was one.
fn outcome(status: Result<()>) -> String {
    status.map_or_else(|error| format!(" FAILED: {error}"), |()| String::new())
}

/// A call begins, a return ends.
fn of_transition(reason: TransitionReason) -> char {
    if reason == TransitionReason::Call { '+' } else { '-' }
}

fn domain(cx: &mut InCallback<'_>, id: AppDomainId) -> String {
    cx.app_domain_info(id).map_or_else(|_| format!("{id:x}"), |info| info.name)
}

fn function(cx: &InNoGc<'_>, id: Option<FunctionId>) -> Name {
    id.map_or("?".into(), |id| cx.names().function(id))
}

fn class_of(cx: &InNoGc<'_>, object: ObjectId<'_>) -> Name {
    cx.class_of(object).map_or("?".into(), |class| cx.names().class(class))
}

/// Generates the callbacks that log one event: `name(arguments) => category, sign, event`. The other callbacks are
/// written in full.
macro_rules! logger {
    ($(in ($context:ty) {
        $($name:ident($cx:ident $(, $arg:ident: $ty:ty)*) => $category:literal, $kind:expr, $($say:expr),*;)*
    })*) => {
        #[callbacks]
        impl Callbacks for Logger {
            fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
                let options = Options::read(&Settings::of_environment(&LOGGER)?)?;
                cx.set_event_mask(EventMask::MONITOR_THREADS)?;
                for (category, events) in &options.categories {
                    // The runtime may refuse a category: an immutable flag after an attach, for example. The others go
                    // on.
                    if let Err(error) = cx.add_events(*events) {
                        report!("logger: {category} is not available: {error}");
                    } else if options.is_selection
                        && let Some(reason) = no_events(category)
                    {
                        report!("logger: {category} is not available: {reason}");
                    }
                }
                Ok(Self { options, threads: Mutex::default(), threads_seen: AtomicUsize::new(0) })
            }

            fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
                self.log(cx, "thread", '*', format!("{thread:x} destroyed"));
                self.threads.lock(cx).remove(&Some(thread));
            }

            fn jit_inlining(&self, cx: &mut InCallback<'_>, caller: FunctionId, callee: FunctionId) -> bool {
                let [caller, callee] = [caller, callee].map(|id| cx.names().function(id));
                self.log(cx, "inlining", '*', format!("{callee} into {caller}"));
                true
            }

            fn objects_allocated_by_class(&self, cx: &InNoGc<'_>, counts: ClassCounts<'_>) {
                for (class, count) in counts.iter() {
                    self.log(cx, "allocation", '*', format!("{count} of {}", cx.names().class(class)));
                }
            }

            fn exception_catcher_enter(
                &self,
                cx: &InNoGc<'_>,
                function: FunctionId,
                thrown: Option<ObjectId<'_>>,
            ) {
                // The unwinding of the catching function has no end of its own.
                self.log(cx, "exception", '-', "unwind".into());
                let class = thrown.map_or("exception".into(), |object| class_of(cx, object));
                // A catch has no `+`: where an exception leaves the block, the runtime reports no end.
                self.log(cx, "exception", '*', format!("catch {class} in {}", cx.names().function(function)));
            }

            fn unmanaged_to_managed_transition(
                &self,
                cx: &mut InCallback<'_>,
                id: Option<FunctionId>,
                reason: TransitionReason,
            ) {
                self.log_transition(cx, id, reason, "to");
            }

            fn managed_to_unmanaged_transition(
                &self,
                cx: &mut InCallback<'_>,
                id: Option<FunctionId>,
                reason: TransitionReason,
            ) {
                self.log_transition(cx, id, reason, "from");
            }

            $($(fn $name(&self, $cx: $context $(, $arg: $ty)*) {
                let event = format!($($say),*);
                self.log($cx, $category, $kind, event);
            })*)*
        }
    };
}

logger! {
    in (&mut InCallback<'_>) {
        app_domain_creation_started(cx, id: Inert<AppDomainId>) => "appdomain", '+', "create {id:x}";
        app_domain_creation_finished(cx, id: AppDomainId, status: Result<()>)
            => "appdomain", '-', "create {}{}", domain(cx, id), outcome(status);
        app_domain_shutdown_started(cx, id: AppDomainId) => "appdomain", '+', "shut down {}", domain(cx, id);
        app_domain_shutdown_finished(cx, id: Inert<AppDomainId>, status: Result<()>)
            => "appdomain", '-', "shut down {id:x}{}", outcome(status);
        assembly_load_started(cx, id: Inert<AssemblyId>) => "assembly", '+', "load {id:x}";
        assembly_load_finished(cx, id: AssemblyId, status: Result<()>)
            => "assembly", '-', "load {}{}", cx.names().assembly(id), outcome(status);
        assembly_unload_started(cx, id: AssemblyId) => "assembly", '+', "unload {}", cx.names().assembly(id);
        assembly_unload_finished(cx, id: Inert<AssemblyId>, status: Result<()>)
            => "assembly", '-', "unload {id:x}{}", outcome(status);
        module_load_started(cx, id: Inert<ModuleId>) => "module", '+', "load {id:x}";
        module_load_finished(cx, id: ModuleId, status: Result<()>)
            => "module", '-', "load {}{}", cx.names().module(id), outcome(status);
        module_unload_started(cx, id: ModuleId) => "module", '+', "unload {}", cx.names().module(id);
        module_unload_finished(cx, id: Inert<ModuleId>, status: Result<()>)
            => "module", '-', "unload {id:x}{}", outcome(status);
        module_attached_to_assembly(cx, id: ModuleId, to: AssemblyId)
            => "module", '*', "{} is in {}", cx.names().module(id), cx.names().assembly(to);
        class_load_started(cx, id: Inert<ClassId>) => "class", '+', "load {id:x}";
        class_load_finished(cx, id: ClassId, status: Result<()>)
            => "class", '-', "load {}{}", cx.names().class(id), outcome(status);
        class_unload_started(cx, id: ClassId) => "class", '+', "unload {}", cx.names().class(id);
        class_unload_finished(cx, id: Inert<ClassId>, status: Result<()>)
            => "class", '-', "unload {id:x}{}", outcome(status);
        dynamic_method_unloaded(cx, id: Inert<FunctionId>) => "unload", '*', "dynamic method {id:x}";
        jit_compilation_started(cx, id: FunctionId, _safe: bool) => "jit", '+', "{}", cx.names().function(id);
        jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool)
            => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        dynamic_method_jit_compilation_started(cx, id: FunctionId, _safe: bool, _il: &[u8])
            => "jit", '+', "{}", cx.names().function(id);
        dynamic_method_jit_compilation_finished(cx, id: FunctionId, status: Result<()>, _safe: bool)
            => "jit", '-', "{}{}", cx.names().function(id), outcome(status);
        jit_cached_function_search_finished(cx, id: FunctionId, result: JitCache)
            => "search", '*', "{} {result}", cx.names().function(id);
        thread_created(cx, id: ThreadId) => "thread", '*', "{id:x} created";
        thread_name_changed(cx, id: Inert<ThreadId>, name: &str) => "thread", '*', "{id:x} is called {name}";
        exception_search_function_enter(cx, id: FunctionId) => "exception", '+', "search {}", cx.names().function(id);
        exception_search_function_leave(cx) => "exception", '-', "search";
        exception_search_filter_enter(cx, id: FunctionId) => "exception", '+', "filter {}", cx.names().function(id);
        exception_search_filter_leave(cx) => "exception", '-', "filter";
        exception_search_catcher_found(cx, id: FunctionId)
            => "exception", '*', "will be caught in {}", cx.names().function(id);
        exception_catcher_leave(cx) => "exception", '*', "end of catch";
        com_classic_vtable_created(cx, id: ClassId, _iid: Option<&Guid>, at: usize, slots: u32)
            => "com", '*', "{} slots of {} at {at:x}", slots, cx.names().class(id);
    }
    in (&InNoGc<'_>) {
        function_unload_started(cx, id: FunctionId) => "unload", '*', "{}", cx.names().function(id);
        thread_assigned_to_os_thread(cx, id: ThreadId, os_id: u32)
            => "thread", '*', "{id:x} runs on system thread {os_id}";
        runtime_suspend_started(cx, reason: SuspendReason) => "suspension", '+', "for {reason}";
        runtime_suspend_finished(cx) => "suspension", '*', "all threads stopped";
        runtime_suspend_aborted(cx) => "suspension", '-', "aborted";
        runtime_resume_finished(cx) => "suspension", '-', "resumed";
        // These two are a pair because the category sets MONITOR_GC; with HIGH_BASIC_GC alone they would not be.
        garbage_collection_started(cx, generations: Generations, reason: GcReason)
            => "gc", '+', "{generations}, {reason}";
        garbage_collection_finished(cx) => "gc", '-', "done";
        exception_thrown(cx, thrown: ObjectId<'_>) => "exception", '*', "{} thrown", class_of(cx, thrown);
        exception_unwind_function_enter(cx, id: FunctionId) => "exception", '+', "unwind {}", cx.names().function(id);
        exception_unwind_function_leave(cx) => "exception", '-', "unwind";
        exception_unwind_finally_enter(cx, id: FunctionId) => "exception", '+', "finally {}", cx.names().function(id);
        exception_unwind_finally_leave(cx) => "exception", '-', "finally";
    }
}
