//! An event ends with its provider, and the application may delete this one.
use corprof::info::EventPipeEventDefinition;
use corprof::id::EventPipeProviderId;
use corprof::prelude::*;

fn define(cx: &mut InCallback<'_>, provider: EventPipeProviderId<'_>, event: &EventPipeEventDefinition<'_>) {
    let _ = cx.event_pipe_define_event(provider, event);
}

fn main() {}
