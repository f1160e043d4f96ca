//! [`Text`]: the buffer in which a name is put together.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr;

use crate::ffi::buffer::Units;

/// Enough for nearly every name.
const USUAL_BYTES: usize = 256;

/// A growing text, on the stack unless it is longer than nearly all names.
pub(super) struct Text {
    /// The first `length` bytes are whole characters.
    usual: [MaybeUninit<u8>; USUAL_BYTES],
    length: usize,
    /// Replaces the array once the text has grown beyond it.
    long: Option<String>,
}

impl Text {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { usual: [const { MaybeUninit::uninit() }; USUAL_BYTES], length: 0, long: None }
    }

    #[inline]
    pub(super) fn push_str(&mut self, piece: &str) {
        match self.room().get_mut(..piece.len()) {
            Some(room) => {
                // SAFETY: there is room for this many bytes, and the two do not overlap.
                unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), room.as_mut_ptr().cast(), piece.len()) };
                self.length += piece.len();
            }
            None => self.long().push_str(piece),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, letter: char) {
        self.push_str(letter.encode_utf8(&mut [0; 4]));
    }

    /// Appends text from the runtime.
    #[inline]
    pub(super) fn push_units(&mut self, units: &Units) {
        match units.narrow_to(self.room()) {
            Some(count) => self.length += count,
            None => units.push_to(self.long()),
        }
    }

    /// Removes the text behind `end`, which is a character boundary.
    pub(super) fn truncate(&mut self, end: usize) {
        if !self.is_char_boundary(end) {
            return;
        }
        match &mut self.long {
            Some(long) => long.truncate(end),
            None => self.length = end,
        }
    }

    /// Removes the text behind `start`, and returns it.
    pub(super) fn split_off(&mut self, start: usize) -> String {
        let rest = self.get(start..).unwrap_or_default().to_owned();
        self.truncate(start);
        rest
    }

    /// Inserts `piece` at `at`.
    pub(super) fn insert_str(&mut self, at: usize, piece: &str) {
        let rest = self.split_off(at);
        self.push_str(piece);
        self.push_str(&rest);
    }

    /// The free part of the array; empty once the text has moved to the heap.
    #[inline]
    fn room(&mut self) -> &mut [MaybeUninit<u8>] {
        let used = if self.long.is_some() { USUAL_BYTES } else { self.length };
        self.usual.get_mut(used..).unwrap_or_default()
    }

    #[cold]
    fn long(&mut self) -> &mut String {
        let short = if self.long.is_none() { str::to_owned(self) } else { String::new() };
        self.long.get_or_insert(short)
    }
}

impl Deref for Text {
    type Target = str;

    #[inline]
    fn deref(&self) -> &str {
        match (&self.long, self.usual.get(..self.length)) {
            (Some(long), _) => long,
            // SAFETY: this many bytes have been written, all by `push_str` and `push_units`, which write whole characters, and
            // truncated only at character boundaries.
            (None, Some(bytes)) => unsafe { str::from_utf8_unchecked(&*(ptr::from_ref(bytes) as *const [u8])) },
            (None, None) => "",
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        self.push_str(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_as_long_as_it_has_to_be() {
        for step in [1, 7, USUAL_BYTES - 1, USUAL_BYTES, USUAL_BYTES + 1] {
            let (mut text, mut expected) = (Text::new(), String::new());
            while expected.len() <= 2 * USUAL_BYTES {
                let piece = "ö".repeat(step / 2) + &"x".repeat(step % 2);
                text.push_str(&piece);
                expected.push_str(&piece);
                assert_eq!(*text, *expected);
                text.push_units(&Units::from_text(&piece));
                text.push_units(&Units::from_text("plain"));
                text.push('\u{2026}');
                expected += &(piece + "plain\u{2026}");
                assert_eq!(*text, *expected);
            }
            let half = expected.len() / 2 / "plain".len();
            let half = (half..).find(|&at| expected.is_char_boundary(at)).unwrap();
            text.insert_str(half, "inside");
            expected.insert_str(half, "inside");
            assert_eq!(*text, *expected);
            assert_eq!(text.split_off(half), expected.split_off(half));
            assert_eq!(*text, *expected);
            text.truncate(0);
            assert!(text.is_empty());
            text.push('x');
            assert_eq!(&*text, "x");
        }
    }

    #[test]
    fn a_character_is_not_cut() {
        let mut text = Text::new();
        text.push_str("aö");
        text.truncate(2);
        assert_eq!(&*text, "aö");
        text.truncate(1);
        assert_eq!(&*text, "a");
        text.truncate(5);
        assert_eq!(&*text, "a");
    }
}
