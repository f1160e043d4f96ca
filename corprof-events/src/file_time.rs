//! Times as EventPipe has them: units of 100 ns since the year 1601, in UTC.

use std::time::{Duration, SystemTime};

const NANOS_PER_TICK: u64 = 100;
const TICKS_PER_SECOND: u64 = 10_000_000;
/// From 1601 to 1970, where `SystemTime` has its origin.
const BEFORE_1970: Duration = Duration::from_secs(11_644_473_600);
/// The beginning of the year 10000: `DateTime` ends before it, and .NET refuses to decode what is later.
const END: u64 = 2_650_467_744_000_000_000;

/// None if it is before 1601 or after 9999.
pub(crate) fn from_system_time(time: SystemTime) -> Option<u64> {
    let since_1601 = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => BEFORE_1970.checked_add(after)?,
        Err(before) => BEFORE_1970.checked_sub(before.duration())?,
    };
    let ticks = u64::try_from(since_1601.as_nanos() / u128::from(NANOS_PER_TICK)).ok()?;
    (ticks < END).then_some(ticks)
}

/// None if `SystemTime` has no room for it.
pub(crate) fn to_system_time(ticks: u64) -> Option<SystemTime> {
    let seconds = Duration::from_secs(ticks / TICKS_PER_SECOND);
    let nanos = Duration::from_nanos(ticks % TICKS_PER_SECOND * NANOS_PER_TICK);
    let since_1601 = seconds + nanos;
    match since_1601.checked_sub(BEFORE_1970) {
        Some(after) => SystemTime::UNIX_EPOCH.checked_add(after),
        None => SystemTime::UNIX_EPOCH.checked_sub(BEFORE_1970 - since_1601),
    }
}
