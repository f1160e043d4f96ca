//! Reads a snapshot's file, and believes nothing in it.
//!
//! Lists grow as their entries come, so that memory is bounded by the file's length: a length alone allocates nothing.

use std::io::{BufReader, Read};

use crc32fast::Hasher;

use super::{MAGIC, ReadError, VERSION, unzigzag};
use crate::addresses::Addresses;
use crate::classes::Shape;
use crate::graph::{NONE, WeakEdge};
use crate::{Class, HeapGraph, Losses, ObjectId, Root, RootKind};

/// The most entries that memory is taken for before they come.
const RESERVED: usize = 1 << 16;

struct Input<R> {
    reader: BufReader<R>,
    at: u64,
    checksum: Hasher,
    /// Bytes that the checksum has not seen yet.
    unsummed: Vec<u8>,
}

type Result<T> = std::result::Result<T, ReadError>;

impl<R: Read> Input<R> {
    fn damaged<T>(&self, what: &'static str) -> Result<T> {
        Err(ReadError::Damaged { at: self.at, what })
    }

    fn check(&self, holds: bool, what: &'static str) -> Result<()> {
        if holds { Ok(()) } else { self.damaged(what) }
    }

    fn bytes(&mut self, bytes: &mut [u8]) -> Result<()> {
        match self.reader.read_exact(bytes) {
            Ok(()) => self.at += bytes.len() as u64,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return self.damaged("it ends early"),
            Err(error) => return Err(ReadError::Io(error)),
        }
        self.unsummed.extend_from_slice(bytes);
        if self.unsummed.len() > 4096 {
            self.checksum.update(&self.unsummed);
            self.unsummed.clear();
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let mut byte = [0];
            self.bytes(&mut byte)?;
            let bits = u64::from(byte[0] & 0x7f);
            self.check(shift < 63 || bits <= 1, "a number has more than 64 bits")?;
            value |= bits << shift;
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        self.damaged("a number does not end")
    }

    /// A number below `limit`.
    fn below(&mut self, limit: u64, what: &'static str) -> Result<u64> {
        let number = self.number()?;
        self.check(number < limit, what)?;
        Ok(number)
    }

    fn flag(&mut self) -> Result<bool> {
        Ok(self.below(2, "a flag is neither 0 nor 1")? == 1)
    }

    /// How many entries follow.
    fn count(&mut self) -> Result<usize> {
        Ok(self.below(u64::from(NONE) - 1, "a list is longer than a heap can be")? as usize)
    }

    /// `count` entries. Memory is taken as they come.
    fn list<T>(&mut self, count: usize, mut entry: impl FnMut(&mut Self, &[T]) -> Result<T>) -> Result<Vec<T>> {
        let mut list = Vec::with_capacity(count.min(RESERVED));
        for _ in 0..count {
            let next = entry(self, &list)?;
            list.push(next);
        }
        list.shrink_to_fit();
        Ok(list)
    }

    fn text(&mut self) -> Result<String> {
        let mut rest = self.number()?;
        let mut text = Vec::new();
        while rest > 0 {
            let mut part = [0; 256];
            let part = &mut part[..rest.min(256) as usize];
            self.bytes(part)?;
            text.extend_from_slice(part);
            rest -= part.len() as u64;
        }
        String::from_utf8(text).or_else(|_| self.damaged("a text is not UTF-8"))
    }

    fn class(&mut self, before: &[Class]) -> Result<Class> {
        let assembly = self.text()?;
        let name = self.text()?;
        let key = self.number()?;
        let instance_size = self.number()?;
        let class = Class { assembly, name, key, instance_size, method: self.text()? };
        self.check(before.last().is_none_or(|last| *last < class), "classes are not in order")?;
        Ok(class)
    }

    fn shape(&mut self, before: &[Shape], classes: usize) -> Result<Shape> {
        let class = self.below(classes as u64, "a shape has a class that is not there")? as u32;
        let shape = Shape { class, size: self.number()? };
        self.check(before.last().is_none_or(|last| *last < shape), "shapes are not in order")?;
        Ok(shape)
    }
}

impl HeapGraph {
    /// Reads a snapshot that [`write`](Self::write) wrote. Reads ahead: bytes after it in `reader` are lost.
    ///
    /// # Errors
    /// [`ReadError`]. Any bytes give an error or a consistent snapshot, and memory is at most some 30 times
    /// the number of bytes read.
    pub fn read(reader: impl Read) -> Result<Self> {
        let mut input = Input { reader: BufReader::new(reader), at: 0, checksum: Hasher::new(), unsummed: Vec::new() };
        let mut magic = [0; MAGIC.len()];
        match input.bytes(&mut magic) {
            Err(ReadError::Damaged { .. }) => return Err(ReadError::NotASnapshot),
            other => other?,
        }
        if magic != *MAGIC {
            return Err(ReadError::NotASnapshot);
        }
        let mut version = [0];
        input.bytes(&mut version)?;
        if version[0] != VERSION {
            return Err(ReadError::Version(version[0]));
        }
        let graph = input.graph()?;
        input.checksum.update(&input.unsummed);
        let expected = input.checksum.clone().finalize();
        let mut checksum = [0; 4];
        input.bytes(&mut checksum)?;
        input.check(u32::from_le_bytes(checksum) == expected, "the checksum does not fit")?;
        Ok(graph)
    }
}

impl<R: Read> Input<R> {
    fn graph(&mut self) -> Result<HeapGraph> {
        let title = self.text()?;
        let taken = if self.flag()? { Some(self.number()?) } else { None };
        let mut counts = [0; 12];
        let known = self.number()?;
        self.check(known == counts.len() as u64, "it counts other losses than there are")?;
        for count in &mut counts {
            *count = self.number()?;
        }
        let class_count = self.count()?;
        let classes: Vec<Class> = self.list(class_count, |input, before| input.class(before))?;
        let shape_count = self.count()?;
        let shapes: Vec<Shape> = self.list(shape_count, |input, before| input.shape(before, class_count))?;

        let objects = self.count()?;
        let shift = self.below(4, "addresses have an alignment that is not there")? as u32;
        let mut addresses = Addresses::new(shift);
        let mut address = 0_u64;
        let mut edges = 0_u64;
        let mut offsets = vec![0];
        let shape_of = self.list(objects, |input, _| {
            let distance = input.number()?;
            let next = distance.checked_mul(1 << shift).and_then(|distance| address.checked_add(distance));
            address = next.map_or_else(|| input.damaged("an address has more than 64 bits"), Ok)?;
            input.check(addresses.push(address), "addresses are not in order")?;
            let shape = input.below(shape_count as u64, "an object has a shape that is not there")?;
            edges = edges.saturating_add(input.number()?);
            input.check(edges < u64::from(NONE), "there are more references than a heap can have")?;
            offsets.push(edges as u32);
            Ok(shape as u32)
        })?;
        addresses.shrink();
        offsets.shrink_to_fit();

        let mut targets = Vec::with_capacity((edges as usize).min(RESERVED));
        for (object, row) in offsets.windows(2).enumerate() {
            let mut last = object as i64;
            for _ in row[0]..row[1] {
                let distance = unzigzag(self.number()?);
                last = last.checked_add(distance).filter(|&target| (0..objects as i64).contains(&target)).unwrap_or(-1);
                self.check(last >= 0, "a reference leads to an object that is not there")?;
                targets.push(last as u32);
            }
        }
        targets.shrink_to_fit();

        let weak_count = self.count()?;
        let weak = self.list(weak_count, |input, before| input.weak_edge(before, edges, objects))?;
        let root_count = self.count()?;
        let roots = self.list(root_count, |input, before| input.root(before, objects))?;
        let losses = Losses::from_counts(counts);
        let graph =
            HeapGraph { title, taken, addresses, shapes, shape_of, offsets, targets, weak, roots, classes, losses };
        self.check(graph.weak_edges_end_rows(), "values of weak tables are not behind references")?;
        Ok(graph)
    }

