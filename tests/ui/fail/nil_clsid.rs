use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "00000000-0000-0000-0000-000000000000")]
struct Beeper;

fn main() {}
