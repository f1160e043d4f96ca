//! A profiler that knows by itself which classes and functions are alive, and asks about all of them: for
//! `live/liveness.rs`.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corprof::args::FunctionControl;
use corprof::id::ReJitId;
use corprof::metadata::MethodDef;
use corprof::prelude::*;
use corprof::sys;

/// A collectible module in one of its lives: the runtime uses addresses again.
type Life = (ModuleId, u64);

#[derive(Default)]
struct Seen {
    /// Collectible modules that are loaded.
    modules: HashMap<ModuleId, u64>,
    loads: u64,
    /// With the collectible modules that each needs, and its name.
    classes: HashMap<ClassId, (Vec<Life>, String)>,
    functions: HashMap<FunctionId, (Vec<Life>, String)>,
    /// Functions whose needs only the runtime knows.
    shared: HashMap<FunctionId, String>,
    /// A method of the application's to compile once more: then the runtime looks for the body of each version that it
    /// finds.
    rejit: Option<(ModuleId, MethodDef)>,
    has_rejit: bool,
}

impl Seen {
    fn is_alive(&self, lives: &[Life]) -> bool {
        lives.iter().all(|(module, life)| self.modules.get(module) == Some(life))
    }
}

#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    refused_alive: AtomicU64,
    refused_dead: AtomicU64,
    answered_dead: AtomicU64,
    /// Classes whose name was another one when they went.
    misnamed: AtomicU64,
    /// Classes whose unload was reported, arrays among them.
    unloaded: AtomicU64,
    arrays: AtomicU64,
    /// Addresses in code of functions that are alive, looked up.
    found: AtomicU64,
    shared: AtomicU64,
    shared_refused: AtomicU64,
    lost: AtomicU64,
    versions: AtomicU64,
    /// Among them, those with a body that was asked for.
    anew: AtomicU64,
    frozen: AtomicU64,
    refused_frozen: AtomicU64,
}

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E0302", no_export)]
struct Liveness {
    seen: Arc<Mutex<Seen>>,
    counts: Arc<Counts>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The modules that a class needs.
fn modules_of_class(cx: &InNoGc<'_>, class: ClassId, modules: &mut Vec<ModuleId>) -> Result<()> {
    if let Some(array) = cx.array_class(class)? {
        return array.element.map_or(Ok(()), |element| modules_of_class(cx, element, modules));
    }
    let info = cx.class_info(class)?;
    modules.push(info.module);
    info.type_args.into_iter().try_for_each(|class| modules_of_class(cx, class, modules))
}

/// None if the runtime does not say over which types it was made.
fn modules_of_function(cx: &InNoGc<'_>, function: FunctionId) -> Result<Option<Vec<ModuleId>>> {
    let info = cx.function_info(function)?;
    if info.class.is_none() {
        return Ok(None);
    }
    let mut modules = vec![info.module];
    info.class.into_iter().chain(info.type_args).try_for_each(|class| modules_of_class(cx, class, &mut modules))?;
    Ok(Some(modules))
}

fn report(what: &str, error: &corprof::Error) {
    eprintln!("refused: {what}: {error}");
}

impl Counts {
    fn count<T>(&self, is_alive: bool, what: &str, answer: Result<T>) {
        match (is_alive, answer) {
            (true, Ok(_)) => self.answered.fetch_add(1, Relaxed),
            (false, Ok(_)) => {
                eprintln!("answered about a dead one: {what}");
                self.answered_dead.fetch_add(1, Relaxed)
            }
            (false, Err(_)) => self.refused_dead.fetch_add(1, Relaxed),
            (true, Err(error)) if error.code() == sys::COR_E_OBJECTDISPOSED => {
                report(what, &error);
                self.refused_alive.fetch_add(1, Relaxed)
            }
            (true, Err(_)) => self.answered.fetch_add(1, Relaxed),
        };
    }
}

impl Liveness {
    /// The subject of the call is alive, as a callback is about it.
    fn lives(&self, what: &str, modules: Result<Vec<ModuleId>>) -> Option<Vec<Life>> {
        let modules = match modules {
            Ok(modules) => modules,
            Err(error) => {
                if error.code() == sys::COR_E_OBJECTDISPOSED {
                    report(what, &error);
                    self.counts.refused_alive.fetch_add(1, Relaxed);
                }
                return None;
            }
        };
        let seen = lock(&self.seen);
        let lives: HashSet<Life> =
            modules.iter().filter_map(|module| Some((*module, *seen.modules.get(module)?))).collect();
        Some(lives.into_iter().collect())
    }

