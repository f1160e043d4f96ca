//! EventPipe with unusual names, fields and payloads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use corprof::args::EventPipeEvent;
use corprof::events::{FieldType, Level};
use corprof::id::Inert;
use corprof::info::{EventPipeEventDefinition, EventPipeField, EventPipePayload, EventPipeProviderConfig};
use corprof::prelude::*;

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1208", no_export)]
pub(crate) struct Pipes {
    answers: AtomicU64,
    errors: AtomicU64,
    delivered: AtomicU64,
}

impl Pipes {
    fn note<T>(&self, answer: Result<T>) -> Option<T> {
        let count = if answer.is_ok() { &self.answers } else { &self.errors };
        count.fetch_add(1, Relaxed);
        answer.ok()
    }

    fn attack(&self, cx: &mut InCallback<'_>, name: &str) {
        let config = EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None };
        let session = self.note(cx.event_pipe_start_session(&[config], false));
        let filtered = EventPipeProviderConfig { filter: Some(name), ..config };
        let other = self.note(cx.event_pipe_start_session(&[filtered, config, config], true));
        self.note(cx.event_pipe_start_session(&[], true));
        if let Some(provider) = self.note(cx.event_pipe_create_provider(name)) {
            for fields in [0, 3, 70_000] {
                let field =
                    EventPipeField { name: &name[..name.len().min(100)], kind: FieldType::Int64, is_array: false };
                let fields = vec![field; fields];
                for (id, name) in [(u32::MAX, name), (0, ""), (7, "Written")] {
                    let definition = EventPipeEventDefinition {
                        name,
                        id,
                        keywords: u64::MAX,
                        version: u32::MAX,
                        level: Level::LogAlways,
                        opcode: u8::MAX,
                        needs_stack: true,
                        fields: &fields,
                    };
                    let Some(event) = self.note(cx.event_pipe_define_event(provider, &definition)) else { continue };
                    for size in [0, 1, 70_000, 3 << 20] {
                        let mut payload = EventPipePayload::new();
                        payload.string(&"x".repeat(size));
                        self.note(cx.event_pipe_write_event(event, &payload, None, None));
                    }
                }
            }
        }
        for session in [session, other].into_iter().flatten() {
            self.note(cx.event_pipe_add_provider_to_session(session, &filtered));
            self.note(cx.event_pipe_stop_session(session));
            self.note(cx.event_pipe_add_provider_to_session(session, &config));
            self.note(cx.event_pipe_stop_session(session));
        }
    }
}

#[callbacks]
impl Callbacks for Pipes {
    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: Inert<ThreadId>, name: &str) {
        if name == "prepared" {
            for name in
                ["", ".", "Corprof-Pipes", &"a".repeat(5000), &"a".repeat(200_000), &"\u{10ffff}".repeat(1 << 21)]
            {
                eprintln!("attacks| a name of {} bytes", name.len());
                self.attack(cx, name);
            }
        }
    }

    fn event_pipe_event_delivered(&self, _cx: &InNoGc<'_>, _event: EventPipeEvent<'_>) {
        self.delivered.fetch_add(1, Relaxed);
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let [answers, errors, delivered] =
            [&self.answers, &self.errors, &self.delivered].map(|count| count.load(Relaxed));
        eprintln!("attacks| answers={answers} errors={errors} delivered={delivered}");
    }
}
