//! Generates the bindings of `corprof-sys`, and all other code that follows from the IDL and the contract table.
//!
//! `cargo xtask generate` runs the program of this package, which calls [`run`]. The steps for an input: [`preprocess`]
//! blanks text that is not a declaration, [`lexer`] and [`parser`] make declarations of it, [`resolve`] and [`codes`]
//! make the [`mod@model`] of all of them, and each of the [`EMITTERS`] makes files of that. `facts.toml` and
//! `contracts.toml` have the facts that the inputs lack, `sources.toml` says where they come from. To add files, write
//! an emitter and name it in [`EMITTERS`].

pub mod callbacks;
pub mod codes;
pub mod contracts;
pub mod emit;
mod emitter;
pub mod error;
pub mod expr;
pub mod facts;
pub mod lexer;
pub mod model;
pub mod parser;
pub mod preprocess;
pub mod resolve;
pub mod sources;
pub mod syntax;
mod tables;
mod tokens;
mod write;

use std::path::{Path, PathBuf};

pub use crate::contracts::Contracts;
pub use crate::emitter::{Context, Output};
pub use crate::error::{Diagnostic, Error};
pub use crate::facts::Facts;
pub use crate::model::Model;
pub use crate::sources::{Input, SourceFile, Sources};
pub use crate::write::Report;

/// The places of the inputs and outputs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory with the inputs.
    pub idl: PathBuf,
    /// The root of the workspace.
    pub root: PathBuf,
    /// Write nothing; fail if anything would be written.
    pub check: bool,
}

/// Makes files of the context.
pub type Emitter = fn(&Context) -> Result<Vec<Output>, Error>;

/// The emitters, in order.
pub const EMITTERS: &[Emitter] = &[emit::outputs, emit::corprof::outputs];

/// Generates everything.
pub fn run(options: &Options) -> Result<Report, Error> {
    run_with(options, EMITTERS)
}

/// Generates the files of `emitters`.
pub fn run_with(options: &Options, emitters: &[Emitter]) -> Result<Report, Error> {
    let context = context(&options.idl, &options.root.join("corprof-sys/gen"))?;
    let outputs = outputs(&context, emitters)?;
    write::write(&options.root, &outputs, context.warnings, options.check)
}

/// Reads the inputs from `idl`, and the tables from `directory`, which is this crate's own.
pub fn context(idl: &Path, directory: &Path) -> Result<Context, Error> {
    let read = |input| SourceFile::read(input, if input == Input::Supplement { directory } else { idl });
    let files = Input::ALL.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let sources = Sources::read(&directory.join("sources.toml"))?;
    let facts = Facts::read(&directory.join("facts.toml"))?;
    let (model, warnings) = model(files, &sources, &facts)?;
    let contracts = Contracts::read(&directory.join("contracts.toml"))?;
    contracts.check(&model)?;
    Ok(Context { model, facts, contracts, directory: directory.to_owned(), warnings })
}

/// Makes the model of the inputs; with warnings.
pub fn model(files: Vec<SourceFile>, sources: &Sources, facts: &Facts) -> Result<(Model, Vec<String>), Error> {
    let mut units = Vec::new();
    let mut codes = Vec::new();
    let mut stamps = std::collections::BTreeMap::new();
    let mut warnings = Vec::new();
    for file in files {
        let (stamp, warning) = sources.stamp(&file);
        stamps.insert(file.input, stamp);
        warnings.extend(warning);
        let preprocessed = preprocess::preprocess(&file)?;
        if file.input == Input::Corerror {
            codes = codes::codes(&file, &preprocessed.defines, facts)?;
        }
        let items = parser::parse(&file, &preprocessed)?;
        units.push(resolve::Unit { file, items });
    }
    let mut model = resolve::resolve(&units, facts)?;
    model.codes = codes;
    model.stamps = stamps;
    Ok((model, warnings))
}

/// The files of `emitters`.
pub fn outputs(context: &Context, emitters: &[Emitter]) -> Result<Vec<Output>, Error> {
    let mut outputs = Vec::new();
    for emitter in emitters {
        outputs.extend(emitter(context)?);
    }
    Ok(outputs)
}
