//! Samples the stacks of all threads at random times, and writes an HTML page, or a file in another format.
//!
//! A `.nettrace` file is written as samples come, with the time of each (`recording`). A file of another format is
//! rewritten each second in the first ten seconds, and every ten seconds later; there is none without samples. With
//! SAMPLER_STOP=/tmp/stop, the sampler says beside it, in /tmp/stop.4711.told with the process id, what it has written
//! (`told`). At the end of sampling it creates /tmp/stop.4711, which contains what became of sent profiles. `corprof
//! record` uses this.
//!
//! An attached sampler detaches when sampling ends, and so it does on request of `corprof detach PID`, and when the
//! command whose folder has SAMPLER_STOP was killed (`lease`). With SAMPLER_STOP it then creates /tmp/stop.4711.left,
//! which contains the reason if it could not detach.
//!
//! The methods that await a resumed one are on its stack, unless SAMPLER_STACKS=physical (`crate::async_callers`).
//!
//! With SAMPLER_TRACE it keeps the slowest calls of chosen methods, each with its own samples (`traced_calls`,
//! `slow_calls`). A second sampler sees where threads wait, if that is wanted beside the threads that run (`waits`).
//!
//! If a module has a portable PDB, methods and lambdas have file and line, and on the page each method has its hot
//! lines.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use corprof::args::EventPipeEvent;
use corprof::detach::{DetachState, Detacher};
use corprof::hooks::{HookedFunctions, Precompiled};
use corprof::inlined_frames::InlinedFrames;
use corprof::prelude::*;
use corprof::sampler::{Mode, Report, Round, Sample, Sampler};
use corprof::sync::Mutex;
use corprof_export::{self as export, Format, FrameId, Output, Profile, STARTED_BY, Unit, application_name};
use corprof_profilers::settings::Settings;
use corprof_profilers::table::SAMPLER;

use self::methods::Methods;
use self::options::Options;
use self::push::Push;
use self::quota::Quota;
use self::recording::{
    EventInbox, EventKinds, EventWork, FoundCode, Held, ModulesWithLines, RecordedSample, Recording, Timing,
    UnknownCode, find_code, move_events,
};
use self::slow_calls::SlowCallStore;
use self::unsampled_time::UnsampledTime;
use self::waits::WaitsOf;
use crate::async_callers::{
    AsyncSource, AsyncWork, Caller, Callers as AsyncCallers, Joined, Joins, StackFrame, ThreadKey, Waiting,
};
use crate::distortion;
use crate::hooked_by::left_out_lines;
use crate::lease::Lease;
use crate::line_counts::LineCounts;
use crate::question::leave;
use crate::report_files::{of_process, write};

mod methods;
mod options;
mod push;
mod quota;
mod recording;
mod result_file;
mod slow_calls;
mod traced_calls;
mod unsampled_time;
mod waits;

/// The name in messages.
const NAME: &str = "sampler";

/// The time from one snapshot to the next, and the shorter one at the beginning: many an application dies young.
const SNAPSHOT: Duration = Duration::from_secs(10);
const FIRST_SNAPSHOTS: Duration = Duration::from_secs(1);
/// The interval at which it checks whether sampling is to end.
const LOOK: Duration = Duration::from_millis(100);

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05", no_export)]
pub struct SamplerProfiler {
    state: Arc<Mutex<State>>,
    /// Held by the thread that ends sampling: the end of the application waits for it.
    ending: Arc<Mutex<()>>,
    /// By what it hears of async operations.
    hears: AsyncSource,
    /// What the runtime tells for a recording.
    events: Option<Arc<EventInbox>>,
    /// The methods that are traced.
    hooked: Option<HookedFunctions>,
}

struct State {
    output: Option<Output>,
    recording: Option<Recording>,
    push: Option<Push>,
    kind: Kind,
    profile: Profile,
    /// The profile's thread for each thread of the runtime. A thread may move to another system thread.
    threads: HashMap<ThreadKey, export::ThreadId>,
    methods: Methods,
    /// None if the format does not show lines.
    lines: Option<LineCounts<FrameId>>,
    callers: AsyncCallers<Sampled>,
    /// None if no methods are traced.
    slow_calls: Option<SlowCallStore>,
    /// Whether a second sampler records where threads wait, and how many samples of that there are.
    has_waits: bool,
    waits: u64,
    start: Instant,
    /// How long was sampled, once that is over.
    sampled: Option<Duration>,
    duration: Option<Duration>,
    stop: Option<PathBuf>,
    is_finished: bool,
    is_reporting: bool,
    /// Standard error is not that of the command.
    is_attached: bool,
    report: Report,
    quota: Option<Quota>,
    unsampled: UnsampledTime,
    /// The second of the last report.
    reported: u64,
    /// The time of the last snapshot, since the start.
    written: Duration,
}

