//! EventPipe: sessions that deliver events to
//! [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered), and the profiler's own providers.

mod own_event;
mod payload;
mod provider;

use corprof_events::{KeywordSet, Keywords, Level, Provider};
use corprof_sys as sys;
use windows_core::BOOL;

use crate::context::InCallback;
use crate::error::{E_OUTOFMEMORY, Error, Result};
use crate::event_mask::Phase;
use crate::ffi::buffer::{read_utf16, to_utf16};
use crate::generated::contract::contract;
use crate::id::{EventPipeProviderId, EventPipeSessionId};
use crate::info::Info;
use crate::session::event_pipe_sessions::refuse_where_managed_code_cannot_run;
use crate::session::profiler_threads;

pub use own_event::OwnEvent;
pub use payload::EventPipePayload;
pub use provider::{EventPipeEventDefinition, EventPipeField, EventPipeProviderListener, EventPipeProviderState};

/// The events of one provider that a session requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventPipeProviderConfig<'a> {
    /// The provider's name, such as `Microsoft-Windows-DotNETRuntime`.
    pub name: &'a str,
    /// The kinds of events, as bits that the provider defines; `u64::MAX` for all.
    pub keywords: u64,
    /// The most verbose level to deliver.
    pub level: Level,
    /// An argument for the provider.
    pub filter: Option<&'a str>,
}

impl EventPipeProviderConfig<'static> {
    /// The runtime's own events of this set. Combine sets with `|`.
    ///
    /// A set that [forces collections](KeywordSet::forces_collections) makes the runtime collect when the session
    /// starts, and on .NET 8 once more when it ends.
    ///
    /// ```
    /// use corprof::events::KeywordSet;
    /// use corprof::info::EventPipeProviderConfig;
    ///
    /// let config = EventPipeProviderConfig::runtime(KeywordSet::GC | KeywordSet::CONTENTION);
    /// assert_eq!((config.name, config.keywords), ("Microsoft-Windows-DotNETRuntime", 0x4001));
    /// ```
    #[must_use]
    pub fn runtime(set: KeywordSet) -> Self {
        Self { name: Provider::RUNTIME.name(), keywords: set.keywords().bits(), level: set.level(), filter: None }
    }
}

/// The text that a configuration on the wire points to.
struct ConfigText {
    name: Vec<u16>,
    filter: Option<Vec<u16>>,
}

impl ConfigText {
    fn of(call: &'static str, config: &EventPipeProviderConfig<'_>) -> Result<Self> {
        let filter = config.filter.map(|filter| to_utf16(call, filter)).transpose()?;
        Ok(Self { name: to_utf16(call, config.name)?, filter })
    }

    /// The configuration, which points into this text.
    fn wire(&self, config: &EventPipeProviderConfig<'_>) -> sys::COR_PRF_EVENTPIPE_PROVIDER_CONFIG {
        sys::COR_PRF_EVENTPIPE_PROVIDER_CONFIG {
            providerName: self.name.as_ptr(),
            keywords: config.keywords,
            loggingLevel: config.level as u32,
            filterData: self.filter.as_ref().map_or(std::ptr::null(), |filter| filter.as_ptr()),
        }
    }
}

/// Makes a call about a session: on a new thread if the calling one belongs to the profiler or to the collector.
///
/// Stopping a session makes the calling thread a managed one (seen on .NET 8), and starting one may run the managed
/// code of an event source on it. From then on the runtime would refuse a
/// [`ProfilerThread`](crate::profiler_thread::ProfilerThread) all calls that it refuses to an application's thread
/// outside callbacks.
fn on_helper_thread<T: Send>(
    call: &'static str,
    info: &Info,
    make: impl FnOnce(&Info) -> Result<T> + Send,
) -> Result<T> {
    let is_profilers = profiler_threads::is_current();
    refuse_where_managed_code_cannot_run(call, is_profilers)?;
    if !is_profilers && info.current_thread()?.is_some() {
        return make(info);
    }
    std::thread::scope(|scope| {
        match std::thread::Builder::new().name("EventPipe session".to_owned()).spawn_scoped(scope, || make(info)) {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => Err(Error::new(E_OUTOFMEMORY, call).about("threads", "the system could not make a thread")),
        }
    })
}

