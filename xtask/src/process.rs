//! Starts other programs, and reports that.
//!
//! This tool prints to standard error, one line a step; standard output belongs to the programs that it starts.

use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

/// Prints the next step.
pub fn announce(step: impl Display) {
    eprintln!("==> {step}");
}

/// Adds a detail to the step announced last.
pub fn note(detail: impl Display) {
    eprintln!("    {detail}");
}

/// The command as a person would type it.
#[must_use]
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs `command` to its end; the caller judges its status.
///
/// # Errors
/// If the program cannot be started.
pub fn status(command: &mut Command) -> Result<ExitStatus> {
    command.status().with_context(|| format!("cannot start `{}`", shown(command)))
}

/// Runs `command`, which must succeed.
///
/// # Errors
/// If the program cannot be started or fails; the error shows the command and its status.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

/// Like [`run`], with the output of the command sent to standard error: it is progress, not a result.
///
/// # Errors
/// As [`run`].
pub fn run_as_progress(command: &mut Command) -> Result<()> {
    run(command.stdout(Stdio::from(io::stderr())))
}

/// Runs `command`, which must succeed, and returns its standard output. Its standard error is shown only if it fails.
///
/// # Errors
/// As [`run`], or if the output is not UTF-8.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let failure = format!("`{}` failed: {}\n{said}", shown(command), output.status);
        bail!("{}", failure.trim_end());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("`{}` printed something that is not UTF-8", shown(command)))
}

/// The path of `program` on PATH.
#[must_use]
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let file = format!("{program}{}", env::consts::EXE_SUFFIX);
    env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(&file)).find(|path| is_executable(path))
}

/// Whether `path` is a file that may be run.
#[must_use]
pub fn is_executable(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    metadata.is_file() && may_run
}

/// Whether this process runs as root, and so may install packages.
#[must_use]
pub fn is_root() -> bool {
    cfg!(unix) && output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// An environment variable that is set and not empty.
#[must_use]
pub fn env_path(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// For the tests of this crate.
#[cfg(test)]
pub(crate) mod testing {
    #[cfg(unix)]
    use super::*;

    /// Makes an executable script. The shell writes it: if this process did, a test on another thread that starts a
    /// program meanwhile would inherit the open file, and running the script would fail as "text file busy".
    #[cfg(unix)]
    pub(crate) fn write_script(path: &Path, script: &str) {
        let write = r#"printf %s "$1" > "$0" && chmod +x "$0""#;
        run(Command::new("sh").args(["-c", write]).arg(path).arg(script)).unwrap();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_typed() {
        let mut command = Command::new("dotnet");
        command.args(["exec", "My App.dll", "it's", ""]);
        assert_eq!(shown(&command), r"dotnet exec 'My App.dll' 'it'\''s' ''");
    }

    #[cfg(unix)]
    #[test]
    fn a_failure_names_the_command_its_status_and_what_it_said() {
        let error = output(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err().to_string();
        assert!(
            error.contains("sh -c") && error.contains("exit status: 3") && error.contains("no such thing"),
            "{error}"
        );
        let error = format!("{:#}", run(&mut Command::new("corprof-no-such-program")).unwrap_err());
        assert!(error.contains("cannot start `corprof-no-such-program`"), "{error}");
    }
}
