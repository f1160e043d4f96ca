//! Calls under a lock that make a callback on the same thread, which wants the same lock.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use corprof::args::EventPipeEvent;
use corprof::events::Level;
use corprof::id::{HandleId, Inert};
use corprof::info::{EventPipeEventDefinition, EventPipePayload, EventPipeProviderConfig, HandleKind, ObjectHandle};
use corprof::prelude::*;
use corprof::sync::Mutex;

/// Makes a handle under the lock.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1101", no_export)]
struct Creates {
    handles: Mutex<Vec<ObjectHandle>>,
}

#[callbacks]
impl Callbacks for Creates {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::MONITOR_GC)?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let mut handles = self.handles.lock(cx);
        match cx.create_handle(thrown, HandleKind::Weak) {
            Ok(handle) => handles.push(handle),
            Err(error) => eprintln!("reentry| {error}"),
        }
        eprintln!("reentry| the outer callback goes on with {} handles", handles.len());
    }

    fn handle_created(&self, cx: &InNoGc<'_>, _handle: HandleId, _object: Option<ObjectId<'_>>) {
        eprintln!("reentry| {} handles", self.handles.lock(cx).len());
    }
}

/// Drops a handle under the lock.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1102", no_export)]
struct Drops {
    handle: Mutex<Option<ObjectHandle>>,
    is_dropping: AtomicBool,
}

#[callbacks]
impl Callbacks for Drops {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        cx.add_events(EventMask::MONITOR_GC)?;
        Ok(Self::default())
    }

    fn exception_thrown(&self, cx: &InNoGc<'_>, thrown: ObjectId<'_>) {
        let made = cx.create_handle(thrown, HandleKind::Weak);
        *self.handle.lock(cx) = made.ok();
        self.is_dropping.store(true, Relaxed);
        *self.handle.lock(cx) = None;
        eprintln!("reentry| the outer callback goes on");
    }

    fn handle_destroyed(&self, cx: &InNoGc<'_>, _handle: HandleId) {
        if self.is_dropping.load(Relaxed) {
            eprintln!("reentry| {}", self.handle.lock(cx).is_some());
        }
    }
}

/// Writes an event under the lock, to a session of its own.
#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1103", no_export)]
struct Writes {
    written: Mutex<u32>,
}

impl Writes {
    fn write(&self, cx: &mut InCallback<'_>) -> Result<()> {
        let name = "Corprof-Reentry";
        let provider = cx.event_pipe_create_provider(name)?;
        let definition = EventPipeEventDefinition {
            name: "Written",
            id: 1,
            keywords: 1,
            version: 1,
            level: Level::Informational,
            opcode: 0,
            needs_stack: false,
            fields: &[],
        };
        let event = cx.event_pipe_define_event(provider, &definition)?;
        let config = EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None };
        cx.event_pipe_start_session(&[config], false)?;
        let mut written = self.written.lock(cx);
        *written += 1;
        cx.event_pipe_write_event(event, &EventPipePayload::new(), None, None)?;
        eprintln!("reentry| the outer callback goes on");
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Writes {
    fn thread_name_changed(&self, cx: &mut InCallback<'_>, _thread: Inert<ThreadId>, name: &str) {
        if name == "prepared" {
            let _ = self.write(cx).inspect_err(|error| eprintln!("reentry| {error}"));
        }
    }

    fn event_pipe_event_delivered(&self, cx: &InNoGc<'_>, _event: EventPipeEvent<'_>) {
        eprintln!("reentry| {} written", *self.written.lock(cx));
    }
}

corprof::export!(Creates, Drops, Writes);
