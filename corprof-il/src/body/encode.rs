//! Writes a body in the forms of its source; a form that has become too small grows.

use super::layout::{Content, Section, format};
use super::{Body, Label, NONE, Node, Operand, Prefix, Region, RegionKind};
use crate::opcode::OperandKind;

/// A body that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// There is no instruction.
    #[error("a body needs an instruction")]
    NoCode,
    /// The body was edited, and how many values are on its stack was neither computed nor set.
    #[error("the body was edited, and its max stack is not known: verify it with `Verifier::finish`, or set it")]
    NoMaxStack,
    /// A branch goes to a label without a place, or of another body.
    #[error("label {} belongs to no instruction", .0.0)]
    UnplacedLabel(Label),
    /// The code is longer than the distance of a branch can be.
    #[error("the code is longer than 2 GiB")]
    TooLong,
    /// More clauses than a section can hold.
    #[error("{0} regions: 699,050 at most")]
    TooManyRegions(usize),
    /// A region begins after it ends, or its parts were removed.
    #[error("region {0} is not a range of the body's instructions")]
    BadRegion(usize),
}

/// A written body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Header, code and sections.
    pub bytes: Vec<u8>,
    /// For each instruction that was parsed and is still there, in order: its offset then and its offset now.
    pub map: Vec<(u32, u32)>,
}

/// A branch in the written code, whose distance is not known yet.
struct Fixup {
    /// Where the distance is.
    at: u32,
    /// From where it is counted: the end of the instruction.
    from: u32,
    label: Label,
    is_short: bool,
}

struct Code {
    bytes: Vec<u8>,
    /// Where the code begins in `bytes`.
    start: usize,
    offsets: Vec<u32>,
    fixups: Vec<Fixup>,
}

/// The room that the largest header needs before the code, filled in last.
const HEADER_ROOM: usize = format::FAT_HEADER;

