//! Writes events of its own, and reads them and those of an EventSource as structs: for `live/own_events.rs`.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use corprof::args::{EventPipeEvent, GcReason, Generations};
use corprof::events::{Level, ProviderEvent, Text};
use corprof::id::Inert;
use corprof::info::{EventPipeProviderConfig, EventPipeProviderListener, EventPipeProviderState, OwnEvent};
use corprof::prelude::*;

/// An event of the profiler's.
#[derive(ProviderEvent, Debug, PartialEq)]
#[event(provider = "Corprof-Orders", id = 7, version = 2, level = Warning, keywords = 0x10)]
struct Order<'a> {
    number: u32,
    is_paid: bool,
    letter: char,
    small: i8,
    price: f64,
    share: f32,
    total: i64,
    guid: [u8; 16],
    customer_name: Text<'a>,
    #[event(name = "Street")]
    street: String,
    counts: Vec<u16>,
}

/// Another one, without fields.
#[derive(ProviderEvent, Debug, PartialEq)]
#[event(provider = "Corprof-Orders", id = 8)]
struct Closing;

/// A third one, with times.
#[derive(ProviderEvent, Debug, PartialEq)]
#[event(provider = "Corprof-Orders", id = 9)]
struct Dated {
    number: u32,
    placed: SystemTime,
    paid: Vec<SystemTime>,
}

/// The same number and provider as `Order`, as a reader may write it who needs two fields.
#[derive(ProviderEvent, Debug)]
#[event(provider = "Corprof-Orders", id = 7)]
struct Short {
    total: i64,
    number: u64,
}

/// An event of the EventSource in tests/managed/Sources.cs.
#[derive(ProviderEvent, Debug)]
#[event(provider = "Corprof-Sources", id = 3)]
#[allow(dead_code, reason = "it is printed")]
struct Sold<'a> {
    number: i32,
    customer_name: Text<'a>,
    price: f64,
    is_paid: bool,
    big: u64,
    guid: [u8; 16],
    letter: char,
    kind: i32,
}

/// Another one: .NET writes the time.
#[derive(ProviderEvent, Debug)]
#[event(provider = "Corprof-Sources", id = 4)]
struct Paid {
    number: i32,
    at: SystemTime,
}

/// The provider has another name.
#[derive(ProviderEvent)]
#[event(provider = "Corprof-Elsewhere", id = 1)]
struct Elsewhere;

#[derive(Clone, Copy)]
struct Kinds {
    order: OwnEvent<Order<'static>>,
    closing: OwnEvent<Closing>,
    dated: OwnEvent<Dated>,
}

fn order(number: u32, customer: &str) -> Order<'_> {
    Order {
        number,
        is_paid: true,
        letter: 'ß',
        small: -5,
        price: 9.5,
        share: -0.25,
        total: -1_000_000_000_000,
        guid: *b"0123456789abcdef",
        customer_name: Text::from(customer),
        street: "Straße 1".to_owned(),
        counts: vec![1, 2, 65_535],
    }
}

fn dated() -> Dated {
    let at = |nanos| SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos);
    Dated { number: 11, placed: at(1_234_567_890_123_456_700), paid: vec![at(0), at(100)] }
}

fn kinds(cx: &mut InCallback<'_>) -> Result<Kinds> {
    let provider = cx.event_pipe_create_provider(Order::EVENT.provider)?;
    if let Err(error) = cx.event_pipe_define::<Elsewhere>(provider) {
        eprintln!("own_events| elsewhere: {error}");
    }
    let order = cx.event_pipe_define(provider)?;
    let closing = cx.event_pipe_define(provider)?;
    let dated = cx.event_pipe_define(provider)?;
    Ok(Kinds { order, closing, dated })
}

fn session(cx: &mut InCallback<'_>) -> Result<()> {
    let config = |name| EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None };
    cx.event_pipe_start_session(&[config(Order::EVENT.provider), config("Corprof-Sources")], false).map(drop)
}

/// Tells what sessions want of the provider `Corprof-Keywords`.
struct Wanted;

