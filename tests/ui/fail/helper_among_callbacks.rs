use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn beep(&self) {}
}

fn main() {}
