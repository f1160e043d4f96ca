//! What threads do with async operations. The decoder makes this of the runtime's buffers; another source can make it
//! itself.

use crate::bytes::Cursor;
use crate::error::Problem;
use crate::frame::{Frames, Kind};

/// The number of a dispatcher: an async operation that waits and is resumed as a whole. It is the `Task.Id`,
/// sign-extended; 0 is none.
pub type DispatcherId = u64;

/// Something that a thread did.
#[derive(Debug, Clone)]
pub struct SubEvent<'a> {
    /// When, in ticks of the trace.
    pub ticks: u64,
    /// What.
    pub action: Action<'a>,
}

/// The kinds of [`SubEvent`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Action<'a> {
    /// The thread made an operation, which waits from then on.
    Create {
        /// How its methods were compiled.
        kind: Kind,
        /// The operation that ran on the thread, or 0.
        parent: DispatcherId,
        /// The new operation.
        dispatcher: DispatcherId,
    },
    /// The thread began to run an operation that has waited.
    Resume {
        /// How its methods were compiled.
        kind: Kind,
        /// The operation.
        dispatcher: DispatcherId,
    },
    /// The operation that the thread ran waits again.
    Suspend {
        /// How its methods were compiled.
        kind: Kind,
    },
    /// The operation that the thread ran has ended.
    Complete {
        /// How its methods were compiled.
        kind: Kind,
    },
    /// An exception left methods of the operation that the thread runs.
    Unwind {
        /// How its methods were compiled.
        kind: Kind,
        /// How many methods.
        frames: u32,
    },
    /// The methods of an operation.
    Stack(Callstack<'a>),
    /// A method of the operation that the thread runs was entered again.
    MethodResume {
        /// How it was compiled.
        kind: Kind,
    },
    /// A method of the operation that the thread runs has returned to the one that awaits it.
    MethodComplete {
        /// How it was compiled.
        kind: Kind,
    },
    /// What was known about the thread is void; what it runs now follows, the outermost first.
    Reset,
    /// The index of the wrapper that the running method was called by has gone through all and begins again.
    WrapperIndex,
    /// The description of the format, once for each change of the sessions.
    Metadata(Metadata<'a>),
    /// The same moment by two clocks, each minute.
    SyncClock {
        /// In ticks of the trace.
        ticks: u64,
        /// In units of 100 ns since the year 1601, UTC.
        utc: u64,
    },
    /// One that this crate does not know.
    Other {
        /// Its number.
        id: u8,
        /// Its contents.
        payload: &'a [u8],
    },
}

/// When a [`Callstack`] was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Moment {
    /// When the operation was made.
    Create {
        /// The operation that ran on the thread, or 0.
        parent: DispatcherId,
    },
    /// When it was resumed.
    Resume,
    /// When it was suspended.
    Suspend,
    /// While it runs: further methods at the outer end of the callstack.
    Append,
}

/// The methods of an operation: the one that runs or waits first, each followed by the one that awaits it.
#[derive(Debug, Clone)]
pub struct Callstack<'a> {
    /// How they were compiled.
    pub kind: Kind,
    /// When it was taken.
    pub moment: Moment,
    /// The number of the wrapper that calls the first method.
    pub wrapper_index: u8,
    /// The operation.
    pub dispatcher: DispatcherId,
    /// The methods. The runtime writes no more than 255, and does not mark that it left some out.
    pub frames: Frames<'a>,
}

/// The description of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata<'a> {
    /// Ticks a second.
    pub frequency: u64,
    /// A moment in ticks of the trace.
    pub ticks: u64,
    /// The same moment in units of 100 ns since the year 1601, UTC.
    pub utc: u64,
    /// The size of a thread's buffer in bytes.
    pub buffer_size: u64,
    /// How many wrappers there are.
    pub wrappers: u8,
    /// Three bytes for each sub-event: number, version, and in how many bytes the length of its payload is written.
    pub(crate) manifest: &'a [u8],
}

/// The numbers of sub-events.
pub(crate) mod id {
    pub(crate) const METADATA: u8 = 22;
    pub(crate) const LARGEST: u8 = 23;
}

impl<'a> Action<'a> {
    /// Reads the payload of the sub-event `id`. Bytes after the known fields are accepted.
    pub(crate) fn read(id: u8, payload: &'a [u8]) -> Result<Self, Problem> {
        let mut cursor = Cursor::new(payload);
        let kind = if id <= 10 { Kind::Runtime } else { Kind::StateMachine };
        let action = match id {
            1 | 11 => Self::Create { kind, parent: cursor.varuint()?, dispatcher: cursor.varuint()? },
            2 | 12 => Self::Resume { kind, dispatcher: cursor.varuint()? },
            3 | 13 => Self::Suspend { kind },
            4 | 14 => Self::Complete { kind },
            5 | 15 => {
                let frames = u32::try_from(cursor.varuint()?).map_err(|_| Problem::Number)?;
                Self::Unwind { kind, frames }
            }
            6 => Self::Stack(Callstack::read(&mut cursor, kind, None)?),
            7 | 16 => Self::Stack(Callstack::read(&mut cursor, kind, Some(Moment::Resume))?),
            8 => Self::Stack(Callstack::read(&mut cursor, kind, Some(Moment::Suspend))?),
            9 | 17 => Self::MethodResume { kind },
            10 | 18 => Self::MethodComplete { kind },
            19 => Self::Stack(Callstack::read(&mut cursor, kind, Some(Moment::Append))?),
            20 => Self::Reset,
            21 => Self::WrapperIndex,
            id::METADATA => Self::Metadata(Metadata::read(&mut cursor)?),
            23 => Self::SyncClock { ticks: cursor.varuint()?, utc: cursor.varuint()? },
            _ => Self::Other { id, payload },
        };
        Ok(action)
    }
}

impl<'a> Callstack<'a> {
    /// Without a moment, it is that of the creation, which the parent is written for.
    fn read(cursor: &mut Cursor<'a>, kind: Kind, moment: Option<Moment>) -> Result<Self, Problem> {
        let _type = cursor.u8()?;
        let wrapper_index = cursor.u8()?;
        let count = cursor.u8()?;
        let moment = match moment {
            Some(moment) => moment,
            None => Moment::Create { parent: cursor.varuint()? },
        };
        let dispatcher = cursor.varuint()?;
        let frames = Frames::read(cursor, kind, count)?;
        Ok(Self { kind, moment, wrapper_index, dispatcher, frames })
    }
}

impl<'a> Metadata<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Problem> {
        let frequency = cursor.varuint()?;
        let ticks = cursor.varuint()?;
        let utc = cursor.varuint()?;
        let buffer_size = cursor.varuint()?;
        let wrappers = cursor.u8()?;
        let count = usize::from(cursor.u8()?);
        let manifest = cursor.bytes(3 * count)?;
        Ok(Self { frequency, ticks, utc, buffer_size, wrappers, manifest })
    }

    /// The sub-events that the runtime may write: number, version, and in how many bytes the length of its payload is
    /// written.
    pub fn sub_events(&self) -> impl ExactSizeIterator<Item = (u8, u8, u8)> + use<'a> {
        self.manifest.chunks_exact(3).map(|entry| match entry {
            [id, version, width] => (*id, *version, *width),
            _ => (0, 0, 0),
        })
    }
}
