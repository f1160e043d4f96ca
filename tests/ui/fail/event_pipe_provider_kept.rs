//! The application may delete the provider.
use std::sync::Mutex;

use corprof::args::EventPipeEvent;
use corprof::id::EventPipeProviderId;
use corprof::prelude::*;

struct Collector(Mutex<Vec<EventPipeProviderId<'static>>>);

#[callbacks]
impl Callbacks for Collector {
    fn event_pipe_event_delivered(&self, _cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        self.0.lock().unwrap().push(event.provider);
    }
}

fn main() {}
