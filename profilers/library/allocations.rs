//! Counts what an application allocates. When it is asked (`question`), it answers with a table of bytes and objects by
//! class, most bytes first.
//!
//! The size of an object does not include the objects it refers to, nor the padding that aligns the next object on the
//! heap.
//!
//! Limits: the table does not show which objects are still alive. By class, the runtime reports every object, and does
//! not use its fast allocation path. By stack, it reports one object every 100 KB: from .NET 10 on each byte has the
//! same chance, and a sample counts for the bytes that it represents. Before, the object that fills up the 100 KB
//! counts for all of them, so that classes with large objects seem larger than they are. After an attach the runtime
//! reports samples only: that is another profiler, `allocation_samples`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::events::KeywordSet;
use corprof::events::views::{AllocationSampled, GcAllocationTick};
use corprof::metadata::MetadataImport;
use corprof::prelude::*;
use corprof::sampler::ticks;
use corprof::sync::{Merge, Mutex, ThreadState};
use corprof_export::{Frame, Output, Profile, Unit, application_name};
use corprof_il::csharp;
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::ALLOCATIONS;
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::async_callers::{
    AsyncSource, AsyncWork, Callers, Joined, Joins, StackFrame, Waiting, WantedCallers, this_thread,
};
use crate::code_frames::Spelling;
use crate::made_class::telling_method;
use crate::own_frames::is_of_framework;
use crate::question::{Answer, Asker, DRAFTS, Head, Report, answer_with_callers, keep_drafts};

/// The bytes from one sample to the next, on average: a constant of the runtime.
const MEAN: f64 = 102_400.0;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A04", no_export)]
pub struct Allocations {
    /// The number of rows of the table.
    top: usize,
    by_class: Arc<ByClass>,
    /// With ALLOCATIONS_BY=stack.
    by_stack: Option<Arc<Mutex<Samples>>>,
    hears: AsyncSource,
    /// Whether boxes of code that is not optimised are made by managed code, which reports no objects.
    lacks_boxes: AtomicBool,
    asker: Asker,
}

/// The objects by their classes.
struct ByClass {
    /// Those of classes that are loaded now: one table per thread, so that threads do not wait for each other.
    counts: ThreadState<Counts>,
    /// The others.
    names: Mutex<BTreeMap<String, Count>>,
    spelling: Spelling,
}

#[derive(Default)]
struct Counts(FxHashMap<ClassId, Count>);

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    bytes: usize,
    objects: usize,
}

impl Count {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.objects += other.objects;
    }
}

impl Merge for Counts {
    fn merge(&mut self, other: Self) {
        for (class, count) in other.0 {
            self.0.entry(class).or_default().add(count);
        }
    }
}

/// The answer.
#[derive(Serialize)]
pub(crate) struct AllocationReport {
    /// Whether the bytes are those that samples stand for.
    is_sampled: bool,
    /// `class` or `stack`.
    by: &'static str,
    /// Of all rows, also of those that are not shown.
    bytes: usize,
    rows: Vec<Row>,
    /// How many further rows there are.
    further_rows: usize,
}

#[derive(Serialize)]
struct Row {
    class: String,
    /// By stack, the innermost method of the application that allocates.
    method: Option<String>,
    bytes: usize,
    /// The number of objects, or of samples.
    count: usize,
}

impl AllocationReport {
    fn new(mut rows: Vec<Row>, top: usize, is_sampled: bool, by: &'static str) -> Self {
        rows.sort_by_key(|row| Reverse((row.bytes, row.count)));
        let bytes = rows.iter().map(|row| row.bytes).sum();
        let further_rows = rows.len().saturating_sub(top);
        rows.truncate(top);
        Self { is_sampled, by, bytes, rows, further_rows }
    }
}

impl Report for AllocationReport {
    fn text(&self, _head: &Head, answer: &mut Answer) {
        if !self.is_sampled {
            answer.plain(format_args!("{:>14} {:>12}  class", "bytes", "objects"));
            for Row { class, bytes, count, .. } in &self.rows {
                answer.plain(format_args!("{bytes:>14} {count:>12}  {class}"));
            }
            return;
        }
        let what = if self.by == "stack" { "class, and the method that allocates it" } else { "class" };
        answer.plain(format_args!("{:>14} {:>6} {:>10}  {what}", "bytes, about", "%", "samples"));
        for Row { class, method, bytes, count } in &self.rows {
            let share = 100.0 * *bytes as f64 / self.bytes.max(1) as f64;
            let method = method.as_ref().map(|method| format!(" in {method}")).unwrap_or_default();
            answer.plain(format_args!("{bytes:>14} {share:>6.1} {count:>10}  {class}{method}"));
        }
    }
}

