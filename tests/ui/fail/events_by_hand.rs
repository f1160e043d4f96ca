use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    const EVENTS: corprof::event_mask::EventSet = corprof::event_mask::EventSet::EMPTY;
}

fn main() {}
