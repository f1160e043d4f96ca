//! The contents of a fake CLR: modules, classes, functions, threads, objects. Identifiers are numbers that are used
//! once.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use corprof_sys as sys;

use super::metadata::Metadata;

/// The size from which on an object is large: it lies in a separate heap, where objects do not move.
pub(crate) const LARGE: usize = 85_000;

/// All items, by identifier.
pub(crate) struct World {
    next_id: usize,
    next_code: usize,
    pub(crate) app_domain: usize,
    /// The core library's module; 0 while it is not loaded.
    pub(crate) core: usize,
    pub(crate) assemblies: HashMap<usize, Assembly>,
    pub(crate) modules: HashMap<usize, Module>,
    pub(crate) classes: HashMap<usize, Class>,
    pub(crate) functions: HashMap<usize, Function>,
    pub(crate) threads: BTreeMap<usize, Thread>,
    pub(crate) heap: Heap,
}

pub(crate) struct Assembly {
    pub(crate) name: String,
    pub(crate) module: usize,
    /// Whether it has been loaded and not unloaded.
    pub(crate) alive: bool,
}

pub(crate) struct Module {
    pub(crate) path: String,
    pub(crate) base: usize,
    /// 0 before the module is attached to it.
    pub(crate) assembly: usize,
    pub(crate) alive: bool,
    /// Kept as long as the fake CLR lives, because signatures are passed out as pointers.
    pub(crate) metadata: Metadata,
}

#[derive(Clone)]
pub(crate) struct Class {
    pub(crate) module: usize,
    pub(crate) token: u32,
    pub(crate) parent: usize,
    pub(crate) type_args: Vec<usize>,
    pub(crate) array: Option<Array>,
    /// Whether it has no metadata, as those have that the runtime makes for methods that it suspends.
    pub(crate) is_bare: bool,
    pub(crate) alive: bool,
}

/// The shape of an array class.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Array {
    pub(crate) element_type: sys::CorElementType,
    pub(crate) element: usize,
    pub(crate) rank: u32,
}

#[derive(Clone)]
pub(crate) struct Function {
    /// 0 for one that is shared between instantiations.
    pub(crate) class: usize,
    pub(crate) module: usize,
    pub(crate) token: u32,
    pub(crate) type_args: Vec<usize>,
    /// The name of a dynamic method.
    pub(crate) dynamic: Option<Arc<str>>,
    /// The range of its code, once it is compiled.
    pub(crate) code: Option<Range<usize>>,
}

#[derive(Clone, Default)]
pub(crate) struct Thread {
    pub(crate) os_id: u32,
    /// Function and instruction pointer of each frame, the leaf first; 0 is a block of native frames.
    pub(crate) stack: Vec<(usize, usize)>,
}

/// The managed heap: addresses without memory behind them.
pub(crate) struct Heap {
    next_address: usize,
    /// By a key that does not change when the object moves.
    pub(crate) objects: BTreeMap<usize, Object>,
    /// The keys of the objects that an object refers to.
    pub(crate) references: BTreeMap<usize, Vec<usize>>,
    /// How many objects of each class were allocated since the last collection, without large ones.
    pub(crate) allocated: BTreeMap<usize, u32>,
    /// The handles that the profiler has made.
    pub(crate) handles: BTreeMap<usize, Handle>,
}

/// A handle that the profiler has made.
#[derive(Clone, Copy)]
pub(crate) struct Handle {
    /// The key of its object.
    pub(crate) object: usize,
    pub(crate) kind: sys::COR_PRF_HANDLE_TYPE,
}

#[derive(Clone, Copy)]
pub(crate) struct Object {
    pub(crate) address: usize,
    pub(crate) class: usize,
    pub(crate) size: usize,
    pub(crate) pinned: bool,
    /// Whether it is garbage: the next collection frees it.
    pub(crate) garbage: bool,
}

/// The results of a collection.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) old_starts: Vec<usize>,
    pub(crate) new_starts: Vec<usize>,
    pub(crate) moved_lengths: Vec<usize>,
    pub(crate) survivor_starts: Vec<usize>,
    pub(crate) survivor_lengths: Vec<usize>,
}

impl World {
    /// The compiled functions with metadata.
    pub(crate) fn jitted_functions(&self) -> Vec<usize> {
        let is_listed = |function: &Function| {
            let is_loaded = self.modules.get(&function.module).is_some_and(|module| module.alive);
            is_loaded && function.code.is_some() && function.dynamic.is_none()
        };
        self.functions.iter().filter(|(_, function)| is_listed(function)).map(|(&id, _)| id).collect()
    }

    pub(crate) fn new() -> Self {
        let mut world = Self {
            next_id: 0x7F00_0000_1000_u64 as usize,
            next_code: 0x7F00_4000_0000_u64 as usize,
            app_domain: 0,
            core: 0,
            assemblies: HashMap::new(),
            modules: HashMap::new(),
            classes: HashMap::new(),
            functions: HashMap::new(),
            threads: BTreeMap::new(),
            heap: Heap {
                next_address: 0x7F00_8000_0000_u64 as usize,
                objects: BTreeMap::new(),
                references: BTreeMap::new(),
                allocated: BTreeMap::new(),
                handles: BTreeMap::new(),
            },
        };
        world.app_domain = world.new_id();
        world
    }