/// The sampled objects.
pub(crate) struct Samples {
    output: Option<Output>,
    is_by_stack: bool,
    spelling: Spelling,
    /// By class, and with `is_by_stack` by the method that allocates.
    rows: BTreeMap<(String, Option<String>), Count>,
    profile: Profile,
    thread: corprof_export::ThreadId,
    callers: Callers<Allocated>,
}

struct Class {
    name: String,
    /// The method that tells for what a compiler has made it, else empty.
    method: String,
}

impl Class {
    /// Of an event that has this name, which lacks the classes around a nested one.
    fn of(cx: &InNoGc<'_>, event: &EventPipeEvent<'_>, name: &str) -> Self {
        match event.allocated_class(cx) {
            Some(class) => Self {
                name: cx.names().csharp().class(class).to_string(),
                method: telling_method(cx, class).unwrap_or_default(),
            },
            None => Self { name: csharp::class(name), method: String::new() },
        }
    }
}

/// A sampled object, and the names of the methods on the stack, the innermost first.
pub(crate) struct Allocated {
    class: Class,
    bytes: f64,
    stack: Vec<Name>,
}

impl Samples {
    pub(crate) fn new(output: Option<Output>, is_by_stack: bool, spelling: Spelling) -> Self {
        let profile = Profile::summed(application_name(), Unit::Bytes).of_process(std::process::id());
        let mut profile = spelling.profile(profile);
        let thread = profile.thread(0, "all threads");
        Self { output, is_by_stack, spelling, rows: BTreeMap::new(), profile, thread, callers: Callers::default() }
    }

    /// Adds a stack of which the callers are known, as far as they will be.
    fn add_joined(&mut self, cx: &InNoGc<'_>, allocated: &Allocated, joined: &Joined<'_>) {
        let Allocated { class, bytes, stack } = allocated;
        let physical = stack.get(..joined.physical.len()).unwrap_or(stack);
        self.add(class, *bytes, &[physical, &joined.names(cx)].concat());
    }

    fn add(&mut self, class: &Class, bytes: f64, stack: &[Name]) {
        let own = own_method(stack);
        let method = stack.get(own).map(|name| self.spelling.method(name, stack.get(own + 1).map(|caller| &**caller)));
        let bytes = bytes as usize;
        let class = self.spelling.class(&class.name, &class.method);
        let leaf = self.profile.frame(Frame::managed(&format!("new {class}")));
        let callers = stack.iter().map(|name| self.profile.frame(Frame::managed(name)));
        let frames: Vec<_> = std::iter::once(leaf).chain(callers).collect();
        let stack = self.profile.stack_leaf_first(frames);
        self.profile.sample(self.thread, Duration::ZERO, stack, bytes as u64);
        let method = self.is_by_stack.then(|| method.unwrap_or_else(|| "[native code]".to_owned()));
        self.rows.entry((class, method)).or_default().add(Count { bytes, objects: 1 });
    }

