//! The payloads of the runtime's heap-dump events (`GCBulkNode` and its like) as input of a builder.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{GraphBuilder, HeapGraph, RootKind, TooLarge};

/// Events of `Microsoft-Windows-DotNETRuntime` that a heap dump consists of.
mod id {
    pub(super) const ROOT_EDGE: u16 = 16;
    pub(super) const WEAK_TABLE_PAIR: u16 = 17;
    pub(super) const NODE: u16 = 18;
    pub(super) const EDGE: u16 = 19;
    pub(super) const ROOT_STATIC_VAR: u16 = 38;
}

/// `GCRootFlag`.
mod flag {
    pub(super) const PINNING: u32 = 1;
    pub(super) const WEAK: u32 = 2;
    pub(super) const INTERIOR: u32 = 4;
    pub(super) const REF_COUNTED: u32 = 8;
}

/// Which blocks of one kind have come. The runtime numbers each kind from 0.
#[derive(Debug, Default)]
struct Sequence {
    next: u32,
    has_restarted: bool,
    has_gap: bool,
}

/// The verdict on a block by its number.
enum Arrival {
    Expected,
    /// As many blocks are missing before it.
    After(u32),
    /// It belongs to a second dump.
    Repeated,
}

impl Sequence {
    fn arrival(&mut self, index: u32) -> Arrival {
        if self.has_restarted || index < self.next {
            self.has_restarted = true;
            return Arrival::Repeated;
        }
        let missing = index - self.next;
        self.next = index.saturating_add(1);
        self.has_gap |= missing > 0;
        if missing == 0 { Arrival::Expected } else { Arrival::After(missing) }
    }
}

/// Reads the runtime's heap-dump events into a [`GraphBuilder`].
///
/// Objects announce how many references they have; the references come in other events, in the order of the objects and
/// not necessarily behind them. Each kind of event is numbered. So losses are noticed (EventPipe drops events when its
/// buffer is full), and so is a second dump, such as stopping the session makes: its blocks are left out. After a lost
/// block of objects or references, the following references cannot be assigned to objects: they are counted as
/// [surplus](crate::Losses::surplus_references) and left out, as wrong ones would be worse than none.
///
/// Classes are known by their number only (the event's `TypeID`, which is the profiler's `ClassID`): describe those of
/// [`GraphBuilder::undescribed_classes`] afterwards.
#[derive(Debug)]
pub struct BulkReader {
    builder: GraphBuilder,
    /// Bytes of an address: 8 or 4.
    pointer: usize,
    nodes: Sequence,
    edges: Sequence,
    roots: Sequence,
    pairs: Sequence,
    /// Objects that wait for so many references.
    waiting: VecDeque<(u32, u64)>,
    /// References that came before their objects: numbers, or `None` for the address 0.
    early: VecDeque<Option<u32>>,
    /// Where static fields are that were reported.
    static_fields: FxHashSet<u64>,
    /// Names of their classes.
    static_classes: FxHashMap<u64, Box<str>>,
    has_roots: bool,
}

/// Reads numbers from a payload. The caller has made sure that they are there.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, bytes: usize) -> u64 {
        let (number, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        number.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}

impl BulkReader {
    /// Begins to read into `builder`. `is_64_bit` says how wide the application's addresses are.
    #[must_use]
    pub fn new(builder: GraphBuilder, is_64_bit: bool) -> Self {
        Self {
            builder,
            pointer: if is_64_bit { 8 } else { 4 },
            nodes: Sequence::default(),
            edges: Sequence::default(),
            roots: Sequence::default(),
            pairs: Sequence::default(),
            waiting: VecDeque::new(),
            early: VecDeque::new(),
            static_fields: FxHashSet::default(),
            static_classes: FxHashMap::default(),
            has_roots: false,
        }
    }

    /// Names the class of the static field at this address. The events have the names of fields only; call it before
    /// they come.
    pub fn static_class(&mut self, address: u64, class: &str) {
        self.static_classes.insert(address, class.into());
    }

    /// Whether the event `id` of `Microsoft-Windows-DotNETRuntime` belongs to a heap dump.
    #[must_use]
    pub fn reads(id: u16) -> bool {
        matches!(id, id::NODE | id::EDGE | id::ROOT_EDGE | id::WEAK_TABLE_PAIR | id::ROOT_STATIC_VAR)
    }

    /// Takes the payload of an event of `Microsoft-Windows-DotNETRuntime`. False if it is none of a heap dump's.
    pub fn event(&mut self, id: u16, payload: &[u8]) -> bool {
        let pointer = self.pointer;
        match id {
            id::NODE => self.block(payload, pointer + 24, |reader| &mut reader.nodes, Self::node),
            id::EDGE => self.block(payload, pointer + 4, |reader| &mut reader.edges, Self::reference),
            id::ROOT_EDGE => self.block(payload, 2 * pointer + 5, |reader| &mut reader.roots, Self::root),
            id::WEAK_TABLE_PAIR => self.block(payload, 3 * pointer, |reader| &mut reader.pairs, Self::pair),
            id::ROOT_STATIC_VAR => self.static_fields(payload),
            _ => return false,
        }
        true
    }

    /// The builder, to add facts that the events lack.
    pub fn builder(&mut self) -> &mut GraphBuilder {
        &mut self.builder
    }

