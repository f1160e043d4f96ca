//! The profiler's own session of the runtime's event source of async operations (.NET 11 and later).

use std::collections::VecDeque;

use corprof::args::EventPipeEvent;
use corprof::events::Level;
use corprof::id::EventPipeSessionId;
use corprof::info::EventPipeProviderConfig;
use corprof::prelude::*;
use corprof::profiler_thread::ProfilerThread;
use corprof::sampler::ticks;
use corprof::sync::Mutex;
use corprof_async::{ASYNC_EVENTS, PROVIDER, STACK_KEYWORDS};

/// How many buffers may wait, of 16 KB each. They are taken many times a second.
const MOST_BUFFERS: usize = 1024;

/// A buffer of a thread of the application, and when it was written.
pub(super) struct Written {
    pub(super) ticks: u64,
    /// The thread that has written it: its own, or that of a timer.
    pub(super) thread: Option<u32>,
    pub(super) payload: Vec<u8>,
}

/// The buffers that were delivered, and not taken yet.
#[derive(Default)]
pub(crate) struct Inbox(Mutex<Buffers>);

#[derive(Default)]
struct Buffers {
    written: VecDeque<Written>,
    /// How many there was no room for.
    lost: u64,
}

impl Inbox {
    /// Keeps an event of the source. The runtime delivers it on the thread that writes it, which is the application's.
    pub(super) fn take(&self, cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
        if event.id != ASYNC_EVENTS || !cx.event_pipe_provider_info(event.provider).is_ok_and(|name| name == PROVIDER) {
            return;
        }
        let thread = event.thread.and_then(|thread| cx.os_thread_id(thread).ok());
        let written = Written { ticks: ticks(), thread, payload: event.data.to_vec() };
        let mut buffers = self.0.lock(cx);
        if buffers.written.len() < MOST_BUFFERS {
            buffers.written.push_back(written);
        } else {
            buffers.lost += 1;
        }
    }

    /// The oldest buffer.
    pub(super) fn next(&self, cx: &InNoGc<'_>) -> Option<Written> {
        self.0.lock(cx).written.pop_front()
    }

    /// How many buffers were lost.
    pub(super) fn lost(&self, cx: &InNoGc<'_>) -> u64 {
        self.0.lock(cx).lost
    }
}

/// The session, from the first look for the source on.
#[derive(Default)]
pub(super) struct AsyncSession {
    session: Option<EventPipeSessionId>,
    /// A second session, whose start or end has all threads write what they hold.
    second: Option<EventPipeSessionId>,
}

/// What the runtime has answered.
pub(super) enum Started {
    /// It is still starting: ask again.
    NotYet,
    /// It has no such source.
    NoSource,
    /// From now on buffers come.
    Yes(AsyncSession),
    /// The session was refused.
    Refused(Error),
}

/// Whether the runtime has the source; none while it cannot be asked.
pub(crate) fn tells_operations(cx: &mut ProfilerThread<'_>) -> Option<bool> {
    // The list is refused while the runtime starts, and for a moment after an attach.
    let modules = cx.enum_modules().ok()?;
    let core = modules.into_iter().find(|module| &*cx.names().module(*module) == "System.Private.CoreLib.dll")?;
    let source = cx.metadata(core).and_then(|metadata| metadata.find_type_def(PROVIDER, None));
    source.ok().map(|source| source.is_some())
}

fn provider(level: Level) -> EventPipeProviderConfig<'static> {
    EventPipeProviderConfig { name: PROVIDER, keywords: STACK_KEYWORDS, level, filter: None }
}

impl AsyncSession {
    /// Starts the session, if the runtime has the source.
    pub(super) fn start(cx: &mut ProfilerThread<'_>) -> Started {
        match tells_operations(cx) {
            Some(true) => {}
            Some(false) => return Started::NoSource,
            None => return Started::NotYet,
        }
        match cx.event_pipe_start_session(&[provider(Level::Informational)], false) {
            Ok(session) => Started::Yes(Self { session: Some(session), second: None }),
            Err(error) => Started::Refused(error),
        }
    }

    /// Has all threads write what they hold: each start and each end of a session of the source does that. A thread
    /// writes at its next async operation, and the runtime within 1.3 s for those that have none.
    ///
    /// The second session wants a level without events, as each session gets all that any of them wants.
    pub(super) fn flush(&mut self, cx: &mut ProfilerThread<'_>) -> Result<()> {
        if let Some(second) = self.second.take() {
            return cx.event_pipe_stop_session(second);
        }
        self.second = Some(cx.event_pipe_start_session(&[provider(Level::Error)], false)?);
        Ok(())
    }

    /// Ends it. What threads hold is lost.
    pub(super) fn stop(self, cx: &mut ProfilerThread<'_>) {
        for session in self.second.into_iter().chain(self.session) {
            let _ = cx.event_pipe_stop_session(session); // the end of the process has ended it
        }
    }
}
