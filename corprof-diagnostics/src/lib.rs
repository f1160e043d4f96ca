#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(windows), forbid(unsafe_code))]
#![cfg_attr(windows, deny(unsafe_code))]
//! A client for running .NET processes: identifies them, attaches profilers, receives events.
//!
//! A .NET runtime (.NET 8 and later) listens at a socket or a pipe of its own, the *diagnostics port*. [`Process`]
//! finds it, [`Client`] asks, [`PortServer`] has runtimes connect instead, from their start on. An [`EventPipeSession`]
//! is a trace while it is written: `corprof-nettrace` reads its events.
//!
//! ```no_run
//! use corprof_diagnostics::Process;
//!
//! for process in Process::all()? {
//!     let info = process.client().process_info()?;
//!     println!("{} {} {}", process.pid(), info.clr_version, info.command_line);
//! }
//! # Ok::<(), corprof_diagnostics::Error>(())
//! ```
//!
//! # Effects on the process
//!
//! A runtime serves one client at a time, on one thread, and waits without limit for a silent client. So this crate
//! never connects only to test for a runtime, sends each request in one piece, and closes the connection at once after
//! the answer or on any doubt. Every call has a deadline ([`Client::with_timeout`]), also against a process that never
//! answers, answers one byte a second, or closes early.
//!
//! # Errors
//!
//! An [`Error`] names the request, the failure, the runtime's code by its name ([`HResult`]) if there is one, and the
//! cure.
//!
//! # Options that need a newer runtime
//!
//! | option | from |
//! |---|---|
//! | [`SessionConfig::without_stacks`], [`Rundown::Keywords`] | .NET 9 (8.0.4 does not know the command) |
//! | [`Provider::with_filter`] | .NET 10 |
//!
//! # Systems
//!
//! Linux: tested live on .NET 10 and 8, in a container as well. Windows: the pipes are tested under Wine, and process
//! info and environment were asked of .NET 8 there. macOS: written, not tested.

mod client;
mod connections;
mod deadline;
mod discovery;
mod environment;
mod error;
mod hresult;
pub mod ipc;
mod owner;
mod process_info;
mod server;
mod session;
mod transport;

pub use corprof_events::{KeywordSet, Level};

pub use client::{Client, DEFAULT_TIMEOUT};
pub use discovery::{Process, Scan};
pub use environment::Environment;
pub use error::{Error, Result};
pub use hresult::HResult;
pub use owner::Owner;
pub use process_info::ProcessInfo;
pub use server::{PortServer, Runtime, Start};
pub use session::{EventFilter, EventPipeSession, FullBuffer, Provider, Rundown, SessionConfig};
pub use uuid::Uuid;
