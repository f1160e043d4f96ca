//! Edits method bodies: in terms of instructions and labels, with the tokens of their module, and verified.
//!
//! [`InCallback::edit_method`] gives a closure the body that a method was loaded with, as a [`MethodEdit`]. The closure
//! adds locals, strings and references, and changes instructions. The result is verified; a body that breaks a rule is
//! an error with all findings ([`EditError::Rejected`]), and never reaches the runtime. What passes is a
//! [`CheckedBody`]:
//!
//! - [`InCallback::set_checked_body`] replaces the method's body, in `module_load_finished` or
//!   `jit_compilation_started`; [`InCallback::edit_once`] edits and replaces it in one step, the first time only.
//! - [`FunctionControl::set_checked_body`](crate::args::FunctionControl::set_checked_body) is the answer to a ReJIT
//!   request.
//!
//! ```
//! use corprof::edit::CallCounter;
//! use corprof::prelude::*;
//!
//! static CALLS: CallCounter = CallCounter::new();
//!
//! #[derive(Profiler)]
//! #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C77")]
//! struct Counts;
//!
//! #[callbacks]
//! impl Callbacks for Counts {
//!     fn jit_compilation_started(&self, cx: &mut InCallback<'_>, function: FunctionId, _is_safe_to_block: bool) {
//!         if cx.names().function(function).as_str().starts_with("Shop.Cart.Add(") {
//!             // It comes again for each tier: the body is edited once.
//!             if let Err(error) = cx.edit_once(function, |edit| edit.count_calls(&CALLS)) {
//!                 eprintln!("not counted: {error}");
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! [`InCallback::edit_method`]: crate::InCallback::edit_method
//! [`InCallback::set_checked_body`]: crate::InCallback::set_checked_body
//! [`InCallback::edit_once`]: crate::InCallback::edit_once
//!
//! # What is safe
//!
//! Edits whose types are known by construction are safe: [replacing a string](MethodEdit::replace_string), [counting
//! calls](MethodEdit::count_calls), [probes](MethodEdit::probe), which can also wrap the whole body, and [calls of
//! methods](MethodEdit::call_before) that are proven to be harmless. What another method does with arguments that were
//! meant for the first is unknown, so [redirecting calls](MethodEdit::redirect) is `unsafe`. The verifier proves how
//! many values of which kinds are on the stack, but not that an object is of the class that an instruction expects, as
//! it knows no class hierarchy. That remains the responsibility of who writes instructions, so [`MethodEdit::body_mut`]
//! is `unsafe`.
//!
//! # The body that is edited
//!
//! It is always the body that the method was loaded with, so an edit never sees its own result. A later body replaces
//! an earlier one: to combine two edits, make both in one closure. All instantiations of a generic method have one
//! body.
//!
//! Refused by name ([`EditError::Refused`]): methods of dynamic modules and dynamic methods, whose bodies the
//! application makes at run time; methods whose own body breaks a rule ([`EditError::Original`]), because nothing could
//! be said of an edited one.

mod apply;
mod calls;
mod counter;
mod error;
mod foreign;
mod foreign_types;
mod live;
mod method;
mod probe;
mod redirect;
mod rows;
mod strings;

pub use apply::CheckedBody;
pub(crate) use apply::{EditLookups, PreparedEdit};
pub use calls::{CallArgument, CallProblem};
pub use counter::CallCounter;
pub use error::{EditError, Refusal};
pub use method::{Local, MethodEdit};
pub(crate) use probe::{Entered, HookCalls, address_of_entry, range};
pub use probe::{InProbe, Probe, ProbeKinds};
