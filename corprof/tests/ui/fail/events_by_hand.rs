use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    const EVENTS: corprof::EventSet = corprof::EventSet::EMPTY;
}

fn main() {}
