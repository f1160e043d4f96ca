use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Default for Beeper {
    fn default() -> Self {
        Beeper
    }
}

fn main() {}
