//! An event that an EventPipe session delivers.

use corprof_events::views::{AllocationSampled, GcAllocationTick};
use windows_core::GUID;

use crate::context::InNoGc;
use crate::id::{ClassId, CodeAddress, EventPipeProviderId, ThreadId};
use crate::session::{DeliveredEvent, Info, Interests, wire};

/// An event of an EventPipe session that this profiler started. It is valid until the callback returns.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct EventPipeEvent<'cb> {
    /// Its provider.
    pub provider: EventPipeProviderId<'cb>,
    /// Its id within the provider.
    pub id: u32,
    /// Its version.
    pub version: u32,
    /// The description of its fields.
    pub metadata: &'cb [u8],
    /// The values of its fields.
    pub data: &'cb [u8],
    /// The activity it belongs to; none if the thread is in no activity.
    pub activity: Option<&'cb GUID>,
    /// The activity that one belongs to.
    pub related_activity: Option<&'cb GUID>,
    /// The managed thread that the event is about: the one that was sampled, for an event of the runtime's sample
    /// profiler, else the one that wrote it. None if that was not a managed thread.
    pub thread: Option<ThreadId>,
    /// The instruction pointers of its stack, leaf first. Only events of the runtime's sample profiler have one.
    pub stack: &'cb [CodeAddress],
    /// What came: the public fields can be changed.
    delivered: DeliveredEvent<'cb>,
}

impl<'cb> EventPipeEvent<'cb> {
    /// The event with its name and its fields: from its own description, or from the runtime's manifest. `provider` is
    /// the name that [`event_pipe_provider_info`](crate::Info::event_pipe_provider_info) returns; ask once for each
    /// provider, and keep it.
    ///
    /// ```
    /// use corprof::events::views::GcStart;
    /// use corprof::args::EventPipeEvent;
    /// use corprof::prelude::*;
    ///
    /// fn on_event(provider: &str, event: &EventPipeEvent<'_>) {
    ///     let event = event.decoded(provider);
    ///     if let Ok(start) = event.decode::<GcStart>() {
    ///         println!("collection {} of generation {}: {}", start.number, start.generation, start.reason);
    ///     }
    /// }
    /// ```
    ///
    /// For the runtime's own events, [`of_runtime`](Self::of_runtime) needs no name.
    #[must_use]
    pub fn decoded<'a>(&self, provider: &'a str) -> corprof_events::Event<'a>
    where
        'cb: 'a,
    {
        use corprof_events::{Description, Event, Provider};

        let event = Event::new(Provider::of(provider), self.id, self.version, self.data, usize::BITS == 64);
        match Description::read(self.metadata) {
            Some(description) => event.with_description(description.name(), description.fields()),
            None => event,
        }
    }

    /// The event with its name and its fields, if the runtime itself wrote it; none for events of the application, of
    /// the framework, and for the last event of a session, which describes the process.
    ///
    /// ```
    /// use corprof::events::views::GcStart;
    /// use corprof::args::EventPipeEvent;
    /// use corprof::prelude::*;
    ///
    /// fn on_event(cx: &InNoGc<'_>, event: &EventPipeEvent<'_>) {
    ///     let Some(event) = event.of_runtime(cx) else { return };
    ///     if let Ok(start) = event.decode::<GcStart>() {
    ///         println!("collection {} of generation {}: {}", start.number, start.generation, start.reason);
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn of_runtime(&self, cx: &Info) -> Option<corprof_events::Event<'cb>> {
        is_of_runtime(cx, self.provider).then(|| self.decoded(corprof_events::Provider::RUNTIME.name()))
    }

    /// The class of the allocated object, if this is the runtime's event of one, that is an
    /// [`AllocationSampled`](corprof_events::views::AllocationSampled) or a
    /// [`GcAllocationTick`](corprof_events::views::GcAllocationTick). The names in these events lack the classes around
    /// a nested one. None also where the runtime does not tell.
    #[must_use]
    pub fn allocated_class(&self, cx: &InNoGc<'_>) -> Option<ClassId> {
        let provider = EventPipeProviderId::from_raw(self.delivered.provider)?;
        if !is_of_runtime(cx, provider) {
            return None;
        }
        let DeliveredEvent { id, version, data, .. } = self.delivered;
        let event = corprof_events::Event::new(corprof_events::Provider::RUNTIME, id, version, data, usize::BITS == 64);
        let sampled = event.decode::<AllocationSampled<'_>>().map(|sampled| sampled.type_id);
        let id = sampled.or_else(|_| event.decode::<GcAllocationTick<'_>>().map(|tick| tick.type_id)).ok()?;
        // The thread that wrote the event waits for this callback, and keeps the object and so its class.
        cx.class(usize::try_from(id).ok()?)
    }
}

/// Whether the runtime itself writes the events of `provider`.
fn is_of_runtime(info: &Info, provider: EventPipeProviderId<'_>) -> bool {
    let name = corprof_events::Provider::RUNTIME.name();
    let ask = || info.event_pipe_provider_info(provider).is_ok_and(|provider| provider == name);
    info.event_pipe_sessions().is_runtime_provider(provider.as_raw(), ask)
}

impl EventPipeEvent<'_> {
    /// The event for the profiler's own method, unless a feature of the SDK keeps it.
    ///
    /// # Safety
    /// Each (count, pointer) pair describes an array that outlives the result; so do the GUIDs, which may be null.
    #[allow(clippy::too_many_arguments, reason = "they are those of EventPipeEventDelivered")]
    pub(crate) unsafe fn for_profiler(
        info: &Info,
        provider: usize,
        id: u32,
        version: u32,
        metadata_size: u32,
        metadata: *const u8,
        data_size: u32,
        data: *const u8,
        activity: *const GUID,
        related_activity: *const GUID,
        thread: usize,
        frames: u32,
        stack: *const usize,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        let data = unsafe { wire::slice(data_size, data) };
        let delivered = DeliveredEvent { provider, id, version, data };
        if info.observers(Interests::EVENTS).any(|observer| observer.keeps_event(info, delivered)) {
            return None;
        }
        // The runtime passes a thread only for events of its sample profiler; any other event is delivered on the
        // thread that wrote it (ep.c, `write_event`).
        let thread = info.thread(thread).or_else(|| info.current_thread().ok().flatten());
        // The activity of a thread without one is all zeros.
        let activity_of = |guid: *const GUID| {
            // SAFETY: the caller's promise.
            unsafe { wire::guid(guid) }.filter(|&&guid| guid != GUID::zeroed())
        };
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self {
                provider: EventPipeProviderId::from_raw(provider)?,
                id,
                version,
                metadata: wire::slice(metadata_size, metadata),
                data,
                activity: activity_of(activity),
                related_activity: activity_of(related_activity),
                thread,
                stack: wire::slice(frames, stack.cast()),
                delivered,
            })
        }
    }
}
