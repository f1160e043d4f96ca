//! Decodes the runtime's buffers.

use std::time::Duration;

use crate::bytes::Cursor;
use crate::error::{DecodeError, Problem};
use crate::sub_event::{Action, Metadata, SubEvent, id};

/// The name of the provider of .NET 11 whose events hold the buffers.
pub const PROVIDER: &str = "System.Runtime.CompilerServices.AsyncProfilerEventSource";

/// The keywords that tell what [`LogicalStacks`](crate::LogicalStacks) need, with creators: resumptions with their
/// chains, suspensions, ends, creations, and the ends of methods. Without these, the creators of an operation would
/// begin with methods that had returned before.
pub const STACK_KEYWORDS: u64 = 0x2F65D;

/// The number of its only event, `AsyncEvents`.
pub const ASYNC_EVENTS: u32 = 1;

/// How often all threads may be asked to write their buffers, by the start or the end of a second session of the
/// provider. Each question begins the second anew after which the runtime writes those of idle threads: asked more
/// often, these do not answer.
pub const QUESTION_INTERVAL: Duration = Duration::from_millis(1500);

/// How long the answers to a question take on a machine that is not busy: busy threads write at their next async
/// operation, and for those that were idle for 250 ms the runtime does it a second later, on the thread pool.
pub const ANSWER_TIME: Duration = Duration::from_millis(1800);

/// How long something takes, such as the [`ANSWER_TIME`], whose threads may each be late: the runtime's timer, and then
/// the thread of the pool that it wakes.
///
/// ```
/// # use std::time::Duration;
/// let late = Duration::from_millis(500);
/// assert_eq!(corprof_async::time_when_late(corprof_async::ANSWER_TIME, late), Duration::from_millis(2800));
/// ```
#[must_use]
pub const fn time_when_late(time: Duration, late: Duration) -> Duration {
    time.saturating_add(late.saturating_mul(2))
}

/// Decodes the buffers of a trace or a session.
///
/// ```
/// use corprof_async::Decoder;
///
/// # fn example(payload: &[u8]) -> Result<(), corprof_async::DecodeError> {
/// let mut decoder = Decoder::new();
/// let buffer = decoder.decode(payload)?;
/// for sub_event in buffer.sub_events() {
///     println!("thread {} at {}: {:?}", buffer.stream().thread, sub_event.ticks, sub_event.action);
/// }
/// # Ok(())
/// # }
/// # assert!(example(&[1, 2, 3]).is_err());
/// ```
#[derive(Debug, Clone)]
pub struct Decoder {
    widths: Widths,
}

/// In how many bytes the length of each sub-event's payload is written.
#[derive(Debug, Clone, Copy)]
struct Widths([Option<u8>; 256]);

/// The source of a sequence of sub-events in order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// The number that the source gave the sequence. The system may give the number of a thread that has ended to
    /// another thread, which has a context of its own.
    pub context: u32,
    /// The system's number of the thread.
    pub thread: u64,
}

/// A buffer of a thread, which has been checked as a whole.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    stream: StreamId,
    start: u64,
    end: u64,
    count: u32,
    bytes: &'a [u8],
    widths: Widths,
}

/// The sub-events of a [`Buffer`].
#[derive(Debug, Clone)]
pub struct SubEvents<'a> {
    cursor: Cursor<'a>,
    ticks: u64,
    widths: Widths,
}

const VERSION: u8 = 1;

impl Widths {
    /// Those of the runtime that this decoder was written for.
    fn known() -> Self {
        let mut widths = [None; 256];
        for (number, width) in widths.iter_mut().enumerate().take(usize::from(id::LARGEST) + 1).skip(1) {
            *width = match number {
                3 | 4 | 9 | 10 | 13 | 14 | 17 | 18 | 20 | 21 => Some(0),
                6 | 7 | 8 | 16 | 19 | 22 => Some(2),
                _ => Some(1),
            };
        }
        Self(widths)
    }

