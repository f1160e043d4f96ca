//! Prints the structure of `corprof/src` in the current folder, and circles of imports in the other crates; with
//! `--check`, fails if there are some, if the structure is not sound, or if a comment names a test that does not exist.
//! `cargo xtask structure` runs this.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use corprof_structure::{self as structure, Structure, safety};

fn main() -> Result<ExitCode> {
    let is_check = std::env::args().skip(1).any(|argument| argument == "--check");
    let rooms = Structure::of_corprof(Path::new("."))?;
    print!("{rooms}");
    let circles = structure::circles_of_crates(Path::new("."))?;
    println!("Circles of files in the other crates: {}", circles.len());
    for (name, files) in &circles {
        println!("  {name}, {} files: {}", files.len(), files.join(" "));
    }
    if is_check && !circles.is_empty() {
        eprintln!("error: files import each other in a circle: move the imported item into a file below both");
        return Ok(ExitCode::FAILURE);
    }
    if is_check && rooms.rooms.len() < 20 {
        eprintln!("error: {} rooms only: are they recognised?", rooms.rooms.len());
        return Ok(ExitCode::FAILURE);
    }
    if is_check && !rooms.is_sound() {
        eprintln!("error: rooms import downward only: move the imported item below, or use a trait");
        return Ok(ExitCode::FAILURE);
    }
    let faults = if is_check { safety::faults(Path::new("."))? } else { Vec::new() };
    for fault in &faults {
        eprintln!("error: {fault}");
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
