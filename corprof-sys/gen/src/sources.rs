//! The inputs, and their origin as the generated files state it.
//!
//! `sources.toml` lists for each input the upstream file and the sha256 of both forms it may come in: as upstream has
//! it, and reduced to its declarations. The stamp names the upstream file whichever was read, so that the output is
//! the same. An input of neither sum is accepted, stamped with its own sum, and reported.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Diagnostic, Error};

/// The inputs, in the order in which they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// The profiling API.
    Corprof,
    /// Enumerations of the metadata format.
    Corhdr,
    /// Interfaces of the metadata API.
    Metadata,
    /// Result codes.
    Corerror,
    /// Declarations that the others use but do not make; written by hand, beside this crate.
    Supplement,
}

impl Input {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Corprof, Self::Corhdr, Self::Metadata, Self::Corerror, Self::Supplement];

    /// The file's name.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Corprof => "corprof.idl",
            Self::Corhdr => "corhdr.idl",
            Self::Metadata => "metadata.idl",
            Self::Corerror => "corerror.h",
            Self::Supplement => "supplement.idl",
        }
    }
}

/// One input's text, and where it stands in `sources.toml`.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Which one.
    pub input: Input,
    /// Its text.
    pub text: String,
    /// sha256 of the bytes read, in hexadecimal.
    pub sha256: String,
}

impl SourceFile {
    /// Takes bytes as they were read.
    pub fn new(input: Input, text: String) -> Self {
        let sha256 = sha256(text.as_bytes());
        Self { input, text, sha256 }
    }

    /// Reads the input from a directory.
    pub fn read(input: Input, directory: &Path) -> Result<Self, Error> {
        let path = directory.join(input.file_name());
        Ok(Self::new(input, std::fs::read_to_string(&path).map_err(Error::io(&path))?))
    }

    /// A complaint about the byte at `offset`.
    pub fn diagnostic(&self, offset: usize, message: impl Into<String>) -> Diagnostic {
        let offset = offset.min(self.text.len());
        let before = self.text.get(..offset).unwrap_or(&self.text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let text = self.text[start..].lines().next().unwrap_or_default();
        Diagnostic {
            file: self.input.file_name().to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[start..].chars().count() + 1,
            text: text.to_owned(),
            message: message.into(),
        }
    }
}

/// A row of `sources.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Repository on GitHub.
    pub repository: String,
    /// Commit, in full.
    pub commit: String,
    /// Path in the repository.
    pub path: String,
    /// sha256 of the file as it is there.
    pub upstream_sha256: String,
    /// sha256 of the file reduced to its declarations.
    pub reduced_sha256: String,
}

/// `sources.toml`, by file name.
#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub struct Sources(BTreeMap<String, Source>);

impl Sources {
    /// Reads the table.
    pub fn read(path: &Path) -> Result<Self, Error> {
        crate::tables::read_toml(path)
    }

    /// The row of an input.
    pub fn get(&self, input: Input) -> Option<&Source> {
        self.0.get(input.file_name())
    }

    /// The row of an input, to be changed.
    pub fn get_mut(&mut self, input: Input) -> Option<&mut Source> {
        self.0.get_mut(input.file_name())
    }

    /// The origin of `file`, as the generated files state it; with a warning if the table does not know it.
    pub fn stamp(&self, file: &SourceFile) -> (String, Option<String>) {
        let name = file.input.file_name();
        if file.input == Input::Supplement {
            return (format!("corprof-sys/gen/{name}, written by hand"), None);
        }
        let known = |row: &&Source| {
            // A checkout may have turned the line ends round; that is not another input.
            let sums = [file.sha256.clone(), sha256(file.text.replace("\r\n", "\n").as_bytes())];
            sums.iter().any(|sum| *sum == row.upstream_sha256 || *sum == row.reduced_sha256)
        };
        match self.get(file.input).filter(known) {
            Some(Source { repository, commit, upstream_sha256, .. }) => {
                let short = commit.get(..8).unwrap_or(commit);
                (format!("{name}, {repository} {short}, sha256 {upstream_sha256}"), None)
            }
            None => {
                let sum = &file.sha256;
                let warning = format!("{name}: sources.toml does not know sha256 {sum}; stamped as unlisted");
                (format!("{name}, commit unlisted, sha256 {sum}"), Some(warning))
            }
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