    /// Calls about the items of the runtime's lists.
    fn list(&self, cx: &mut InCallback<'_>) {
        match cx.jitted_function_versions() {
            Ok(versions) => {
                let anew = versions.iter().filter(|version| version.rejit != ReJitId(0)).count();
                self.counts.anew.fetch_max(anew as u64, Relaxed);
                self.counts.versions.fetch_max(versions.len() as u64, Relaxed);
            }
            Err(error) => report("jitted_function_versions", &error),
        }
        match cx.enumerate_non_gc_objects() {
            Ok(objects) => _ = self.counts.frozen.fetch_max(objects.len() as u64, Relaxed),
            Err(_) => _ = self.counts.refused_frozen.fetch_add(1, Relaxed),
        }
    }
}

#[callbacks]
impl Callbacks for Liveness {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let seen = Arc::clone(&profiler.seen);
        let counts = Arc::clone(&profiler.counts);
        // Addresses in compiled code, live or not, and all other kinds.
        cx.spawn_profiler_thread("asker", move |cx| {
            while cx.wait(Duration::from_millis(1)).is_continue() {
                if let Some(method) = lock(&seen).rejit.take() {
                    cx.request_rejit(&[method]).unwrap();
                }
                let functions: Vec<_> = {
                    let seen = lock(&seen);
                    seen.functions.keys().chain(seen.shared.keys()).copied().collect()
                };
                for function in functions {
                    if cx.is_stopping() {
                        break;
                    }
                    let _ = cx.function_info(function);
                    let _ = cx.names().function(function);
                    let Ok(code) = cx.code_ranges(function) else { continue };
                    for range in code {
                        let Some(address) = cx.code_address(range.start) else { continue };
                        let _ = cx.function_from_ip(address);
                        let _ = cx.function_version_from_ip(address);
                    }
                }
                let classes: Vec<_> = lock(&seen).classes.keys().copied().collect();
                for class in classes {
                    let _ = cx.class_info(class);
                    let _ = cx.names().class(class);
                }
                let _ = counts.answered.load(Relaxed);
            }
        })?;
        Ok(profiler)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, status: Result<()>) {
        let Ok(info) = cx.module_info(module) else { return };
        if status.is_ok() && info.flags.contains(sys::COR_PRF_MODULE_COLLECTIBLE) {
            let mut seen = lock(&self.seen);
            seen.loads += 1;
            let life = seen.loads;
            seen.modules.insert(module, life);
        }
    }

