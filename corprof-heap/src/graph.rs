//! The graph: objects, references, roots and classes.

use std::ops::Range;

use crate::addresses::Addresses;
use crate::classes::Shape;
use crate::{Class, ClassId, Losses, ObjectId, Root};

/// Stands for "no object" where an object's number is kept in 4 bytes.
pub(crate) const NONE: u32 = u32::MAX;

/// A pair of a weak table (`ConditionalWeakTable`): `value` is alive if `key` and, where it is known, `table` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ephemeron {
    /// The object that the pair is attached to.
    pub key: ObjectId,
    /// The attached object.
    pub value: ObjectId,
    /// The object that owns the pair. CoreCLR does not report it: there, pairs live until their key dies.
    pub table: Option<ObjectId>,
}

/// An edge from key to value: its number among all edges, and the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WeakEdge {
    pub(crate) edge: u32,
    /// The table's object, or [`NONE`].
    pub(crate) table: u32,
}

/// A heap: objects by number, references in compressed rows.
///
/// It does not depend on the order of its parts: objects are numbered by address, references, roots and classes are
/// sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapGraph {
    pub(crate) title: String,
    pub(crate) taken: Option<u64>,
    pub(crate) addresses: Addresses,
    pub(crate) shapes: Vec<Shape>,
    pub(crate) shape_of: Vec<u32>,
    /// Edges of object `i` are `offsets[i]..offsets[i + 1]`.
    pub(crate) offsets: Vec<u32>,
    /// Where edges lead: references, and at the places that `weak` names, values of ephemerons.
    pub(crate) targets: Vec<u32>,
    pub(crate) weak: Vec<WeakEdge>,
    pub(crate) roots: Vec<Root>,
    pub(crate) classes: Vec<Class>,
    pub(crate) losses: Losses,
}

impl HeapGraph {
    /// The subject of the snapshot, as the caller named it.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// When the snapshot was taken, in milliseconds since 1970, if the caller has said so.
    #[must_use]
    pub fn taken(&self) -> Option<u64> {
        self.taken
    }

    /// The parts that were lost or came twice.
    #[must_use]
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shape_of.len()
    }

    /// Whether there are no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shape_of.is_empty()
    }

    /// How many references there are, without pairs of weak tables.
    #[must_use]
    pub fn reference_count(&self) -> usize {
        self.targets.len() - self.weak.len()
    }

    /// All objects, by address.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = ObjectId> + use<> {
        (0..self.shape_of.len() as u32).map(ObjectId)
    }

    /// The object with this number, if there is one.
    #[must_use]
    pub fn object(&self, index: usize) -> Option<ObjectId> {
        (index < self.len()).then_some(ObjectId(index as u32))
    }

    /// The object at exactly this address.
    #[must_use]
    pub fn object_at(&self, address: u64) -> Option<ObjectId> {
        let index = self.addresses.at_or_below(address)?;
        (self.addresses.get(index) == address).then_some(ObjectId(index as u32))
    }

    /// Where the object was when the snapshot was taken.
    #[must_use]
    pub fn address(&self, object: ObjectId) -> u64 {
        self.addresses.get(object.index())
    }

    /// The object's size in bytes.
    #[must_use]
    pub fn size(&self, object: ObjectId) -> u64 {
        self.shape(object).size
    }

    /// The object's class.
    #[must_use]
    pub fn class_of(&self, object: ObjectId) -> ClassId {
        ClassId(self.shape(object).class)
    }

    pub(crate) fn shape(&self, object: ObjectId) -> Shape {
        self.shapes[self.shape_of[object.index()] as usize]
    }

    /// All classes, sorted by assembly, name and key.
    #[must_use]
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// A class by its number.
    #[must_use]
    pub fn class(&self, class: ClassId) -> &Class {
        &self.classes[class.index()]
    }

    /// The name of the object's class.
    #[must_use]
    pub fn class_name(&self, object: ObjectId) -> &str {
        &self.class(self.class_of(object)).name
    }

    /// All roots, sorted by object, kind and name.
    #[must_use]
    pub fn roots(&self) -> &[Root] {
        &self.roots
    }

    /// The roots of one object.
    #[must_use]
    pub fn roots_of(&self, object: ObjectId) -> &[Root] {
        let start = self.roots.partition_point(|root| root.object < object);
        let count = self.roots[start..].partition_point(|root| root.object == object);
        &self.roots[start..start + count]
    }

    /// The targets of the object's references, one for each reference.
    pub fn references(&self, object: ObjectId) -> impl Iterator<Item = ObjectId> {
        let edges = self.edges(object);
        let weak = self.weak_in(edges.clone());
        edges
            .filter(move |&edge| weak.binary_search_by_key(&(edge as u32), |weak| weak.edge).is_err())
            .map(|edge| ObjectId(self.targets[edge]))
    }

    /// The pairs of weak tables whose key the object is.
    pub fn ephemerons_of(&self, key: ObjectId) -> impl Iterator<Item = Ephemeron> {
        self.weak_in(self.edges(key)).iter().map(move |&weak| self.ephemeron(key, weak))
    }

    /// How many pairs of weak tables there are.
    #[must_use]
    pub fn ephemeron_count(&self) -> usize {
        self.weak.len()
    }

    pub(crate) fn ephemeron(&self, key: ObjectId, weak: WeakEdge) -> Ephemeron {
        let table = (weak.table != NONE).then_some(ObjectId(weak.table));
        Ephemeron { key, value: ObjectId(self.targets[weak.edge as usize]), table }
    }

    /// The numbers of the object's edges.
    pub(crate) fn edges(&self, object: ObjectId) -> Range<usize> {
        self.offsets[object.index()] as usize..self.offsets[object.index() + 1] as usize
    }

    /// The weak ones among these edges.
    pub(crate) fn weak_in(&self, edges: Range<usize>) -> &[WeakEdge] {
        let start = self.weak.partition_point(|weak| (weak.edge as usize) < edges.start);
        let count = self.weak[start..].partition_point(|weak| (weak.edge as usize) < edges.end);
        &self.weak[start..start + count]
    }

    /// The object that an edge begins at.
    pub(crate) fn source(&self, edge: u32) -> ObjectId {
        ObjectId((self.offsets.partition_point(|&offset| offset <= edge) - 1) as u32)
    }

    /// The bytes of memory that the graph takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let words = self.shape_of.capacity() + self.offsets.capacity() + self.targets.capacity();
        words * 4 + self.addresses.memory() + self.shapes.capacity() * size_of::<Shape>()
    }
}
