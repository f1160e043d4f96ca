//! Runs of the profilers that the command `corprof` has built in: the check of their settings, and their output files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;
use corprof_profilers::settings::{self, SettingError};
use corprof_profilers::table::Profiler;

use crate::exit::Failure;
use crate::launch::{self, Changes, Ended, Launch};
use crate::processes::Program;

/// The output file of process `pid` for `pattern`: `%p` is the process id, `%%` a percent sign.
pub fn file_of(pattern: &Path, pid: u32) -> PathBuf {
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()) else { return pattern.to_owned() };
    let name: Vec<String> = name.split("%%").map(|part| part.replace("%p", &pid.to_string())).collect();
    pattern.with_file_name(name.join("%"))
}

/// Checks the settings that a built-in profiler will have: those of `changes`, and those of this environment. The
/// profiler itself checks more, such as whether a file can be written.
///
/// # Errors
/// If a value is not what the table says, or one of `changes` is not a setting of the profiler although it begins as
/// one, or a variable of this environment is nearly a setting.
pub fn check(profiler: &'static Profiler, changes: &Changes) -> Result<(), SettingError> {
    for (name, value) in changes {
        if let Some(value) = value {
            settings::check(profiler, name, value)?;
        }
    }
    let inherited = profiler.settings.iter().filter(|setting| !changes.contains_key(setting.variable));
    for setting in inherited {
        if let Some(value) = std::env::var_os(setting.variable) {
            settings::check(profiler, setting.variable, &value)?;
        }
    }
    let inherited = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
    inherited.filter(|(name, _)| !changes.contains_key(name)).try_for_each(|(name, value)| {
        // Any other variable may be one of the application's own.
        if profiler.misspelt(&name).is_some() { settings::check(profiler, &name, &value) } else { Ok(()) }
    })
}

/// Runs an application. If the profiler is a built-in one, lists the files that it has written.
///
/// # Errors
/// If the application is not started.
pub fn run(mut launch: Launch<'_>, profiler: Option<&Profiler>) -> Result<Ended, Failure> {
    let output = match profiler {
        Some(profiler) => output(profiler, &mut launch.changes)?,
        None => None,
    };
    let is_quiet = launch.is_quiet;
    let ended = launch.run()?;
    if let (Some(output), false) = (output, is_quiet) {
        let loaded: Vec<u32> = ended.loaded.iter().copied().collect();
        list_files(&output, &loaded, &ended.programs);
    }
    Ok(ended)
}

/// The output file of a built-in profiler, if it has one. Its variable gets an absolute path, because a child process
/// may have another working folder.
///
/// # Errors
/// If the variable contains no path.
pub fn output(profiler: &Profiler, changes: &mut Changes) -> anyhow::Result<Option<PathBuf>> {
    let Some(setting) = profiler.output() else { return Ok(None) };
    let variable = setting.variable;
    // A sampler that sends writes a file only if it is asked to.
    let is_sent = profiler.name == "sampler" && launch::value_of(changes, "SAMPLER_PUSH").is_some();
    let default = Some(setting.default).filter(|default| !default.is_empty() && !is_sent).map(OsString::from);
    let given = launch::value_of(changes, variable).or(default);
    let Some(file) = given.filter(|file| !file.is_empty()) else { return Ok(None) };
    let file = std::path::absolute(&file).with_context(|| format!("{variable} is not a path"))?;
    changes.insert(variable.to_owned(), Some(file.clone().into_os_string()));
    Ok(Some(file))
}

/// Lists the output files of these processes that exist now, on standard error.
pub fn list_files(output: &Path, loaded: &[u32], programs: &BTreeMap<u32, Program>) {
    let mut files: Vec<(u32, PathBuf)> = loaded.iter().map(|pid| (*pid, file_of(output, *pid))).collect();
    // Without the process id in its name there is one file for all processes.
    files.dedup_by(|(_, file), (_, other)| file == other);
    files.retain(|(_, file)| file.is_file());
    for (pid, file) in &files {
        match programs.get(pid).filter(|_| files.len() > 1) {
            Some(program) => eprintln!("corprof: {} is of process {pid}: {}", file.display(), program.command),
            None => eprintln!("corprof: {} is written", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use corprof_profilers::table::TIMER;

    use super::*;

    #[test]
    fn a_file_has_the_number_of_its_process() {
        for (pattern, file) in [("/a%p/b-%p.svg", "/a%p/b-7.svg"), ("100%%p.svg", "100%p.svg"), ("b.svg", "b.svg")] {
            assert_eq!(file_of(Path::new(pattern), 7), Path::new(file));
        }
    }

    #[test]
    fn settings_are_checked_before_a_start() {
        let change = |name: &str, value: &str| Changes::from([(name.to_owned(), Some(value.into()))]);
        check(&TIMER, &change("TIMER_PATHS", "7")).unwrap();
        check(&TIMER, &change("PATH", "/bin")).unwrap();
        let refused = |name, value| check(&TIMER, &change(name, value)).unwrap_err().to_string();
        assert_eq!(refused("TIMER_PATHS", "0"), "TIMER_PATHS=0: give a number from 1 to 1073741824");
        assert!(refused("TIMER_PATH", "7").contains("did you mean TIMER_PATHS?"));
        assert!(refused("TIMER_SECONDS", "7").contains("it has TIMER_OUT,"));
    }
}
