//! Heap snapshots of .NET processes: who keeps what alive.

mod addresses;
mod bits;
mod builder;
mod classes;
pub mod diff;
mod dominators;
mod graph;
mod liveness;
mod losses;
mod paths;
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
