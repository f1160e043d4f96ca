use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn thread_created(&mut self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
}

fn main() {}
