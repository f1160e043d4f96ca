//! Shows which threads wait for locks, for how long, and what the owners of the locks do meanwhile.
//!
//! When it is asked (`question`), it answers with the waits by method, the owners by method, and for each pair of these
//! the longest wait with the stacks of both threads. Before all that come deadlocks, waits that began before the
//! profiler was there, and threads that wait for a `SemaphoreSlim`, which has no owner: it looks for them at first, and
//! again while a wait lasts.
//!
//! The runtime reports each wait for a `lock` (`Monitor`, and `System.Threading.Lock`) that is longer than a spin, with
//! a number of the owner: the system's up to .NET 10, the runtime's own on .NET 11. A thread that takes the lock
//! without a wait while others wait is not reported until the next wait begins: until then the owner before it is
//! shown, though it has released the lock.
//!
//! Where locks are managed code (`Lock` from .NET 9 on, all of .NET 11) a wait that ends by its time limit is not
//! reported either. Threads that wait in that code are looked at, less and less often, until they are elsewhere.
//!
//! The stack of a thread that runs a resumed async method goes on with the methods that await it (`async_callers`).

mod place;
mod report;
mod seen;

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use corprof::args::EventPipeEvent;
use corprof::events::views::{ContentionStart, ContentionStop, ThreadCreated};
use corprof::events::{ContentionFlags, KeywordSet};
use corprof::lock_waits::{LockWait, LockWaits};
use corprof::metadata::MetadataImport;
use corprof::prelude::*;
use corprof::sampler::{Round, Sample, SampledFrame, Sampler, ticks};
use corprof_export::{Frame, Output, Profile, SourceLines, Unit, application_name};
use corprof_profilers::settings::{SettingError, Settings};
use corprof_profilers::table::LOCKS;

use crate::async_callers::{AsyncSource, Later, LaterCallers, StackFrame, ThreadKey, WantedCallers, this_thread};
use crate::code_frames::{CodeFrame, CodeFrames, Spelling};
use crate::question::{Asker, DRAFTS, answer_with_callers, keep_drafts};
use crate::thread_name::{is_gone, name_by_system};

use place::Place;
use report::LockReport;
use seen::{Seen, Standing, Wait};

/// A wait that lasts so long may be part of a deadlock.
const LONG: Duration = Duration::from_secs(1);
/// The interval at which it looks for deadlocks while a wait lasts: each time all threads are stopped once.
const LOOK: Duration = Duration::from_secs(5);

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0C", no_export)]
pub struct Locks {
    depth: usize,
    sees: Sees,
    waits: Arc<Waits>,
    hears: AsyncSource,
    asker: Asker,
}

/// What is seen of threads. A clone has the same.
#[derive(Clone)]
struct Sees {
    code: Arc<CodeFrames>,
    callers: Arc<corprof::sync::Mutex<LaterCallers>>,
}

impl Sees {
    /// Frames are shown in this spelling.
    fn spelt(spelling: Spelling) -> Self {
        Self { code: Arc::new(CodeFrames::spelt(spelling)), callers: Arc::default() }
    }
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
    seen: Seen,
    numbering: Numbering,
    /// The system's numbers of the threads, by the runtime's own.
    os_ids: HashMap<u32, u32>,
    /// The names by the system, as far as they were asked for.
    names: HashMap<u32, Option<String>>,
    /// The owners of the locks that are waited for.
    owners: HashMap<u64, u32>,
    /// When all threads were looked at, and whether waits for monitors can be seen.
    looked: Option<Instant>,
    sees_monitors: bool,
    /// What may be wrong with the answer.
    notes: Vec<String>,
    profile: Profile,
    threads: HashMap<u32, corprof_export::ThreadId>,
    /// The samples that are not in the profile yet, as the callers of owners are not known.
    samples: VecDeque<OwnerSample>,
}

