//! Shows which code blocks the threads of the thread pool while the pool is starved.
//!
//! When it is asked (`question`), it answers with the methods that have blocked, with a stack of each.
//!
//! The pool is starved if work waits in its queue, and no thread takes it because all of them are blocked. The runtime
//! then adds a thread every half second, and reports why: starvation, or cooperative blocking if a thread blocks on a
//! task. The profiler looks at the stacks for two seconds after each such report.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::events::views::ThreadPoolWorkerThreadAdjustment;
use corprof::events::{AdjustmentReason, KeywordSet};
use corprof::prelude::*;
use corprof::sampler::{Round, Sample, SampledFrame, Sampler};
use corprof::sync::Mutex;
use corprof_export::{Frame, Output, Profile, SourceLines, Unit, application_name};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::STARVATION;
use serde::Serialize;

use crate::code_frames::{CodeFrame, CodeFrames, SourceFrame, Spelling, in_source, shown};
use crate::own_frames::is_of_framework;
use crate::question::{Answer, Asker, DRAFTS, Head, Report, answer_when_asked, keep_drafts, milliseconds};

/// The time after a report of the runtime for which the pool counts as starved.
const STARVED: Duration = Duration::from_secs(2);
/// The method that works off the pool's queue: a stack without it belongs to no worker, or to an idle one.
const DISPATCH: &str = "System.Threading.ThreadPoolWorkQueue.Dispatch(";

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0D", no_export)]
pub struct Starvation {
    state: Arc<Mutex<State>>,
    clock: Arc<Clock>,
    asker: Asker,
}

struct Options {
    top: usize,
    depth: usize,
    hertz: f64,
    output: Option<Output>,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let out = settings.of("STARVATION_OUT");
        let output = match out.output()? {
            None => None,
            Some(_) => Some(out.parsed(|path| Output::new(path))?),
        };
        Ok(Self {
            top: settings.of("STARVATION_TOP").number()?,
            depth: settings.of("STARVATION_DEPTH").number()?,
            hertz: settings.of("STARVATION_HZ").number()?,
            output,
        })
    }
}

/// Until when the pool is starved: the sampler asks for each thread, so this is not a lock.
struct Clock {
    start: Instant,
    /// Milliseconds after the start.
    starved_until: AtomicU64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now(), starved_until: AtomicU64::new(0) }
    }
}

impl Clock {
    fn starved(&self) {
        let until = (self.start.elapsed() + STARVED).as_millis() as u64;
        self.starved_until.fetch_max(until, Ordering::Relaxed);
    }

    fn is_starved(&self) -> bool {
        (self.start.elapsed().as_millis() as u64) < self.starved_until.load(Ordering::Relaxed)
    }
}

struct State {
    options: Options,
    seen: Seen,
    profile: Profile,
    threads: HashMap<u32, corprof_export::ThreadId>,
}

/// What the answer is made from.
#[derive(Clone, Default)]
struct Seen {
    /// The reports of the runtime, and the numbers of workers that it wanted.
    reports: usize,
    workers: Option<(u32, u32)>,
    /// The time in which the pool was starved, as far as rounds have seen it.
    starved: Duration,
    blocked: HashMap<Blocker, Blocked>,
}

#[derive(Clone, Default)]
struct Blocked {
    /// Of all threads together.
    time: Duration,
    /// The most threads at the same time, and those of the round now.
    threads: usize,
    threads_now: usize,
    /// A stack, leaf first.
    frames: Vec<CodeFrame>,
}

/// The method that blocks, and the method of the framework that it has called.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Blocker {
    method: String,
    calls: Option<String>,
}

