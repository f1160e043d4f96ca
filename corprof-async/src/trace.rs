//! What of a `.nettrace` matters here: buffers, samples and methods (feature `nettrace`, on by default).
//!
//! The events come one by one from a [`Reader`](corprof_nettrace::Reader), of a file or of a session. A file has its
//! methods at its end, so it is read twice: see the example `async_table`.

pub use corprof_nettrace as nettrace;

use std::collections::HashMap;

use corprof_nettrace::events::universal::ProcessSymbol;
use corprof_nettrace::events::views::{MethodDCEndVerbose, MethodLoadVerbose};
use corprof_nettrace::events::{self, Provider, Value};
use corprof_nettrace::{Event, Stack};

use crate::decoder::{ASYNC_EVENTS, PROVIDER};
use crate::endpoint::endpoint;
use crate::methods::MethodTable;
use crate::request::{Activity, ActivityKind};

/// An event that matters.
#[derive(Debug, Clone)]
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
    /// An activity began or ended, for [`Requests`](crate::Requests).
    Activity {
        /// The system's number of the thread.
        thread: u64,
        /// In ticks of the trace.
        ticks: u64,
        /// Whether it began.
        is_start: bool,
        /// The activity.
        activity: Activity,
    },
    /// A request to ASP.NET Core is about to end, for [`EndpointNames`](crate::EndpointNames).
    RequestEnds {
        /// The system's number of the thread.
        thread: u64,
        /// The method, and the path as the route has it: `GET /orders/{id}`.
        endpoint: String,
    },
    /// Work was put into the queue of the thread pool, for [`Waits`](crate::Waits) and [`Requests`](crate::Requests).
    WorkQueued {
        /// In ticks of the trace.
        ticks: u64,
        /// The number of the work: another one may have the same.
        work: u64,
    },
    /// A thread took work from the queue of the thread pool.
    WorkTaken {
        /// In ticks of the trace.
        ticks: u64,
        /// The system's number of the thread.
        thread: u64,
        /// The number of the work.
        work: u64,
    },
}

/// The provider whose events tell what is put into the queue of the thread pool and taken from it, at the keyword 2 and
/// level 5.
pub const QUEUE_PROVIDER: &str = "System.Diagnostics.Eventing.FrameworkEventSource";

/// Its event of what is put into the queue.
const WORK_QUEUED: u32 = 30;

/// Its event of what is taken from the queue, on the thread that does it.
pub const WORK_TAKEN: u32 = 31;

/// The provider whose events tell activities, at the keyword 2 and level 5.
pub const ACTIVITY_PROVIDER: &str = "Microsoft-Diagnostics-DiagnosticSource";

/// What an event of ASP.NET Core tells of the request.
macro_rules! end_of_request {
    ($name:literal) => {
        concat!(
            "Microsoft.AspNetCore/Microsoft.AspNetCore.Hosting.",
            $name,
            ":-Method=httpContext.Request.Method;Path=httpContext.Request.Path.Value;",
            "Route=httpContext.Request.RouteValues.*Enumerate;Status=httpContext.Response.StatusCode"
        )
    };
}

/// The argument `FilterAndPayloadSpecs` for [`ACTIVITY_PROVIDER`], quoted as it must be: all activities, with what is
/// read here, and what requests to ASP.NET Core were for. Before .NET 11 their activities do not tell that.
pub const ACTIVITY_ARGUMENTS: &str = concat!(
    "FilterAndPayloadSpecs=\"[AS]*:-TraceId;SpanId;ParentSpanId;DisplayName;Kind\n",
    end_of_request!("EndRequest"),
    "\n",
    end_of_request!("UnhandledException"),
    "\""
);

/// The names of the events of the latter: after a request has been answered, or an exception has ended it.
const ENDS_OF_REQUESTS: [&str; 2] =
    ["Microsoft.AspNetCore.Hosting.EndRequest", "Microsoft.AspNetCore.Hosting.UnhandledException"];

/// What the event is, if it matters.
#[must_use]
pub fn classify<'a>(event: &Event<'a>) -> Option<TraceEvent<'a>> {
    let metadata = event.metadata();
    if metadata.provider == PROVIDER && metadata.event_id == ASYNC_EVENTS {
        return Some(TraceEvent::Buffer { payload: event.payload(), written: event.ticks() });
    }
    if metadata.provider == ACTIVITY_PROVIDER {
        return activity(event).or_else(|| end_of_request(event));
    }
    if metadata.provider == QUEUE_PROVIDER {
        return work(event);
    }
    let is_sample = Provider::of(&metadata.provider) == Provider::SAMPLE_PROFILER;
    if !is_sample {
        return None;
    }
    Some(TraceEvent::Sample { thread: event.os_thread_id()?, ticks: event.ticks(), stack: event.stack() })
}

