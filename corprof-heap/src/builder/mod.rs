//! Builds a graph from parts that come in any order.

use hashbrown::HashTable;
use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

use crate::classes::Shape;
use crate::graph::NONE;
use crate::{HeapGraph, Losses, RootKind};

pub(crate) mod bulk;
mod chunks;
mod finish;

use chunks::Chunks;

/// A heap with more objects or references than 32-bit numbers can count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the heap has more than {limit} {what}, which is the most that corprof-heap can hold: take a snapshot of a smaller heap"
)]
pub struct TooLarge {
    /// `objects` or `references`.
    pub what: &'static str,
    /// The most of them.
    pub limit: u64,
}

/// The most addresses and references. The highest number stands for "none".
const LIMIT: usize = u32::MAX as usize - 2;

/// The caller's description of a class.
#[derive(Debug)]
pub(super) struct Described {
    key: u64,
    /// Name, assembly and size of an instance.
    facts: Option<(String, String, u64)>,
    /// The method that tells for what it was made.
    method: String,
}

/// A root before its object's number is known.
#[derive(Debug)]
pub(super) struct PendingRoot {
    address: u64,
    is_interior: bool,
    kind: RootKind,
    name: Option<Box<str>>,
}

/// Takes objects, references and roots in any order, and makes a [`HeapGraph`] of them.
///
/// Addresses stand for objects. A reference may come before either of its objects; a reference to an unknown object is
/// left out and counted in [`Losses`]. Address 0 is not an object: references to it are skipped.
///
/// ```
/// use corprof_heap::{GraphBuilder, RootKind};
///
/// let mut builder = GraphBuilder::new("shop");
/// builder.root(0x1000, RootKind::Static, Some("Shop.Catalogue.items"));
/// builder.reference(0x1000, 0x1040);
/// builder.object(0x1000, 7, 64);
/// builder.object(0x1040, 8, 32);
/// builder.class(7, "Shop.Item[]", "Shop", 24);
/// builder.class(8, "Shop.Item", "Shop", 32);
/// let graph = builder.finish()?;
/// assert!(graph.losses().is_whole());
/// assert_eq!(graph.len(), 2);
/// # Ok::<(), corprof_heap::TooLarge>(())
/// ```
///
/// # Memory
///
/// 12 bytes an object, 8 bytes a reference, and a table of addresses, of 5 bytes a slot, that doubles. The memory that
/// `finish` adds is less than the memory that it frees.
#[derive(Debug)]
pub struct GraphBuilder {
    title: String,
    taken: Option<u64>,
    /// Numbers in order of first mention, found by address.
    numbers: HashTable<u32>,
    addresses: Chunks<u64>,
    /// [`NONE`] for an address that was mentioned but not yet reported.
    shape_of: Chunks<u32>,
    shapes: Vec<Shape>,
    shape_numbers: FxHashMap<Shape, u32>,
    classes: Vec<Described>,
    class_numbers: FxHashMap<u64, u32>,
    references: Chunks<(u32, u32)>,
    /// Key, value, table or [`NONE`].
    ephemerons: Vec<(u32, u32, u32)>,
    roots: Vec<PendingRoot>,
    /// Beginnings and lengths of the ranges whose objects are never collected.
    frozen: Vec<(u64, u64)>,
    losses: Losses,
    too_large: Option<TooLarge>,
}

