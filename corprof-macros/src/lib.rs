//! The macros of `corprof`; use them through that crate, which re-exports them.
//!
//! This file has the entry points with their documentation for users. The work is done by `profiler.rs` (the derive,
//! with `clsid.rs`), `callbacks.rs` (the attribute, with the table in `generated.rs`) and `provider_event.rs`, on
//! `proc_macro2` types so that it can be tested outside the compiler. The items that the expansions refer to are in
//! `corprof` and `corprof-events`.

mod callbacks;
mod clsid;
#[rustfmt::skip]
mod generated;
mod profiler;
mod provider_event;
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
///     fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
///         eprint!("\x07");
///     }
/// }
/// # fn main() {}
/// ```
///
/// The crate must be a `cdylib`. The runtime finds the class in it by the CLSID in `CORECLR_PROFILER`; make a new CLSID
/// for each profiler with `uuidgen` (in PowerShell: `New-Guid`).
///
/// # Keys of `#[profiler(…)]`
///
/// | key | | meaning |
/// |---|---|---|
/// | `clsid = "…"` | needed | the class's identity, in braces or not, in either case |
/// | `min_info = N` | 14 (.NET 8) or 15 (.NET 9) | the oldest `ICorProfilerInfoN` that the profiler accepts; on an older runtime it is not loaded |
/// | `notification_only` | | one of several profilers that only observe, beside a main one: [`NOTIFICATION_ONLY`](trait.Profiler.html#associatedconstant.NOTIFICATION_ONLY) |
/// | `no_export` | | exports nothing: `corprof::export!` does it, below |
///
/// # How the struct is made
///
/// By [`initialize`](trait.Callbacks.html#method.initialize), or after an attach by
/// [`initialize_for_attach`](trait.Callbacks.html#method.initialize_for_attach): they return it. Without `initialize`,
/// a struct without fields is made directly, any other by its [`Default`].
///
/// It must be `Send + Sync`, because callbacks come on many threads at once, and it cannot be generic, because one
/// CLSID means one class. Keep mutable state in atomics or behind a mutex.
///
/// # The expansion
///
/// - `impl corprof::Profiler`: the CLSID and the name;
/// - an exported byte string `CORPROF_PROFILER_<Name>`, from which tools read CLSID and name in the built library;
/// - without `no_export`, `corprof::export!`, which defines `DllGetClassObject` and `DllCanUnloadNow`;
/// - an error under `panic = "abort"`: a profiler must not take the application down, and for that corprof must catch
///   panics.
///
/// # Several profilers in one library
///
/// Those two functions exist once in a library, so with several profilers write `no_export` on each and export them
/// together:
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

/// Turns on exactly the events of the callbacks in an `impl Callbacks` block.
///
/// The runtime makes only the callbacks of its event mask. `#[callbacks]` looks at the methods in the block and writes
/// the constant `Subscriber::EVENTS`, from which `corprof` sets the mask; a method that is left out costs nothing.
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
///     fn class_load_finished(&self, _cx: &mut InCallback<'_>, class: ClassId, _status: Result<()>) {
///         self.report(class);
///     }
///
///     #[cfg(debug_assertions)] // asked for in debug builds only
///     fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
/// }
///
/// impl Loads {
///     fn report(&self, _class: ClassId) {} // helpers have a block of their own
/// }
/// # fn main() {}
/// ```
///
/// A method that is not a callback is an error with the most similar name, because the runtime would never call it:
///
/// ```compile_fail
/// use corprof::prelude::*;
///
/// struct Loads;
///
/// #[callbacks]
/// impl Callbacks for Loads {
///     // did you mean `class_load_finished`?
///     fn class_loaded_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {}
/// }
/// # fn main() {}
/// ```
///
/// A wrong receiver or number of parameters is an error, too. Attributes and doc comments are kept, and a `#[cfg]`
/// applies to the mask as well.
#[proc_macro_attribute]
pub fn callbacks(arguments: TokenStream, item: TokenStream) -> TokenStream {
    callbacks::expand(arguments.into(), item.into()).into()
}

/// Makes a struct an event of a provider: of the profiler's own, to write it, or of an EventSource, to read it.
///
/// ```
/// use corprof::events::{Event, ProviderEvent, Text};
///
/// /// An order of the shop.
/// #[derive(ProviderEvent, Debug, PartialEq)]
/// #[event(provider = "Shop-Orders", id = 7, keywords = 0x1)]
/// struct OrderPlaced<'a> {
///     number: u32,
///     customer_name: Text<'a>, // "customerName" in the event
///     #[event(name = "VIP")]
///     is_important: bool,
/// }
///
/// fn on_event(event: &Event<'_>) {
///     if let Ok(order) = event.decode::<OrderPlaced>() {
///         println!("{} by {}", order.number, order.customer_name);
///     }
/// }
/// ```
///
/// In a profiler, `event_pipe_define` and `event_pipe_write` of corprof write the struct.
///
/// # Fields
///
/// The types that EventPipe knows: `EventField` of corprof-events lists them. A field has its own name in camelCase, as
/// the parameters of an EventSource's methods; `#[event(name = "…")]` gives another one. An event is read by the names
/// of its fields: it may have more of them, in any order. Integers may have another size in the event, if the values
/// have room.
///
/// # Keys of `#[event(…)]`
///
/// | key | | meaning |
/// |---|---|---|
/// | `provider = "…"` | needed | the name of the provider |
/// | `id = N` | needed | the number of the event among those of its provider |
/// | `name = "…"` | | the event's name; without it, that of the struct |
/// | `version = N` | | 0 without it; increase it when you add fields |
/// | `level = …` | | `LogAlways`, `Critical`, `Error`, `Warning`, `Informational` (without the key), or `Verbose` |
/// | `keywords = N` | | the groups that it belongs to, as bits. Without it, all sessions of the provider get the event |
/// | `opcode = N` | | 1 for the start of an activity, 2 for its stop |
/// | `needs_stack` | | the runtime records the stack with each event |
/// | `crate = …` | | the path of corprof-events, without corprof: `corprof_nettrace::events` |
///
/// Reading looks at provider, id and fields only.
///
/// # Mistakes are compile errors
///
/// ```compile_fail
/// use corprof::events::ProviderEvent;
///
/// #[derive(ProviderEvent)]
/// #[event(provider = "Shop-Orders", id = 7)]
/// struct OrderPlaced {
///     number: usize, // an event has no fields of type `usize`
/// }
/// ```
#[proc_macro_derive(ProviderEvent, attributes(event))]
pub fn derive_provider_event(input: TokenStream) -> TokenStream {
    provider_event::expand(input.into()).into()
}
