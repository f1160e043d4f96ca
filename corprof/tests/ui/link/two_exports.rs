//! A library has one export, of all its profilers.
use corprof::prelude::*;
#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct First;

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA1")]
struct Second;

#[callbacks]
impl Callbacks for First {}
#[callbacks]
impl Callbacks for Second {}
fn main() {}
