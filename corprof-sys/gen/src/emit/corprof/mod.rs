//! The callbacks and flags to files of `corprof` and `corprof-macros`.
//!
//! `callbacks.rs` is the trait that users implement, `events.rs` the events and the flags that turn them on,
//! `thunks.rs` the vtable, `contract.rs` documentation of the Info methods, `absent.rs` the compiler's messages for
//! those that a context lacks, and the macros get a table of names; `contract_table.rs` and the `fake_*.rs` are for the
//! fake CLR of `corprof::testing`. Their meaning comes from `callbacks.toml`, their rules from `contracts.toml`.

mod absent;
mod callback_event;
mod contract;
mod contract_table;
mod events;
mod fakes;
mod thunks;

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{doc, output};
use crate::callbacks::{Callback, Callbacks};
use crate::emitter::{Context, Output};
use crate::error::Error;
use crate::sources::Input;

const INPUT: &[Input] = &[Input::Corprof];

/// The files of `corprof` and `corprof-macros`.
pub fn outputs(context: &Context) -> Result<Vec<Output>, Error> {
    let table = Callbacks::read(&context.directory.join("callbacks.toml"))?;
    let callbacks = table.join(&context.model, &context.contracts)?;
    let file = |path: &str, about: &str, body: TokenStream| output(&context.model, path, about, INPUT, body);
    Ok(vec![
        file(
            "corprof/src/generated/callbacks.rs",
            "The trait that a profiler implements: all callbacks of `ICorProfilerCallback` to `ICorProfilerCallback11`.",
            callbacks_trait(&callbacks)?,
        )?,
        file(
            "corprof/src/generated/callback_event.rs",
            "The argument of `every`: a callback with its arguments.",
            callback_event::emit(&callbacks)?,
        )?,
        file(
            "corprof/src/generated/events.rs",
            "The events, and the flags of the event mask that turn them on.",
            events::emit(&callbacks, &context.contracts),
        )?,
        file(
            "corprof/src/generated/thunks.rs",
            "The vtable of `ICorProfilerCallback11`: from the runtime's arguments to the user's.",
            thunks::emit(&context.model, &callbacks)?,
        )?,
        file(
            "corprof/src/generated/contract.rs",
            "The rules of each Info method, for its documentation.",
            contract::emit(&context.contracts),
        )?,
        file(
            "corprof/src/generated/absent.rs",
            "The calls that `Info` lacks, for the compiler's messages.",
            absent::emit(&context.contracts)?,
        )?,
        file(
            "corprof/src/generated/contract_table.rs",
            "The rules of contracts.toml, for the fake CLR.",
            contract_table::emit(&callbacks, &context.contracts)?,
        )?,
        file(
            "corprof/src/generated/fake_info.rs",
            "`ICorProfilerInfo` to `ICorProfilerInfo15`, as the fake CLR has them: the vtable, and a method for each slot.",
            fakes::emit(&context.model, &fakes::INFO)?,
        )?,
        output(
            &context.model,
            "corprof/src/generated/fake_metadata.rs",
            "`IMetaDataImport2`, as the fake CLR has it: the vtable, and a method for each slot.",
            &[Input::Metadata],
            fakes::emit(&context.model, &fakes::METADATA)?,
        )?,
        file("corprof-macros/src/generated.rs", "The names and signatures of the callbacks.", macro_table(&callbacks))?,
    ])
}

/// Text of the table as Rust.
fn parse(callback: &Callback<'_>, text: &str) -> Result<TokenStream, Error> {
    text.parse().map_err(|error| Error::Facts {
        file: "callbacks.toml",
        problems: vec![format!("[{}]: `{text}`: {error}", callback.method.name)],
    })
}

