//! Makes a body of its bytes.

use super::layout::{Content, Layout, Section, format};
use super::region::parents;
use super::{Body, InsnId, Instruction, Label, LabelEntry, NONE, Node, Operand, Prefix, Range, Region, RegionKind};
use crate::opcode::{Flow, Opcode, OperandKind};
use crate::token::Token;

/// The problem of a body's bytes, and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad method body, byte {at}{}: {problem}", code.map(|code| format!(" (IL_{code:04x})")).unwrap_or_default())]
pub struct ParseError {
    /// The offset from the start of the body, in bytes.
    pub at: usize,
    /// The offset in the code, if it is about the code.
    pub code: Option<u32>,
    /// The problem.
    pub problem: ParseProblem,
}

/// The ways in which a body's bytes can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseProblem {
    /// The bytes end before the body does.
    #[error("the bytes end here, and the body does not")]
    Truncated,
    /// The first byte begins neither a tiny nor a fat header.
    #[error("{0:#04x} begins no header")]
    BadHeader(u8),
    /// A fat header that is said to be shorter than 12 bytes.
    #[error("a fat header of {0} bytes")]
    ShortHeader(usize),
    /// Bytes follow the body.
    #[error("{0} bytes follow the body")]
    Trailing(usize),
    /// A body has at least one instruction.
    #[error("there is no instruction")]
    NoCode,
    /// No opcode has this code.
    #[error("{0:#x} is not an opcode")]
    UnknownOpcode(u16),
    /// An instruction is longer than the rest of the code.
    #[error("the code ends within an instruction")]
    CodeEnds,
    /// The code ends with a prefix.
    #[error("a prefix is at the end of the code")]
    PrefixAtEnd,
    /// A branch goes where no instruction begins: into one, between a prefix and its instruction, or out of the code.
    #[error("the target {0:#x} is not the beginning of an instruction")]
    BadTarget(i64),
    /// A section whose length is not a number of clauses.
    #[error("a section of {0} bytes")]
    BadSection(usize),
    /// A clause of a kind that does not exist.
    #[error("clause {clause} has the flags {flags:#x}")]
    BadClause {
        /// The number of the clause in the table.
        clause: usize,
        /// Its flags.
        flags: u32,
    },
    /// A part of a clause that is empty, out of the code, or not made of whole instructions.
    #[error("clause {clause}: {from:#x}..{to:#x} is not a range of instructions")]
    BadRange {
        /// The number of the clause in the table.
        clause: usize,
        /// Where the part begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
}

struct Clause {
    flags: u32,
    tried: (u32, u32),
    handler: (u32, u32),
    last: u32,
}

impl Body {
    /// Makes a body of its bytes: header, code and sections, and nothing after them.
    ///
    /// # Errors
    /// Faults in the bytes, with their places: parts that cannot be represented as instructions and regions.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (body, length) = Self::parse_prefix(bytes)?;
        match bytes.len() - length {
            0 => Ok(body),
            rest => Err(ParseError { at: length, code: None, problem: ParseProblem::Trailing(rest) }),
        }
    }

    /// Makes a body of the bytes at the beginning of `bytes`, and says how many they were.
    ///
    /// # Errors
    /// As of [`Body::parse`].
    pub fn parse_prefix(bytes: &[u8]) -> Result<(Self, usize), ParseError> {
        Parser { bytes }.body()
    }
}

struct Parser<'a> {
    bytes: &'a [u8],
}

fn at(at: usize, problem: ParseProblem) -> ParseError {
    ParseError { at, code: None, problem }
}

impl<'a> Parser<'a> {
    fn take<const N: usize>(&self, from: usize) -> Result<[u8; N], ParseError> {
        let found = self.bytes.get(from..).and_then(|rest| rest.first_chunk::<N>());
        found.copied().ok_or(at(self.bytes.len(), ParseProblem::Truncated))
    }

    fn body(&self) -> Result<(Body, usize), ParseError> {
        let [first] = self.take(0)?;
        let mut body = Body::new();
        let (start, length, has_sections) = if first & format::KIND == format::TINY {
            body.max_stack = Some(format::TINY_STACK);
            (1, usize::from(first >> 2), false)
        } else if first & format::FAT_MASK == format::FAT {
            self.fat_header(&mut body)?
        } else {
            return Err(at(0, ParseProblem::BadHeader(first)));
        };
        let code = self.bytes.get(start..).and_then(|rest| rest.get(..length));
        let code = code.ok_or(at(self.bytes.len(), ParseProblem::Truncated))?;
        Code { code, start, at: 0 }.read(&mut body)?;
        let mut end = start + length;
        if has_sections {
            let mut clauses = Vec::new();
            end = self.sections(end, &mut body.layout, &mut clauses)?;
            regions(&mut body, &clauses, length, end)?;
        }
        Ok((body, end))
    }

