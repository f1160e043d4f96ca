//! `cargo xtask guard` ends a test that passes its limit, with all that it has started.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a step may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn guarded(script: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["guard", "sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The running processes with this command line.
fn running(command: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").trim_end() == command).count()
}

fn wait_for(command: &str, count: usize) {
    let start = Instant::now();
    while running(command) != count {
        assert!(start.elapsed() < PATIENCE, "{} of {command}, not {count}", running(command));
        thread::sleep(Duration::from_millis(10));
    }
}

/// Its exit code, and what it has printed on standard error.
fn end(mut guard: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    guard.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (guard.wait().unwrap().code(), said)
}

#[test]
fn a_test_that_passes_its_limit_is_ended_with_its_children_and_their_stacks_are_shown() {
    let sleep = format!("sleep {}", 40_000 + std::process::id());
    // The second has left the process group and the session of the test, and its parent.
    let guard = guarded(&format!("(setsid {sleep} &) ; {sleep} ; true"));
    wait_for(&sleep, 2);
    let id = guard.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let (code, said) = end(guard);
    assert_eq!(code, Some(128 + 15));
    assert!(said.contains("has passed its limit"), "{said}");
    assert_eq!(said.matches(&format!(" {sleep}\n")).count(), 2, "{said}");
    wait_for(&sleep, 0);
}

#[test]
fn what_a_test_leaves_behind_is_ended_and_its_exit_code_is_kept() {
    let sleep = format!("sleep {}", 30_000 + std::process::id());
    let (code, said) = end(guarded(&format!(
        "setsid {sleep} >/dev/null 2>&1 & while ! pgrep -f '^{sleep}$' >/dev/null; do :; done; exit 7"
    )));
    assert_eq!(code, Some(7));
    assert!(said.contains("has left a process behind") && said.contains(&sleep), "{said}");
    wait_for(&sleep, 0);
}
