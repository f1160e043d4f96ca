//! [`ObjectId`]: the number of an object.

/// An object: its number in a [`HeapGraph`](crate::HeapGraph), in the order of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub(crate) u32);

impl ObjectId {
    /// The number, from 0 on.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
