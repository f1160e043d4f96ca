//! A call under a lock makes a callback that wants the same lock: the profiler is disabled, and the application goes
//! on.

use anyhow::{Result, ensure};
use corprof_tests::{Run, Runtime};

/// Runs World under the profiler, which is to panic in `callback` once. Both places of its lock are in the message.
fn panics_once(runtime: &Runtime, profiler: &str, callback: &str) -> Result<()> {
    let bare = Run::new(runtime, "World").run()?;
    let outcome = Run::new(runtime, "World").profiler_named("reentry", profiler).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
    let report = format!("corprof: the profiler {profiler} panicked in {callback} and is disabled");
    ensure!(outcome.stderr.matches(&report).count() == 1, "{outcome}");
    let message =
        outcome.stderr.lines().find(|line| line.contains("a corprof::sync::Mutex is locked twice on one thread"));
    let places = message.map_or(0, |message| message.matches("reentry.rs:").count());
    ensure!(places == 2, "{places} places are named: {outcome}");
    ensure!(outcome.stderr.matches("reentry| the outer callback goes on").count() == 1, "{outcome}");
    Ok(())
}

#[test]
fn a_handle_made_under_the_lock_that_its_callback_wants() -> Result<()> {
    for runtime in Runtime::all()? {
        panics_once(&runtime, "Creates", "handle_created")?;
    }
    Ok(())
}

#[test]
fn a_handle_dropped_under_the_lock_that_its_callback_wants() -> Result<()> {
    for runtime in Runtime::all()? {
        panics_once(&runtime, "Drops", "handle_destroyed")?;
    }
    Ok(())
}

#[test]
fn an_event_written_under_the_lock_that_its_callback_wants() -> Result<()> {
    for runtime in Runtime::all()? {
        panics_once(&runtime, "Writes", "event_pipe_event_delivered")?;
    }
    Ok(())
}
