//! Decodes events of the .NET runtime and of EventSources: names, fields, and typed views of those that people use.
//!
//! Needs no runtime and nothing of the other crates: give it provider, number, version and payload, wherever they come
//! from: a profiler's EventPipe session, a diagnostics port, a `.nettrace` file. `corprof-nettrace` does so for the
//! last two.
//!
//! ```
//! use corprof_events::views::ThreadPoolWorkerThreadAdjustment;
//! use corprof_events::{AdjustmentReason, Event, Provider};
//!
//! fn on_event(event: &Event<'_>) {
//!     if let Ok(change) = event.decode::<ThreadPoolWorkerThreadAdjustment>() {
//!         if change.reason == AdjustmentReason::STARVATION {
//!             println!("starved: {} workers", change.new_worker_thread_count);
//!         }
//!     } else {
//!         let fields: Vec<String> = event.fields().map(|(name, value)| format!("{name}={value}")).collect();
//!         println!("{} {}", event.name(), fields.join(" "));
//!     }
//! }
//! # on_event(&Event::new(Provider::RUNTIME, 55, 0, &[0; 18], true));
//! ```
//!
//! # Where the knowledge comes from
//!
//! The runtime's own events carry neither names nor fields. Their layouts are from the manifest of .NET 10
//! ([`runtime_events`] and others); a newer runtime appends fields, so the known ones stay readable. Events of
//! EventSources describe themselves ([`Description`]), but not always as they are written: the widths of their values
//! are found by trying which of those that EventSources use fit the payload. What no description accounts for
//! ([`Event::is_exact`]) is bytes ([`Event::payload`]).
//!
//! Events of whole machines are in [`universal`], which also writes them.
//!
//! # Cost
//!
//! Nothing is allocated, and only requested fields are decoded. A typed view costs some nanoseconds
//! (`examples/cost.rs`); a field by its name, those before it, and all of them once where the event describes itself.
//!
//! # Hostile bytes
//!
//! No payload or description causes a panic, and the time for decoding is bounded by the length of the payload.

#![forbid(unsafe_code)]

// The derive refers to this crate by its external name.
#[cfg(test)]
extern crate self as corprof_events;

mod cursor;
mod description;
mod event;
mod field;
mod file_time;
mod generated;
mod keyword_names;
mod keywords;
mod manifest;
mod manifest_event;
mod misfit;
mod provider;
mod provider_event;
pub mod recording;
mod scalar;
mod shown;
mod text;
mod types;
pub mod universal;
mod universal_rows;
mod value;
mod values;
mod view;

/// Implements [`ProviderEvent`](trait@ProviderEvent) and [`View`] for a struct.
#[cfg(feature = "derive")]
pub use corprof_macros::ProviderEvent;
pub use description::{Description, FieldList};
pub use event::Event;
pub use field::{EventField, FieldType};
pub use generated::views;
pub use keywords::{KeywordSet, Keywords, Level};
pub use manifest::{private_events, rundown_events, runtime_events, sample_profiler_events};
pub use manifest_event::ManifestEvent;
pub use misfit::Misfit;
pub use provider::Provider;
#[doc(hidden)]
pub use provider_event::Decoder;
pub use provider_event::{EncodeError, EventDefinition, FieldDefinition, ProviderEvent};
pub use text::Text;
pub use types::described::Layout;
pub use value::{Fields, List, Record, Value};
pub use values::{
    AdjustmentReason, AllocationKind, ContentionFlags, GcKind, GcReason, RootFlags, RootKind, SuspendReason, WaitSource,
};
pub use view::{DecodeError, Item, Items, View};
