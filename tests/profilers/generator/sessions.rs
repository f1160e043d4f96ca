//! Event pipe sessions, providers and heap snapshots.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::events::{KeywordSet, Level};
use corprof::info::{EventPipePayload, EventPipeProviderConfig, EventPipeProviderListener, EventPipeProviderState};
use corprof::prelude::*;
use fastrand::Rng;

use super::facts::event;
use super::{act, may_walk_heap, pools, readers};

fn set(cx: &InCallback<'_>, random: &mut Rng) -> KeywordSet {
    const SETS: [KeywordSet; 5] = [
        KeywordSet::GC,
        KeywordSet::ALLOCATION_TICKS,
        KeywordSet::ALLOCATION_SAMPLES,
        KeywordSet::CONTENTION,
        KeywordSet::HEAP_DUMP,
    ];
    let kinds = if may_walk_heap(cx) { SETS.len() } else { SETS.len() - 1 };
    SETS[random.usize(0..kinds)]
}

/// For listeners, which are given no context.
static INFO: OnceLock<Info> = OnceLock::new();

struct Listener;

impl EventPipeProviderListener for Listener {
    fn changed(_state: EventPipeProviderState<'_>) {
        if let Some(info) = INFO.get() {
            act::anywhere(info, "listener of a provider");
        }
    }
}

pub(super) fn provide(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let name = format!("Corprof-Generated-{}", random.u32(0..5));
    let provider = if random.bool() {
        INFO.get_or_init(|| Info::clone(cx));
        cx.event_pipe_create_provider_with::<Listener>(&name).ok()?
    } else {
        cx.event_pipe_create_provider(&name).ok()?
    };
    let event = cx.event_pipe_define_event(provider, &event(random.u32(1..100))).ok()?;
    pools::PROVIDERS.put(random, (provider, event));
    cx.event_pipe_write_event(event, &EventPipePayload::new(), None, None).ok()
}

/// Decodes an event, as one of some provider.
pub(super) fn read_event(cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
    if let Some(class) = event.allocated_class(cx) {
        super::keep(&pools::CLASSES, class);
    }
    let decoded = event.of_runtime(cx).unwrap_or_else(|| event.decoded("Corprof-Generated-1"));
    black_box(format!("{decoded:?}"));
}

fn config<'n>(name: &'n str, random: &mut Rng) -> EventPipeProviderConfig<'n> {
    let keywords = if name == "Microsoft-Windows-DotNETRuntime" {
        // Loader, JIT, exceptions, threads, types: none that dumps the heap.
        random.u64(..) & 0x0000_0080_0001_8038
    } else {
        u64::MAX
    };
    EventPipeProviderConfig { name, keywords, level: Level::Verbose, filter: None }
}

const NAMES: [&str; 5] = [
    "Microsoft-Windows-DotNETRuntime",
    "Microsoft-DotNETCore-SampleProfiler",
    "Corprof-Generated-1",
    "System.Threading.Tasks.TplEventSource",
    "Corprof-None",
];

pub(super) fn start(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let configs: Vec<_> =
        (0..random.usize(1..4)).map(|_| config(NAMES[random.usize(0..NAMES.len())], random)).collect();
    let session = cx.event_pipe_start_session(&configs, random.bool()).ok()?;
    pools::SESSIONS.put(random, session);
    Some(())
}

pub(super) fn start_of_runtime(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let set = set(cx, random);
    let events = cx.start_runtime_events(set).ok()?;
    pools::SESSIONS.put(random, events.id());
    pools::RUNTIME_EVENTS.put(random, events);
    Some(())
}

pub(super) fn add(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    let session = pools::SESSIONS.pick(random)?;
    let config = config(NAMES[random.usize(0..NAMES.len())], random);
    cx.event_pipe_add_provider_to_session(session, &config).ok()
}

pub(super) fn stop(cx: &mut InCallback<'_>, random: &mut Rng) -> Option<()> {
    // Half of the time it stays, to be stopped once more.
    let session = if random.bool() { pools::SESSIONS.pick(random)? } else { pools::SESSIONS.take(random)? };
    cx.event_pipe_stop_session(session).ok()
}

pub(super) fn snapshot(cx: &mut ProfilerThread<'_>, random: &mut Rng) -> Option<()> {
    if !may_walk_heap(cx) {
        return None;
    }
    let deadline = Duration::from_millis(random.u64(0..2000));
    let left = if random.bool() { random.u32(0..50) } else { u32::MAX };
    let sink = readers::Sink { info: Info::clone(cx), left };
    let fields = readers::some_fields(cx, random);
    cx.take_heap_snapshot_with_fields(deadline, sink, fields).ok().map(drop)
}
