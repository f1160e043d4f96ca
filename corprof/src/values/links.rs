//! [`Links`]: chains of objects, followed in hooks.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use corprof_sys as sys;

use crate::context::{InCallback, InNoGc};
use crate::error::{E_INVALIDARG, Error, Result};
use crate::id::{ClassId, ObjectId};
use crate::lock::unpoisoned;
use crate::session::liveness::Liveness;
use crate::session::{Info, Interests, Observer};
use crate::suspension;

use super::live::{Lookup, layout_of};
use super::planner::{self, Kind, Scope, Shape, ShapeField, Source};

/// How many classes a thread's cache has, a power of two.
const SLOTS: usize = 128;

/// The most base classes of a class.
const MOST_BASES: usize = 256;

/// How many classes may wait until they are learned.
const MOST_UNKNOWN: usize = 1024;

const LEARN: &str = "Links::learn";
const FOLLOW: &str = "Links::follow";

/// What is known of classes whose objects form chains: what an object of each is (`K`), and which field leads on.
///
/// A hook follows a chain in some nanoseconds an object, as it reads just one field of each: [`InNoGc::value`] takes
/// microseconds. Which field that is has to be learned outside of hooks, of the class of each object:
///
/// ```
/// # use corprof::prelude::*;
/// # use corprof::values::{Arguments, ChainEnd, LinkCache, Links, Value};
/// # use corprof::InSlowHook;
/// /// In a hook.
/// fn length(cx: &InSlowHook<'_>, links: &Links<()>, cache: &mut LinkCache<()>, args: &Arguments<'_>) {
///     let Some(Value::Object(Some(first))) = args.this() else { return };
///     let mut length = 0;
///     match links.follow(cx, cache, first, 100, |()| length += 1) {
///         Ok(ChainEnd::Unknown) => eprintln!("{length} nodes so far: the next class has to be learned"),
///         Ok(_) => eprintln!("{length} nodes"),
///         Err(error) => eprintln!("{error}"),
///     }
/// }
///
/// /// On a thread of the profiler, many times a second.
/// fn learn(cx: &mut ProfilerThread<'_>, links: &Links<()>) {
///     for class in links.take_unknown(cx) {
///         let is_node = &*cx.names().class(class) == "Shop.Node";
///         let _ = links.learn(cx, class, (), if is_node { &["_next"] } else { &[] });
///     }
/// }
/// ```
///
/// When a module is unloaded, all is forgotten: a class may have gone with it, and the next one may get its number.
/// Only the session in which they were made hears of that, so contexts of another one are refused.
pub struct Links<K> {
    /// That of the session.
    liveness: Arc<Liveness>,
    unloads: Arc<AtomicUsize>,
    /// How often a class was learned again: caches have what was known of it before.
    relearned: AtomicUsize,
    table: RwLock<Table<K>>,
    unknown: Mutex<Vec<Unknown>>,
}

/// A class of which nothing is known.
#[derive(Clone, Copy)]
struct Unknown {
    class: usize,
    /// The state of the session's modules when there was an object of it.
    changes: u64,
}

/// What is known since the unload of this number.
struct Table<K> {
    unloads: usize,
    classes: HashMap<usize, Link<K>>,
}

#[derive(Clone, Copy)]
struct Link<K> {
    kind: K,
    /// Where an object has the reference that leads on, from its address on; none if nothing does.
    offset: Option<usize>,
}

/// The classes that one thread has met, for [`Links::follow`]. It belongs to the [`Links`] that has made it.
pub struct LinkCache<K> {
    unloads: usize,
    relearned: usize,
    /// By the first word of an object, which is the same in all objects of a class.
    slots: Box<[Slot<K>; SLOTS]>,
}

/// The first word of an object, and what is known of its class.
type Slot<K> = Option<(usize, Link<K>)>;

/// Where a chain has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ChainEnd {
    /// The last object leads to none: its field is null.
    Null,
    /// No field of the last object leads on, as was [learned](Links::learn).
    Last,
    /// An object of a class of which nothing is known (yet): [`Links::take_unknown`] names it. It is not among those
    /// that were visited.
    Unknown,
    /// As many objects as were asked for were visited.
    Limit,
}

