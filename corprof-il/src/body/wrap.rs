//! Tries a whole body: each `ret` leaves to one exit, and handlers see what else leaves the body.

use super::{Body, EditError, InsnId, Instruction, Label, Operand, Prefix, Range, Region, RegionKind};
use crate::opcode::Opcode;
use crate::token::Token;

/// A body that is being wrapped, made by [`Body::wrap_all`].
///
/// Handlers are added from the inside to the outside, and each protects the code and the handlers before it.
/// [`Wrap::finish`] adds the exit; a wrap that is dropped without it leaves a body that no verifier takes.
#[derive(Debug)]
#[must_use]
pub struct Wrap<'a> {
    body: &'a mut Body,
    tried: Range,
    exit: Option<Label>,
    result: Option<u16>,
}

impl Body {
    /// Begins to try the whole body. Each `ret` becomes a `leave` to one exit outside of all regions; a result goes
    /// there in the local variable `result`, which has its type.
    ///
    /// # Errors
    /// [`EditError::TailCall`] and [`EditError::Jmp`]: such instructions cannot be tried. [`EditError::Empty`] for a
    /// body without code. The body is as it was.
    pub fn wrap_all(&mut self, result: Option<u16>) -> Result<Wrap<'_>, EditError> {
        let mut rets = Vec::new();
        for (id, insn) in self.iter() {
            match insn.opcode() {
                Opcode::Ret => rets.push(id),
                Opcode::Jmp => return Err(EditError::Jmp(id)),
                _ if insn.prefixes().contains(&Prefix::Tail) => return Err(EditError::TailCall(id)),
                _ => {}
            }
        }
        let first = self.first().ok_or(EditError::Empty)?;
        let exit = (!rets.is_empty()).then(|| self.new_label());
        for (ret, exit) in rets.into_iter().zip(std::iter::repeat(exit)) {
            let Some(exit) = exit else { continue };
            match result {
                Some(local) => {
                    self.replace(ret, Instruction::stloc(local))?;
                    let _ = self.after(ret)?.push(Instruction::leave(exit));
                }
                None => _ = self.replace(ret, Instruction::leave(exit))?,
            }
        }
        let last = self.last().ok_or(EditError::Empty)?;
        Ok(Wrap { body: self, tried: Range { first, last }, exit, result })
    }

    /// Removes all `tail.` prefixes: the frames stay until the calls return, so a program that counts on their going
    /// may run out of stack. Returns how many there were.
    pub fn drop_tail_calls(&mut self) -> usize {
        let mut count = 0;
        for node in &mut self.nodes {
            if !node.is_removed && node.insn.prefixes().contains(&Prefix::Tail) {
                let others: Vec<_> = node.insn.prefixes().iter().copied().filter(|one| *one != Prefix::Tail).collect();
                let insn = Instruction::plain(Opcode::Nop, Operand::None);
                node.insn = std::mem::replace(&mut node.insn, insn).prefixed(others);
                count += 1;
            }
        }
        if count > 0 {
            self.edited();
        }
        count
    }
}

impl Wrap<'_> {
    /// Adds a handler that runs when an exception leaves the body: in the second pass, after inner handlers. It ends by
    /// itself.
    ///
    /// # Errors
    /// None for a body whose regions are sound.
    pub fn with_fault(&mut self, code: impl IntoIterator<Item = Instruction>) -> Result<(), EditError> {
        self.handle(RegionKind::Fault, &[], code.into_iter().chain([plain(Opcode::Endfinally)]))
    }

    /// Adds a handler that runs whenever the body is left, with or without an exception. It ends by itself.
    ///
    /// # Errors
    /// None for a body whose regions are sound.
    pub fn with_finally(&mut self, code: impl IntoIterator<Item = Instruction>) -> Result<(), EditError> {
        self.handle(RegionKind::Finally, &[], code.into_iter().chain([plain(Opcode::Endfinally)]))
    }

    /// Adds a filter that takes no exception: it runs in the first pass, when no handler in the body takes the
    /// exception, and before any frame is unwound. `code` finds the exception on the stack, and leaves nothing there.
    ///
    /// # Errors
    /// None for a body whose regions are sound.
    pub fn with_observer(&mut self, code: impl IntoIterator<Item = Instruction>) -> Result<(), EditError> {
        let declined = [Instruction::ldc_i4(0), plain(Opcode::Endfilter)];
        let filter: Vec<_> = code.into_iter().chain(declined).collect();
        let never = [plain(Opcode::Pop), plain(Opcode::Rethrow)];
        // The kind gets its first instruction when there is one.
        self.handle(RegionKind::Filter { first: self.tried.first }, &filter, never)
    }

    /// Adds a handler for exceptions of a type. `code` finds the exception on the stack, and ends by itself: by
    /// `rethrow`, `throw`, or by `leave` to the [exit](Self::exit).
    ///
    /// # Errors
    /// None for a body whose regions are sound.
    pub fn with_catch(
        &mut self,
        exception: impl Into<Token>,
        code: impl IntoIterator<Item = Instruction>,
    ) -> Result<(), EditError> {
        self.handle(RegionKind::Catch(exception.into()), &[], code)
    }

    /// The exit. A body that never returns has one only if this was called.
    pub fn exit(&mut self) -> Label {
        let body = &mut *self.body;
        *self.exit.get_or_insert_with(|| body.new_label())
    }

    /// Adds the exit: `code`, and the return with the result. Returns the first instruction of the exit; `None` for a
    /// body that never returns.
    ///
    /// # Errors
    /// None for a body whose regions are sound.
    pub fn finish(self, code: impl IntoIterator<Item = Instruction>) -> Result<Option<InsnId>, EditError> {
        let Some(exit) = self.exit else { return Ok(None) };
        let result = self.result.map(Instruction::ldloc);
        let mut first = None;
        for insn in code.into_iter().chain(result).chain([plain(Opcode::Ret)]) {
            let id = self.body.append(insn);
            first = first.or(Some(id));
        }
        if let Some(first) = first {
            self.body.place(exit, first)?;
        }
        Ok(first)
    }

    fn handle(
        &mut self,
        kind: RegionKind,
        filter: &[Instruction],
        code: impl IntoIterator<Item = Instruction>,
    ) -> Result<(), EditError> {
        let mut first_of_filter = None;
        for insn in filter {
            let id = self.body.append(insn.clone());
            first_of_filter = first_of_filter.or(Some(id));
        }
        let mut handler: Option<Range> = None;
        for insn in code {
            let last = self.body.append(insn);
            handler = Some(Range { first: handler.map_or(last, |range| range.first), last });
        }
        let handler = handler.ok_or(EditError::BadRange)?;
        let kind = first_of_filter.map_or(kind, |first| RegionKind::Filter { first });
        self.body.add_region(Region::new(kind, self.tried, handler))?;
        self.tried.last = handler.last;
        Ok(())
    }
}

/// An instruction without an operand.
const fn plain(opcode: Opcode) -> Instruction {
    Instruction::plain(opcode, Operand::None)
}
