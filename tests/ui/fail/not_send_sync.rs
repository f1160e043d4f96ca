use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Counter {
    count: std::cell::Cell<u64>,
}

#[callbacks]
impl Callbacks for Counter {}

fn main() {}
