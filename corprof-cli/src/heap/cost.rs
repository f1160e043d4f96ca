//! The cost of a snapshot for the application, in one line.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// The cost of a snapshot for the application.
#[derive(Debug, Default)]
pub(crate) struct Cost {
    pub(crate) objects: usize,
    /// The bytes that the process has sent or written.
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    /// The durations of the suspensions.
    pub(crate) pauses: Vec<Duration>,
    /// Forced collections of the whole heap.
    pub(crate) collections: usize,
    /// Whether one more collection follows that no event reports: on .NET 8, not on 10.
    pub(crate) collects_at_end: bool,
    /// Dumps before this one that were cut, and thrown away: the application stood still for them as well.
    pub(crate) repeated: u64,
    /// Whether the process has written the snapshot itself.
    pub(crate) is_inside: bool,
}

impl Display for Cost {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { objects, bytes, took, pauses, collections, collects_at_end, repeated, is_inside } = self;
        let megabytes = *bytes as f64 / 1e6;
        let seconds = took.as_secs_f64();
        let done = if *is_inside { "written" } else { "sent" };
        write!(f, "{objects} objects, {megabytes:.1} MB {done} in {seconds:.1} s; ")?;
        let plural = if *collections == 1 { "collection was" } else { "collections were" };
        write!(f, "{collections} {plural} forced; the application stood still for")?;
        if pauses.is_empty() {
            return f.write_str(" an unknown time");
        }
        for (index, pause) in pauses.iter().enumerate() {
            write!(f, "{} {:.0} ms", if index > 0 { " and" } else { "" }, pause.as_secs_f64() * 1e3)?;
        }
        if *repeated > 0 {
            write!(f, "; {repeated} before it were cut, and taken again")?;
        }
        if *collects_at_end { f.write_str("; the runtime collects once more as the session ends") } else { Ok(()) }
    }
}