/// How often modules have begun or ended to be unloaded, from another number on in each session: a cache may have come
/// from an earlier one.
struct Unloads(Arc<AtomicUsize>);

impl Default for Unloads {
    fn default() -> Self {
        /// More than there are unloads in a session.
        const DISTANCE: usize = 1 << (usize::BITS / 2);
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(Arc::new(AtomicUsize::new(NEXT.fetch_add(DISTANCE, Ordering::Relaxed))))
    }
}

impl Unloads {
    fn note(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Observer for Unloads {
    fn interests(&self) -> Interests {
        Interests::MODULES
    }

    fn module_unloading(&self, _module: usize) {
        self.note();
    }

    // Until here a class may still have been learned. Its memory is not free yet.
    fn module_gone(&self, _module: usize) {
        self.note();
    }
}

impl<K: Copy> Links<K> {
    /// Nothing is known yet. This sets `MONITOR_MODULE_LOADS`, so that unloads are seen.
    ///
    /// # Errors
    /// Those of [`add_events`](crate::Info::add_events).
    pub fn new(cx: &InNoGc<'_>) -> Result<Self> {
        cx.add_events(crate::EventMask::MONITOR_MODULE_LOADS)?;
        let unloads = Arc::clone(&cx.extension::<Unloads>().0);
        let table = Table { unloads: unloads.load(Ordering::Acquire), classes: HashMap::new() };
        let liveness = Arc::clone(cx.liveness());
        let relearned = AtomicUsize::new(0);
        Ok(Self { liveness, unloads, relearned, table: RwLock::new(table), unknown: Mutex::default() })
    }

    /// Whether the context is of the session in which they were made.
    #[inline]
    fn is_of(&self, cx: &Info) -> bool {
        Arc::ptr_eq(&self.liveness, cx.liveness())
    }

    #[inline]
    fn check_session(&self, cx: &Info, call: &'static str) -> Result<()> {
        if self.is_of(cx) {
            return Ok(());
        }
        Err(Error::new(sys::COR_E_OBJECTDISPOSED, call).about("links", "they are of another session: make them anew"))
    }

    /// The cache of a thread.
    pub fn cache(&self) -> LinkCache<K> {
        let unloads = self.unloads.load(Ordering::Acquire);
        let relearned = self.relearned.load(Ordering::Acquire);
        LinkCache { unloads, relearned, slots: Box::new([None; SLOTS]) }
    }

    /// The classes that hooks have met and of which nothing is known. They are told again when they are met again,
    /// until they are [learned](Self::learn). None in another session.
    pub fn take_unknown(&self, cx: &InCallback<'_>) -> Vec<ClassId> {
        if !self.is_of(cx) {
            return Vec::new();
        }
        // What is alive now stays until this is dropped.
        let _look_up = cx.liveness().look_up();
        suspension::forbid("the links of classes");
        let mut unknown = std::mem::take(&mut *unpoisoned(self.unknown.lock()));
        // There was an object of each. Since then nothing has begun to be unloaded, so the class is in memory.
        let changes = cx.liveness().changes();
        unknown.retain(|unknown| unknown.changes == changes);
        unknown.sort_unstable_by_key(|unknown| unknown.class);
        unknown.dedup_by_key(|unknown| unknown.class);
        // A hook may have met it just before it was learned.
        let unloads = self.unloads.load(Ordering::Acquire);
        let table = unpoisoned(self.table.read());
        unknown.retain(|unknown| table.unloads != unloads || !table.classes.contains_key(&unknown.class));
        drop(table);
        unknown.into_iter().filter_map(|unknown| cx.class(unknown.class)).collect()
    }

    /// From now on objects of exactly this class are of this kind, and the field at the end of `path` leads on. The
    /// first name is that of a field of the class or a base class; each further one that of a field of the struct
    /// before. An empty path: nothing leads on. A class can be learned again, and all threads then go by that.
    ///
    /// # Errors
    /// `E_INVALIDARG`: there is no such field, or it has no reference or no struct in it. `COR_E_OBJECTDISPOSED`: they
    /// are of another session. Otherwise the runtime's error about the class.
    pub fn learn(&self, cx: &mut InCallback<'_>, class: ClassId, kind: K, path: &[&str]) -> Result<()> {
        self.check_session(cx, LEARN)?;
        let unloads = self.unloads.load(Ordering::Acquire);
        let offset = if path.is_empty() { None } else { Some(reference_offset(cx, class, path)?) };
        suspension::forbid("the links of classes");
        let mut table = unpoisoned(self.table.write());
        let now = self.unloads.load(Ordering::Acquire);
        if table.unloads != now {
            table.unloads = now;
            table.classes.clear();
        }
        // If a module was unloaded meanwhile, the class may be gone: the next object of it tells.
        if unloads == now && table.classes.insert(class.as_raw(), Link { kind, offset }).is_some() {
            self.relearned.fetch_add(1, Ordering::Release);
        }
        Ok(())
    }

    /// Visits the object and those that it leads to, `most` at most, until one leads nowhere. This takes no lock that
    /// anything else waits under, and allocates nothing, unless the thread meets a class for the first time.
    ///
    /// Other threads may change the chain meanwhile.
    ///
    /// Call class: **sync**, allowed after attach, never starts a GC.
    ///
    /// # Errors
    /// `CORPROF_E_UNSUPPORTED_CALL_SEQUENCE`: objects may move in this place. `COR_E_OBJECTDISPOSED`: they are of
    /// another session. Otherwise the runtime's error about an object.
    #[inline]
    pub fn follow(
        &self,
        cx: &InNoGc<'_>,
        cache: &mut LinkCache<K>,
        first: ObjectId<'_>,
        most: usize,
        mut visit: impl FnMut(K),
    ) -> Result<ChainEnd> {
        cx.check_still(FOLLOW)?;
        cx.check_unmarked(FOLLOW)?;
        self.check_session(cx, FOLLOW)?;
        let unloads = self.unloads.load(Ordering::Acquire);
        let relearned = self.relearned.load(Ordering::Acquire);
        if cache.unloads != unloads || cache.relearned != relearned {
            cache.unloads = unloads;
            cache.relearned = relearned;
            cache.slots.fill(None);
        }
        let mut object = first;
        for _ in 0..most {
            // SAFETY: an object begins with a word, and neither moves nor dies, by `check_still` (fact: still).
            let word = unsafe { read(object, 0) };
            let link = match cache.get(word) {
                Some(link) => link,
                None => match self.find(cx, unloads, object, word)? {
                    Some(link) => cache.keep(word, link),
                    None => return Ok(ChainEnd::Unknown),
                },
            };
            visit(link.kind);
            let Some(offset) = link.offset else { return Ok(ChainEnd::Last) };
            // SAFETY: objects with this first word are of the class that was learned (fact: object-class), which has a
            // reference there: no class was unloaded since (fact: still). The reference is null or leads to an object,
            // which this one keeps alive, or which another thread has dropped just now, and then no collection runs.
            let next = unsafe { ObjectId::from_raw(read(object, offset)) };
            match next {
                Some(next) => object = next,
                None => return Ok(ChainEnd::Null),
            }
        }
        Ok(ChainEnd::Limit)
    }

    /// What is known of the class of an object. Who would have to wait knows nothing.
    #[cold]
    fn find(&self, cx: &InNoGc<'_>, unloads: usize, object: ObjectId<'_>, word: usize) -> Result<Option<Link<K>>> {
        // Inserted code may not ask. Where one may, the answer is the first word (fact: object-class).
        if cx.class_of(object).is_ok_and(|class| class.as_raw() != word) {
            return Err(Error::new(E_INVALIDARG, FOLLOW).about("an object", "its first word is not its class"));
        }
        let known = match self.table.try_read() {
            Ok(table) if table.unloads == unloads => table.classes.get(&word).copied(),
            _ => None,
        };
        if known.is_none()
            && let Ok(mut unknown) = self.unknown.try_lock()
            && unknown.len() < MOST_UNKNOWN
        {
            unknown.push(Unknown { class: word, changes: cx.liveness().changes() });
        }
        Ok(known)
    }
}

impl<K: Copy> LinkCache<K> {
    /// The slot of a word. Descriptions of classes lie side by side, so the lowest bits alone would not do.
    fn slot(word: usize) -> usize {
        const BITS: u32 = SLOTS.trailing_zeros();
        ((word as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BITS)) as usize
    }

    #[inline]
    fn get(&self, word: usize) -> Option<Link<K>> {
        let (known, link) = self.slots[Self::slot(word)]?;
        (known == word).then_some(link)
    }

    fn keep(&mut self, word: usize, link: Link<K>) -> Link<K> {
        self.slots[Self::slot(word)] = Some((word, link));
        link
    }
}

impl<K> fmt::Debug for Links<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for LinkCache<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkCache").finish_non_exhaustive()
    }
}

