//! What a seed makes of the profiler: everything that is the same on all its threads.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fastrand::Rng;

/// Who asks for a detach, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detach {
    /// `initialize`.
    AtOnce,
    /// A thread that corprof knows nothing of.
    ByThread(Duration),
    /// The first action that comes after so many, wherever it is.
    Anywhere(u64),
}

/// The runtime's hooks, or ones by IL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hooks {
    No,
    Fast,
    Values,
    FastByIl,
    ValuesByIl,
}

/// How `initialize` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    Succeeds,
    Fails,
    Panics,
}

#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) beginning: Beginning,
    pub(super) detach: Option<Detach>,
    pub(super) hooks: Hooks,
    pub(super) has_instrumentation: bool,
    pub(super) has_sampler: bool,
    pub(super) has_session: bool,
    pub(super) own_threads: u32,
    pub(super) raw_threads: u32,
    /// Of the event flags of all callbacks, those with such a bit are not turned on.
    pub(super) without_events: u64,
    /// How many actions may begin in a second: the application must get on.
    pub(super) rate: u64,
    /// How many actions may be under way on one thread, one in a callback of the other.
    pub(super) depth: u32,
    /// The action that panics.
    pub(super) panic_at: Option<u64>,
    /// How long the profiler acts.
    pub(super) longest: Duration,
    /// Whether it comes by an attach, and leaves after that time.
    pub(super) is_visit: bool,
}

/// Actions that are left out, by the beginnings of their names, to narrow a fault down.
static WITHOUT: LazyLock<Vec<String>> = LazyLock::new(|| {
    let actions = std::env::var("GENERATOR_WITHOUT").unwrap_or_default();
    actions.split(',').map(str::to_owned).collect()
});

/// The profiler acts for so long. With all that it has begun, the application needs time to end as well.
pub(super) const LONGEST: Duration = Duration::from_secs(8);

/// The plan of the session, its beginning, and how many actions had begun before.
#[derive(Clone, Copy)]
struct Current {
    plan: &'static Plan,
    begun: Instant,
    before: u64,
}

static CURRENT: RwLock<Option<Current>> = RwLock::new(None);

/// The plan of a session that begins, when so many actions have begun in earlier ones.
pub(super) fn make(seed: u64, is_visit: bool, before: u64) -> &'static Plan {
    let plan = Plan::new(seed);
    let plan = if is_visit { plan.of_visit() } else { plan };
    let plan: &'static Plan = Box::leak(Box::new(plan));
    let current = Current { plan, begun: Instant::now(), before };
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = Some(current);
    plan
}

fn known() -> Option<Current> {
    *CURRENT.read().unwrap_or_else(PoisonError::into_inner)
}

/// The plan, while there is something to do by it.
pub(super) fn current() -> Option<&'static Plan> {
    let Current { plan, begun, .. } = known()?;
    (begun.elapsed() < plan.longest).then_some(plan)
}

/// How many actions may have begun by now. Those of a fifth of a second are there at once.
pub(super) fn budget() -> u64 {
    let Some(Current { plan, begun, before }) = known() else { return 0 };
    before + plan.rate / 5 + plan.rate * u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX) / 1000
}

impl Plan {
    fn new(seed: u64) -> Self {
        // So that neighbours have nothing in common.
        let mut random = Rng::with_seed(hash(seed, "plan"));
        let beginning = match random.u32(0..20) {
            0 => Beginning::Fails,
            1 => Beginning::Panics,
            _ => Beginning::Succeeds,
        };
        let detach = match random.u32(0..9) {
            0 => Some(Detach::AtOnce),
            1 => Some(Detach::ByThread(Duration::from_millis(random.u64(0..600)))),
            2 => Some(Detach::Anywhere(random.u64(0..2000))),
            _ => None,
        };
        // With either of them the runtime refuses most detaches.
        let stays = detach.is_none() || random.u32(0..5) == 0;
        let hooks = match random.u32(0..10) {
            0 | 1 if stays => Hooks::Fast,
            2 | 3 if stays => Hooks::Values,
            4 if stays => Hooks::FastByIl,
            5 if stays => Hooks::ValuesByIl,
            _ => Hooks::No,
        };
        Self {
            seed,
            beginning,
            detach,
            hooks,
            has_instrumentation: stays && random.u32(0..3) == 0,
            has_sampler: random.u32(0..3) == 0,
            has_session: random.u32(0..3) == 0,
            own_threads: random.u32(0..4),
            raw_threads: random.u32(0..3),
            without_events: match random.u32(0..4) {
                0 => 0,
                1 => random.u64(..) | random.u64(..),
                _ => random.u64(..) & random.u64(..),
            },
            rate: [300, 1000, 3000, 10_000][random.usize(0..4)],
            depth: random.u32(1..4),
            panic_at: (random.u32(0..20) == 0).then(|| random.u64(0..2000)),
            longest: LONGEST,
            is_visit: false,
        }
    }

    /// The same for a profiler that is attached, and leaves.
    fn of_visit(self) -> Self {
        let longest = Duration::from_millis(self.number("longest") % 1500);
        let stays = self.number("stays").is_multiple_of(10);
        Self { detach: None, hooks: Hooks::No, has_instrumentation: stays, longest, is_visit: true, ..self }
    }

    /// Whether this seed has this action at all: some profilers make few different calls.
    pub(super) fn has(&self, action: &str) -> bool {
        if WITHOUT.iter().any(|left_out| !left_out.is_empty() && action.starts_with(left_out)) {
            return false;
        }
        let is_of = |kinds: &[&str]| kinds.iter().any(|kind| action.starts_with(kind));
        // After these the runtime does not let it leave.
        let is_for_good = ["edit: ", "events: add", "Request", "SetILFunctionBody", "SetILInstrumentedCodeMap"];
        if self.is_visit && !self.has_instrumentation && is_of(&is_for_good) {
            return false;
        }
        if is_of(&["rewrite: ", "selection: "]) && !self.has_instrumentation
            || is_of(&["detach: begin"]) && !matches!(self.detach, Some(Detach::Anywhere(_)))
            || is_of(&["detach: state"]) && self.detach.is_none()
        {
            return false;
        }
        let share = 1 + hash(self.seed, "share") % 4;
        hash(self.seed, action) % 4 < share
    }

    /// Of so many visits of a place one acts. None: the place is left alone.
    pub(super) fn every(&self, place: &str) -> Option<u32> {
        [Some(1), Some(1), Some(3), Some(20), Some(200), None][hash(self.seed, place) as usize % 6]
    }

    /// A number for this name, the same in all runs of this seed.
    pub(super) fn number(&self, name: &str) -> u64 {
        hash(self.seed, name)
    }
}

fn hash(seed: u64, name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (seed, name).hash(&mut hasher);
    hasher.finish()
}

impl fmt::Display for Plan {
    /// Also for the report of a run that failed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}
