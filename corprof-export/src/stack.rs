//! Handles of stacks.

/// A stack of one [`Profile`](crate::Profile): a frame and the stack that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub(crate) u32);

impl StackId {
    /// The stack without frames.
    pub const EMPTY: Self = Self(u32::MAX);
}
