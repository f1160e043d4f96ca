//! Makes one documented module for the README and for each page of the book, so that `cargo test --doc` runs their
//! code.

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[path = "book_pages.rs"]
mod book_pages;

fn main() -> ExitCode {
    match write_modules() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the pages of the book cannot be brought under test: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write_modules() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..").canonicalize()?;
    let src = root.join("book").join("src");
    // The folder too: so a page that was added, but not to the summary, is seen.
    rerun_if_changed(&src);
    rerun_if_changed(&src.join("SUMMARY.md"));
    let mut pages =
        book_pages::pages(&src).map_err(|error| format!("{}: {error}", src.join("SUMMARY.md").display()))?;
    pages.push(root.join("README.md"));

    let mut modules = String::new();
    for page in pages {
        rerun_if_changed(&page);
        if !page.is_file() {
            return Err(format!("there is no {}, which the book's SUMMARY.md lists", page.display()).into());
        }
        let name = module_name(page.strip_prefix(&root)?);
        writeln!(modules, "#[doc = include_str!({:?})]\nmod {name} {{}}", page.display().to_string())?;
    }
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("book_pages.rs"), modules)?;
    Ok(())
}

fn rerun_if_changed(path: &Path) {
    println!("cargo::rerun-if-changed={}", path.display());
}

/// `book/src/first-profiler.md` is `book_src_first_profiler`: a test that fails names its page by that.
fn module_name(page: &Path) -> String {
    let text = page.with_extension("").display().to_string().to_lowercase();
    text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}
