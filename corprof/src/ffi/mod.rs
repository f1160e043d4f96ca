//! Arguments and results of the runtime's calls that are not plain values: buffers, enumerators, visitors.

pub(crate) mod buffer;
pub(crate) mod enumerate;
pub(crate) mod visitor;
