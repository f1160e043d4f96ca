//! `corprof unpack`: the library of the built-in profilers as files, for those who set the runtime's variables.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use corprof_profilers::table::Profiler;

use crate::embedded::{self, Library};
use crate::exit::Outcome;
use crate::output;

/// Write the library of the built-in profilers into a folder, and print the variables that load it
///
/// For applications that something else starts: an image, an init container, a service. On Linux there is a file for
/// each C library that this command has profilers for: take that of the application's system.
#[derive(Debug, clap::Args)]
#[command(after_help = "The output is an environment file; the values of a profiler's settings can be added \
(`corprof run NAME --list`).

Examples:
  corprof unpack /opt/corprof sampler
  corprof unpack /shared locks           as the command of an init container, into a volume that it shares")]
pub struct Args {
    /// The folder, which is made if there is none
    folder: PathBuf,
    /// The built-in profiler that the variables load (`corprof run --list`)
    #[arg(value_name = "PROFILER", default_value = "sampler")]
    profiler: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// If there is no such profiler, this command has none, or the folder cannot be written.
pub fn run(args: &Args) -> Outcome {
    embedded::refuse_unknown(&args.profiler)?;
    let profiler = Profiler::named(&args.profiler)
        .with_context(|| format!("{} is not a built-in profiler: `corprof run --list`", args.profiler.display()))?;
    let text = unpack(&embedded::all()?, &args.folder, profiler)?;
    output::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the files, and returns the variables for each.
fn unpack(libraries: &[Library], folder: &Path, profiler: &Profiler) -> Result<String> {
    let folder = std::path::absolute(folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut text = String::new();
    for library in libraries {
        let file = folder.join(&library.file);
        embedded::write(library.bytes, &file).with_context(|| format!("cannot write {}", file.display()))?;
        if let Some(libc) = library.libc {
            text += &format!("# on systems with {libc}\n");
        }
        text += &format!(
            "CORECLR_ENABLE_PROFILING=1\nCORECLR_PROFILER={}\nCORECLR_PROFILER_PATH={}\n",
            profiler.clsid,
            file.display()
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use corprof_launch::image::Libc;

    use super::*;

    #[test]
    fn each_library_has_its_variables() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("not/there/yet");
        let libraries = [
            Library { file: "libone.so".to_owned(), bytes: b"one", libc: Some(Libc::Glibc) },
            Library { file: "libother.so".to_owned(), bytes: b"other", libc: Some(Libc::Musl) },
        ];
        let locks = Profiler::named(Path::new("locks")).unwrap();
        let text = unpack(&libraries, &folder, locks).unwrap();
        assert_eq!(fs::read(folder.join("libother.so")).unwrap(), b"other");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "# on systems with glibc");
        assert_eq!(lines[2], format!("CORECLR_PROFILER={}", locks.clsid));
        assert_eq!(lines[7], format!("CORECLR_PROFILER_PATH={}", folder.join("libother.so").display()));
        // A file of yesterday is replaced.
        fs::write(folder.join("libone.so"), "old").unwrap();
        unpack(&libraries, &folder, locks).unwrap();
        assert_eq!(fs::read(folder.join("libone.so")).unwrap(), b"one");
    }
}
