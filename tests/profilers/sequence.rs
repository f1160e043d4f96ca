//! Records its callbacks about the program `Sequence`, by name, for `live/sequence.rs`: that test loads it into real
//! runtimes and into the fake CLR, and compares.
//!
//! Everything that is not the program's own (its modules, classes, functions, objects, the thread that it names, and
//! the one collection in its method `Collects`) is left out: it differs from runtime to runtime.

#![allow(clippy::unwrap_used, reason = "that is how it fails")]

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard};

use corprof::args::{ClassCounts, GcReason, Generations, MovedRanges, Roots, SurvivingRanges, SuspendReason};
use corprof::id::{HandleId, Inert};
use corprof::prelude::*;

/// The modules that are watched: the program, and the one that it loads and unloads.
const MODULES: [&str; 2] = ["Sequence.dll", "Hello.dll"];

#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E2001", no_export)]
pub(crate) struct Sequence(Mutex<State>);

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    /// The watched things by identifier: modules, assemblies, classes, and threads with a known name.
    names: HashMap<usize, String>,
    /// The objects of watched classes, by address.
    objects: BTreeMap<usize, String>,
    /// Where they were before the collection.
    objects_before: BTreeMap<usize, String>,
    /// How many objects of a class there have been.
    counts: HashMap<String, u32>,
    handles: HashMap<usize, String>,
    /// Functions that exceptions have entered and not left, by thread and kind.
    entered: HashMap<(usize, &'static str), Vec<Option<String>>>,
    collects: bool,
}

struct Line {
    /// The managed thread that the callback came on.
    on: usize,
    event: &'static str,
    subject: Subject,
}

enum Subject {
    Known(String),
    /// By this identifier; a later callback gives the name.
    Unknown(usize),
}

fn here(info: &Info) -> usize {
    info.current_thread().unwrap().map_or(0, ThreadId::as_raw)
}

impl State {
    fn push(&mut self, info: &Info, event: &'static str, subject: Subject) {
        self.lines.push(Line { on: here(info), event, subject });
    }

    fn known(&mut self, info: &Info, event: &'static str, name: impl Into<String>) {
        self.push(info, event, Subject::Known(name.into()));
    }

    /// An event about a thing that may have a name already.
    fn of(&mut self, info: &Info, event: &'static str, id: usize) {
        let subject = self.names.get(&id).cloned().map_or(Subject::Unknown(id), Subject::Known);
        self.push(info, event, subject);
    }

    /// An event about a thing of earlier events.
    fn about(&mut self, info: &Info, event: &'static str, id: usize) {
        if let Some(name) = self.names.get(&id).cloned() {
            self.known(info, event, name);
        }
    }

    /// The name for an identifier of earlier lines; or none, and they are left out.
    fn name(&mut self, id: usize, name: Option<String>) {
        let is_about = |line: &Line| matches!(line.subject, Subject::Unknown(unknown) if unknown == id);
        match name {
            Some(name) => {
                for line in self.lines.iter_mut().filter(|line| is_about(line)) {
                    line.subject = Subject::Known(name.clone());
                }
                self.names.insert(id, name);
            }
            None => self.lines.retain(|line| !is_about(line)),
        }
    }

    /// A function with exceptions in it: entered, …
    fn enter(&mut self, info: &Info, kind: &'static str, event: &'static str, function: Option<String>) {
        self.entered.entry((here(info), kind)).or_default().push(function.clone());
        if let Some(function) = function {
            self.known(info, event, function);
        }
    }

    /// … and left.
    fn leave(&mut self, info: &Info, kind: &'static str, event: &'static str) {
        let entered = self.entered.entry((here(info), kind)).or_default();
        if let Some(function) = entered.pop().unwrap() {
            self.known(info, event, function);
        }
    }

    /// An event of the collection.
    fn of_collection(&mut self, info: &Info, event: &'static str, subject: impl Into<String>) {
        let subject = subject.into();
        // Roots and ranges come in as many parts as the runtime likes.
        let is_same =
            |line: &Line| line.event == event && matches!(&line.subject, Subject::Known(of) if *of == subject);
        if self.collects && !self.lines.last().is_some_and(is_same) {
            self.known(info, event, subject);
        }
    }

