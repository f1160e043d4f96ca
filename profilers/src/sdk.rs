//! Tells the processes of a .NET SDK from those of applications, by the file that a process runs.
//!
//! `dotnet build`, MSBuild, the compilers and the test runners start under the variables that the application gets, and
//! so with its profiler. The command gives the application's file the name that was asked for, and profilers print
//! nothing in the SDK's processes.

use std::path::{Path, PathBuf};

/// The options of the host `dotnet` before an assembly, each with a value (dotnet/runtime,
/// corehost/fxr/command_line.cpp).
const HOST_OPTIONS: [&str; 7] = [
    "--additionalprobingpath",
    "--additional-deps",
    "--depsfile",
    "--fx-version",
    "--roll-forward",
    "--roll-forward-on-no-candidate-fx",
    "--runtimeconfig",
];

/// Whether a process runs the SDK and not an application: its `executable` or the assembly in its `arguments` belongs
/// to an SDK, or its arguments are a command of the SDK, such as `dotnet build`.
///
/// The arguments begin with the program's name. `folder` is the process's current one.
#[must_use]
pub fn is_tool(executable: &Path, arguments: &[String], folder: Option<&Path>) -> bool {
    if !is_host(executable, arguments) {
        return is_in_sdk(executable);
    }
    match assembly(arguments) {
        Some(assembly) => is_in_sdk(&folder.unwrap_or(Path::new("")).join(assembly)),
        None => true,
    }
}

/// The arguments in a file `/proc/PID/cmdline`: each ends with a zero.
#[must_use]
pub fn arguments(line: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\0').unwrap_or(&text);
    text.split('\0').map(str::to_owned).collect()
}

/// A short name of what a process runs: that of its assembly or its program, or a command of the SDK.
#[must_use]
pub fn name(executable: &Path, arguments: &[String]) -> String {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if !is_host(executable, arguments) {
        return stem(executable);
    }
    match (assembly(arguments), arguments.get(1)) {
        (Some(assembly), _) => file_stem(assembly).to_owned(),
        (None, Some(command)) => format!("dotnet {command}"),
        (None, None) => stem(executable),
    }
}

/// The file name without its extension, of a path of this or another system.
fn file_stem(path: &str) -> &str {
    let name = path.rsplit(['/', '\\']).next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// Whether the process is the host `dotnet`, which runs assemblies and the SDK's commands. An emulator or a loader may
/// run it.
fn is_host(executable: &Path, arguments: &[String]) -> bool {
    let is_dotnet = |path: &Path| path.file_stem().is_some_and(|stem| stem == "dotnet");
    is_dotnet(executable) || arguments.first().is_some_and(|program| is_dotnet(Path::new(program)))
}

/// The assembly that the host runs; none if it runs a command of the SDK.
fn assembly(arguments: &[String]) -> Option<&str> {
    let mut words = arguments.iter().skip(1).map(String::as_str).peekable();
    words.next_if(|word| word.eq_ignore_ascii_case("exec"));
    while words.next_if(|word| HOST_OPTIONS.contains(&word.to_ascii_lowercase().as_str())).is_some() {
        words.next();
    }
    let first = words.next()?;
    // If there is no such file, the host takes this for a command as well: then no application starts.
    let is_managed = [".dll", ".exe"].iter().any(|ending| first.to_ascii_lowercase().ends_with(ending));
    is_managed.then_some(first)
}

/// Whether a file is in the folder of an SDK: `/usr/share/dotnet/sdk/10.0.100`, which has the SDK's command line, an
/// assembly of this name. A user's folder may be called `sdk` too.
fn is_in_sdk(file: &Path) -> bool {
    let is_sdk = |folder: &Path| {
        let is_below = folder.parent().and_then(Path::file_name).is_some_and(|name| name == "sdk");
        is_below && command_line_of(folder).is_file()
    };
    file.ancestors().skip(1).any(is_sdk)
}

fn command_line_of(sdk: &Path) -> PathBuf {
    sdk.join("dotnet.dll")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_sdk_is_known_by_what_a_process_runs() {
        let root = tempfile::tempdir().unwrap();
        let sdk = root.path().join("sdk/10.0.100");
        fs::create_dir_all(&sdk).unwrap();
        fs::write(command_line_of(&sdk), "").unwrap();
        let dotnet = root.path().join("dotnet");
        let is = |line: &str| is_tool(&dotnet, &words(&line.replace("SDK", sdk.to_str().unwrap())), Some(&sdk));
        for command in ["dotnet run --project x", "/usr/bin/dotnet test App.dll", "dotnet", "dotnet tool exec mine"] {
            assert!(is(command), "{command}");
        }
        assert!(is("dotnet exec SDK/Roslyn/bincore/VBCSCompiler.dll") && is("dotnet SDK/MSBuild.dll -nologo"));
        assert!(is("dotnet exec --depsfile x.dll --runtimeconfig y SDK/vstest.console.dll /home/me/Tests.dll"));
        assert!(is("dotnet MSBuild.dll"), "in the process's folder");
        let own = "dotnet exec --depsfile Tests.deps.json /home/me/sdk/10.0.100/testhost.dll --port 4711";
        assert!(!is(own) && !is("dotnet /home/me/App.dll SDK/MSBuild.dll") && !is("dotnet /x/App.dll run"));
        let program = |path: PathBuf| is_tool(&path, &words("anything build"), None);
        assert!(program(sdk.join("Roslyn/bincore/csc")), "the compiler as a program of its own");
        assert!(!program("/home/me/sdk/10.0.100/App".into()) && !program(root.path().join("tools/App")));
    }

    #[test]
    fn what_runs_has_a_name() {
        let of = |line: &str| name(Path::new("/usr/bin/dotnet"), &words(line));
        assert_eq!(of("dotnet exec --roll-forward Major /x/My.App.dll --its-option"), "My.App");
        assert_eq!(of(r"dotnet C:\x\App.dll"), "App");
        assert_eq!(of("dotnet run --project x"), "dotnet run");
        assert_eq!(name(Path::new("/x/App"), &words("App run")), "App");
    }
}
