//! [`Misfit`]: a value that no event can have.

/// What no event can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfit {
    /// A list of more than 65,535 elements.
    LongList,
    /// A text of more than 65,535 bytes, where its length has 16 bits.
    LongText,
    /// A time before the year 1601, where the units of EventPipe begin, or after 9999, where `DateTime` ends.
    Time,
    /// A field whose description is damaged or has more than 65,535 bytes.
    Description,
}

impl Misfit {
    /// The rule that the value breaks.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::LongList => "a list has at most 65,535 elements",
            Self::LongText => "a text has at most 65,535 bytes",
            Self::Time => "a time is of the years 1601 to 9999",
            Self::Description => "the description of a field has at most 65,535 bytes",
        }
    }
}
