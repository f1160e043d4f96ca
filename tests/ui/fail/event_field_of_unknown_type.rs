//! EventPipe knows no type for it.
use corprof::events::ProviderEvent;

#[derive(ProviderEvent)]
#[event(provider = "Shop-Orders", id = 7)]
struct Placed {
    number: usize,
}

fn main() {}
