//! Prints the data of the application's events, and makes calls about ended sessions: for `live/event_pipe.rs`.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use corprof::args::EventPipeEvent;
use corprof::events::Level;
use corprof::id::{EventPipeEventId, EventPipeSessionId, Inert};
use corprof::info::{EventPipeEventDefinition, EventPipePayload, EventPipeProviderConfig};
use corprof::prelude::*;
use corprof::sync::Mutex;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1201")]
struct Tells {
    session: Mutex<Option<EventPipeSessionId>>,
    own: Mutex<Option<EventPipeEventId>>,
    own_delivered: AtomicU32,
}

fn tell<T: Debug>(what: &str, answer: Result<T>) {
    match answer {
        Ok(answer) => eprintln!("event_pipe| {what}: {answer:?}"),
        Err(error) => eprintln!("event_pipe| {what}: error {error}"),
    }
}

fn config(name: &str) -> EventPipeProviderConfig<'_> {
    EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None }
}

impl Tells {
    fn start(&self, cx: &mut InCallback<'_>) -> Result<()> {
        let provider = cx.event_pipe_create_provider("Corprof-Own")?;
        let definition = EventPipeEventDefinition {
            name: "Own",
            id: 9,
            keywords: 1,
            version: 1,
            level: Level::Informational,
            opcode: 0,
            needs_stack: false,
            fields: &[],
        };
        let own = cx.event_pipe_define_event(provider, &definition)?;
        let session = cx.event_pipe_start_session(&[config("Corprof-Sources"), config("Corprof-Own")], false)?;
        *self.session.lock(cx) = Some(session);
        *self.own.lock(cx) = Some(own);
        cx.event_pipe_write_event(own, &EventPipePayload::new(), None, None)
    }

    fn stop(&self, cx: &mut InCallback<'_>) {
        let Some(session) = *self.session.lock(cx) else { return };
        tell("add", cx.event_pipe_add_provider_to_session(session, &config("Corprof-Other")));
        tell("stop", cx.event_pipe_stop_session(session));
        tell("add to stopped", cx.event_pipe_add_provider_to_session(session, &config("Corprof-Other")));
        tell("stop stopped", cx.event_pipe_stop_session(session));
    }
}

#[callbacks]
impl Callbacks for Tells {
    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: Inert<ThreadId>, name: &str) {
        match name {
            "start" => tell("start", self.start(cx)),
            "stop" => self.stop(cx),
            _ => {}
        }
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, event: EventPipeEvent<'_>) {
        let Ok(provider) = cx.event_pipe_provider_info(event.provider) else { return };
        if provider == "Corprof-Own" {
            self.own_delivered.fetch_add(1, Relaxed);
        } else {
            let is_current_thread = cx.current_thread() == Ok(event.thread) && event.thread.is_some();
            tell(&format!("event {} of {provider}", event.id), Ok((is_current_thread, event.activity)));
        }
        // Delivered from within this callback, it would be written again, and so on.
        if let Some(own) = *self.own.lock(cx) {
            let _ = cx.event_pipe_write_event(own, &EventPipePayload::new(), None, None);
        }
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        tell("own events", Ok(self.own_delivered.load(Relaxed)));
    }
}
