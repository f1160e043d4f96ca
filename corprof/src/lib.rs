//! Write profilers for .NET in Rust.
//!
//! A profiler is a shared library that the .NET runtime loads into an application and calls: a class loads, a method is
//! compiled, a thread ends, an exception is thrown. With corprof it is a struct, a derive and the callbacks that you
//! need:
//!
//! ```
//! use corprof::prelude::*;
//!
//! #[derive(Profiler)]
//! #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C01")]
//! struct Loads;
//!
//! #[callbacks]
//! impl Callbacks for Loads {
//!     fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, status: Result<()>) {
//!         if status.is_ok() {
//!             eprintln!("loaded {}", cx.names().class(class));
//!         }
//!     }
//! }
//! ```
//!
//! # Where to go on
//!
//! | to | see |
//! |---|---|
//! | know which events there are, and how the profiler is made | [`Callbacks`], [`profiler`] |
//! | read the arguments of a callback | [`args`], [`id`] |
//! | log any event, choose events by flags | [`CallbackEvent`], [`event_mask`] |
//! | know which calls are allowed where, and find a call | [`context`], [`info`] |
//! | name functions, classes, modules | [`names`] |
//! | read objects, arguments and results | [`values`] |
//! | walk the stack of a callback | [`walk`] |
//! | sample the stacks of all threads | [`sampler`] |
//! | know who waits for a lock, who awaits a method | [`lock_waits`], [`object_chains`] |
//! | know which methods have no frame, as they were inlined | [`inlined_frames`] |
//! | see functions begin and end, count and time calls | [`hooks`], [`calls`] |
//! | change the code of methods | [`instrumentation`], [`edit`] |
//! | read and add metadata | [`metadata`] |
//! | take a snapshot of the heap | [`heap_dump`] |
//! | receive the runtime's own events, write events | [`events`], [`info::EventPipeProviderConfig`] |
//! | keep identifiers, share state | [`id`], [`sync`] |
//! | work on a thread of the profiler's | [`profiler_thread`] |
//! | leave the application | [`detach`] |
//! | understand an error | [`error`], [`wrong_context`] |
//! | test a profiler without .NET | `testing`, by the feature of this name |
//!
//! [The book] explains everything in order.
//!
//! Code that breaks a rule of the profiling API does not compile; a failure that only shows at run time is a named
//! [`Error`]; and a panic ends the profiler, not the application. corprof cannot protect the application from a
//! profiler that aborts, overflows its stack or does not return; and [`id`] names the one rule that the types do not
//! prove yet.
//!
//! # Features
//!
//! - `testing`: the fake CLR (`corprof::testing`), which tests a profiler without .NET. It is for `[dev-dependencies]`;
//!   no feature is on by default.
//!
// For rustdoc only: other builds than cargo's need not set the variable.
#![cfg_attr(doc, doc = concat!("[The book]: ", env!("CARGO_PKG_REPOSITORY"), "/blob/main/book/src/introduction.md"))]
#![cfg_attr(docsrs, feature(doc_cfg))]

// The derive refers to this crate by its external name.
#[cfg(test)]
extern crate self as corprof;

mod adapter;
pub mod args;
mod callback_event;
pub mod calls;
pub mod context;
pub mod detach;
pub mod edit;
pub mod error;
pub mod event_mask;
mod ffi;
#[rustfmt::skip]
mod generated;
pub mod heap_dump;
pub mod hooks;
pub mod id;
mod il_body;
pub mod info;
pub mod inlined_frames;
pub mod instrumentation;
mod lock;
pub mod lock_waits;
pub mod metadata;
pub mod names;
pub mod object_chains;
pub mod profiler;
pub mod profiler_thread;
mod report;
mod runtime_layout;
pub mod sampler;
mod session;
mod suspension;
pub mod sync;
mod system;
#[cfg(feature = "testing")]
pub mod testing;
pub mod values;
pub mod walk;
pub mod wrong_context;

// Last, so that compiler messages name types by their own modules.
pub mod prelude;

pub use corprof_events as events;
pub use corprof_macros::{Profiler, callbacks};
pub use corprof_sys as sys;
/// Argument and result types of raw calls: `HRESULT`, `BOOL`, `GUID` and `Interface`, in the version that [`sys`] uses.
pub use windows_core;
pub use windows_core::GUID as Guid;

pub use callback_event::CallbackEvent;
pub use context::{InAttach, InCallback, InInitialize, InNoGc};
pub use error::{Error, Result};
pub use event_mask::EventMask;
pub use hooks::{InHook, InSlowHook};
pub use info::Info;
pub use profiler::{BoxError, Callbacks, Profiler};
pub use profiler_thread::ProfilerThread;

/// For the macros only.
#[doc(hidden)]
pub mod __private {
    pub use crate::adapter::factory::{ClassEntry, assert_distinct, dll_get_class_object};
    pub use crate::report::callback_result;
    pub use windows_core::HRESULT;

    pub const S_FALSE: HRESULT = crate::error::S_FALSE;
}
