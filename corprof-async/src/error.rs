//! Errors of the decoder.

/// A buffer is malformed: nothing of it is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the async buffer is malformed: {problem} (at byte {offset} of the event's payload)")]
pub struct DecodeError {
    /// What is wrong.
    pub problem: Problem,
    /// Where the value or sub-event begins that is wrong, in bytes from the beginning of the payload.
    pub offset: usize,
}

/// The kinds of [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It ends in the middle of a value.
    #[error("it is truncated")]
    Truncated,

    /// A number of variable length is longer than its type.
    #[error("a number is too large")]
    Number,

    /// The header has another version than 1.
    #[error("it has version {0}, and this decoder knows 1")]
    Version(u8),

    /// The sizes of payload and header differ.
    #[error("its sizes differ")]
    Size,

    /// The header counts other sub-events than there are.
    #[error("its count of sub-events is wrong")]
    Count,

    /// The header has another end than the time of the last sub-event.
    #[error("its times differ")]
    Time,

    /// Neither this decoder nor the manifest of the trace knows the sub-event.
    #[error("the sub-event {0} is in no manifest")]
    UnknownSubEvent(u8),

    /// A manifest gives a length that is not written in 0, 1 or 2 bytes.
    #[error("its manifest has lengths of {0} bytes")]
    LengthWidth(u8),
}
