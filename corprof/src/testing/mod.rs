//! A fake runtime, to test profilers with: in this process, without .NET.
//!
//! [`FakeClr::load`] loads a profiler as a runtime does. From then on the test plays the program: it loads classes,
//! compiles functions, throws exceptions, collects garbage. The profiler receives the callbacks of its event mask, in a
//! runtime's order (a live test of corprof compares the two), and its calls return results:
//!
//! ```
//! use corprof::{prelude::*, testing::{ClassSpec, FakeClr}};
//! use std::sync::Mutex;
//!
//! #[derive(Default, Profiler)]
//! #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C03", no_export)]
//! struct Loads(Mutex<Vec<Name>>);
//!
//! #[callbacks]
//! impl Callbacks for Loads {
//!     fn class_load_finished(&self, cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
//!         self.0.lock().unwrap().push(cx.names().class(class));
//!     }
//! }
//!
//! let mut clr = FakeClr::load::<Loads>()?;
//! let app = clr.load_assembly("App");
//! let int32 = clr.core_class("System.Int32");
//! clr.load_class(app, ClassSpec::new("App.Shelf`1").args([int32]));
//!
//! let names = clr.profiler::<Loads>().map(|loads| loads.0.lock().unwrap().clone());
//! assert_eq!(names.unwrap(), ["System.Int32", "App.Shelf<int32>"]);
//! clr.shutdown();
//! assert!(!clr.has_panicked());
//! # Ok::<(), corprof::Error>(())
//! ```
//!
//! The fake refuses the calls that a runtime refuses, by the same table that the contexts are made from: calls from the
//! wrong place, immutable flags after `initialize`, all calls while the profiler detaches. [`Builder`] selects the
//! version of the runtime, including the gaps of older ones. Any call can be made to fail with any code
//! ([`FakeClr::fail_next`]), to test how the profiler handles that.
//!
//! # What it cannot do
//!
//! Objects have addresses, but no memory; functions have code addresses, but no code. So fields cannot be read, stacks
//! are those that the test sets ([`FakeClr::set_stack`]), without registers, and enter/leave hooks are not called. A
//! suspension stops no thread of the test. Calls that the fake does not implement are refused like any other, and
//! otherwise return `E_NOTIMPL`. [`FakeClr::raise`] makes the callbacks that no other method makes.

mod answers;
mod builder;
mod clr;
mod code;
pub(crate) mod com;
pub(crate) mod contract;
mod enumerator;
mod exceptions;
mod heap;
mod here;
mod import;
mod loads;
mod lookups;
mod metadata;
mod out;
mod runtime;
mod spec;
mod stacks;
pub mod suspension;
mod threads;
mod world;

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use crate::walk::recorded::{CallerPosition, SignalStack, SignalStep};
pub use builder::Builder;
pub use clr::FakeClr;
pub use spec::{ClassSpec, FakeObject, Frame, FunctionSpec, Param};
