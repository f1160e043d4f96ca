//! What is known of an instruction.

/// The part of a function that an instruction belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    Prologue,
    Body,
    Epilogue,
    /// The beginning of an exception handler that sets the frame pointer itself (up to .NET 9).
    #[cfg_attr(target_arch = "aarch64", allow(dead_code))]
    HandlerPrologue,
    /// Code of exception handlers: they have frames of their own, but the frame pointer is the function's.
    Handlers,
}

/// An instruction of a function.
pub(crate) struct Instruction {
    pub(crate) offset: usize,
    pub(crate) size: usize,
    pub(crate) part: Part,
    /// Where the frame pointer points, as an offset from the stack pointer.
    pub(crate) frame_pointer: isize,
    /// How much of the frame is gone.
    pub(crate) removed: isize,
}
