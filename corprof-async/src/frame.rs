//! Frames of async call stacks.

use std::sync::Arc;

use crate::bytes::Cursor;
use crate::error::Problem;

/// How an async method was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Runtime async: the runtime suspends the method itself (.NET 11 and later).
    Runtime,
    /// The compiler's state machine, whose method is `MoveNext`.
    StateMachine,
}

/// A method that waits, or runs after a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame {
    /// An address in the method: [`Runtime`](Kind::Runtime): where it continues; [`StateMachine`](Kind::StateMachine):
    /// the beginning of `MoveNext` in one of its bodies. 0 stands for a continuation of the runtime without a method,
    /// which takes up a place.
    pub address: u64,
    /// The number of the await, of a [`StateMachine`](Kind::StateMachine): -2 if it has ended. 0 for
    /// [`Runtime`](Kind::Runtime).
    pub state: i32,
}

/// The methods of an operation, the innermost first. Equal ones share their memory.
pub type Chain = Arc<[Frame]>;

/// The frames of a callstack, the innermost first: encoded, or of a slice.
#[derive(Debug, Clone)]
pub struct Frames<'a>(Repr<'a>);

#[derive(Debug, Clone)]
enum Repr<'a> {
    Encoded { cursor: Cursor<'a>, kind: Kind, left: u8, previous: Option<u64> },
    Slice(std::slice::Iter<'a, Frame>),
}

impl<'a> Frames<'a> {
    /// Reads all frames, so that they are known to be well-formed.
    pub(crate) fn read(cursor: &mut Cursor<'a>, kind: Kind, count: u8) -> Result<Self, Problem> {
        let start = *cursor;
        let mut previous = None;
        for _ in 0..count {
            let frame = read_frame(cursor, kind, previous)?;
            previous = Some(frame.address);
        }
        Ok(Self(Repr::Encoded { cursor: start, kind, left: count, previous: None }))
    }
}

impl<'a> From<&'a [Frame]> for Frames<'a> {
    fn from(frames: &'a [Frame]) -> Self {
        Self(Repr::Slice(frames.iter()))
    }
}

impl Iterator for Frames<'_> {
    type Item = Frame;

    fn next(&mut self) -> Option<Frame> {
        match &mut self.0 {
            Repr::Encoded { cursor, kind, left, previous } => {
                *left = left.checked_sub(1)?;
                let frame = read_frame(cursor, *kind, *previous).ok()?;
                *previous = Some(frame.address);
                Some(frame)
            }
            Repr::Slice(frames) => frames.next().copied(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = match &self.0 {
            Repr::Encoded { left, .. } => usize::from(*left),
            Repr::Slice(frames) => frames.len(),
        };
        (left, Some(left))
    }
}

impl ExactSizeIterator for Frames<'_> {}

/// The first address is whole, the others are differences from the one before.
fn read_frame(cursor: &mut Cursor<'_>, kind: Kind, previous: Option<u64>) -> Result<Frame, Problem> {
    let address = match previous {
        None => cursor.varuint()?,
        Some(previous) => previous.wrapping_add_signed(cursor.varint()?),
    };
    let state = match kind {
        Kind::Runtime => 0,
        Kind::StateMachine => i32::try_from(cursor.varint()?).map_err(|_| Problem::Number)?,
    };
    Ok(Frame { address, state })
}