impl EventPipeProviderListener for Wanted {
    fn changed(state: EventPipeProviderState<'_>) {
        let EventPipeProviderState { is_enabled, level, match_any_keywords, .. } = state;
        eprintln!("own_events| wanted: {is_enabled} level {level} keywords {match_any_keywords:#x}");
    }
}

/// Two sessions one after the other, then two at a time, with other keywords each.
fn keywords(cx: &mut InCallback<'_>) -> Result<()> {
    let name = "Corprof-Keywords";
    cx.event_pipe_create_provider_with::<Wanted>(name)?;
    let config = |keywords, level| EventPipeProviderConfig { name, keywords, level, filter: None };
    let first = cx.event_pipe_start_session(&[config(0x1, Level::Verbose)], false)?;
    cx.event_pipe_stop_session(first)?;
    let second = cx.event_pipe_start_session(&[config(0x2, Level::Warning)], false)?;
    let third = cx.event_pipe_start_session(&[config(0x4, Level::Error)], false)?;
    cx.event_pipe_stop_session(second)?;
    cx.event_pipe_stop_session(third)
}

/// Reads and writes some events, and writes one for each exception, for a session from outside.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1203", no_export)]
struct Tells {
    kinds: OnceLock<Kinds>,
    thrown: AtomicU64,
}

impl Tells {
    fn write(&self, cx: &InCallback<'_>) -> Result<()> {
        let Some(kinds) = self.kinds.get() else { return Ok(()) };
        let customer = "Zoë 🦀".to_owned();
        kinds.order.write(cx, &order(1, &customer))?;
        kinds.order.write(cx, &order(2, "before\0behind"))?;
        kinds.closing.write(cx, &Closing)?;
        let long = Order { counts: vec![0; 65_536], ..order(3, "") };
        if let Err(error) = kinds.order.write(cx, &long) {
            eprintln!("own_events| a long list: {error}");
        }
        kinds.dated.write(cx, &dated())?;
        let far = Dated { placed: SystemTime::UNIX_EPOCH + Duration::from_secs(300_000_000_000), ..dated() };
        if let Err(error) = kinds.dated.write(cx, &far) {
            eprintln!("own_events| a far time: {error}");
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Tells {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let _ = profiler.kinds.set(kinds(cx)?);
        Ok(profiler)
    }

    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: Inert<ThreadId>, name: &str) {
        if name == "start" {
            eprintln!("own_events| keywords: {:?}", keywords(cx));
            eprintln!("own_events| session: {:?}", session(cx));
            eprintln!("own_events| written: {:?}", self.write(cx));
        }
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let (Some(kinds), Ok(class)) = (self.kinds.get(), cx.class_of(thrown)) else { return };
        let number = self.thrown.fetch_add(1, Relaxed);
        let _ = kinds.order.write(cx, &order(number as u32, cx.names().class(class).as_str()));
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Ok(provider) = cx.event_pipe_provider_info(event.provider) else { return };
        let event = event.decoded(&provider);
        if let Ok(order) = event.decode::<Order>() {
            eprintln!("own_events| {} version {}: {order:?}", event.name(), event.version());
            eprintln!("own_events| {:?}", event.decode::<Short>());
        } else if let Ok(closing) = event.decode::<Closing>() {
            eprintln!("own_events| {}: {closing:?}", event.name());
        } else if let Ok(sold) = event.decode::<Sold>() {
            eprintln!("own_events| {sold:?}");
        } else if let Ok(read) = event.decode::<Dated>() {
            eprintln!("own_events| Dated {}: {}", read.number, read == dated());
        } else if let Ok(paid) = event.decode::<Paid>() {
            let since = paid.at.duration_since(SystemTime::UNIX_EPOCH);
            eprintln!("own_events| Paid {} at {since:?}", paid.number);
        }
    }
}

/// Writes at every opportunity: in hooks, in callbacks of collections, on threads that end, on threads of its own, and
/// on.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1204", no_export)]
struct Attacks(Arc<Counts>);

struct Counts {
    /// Places that are left out, to find the one that does harm: the variable `OWN_EVENTS_WITHOUT`.
    without: Vec<String>,
    kinds: OnceLock<Kinds>,
    written: [AtomicU64; PLACES.len()],
    errors: AtomicU64,
    delivered: AtomicU64,
    wrong: AtomicU64,
}

impl Default for Counts {
    fn default() -> Self {
        let without = std::env::var("OWN_EVENTS_WITHOUT").unwrap_or_default();
        Self {
            without: without.split(' ').map(str::to_owned).collect(),
            kinds: OnceLock::new(),
            written: Default::default(),
            errors: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }
}

const PLACES: [&str; 6] = ["hooks", "collections", "ended", "suspensions", "own", "exceptions"];

impl Counts {
    /// Writes an event at a place, and now and then one that has no room anywhere.
    fn write(&self, cx: &Info, place: usize) {
        let Some(kinds) = self.kinds.get() else { return };
        if self.without.iter().any(|one| one == PLACES[place]) {
            return;
        }
        let count = self.written[place].fetch_add(1, Relaxed);
        let answer = match count % 512 {
            100 => kinds.order.write(cx, &order(1, &"x".repeat(5 << 20))),
            200 => kinds.order.write(cx, &order(1, &"\u{10ffff}".repeat(40_000))),
            300 => kinds.order.write(cx, &order(1, "\0\0\0")),
            400 => kinds.order.write(cx, &Order { counts: vec![7; 65_535], ..order(1, "") }),
            _ => kinds.order.write(cx, &order(1, "ordinary")),
        };
        if answer.is_err() || kinds.closing.write(cx, &Closing).is_err() {
            self.errors.fetch_add(1, Relaxed);
        }
    }
}

impl FunctionHooks for Counts {
    type Function = ();
    type Thread = u32;
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) -> u32 {
        0
    }

