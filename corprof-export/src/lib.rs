//! Writes profiles in the formats that people have viewers for.
//!
//! A [`Profile`] is gathered once and written as often as wanted; the extension of the path chooses the [`Format`].
//!
//! ```
//! use std::time::Duration;
//! use corprof_export::{Frame, Profile, Unit};
//!
//! let mut profile = Profile::new("shop", Unit::Samples).with_interval(Duration::from_millis(10));
//! let main = profile.frame(Frame::managed("Shop.Main()").in_module("Shop.dll"));
//! let read = profile.frame(Frame::native("read").in_module("libc.so.6"));
//! let stack = profile.stack_root_first([main, read]);
//! let thread = profile.thread(4711, "main");
//! profile.sample(thread, Duration::from_millis(10), stack, 1);
//! # let dir = tempfile::tempdir()?;
//! # std::env::set_current_dir(&dir)?;
//! profile.write("shop.svg")?;
//! profile.write("shop.pb.gz")?;
//! # std::env::set_current_dir("/")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A file is written beside its target and renamed, so that a half-written one never replaces a good one. [`Output`]
//! fills the process id into its name, and keeps the file of another run.
//!
//! # Description of the run
//!
//! Every format contains the description of the run: the application (the profile's name), the [`Mode`], the rate that
//! was requested and the one reached, the rounds of the sampler, the duration, and the skipped samples with the reasons
//! ([`set_skipped`](Profile::set_skipped)). [`caption`](Profile::caption) is the same for a terminal. Pictures warn in
//! red of too few samples, and show the texts of [`warn`](Profile::warn).
//!
//! Calls in the order in which they happened go to a [`Trace`], which is written as it comes. Tables of methods are
//! made of [`Method`]s, as text and as CSV.
//!
//! # To a fleet
//!
//! With the feature `push`, the module `push` sends profiles to Grafana Pyroscope and Parca in intervals; with
//! `push-otlp` to an OpenTelemetry Collector as well. [`Profile::take_part`] makes the profile of an interval.
//!
//! # Memory
//!
//! Names, frames and stacks are kept once each. A stack is a node that names its caller's node: about 20 bytes for each
//! distinct path of calls, and [`Profile::with_stack_limit`] bounds their number. On top of that, [`Profile::new`]
//! keeps 24 bytes a sample; [`Profile::summed`] keeps 32 bytes for each pair of thread and stack, however many samples
//! there are.
//!

mod about;
mod busiest;
mod caption;
mod change;
mod error;
mod firefox;
mod flame_graph;
mod folded;
mod format;
mod frame;
mod heat;
mod html;
mod kind;
mod label;
mod methods;
mod names;
mod output;
mod part;
mod pprof;
mod profile;
#[cfg(feature = "push")]
pub mod push;
mod slow_call_table;
mod slow_calls;
mod source;
mod speedscope;
mod stack;
mod table;
mod thread;
mod trace;
mod view;
mod write;

pub use about::Mode;
pub use change::Change;
pub use error::Error;
pub use flame_graph::escaped;
pub use format::Format;
pub use frame::{Frame, FrameId, FrameKind};
pub use heat::{Heat, HeatMap, Lane};
pub use label::{Relative, STARTED_BY, as_inlined, class_in_source, field_in_source, in_source, telling_method};
pub use methods::Method;
pub use output::{Output, OutputFile, Written, application_name};
pub use profile::{Losses, Profile, Unit};
pub use slow_calls::{CallEnding, SlowCall, SlowCalls, SlowStack};
pub use source::SourceLines;
pub use stack::StackId;
pub use table::Table;
pub use thread::ThreadId;
pub use trace::{Short, Trace};
