//! The macros of `corprof`; use them through that crate, which re-exports them.
//!
//! This file has the entry points. Their documentation for users is in `.md` files. Its code is not tested here,
//! because it uses `corprof`, which would be compiled once more for these tests alone: the package in `tests/` has
//! them.
//!
//! The work is done by `profiler.rs` (the derive, with `clsid.rs`), `callbacks.rs` (the attribute, with the table in
//! `generated.rs`) and `provider_event.rs`, on `proc_macro2` types so that it can be tested outside the compiler. The
//! items that the expansions refer to are in `corprof` and `corprof-events`.

mod callbacks;
mod clsid;
#[rustfmt::skip]
mod generated;
mod profiler;
mod provider_event;
#[cfg(test)]
mod testing;

use proc_macro::TokenStream;

#[cfg_attr(not(doctest), doc = include_str!("profiler.md"))]
#[proc_macro_derive(Profiler, attributes(profiler))]
pub fn derive_profiler(input: TokenStream) -> TokenStream {
    profiler::expand(input.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("callbacks.md"))]
#[proc_macro_attribute]
pub fn callbacks(arguments: TokenStream, item: TokenStream) -> TokenStream {
    callbacks::expand(arguments.into(), item.into()).into()
}

#[cfg_attr(not(doctest), doc = include_str!("provider_event.md"))]
#[proc_macro_derive(ProviderEvent, attributes(event))]
pub fn derive_provider_event(input: TokenStream) -> TokenStream {
    provider_event::expand(input.into()).into()
}
