//! The async call stacks of a trace as JSON: `async_table FILE [--leaf NAME --marks A,B,…]`, for a `.nettrace` or a
//! `.nettrace.xz`.
//!
//! `join` counts samples: those with the method NAME on their stack, by the first of the marks that is in the name of a
//! method on their physical and on their logical stack.

#[path = "async_table/table.rs"]
mod table;

use std::error::Error;
use std::io::Read;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("usage: async_table FILE [--leaf NAME --marks A,B,…]")?;
    let mut leaf = String::new();
    let mut marks = Vec::new();
    while let Some(option) = args.next() {
        let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
        match &option[..] {
            "--leaf" => leaf = value,
            "--marks" => marks = value.split(',').map(str::to_owned).collect(),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let mut bytes = std::fs::read(&file)?;
    if file.ends_with(".xz") {
        let packed = std::mem::take(&mut bytes);
        lzma_rust2::XzReader::new(&packed[..], true).read_to_end(&mut bytes)?;
    }
    println!("{:#}", table::table(&bytes, &leaf, &marks)?);
    Ok(())
}
