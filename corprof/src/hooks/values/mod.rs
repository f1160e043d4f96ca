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

bitflags::bitflags! {
    /// What hooks are told of a call beside its function. Any of it makes the runtime take its slow path for all hooks.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct HookValues: u8 {
        /// [`ValueHooks::enter_with_args`](super::ValueHooks::enter_with_args) gets the arguments.
        const ARGUMENTS = 1;
        /// [`ValueHooks::leave_with_value`](super::ValueHooks::leave_with_value) gets what is returned.
        const RESULT = 2;
        /// [`InSlowHook::frame_info`](super::InSlowHook::frame_info) has what tells the type arguments of shared code.
        const FRAME = 4;
    }
}
