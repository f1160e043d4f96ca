//! Bodies as text: one instruction a line, regions as blocks.

use std::fmt::{self, Write};

use crate::body::{Body, InsnId, Instruction, MOST_REGIONS, Operand, Prefix, RegionKind};
use crate::token::Token;

/// Returns the name of a token; nothing if it is unknown.
pub type Names<'n> = &'n dyn Fn(Token) -> Option<String>;

/// A body that is shown with names: see [`Body::display`].
pub struct Display<'b> {
    body: &'b Body,
    names: Option<Names<'b>>,
    notes: Option<Notes<'b>>,
}

/// The comment behind an instruction, if there is one.
pub type Notes<'n> = &'n dyn Fn(InsnId) -> Option<String>;

/// The column that notes begin in, unless the instruction is longer.
const NOTES: usize = 56;

impl fmt::Debug for Display<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Display").field("body", &self.body).finish_non_exhaustive()
    }
}

impl Body {
    /// The body as text, with tokens for names.
    pub const fn display(&self) -> Display<'_> {
        Display { body: self, names: None, notes: None }
    }

    /// The body as text, with the names that `names` knows in place of tokens.
    pub const fn display_with<'b>(&'b self, names: Names<'b>) -> Display<'b> {
        Display { body: self, names: Some(names), notes: None }
    }

    /// As [`display_with`](Self::display_with), with a comment behind each instruction that `notes` has one for.
    pub const fn display_with_notes<'b>(&'b self, names: Names<'b>, notes: Notes<'b>) -> Display<'b> {
        Display { body: self, names: Some(names), notes: Some(notes) }
    }

    /// One instruction as text; nothing if it is not in this body.
    pub fn instruction_text(&self, id: InsnId) -> String {
        let mut text = String::new();
        if let Some(insn) = self.get(id) {
            // Writing to a string cannot fail.
            let _ = Display { body: self, names: None, notes: None }.instruction(&mut text, insn);
        }
        text
    }
}

impl fmt::Display for Display<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body;
        if let Some(max_stack) = body.max_stack() {
            writeln!(f, ".maxstack {max_stack}")?;
        }
        if let Some(locals) = body.locals() {
            let init = if body.init_locals() { "init " } else { "" };
            writeln!(f, ".locals {init}{}", self.token(locals))?;
        }
        let has_blocks = body.regions().len() <= MOST_REGIONS;
        if !has_blocks {
            writeln!(f, "// {} regions are not shown", body.regions().len())?;
        }
        let mut depth = 0;
        for (id, insn) in body.iter() {
            let has_blocks = has_blocks && body.is_join(id);
            if has_blocks {
                self.opening(f, id, &mut depth)?;
            }
            let mut line = format!("{:indent$}{}: ", "", self.place(id), indent = depth * 2);
            self.instruction(&mut line, insn)?;
            match self.notes.and_then(|notes| notes(id)) {
                Some(note) => writeln!(f, "{line:NOTES$} // {note}")?,
                None => writeln!(f, "{line}")?,
            }
            if has_blocks || depth > 0 {
                self.closing(f, id, &mut depth)?;
            }
        }
        Ok(())
    }
}

impl Display<'_> {
    fn place(&self, id: InsnId) -> String {
        match self.body.origin(id) {
            Some(offset) => format!("IL_{offset:04x}"),
            None => format!("new_{}", id.0),
        }
    }

    /// The blocks that begin with an instruction, the outer first.
    fn opening(&self, f: &mut fmt::Formatter<'_>, id: InsnId, depth: &mut usize) -> fmt::Result {
        let mut open = |f: &mut fmt::Formatter<'_>, what: &str, region: usize| {
            writeln!(f, "{:indent$}{what} {{ // region {region}", "", indent = *depth * 2)?;
            *depth += 1;
            Ok(())
        };
        let mut tried = None;
        for (number, region) in self.body.regions().iter().enumerate().rev() {
            // Several handlers of the same tried code are one block.
            if region.tried.first == id && tried != Some(region.tried) {
                tried = Some(region.tried);
                open(f, ".try", number)?;
            }
            match region.kind {
                RegionKind::Filter { first } if first == id => open(f, "filter", number)?,
                _ => {}
            }
            if region.handler.first == id {
                let what = match region.kind {
                    RegionKind::Catch(token) => format!("catch {}", self.token(token)),
                    RegionKind::Filter { .. } => "handler".into(),
                    RegionKind::Finally => "finally".into(),
                    RegionKind::Fault => "fault".into(),
                };
                open(f, &what, number)?;
            }
        }
        Ok(())
    }

    fn closing(&self, f: &mut fmt::Formatter<'_>, id: InsnId, depth: &mut usize) -> fmt::Result {
        let mut tried = None;
        for region in self.body.regions() {
            let is_tried = region.tried.last == id && tried != Some(region.tried);
            if is_tried {
                tried = Some(region.tried);
            }
            let next = self.body.next(id);
            let ends_filter = matches!(region.kind, RegionKind::Filter { .. }) && next == Some(region.handler.first);
            for _ in [is_tried, region.handler.last == id, ends_filter].into_iter().filter(|ends| *ends) {
                *depth = depth.saturating_sub(1);
                writeln!(f, "{:indent$}}}", "", indent = *depth * 2)?;
            }
        }
        Ok(())
    }

    fn token(&self, token: Token) -> String {
        let name = self.names.and_then(|names| names(token));
        name.unwrap_or_else(|| token.to_string())
    }

    fn label(&self, label: crate::body::Label) -> String {
        self.body.target(label).map_or_else(|| format!("label {}", label.0), |id| self.place(id))
    }

    fn instruction(&self, f: &mut impl Write, insn: &Instruction) -> fmt::Result {
        for prefix in insn.prefixes() {
            write!(f, "{} ", prefix.opcode())?;
            match prefix {
                Prefix::Unaligned(operand) | Prefix::No(operand) => write!(f, "{operand} ")?,
                Prefix::Constrained(token) => write!(f, "{} ", self.token(*token))?,
                Prefix::Volatile | Prefix::Tail | Prefix::Readonly => {}
            }
        }
        write!(f, "{}", insn.opcode())?;
        match insn.operand() {
            Operand::None => Ok(()),
            Operand::Int8(number) => write!(f, " {number}"),
            Operand::Int32(number) => write!(f, " {number}"),
            Operand::Int64(number) => write!(f, " {number}"),
            Operand::Float32(bits) => write!(f, " {:?}", f32::from_bits(*bits)),
            Operand::Float64(bits) => write!(f, " {:?}", f64::from_bits(*bits)),
            Operand::Variable(number) => write!(f, " {number}"),
            Operand::Target(label) => write!(f, " {}", self.label(*label)),
            Operand::Targets(labels) => {
                let labels: Vec<_> = labels.iter().map(|label| self.label(*label)).collect();
                write!(f, " ({})", labels.join(", "))
            }
            Operand::Token(token) => write!(f, " {}", self.token(*token)),
        }
    }
}
