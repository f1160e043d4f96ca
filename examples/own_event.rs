//! Writes an event of its own for each exception: `corprof events 4711 --provider Shop-Profiler` shows them.

use corprof::events::{ProviderEvent, Text};
use corprof::info::OwnEvent;
use corprof::prelude::*;

#[derive(ProviderEvent)]
#[event(provider = "Shop-Profiler", id = 1, level = Warning)]
struct Thrown<'a> {
    class: Text<'a>,
}

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7E10")]
struct Events {
    thrown: OwnEvent<Thrown<'static>>,
}

#[callbacks]
impl Callbacks for Events {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let provider = cx.event_pipe_create_provider(Thrown::EVENT.provider)?;
        Ok(Self { thrown: cx.event_pipe_define(provider)? })
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) -> Result<()> {
        let class = cx.names().class(cx.class_of(thrown)?);
        // Without a session that listens, this does nothing.
        self.thrown.write(cx, &Thrown { class: Text::from(class.as_str()) })
    }
}
