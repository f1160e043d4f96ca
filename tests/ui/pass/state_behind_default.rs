use corprof::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[derive(Profiler, Default)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0", no_export)]
struct Counter {
    threads: AtomicU64,
}

#[callbacks]
impl Callbacks for Counter {
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {
        self.threads.fetch_add(1, Relaxed);
    }
}

/// Without `Default`: `initialize` makes it.
#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA1", no_export)]
struct Named {
    name: String,
}

#[callbacks]
impl Callbacks for Named {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Ok(Self { name: std::env::var("NAME")? })
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        eprintln!("{}", self.name);
    }
}

corprof::export!(Counter, Named);

fn main() {}
