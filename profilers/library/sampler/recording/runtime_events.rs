//! The runtime's own events in a recording, activities and async operations: sessions of the profiler's, whose events
//! are kept as they are, those of the runtime with the stacks of the threads that write them.
//!
//! The runtime takes stacks for its own sampler only, so events that say what code has done are walked when they are
//! delivered ([`WALKED`]). That is on the application's thread: it copies, and the thread that writes the file looks up
//! names and writes.
//!
//! The pauses of a sampler are told as those of collections are. They are left out ([`is_of_profiler`]).

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use corprof::args::EventPipeEvent;
use corprof::events::views::GcSuspendBegin;
use corprof::events::{Event, KeywordSet, Level, SuspendReason};
use corprof::id::{EventPipeProviderId, EventPipeSessionId, Inert};
use corprof::info::{EventPipeProviderConfig, RuntimeEvents};
use corprof::prelude::*;
use corprof::profiler_thread::ProfilerThread;
use corprof::sampler::ticks;
use corprof::sync::Mutex;
use corprof_async::trace::{ACTIVITY_ARGUMENTS, ACTIVITY_PROVIDER, QUEUE_PROVIDER, WORK_TAKEN};
use corprof_async::{ASYNC_EVENTS, Action, Decoder, PROVIDER};
use corprof_nettrace::Metadata;

use super::trace_file::TraceThread;
use super::{EventPlaces, FoundCode, ModulesWithLines, UnknownCode, find_code};
use crate::async_callers::{Joins, method_at, tells_operations};
use crate::sampler::State;

/// How many bytes of events may wait. They are taken many times a second.
const MOST_BYTES: usize = 16 << 20;
/// The most frames of an event.
const DEEPEST: usize = 512;
/// An event's payload has room for so many bytes.
const LONGEST: usize = 65_535;

/// The runtime's numbers of its events: a collection that begins, and one that is asked for.
const GC_START: u32 = 1;
const GC_TRIGGERED: u32 = 35;
/// An allocation that it tells of every 100 KB, and one that it has sampled.
const ALLOCATION_TICK: u32 = 10;
const ALLOCATION_SAMPLED: u32 = 303;
const EXCEPTION_THROWN: u32 = 80;
const CONTENTION_START: u32 = 81;
/// The events of a pause, in this order.
const SUSPEND_BEGIN: u32 = 9;
const SUSPEND_END: u32 = 8;
const RESTART_BEGIN: u32 = 7;
const RESTART_END: u32 = 3;

/// The events that say what code has done: each of these is walked. What else is told about an exception or a lock
/// belongs to one of them.
const WALKED: [u32; 6] =
    [GC_START, GC_TRIGGERED, ALLOCATION_TICK, ALLOCATION_SAMPLED, EXCEPTION_THROWN, CONTENTION_START];

thread_local! {
    /// Whether this thread makes a pause for a profiler.
    static PAUSES_FOR_PROFILER: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread has told of an activity since it took work from the queue.
    static HAS_ACTIVITY: Cell<bool> = const { Cell::new(false) };
}

/// Who writes events that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::sampler) enum Source {
    Runtime,
    /// `System.Diagnostics.Activity`.
    Activities,
    /// The buffers of async operations (.NET 11), which `crate::async_callers` has the runtime write.
    Operations,
    /// The queue of the thread pool, where the runtime does not tell of operations: what a thread takes from it is other
    /// work than before.
    Queue,
}

/// A kind of events: who writes it, its number and its version.
pub(super) type EventKind = (Source, u32, u32);

/// A kind, and the description of it by who writes it.
type Described = (EventKind, Box<[u8]>);

/// The keyword of activities.
const ACTIVITIES: u64 = 0x2;
/// That of the queue of the thread pool.
const QUEUE: u64 = 0x2;

/// The kinds of events that are wanted.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::sampler) struct EventKinds {
    alloc: bool,
    lock: bool,
    exception: bool,
    gc: bool,
    activity: bool,
}

