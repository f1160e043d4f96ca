//! Shows which threads wait for locks, for how long, and what the owners of the locks do meanwhile.
//!
//! When it is asked (`question`), it answers with the waits by method, the owners by method, and for each pair of these the longest wait with the
//! stacks of both threads.
//!
//! The runtime reports each wait for a `lock` (`Monitor`, and `System.Threading.Lock`) that is longer than a spin, with
//! a number of the owner: the system's up to .NET 10, the runtime's own on .NET 11. A thread that takes the lock
//! without a wait while others wait is not reported until the next wait begins: until then the owner before it is
//! shown, though it has released the lock.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::events::views::{ContentionStart, ContentionStop, ThreadCreated};
use corprof::events::{ContentionFlags, KeywordSet};
use corprof::metadata::MetadataImport;
use corprof::prelude::*;
use corprof::sampler::{Round, SampledFrame, Sampler};
use corprof_export::{Frame, Output, Profile, SourceLines, Unit, application_name};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::LOCKS;
use serde::Serialize;

use crate::code_frames::{CodeFrame, CodeFrames, SourceStack, in_source};
use crate::question::{Answer, Asker, Head, Report, answer_when_asked, milliseconds};
use crate::thread_name::name_by_system;

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0C", no_export)]
pub struct Locks {
    depth: usize,
    code: Arc<CodeFrames>,
    waits: Arc<Waits>,
    asker: Asker,
}

/// The sampler asks for it without a context, so it is a lock of the standard library. It is held for single steps, and
/// never across a call to the runtime.
struct Waits(Mutex<State>);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Options {
    top: usize,
    depth: usize,
    hertz: f64,
    output: Option<Output>,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let out = settings.of("LOCKS_OUT");
        let output = match out.output()? {
            None => None,
            Some(_) => Some(out.parsed(|path| Output::new(path))?),
        };
        Ok(Self {
            top: settings.of("LOCKS_TOP").number()?,
            depth: settings.of("LOCKS_DEPTH").number()?,
            hertz: settings.of("LOCKS_HZ").number()?,
            output,
        })
    }
}

/// The threads that are older than an attach: the system's numbers, by the runtime's own.
fn threads(settings: &Settings) -> Result<HashMap<u32, u32>, SettingError> {
    let pair = |text: &str| -> Option<(u32, u32)> {
        let (own, os_id) = text.split_once('=')?;
        Some((own.parse().ok()?, os_id.parse().ok()?))
    };
    let read = |text: &str| {
        let pairs = text.split(',').filter(|pair| !pair.is_empty()).map(pair);
        pairs.collect::<Option<HashMap<_, _>>>().ok_or("give pairs of numbers: 1=4711,4=4713")
    };
    settings.of("LOCKS_THREADS").parsed(read)
}

struct State {
    options: Options,
    start: Instant,
    numbering: Numbering,
    /// The system's numbers of the threads, by the runtime's own.
    os_ids: HashMap<u32, u32>,
    /// The names by the system, as far as they were asked for.
    names: HashMap<u32, Option<String>>,
    /// The waits that go on, by the system's number of the waiting thread.
    waits: HashMap<u32, Wait>,
    /// The owners of the locks that are waited for.
    owners: HashMap<u64, u32>,
    count: usize,
    total: Duration,
    by_waiter: HashMap<String, Sum>,
    /// The time for which threads have waited, by what the owner did, and the name of its thread.
    by_owner: HashMap<(String, Option<String>), Sum>,
    /// The longest wait of each pair of methods: that of the waiting thread, and that of the owner.
    longest: HashMap<[String; 2], (Duration, Wait)>,
    /// What may be wrong with the answer.
    notes: Vec<String>,
    profile: Profile,
    threads: HashMap<u32, corprof_export::ThreadId>,
}

/// Whose numbers of threads the runtime writes into its events of locks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Numbering {
    System,
    Runtime,
}

