//! The common trait of typed views.

use std::fmt::{self, Debug, Display, Formatter};
use std::marker::PhantomData;

use crate::cursor::{Cursor, Truncated};
use crate::event::Event;
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
    /// It has no such field; or the payload, which ends too early or is not as described, does not have it for certain.
    NoField {
        /// The event.
        event: &'static str,
        /// The field.
        field: &'static str,
    },
    /// The field has a type that is not a type of the struct's field, or a number without room there.
    OtherType {
        /// The event.
        event: &'static str,
        /// The field.
        field: &'static str,
    },
    /// Its fields are unknown: it came without a description.
    Undescribed {
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
            Self::NoField { event, field } => write!(f, "{event} has no field {field}: name one of its own"),
            Self::OtherType { event, field } => {
                write!(f, "the field {field} of {event} has another type or a larger number")
            }
            Self::Undescribed { event } => write!(f, "{event} came without a description of its fields"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl<'a> Event<'a> {
    /// The event as `V`: a type of [`views`](crate::views), or a struct with `#[derive(ProviderEvent)]`.
    ///
    /// # Errors
    /// If it is another event, of an older version than the view reads, or its payload is too short; for a
    /// `ProviderEvent`, if it lacks a field, or one is of another type.
    #[inline]
    pub fn decode<V: View<'a>>(&self) -> Result<V, DecodeError> {
        V::decode(self)
    }
}

/// What [`Event::decode`](crate::Event::decode) returns: a type of [`views`](crate::views), or a
/// [`ProviderEvent`](trait@crate::ProviderEvent). Only the derive of the latter implements it for other types.
pub trait View<'a>: Sized {
    #[doc(hidden)]
    fn decode(event: &Event<'a>) -> Result<Self, DecodeError>;
}

/// A type of [`views`](crate::views).
pub trait RuntimeView<'a>: Sized {
    #[doc(hidden)]
    const EVENT: (Manifest, u32, u32);
    #[doc(hidden)]
    const NAME: &'static str;
    #[doc(hidden)]
    fn read(cursor: &mut Cursor<'a>, version: u32) -> Result<Self, Truncated>;
}

impl<'a, V: RuntimeView<'a>> View<'a> for V {
    #[inline]
    fn decode(event: &Event<'a>) -> Result<Self, DecodeError> {
        let (manifest, id, oldest) = V::EVENT;
        if event.id() != id || event.provider().manifest() != manifest {
            return Err(DecodeError::OtherEvent { expected: V::NAME, id: event.id() });
        }
        if event.version() < oldest {
            return Err(DecodeError::TooOld { event: V::NAME, version: event.version(), oldest });
        }
        let mut cursor = event.cursor();
        V::read(&mut cursor, event.version()).map_err(|_| DecodeError::TooShort { event: V::NAME })
    }
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