/// An event that was delivered.
pub(in crate::sampler) struct HeldEvent {
    pub(super) thread: TraceThread,
    pub(super) thread_name: Option<Name>,
    pub(super) ticks: u64,
    pub(super) kind: EventKind,
    pub(super) activity: Option<u128>,
    pub(super) payload: Box<[u8]>,
    /// Functions and addresses of calls, the innermost first.
    pub(super) frames: Box<[(FunctionId, usize)]>,
    /// The methods that the payload tells of by addresses.
    pub(super) methods: Box<[(FunctionId, usize)]>,
}

/// What was delivered and is not written yet.
#[derive(Default)]
pub(in crate::sampler) struct EventInbox {
    kinds: EventKinds,
    held: Mutex<Held>,
    /// Of async operations.
    decoder: Mutex<Decoder>,
    providers: KnownProviders,
}

/// The providers of the sources but the runtime's, as numbers; 0 before the first event. The session hears of no others,
/// so a number that is free again names none of these. Asking for a name costs as much as all else that is done for an
/// event.
#[derive(Default)]
struct KnownProviders {
    activities: AtomicUsize,
    operations: AtomicUsize,
    queue: AtomicUsize,
}

impl KnownProviders {
    fn source(&self, cx: &InNoGc<'_>, provider: EventPipeProviderId<'_>) -> Option<Source> {
        let sources = [
            (&self.activities, ACTIVITY_PROVIDER, Source::Activities),
            (&self.operations, PROVIDER, Source::Operations),
            (&self.queue, QUEUE_PROVIDER, Source::Queue),
        ];
        let number = provider.as_raw();
        if let Some((.., source)) = sources.iter().find(|(known, ..)| known.load(Relaxed) == number) {
            return Some(*source);
        }
        let name = cx.event_pipe_provider_info(provider).ok()?;
        let (known, _, source) = sources.into_iter().find(|(_, of_source, _)| *of_source == name)?;
        known.store(number, Relaxed);
        Some(source)
    }
}

#[derive(Default)]
pub(in crate::sampler) struct Held {
    pub(super) events: Vec<HeldEvent>,
    bytes: usize,
    /// The descriptions of events that came for the first time, by number and version.
    pub(super) descriptions: Vec<Described>,
    known: HashSet<EventKind>,
    /// How many events there was no room for.
    pub(super) lost: u32,
}

impl EventKinds {
    /// Those that are among these words, if any is.
    pub(in crate::sampler) fn of(words: &[String]) -> Option<Self> {
        let has = |word: &str| words.iter().any(|given| given == word);
        let kinds = Self {
            alloc: has("alloc"),
            lock: has("lock"),
            exception: has("exception"),
            gc: has("gc"),
            activity: has("activity"),
        };
        Some(kinds).filter(|kinds| *kinds != Self::default())
    }

    /// Whether activities are wanted, and the operations that run for them.
    pub(in crate::sampler) fn has_activities(self) -> bool {
        self.activity
    }

    fn set(self, cx: &InNoGc<'_>) -> Result<Option<KeywordSet>> {
        // The runtime samples allocations fairly from .NET 10 on.
        let alloc =
            if cx.runtime_info()?.major >= 10 { KeywordSet::ALLOCATION_SAMPLES } else { KeywordSet::ALLOCATION_TICKS };
        let sets = [
            (self.alloc, alloc),
            (self.lock, KeywordSet::CONTENTION),
            (self.exception, KeywordSet::EXCEPTIONS),
            (self.gc, KeywordSet::GC),
        ];
        let wanted = sets.into_iter().filter_map(|(is_wanted, set)| is_wanted.then_some(set));
        Ok(wanted.reduce(|all, set| all | set))
    }

    /// Whether an event is one of those: where the runtime tells of allocations among collections, both come.
    fn want(self, id: u32, description: &[u8]) -> bool {
        /// The bit of the keyword of collections.
        const GC: u64 = 1;
        let is_of_gc = || Metadata::described(1, "", description).is_some_and(|event| event.keywords & GC != 0);
        self.gc || id == ALLOCATION_TICK || !is_of_gc()
    }
}

impl EventInbox {
    pub(in crate::sampler) fn new(kinds: EventKinds) -> Self {
        let providers = KnownProviders::default();
        Self { kinds, held: Mutex::default(), decoder: Mutex::new(Decoder::new()), providers }
    }

