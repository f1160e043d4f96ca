//! Each kind of event has its fields.
use corprof::events::ProviderEvent;
use corprof::info::OwnEvent;
use corprof::prelude::*;

#[derive(ProviderEvent)]
#[event(provider = "Shop-Orders", id = 7)]
struct Placed;

fn write(cx: &InCallback<'_>, placed: &OwnEvent<Placed>) {
    let _ = placed.write(cx, &8);
}

fn main() {}
