//! One run of the matrix under fire: its condition, its hooks, and the settings of the runtime.

use std::fmt;

use fastrand::Rng;

/// How many seconds a run may take to fill its cells. A machine without load needs ten; a busy one, some minutes.
const LONGEST: u32 = 600;

/// More calls than a place ever makes: the run goes on to its end.
const ENDLESS: u64 = 1 << 40;

/// The work of other threads during the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Another thread collects without pause.
    Collect,
    /// The same, and the calls are made under a lock that callbacks on all threads want.
    Lock,
    /// As the first, and three threads load and unload assemblies.
    Unload,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Collect, Self::Lock, Self::Unload];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Collect => "collect",
            Self::Lock => "lock",
            Self::Unload => "unload",
        }
    }
}

/// A run of tests/managed/Fire.cs under tests/profilers/matrix.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) number: u64,
    pub(super) condition: Condition,
    /// `values`, `fast` or `none`.
    pub(super) hooks: &'static str,
    pub(super) settings: Vec<(&'static str, &'static str)>,
    /// The least number of calls for each cell, unless the call is expensive (tests/profilers/matrix/fire/prices.rs).
    pub(super) target: u64,
    /// The duration in seconds: at least the first, at most the second.
    pub(super) time: (u32, u32),
    /// The visit in which the profiler panics.
    pub(super) panic_at: Option<u64>,
    /// Events that the profiler does not turn on, and workers that the program does not start.
    without: (Vec<&'static str>, Vec<&'static str>),
}

/// Settings of the runtime; the runs of [`Plan::fill`] have one each.
fn settings(is_windows: bool) -> [(&'static str, &'static str); 3] {
    // Another collector, which the runtime includes.
    let collector = if is_windows { "clrgc.dll" } else { "libclrgc.so" };
    [("DOTNET_gcServer", "1"), ("DOTNET_TieredCompilation", "0"), ("DOTNET_GCName", collector)]
}

impl Plan {
    fn new(number: u64, condition: Condition, hooks: &'static str, target: u64) -> Self {
        let settings = Vec::new();
        let without = (Vec::new(), Vec::new());
        Self { number, condition, hooks, settings, target, time: (1, LONGEST), panic_at: None, without }
    }

    /// .NET 8 follows the class of a dead object that it reports to a profiler with MONITOR_GC, and crashes if the
    /// class belonged to an assembly that was built in memory and unloaded (`AssemblyBuilderAccess.RunAndCollect`); a
    /// profiler in C that only receives events has the same crash. So a run has either the one or the other.
    fn spare_net_8(&mut self, major: u32, is_about_builders: bool) {
        if major != 8 {
        } else if is_about_builders {
            self.without.0.push("MONITOR_GC");
        } else {
            self.without.1.extend(["emit", "emit too"]);
        }
    }

    /// The condition with no setting of the runtime, until each cell has had `target` calls.
    pub(super) fn fill(number: u64, condition: Condition, target: u64, major: u32) -> Self {
        let hooks = if condition == Condition::Lock { "fast" } else { "values" };
        let mut plan = Self::new(number, condition, hooks, target);
        plan.spare_net_8(major, false);
        plan
    }

    /// The same, then with every setting, then, for the last condition, one run in which the profiler panics.
    pub(super) fn fill_by_settings(
        number: u64,
        condition: Condition,
        target: u64,
        major: u32,
        is_windows: bool,
    ) -> Vec<Self> {
        let mut plans = vec![Self::fill(number, condition, target, major)];
        for setting in settings(is_windows) {
            let before = &plans[plans.len() - 1];
            // In turn, so that each condition has both.
            let hooks = if before.hooks == "fast" { "values" } else { "fast" };
            let mut plan = Self::new(before.number + 1, condition, hooks, target);
            plan.settings.push(setting);
            plan.spare_net_8(major, setting.0 == "DOTNET_TieredCompilation");
            plans.push(plan);
        }
        if condition == Condition::Unload {
            let mut panics = Self::new(number + plans.len() as u64, condition, "values", target);
            panics.panic_at = Some(Rng::with_seed(number).u64(100..5000));
            panics.time = (3, 3);
            panics.spare_net_8(major, false);
            plans.push(panics);
        }
        plans
    }

