#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
//! Logical call stacks of .NET's async code: who awaits what a thread runs, who started it, and where operations wait.
//!
//! The stack of a thread shows the async method that runs, and below it the thread pool: the methods that await it are
//! not there, because they have returned long ago. The runtime of .NET 11 tells them, by the provider [`PROVIDER`], for
//! runtime async and for state machines: each operation with its chain of methods when a thread resumes it. Here the
//! [`Decoder`] reads that, [`LogicalStacks`] know what each thread ran at each time, and [`LogicalStacks::join`] makes
//! of a physical stack a [`LogicalStack`]:
//!
//! | [`Origin`] | frames, the innermost first | from |
//! |---|---|---|
//! | `Physical` | what the async method has called, and the method itself | the stack of the thread |
//! | `Awaiting` | the methods that await it, each the one before | the chain of the operation |
//! | `Awaiting` | the methods of other operations that await this one, as by `Task.WhenAll` or an iterator | what a thread resumes at its end |
//! | `Creator` | the method that started the operation, with what awaited it then, and who started that | creations, and [what methods call](Methods::calls) |
//!
//! [`Waits`] tell how long operations waited, and where. [`Requests`] put together what operations did for each
//! request, with its [`Activity`] if there is one: what ran when, and what was waited for. Both tell how much of a wait
//! was in the queue of the thread pool, if they are told what is queued and taken.
//!
//! # A file
//!
//! ```no_run
//! # #[cfg(feature = "nettrace")] {
//! use std::fs::File;
//!
//! use corprof_async::trace::nettrace::Reader;
//! use corprof_async::trace::{TraceEvent, add_method, classify};
//! use corprof_async::{Decoder, LogicalStack, LogicalStacks, MethodTable};
//!
//! // The names of methods are at the end of a trace, and what a thread ran comes after the samples of that time.
//! let mut methods = MethodTable::new();
//! let mut decoder = Decoder::new();
//! let mut stacks = LogicalStacks::new();
//! let mut reader = Reader::new(File::open("app.nettrace")?);
//! while let Some(event) = reader.next_event()? {
//!     add_method(&event, &mut methods);
//!     if let Some(TraceEvent::Buffer { payload, written }) = classify(&event) {
//!         stacks.take_buffer(&decoder.decode(payload)?, written, |_step| {});
//!     }
//! }
//! let mut stack = LogicalStack::new();
//! let mut reader = Reader::new(File::open("app.nettrace")?);
//! while let Some(event) = reader.next_event()? {
//!     let Some(TraceEvent::Sample { thread, ticks, stack: physical }) = classify(&event) else { continue };
//!     let physical: Vec<u64> = physical.addresses().collect();
//!     stacks.join(thread, ticks, &physical, &methods, &mut stack);
//!     for frame in &stack.frames {
//!         println!("{:?} {}", frame.origin, methods.name_at(frame.address).unwrap_or("?"));
//!     }
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `async_allocations` tells which endpoint allocates, `async_requests` where the slowest request waited.
//!
//! This keeps all that threads did. A recording of days instead holds its samples until all threads have told that
//! time, which a thread that is never idle does after some ten seconds, joins them, and
//! [releases](LogicalStacks::release) that time.
//!
//! # In a profiler
//!
//! A profiler in the process needs neither file nor port: it starts a session of the provider, decodes its events, and
//! joins its own stacks when their threads have told that time. [`AskedMethods`] ask the runtime for methods. The
//! example `async_stack` of [corprof](https://docs.rs/corprof) does this with the stack of each exception.
//!
//! # What a session needs
//!
//! The provider at level 4 with these keywords, on .NET 11 or later:
//!
//! | keywords | for |
//! |---|---|
//! | `0xF05C` | logical stacks without creators |
//! | `0x2F65D`, [`STACK_KEYWORDS`] | these, and creators |
//! | `0xF4DD` | logical stacks, creators with methods that had returned already, and waits with their places |
//! | `0x3FFFF` | everything, also how many methods have returned |
//!
//! Without the keywords of unwinds (`0x10`, `0x4000`) .NET 11 does not tell the end of operations that an exception
//! ends, and their threads seem to run them until another one ends there.
//!
//! A thread writes its buffer when it is full, and the runtime each second those of threads that were idle for 250 ms;
//! the end of a session writes nothing. Before it ends, start a second session of the provider, which has all threads
//! write their buffers, and wait for the [`ANSWER_TIME`], in a busy process [longer](time_when_late). While it runs, ask so
//! at most every [`QUESTION_INTERVAL`], and say up to when all have answered ([`LogicalStacks::settle_all`]).
//!
//! # Another source
//!
//! [`LogicalStacks::take`] takes sub-events that were not decoded but made, such as those of a probe on .NET 8 and 10.
//! It needs [`Reset`](Action::Reset) once for each thread, [`Resume`](Action::Resume) and a [`Callstack`] each time
//! that an operation runs, then [`Suspend`](Action::Suspend) or [`Complete`](Action::Complete);
//! [`Create`](Action::Create) gives creators and first waits.
//!
//! # Memory and hostile bytes
//!
//! No bytes cause a panic. The decoder allocates nothing, and its time is bounded by the length of the buffer.
//! [`Limits`] bound the memory of logical stacks for any sub-events, [`RequestLimits`] that of requests, and the
//! arguments of [`Waits::new`] that of waits; what was forgotten is counted.

mod bytes;
mod decoder;
mod endpoint;
mod error;
mod frame;
mod methods;
mod oldest;
mod operation;
mod order;
mod queue;
mod request;
mod requests;
mod stacks;
mod step;
mod sub_event;
#[cfg(feature = "nettrace")]
pub mod trace;
mod waits;

pub use decoder::{
    ANSWER_TIME, ASYNC_EVENTS, Buffer, Decoder, PROVIDER, QUESTION_INTERVAL, STACK_KEYWORDS, StreamId, SubEvents,
    time_when_late,
};
pub use endpoint::EndpointNames;
pub use error::{DecodeError, Problem};
pub use frame::{Chain, Frame, Frames, Kind};
pub use methods::{AskedMethods, MethodTable, Methods};
pub use operation::{Operation, OperationWait, Run};
pub use queue::Queued;
pub use request::{Activity, ActivityKind, Call, Request, RequestLimits};
pub use requests::Requests;
pub use stacks::{
    Active, Limits, LogicalFrame, LogicalStack, LogicalStacks, Origin, Outcome, Segment, Stats, WrapperMatch,
};
pub use step::{Change, Step};
pub use sub_event::{Action, Callstack, DispatcherId, Metadata, Moment, SubEvent};
pub use waits::{Wait, Waits};
