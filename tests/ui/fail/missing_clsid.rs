use corprof::prelude::*;

#[derive(Profiler)]
struct Beeper;

fn main() {}
