//! The plan of one run, derived from its number, so that the same number makes the same run.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

use crate::target::System;

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// When all work is done.
    Whole,
    /// `Main` returns while its threads are busy.
    Return,
    /// `Environment.Exit` on another thread.
    Exit,
    /// The same, from managed code that native code has called.
    Callback,
    /// An uncaught exception.
    Throw,
    /// `Environment.FailFast`.
    FailFast,
}

impl Ending {
    const ALL: [Self; 6] = [Self::Whole, Self::Return, Self::Exit, Self::Callback, Self::Throw, Self::FailFast];

    /// Its name in the program.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Return => "return",
            Self::Exit => "exit",
            Self::Callback => "callback",
            Self::Throw => "throw",
            Self::FailFast => "failfast",
        }
    }

    /// Whether the runtime ends in order, and calls the profiler's Shutdown.
    pub(super) fn is_orderly(self) -> bool {
        !matches!(self, Self::Throw | Self::FailFast)
    }

    /// Whether it ends the process while another thread is in `Main`.
    pub(super) fn is_exit(self) -> bool {
        matches!(self, Self::Exit | Self::Callback)
    }

    /// The exit code, as a shell reports it.
    pub(super) fn exit_code(self, system: System) -> u8 {
        let is_windows = system == System::Windows;
        match self {
            Self::Whole => 0,
            Self::Return => 3,
            Self::Exit | Self::Callback => 7,
            // The low bytes of 0xE0434352, the CLR's exception, and of STATUS_FAIL_FAST_EXCEPTION, which Wine makes of
            // every such end (Windows lets COR_E_FAILFAST through); elsewhere the process aborts.
            Self::Throw if is_windows => 0x52,
            Self::FailFast if is_windows => 0x02,
            Self::Throw | Self::FailFast => 128 + 6,
        }
    }

    /// The runtime's message before it aborts.
    pub(super) fn last_words(self) -> Option<&'static str> {
        match self {
            Self::Throw => Some("Unhandled exception."),
            Self::FailFast => Some("Process terminated."),
            _ => None,
        }
    }

    /// Whether an abort may become an end by this code, after the runtime's message.
    ///
    /// .NET 8 removes all its signal handlers before it aborts. Signals of other threads then end the process: stopping
    /// threads (signal 34: a collection, or a profiler), a null reference (11) or a division by zero (8). Seen without
    /// a profiler in 1 of 120 and 1 of 80 runs of programs that do nothing else; later runtimes keep the handlers.
    pub(super) fn is_abort_overtaken(self, code: u8, system: System) -> bool {
        self.last_words().is_some()
            && system != System::Windows
            && [34, 11, 8].map(|signal| 128 + signal).contains(&code)
    }

    /// Whether the end of a process whose threads still run may become an end by this code, after the profiler's.
    ///
    /// On musl a collection then reads the memory of a thread that has ended: book/src/deployment.md. Without a profiler
    /// it did so in 1 of 150 runs.
    pub(super) fn is_end_overtaken(self, code: u8, system: System) -> bool {
        self.is_orderly() && system == System::Musl && code == 128 + 11
    }
}

/// The profiler's other work. Three entries replace something instead: `values` has hooks that read arguments and
/// results; `seeded` makes the sampler stop single threads, on Windows; and `signals` makes it send signals, on Linux.
/// On other systems these have no effect.
pub(super) const PARTS: [&str; 10] =
    ["walks", "keeps", "hooks", "values", "collections", "suspensions", "budget", "on-cpu", "seeded", "signals"];

/// Settings of the runtime.
const SETTINGS: [(&str, &str); 4] = [
    ("DOTNET_gcServer", "1"),
    ("DOTNET_gcConcurrent", "0"),
    ("DOTNET_TieredCompilation", "0"),
    ("DOTNET_ReadyToRun", "0"),
];

/// One run of the program under the profiler.
#[derive(Debug)]
pub(super) struct Plan {
    /// The number that reproduces it.
    pub(super) number: u64,
    pub(super) ending: Ending,
    /// The time of the end.
    pub(super) after: Duration,
    pub(super) parts: Vec<&'static str>,
    pub(super) settings: Vec<(&'static str, &'static str)>,
}

impl Plan {
    /// The run with this number; it has the parts `always`, and others by chance.
    pub(super) fn new(number: u64, always: &[String]) -> Self {
        let mut random = Rng::with_seed(number);
        // In turn, so that a few runs include all endings.
        let ending = Ending::ALL[(number % Ending::ALL.len() as u64) as usize];
        let after = Duration::from_millis(random.u64(50..3000));
        let is_always = |part: &&str| always.iter().any(|always| always == part);
        let parts = PARTS.into_iter().filter(|part| (random.u8(0..3) == 0) | is_always(part)).collect();
        let settings = SETTINGS.into_iter().filter(|_| random.u8(0..4) == 0).collect();
        Self { number, ending, after, parts, settings }
    }

    /// The arguments of tests/managed/Stress.cs.
    pub(super) fn arguments(&self, lines: u32, patience: Duration) -> Vec<String> {
        arguments(self.ending, lines, self.after, patience)
    }
}

/// The arguments for a run with this ending, that prints so many lines if nothing interrupts it, with threads that may
/// take `patience` for one job. All of them do the same work.
pub(super) fn arguments(ending: Ending, lines: u32, after: Duration, patience: Duration) -> Vec<String> {
    let [after, patience] = [after.as_millis(), patience.as_secs().into()].map(|number| number.to_string());
    vec!["1".to_owned(), lines.to_string(), ending.name().to_owned(), after, patience]
}

/// `return after 0.9 s, keeps, hooks, DOTNET_gcServer=1`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ending.name())?;
        if self.ending != Ending::Whole {
            write!(f, " after {:.1} s", self.after.as_secs_f64())?;
        }
        self.parts.iter().try_for_each(|part| write!(f, ", {part}"))?;
        self.settings.iter().try_for_each(|(name, value)| write!(f, ", {name}={value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_makes_the_same_run_again() {
        assert_eq!(Plan::new(77, &[]).to_string(), Plan::new(77, &[]).to_string());
    }

    #[test]
    fn two_hundred_runs_have_every_ending_part_and_setting() {
        let plans: Vec<_> = (0..200).map(|number| Plan::new(number, &[])).collect();
        assert!(Ending::ALL.iter().all(|ending| plans.iter().any(|plan| plan.ending == *ending)));
        assert!(PARTS.iter().all(|part| plans.iter().any(|plan| plan.parts.contains(part))));
        assert!(SETTINGS.iter().all(|setting| plans.iter().any(|plan| plan.settings.contains(setting))));
        assert!(plans.iter().any(|plan| plan.parts.is_empty()), "and now and then nothing but the sampler");
        for plan in &plans {
            let with = Plan::new(plan.number, &["signals".to_owned()]);
            assert!(with.parts.contains(&"signals") && plan.parts.iter().all(|part| with.parts.contains(part)));
            assert_eq!((with.after, &with.settings), (plan.after, &plan.settings), "the same run otherwise");
        }
    }
}
