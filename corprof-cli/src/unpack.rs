//! `corprof unpack`: the library of the built-in profilers as files, for those who set the runtime's variables.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use corprof_launch::image::Libc;
use corprof_profilers::table::Profiler;
use serde_json::{Map, Value, json};

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
    /// Print a line of JSON for each library: file, libc, variables
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// If there is no such profiler, this command has none, or the folder cannot be written.
pub fn run(args: &Args) -> Outcome {
    embedded::refuse_unknown(&args.profiler)?;
    let profiler = Profiler::named(&args.profiler)
        .with_context(|| format!("{} is not a built-in profiler: `corprof run --list`", args.profiler.display()))?;
    let mut out = output::stdout();
    for unpacked in unpack(&embedded::all()?, &args.folder, profiler)? {
        if args.json {
            writeln!(out, "{}", unpacked.document())?;
        } else {
            write!(out, "{}", unpacked.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A library in a file.
struct Unpacked {
    file: PathBuf,
    libc: Option<Libc>,
    /// The variables that load it, with their values.
    variables: [(&'static str, String); 3],
}

impl Unpacked {
    /// The lines of an environment file.
    fn text(&self) -> String {
        let libc = self.libc.map(|libc| format!("# on systems with {libc}\n"));
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value}\n"));
        libc.into_iter().chain(variables).collect()
    }

    fn document(&self) -> Value {
        let variables: Map<String, Value> =
            self.variables.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into())).collect();
        json!({ "file": self.file, "libc": self.libc.map(|libc| libc.to_string()), "variables": variables })
    }
}

/// Writes the files.
fn unpack(libraries: &[Library], folder: &Path, profiler: &Profiler) -> Result<Vec<Unpacked>> {
    let folder = std::path::absolute(folder)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let mut all = Vec::new();
    for library in libraries {
        let file = folder.join(&library.file);
        embedded::write(library.bytes, &file).with_context(|| format!("cannot write {}", file.display()))?;
        let variables = [
            ("CORECLR_ENABLE_PROFILING", "1".to_owned()),
            ("CORECLR_PROFILER", profiler.clsid.to_owned()),
            ("CORECLR_PROFILER_PATH", file.display().to_string()),
        ];
        all.push(Unpacked { file, libc: library.libc, variables });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
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
        let unpacked = unpack(&libraries, &folder, locks).unwrap();
        assert_eq!(unpacked[1].document()["libc"], "musl");
        let text: String = unpacked.iter().map(Unpacked::text).collect();
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