impl Body {
    /// The bytes of the body: header, code and sections. One that was parsed and not changed gives its bytes back.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        self.write().map(|(bytes, _)| bytes)
    }

    /// The bytes of the body, and where its instructions went.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn encode_mapped(&self) -> Result<Encoded, EncodeError> {
        let (bytes, offsets) = self.write()?;
        let pairs = self.iter().filter_map(|(id, _)| Some((self.origin(id)?, *offsets.get(id.0 as usize)?)));
        Ok(Encoded { map: pairs.collect(), bytes })
    }

    fn write(&self) -> Result<(Vec<u8>, Vec<u32>), EncodeError> {
        if self.first == NONE {
            return Err(EncodeError::NoCode);
        }
        let max_stack = self.max_stack.ok_or(EncodeError::NoMaxStack)?;
        let mut code = self.code(None)?;
        if !self.patch(&mut code)? {
            let long = self.grow(&code)?;
            code = self.code(Some(&long))?;
            self.patch(&mut code)?;
        }
        let Code { mut bytes, start, offsets, .. } = code;
        let length = bytes.len() - start;
        let has_sections = !self.regions.is_empty() || !self.layout.sections.is_empty();
        let is_tiny = !(self.layout.is_fat || has_sections || self.locals.is_some() || self.init_locals)
            && length <= format::TINY_CODE
            && max_stack <= format::TINY_STACK;
        if is_tiny {
            bytes.drain(..HEADER_ROOM - 1);
            if let Some(first) = bytes.first_mut() {
                *first = format::TINY | (length as u8) << 2;
            }
        } else {
            self.fat_header(&mut bytes, max_stack, length, has_sections);
        }
        if has_sections {
            self.sections(&mut bytes, &offsets, length as u32)?;
        }
        Ok((bytes, offsets))
    }

    fn fat_header(&self, bytes: &mut [u8], max_stack: u16, code: usize, has_sections: bool) {
        let size = (format::FAT_HEADER + self.layout.header_rest.len()) as u16 / 4;
        let mut flags = u16::from(format::FAT) | self.layout.other_flags | size << 12;
        flags |= if self.init_locals { format::INIT_LOCALS } else { 0 };
        flags |= if has_sections { format::MORE_SECTIONS } else { 0 };
        let locals = self.locals.map_or(0, |token| token.as_raw());
        let fields = flags.to_le_bytes().into_iter().chain(max_stack.to_le_bytes());
        let fields = fields.chain((code as u32).to_le_bytes()).chain(locals.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(to, from)| *to = from);
    }

    /// Writes all instructions; branches in `long` in their long form.
    fn code(&self, long: Option<&[bool]>) -> Result<Code, EncodeError> {
        let rest = &self.layout.header_rest;
        let mut code = Code {
            bytes: Vec::with_capacity(HEADER_ROOM + rest.len() + self.nodes.len() * 3 + self.regions.len() * 24 + 8),
            start: HEADER_ROOM + rest.len(),
            offsets: vec![NONE; self.nodes.len()],
            fixups: Vec::new(),
        };
        code.bytes.resize(HEADER_ROOM, 0);
        code.bytes.extend_from_slice(rest);
        let mut at = self.first;
        while let Some(node) = self.nodes.get(at as usize) {
            let offset = code.bytes.len() - code.start;
            if offset > i32::MAX as usize {
                return Err(EncodeError::TooLong);
            }
            if let Some(slot) = code.offsets.get_mut(at as usize) {
                *slot = offset as u32;
            }
            code.write(node, long.is_some_and(|long| long.get(at as usize) == Some(&true)));
            at = node.next;
        }
        Ok(code)
    }

    fn offset_of(&self, label: Label, offsets: &[u32]) -> Result<u32, EncodeError> {
        let insn = self.labels.get(label.0 as usize).and_then(|entry| offsets.get(entry.insn as usize));
        insn.copied().filter(|offset| *offset != NONE).ok_or(EncodeError::UnplacedLabel(label))
    }

    /// Writes the distances; answers whether all short ones fit.
    fn patch(&self, code: &mut Code) -> Result<bool, EncodeError> {
        let mut fits = true;
        for fixup in &code.fixups {
            let distance = i64::from(self.offset_of(fixup.label, &code.offsets)?) - i64::from(fixup.from);
            let at = code.start + fixup.at as usize;
            if fixup.is_short {
                match (i8::try_from(distance), code.bytes.get_mut(at)) {
                    (Ok(short), Some(byte)) => *byte = short.to_le_bytes()[0],
                    _ => fits = false,
                }
            } else if let Some(bytes) = code.bytes.get_mut(at..at + 4) {
                let distance = i32::try_from(distance).map_err(|_| EncodeError::TooLong)?;
                bytes.copy_from_slice(&distance.to_le_bytes());
            }
        }
        Ok(fits)
    }

    /// Which short branches must become long: the least set after which all others fit.
    ///
    /// A branch that grows moves what lies beyond it by three bytes, and so stretches the short branches that span it.
    /// Those begin within 130 bytes of it, so the work is proportional to the length of the code.
    fn grow(&self, code: &Code) -> Result<Vec<bool>, EncodeError> {
        const REACH: u32 = 160;
        const GROWTH: i64 = 3;
        struct Short {
            /// The end of the instruction, from where the distance is counted.
            from: u32,
            to: u32,
            distance: i64,
            is_long: bool,
        }
        let mut shorts = Vec::new();
        for fixup in code.fixups.iter().filter(|fixup| fixup.is_short) {
            let to = self.offset_of(fixup.label, &code.offsets)?;
            let distance = i64::from(to) - i64::from(fixup.from);
            shorts.push(Short { from: fixup.from, to, distance, is_long: false });
        }
        let too_far = |short: &Short| !short.is_long && i8::try_from(short.distance).is_err();
        let mut grown: Vec<usize> = (0..shorts.len()).filter(|at| shorts.get(*at).is_some_and(too_far)).collect();
        grown.iter().for_each(|at| shorts.get_mut(*at).into_iter().for_each(|short| short.is_long = true));
        while let Some(at) = grown.pop() {
            let Some(from) = shorts.get(at).map(|short| short.from) else { continue };
            let near = shorts.partition_point(|short| short.from + REACH < from);
            for (index, other) in shorts.iter_mut().enumerate().skip(near) {
                if other.from > from + REACH {
                    break;
                }
                // Forward: the grown branch is between the other one and its target. Backward: it is that or itself.
                if other.from < from && from <= other.to {
                    other.distance += GROWTH;
                } else if other.to < from && from <= other.from {
                    other.distance -= GROWTH;
                }
                if too_far(other) {
                    other.is_long = true;
                    grown.push(index);
                }
            }
        }
        let mut long = vec![false; self.nodes.len()];
        let ends: rustc_hash::FxHashSet<u32> = shorts.iter().filter(|s| s.is_long).map(|s| s.from).collect();
        // The offset of the node after a branch is where the branch ends.
        let mut at = self.first;
        while let Some(node) = self.nodes.get(at as usize) {
            let end = code.offsets.get(node.next as usize).copied();
            let end = end.unwrap_or((code.bytes.len() - code.start) as u32);
            let is_grown = node.insn.opcode.operand() == OperandKind::ShortBranch && ends.contains(&end);
            if let Some(slot) = long.get_mut(at as usize) {
                *slot = is_grown;
            }
            at = node.next;
        }
        Ok(long)
    }

    fn sections(&self, bytes: &mut Vec<u8>, offsets: &[u32], code: u32) -> Result<(), EncodeError> {
        if self.regions.len() > format::FAT_CLAUSES {
            return Err(EncodeError::TooManyRegions(self.regions.len()));
        }
        let mut clauses = Vec::with_capacity(self.regions.len());
        for (number, region) in self.regions.iter().enumerate() {
            clauses.push(self.clause(region, offsets, code).ok_or(EncodeError::BadRegion(number))?);
        }
        let mut sections = self.layout.sections.clone();
        if self.layout.clauses() != clauses.len() {
            let is_fat = sections.iter().any(|section| section.is_fat);
            sections.retain(|section| matches!(section.content, Content::Other(..)));
            let content = Content::Clauses(clauses.len() as u32);
            sections.push(Section { padding: [0; 3], is_fat, omits_header: false, reserved: [0; 2], content });
        }
        let last = sections.len().saturating_sub(1);
        let mut rest = clauses.as_slice();
        for (number, section) in sections.iter().enumerate() {
            let padding = bytes.len().next_multiple_of(4) - bytes.len();
            bytes.extend(section.padding.iter().take(padding));
            let more = if number == last { 0 } else { format::SECTION_MORE };
            match &section.content {
                Content::Clauses(count) => {
                    let (these, others) = rest.split_at_checked(*count as usize).unwrap_or((rest, &[]));
                    rest = others;
                    write_clauses(bytes, these, section, more);
                }
                Content::Other(kind, content) => {
                    let length = content.len() + format::SECTION_HEADER;
                    section_header(bytes, *kind | more, section.is_fat, length, section.reserved);
                    bytes.extend_from_slice(content);
                }
            }
        }
        Ok(())
    }

    fn clause(&self, region: &Region, offsets: &[u32], code: u32) -> Option<Clause> {
        let start = |id: super::InsnId| offsets.get(id.0 as usize).copied().filter(|offset| *offset != NONE);
        let end = |id: super::InsnId| {
            start(id)?;
            let next = self.nodes.get(id.0 as usize)?.next;
            if next == NONE { Some(code) } else { offsets.get(next as usize).copied() }
        };
        let part = |range: super::Range| {
            let from = start(range.first)?;
            Some((from, end(range.last)?.checked_sub(from).filter(|length| *length > 0)?))
        };
        let (flags, last) = match region.kind {
            RegionKind::Catch(token) => (0, token.as_raw()),
            RegionKind::Filter { first } => (1, start(first)?),
            RegionKind::Finally => (2, region.unused),
            RegionKind::Fault => (4, region.unused),
        };
        Some(Clause { flags, tried: part(region.tried)?, handler: part(region.handler)?, last })
    }
}

