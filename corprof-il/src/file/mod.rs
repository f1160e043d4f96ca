//! Reads assemblies from files: every method body, and the metadata for the verifier.
//!
//! As much of ECMA-335 II.22 to II.25 as that needs. Files are not trusted: every read is checked against the file's
//! end, and memory is bounded by its size. `metadata` finds streams, tables and heaps; `assembly` asks for methods and
//! types; `resolve`, `context`, `delegates` and `dispatch` answer the verifier, over a set of assemblies that name each
//! other's types; `names` spells what tokens name.

mod assembly;
mod context;
mod delegates;
mod dispatch;
mod metadata;
mod names;
mod resolve;
mod schema;
#[cfg(test)]
mod tests;

pub use assembly::{Assembly, Method};
pub use resolve::{Assemblies, InAssembly};

/// The reason why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is not a PE file.
    #[error("not a PE file: {0}")]
    Pe(#[from] object::read::Error),
    /// It is a PE file without managed code.
    #[error("there is no managed code in it")]
    NoMetadata,
    /// Its metadata are damaged.
    #[error("bad metadata: {0}")]
    Metadata(&'static str),
    /// A method's body is not in the file.
    #[error("the body of {token} is at {rva:#x}, which is not in the file")]
    NoBody {
        /// The method.
        token: crate::token::Token,
        /// Where its body should be.
        rva: u32,
    },
}
