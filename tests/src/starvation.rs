//! Limits that a busy machine does not use up.
//!
//! A test runs beside others, which may leave it a twentieth of a processor. The system says for each thread how long
//! it has waited for a processor (`schedstat`): that time is no fault of the program. A thread that is stuck waits for
//! something else, so a hang is still found.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use corprof_launch::running::Running;

/// How often the threads are looked at.
const TICK: Duration = Duration::from_secs(1);

/// A program that spins for ever on a busy machine waits for processors, too: so many limits are the end.
const MOST: u32 = 6;

/// The time that a process may take. Times in which one of its threads waited for a processor do not count, up to six
/// times as long.
#[derive(Debug)]
pub struct Limit {
    pid: u32,
    limit: Duration,
    used: Duration,
    begin: Instant,
    /// The last look, and how long each thread had waited by then.
    last: (Instant, HashMap<u32, Duration>),
}

impl Limit {
    /// The limit of the process `pid`, from now on.
    #[must_use]
    pub fn new(pid: u32, limit: Duration) -> Self {
        let begin = Instant::now();
        Self { pid, limit, used: Duration::ZERO, begin, last: (begin, waits(pid)) }
    }

    /// Whether the time is over. To be asked about once a second.
    pub fn is_over(&mut self) -> bool {
        let (last, before) = &self.last;
        let tick = last.elapsed();
        if tick >= TICK || self.used + tick >= self.limit {
            let now = waits(self.pid);
            if !is_starved(before, &now, tick) {
                self.used += tick;
            }
            self.last = (Instant::now(), now);
        }
        self.used >= self.limit || self.begin.elapsed() >= self.limit * MOST
    }
}

/// Waits until the process ends or its [`Limit`] is over; `None` if it still runs.
///
/// # Errors
/// If its exit status cannot be read.
pub(crate) fn wait_for(running: &mut Running, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let mut time = Limit::new(running.id(), limit);
    loop {
        let status = running.wait_for(TICK.min(limit))?;
        if status.is_some() || time.is_over() {
            return Ok(status);
        }
    }
}

/// Whether a thread waited for a processor for half of the time or more.
fn is_starved(before: &HashMap<u32, Duration>, now: &HashMap<u32, Duration>, time: Duration) -> bool {
    now.iter().any(|(thread, waited)| {
        let earlier = before.get(thread).copied().unwrap_or_default();
        waited.saturating_sub(earlier) * 2 >= time
    })
}

/// How long each thread of a process has waited for a processor so far. Nothing where the system does not say it.
fn waits(pid: u32) -> HashMap<u32, Duration> {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else { return HashMap::new() };
    let wait = |entry: fs::DirEntry| {
        let times = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let nanoseconds = times.split_whitespace().nth(1)?.parse().ok()?;
        let thread = entry.file_name().to_str()?.parse().ok()?;
        Some((thread, Duration::from_nanos(nanoseconds)))
    };
    folder.flatten().filter_map(wait).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn seconds(waits: &[(u32, u64)]) -> HashMap<u32, Duration> {
        waits.iter().map(|(thread, waited)| (*thread, Duration::from_secs(*waited))).collect()
    }

    #[test]
    fn threads_that_wait_for_a_processor_are_starved_and_others_are_not() {
        let before = seconds(&[(1, 100), (2, 7)]);
        let second = Duration::from_secs(1);
        assert!(!is_starved(&before, &before, second), "all sleep");
        assert!(is_starved(&before, &seconds(&[(1, 100), (2, 8)]), second));
        assert!(is_starved(&before, &seconds(&[(1, 100), (3, 1)]), second), "a new thread");
        assert!(!is_starved(&before, &seconds(&[(1, 101)]), 3 * second), "a third of the time");
    }

    #[test]
    fn a_program_that_sleeps_uses_its_limit_up() {
        let mut sleeps = Running::new(Command::new("sleep").arg("60").spawn().unwrap()).unwrap();
        let begin = Instant::now();
        let limit = Duration::from_millis(1500);
        assert_eq!(wait_for(&mut sleeps, limit).unwrap(), None);
        assert!(begin.elapsed() >= limit);
        sleeps.kill().unwrap();
        let mut ends = Running::new(Command::new("true").spawn().unwrap()).unwrap();
        assert!(wait_for(&mut ends, Duration::from_secs(60)).unwrap().unwrap().success());
    }

    #[test]
    fn the_system_says_how_long_threads_have_waited() {
        let all = waits(std::process::id());
        assert!(!all.is_empty() || !cfg!(target_os = "linux"));
    }
}
