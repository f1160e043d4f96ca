//! EventPipe: the data delivered with events, and sessions that have ended.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, ensure_or_longer, patiently};

#[test]
fn an_event_has_its_thread_and_its_activity() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler("event_pipe").run()?;
        outcome.exited_with(0)?;
        for expected in [
            "event 1 of Corprof-Sources: (true, None)",
            "event 2 of Corprof-Sources: (true, Some(00010203-0405-0607-0809-0A0B0C0D0E0F))",
        ] {
            let count = outcome.stderr.matches(expected).count();
            ensure!(count == 1, "{count} times {expected}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn an_event_that_is_written_while_one_is_delivered_is_not() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler("event_pipe").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.contains("event_pipe| own events: 1\n"), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_session_that_has_been_stopped_is_refused() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler("event_pipe").run()?;
        outcome.exited_with(0)?;
        for expected in [
            "start: ()",
            "add: ()",
            "stop: ()",
            "add to stopped: error EventPipeAddProviderToSession(session): COR_E_OBJECTDISPOSED",
            "stop stopped: error EventPipeStopSession(session): COR_E_OBJECTDISPOSED",
        ] {
            ensure!(outcome.stderr.contains(&format!("event_pipe| {expected}")), "not told: {expected}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn sessions_start_and_stop_while_the_application_collects() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let threads = (1000 * times).to_string();
        let collections = (500 * times).to_string();
        let outcome = Run::new(runtime, "Churn").args([threads, collections]).profiler("runtime_events").run()?;
        outcome.exited_with(0)?;
        let line = outcome.stderr.lines().find_map(|line| line.strip_prefix("runtime_events| delivered "));
        let words: Vec<&str> = line.with_context(|| format!("no counts: {outcome}"))?.split(' ').collect();
        let number = |place: usize| words.get(place).and_then(|word| word.parse::<u64>().ok()).context("no number");
        let delivered = number(0)?;
        let unwanted = number(2)?;
        let rounds = number(4)?;
        let errors = number(6)?;
        ensure!(errors == 0, "{outcome}");
        ensure!(unwanted == 0, "events of a session that was stopped: {outcome}");
        ensure_or_longer!(rounds == 60 && delivered > 100, "{outcome}");
        Ok(())
    })
}
