use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    the_usual_callbacks!();
}

fn main() {}
