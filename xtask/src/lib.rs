//! The project's own tooling: `cargo xtask demo`, `test`, `generate`, `lint`, `package`, `book`, `bench`, `stress`,
//! `structure`, `release`.
//!
//! Each command is a module with one `run`; the modules below them are shared.

pub mod arm64;
pub mod bench;
pub mod book;
pub mod cache;
pub mod cargo;
pub mod clippy;
pub mod demo;
mod documents;
pub mod emulator;
pub mod event_tables;
pub mod folder;
pub mod generate;
pub mod guard;
pub mod known;
pub mod lint;
pub mod managed;
pub mod musl;
pub mod package;
pub mod process;
pub mod release;
pub mod runtime;
pub mod runtime_choice;
pub mod stacks;
pub mod stress;
pub mod structure;
pub mod system;
pub mod target;
pub mod test;
pub mod tools;
mod viewers;
pub mod wheel;
pub mod windows;
