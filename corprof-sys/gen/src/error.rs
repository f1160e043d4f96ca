//! The errors of the generator, with the cause and its place.
//!
//! A complaint about an input is a [`Diagnostic`]: file, line, column and the line itself. Everything else is an
//! [`Error`] that names the file or the key concerned. Nothing in this crate panics on its input.

use std::fmt;
use std::path::{Path, PathBuf};

/// A complaint about one place of one input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Name of the input, as in `corprof.idl`.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The text of that line.
    pub text: String,
    /// The mistake.
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        writeln!(f, "  | {}", self.text)?;
        write!(f, "  | {:>width$}", "^", width = self.column)
    }
}

impl std::error::Error for Diagnostic {}

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An input is not understood.
    #[error("{0}")]
    Input(Box<Diagnostic>),
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// One of the TOML files beside the generator is not of its form.
    #[error("{path}: {source}")]
    Toml {
        /// The file.
        path: PathBuf,
        /// The reader's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// Facts or contracts speak of something that the IDL does not have, or leave something out.
    #[error("{file} does not agree with the IDL:\n{}", list(.problems))]
    Facts {
        /// The file.
        file: &'static str,
        /// Each disagreement.
        problems: Vec<String>,
    },
    /// The emitter made text that is not Rust: a defect of the generator.
    #[error("defect of the generator: the text made for {path} is not Rust: {source}")]
    Emit {
        /// The output.
        path: String,
        /// The Rust parser's error.
        source: syn::Error,
    },
    /// `--check` found differences.
    #[error("generated files are not up to date:\n{}\nrun `cargo xtask generate`", list(.files))]
    Stale {
        /// Each file that differs, is missing, or is there although nothing makes it.
        files: Vec<String>,
    },
}

impl Error {
    /// An [`Error::Io`] for `path`.
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |source| Self::Io { path: path.to_owned(), source }
    }
}

impl From<Diagnostic> for Error {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::Input(Box::new(diagnostic))
    }
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
