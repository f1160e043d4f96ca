//! What the runtime's calls take and answer besides plain values: buffers, enumerators, visitors.

pub(crate) mod buffer;
pub(crate) mod enumerate;
pub(crate) mod visitor;
