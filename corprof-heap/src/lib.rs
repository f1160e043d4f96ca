//! Heap snapshots of .NET processes: who keeps what alive.

mod addresses;
mod bits;
mod builder;
pub mod chrome;
mod classes;
pub mod diff;
mod dominators;
pub mod file;
mod graph;
mod liveness;
mod losses;
mod paths;
pub mod perfetto;
pub mod report;
mod roots;
mod totals;
mod varint;

pub use builder::bulk::BulkReader;
pub use builder::{GraphBuilder, TooLarge};
pub use classes::{Class, ClassId};
pub use dominators::Dominators;
pub use graph::{Ephemeron, HeapGraph, ObjectId};
pub use liveness::Freed;
pub use losses::Losses;
pub use paths::{Link, Path, Paths};
pub use roots::{Root, RootKind};
pub use totals::{Total, Totals};
