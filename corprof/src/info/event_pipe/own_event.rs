//! Events of the profiler's own providers as structs: `#[derive(ProviderEvent)]`.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

use corprof_events::{EncodeError, EventDefinition, ProviderEvent};

use super::{EventPipeEventDefinition, EventPipeField, EventPipePayload};
use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{EventPipeEventId, EventPipeProviderId};
use crate::info::Info;

/// A kind of event that a provider of this profiler has, with its type `E`.
/// [`event_pipe_define`](InCallback::event_pipe_define) makes it.
pub struct OwnEvent<E> {
    id: EventPipeEventId,
    // Covariant, so that a kind that is kept as `OwnEvent<E<'static>>` writes an `E` with texts that live for a moment.
    event: PhantomData<fn() -> E>,
}

impl<E> OwnEvent<E> {
    /// The kind of event, for calls without types.
    #[must_use]
    pub fn id(&self) -> EventPipeEventId {
        self.id
    }
}

impl<E: ProviderEvent> OwnEvent<E> {
    /// Writes an event; does nothing if no session listens.
    ///
    /// For an event that belongs to an activity, pass [`id`](Self::id) to [`Info::event_pipe_write_event`].
    ///
    /// May be called wherever the profiler has an [`Info`], which every context is. While a session of this profiler
    /// listens, the call makes [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered) on the
    /// calling thread. Hold no lock that this callback takes ([`sync`](crate::sync)).
    ///
    /// # Errors
    /// As [`event_pipe_write_event`](Info::event_pipe_write_event); `E_INVALIDARG`: no event can have the value of a
    /// field ([`Misfit`](corprof_events::Misfit)).
    pub fn write(&self, cx: &Info, event: &E) -> Result<()> {
        let mut bytes = Vec::new();
        event.write(&mut bytes).map_err(|EncodeError { field, misfit, .. }| {
            Error::new(E_INVALIDARG, "EventPipeWriteEvent").about(field, misfit.rule())
        })?;
        cx.event_pipe_write_event(self.id, &EventPipePayload::from(bytes), None, None)
    }
}

impl<E> Clone for OwnEvent<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for OwnEvent<E> {}

impl<E> Debug for OwnEvent<E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnEvent").field(&self.id).finish()
    }
}

impl InCallback<'_> {
    /// Adds a kind of event to a provider of this profiler, which has the name that the event's type gives.
    ///
    /// ```
    /// use corprof::events::{ProviderEvent, Text};
    /// use corprof::info::OwnEvent;
    /// use corprof::prelude::*;
    ///
    /// #[derive(ProviderEvent)]
    /// #[event(provider = "Shop-Profiler", id = 1)]
    /// struct Loaded<'a> {
    ///     path: Text<'a>,
    ///     classes: u32,
    /// }
    ///
    /// # #[allow(dead_code)]
    /// fn initialize(cx: &mut InInitialize<'_>) -> Result<OwnEvent<Loaded<'static>>> {
    ///     let provider = cx.event_pipe_create_provider(Loaded::EVENT.provider)?;
    ///     cx.event_pipe_define(provider)
    /// }
    ///
    /// # #[allow(dead_code)]
    /// fn loaded(cx: &InCallback<'_>, kind: &OwnEvent<Loaded<'static>>, path: &str) -> Result<()> {
    ///     kind.write(cx, &Loaded { path: Text::from(path), classes: 12 })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`event_pipe_define_event`](Self::event_pipe_define_event); `E_INVALIDARG`: the provider has another name.
    pub fn event_pipe_define<E: ProviderEvent>(
        &mut self,
        provider: EventPipeProviderId<'static>,
    ) -> Result<OwnEvent<E>> {
        const CALL: &str = "EventPipeDefineEvent";
        let EventDefinition { provider: named, name, id, version, level, keywords, opcode, needs_stack, fields } =
            E::EVENT;
        if self.event_pipe_provider_info(provider)? != named {
            return Err(Error::new(E_INVALIDARG, CALL).about("provider", "its name is not that of the event's type"));
        }
        let fields: Vec<_> = fields
            .iter()
            .map(|field| EventPipeField { name: field.name, kind: field.ty, is_array: field.is_list })
            .collect();
        let definition = EventPipeEventDefinition {
            name,
            id,
            keywords: keywords.bits(),
            version,
            level,
            opcode,
            needs_stack,
            fields: &fields,
        };
        let id = self.event_pipe_define_event(provider, &definition)?;
        Ok(OwnEvent { id, event: PhantomData })
    }
}
