use corprof::prelude::*;

struct Beeper;

impl Callbacks for Beeper {
    fn thread_created(&self, _cx: &mut InTriggers<'_>, _thread: ThreadId) {}
}

fn main() {}
