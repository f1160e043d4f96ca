use corprof::prelude::*;

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn thread_created<T>(&self, _cx: &mut InCallback<'_>, _thread: T) {}
}

fn main() {}