    /// Watched objects among those at these addresses.
    fn watched(objects: &BTreeMap<usize, String>, addresses: impl Iterator<Item = usize>) -> Vec<String> {
        let mut names: Vec<String> = addresses.filter_map(|address| objects.get(&address).cloned()).collect();
        names.sort();
        names
    }

    fn of_objects(&mut self, info: &Info, event: &'static str, objects: Vec<String>) {
        if !objects.is_empty() {
            self.of_collection(info, event, objects.join(", "));
        }
    }

    fn moved(&mut self, info: &Info, event: &'static str, ranges: MovedRanges<'_>) {
        let mut told = Vec::new();
        for range in ranges.iter() {
            let inside = self.objects_before.range(range.old_start..range.old_start + range.length);
            let inside: Vec<_> = inside.map(|(&address, name)| (address, name.clone())).collect();
            for (old, name) in inside {
                let new = old - range.old_start + range.new_start;
                told.push(format!("{name} {}", if new == old { "stays" } else { "moves" }));
                self.objects.insert(new, name);
            }
        }
        self.of_objects(info, event, told);
    }

    fn survived(&mut self, info: &Info, event: &'static str, ranges: SurvivingRanges<'_>) {
        let mut told = Vec::new();
        for range in ranges.iter() {
            let inside = self.objects_before.range(range.start..range.start + range.length);
            let inside: Vec<_> = inside.map(|(&address, name)| (address, name.clone())).collect();
            for (address, name) in inside {
                told.push(name.clone());
                self.objects.insert(address, name);
            }
        }
        self.of_objects(info, event, told);
    }
}

impl Sequence {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The record by the name of the callback's thread: the order of callbacks on different threads is random.
    pub(crate) fn heard(&self) -> String {
        let state = self.state();
        let mut by_thread: BTreeMap<&str, String> = BTreeMap::new();
        for Line { on, event, subject } in &state.lines {
            if let Subject::Known(subject) = subject {
                let thread = state.names.get(on).map_or("another", String::as_str);
                let text = by_thread.entry(thread).or_default();
                text.push_str(&format!("{thread}: {event} {subject}\n"));
            }
        }
        by_thread.into_values().collect()
    }

    fn is_watched(cx: &InNoGc<'_>, module: ModuleId) -> bool {
        cx.module_info(module).is_ok_and(|info| MODULES.iter().any(|name| info.path.ends_with(name)))
    }

    fn class(cx: &InNoGc<'_>, class: ClassId) -> Option<String> {
        if let Ok(Some(array)) = cx.array_class(class) {
            Self::class(cx, array.element?)?;
        } else if !cx.class_info(class).is_ok_and(|info| Self::is_watched(cx, info.module)) {
            return None;
        }
        Some(cx.names().class(class).to_string())
    }

    fn function(cx: &InNoGc<'_>, function: FunctionId) -> Option<String> {
        let is_watched = cx.function_info(function).is_ok_and(|info| Self::is_watched(cx, info.module));
        is_watched.then(|| cx.names().function(function).to_string())
    }
}

#[callbacks]
impl Callbacks for Sequence {
    fn assembly_load_started(&self, cx: &mut InCallback<'_>, assembly: Inert<AssemblyId>) {
        self.state().of(cx, "AssemblyLoadStarted", raw(&assembly));
    }
    fn assembly_load_finished(&self, cx: &mut InCallback<'_>, assembly: AssemblyId, _status: Result<()>) {
        let name = cx.names().assembly(assembly).to_string();
        let is_watched = MODULES.iter().any(|module| module.strip_suffix(".dll") == Some(&name));
        let mut state = self.state();
        state.of(cx, "AssemblyLoadFinished", assembly.as_raw());
        state.name(assembly.as_raw(), is_watched.then_some(name));
    }
    fn assembly_unload_started(&self, cx: &mut InCallback<'_>, assembly: AssemblyId) {
        self.state().about(cx, "AssemblyUnloadStarted", assembly.as_raw());
    }
    fn assembly_unload_finished(&self, cx: &mut InCallback<'_>, assembly: Inert<AssemblyId>, _status: Result<()>) {
        let mut state = self.state();
        state.about(cx, "AssemblyUnloadFinished", raw(&assembly));
        state.names.remove(&raw(&assembly));
    }