    fn fat_header(&self, body: &mut Body) -> Result<(usize, usize, bool), ParseError> {
        let [low, high, s0, s1, c0, c1, c2, c3, l0, l1, l2, l3] = self.take(0)?;
        let size = usize::from(high >> 4) * 4;
        if size < format::FAT_HEADER {
            return Err(at(1, ParseProblem::ShortHeader(size)));
        }
        let flags = u16::from_le_bytes([low & !format::FAT_MASK, high & 0x0f]);
        let locals = u32::from_le_bytes([l0, l1, l2, l3]);
        let rest = self.bytes.get(format::FAT_HEADER..size).ok_or(at(self.bytes.len(), ParseProblem::Truncated))?;
        body.max_stack = Some(u16::from_le_bytes([s0, s1]));
        body.init_locals = flags & format::INIT_LOCALS != 0;
        body.locals = (locals != 0).then_some(Token::from_raw(locals));
        body.layout = Layout {
            is_fat: true,
            other_flags: flags & !(format::INIT_LOCALS | format::MORE_SECTIONS),
            header_rest: rest.into(),
            sections: Vec::new(),
        };
        let length = u32::from_le_bytes([c0, c1, c2, c3]) as usize;
        Ok((size, length, flags & format::MORE_SECTIONS != 0))
    }

    fn sections(&self, mut end: usize, layout: &mut Layout, all: &mut Vec<Clause>) -> Result<usize, ParseError> {
        loop {
            let start = end.next_multiple_of(4);
            let mut padding = [0; 3];
            let between = self.bytes.get(end..start).ok_or(at(self.bytes.len(), ParseProblem::Truncated))?;
            padding.iter_mut().zip(between).for_each(|(to, from)| *to = *from);
            let [kind, low, middle, high] = self.take(start)?;
            let is_fat = kind & format::SECTION_FAT != 0;
            let length = usize::from(low) | if is_fat { usize::from(middle) << 8 | usize::from(high) << 16 } else { 0 };
            let is_eh = kind & format::SECTION_KIND == format::SECTION_EH;
            let size = if is_fat { format::FAT_CLAUSE } else { format::SMALL_CLAUSE };
            let omits_header = is_eh && length % size == 0 && length > 0;
            let content = if is_eh && (omits_header || length % size == format::SECTION_HEADER) {
                let mut from = start + format::SECTION_HEADER;
                for _ in 0..length / size {
                    all.push(self.clause(from, is_fat)?);
                    from += size;
                }
                end = from;
                Content::Clauses((length / size) as u32)
            } else {
                let rest = start + format::SECTION_HEADER..start + length;
                let rest = (!is_eh && length >= format::SECTION_HEADER).then(|| self.bytes.get(rest)).flatten();
                end = start + length;
                Content::Other(
                    kind & format::SECTION_KIND,
                    rest.ok_or(at(start, ParseProblem::BadSection(length)))?.into(),
                )
            };
            let reserved = if is_fat { [0; 2] } else { [middle, high] };
            layout.sections.push(Section { padding, is_fat, omits_header, reserved, content });
            if kind & format::SECTION_MORE == 0 {
                return Ok(end);
            }
        }
    }

    fn clause(&self, from: usize, is_fat: bool) -> Result<Clause, ParseError> {
        if is_fat {
            let bytes: [u8; format::FAT_CLAUSE] = self.take(from)?;
            let word = |at: usize| bytes.get(at * 4..).and_then(|rest| rest.first_chunk()).copied().unwrap_or_default();
            let word = |at: usize| u32::from_le_bytes(word(at));
            let tried = (word(1), word(2));
            let handler = (word(3), word(4));
            return Ok(Clause { flags: word(0), tried, handler, last: word(5) });
        }
        let [f0, f1, t0, t1, tried_length, h0, h1, handler_length, l0, l1, l2, l3] = self.take(from)?;
        let half = |low, high| u32::from(u16::from_le_bytes([low, high]));
        Ok(Clause {
            flags: half(f0, f1),
            tried: (half(t0, t1), tried_length.into()),
            handler: (half(h0, h1), handler_length.into()),
            last: u32::from_le_bytes([l0, l1, l2, l3]),
        })
    }
}

