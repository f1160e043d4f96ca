//! `contract_table.rs`: `contracts.toml` itself, for the fake CLR of `corprof::testing`, which refuses calls by its
//! rules.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::event;
use super::events::constant;
use crate::callbacks::Callback;
use crate::contracts::{Contracts, Entry, FlagKind, InfoRow, Mode, SyncInfo, Wrapper};
use crate::error::Error;

/// The oldest release that corprof supports.
const OLDEST: &str = "8.0";

pub(super) fn emit(callbacks: &[Callback<'_>], contracts: &Contracts) -> Result<TokenStream, Error> {
    let mut rows: Vec<&InfoRow> = contracts.info.iter().collect();
    rows.sort_by_key(|row| row.slot);
    let calls = rows.iter().map(|row| call(row)).collect::<Result<Vec<_>, _>>()?;
    let deliveries = callbacks.iter().map(delivery);
    let flags = flags(contracts);
    let call_count = calls.len();
    let delivery_count = callbacks.len();
    Ok(quote! {
        use crate::event_mask::{Event, EventMask};
        use crate::testing::contract::{Call, Delivery, Earlier, Entry, FlagRule, Lifted, Release, SyncInfo};

        /// The methods of `ICorProfilerInfo` to `ICorProfilerInfo15`, by slot: `QueryInterface` has 0, so the first has
        /// 3.
        pub(crate) const CALLS: [Call; #call_count] = [#(#calls),*];

        /// The callbacks, by the number of their event.
        pub(crate) const DELIVERIES: [Delivery; #delivery_count] = [#(#deliveries),*];

        /// The flags of the event mask.
        pub(crate) const FLAG_RULES: &[FlagRule] = &[#(#flags),*];
    })
}

fn call(row: &InfoRow) -> Result<TokenStream, Error> {
    let name = &row.method;
    let slot = row.slot;
    let entry = entry(row.entry);
    let since = release(row.since.as_deref().unwrap_or(OLDEST))?;
    let triggers = row.triggers;
    let attach = row.attach_effective;
    let inspects = row.requires.as_deref() == Some("object-inspection");
    let main_only = row.main_profiler_only;
    let earlier = row.versions.iter().filter(|version| version.entry.is_some() || version.triggers.is_some());
    let earlier = earlier.map(|version| {
        let max = Literal::u32_unsuffixed(version.max);
        let entry = self::entry(version.entry.unwrap_or(row.entry));
        let triggers = version.triggers.unwrap_or(row.triggers);
        quote!(Earlier { up_to: #max, entry: #entry, triggers: #triggers })
    });
    let slot = Literal::usize_unsuffixed(slot);
    Ok(quote!(Call {
        name: #name, slot: #slot, since: #since, entry: #entry, triggers: #triggers, attach: #attach,
        inspects_objects: #inspects, main_profiler_only: #main_only, earlier: &[#(#earlier),*],
    }))
}

fn entry(entry: Entry) -> TokenStream {
    match entry {
        Entry::Sync => quote!(Entry::Sync),
        Entry::Async => quote!(Entry::Async),
        Entry::InitOnly => quote!(Entry::InitOnly),
        Entry::None => quote!(Entry::Unchecked),
    }
}

fn delivery(callback: &Callback<'_>) -> TokenStream {
    let row = callback.row;
    let event = event(callback);
    let sync_info = match row.sync_info {
        SyncInfo::All => quote!(SyncInfo::All),
        SyncInfo::NoTrigger => quote!(SyncInfo::NoTrigger),
        SyncInfo::None => quote!(SyncInfo::None),
    };
    let attach = row.allowed_for_attach;
    let cooperative = row.mode == Mode::Cooperative;
    let during_gc = row.during_gc;
    let comes = row.fired_by_runtime && row.wrapper == Wrapper::Calls;
    quote!(Delivery {
        event: Event::#event, sync_info: #sync_info, cooperative: #cooperative, during_gc: #during_gc, attach: #attach,
        comes: #comes,
    })
}

fn flags(contracts: &Contracts) -> impl Iterator<Item = TokenStream> {
    contracts.flag.iter().filter(|flag| flag.kind == FlagKind::Flag).map(|flag| {
        let mask = constant(&flag.name);
        let immutable = flag.immutable == Some(true);
        let attach = flag.allowed_after_attach == Some(true);
        let prevents_detach = flag.prevents_detach == Some(true);
        let lifted = flag.versions.iter().map(|version| {
            let min = Literal::u32_unsuffixed(version.min);
            let immutable = version.immutable.unwrap_or(immutable);
            let attach = version.allowed_after_attach.unwrap_or(attach);
            let prevents_detach = version.prevents_detach.unwrap_or(prevents_detach);
            quote!(Lifted { from: #min, immutable: #immutable, attach: #attach, prevents_detach: #prevents_detach })
        });
        quote!(FlagRule {
            mask: EventMask::#mask, immutable: #immutable, attach: #attach, prevents_detach: #prevents_detach,
            lifted: &[#(#lifted),*],
        })
    })
}

/// `"9.0"` as a `Release`.
fn release(text: &str) -> Result<TokenStream, Error> {
    let numbers = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some((major, minor)) = numbers else {
        let problems = vec![format!("since = {text:?}: not a release")];
        return Err(Error::Facts { file: "contracts.toml", problems });
    };
    let major = Literal::u32_unsuffixed(major);
    let minor = Literal::u32_unsuffixed(minor);
    Ok(quote!(Release(#major, #minor)))
}
