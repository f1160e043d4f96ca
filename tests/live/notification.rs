//! Notification-only profilers of the attacks beside a main one: what this does must not keep them from hearing what
//! goes.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::{Error, HResult, Process, Uuid};
use corprof_tests::{Runtime, repetitions};

use crate::attacks::{count, told_in};
use crate::detach::attach;
use crate::diagnostics::{PATIENCE, Program, command, profiler_named, runtimes};

/// A program with a notification-only profiler, and which it is.
fn with_beside(runtime: &Runtime, profiler: &str) -> Result<(Program, Uuid, PathBuf)> {
    let (clsid, library) = profiler_named(runtime, "attacks", profiler)?;
    let mut start = command(runtime)?;
    start.env("CORECLR_ENABLE_NOTIFICATION_PROFILERS", "1");
    start.env("CORECLR_NOTIFICATION_PROFILERS", format!("{}={{{clsid}}};", library.display()));
    start.env("ATTACKS_WATCHES_BESIDE", "threads after=1 retires");
    Ok((Program::ready(start)?, clsid, library))
}

/// When a main profiler leaves, or fails, the runtime may make no more callbacks to the profilers beside it.
#[test]
fn a_profiler_beside_hears_what_goes_after_the_main_one_wants_to_leave() -> Result<()> {
    for runtime in &runtimes()? {
        for _ in 0..repetitions(1, 20) {
            for (main, data) in [("KeepsIds", "keeps".as_bytes()), ("Watches", &[0xff])] {
                let (mut program, ..) = with_beside(runtime, "AsksBeside")?;
                let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
                let (clsid, library) = profiler_named(runtime, "attacks", main)?;
                attach(&client, clsid, &library, data)?;
                for command in ["throw 1", "load 2", "unload", "collect 1", "load 2", "unload"] {
                    program.tell(command).with_context(|| format!("{runtime}, {main}: {command}"))?;
                }
                let stderr = program.end()?;
                ensure!(!stderr.contains("panicked"), "{runtime}: {stderr}");
                let told = told_in(&stderr, "answered=")?;
                eprintln!("{runtime}, {main}: {told}");
                ensure!(count(told, "classes")? > 50 && count(told, "modules")? > 5, "{runtime}, {main}: {stderr}");
                ensure!(count(told, "unexpected")? == 0, "{runtime}, {main}: {stderr}");
            }
        }
    }
    Ok(())
}

/// After the main profiler has left, the runtime does not find them.
#[test]
fn profilers_beside_neither_come_nor_leave_while_the_application_runs() -> Result<()> {
    for runtime in &runtimes()? {
        let (mut program, clsid, library) = with_beside(runtime, "WatchesBeside")?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        let answer = client.attach_profiler(clsid, &library, b"", PATIENCE);
        let code = answer.as_ref().err().and_then(Error::code);
        ensure!(code == Some(HResult(0x8013_1368)), "{runtime}: {answer:?}");
        program.tell("collect 1")?;
        let stderr = program.end()?;
        ensure!(told_in(&stderr, "leaves: ")?.contains("end it by `retire`"), "{runtime}: {stderr}");
        ensure!(stderr.contains("WatchesBeside is not attached"), "{runtime}: {stderr}");
    }
    Ok(())
}
