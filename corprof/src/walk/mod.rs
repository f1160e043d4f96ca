//! Walks of single stacks.
//!
//! A thread's stack is a sandwich: frames of managed functions, and between them blocks of native code.
//! [`walk_own_stack`](crate::InNoGc::walk_own_stack) shows the stack of the thread of a callback, frame by frame: the
//! code that allocated this object or threw that exception. No thread is suspended. The
//! [`Sampler`](crate::sampler::Sampler) takes samples of all threads.

// `own.rs` walks the calling thread's stack, with a start from `start.rs` in a slow hook. The other files walk the
// stack of one other thread for the sampler, as numbers (`stack_writer.rs`): while the runtime is suspended
// (`suspended.rs`, and `unshown.rs` and `interrupted.rs` for what the runtime leaves out), while this thread is stopped
// (`seeded/`), or as it has recorded itself in a signal handler (`recorded/`). Which threads, and how often, is the
// sampler's business (`corprof/src/sampler/`), with the three rules of suspension.

mod frame;
mod interrupted;
pub(crate) mod native_function;
mod own;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) mod recorded;
mod registers;
#[cfg(all(windows, target_arch = "x86_64"))]
pub(crate) mod seeded;
pub(crate) mod stack_writer;
mod start;
pub(crate) mod suspended;
mod unshown;

pub use crate::session::FrameInfo;
pub use frame::Frame;
pub use registers::Registers;