/// Refuses a session that collects before the runtime has started. In `initialize` there is no heap yet, and the
/// runtime leaves the collection out.
fn refuse_early_collection(call: &'static str, info: &Info, config: &EventPipeProviderConfig<'_>) -> Result<()> {
    let is_runtimes = config.name.eq_ignore_ascii_case(Provider::RUNTIME.name());
    let collects = is_runtimes && config.keywords & Keywords::MANAGED_HEAP_COLLECT.bits() != 0;
    // A profiler thread may get to the call after `initialize` has returned.
    let is_in_initialize = info.phase() == Phase::Initialize && !profiler_threads::is_current();
    if !collects || is_in_initialize {
        return Ok(());
    }
    info.startup().refuse_collection(call)
}

impl Info {
    /// The name of an EventPipe provider.
    #[doc = contract!(EventPipeGetProviderInfo)]
    #[doc(alias = "EventPipeGetProviderInfo")]
    pub fn event_pipe_provider_info(&self, provider: EventPipeProviderId<'_>) -> Result<String> {
        const CALL: &str = "EventPipeGetProviderInfo";
        let info = self.as_version::<sys::ICorProfilerInfo12>(CALL)?;
        read_utf16(CALL, |start, room, count| {
            // SAFETY: the provider lives as long as its identifier: this profiler's own providers are never deleted,
            // and the identifiers of others end with the callback that received them, during which the runtime itself
            // uses the provider. The call writes the count and at most `room` units of text (fact: outputs,
            // event-pipe).
            unsafe { info.EventPipeGetProviderInfo(provider.as_raw(), room, count, start) }
        })
    }
}

impl Info {
    /// Stops all remaining sessions, when no thread makes calls about them any more.
    pub(crate) fn stop_event_pipe_sessions(&self) -> Result<()> {
        const CALL: &str = "EventPipeStopSession";
        let sessions = self.event_pipe_sessions().take();
        if sessions.is_empty() {
            return Ok(());
        }
        on_helper_thread(CALL, self, |info| {
            let info = info.as_version::<sys::ICorProfilerInfo12>(CALL)?;
            for session in sessions {
                // SAFETY: the call takes a number, and checks that a session has it (fact: event-pipe).
                Error::check(unsafe { info.EventPipeStopSession(session) }, CALL)?;
            }
            Ok(())
        })
    }
}

/// A session of the runtime's own events, which [`start_runtime_events`](InCallback::start_runtime_events) has started.
///
/// Dropping it does not stop the session: a stop waits for deliveries on other threads, and a value may be dropped
/// where nothing may wait. It goes on until [`stop`](Self::stop), the profiler's shutdown or its detach.
#[derive(Debug, PartialEq, Eq)]
pub struct RuntimeEvents(EventPipeSessionId);

impl RuntimeEvents {
    /// The session, for calls that need it.
    #[must_use]
    pub fn id(&self) -> EventPipeSessionId {
        self.0
    }
}

