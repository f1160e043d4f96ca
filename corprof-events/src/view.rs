//! The common trait of typed views.

use std::fmt::{self, Debug, Display, Formatter};
use std::marker::PhantomData;

use crate::cursor::{Cursor, Truncated};
use crate::provider::Manifest;

/// Why an event could not be decoded as a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is another event.
    OtherEvent {
        /// The event that was expected.
        expected: &'static str,
        /// The number of the one that there is.
        id: u32,
    },
    /// It is of a version that the view does not read: the fields were others.
    TooOld {
        /// The event.
        event: &'static str,
        /// Its version.
        version: u32,
        /// The oldest that the view reads.
        oldest: u32,
    },
    /// The payload ends before the fields do.
    TooShort {
        /// The event.
        event: &'static str,
    },
}

impl Display for DecodeError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherEvent { expected, id } => write!(f, "event {id} is no {expected}: ask for its own type"),
            Self::TooOld { event, version, oldest } => {
                write!(f, "{event} has version {version}, and its view reads {oldest} and later: ask for single fields")
            }
            Self::TooShort { event } => write!(f, "the payload of {event} ends before its fields do"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// A type of [`views`](crate::views), which [`Event::decode`](crate::Event::decode) returns. The trait is sealed.
pub trait View<'a>: Sized {
    #[doc(hidden)]
    const EVENT: (Manifest, u32, u32);
    #[doc(hidden)]
    const NAME: &'static str;
    #[doc(hidden)]
    fn read(cursor: &mut Cursor<'a>, version: u32) -> Result<Self, Truncated>;
}

/// Something that an event has several of.
pub trait Item<'a>: Sized {
    #[doc(hidden)]
    fn read(cursor: &mut Cursor<'a>) -> Result<Self, Truncated>;
}

impl Item<'_> for u64 {
    fn read(cursor: &mut Cursor<'_>) -> Result<Self, Truncated> {
        cursor.u64()
    }
}

/// The entries of an event. It is an iterator that can be copied.
pub struct Items<'a, T> {
    cursor: Cursor<'a>,
    left: u32,
    item: PhantomData<fn() -> T>,
}

impl<'a, T> Items<'a, T> {
    /// So many, up to the end of the payload at most.
    pub(crate) fn rest(cursor: &mut Cursor<'a>, count: u32) -> Self {
        Self { cursor: *cursor, left: count, item: PhantomData }
    }

    /// So many of `size` bytes, which are passed over.
    pub(crate) fn of_size(cursor: &mut Cursor<'a>, count: u32, size: usize) -> Result<Self, Truncated> {
        let items = Self::rest(cursor, count);
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(size)).ok_or(Truncated)?;
        cursor.bytes(bytes)?;
        Ok(items)
    }
}

impl<'a, T: Item<'a>> Iterator for Items<'a, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let item = T::read(&mut self.cursor).ok();
        if item.is_none() {
            self.left = 0;
        }
        item
    }
}

impl<T> Clone for Items<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Items<'_, T> {}

impl<'a, T: Item<'a> + Debug> Debug for Items<'a, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}
