//! Text as events have it.

use std::fmt::{self, Debug, Display, Formatter, Write};

/// Text of an event or of its description: UTF-16 or UTF-8, borrowed. Invalid parts become U+FFFD.
///
/// ```
/// # use corprof_events::{Event, Provider};
/// let event = Event::new(Provider::RUNTIME, 299, 0, b"\0\0h\0i\0\0\0", true);
/// let message = event.field("Message").and_then(|value| value.as_text()).ok_or("no message")?;
/// assert_eq!(message, "hi");
/// assert_eq!(message.to_string(), "hi");
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy)]
pub struct Text<'a>(Repr<'a>);

#[derive(Clone, Copy)]
enum Repr<'a> {
    Utf8(&'a [u8]),
    Utf16(&'a [u8]),
}

impl<'a> Text<'a> {
    pub(crate) const fn utf8(bytes: &'a [u8]) -> Self {
        Self(Repr::Utf8(bytes))
    }

    pub(crate) const fn utf16(bytes: &'a [u8]) -> Self {
        Self(Repr::Utf16(bytes))
    }

    /// Whether it has no characters.
    #[must_use]
    pub fn is_empty(self) -> bool {
        let (Repr::Utf8(bytes) | Repr::Utf16(bytes)) = self.0;
        bytes.is_empty()
    }

    /// Its characters.
    pub fn chars(self) -> impl Iterator<Item = char> + Clone + 'a {
        let (utf8, utf16): (&[u8], &[u8]) = match self.0 {
            Repr::Utf8(bytes) => (bytes, &[]),
            Repr::Utf16(bytes) => (&[], bytes),
        };
        let chunks = utf8.utf8_chunks();
        let narrow = chunks.flat_map(|chunk| {
            let replacement = (!chunk.invalid().is_empty()).then_some(char::REPLACEMENT_CHARACTER);
            chunk.valid().chars().chain(replacement)
        });
        let units = utf16.chunks_exact(2).map(|unit| match unit {
            [low, high] => u16::from_le_bytes([*low, *high]),
            _ => 0xfffd,
        });
        let wide = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
        narrow.chain(wide)
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self::utf8(text.as_bytes())
    }
}

impl PartialEq<str> for Text<'_> {
    fn eq(&self, other: &str) -> bool {
        match self.0 {
            Repr::Utf8(bytes) => bytes == other.as_bytes(),
            Repr::Utf16(_) => self.chars().eq(other.chars()),
        }
    }
}

impl PartialEq<&str> for Text<'_> {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.chars().eq(other.chars())
    }
}

impl Eq for Text<'_> {}

impl Display for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.chars().try_for_each(|c| f.write_char(c))
    }
}

impl Debug for Text<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        self.chars().flat_map(char::escape_debug).try_for_each(|c| f.write_char(c))?;
        f.write_char('"')
    }
}
