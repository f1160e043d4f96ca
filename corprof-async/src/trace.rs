//! What of a `.nettrace` matters here: buffers, samples and methods (feature `nettrace`, on by default).
//!
//! The events come one by one from a [`Reader`](corprof_nettrace::Reader), of a file or of a session. A file has its methods at its end, so
//! it is read twice: see the example `async_table`.

pub use corprof_nettrace as nettrace;

use corprof_nettrace::events::Provider;
use corprof_nettrace::events::views::{MethodDCEndVerbose, MethodLoadVerbose};
use corprof_nettrace::{Event, Stack};

use crate::decoder::{ASYNC_EVENTS, PROVIDER};
use crate::methods::MethodTable;

/// An event that matters.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum TraceEvent<'a> {
    /// A buffer of the async source, for [`Decoder::decode`](crate::Decoder::decode), and when it was written.
    Buffer {
        /// The bytes.
        payload: &'a [u8],
        /// In ticks of the trace.
        written: u64,
    },
    /// A stack of a thread by the runtime's sampler.
    Sample {
        /// The system's number of the thread.
        thread: u64,
        /// In ticks of the trace.
        ticks: u64,
        /// The stack.
        stack: Stack<'a>,
    },
}

/// The buffer or sample that the event is, if it is one.
#[must_use]
pub fn classify<'a>(event: &Event<'a>) -> Option<TraceEvent<'a>> {
    let metadata = event.metadata();
    if metadata.provider == PROVIDER && metadata.event_id == ASYNC_EVENTS {
        return Some(TraceEvent::Buffer { payload: event.payload(), written: event.ticks() });
    }
    let is_sample = Provider::of(&metadata.provider) == Provider::SAMPLE_PROFILER;
    if !is_sample {
        return None;
    }
    Some(TraceEvent::Sample { thread: event.os_thread_id()?, ticks: event.ticks(), stack: event.stack() })
}

/// Adds the method that the event tells, if it tells one: an event of the rundown or of a method that was loaded.
pub fn add_method(event: &Event<'_>, methods: &mut MethodTable) {
    let decoded = event.decoded();
    if let Ok(method) = decoded.decode::<MethodDCEndVerbose<'_>>() {
        let name = format!("{}.{}", method.method_namespace, method.method_name);
        methods.add(method.method_id, method.start_address, method.method_size, &name);
    } else if let Ok(method) = decoded.decode::<MethodLoadVerbose<'_>>() {
        let name = format!("{}.{}", method.method_namespace, method.method_name);
        methods.add(method.method_id, method.start_address, method.method_size, &name);
    }
}
