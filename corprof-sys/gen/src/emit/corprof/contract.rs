//! `contract.rs`: the rules of each Info method, as text for its documentation.
//!
//! `#[doc = contract!(GetFunctionInfo2)]` below a method's own words adds them, so no word of them is written by hand.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use crate::contracts::{Contracts, Entry, InfoRow, InfoVersion};

pub(super) fn emit(contracts: &Contracts) -> TokenStream {
    let arms = contracts.info.iter().map(|row| {
        let name = format_ident!("{}", row.method);
        let text = text(row);
        quote!((#name) => { #text };)
    });
    quote! {
        /// The contract of an Info method, as documentation.
        macro_rules! contract {
            #(#arms)*
        }

        pub(crate) use contract;
    }
}

fn text(row: &InfoRow) -> String {
    let mut class = match row.entry {
        Entry::Async => "Call class: **async**".to_owned(),
        Entry::Sync => "Call class: **sync**".to_owned(),
        Entry::InitOnly => "Call class: **init-only**".to_owned(),
        Entry::None => "Call class: the runtime makes no check".to_owned(),
    };
    class.push_str(if row.attach_effective { ", allowed after attach" } else { ", not allowed after attach" });
    class.push_str(match (row.triggers, row.lets_gc_in) {
        (true, _) => ", may start a GC.",
        (false, Some(true)) => ", starts no GC, but lets one in that waits for this thread.",
        (false, _) => ", never starts a GC.",
    });
    let mut lines = vec![class];
    lines.extend(row.versions.iter().map(version));
    lines.extend(row.since.as_ref().map(|since| format!("Needs `{}` (.NET {since}).", row.interface)));
    if row.requires.is_some() {
        lines.push("Only where a collection runs, or on a managed thread in cooperative mode.".to_owned());
    }
    if row.main_profiler_only {
        lines.push("Not for a notification-only profiler.".to_owned());
    }
    if row.blocks_detach {
        lines.push("A profiler that has called it cannot be detached any more.".to_owned());
    }
    if !row.platform.is_empty() {
        lines.push(format!("Only on: {}.", row.platform));
    }
    lines.extend(row.note.as_ref().map(|note| format!("Note: {note}.")));
    lines.push("\n# Errors".to_owned());
    lines.push(errors(row));
    // A leading line break keeps the text apart from the words above it.
    format!("\n{}", lines.join("\n"))
}

fn version(version: &InfoVersion) -> String {
    let entry = version.entry.map(|entry| match entry {
        Entry::Async => "async",
        Entry::Sync => "sync",
        Entry::InitOnly => "init-only",
        Entry::None => "unchecked",
    });
    let triggers = version.triggers.map(|triggers| if triggers { "may start a GC" } else { "never starts a GC" });
    let what: Vec<&str> = entry.into_iter().chain(triggers).collect();
    if what.is_empty() { String::new() } else { format!("Up to .NET {}: {}.", version.max, what.join(", ")) }
}

fn errors(row: &InfoRow) -> String {
    let mut codes: Vec<String> = row.errors.iter().chain(&row.macro_errors).map(|code| format!("`{code}`")).collect();
    codes.sort_unstable();
    codes.dedup();
    match codes.as_slice() {
        [] => "None are known.".to_owned(),
        codes => format!("{}.", codes.join(", ")),
    }
}
