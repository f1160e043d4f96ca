//! Attaches to a running application, counts the processor time of its methods, and detaches when it is no longer
//! wanted.
//!
//! `corprof top PID` uses it. The attach data are TOP_OUT=/tmp/top, a path in an existing folder; TOP_HZ=100, the
//! number of rounds per second; TOP_BUDGET=2, the highest overhead, in per cent of the application's time;
//! TOP_LINES=on, if source lines are wanted; TOP_STACKS=physical, if methods that await are not, or TOP_STACKS=probe,
//! if code may be changed for them (`crate::async_callers`); TOP_NAMES=raw, if the runtime's names of methods are. Each
//! second the profiler replaces the file /tmp/top.4711, with the process id:
//!
//! ```text
//! top 1                               the version of the format
//! elapsed 12034                       milliseconds since the attach
//! rounds 1190                         rounds of the sampler
//! suspended 41                        milliseconds for which these rounds have suspended the application
//! threads 23                          managed threads
//! processor 18031                     milliseconds of processor time of all managed threads
//! method 7 1200000 4800000 My.Name()  number, own and total microseconds of processor time, name
//! note Async callers: …               what a reader should know of the callers
//! distortion Threads that wait …      what distorts the times
//! ```
//!
//! With TOP_LINES=on it has source lines in place of methods; the line number 0 stands for the times of a method at no
//! known line:
//!
//! ```text
//! line 7 1200000 4800000 41 My.Name()<tab>/src/My.cs
//! ```
//!
//! All numbers are sums since the attach. The file has the methods that were seen within the last two minutes, so it
//! stays small.
//!
//! The profiler detaches when the file /tmp/top.lease is gone, or has not changed for 30 seconds: `corprof top`
//! rewrites it each second, and may be stopped. So it does at once if the command was killed (`lease`), and on request
//! of `corprof detach PID`. One that has changed code stays, and rests. After the detach the profiler creates
//! /tmp/top.4711.left, which contains the reason if it could not detach; if nobody renewed the lease, it removes its
//! files and the folder instead.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::detach::DetachState;
use corprof::inlined_frames::InlinedFrames;
use corprof::prelude::*;
use corprof::sampler::{Mode, Report, Round, Sample, Sampler};
use corprof::sync::Mutex;
use corprof_export::{SourceLines, as_inlined, in_source};
use corprof_profilers::settings::Settings;
use corprof_profilers::table::TOP;

use crate::async_callers::{
    AsyncSource, AsyncWork, Caller, Callers, Joined, Joins, Role, StackFrame, Waiting, WantedCallers,
};
use crate::code_frames::IlPlace;
use crate::distortion;
use crate::line_counts::{LineCounts, LineKey, LineOwner, LineTimes};
use crate::own_frames::is_of_the_runtime;
use crate::report_files::{of_process, with_ending, write};

/// The name in messages.
const NAME: &str = "top";

/// The interval at which it looks at the lease.
const LOOK: Duration = Duration::from_millis(100);
/// The interval at which it writes the file.
const WRITE: Duration = Duration::from_secs(1);
/// The time after which a lease ends that nobody renews.
const LEASE: Duration = Duration::from_secs(30);
/// The time for which the file lists a method that is not seen again: more than a lease, so that no reader misses a
/// method.
const LISTED: Duration = Duration::from_secs(120);
/// The maximum number of methods. A program that makes methods without end must not fill the memory.
const METHODS: usize = 20_000;
/// The maximum number of places whose lines are remembered.
const PLACES: usize = 100_000;
/// The row of the methods beyond this number.
const OTHERS: &str = "[other methods]";
/// The row of native code.
const NATIVE: &str = "[native code]";
/// What calls a state machine of an async method, and not one of an iterator.
const ASYNC_BUILDER: &str = "System.Runtime.CompilerServices.AsyncTaskMethodBuilder";

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0A", no_export)]
pub struct Top {
    state: Arc<Mutex<State>>,
    lines: Arc<Mutex<LineRows>>,
    hears: AsyncSource,
}

struct State {
    start: Instant,
    out: PathBuf,
    counts: Counts,
}

/// The processor time of the methods.
#[derive(Default)]
struct Counts {
    rows: Vec<Row>,
    by_name: HashMap<Name, usize>,
    by_function: HashMap<FunctionId, Function>,
    /// A number for each part of a sample that was counted: its inner frames, then the others.
    samples: u64,
    callers: Callers<Counted>,
    /// The name of native frames.
    native: Arc<str>,
    report: Report,
    /// None: only methods are wanted.
    lines: Option<LineCounts<usize>>,
    has_raw_names: bool,
}

