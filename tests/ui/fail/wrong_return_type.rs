use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) -> bool {
        true
    }
}

fn main() {}
