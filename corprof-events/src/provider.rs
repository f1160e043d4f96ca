//! Providers of events.

use std::fmt::{self, Debug, Display, Formatter};

/// The provider of an event: one of the runtime's, whose events the manifest describes, or another one, whose events
/// describe themselves.
///
/// ```
/// use corprof_events::Provider;
///
/// assert_eq!(Provider::of("Microsoft-Windows-DotNETRuntime"), Provider::RUNTIME);
/// assert_eq!(Provider::of("System.Net.Http").name(), "System.Net.Http");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Provider<'a> {
    name: &'a str,
    manifest: Manifest,
}

/// Which part of the manifest describes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Manifest {
    Runtime,
    Rundown,
    Private,
    SampleProfiler,
    UniversalSystem,
    UniversalEvents,
    None,
}

impl<'a> Provider<'a> {
    /// The runtime, `Microsoft-Windows-DotNETRuntime`.
    pub const RUNTIME: Provider<'static> =
        Provider { name: "Microsoft-Windows-DotNETRuntime", manifest: Manifest::Runtime };

    /// The runtime's report of older methods and modules at the end of a session:
    /// `Microsoft-Windows-DotNETRuntimeRundown`.
    pub const RUNDOWN: Provider<'static> =
        Provider { name: "Microsoft-Windows-DotNETRuntimeRundown", manifest: Manifest::Rundown };

    /// The runtime's events for those who work on it: steps of collections and of the start-up, handles, bindings.
    /// `Microsoft-Windows-DotNETRuntimePrivate`.
    pub const PRIVATE: Provider<'static> =
        Provider { name: "Microsoft-Windows-DotNETRuntimePrivate", manifest: Manifest::Private };

    /// The runtime's own sampler, which writes an event with a stack for each thread:
    /// `Microsoft-DotNETCore-SampleProfiler`.
    pub const SAMPLE_PROFILER: Provider<'static> =
        Provider { name: "Microsoft-DotNETCore-SampleProfiler", manifest: Manifest::SampleProfiler };

    /// What is where in the memory of the processes of a machine, `Universal.System`:
    /// [`universal`](crate::universal).
    pub const UNIVERSAL_SYSTEM: Provider<'static> =
        Provider { name: "Universal.System", manifest: Manifest::UniversalSystem };

    /// Samples of a machine's processors, and switches of its threads, `Universal.Events`:
    /// [`universal::Measured`](crate::universal::Measured).
    pub const UNIVERSAL_EVENTS: Provider<'static> =
        Provider { name: "Universal.Events", manifest: Manifest::UniversalEvents };

    /// The provider of this name.
    #[must_use]
    pub fn of(name: &'a str) -> Self {
        let known = [
            Self::RUNTIME,
            Self::RUNDOWN,
            Self::PRIVATE,
            Self::SAMPLE_PROFILER,
            Self::UNIVERSAL_SYSTEM,
            Self::UNIVERSAL_EVENTS,
        ];
        let known = known.into_iter().find(|known| known.name == name);
        known.unwrap_or(Self { name, manifest: Manifest::None })
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'a str {
        self.name
    }

    pub(crate) fn manifest(self) -> Manifest {
        self.manifest
    }
}

impl Display for Provider<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Debug for Provider<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