/// Adds the method that the event tells, if it tells one: an event of the rundown, of a method that was loaded, or of a
/// symbol, as recordings of corprof have them.
pub fn add_method(event: &Event<'_>, methods: &mut MethodTable) {
    let decoded = event.decoded();
    if let Ok(method) = decoded.decode::<MethodDCEndVerbose<'_>>() {
        let name = format!("{}.{}", method.method_namespace, method.method_name);
        methods.add(method.method_id, method.start_address, method.method_size, &name);
    } else if let Ok(method) = decoded.decode::<MethodLoadVerbose<'_>>() {
        let name = format!("{}.{}", method.method_namespace, method.method_name);
        methods.add(method.method_id, method.start_address, method.method_size, &name);
    } else if let Ok(symbol) = decoded.decode::<ProcessSymbol<'_>>() {
        let size = symbol.end_address.saturating_sub(symbol.start_address).saturating_add(1);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        methods.add(symbol.id, symbol.start_address, size, &symbol.name.to_string());
    }
}

/// Their only field is the number of the work.
fn work<'a>(event: &Event<'a>) -> Option<TraceEvent<'a>> {
    let (bytes, _) = event.payload().split_first_chunk()?;
    let work = u64::from_le_bytes(*bytes);
    let ticks = event.ticks();
    match event.metadata().event_id {
        WORK_QUEUED => Some(TraceEvent::WorkQueued { ticks, work }),
        WORK_TAKEN => Some(TraceEvent::WorkTaken { ticks, thread: event.os_thread_id()?, work }),
        _ => None,
    }
}

/// The numbers of these events differ from session to session, but not their names.
fn activity<'a>(event: &Event<'a>) -> Option<TraceEvent<'a>> {
    let decoded = event.decoded();
    let is_start = decoded.name() == "ActivityStart";
    if !is_start && decoded.name() != "ActivityStop" {
        return None;
    }
    let Described { source, name, arguments } = Described::of(&decoded);
    let mut activity = Activity { source, name, ..Activity::default() };
    for (key, value) in arguments {
        let span = || u64::from_str_radix(&value, 16).unwrap_or_default();
        match &key[..] {
            "TraceId" => activity.trace_id = u128::from_str_radix(&value, 16).unwrap_or_default(),
            "SpanId" => activity.span_id = span(),
            "ParentSpanId" => activity.parent_span_id = span(),
            "Kind" => activity.kind = kind(&value),
            "DisplayName" => activity.display_name = value,
            _ => {}
        }
    }
    Some(TraceEvent::Activity { thread: event.os_thread_id()?, ticks: event.ticks(), is_start, activity })
}

fn end_of_request<'a>(event: &Event<'a>) -> Option<TraceEvent<'a>> {
    let decoded = event.decoded();
    if decoded.name() != "Event" {
        return None;
    }
    let Described { name, arguments, .. } = Described::of(&decoded);
    if !ENDS_OF_REQUESTS.contains(&&*name) {
        return None;
    }
    let arguments: HashMap<String, String> = arguments.into_iter().collect();
    let of = |name| arguments.get(name).map_or("", String::as_str);
    let endpoint = endpoint(of("Method"), of("Path"), of("Route"), of("Status"));
    Some(TraceEvent::RequestEnds { thread: event.os_thread_id()?, endpoint })
}

/// The fields of an event of the source.
#[derive(Default)]
struct Described {
    source: String,
    /// Of the activity or of the event.
    name: String,
    /// Keys and values.
    arguments: Vec<(String, String)>,
}

impl Described {
    /// Goes through the fields once: to look each up by its name would read all before it again.
    fn of(event: &events::Event<'_>) -> Self {
        let mut described = Self::default();
        for (field, value) in event.fields() {
            if field == "SourceName" {
                described.source = text(value);
            } else if field == "ActivityName" || field == "EventName" {
                described.name = text(value);
            } else if let Some(list) = value.as_list().filter(|_| field == "Arguments") {
                described.arguments = list.iter().filter_map(argument).collect();
            }
        }
        described
    }
}

fn text(value: Value<'_>) -> String {
    value.as_text().map(|text| text.to_string()).unwrap_or_default()
}

/// A key and its value.
fn argument(pair: Value<'_>) -> Option<(String, String)> {
    let (mut key, mut value) = (None, None);
    for (field, text) in pair.as_record()?.fields() {
        if field == "Key" {
            key = text.as_text();
        } else if field == "Value" {
            value = text.as_text();
        }
    }
    Some((key?.to_string(), value?.to_string()))
}

fn kind(name: &str) -> ActivityKind {
    match name {
        "Server" => ActivityKind::Server,
        "Client" => ActivityKind::Client,
        "Producer" => ActivityKind::Producer,
        "Consumer" => ActivityKind::Consumer,
        _ => ActivityKind::Internal,
    }
}