/// A sample of an owner.
struct OwnerSample {
    owner: Place,
    at: Duration,
    waited: Duration,
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

impl State {
    fn new(options: Options, os_ids: HashMap<u32, u32>, spelling: Spelling) -> Self {
        let profile = Profile::summed(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = spelling.profile(profile);
        Self {
            options,
            seen: Seen::new(),
            numbering: Numbering::System,
            os_ids,
            names: HashMap::new(),
            owners: HashMap::new(),
            looked: None,
            sees_monitors: false,
            notes: Vec::new(),
            profile,
            threads: HashMap::new(),
            samples: VecDeque::new(),
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
        self.end_unreported(os_id);
        self.name(&mut waiter);
        let lock = event.lock_id.unwrap_or_default();
        // Whoever waits for a lock does not have it.
        if self.owners.get(&lock) == Some(&os_id) {
            self.owners.remove(&lock);
        }
        let owner = event.lock_owner_thread_id.and_then(|owner| self.owner(owner));
        if let Some(owner) = owner.filter(|owner| *owner != os_id) {
            self.owners.insert(lock, owner);
        }
        let start = Instant::now();
        let wait = Wait {
            start,
            start_ticks: ticks(),
            seen: start,
            owner_seen: start,
            lock,
            waiter,
            owner: None,
            owner_now: None,
            has_ended: false,
        };
        self.seen.waits.insert(os_id, wait);
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
        let seen = &mut self.seen;
        seen.began_before.retain(|wait| wait.waiter.os_id != os_id);
        seen.unknown.retain(|waiter| waiter.os_id != os_id);
        seen.deadlocks.retain(|waits| waits.iter().all(|wait| wait.waiter.os_id != os_id));
        let Some(mut wait) = seen.waits.remove(&os_id) else { return };
        wait.has_ended = true;
        let time = wait.start.elapsed();
        // Now this thread owns the lock.
        if seen.waits.values().any(|other| other.lock == wait.lock) {
            self.owners.insert(wait.lock, os_id);
        } else {
            self.owners.remove(&wait.lock);
        }
        self.finish(wait, time);
    }

    /// Ends a wait, if there is one, whose end was not reported: about half-way between the last two looks.
    fn end_unreported(&mut self, os_id: u32) {
        let Some(mut wait) = self.seen.waits.remove(&os_id) else { return };
        wait.has_ended = true;
        let time = wait.seen.saturating_duration_since(wait.start) + wait.seen.elapsed() / 2;
        self.finish(wait, time);
    }

    fn finish(&mut self, wait: Wait, time: Duration) {
        let rest = self.seen.finish(wait, time);
        self.sample_rests(rest);
    }

    /// Adds what waits lasted after the last round.
    fn sample_rests(&mut self, rests: impl IntoIterator<Item = (Place, Duration)>) {
        let at = self.seen.start.elapsed();
        self.samples.extend(rests.into_iter().map(|(owner, waited)| OwnerSample { owner, at, waited }));
        self.add_samples();
    }

    /// Whether a round has to look at a thread.
    fn wants(&self, os_id: u32) -> bool {
        self.owners.values().any(|&owner| owner == os_id) || self.seen.waits.get(&os_id).is_some_and(Wait::is_due)
    }

    /// Ends the waits of threads that have ended.
    fn end_gone(&mut self) {
        let due = self.seen.waits.iter().filter(|(_, wait)| wait.is_due());
        let gone: Vec<u32> = due.map(|(os_id, _)| *os_id).filter(|os_id| is_gone(*os_id)).collect();
        gone.into_iter().for_each(|os_id| self.end_unreported(os_id));
    }

    /// A thread had this stack at this time: whether it still waits.
    fn see_waiter(&mut self, place: &Place, at_ticks: u64) {
        let Some(wait) = self.seen.waits.get_mut(&place.os_id) else { return };
        if at_ticks < wait.start_ticks || place.frames.is_empty() || !wait.waiter.is_in_lock_code() {
            return;
        }
        if place.is_in_lock_code() {
            wait.seen = Instant::now();
        } else {
            self.end_unreported(place.os_id);
        }
    }

    /// Adds the owner's stack, as it was in a round, to the waits for its locks.
    fn see(&mut self, mut owner: Place) {
        let os_id = owner.os_id;
        // A round that looks at all threads has others, too.
        if !self.owners.values().any(|&owner| owner == os_id) {
            return;
        }
        self.name(&mut owner);
        if owner.is_idle() {
            self.owners.retain(|_, owner| *owner != os_id);
        }
        let owners = &self.owners;
        let waits = self.seen.waits.values_mut().filter(|wait| owners.get(&wait.lock) == Some(&os_id));
        let mut waited = Duration::ZERO;
        for wait in waits {
            waited += wait.owner_seen.elapsed();
            wait.owner_seen = Instant::now();
            wait.owner.get_or_insert_with(|| owner.clone());
            wait.owner_now = Some(owner.clone());
        }
        if waited.is_zero() {
            return;
        }
        self.seen.add_owner(&owner, waited);
        self.samples.push_back(OwnerSample { owner, at: self.seen.start.elapsed(), waited });
        self.add_samples();
    }

    /// Adds samples to the profile, as long as the callers of the owners are known.
    fn add_samples(&mut self) {
        let is_known = |sample: &OwnerSample| sample.owner.callers.as_ref().is_none_or(Later::is_known);
        while self.samples.front().is_some_and(is_known)
            && let Some(OwnerSample { owner, at, waited }) = self.samples.pop_front()
        {
            let profile = &mut self.profile;
            let thread = *self
                .threads
                .entry(owner.os_id)
                .or_insert_with(|| profile.thread(owner.os_id, owner.name.as_deref().unwrap_or_default()));
            let frames: Vec<_> =
                owner.all_frames().iter().map(|frame| profile.frame(Frame::managed(&frame.name))).collect();
            let stack = profile.stack_leaf_first(frames);
            profile.sample(thread, at, stack, waited.as_nanos() as u64);
        }
    }

    /// Whether to look at all threads: at first, and while waits last so long that they may be part of a deadlock.
    fn wants_look(&self) -> bool {
        let Some(looked) = self.looked else { return true };
        let is_long = |wait: &Wait| wait.start.elapsed() > LONG;
        let Seen { waits, began_before, unknown, semaphores, .. } = &self.seen;
        let stands = !began_before.is_empty() || !unknown.is_empty() || !semaphores.is_empty();
        let lasts = waits.values().any(is_long) || stands;
        lasts && looked.elapsed() > LOOK
    }

    /// Keeps what stands among all threads, whose stacks are `places`.
    fn look(&mut self, locks: &LockWaits, places: &HashMap<u32, Place>) {
        self.looked = Some(Instant::now());
        self.sees_monitors = locks.sees_monitors;
        let place =
            |os_id: u32| places.get(&os_id).cloned().unwrap_or_else(|| Place::new(os_id, None, Vec::new(), None));
        let standing =
            |wait: &LockWait| Standing { waiter: place(wait.waiter), owner: place(wait.owner), wait: wait.clone() };
        let deadlocks = locks.deadlocks();
        let is_known = |wait: &LockWait| {
            let is_in_deadlock = deadlocks.iter().flatten().any(|known| known.waiter == wait.waiter);
            is_in_deadlock || self.seen.waits.contains_key(&wait.waiter)
        };
        let began_before: Vec<Standing> = locks.waits.iter().filter(|wait| !is_known(wait)).map(standing).collect();
        let all_of = |waits: &Vec<&LockWait>| waits.iter().map(|wait| standing(wait)).collect();
        let seen = &mut self.seen;
        seen.deadlocks = deadlocks.iter().map(all_of).collect();
        seen.began_before = began_before;
        // Those that began since are in the tables.
        let unknown = locks.unknown.iter().filter(|os_id| !seen.waits.contains_key(os_id));
        seen.unknown = unknown.map(|os_id| place(*os_id)).collect();
        seen.semaphores = places.values().filter(|place| place.waits_for_semaphore()).cloned().collect();
        let standing = seen.deadlocks.iter_mut().flatten().chain(&mut seen.began_before);
        let mut places: Vec<&mut Place> = standing.flat_map(|wait| [&mut wait.waiter, &mut wait.owner]).collect();
        places.extend(&mut seen.unknown);
        places.extend(&mut seen.semaphores);
        for place in &mut places {
            if place.name.is_none() {
                let name = self.names.entry(place.os_id).or_insert_with(|| name_by_system(place.os_id));
                place.name.clone_from(name);
            }
        }
    }

    /// The callers are known by now, as far as they ever will be.
    fn report(&mut self) -> LockReport {
        self.add_samples();
        self.end_gone();
        let rests = self.seen.finish_all();
        self.sample_rests(rests);
        self.seen.report(self.options.top, self.options.depth, &mut SourceLines::new())
    }
}

/// Whether this is a method of the runtime's own: it writes the event, or threads stop in it for a suspension.
fn is_of_runtime(name: &str) -> bool {
    name.contains(".NativeRuntimeEventSource.")
        || (name.contains("System.Threading.Thread.") && name.contains("PollGC"))
}

impl Sees {
    /// The calling thread and its stack.
    fn own_place(&self, cx: &InNoGc<'_>, depth: usize) -> Option<(u32, Place)> {
        let thread = cx.current_thread().ok()??;
        let os_id = cx.os_thread_id(thread).ok()?;
        let mut frames = Frames::default();
        // In states in which the runtime cannot walk, the thread alone is shown.
        let _ = cx.walk_own_stack(|frame| {
            // The innermost managed method has called the runtime, too.
            if let Some(function) = frame.function() {
                frames.add(function, self.code.frame(cx, function, frame.ip(), false));
            }
            if frames.shown.len() < depth { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let callers = this_thread(cx).and_then(|thread| self.callers_of(cx, thread, ticks(), frames.stack));
        Some((os_id, Place::new(os_id, cx.thread_name(thread), frames.shown, callers)))
    }

    /// The thread of a sample and its stack.
    fn sampled_place(&self, cx: &InNoGc<'_>, sample: &Sample<'_>) -> Option<Place> {
        let thread = sample.thread();
        let os_id = thread.os_id?;
        let mut frames = Frames::default();
        for (depth, SampledFrame { function, ip, .. }) in sample.frames().iter().enumerate() {
            if let Some(function) = *function {
                frames.add(function, self.code.frame(cx, function, *ip, depth == 0));
            }
        }
        let callers = self.callers_of(cx, (thread.id, thread.os_id), sample.ticks(), frames.stack);
        Some(Place::new(os_id, thread.name.clone(), frames.shown, callers))
    }

    fn callers_of(&self, cx: &InNoGc<'_>, thread: ThreadKey, ticks: u64, stack: Vec<StackFrame>) -> Option<Later> {
        let later = LaterCallers::of(&self.callers, cx, thread, ticks, stack.into());
        (!later.is_known() || later.found().is_some()).then_some(later)
    }
}

/// The frames of a stack that are shown, the innermost first.
#[derive(Default)]
struct Frames {
    shown: Vec<CodeFrame>,
    /// The same for async callers.
    stack: Vec<StackFrame>,
}

impl Frames {
    fn add(&mut self, function: FunctionId, frame: CodeFrame) {
        if !is_of_runtime(&frame.name) {
            self.stack.push(StackFrame::of(function, &frame.name));
            self.shown.push(frame);
        }
    }
}

fn see_threads(waits: &Waits, sees: &Sees, round: &Round<'_, '_>) {
    for sample in round.samples() {
        if let Some(place) = sees.sampled_place(round.cx(), &sample) {
            let mut state = waits.lock();
            state.see_waiter(&place, sample.ticks());
            state.see(place);
        }
    }
}

/// Looks who waits for whom, in a round with all threads.
fn look(waits: &Waits, sees: &Sees, round: &mut Round<'_, '_>) {
    // At once: an owner may soon have another stack.
    let locks = round.lock_waits();
    let places = round.samples().filter_map(|sample| sees.sampled_place(round.cx(), &sample));
    let places: HashMap<u32, Place> = places.map(|place| (place.os_id, place)).collect();
    let mut state = waits.lock();
    match locks {
        Ok(locks) => state.look(&locks, &places),
        Err(error) => {
            // Another look would fail as well.
            state.looked.get_or_insert_with(Instant::now);
            state.notes.push(format!("deadlocks are not looked for: {error}"));
        }
    }
}

impl Locks {
    fn start(cx: &mut InCallback<'_>, settings: &Settings, hears: AsyncSource, asker: Asker) -> Result<Self, BoxError> {
        let options = Options::read(settings)?;
        let spelling = Spelling::of(settings);
        let interval = Duration::try_from_secs_f64(1.0 / options.hertz)?;
        let Options { top, depth: shown, .. } = options;
        let depth = shown.max(100);
        let waits = Arc::new(Waits(Mutex::new(State::new(options, threads(settings)?, spelling))));
        cx.add_events(EventMask::ENABLE_STACK_SNAPSHOT)?;
        let wanted = Arc::clone(&waits);
        // The first round has all threads.
        let takes_all = Arc::new(AtomicBool::new(true));
        let takes_this = Arc::clone(&takes_all);
        let is_wanted = move |os_id| takes_this.load(Ordering::Relaxed) || wanted.lock().wants(os_id);
        let sampler = Sampler::every(interval).threads(move |thread| thread.os_id.is_some_and(&is_wanted));
        let seen = Arc::clone(&waits);
        let sees = Sees::spelt(spelling);
        let owners = sees.clone();
        let asked = asker.clone();
        sampler.start(cx, move |round| {
            if asked.is_over() {
                return;
            }
            see_threads(&seen, &owners, round);
            if takes_all.load(Ordering::Relaxed) {
                look(&seen, &owners, round);
            }
            let mut state = seen.lock();
            state.end_gone();
            takes_all.store(state.wants_look(), Ordering::Relaxed);
        })?;
        // The events of the thread pool's keyword include the beginnings of threads.
        cx.start_runtime_events(KeywordSet::CONTENTION | KeywordSet::THREAD_POOL)?;
        answer_with_callers(cx, &asker, LaterCallers::work(&sees.callers, &hears))?;
        let drafted = Arc::clone(&waits);
        let mut lines = SourceLines::new();
        keep_drafts(cx, &asker, DRAFTS, move |_| {
            // The report reads files, for which no event may wait.
            let mut seen = drafted.lock().seen.clone();
            seen.finish_all();
            Some(seen.report(top, shown, &mut lines))
        })?;
        Ok(Self { depth, sees, waits, hears, asker })
    }
}

#[callbacks]
impl Callbacks for Locks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&LOCKS)?;
        let asker = Asker::of_start(cx, &settings)?;
        let hears = AsyncSource::of_start(cx, WantedCallers::read(&settings)?, true)?;
        Self::start(cx, &settings, hears, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&LOCKS, data)?;
        let asker = Asker::of_attach(cx, &settings)?;
        let hears = AsyncSource::of_attach(cx, WantedCallers::read(&settings)?)?;
        cx.catch_up(); // the core library was loaded before
        Self::start(cx, &settings, hears, asker)
    }

    fn jit_compilation_started(&self, cx: &mut InCallback<'_>, _function: FunctionId, _is_safe_to_block: bool) {
        self.hears.compiling(cx);
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
        self.hears.take(cx, &event);
        let Some(event) = event.of_runtime(cx) else { return };
        if let Ok(start) = event.decode::<ContentionStart>() {
            if start.contention_flags == ContentionFlags::MANAGED
                && !self.asker.is_over()
                && let Some((os_id, waiter)) = self.sees.own_place(cx, self.depth)
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

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let callers = self.sees.callers.lock(cx).finish(cx);
        let mut state = self.waits.lock();
        let report = state.report();
        let mut notes = state.notes.clone();
        notes.extend(callers);
        if self.asker.is_attached() && !state.sees_monitors {
            notes.push(
                "waits that had begun before are not among them: `corprof stacks` shows those threads".to_owned(),
            );
        }
        let State { options, profile, .. } = &mut *state;
        profile.set_table(report.table());
        let files = match &mut options.output {
            Some(output) => self.asker.write("the stacks of owners are", output, profile),
            None => Vec::new(),
        };
        self.asker.report(&notes, &report, &files);
    }
}
