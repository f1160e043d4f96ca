//! Shows why the application paused: the reason of each collection, who caused it, and which threads delayed it.
//!
//! When it is asked (`question`), it answers with the pauses by reason, the methods that delayed them, and the longest
//! pause of each kind, with stacks.
//!
//! A pause has two parts. First the runtime stops all managed threads; then it collects, while they stand still. A
//! thread stops at its next safepoint only, and all others wait for the last one. The runtime does not report which one
//! that is. On Linux, signals sample the threads that still run while the others stop; other systems show no such
//! threads.
//!
//! Limits: a thread in ordinary native code need not stop. It is named only if it has ended this code before the
//! collection ran for long, because otherwise it was seen to run on. Delays that are shorter than two rounds of the
//! sampler may be missed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::events::views::{GcEnd, GcRestartEnd, GcStart, GcSuspendBegin, GcSuspendEnd, GcTriggered};
use corprof::events::{Event, GcKind, KeywordSet, SuspendReason};
use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sampler::{Mode, Round, Sample, Sampler, Strategy};
use corprof::sync::Mutex;
use corprof_export::SourceLines;
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::PAUSES;
use serde::Serialize;

use crate::code_frames::{CodeFrame, CodeFrames, SourceStack, Spelling, in_source, shown};
use crate::own_frames::is_of_framework;
use crate::question::{Answer, Asker, DRAFTS, Head, Report, answer_when_asked, keep_drafts, milliseconds};
use crate::thread_name::name_by_system;

/// A thread that runs longer than this in a pause delays it.
const GRACE: Duration = Duration::from_millis(2);
/// The frame of native code without a name.
const NATIVE: &str = "[native code]";

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0B", no_export)]
pub struct Pauses {
    options: Options,
    code: CodeFrames,
    state: Arc<Mutex<State>>,
    asker: Asker,
    /// What the answer lacks.
    lacks: Option<String>,
}

#[derive(Clone, Copy)]
struct Options {
    start: Instant,
    top: usize,
    depth: usize,
    hertz: f64,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let top = settings.of("PAUSES_TOP").number()?;
        let depth = settings.of("PAUSES_DEPTH").number()?;
        let hertz = settings.of("PAUSES_HZ").number()?;
        Ok(Self { start: Instant::now(), top, depth, hertz })
    }
}

#[derive(Clone, Default)]
struct State {
    /// The code that has asked for the collection that comes next.
    cause: Option<Place>,
    /// The background collection that goes on.
    background: Option<GcStart>,
    /// The pause that goes on, or the last one: the samples of a pause come after its end.
    current: Option<Pause>,
    count: usize,
    total: Duration,
    stopping: Duration,
    by_reason: HashMap<String, Sum>,
    by_delay: HashMap<String, Sum>,
    /// The longest pause of each reason, cause and method that delayed it.
    longest: HashMap<[String; 3], Pause>,
}

#[derive(Clone, Copy, Default)]
struct Sum {
    count: usize,
    total: Duration,
    longest: Duration,
}

#[derive(Clone)]
struct Pause {
    start: Instant,
    /// When all threads had stopped.
    stopped: Option<Instant>,
    end: Option<Instant>,
    reason: String,
    /// The thread that stops the others.
    suspender: Option<ThreadId>,
    cause: Option<Place>,
    /// The threads that ran in the last round before all had stopped.
    delayed_by: HashMap<Inert<ThreadId>, Place>,
}

/// A thread and its stack, leaf first.
#[derive(Clone)]
struct Place {
    /// The system's number; none of a thread of the runtime.
    thread: Option<u32>,
    name: Option<String>,
    frames: Vec<CodeFrame>,
}

/// The answer.
#[derive(Serialize)]
struct PauseReport {
    pauses: usize,
    #[serde(rename = "paused_ms", serialize_with = "milliseconds")]
    paused: Duration,
    /// The part of it until all threads had stopped.
    #[serde(rename = "stopping_ms", serialize_with = "milliseconds")]
    stopping: Duration,
    /// The share of the time in which the application was paused.
    paused_percent: f64,
    reasons: Vec<Row>,
    delayed_by: Vec<Row>,
    /// Of each reason, cause and delay.
    longest: Vec<Longest>,
}

