//! Nobody could ask for the event.
use corprof::events::ProviderEvent;

#[derive(ProviderEvent)]
#[event(id = 7, level = Info)]
struct Placed {
    number: u32,
}

fn main() {}
