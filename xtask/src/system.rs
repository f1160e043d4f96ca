//! This system in the terms of .NET, and the variables by which runtimes load profilers.

use std::ffi::OsString;

/// The name of this system in .NET.
#[must_use]
pub fn this_system() -> String {
    let system = match std::env::consts::OS {
        "windows" => "win",
        "macos" => "osx",
        other => other,
    };
    let processor = match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{processor}")
}

/// The environment that makes the CLR load a profiler, as pairs of name and value: both families of names, because .NET
/// 11 prefers the second, whoever has set it. `library` is its path in the runtime
/// ([`Runtime::path`](crate::runtime::Runtime::path)).
#[must_use]
pub fn profiler_environment(clsid: &str, library: OsString) -> [(&'static str, OsString); 6] {
    [
        ("CORECLR_ENABLE_PROFILING", "1".into()),
        ("CORECLR_PROFILER", clsid.into()),
        ("CORECLR_PROFILER_PATH", library.clone()),
        ("DOTNET_ENABLE_PROFILING", "1".into()),
        ("DOTNET_PROFILER", clsid.into()),
        ("DOTNET_PROFILER_PATH", library),
    ]
}
