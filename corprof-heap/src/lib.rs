//! Heap snapshots of .NET processes: which classes take the memory, and which objects keep it alive.
//!
//! Needs no runtime and nothing of the other crates: objects, references and roots come from the runtime's heap-dump
//! events ([`BulkReader`]), from a profiler's callbacks ([`GraphBuilder`]), or from a file ([`HeapGraph::read`]).
//!
//! ```
//! use corprof_heap::report::{Names, Options, Report};
//! use corprof_heap::{Dominators, GraphBuilder, RootKind};
//!
//! let mut builder = GraphBuilder::new("shop");
//! builder.class(7, "Shop.Cache", "Shop", 24);
//! builder.class(8, "Shop.Order[]", "Shop", 24);
//! builder.object(0x1000, 7, 24);
//! builder.object(0x1018, 8, 8024);
//! builder.reference(0x1000, 0x1018);
//! builder.root(0x1000, RootKind::Static, Some("Shop.Program.cache"));
//! let graph = builder.finish()?;
//! assert!(graph.losses().is_whole());
//!
//! let tree = Dominators::of(&graph);
//! let cache = graph.object_at(0x1000).ok_or("no such object")?;
//! assert_eq!(tree.retained_bytes(cache), 8048);
//! Report::of(&tree, Options::default(), &Names::default()).write_text(std::io::stdout())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # From a graph to an answer
//!
//! | question | answer |
//! |---|---|
//! | is the dump whole? | [`HeapGraph::losses`] |
//! | how much would be freed without this object? | [`Dominators::retained_bytes`]; without several together: [`HeapGraph::freed_without`] |
//! | which classes and assemblies keep how much? | [`Totals`] |
//! | which objects keep most? | [`Dominators::largest`] |
//! | why is it alive? | [`Paths`] |
//! | which classes have grown, and on which paths? | [`diff`] |
//!
//! [`report`] writes text, JSON and HTML, [`perfetto`], [`gcdump`] and [`chrome`] write for their viewers, and
//! [`HeapGraph::write`] keeps a snapshot. The same heap gives the same bytes, in any order of its parts.
//!
//! # Memory
//!
//! The limit that the crate keeps is 450 MB for ten million objects with fourteen million references. On Linux x64 with
//! glibc that heap takes 390 MB resident at the peak from the first event to dominators, sums, paths to roots and
//! files, and 409 MB where a `.heapsnapshot` leaves nine objects of ten out; the graph alone takes 156 MB
//! (`examples/measure.rs`). The parts:
//!
//! - building: 12 bytes an object, 8 bytes a reference, and a table of 5 bytes a slot that doubles;
//! - the graph: 10 bytes an object and 4 bytes a reference, if addresses are near to one another and objects share
//!   class and size;
//! - the dominator tree: 24 bytes an object while it is made, 17 afterwards; paths to roots: 4 bytes, and at most 8
//!   more meanwhile.
//!
//! A heap may have 4,294,967,293 objects and as many references.

#![forbid(unsafe_code)]

mod addresses;
mod bits;
mod builder;
pub mod chrome;
mod classes;
pub mod diff;
mod dominators;
pub mod file;
pub mod gcdump;
mod graph;
mod liveness;
mod losses;
mod object_id;
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
pub use graph::{Ephemeron, HeapGraph};
pub use liveness::Freed;
pub use losses::Losses;
pub use object_id::ObjectId;
pub use paths::{Link, Path, Paths};
pub use roots::{Root, RootKind};
pub use totals::{Total, Totals};
