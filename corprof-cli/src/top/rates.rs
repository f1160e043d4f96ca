//! Rates of allocations, exceptions and collections: the counters that the runtime's `System.Runtime` provider writes
//! each second.
//!
//! Counters cost the application nothing between these events. An event per allocation or exception would cost each of
//! them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use corprof_diagnostics::{Client, Level, Provider, SessionConfig};
use corprof_nettrace::events::{Event, Record};
use corprof_nettrace::{FormatErrorKind, Reader};

/// The time between two checks for the end.
const POLL: Duration = Duration::from_millis(200);
/// The time limit for the runtime to start the session: a loaded machine is slow, and the table does not wait for it.
const START: Duration = Duration::from_secs(120);
/// The time limit for the runtime to end the session. The connection is closed then, which ends it as well.
const END: Duration = Duration::from_secs(10);

/// The counters.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Rates {
    /// Bytes.
    pub(super) allocated: Counter,
    pub(super) exceptions: Counter,
    /// Of generation 0, 1 and 2. A collection of a generation counts for the lower ones as well.
    pub(super) collections: [Counter; 3],
    /// The part of the time that collections take, in per cent, as the runtime computes it.
    pub(super) gc_percent: Option<f64>,
    /// The size of the heap, in MB.
    pub(super) heap_mb: Option<f64>,
}

/// A counter of something.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counter {
    /// Since the start.
    pub(super) sum: f64,
    /// The time that was counted.
    pub(super) seconds: f64,
    /// In the last interval, per second.
    pub(super) rate: f64,
}

impl Counter {
    fn add(&mut self, count: f64, seconds: f64) {
        self.sum += count;
        self.seconds += seconds;
        self.rate = per_second(count, seconds);
    }

    /// The average since the start, per second.
    pub(super) fn mean(&self) -> f64 {
        per_second(self.sum, self.seconds)
    }
}

fn per_second(count: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { count / seconds } else { 0.0 }
}

impl Rates {
    fn add(&mut self, name: &str, value: f64, seconds: f64) {
        let [first, second, third] = &mut self.collections;
        match name {
            "alloc-rate" => self.allocated.add(value, seconds),
            "exception-count" => self.exceptions.add(value, seconds),
            "gen-0-gc-count" => first.add(value, seconds),
            "gen-1-gc-count" => second.add(value, seconds),
            "gen-2-gc-count" => third.add(value, seconds),
            "time-in-gc" => self.gc_percent = Some(value),
            "gc-heap-size" => self.heap_mb = Some(value),
            _ => {}
        }
    }
}

/// Name, value and seconds of the counter of an event, if it has one.
fn counter(event: &Event<'_>) -> Option<(String, f64, f64)> {
    let fields = event.fields().find_map(|(_, value)| named(value.as_record()?, 3))?;
    let number = |name: &str| fields.field(name).and_then(|value| value.as_f64());
    let name = fields.field("Name")?.as_text()?.to_string();
    let value = number("Increment").or_else(|| number("Mean"))?;
    Some((name, value, number("IntervalSec").unwrap_or(1.0)))
}

/// The first record with a name: the runtime packs the fields of a counter into records of one field.
fn named(record: Record<'_>, depth: u8) -> Option<Record<'_>> {
    if record.field("Name").is_some() {
        return Some(record);
    }
    let depth = depth.checked_sub(1)?;
    record.fields().find_map(|(_, value)| named(value.as_record()?, depth))
}

/// What the session has delivered so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivered {
    /// None before the first event.
    pub(super) rates: Option<Rates>,
    /// Why there are no more.
    pub(super) problem: Option<String>,
}

/// A session of counters, read by a thread.
#[derive(Debug)]
pub(super) struct Session {
    delivered: Arc<Mutex<Delivered>>,
    is_over: Arc<AtomicBool>,
    /// Disconnected at the end of the thread.
    ends: Receiver<()>,
}

impl Session {
    /// Starts a session. An error of the session does not end the command: [`Delivered::problem`] has it.
    pub(super) fn start(client: Client) -> Self {
        let delivered = Arc::new(Mutex::new(Delivered::default()));
        let is_over = Arc::new(AtomicBool::new(false));
        let to_deliver = Arc::clone(&delivered);
        let is_over_there = Arc::clone(&is_over);
        let (end, ends) = channel();
        thread::spawn(move || {
            let _end: Sender<()> = end;
            if let Err(error) = read(&client, &to_deliver, &is_over_there) {
                lock(&to_deliver).problem = Some(format!("{error:#}"));
            }
        });
        Self { delivered, is_over, ends }
    }

    /// What it has delivered.
    pub(super) fn delivered(&self) -> Delivered {
        lock(&self.delivered).clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread may still wait for the start. The end of this command then closes the connection.
        let _ = self.ends.recv_timeout(END);
    }
}

fn lock(delivered: &Mutex<Delivered>) -> MutexGuard<'_, Delivered> {
    delivered.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the session until the process ends or the command does.
fn read(client: &Client, delivered: &Mutex<Delivered>, is_over: &AtomicBool) -> anyhow::Result<()> {
    let provider =
        Provider::new("System.Runtime", u64::MAX, Level::Informational).with_arguments("EventCounterIntervalSec=1");
    let mut session =
        client.clone().with_timeout(START).start_session(&SessionConfig::new([provider]).with_buffer_mb(4))?;
    session.set_read_timeout(Some(POLL));
    let mut reader = Reader::new(session);
    let mut asked: Option<Instant> = None;
    loop {
        match reader.next_event() {
            Ok(None) => return Ok(()),
            Ok(Some(event)) => {
                if let Some((name, value, seconds)) = counter(&event.decoded()) {
                    lock(delivered).rates.get_or_insert_default().add(&name, value, seconds);
                }
            }
            Err(error) if error.is_timeout() => {}
            // The process has ended, which the command sees by itself.
            Err(corprof_nettrace::Error::Format(error)) if error.kind == FormatErrorKind::Truncated => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        match asked {
            None if is_over.load(Ordering::Relaxed) => {
                reader.get_mut().stop()?;
                asked = Some(Instant::now());
            }
            // The connection is closed now, which ends the session as well.
            Some(since) if since.elapsed() > END => return Ok(()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_up_and_the_last_rate_is_known() {
        let mut rates = Rates::default();
        for (name, value, seconds) in [
            ("alloc-rate", 1000.0, 1.0),
            ("alloc-rate", 9000.0, 3.0),
            ("gen-2-gc-count", 2.0, 0.5),
            ("exception-count", 0.0, 0.0),
            ("gc-heap-size", 12.5, 1.0),
            ("cpu-usage", 7.0, 1.0),
        ] {
            rates.add(name, value, seconds);
        }
        let Counter { sum, seconds, rate } = rates.allocated;
        assert_eq!((sum, seconds, rate, rates.allocated.mean()), (10000.0, 4.0, 3000.0, 2500.0));
        assert_eq!(rates.collections[2].rate, 4.0);
        assert_eq!(rates.exceptions.mean(), 0.0);
        assert_eq!((rates.heap_mb, rates.gc_percent), (Some(12.5), None));
    }
}
