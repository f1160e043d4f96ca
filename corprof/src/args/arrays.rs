//! The parallel arrays of the collection callbacks, as iterators over rows.
//!
//! They are read in place: the runtime owns them, and they are invalid when the callback returns.

use corprof_sys as sys;

use crate::args::RootKind;
use crate::id::{ClassId, HandleId, ObjectId};
use crate::session::Info;
use crate::session::wire;

/// A range of the heap that a collection has moved. Addresses are numbers here: the objects at the old address are
/// gone, those at the new one are not complete before the collection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MovedRange {
    /// Where the range began.
    pub old_start: usize,
    /// Where it begins now.
    pub new_start: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// A range of the heap that a collection has left in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SurvivingRange {
    /// Where the range begins.
    pub start: usize,
    /// Its length in bytes.
    pub length: usize,
}

/// Lengths, in the width of the callback's argument.
#[derive(Clone, Copy, Debug)]
enum Lengths<'cb> {
    Narrow(&'cb [u32]),
    Wide(&'cb [usize]),
}

impl Lengths<'_> {
    fn get(self, at: usize) -> Option<usize> {
        match self {
            Self::Narrow(lengths) => lengths.get(at).map(|&length| length as usize),
            Self::Wide(lengths) => lengths.get(at).copied(),
        }
    }
}

/// The ranges that a collection has moved.
#[derive(Clone, Copy, Debug)]
pub struct MovedRanges<'cb> {
    old: &'cb [usize],
    new: &'cb [usize],
    lengths: Lengths<'cb>,
}

impl MovedRanges<'_> {
    /// # Safety
    /// Each pointer is null or points at `count` values that outlive the result.
    pub(crate) unsafe fn from_u32(
        count: u32,
        old: *const usize,
        new: *const usize,
        lengths: *const u32,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            let lengths = Lengths::Narrow(wire::slice(count, lengths));
            Some(Self { old: wire::slice(count, old), new: wire::slice(count, new), lengths })
        }
    }

    /// # Safety
    /// As [`from_u32`](Self::from_u32).
    pub(crate) unsafe fn from_usize(
        count: u32,
        old: *const usize,
        new: *const usize,
        lengths: *const usize,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            let lengths = Lengths::Wide(wire::slice(count, lengths));
            Some(Self { old: wire::slice(count, old), new: wire::slice(count, new), lengths })
        }
    }

    /// The ranges, in the runtime's order.
    pub fn iter(&self) -> impl Iterator<Item = MovedRange> {
        let starts = self.old.iter().zip(self.new).enumerate();
        starts.filter_map(|(at, (&old_start, &new_start))| {
            Some(MovedRange { old_start, new_start, length: self.lengths.get(at)? })
        })
    }
}

/// The ranges that a collection has left in place.
#[derive(Clone, Copy, Debug)]
pub struct SurvivingRanges<'cb> {
    starts: &'cb [usize],
    lengths: Lengths<'cb>,
}

impl SurvivingRanges<'_> {
    /// # Safety
    /// Each pointer is null or points at `count` values that outlive the result.
    pub(crate) unsafe fn from_u32(count: u32, starts: *const usize, lengths: *const u32) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self { starts: wire::slice(count, starts), lengths: Lengths::Narrow(wire::slice(count, lengths)) })
        }
    }

    /// # Safety
    /// As [`from_u32`](Self::from_u32).
    pub(crate) unsafe fn from_usize(count: u32, starts: *const usize, lengths: *const usize) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self { starts: wire::slice(count, starts), lengths: Lengths::Wide(wire::slice(count, lengths)) })
        }
    }

    /// The ranges, in the runtime's order.
    pub fn iter(&self) -> impl Iterator<Item = SurvivingRange> {
        let starts = self.starts.iter().enumerate();
        starts.filter_map(|(at, &start)| Some(SurvivingRange { start, length: self.lengths.get(at)? }))
    }
}

/// Numbers of objects by class.
#[derive(Clone, Copy, Debug)]
pub struct ClassCounts<'cb> {
    classes: &'cb [usize],
    counts: &'cb [u32],
}

impl ClassCounts<'_> {
    /// # Safety
    /// Each pointer is null or points at `count` values that outlive the result.
    pub(crate) unsafe fn new(info: &Info, count: u32, classes: *const usize, counts: *const u32) -> Option<Self> {
        // SAFETY: the caller's promise.
        let (classes, counts) = unsafe { (wire::slice(count, classes), wire::slice(count, counts)) };
        classes.iter().filter_map(|&class| ClassId::from_raw(class)).for_each(|class| info.note_class(class));
        Some(Self { classes, counts })
    }

    /// The classes with their numbers of objects.
    pub fn iter(&self) -> impl Iterator<Item = (ClassId, u32)> {
        self.classes.iter().zip(self.counts).filter_map(|(&class, &count)| Some((ClassId::from_raw(class)?, count)))
    }
}