    /// Adds the sample of an event, if it is one.
    pub(crate) fn see(samples: &Mutex<Self>, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
        let Some(of_runtime) = event.of_runtime(cx) else { return };
        let (class, bytes) = if let Ok(sample) = of_runtime.decode::<AllocationSampled<'_>>() {
            // An object of this size is sampled with this chance.
            let size = sample.object_size as f64;
            (sample.type_name, size / (1.0 - (-size / MEAN).exp()))
        } else if let Ok(tick) = of_runtime.decode::<GcAllocationTick<'_>>() {
            (tick.type_name, tick.allocation_amount as f64)
        } else {
            return;
        };
        let mut stack = Vec::new();
        let mut frames = Vec::new();
        // A sample of a thread that the runtime cannot walk has its class only.
        let _ = cx.walk_own_stack(|frame| {
            if let Some(function) = frame.function() {
                let name = cx.names().csharp().function(function);
                frames.push(StackFrame::of(function, &name));
                stack.push(name);
            }
            ControlFlow::Continue(())
        });
        let allocated = Allocated { class: Class::of(cx, event, &class.to_string()), bytes, stack };
        let thread = this_thread(cx);
        let mut samples = samples.lock(cx);
        let samples = &mut *samples;
        match thread {
            Some(thread) => {
                let waiting = Waiting::new(thread, ticks(), frames.into(), allocated);
                samples.with_callers(|samples, callers| {
                    callers.add(cx, waiting, |waiting, joined| samples.add_joined(cx, &waiting.what, joined));
                });
            }
            None => samples.add(&allocated.class, bytes, &allocated.stack),
        }
    }

    fn with_callers(&mut self, act: impl FnOnce(&mut Self, &mut Callers<Allocated>)) {
        let mut callers = mem::take(&mut self.callers);
        act(self, &mut callers);
        self.callers = callers;
    }

    /// Has the runtime report a sample of the allocated objects.
    pub(crate) fn start(cx: &mut InCallback<'_>) -> Result<()> {
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let has_samples = cx.runtime_info()?.major >= 10;
        let events = if has_samples { KeywordSet::ALLOCATION_SAMPLES } else { KeywordSet::ALLOCATION_TICKS };
        cx.start_runtime_events(events)?;
        Ok(())
    }

    /// What the samples tell so far.
    pub(crate) fn so_far(&self, top: usize) -> AllocationReport {
        let row = |((class, method), count): (&(String, Option<String>), &Count)| Row {
            class: class.clone(),
            method: method.clone(),
            bytes: count.bytes,
            count: count.objects,
        };
        let by = if self.is_by_stack { "stack" } else { "class" };
        AllocationReport::new(self.rows.iter().map(row).collect(), top, true, by)
    }

    /// Answers.
    pub(crate) fn report(&mut self, cx: &InNoGc<'_>, top: usize, asker: &Asker) {
        self.settle(cx, true);
        let report = self.so_far(top);
        let files = match &mut self.output {
            Some(output) => asker.write("the stacks are", output, &self.profile),
            None => Vec::new(),
        };
        let notes: Vec<String> = self.callers.note(cx).into_iter().collect();
        asker.report(&notes, &report, &files);
    }
}

/// What is missing where managed code makes boxes.
const LACKS_BOXES: &str = "boxes that code makes before it is optimised are not among them: this runtime does not report these. With --env \
                           DOTNET_TieredCompilation=0 all code is optimised, but for a debug build";

/// Whether the core library makes the boxes of code that is not optimised, as from .NET 10 on.
fn has_managed_boxing(core_library: &MetadataImport<'_>) -> Result<bool> {
    match core_library.find_type_def("System.Runtime.CompilerServices.CastHelpers", None)? {
        Some(class) => Ok(!core_library.methods_named(class, "Box")?.is_empty()),
        None => Ok(false),
    }
}

/// The innermost method of the application on a stack, or else the innermost.
fn own_method(stack: &[Name]) -> usize {
    // A note between frames, as of the callers of an async method, is not a method.
    let is_other = |name: &Name| name.starts_with('[') || is_of_framework(name);
    stack.iter().position(|name| !is_other(name)).unwrap_or_default()
}

impl Joins for Samples {
    type Of = Allocated;

    fn callers(&mut self) -> &mut Callers<Allocated> {
        &mut self.callers
    }

    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool) {
        self.with_callers(|samples, callers| {
            callers.settle(cx, is_last, |waiting, joined| samples.add_joined(cx, &waiting.what, joined));
        });
    }
}

impl ByClass {
    /// Moves the counts from class ids to names: a class that is loaded later may get the id of an unloaded one.
    fn move_to_names(&self, cx: &InNoGc<'_>) {
        // Locked before the counts are taken: no class is unloaded before it is named.
        let mut names = self.names.lock(cx);
        let counts = self.counts.read(cx, mem::take);
        for (class, count) in counts.0 {
            let method = telling_method(cx, class).unwrap_or_default();
            let name = self.spelling.class(&cx.names().csharp().class(class), &method);
            names.entry(name).or_default().add(count);
        }
    }

    fn report(&self, cx: &InNoGc<'_>, top: usize) -> AllocationReport {
        self.move_to_names(cx);
        let row = |(class, count): (&String, &Count)| Row {
            class: class.clone(),
            method: None,
            bytes: count.bytes,
            count: count.objects,
        };
        let rows = self.names.lock(cx).iter().map(row).collect();
        AllocationReport::new(rows, top, false, "class")
    }
}