/// The answer.
#[derive(Serialize)]
struct StarvationReport {
    /// How often the runtime has reported that the pool is starved.
    reports: usize,
    starved_seconds: f64,
    /// The fewest and the most workers that the runtime wanted meanwhile.
    least_workers: Option<u32>,
    most_workers: Option<u32>,
    blockers: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    method: String,
    calls: Option<String>,
    /// Of all threads together.
    #[serde(rename = "blocked_ms", serialize_with = "milliseconds")]
    blocked: Duration,
    /// The most threads at the same time.
    threads: usize,
    /// One of its stacks.
    frames: Vec<SourceFrame>,
}

impl Blocker {
    fn of(frames: &[CodeFrame]) -> Self {
        match frames.iter().position(|frame| !is_of_framework(&frame.name)) {
            Some(own) => {
                let called = own.checked_sub(1).and_then(|called| shown(frames, called));
                Self { method: shown(frames, own).unwrap_or_default(), calls: called }
            }
            None => Self { method: shown(frames, 0).unwrap_or_default(), calls: None },
        }
    }
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.method)?;
        self.calls.iter().try_for_each(|called| write!(f, " calls {called}"))
    }
}

/// Whether this is the runtime's own method, in which threads stop for a suspension.
fn is_stop_point(name: &str) -> bool {
    name.contains("System.Threading.Thread.") && name.contains("PollGC")
}

impl State {
    fn see(&mut self, code: &CodeFrames, round: &Round<'_, '_>) {
        self.seen.blocked.values_mut().for_each(|blocked| blocked.threads_now = 0);
        self.seen.starved += round.elapsed().min(STARVED);
        // Other systems do not report whether a thread waits.
        let is_blocked = |sample: &Sample<'_>| sample.is_waiting() || cfg!(not(target_os = "linux"));
        for sample in round.samples().filter(is_blocked) {
            let managed = |(depth, frame): (usize, &SampledFrame)| {
                Some(code.frame(round.cx(), frame.function?, frame.ip, depth == 0))
            };
            let frames = sample.frames().iter().enumerate().filter_map(managed);
            let frames: Vec<CodeFrame> = frames.filter(|frame| !is_stop_point(&frame.name)).collect();
            let dispatch = frames.iter().position(|frame| frame.name.starts_with(DISPATCH));
            let Some(dispatch) = dispatch.filter(|&dispatch| dispatch > 0) else { continue };
            let profile = &mut self.profile;
            let os_id = sample.thread().os_id.unwrap_or_default();
            let thread = *self.threads.entry(os_id).or_insert_with(|| profile.thread(os_id, "pool"));
            let ids: Vec<_> = frames.iter().map(|frame| profile.frame(Frame::managed(&frame.name))).collect();
            let stack = profile.stack_leaf_first(ids);
            profile.sample(thread, Duration::ZERO, stack, sample.weight().as_nanos() as u64);
            let row = self.seen.blocked.entry(Blocker::of(&frames[..dispatch])).or_default();
            row.time += sample.weight();
            row.threads_now += 1;
            row.threads = row.threads.max(row.threads_now);
            if row.frames.is_empty() {
                row.frames = frames[..dispatch].to_vec();
            }
        }
    }
}

impl Seen {
    /// This reads files.
    fn report(&self, top: usize, depth: usize, lines: &mut SourceLines) -> StarvationReport {
        let mut rows: Vec<_> = self.blocked.iter().collect();
        rows.sort_by(|(name, a), (other, b)| b.time.cmp(&a.time).then(name.cmp(other)));
        let blockers = rows.into_iter().take(top).map(|(blocker, blocked)| Row {
            method: blocker.method.clone(),
            calls: blocker.calls.clone(),
            blocked: blocked.time,
            threads: blocked.threads,
            frames: in_source(&blocked.frames, depth, lines),
        });
        StarvationReport {
            reports: self.reports,
            starved_seconds: self.starved.as_secs_f64(),
            least_workers: self.workers.map(|(least, _)| least),
            most_workers: self.workers.map(|(_, most)| most),
            blockers: blockers.collect(),
        }
    }
}

