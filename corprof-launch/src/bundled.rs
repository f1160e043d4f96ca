//! The profilers that the command `corprof` has built in, and their output files.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Failure;
use crate::launch::{self, Changes, Ended, Launch};

/// A built-in profiler.
#[derive(Debug, PartialEq, Eq)]
pub struct Bundled {
    /// The name on the command line.
    pub name: &'static str,
    /// The name of its struct in the library.
    pub profiler: &'static str,
    /// Its purpose in one line.
    pub summary: &'static str,
    /// The variable for its output file, and the default file.
    pub output: Option<(&'static str, Option<&'static str>)>,
}

/// All built-in profilers.
pub const ALL: [Bundled; 13] = [
    Bundled {
        name: "sampler",
        profiler: "SamplerProfiler",
        summary: "samples stacks and writes an HTML page",
        output: Some(("SAMPLER_OUT", Some("sampler-%p.html"))),
    },
    Bundled {
        name: "timer",
        profiler: "Timer",
        summary: "counts and times the calls of each method",
        output: Some(("TIMER_OUT", None)),
    },
    Bundled {
        name: "tracer",
        profiler: "Tracer",
        summary: "writes every call for the Perfetto UI, or prints a tree",
        output: Some(("TRACER_OUT", None)),
    },
    Bundled {
        name: "logger",
        profiler: "Logger",
        summary: "logs events of all categories, nested, per thread",
        output: None,
    },
    Bundled { name: "exceptions", profiler: "Exceptions", summary: "prints each exception as a tree", output: None },
    Bundled {
        name: "allocations",
        profiler: "Allocations",
        summary: "counts objects and bytes by class, or by class and stack",
        output: Some(("ALLOCATIONS_OUT", None)),
    },
    Bundled {
        name: "pauses",
        profiler: "Pauses",
        summary: "shows why the application paused, and which threads delayed it",
        output: None,
    },
    Bundled {
        name: "locks",
        profiler: "Locks",
        summary: "shows which threads wait for locks, and what the owners do",
        output: Some(("LOCKS_OUT", None)),
    },
    Bundled {
        name: "starvation",
        profiler: "Starvation",
        summary: "shows which code blocks the thread pool while it is starved",
        output: Some(("STARVATION_OUT", None)),
    },
    Bundled {
        name: "leaks",
        profiler: "Leaks",
        summary: "compares two snapshots of the heap: what has grown, and what keeps it",
        output: Some(("LEAKS_OUT", None)),
    },
    Bundled {
        name: "stacks",
        profiler: "Stacks",
        summary: "attached by `corprof stacks`: shows the stacks of all threads",
        output: None,
    },
    Bundled {
        name: "top",
        profiler: "Top",
        summary: "attached by `corprof top`: counts the processor time of methods",
        output: None,
    },
    Bundled {
        name: "dumper",
        profiler: "Dumper",
        summary: "attached by `corprof heap`: writes a snapshot of the heap",
        output: None,
    },
];

/// The built-in profiler of this name. A path such as `./sampler` means a file.
pub fn find(library: &Path) -> Option<&'static Bundled> {
    ALL.iter().find(|bundled| library.as_os_str() == bundled.name)
}

/// The output file of process `pid` for `pattern`: `%p` is the process id, `%%` a percent sign.
pub fn file_of(pattern: &Path, pid: u32) -> PathBuf {
    let Some(name) = pattern.file_name().and_then(|name| name.to_str()) else { return pattern.to_owned() };
    let name: Vec<String> = name.split("%%").map(|part| part.replace("%p", &pid.to_string())).collect();
    pattern.with_file_name(name.join("%"))
}

/// Runs an application. If the profiler is a built-in one, lists the files that it has written.
///
/// # Errors
/// If the application is not started.
pub fn run(mut launch: Launch<'_>, bundled: Option<&Bundled>) -> Result<Ended, Failure> {
    let output = match bundled {
        Some(bundled) => output(bundled, &mut launch.changes)?,
        None => None,
    };
    let is_quiet = launch.is_quiet;
    let ended = launch.run()?;
    if let (Some(output), false) = (output, is_quiet) {
        let loaded: Vec<u32> = ended.loaded.iter().copied().collect();
        list_files(&output, &loaded, &ended.commands);
    }
    Ok(ended)
}

/// The output file of a built-in profiler, if it has one. Its variable gets an absolute path, because a child process may have
/// another working folder.
///
/// # Errors
/// If the variable contains no path.
pub fn output(bundled: &Bundled, changes: &mut Changes) -> anyhow::Result<Option<PathBuf>> {
    let Some((variable, default)) = bundled.output else { return Ok(None) };
    // A sampler that sends writes a file only if it is asked to.
    let is_sent = variable == "SAMPLER_OUT" && launch::value_of(changes, "SAMPLER_PUSH").is_some();
    let default = default.filter(|_| !is_sent).map(OsString::from);
    let given = launch::value_of(changes, variable).or(default);
    let Some(file) = given.filter(|file| !file.is_empty()) else { return Ok(None) };
    let file = std::path::absolute(&file).with_context(|| format!("{variable} is no path"))?;
    changes.insert(variable.to_owned(), Some(file.clone().into_os_string()));
    Ok(Some(file))
}

/// Lists the output files of these processes that exist now, on standard error.
pub fn list_files(output: &Path, loaded: &[u32], commands: &BTreeMap<u32, String>) {
    let mut files: Vec<(u32, PathBuf)> = loaded.iter().map(|pid| (*pid, file_of(output, *pid))).collect();
    // Without the process id in its name there is one file for all processes.
    files.dedup_by(|(_, file), (_, other)| file == other);
    files.retain(|(_, file)| file.is_file());
    for (pid, file) in &files {
        match commands.get(pid).filter(|_| files.len() > 1) {
            Some(command) => eprintln!("corprof: {} is of process {pid}: {command}", file.display()),
            None => eprintln!("corprof: {} is written", file.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_number_of_its_process() {
        for (pattern, file) in [("/a%p/b-%p.svg", "/a%p/b-7.svg"), ("100%%p.svg", "100%p.svg"), ("b.svg", "b.svg")] {
            assert_eq!(file_of(Path::new(pattern), 7), Path::new(file));
        }
    }

    #[test]
    fn a_name_is_not_a_path() {
        assert_eq!(find(Path::new("sampler")).unwrap().profiler, "SamplerProfiler");
        assert_eq!(find(Path::new("./sampler")), None);
        assert_eq!(find(Path::new("libsampler.so")), None);
    }
}
