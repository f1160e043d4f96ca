//! Dumps by the callbacks of a collection, for runtimes without EventPipe sessions: they become blocks like those of the events.

use super::blocks::{HEADER, id};
use super::run::Run;
use crate::args::{RootKind, Roots, WeakTableElements};
use crate::context::InCallback;
use crate::id::{ClassId, ObjectId};

/// A block that is longer is passed on.
const FULL: usize = 60 << 10;

/// The blocks that are being filled, a kind each.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    roots: Block,
    pairs: Block,
    objects: Block,
    references: Block,
}

#[derive(Debug, Default)]
struct Block {
    payload: Vec<u8>,
    count: u32,
    index: u32,
}

impl Block {
    /// Adds an entry, which `parts` are one after another.
    fn push(&mut self, parts: &[&[u8]]) {
        if self.payload.is_empty() {
            self.payload.resize(HEADER, 0);
        }
        parts.iter().for_each(|part| self.payload.extend_from_slice(part));
        self.count += 1;
    }

    /// The block with its header, and begins the next.
    fn take(&mut self) -> Vec<u8> {
        let mut payload = std::mem::take(&mut self.payload);
        let header = [self.index.to_le_bytes(), self.count.to_le_bytes()].concat();
        payload.iter_mut().zip(header).for_each(|(byte, header)| *byte = header);
        self.index += 1;
        self.count = 0;
        payload
    }
}

fn address(object: Option<ObjectId<'_>>) -> [u8; size_of::<usize>()] {
    object.map_or(0, |object| object.as_raw()).to_le_bytes()
}

impl Run {
    pub(super) fn roots(&mut self, cx: &InCallback<'_>, roots: Roots<'_>) {
        if !self.is_collecting() {
            return;
        }
        for root in roots.iter().filter(|root| root.object.is_some()) {
            let kind: u8 = match root.kind {
                RootKind::Stack => 0,
                RootKind::Finalizer => 1,
                RootKind::Handle => 2,
                _ => 3,
            };
            // The flags have the same numbers in both.
            let flags = root.flags.bits().to_le_bytes();
            self.unsent.roots.push(&[&address(root.object), &[kind], &flags, &root.id.to_le_bytes()]);
            self.send(cx, id::ROOT_EDGE, FULL);
        }
    }

    pub(super) fn pairs(&mut self, cx: &InCallback<'_>, elements: WeakTableElements<'_>) {
        if !self.is_collecting() {
            return;
        }
        for pair in elements.iter() {
            let handle = pair.handle.map_or(0, |handle| handle.as_raw());
            self.unsent.pairs.push(&[&address(pair.key), &address(pair.value), &handle.to_le_bytes()]);
            self.send(cx, id::WEAK_TABLE_PAIR, FULL);
        }
    }

    pub(super) fn object(
        &mut self,
        cx: &InCallback<'_>,
        object: ObjectId<'_>,
        class: ClassId,
        references: &[Option<ObjectId<'_>>],
    ) {
        if !self.is_collecting() {
            return;
        }
        let size = cx.object_size(object).unwrap_or_default() as u64;
        let words = [size, class.as_raw() as u64, references.len() as u64].map(u64::to_le_bytes);
        let [size, class, count] = &words;
        self.unsent.objects.push(&[&address(Some(object)), size, class, count]);
        self.send(cx, id::NODE, FULL);
        for &to in references {
            self.unsent.references.push(&[&address(to), &[0; 4]]);
            self.send(cx, id::EDGE, FULL);
        }
    }

    /// Passes on what is left.
    pub(super) fn send_all(&mut self, cx: &InCallback<'_>) {
        for event in [id::WEAK_TABLE_PAIR, id::NODE, id::EDGE, id::ROOT_EDGE] {
            self.send(cx, event, HEADER);
        }
    }

    /// Passes the block of this event on if it is longer than `limit`.
    fn send(&mut self, cx: &InCallback<'_>, event: u32, limit: usize) {
        let block = match event {
            id::ROOT_EDGE => &mut self.unsent.roots,
            id::WEAK_TABLE_PAIR => &mut self.unsent.pairs,
            id::NODE => &mut self.unsent.objects,
            _ => &mut self.unsent.references,
        };
        if block.payload.len() > limit {
            let payload = block.take();
            self.block(cx, event, &payload);
        }
    }
}
