//! What shells and `man` know of the command: the command itself writes it, so that it is true.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::archive::Entry;
use crate::process;

/// The shells, and the files that they look for.
const SHELLS: [(&str, &str); 4] =
    [("bash", "corprof.bash"), ("fish", "corprof.fish"), ("zsh", "_corprof"), ("powershell", "corprof.ps1")];

/// The files for shells and the manual's pages, by `command`, which this machine can start.
pub(super) fn entries(command: &Path) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for (shell, file) in SHELLS {
        let text = process::output(Command::new(command).args(["completions", shell]))?;
        ensure!(text.contains("record"), "the completions for {shell} lack commands");
        entries.push(Entry { name: format!("completions/{file}"), content: text.into_bytes(), is_program: false });
    }
    let folder = tempfile::tempdir().context("cannot make a folder")?;
    process::output(Command::new(command).arg("man").arg(folder.path()))?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder.path()).context("cannot read the manual's pages")? {
        let path = entry.context("cannot read the manual's pages")?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        pages.push(Entry { name: format!("man/man1/{name}"), content, is_program: false });
    }
    ensure!(pages.iter().any(|page| page.name == "man/man1/corprof-record.1"), "the manual lacks pages");
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    entries.extend(pages);
    Ok(entries)
}
