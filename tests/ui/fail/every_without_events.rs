//! `every` must say which events it is for, and the events must exist.

use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Log;

#[callbacks]
impl Callbacks for Log {
    fn every(&self, cx: &InNoGc<'_>, event: &CallbackEvent<'_>) {
        eprintln!("{}", event.named(cx));
    }
}

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA1", no_export)]
struct Misspelt;

#[callbacks]
impl Callbacks for Misspelt {
    #[events(ClassLoadFinish, RuntimeThreadSuspended)]
    fn every(&self, _cx: &InNoGc<'_>, _event: &CallbackEvent<'_>) {}
}

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA2", no_export)]
struct UnknownFlag;

#[callbacks]
impl Callbacks for UnknownFlag {
    #[events(MONITOR_CLASSES)]
    fn every(&self, _cx: &InNoGc<'_>, _event: &CallbackEvent<'_>) {}
}

fn main() {}
