//! Arguments and results of the functions that have hooks: what the runtime shows of them, read by their signatures.
//!
//! When a function is compiled, `planner` turns its signature into a [`plan`]: what kind of value is where, with the layouts
//! of structs. That may take its time, allocate and ask the runtime (`live`). In the hook the runtime tells the addresses
//! (`arguments`), and `value` reads there what the plan says, without an allocation. What the plan or the runtime leaves
//! open is [`Unreadable`], with its reason.

mod arguments;
mod display;
mod live;
mod plan;
mod planner;
#[cfg(test)]
mod tests;
mod unreadable;
mod value;

pub use arguments::{Arguments, ReturnValue};
pub(super) use arguments::{MOST_RANGES, Ranges};
pub(super) use live::{Assemblies, Lookup};
pub(super) use plan::Plan;
pub use unreadable::Unreadable;
pub use value::{ByRef, EnumValue, Field, StringRef, StructValue, Value};