/// A root of the heap.
#[derive(Clone, Copy, Debug)]
pub struct Root<'gc> {
    /// The object that the root keeps alive; none for an empty root.
    pub object: Option<ObjectId<'gc>>,
    /// The kind of root.
    pub kind: RootKind,
    /// Pinning, weak, interior, reference-counted.
    pub flags: sys::COR_PRF_GC_ROOT_FLAGS,
    /// An id that depends on the kind: the function for a stack root, the handle for a handle root, otherwise 0.
    pub id: usize,
}

/// The roots of the heap.
#[derive(Clone, Copy, Debug)]
pub struct Roots<'gc> {
    objects: &'gc [Option<ObjectId<'gc>>],
    kinds: &'gc [sys::COR_PRF_GC_ROOT_KIND],
    flags: &'gc [sys::COR_PRF_GC_ROOT_FLAGS],
    ids: &'gc [usize],
}

impl<'gc> Roots<'gc> {
    /// # Safety
    /// Each pointer is null or points at `count` values that outlive the result; no collection ends before that.
    pub(crate) unsafe fn new(
        count: u32,
        objects: *const usize,
        kinds: *const sys::COR_PRF_GC_ROOT_KIND,
        flags: *const sys::COR_PRF_GC_ROOT_FLAGS,
        ids: *const usize,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self {
                objects: wire::objects(count, objects),
                kinds: wire::slice(count, kinds),
                flags: wire::slice(count, flags),
                ids: wire::slice(count, ids),
            })
        }
    }

    /// The roots, in the runtime's order.
    pub fn iter(&self) -> impl Iterator<Item = Root<'gc>> {
        let rows = self.objects.iter().zip(self.kinds).zip(self.flags).zip(self.ids);
        rows.map(|(((&object, &kind), &flags), &id)| Root { object, kind: kind.into(), flags, id })
    }
}

/// A pair in a ConditionalWeakTable.
#[derive(Clone, Copy, Debug)]
pub struct WeakTableElement<'gc> {
    /// The key, whose life decides about the value's.
    pub key: Option<ObjectId<'gc>>,
    /// The value, which lives as long as the key.
    pub value: Option<ObjectId<'gc>>,
    /// The handle of the pair.
    pub handle: Option<HandleId>,
}

/// The pairs of the ConditionalWeakTables.
#[derive(Clone, Copy, Debug)]
pub struct WeakTableElements<'gc> {
    keys: &'gc [Option<ObjectId<'gc>>],
    values: &'gc [Option<ObjectId<'gc>>],
    handles: &'gc [usize],
}

impl<'gc> WeakTableElements<'gc> {
    /// # Safety
    /// Each pointer is null or points at `count` values that outlive the result; no collection ends before that.
    pub(crate) unsafe fn new(
        count: u32,
        keys: *const usize,
        values: *const usize,
        handles: *const usize,
    ) -> Option<Self> {
        // SAFETY: the caller's promise.
        unsafe {
            Some(Self {
                keys: wire::objects(count, keys),
                values: wire::objects(count, values),
                handles: wire::slice(count, handles),
            })
        }
    }

    /// The pairs, in the runtime's order.
    pub fn iter(&self) -> impl Iterator<Item = WeakTableElement<'gc>> {
        let rows = self.keys.iter().zip(self.values).zip(self.handles);
        rows.map(|((&key, &value), &handle)| WeakTableElement { key, value, handle: HandleId::from_raw(handle) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_of_length_give_the_same_ranges() {
        let old = [0x100_usize, 0x200];
        let new = [0x80_usize, 0xa0];
        // SAFETY: two values each, alive.
        let (narrow, wide) = unsafe {
            (
                MovedRanges::from_u32(2, old.as_ptr(), new.as_ptr(), [16_u32, 32].as_ptr()).unwrap(),
                MovedRanges::from_usize(2, old.as_ptr(), new.as_ptr(), [16_usize, 32].as_ptr()).unwrap(),
            )
        };
        let expected = [
            MovedRange { old_start: 0x100, new_start: 0x80, length: 16 },
            MovedRange { old_start: 0x200, new_start: 0xa0, length: 32 },
        ];
        assert_eq!(wide.iter().collect::<Vec<_>>(), expected);
        assert_eq!(narrow.iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn classes_of_zero_are_left_out() {
        let counts = ClassCounts { classes: &[0, 8], counts: &[5, 7] };
        assert_eq!(counts.iter().collect::<Vec<_>>(), [(ClassId::from_raw(8).unwrap(), 7)]);
    }
}
