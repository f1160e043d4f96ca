//! The table of the profilers that the command `corprof` has built in, and of their settings.
//!
//! [`table`] has a row for each profiler: its name, its CLSID, its purpose, and its settings with their defaults,
//! ranges and meanings. The help of `corprof`, `corprof run --list`, the reference of the book and the checks at a
//! profiler's start are made from it. [`settings`] reads the settings of a profiler and checks them.
//!
//! [`sdk`] tells an application's process from those of a .NET SDK, for the profilers and for the command.
//!
//! A [`TracePattern`] says whose slow calls `corprof record --trace` keeps.
//!
//! [`is_recording`] tells the files that keep each sample from those with sums, by their names.
//!
//! [`part_glob`] is the glob that a user means who looks for frames or methods.
//!
//! [`eprintln!`] prints a line for those whose standard error may have no reader, and [`known_callers`] is such a line.
//!
//! The profilers themselves are in the folder `library`. They make a shared library, which `corprof` embeds. This crate
//! does not have their dependencies.

mod name_glob;
mod notes;
mod recording_name;
pub mod sdk;
pub mod settings;
pub mod table;
mod trace_pattern;

pub use name_glob::part_glob;
pub use notes::known_callers;
pub use recording_name::{RECORDINGS, is_packed_recording, is_recording};
pub use trace_pattern::TracePattern;

/// The folder of this package: what the build script of corprof-cli builds.
pub const FOLDER: &str = env!("CARGO_MANIFEST_DIR");
