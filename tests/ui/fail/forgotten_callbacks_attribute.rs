use corprof::prelude::*;

struct Beeper;

impl Callbacks for Beeper {
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
}

fn main() {}
