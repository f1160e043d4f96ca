//! Events as structs: with and without fields, texts that live for a moment, and a kind that is kept.
#![forbid(unsafe_code)]
#![no_implicit_prelude]

use ::corprof::events::{ProviderEvent, Text};
use ::corprof::info::OwnEvent;

#[derive(ProviderEvent)]
#[event(provider = "Shop-Orders", id = 7, level = Warning, keywords = 0x8000_0000_0000_0000, opcode = 1, needs_stack)]
struct Placed<'text> {
    r#type: u32,
    customer_name: Text<'text>,
    #[event(name = "Lines")]
    lines: ::std::vec::Vec<::std::string::String>,
}

#[derive(ProviderEvent)]
#[event(provider = "Shop-Orders", id = 8)]
struct Closed {}

struct Kinds {
    placed: ::std::sync::OnceLock<OwnEvent<Placed<'static>>>,
    closed: ::std::sync::Mutex<::std::option::Option<OwnEvent<Closed>>>,
}

fn write(cx: &::corprof::InHook<'_>, kinds: &Kinds, name: &str) -> ::corprof::Result<()> {
    use ::std::option::Option::Some;
    let Some(placed) = kinds.placed.get() else { return ::std::result::Result::Ok(()) };
    let name = ::std::string::ToString::to_string(name);
    placed.write(cx, &Placed { r#type: 1, customer_name: ::std::convert::From::from(&*name), lines: ::std::vec::Vec::new() })
}

fn both<T: ::std::marker::Send + ::std::marker::Sync>() {}

fn main() {
    both::<Kinds>();
    let _ = write;
    ::std::assert_eq!(Placed::EVENT.id + Closed::EVENT.id, 15);
}
