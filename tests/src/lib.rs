//! Shared by the live tests: managed programs, run on each of the supported runtimes, with or without a profiler.
//!
//! ```no_run
//! use corprof_tests::{Run, Runtime};
//!
//! for runtime in Runtime::all()? {
//!     let outcome = Run::new(&runtime, "Hello").built_in("logger").args(["you"]).run()?;
//!     outcome.exited_with(42)?;
//!     assert_eq!(outcome.stdout, "Hello, you!\n");
//! }
//! # Ok::<(), anyhow::Error>(())
//! ```

mod book;
// The build script has it too, so it lies beside that.
#[cfg(test)]
#[path = "../book_pages.rs"]
mod book_pages;
mod differences;
pub mod mutants;
mod patience;
mod repetitions;
mod run;
mod starvation;

pub use differences::Difference;
pub use patience::{TooShort, patiently};
pub use repetitions::{minutes, repetitions};
pub use run::{Outcome, Run, Runtime};
pub use starvation::Limit;