fn callbacks_trait(callbacks: &[Callback<'_>]) -> Result<TokenStream, Error> {
    let mut methods = TokenStream::new();
    for callback in callbacks.iter().filter(|callback| !callback.facts.key) {
        let lines = documentation(callback).into_iter().map(doc_line);
        let signature = parse(callback, &callback.signature())?;
        let answer = parse(callback, callback.default_answer())?;
        let alias = &callback.method.name;
        let hidden = hidden(callback);
        methods.extend(quote! {
            #(#lines)*
            #[doc(alias = #alias)]
            #hidden
            #signature { #answer }
        });
    }
    Ok(quote! {
        use crate::args::*;
        use crate::callback_event::CallbackEvent;
        use crate::context::{InAttach, InCallback, InInitialize, InNoGc};
        use crate::error::Result;
        use crate::id::*;
        use crate::info::Info;
        use crate::metadata::MethodDef;
        use crate::profiler::{BoxError, NotImplemented, Subscriber};
        use windows_core::GUID as Guid;

        /// The runtime's callbacks to a profiler: implement those that you need, under `#[callbacks]`, which turns
        /// their events on.
        ///
        /// [`initialize`](Self::initialize) makes the profiler, and no callback reaches it before. Without that method
        /// it is made by its [`Default`]; a struct without fields needs none.
        ///
        /// A callback comes on the thread of its event, and many come at a time: hence `&self`, `Send` and `Sync`. The
        /// type of its context says which calls a callback may make ([`context`](crate::context)). A panic in one is
        /// reported and disables the profiler; the application goes on.
        ///
        /// A callback that answers nothing may be written with the result `Result<()>`, or `Result<(), E>` with
        /// another error that can be displayed: corprof reports the first error of each.
        ///
        /// Not shown here are the callbacks that CoreCLR never makes, such as those of remoting.
        #[allow(unused_variables, reason = "the default bodies ignore what they are given")]
        #[diagnostic::on_unimplemented(
            message = "`{Self}` has no callbacks",
            note = "write them, or at least an empty block: `#[callbacks] impl Callbacks for {Self} {{}}`"
        )]
        pub trait Callbacks: Subscriber + Send + Sync + 'static {
            /// Any of the events that `#[events(…)]` above the method names, with its arguments; before the event's own
            /// method, if the profiler has that as well.
            ///
            /// The attribute takes flags of the [event mask](crate::EventMask), each for all events that it turns on,
            /// and names of single events:
            ///
            /// ```
            /// # use corprof::prelude::*;
            /// # #[derive(Profiler)]
            /// # #[profiler(clsid = "5F0D6D0E-4C4B-4E0C-9B53-6C2B6E6D1C01")]
            /// # struct Log;
            /// #[callbacks]
            /// impl Callbacks for Log {
            ///     #[events(MONITOR_EXCEPTIONS, ClassLoadFinished)]
            ///     fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {
            ///         eprintln!("{}", event.named(cx)); // ExceptionThrown(thrown: System.FormatException)
            ///     }
            /// }
            /// ```
            ///
            /// Events that corprof makes up after an attach ([`catch_up`](crate::InAttach::catch_up)) come here, too.
            /// The context is the cautious one, because among the events are some inside of collections.
            /// `runtime_thread_suspended`, where next to nothing is allowed, and the questions `get_rejit_parameters`
            /// and `get_assembly_references` have their own methods only.
            fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {}
            #methods
        }
    })
}

fn doc_line(text: String) -> TokenStream {
    if text.is_empty() { quote!(#[doc = ""]) } else { doc(text) }
}

/// Keeps a callback that CoreCLR never makes out of the documentation, where nobody needs it.
fn hidden(callback: &Callback<'_>) -> Option<TokenStream> {
    (!callback.is_made()).then(|| quote!(#[doc(hidden)]))
}

fn documentation(callback: &Callback<'_>) -> Vec<String> {
    let row = callback.row;
    let facts = callback.facts;
    let mut lines = vec![facts.doc.clone(), String::new()];
    if !callback.is_made() {
        lines.extend(["**CoreCLR never makes this callback.**".to_owned(), String::new()]);
    }
    let flags: Vec<String> = row
        .enabled_by
        .iter()
        .map(|flags| flags.split('+').map(|flag| format!("`{flag}`")).collect::<Vec<_>>().join(" with "))
        .collect();
    lines.push(match row.enabled_by.first().map(String::as_str) {
        Some("always") | None => "Enabled by: nothing, it is always made.".to_owned(),
        Some(_) => format!("Enabled by: {}.", flags.join(", or ")),
    });
    lines.push(String::new());
    if let Some(why) = &facts.why {
        lines.extend([format!("Little may be asked here: {why}."), String::new()]);
    }
    let mut more: Vec<String> = Vec::new();
    more.extend(row.blocking.as_ref().map(|blocking| format!("Blocking: {blocking}.")));
    more.extend(row.platform.as_ref().filter(|platform| !platform.is_empty()).map(|name| format!("Only on: {name}.")));
    if !row.allowed_for_attach {
        more.push("Not made to a profiler that attached.".to_owned());
    }
    if row.main_profiler_only {
        more.push("Not made to a notification-only profiler.".to_owned());
    }
    more.extend(row.note.as_ref().map(|note| format!("Note: {note}.")));
    for line in more {
        lines.extend([line, String::new()]);
    }
    lines.push(format!("In the IDL: `{}::{}`.", row.interface, row.method));
    lines
}

fn macro_table(callbacks: &[Callback<'_>]) -> TokenStream {
    let rows = callbacks.iter().filter(|callback| !callback.facts.key).map(|callback| {
        let name = callback.name();
        let event = callback.event();
        let signature = callback.signature();
        let params = signature.matches(": ").count() + usize::from(signature.contains("&self"));
        let is_in_every = callback.is_in_every();
        quote!(Callback { name: #name, event: #event, signature: #signature, params: #params, is_in_every: #is_in_every })
    });
    quote! {
        /// A callback as a user writes it.
        pub(crate) struct Callback {
            /// The method's name.
            pub(crate) name: &'static str,
            /// The name of its event.
            pub(crate) event: &'static str,
            /// The method, without a body.
            pub(crate) signature: &'static str,
            /// How many parameters it has, `self` among them.
            pub(crate) params: usize,
            /// Whether `every` hears of it.
            pub(crate) is_in_every: bool,
        }

        /// All callbacks.
        pub(crate) const CALLBACKS: &[Callback] = &[#(#rows),*];
    }
}

/// The variant of `Event`.
fn event(callback: &Callback<'_>) -> proc_macro2::Ident {
    format_ident!("{}", callback.event())
}
