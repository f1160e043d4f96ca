#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
//! Reads `.nettrace`, the format of EventPipe traces, from a file or while it is being written; and writes it.
//!
//! [`Reader`] takes any [`Read`](std::io::Read), also a session of `corprof-diagnostics`, and hands out one [`Event`]
//! after the other. Versions 4, 5 and 6 are read, as described in the documents `NetTraceFormat_v5.md` and
//! `NetTraceFormat.md` of microsoft/perfview:
//!
//! | version | written by | how it is tested here |
//! |---|---|---|
//! | 4 | every .NET runtime from 3.0 to 10 | traces of dotnet-trace, compared with TraceEvent; live sessions |
//! | 5 | no runtime that the tests have | files that the tests build from the specification |
//! | 6 | [`Writer`], `dotnet-trace collect-linux`, others than .NET | files that the tests build from the specification; the writer's, compared with dotnet-trace |
//!
//! # Order
//!
//! Events come in the order of the file: those that one thread captured are in the order of their time, those of
//! several threads are not. All events before a [`SequencePoint`] are older than all after it, and nothing that follows
//! a [sorted event](Event::is_sorted) is older than that. A [`Sorter`] puts them in order of time by both.
//!
//! # Loss
//!
//! A runtime with full buffers drops events silently. [`Stats::lost`] counts the gaps in the numbers that
//! each thread gives its events.
//!
//! # Memory
//!
//! Bounded by [`Limits`] for any input: one block, the definitions of events, and the threads, stacks and labels
//! between two sequence points. A trace that needs more is an error that names the limit.
//!
//! # Written traces
//!
//! [`Writer`] writes version 6, from [`NewEvent`]s or copies of an [`Event`]. Beyond the specification, TraceEvent (the
//! reader of PerfView, dotnet-trace and Visual Studio) demands what is in this table. The writer does it by itself, or
//! refuses what cannot be done with a [`WriteError`]. `tests/demands_of_trace_event.rs` has a test for each line.
//!
//! | demand | otherwise |
//! |---|---|
//! | the header has a date that exists, and a clock with ticks | error |
//! | definitions and threads come before what refers to them; each number is given once, of definitions from 1 on, of threads again after a sequence point at the earliest | error |
//! | stacks and labels of an event are written after the last sequence point, under numbers that are not in use since | error, or no stack |
//! | an event that is not sorted has the capturing thread of the event before in its block | it is counted, and put in order, as one of that thread |
//! | the time does not go back in a block, nor among the events of a thread, nor behind a sorted event or a sequence point | wrong order |
//! | each thread's events are numbered from 1 on | as many lost events as numbers are missing |
//! | a payload has at most 65,535 bytes, a stack 65,527; an event's number fits into 16 bits, level and version into 8 | cut off |
//! | types of fields, labels and options are known | error |
//! | a trace ends with a sequence point and an end | error; the example `copy` gives an end to a trace that was cut |
//!
//! # Names and fields
//!
//! [`Event::decoded`] gives the event to [`events`], which knows its fields by their names, and the runtime's by their
//! types.

mod blocks;
mod buffer;
#[doc(hidden)]
pub mod bytes;
mod copy;
mod encode;
mod error;
mod event;
mod header;
mod interned;
mod labels;
mod limits;
mod metadata;
mod new_event;
mod objects;
mod reader;
mod sequence;
mod sorter;
mod stacks;
mod tables;
mod threads;
mod trace;
mod writer;

pub use corprof_events as events;
pub use uuid::Uuid;

pub use copy::{CopyError, copy};
pub use error::{Error, FormatError, FormatErrorKind, WriteError};
pub use event::{Event, Item, SequencePoint};
pub use labels::{Label, Labels};
pub use limits::Limits;
pub use metadata::Metadata;
pub use new_event::NewEvent;
pub use reader::{Reader, Stats};
pub use sorter::Sorter;
pub use stacks::Stack;
pub use threads::Thread;
pub use trace::{Trace, UtcTime};
pub use writer::Writer;
