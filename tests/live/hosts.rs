//! Ways to start an application, and the processes that are then profiled: those with the variables in their
//! environment.
//!
//! There is no SDK here, so `dotnet run` and `dotnet test` are not started themselves. Both are managed programs that
//! start the application as a child process with their own environment, as tests/managed/Parent.cs does.

use anyhow::{Result, ensure};
use corprof_tests::{Run, Runtime};

const SWITCH: &str = "CORECLR_ENABLE_PROFILING";
/// How a line of the profiler `handles` begins at the end of a process that throws 20 exceptions, and of one that
/// throws none.
const THROWN: &str = "thrown=20 ";
const NONE_THROWN: &str = "thrown=0 ";

/// How often the profiler has ended in Throw, and in other programs, when Parent starts `child` with these changes to
/// the environment.
fn profiled(runtime: &Runtime, own: &str, child: &str, changes: &str) -> Result<[usize; 2]> {
    let (args, printed): (&[&str], _) = match child {
        "Throw" => (&["5"], "thrown=20 caught=15"),
        _ => (&[], "Hello, world!"),
    };
    let run = Run::new(runtime, "Parent").args([changes]).args([runtime.host(), "exec".into(), runtime.app(child)?]);
    let outcome = run.args(args).profiler("handles").env(SWITCH, own).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout.contains(printed), "{outcome}");
    Ok([THROWN, NONE_THROWN].map(|thrown| outcome.stderr.lines().filter(|line| line.starts_with(thrown)).count()))
}

/// The runtimes whose programs the system can start: an emulator starts one program, and none for it.
fn startable() -> Result<Vec<Runtime>> {
    let (startable, emulated): (Vec<_>, Vec<_>) =
        Runtime::all()?.into_iter().partition(|runtime| !runtime.is_emulated());
    for runtime in emulated {
        println!("SKIPPED: {runtime}: an emulated program cannot start others");
    }
    Ok(startable)
}

#[test]
fn a_child_process_is_profiled_if_it_inherits_the_variables() -> Result<()> {
    for runtime in startable()? {
        // As `dotnet run` with the variables set in the shell: both, each by a profiler of its own.
        ensure!(profiled(&runtime, "1", "Throw", "-")? == [1, 1], "{runtime}: both");
        ensure!(profiled(&runtime, "1", "Hello", "-")? == [0, 2], "{runtime}: both");
        // As a parent that does not pass them on. The child throws nothing: .NET 8 without a profiler cannot under
        // Wine, see `Wine::without_profiler` in xtask.
        ensure!(profiled(&runtime, "1", "Hello", &format!("{SWITCH}=0"))? == [0, 1], "{runtime}: the parent alone");
        ensure!(profiled(&runtime, "1", "Hello", &format!("{SWITCH}="))? == [0, 1], "{runtime}: the parent alone");
        // As `dotnet run -e NAME=VALUE`, which sets them for the application.
        ensure!(
            profiled(&runtime, "0", "Throw", &format!("{SWITCH}=1"))? == [1, 0],
            "{runtime}: the application alone"
        );
    }
    Ok(())
}

#[cfg(target_os = "linux")]
pub(crate) mod apphost {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use anyhow::{Context, Result, ensure};
    use corprof_tests::Run;

    use super::{THROWN, startable};

    /// The host resolver of a runtime, which lies beside its `dotnet`.
    pub(crate) fn host_resolver(root: &Path) -> Result<PathBuf> {
        let folder = root.join("host/fxr");
        let mut versions = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        let version = versions.next().context("there is no host resolver")??;
        Ok(version.path().join("libhostfxr.so"))
    }

    /// Makes an application's own executable.
    pub(crate) fn compile(host: &Path) -> Result<()> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("hosts/apphost.c");
        let compiled = Command::new("cc").args(["-Wall", "-Werror", "-o"]).arg(host).arg(&source).arg("-ldl").status();
        ensure!(compiled.context("cannot start cc")?.success(), "cc failed");
        Ok(())
    }

    #[test]
    fn an_executable_of_the_applications_own_is_profiled() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let host = folder.path().join("Throw");
        compile(&host)?;
        for runtime in startable()?.into_iter().filter(|runtime| !runtime.is_windows()) {
            let app = PathBuf::from(runtime.app("Throw")?);
            for extension in ["dll", "runtimeconfig.json"] {
                std::fs::copy(app.with_extension(extension), host.with_extension(extension))?;
            }
            let dotnet = PathBuf::from(runtime.host());
            let root = dotnet.parent().context("dotnet lies in no folder")?;
            // The command has the environment of a profiled run; only the program is another.
            let prepared = Run::new(&runtime, "Throw").profiler("handles").command()?;
            let mut command = Command::new(&host);
            for (name, value) in prepared.get_envs() {
                match value {
                    Some(value) => command.env(name, value),
                    None => command.env_remove(name),
                };
            }
            command.env("APPHOST_HOSTFXR", host_resolver(root)?).env("DOTNET_ROOT", root);
            let output = command.arg("5").output()?;
            let [stdout, stderr] =
                [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
            ensure!(output.status.success() && stdout.contains("thrown=20 caught=15"), "{runtime}: {stdout}{stderr}");
            ensure!(stderr.lines().any(|line| line.starts_with(THROWN)), "{runtime} is not profiled: {stderr}");
        }
        Ok(())
    }
}
