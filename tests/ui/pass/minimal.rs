use corprof::profiler::Subscriber;
use corprof::prelude::*;

#[derive(Profiler)]
#[profiler(clsid = "BDD57A0C-D4F7-486D-A8CA-86070DC12FA0")]
struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {}
}

fn main() {
    assert_eq!(Beeper::NAME, "Beeper");
    assert_eq!(Beeper::EVENTS, corprof::event_mask::EventSet::EMPTY.with(corprof::event_mask::Event::ClassLoadFinished));
}