    fn enter(&self, cx: &InHook<'_>, calls: &mut u32, _function: &()) {
        *calls += 1;
        if *calls % 16 == 1 {
            self.write(cx, 0);
        }
    }
}

#[callbacks]
impl Callbacks for Attacks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let profiler = Self::default();
        let _ = profiler.0.kinds.set(kinds(cx)?);
        session(cx)?;
        cx.hooks(Arc::clone(&profiler.0)).install()?;
        let counts = Arc::clone(&profiler.0);
        let info = Info::clone(cx);
        // A thread that goes on after the profiler has been shut down.
        std::thread::Builder::new().spawn(move || {
            loop {
                counts.write(&info, 4);
                std::thread::sleep(Duration::from_micros(200));
            }
        })?;
        Ok(profiler)
    }

    fn thread_destroyed(&self, cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.0.write(cx, 2);
    }

    fn garbage_collection_started(&self, cx: &InNoGc<'_>, _generations: Generations, _reason: GcReason) {
        self.0.write(cx, 1);
    }

    fn garbage_collection_finished(&self, cx: &InNoGc<'_>) {
        self.0.write(cx, 1);
    }

    fn runtime_suspend_finished(&self, cx: &InNoGc<'_>) {
        self.0.write(cx, 3);
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.0.write(cx, 5);
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Ok(provider) = cx.event_pipe_provider_info(event.provider) else { return };
        let decoded = event.decoded(&provider);
        if provider != Order::EVENT.provider {
            return;
        }
        self.0.delivered.fetch_add(1, Relaxed);
        let is_right = match decoded.decode::<Order>() {
            Ok(read) => {
                let is_rest_right = read.street == "Straße 1" && read.guid == *b"0123456789abcdef";
                let customer = read.customer_name;
                let whole = customer == "ordinary"
                    || customer.is_empty()
                    || [5 << 20, 40_000].contains(&customer.chars().count());
                is_rest_right && whole && [3, 65_535].contains(&read.counts.len())
            }
            Err(_) => decoded.decode::<Closing>().is_ok(),
        };
        self.0.wrong.fetch_add(u64::from(!is_right), Relaxed);
        // From within its own delivery.
        self.0.write(cx, 5);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let counts = &self.0;
        for (place, written) in PLACES.iter().zip(&counts.written) {
            eprintln!("own_events| {place}={}", written.load(Relaxed));
        }
        let [delivered, wrong, errors] =
            [&counts.delivered, &counts.wrong, &counts.errors].map(|count| count.load(Relaxed));
        eprintln!("own_events| delivered={delivered} wrong={wrong} errors={errors}");
    }
}

corprof::export!(Tells, Attacks);
