//! Files opened by the viewers themselves: `go tool pprof`, and speedscope from npm.
//!
//! `cargo xtask test` fetches both if it can, and names them in CORPROF_GO and CORPROF_SPEEDSCOPE. Tests of a missing
//! viewer are skipped, with a message.

use std::env;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use corprof_export::{Profile, Short, Trace, Unit};

use crate::shapes;

pub(crate) fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&stdout);
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {stdout}{stderr}");
    stdout.into_owned()
}

/// The output of `go tool pprof` for a profile. `None` without Go.
fn pprof(profile: &Profile, report: &str) -> Option<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("shop.pb.gz");
    profile.write(&file).unwrap();
    pprof_of(&file, report)
}

/// The same with a file.
pub(crate) fn pprof_of(file: &Path, report: &str) -> Option<String> {
    let go = env::var_os("CORPROF_GO").unwrap_or_else(|| "go".into());
    if Command::new(&go).arg("version").output().is_err() {
        eprintln!("skipped: there is no `go` on PATH or in CORPROF_GO for `go tool pprof`");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(go);
    // It keeps caches and settings in the home folder.
    Some(output(
        command.args(["tool", "pprof", report]).arg(file).env("HOME", dir.path()).env("PPROF_TMPDIR", dir.path()),
    ))
}

#[test]
fn pprof_reads_what_was_told() {
    let Some(raw) = pprof(&shapes::told(), "-raw") else { return };
    for expected in [
        "PeriodType: cpu nanoseconds",
        "Period: 10000000",
        "Time: 2023-11-14 22:13:20",
        "Duration: 5.23",
        "samples/count cpu/nanoseconds[dflt]",
        "thread:[main]",
        "thread_id:[4712]",
        "Comment: Skipped: 5,125 rounds over the budget",
    ] {
        assert!(raw.contains(expected), "{expected}: {raw}");
    }
}

#[test]
fn pprof_names_the_application_and_adds_up() {
    let Some(top) = pprof(&shapes::told(), "-top") else { return };
    assert!(top.contains("File: shop") && top.contains("Type: cpu") && top.contains("Total samples = 10ns"), "{top}");
    let line = |name: &str| {
        let line = top.lines().find(|line| line.trim_end().ends_with(name)).unwrap_or_else(|| panic!("{name}: {top}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("Shop.Work<T>(int32, \"x\")")[..5], ["7ns", "70.00%", "70.00%", "9ns", "90.00%"]);
    assert_eq!(line("Shop.Main()")[3..5], ["10ns", "100%"]);
}

/// The title and the text of speedscope's page with a profile. None without speedscope.
fn speedscope(profile: &Profile, extension: &str) -> Option<(String, String)> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(format!("shop.{extension}"));
    profile.write(&file).unwrap();
    speedscope_of(&file)
}

/// The same with a file.
fn speedscope_of(file: &Path) -> Option<(String, String)> {
    let Some(modules) = env::var_os("CORPROF_SPEEDSCOPE") else {
        eprintln!("skipped: CORPROF_SPEEDSCOPE names no folder with speedscope and jsdom from npm");
        return None;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_back/speedscope.js");
    let answer = output(Command::new("node").arg(script).arg(file).env("NODE_PATH", modules));
    let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    Some((answer["title"].as_str().unwrap().to_owned(), answer["text"].as_str().unwrap().to_owned()))
}

#[test]
fn speedscope_imports_its_own_format() {
    for extension in ["speedscope.json", "speedscope.json.gz"] {
        let Some((title, text)) = speedscope(&shapes::told(), extension) else { return };
        assert_eq!(title, format!("shop ({}) - speedscope", shapes::TOLD[0]));
        // The first of two threads.
        assert!(text.contains("main") && text.contains("(1/2)"), "{text}");
    }
    let Some((title, _)) = speedscope(&Profile::new("none", Unit::Samples), "speedscope.json") else { return };
    assert_eq!(title, "none (0 samples · 0 threads) - speedscope");
}

#[test]
fn speedscope_imports_pprof_and_folded_files() {
    for extension in ["pb.gz", "folded"] {
        // The title is that of the imported file; without an import there is none.
        let Some((title, _)) = speedscope(&shapes::told(), extension) else { return };
        assert!(title.contains("shop"), "{extension}: {title}");
    }
}

#[test]
fn speedscope_imports_the_calls_of_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("calls.trace.json");
    let mut trace = Trace::create(&file, 7, "shop").unwrap();
    let at = Duration::from_micros;
    for (thread, name) in [(0, "main"), (1, "worker")] {
        trace.thread(thread, 4711 + thread, Some(name)).unwrap();
        trace.begin(thread, at(1), "Shop.Main()").unwrap();
        trace.begin(thread, at(2), "Shop.Work<T>(int32)").unwrap();
        trace.end(thread, at(5), Short { calls: 3, time: at(1) }).unwrap();
        trace.end(thread, at(9), Short::default()).unwrap();
    }
    drop(trace);
    let Some((_, text)) = speedscope_of(&file) else { return };
    assert!(text.contains("shop (pid 7), main (tid 4711) (1/2)"), "{text}");
    assert!(text.contains("shop (pid 7), worker (tid 4712)"), "{text}");
}
