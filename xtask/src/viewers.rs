//! Viewers of profiles, which read back what corprof-export writes.

use std::ffi::OsString;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::cache::Cache;
use crate::process::{self, announce, find_on_path, note};
use crate::tools::{self, Packages};

/// What brings `go tool pprof`.
const GO: Packages = Packages { what: "Go, for `go tool pprof`", names: &["golang-go"] };

/// speedscope, and the stand-in for a browser that it is run in, with the checksums of all that these need.
const SPEEDSCOPE: [(&str, &str); 2] = [
    ("package.json", include_str!("../viewers/package.json")),
    ("package-lock.json", include_str!("../viewers/package-lock.json")),
];

/// The environment that names the viewers to the tests of corprof-export. One that is missing and cannot be had is left out:
/// its tests are skipped then, and say so.
pub(crate) fn environment() -> Vec<(&'static str, OsString)> {
    let viewers = [("CORPROF_GO", go()), ("CORPROF_SPEEDSCOPE", speedscope())];
    let found = viewers.into_iter().filter_map(|(name, found)| match found {
        Ok(found) => Some((name, found)),
        Err(error) => {
            note(format_args!("tests that need {name} are skipped: {error:#}"));
            None
        }
    });
    found.collect()
}

fn go() -> Result<OsString> {
    tools::ensure_programs(&["go"], &GO)?;
    Ok(find_on_path("go").context("no go")?.into_os_string())
}

/// The folder that Node finds speedscope in.
fn speedscope() -> Result<OsString> {
    find_on_path("node").context("no node on PATH")?;
    let npm = find_on_path("npm").context("no npm on PATH")?;
    let dir = Cache::open()?.install("speedscope-1.25.0-jsdom-24.1.3", |content| {
        announce("Fetching speedscope from npm");
        for (name, text) in SPEEDSCOPE {
            fs::write(content.join(name), text)?;
        }
        // Scripts of packages do not run.
        let arguments = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        process::run_as_progress(Command::new(npm).args(arguments).current_dir(content))
    })?;
    Ok(dir.join("node_modules").into_os_string())
}
