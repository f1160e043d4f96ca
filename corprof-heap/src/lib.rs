//! Heap snapshots of .NET processes: who keeps what alive.

mod addresses;
mod bits;
mod builder;
mod classes;
mod dominators;
mod graph;
mod liveness;
mod losses;
mod roots;
mod varint;

pub use builder::bulk::BulkReader;
pub use builder::{GraphBuilder, TooLarge};
pub use classes::{Class, ClassId};
pub use dominators::Dominators;
pub use graph::{Ephemeron, HeapGraph, ObjectId};
pub use liveness::Freed;
pub use losses::Losses;
pub use roots::{Root, RootKind};
