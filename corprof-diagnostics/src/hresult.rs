//! The error codes of runtimes, with meanings and cures.

use std::fmt;

/// A code of a runtime, with the name that it has in the runtime's sources.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HResult(pub u32);

/// Code, name, and meaning with cure.
const KNOWN: &[(u32, &str, &str)] = &[
    (0x8000_4005, "E_FAIL", "the runtime gives no reason; an empty path of a profiler is answered so, too"),
    (0x8000_ffff, "E_UNEXPECTED", "the runtime gives no reason"),
    (0x8000_00cb, "DS_IPC_E_ENVVAR_NOT_FOUND", "the process has no such variable"),
    (
        0x8007_0005,
        "E_ACCESSDENIED",
        "the user of the process may not read the library or one of the folders above it: change their modes",
    ),
    (0x8007_000e, "E_OUTOFMEMORY", "the process has no memory left"),
    (0x8007_0057, "E_INVALIDARG", "the runtime refuses an argument, or is not suspended"),
    (
        0x8007_007e,
        "HRESULT_FROM_WIN32(ERROR_MOD_NOT_FOUND)",
        "the library was not loaded: is the path right as the process sees it (a container has files of its own), may its \
         user read it, is it a library for its architecture and C library, and are all libraries there that it needs?",
    ),
    (
        0x8007_007f,
        "HRESULT_FROM_WIN32(ERROR_PROC_NOT_FOUND)",
        "the library is not a profiler: it does not export DllGetClassObject",
    ),
    (0x8007_00c1, "HRESULT_FROM_WIN32(ERROR_BAD_EXE_FORMAT)", "the library is for another architecture"),
    (0x8007_05b4, "HRESULT_FROM_WIN32(ERROR_TIMEOUT)", "the runtime did not get it done in the time that it was given"),
    (
        0x8004_0111,
        "CLASS_E_CLASSNOTAVAILABLE",
        "the library has no profiler with this CLSID: compare it with the one in its source",
    ),
    (0x8000_4002, "E_NOINTERFACE", "the profiler lacks an interface that the runtime asks for"),
    (
        0x8013_135b,
        "CORPROF_E_NOT_YET_AVAILABLE",
        "the runtime has not come that far in its start: resume it, or ask again a little later",
    ),
    (
        0x8013_1379,
        "CORPROF_E_TIMEOUT_WAITING_FOR_CONCURRENT_GC",
        "a background collection took longer than the time-out of the attach: allow more",
    ),
    (
        0x8013_1367,
        "CORPROF_E_PROFILER_DETACHING",
        "a profiler is being detached from the process: try again when that is done",
    ),
    (
        0x8013_136a,
        "CORPROF_E_PROFILER_ALREADY_ACTIVE",
        "another profiler is in the process, or is being attached or detached: a process has one at a time",
    ),
    (
        0x8013_1368,
        "CORPROF_E_PROFILER_NOT_ATTACHABLE",
        "the profiler does not support attach: implement `initialize_for_attach`, or load it at start-up",
    ),
    (
        0x8013_1371,
        "CORPROF_E_RUNTIME_UNINITIALIZED",
        "the runtime is not ready yet: resume it, or try again a little later",
    ),
    (0x8013_1384, "CORDIAGIPC_E_BAD_ENCODING", "the runtime could not read the request: please report this as a bug"),
    (0x8013_1385, "CORDIAGIPC_E_UNKNOWN_COMMAND", "the runtime does not know the request: it needs a newer .NET"),
    (0x8013_1386, "CORDIAGIPC_E_UNKNOWN_MAGIC", "the other side does not speak this protocol"),
    (0x8013_1387, "CORDIAGIPC_E_UNKNOWN_ERROR", "the runtime gives no reason"),
    (0x8013_1515, "COR_E_NOTSUPPORTED", "the runtime does not support it, or it is turned off in this process"),
    (
        0x8013_1375,
        "CORPROF_E_PROFILER_CANCEL_ACTIVATION",
        "the profiler refused to be loaded: its own messages say why",
    ),
];

impl HResult {
    /// The runtime refuses an argument, or is not in the state that the request needs.
    pub const INVALID_ARGUMENT: Self = Self(0x8007_0057);
    /// The request is one that the runtime is too old for.
    pub const UNKNOWN_COMMAND: Self = Self(0x8013_1385);
    /// The runtime could not read the request.
    pub const BAD_ENCODING: Self = Self(0x8013_1384);
    /// The runtime has not come that far in its start.
    pub const NOT_YET_AVAILABLE: Self = Self(0x8013_135b);
    /// The runtime cannot be asked for this yet.
    pub const RUNTIME_UNINITIALIZED: Self = Self(0x8013_1371);
    /// A profiler is in the process already.
    pub const PROFILER_ALREADY_ACTIVE: Self = Self(0x8013_136a);

    fn known(self) -> Option<&'static (u32, &'static str, &'static str)> {
        KNOWN.iter().find(|(code, ..)| *code == self.0)
    }

    /// Its name, where it has one.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        self.known().map(|(_, name, _)| *name)
    }

    /// Its meaning in an answer of the diagnostics port, and the cure.
    #[must_use]
    pub fn hint(self) -> Option<&'static str> {
        self.known().map(|(_, _, hint)| *hint)
    }
}

impl fmt::Display for HResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({:#010x})", self.0),
            None => write!(f, "{:#010x}", self.0),
        }
    }
}

impl fmt::Debug for HResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