    /// The run with this number, for a long session: it goes on for half a minute, whatever calls were made.
    pub(super) fn any(number: u64, major: u32, is_windows: bool) -> Self {
        let mut random = Rng::with_seed(number);
        let condition = Condition::ALL[(number % 3) as usize];
        let hooks = ["values", "fast", "values", "none"][random.usize(..4)];
        let mut plan = Self::new(number, condition, hooks, ENDLESS);
        let more = [("DOTNET_ReadyToRun", "0"), ("DOTNET_gcConcurrent", "0"), ("DOTNET_TieredPGO", "0")];
        plan.settings = settings(is_windows).into_iter().chain(more).filter(|_| random.u8(..4) == 0).collect();
        plan.time = (30, 30);
        if random.u8(..12) == 0 {
            plan.panic_at = Some(random.u64(..20_000));
            plan.time = (5, 5);
        }
        // The events that take most of an application's time, and so hide other effects. Not MONITOR_JIT_COMPILATION
        // and MONITOR_THREADS: by them the profiler learns that the program is ready.
        let events = ["MONITOR_EXCEPTIONS", "MONITOR_CODE_TRANSITIONS", "MONITOR_OBJECT_ALLOCATED"];
        plan.without.0.extend(events.into_iter().filter(|_| random.u8(..5) == 0));
        plan.spare_net_8(major, random.u8(..4) == 0);
        plan
    }

    /// The arguments of tests/managed/Fire.cs.
    pub(super) fn arguments(&self) -> [String; 3] {
        [self.condition.name().to_owned(), self.time.0.to_string(), self.time.1.to_string()]
    }

    /// The environment variables for the profiler and the program.
    pub(super) fn environment(&self) -> Vec<(&'static str, String)> {
        let mut pairs = vec![
            ("MATRIX_FIRE", self.condition.name().to_owned()),
            ("MATRIX_TARGET", self.target.to_string()),
            ("MATRIX_SEED", self.number.to_string()),
            ("MATRIX_HOOKS", self.hooks.to_owned()),
            ("MATRIX_WITHOUT", self.without.0.join(",")),
            ("FIRE_WITHOUT", self.without.1.join(",")),
        ];
        pairs.extend(self.panic_at.map(|visit| ("MATRIX_PANIC", visit.to_string())));
        pairs.extend(self.settings.iter().map(|&(name, value)| (name, value.to_owned())));
        pairs
    }

    /// The types of contexts that must have made calls, each with the levels of its rows.
    pub(super) fn contexts(&self) -> Vec<(&'static str, &'static [&'static str])> {
        let mut contexts: Vec<(_, &[_])> = vec![
            ("Info", &["Info"]),
            ("InNoGc", &["Info", "InNoGc", "ObjectId"]),
            ("InCallback", &["Info", "InNoGc", "InCallback"]),
            ("ProfilerThread", &["Info", "InNoGc", "InCallback", "ProfilerThread"]),
        ];
        match self.hooks {
            "fast" => contexts.push(("InHook", &["Info"])),
            "values" => contexts.push(("InSlowHook", &["Info", "InNoGc", "ObjectId"])),
            _ => {}
        }
        contexts
    }

    /// Whether the run goes on until every cell is full.
    pub(super) fn is_to_fill(&self) -> bool {
        self.target != ENDLESS && self.panic_at.is_none()
    }
}

/// `lock, values, DOTNET_gcServer=1, without MONITOR_GC`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, hooks: {}", self.condition.name(), self.hooks)?;
        self.settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))?;
        self.without.0.iter().chain(&self.without.1).try_for_each(|left_out| write!(f, ", without {left_out}"))?;
        self.panic_at.map_or(Ok(()), |visit| write!(f, ", a panic in visit {visit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_condition_has_both_kinds_of_hooks_and_every_setting() {
        let mut panics = 0;
        for condition in Condition::ALL {
            let plans = Plan::fill_by_settings(7, condition, 1000, 10, false);
            let filling: Vec<_> = plans.iter().filter(|plan| plan.is_to_fill()).collect();
            assert_eq!(filling.len(), 4);
            assert!(["values", "fast"].iter().all(|hooks| filling.iter().any(|plan| plan.hooks == *hooks)));
            let has = |setting: &(&str, &str)| filling.iter().any(|plan| plan.settings == [*setting]);
            assert!(settings(false).iter().all(has));
            assert!(plans.iter().map(|plan| plan.number).eq(7..7 + plans.len() as u64));
            panics += plans.len() - filling.len();
        }
        assert_eq!(panics, 1);
    }

    #[test]
    fn a_number_makes_the_same_run_again() {
        assert_eq!(Plan::any(77, 8, false).to_string(), Plan::any(77, 8, false).to_string());
    }
}
