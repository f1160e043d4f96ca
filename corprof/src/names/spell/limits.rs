//! Writes the pieces of a name, within the limits of depth and work.

use std::fmt::{Display, Write};

use super::{ELLIPSIS, Speller, code_name};
use crate::error::Error;
use crate::ffi::buffer::Units;
use crate::metadata::Token;
use crate::names::source::Source;

/// The nesting limit for types in one name: type arguments, arrays, specs within specs.
const MAX_DEPTH: usize = 48;
/// The limit on bytes of text written for one name, intermediate ones included.
const MAX_WORK: usize = 64 * 1024;

impl<S: Source> Speller<'_, S> {
    /// Goes one level down, unless that is too deep.
    pub(super) fn nested(&mut self, spell: impl FnOnce(&mut Self)) {
        if self.cut || self.depth >= MAX_DEPTH {
            self.cut = true;
            self.text.push_str(ELLIPSIS);
            return;
        }
        self.depth += 1;
        let start = self.text.len();
        spell(self);
        self.depth -= 1;
        // Text built from parts counts again: each level of nesting may keep a copy of it.
        self.work = self.work.saturating_add(self.text.len().saturating_sub(start));
    }

    /// Counts this much text. Returns `false` if the name is already too long.
    pub(super) fn has_room(&mut self, length: usize) -> bool {
        self.work = self.work.saturating_add(length);
        self.cut |= self.work > MAX_WORK;
        !self.cut
    }

    /// Appends text, unless the name is already too long.
    pub(super) fn push(&mut self, piece: &str) {
        let piece = if self.has_room(piece.len()) { piece } else { ELLIPSIS };
        self.text.push_str(piece);
    }

    /// The same for a name from the runtime.
    pub(super) fn push_name(&mut self, name: &Units) {
        if self.has_room(name.len()) {
            name.push_to(&mut self.text);
        } else {
            self.text.push_str(ELLIPSIS);
        }
    }

    pub(super) fn unknown_id(&mut self, what: &str, id: usize, error: &Error) {
        self.unknown_because(what, &format_args!("{id:#x}"), &code_name(error));
    }

    pub(super) fn unknown(&mut self, what: &str, token: impl Into<Token>, error: &Error) {
        self.unknown_because(what, &token.into(), &code_name(error));
    }

    pub(super) fn unknown_because(&mut self, what: &str, which: &dyn Display, why: &dyn Display) {
        self.missing = true;
        let start = self.text.len();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "<unknown {what} {which}: {why}>");
        self.has_room(self.text.len() - start);
    }
}
