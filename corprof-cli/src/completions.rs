//! `corprof completions` and `corprof man`: what shells and `man` know of the command.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap_complete::Shell;

use crate::exit::Outcome;
use crate::output;

/// Print what a shell needs to complete the command line of `corprof`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  corprof completions bash > ~/.local/share/bash-completion/completions/corprof
  corprof completions fish > ~/.config/fish/completions/corprof.fish
  corprof completions zsh > ~/.zfunc/_corprof      a folder of zsh's fpath
  corprof completions powershell >> $PROFILE")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Write the manual's pages, one for each command, into a folder.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder, which is made if there is none
    folder: PathBuf,
}

/// Runs `corprof completions`; `command` is the command line of `corprof`.
///
/// # Errors
/// If standard output cannot be written.
pub fn run(args: &Args, mut command: clap::Command) -> Outcome {
    let name = command.get_name().to_owned();
    // The crate ends this process if it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut text);
    output::stdout().write_all(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs `corprof man`; `command` is the command line of `corprof`.
///
/// # Errors
/// If the folder cannot be written.
pub fn man(args: &ManArgs, command: clap::Command) -> Outcome {
    let folder = args.folder.as_path();
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    clap_mangen::generate_to(command, folder).with_context(|| format!("cannot write into {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_shell_and_the_manual_know_the_commands() {
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut crate::command(), "corprof", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(["record", "stacks", "duration"].iter().all(|word| text.contains(word)), "{shell}");
        }
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("man1");
        man(&ManArgs { folder: pages.clone() }, crate::command()).unwrap();
        let page = |name: &str| fs::read_to_string(pages.join(name)).unwrap();
        assert!(page("corprof.1").contains("record") && page("corprof-record.1").contains("duration"));
    }
}
