//! corprof's own messages go to the subscriber of a profiler, with the feature `tracing`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use corprof::prelude::*;
use corprof::testing::FakeClr;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// An agent's own log.
struct Log;

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "corprof" && *metadata.level() == Level::ERROR
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!IS_BROKEN.load(SeqCst), "the log is broken");
        let mut message = Message(String::new());
        event.record(&mut message);
        MESSAGES.lock().unwrap().push(message.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// Sets the subscriber where an agent would: in `initialize`.
#[derive(Profiler)]
#[profiler(clsid = "7B1E0A8C-51D5-4E9B-8F35-0F2A6C2E0051", no_export)]
struct Agent;

#[callbacks]
impl Callbacks for Agent {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let _ = tracing::subscriber::set_global_default(Log); // the second time it is there
        Ok(Self)
    }

    fn class_load_finished(&self, _cx: &mut InCallback<'_>, _class: ClassId, _status: Result<()>) {
        panic!("a mistake");
    }
}

#[test]
fn messages_go_to_the_subscriber() {
    for is_broken in [false, true] {
        IS_BROKEN.store(is_broken, SeqCst);
        MESSAGES.lock().unwrap().clear();
        let clr = FakeClr::load::<Agent>().unwrap();
        let app = clr.load_assembly("App");
        clr.load_class(app, "A");
        assert!(clr.has_panicked());
        drop(clr);
        let messages = MESSAGES.lock().unwrap();
        let said = messages.iter().any(|message| message.contains("Agent panicked in class_load_finished"));
        assert_eq!(said, !is_broken, "{messages:?}");
    }
}
