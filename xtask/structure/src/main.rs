//! Prints the structure of `corprof/src` in the current folder; with `--check`, fails if it is not sound, or if a
//! comment names a test that does not exist. `cargo xtask structure` runs this.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use corprof_structure::{Structure, safety};

fn main() -> Result<ExitCode> {
    let is_check = std::env::args().skip(1).any(|argument| argument == "--check");
    let structure = Structure::of_corprof(Path::new("."))?;
    print!("{structure}");
    if is_check && !structure.is_sound() {
        eprintln!("error: rooms import downward only: move the imported item below, or use a trait");
        return Ok(ExitCode::FAILURE);
    }
    let faults = if is_check { safety::faults(Path::new("."))? } else { Vec::new() };
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
