//! The profiler's own providers, their events, and listeners to their state.

use std::ffi::c_void;

use corprof_events::{FieldType, Level};
use corprof_sys as sys;
use windows_core::{BOOL, GUID};

use crate::context::InCallback;
use crate::error::{E_INVALIDARG, Error, Result};
use crate::ffi::buffer::to_utf16;
use crate::generated::contract::contract;
use crate::id::{EventPipeEventId, EventPipeProviderId};
use crate::info::Info;
use crate::report;
use crate::session::ending_threads::{AnyCall, refuse_in_thread_destroyed};

use super::EventPipePayload;
use crate::info::nested::Nested;

/// A field of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventPipeField<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type, or the type of its elements.
    pub kind: FieldType,
    /// Whether it is an array.
    pub is_array: bool,
}

/// A kind of event, as its provider describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventPipeEventDefinition<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its id within the provider.
    pub id: u32,
    /// The kinds that it belongs to; sessions select by these bits.
    pub keywords: u64,
    /// Its version, which increases when fields are added.
    pub version: u32,
    /// Its level.
    pub level: Level,
    /// Its role in a longer activity: 1 the start, 2 the stop, 0 neither.
    pub opcode: u8,
    /// Whether to record the stack with it.
    pub needs_stack: bool,
    /// Its fields, in the order of its payload.
    pub fields: &'a [EventPipeField<'a>],
}

/// The combined request of all sessions that listen to a provider.
///
/// When a session ends, level and keywords are those from before the end; without another session, `is_enabled` is
/// false. The next session begins without them (seen on .NET 8 and 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EventPipeProviderState<'a> {
    /// Whether any session listens.
    pub is_enabled: bool,
    /// The requested level, as a number.
    pub level: u8,
    /// The requested keywords: an event needs any of these.
    pub match_any_keywords: u64,
    /// The requested keywords: an event needs all of these.
    pub match_all_keywords: u64,
    /// The argument of the sessions, as raw bytes.
    pub filter: &'a [u8],
}