    /// Those of the trace. Sub-events that its manifest lacks stay as they are.
    fn update(&mut self, metadata: &Metadata<'_>) {
        for (id, _version, width) in metadata.sub_events() {
            self.0[usize::from(id)] = Some(width);
        }
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Knows the sub-events of .NET 11.0.
    #[must_use]
    pub fn new() -> Self {
        Self { widths: Widths::known() }
    }

    /// Decodes the payload of one event. A buffer with the trace's metadata tells this decoder the sub-events of the
    /// buffers that follow.
    ///
    /// # Errors
    /// If any byte of the payload is not as the format has it. Then the thread of the buffer is unknown, and the state
    /// of each thread may be wrong until its next [`Reset`](Action::Reset): see
    /// [`LogicalStacks::forget`](crate::LogicalStacks::forget).
    pub fn decode<'a>(&mut self, payload: &'a [u8]) -> Result<Buffer<'a>, DecodeError> {
        let mut cursor = Cursor::new(payload);
        let header = Buffer::read(&mut cursor, self.widths);
        let buffer = header.map_err(|problem| error(payload, cursor.rest(), problem))?;
        let mut widths = self.widths;
        let mut sub_events = buffer.sub_events();
        let mut count = 0_u32;
        while !sub_events.cursor.is_empty() {
            let rest = sub_events.cursor.rest();
            let sub_event = sub_events.read().map_err(|problem| error(payload, rest, problem))?;
            if let Action::Metadata(metadata) = &sub_event.action {
                let strange = metadata.sub_events().find(|(_, _, width)| *width > 2);
                if let Some((_, _, width)) = strange {
                    return Err(error(payload, rest, Problem::LengthWidth(width)));
                }
                widths.update(metadata);
            }
            count = count.saturating_add(1);
        }
        if count != buffer.count {
            return Err(error(payload, buffer.bytes, Problem::Count));
        }
        if count > 0 && sub_events.ticks != buffer.end {
            return Err(error(payload, buffer.bytes, Problem::Time));
        }
        self.widths = widths;
        Ok(buffer)
    }
}

fn error(payload: &[u8], rest: &[u8], problem: Problem) -> DecodeError {
    DecodeError { problem, offset: payload.len().saturating_sub(rest.len()) }
}

impl<'a> Buffer<'a> {
    fn read(cursor: &mut Cursor<'a>, widths: Widths) -> Result<Self, Problem> {
        let length = usize::try_from(cursor.u32()?).map_err(|_| Problem::Size)?;
        if length != cursor.rest().len() {
            return Err(Problem::Size);
        }
        let version = cursor.u8()?;
        if version != VERSION {
            return Err(Problem::Version(version));
        }
        let size = usize::try_from(cursor.u32()?).map_err(|_| Problem::Size)?;
        if size != length {
            return Err(Problem::Size);
        }
        let context = cursor.u32()?;
        let thread = cursor.u64()?;
        let count = cursor.u32()?;
        let start = cursor.u64()?;
        let end = cursor.u64()?;
        Ok(Self { stream: StreamId { context, thread }, start, end, count, bytes: cursor.rest(), widths })
    }

    /// Whose sub-events these are.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        self.stream
    }

    /// When the buffer was begun, in ticks of the trace.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The time of the last sub-event, in ticks of the trace.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Its sub-events, the oldest first.
    #[must_use]
    pub fn sub_events(&self) -> SubEvents<'a> {
        SubEvents { cursor: Cursor::new(self.bytes), ticks: self.start, widths: self.widths }
    }
}

impl<'a> SubEvents<'a> {
    fn read(&mut self) -> Result<SubEvent<'a>, Problem> {
        self.read_numbered().map(|(_, sub_event)| sub_event)
    }

    fn read_numbered(&mut self) -> Result<(u8, SubEvent<'a>), Problem> {
        let id = self.cursor.u8()?;
        let passed = self.cursor.varuint()?;
        self.ticks = self.ticks.checked_add(passed).ok_or(Problem::Time)?;
        let width = self.widths.0[usize::from(id)].ok_or(Problem::UnknownSubEvent(id))?;
        let length = match width {
            0 => 0,
            1 => usize::from(self.cursor.u8()?),
            2 => usize::from(self.cursor.u16()?),
            _ => return Err(Problem::LengthWidth(width)),
        };
        let action = Action::read(id, self.cursor.bytes(length)?)?;
        Ok((id, SubEvent { ticks: self.ticks, action }))
    }

    /// With the number of each sub-event in the format.
    pub fn numbered(mut self) -> impl Iterator<Item = (u8, SubEvent<'a>)> {
        std::iter::from_fn(move || self.read_numbered().ok())
    }
}

impl<'a> Iterator for SubEvents<'a> {
    type Item = SubEvent<'a>;

    fn next(&mut self) -> Option<SubEvent<'a>> {
        self.read().ok()
    }
}