    /// Who writes an event, if it is kept. Of the work that a thread takes from the queue, the first after an activity
    /// is enough: it ends what the thread runs for that.
    fn source(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) -> Option<Source> {
        if let Some(of_runtime) = event.of_runtime(cx) {
            let is_wanted = self.kinds.want(event.id, event.metadata) && !is_of_profiler(event.id, &of_runtime);
            return is_wanted.then_some(Source::Runtime);
        }
        if !self.kinds.activity {
            return None;
        }
        let source = self.providers.source(cx, event.provider)?;
        let is_wanted = match source {
            Source::Operations => event.id == ASYNC_EVENTS,
            Source::Queue => event.id == WORK_TAKEN && HAS_ACTIVITY.replace(false),
            Source::Activities | Source::Runtime => true,
        };
        if source == Source::Activities {
            HAS_ACTIVITY.set(true);
        }
        is_wanted.then_some(source)
    }

    /// Keeps an event; if the runtime's says what code has done, with the stack of this thread, which writes it.
    pub(in crate::sampler) fn take(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
        let Some(source) = self.source(cx, event) else { return };
        let ticks = ticks();
        let os_id = event.thread.map_or_else(own_os_id, |thread| cx.os_thread_id(thread).ok());
        let is_walked = source == Source::Runtime && WALKED.contains(&event.id);
        let frames = if is_walked { own_stack(cx) } else { Vec::new() };
        let held = HeldEvent {
            thread: (event.thread.map(Inert::from), os_id),
            thread_name: event.thread.and_then(|thread| cx.thread_name(thread)),
            ticks,
            kind: (source, event.id, event.version),
            activity: event.activity.map(|activity| activity.to_u128()),
            payload: event.data.into(),
            frames: frames.into(),
            methods: Box::default(),
        };
        self.held.lock(cx).push(held, event.metadata);
    }

    /// Finds the methods of async operations.
    fn find_methods(&self, cx: &InNoGc<'_>, held: &mut Held) {
        let mut decoder = self.decoder.lock(cx);
        let mut functions: HashMap<u64, Option<FunctionId>> = HashMap::new();
        for event in held.events.iter_mut().filter(|event| event.kind.0 == Source::Operations) {
            let addresses = addresses_of(&mut decoder, &event.payload).into_iter();
            let found = addresses.filter_map(|address| {
                let function = *functions.entry(address).or_insert_with(|| method_at(cx, address).ok().flatten());
                function.zip(usize::try_from(address).ok())
            });
            event.methods = found.collect();
        }
    }

    fn take_all(&self, cx: &InNoGc<'_>) -> Held {
        let mut held = self.held.lock(cx);
        held.bytes = 0;
        Held {
            events: std::mem::take(&mut held.events),
            descriptions: std::mem::take(&mut held.descriptions),
            lost: std::mem::take(&mut held.lost),
            ..Held::default()
        }
    }
}

impl Held {
    fn push(&mut self, event: HeldEvent, description: &[u8]) {
        let bytes = size_of::<HeldEvent>() + event.payload.len() + size_of_val(&*event.frames);
        if self.bytes + bytes > MOST_BYTES || event.payload.len() > LONGEST {
            self.lost += 1;
            return;
        }
        self.bytes += bytes;
        if self.known.insert(event.kind) {
            self.descriptions.push((event.kind, description.into()));
        }
        self.events.push(event);
    }
}

/// Whether an event is of a pause that a profiler makes. All events of a pause come on the thread that makes it, and
/// only the first has the reason.
fn is_of_profiler(id: u32, event: &Event<'_>) -> bool {
    match id {
        SUSPEND_BEGIN => {
            let is_it = event.decode::<GcSuspendBegin>().is_ok_and(|begin| begin.reason == SuspendReason::PROFILER);
            PAUSES_FOR_PROFILER.set(is_it);
            is_it
        }
        SUSPEND_END | RESTART_BEGIN => PAUSES_FOR_PROFILER.get(),
        RESTART_END => PAUSES_FOR_PROFILER.replace(false),
        _ => false,
    }
}