/// Called when the sessions that listen to a provider change.
///
/// The runtime passes no value by which the calls of two providers could be told apart, so there is no `self`: a type
/// stands for one provider, and keeps its state in a `static`.
pub trait EventPipeProviderListener {
    /// A session has begun or stopped listening, or has changed its request.
    ///
    /// Called on any thread, perhaps before the call that makes the provider has returned. A panic is reported and goes
    /// no further.
    fn changed(state: EventPipeProviderState<'_>);
}

unsafe extern "system" fn changed<L: EventPipeProviderListener>(
    _source: *const u8,
    is_enabled: u32,
    level: u8,
    match_any_keywords: u64,
    match_all_keywords: u64,
    filter: *mut sys::COR_PRF_FILTER_DATA,
    _data: *mut c_void,
) {
    // SAFETY: the filter is null or describes bytes that live until this call returns (fact: event-pipe).
    let filter = unsafe {
        filter
            .as_ref()
            .map_or(&[][..], |filter| crate::session::wire::slice(filter.Size, filter.Ptr as usize as *const u8))
    };
    let is_enabled = is_enabled != 0;
    let state = EventPipeProviderState { is_enabled, level, match_any_keywords, match_all_keywords, filter };
    crate::session::panics::catch(
        || L::changed(state),
        || report::line(format_args!("the listener {} panicked; the application goes on", std::any::type_name::<L>())),
    );
}

impl Info {
    /// Writes an event of the profiler's own; does nothing if no session listens.
    ///
    /// The payload must have the fields of the event's definition, in their order: the runtime passes it on unchecked.
    ///
    /// While a session of this profiler listens, the call makes
    /// [`event_pipe_event_delivered`](crate::Callbacks::event_pipe_event_delivered) on the calling thread. Hold no lock
    /// that this callback takes ([`sync`](crate::sync)).
    #[doc = contract!(EventPipeWriteEvent)]
    #[doc(alias = "EventPipeWriteEvent")]
    pub fn event_pipe_write_event(
        &self,
        event: EventPipeEventId,
        payload: &EventPipePayload,
        activity: Option<&GUID>,
        related_activity: Option<&GUID>,
    ) -> Result<()> {
        const CALL: &str = "EventPipeWriteEvent";
        let info = self.as_version::<sys::ICorProfilerInfo12>(CALL)?;
        let bytes = payload.as_bytes();
        let size = u32::try_from(bytes.len()).map_err(|_| Error::new(E_INVALIDARG, CALL))?;
        let data = sys::COR_PRF_EVENT_DATA { ptr: bytes.as_ptr().addr() as u64, size, reserved: 0 };
        let _call = AnyCall::begin();
        let pointer = |guid: Option<&GUID>| guid.map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: events live as long as their provider, which belongs to this profiler and is never deleted; the data
        // are read during the call, and the GUIDs may be null (fact: event-pipe, inputs).
        let code = unsafe {
            let count = u32::from(size != 0);
            info.EventPipeWriteEvent(event.as_raw(), count, &data, pointer(activity), pointer(related_activity))
        };
        Error::check(code, CALL)
    }
}

/// The runtime makes `thread_destroyed` under the lock of its list of threads, for threads that it has not started. A
/// session that begins meanwhile has EventPipe's lock and waits for that one (seen on .NET 8).
const OTHER_LOCK: &str =
    "the thread may hold a lock that a session wants which begins meanwhile: make this call in another callback";

impl InCallback<'_> {
    /// Makes a provider. Sessions request its events by its name.
    #[doc = contract!(EventPipeCreateProvider)]
    ///
    /// `E_INVALIDARG`: the name contains a NUL. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `thread_destroyed`; or
    /// `event_pipe_provider_created` makes providers recursively.
    #[doc(alias = "EventPipeCreateProvider")]
    pub fn event_pipe_create_provider(&mut self, name: &str) -> Result<EventPipeProviderId<'static>> {
        const CALL: &str = "EventPipeCreateProvider";
        refuse_in_thread_destroyed(CALL, OTHER_LOCK)?;
        let info = self.as_version::<sys::ICorProfilerInfo12>(CALL)?;
        let name = to_utf16(CALL, name)?;
        let _nested = Nested::begin(CALL)?;
        let mut provider = 0;
        // SAFETY: the name ends with a NUL; the call writes one id (fact: inputs, outputs).
        let code = unsafe { info.EventPipeCreateProvider(name.as_ptr(), &mut provider) };
        Error::check(code, CALL)?;
        EventPipeProviderId::from_raw(provider).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// Makes a provider like [`event_pipe_create_provider`](Self::event_pipe_create_provider), with `L` as the listener
    /// to its state.
    #[doc = contract!(EventPipeCreateProvider2)]
    ///
    /// `E_INVALIDARG`: the name contains a NUL. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `thread_destroyed`; or
    /// `event_pipe_provider_created` makes providers recursively.
    #[doc(alias = "EventPipeCreateProvider2")]
    pub fn event_pipe_create_provider_with<L: EventPipeProviderListener>(
        &mut self,
        name: &str,
    ) -> Result<EventPipeProviderId<'static>> {
        const CALL: &str = "EventPipeCreateProvider2";
        refuse_in_thread_destroyed(CALL, OTHER_LOCK)?;
        let info = self.as_version::<sys::ICorProfilerInfo14>(CALL)?;
        let name = to_utf16(CALL, name)?;
        let _nested = Nested::begin(CALL)?;
        let mut provider = 0;
        // SAFETY: the name ends with a NUL; the callback is a function of this library; the call writes one id
        // (fact: inputs, outputs).
        let code = unsafe { info.EventPipeCreateProvider2(name.as_ptr(), Some(changed::<L>), &mut provider) };
        Error::check(code, CALL)?;
        EventPipeProviderId::from_raw(provider).ok_or(Error::new(E_INVALIDARG, CALL))
    }

    /// Adds a kind of event to a provider of this profiler.
    #[doc = contract!(EventPipeDefineEvent)]
    ///
    /// `E_INVALIDARG`: a name contains a NUL. `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: in `thread_destroyed`.
    #[doc(alias = "EventPipeDefineEvent")]
    pub fn event_pipe_define_event(
        &mut self,
        provider: EventPipeProviderId<'static>,
        event: &EventPipeEventDefinition<'_>,
    ) -> Result<EventPipeEventId> {
        const CALL: &str = "EventPipeDefineEvent";
        refuse_in_thread_destroyed(CALL, OTHER_LOCK)?;
        let info = self.as_version::<sys::ICorProfilerInfo12>(CALL)?;
        let name = to_utf16(CALL, event.name)?;
        let names = event.fields.iter().map(|field| to_utf16(CALL, field.name)).collect::<Result<Vec<_>>>()?;
        let fields: Vec<_> = event
            .fields
            .iter()
            .zip(&names)
            .map(|(field, name)| {
                let kind = wire_type(field.kind).0.unsigned_abs();
                let array = sys::COR_PRF_EVENTPIPE_ARRAY.0.unsigned_abs();
                let (kind, element) = if field.is_array { (array, kind) } else { (kind, 0) };
                sys::COR_PRF_EVENTPIPE_PARAM_DESC { r#type: kind, elementType: element, name: name.as_ptr() }
            })
            .collect();
        let mut defined = 0;
        // SAFETY: the provider belongs to this profiler, as no other provider's identifier lives so long, and is never
        // deleted; all texts end with a NUL and outlive the call, which writes one id (fact: inputs, outputs,
        // event-pipe).
        let code = unsafe {
            info.EventPipeDefineEvent(
                provider.as_raw(),
                name.as_ptr(),
                event.id,
                event.keywords,
                event.version,
                event.level as u32,
                event.opcode,
                BOOL::from(event.needs_stack),
                u32::try_from(fields.len()).unwrap_or(u32::MAX),
                if fields.is_empty() { std::ptr::null() } else { fields.as_ptr() },
                &mut defined,
            )
        };
        Error::check(code, CALL)?;
        EventPipeEventId::from_raw(defined).ok_or(Error::new(E_INVALIDARG, CALL))
    }
}

