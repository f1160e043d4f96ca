//! The numbers of a process's threads: the runtime's own, and the system's. From .NET 11 on the runtime's events of
//! locks have the first, the profiler samples by the second, and a profiler that was attached is not told of older
//! threads.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use corprof_diagnostics::{Client, KeywordSet, Provider, Rundown, SessionConfig};
use corprof_nettrace::Reader;

/// The keyword of the rundown for threads.
const THREADS: u64 = 0x1_0000;
/// The event for each thread.
const THREAD: &str = "ThreadDC";
/// The time limit for the list.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest list that the data of an attach have room for.
const MOST_BYTES: usize = 32_768;

/// The threads as the profiler `locks` reads them: `1=4711,4=4713`.
///
/// # Errors
/// If the runtime does not list its threads alone, as before .NET 9, or does not answer.
pub(super) fn list(client: &Client) -> Result<String> {
    let config = SessionConfig::new([Provider::runtime(KeywordSet::PROFILER)]);
    let config = config.with_rundown(Rundown::Keywords(THREADS));
    let mut session = client.start_session(&config)?;
    session.set_read_timeout(Some(PATIENCE));
    session.stop()?;
    let begin = Instant::now();
    let mut reader = Reader::new(session);
    let mut list = String::new();
    while let Some(event) = reader.next_event()? {
        ensure!(begin.elapsed() < PATIENCE, "the runtime does not end the list of its threads within {PATIENCE:?}");
        let event = event.decoded();
        if event.name() != THREAD || list.len() > MOST_BYTES {
            continue;
        }
        let number = |field| event.field(field).and_then(|value| value.as_u64());
        if let (Some(own), Some(os_id)) = (number("ManagedThreadIndex"), number("OSThreadID")) {
            let separator = if list.is_empty() { "" } else { "," };
            write!(list, "{separator}{own}={os_id}")?;
        }
    }
    Ok(list)
}