/// A function of a stack.
#[derive(Clone)]
struct Function {
    /// After an unload the runtime may reuse the id for another function.
    name: Name,
    /// None for the runtime's own.
    row: Option<usize>,
    role: Role,
}

/// A sample of which the inner frames are counted, and the others not yet.
struct Counted {
    weight: Duration,
    /// The row of each frame.
    rows: Box<[Option<usize>]>,
    /// How many frames are counted: those that are on the stack, whoever awaits it.
    inner: usize,
}

/// A method.
struct Row {
    name: Name,
    /// The name that is shown, if it is another one.
    shown: Option<Name>,
    /// Whether its caller has told what it is.
    is_told: bool,
    own: Duration,
    total: Duration,
    /// The last part of a sample that it was in. A recursive method counts once per sample.
    sample: u64,
    /// When that was.
    seen: Instant,
}

impl Row {
    fn new(name: &Name, has_raw_names: bool) -> Self {
        let mut row = Self {
            name: name.clone(),
            shown: None,
            is_told: false,
            own: Duration::ZERO,
            total: Duration::ZERO,
            sample: 0,
            seen: Instant::now(),
        };
        if !has_raw_names {
            row.spell(None);
        }
        row
    }

    fn shown(&self) -> &Name {
        self.shown.as_ref().unwrap_or(&self.name)
    }

    /// Whether it is a state machine: who calls it tells whether it is one of an iterator. One caller of an async
    /// method is enough.
    fn wants_caller(&self) -> bool {
        self.name.ends_with(".MoveNext()") && !self.is_told
    }

    fn spell(&mut self, caller: Option<Name>) {
        let shown = in_source(&self.name, caller.as_deref());
        self.is_told = caller.is_some() && !shown.ends_with(" (iterator)");
        self.shown = (shown != *self.name).then(|| shown.as_str().into());
    }
}

impl Counts {
    fn add(&mut self, round: &Round<'_, '_>, inlined: &InlinedFrames) {
        for sample in round.samples() {
            self.add_sample(round.cx(), &sample, inlined);
        }
        self.report = round.report().clone();
    }

    fn add_sample(&mut self, cx: &InNoGc<'_>, sample: &Sample<'_>, inlined: &InlinedFrames) {
        let mut rows: Vec<Option<usize>> = Vec::with_capacity(sample.frames().len());
        let mut frames: Vec<StackFrame> = Vec::with_capacity(sample.frames().len());
        for (depth, frame) in sample.frames().iter().enumerate() {
            let Some(function) = frame.function else {
                // Native code counts only while it runs itself: it is below every stack.
                let is_innermost = rows.iter().all(Option::is_none);
                rows.push(is_innermost.then(|| self.of_name(&NATIVE.into())));
                frames.push(StackFrame::Native(Arc::clone(&self.native), 0));
                continue;
            };
            let method = self.function(cx, function);
            rows.push(method.row);
            frames.push(StackFrame::Managed(function, method.role, 0));
            let caller = sample.frames().get(depth + 1);
            for method in caller.into_iter().flat_map(|caller| inlined.between(cx, caller, frame).iter().rev()) {
                rows.push(Some(self.of_name(&as_inlined(&method.name).as_str().into())));
                frames.push(StackFrame::Inlined(Arc::clone(method), 0));
            }
        }
        self.spell(cx, &frames, &rows);
        if let Some(mut lines) = self.lines.take() {
            lines.add(cx, sample.frames(), sample.weight(), |function| match self.function(cx, function).row {
                Some(row) => LineOwner::Method(row),
                None => LineOwner::Hidden,
            });
            self.lines = Some(lines);
            return;
        }
        let thread = sample.thread();
        let counted = self.add_inner(&frames, rows.into(), sample.weight());
        let stack = Waiting::new((thread.id, thread.os_id), sample.ticks(), frames.into(), counted);
        self.with_callers(|counts, callers| {
            callers.add(cx, stack, |stack, joined| counts.add_outer(cx, &stack.what, joined));
        });
    }

    /// Counts the frames of a sample that are on the stack, whoever awaits it.
    fn add_inner(&mut self, frames: &[StackFrame], rows: Box<[Option<usize>]>, weight: Duration) -> Counted {
        let is_resumed = |frame: &StackFrame| {
            matches!(frame, StackFrame::Managed(_, Role::Wrapper(_) | Role::StateMachine | Role::Box, _))
        };
        let resumed = frames.iter().position(is_resumed).unwrap_or(frames.len());
        let innermost = rows.iter().position(Option::is_some).unwrap_or_default();
        let inner = resumed.max(innermost + 1).min(frames.len());
        self.samples += 1;
        if let Some(row) = rows.iter().copied().flatten().next().and_then(|row| self.rows.get_mut(row)) {
            row.own += weight;
        }
        for row in rows.iter().take(inner).flatten() {
            self.add_total(*row, weight);
        }
        Counted { weight, rows, inner }
    }

