//! Which events are looked at, and what each of them weighs.

use corprof_export::{Mode, Unit};
use corprof_il::csharp;
use corprof_nettrace::events::universal::Measured;
use corprof_nettrace::events::views::{AllocationSampled, ContentionStop, ExceptionThrown, GcAllocationTick};
use corprof_nettrace::events::{Event, Provider, Text};
use corprof_nettrace::{Metadata, Trace};

/// The mean distance of two sampled allocations, in bytes: the runtime picks each byte with the same chance.
const MEAN_DISTANCE: f64 = 102_400.0;

/// The event of perf when a thread leaves its processor.
const PERF_SWITCH: &str = "sched:sched_switch";
/// Those of it that take samples of processors.
const PERF_SAMPLES: [&str; 4] = ["cycles", "cpu-cycles", "cpu-clock", "task-clock"];

/// Short names of events, as `--event` takes them.
const ALIASES: [(&str, &[&str]); 5] = [
    ("samples", &[Measured::CPU, "ThreadSample", "cycles", "cpu-cycles", "cpu-clock", "task-clock"]),
    ("waits", &[Measured::CONTEXT_SWITCH, Measured::WAIT, PERF_SWITCH]),
    ("allocations", &["AllocationSampled", "GCAllocationTick"]),
    ("contention", &["ContentionStop"]),
    ("exceptions", &["ExceptionThrown"]),
];

/// Events that are looked at if none is named: the first of these that a recording has.
const USUAL: [&str; 13] = [
    Measured::CPU,
    "ThreadSample",
    "cycles",
    "cpu-cycles",
    "cpu-clock",
    "task-clock",
    Measured::CONTEXT_SWITCH,
    Measured::WAIT,
    PERF_SWITCH,
    "AllocationSampled",
    "GCAllocationTick",
    "ContentionStop",
    "ExceptionThrown",
];

/// The properties of a recording of corprof: the nanoseconds between two samples of a thread, and which threads were
/// sampled.
const INTERVAL: &str = "ExpectedCPUSamplingRate";
const MODE: &str = "SamplingMode";

/// What the numbers of a trace are multiples of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Clock {
    /// At least 1.
    ticks_per_second: u64,
    /// The nanoseconds between two samples of a thread, in which a recording of corprof counts.
    interval: Option<u64>,
}

impl Default for Clock {
    fn default() -> Self {
        Self { ticks_per_second: 1, interval: None }
    }
}

impl Clock {
    pub(super) fn of(trace: &Trace) -> Self {
        let property = |wanted: &str| trace.properties.iter().find(|(name, _)| name == wanted);
        let interval = property(INTERVAL).filter(|_| property(MODE).is_some());
        let interval = interval.and_then(|(_, value)| value.parse().ok()).filter(|interval| *interval > 0);
        Self { ticks_per_second: trace.ticks_per_second.max(1), interval }
    }
}

/// How an event is weighed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// A sample of a processor, in intervals of so many nanoseconds if that is known.
    Cpu {
        interval: Option<u64>,
    },
    /// A sample of the runtime's own sampler: it has the time until the next one of the thread.
    Round,
    /// The time for which a thread had not run.
    Switch,
    /// A sample of a thread that waits, in intervals of so many nanoseconds.
    Wait {
        interval: u64,
    },
    /// The bytes that an allocated object stands for.
    AllocationSampled,
    /// The bytes that were allocated since the last such event.
    AllocationTick,
    /// The time for which a lock was waited for.
    Contention,
    /// Each counts once.
    Exception,
    Count,
}

impl Measure {
    /// The measure of events of this name.
    pub(crate) fn of(provider: &str, name: &str, clock: Clock) -> Self {
        match (Provider::of(provider), name) {
            (Provider::UNIVERSAL_EVENTS, Measured::CPU) => Self::Cpu { interval: clock.interval },
            (Provider::UNIVERSAL_EVENTS, Measured::CONTEXT_SWITCH) => Self::Switch,
            (Provider::UNIVERSAL_EVENTS, Measured::WAIT) => {
                clock.interval.map_or(Self::Count, |interval| Self::Wait { interval })
            }
            (Provider::SAMPLE_PROFILER, _) => Self::Round,
            (Provider::RUNTIME, "AllocationSampled") => Self::AllocationSampled,
            (Provider::RUNTIME, "GCAllocationTick") => Self::AllocationTick,
            (Provider::RUNTIME, "ContentionStop") => Self::Contention,
            (Provider::RUNTIME, "ExceptionThrown") => Self::Exception,
            _ => Self::Count,
        }
    }

    /// The measure of an event of perf.
    pub(super) fn of_perf(event: &str) -> Self {
        match event {
            PERF_SWITCH => Self::Switch,
            event if PERF_SAMPLES.contains(&event) => Self::Cpu { interval: None },
            _ => Self::Count,
        }
    }