    fn module_load_started(&self, cx: &mut InCallback<'_>, module: Inert<ModuleId>) {
        self.state().of(cx, "ModuleLoadStarted", raw(&module));
    }
    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        let name = Self::is_watched(cx, module).then(|| cx.names().module(module).to_string());
        let mut state = self.state();
        state.of(cx, "ModuleLoadFinished", module.as_raw());
        state.name(module.as_raw(), name);
    }
    fn module_attached_to_assembly(&self, cx: &mut InCallback<'_>, module: ModuleId, _assembly: AssemblyId) {
        self.state().about(cx, "ModuleAttachedToAssembly", module.as_raw());
    }
    fn module_unload_started(&self, cx: &mut InCallback<'_>, module: ModuleId) {
        self.state().about(cx, "ModuleUnloadStarted", module.as_raw());
    }
    fn module_unload_finished(&self, cx: &mut InCallback<'_>, module: Inert<ModuleId>, _status: Result<()>) {
        let mut state = self.state();
        state.about(cx, "ModuleUnloadFinished", raw(&module));
        state.names.remove(&raw(&module));
    }

    fn class_load_started(&self, cx: &mut InCallback<'_>, class: Inert<ClassId>) {
        self.state().of(cx, "ClassLoadStarted", raw(&class));
    }
    fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
        let name = Self::class(cx, class);
        let mut state = self.state();
        state.of(cx, "ClassLoadFinished", class.as_raw());
        state.name(class.as_raw(), name);
    }
    fn class_unload_started(&self, cx: &mut InCallback<'_>, class: ClassId) {
        self.state().about(cx, "ClassUnloadStarted", class.as_raw());
    }
    fn class_unload_finished(&self, cx: &mut InCallback<'_>, class: Inert<ClassId>, _status: Result<()>) {
        let mut state = self.state();
        state.about(cx, "ClassUnloadFinished", raw(&class));
        state.names.remove(&raw(&class));
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
        let Some(name) = Self::function(cx, function) else { return };
        let mut state = self.state();
        state.collects = false;
        if name.contains("Main(") {
            let main = here(cx);
            if !state.names.contains_key(&main) {
                state.name(main, Some("main".to_owned()));
            }
        }
        state.known(cx, "JITCompilationStarted", name);
    }
    fn jit_compilation_finished(
        &self,
        cx: &mut InCallback<'_>,
        function: FunctionId,
        status: Result<()>,
        _is_safe_to_block: bool,
    ) {
        status.unwrap();
        let Some(name) = Self::function(cx, function) else { return };
        let mut state = self.state();
        state.collects = name.contains(".Collects(");
        state.known(cx, "JITCompilationFinished", name);
    }
    fn jit_inlining(&self, cx: &mut InCallback<'_>, caller: FunctionId, callee: FunctionId) -> bool {
        if let (Some(caller), Some(callee)) = (Self::function(cx, caller), Self::function(cx, callee)) {
            self.state().known(cx, "JITInlining", format!("{callee} into {caller}"));
        }
        true
    }

    fn thread_created(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.state().of(cx, "ThreadCreated", thread.as_raw());
    }
    fn thread_assigned_to_os_thread(&self, cx: &InNoGc<'_>, thread: ThreadId, _os_id: u32) {
        self.state().of(cx, "ThreadAssignedToOSThread", thread.as_raw());
    }
    fn thread_name_changed(&self, cx: &mut InCallback<'_>, thread: corprof::id::Inert<ThreadId>, name: &str) {
        let mut state = self.state();
        state.of(cx, "ThreadNameChanged", thread.as_raw());
        if name == "worker" {
            state.name(thread.as_raw(), Some(name.to_owned()));
        }
    }
    fn thread_destroyed(&self, cx: &mut InCallback<'_>, thread: ThreadId) {
        self.state().about(cx, "ThreadDestroyed", thread.as_raw());
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        let Some(name) = Self::class(cx, class) else { return };
        let mut state = self.state();
        // No callback reports the classes of arrays.
        state.names.insert(class.as_raw(), name.clone());
        let count = state.counts.entry(name.clone()).or_default();
        *count += 1;
        let name = format!("{name} {count}");
        state.objects.insert(object.as_raw(), name.clone());
        state.known(cx, "ObjectAllocated", name);
    }
    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let mut state = self.state();
        if let Some(name) = state.objects.get(&thrown.as_raw()).cloned() {
            state.known(cx, "ExceptionThrown", name);
        }
    }
    fn exception_search_function_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        let function = Self::function(cx, function);
        self.state().enter(cx, "search", "ExceptionSearchFunctionEnter", function);
    }
    fn exception_search_function_leave(&self, cx: &mut InCallback<'_>) {
        self.state().leave(cx, "search", "ExceptionSearchFunctionLeave");
    }
    fn exception_search_filter_enter(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        let function = Self::function(cx, function);
        self.state().enter(cx, "filter", "ExceptionSearchFilterEnter", function);
    }
    fn exception_search_filter_leave(&self, cx: &mut InCallback<'_>) {
        self.state().leave(cx, "filter", "ExceptionSearchFilterLeave");
    }
    fn exception_search_catcher_found(&self, cx: &mut InCallback<'_>, function: FunctionId) {
        if let Some(function) = Self::function(cx, function) {
            self.state().known(cx, "ExceptionSearchCatcherFound", function);
        }
    }
    fn exception_unwind_function_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        let function = Self::function(cx, function);
        self.state().enter(cx, "unwind", "ExceptionUnwindFunctionEnter", function);
    }
    fn exception_unwind_function_leave(&self, cx: &InNoGc<'_>) {
        self.state().leave(cx, "unwind", "ExceptionUnwindFunctionLeave");
    }
    fn exception_unwind_finally_enter(&self, cx: &InNoGc<'_>, function: FunctionId) {
        let function = Self::function(cx, function);
        self.state().enter(cx, "finally", "ExceptionUnwindFinallyEnter", function);
    }
    fn exception_unwind_finally_leave(&self, cx: &InNoGc<'_>) {
        self.state().leave(cx, "finally", "ExceptionUnwindFinallyLeave");
    }
    fn exception_catcher_enter(&self, cx: &InNoGc<'_>, function: FunctionId, _thrown: Option<ObjectId<'_>>) {
        let function = Self::function(cx, function);
        self.state().enter(cx, "catcher", "ExceptionCatcherEnter", function);
    }
    fn exception_catcher_leave(&self, cx: &mut InCallback<'_>) {
        self.state().leave(cx, "catcher", "ExceptionCatcherLeave");
    }

    fn handle_created(&self, cx: &InNoGc<'_>, handle: HandleId, object: Option<ObjectId<'_>>) {
        let mut state = self.state();
        let Some(name) = object.and_then(|object| state.objects.get(&object.as_raw()).cloned()) else { return };
        state.handles.insert(handle.as_raw(), name.clone());
        state.known(cx, "HandleCreated", name);
    }
    fn handle_destroyed(&self, cx: &InNoGc<'_>, handle: HandleId) {
        let mut state = self.state();
        if let Some(name) = state.handles.remove(&handle.as_raw()) {
            state.known(cx, "HandleDestroyed", name);
        }
    }

    fn runtime_suspend_started(&self, cx: &InNoGc<'_>, reason: SuspendReason) {
        self.state().of_collection(cx, "RuntimeSuspendStarted", reason.to_string());
    }
    fn runtime_thread_suspended(&self, info: &Info, thread: corprof::id::Inert<ThreadId>) {
        let mut state = self.state();
        let name = state.names.get(&thread.as_raw()).map_or("another", String::as_str).to_owned();
        state.of_collection(info, "RuntimeThreadSuspended", name);
    }
    fn runtime_suspend_finished(&self, cx: &InNoGc<'_>) {
        self.state().of_collection(cx, "RuntimeSuspendFinished", "");
    }
    fn runtime_suspend_aborted(&self, cx: &InNoGc<'_>) {
        self.state().of_collection(cx, "RuntimeSuspendAborted", "");
    }
    fn runtime_resume_started(&self, cx: &InNoGc<'_>) {
        self.state().of_collection(cx, "RuntimeResumeStarted", "");
    }
    fn runtime_thread_resumed(&self, cx: &InNoGc<'_>, thread: corprof::id::Inert<ThreadId>) {
        let mut state = self.state();
        let name = state.names.get(&thread.as_raw()).map_or("another", String::as_str).to_owned();
        state.of_collection(cx, "RuntimeThreadResumed", name);
    }
    fn runtime_resume_finished(&self, cx: &InNoGc<'_>) {
        self.state().of_collection(cx, "RuntimeResumeFinished", "");
    }
    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, reason: GcReason) {
        let mut state = self.state();
        state.objects_before = std::mem::take(&mut state.objects);
        state.of_collection(cx, "GarbageCollectionStarted", reason.to_string());
    }
    fn objects_allocated_by_class(&self, cx: &InNoGc<'_>, counts: ClassCounts<'_>) {
        let mut state = self.state();
        let named = counts.iter().filter_map(|(class, count)| Some((state.names.get(&class.as_raw())?.clone(), count)));
        let mut told: Vec<String> = named.map(|(class, count)| format!("{count} {class}")).collect();
        told.sort();
        state.of_collection(cx, "ObjectsAllocatedByClass", told.join(", "));
    }
    fn moved_references2(&self, cx: &InNoGc<'_>, ranges: MovedRanges<'_>) {
        self.state().moved(cx, "MovedReferences2", ranges);
    }
    fn moved_references(&self, cx: &InNoGc<'_>, ranges: MovedRanges<'_>) {
        self.state().moved(cx, "MovedReferences", ranges);
    }
    fn surviving_references2(&self, cx: &InNoGc<'_>, ranges: SurvivingRanges<'_>) {
        self.state().survived(cx, "SurvivingReferences2", ranges);
    }
    fn surviving_references(&self, cx: &InNoGc<'_>, ranges: SurvivingRanges<'_>) {
        self.state().survived(cx, "SurvivingReferences", ranges);
    }
    fn root_references2(&self, cx: &InNoGc<'_>, roots: Roots<'_>) {
        let mut state = self.state();
        let told = State::watched(&state.objects, roots.iter().filter_map(|root| root.object).map(ObjectId::as_raw));
        state.of_objects(cx, "RootReferences2", told);
    }
    fn root_references(&self, cx: &InNoGc<'_>, roots: &[Option<ObjectId<'_>>]) {
        let mut state = self.state();
        let told = State::watched(&state.objects, roots.iter().flatten().map(|root| root.as_raw()));
        state.of_objects(cx, "RootReferences", told);
    }
    fn object_references(
        &self,
        cx: &InNoGc<'_>,
        object: ObjectId<'_>,
        _class: ClassId,
        references: &[Option<ObjectId<'_>>],
    ) {
        let mut state = self.state();
        let Some(from) = state.objects.get(&object.as_raw()).cloned() else { return };
        let to = State::watched(&state.objects, references.iter().flatten().map(|object| object.as_raw()));
        state.of_collection(cx, "ObjectReferences", format!("{from} to [{}]", to.join(", ")));
    }
    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        self.state().of_collection(cx, "GarbageCollectionFinished", "");
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("{}", self.heard());
    }
}

/// The number for things that no call can be made about.
fn raw(id: &impl std::fmt::LowerHex) -> usize {
    usize::from_str_radix(format!("{id:x}").trim_start_matches("0x"), 16).unwrap()
}

corprof::export!(Sequence);