/// Makes regions of the clauses, whose offsets must be those of instructions.
fn regions(body: &mut Body, clauses: &[Clause], code: usize, end: usize) -> Result<(), ParseError> {
    for (number, clause) in clauses.iter().enumerate() {
        let range = |(from, length): (u32, u32)| {
            let to = u64::from(from) + u64::from(length);
            let bad = at(end, ParseProblem::BadRange { clause: number, from: from.into(), to });
            let first = body.find(from).ok_or(bad)?;
            let last = if to == code as u64 { body.nodes.len() as u32 } else { body.find(to as u32).ok_or(bad)? };
            // An end beyond 32 bits matches no instruction; an empty range has no last instruction.
            if length == 0 || to > code as u64 || last <= first {
                return Err(bad);
            }
            Ok(Range { first: InsnId(first), last: InsnId(last - 1) })
        };
        let tried = range(clause.tried)?;
        let handler = range(clause.handler)?;
        let kind = match clause.flags {
            0 => RegionKind::Catch(Token::from_raw(clause.last)),
            1 => {
                let from = clause.last.into();
                let to = clause.handler.0.into();
                let first = body.find(clause.last).filter(|first| *first < handler.first.0);
                let first = first.ok_or(at(end, ParseProblem::BadRange { clause: number, from, to }))?;
                RegionKind::Filter { first: InsnId(first) }
            }
            2 => RegionKind::Finally,
            4 => RegionKind::Fault,
            flags => return Err(at(end, ParseProblem::BadClause { clause: number, flags })),
        };
        let unused = if matches!(kind, RegionKind::Finally | RegionKind::Fault) { clause.last } else { 0 };
        body.regions.push(Region { kind, tried, handler, parent: None, unused });
    }
    body.mark_boundaries();
    body.find_parents();
    Ok(())
}

impl Body {
    /// The node that was at this offset, while nothing has been inserted.
    fn find(&self, offset: u32) -> Option<u32> {
        let found = self.nodes.binary_search_by_key(&offset, |node| node.origin);
        found.ok().map(|at| at as u32)
    }

    /// Works out the tree of regions anew.
    pub(super) fn find_parents(&mut self) {
        let (_, places) = self.in_order();
        let parents = parents(&self.intervals(&places));
        self.regions.iter_mut().zip(parents).for_each(|(region, parent)| region.parent = parent);
    }
}

struct Code<'a> {
    code: &'a [u8],
    /// Where in the body it begins.
    start: usize,
    at: usize,
}