    /// Makes the graph of the events read so far. A dump without roots was cut: they come last.
    ///
    /// # Errors
    /// As [`GraphBuilder::finish`].
    pub fn finish(mut self) -> Result<HeapGraph, TooLarge> {
        let missing = self.waiting.iter().map(|&(_, missing)| missing).fold(0, u64::saturating_add);
        let losses = &mut self.builder.losses;
        losses.missing_references = losses.missing_references.saturating_add(missing);
        losses.surplus_references += self.early.len() as u64;
        if !self.has_roots {
            self.builder.set_cut();
        }
        self.builder.finish()
    }

    /// Reads `{u32 Index, u32 Count, u16 ClrInstanceID}` and hands out `Count` entries of `size` bytes.
    fn block(
        &mut self,
        payload: &[u8],
        size: usize,
        sequence: impl Fn(&mut Self) -> &mut Sequence,
        entry: impl Fn(&mut Self, Fields<'_>),
    ) {
        let mut header = Fields(payload);
        let index = header.number(4) as u32;
        let count = header.number(4) as usize;
        let entries = payload.get(10..).unwrap_or_default();
        if payload.len() < 10 || count.checked_mul(size) != Some(entries.len()) {
            self.builder.losses.malformed_blocks += 1;
            sequence(self).has_gap = true;
            return;
        }
        match sequence(self).arrival(index) {
            Arrival::Expected => {}
            Arrival::After(missing) => {
                self.builder.losses.missing_blocks += u64::from(missing);
            }
            Arrival::Repeated => {
                self.builder.losses.repeated_blocks += 1;
                return;
            }
        }
        entries.chunks_exact(size).for_each(|bytes| entry(self, Fields(bytes)));
    }

    /// Whether objects and references can no longer be brought together.
    fn is_broken(&self) -> bool {
        self.nodes.has_gap || self.edges.has_gap
    }

    fn node(&mut self, mut fields: Fields<'_>) {
        let address = fields.number(self.pointer);
        let size = fields.number(8);
        let class = fields.number(8);
        let references = fields.number(8);
        let Some(number) = self.builder.define(address, class, size) else { return };
        if self.is_broken() {
            self.builder.losses.missing_references = self.builder.losses.missing_references.saturating_add(references);
            return;
        }
        let early = self.early.len().min(usize::try_from(references).unwrap_or(usize::MAX));
        for to in self.early.drain(..early).flatten() {
            self.builder.edge(number, to);
        }
        let missing = references - early as u64;
        if missing > 0 {
            self.waiting.push_back((number, missing));
        }
    }

    fn reference(&mut self, mut fields: Fields<'_>) {
        if self.is_broken() {
            self.builder.losses.surplus_references += 1;
            return;
        }
        let to = fields.number(self.pointer);
        let to = self.builder.number(to);
        let Some((from, missing)) = self.waiting.front_mut() else {
            self.early.push_back(to);
            return;
        };
        let from = *from;
        *missing -= 1;
        if *missing == 0 {
            self.waiting.pop_front();
        }
        if let Some(to) = to {
            self.builder.edge(from, to);
        }
    }

    fn root(&mut self, mut fields: Fields<'_>) {
        let address = fields.number(self.pointer);
        let kind = fields.number(1);
        let flags = fields.number(4) as u32;
        self.has_roots = true;
        if flags & flag::WEAK != 0 {
            return;
        }
        let kind = match kind {
            0 => RootKind::Stack,
            1 => RootKind::Finalizer,
            2 if flags & flag::REF_COUNTED != 0 => RootKind::RefCountedHandle,
            2 if flags & flag::PINNING != 0 => RootKind::PinnedHandle,
            2 => RootKind::Handle,
            _ => RootKind::Other,
        };
        self.builder.add_root(address, flags & flag::INTERIOR != 0, kind, None);
    }

    fn pair(&mut self, mut fields: Fields<'_>) {
        let key = fields.number(self.pointer);
        let value = fields.number(self.pointer);
        self.builder.ephemeron(None, key, value);
    }

    /// `{u32 Count, u64 AppDomainID, u16 ClrInstanceID}`, then entries that end with a name. These blocks have no
    /// number.
    fn static_fields(&mut self, payload: &[u8]) {
        let count = Fields(payload).number(4);
        let mut rest = payload.get(14..);
        if rest.is_some_and(|entry| entry.len() >= 8 && self.static_fields.contains(&Fields(entry).number(8))) {
            self.builder.losses.repeated_blocks += 1;
            return;
        }
        for _ in 0..count {
            rest = rest.and_then(|entry| self.static_field(entry));
            if rest.is_none() {
                break;
            }
        }
        if rest.is_none_or(|rest| !rest.is_empty()) {
            self.builder.losses.malformed_blocks += 1;
        }
    }

    /// `{u64 GCRootID, u64 ObjectID, u64 TypeID, u32 Flags, UTF-16 name with a 0 at its end}`; returns the bytes after
    /// it.
    fn static_field<'a>(&mut self, entry: &'a [u8]) -> Option<&'a [u8]> {
        let (fixed, name) = entry.split_at_checked(28)?;
        let mut fields = Fields(fixed);
        let field = fields.number(8);
        let object = fields.number(8);
        let units = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
        let length = units.clone().position(|unit| unit == 0)?;
        let text: String = char::decode_utf16(units.take(length)).map(|unit| unit.unwrap_or('\u{fffd}')).collect();
        let text = match self.static_classes.get(&field) {
            Some(class) => format!("{class}.{text}"),
            None => text,
        };
        self.builder.add_root(object, false, RootKind::Static, Some(&text));
        self.static_fields.insert(field);
        name.get(2 * length + 2..)
    }
}