    /// Counts the frames of a sample that were not counted yet, and those that are not on the stack.
    fn add_outer(&mut self, cx: &InNoGc<'_>, sample: &Counted, joined: &Joined<'_>) {
        self.samples += 1;
        for row in sample.rows.iter().take(sample.inner).flatten() {
            // A method that is called again counts once.
            if let Some(row) = self.rows.get_mut(*row) {
                row.sample = self.samples;
            }
        }
        let outer = sample.rows.get(sample.inner..joined.physical.len()).unwrap_or_default();
        for row in outer.iter().flatten() {
            self.add_total(*row, sample.weight);
        }
        for caller in joined.awaiting.iter().chain(&joined.creators) {
            let row = match caller {
                Caller::Function(function) => self.function(cx, *function).row,
                Caller::Machine(machine) => Some(self.of_name(&(*machine.name).into())),
                Caller::Unknown => None,
            };
            let Some(row) = row else { continue };
            self.add_total(row, sample.weight);
            if let Some(row) = self.rows.get_mut(row).filter(|row| row.wants_caller() && !self.has_raw_names) {
                row.spell(Some(ASYNC_BUILDER.into()));
            }
        }
    }

    /// Adds to the total of a method, once in a sample.
    fn add_total(&mut self, row: usize, weight: Duration) {
        let Some(row) = self.rows.get_mut(row) else { return };
        if row.sample != self.samples {
            row.total += weight;
        }
        row.sample = self.samples;
        row.seen = Instant::now();
    }

    /// Counts the samples whose callers are known by now; all of them with `is_last`.
    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool) {
        self.with_callers(|counts, callers| {
            callers.settle(cx, is_last, |stack, joined| counts.add_outer(cx, &stack.what, joined));
        });
    }

    fn with_callers(&mut self, act: impl FnOnce(&mut Self, &mut Callers<Counted>)) {
        let mut callers = std::mem::take(&mut self.callers);
        act(self, &mut callers);
        self.callers = callers;
    }

    /// Spells the methods of a sample that are known by those that call them.
    fn spell(&mut self, cx: &InNoGc<'_>, frames: &[StackFrame], rows: &[Option<usize>]) {
        if self.has_raw_names {
            return;
        }
        for (place, row) in rows.iter().enumerate() {
            let row = row.and_then(|row| self.rows.get_mut(row)).filter(|row| row.wants_caller());
            let Some(row) = row else { continue };
            let mut callers = frames.iter().skip(place + 1);
            row.spell(callers.find_map(|frame| match frame {
                StackFrame::Managed(caller, ..) => Some(cx.names().csharp().function(*caller)),
                StackFrame::Native(..) | StackFrame::Inlined(..) => None,
            }));
        }
    }

    fn function(&mut self, cx: &InNoGc<'_>, function: FunctionId) -> Function {
        let name = cx.names().csharp().function(function);
        if let Some(known) = self.by_function.get(&function)
            && known.name == name
        {
            return known.clone();
        }
        if self.by_function.len() >= METHODS {
            self.by_function.clear();
        }
        let is_shown = !is_of_the_runtime(cx, function, &name);
        let row = is_shown.then(|| self.of_name(&name));
        let role = Role::of(&name);
        let found = Function { name, row, role };
        self.by_function.insert(function, found.clone());
        found
    }

    fn of_name(&mut self, name: &Name) -> usize {
        if let Some(row) = self.by_name.get(name) {
            return *row;
        }
        if self.rows.len() >= METHODS && **name != *OTHERS {
            return self.of_name(&OTHERS.into());
        }
        self.rows.push(Row::new(name, self.has_raw_names));
        self.by_name.insert(name.clone(), self.rows.len() - 1);
        self.rows.len() - 1
    }
}

impl State {
    fn counted(&self, cx: &InNoGc<'_>) -> (String, CountedLines) {
        (self.text(cx), CountedLines::of(&self.counts))
    }

