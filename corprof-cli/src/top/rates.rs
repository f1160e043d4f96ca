//! Rates of allocations, exceptions and collections: the counters that the runtime's `System.Runtime` provider writes
//! each second.
//!
//! Counters cost the application nothing between these events. An event per allocation or exception would cost each of
//! them.

use std::time::Duration;

use corprof_diagnostics::{Client, Level, Provider, SessionConfig};

use crate::counters::{self, News, Reading, Value};

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
    fn take(&mut self, reading: &Reading) {
        match reading.value {
            Value::Rate { count: Some(count), seconds, .. } => {
                self.add(&reading.series.name, count, seconds.unwrap_or(1.0));
            }
            Value::Gauge(value) => self.add(&reading.series.name, value, 1.0),
            Value::Rate { .. } | Value::Histogram { .. } => {}
        }
    }

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

/// What the session has delivered so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivered {
    /// None before the first event.
    pub(super) rates: Option<Rates>,
    /// Why there are no more.
    pub(super) problem: Option<String>,
}

/// The session of these counters.
#[derive(Debug)]
pub(super) struct Session {
    session: counters::Session,
    delivered: Delivered,
}

impl Session {
    /// Starts a session. An error of the session does not end the command: [`Delivered::problem`] has it.
    pub(super) fn start(client: Client) -> Self {
        let provider =
            Provider::new("System.Runtime", u64::MAX, Level::Informational).with_arguments("EventCounterIntervalSec=1");
        let config = SessionConfig::new([provider]).with_buffer_mb(4);
        Self { session: counters::Session::start(client, config), delivered: Delivered::default() }
    }

    /// What it has delivered until now.
    pub(super) fn delivered(&mut self) -> &Delivered {
        while let Ok(news) = self.session.next(Duration::ZERO) {
            match news {
                Ok(News::Reading(reading)) => self.delivered.rates.get_or_insert_default().take(&reading),
                Ok(_) => {}
                Err(error) => self.delivered.problem = Some(format!("{error:#}")),
            }
        }
        &self.delivered
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