impl InCallback<'_> {
    /// Starts a session of the runtime's own events of this set, and of no others. They are delivered to
    /// [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered), which reads them by
    /// [`of_runtime`](crate::args::EventPipeEvent::of_runtime).
    ///
    /// ```
    /// # use corprof::prelude::*;
    /// use corprof::events::KeywordSet;
    ///
    /// # #[allow(dead_code)]
    /// fn initialize(cx: &mut InInitialize<'_>) -> Result<()> {
    ///     cx.start_runtime_events(KeywordSet::GC | KeywordSet::CONTENTION)?; // until the application ends
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`event_pipe_start_session`](Self::event_pipe_start_session).
    pub fn start_runtime_events(&mut self, set: KeywordSet) -> Result<RuntimeEvents> {
        self.event_pipe_start_session(&[EventPipeProviderConfig::runtime(set)], false).map(RuntimeEvents)
    }

    /// Starts a session: its events are delivered to
    /// [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered).
    ///
    /// With `rundown`, stopping the session first delivers events that describe all that is loaded by then.
    #[doc = contract!(EventPipeStartSession)]
    ///
    /// `E_INVALIDARG`: no provider, or a name or filter that contains a NUL. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: the
    /// runtime could not tell managed code of the session, which it does: in callbacks about loads and unloads of
    /// assemblies, modules and classes, about compilations, and about transitions between managed and native code; in
    /// `select` of hooks; in `thread_destroyed`, `exception_catcher_leave` and `dynamic_method_unloaded`; in callbacks
    /// inside of these; in any callback on a [`ProfilerThread`](crate::ProfilerThread). Start it in `initialize`, on a
    /// profiler thread, or in another callback such as `thread_name_changed`. `CORPROF_E_NOT_YET_AVAILABLE`: the
    /// runtime has not started yet, and the keyword `MANAGED_HEAP_COLLECT` of its provider has it collect; as
    /// [`force_gc`](crate::ProfilerThread::force_gc).
    #[doc(alias = "EventPipeStartSession")]
    pub fn event_pipe_start_session(
        &mut self,
        providers: &[EventPipeProviderConfig<'_>],
        rundown: bool,
    ) -> Result<EventPipeSessionId> {
        const CALL: &str = "EventPipeStartSession";
        providers.iter().try_for_each(|config| refuse_early_collection(CALL, self, config))?;
        on_helper_thread(CALL, self, |info| {
            let sessions = info.event_pipe_sessions();
            let info = info.as_version::<sys::ICorProfilerInfo12>(CALL)?;
            let texts = providers.iter().map(|config| ConfigText::of(CALL, config)).collect::<Result<Vec<_>>>()?;
            let configs: Vec<_> = texts.iter().zip(providers).map(|(text, config)| text.wire(config)).collect();
            let mut session = 0;
            // SAFETY: the configurations point into `texts`, which outlives the call; it writes one number
            // (fact: inputs, outputs).
            let code = unsafe {
                let count = u32::try_from(configs.len()).unwrap_or(u32::MAX);
                info.EventPipeStartSession(count, configs.as_ptr(), BOOL::from(rundown), &mut session)
            };
            Error::check(code, CALL)?;
            let session = EventPipeSessionId(session);
            sessions.started(session);
            Ok(session)
        })
    }

    /// Adds a provider to a running session.
    #[doc = contract!(EventPipeAddProviderToSession)]
    ///
    /// `E_INVALIDARG`: a name or filter contains a NUL; or the process is ending, and the runtime has ended the
    /// session. `COR_E_OBJECTDISPOSED`: the session has been stopped, by this profiler or by the end of the process.
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`, `CORPROF_E_NOT_YET_AVAILABLE`: as
    /// [`event_pipe_start_session`](Self::event_pipe_start_session).
    #[doc(alias = "EventPipeAddProviderToSession")]
    pub fn event_pipe_add_provider_to_session(
        &mut self,
        session: EventPipeSessionId,
        provider: &EventPipeProviderConfig<'_>,
    ) -> Result<()> {
        const CALL: &str = "EventPipeAddProviderToSession";
        refuse_early_collection(CALL, self, provider)?;
        on_helper_thread(CALL, self, |info| {
            let sessions = info.event_pipe_sessions();
            let text = ConfigText::of(CALL, provider)?;
            let info = info.as_version::<sys::ICorProfilerInfo12>(CALL)?;
            sessions.begin_use(session, CALL)?;
            // SAFETY: the configuration points into `text`, which outlives the call; the session exists, as no thread
            // stops it before `end_use` (fact: inputs, event-pipe).
            let code = unsafe { info.EventPipeAddProviderToSession(session.as_raw(), text.wire(provider)) };
            if sessions.end_use(session) {
                // SAFETY: the call takes a number, and checks that a session has it (fact: event-pipe).
                let _ = unsafe { info.EventPipeStopSession(session.as_raw()) }; // the caller that stopped it has its answer already
            }
            Error::check(code, CALL)
        })
    }

    /// Stops a session.
    ///
    /// Its last events may still be delivered during this call, which waits for deliveries in progress on other
    /// threads. It does not wait for another call that is adding a provider to the session: that call then stops the
    /// session when it is done.
    #[doc = contract!(EventPipeStopSession)]
    ///
    /// `COR_E_OBJECTDISPOSED`: the session has been stopped already, by this profiler or by the end of the process.
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: as [`event_pipe_start_session`](Self::event_pipe_start_session).
    #[doc(alias = "EventPipeStopSession")]
    pub fn event_pipe_stop_session(&mut self, session: EventPipeSessionId) -> Result<()> {
        const CALL: &str = "EventPipeStopSession";
        on_helper_thread(CALL, self, |info| {
            let sessions = info.event_pipe_sessions();
            let info = info.as_version::<sys::ICorProfilerInfo12>(CALL)?;
            if !sessions.end(session, CALL)? {
                return Ok(());
            }
            // SAFETY: the call takes a number, and checks that a session has it (fact: event-pipe).
            let code = unsafe { info.EventPipeStopSession(session.as_raw()) };
            Error::check(code, CALL).inspect_err(|_| sessions.started(session))
        })
    }
}