    fn text(&self, cx: &InNoGc<'_>) -> String {
        let report = &self.counts.report;
        let mut text = String::new();
        let _ = writeln!(text, "top 1");
        let _ = writeln!(text, "elapsed {}", self.start.elapsed().as_millis());
        let _ = writeln!(text, "rounds {}", report.rounds);
        let _ = writeln!(text, "suspended {}", report.suspension.total.as_millis());
        let _ = writeln!(text, "threads {}", report.threads.seen);
        let _ = writeln!(text, "processor {}", report.cpu_time.as_millis());
        if let Some(distortion) = distortion::of(report) {
            let _ = writeln!(text, "distortion {distortion}");
        }
        if self.counts.lines.is_some() {
            return text;
        }
        if let Some(note) = self.counts.callers.note(cx) {
            let _ = writeln!(text, "note {}", in_a_line(&note));
        }
        // What only calls a resumed method on its thread has no time.
        let is_listed = |row: &Row| row.seen.elapsed() < LISTED && !row.total.is_zero();
        for (number, row) in self.counts.rows.iter().enumerate().filter(|(_, row)| is_listed(row)) {
            let name = in_a_line(row.shown());
            let _ = writeln!(text, "method {number} {} {} {name}", row.own.as_micros(), row.total.as_micros());
        }
        text
    }
}

impl Joins for State {
    type Of = Counted;

    fn callers(&mut self) -> &mut Callers<Counted> {
        &mut self.counts.callers
    }

    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool) {
        self.counts.settle(cx, is_last);
    }

    /// Nobody reads what would come.
    fn end(&mut self) {
        self.counts.callers = Callers::default();
    }
}

/// A name in one line: obfuscated ones may contain line breaks.
fn in_a_line(name: &str) -> String {
    name.trim().replace(char::is_control, " ")
}

/// A copy of what was counted for lines: reading files takes its time, and the sampler must not wait for it.
struct CountedLines(Vec<(LineKey<usize>, LineTimes, Name)>);

impl CountedLines {
    fn of(counts: &Counts) -> Self {
        let recent = counts.lines.iter().flat_map(LineCounts::times).filter(|(_, times)| times.seen.elapsed() < LISTED);
        let named =
            recent.filter_map(|(key, times)| Some((key.clone(), *times, counts.rows.get(key.0)?.shown().clone())));
        Self(named.collect())
    }
}

/// A file and a line; the same file is kept once.
type Place = (Arc<str>, u32);

/// Finds the lines of what was counted, and numbers them.
#[derive(Default)]
struct LineRows {
    source: SourceLines,
    places: HashMap<Arc<IlPlace>, Option<Place>>,
    files: HashSet<Arc<str>>,
    numbers: HashMap<(usize, Option<Place>), usize>,
}

impl LineRows {
    fn place(&mut self, place: &Arc<IlPlace>) -> Option<Place> {
        if let Some(known) = self.places.get(place) {
            return known.clone();
        }
        let found = place.in_source(&mut self.source).map(|(file, line)| {
            let file = self.files.get(file).cloned().unwrap_or_else(|| file.into());
            self.files.insert(Arc::clone(&file));
            (file, line)
        });
        if self.places.len() >= PLACES {
            self.places.clear();
        }
        self.places.insert(Arc::clone(place), found.clone());
        found
    }

    fn text(&mut self, counted: CountedLines) -> String {
        let mut rows: HashMap<(usize, Option<Place>), (Duration, Duration, Name)> = HashMap::new();
        for ((method, place), times, name) in counted.0 {
            let place = place.and_then(|place| self.place(&place));
            let (own, total, _) = rows.entry((method, place)).or_insert((Duration::ZERO, Duration::ZERO, name));
            *own += times.own;
            *total += times.total;
        }
        let mut text = String::new();
        for (row, (own, total, name)) in rows {
            let (file, line) = row.1.clone().unwrap_or_else(|| ("".into(), 0));
            let next = self.numbers.len();
            let number = *self.numbers.entry(row).or_insert(next);
            let [own, total] = [own, total].map(|time| time.as_micros());
            let [name, file] = [&*name, &*file].map(in_a_line);
            let _ = writeln!(text, "line {number} {own} {total} {line} {name}\t{file}");
        }
        text
    }
}

