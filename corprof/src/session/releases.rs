//! What releases of the runtime do that nothing but their number tells.
//!
//! Other differences are asked of the runtime: by an interface, by the metadata of its core library, by what it
//! answers. These are faults and limits inside it: a try would meet the fault itself, in the application. No other
//! file of this crate compares versions (`versions_are_compared_in_one_file` in tests/architecture.rs).

use super::RuntimeInfo;

/// Something that some releases do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReleaseFact {
    /// It may move an exception that it is about to pass to a filter (`adapter/exception_pins/mod.rs`).
    MovesExceptionsBeforeFilters,
    /// It crashes when inlining and requests to recompile meet (`inlinings.rs`).
    CrashesWhenInliningMeetsRequests,
    /// It locks a thread's table of static fields while another thread reads it. In .NET 8 the thread may replace the
    /// table meanwhile, and frees the old one; .NET 9 was not tested.
    LocksStaticsOfThreads,
    /// It may put objects of collectible assemblies into the heap that is not collected, and leaves them there when the
    /// assembly goes. .NET 10 has been seen not to; .NET 9 was not tested.
    KeepsObjectsOfUnloadedClasses,
    /// It crashes some time after a list of compiled functions that was made while an assembly unloads.
    CrashesAfterListsDuringUnloads,
    /// It detaches a profiler although some flags of the event mask are on that others refuse. The refusal would come
    /// too late: callbacks are drained before the request.
    DetachesWithMoreFlags,
    /// A thread may lack the tables for searches of code at its end (`ending_threads.rs`): .NET 11, where it was seen,
    /// and later. .NET 8 and 10 have no such data of threads.
    DropsTablesOfEndingThreads,
    /// Its wrapper around hooks with values takes threads that it has never seen, others die of them. The mending
    /// (dotnet/runtime pull request 119327) is of September 2025, when .NET 10 was nearly done: releases of .NET 10
    /// before this one may or may not have it.
    TakesHooksOfForeignThreads,
}

impl RuntimeInfo {
    /// Whether it is one of the releases that do this.
    pub(crate) fn has(self, fact: ReleaseFact) -> bool {
        match fact {
            ReleaseFact::MovesExceptionsBeforeFilters => matches!(self.major, 9 | 10),
            ReleaseFact::CrashesWhenInliningMeetsRequests => self.major == 8,
            ReleaseFact::KeepsObjectsOfUnloadedClasses => self.major < 10,
            ReleaseFact::LocksStaticsOfThreads
            | ReleaseFact::CrashesAfterListsDuringUnloads
            | ReleaseFact::DetachesWithMoreFlags => self.major >= 10,
            ReleaseFact::DropsTablesOfEndingThreads => self.major >= 11,
            ReleaseFact::TakesHooksOfForeignThreads => (self.major, self.minor, self.build) >= (10, 0, 14),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn those_with(fact: ReleaseFact) -> Vec<u16> {
        let runtime = |major| RuntimeInfo { major, minor: 0, build: 0 };
        (8..13).filter(|&major| runtime(major).has(fact)).collect()
    }

    #[test]
    fn releases_do_what_was_seen_of_them() {
        assert_eq!(those_with(ReleaseFact::MovesExceptionsBeforeFilters), [9, 10]);
        assert_eq!(those_with(ReleaseFact::CrashesWhenInliningMeetsRequests), [8]);
        assert_eq!(those_with(ReleaseFact::KeepsObjectsOfUnloadedClasses), [8, 9]);
        assert_eq!(those_with(ReleaseFact::LocksStaticsOfThreads), [10, 11, 12]);
        assert_eq!(those_with(ReleaseFact::DropsTablesOfEndingThreads), [11, 12]);
        assert_eq!(those_with(ReleaseFact::TakesHooksOfForeignThreads), [11, 12]);
        let mended = RuntimeInfo { major: 10, minor: 0, build: 14 };
        assert!(mended.has(ReleaseFact::TakesHooksOfForeignThreads));
    }
}
