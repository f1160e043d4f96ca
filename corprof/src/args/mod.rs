//! Arguments of callbacks that are not identifiers: reasons, and the arrays of the collection callbacks.

mod arrays;
mod assembly_references;
mod event_pipe;
mod function_control;
mod reasons;

use std::marker::PhantomData;

use corprof_sys as sys;
use windows_core::Ref;

pub use arrays::{
    ClassCounts, MovedRange, MovedRanges, Root, Roots, SurvivingRange, SurvivingRanges, WeakTableElement,
    WeakTableElements,
};
pub use assembly_references::AssemblyReference;
pub use event_pipe::EventPipeEvent;
pub use function_control::FunctionControl;
pub use reasons::{GcReason, Generation, Generations, JitCache, RootKind, SuspendReason, TransitionReason};

macro_rules! borrowed_interfaces {
    ($($(#[$meta:meta])* $name:ident: $interface:ident;)*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        pub struct $name<'cb> {
            raw: &'cb sys::$interface,
            _not_send: PhantomData<*mut ()>,
        }

        impl<'cb> $name<'cb> {
            pub(crate) fn new(raw: &'cb Ref<'_, sys::$interface>) -> Option<Self> {
                raw.as_ref().map(|raw| Self { raw, _not_send: PhantomData })
            }

            /// The interface itself, for calls that have no safe form yet.
            ///
            /// # Safety
            /// Do not keep a copy: it ends with the callback.
            pub unsafe fn as_raw(self) -> &'cb sys::$interface {
                self.raw
            }
        }

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    )* };
}

borrowed_interfaces! {
    /// Takes the result of [`get_assembly_references`](crate::Callbacks::get_assembly_references); valid until the
    /// callback returns.
    AssemblyReferenceProvider: ICorProfilerAssemblyReferenceProvider;
}