/// The permission to stay, which `corprof top` renews.
struct Lease {
    file: PathBuf,
    content: Vec<u8>,
    renewed: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stay {
    Granted,
    /// `corprof top` has removed the file.
    Ended,
    /// Nobody has renewed the lease: `corprof top` was killed or stopped. Or `corprof detach` has asked to leave.
    Expired,
}

impl Lease {
    fn look(&mut self) -> Stay {
        match std::fs::read(&self.file) {
            Ok(content) if content != self.content => {
                self.content = content;
                self.renewed = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::NotFound => return Stay::Ended,
            _ => {}
        }
        if self.renewed.elapsed() < LEASE { Stay::Granted } else { Stay::Expired }
    }
}

#[callbacks]
impl Callbacks for Top {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err("it can only attach to a running application: `corprof top PID`".into())
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        let _ = detacher.listen(cx); // it leaves by itself, too
        let settings = Settings::of_attach(&TOP, data)?;
        let out = settings.of("TOP_OUT").path().ok_or("TOP_OUT is missing: attach it by `corprof top PID`")?;
        let interval = Duration::try_from_secs_f64(1.0 / settings.of("TOP_HZ").number::<f64>()?)?;
        let budget = settings.of("TOP_BUDGET").number::<f64>()? / 100.0;
        let start = Instant::now();
        let has_lines = settings.of("TOP_LINES").word(&[("off", false), ("on", true)])?;
        let has_raw_names = settings.has_raw_names();
        let counts = Counts { lines: has_lines.then(LineCounts::default), has_raw_names, ..Counts::default() };
        let state = State { start, out: out.clone(), counts };
        let callers = if has_lines { WantedCallers::Physical } else { WantedCallers::read(&settings)? };
        let hears = AsyncSource::of_attach(cx, callers)?;
        let profiler = Self { state: Arc::new(Mutex::new(state)), lines: Arc::default(), hears };
        let state = Arc::clone(&profiler.state);
        let shows_inlined = callers.are_awaiting(); // a stack as its thread has it has none
        let mut inlined = InlinedFrames::new();
        Sampler::every(interval).mode(Mode::Cpu).budget(budget).start(cx, move |round| {
            if shows_inlined {
                inlined.learn(round);
            }
            state.lock(round.cx()).counts.add(round, &inlined);
        })?;
        let state = Arc::clone(&profiler.state);
        let rows = Arc::clone(&profiler.lines);
        let command = crate::lease::Lease::of(&out);
        let mut lease = Lease { file: with_ending(&out, ".lease"), content: Vec::new(), renewed: start };
        let hears = &profiler.hears;
        let mut work = hears.is_wanted().then(|| AsyncWork::new(Arc::clone(&state), hears.clone(), false));
        cx.spawn_profiler_thread("writes and leaves", move |cx| {
            let mut written = Instant::now();
            let stay = loop {
                let pause = work.as_mut().map_or(LOOK, |work| work.step(cx));
                if cx.wait(pause).is_break() {
                    if detacher.state() != DetachState::Detaching {
                        return; // the application ends
                    }
                    break Stay::Expired;
                }
                let is_killed = command.as_ref().is_some_and(crate::lease::Lease::is_over);
                let stay = if is_killed { Stay::Expired } else { lease.look() };
                if stay != Stay::Granted {
                    break stay;
                }
                if written.elapsed() >= WRITE {
                    written = Instant::now();
                    // The sampler must not wait for a file.
                    let (text, lines) = state.lock(cx).counted(cx);
                    write(NAME, &of_process(&out, ""), &(text + &rows.lock(cx).text(lines)));
                }
            };
            work.into_iter().for_each(|work| work.end(cx));
            if stay == Stay::Expired {
                // From now on `corprof top` knows that it came too late.
                let _ = std::fs::remove_file(&lease.file);
            }
            // With a probe in the code it cannot leave, and rests.
            let _ = detacher.retire();
            if let Err(error) = detacher.detach_then(move |result| left(result, &out, stay, command.as_ref())) {
                eprintln!("top: cannot detach: {error}");
            }
        })?;
        Ok(profiler)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.hears.take(cx, &event);
    }

    /// Writes what was counted since the last second: the application ends.
    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let mut state = self.state.lock(cx);
        state.settle(cx, true);
        let (text, lines) = state.counted(cx);
        write(NAME, &of_process(&state.out, ""), &(text + &self.lines.lock(cx).text(lines)));
    }
}

/// Reports the end of the detach to `corprof top`, or tidies up after it.
fn left(result: corprof::Result<()>, out: &Path, stay: Stay, command: Option<&crate::lease::Lease>) {
    let stays = result.err();
    if stay == Stay::Ended {
        write(NAME, &of_process(out, ".left"), &stays.map(|error| error.to_string()).unwrap_or_default());
        return;
    }
    if let Some(error) = stays {
        eprintln!("top: cannot detach: {error}");
    }
    if let Some(command) = command.filter(|command| command.is_over()) {
        return command.clear();
    }
    let _ = std::fs::remove_file(of_process(out, ""));
}