/// Stands for the outer frames of a stack that has more than are walked.
pub(crate) const CUT: &str = "[outer frames are missing]";

/// What a stack is the sample of.
#[derive(Clone, Copy)]
struct Sampled {
    /// When, since the start of sampling.
    at: Duration,
    weight: u64,
    /// Whether the thread was waiting.
    is_waiting: bool,
    /// Whether the stack has more frames than are walked.
    is_cut: bool,
}

/// The description of a profile.
struct Kind {
    interval: Duration,
    mode: export::Mode,
    is_only_mine: bool,
    has_raw_names: bool,
    /// Whether samples keep their times. They are not sent.
    is_timed: bool,
}

impl Kind {
    fn profile(&self, start: SystemTime) -> Profile {
        let new = if self.is_timed { Profile::new } else { Profile::summed };
        let profile = new(application_name().as_str(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = profile.started_at(start).with_interval(self.interval).in_mode(self.mode);
        let profile = if self.has_raw_names { profile.with_raw_names() } else { profile };
        if self.is_only_mine { profile.only_my_code() } else { profile }
    }
}

impl State {
    fn new(options: Options, interval: Duration, push: Option<Push>, is_attached: bool) -> Self {
        let mode = if options.mode == Mode::Cpu { export::Mode::Cpu } else { export::Mode::Wall };
        let is_timed = options.output.is_some();
        let timing = Timing { interval, mode: if options.mode == Mode::Cpu { "cpu" } else { "wall" } };
        let kind =
            Kind { interval, mode, is_only_mine: options.is_only_mine, has_raw_names: options.has_raw_names, is_timed };
        let profile = kind.profile(SystemTime::now() + options.delay);
        let profile = if options.recording.is_some() { profile.merging_threads() } else { profile };
        let shows_lines = options.output.as_ref().is_some_and(|output| output.format() == Format::Html);
        Self {
            output: options.output,
            recording: options.recording.map(|file| Recording::new(file, options.rotation, timing)),
            push,
            kind,
            profile,
            threads: HashMap::new(),
            methods: Methods::default(),
            lines: shows_lines.then(LineCounts::default),
            callers: AsyncCallers::default(),
            slow_calls: options.traced.map(|traced| SlowCallStore::new(traced, options.slowest)),
            has_waits: options.has_waits,
            waits: 0,
            start: Instant::now() + options.delay,
            sampled: None,
            duration: options.duration,
            stop: options.stop,
            is_finished: false,
            is_reporting: options.is_reporting,
            is_attached,
            report: Report::default(),
            quota: Quota::of_process(),
            unsampled: UnsampledTime::default(),
            reported: 0,
            written: Duration::ZERO,
        }
    }

    /// How long was sampled so far.
    fn elapsed(&self) -> Duration {
        self.sampled.unwrap_or_else(|| self.start.elapsed())
    }

    /// Says why the runtime's events are missing.
    fn say_without_events(&mut self, error: &Error) {
        self.profile.warn(format!("The recording has no events of the runtime: {error}"));
    }

    /// Writes the file for the last time, and sends the last samples later.
    fn finish(&mut self, cx: &InNoGc<'_>) -> Option<Finished> {
        if std::mem::replace(&mut self.is_finished, true) {
            return None;
        }
        self.end();
        self.settle(cx, true);
        let written = self.write(true);
        if let Some(slow_calls) = &self.slow_calls {
            slow_calls.traced.end();
        }
        match written {
            Ok(samples) if self.is_reporting => {
                report!("sampler: {}", self.report);
                match self.file() {
                    Some(file) if samples > 0 => report!("sampler: {samples} samples written to {}", file.display()),
                    Some(_) => report!("sampler: no samples, so no file: {}", self.why_empty()),
                    None => {}
                }
            }
            Ok(_) => {}
            Err(error) if self.recording.is_none() => self.complain(&error),
            Err(_) => {}
        }
        self.say_if_over();
        self.push();
        Some(Finished { push: self.push.take(), stop: self.stop.clone(), is_reporting: self.is_reporting })
    }

    /// The file, with the process id in its name.
    fn file(&self) -> Option<&Path> {
        let recorded = self.recording.as_ref().map(Recording::path);
        self.output.as_ref().map(Output::path).or(recorded)
    }

    /// Sends the samples since the last time.
    fn push(&mut self) {
        let Some(push) = &mut self.push else { return };
        self.methods.place(&mut self.profile);
        push.push(self.profile.take_part());
        if self.output.is_none() {
            // An application runs for months: nothing is kept that only the past needs.
            self.profile = self.kind.profile(SystemTime::now());
            self.threads.clear();
            self.methods.forget();
        }
    }

    /// The code of a round that a recording does not know yet.
    fn unknown_code(&self, round: &Round<'_, '_>) -> Vec<UnknownCode> {
        self.recording.as_ref().map(|recording| recording.unknown_code(round)).unwrap_or_default()
    }

    /// The same of events.
    fn unknown_code_of_events(&self, cx: &InNoGc<'_>, held: &Held) -> Vec<UnknownCode> {
        let recording = self.recording.as_ref();
        recording.map(|recording| recording.unknown_code_of_events(cx, held)).unwrap_or_default()
    }

    /// Adds the samples of a round, unless sampling has ended. Returns whether it has.
    fn add(&mut self, round: &Round<'_, '_>, code: Vec<FoundCode>, inlined: &InlinedFrames) -> bool {
        if self.is_finished || self.sampled.is_some() {
            return true;
        }
        if let Some(recording) = &mut self.recording {
            recording.learn(code);
        }
        for sample in round.samples() {
            self.add_sample(round, &sample, inlined);
        }
        self.settle_recording(false);
        self.report = round.report().clone();
        if self.report.mode == Mode::Cpu {
            self.unsampled.see(self.report.cpu_time, self.report.weight);
        }
        let seconds = self.start.elapsed().as_secs();
        if self.is_reporting && seconds > self.reported {
            report!("sampler: {}", self.report);
            self.reported = seconds;
        }
        if self.push.as_ref().is_some_and(Push::is_due) {
            self.push();
        }
        false
    }

    /// Has the recording take what nothing earlier waits for.
    fn settle_recording(&mut self, is_last: bool) {
        if let Some(recording) = &mut self.recording {
            recording.settle(self.callers.oldest(), is_last);
        }
    }

    /// Adds a sample to the profile, or to those that wait for their async callers.
    fn add_sample(&mut self, round: &Round<'_, '_>, sample: &Sample<'_>, inlined: &InlinedFrames) {
        let thread = sample.thread();
        let key = (thread.id, thread.os_id);
        let profile = &mut self.profile;
        let recording = &mut self.recording;
        if let Some(recording) = recording {
            recording.name_thread(key, thread.name.as_deref());
        } else {
            let profile_thread =
                *self.threads.entry(key).or_insert_with(|| profile.thread(thread.os_id.unwrap_or_default(), ""));
            profile.rename_thread(profile_thread, thread.name.as_deref().unwrap_or_default());
        }
        let frames = self.methods.stack(profile, recording.as_mut(), round, sample, inlined);
        if let Some(lines) = &mut self.lines {
            let methods = &self.methods;
            lines.add(round.cx(), sample.frames(), sample.weight(), |function| methods.line_owner(function));
        }
        self.add_to_slow_calls(round.cx(), sample, &frames);
        let what = Sampled {
            at: self.start.elapsed(),
            weight: sample.weight().as_nanos() as u64,
            is_waiting: sample.is_waiting(),
            is_cut: sample.is_truncated(),
        };
        let stack = Waiting::new(key, sample.ticks(), frames, what);
        self.with_callers(|state, callers| {
            callers.add(round.cx(), stack, |stack, joined| state.add_joined(round.cx(), stack, joined))
        });
    }

    fn with_callers(&mut self, act: impl FnOnce(&mut Self, &mut AsyncCallers<Sampled>)) {
        let mut callers = std::mem::take(&mut self.callers);
        act(self, &mut callers);
        self.callers = callers;
    }

    fn add_joined(&mut self, cx: &InNoGc<'_>, sample: &Waiting<Sampled>, joined: &Joined<'_>) {
        self.record(cx, sample, joined);
        if sample.what.is_waiting && self.has_waits {
            // The profile is of those that run.
            return;
        }
        let mut frames = self.frames_of(cx, joined.physical);
        let profile = &mut self.profile;
        let mut method = |profile: &mut Profile, caller: &Caller| match caller {
            Caller::Function(function) => self.methods.managed(profile, cx, *function).frame,
            Caller::Machine(machine) => Some(self.methods.machine(profile, cx, machine)),
            Caller::Unknown => Some(profile.frame(export::Frame::native("[unknown code]"))),
        };
        for caller in &joined.awaiting {
            frames.extend(method(profile, caller));
        }
        if sample.what.is_cut && joined.awaiting.is_empty() {
            frames.push(profile.frame(export::Frame::runtime(CUT)));
        }
        if !joined.creators.is_empty() {
            frames.push(profile.frame(export::Frame::runtime(STARTED_BY)));
        }
        for caller in &joined.creators {
            frames.extend(method(profile, caller));
        }
        if self.recording.is_some() {
            // It has the stacks; the profile is for the terminal, and must not grow with them.
            frames.truncate(1);
        }
        if sample.what.is_waiting {
            frames.push(profile.frame(export::Frame::native("[waits]")));
        }
        let stack = profile.stack_leaf_first(frames);
        // A recording has the threads itself, and there may be many in days: one stands for all.
        let one = self.threads.keys().next().copied().filter(|_| self.recording.is_some());
        let thread = one.unwrap_or(sample.thread);
        let profile_thread =
            *self.threads.entry(thread).or_insert_with(|| profile.thread(thread.1.unwrap_or_default(), ""));
        profile.sample(profile_thread, sample.what.at, stack, sample.what.weight);
    }

    /// Adds a sample to the recording.
    fn record(&mut self, cx: &InNoGc<'_>, sample: &Waiting<Sampled>, joined: &Joined<'_>) {
        let Some(recording) = &mut self.recording else { return };
        let profile = &mut self.profile;
        let mut stack: Vec<u64> = Vec::new();
        let mut last_native = None;
        for frame in joined.physical {
            match frame {
                StackFrame::Managed(function, _, address) => {
                    let is_shown = self.methods.managed(profile, cx, *function).frame.is_some();
                    stack.extend(Some(*address).filter(|_| is_shown));
                }
                // Adjacent native functions without names make one frame.
                StackFrame::Native(name, _) if last_native == Some(name) => {}
                StackFrame::Native(_, address) | StackFrame::Inlined(_, address) => stack.push(*address),
            }
            last_native = if let StackFrame::Native(name, _) = frame { Some(name) } else { None };
        }
        let mut logical = |recording: &mut Recording, caller: &Caller| match caller {
            Caller::Function(function) => {
                let method = self.methods.managed(profile, cx, *function);
                method.frame.map(|_| recording.logical(&method.name))
            }
            Caller::Machine(machine) => Some(recording.logical(&machine.name)),
            Caller::Unknown => Some(recording.logical("[unknown code]")),
        };
        for caller in &joined.awaiting {
            stack.extend(logical(recording, caller));
        }
        if sample.what.is_cut && joined.awaiting.is_empty() {
            stack.push(recording.logical(CUT));
        }
        if !joined.creators.is_empty() {
            stack.push(recording.logical(STARTED_BY));
        }
        for caller in &joined.creators {
            stack.extend(logical(recording, caller));
        }
        recording.add(&RecordedSample {
            thread: sample.thread,
            ticks: sample.ticks,
            weight: Duration::from_nanos(sample.what.weight),
            is_waiting: sample.what.is_waiting,
            stack: &stack,
        });
    }

    /// Whether the time is over, or somebody has asked for the end.
    fn is_due(&self) -> bool {
        if self.recording.as_ref().is_some_and(|recording| recording.why_over().is_some()) {
            return true;
        }
        let is_stopped = self.stop.as_ref().is_some_and(|stop| {
            // If the folder is gone, so is the command that created it.
            let folder = stop.parent().filter(|folder| !folder.as_os_str().is_empty());
            stop.exists() || folder.is_some_and(|folder| !folder.is_dir())
        });
        is_stopped || self.duration.is_some_and(|duration| self.start.elapsed() >= duration)
    }

    /// Replaces the previous snapshot when its time has come: an application that dies loses little.
    fn write_snapshot(&mut self) {
        if let Some(slow_calls) = &mut self.slow_calls {
            slow_calls.forget();
        }
        self.unsampled.see_writer();
        let elapsed = self.elapsed();
        // A recording is not written anew.
        let is_early = elapsed < SNAPSHOT || self.recording.is_some();
        let pause = if is_early { FIRST_SNAPSHOTS } else { SNAPSHOT };
        if self.is_finished || elapsed.saturating_sub(self.written) < pause {
            return;
        }
        self.written = elapsed;
        match self.write(false) {
            // The recording ends, and then that is said.
            Err(error) if self.recording.is_none() => self.complain(&error),
            _ => {}
        }
    }

    /// Says at once that a recording has ended by itself: the command does so when the application ends.
    fn say_if_over(&self) {
        let over = self.recording.as_ref().and_then(Recording::why_over).filter(|_| !self.is_attached);
        if let (Some(why), Some(file)) = (over, self.file()) {
            report!("sampler: the recording has ended, and the application runs on: {}: {why}", file.display());
        }
    }

    /// Prints an error, unless a command reads it: standard error is the application's.
    fn complain(&self, error: &BoxError) {
        if self.stop.is_none() {
            report!("sampler: {error}");
        }
    }

    /// Replaces the previous file, and tells what it has. The number of samples: without any there is no file.
    fn write(&mut self, is_last: bool) -> Result<u64, BoxError> {
        let written = self.write_file(is_last);
        if let (Some(stop), Some(_)) = (&self.stop, self.file()) {
            let is_empty = self.profile.samples() == 0 && self.events().0 == 0;
            let why_empty = is_empty.then(|| self.why_empty());
            if let Some(files) = self.recording.as_ref().and_then(Recording::files) {
                let lines: String = files.iter().map(|file| format!("{}\n", file.display())).collect();
                report(stop, ".files", &lines);
            }
            let result = result_file::text(&self.profile, written.as_ref().err(), why_empty.as_deref());
            let is_told = report(stop, ".told", &result);
            if let (false, Err(error)) = (is_told, &written) {
                report!("sampler: {error}");
            }
        }
        written.map(|()| self.profile.samples())
    }

    /// How many events of the runtime are recorded, and how many were lost.
    fn events(&self) -> (u64, u64) {
        self.recording.as_ref().map(Recording::events).unwrap_or_default()
    }

    fn why_empty(&self) -> String {
        result_file::why_empty(&self.report, self.elapsed())
    }

    fn write_file(&mut self, is_last: bool) -> Result<(), BoxError> {
        let elapsed = self.elapsed();
        let (events, lost) = self.events();
        let report = &self.report;
        let profile = &mut self.profile;
        if self.recording.is_none() {
            self.methods.place(profile);
        }
        if let Some(lines) = &mut self.lines {
            self.methods.place_lines(profile, lines);
        }
        if let Some(slow_calls) = &mut self.slow_calls {
            slow_calls.show(profile);
        }
        profile.set_duration(elapsed);
        profile.set_rounds(report.rounds);
        profile.set_rate_reached(report.rate());
        profile.set_skipped("rounds over the budget", report.skipped.budget);
        profile.set_skipped("rounds that came late", report.skipped.late);
        profile.set_skipped("rounds during collections", report.skipped.busy);
        profile.set_skipped("threads that came and went between rounds", report.unseen);
        profile.set_skipped("events of the runtime that were lost", lost);
        if let Some(distortion) = distortion::of(report) {
            profile.warn(distortion);
        }
        // What an earlier snapshot said may hold no longer.
        profile.set_note("native threads", self.unsampled.note_of_native().unwrap_or_default());
        profile.set_note("missed work", self.unsampled.note_of_missed().unwrap_or_default());
        if self.waits > 0 {
            profile.set_note("waits", format!("{} samples of threads that wait", self.waits));
        }
        if events > 0 {
            profile.set_note("events", format!("{events} events of the runtime"));
        }
        if let Some(quota) = &self.quota {
            profile.set_skipped(&quota.reason(), quota.periods());
        }
        if let Some(recording) = &mut self.recording {
            if recording.removed() > 0 {
                profile.set_note("files", format!("{} older files were removed", recording.removed()));
            }
            if let Some(limit) = recording.limit() {
                profile.set_note("limit", format!("The recording has ended: {limit}"));
            }
            return if is_last { recording.finish() } else { recording.flush() };
        }
        let Some(output) = self.output.as_mut().filter(|_| profile.samples() > 0) else { return Ok(()) };
        if let Some(earlier) = output.write(&self.profile)?.kept {
            report!("sampler: the file of another run is kept as {}", earlier.display());
        }
        Ok(())
    }
}

impl Joins for State {
    type Of = Sampled;

    fn callers(&mut self) -> &mut AsyncCallers<Sampled> {
        &mut self.callers
    }

    fn settle(&mut self, cx: &InNoGc<'_>, is_last: bool) {
        self.with_callers(|state, callers| {
            callers.settle(cx, is_last, |stack, joined| state.add_joined(cx, stack, joined));
        });
        if let Some(note) = self.callers.note(cx) {
            self.profile.set_note("async callers", note);
        }
        self.settle_recording(is_last);
    }

    fn begins_in(&self) -> Duration {
        self.start.saturating_duration_since(Instant::now())
    }

    fn end(&mut self) {
        self.sampled = Some(self.elapsed());
    }
}

/// What is left to do after sampling, without the lock: the network may take its time.
struct Finished {
    push: Option<Push>,
    stop: Option<PathBuf>,
    is_reporting: bool,
}

impl Finished {
    fn end(self) {
        let counts = self.push.map(|push| push.finish(self.is_reporting || self.stop.is_none()));
        if let Some(stop) = &self.stop {
            report(stop, "", &counts.as_ref().map(push::lines).unwrap_or_default());
        }
    }
}

/// Reports the progress by a file next to SAMPLER_STOP.
fn report(stop: &Path, what: &str, text: &str) -> bool {
    write(NAME, &of_process(stop, what), text)
}

impl SamplerProfiler {
    /// With a `detacher` the profiler detaches when sampling ends.
    fn start(
        cx: &InCallback<'_>,
        mut options: Options,
        detacher: Option<Detacher>,
        hooked: Option<HookedFunctions>,
        hears: AsyncSource,
    ) -> Result<Self, BoxError> {
        let interval = Duration::try_from_secs_f64(1.0 / options.hertz)?;
        let mut sampler =
            Sampler::every(interval).mode(options.mode).budget(options.budget_percent / 100.0).delay(options.delay);
        if let Some(strategy) = options.strategy {
            sampler = sampler.strategy(strategy);
        }
        let waits = WaitsOf::read(&options).map(|of| (of, Self::sampler_of_waits(interval, &options)));
        let stop = options.stop.clone();
        let shows_inlined = options.callers.are_awaiting(); // a stack as its thread has it has none
        let push = match options.push.take() {
            Some(push) => {
                let runtime = cx.runtime_info().map(|runtime| runtime.to_string());
                let push = runtime.into_iter().fold(push, |push, runtime| push.runtime(&runtime));
                Some(Push::start(push, options.delay)?)
            }
            None => None,
        };
        let has_activities = options.events.is_some_and(EventKinds::has_activities);
        let events = options.events.map(|kinds| Arc::new(EventInbox::new(kinds)));
        if events.is_some() {
            cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        }
        let profiler = Self {
            state: Arc::new(Mutex::new(State::new(options, interval, push, detacher.is_some()))),
            ending: Arc::default(),
            hears,
            events,
            hooked,
        };
        if let Some((of, sampler)) = waits {
            profiler.start_waits(cx, of, sampler, shows_inlined);
        }
        let state = Arc::clone(&profiler.state);
        let mut modules = ModulesWithLines::default();
        let mut inlined = InlinedFrames::new();
        sampler.start(cx, move |round| {
            let unknown = state.lock(round.cx()).unknown_code(round);
            // The runtime may collect before it answers, so nothing is locked.
            let code = find_code(round.cx_mut(), unknown, &mut modules);
            if shows_inlined {
                inlined.learn(round);
            }
            let is_over = state.lock(round.cx()).add(round, code, &inlined);
            if is_over {
                round.end_sampling();
            }
        })?;
        // Rounds are far apart once the budget is spent, so none of them decides about the file and the end.
        let state = Arc::clone(&profiler.state);
        let ending = Arc::clone(&profiler.ending);
        let hooked = profiler.hooked.clone();
        let lease = stop.as_deref().filter(|_| detacher.is_some()).and_then(Lease::of).map(Arc::new);
        let mut event_work = profiler.events.clone().map(|events| EventWork::new(Arc::clone(&profiler.state), events));
        let hears = &profiler.hears;
        let mut work = (hears.is_wanted() || has_activities)
            .then(|| AsyncWork::new(Arc::clone(&state), hears.clone(), has_activities));
        cx.spawn_profiler_thread("writes and ends", move |cx| {
            while !state.lock(cx).is_due() && !lease.as_ref().is_some_and(|lease| lease.is_over()) {
                let pause = work.as_mut().map_or(LOOK, |work| work.step(cx));
                if let Some(work) = &mut event_work {
                    work.step(cx);
                }
                state.lock(cx).write_snapshot();
                if cx.wait(pause).is_continue() {
                    continue;
                }
                match detacher {
                    // `corprof detach` has asked for it.
                    Some(detacher) if detacher.state() == DetachState::Detaching => {
                        work.into_iter().for_each(|work| work.end(cx));
                        event_work.into_iter().for_each(|work| work.end(cx));
                        leave(NAME, &detacher, stop, lease);
                    }
                    _ => {} // the application ends
                }
                return;
            }
            work.into_iter().for_each(|work| work.end(cx));
            event_work.into_iter().for_each(|work| work.end(cx));
            finish(cx, &state, &ending, hooked.as_ref());
            if let Some(detacher) = detacher {
                // With probes in the code it cannot leave, and rests.
                let _ = detacher.retire();
                leave(NAME, &detacher, stop, lease);
            }
        })?;
        Ok(profiler)
    }
}

/// Ends sampling once. A second call waits for the first.
fn finish(cx: &InCallback<'_>, state: &Mutex<State>, ending: &Mutex<()>, hooked: Option<&HookedFunctions>) {
    let _one = ending.lock(cx);
    let notes = hooked.map(|hooked| left_out_lines(cx, "traced", hooked));
    if let (Some(slow_calls), Some(notes)) = (&mut state.lock(cx).slow_calls, notes) {
        slow_calls.set_notes(notes);
    }
    let finished = state.lock(cx).finish(cx);
    if let Some(finished) = finished {
        finished.end();
    }
}

#[callbacks]
impl Callbacks for SamplerProfiler {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let options = Options::read(&Settings::of_environment(&SAMPLER)?)?;
        // A process has hooks of one kind.
        let hears = AsyncSource::of_start(cx, options.callers, options.traced.is_none())?;
        let hooked = match &options.traced {
            // Also methods that are precompiled, such as the framework's.
            Some(traced) => Some(cx.hooks(Arc::clone(traced)).inserted(Precompiled::Compile).install()?),
            None => None,
        };
        Self::start(cx, options, None, hooked, hears)
    }

    /// The attach data has a line for each setting, such as `SAMPLER_OUT=/tmp/app.html`.
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        let options = Options::read(&Settings::of_attach(&SAMPLER, data)?)?;
        let is_listening = detacher.listen(cx);
        if options.stop.is_none() {
            is_listening?;
        }
        let is_traced = options.traced.is_some();
        let callers = if is_traced { options.callers.without_probe() } else { options.callers };
        let hears = AsyncSource::of_attach(cx, callers)?;
        let hooked = match &options.traced {
            Some(traced) => Some(cx.hooks(Arc::clone(traced)).install()?),
            None => None,
        };
        Self::start(cx, options, Some(detacher), hooked, hears)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.hears.take(cx, &event);
        if let Some(events) = &self.events {
            events.take(cx, &event);
        }
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        if let Some(events) = &self.events {
            move_events(cx, &self.state, events, &mut ModulesWithLines::default());
        }
        finish(cx, &self.state, &self.ending, self.hooked.as_ref());
    }
}