pub(crate) fn is_by_stack(settings: &Settings) -> Result<bool, SettingError> {
    settings.of("ALLOCATIONS_BY").word(&[("class", false), ("stack", true)])
}

pub(crate) fn output(settings: &Settings, is_by_stack: bool) -> Result<Option<Output>, SettingError> {
    let out = settings.of("ALLOCATIONS_OUT");
    match out.output()? {
        None => Ok(None),
        Some(_) if !is_by_stack => Err(out.error("only stacks have a file: set ALLOCATIONS_BY=stack")),
        Some(_) => Ok(Some(out.parsed(|path| Output::new(path))?)),
    }
}

#[callbacks]
impl Callbacks for Allocations {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&ALLOCATIONS)?;
        let asker = Asker::of_start(cx, &settings)?;
        let top = settings.of("ALLOCATIONS_TOP").number()?;
        let is_by_stack = is_by_stack(&settings)?;
        let output = output(&settings, is_by_stack)?;
        let callers = if is_by_stack { WantedCallers::read(&settings)? } else { WantedCallers::Physical };
        let hears = AsyncSource::of_start(cx, callers, true)?;
        if is_by_stack {
            cx.remove_events(EventMask::ENABLE_OBJECT_ALLOCATED | EventMask::MONITOR_OBJECT_ALLOCATED)?;
            Samples::start(cx)?;
        }
        let spelling = Spelling::of(&settings);
        let samples = Arc::new(Mutex::new(Samples::new(output, is_by_stack, spelling)));
        answer_with_callers(cx, &asker, AsyncWork::new(Arc::clone(&samples), hears.clone(), false))?;
        let by_stack = is_by_stack.then_some(samples);
        let by_class = ByClass { counts: ThreadState::default(), names: Mutex::default(), spelling };
        let by_class = Arc::new(by_class);
        let counted = Arc::clone(&by_class);
        let sampled = by_stack.clone();
        keep_drafts(cx, &asker, DRAFTS, move |cx| match &sampled {
            Some(samples) => Some(samples.lock(cx).so_far(top)),
            None => Some(counted.report(cx, top)),
        })?;
        Ok(Self { top, by_class, by_stack, hears, lacks_boxes: AtomicBool::new(false), asker })
    }

    fn object_allocated(&self, cx: &InNoGc<'_>, object: ObjectId<'_>, class: ClassId) {
        // An object takes whole words.
        let bytes = cx.object_size(object).unwrap_or(0).next_multiple_of(size_of::<usize>());
        let count = Count { bytes, objects: 1 };
        self.by_class.counts.with(cx, |counts| counts.0.entry(class).or_default().add(count));
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if self.by_stack.is_none() && &*cx.names().module(module) == "System.Private.CoreLib.dll" {
            let boxes = cx.metadata(module).and_then(|metadata| has_managed_boxing(&metadata));
            self.lacks_boxes.store(boxes.unwrap_or(false), Ordering::Relaxed);
        }
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.hears.take(cx, &event);
        if let Some(samples) = self.by_stack.as_ref().filter(|_| !self.asker.is_over()) {
            Samples::see(samples, cx, &event);
        }
    }

    fn module_unload_started(&self, cx: &mut InCallback<'_>, _module: ModuleId) {
        self.by_class.move_to_names(cx);
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        match &self.by_stack {
            Some(samples) => samples.lock(cx).report(cx, self.top, &self.asker),
            None => {
                let lacks_boxes = self.lacks_boxes.load(Ordering::Relaxed);
                let notes = lacks_boxes.then(|| LACKS_BOXES.to_owned());
                self.asker.report(notes.as_slice(), &self.by_class.report(cx, self.top), &[]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_between_frames_does_not_allocate() {
        let own = |stack: &[&str]| own_method(&stack.iter().map(|&name| Name::from(name)).collect::<Vec<_>>());
        assert_eq!(own(&["System.Net.Http.Ask()", "[started by]", "Clinic.Program.Main()"]), 2);
        assert_eq!(own(&["System.Net.Http.Ask()", "[started by]"]), 0);
        assert_eq!(own(&[]), 0);
    }
}
