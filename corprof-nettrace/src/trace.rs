//! The header of a trace.

use std::time::{Duration, SystemTime};

use crate::bytes::{Cursor, Malformed};
use crate::encode;
use crate::error::WriteError;

/// The header of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Trace {
    /// The version of the format: 4, 5 or 6.
    pub version: u32,
    /// When the trace began, by the clock on the wall.
    pub started_utc: UtcTime,
    /// When the trace began, in the ticks of its events.
    pub started_ticks: u64,
    /// Ticks a second. Never 0.
    pub ticks_per_second: u64,
    /// How many bytes a pointer has in the process that was traced: 4 or 8. Never anything else.
    pub pointer_size: u32,
    /// The id of the traced process, in its own view. Version 6 may lack it, or trace several
    /// ([`Thread::process_id`](crate::Thread)).
    pub process_id: Option<u64>,
    /// How many processors there were.
    pub processors: Option<u64>,
    /// Further entries of version 6, in the order of the file.
    pub properties: Vec<(String, String)>,
}

/// A moment, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime {
    /// The year.
    pub year: u16,
    /// From 1 to 12, if the writer was right: this and the others are as the file has them.
    pub month: u16,
    /// From 1.
    pub day: u16,
    /// From 0 to 23.
    pub hour: u16,
    /// From 0 to 59.
    pub minute: u16,
    /// From 0 to 59.
    pub second: u16,
    /// From 0 to 999.
    pub millisecond: u16,
}

impl UtcTime {
    /// A time of the system's clock. `None` before 1970 and after 9999.
    #[must_use]
    pub fn from_system_time(time: SystemTime) -> Option<Self> {
        let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let seconds = since_1970.as_secs();
        let mut days = seconds / 86_400;
        let mut year = 1970;
        while days >= days_of_year(year) {
            days -= days_of_year(year);
            year += 1;
            if year > LAST_YEAR {
                return None;
            }
        }
        let mut month = 1;
        while days >= days_of_month(year, month) {
            days -= days_of_month(year, month);
            month += 1;
        }
        let part = |value: u64| u16::try_from(value).ok();
        Some(Self {
            year,
            month,
            day: part(days + 1)?,
            hour: part(seconds / 3600 % 24)?,
            minute: part(seconds / 60 % 60)?,
            second: part(seconds % 60)?,
            millisecond: part(since_1970.subsec_millis().into())?,
        })
    }

    /// The time of the system's clock. `None` before 1970, and if there is no such moment.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use corprof_nettrace::UtcTime;
    ///
    /// let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_709_210_096_789);
    /// assert_eq!(UtcTime::from_system_time(time).and_then(|utc| utc.to_system_time()), Some(time));
    /// ```
    #[must_use]
    pub fn to_system_time(&self) -> Option<SystemTime> {
        if !self.is_real() || self.year < 1970 {
            return None;
        }
        let years: u64 = (1970..self.year).map(days_of_year).sum();
        let months: u64 = (1..self.month).map(|month| days_of_month(self.year, month)).sum();
        let days = years + months + u64::from(self.day) - 1;
        let hours = days * 24 + u64::from(self.hour);
        let seconds = (hours * 60 + u64::from(self.minute)) * 60 + u64::from(self.second);
        let since_1970 = Duration::from_secs(seconds) + Duration::from_millis(self.millisecond.into());
        SystemTime::UNIX_EPOCH.checked_add(since_1970)
    }

    /// Whether there is such a moment.
    fn is_real(&self) -> bool {
        matches!((self.year, self.month), (1..=LAST_YEAR, 1..=12))
            && (1..=days_of_month(self.year, self.month)).contains(&self.day.into())
            && self.hour < 24
            && self.minute < 60
            && self.second < 60
            && self.millisecond < 1000
    }

    /// From 0 (Sunday).
    fn day_of_week(&self) -> u16 {
        // The days of the year before each month, from March on, where leap days do not matter, by their rest of 7.
        const BEFORE: [u16; 13] = [0, 0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4];
        let year = if self.month < 3 { self.year.saturating_sub(1) } else { self.year };
        let before = BEFORE.get(usize::from(self.month)).copied().unwrap_or_default();
        (year + year / 4 - year / 100 + year / 400 + before + self.day) % 7
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Self { year, month, day, hour, minute, second, millisecond } = *self;
        let parts = [year, month, self.day_of_week(), day, hour, minute, second, millisecond];
        out.extend(parts.into_iter().flat_map(u16::to_le_bytes));
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Malformed> {
        let [year, month, _day_of_week, day, hour, minute, second, millisecond] = {
            let mut parts = [0; 8];
            for part in &mut parts {
                *part = cursor.u16()?;
            }
            parts
        };
        Ok(Self { year, month, day, hour, minute, second, millisecond })
    }
}

/// The last year of .NET's `DateTime`.
const LAST_YEAR: u16 = 9999;

fn days_of_year(year: u16) -> u64 {
    if days_of_month(year, 2) == 29 { 366 } else { 365 }
}

fn days_of_month(year: u16, month: u16) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The newest version of the layout that begins with version 6.
pub(crate) const NEWEST: u32 = 6;

const PROCESS_ID: &str = "ProcessId";
const PROCESSORS: &str = "HardwareThreadCount";

impl Trace {
    /// The header of a trace to be written, of a machine with pointers of eight bytes. It began at `started_utc`, which
    /// was `started_ticks` of a clock with `ticks_per_second`.
    #[must_use]
    pub fn new(started_utc: UtcTime, started_ticks: u64, ticks_per_second: u64) -> Self {
        Self {
            version: NEWEST,
            started_utc,
            started_ticks,
            ticks_per_second,
            pointer_size: 8,
            process_id: None,
            processors: None,
            properties: Vec::new(),
        }
    }

