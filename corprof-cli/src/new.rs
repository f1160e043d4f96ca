//! `corprof new`: makes the crate of a new profiler.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::json;
use uuid::Uuid;

use crate::exit::{self, Failure, Outcome};
use crate::output;

/// Make the crate of a new profiler.
///
/// The crate builds and works unchanged: it reports exceptions, and has its own CLSID, a test that needs no .NET, a
/// release profile that strips symbols, and a CI workflow.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof new my-profiler --corprof-path ~/corprof/corprof

corprof is not on crates.io yet: give the folder of the crate in a checkout by --corprof-path.")]
pub struct Args {
    /// The name of the crate and of its folder
    name: String,

    /// The folder to make, if its name is not that of the crate
    #[arg(long, value_name = "FOLDER")]
    path: Option<PathBuf>,

    /// The folder of the crate corprof in a checkout, on which the new crate depends
    #[arg(long, value_name = "FOLDER")]
    corprof_path: Option<PathBuf>,

    /// Print a line of JSON instead of what comes next: folder, library
    #[arg(long)]
    json: bool,
}

/// The files of a new crate. `@NAME@` and so on are replaced.
const FILES: [(&str, &str); 4] = [
    ("Cargo.toml", include_str!("templates/Cargo.toml.in")),
    ("src/lib.rs", include_str!("templates/lib.rs.in")),
    (".github/workflows/ci.yml", include_str!("templates/ci.yml.in")),
    (".gitignore", "/target\n"),
];

/// Runs the command.
///
/// # Errors
/// If the folder exists already or cannot be written.
pub fn run(args: &Args) -> Outcome {
    check(&args.name).map_err(|error| Failure::new(exit::USAGE, error))?;
    let folder = args.path.clone().unwrap_or_else(|| PathBuf::from(&args.name));
    let missing = "corprof is not on crates.io yet, so the new crate could not be built: give the folder of the crate \
                   corprof in a checkout by --corprof-path";
    let path = args.corprof_path.as_deref().ok_or_else(|| Failure::new(exit::USAGE, anyhow!(missing)))?;
    let corprof = dependency(path)?;
    let library = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", args.name.replace('-', "_"));
    let replacements = [
        ("@NAME@", args.name.as_str()),
        ("@STRUCT@", &struct_name(&args.name)),
        ("@CLSID@", &Uuid::new_v4().hyphenated().to_string().to_uppercase()),
        ("@CORPROF@", &corprof),
        ("@LIBRARY@", &library),
    ];
    write(&folder, &replacements)?;
    let shown = folder.display();
    let mut out = output::stdout();
    if args.json {
        let library = folder.join("target").join("release").join(&library);
        writeln!(out, "{}", json!({ "folder": folder, "library": library }))?;
        return Ok(ExitCode::SUCCESS);
    }
    writeln!(out, "made {shown}; now:\n\n  cd {shown}\n  cargo test\n  cargo build --release")?;
    writeln!(out, "  corprof run target/release/{library} -- dotnet PATH/TO/App.dll")?;
    Ok(ExitCode::SUCCESS)
}

fn write(folder: &Path, replacements: &[(&str, &str)]) -> Result<()> {
    ensure!(!folder.exists(), "{} exists already: choose another name, or another folder by --path", folder.display());
    for (file, template) in FILES {
        let path = folder.join(file);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).with_context(|| format!("cannot make the folder {}", parent.display()))?;
        let text = replacements.iter().fold(template.to_owned(), |text, (from, to)| text.replace(from, to));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn dependency(path: &Path) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("there is no folder {}", path.display()))?;
    let manifest = fs::read_to_string(path.join("Cargo.toml")).unwrap_or_default();
    ensure!(
        manifest.lines().any(|line| line.trim() == "name = \"corprof\""),
        "{} is not the folder of the crate corprof: in a checkout that is the folder `corprof`",
        path.display()
    );
    // In a TOML string, the backslashes of Windows paths are escaped.
    let text = path.to_str().context("the path of corprof is not Unicode")?;
    Ok(format!("path = \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Checks that cargo accepts the name for a library.
fn check(name: &str) -> Result<()> {
    let is_name = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte));
    ensure!(is_name, "`{name}` is not a name of a crate: use small letters, digits and hyphens, a letter first");
    ensure!(!["corprof", "test", "core", "std", "alloc"].contains(&name), "`{name}` is the name of another crate");
    Ok(())
}

/// `my-profiler` becomes `MyProfiler`.
fn struct_name(name: &str) -> String {
    let words = name.split(['-', '_']).filter(|word| !word.is_empty());
    let capital = |word: &str| {
        word.chars()
            .next()
            .map(|first| first.to_ascii_uppercase())
            .into_iter()
            .chain(word.chars().skip(1))
            .collect::<String>()
    };
    words.map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_turned_into_types() {
        assert!(check("my-profiler2").is_ok());
        for name in ["My", "2x", "a b", "", "-a", "std"] {
            assert!(check(name).is_err(), "{name}");
        }
        assert_eq!(struct_name("my-own_profiler2"), "MyOwnProfiler2");
    }

    #[test]
    fn nothing_is_overwritten_and_nothing_is_left_to_replace() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), &[]).unwrap_err().to_string().contains("exists already"));
        let all = ["@NAME@", "@STRUCT@", "@CLSID@", "@CORPROF@", "@LIBRARY@"].map(|name| (name, "x"));
        for (_, template) in FILES {
            let text = all.iter().fold(template.to_owned(), |text, (from, to)| text.replace(from, to));
            assert!(
                !text.split_whitespace().any(|word| word.len() > 2 && word.starts_with('@') && word.ends_with('@'))
            );
        }
        assert!(dependency(dir.path()).unwrap_err().to_string().contains("not the folder"));
    }
}
