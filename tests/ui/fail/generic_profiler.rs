use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Counter<T> {
    count: T,
}

fn main() {}