    /// The contents of the block `Trace` of version 6.
    pub(crate) fn write_block(&self) -> Result<Vec<u8>, WriteError> {
        const LONGEST: u64 = i64::MAX.cast_unsigned();
        if !self.started_utc.is_real() {
            return Err(WriteError::Impossible("the trace began at a time that no clock shows"));
        }
        if self.started_ticks > LONGEST || !matches!(self.ticks_per_second, 1..=LONGEST) {
            return Err(WriteError::Impossible("the clock of the trace has no ticks, or more than fit into 63 bits"));
        }
        if !matches!(self.pointer_size, 4 | 8) {
            return Err(WriteError::Impossible("a pointer has 4 or 8 bytes"));
        }
        let mut out = Vec::new();
        self.started_utc.write(&mut out);
        out.extend(self.started_ticks.to_le_bytes());
        out.extend(self.ticks_per_second.to_le_bytes());
        out.extend(self.pointer_size.to_le_bytes());
        let has = |name: &str| self.properties.iter().any(|(key, _)| key == name);
        let known = [(PROCESS_ID, self.process_id), (PROCESSORS, self.processors)];
        let known = known.into_iter().filter(|(name, _)| !has(name));
        let known = known.filter_map(|(name, number)| Some((name.to_owned(), number?.to_string())));
        let properties: Vec<_> = known.chain(self.properties.iter().cloned()).collect();
        let too_long = |size| WriteError::TooLong { what: "the header of a trace", size, limit: encode::LARGEST_BLOCK };
        let count = u32::try_from(properties.len()).map_err(|_| too_long(properties.len()))?;
        out.extend(count.to_le_bytes());
        properties.iter().for_each(|property| encode::property(&mut out, property));
        if out.len() > encode::LARGEST_BLOCK { Err(too_long(out.len())) } else { Ok(out) }
    }

    /// The size of the fields of versions 4 and 5.
    pub(crate) const SIZE: usize = 48;

    /// The fields of the object `Trace` of versions 4 and 5.
    pub(crate) fn read(bytes: &[u8], version: u32) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let started_utc = UtcTime::read(&mut cursor)?;
        let started_ticks = cursor.u64()?;
        let ticks_per_second = cursor.u64()?;
        let pointer_size = cursor.u32()?;
        let process_id = Some(cursor.u32()?.into());
        let processors = Some(cursor.u32()?.into());
        let _sampling_rate = cursor.u32()?;
        let properties = Vec::new();
        Self { version, started_utc, started_ticks, ticks_per_second, pointer_size, process_id, processors, properties }
            .checked()
    }

    /// The block `Trace` of version 6.
    pub(crate) fn read_block(bytes: &[u8], version: u32) -> Result<Self, Malformed> {
        let mut cursor = Cursor::new(bytes);
        let started_utc = UtcTime::read(&mut cursor)?;
        let started_ticks = cursor.u64()?;
        let ticks_per_second = cursor.u64()?;
        let pointer_size = cursor.u32()?;
        let mut properties = Vec::new();
        for _ in 0..cursor.u32()? {
            properties.push((cursor.utf8()?, cursor.utf8()?));
        }
        let number = |name| properties.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.parse().ok());
        let process_id = number(PROCESS_ID);
        let processors = number(PROCESSORS);
        Self { version, started_utc, started_ticks, ticks_per_second, pointer_size, process_id, processors, properties }
            .checked()
    }

    fn checked(self) -> Result<Self, Malformed> {
        let is_good = matches!(self.pointer_size, 4 | 8) && self.ticks_per_second > 0;
        if is_good { Ok(self) } else { Err(Malformed) }
    }

    /// How long after the beginning of the trace `ticks` was; zero if it was before.
    #[must_use]
    pub fn since_start(&self, ticks: u64) -> Duration {
        let ticks = ticks.saturating_sub(self.started_ticks);
        let seconds = ticks / self.ticks_per_second;
        let rest = u128::from(ticks % self.ticks_per_second) * 1_000_000_000 / u128::from(self.ticks_per_second);
        Duration::new(seconds, u32::try_from(rest).unwrap_or(999_999_999))
    }
}