/// The functions on the stack of this thread, and the addresses of their calls, the innermost first.
fn own_stack(cx: &InNoGc<'_>) -> Vec<(FunctionId, usize)> {
    let mut frames = Vec::new();
    // In states in which the runtime cannot walk, and on its own threads, there is no stack.
    let _ = cx.walk_own_stack(|frame| {
        // The innermost managed method has called the runtime, too.
        frames.extend(frame.function().map(|function| (function, frame.ip().saturating_sub(1))));
        if frames.len() < DEEPEST { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    frames
}

/// The addresses of methods in a buffer of async operations; none if it cannot be decoded.
fn addresses_of(decoder: &mut Decoder, payload: &[u8]) -> HashSet<u64> {
    let Ok(buffer) = decoder.decode(payload) else { return HashSet::new() };
    let stacks = buffer.sub_events().filter_map(|event| match event.action {
        Action::Stack(stack) => Some(stack),
        _ => None,
    });
    let addresses = stacks.flat_map(|stack| stack.frames.map(|frame| frame.address));
    addresses.filter(|address| *address != 0).collect()
}

/// The system's number of this thread, where that can be asked for.
fn own_os_id() -> Option<u32> {
    #[cfg(target_os = "linux")]
    return u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).ok();
    #[cfg(not(target_os = "linux"))]
    None
}

/// The work of the thread that writes the file: starts the session, and moves its events into the file.
pub(in crate::sampler) struct EventWork {
    state: Arc<Mutex<State>>,
    inbox: Arc<EventInbox>,
    session: Option<RuntimeEvents>,
    activities: Option<EventPipeSessionId>,
    queue: Queue,
    modules: ModulesWithLines,
    is_started: bool,
}

/// The session of what threads take from the queue of the thread pool.
enum Queue {
    /// Nobody needs it.
    Unwanted,
    /// The runtime has not said yet whether it tells of operations.
    Unknown,
    On(EventPipeSessionId),
}

impl EventWork {
    pub(in crate::sampler) fn new(state: Arc<Mutex<State>>, inbox: Arc<EventInbox>) -> Self {
        let (session, activities, queue) = (None, None, Queue::Unwanted);
        Self { state, inbox, session, activities, queue, modules: ModulesWithLines::default(), is_started: false }
    }

    /// Does what is due.
    pub(in crate::sampler) fn step(&mut self, cx: &mut ProfilerThread<'_>) {
        if !self.is_started && self.state.lock(cx).begins_in().is_zero() {
            self.is_started = true;
            if let Err(error) = self.start(cx) {
                self.state.lock(cx).say_without_events(&error);
            }
        }
        if let Queue::Unknown = self.queue
            && let Err(error) = self.listen_to_queue(cx)
        {
            self.queue = Queue::Unwanted;
            self.state.lock(cx).say_without_events(&error);
        }
        move_events(cx, &self.state, &self.inbox, &mut self.modules);
    }

    fn start(&mut self, cx: &mut ProfilerThread<'_>) -> Result<()> {
        if let Some(set) = self.inbox.kinds.set(cx)? {
            self.session = Some(cx.start_runtime_events(set)?);
        }
        if self.inbox.kinds.activity {
            let provider = EventPipeProviderConfig {
                name: ACTIVITY_PROVIDER,
                keywords: ACTIVITIES,
                level: Level::Verbose,
                filter: Some(ACTIVITY_ARGUMENTS),
            };
            self.activities = Some(cx.event_pipe_start_session(&[provider], false)?);
            self.queue = Queue::Unknown;
        }
        Ok(())
    }

    /// Starts the session of the queue, if the runtime does not tell by itself what threads run for a request.
    fn listen_to_queue(&mut self, cx: &mut ProfilerThread<'_>) -> Result<()> {
        let Some(is_told) = tells_operations(cx) else { return Ok(()) };
        self.queue = Queue::Unwanted;
        if !is_told {
            let provider =
                EventPipeProviderConfig { name: QUEUE_PROVIDER, keywords: QUEUE, level: Level::Verbose, filter: None };
            self.queue = Queue::On(cx.event_pipe_start_session(&[provider], false)?);
        }
        Ok(())
    }

    /// Ends the sessions, and writes their last events.
    pub(in crate::sampler) fn end(mut self, cx: &mut ProfilerThread<'_>) {
        let queue = if let Queue::On(session) = self.queue { Some(session) } else { None };
        let session = self.session.map(|session| session.id());
        for session in session.into_iter().chain(self.activities).chain(queue) {
            let _ = cx.event_pipe_stop_session(session); // the end of the process has ended it
        }
        move_events(cx, &self.state, &self.inbox, &mut self.modules);
    }
}

/// Moves the events that were delivered into the recording.
pub(in crate::sampler) fn move_events(
    cx: &mut InCallback<'_>,
    state: &Mutex<State>,
    inbox: &EventInbox,
    modules: &mut ModulesWithLines,
) {
    /// So many at once: the sampler waits for the lock meanwhile.
    const AT_ONCE: usize = 256;
    let mut held = inbox.take_all(cx);
    if held.events.is_empty() && held.lost == 0 {
        return;
    }
    inbox.find_methods(cx, &mut held);
    let unknown: Vec<UnknownCode> = state.lock(cx).unknown_code_of_events(cx, &held);
    // The runtime may collect before it answers, so nothing is locked.
    let code: Vec<FoundCode> = find_code(cx, unknown, modules);
    if let Some(recording) = &mut state.lock(cx).recording {
        recording.learn(code);
        recording.define_events(&held);
        recording.lose_events(&held);
    }
    let mut places = EventPlaces::default();
    let mut waiting = held.events.into_iter();
    loop {
        let events: Vec<HeldEvent> = waiting.by_ref().take(AT_ONCE).collect();
        if events.is_empty() {
            return;
        }
        if let Some(recording) = &mut state.lock(cx).recording {
            recording.add_events(cx, events, &mut places);
        }
    }
}

#[cfg(test)]
mod tests {
    use corprof::events::Provider;

    use super::*;

    fn event(payload: usize) -> HeldEvent {
        HeldEvent {
            thread: (None, Some(7)),
            thread_name: None,
            ticks: 1,
            kind: (Source::Runtime, 80, 1),
            activity: None,
            payload: vec![0; payload].into(),
            frames: Box::default(),
            methods: Box::default(),
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut held = Held::default();
        held.push(event(LONGEST + 1), b"described");
        assert_eq!((held.events.len(), held.lost), (0, 1), "longer than an event may be");
        let fit = MOST_BYTES / (LONGEST + size_of::<HeldEvent>());
        for _ in 0..fit + 10 {
            held.push(event(LONGEST), b"described");
        }
        assert_eq!((held.events.len(), held.lost), (fit, 11));
        assert_eq!(held.descriptions.len(), 1, "each is described once");
    }

    #[test]
    fn pauses_of_profilers_are_told_apart_from_those_of_collections() {
        let of_pause = |reason: u8| {
            // Reason and number of collections; the others have the number of the runtime only.
            let begin = [&[reason, 0, 0, 0][..], &[7, 0, 0, 0], &[0, 0]].concat();
            [SUSPEND_BEGIN, SUSPEND_END, RESTART_BEGIN, RESTART_END, GC_START].map(|id| {
                let payload = if id == SUSPEND_BEGIN { &*begin } else { &[0, 0] };
                is_of_profiler(id, &Event::new(Provider::RUNTIME, id, 1, payload, true))
            })
        };
        assert_eq!(of_pause(8), [true, true, true, true, false]);
        assert_eq!(of_pause(1), [false; 5]);
        assert_eq!(of_pause(6), [false; 5]);
    }

    #[test]
    fn collections_come_only_if_they_are_wanted() {
        // Number, name, keywords, version, level, and no fields.
        let described = |keywords: u8| [&[1, 0, 0, 0, 0, 0, keywords][..], &[0; 7 + 12]].concat();
        let alloc = EventKinds { alloc: true, ..EventKinds::default() };
        assert!(alloc.want(ALLOCATION_TICK, &described(1)) && alloc.want(303, &described(0)));
        assert!(!alloc.want(1, &described(1)) && EventKinds { gc: true, ..alloc }.want(1, &described(1)));
    }
}
