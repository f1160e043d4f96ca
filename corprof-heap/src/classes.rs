//! Classes and assemblies of objects.

/// A class: its number in the [class table](crate::HeapGraph::classes), which is sorted by assembly and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub(crate) u32);

impl ClassId {
    /// The place in the class table.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A class.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The simple name of the assembly, empty if unknown.
    pub assembly: String,
    /// The name as the caller spelled it. A class without a name is `(class 0x…)`.
    pub name: String,
    /// The number that objects had given for their class: the runtime's `ClassID`. It differs from run to run.
    pub key: u64,
    /// Bytes of an instance without array elements or characters; 0 if unknown.
    pub instance_size: u64,
    /// The name of a method that tells for what a compiler has made the class, such as `<Load>b__0` of a closure of
    /// `Load`; empty for other classes.
    pub method: String,
}

/// Class and size, kept once for all objects that share them. A heap has few distinct pairs, so an object needs
/// 4 bytes in place of 12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Shape {
    pub(crate) class: u32,
    pub(crate) size: u64,
}