    fn module_unload_started(&self, _cx: &mut InCallback<'_>, module: ModuleId) {
        lock(&self.seen).modules.remove(&module);
    }

    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
        if status.is_err() {
            return;
        }
        let name = cx.names().class(class).to_string();
        let mut modules = Vec::new();
        let modules = modules_of_class(cx, class, &mut modules).map(|()| modules);
        if let Some(lives) = self.lives(&name, modules) {
            lock(&self.seen).classes.insert(class, (lives, name));
        }
    }

    fn class_unload_started(&self, cx: &mut InCallback<'_>, class: ClassId) {
        self.counts.unloaded.fetch_add(1, Relaxed);
        let answer =
            cx.array_class(class).map(|array| _ = self.counts.arrays.fetch_add(array.is_some().into(), Relaxed));
        self.counts.count(true, "a class that goes", answer);
        self.counts.count(true, "a class that goes", cx.class_info(class));
        let known = lock(&self.seen).classes.get(&class).map(|(_, name)| name.clone());
        let name = cx.names().class(class).to_string();
        if known.as_ref().is_some_and(|known| *known != name) || name.contains("COR_E_OBJECTDISPOSED") {
            eprintln!("misnamed: {name}, once {known:?}");
            self.counts.misnamed.fetch_add(1, Relaxed);
        }
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
        let name = cx.names().function(function).to_string();
        let modules = match modules_of_function(cx, function) {
            Ok(None) => {
                lock(&self.seen).shared.insert(function, name);
                return;
            }
            Ok(Some(modules)) => Ok(modules),
            Err(error) => Err(error),
        };
        let Some(lives) = self.lives(&name, modules) else { return };
        if name.contains("Program.Run(") {
            let info = cx.function_info(function).unwrap();
            let mut seen = lock(&self.seen);
            if !std::mem::replace(&mut seen.has_rejit, true) {
                seen.rejit = Some((info.module, info.token));
            }
        }
        // While it is compiled it is alive.
        match cx.code_ranges(function) {
            Ok(ranges) => {
                for range in ranges {
                    // The code of a method that is compiled again is the precompiled one until then.
                    let Some(address) = cx.code_address(range.start) else { continue };
                    let found = cx.function_version_from_ip(address);
                    let plain = cx.function_from_ip(address);
                    if plain == Ok(Some(function)) && matches!(found, Ok(Some(found)) if found.function == function) {
                        self.counts.found.fetch_add(1, Relaxed);
                    } else {
                        eprintln!("lost: {name}: {plain:?} {found:?}");
                        self.counts.lost.fetch_add(1, Relaxed);
                    }
                }
            }
            Err(error) => report(&name, &error),
        }
        let count = {
            let mut seen = lock(&self.seen);
            seen.functions.insert(function, (lives, name));
            seen.functions.len()
        };
        if count % 16 == 0 {
            self.list(cx);
        }
    }

    // Turns ENABLE_REJIT on; the body stays as it is.
    fn get_rejit_parameters(
        &self,
        _cx: &mut InCallback<'_>,
        _module: ModuleId,
        _method: MethodDef,
        _control: FunctionControl<'_>,
    ) {
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let seen = lock(&self.seen);
        for (&class, (lives, name)) in &seen.classes {
            let is_alive = seen.is_alive(lives);
            self.counts.count(is_alive, name, cx.array_class(class));
            self.counts.count(is_alive, name, cx.class_info(class));
        }
        for (&function, (lives, name)) in &seen.functions {
            self.counts.count(seen.is_alive(lives), name, cx.function_info(function));
        }
        for (&function, name) in &seen.shared {
            match cx.function_info(function) {
                Ok(_) => self.counts.shared.fetch_add(1, Relaxed),
                Err(error) => {
                    report(&format!("shared {name}"), &error);
                    self.counts.shared_refused.fetch_add(1, Relaxed)
                }
            };
        }
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let counts = &*self.counts;
        eprintln!(
            "answered={} refused_alive={} refused_dead={} answered_dead={} misnamed={} unloaded={} arrays={} found={} \
             lost={} versions={} anew={} frozen={} refused_frozen={} shared={} shared_refused={}",
            count(&counts.answered),
            count(&counts.refused_alive),
            count(&counts.refused_dead),
            count(&counts.answered_dead),
            count(&counts.misnamed),
            count(&counts.unloaded),
            count(&counts.arrays),
            count(&counts.found),
            count(&counts.lost),
            count(&counts.versions),
            count(&counts.anew),
            count(&counts.frozen),
            count(&counts.refused_frozen),
            count(&counts.shared),
            count(&counts.shared_refused),
        );
    }
}

corprof::export!(Liveness);