struct Clause {
    flags: u32,
    tried: (u32, u32),
    handler: (u32, u32),
    last: u32,
}

impl Clause {
    fn is_small(&self) -> bool {
        let fits = |(from, length): (u32, u32)| from <= u32::from(u16::MAX) && length <= u32::from(u8::MAX);
        fits(self.tried) && fits(self.handler)
    }
}

fn section_header(bytes: &mut Vec<u8>, kind: u8, is_fat: bool, length: usize, reserved: [u8; 2]) {
    let [low, middle, high, ..] = length.to_le_bytes();
    let [middle, high] = if is_fat { [middle, high] } else { reserved };
    bytes.extend([kind | if is_fat { format::SECTION_FAT } else { 0 }, low, middle, high]);
}

fn write_clauses(bytes: &mut Vec<u8>, clauses: &[Clause], as_parsed: &Section, more: u8) {
    let is_fat = as_parsed.is_fat || clauses.len() > format::SMALL_CLAUSES || !clauses.iter().all(Clause::is_small);
    let size = if is_fat { format::FAT_CLAUSE } else { format::SMALL_CLAUSE };
    let header = if as_parsed.omits_header && !clauses.is_empty() { 0 } else { format::SECTION_HEADER };
    section_header(bytes, format::SECTION_EH | more, is_fat, clauses.len() * size + header, as_parsed.reserved);
    for clause in clauses {
        let (tried, tried_length) = clause.tried;
        let (handler, handler_length) = clause.handler;
        if is_fat {
            for field in [clause.flags, tried, tried_length, handler, handler_length, clause.last] {
                bytes.extend(field.to_le_bytes());
            }
        } else {
            bytes.extend((clause.flags as u16).to_le_bytes());
            bytes.extend((tried as u16).to_le_bytes());
            bytes.push(tried_length as u8);
            bytes.extend((handler as u16).to_le_bytes());
            bytes.push(handler_length as u8);
            bytes.extend(clause.last.to_le_bytes());
        }
    }
}

