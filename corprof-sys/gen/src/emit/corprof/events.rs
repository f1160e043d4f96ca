//! `events.rs`: `Event`, `EventMask`, and the contract table's rules for both.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::super::doc;
use super::{event, hidden};
use crate::callbacks::Callback;
use crate::contracts::{Contracts, FlagKind, FlagRow, Mask};

pub(super) fn emit(callbacks: &[Callback<'_>], contracts: &Contracts) -> TokenStream {
    let flags: Vec<&FlagRow> = contracts.flag.iter().filter(|flag| flag.kind == FlagKind::Flag).collect();
    let events = events(callbacks);
    let mask = mask(&flags);
    let rules = rules(&flags);
    let alternatives = callbacks.iter().map(|callback| {
        let masks = alternatives(callback, &flags);
        quote!(&[#(#masks),*])
    });
    let count = callbacks.len();
    let in_every = callbacks.iter().filter(|callback| callback.is_in_every()).map(event);
    let main_only = callbacks.iter().filter(|callback| callback.row.main_profiler_only).map(event);
    quote! {
        use crate::event_mask::{EventSet, Flag};

        #events
        #mask

        /// The masks that turn an event on, by its number; the one to choose if there is a choice comes first.
        pub(crate) const ALTERNATIVES: [&[EventMask]; #count] = [#(#alternatives),*];

        /// The callbacks that a notification-only profiler does not receive.
        pub(crate) const MAIN_PROFILER_ONLY: EventSet = EventSet::EMPTY #(.with(Event::#main_only))*;

        /// The callbacks that `every` hears of.
        pub(crate) const IN_EVERY: EventSet = EventSet::EMPTY #(.with(Event::#in_every))*;

        #rules
    }
}

fn events(callbacks: &[Callback<'_>]) -> TokenStream {
    let variants = callbacks.iter().map(|callback| {
        let doc = doc(format!("`{}`", callback.method.name));
        let name = event(callback);
        let hidden = hidden(callback);
        quote!(#doc #hidden #name)
    });
    let all = callbacks.iter().map(event);
    let names = callbacks.iter().map(|callback| {
        let event = event(callback);
        let name = &callback.method.name;
        quote!(Self::#event => #name)
    });
    let methods = callbacks.iter().map(|callback| {
        let event = event(callback);
        let name = callback.name();
        quote!(Self::#event => #name)
    });
    let count = callbacks.len();
    quote! {
        /// A callback, as an event: an element of an [`EventSet`](crate::event_mask::EventSet).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Event { #(#variants),* }

        impl Event {
            /// All events, in the order of the IDL.
            pub const ALL: [Self; #count] = [#(Self::#all),*];

            /// The callback's name in the IDL.
            pub const fn name(self) -> &'static str {
                match self { #(#names),* }
            }

            /// The name of the method of [`Callbacks`](crate::Callbacks).
            pub const fn method(self) -> &'static str {
                match self { #(#methods),* }
            }
        }
    }
}

fn mask(flags: &[&FlagRow]) -> TokenStream {
    let constants = flags.iter().map(|flag| {
        let name = constant(&flag.name);
        let value = bits(flag);
        let value = proc_macro2::Literal::u64_unsuffixed(value);
        let note = flag.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        let doc = doc(format!("`{}`{note}.", flag.name));
        let since = flag.since.as_ref().map(|since| {
            let text = format!("Since .NET {since}.");
            let line = super::doc(text);
            quote!(#[doc = ""] #line)
        });
        let rules = flag_rules(flag).into_iter().map(super::doc);
        let hidden = is_without_effect(flag).then(|| quote!(#[doc(hidden)]));
        quote!(#hidden #doc #(#[doc = ""] #rules)* #since const #name = #value;)
    });
    quote! {
        bitflags::bitflags! {
            /// The flags of both words of the event mask: they select callbacks and change the runtime's behaviour.
            ///
            /// The rule of each flag comes from the contract table: whether it is immutable, so that only `initialize`
            /// can change it; whether an attached profiler may set it; whether it prevents a detach. The text before
            /// the rule may name further conditions.
            #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
            pub struct EventMask: u64 {
                #(#constants)*
            }
        }
    }
}

/// Whether the flag does nothing on any runtime that corprof takes: the reader of a list does not need it.
fn is_without_effect(flag: &FlagRow) -> bool {
    let note = flag.note.as_deref().unwrap_or_default();
    note.starts_with("dead") || note == "no effect" || note.starts_with("no effect in CoreCLR")
}

/// The rules for turning the flag on and off, as text.
fn flag_rules(flag: &FlagRow) -> Vec<String> {
    let rule = |immutable: Option<bool>, after_attach: Option<bool>, prevents_detach: Option<bool>| {
        let is = |fact: Option<bool>| fact == Some(true);
        [
            if is(immutable) { "immutable: turned on or off in `initialize` only" } else { "not immutable" },
            if is(after_attach) { "allowed after attach" } else { "not allowed after attach" },
            if is(prevents_detach) { "prevents detach" } else { "does not prevent detach" },
        ]
        .join("; ")
    };
    let first = rule(flag.immutable, flag.allowed_after_attach, flag.prevents_detach);
    let mut rules = vec![match flag.versions.first() {
        Some(version) => format!("Rule before .NET {}: {first}.", version.min),
        None => format!("Rule: {first}."),
    }];
    rules.extend(flag.versions.iter().map(|version| {
        let rule = rule(
            version.immutable.or(flag.immutable),
            version.allowed_after_attach.or(flag.allowed_after_attach),
            version.prevents_detach.or(flag.prevents_detach),
        );
        format!("From .NET {} on: {rule}.", version.min)
    }));
    rules
}

fn rules(flags: &[&FlagRow]) -> TokenStream {
    let rows = flags.iter().map(|flag| {
        let mask = constant(&flag.name);
        let name = &flag.name;
        // Where a later release lifts a rule, its runtime is the one to say so.
        let is_lifted = !flag.versions.is_empty();
        let immutable = flag.immutable == Some(true) && !is_lifted;
        let after_attach = flag.allowed_after_attach == Some(true) || is_lifted;
        let notification = flag.allowable_notification_profiler == Some(true);
        quote! {
            Flag {
                mask: EventMask::#mask,
                name: #name,
                immutable: #immutable,
                after_attach: #after_attach,
                notification: #notification,
                is_lifted: #is_lifted,
            }
        }
    });
    quote! {
        /// When each flag may be asked for.
        pub(crate) const FLAGS: &[Flag] = &[#(#rows),*];
    }
}

fn alternatives(callback: &Callback<'_>, flags: &[&FlagRow]) -> Vec<TokenStream> {
    let mut alternatives: Vec<&String> = callback.row.enabled_by.iter().collect();
    alternatives.sort_by_key(|&flags| callback.facts.prefer.as_ref() != Some(flags));
    let masks = alternatives.into_iter().filter_map(|names| {
        // "always" and calls are not flags, and need no bit.
        let rows: Option<Vec<&&FlagRow>> =
            names.split('+').map(|name| flags.iter().find(|flag| flag.name == name)).collect();
        let names: Vec<_> = rows?.into_iter().map(|flag| constant(&flag.name)).collect();
        match names.as_slice() {
            [one] => Some(quote!(EventMask::#one)),
            several => Some(quote!(EventMask::empty()#(.union(EventMask::#several))*)),
        }
    });
    masks.collect()
}

pub(super) fn constant(name: &str) -> proc_macro2::Ident {
    format_ident!("{}", name.trim_start_matches("COR_PRF_"))
}

fn bits(flag: &FlagRow) -> u64 {
    match flag.mask {
        Mask::Low => u64::from(flag.value),
        Mask::High => u64::from(flag.value) << 32,
    }
}