impl Numbering {
    /// What the core library's class of locks knows of their owners. Up to .NET 8 the events come from native code,
    /// with the system's numbers.
    fn of_core_library(metadata: &MetadataImport<'_>) -> Result<Self> {
        let Some(class) = metadata.find_type_def("System.Threading.Lock", None)? else { return Ok(Self::System) };
        let knows_system = !metadata.methods_named(class, "get_OwningOSThreadId")?.is_empty();
        Ok(if knows_system { Self::System } else { Self::Runtime })
    }
}

#[derive(Default)]
struct Sum {
    count: usize,
    total: Duration,
    longest: Duration,
}

impl Sum {
    fn add(&mut self, time: Duration) {
        *self = Self { count: self.count + 1, total: self.total + time, longest: self.longest.max(time) };
    }
}

struct Wait {
    start: Instant,
    lock: u64,
    waiter: Place,
    /// Where the owner was when it was first seen during this wait.
    owner: Option<Place>,
}

/// A thread and its stack, leaf first.
#[derive(Clone)]
struct Place {
    os_id: u32,
    name: Option<String>,
    frames: Vec<CodeFrame>,
}

impl Place {
    fn new(os_id: u32, name: Option<Name>, frames: Vec<CodeFrame>) -> Self {
        Self { os_id, name: name.map(|name| name.to_string()), frames }
    }

    /// Whether this is a thread of the pool without work.
    fn is_idle(&self) -> bool {
        let is_in = |method: &str| self.frames.iter().any(|frame| frame.name.starts_with(method));
        is_in("System.Threading.PortableThreadPool.WorkerThread.")
            && !is_in("System.Threading.ThreadPoolWorkQueue.Dispatch(")
    }

    /// The innermost method that is not of the framework.
    fn method(&self) -> &str {
        let is_own = |frame: &&CodeFrame| !frame.name.starts_with("System.") && !frame.name.starts_with("Microsoft.");
        self.frames.iter().find(is_own).or(self.frames.first()).map_or("[unknown]", |frame| &frame.name)
    }

    fn in_source(&self, depth: usize, lines: &mut SourceLines) -> SourceStack {
        let frames = in_source(&self.frames, depth, lines);
        SourceStack { thread: Some(self.os_id), name: self.name.clone(), frames }
    }
}

/// The answer.
#[derive(Serialize)]
struct LockReport {
    waits: usize,
    #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
    waited: Duration,
    /// The waits that had not ended.
    unfinished_waits: usize,
    waiters: Vec<Waiter>,
    owners: Vec<Owner>,
    /// Of each pair of methods that waits and owns.
    longest: Vec<Longest>,
}

#[derive(Serialize)]
struct Waiter {
    method: String,
    waits: usize,
    #[serde(rename = "total_ms", serialize_with = "milliseconds")]
    total: Duration,
    #[serde(rename = "longest_ms", serialize_with = "milliseconds")]
    longest: Duration,
}

#[derive(Serialize)]
struct Owner {
    method: String,
    /// The name of the thread.
    name: Option<String>,
    #[serde(rename = "waited_for_ms", serialize_with = "milliseconds")]
    waited_for: Duration,
    samples: usize,
}

#[derive(Serialize)]
struct Longest {
    #[serde(rename = "ms", serialize_with = "milliseconds")]
    time: Duration,
    at_seconds: f64,
    waiter: SourceStack,
    owner: Option<SourceStack>,
}

