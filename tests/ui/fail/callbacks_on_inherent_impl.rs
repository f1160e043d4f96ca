use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Beeper {
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
}

fn main() {}
