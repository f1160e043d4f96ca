//! The header of a trace.

use std::time::Duration;

use crate::bytes::{Cursor, Malformed};

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

impl Trace {
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
        let process_id = number("ProcessId");
        let processors = number("HardwareThreadCount");
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