impl State {
    fn new(options: Options, os_ids: HashMap<u32, u32>) -> Self {
        let profile = Profile::summed(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        Self {
            options,
            start: Instant::now(),
            numbering: Numbering::System,
            os_ids,
            names: HashMap::new(),
            waits: HashMap::new(),
            owners: HashMap::new(),
            count: 0,
            total: Duration::ZERO,
            by_waiter: HashMap::new(),
            by_owner: HashMap::new(),
            longest: HashMap::new(),
            notes: Vec::new(),
            profile,
            threads: HashMap::new(),
        }
    }

    /// Adds the name that the system knows, to the place of a thread that is older than an attach.
    fn name(&mut self, place: &mut Place) {
        if place.name.is_none() {
            let names = &mut self.names;
            place.name = names.entry(place.os_id).or_insert_with(|| name_by_system(place.os_id)).clone();
        }
    }

    fn begin(&mut self, os_id: u32, event: &ContentionStart, mut waiter: Place) {
        self.name(&mut waiter);
        let lock = event.lock_id.unwrap_or_default();
        if let Some(owner) = event.lock_owner_thread_id.and_then(|owner| self.owner(owner)) {
            self.owners.insert(lock, owner);
        }
        self.waits.insert(os_id, Wait { start: Instant::now(), lock, waiter, owner: None });
    }

    /// The system's number of an owner.
    fn owner(&self, number: u64) -> Option<u32> {
        let number = u32::try_from(number).ok().filter(|&number| number != 0)?;
        match self.numbering {
            Numbering::System => Some(number),
            Numbering::Runtime => self.os_ids.get(&number).copied(),
        }
    }

    fn end(&mut self, os_id: u32) {
        let Some(wait) = self.waits.remove(&os_id) else { return };
        // Now this thread owns the lock.
        if self.waits.values().any(|other| other.lock == wait.lock) {
            self.owners.insert(wait.lock, os_id);
        } else {
            self.owners.remove(&wait.lock);
        }
        self.finish(wait);
    }

    fn finish(&mut self, wait: Wait) {
        let time = wait.start.elapsed();
        self.count += 1;
        self.total += time;
        self.by_waiter.entry(wait.waiter.method().to_owned()).or_default().add(time);
        let methods = [wait.waiter.method(), wait.owner.as_ref().map_or("", Place::method)].map(str::to_owned);
        if self.longest.get(&methods).is_none_or(|(longest, _)| *longest < time) {
            self.longest.insert(methods, (time, wait));
        }
    }

    /// Adds the owner's stack, as it was in a round, to the waits for its locks.
    fn see(&mut self, mut owner: Place, elapsed: Duration) {
        self.name(&mut owner);
        let os_id = owner.os_id;
        if owner.is_idle() {
            self.owners.retain(|_, owner| *owner != os_id);
        }
        let owners = &self.owners;
        let waits = self.waits.values_mut().filter(|wait| owners.get(&wait.lock) == Some(&os_id));
        let mut waited = Duration::ZERO;
        for wait in waits {
            waited += wait.start.elapsed().min(elapsed);
            wait.owner.get_or_insert_with(|| owner.clone());
        }
        if waited.is_zero() {
            return;
        }
        self.by_owner.entry((owner.method().to_owned(), owner.name.clone())).or_default().add(waited);
        let profile = &mut self.profile;
        let thread = *self
            .threads
            .entry(os_id)
            .or_insert_with(|| profile.thread(os_id, owner.name.as_deref().unwrap_or_default()));
        let frames: Vec<_> = owner.frames.iter().map(|frame| profile.frame(Frame::managed(&frame.name))).collect();
        let stack = profile.stack_leaf_first(frames);
        profile.sample(thread, self.start.elapsed(), stack, waited.as_nanos() as u64);
    }

    fn report(&mut self) -> LockReport {
        let unfinished: Vec<Wait> = self.waits.drain().map(|(_, wait)| wait).collect();
        let unfinished_waits = unfinished.len();
        unfinished.into_iter().for_each(|wait| self.finish(wait));
        let Options { top, depth, .. } = self.options;
        let waiter = |(method, sum): (&String, &Sum)| Waiter {
            method: method.clone(),
            waits: sum.count,
            total: sum.total,
            longest: sum.longest,
        };
        let owner = |((method, name), sum): (&(String, Option<String>), &Sum)| Owner {
            method: method.clone(),
            name: name.clone(),
            waited_for: sum.total,
            samples: sum.count,
        };
        let mut longest: Vec<_> = self.longest.values().collect();
        longest.sort_by_key(|(time, _)| Reverse(*time));
        let mut lines = SourceLines::new();
        let longest = longest.into_iter().take(top).map(|(time, wait)| Longest {
            time: *time,
            at_seconds: wait.start.saturating_duration_since(self.start).as_secs_f64(),
            waiter: wait.waiter.in_source(depth, &mut lines),
            owner: wait.owner.as_ref().map(|owner| owner.in_source(depth, &mut lines)),
        });
        LockReport {
            waits: self.count,
            waited: self.total,
            unfinished_waits,
            waiters: largest(&self.by_waiter, top).into_iter().map(waiter).collect(),
            owners: largest(&self.by_owner, top).into_iter().map(owner).collect(),
            longest: longest.collect(),
        }
    }
}

impl Report for LockReport {
    fn text(&self, head: &Head, answer: &mut Answer) {
        if self.unfinished_waits > 0 {
            say!(answer, "{} waits have not ended", self.unfinished_waits);
        }
        let seconds = head.seconds;
        say!(answer, "{} waits in {seconds:.1} s; threads have waited for {} ms in all", self.waits, ms(self.waited));
        say!(answer, "{:>8} {:>10} {:>10}  waits in", "waits", "total ms", "longest ms");
        for Waiter { method, waits, total, longest } in &self.waiters {
            say!(answer, "{waits:>8} {:>10} {:>10}  {method}", ms(*total), ms(*longest));
        }
        say!(answer, "{:>19} {:>10}  owner of the lock", "waited for it, ms", "samples");
        for Owner { method, name, waited_for, samples } in &self.owners {
            let thread = name.as_ref().map(|name| format!(" on \"{name}\"")).unwrap_or_default();
            say!(answer, "{:>19} {samples:>10}  {method}{thread}", ms(*waited_for));
        }
        for Longest { time, at_seconds, waiter, owner } in &self.longest {
            say!(answer, "{} ms at {at_seconds:.3} s:", ms(*time));
            describe("waiting:", waiter, answer);
            if let Some(owner) = owner {
                describe("owner of the lock:", owner, answer);
            }
        }
    }
}

fn describe(title: &str, stack: &SourceStack, answer: &mut Answer) {
    let name = stack.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    say!(answer, "  {title} thread {}{name}", stack.thread.unwrap_or_default());
    stack.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
}

/// The sums with the longest times, at most so many.
fn largest<K: Ord>(sums: &HashMap<K, Sum>, top: usize) -> Vec<(&K, &Sum)> {
    let mut rows: Vec<_> = sums.iter().collect();
    rows.sort_by(|(name, a), (other, b)| b.total.cmp(&a.total).then(name.cmp(other)));
    rows.truncate(top);
    rows
}

fn ms(time: Duration) -> String {
    format!("{:.1}", 1000.0 * time.as_secs_f64())
}

/// Whether this is a method of the runtime's own: it writes the event, or threads stop in it for a suspension.
fn is_of_runtime(name: &str) -> bool {
    name.contains(".NativeRuntimeEventSource.")
        || (name.contains("System.Threading.Thread.") && name.contains("PollGC"))
}

/// The calling thread and its stack.
fn own_place(cx: &InNoGc<'_>, code: &CodeFrames, depth: usize) -> Option<(u32, Place)> {
    let thread = cx.current_thread().ok()??;
    let os_id = cx.os_thread_id(thread).ok()?;
    let mut frames = Vec::new();
    // In states in which the runtime cannot walk, the thread alone is shown.
    let _ = cx.walk_own_stack(|frame| {
        // The innermost managed method has called the runtime, too.
        let found = frame.function().map(|function| code.frame(cx, function, frame.ip(), false));
        frames.extend(found.filter(|frame| !is_of_runtime(&frame.name)));
        if frames.len() < depth { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    Some((os_id, Place::new(os_id, cx.thread_name(thread), frames)))
}

fn see_owners(waits: &Waits, code: &CodeFrames, round: &Round<'_, '_>) {
    for sample in round.samples() {
        let Some(os_id) = sample.thread().os_id else { continue };
        let managed = |(depth, frame): (usize, &SampledFrame)| {
            Some(code.frame(round.cx(), frame.function?, frame.ip, depth == 0))
        };
        let frames = sample.frames().iter().enumerate().filter_map(managed);
        let frames = frames.filter(|frame| !is_of_runtime(&frame.name)).collect();
        let owner = Place::new(os_id, sample.thread().name.clone(), frames);
        waits.lock().see(owner, round.elapsed());
    }
}

impl Locks {
    fn start(cx: &mut InCallback<'_>, settings: &Settings, asker: Asker) -> Result<Self, BoxError> {
        let options = Options::read(settings)?;
        let interval = Duration::try_from_secs_f64(1.0 / options.hertz)?;
        let depth = options.depth.max(100);
        let waits = Arc::new(Waits(Mutex::new(State::new(options, threads(settings)?))));
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let wanted = Arc::clone(&waits);
        let is_owner = move |os_id| wanted.lock().owners.values().any(|&id| id == os_id);
        let sampler = Sampler::every(interval).threads(move |thread| thread.os_id.is_some_and(&is_owner));
        let seen = Arc::clone(&waits);
        let code = Arc::<CodeFrames>::default();
        let owners = Arc::clone(&code);
        sampler.start(cx, move |round| see_owners(&seen, &owners, round))?;
        // The events of the thread pool's keyword include the beginnings of threads.
        cx.start_runtime_events(KeywordSet::CONTENTION | KeywordSet::THREAD_POOL)?;
        answer_when_asked(cx, &asker)?;
        Ok(Self { depth, code, waits, asker })
    }
}

#[callbacks]
impl Callbacks for Locks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&LOCKS)?;
        let asker = Asker::of_start(cx, &settings)?;
        Self::start(cx, &settings, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&LOCKS, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        cx.catch_up(); // the core library was loaded before
        Self::start(cx, &settings, asker)
    }

    fn module_load_finished(&self, cx: &mut InCallback<'_>, module: ModuleId, _status: Result<()>) {
        if &*cx.names().module(module) != "System.Private.CoreLib.dll" {
            return;
        }
        let numbering = cx.metadata(module).and_then(|metadata| Numbering::of_core_library(&metadata));
        match numbering {
            Ok(numbering) => self.waits.lock().numbering = numbering,
            Err(error) => self.waits.lock().notes.push(format!("the owners of locks may be wrong: {error}")),
        }
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Some(event) = event.of_runtime(cx) else { return };
        if let Ok(start) = event.decode::<ContentionStart>() {
            if start.contention_flags == ContentionFlags::MANAGED
                && let Some((os_id, waiter)) = own_place(cx, &self.code, self.depth)
            {
                self.waits.lock().begin(os_id, &start, waiter);
            }
        } else if let Ok(created) = event.decode::<ThreadCreated>() {
            self.waits.lock().os_ids.insert(created.managed_thread_index, created.os_thread_id);
        } else if event.decode::<ContentionStop>().is_ok()
            && let Ok(Some(thread)) = cx.current_thread()
            && let Ok(os_id) = cx.os_thread_id(thread)
        {
            self.waits.lock().end(os_id);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let mut state = self.waits.lock();
        let report = state.report();
        let mut notes = state.notes.clone();
        if self.asker.is_attached() && state.count == 0 {
            notes.push(
                "waits that had begun before are not among them: `corprof stacks` shows those threads".to_owned(),
            );
        }
        let State { options, profile, .. } = &mut *state;
        let files = match &mut options.output {
            Some(output) => self.asker.write("the stacks of owners are", output, profile),
            None => Vec::new(),
        };
        self.asker.report(&notes, &report, &files);
    }
}