    /// An unused identifier.
    pub(crate) fn new_id(&mut self) -> usize {
        self.next_id += 0x20;
        self.next_id
    }

    /// An unused address range for `size` bytes of code.
    pub(crate) fn new_code(&mut self, size: usize) -> Range<usize> {
        let start = self.next_code;
        self.next_code += size.next_multiple_of(0x20);
        start..start + size
    }

    /// The class with these parts, loaded or being loaded; 0 if there is none.
    pub(crate) fn find_class(&self, module: usize, token: u32, type_args: &[usize], array: Option<Array>) -> usize {
        let found = self.classes.iter().find(|(_, class)| {
            (class.module, class.token) == (module, token) && class.type_args == type_args && class.array == array
        });
        found.map_or(0, |(&id, _)| id)
    }

    /// The object at an address.
    pub(crate) fn object_at(&self, address: usize) -> Option<&Object> {
        self.heap.objects.values().find(|object| object.address == address)
    }
}

impl Handle {
    fn pins(&self) -> bool {
        self.kind == sys::COR_PRF_HANDLE_TYPE_PINNED
    }

    fn keeps_alive(&self) -> bool {
        self.kind != sys::COR_PRF_HANDLE_TYPE_WEAK
    }
}

/// Objects lie on boundaries of pointers, and one is at least three pointers long.
fn object_size(size: usize) -> usize {
    size.next_multiple_of(8).max(24)
}

impl Heap {
    /// A new object; its key.
    pub(crate) fn allocate(&mut self, key: usize, class: usize, size: usize) {
        let size = object_size(size);
        let address = self.next_address;
        self.next_address += size;
        if size < LARGE {
            *self.allocated.entry(class).or_default() += 1;
        }
        self.objects.insert(key, Object { address, class, size, pinned: false, garbage: false });
    }

    /// Whether a handle pins the object with this key.
    pub(crate) fn is_pinned(&self, key: usize) -> bool {
        let has_handle = self.handles.values().any(|handle| handle.object == key && handle.pins());
        has_handle || self.objects.get(&key).is_some_and(|object| object.pinned)
    }

    /// Drops the garbage, and moves all objects that are neither pinned nor large to new addresses, in order and
    /// without gaps.
    pub(crate) fn compact(&mut self) -> Collected {
        self.allocated.clear();
        let handles = &self.handles;
        let has_handle =
            |key, is_kind: fn(&Handle) -> bool| handles.values().any(|handle| handle.object == key && is_kind(handle));
        self.objects.retain(|&key, object| !object.garbage || has_handle(key, Handle::keeps_alive));
        self.references.retain(|key, _| self.objects.contains_key(key));
        // Two objects that were adjacent before and after belong to one range.
        let mut collected = Collected::default();
        let mut target = self.next_address.next_multiple_of(0x1_0000);
        let mut by_address: Vec<(&usize, &mut Object)> = self.objects.iter_mut().collect();
        by_address.sort_by_key(|(_, object)| object.address);
        let mut end_of_moved = (0, 0);
        let mut end_of_kept = 0;
        for (&key, object) in by_address {
            let is_pinned = object.pinned || has_handle(key, Handle::pins);
            let old = object.address;
            let size = object.size;
            if size >= LARGE {
                match collected.survivor_lengths.last_mut() {
                    Some(length) if end_of_kept == old => *length += size,
                    _ => {
                        collected.survivor_starts.push(old);
                        collected.survivor_lengths.push(size);
                    }
                }
                end_of_kept = old + size;
                continue;
            }
            // A pinned object is reported with the others, as moved to its old address.
            let new = if is_pinned { old } else { target };
            match collected.moved_lengths.last_mut() {
                Some(length) if end_of_moved == (old, new) => *length += size,
                _ => {
                    collected.old_starts.push(old);
                    collected.new_starts.push(new);
                    collected.moved_lengths.push(size);
                }
            }
            if !is_pinned {
                object.address = target;
                target += size;
            }
            end_of_moved = (old + size, new + size);
        }
        self.next_address = target;
        collected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compaction_closes_holes_and_leaves_what_is_pinned() {
        let mut heap = World::new().heap;
        for key in 1..=5 {
            heap.allocate(key, 0x20, 20);
        }
        heap.allocate(6, 0x20, LARGE);
        let before: Vec<usize> = heap.objects.values().map(|object| object.address).collect();
        heap.objects.get_mut(&2).unwrap().garbage = true;
        heap.objects.get_mut(&4).unwrap().pinned = true;
        let collected = heap.compact();
        assert_eq!(collected.survivor_starts, [before[5]]);
        assert_eq!(collected.old_starts, [before[0], before[2], before[3], before[4]]);
        assert_eq!(collected.new_starts[2], before[3]);
        assert_eq!(collected.moved_lengths, [24, 24, 24, 24]);
        let after: Vec<usize> = heap.objects.values().map(|object| object.address).collect();
        assert_eq!(after.len(), 5);
        assert_eq!((after[1], after[3]), (after[0] + 24, after[1] + 24));
        assert_eq!((after[2], after[4]), (before[3], before[5]));
        // Adjacent now, they are one range the next time.
        assert_eq!(heap.compact().moved_lengths, [24, 72]);
    }
}