/// A word of an object. Other threads may write it.
///
/// # Safety
/// The object has a whole word there, and neither moves nor dies during the call.
#[inline]
unsafe fn read(object: ObjectId<'_>, offset: usize) -> usize {
    let place = std::ptr::with_exposed_provenance::<AtomicUsize>(object.as_raw() + offset);
    // SAFETY: the caller's promise. The runtime aligns references.
    unsafe { &*place }.load(Ordering::Acquire)
}

/// Where objects of a class have the reference at the end of the path: fields of the most derived class that has one.
///
/// # Errors
/// If there is no such reference, or the class is unloaded.
pub(crate) fn reference_offset(cx: &mut InCallback<'_>, class: ClassId, path: &[&str]) -> Result<usize> {
    let Some((first, rest)) = path.split_first() else { return Err(misfit("an empty path")) };
    // The offsets of a value type are from the start of the value.
    if !matches!(Lookup::new(cx).kind(class)?, Kind::Reference) {
        return Err(misfit("a class whose objects have no fields of their own"));
    }
    let (mut shape, mut field) = find_in_bases(cx, class, first)?;
    let mut offset = field.offset;
    for name in rest {
        let of = field.of.as_ref().ok_or(misfit("a malformed signature"))?;
        let scope = Scope { module: shape.module, class_args: &shape.type_args, method_args: &[] };
        let inner =
            planner::struct_class(&mut Lookup::new(cx), of, &scope).ok_or(misfit("a field without a struct"))?;
        let inner = layout_of(cx, inner)?;
        let size = inner.size;
        (shape, field) = find(inner, name).ok_or(misfit("a struct without this field"))?;
        if field.offset + size_of::<usize>() > size {
            return Err(misfit("a field beyond its struct"));
        }
        offset += field.offset;
    }
    let of = field.of.as_ref().ok_or(misfit("a malformed signature"))?;
    let scope = Scope { module: shape.module, class_args: &shape.type_args, method_args: &[] };
    let is_aligned = offset.is_multiple_of(align_of::<usize>());
    if is_aligned && planner::is_reference(&mut Lookup::new(cx), of, &scope) {
        Ok(offset)
    } else {
        Err(misfit("a field without a reference"))
    }
}

/// The field with this name, of the most derived class that has one.
fn find_in_bases(cx: &InNoGc<'_>, class: ClassId, name: &str) -> Result<(Shape, ShapeField)> {
    let mut class = Some(class);
    for _ in 0..MOST_BASES {
        let Some(current) = class else { break };
        if let Some(found) = find(layout_of(cx, current)?, name) {
            return Ok(found);
        }
        class = cx.class_info(current)?.parent;
    }
    Err(misfit("a class without this field"))
}

fn find(mut shape: Shape, name: &str) -> Option<(Shape, ShapeField)> {
    let index = shape.fields.iter().position(|field| field.name == name)?;
    let field = shape.fields.swap_remove(index);
    Some((shape, field))
}

fn misfit(what: &'static str) -> Error {
    Error::new(E_INVALIDARG, LEARN)
        .about(what, "name a field of the class, then fields of the structs in it; the last is a reference")
}
