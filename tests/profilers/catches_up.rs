//! Attaches and catches up, and checks the reports at the end against what the runtime lists then: for
//! `live/catch_up.rs`.
//!
//! The client data `tiers` says that functions are compiled several times.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1321")]
struct CatchesUp {
    reported: Mutex<Reported>,
    has_tiers: AtomicBool,
    is_complete: AtomicBool,
    by_catch_up: AtomicUsize,
    by_events: AtomicUsize,
}

/// What is there, as far as it was reported.
#[derive(Default)]
struct Reported {
    things: BTreeSet<(&'static str, usize)>,
    /// Where functions are from: their ids are reused when their module is gone.
    functions: BTreeMap<usize, Option<ModuleId>>,
    /// All that were reported.
    ever: BTreeSet<usize>,
    wrong: Vec<String>,
}

impl CatchesUp {
    fn reported<R>(&self, act: impl FnOnce(&mut Reported) -> R) -> R {
        act(&mut self.reported.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// The catch-up is made on a thread of the runtime's own.
    fn count(&self, cx: &InNoGc<'_>) {
        let is_native = matches!(cx.current_thread(), Ok(None));
        if is_native && !self.is_complete.load(Relaxed) { &self.by_catch_up } else { &self.by_events }
            .fetch_add(1, Relaxed);
    }

    fn begins(&self, cx: &InNoGc<'_>, what: &'static str, id: usize) {
        self.count(cx);
        self.reported(|reported| {
            if !reported.things.insert((what, id)) {
                reported.wrong.push(format!("{what} {id:#x} again"));
            }
        });
    }

    fn ends(&self, what: &'static str, id: usize) {
        self.reported(|reported| _ = reported.things.remove(&(what, id)));
    }
}

#[callbacks]
impl Callbacks for CatchesUp {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        profiler.has_tiers.store(data == b"tiers", Relaxed);
        cx.catch_up();
        // The runtime may list threads here, on its own thread.
        let threads = cx.enum_threads()?.len();
        eprintln!("catches_up| threads at the attach: {threads}");
        Ok(profiler)
    }

    fn profiler_attach_complete(&self, _cx: &mut InCallback<'_>) {
        self.is_complete.store(true, Relaxed);
        eprintln!("catches_up| complete");
    }

    fn app_domain_creation_finished(&self, cx: &mut InCallback<'_>, domain: AppDomainId, _status: Result<()>) {
        self.begins(cx, "domain", domain.as_raw());
    }

    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, status: Result<()>) {
        if status.is_ok() {
            self.begins(cx, "assembly", assembly.as_raw());
        }
    }

    fn assembly_unload_started(&self, _cx: &mut InCallback<'_>, assembly: AssemblyId) {
        self.ends("assembly", assembly.as_raw());
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        if status.is_ok() {
            self.begins(cx, "module", module.as_raw());
        }
    }

    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, _assembly: AssemblyId) {
        self.begins(cx, "attached", module.as_raw());
    }

    fn module_unload_started(&self, _cx: &mut InCallback<'_>, module: ModuleId) {
        self.ends("module", module.as_raw());
        self.ends("attached", module.as_raw());
        // Shared code says neither its class nor, before .NET 10, all its modules, so any may have gone.
        self.reported(|reported| reported.functions.retain(|_, of| of.is_some_and(|of| of != module)));
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.begins(cx, "thread", thread.as_raw());
    }

    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, thread: ThreadId, _os_thread: u32) {
        self.begins(cx, "assigned", thread.as_raw());
    }

    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, thread: ThreadId) {
        self.ends("thread", thread.as_raw());
        self.ends("assigned", thread.as_raw());
    }

    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        if status.is_err() {
            return;
        }
        self.count(cx);
        // Code over types that can be unloaded has no class here, or goes with another module than its own.
        let of = cx.function_info(function).ok();
        let of = of.filter(|of| of.class.is_some() && of.type_args.is_empty()).map(|of| of.module);
        let has_tiers = self.has_tiers.load(Relaxed);
        self.reported(|reported| {
            reported.ever.insert(function.as_raw());
            let is_again = reported.functions.insert(function.as_raw(), of).flatten().is_some();
            if is_again && of.is_some() && !has_tiers {
                reported.wrong.push(format!("function {:#x} again", function.as_raw()));
            }
        });
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let listed = [
            ("module", cx.enum_modules().map(|ids| ids.into_iter().map(ModuleId::as_raw).collect::<Vec<_>>())),
            ("thread", cx.enum_threads().map(|ids| ids.into_iter().map(ThreadId::as_raw).collect())),
            ("function", cx.jitted_functions().map(|ids| ids.into_iter().map(FunctionId::as_raw).collect())),
        ];
        self.reported(|reported| {
            for (what, ids) in listed {
                let ids = match ids {
                    Ok(ids) => ids,
                    Err(error) => {
                        reported.wrong.push(format!("{what}s are not listed: {error}"));
                        continue;
                    }
                };
                let is_told = |id| reported.things.contains(&(what, id)) || reported.ever.contains(&id);
                let missing: Vec<_> = ids.iter().copied().filter(|&id| !is_told(id)).collect();
                eprintln!("catches_up| {} {what}s are listed", ids.len());
                if !missing.is_empty() {
                    reported.wrong.push(format!("{what}s that were not reported: {missing:x?}"));
                }
            }
            let count = |what: &str| reported.things.iter().filter(|(other, _)| *other == what).count();
            for what in ["domain", "assembly", "module", "attached", "thread", "assigned"] {
                eprintln!("catches_up| {what}: {}", count(what));
            }
            reported.wrong.iter().for_each(|wrong| eprintln!("catches_up| WRONG: {wrong}"));
        });
        let caught_up = self.by_catch_up.load(Relaxed);
        let events = self.by_events.load(Relaxed);
        eprintln!("catches_up| reported: {caught_up} by the catch-up, {events} by events");
    }
}
