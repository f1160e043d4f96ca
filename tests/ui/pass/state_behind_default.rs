use corprof::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Profiler, Default)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Counter {
    threads: AtomicU64,
}

#[callbacks]
impl Callbacks for Counter {
    fn thread_created(&self, _cx: &mut InTriggers<'_>, _thread: ThreadId) {
        self.threads.fetch_add(1, Relaxed);
    }
}

fn main() {
    assert_eq!(Counter::create().threads.into_inner(), 0);
}
