//! The profiler's description of a run.

use std::collections::HashMap;
use std::time::Duration;

use crate::FrameId;
use crate::change::Change;
use crate::heat::HeatMap;
use crate::slow_calls::SlowCalls;
use crate::table::Table;

/// The meaning of a profile's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Processor time.
    Cpu,
    /// Time by the clock, also that in which threads wait.
    Wall,
    /// Time between the beginnings and the ends of calls, each of which was timed.
    Calls,
}

impl Mode {
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Cpu => "processor time",
            Self::Wall => "wall-clock time",
            Self::Calls => "timed calls",
        }
    }

    /// A word, as pprof's readers know it.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Wall => "wall",
            Self::Calls => "time",
        }
    }
}

/// The profiler's description of the run.
#[derive(Debug, Default)]
pub(crate) struct About {
    pub(crate) mode: Option<Mode>,
    pub(crate) duration: Option<Duration>,
    pub(crate) rounds: Option<u64>,
    pub(crate) rate_reached: Option<f64>,
    pub(crate) skipped: Vec<(String, u64)>,
    /// Whether one thread stands for all.
    pub(crate) merges_threads: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) table: Option<Table>,
    pub(crate) heat: Option<HeatMap>,
    pub(crate) slow_calls: Option<SlowCalls>,
    /// Notes by their subjects.
    pub(crate) changing: Vec<(String, String)>,
    pub(crate) warnings: Vec<String>,
    /// How methods differ from another profile, in words as well. Empty: there is no other.
    pub(crate) changes: HashMap<FrameId, (Change, String)>,
}
