use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    async fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
}

fn main() {}
