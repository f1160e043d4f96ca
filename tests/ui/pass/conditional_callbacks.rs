use corprof::profiler::Subscriber;
use corprof::prelude::*;
use corprof::event_mask::{Event, EventSet};

struct Beeper;

#[callbacks]
impl Callbacks for Beeper {
    #[cfg(any())]
    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {}

    /// Several conditions, all of them true.
    #[cfg(all())]
    #[cfg(not(any()))]
    #[cfg_attr(all(), cfg(all()), inline)]
    fn thread_created(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}

    #[cfg(all())]
    #[cfg_attr(all(), cfg(any()))]
    fn thread_destroyed(&self, _cx: &mut InCallback<'_>, _thread: ThreadId) {}
}

fn main() {
    assert_eq!(Beeper::EVENTS, EventSet::EMPTY.with(Event::ThreadCreated));
}