fn wire_type(ty: FieldType) -> sys::COR_PRF_EVENTPIPE_PARAM_TYPE {
    match ty {
        FieldType::Boolean => sys::COR_PRF_EVENTPIPE_BOOLEAN,
        FieldType::Char => sys::COR_PRF_EVENTPIPE_CHAR,
        FieldType::SByte => sys::COR_PRF_EVENTPIPE_SBYTE,
        FieldType::Byte => sys::COR_PRF_EVENTPIPE_BYTE,
        FieldType::Int16 => sys::COR_PRF_EVENTPIPE_INT16,
        FieldType::UInt16 => sys::COR_PRF_EVENTPIPE_UINT16,
        FieldType::Int32 => sys::COR_PRF_EVENTPIPE_INT32,
        FieldType::UInt32 => sys::COR_PRF_EVENTPIPE_UINT32,
        FieldType::Int64 => sys::COR_PRF_EVENTPIPE_INT64,
        FieldType::UInt64 => sys::COR_PRF_EVENTPIPE_UINT64,
        FieldType::Single => sys::COR_PRF_EVENTPIPE_SINGLE,
        FieldType::Double => sys::COR_PRF_EVENTPIPE_DOUBLE,
        FieldType::DateTime => sys::COR_PRF_EVENTPIPE_DATETIME,
        FieldType::Guid => sys::COR_PRF_EVENTPIPE_GUID,
        FieldType::String => sys::COR_PRF_EVENTPIPE_STRING,
    }
}
