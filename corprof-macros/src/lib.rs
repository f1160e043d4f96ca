//! The macros of `corprof`; use them through that crate, which re-exports both.
//!
//! Here are the entry points and what a user needs to know about them. The work is done by `profiler.rs` (the derive, with
//! `clsid.rs`) and `callbacks.rs` (the attribute, with the table in `generated.rs`), on `proc_macro2` types so that it can
//! be tested without a compiler around it. What the expansions refer to lives in `corprof`.

mod callbacks;
mod clsid;
#[rustfmt::skip]
mod generated;
mod profiler;
#[cfg(test)]
mod testing;

use proc_macro::TokenStream;

/// Makes a struct a profiler that the CLR can load by its CLSID.
///
/// ```no_run
/// use corprof::prelude::*;
///
/// #[derive(Profiler)]
/// #[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
/// struct Beeper;
///
/// #[callbacks]
/// impl Callbacks for Beeper {
///     fn class_load_finished(&self, _cx: &mut InTriggers<'_>, _class: ClassId, _status: Result<()>) {
///         eprint!("\x07");
///     }
/// }
/// # fn main() {}
/// ```
///
/// The crate is to be a `cdylib`. The runtime finds the class in it by the CLSID, the same that goes into
/// `CORECLR_PROFILER`; make a new one for each profiler with `uuidgen` (in PowerShell: `New-Guid`).
///
/// # Keys of `#[profiler(…)]`
///
/// | key | | meaning |
/// |---|---|---|
/// | `clsid = "…"` | needed | the class's identity, in braces or not, in either case |
/// | `min_info = N` | 5 to 15 | the oldest `ICorProfilerInfoN` the profiler can do with; on an older runtime it is not loaded |
/// | `no_export` | | exports nothing: `corprof::export!` does it, below |
///
/// # How the struct is made
///
/// When the runtime asks for it: a struct without fields just so, any other by its [`Default`].
///
/// It has to be `Send + Sync`, as callbacks come from many threads at once, and it cannot be generic, as one CLSID means
/// one class. State that changes goes into atomics or behind a mutex.
///
/// # What it expands to
///
/// - `impl corprof::Profiler`: the CLSID, the name, and how the struct is made;
/// - an exported byte string `CORPROF_PROFILER_<Name>`, by which tools read CLSID and name from the built library;
/// - unless `no_export` is there, `corprof::export!`, which defines `DllGetClassObject` and `DllCanUnloadNow`;
/// - an error under `panic = "abort"`: a profiler must not take the application down, and corprof does its part by catching
///   panics.
///
/// # Several profilers in one library
///
/// Those two functions exist once in a library, so with several profilers say `no_export` on each and export them together:
///
/// ```no_run
/// use corprof::prelude::*;
///
/// #[derive(Profiler)]
/// #[profiler(clsid = "5C7CFB0E-4E4E-4D5B-9C43-3A3C7F7E2D51", no_export)]
/// struct Compiled;
///
/// #[callbacks]
/// impl Callbacks for Compiled {}
///
/// #[derive(Profiler, Default)]
/// #[profiler(clsid = "0E0C0F49-8E1D-4C0B-8F3E-6C1B6F2C8A77", no_export)]
/// struct Thrown {
///     exceptions: std::sync::atomic::AtomicU64,
/// }
///
/// #[callbacks]
/// impl Callbacks for Thrown {}
///
/// corprof::export!(Compiled, Thrown);
/// # fn main() {}
/// ```
///
/// # Mistakes are compile errors
///
/// ```compile_fail
/// use corprof::prelude::*;
///
/// #[derive(Profiler)]
/// #[profiler(clsid = "BDD57A0C")] // it needs 5 groups of digits and has 1
/// struct Beeper;
///
/// #[callbacks]
/// impl Callbacks for Beeper {}
/// # fn main() {}
/// ```
#[proc_macro_derive(Profiler, attributes(profiler))]
pub fn derive_profiler(input: TokenStream) -> TokenStream {
    profiler::expand(input.into()).into()
}

/// Asks the runtime for exactly the callbacks that an `impl Callbacks` block has.
///
/// The runtime calls back only for what its event mask names. `#[callbacks]` looks at which methods are there and writes
/// the constant `Subscriber::EVENTS`, from which `corprof` sets the mask; a method left out costs nothing.
///
/// ```no_run
/// use corprof::prelude::*;
///
/// #[derive(Profiler)]
/// #[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
/// struct Loads;
///
/// #[callbacks]
/// impl Callbacks for Loads {
///     fn class_load_finished(&self, _cx: &mut InTriggers<'_>, class: ClassId, _status: Result<()>) {
///         self.report(class);
///     }
///
///     #[cfg(debug_assertions)] // asked for in debug builds only
///     fn thread_created(&self, _cx: &mut InTriggers<'_>, _thread: ThreadId) {}
/// }
///
/// impl Loads {
///     fn report(&self, _class: ClassId) {} // helpers have a block of their own
/// }
/// # fn main() {}
/// ```
///
/// A method that is no callback is an error here, with the name it was probably meant to have, for the runtime would never
/// call it:
///
/// ```compile_fail
/// use corprof::prelude::*;
///
/// struct Loads;
///
/// #[callbacks]
/// impl Callbacks for Loads {
///     // did you mean `class_load_finished`?
///     fn class_loaded_finished(&self, _cx: &mut InTriggers<'_>, _class: ClassId, _status: Result<()>) {}
/// }
/// # fn main() {}
/// ```
///
/// So is one with a receiver or a number of parameters that the callback does not have. Attributes and doc comments
/// stay, and a `#[cfg]` counts for the mask too.
#[proc_macro_attribute]
pub fn callbacks(arguments: TokenStream, item: TokenStream) -> TokenStream {
    callbacks::expand(arguments.into(), item.into()).into()
}
