//! Writes a snapshot's file.

use std::io::{self, Write};

use crc32fast::Hasher;

use super::{MAGIC, VERSION, zigzag};
use crate::graph::NONE;
use crate::{HeapGraph, RootKind, varint};

/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 16;

struct Output<W> {
    writer: W,
    buffer: Vec<u8>,
    checksum: Hasher,
}

impl<W: Write> Output<W> {
    fn number(&mut self, value: u64) -> io::Result<()> {
        varint::push(&mut self.buffer, value);
        if self.buffer.len() >= BUFFER { self.send() } else { Ok(()) }
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        self.number(text.len() as u64)?;
        self.buffer.extend(text.as_bytes());
        Ok(())
    }

    /// 0, or `value` and 1.
    fn option(&mut self, value: Option<u64>) -> io::Result<()> {
        self.number(value.map_or(0, |value| value.saturating_add(1)))
    }

    fn send(&mut self) -> io::Result<()> {
        self.checksum.update(&self.buffer);
        self.writer.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}

impl HeapGraph {
    /// Writes the snapshot in corprof's own format. The same snapshot gives the same bytes.
    ///
    /// # Errors
    /// Those of `writer`.
    pub fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut out = Output { writer, buffer: Vec::with_capacity(2 * BUFFER), checksum: Hasher::new() };
        out.buffer.extend(MAGIC);
        out.buffer.push(VERSION);
        out.text(&self.title)?;
        out.number(u64::from(self.taken.is_some()))?;
        self.taken.map_or(Ok(()), |taken| out.number(taken))?;
        let losses = self.losses.counts();
        out.number(losses.len() as u64)?;
        losses.iter().try_for_each(|&(_, count)| out.number(count))?;

        out.number(self.classes.len() as u64)?;
        for class in &self.classes {
            out.text(&class.assembly)?;
            out.text(&class.name)?;
            out.number(class.key)?;
            out.number(class.instance_size)?;
            out.text(&class.method)?;
        }
        out.number(self.shapes.len() as u64)?;
        for shape in &self.shapes {
            out.number(u64::from(shape.class))?;
            out.number(shape.size)?;
        }

        out.number(self.addresses.len() as u64)?;
        out.number(u64::from(self.addresses.shift()))?;
        let mut last = 0;
        for (object, address) in self.objects().zip(self.addresses.iter()) {
            out.number((address - last) >> self.addresses.shift())?;
            last = address;
            out.number(u64::from(self.shape_of[object.index()]))?;
            out.number(self.edges(object).len() as u64)?;
        }
        for object in self.objects() {
            let mut last = i64::from(object.0);
            for &target in &self.targets[self.edges(object)] {
                out.number(zigzag(i64::from(target) - last))?;
                last = i64::from(target);
            }
        }

        out.number(self.weak.len() as u64)?;
        let mut last = 0;
        for weak in &self.weak {
            out.number(u64::from(weak.edge - last))?;
            last = weak.edge;
            out.option((weak.table != NONE).then_some(u64::from(weak.table)))?;
        }
        out.number(self.roots.len() as u64)?;
        let mut last = 0;
        for root in &self.roots {
            out.number(u64::from(root.object.0 - last))?;
            last = root.object.0;
            let kind = RootKind::ALL.iter().position(|&kind| kind == root.kind);
            out.number(kind.unwrap_or_default() as u64)?;
            out.number(u64::from(root.name.is_some()))?;
            root.name.as_deref().map_or(Ok(()), |name| out.text(name))?;
        }
        out.send()?;
        let Output { mut writer, checksum, .. } = out;
        writer.write_all(&checksum.finalize().to_le_bytes())?;
        writer.flush()
    }
}
