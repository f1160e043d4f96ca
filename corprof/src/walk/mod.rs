//! Stack walks.
//!
//! A thread's stack is a sandwich: frames of managed functions, and between them blocks of native code. There are two ways to
//! look at it:
//!
//! - [`walk_own_stack`](crate::InCallback::walk_own_stack) walks the stack of the thread that a callback is made on: who
//!   allocated this, who threw that. Nothing has to be suspended (`own.rs`).
//!
//! What a frame is, is in `frame.rs`; its registers in `registers.rs`.

mod frame;
mod own;
mod registers;

pub use frame::{Frame, FrameInfo};
pub use registers::Registers;