impl Code {
    #[inline]
    fn write(&mut self, node: &Node, is_long: bool) {
        let insn = &node.insn;
        for prefix in insn.prefixes() {
            self.prefix(*prefix);
        }
        let opcode = if is_long { insn.opcode.long_form().unwrap_or(insn.opcode) } else { insn.opcode };
        let [high, low] = opcode.code().to_be_bytes();
        if high != 0 {
            self.bytes.push(high);
        }
        self.bytes.push(low);
        match &insn.operand {
            Operand::None => {}
            Operand::Int8(number) => self.bytes.extend(number.to_le_bytes()),
            Operand::Int32(number) => self.bytes.extend(number.to_le_bytes()),
            Operand::Int64(number) => self.bytes.extend(number.to_le_bytes()),
            Operand::Float32(bits) => self.bytes.extend(bits.to_le_bytes()),
            Operand::Float64(bits) => self.bytes.extend(bits.to_le_bytes()),
            Operand::Token(token) => self.bytes.extend(token.as_raw().to_le_bytes()),
            Operand::Variable(number) => {
                let [low, high] = number.to_le_bytes();
                self.bytes.push(low);
                if opcode.operand() == OperandKind::Variable {
                    self.bytes.push(high);
                }
            }
            Operand::Target(label) => {
                let is_short = opcode.operand() == OperandKind::ShortBranch;
                let at = self.offset();
                self.bytes.extend_from_slice(if is_short { &[0] } else { &[0; 4] });
                self.fixups.push(Fixup { at, from: self.offset(), label: *label, is_short });
            }
            Operand::Targets(labels) => {
                self.bytes.extend((labels.len() as u32).to_le_bytes());
                let from = self.offset() + 4 * labels.len() as u32;
                for label in labels {
                    self.fixups.push(Fixup { at: self.offset(), from, label: *label, is_short: false });
                    self.bytes.extend([0; 4]);
                }
            }
        }
    }

    fn offset(&self) -> u32 {
        (self.bytes.len() - self.start) as u32
    }

    #[cold]
    fn prefix(&mut self, prefix: Prefix) {
        self.bytes.extend(prefix.opcode().code().to_be_bytes());
        match prefix {
            Prefix::Unaligned(operand) | Prefix::No(operand) => self.bytes.push(operand),
            Prefix::Constrained(token) => self.bytes.extend(token.as_raw().to_le_bytes()),
            Prefix::Volatile | Prefix::Tail | Prefix::Readonly => {}
        }
    }
}