    fn weak_edge(&mut self, before: &[WeakEdge], edges: u64, objects: usize) -> Result<WeakEdge> {
        let distance = self.number()?;
        let edge = match before.last() {
            Some(last) if distance > 0 => u64::from(last.edge).saturating_add(distance),
            None => distance,
            Some(_) => return self.damaged("a weak edge comes twice"),
        };
        self.check(edge < edges, "a weak edge is not there")?;
        let table = self.below(objects as u64 + 1, "a weak table is not there")?;
        Ok(WeakEdge { edge: edge as u32, table: if table == 0 { NONE } else { table as u32 - 1 } })
    }

    fn root(&mut self, before: &[Root], objects: usize) -> Result<Root> {
        let last = before.last().map_or(0, |last| u64::from(last.object.0));
        let object = last.saturating_add(self.number()?);
        self.check(object < objects as u64, "a root holds an object that is not there")?;
        let kind = self.below(RootKind::ALL.len() as u64, "a root has an unknown kind")?;
        let name = if self.flag()? { Some(self.text()?.into()) } else { None };
        let root = Root { object: ObjectId(object as u32), kind: RootKind::ALL[kind as usize], name };
        self.check(before.last().is_none_or(|last| *last < root), "roots are not in order")?;
        Ok(root)
    }
}

impl HeapGraph {
    /// Whether each object's references are sorted, and its weak edges behind them, as all code that walks a row
    /// assumes.
    fn weak_edges_end_rows(&self) -> bool {
        self.objects().all(|object| {
            let edges = self.edges(object);
            let weak = self.weak_in(edges.clone());
            let references = edges.start..edges.end - weak.len();
            weak.first().is_none_or(|weak| weak.edge as usize == references.end) && self.targets[references].is_sorted()
        })
    }
}
