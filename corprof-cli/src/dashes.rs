//! `--` before an application where it is missing: `dnx` and `dotnet tool exec` remove the first one.
//!
//! `record` and `run` need none. A question, `requests` and `waits` have a process or a file in the same place, behind
//! which options may follow: there the application begins at the first word that is neither.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use clap::{Arg, ArgAction, Command};
use corprof_profilers::is_recording;

use crate::contents::GZIP;

/// The words of a command line, with `--` before the application.
pub(crate) fn restored(cli: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    if let Some(at) = application(cli, &words) {
        words.insert(at, "--".into());
    }
    words
}

/// The place of an application's first word that has no `--` before it.
fn application(cli: &Command, words: &[OsString]) -> Option<usize> {
    let command = cli.find_subcommand(words.get(1)?)?;
    // `attach` has a word before the application, and reads all of them itself.
    if command.get_name() == "attach" || !command.get_positionals().any(Arg::is_last_set) {
        return None;
    }
    let mut rest = words.iter().enumerate().skip(2);
    while let Some((at, word)) = rest.next() {
        let word = word.to_string_lossy();
        if word == "--" {
            return None;
        }
        let is_option = word.starts_with('-') && word != "-";
        if !is_option {
            let is_file = word == "-" || is_recording(Path::new(&*word)) || has_recording(Path::new(&*word));
            let is_subject = word.parse::<u32>().is_ok() || is_file;
            return (!is_subject).then_some(at);
        }
        if has_value_behind(command, &word) {
            rest.next();
        }
    }
    None
}

/// Whether a file of any name is a recording, perhaps a compressed one, and no program.
fn has_recording(path: &Path) -> bool {
    let mut beginning = [0; 8];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut beginning)).is_ok();
    is_read && (&beginning == b"Nettrace" || beginning.starts_with(&GZIP))
}

/// Whether the value of an option is the next word.
fn has_value_behind(command: &Command, option: &str) -> bool {
    let is_named = |arg: &&Arg| match option.strip_prefix("--") {
        Some(name) => arg.get_long() == Some(name),
        None => arg.get_short().is_some_and(|letter| option.strip_prefix('-') == Some(letter.to_string().as_str())),
    };
    // Of flags, clap knows only later that they take none.
    let takes_value = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    command.get_opts().filter(takes_value).any(|arg| is_named(&arg))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn the_dashes_that_dnx_removes_are_restored() {
        let cli = crate::command();
        let restored = |line: &str| {
            let words = restored(&cli, line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        for (line, expected) in [
            ("corprof locks dotnet App.dll --top 3", "corprof locks -- dotnet App.dll --top 3"),
            ("corprof locks --top 3 -o x.svg -q App", "corprof locks --top 3 -o x.svg -q -- App"),
            ("corprof locks --top=3 App", "corprof locks --top=3 -- App"),
            ("corprof exceptions --tree dotnet App.dll", "corprof exceptions --tree -- dotnet App.dll"),
            ("corprof requests --duration 5 dotnet App.dll", "corprof requests --duration 5 -- dotnet App.dll"),
        ] {
            assert_eq!(restored(line), expected);
        }
        for unchanged in [
            "corprof locks 4711 --duration 5",
            "corprof locks -- dotnet App.dll",
            "corprof requests app.nettrace --json",
            "corprof waits -",
            "corprof record -o x.html dotnet App.dll",
            "corprof attach --wait libmine.so dotnet App.dll",
            "corprof locks --help",
            "corprof",
        ] {
            assert_eq!(restored(unchanged), unchanged);
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let line = format!("corprof waits {}", file.path().display());
        assert_eq!(restored(&line), line.replace("waits", "waits --"));
        file.write_all(b"Nettrace and more").unwrap();
        assert_eq!(restored(&line), line, "a recording of another name");
    }
}