impl GraphBuilder {
    /// Begins a graph; `title` names its subject, such as the application.
    #[must_use]
    pub fn new(title: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            taken: None,
            numbers: HashTable::new(),
            addresses: Chunks::new(),
            shape_of: Chunks::new(),
            shapes: Vec::new(),
            shape_numbers: FxHashMap::default(),
            classes: Vec::new(),
            class_numbers: FxHashMap::default(),
            references: Chunks::new(),
            ephemerons: Vec::new(),
            roots: Vec::new(),
            frozen: Vec::new(),
            losses: Losses::default(),
            too_large: None,
        }
    }

    /// Says when the snapshot was taken, in milliseconds since 1970.
    pub fn set_taken(&mut self, milliseconds: u64) {
        self.taken = Some(milliseconds);
    }

    /// Says that the dump ended before it was complete.
    pub fn set_cut(&mut self) {
        self.losses.missing_end = 1;
    }

    /// Reports an object: its address, its class by the number that [`class`](Self::class) describes, its size in
    /// bytes.
    pub fn object(&mut self, address: u64, class: u64, size: u64) {
        self.define(address, class, size);
    }

    /// Reports a reference from one object to another.
    pub fn reference(&mut self, from: u64, to: u64) {
        self.references(from, [to]);
    }

    /// Reports all references of an object, or some of them.
    pub fn references(&mut self, from: u64, to: impl IntoIterator<Item = u64>) {
        let Some(from) = self.number(from) else { return };
        for address in to {
            if let Some(to) = self.number(address) {
                self.edge(from, to);
            }
        }
    }

    /// Reports a pair of a weak table: `value` is alive while `key` and, where it is known, `table` are.
    pub fn ephemeron(&mut self, table: Option<u64>, key: u64, value: u64) {
        let (Some(key), Some(value)) = (self.number(key), self.number(value)) else { return };
        let table = match table {
            Some(address) => self.number(address).unwrap_or(NONE),
            None => NONE,
        };
        if self.has_room_for_edge() {
            self.ephemerons.push((key, value, table));
        }
    }

    /// Reports a root. `name` identifies it, such as a static field.
    pub fn root(&mut self, address: u64, kind: RootKind, name: Option<&str>) {
        self.add_root(address, false, kind, name);
    }

    /// Reports a root that may point into an object instead of at its beginning.
    pub fn interior_root(&mut self, address: u64, kind: RootKind, name: Option<&str>) {
        self.add_root(address, true, kind, name);
    }

    /// Says that the objects in `length` bytes from `start` on are never collected: each is a root of its own.
    ///
    /// The runtime reports no root of a string literal or of a type's own object.
    pub fn frozen(&mut self, start: u64, length: u64) {
        self.frozen.push((start, length));
    }

    /// Describes a class. The first description counts. Those of classes without objects are dropped.
    ///
    /// `instance_size` is without array elements and characters; 0 if unknown.
    pub fn class(&mut self, key: u64, name: &str, assembly: &str, instance_size: u64) {
        let number = self.class_number(key);
        let facts = &mut self.classes[number as usize].facts;
        facts.get_or_insert_with(|| (name.to_owned(), assembly.to_owned(), instance_size));
    }

    /// Names a method that tells for what a compiler has made a class: [`Class::method`](crate::Class::method).
    pub fn class_method(&mut self, key: u64, method: &str) {
        let number = self.class_number(key);
        method.clone_into(&mut self.classes[number as usize].method);
    }

    /// The numbers of the objects' classes that have no description yet.
    pub fn undescribed_classes(&self) -> impl Iterator<Item = u64> {
        self.classes.iter().filter(|class| class.facts.is_none()).map(|class| class.key)
    }

    /// Makes the graph.
    ///
    /// # Errors
    /// [`TooLarge`] if there were more than 4,294,967,293 addresses or references.
    pub fn finish(self) -> Result<HeapGraph, TooLarge> {
        finish::finish(self)
    }

    fn add_root(&mut self, address: u64, is_interior: bool, kind: RootKind, name: Option<&str>) {
        if address != 0 {
            self.roots.push(PendingRoot { address, is_interior, kind, name: name.map(Into::into) });
        }
    }

    fn edge(&mut self, from: u32, to: u32) {
        if self.has_room_for_edge() {
            self.references.push((from, to));
        }
    }

    fn has_room_for_edge(&mut self) -> bool {
        let has_room = self.references.len() + self.ephemerons.len() < LIMIT;
        if !has_room {
            self.too_large = Some(TooLarge { what: "references", limit: LIMIT as u64 });
        }
        has_room
    }

    /// The object's number, unless its address is 0 or there are too many.
    fn define(&mut self, address: u64, class: u64, size: u64) -> Option<u32> {
        let number = self.number(address)?;
        let class = self.class_number(class);
        let shape = Shape { class, size };
        let next = self.shapes.len() as u32; // as many as addresses at most
        let shape_number = *self.shape_numbers.entry(shape).or_insert_with(|| {
            self.shapes.push(shape);
            next
        });
        match self.shape_of.get(number as usize) {
            NONE => self.shape_of.set(number as usize, shape_number),
            same if same == shape_number => self.losses.repeated_objects += 1,
            _ => self.losses.conflicting_objects += 1,
        }
        Some(number)
    }

    fn number(&mut self, address: u64) -> Option<u32> {
        if address == 0 {
            return None;
        }
        let hash = FxBuildHasher.hash_one(address);
        if let Some(&number) = self.numbers.find(hash, |&number| self.addresses.get(number as usize) == address) {
            return Some(number);
        }
        if self.addresses.len() >= LIMIT {
            self.too_large = Some(TooLarge { what: "objects", limit: LIMIT as u64 });
            return None;
        }
        let number = self.addresses.len() as u32;
        self.addresses.push(address);
        self.shape_of.push(NONE);
        let addresses = &self.addresses;
        self.numbers.insert_unique(hash, number, |&number| FxBuildHasher.hash_one(addresses.get(number as usize)));
        Some(number)
    }

    fn class_number(&mut self, key: u64) -> u32 {
        let next = self.classes.len() as u32;
        *self.class_numbers.entry(key).or_insert_with(|| {
            self.classes.push(Described { key, facts: None, method: String::new() });
            next
        })
    }
}
