use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0", no_export, no_export)]
struct Beeper;

fn main() {}
