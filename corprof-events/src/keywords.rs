//! Groups of events, and sets of groups for common purposes.

use std::fmt::{self, Debug, Formatter};
use std::ops::BitOr;

/// Groups of a provider's events, a bit each. The constants are those of
/// [`Provider::RUNTIME`](crate::Provider::RUNTIME).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Keywords(pub(crate) u64);

impl Keywords {
    /// None of them: events without a keyword come all the same.
    pub const NONE: Self = Self(0);
    /// All of them. For [`Provider::RUNTIME`](crate::Provider::RUNTIME) that collects the heap again and again.
    pub const ALL: Self = Self(u64::MAX);

    /// Keywords of a provider without names in this table.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The number for a session.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are among them.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Keywords {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl Debug for Keywords {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How important events are. A session gets those of its level and the more important ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Level {
    /// Those that are always written.
    LogAlways = 0,
    /// The application cannot go on.
    Critical = 1,
    /// Something failed.
    Error = 2,
    /// Something may be wrong.
    Warning = 3,
    /// Ordinary events.
    Informational = 4,
    /// Details of ordinary events.
    Verbose = 5,
}

/// Events of the runtime that belong to one question: keywords and level, for a session. `|` puts sets together.
///
/// ```
/// use corprof_events::{KeywordSet, Level};
///
/// let set = KeywordSet::GC | KeywordSet::CONTENTION;
/// assert_eq!((set.keywords().bits(), set.level()), (0x4001, Level::Informational));
/// assert!(!set.forces_collections());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeywordSet {
    keywords: Keywords,
    level: Level,
}

impl KeywordSet {
    /// Collections: reason, duration, result. About ten events per collection.
    pub const GC: Self = Self::new(Keywords::GC, Level::Informational);
    /// Which types are allocated, an event every 100 KB: all runtimes. The largest objects are seen more often than
    /// others.
    pub const ALLOCATION_TICKS: Self = Self::new(Keywords::GC, Level::Verbose);
    /// Which types are allocated, by samples that are fair to each byte: .NET 10.
    pub const ALLOCATION_SAMPLES: Self = Self::new(Keywords::ALLOCATION_SAMPLING, Level::Informational);
    /// Waits for locks, with the owner (.NET 8).
    pub const CONTENTION: Self = Self::new(Keywords::CONTENTION, Level::Informational);
    /// Exceptions that are thrown.
    pub const EXCEPTIONS: Self = Self::new(Keywords::EXCEPTION, Level::Error);
    /// Workers of the thread pool and how many it wants: starvation.
    pub const THREAD_POOL: Self = Self::new(Keywords::THREADING, Level::Informational);
    /// The same, and each piece of work that it is given.
    pub const THREAD_POOL_WORK: Self = Self::new(Keywords::THREADING, Level::Verbose);
    /// Blocking on wait handles and monitors: .NET 9.
    pub const WAITS: Self = Self::new(Keywords::WAIT_HANDLE, Level::Verbose);
    /// Methods that are compiled.
    pub const JIT: Self = Self::new(Keywords::JIT, Level::Verbose);
    /// When methods are compiled anew.
    pub const TIERING: Self = Self::new(Keywords::COMPILATION, Level::Informational);
    /// Assemblies and modules that are looked for and loaded.
    pub const LOADER: Self = Self::new(Keywords::LOADER.union(Keywords::ASSEMBLY_LOADER), Level::Informational);
    /// The runtime's messages about profilers.
    pub const PROFILER: Self = Self::new(Keywords::PROFILER, Level::Informational);
    /// Every object and reference of the heap, and the names of their types. [Forces
    /// collections](Self::forces_collections): one when the session starts, and on .NET 8 one more when it ends.
    pub const HEAP_DUMP: Self = Self::new(
        Keywords::GC
            .union(Keywords::TYPE)
            .union(Keywords::GC_HEAP_DUMP)
            .union(Keywords::MANAGED_HEAP_COLLECT)
            .union(Keywords::GC_HEAP_AND_TYPE_NAMES),
        Level::Informational,
    );

    /// All sets, by the names that commands know them by.
    pub const ALL: [(&'static str, Self); 13] = [
        ("gc", Self::GC),
        ("allocation-ticks", Self::ALLOCATION_TICKS),
        ("allocation-samples", Self::ALLOCATION_SAMPLES),
        ("contention", Self::CONTENTION),
        ("exceptions", Self::EXCEPTIONS),
        ("thread-pool", Self::THREAD_POOL),
        ("thread-pool-work", Self::THREAD_POOL_WORK),
        ("waits", Self::WAITS),
        ("jit", Self::JIT),
        ("tiering", Self::TIERING),
        ("loader", Self::LOADER),
        ("profiler", Self::PROFILER),
        ("heap-dump", Self::HEAP_DUMP),
    ];

    /// A set of one's own.
    #[must_use]
    pub const fn new(keywords: Keywords, level: Level) -> Self {
        Self { keywords, level }
    }

    /// The keywords.
    #[must_use]
    pub const fn keywords(self) -> Keywords {
        self.keywords
    }

    /// The level.
    #[must_use]
    pub const fn level(self) -> Level {
        self.level
    }

    /// Whether a session of it forces blocking collections of the whole heap: one at its start, and on .NET 8 one at
    /// its end, as that runtime takes the keyword for a request both times.
    #[must_use]
    pub const fn forces_collections(self) -> bool {
        self.keywords.bits() & Keywords::MANAGED_HEAP_COLLECT.bits() != 0
    }
}

impl BitOr for KeywordSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self::new(self.keywords | other.keywords, self.level.max(other.level))
    }
}
