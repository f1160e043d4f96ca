//! What emitters get and make.

use std::path::PathBuf;

use crate::contracts::Contracts;
use crate::facts::Facts;
use crate::model::Model;

/// The input of an emitter.
#[derive(Clone, Debug)]
pub struct Context {
    /// The declarations of the inputs.
    pub model: Model,
    /// The facts that they cannot state.
    pub facts: Facts,
    /// The rules of the runtime.
    pub contracts: Contracts,
    /// Where this crate stands, for tables that one emitter alone reads.
    pub directory: PathBuf,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// A file to be generated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its path from the root of the workspace.
    pub path: PathBuf,
    /// All of its text.
    pub contents: String,
}