    /// The unit of its weights.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Cpu { interval: Some(_) } | Self::Round | Self::Switch | Self::Wait { .. } | Self::Contention => {
                Unit::Nanoseconds
            }
            Self::AllocationSampled | Self::AllocationTick => Unit::Bytes,
            Self::Cpu { interval: None } | Self::Exception | Self::Count => Unit::Samples,
        }
    }

    /// What the samples are, in words.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cpu { .. } => "processor time",
            Self::Round => "time of threads",
            Self::Switch | Self::Wait { .. } => "waits",
            Self::AllocationSampled | Self::AllocationTick => "allocations",
            Self::Contention => "waits for locks",
            Self::Exception => "exceptions",
            Self::Count => "events",
        }
    }

    /// What the weights are, for pictures.
    pub(crate) fn mode(self) -> Option<Mode> {
        match self {
            Self::Cpu { .. } => Some(Mode::Cpu),
            Self::Round | Self::Switch | Self::Wait { .. } => Some(Mode::Wall),
            _ => None,
        }
    }

    /// The weight of an event, and the type that it is about.
    pub(super) fn weigh<'a>(self, event: &Event<'a>, clock: Clock) -> (u64, Option<Text<'a>>) {
        match self {
            Self::Cpu { interval } => {
                let intervals = event.decode::<Measured>().map_or(1, |sample| sample.value);
                (intervals.saturating_mul(interval.unwrap_or(1)), None)
            }
            Self::Switch => {
                let ticks = event.decode::<Measured>().map_or(0, |switch| switch.value);
                let nanoseconds = u128::from(ticks) * 1_000_000_000 / u128::from(clock.ticks_per_second);
                (u64::try_from(nanoseconds).unwrap_or(u64::MAX), None)
            }
            Self::Wait { interval } => {
                let intervals = event.decode::<Measured>().map_or(1, |sample| sample.value);
                (intervals.saturating_mul(interval), None)
            }
            // Its time is known when the next one comes.
            Self::Round => (0, None),
            Self::AllocationSampled => match event.decode::<AllocationSampled<'a>>() {
                Ok(sample) => {
                    let size = sample.object_size as f64;
                    // An object of this size is sampled with this chance.
                    ((size / (1.0 - (-size / MEAN_DISTANCE).exp())) as u64, Some(sample.type_name))
                }
                Err(_) => (0, None),
            },
            Self::AllocationTick => match event.decode::<GcAllocationTick<'a>>() {
                Ok(tick) => (tick.allocation_amount, Some(tick.type_name)),
                Err(_) => (0, None),
            },
            Self::Contention => {
                let waited = event.decode::<ContentionStop>().ok().and_then(|stop| stop.duration_ns);
                (waited.unwrap_or_default().max(0.0) as u64, None)
            }
            Self::Exception => (1, event.decode::<ExceptionThrown<'a>>().ok().map(|thrown| thrown.exception_type)),
            Self::Count => (1, None),
        }
    }

    /// The frame of a type, innermost on the stacks of this measure.
    pub(super) fn type_frame(self, text: &str) -> String {
        let class = csharp::class(text);
        if self == Self::Exception { format!("throw {class}") } else { format!("new {class}") }
    }
}

/// The events that are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// Names, or providers and names.
    names: Vec<String>,
    is_usual: bool,
}

impl Choice {
    /// By the name of an event, its provider and name, or an alias. None: what recordings are usually made for.
    pub(crate) fn new(name: Option<&str>) -> Self {
        let Some(name) = name else {
            return Self { names: USUAL.map(str::to_owned).to_vec(), is_usual: true };
        };
        let alias = ALIASES.iter().find(|(alias, _)| alias.eq_ignore_ascii_case(name)).map(|(_, names)| *names);
        let names = alias.map_or(vec![name.to_owned()], |names| names.iter().map(|name| (*name).to_owned()).collect());
        Self { names, is_usual: false }
    }

    /// The place of an event among those asked for: only events with the first place that a recording has are taken.
    pub(super) fn rank(&self, metadata: &Metadata, name: &str) -> Option<usize> {
        let place = self.place(&metadata.provider, name)?;
        // A program may have an event `cpu` of its own.
        let known = [Provider::UNIVERSAL_EVENTS, Provider::SAMPLE_PROFILER, Provider::RUNTIME];
        let is_known = known.contains(&Provider::of(&metadata.provider));
        (is_known || !self.is_usual).then_some(place)
    }

    /// The same of an event of perf. What it was told to record is usual, too.
    pub(super) fn rank_of_perf(&self, name: &str) -> Option<usize> {
        self.place(super::perf::PROVIDER, name).or(self.is_usual.then_some(self.names.len()))
    }

    fn place(&self, provider: &str, name: &str) -> Option<usize> {
        let full = || format!("{provider}/{name}");
        self.names.iter().position(|asked| asked.eq_ignore_ascii_case(name) || asked.eq_ignore_ascii_case(&full()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_named_by_name_provider_or_alias() {
        let event = |provider: &str, name: &str| (Metadata::new(1, provider, 1, name), name.to_owned());
        let rank = |choice: &Choice, (metadata, name): &(Metadata, String)| choice.rank(metadata, name);
        let tick = event("Microsoft-Windows-DotNETRuntime", "GCAllocationTick");
        let order = event("Shop", "Order");
        let usual = Choice::new(None);
        assert_eq!((rank(&usual, &tick), rank(&usual, &order)), (Some(10), None));
        assert_eq!(rank(&usual, &event("Shop", "cpu")), None, "not that of a sampler");
        assert_eq!(rank(&Choice::new(Some("shop/order")), &order), Some(0));
        assert_eq!(rank(&Choice::new(Some("Other/Order")), &order), None);
        assert_eq!(rank(&Choice::new(Some("allocations")), &tick), Some(1));
        let wait = event("Universal.Events", "wait");
        assert_eq!((rank(&Choice::new(Some("Waits")), &wait), rank(&usual, &wait)), (Some(1), Some(7)));
    }
}