impl Code<'_> {
    fn error(&self, code: usize, problem: ParseProblem) -> ParseError {
        ParseError { at: self.start + code, code: u32::try_from(code).ok(), problem }
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], ParseError> {
        match self.code.get(self.at..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.error(self.at, ParseProblem::CodeEnds)),
        }
    }

    #[inline]
    fn opcode(&mut self) -> Result<Opcode, ParseError> {
        let start = self.at;
        let [first] = self.take()?;
        let (found, code) = if first == 0xfe {
            let [second] = self.take()?;
            (Opcode::from_second_byte(second), 0xfe00 | u16::from(second))
        } else {
            (Opcode::from_byte(first), first.into())
        };
        found.ok_or_else(|| self.error(start, ParseProblem::UnknownOpcode(code)))
    }

    fn read(mut self, body: &mut Body) -> Result<(), ParseError> {
        if self.code.is_empty() || u32::try_from(self.code.len()).is_err() {
            return Err(self.error(0, ParseProblem::NoCode));
        }
        body.nodes.reserve_exact((self.code.len() * 5).div_ceil(8));
        // Branches hold the offset of their target until all instructions are known.
        let mut branches = Vec::new();
        while self.at < self.code.len() {
            let number = body.nodes.len() as u32;
            let origin = self.at as u32;
            let insn = self.instruction()?;
            if !insn.targets().is_empty() {
                branches.push(number);
            }
            body.nodes.push(Node {
                insn,
                prev: number.wrapping_sub(1),
                next: number + 1,
                origin,
                label: NONE,
                is_boundary: false,
                is_removed: false,
            });
        }
        body.first = 0;
        body.last = body.nodes.len() as u32 - 1;
        if let Some(last) = body.nodes.last_mut() {
            last.next = NONE;
        }
        for number in branches {
            self.resolve(body, number)?;
        }
        Ok(())
    }

    /// Makes labels of the offsets that a branch goes to.
    fn resolve(&self, body: &mut Body, number: u32) -> Result<(), ParseError> {
        let Some(node) = body.nodes.get_mut(number as usize) else { return Ok(()) };
        let origin = node.origin;
        let mut operand = std::mem::replace(&mut node.insn.operand, Operand::None);
        let labels = match &mut operand {
            Operand::Target(label) => std::slice::from_mut(label),
            Operand::Targets(labels) => labels,
            _ => &mut [],
        };
        for label in labels {
            let offset = label.0;
            let found = body.find(offset);
            // Targets were computed in 32 bits: one before the code is far beyond its end.
            let bad = || self.error(origin as usize, ParseProblem::BadTarget(offset.cast_signed().into()));
            let node = found.and_then(|at| body.nodes.get_mut(at as usize)).ok_or_else(bad)?;
            if node.label == NONE {
                node.label = body.labels.len() as u32;
                body.labels.push(LabelEntry { insn: found.unwrap_or(NONE), next: NONE });
            }
            *label = Label(node.label);
        }
        if let Some(node) = body.nodes.get_mut(number as usize) {
            node.insn.operand = operand;
        }
        Ok(())
    }

    #[inline]
    fn instruction(&mut self) -> Result<Instruction, ParseError> {
        let opcode = self.opcode()?;
        if opcode.flow() == Flow::Prefix {
            return self.prefixed(opcode);
        }
        Ok(Instruction { opcode, operand: self.operand(opcode)?, prefixes: None })
    }

    #[cold]
    fn prefixed(&mut self, first: Opcode) -> Result<Instruction, ParseError> {
        let mut prefixes = Vec::new();
        let mut opcode = first;
        while opcode.flow() == Flow::Prefix {
            prefixes.push(match opcode {
                Opcode::Unaligned => Prefix::Unaligned(self.take::<1>()?[0]),
                Opcode::No => Prefix::No(self.take::<1>()?[0]),
                Opcode::Constrained => Prefix::Constrained(Token::from_raw(u32::from_le_bytes(self.take()?))),
                Opcode::Volatile => Prefix::Volatile,
                Opcode::Tail => Prefix::Tail,
                _ => Prefix::Readonly,
            });
            if self.at == self.code.len() {
                return Err(self.error(self.at, ParseProblem::PrefixAtEnd));
            }
            opcode = self.opcode()?;
        }
        Ok(Instruction { opcode, operand: self.operand(opcode)?, prefixes: Some(prefixes.into()) })
    }

    #[inline]
    fn operand(&mut self, opcode: Opcode) -> Result<Operand, ParseError> {
        Ok(match opcode.operand() {
            OperandKind::None | OperandKind::UInt8 => Operand::None,
            OperandKind::Int8 => Operand::Int8(i8::from_le_bytes(self.take()?)),
            OperandKind::ShortVariable => Operand::Variable(u8::from_le_bytes(self.take()?).into()),
            OperandKind::Variable => Operand::Variable(u16::from_le_bytes(self.take()?)),
            OperandKind::Int32 => Operand::Int32(i32::from_le_bytes(self.take()?)),
            OperandKind::Int64 => Operand::Int64(i64::from_le_bytes(self.take()?)),
            OperandKind::Float32 => Operand::Float32(u32::from_le_bytes(self.take()?)),
            OperandKind::Float64 => Operand::Float64(u64::from_le_bytes(self.take()?)),
            OperandKind::ShortBranch => {
                let distance = i8::from_le_bytes(self.take()?);
                Operand::Target(self.target(distance.into()))
            }
            OperandKind::Branch => {
                let distance = i32::from_le_bytes(self.take()?);
                Operand::Target(self.target(distance))
            }
            OperandKind::Switch => self.switch()?,
            OperandKind::Type
            | OperandKind::Method
            | OperandKind::Field
            | OperandKind::Signature
            | OperandKind::String
            | OperandKind::Token => Operand::Token(Token::from_raw(u32::from_le_bytes(self.take()?))),
        })
    }

    #[cold]
    fn switch(&mut self) -> Result<Operand, ParseError> {
        let count = u32::from_le_bytes(self.take()?) as usize;
        if count > (self.code.len() - self.at) / 4 {
            return Err(self.error(self.at, ParseProblem::CodeEnds));
        }
        let mut distances = Vec::with_capacity(count);
        for _ in 0..count {
            distances.push(i32::from_le_bytes(self.take()?));
        }
        Ok(Operand::Targets(distances.into_iter().map(|distance| self.target(distance)).collect()))
    }

    /// The offset so far from here, until it becomes a label.
    fn target(&self, distance: i32) -> Label {
        Label((self.at as u32).wrapping_add_signed(distance))
    }
}
