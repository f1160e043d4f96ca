//! Arguments and results of functions, read by their signatures: for [hooks](crate::hooks::FunctionHooks::VALUES)
//! and [`Probe`](crate::edit::Probe)s; and [`ObjectValue`]s, read by their classes. Hooks follow chains of objects by
//! [`Links`].
//!
//! A hook or probe receives [`Arguments`] or a [`ReturnValue`]; each has [`Value`]s, which are read in place, without
//! an allocation. A value that cannot be read is [`Unreadable`], with the reason.

// `planner` turns a signature into a `plan` when the function is compiled: the kinds of its values, with the layouts of
// structs. It may allocate and call the runtime (`live`). In the hook, `value` reads at the addresses that the runtime
// gives.
mod arguments;
mod display;
mod links;
mod live;
mod object;
mod plan;
mod planner;
#[cfg(test)]
mod tests;
mod unreadable;
mod value;

pub use arguments::{Arguments, ReturnValue};
pub(crate) use arguments::{MOST_RANGES, Ranges};
pub(crate) use links::reference_offset;
pub use links::{ChainEnd, LinkCache, Links};
pub(crate) use live::{Lookup, Types};
pub use object::ObjectValue;
pub(crate) use plan::Plan;
pub use unreadable::Unreadable;
pub use value::{ByRef, EnumValue, Field, StringRef, StructValue, Value};
