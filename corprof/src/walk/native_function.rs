//! A native function in memory, as walks find it.

use std::ops::Range;

/// A native function in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NativeFunction {
    /// Its name, as [`Round::native_name`](crate::sampler::Round::native_name) gives it.
    pub name: String,
    /// Its code. If the library has no name for it, the code around the address that has no name.
    pub code: Range<usize>,
}
