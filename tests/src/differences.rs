//! In what the supported runtimes differ, each with a name. A test asks for what it depends on, not for a version. If
//! .NET 10 and 11 differ in it, the test stands in a module `differs`, so that each check runs it on both.

use std::ops::RangeInclusive;

use crate::Runtime;

/// Something that some runtimes do, and others do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// It names the class of code that instantiations over reference types share: `Pair<System.__Canon>`, where others
    /// name its parameters only.
    ClassOfSharedCode,
    /// Hooks are told of methods that native code calls by themselves, not only of what these call.
    CallsFromNative,
    /// It says of a thread's static field that it is not there yet, where others know no such field.
    MissingThreadStatics,
    /// Static fields of another thread are found under a lock; elsewhere corprof refuses that, as the runtime would
    /// read what the thread may be freeing.
    StaticsOfOtherThreads,
    /// The class of fields with an address in the file counts as initialized, so that the address is answered.
    AddressesInTheFile,
    /// It has ICorProfilerInfo15.
    Info15,
    /// Objects that are never collected can be listed while others unload; elsewhere corprof refuses that for good, as
    /// the runtime would read freed memory.
    ListOfFrozenObjects,
    /// A list of compiled functions is refused by corprof while an assembly unloads, as the runtime would read freed
    /// memory.
    NoListsWhileUnloading,
    /// Native code calls `Main`, static constructors and throws by managed code, which walks show.
    ManagedEntries,
    /// Static constructors are run by managed code, which walks show.
    ManagedInitialization,
    /// The frames that an exception goes through are still there when it is caught.
    FramesAtCatch,
    /// Exceptions are handled by managed code, so that stacks can be walked meanwhile.
    ManagedUnwinding,
    /// It dies now and then when a profiler is told of exceptions that go through filters.
    FaultInFilters,
    /// It ends, without a profiler as well, when it collects after more than a few native threads have gone in managed
    /// code.
    FewThreadsMayGo,
    /// It ends now and then, without a profiler as well, when a native thread runs managed code once more after its
    /// detach.
    NoWayBack,
    /// Methods that are suspended by the runtime itself can be recompiled; elsewhere requests are ignored, and refused
    /// by corprof.
    RecompiledSuspensions,
    /// A class is made for each layout of a suspended method.
    ClassesOfContinuations,
    /// Threads that write events can wait while the buffer of a session is full.
    WaitsWhileBufferIsFull,
    /// `DOTNET_PROFILER` and its family are read, before `CORECLR_PROFILER`, each variable by itself.
    NewerVariables,
    /// A session can leave out stacks, and choose its rundown.
    SessionsWithoutStacks,
    /// A session can take some events of a provider only.
    FiltersOfEvents,
    /// Allocations are reported by samples of bytes, not by ticks.
    SampledAllocations,
    /// There are events of waits, and of the owners of `Lock` objects.
    EventsOfWaits,
    /// Classes of arrays are among those that an unload removes with a report.
    UnloadsOfArrays,
    /// It prints the stacks of all threads in a crash, if `DOTNET_EnableCrashReport` is on.
    ReportsOfCrashes,
    /// It tells what async operations do, by an event source.
    AsyncOperations,
    /// Optimisation can be turned off after `initialize`.
    MutableOptimization,
}

impl Difference {
    /// The versions that have it, of those that are tested.
    fn versions(self) -> RangeInclusive<u32> {
        const OLDEST: u32 = 8;
        const NEWEST: u32 = u32::MAX;
        match self {
            Self::UnloadsOfArrays => OLDEST..=8,
            Self::AddressesInTheFile => OLDEST..=9,
            Self::FaultInFilters => 9..=10,
            Self::MissingThreadStatics
            | Self::Info15
            | Self::ManagedUnwinding
            | Self::SessionsWithoutStacks
            | Self::EventsOfWaits => 9..=NEWEST,
            Self::ClassOfSharedCode
            | Self::CallsFromNative
            | Self::ListOfFrozenObjects
            | Self::StaticsOfOtherThreads
            | Self::NoListsWhileUnloading
            | Self::ManagedInitialization
            | Self::FramesAtCatch
            | Self::FewThreadsMayGo
            | Self::FiltersOfEvents
            | Self::SampledAllocations
            | Self::MutableOptimization => 10..=NEWEST,
            Self::ManagedEntries
            | Self::NoWayBack
            | Self::RecompiledSuspensions
            | Self::ClassesOfContinuations
            | Self::AsyncOperations
            | Self::WaitsWhileBufferIsFull
            | Self::NewerVariables
            | Self::ReportsOfCrashes => 11..=NEWEST,
        }
    }
}

impl Runtime {
    /// Whether it is one of those that do this.
    #[must_use]
    pub fn has(&self, difference: Difference) -> bool {
        difference.versions().contains(&self.major)
    }
}
