#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]
//! Reads `.nettrace`, the format of EventPipe traces, from a file or while it is being written.
//!
//! [`Reader`] takes any [`Read`](std::io::Read), also a session of `corprof-diagnostics`, and hands out one [`Event`]
//! after the other. Versions 4, 5 and 6 are read, as described in the documents `NetTraceFormat_v5.md` and
//! `NetTraceFormat.md` of microsoft/perfview:
//!
//! | version | written by | how it is tested here |
//! |---|---|---|
//! | 4 | every .NET runtime from 3.0 to 10 | traces of dotnet-trace, compared with TraceEvent; live sessions |
//! | 5 | no runtime that the tests have | files that the tests build from the specification |
//! | 6 | `dotnet-trace collect-linux`, others than .NET | files that the tests build from the specification |
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
//! # Names and fields
//!
//! [`Event::decoded`] gives the event to [`events`], which knows its fields by their names, and the runtime's by their
//! types.

mod blocks;
mod buffer;
#[doc(hidden)]
pub mod bytes;
mod error;
mod event;
mod header;
mod labels;
mod limits;
mod metadata;
mod objects;
mod reader;
mod sequence;
mod sorter;
mod stacks;
mod tables;
mod threads;
mod trace;

pub use corprof_events as events;
pub use uuid::Uuid;

pub use error::{Error, FormatError, FormatErrorKind};
pub use event::{Event, Item, SequencePoint};
pub use labels::{Label, Labels};
pub use limits::Limits;
pub use metadata::Metadata;
pub use reader::{Reader, Stats};
pub use sorter::Sorter;
pub use stacks::Stack;
pub use threads::Thread;
pub use trace::{Trace, UtcTime};