impl Report for StarvationReport {
    fn text(&self, _head: &Head, answer: &mut Answer) {
        let (Some(fewest), Some(most)) = (self.least_workers, self.most_workers) else {
            say!(
                answer,
                "the runtime has not reported that the pool is starved, as it does when none of its work has ended for half a second"
            );
            say!(answer, "`corprof counters` shows how much work waits in its queue: dotnet.thread_pool.queue.length");
            return;
        };
        let seconds = self.starved_seconds;
        say!(
            answer,
            "{} reports of the runtime; the pool was starved for about {seconds:.1} s, and grew from {fewest} to {most} \
             threads",
            self.reports
        );
        say!(answer, "{:>9} {:>8}  blocks threads of the pool", "total s", "threads");
        for row in &self.blockers {
            say!(answer, "{:>9.1} {:>8}  {}", row.blocked.as_secs_f64(), row.threads, row.blocker());
        }
        for row in &self.blockers {
            say!(answer, "a stack of {}", row.blocker());
            row.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
        }
    }
}

impl Row {
    fn blocker(&self) -> Blocker {
        Blocker { method: self.method.clone(), calls: self.calls.clone() }
    }
}

impl Starvation {
    fn start(cx: &mut InCallback<'_>, settings: &Settings, asker: Asker) -> Result<Self, BoxError> {
        let options = Options::read(settings)?;
        let Options { top, depth, .. } = options;
        let spelling = Spelling::of(settings);
        let interval = Duration::try_from_secs_f64(1.0 / options.hertz)?;
        let profile = Profile::summed(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = spelling.profile(profile);
        let state = Arc::new(Mutex::new(State { options, seen: Seen::default(), profile, threads: HashMap::new() }));
        let clock = Arc::<Clock>::default();
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        answer_when_asked(cx, &asker)?;
        let drafted = Arc::clone(&state);
        let mut lines = SourceLines::new();
        keep_drafts(cx, &asker, DRAFTS, move |cx| {
            let seen = drafted.lock(cx).seen.clone();
            Some(seen.report(top, depth, &mut lines))
        })?;
        let profiler = Self { state: Arc::clone(&state), clock: Arc::clone(&clock), asker };
        let asked = Arc::clone(&clock);
        let code = CodeFrames::spelt(spelling);
        Sampler::every(interval).threads(move |_| asked.is_starved()).start(cx, move |round| {
            if clock.is_starved() {
                state.lock(round.cx()).see(&code, round);
            }
        })?;
        cx.start_runtime_events(KeywordSet::THREAD_POOL)?;
        Ok(profiler)
    }
}

#[callbacks]
impl Callbacks for Starvation {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&STARVATION)?;
        let asker = Asker::of_start(cx, &settings)?;
        Self::start(cx, &settings, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&STARVATION, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        Self::start(cx, &settings, asker)
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Some(event) = event.of_runtime(cx) else { return };
        let Ok(adjustment) = event.decode::<ThreadPoolWorkerThreadAdjustment>() else { return };
        if ![AdjustmentReason::STARVATION, AdjustmentReason::COOPERATIVE_BLOCKING].contains(&adjustment.reason) {
            return;
        }
        self.clock.starved();
        let seen = &mut self.state.lock(cx).seen;
        let wanted = adjustment.new_worker_thread_count;
        let (fewest, most) = seen.workers.unwrap_or((wanted, wanted));
        seen.reports += 1;
        seen.workers = Some((fewest.min(wanted), most.max(wanted)));
    }

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let mut state = self.state.lock(cx);
        let State { options, seen, profile, .. } = &mut *state;
        let report = seen.report(options.top, options.depth, &mut SourceLines::new());
        let files = match (&mut options.output, seen.workers) {
            (Some(output), Some(_)) => self.asker.write("the blocked stacks are", output, profile),
            _ => Vec::new(),
        };
        self.asker.report(&[], &report, &files);
    }
}