#[derive(Serialize)]
struct Row {
    /// The reason, or the method that delayed the pauses.
    name: String,
    pauses: usize,
    #[serde(rename = "total_ms", serialize_with = "milliseconds")]
    total: Duration,
    #[serde(rename = "longest_ms", serialize_with = "milliseconds")]
    longest: Duration,
}

#[derive(Serialize)]
struct Longest {
    #[serde(rename = "ms", serialize_with = "milliseconds")]
    time: Duration,
    at_seconds: f64,
    reason: String,
    #[serde(rename = "stopping_ms", serialize_with = "milliseconds")]
    stopping: Duration,
    caused_by: Option<SourceStack>,
    delayed_by: Vec<SourceStack>,
}

impl Place {
    /// Where the calling thread is.
    fn of_current(cx: &InNoGc<'_>, code: &CodeFrames, depth: usize) -> Self {
        let mut frames = Vec::new();
        // In states in which the runtime cannot walk, the thread alone is shown.
        let _ = cx.walk_own_stack(|frame| {
            // The innermost managed method has called the runtime, too.
            frames.extend(frame.function().map(|function| code.frame(cx, function, frame.ip(), false)));
            if frames.len() < depth { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let thread = cx.current_thread().ok().flatten();
        let number = thread.and_then(|thread| cx.os_thread_id(thread).ok());
        let name = thread.and_then(|thread| cx.thread_name(thread)).map(|name| name.to_string());
        Self { thread: number, name: name.or_else(|| name_by_system(number?)), frames }
    }

    /// Where a running thread was.
    fn of_sample(round: &Round<'_, '_>, code: &CodeFrames, sample: &Sample<'_>) -> Self {
        let mut frames: Vec<CodeFrame> = Vec::new();
        for (depth, frame) in sample.frames().iter().enumerate() {
            let frame = match frame.function {
                Some(function) => code.frame(round.cx(), function, frame.ip, depth == 0),
                // The address of a caller's frame is the return address, which may be behind the end of the function.
                None => {
                    let native = round.native_name(frame.ip - usize::from(depth > 0));
                    CodeFrame::named(native.map_or(NATIVE.into(), Name::from), Spelling::Raw)
                }
            };
            // Adjacent native functions without names make one frame.
            if frames.last() != Some(&frame) {
                frames.push(frame);
            }
        }
        let thread = sample.thread();
        let name = thread.name.as_ref().map(|name| name.to_string()).or_else(|| name_by_system(thread.os_id?));
        Self { thread: thread.os_id, name, frames }
    }

    fn in_source(&self, depth: usize, lines: &mut SourceLines) -> SourceStack {
        let frames = in_source(&self.frames, depth, lines);
        SourceStack { thread: self.thread, name: self.name.clone(), frames }
    }

    /// The innermost method that is not of the framework, and the innermost function if it is native.
    fn method(&self) -> String {
        let is_native = |name: &str| name.contains('!') || name.ends_with(" (no symbols)") || name == NATIVE;
        let is_own = |frame: &CodeFrame| {
            let name = &*frame.name;
            !is_native(name) && !is_of_framework(name)
        };
        let own = self.frames.iter().position(is_own).unwrap_or_default();
        let Some(method) = shown(&self.frames, own) else { return titled(self.thread, self.name.as_deref()) };
        match self.frames.first().filter(|leaf| own > 0 && is_native(&leaf.name)) {
            Some(native) => format!("{method} in {}", native.name),
            None => method,
        }
    }
}

/// A collection, as an answer names it.
fn collection(start: &GcStart) -> String {
    format!("generation {}, {}, {}", start.generation, start.kind, start.reason)
}

/// A thread, as an answer names it.
fn titled(thread: Option<u32>, name: Option<&str>) -> String {
    let name = name.map(|name| format!(" \"{name}\"")).unwrap_or_default();
    let thread = thread.map_or("a thread of the runtime".to_owned(), |number| format!("thread {number}"));
    thread + &name
}

impl Pause {
    fn total(&self) -> Duration {
        self.end.map_or(Duration::ZERO, |end| end.saturating_duration_since(self.start))
    }

    fn stopping(&self) -> Duration {
        self.stopped.map_or(Duration::ZERO, |stopped| stopped.saturating_duration_since(self.start))
    }

    /// Adds the threads that ran at this time.
    fn see(&mut self, time: Instant, running: HashMap<Inert<ThreadId>, Place>) {
        if time < self.start + GRACE || self.end.is_some_and(|end| time > end) {
            return;
        }
        if self.stopped.is_some_and(|stopped| time > stopped) {
            // These need not stop: they run native code.
            self.delayed_by.retain(|thread, _| !running.contains_key(thread));
        } else {
            self.delayed_by = running;
            self.delayed_by.retain(|thread, _| self.suspender.is_none_or(|suspender| *thread != suspender));
        }
    }
}

impl State {
    /// The runtime's event, which came now on this thread.
    fn see(&mut self, event: &Event<'_>, thread: Option<ThreadId>) {
        let now = Instant::now();
        if let Ok(begin) = event.decode::<GcSuspendBegin>() {
            self.finish();
            // Of corprof itself, which looks at stacks. Without it the application would not pause.
            if begin.reason == SuspendReason::PROFILER {
                return;
            }
            let reason = match &self.background {
                // It stops the threads again for the end of its marking.
                Some(start) if begin.reason == SuspendReason::GC_PREPARATION => {
                    format!("{}, second pause", collection(start))
                }
                _ => begin.reason.to_string(),
            };
            self.current = Some(Pause {
                start: now,
                stopped: None,
                end: None,
                reason,
                suspender: thread,
                cause: None,
                delayed_by: HashMap::new(),
            });
        }
        if event.decode::<GcEnd>().is_ok_and(|end| self.background.is_some_and(|start| start.number == end.number)) {
            self.background = None;
        }
        let Some(pause) = self.current.as_mut().filter(|pause| pause.end.is_none()) else { return };
        if event.decode::<GcSuspendEnd>().is_ok() {
            pause.stopped = Some(now);
        } else if let Ok(start) = event.decode::<GcStart>() {
            pause.cause = self.cause.take();
            pause.reason = collection(&start);
            if start.kind == GcKind::BACKGROUND {
                self.background = Some(start);
            }
        } else if event.decode::<GcRestartEnd>().is_ok() {
            pause.end = Some(now);
        }
    }

    /// Counts the current pause, if it has ended.
    fn finish(&mut self) {
        let Some(pause) = self.current.take().filter(|pause| pause.end.is_some()) else { return };
        let total = pause.total();
        let stopping = pause.stopping();
        self.count += 1;
        self.total += total;
        self.stopping += stopping;
        let add = |sum: &mut Sum, time: Duration| {
            *sum = Sum { count: sum.count + 1, total: sum.total + time, longest: sum.longest.max(time) };
        };
        add(self.by_reason.entry(pause.reason.clone()).or_default(), total);
        for place in pause.delayed_by.values() {
            add(self.by_delay.entry(place.method()).or_default(), stopping);
        }
        let method = |place: Option<&Place>| place.map(Place::method).unwrap_or_default();
        let kind = [pause.reason.clone(), method(pause.cause.as_ref()), method(pause.delayed_by.values().next())];
        if self.longest.get(&kind).is_none_or(|longest| longest.total() < total) {
            self.longest.insert(kind, pause);
        }
    }

    /// This reads files.
    fn report(&self, options: &Options, lines: &mut SourceLines) -> PauseReport {
        let elapsed = options.start.elapsed();
        let rows = |sums: &HashMap<String, Sum>| {
            let mut rows: Vec<_> = sums.iter().collect();
            rows.sort_by(|(name, a), (other, b)| b.total.cmp(&a.total).then(name.cmp(other)));
            let row = |(name, sum): (&String, &Sum)| Row {
                name: name.clone(),
                pauses: sum.count,
                total: sum.total,
                longest: sum.longest,
            };
            rows.into_iter().take(options.top).map(row).collect::<Vec<_>>()
        };
        let mut longest: Vec<_> = self.longest.values().collect();
        longest.sort_by_key(|pause| Reverse(pause.total()));
        let mut in_source = |place: &Place| place.in_source(options.depth, lines);
        let longest = longest.into_iter().take(options.top).map(|pause| Longest {
            time: pause.total(),
            at_seconds: pause.start.saturating_duration_since(options.start).as_secs_f64(),
            reason: pause.reason.clone(),
            stopping: pause.stopping(),
            caused_by: pause.cause.as_ref().map(&mut in_source),
            delayed_by: pause.delayed_by.values().map(&mut in_source).collect(),
        });
        PauseReport {
            pauses: self.count,
            paused: self.total,
            stopping: self.stopping,
            paused_percent: 100.0 * self.total.as_secs_f64() / elapsed.as_secs_f64(),
            longest: longest.collect(),
            reasons: rows(&self.by_reason),
            delayed_by: rows(&self.by_delay),
        }
    }
}

impl Report for PauseReport {
    fn text(&self, head: &Head, answer: &mut Answer) {
        say!(
            answer,
            "{} in {:.1} s: {} ms, {:.1} % of the time; {} ms of it until all threads had stopped",
            self.pauses,
            head.seconds,
            ms(self.paused),
            self.paused_percent,
            ms(self.stopping)
        );
        for (title, rows) in [("reason", &self.reasons), ("delayed by", &self.delayed_by)] {
            say!(answer, "{:>8} {:>10} {:>10}  {title}", "pauses", "total ms", "longest ms");
            for Row { name, pauses, total, longest } in rows {
                say!(answer, "{pauses:>8} {:>10} {:>10}  {name}", ms(*total), ms(*longest));
            }
        }
        for pause in &self.longest {
            say!(
                answer,
                "{} ms at {:.3} s: {}; {} ms until all threads had stopped",
                ms(pause.time),
                pause.at_seconds,
                pause.reason,
                ms(pause.stopping)
            );
            let delayed_by = pause.delayed_by.iter().map(|stack| ("delayed by", stack));
            for (title, stack) in pause.caused_by.iter().map(|stack| ("caused by", stack)).chain(delayed_by) {
                say!(answer, "  {title}: {}", titled(stack.thread, stack.name.as_deref()));
                stack.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
            }
        }
    }
}

fn ms(time: Duration) -> String {
    format!("{:.1}", 1000.0 * time.as_secs_f64())
}

impl Pauses {
    fn start(cx: &mut InCallback<'_>, settings: &Settings, asker: Asker) -> Result<Self, BoxError> {
        let options = Options::read(settings)?;
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let state: Arc<Mutex<State>> = Arc::default();
        let spelling = Spelling::of(settings);
        let drafted = Arc::clone(&state);
        let mut lines = SourceLines::new();
        keep_drafts(cx, &asker, DRAFTS, move |cx| {
            // The report reads files, for which no event may wait.
            let mut state = drafted.lock(cx).clone();
            state.finish();
            Some(state.report(&options, &mut lines))
        })?;
        let lacks = Self::sample(cx, &options, spelling, &state).err();
        let lacks = lacks.map(|why| format!("the threads that delay pauses are not shown: {why}"));
        cx.start_runtime_events(KeywordSet::GC)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { options, code: CodeFrames::spelt(spelling), state, asker, lacks })
    }

    /// Has signals sample the threads that run on towards a safepoint. An error says why there are none.
    fn sample(
        cx: &InCallback<'_>,
        options: &Options,
        spelling: Spelling,
        state: &Arc<Mutex<State>>,
    ) -> Result<(), BoxError> {
        let interval = Duration::try_from_secs_f64(1.0 / options.hertz)?;
        let state = Arc::clone(state);
        let sampler = Sampler::every(interval).mode(Mode::Cpu).strategy(Strategy::Signals);
        let code = CodeFrames::spelt(spelling);
        sampler.start(cx, move |round| {
            // The samples are those of the threads that ran in the round before.
            let Some(time) = Instant::now().checked_sub(round.elapsed()) else { return };
            if state.lock(round.cx()).current.is_none() {
                return;
            }
            let place = |sample: Sample<'_>| (sample.thread().id, Place::of_sample(round, &code, &sample));
            let places = round.samples().map(place).collect();
            if let Some(pause) = &mut state.lock(round.cx()).current {
                pause.see(time, places);
            }
        })?;
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Pauses {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&PAUSES)?;
        let asker = Asker::of_start(cx, &settings)?;
        Self::start(cx, &settings, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&PAUSES, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        Self::start(cx, &settings, asker)
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Some(event) = event.of_runtime(cx) else { return };
        if event.decode::<GcTriggered>().is_ok() {
            let cause = Place::of_current(cx, &self.code, self.options.depth);
            self.state.lock(cx).cause = Some(cause);
        } else {
            self.state.lock(cx).see(&event, cx.current_thread().ok().flatten());
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let state = &mut *self.state.lock(cx);
        state.finish();
        let notes: Vec<String> = self.lacks.iter().cloned().collect();
        self.asker.report(&notes, &state.report(&self.options, &mut SourceLines::new()), &[]);
    }
}
