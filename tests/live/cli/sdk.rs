//! `corprof record` with the real SDK of .NET 10: the file goes to the application, the SDK's servers do not start, and
//! nothing stays behind.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use corprof_launch::image::Image;
use tempfile::TempDir;
use xtask::cache::Cache;
use xtask::folder::Folder;

use super::*;

/// What the SDK adds to the runtime.
const SDK: &str = "dotnet-sdk-10-linux-x64";
const RUNTIME: &str = "dotnet-10-linux-x64";

/// Samples of waits, too.
const WALL: [&str; 2] = ["--mode", "wall"];

/// The settings of a program.
pub(super) const PROGRAM: &str = "<OutputType>Exe</OutputType>";
/// A program that works for a moment, and prints its arguments.
pub(super) const BURNS: &str = r#"
System.Console.WriteLine("ran " + string.Join(' ', args));
Work.Burn();
static class Work
{
    public static void Burn()
    {
        var end = System.DateTime.UtcNow.AddMilliseconds(1500);
        double sum = 0;
        while (System.DateTime.UtcNow < end) sum += System.Math.Sqrt(sum + 1);
    }
}
"#;

/// The SDK in a folder, with folders for a user of it.
pub(super) struct Sdk {
    root: PathBuf,
    user: TempDir,
}

impl Sdk {
    /// None, and a line that says so, where the tests do not have it.
    pub(super) fn installed() -> Result<Option<Self>> {
        if Emulator::named().is_some() || runtimes()?.iter().all(|runtime| runtime.major != 10) {
            println!("SKIPPED: the SDK is of .NET 10 for this system");
            return Ok(None);
        }
        let Some(folder) = Folder::find().filter(|folder| folder.has(SDK) && folder.has(RUNTIME)) else {
            println!("SKIPPED: there is no {SDK} in CORPROF_RUNTIMES");
            return Ok(None);
        };
        let cache = Cache::open()?;
        let root = folder.unpack_over(SDK, &folder.unpack(RUNTIME, &cache)?, &cache)?;
        Ok(Some(Self { root, user: tempfile::tempdir()? }))
    }

    /// A project in a folder of its own, with `settings` and the package references `packages`.
    pub(super) fn project(&self, name: &str, settings: &str, packages: &str, source: &str) -> Result<PathBuf> {
        let folder = self.user.path().join(name);
        fs::create_dir_all(&folder)?;
        let feeds = [self.root.join("nuget"), self.feed()].map(|feed| feed.display().to_string());
        fs::create_dir_all(self.feed())?;
        let feeds: String = feeds.iter().map(|feed| format!("<add key=\"{feed}\" value=\"{feed}\" />")).collect();
        let sources = format!("<configuration><packageSources><clear />{feeds}</packageSources></configuration>");
        fs::write(folder.join("NuGet.config"), sources)?;
        let project = format!(
            "<Project Sdk=\"Microsoft.NET.Sdk\">\n<PropertyGroup><TargetFramework>net10.0</TargetFramework>{settings}\
             </PropertyGroup>\n<ItemGroup>{packages}</ItemGroup>\n</Project>\n"
        );
        fs::write(folder.join(format!("{name}.csproj")), project)?;
        fs::write(folder.join(format!("{name}.cs")), source)?;
        Ok(folder)
    }

    /// Where packages are published to.
    pub(super) fn feed(&self) -> PathBuf {
        self.user.path().join("feed")
    }

    /// A command with the environment of a user of the SDK.
    pub(super) fn prepare(&self, mut command: Command, folder: &Path) -> Command {
        let path = env::var("PATH").unwrap_or_default();
        command.current_dir(folder).stdin(Stdio::null());
        command.env("PATH", format!("{}:{path}", self.root.display())).env("DOTNET_ROOT", &self.root);
        for name in ["HOME", "DOTNET_CLI_HOME"] {
            command.env(name, self.user.path());
        }
        command.env("NUGET_PACKAGES", self.user.path().join("packages"));
        for name in ["DOTNET_NOLOGO", "DOTNET_CLI_TELEMETRY_OPTOUT", "DOTNET_SKIP_FIRST_TIME_EXPERIENCE"] {
            command.env(name, "1");
        }
        command
    }

    /// `dotnet ARGUMENTS` without `corprof`, which must succeed.
    pub(super) fn dotnet(&self, folder: &Path, arguments: &[&str]) -> Result<()> {
        let output = self.try_dotnet(folder, arguments)?;
        ensure!(output.status.success(), "dotnet {arguments:?}: {output:?}");
        Ok(())
    }

    /// The same, which may fail. It starts no servers.
    fn try_dotnet(&self, folder: &Path, arguments: &[&str]) -> Result<Output> {
        let mut command = self.prepare(Command::new(self.root.join("dotnet")), folder);
        command.args(arguments).env("MSBUILDDISABLENODEREUSE", "1").env("UseSharedCompilation", "false");
        Ok(command.output()?)
    }

    /// Checks that `dotnet ARGUMENTS` fails under `record` as it does alone: the same exit code, and of the lines that
    /// `is_compared` picks the same ones. The command has a profile, as of one that succeeds.
    fn fails_as_alone(
        &self,
        folder: &Path,
        arguments: &[&str],
        is_compared: impl Fn(&str) -> bool,
    ) -> Result<(String, Output)> {
        let lines = |output: &Output| -> Vec<String> {
            let (stdout, _) = texts(output);
            let mut lines: Vec<_> = stdout.lines().map(without_times).filter(|line| is_compared(line)).collect();
            lines.sort(); // tests end in any order
            lines
        };
        let alone = self.try_dotnet(folder, arguments)?;
        ensure!(alone.status.code() == Some(1) && !lines(&alone).is_empty(), "{alone:?}");
        let mut command = self.prepare(corprof()?, folder);
        let recorded = command.args(["record", "-o", "p.folded", "--", "dotnet"]).args(arguments).output()?;
        let (_, stderr) = texts(&recorded);
        ensure!(recorded.status.code() == Some(1), "{recorded:?}");
        ensure!(lines(&recorded) == lines(&alone), "{:?} and alone {:?}", lines(&recorded), lines(&alone));
        ensure!(stderr.contains("p.folded is "), "{stderr}");
        ensure!(self.alive()?.is_empty(), "{:?} live on: {stderr}", self.alive()?);
        Ok((fs::read_to_string(folder.join("p.folded"))?, recorded))
    }

    /// `corprof record -o p.folded COMMAND` in the folder, which must succeed.
    fn record(&self, folder: &Path, command: &[&str]) -> Result<Recorded> {
        self.record_with(folder, command, &[])
    }

    fn record_with(&self, folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Result<Recorded> {
        let before = names(folder)?;
        let mut command = self.prepare(corprof()?, folder);
        command.args(["record", "-o", "p.folded"]).args(words).envs(variables.iter().copied());
        let output = command.output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{words:?}: {output:?}");
        let profile = fs::read_to_string(folder.join("p.folded")).with_context(|| stderr.clone())?;
        let built = ["bin", "obj"].map(str::to_owned);
        let new = names(folder)?.into_iter().filter(|name| !before.contains(name) && !built.contains(name));
        Ok(Recorded { stdout, stderr, profile, files: new.collect() })
    }

    /// The processes of this user, who is like no other, which still run.
    pub(super) fn alive(&self) -> Result<Vec<u32>> {
        let home = [b"DOTNET_CLI_HOME=", self.user.path().as_os_str().as_bytes()].concat();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            if variables.split(|byte| *byte == 0).any(|variable| variable == home) {
                found.push(pid);
            }
        }
        Ok(found)
    }
}

/// What a recording has left.
struct Recorded {
    stdout: String,
    stderr: String,
    /// `p.folded`.
    profile: String,
    /// The new files in the folder.
    files: BTreeSet<String>,
}

impl Recorded {
    /// Checks that the file is that of the application with this method, and the only one.
    fn is_of(&self, method: &str) -> Result<()> {
        let Self { stderr, profile, files, .. } = self;
        ensure!(profile.contains(method), "not of {method}: {stderr}\n{profile}");
        ensure!(stderr.contains("p.folded is written\n"), "{stderr}");
        ensure!(files.iter().eq(["p.folded"]), "{files:?}: {stderr}");
        Ok(())
    }

    /// Checks that these processes of the SDK are said to have no file.
    fn leaves_out(&self, names: &str) -> Result<()> {
        let stderr = &self.stderr;
        ensure!(stderr.contains(&format!(" of the SDK are not kept: {names}\n")), "{names}: {stderr}");
        Ok(())
    }
}

fn names(folder: &Path) -> Result<BTreeSet<String>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

/// The references of a project with tests.
fn test_packages() -> String {
    let package = |name: &str, version: &str| format!("<PackageReference Include=\"{name}\" Version=\"{version}\" />");
    [
        package("Microsoft.NET.Test.Sdk", "18.0.1"),
        package("xunit", "2.9.3"),
        package("xunit.runner.visualstudio", "3.1.5"),
    ]
    .concat()
}

/// A line without what it says of the time that something took: `[12 ms]`, `Duration: 1 s`, `(0.3s)`.
fn without_times(line: &str) -> String {
    let line = line.split(", Duration: ").next().unwrap_or_default();
    let line = line.trim_end().trim_end_matches(']');
    match line.rsplit_once(" [") {
        Some((before, time)) if time.ends_with("s") => before.to_owned(),
        _ => line.to_owned(),
    }
}

/// `dotnet run` without a build: the SDK's process, and the application that it starts.
#[test]
fn dotnet_run_gives_the_file_to_the_application() -> Result<()> {
    let Some(sdk) = Sdk::installed()? else { return Ok(()) };
    let runtime = runtimes()?.into_iter().find(|runtime| runtime.major == 10).context("no .NET 10")?;
    let words = application(&runtime, "Pool")?;
    let [host, rest @ ..] = words.as_slice() else { anyhow::bail!("no host") };
    let rest: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
    let settings = format!(
        "{PROGRAM}<RunCommand>{}</RunCommand><RunArguments>{} 1000 2 100000</RunArguments>",
        host.display(),
        rest.join(" ")
    );
    let folder = sdk.project("App", &settings, "", "")?;
    // Without `--`, as `dnx` leaves it.
    let recorded = sdk.record(&folder, &["dotnet", "run", "--no-build"])?;
    recorded.is_of("Pool.")?;
    ensure!(
        recorded.stderr.contains("the file of a process of the SDK is not kept: dotnet run\n"),
        "{}",
        recorded.stderr
    );
    Ok(())
}

/// A program that contains the CLR must not be taken for one without.
#[test]
fn single_file_programs_are_told_from_those_compiled_ahead() -> Result<()> {
    let Some(sdk) = Sdk::installed()? else { return Ok(()) };
    let pack = sdk.root.join("packs/Microsoft.NETCore.App.Host.linux-x64");
    let version = fs::read_dir(&pack)?.next().context("no version of the hosts")??.path();
    let image = |name: &str| Image::open(&version.join("runtimes/linux-x64/native").join(name));
    let single_file = image("singlefilehost")?;
    ensure!(single_file.has_clr && !single_file.is_native_aot, "{single_file:?}");
    let host = image("apphost")?;
    ensure!(!host.has_clr && !host.is_native_aot, "{host:?}");
    Ok(())
}

/// Processes of a shell and of an application, without the SDK.
#[test]
fn the_first_application_from_the_command_downwards_gets_the_file() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        // An application in a folder that is called like one of the SDK.
        let sdk = folder.path().join("sdk/10.0.100");
        fs::create_dir_all(&sdk)?;
        let app = PathBuf::from(runtime.app("Parent")?);
        for extension in ["dll", "runtimeconfig.json"] {
            fs::copy(app.with_extension(extension), sdk.join("Parent").with_extension(extension))?;
        }
        let mut words = vec![runtime.host(), "exec".into(), sdk.join("Parent.dll").into_os_string(), "-".into()];
        words.extend(application(&runtime, "Pool")?);
        words.extend(["1500", "2", "100000"].map(Into::into));
        let quoted: Vec<_> = words.iter().map(|word| format!("'{}'", word.to_string_lossy())).collect();
        let mut command = corprof()?;
        command.current_dir(folder.path()).args(["record", "-o", "p.folded"]).args(WALL);
        let output = command.args(["sh", "-c", &format!("true; {}; exit $?", quoted.join(" "))]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(fs::read_to_string(folder.path().join("p.folded"))?.contains("Parent.Main("), "{runtime}: {stderr}");
        let child = names(folder.path())?.into_iter().find(|name| name.starts_with("p-Pool-"));
        let child = child.with_context(|| format!("{runtime}: no file of the child: {stderr}"))?;
        ensure!(fs::read_to_string(folder.path().join(child))?.contains("Pool."), "{runtime}: {stderr}");
        ensure!(names(folder.path())?.len() == 3, "{runtime}: {:?}", names(folder.path())?);
    }
    Ok(())
}

/// Builds take their time.
mod long {
    use super::*;

    #[test]
    fn a_build_is_recorded_and_leaves_no_servers() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("App", PROGRAM, "", BURNS)?;
        let Recorded { stdout, stderr, profile, files } = sdk.record(&folder, &["--", "dotnet", "build"])?;
        ensure!(stdout.contains("Build succeeded.") && stdout.contains("0 Warning(s)"), "{stdout}{stderr}");
        ensure!(profile.contains("Microsoft.Build."), "{stderr}\n{profile}");
        ensure!(stderr.contains("p.folded is of ") && stderr.contains("dotnet build\n"), "{stderr}");
        let is_known = |name: &String| name == "p.folded" || name.starts_with("p-csc-");
        ensure!(files.len() == 2 && files.iter().all(is_known), "{files:?}: {stderr}");
        ensure!(sdk.alive()?.is_empty(), "{:?} live on: {stderr}", sdk.alive()?);
        Ok(())
    }

    #[test]
    fn a_broken_build_fails_as_without_the_command() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let source = "System.Console.WriteLine(nothing);\nint number = \"text\";\n#warning of its own\n";
        let folder = sdk.project("App", PROGRAM, "", source)?;
        let is_compared =
            |line: &str| ["error", "warning", "Error(s)", "Build FAILED"].iter().any(|it| line.contains(it));
        let (profile, output) = sdk.fails_as_alone(&folder, &["build"], is_compared)?;
        let (stdout, stderr) = texts(&output);
        ensure!(stdout.contains("error CS0103") && stdout.contains("error CS0029"), "{stdout}");
        ensure!(stdout.contains("warning CS1030") && stdout.contains("2 Error(s)"), "{stdout}");
        ensure!(profile.contains("Microsoft.Build."), "{stderr}\n{profile}");
        Ok(())
    }

    #[test]
    fn a_failing_test_fails_as_without_the_command() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let source = r#"
public class Tests
{
    [Xunit.Fact] public void Burns() => System.Threading.Thread.SpinWait(100_000_000);
    [Xunit.Fact] public void Fails() => Xunit.Assert.Equal(2, 1 + 2);
    [Xunit.Fact] public void Throws() => int.Parse("seven");
}
"#;
        let folder = sdk.project("Tests", "", &test_packages(), source)?;
        let is_compared = |line: &str| line.contains("Failed") || line.contains("Tests.cs:line");
        let (profile, output) = sdk.fails_as_alone(&folder, &["test"], is_compared)?;
        let (stdout, stderr) = texts(&output);
        ensure!(stdout.contains("Failed!  - Failed:     2, Passed:     1, Skipped:     0, Total:     3"), "{stdout}");
        for told in [
            "  Failed Tests.Fails",
            "  Failed Tests.Throws",
            "System.FormatException",
            "Expected: 2",
            "Tests.cs:line 5",
        ] {
            ensure!(stdout.contains(told), "{told}: {stdout}{stderr}");
        }
        ensure!(profile.contains("Tests.Burns("), "{stderr}\n{profile}");
        Ok(())
    }

    #[test]
    fn a_build_and_a_run_give_the_file_to_the_application() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("App", PROGRAM, "", BURNS)?;
        let recorded = sdk.record(&folder, &["--", "dotnet", "run", "--", "one", "two"])?;
        ensure!(recorded.stdout.ends_with("ran one two\n"), "{}", recorded.stdout);
        recorded.is_of("Work.Burn(")?;
        recorded.leaves_out("csc, dotnet run")?;
        ensure!(sdk.alive()?.is_empty(), "{}", recorded.stderr);
        let recorded = sdk.record(&folder, &["--", "bash", "-c", "dotnet build && bin/Debug/net10.0/App"])?;
        ensure!(recorded.profile.contains("Work.Burn("), "{}", recorded.stderr);
        Ok(())
    }

    /// MSBuild takes what the compiler prints on standard error for errors.
    #[test]
    fn questions_do_not_disturb_a_build() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        for question in ["allocations", "exceptions", "locks", "pauses"] {
            for delay in [&[][..], &["--delay", "0.1"]] {
                // A new project, which is to be compiled.
                let folder = sdk.project(&format!("App{question}{}", delay.len()), PROGRAM, "", BURNS)?;
                let mut command = sdk.prepare(corprof()?, &folder);
                command.env("UseSharedCompilation", "false").arg("run").args(delay);
                let output = command.args([question, "--", "dotnet", "run", "--", "one"]).output()?;
                let (stdout, stderr) = texts(&output);
                ensure!(output.status.success() && stdout.ends_with("ran one\n"), "{question}: {output:?}");
                ensure!(!stdout.contains("error"), "{question}, {delay:?}: {stdout}\n{stderr}");
                // With a delay it may be another profiler, such as `allocation_samples`.
                ensure!(stderr.contains(question.trim_end_matches('s')), "no answer: {stderr}");
            }
        }
        Ok(())
    }

    #[test]
    fn tests_get_the_file() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let source = r#"
public class Tests
{
    [Xunit.Fact] public void Burns() => System.Threading.Thread.SpinWait(100_000_000);
    [Xunit.Fact] public void Fails() => Xunit.Assert.Throws<System.FormatException>(() => int.Parse("seven"));
}
"#;
        let folder = sdk.project("Tests", "", &test_packages(), source)?;
        let recorded = sdk.record(&folder, &["--", "dotnet", "test"])?;
        ensure!(recorded.stdout.contains("Passed!  - Failed:     0, Passed:     2"), "{}", recorded.stdout);
        recorded.is_of("Tests.Burns(")?;
        recorded.leaves_out("csc, dotnet test, vstest.console")?;
        // The runner keeps the standard error of the process of the tests.
        let mut command = sdk.prepare(corprof()?, &folder);
        let (_, stderr) = texts(&command.args(["exceptions", "--", "dotnet", "test", "--no-build"]).output()?);
        ensure!(stderr.matches("System.FormatException: ").count() == 1, "{stderr}");
        ensure!(sdk.alive()?.is_empty(), "{}", recorded.stderr);
        Ok(())
    }

    #[test]
    fn tools_get_the_file() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let settings = "<PackAsTool>true</PackAsTool><ToolCommandName>mytool</ToolCommandName><Version>1.0.0</Version>";
        let tool = sdk.project("MyTool", &format!("{PROGRAM}{settings}"), "", BURNS)?;
        let feed = sdk.feed();
        sdk.dotnet(&tool, &["pack", "-o", feed.to_str().context("UTF-8")?])?;
        let folder = sdk.project("user", "", "", "")?;
        let manifest = r#"{"version":1,"isRoot":true,"tools":{"mytool":{"version":"1.0.0","commands":["mytool"]}}}"#;
        fs::write(folder.join("dotnet-tools.json"), manifest)?;
        sdk.dotnet(&folder, &["tool", "restore"])?;
        let commands: [&[&str]; 3] =
            [&["dotnet", "mytool"], &["dotnet", "tool", "exec", "-y", "mytool"], &["dnx", "-y", "mytool"]];
        for command in commands {
            let _ = fs::remove_file(folder.join("p.folded"));
            let recorded = sdk.record(&folder, &[command, &["x", "--its-option"]].concat())?;
            ensure!(recorded.stdout.ends_with("ran x --its-option\n"), "{command:?}: {}", recorded.stdout);
            recorded.is_of("Work.Burn(").with_context(|| format!("{command:?}"))?;
        }
        Ok(())
    }

    #[test]
    fn a_watched_application_gets_the_file() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("App", PROGRAM, "", &format!("{BURNS}\n"))?;
        let mut command = sdk.prepare(corprof()?, &folder);
        command.args(["record", "-o", "p.folded"]).args(["--", "dotnet", "watch", "run", "--non-interactive"]);
        let program = Program::start(command)?;
        program.expect("ran ")?;
        thread::sleep(Duration::from_secs(2));
        program.signal("-INT")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{code:?}: {stderr}");
        let profile = fs::read_to_string(folder.join("p.folded"))?;
        ensure!(profile.contains("Work.Burn("), "{stderr}\n{profile}");
        let left = names(&folder)?.into_iter().filter(|name| name.starts_with('.') || name.starts_with("p-"));
        let left: Vec<_> = left.collect();
        ensure!(left.is_empty(), "{left:?}: {stderr}");
        Ok(())
    }

    /// As BenchmarkDotNet does: the host starts the SDK, and one process for each benchmark.
    #[test]
    fn benchmarks_have_files_of_their_own() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let source = r#"
            using System.Diagnostics;
            var app = typeof(Work).Assembly.Location;
            if (args.Length == 0)
            {
                Start("msbuild", "-version");
                foreach (var name in new[] { "Bench.Sorting.Quick", "Bench.Sorting.Merge(N: 8)" })
                    Start("exec", app, "--anonymousPipes", "140", "141", "--benchmarkName", name, "--job", "Default");
            }
            Work.Burn();
            static void Start(params string[] arguments)
            {
                using var child = Process.Start("dotnet", arguments);
                child.WaitForExit();
            }
        "#;
        let work = BURNS.split_once("static class").context("the class")?.1;
        let folder = sdk.project("Bench", PROGRAM, "", &format!("{source}\nstatic class{work}"))?;
        let recorded = sdk.record(&folder, &["--", "dotnet", "run", "-c", "Release"])?;
        let Recorded { stderr, profile, files, .. } = &recorded;
        ensure!(profile.contains("Work.Burn(") && stderr.contains("p.folded is of "), "{stderr}\n{profile}");
        ensure!(stderr.contains("/bin/Release/net10.0/Bench\n"), "the host's: {stderr}");
        for benchmark in ["p-Bench.Sorting.Quick-", "p-Bench.Sorting.Merge-N--8--"] {
            let file = files.iter().find(|name| name.starts_with(benchmark));
            let file = file.with_context(|| format!("{benchmark}: {files:?}: {stderr}"))?;
            ensure!(fs::read_to_string(folder.join(file))?.contains("Work.Burn("), "{file}: {stderr}");
        }
        ensure!(files.len() == 3, "{files:?}: {stderr}");
        recorded.leaves_out("csc, dotnet msbuild, dotnet run")
    }

    /// A user may want them nevertheless.
    #[test]
    fn a_server_that_lives_on_is_named_and_writes_nothing_later() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("App", PROGRAM, "", BURNS)?;
        let recorded = sdk.record_with(&folder, &["--", "dotnet", "build"], &[("UseSharedCompilation", "true")])?;
        let stderr = &recorded.stderr;
        ensure!(
            stderr.contains("VBCSCompiler") && stderr.contains(" runs on, and is not sampled any more: "),
            "{stderr}"
        );
        let before = names(&folder)?;
        sdk.dotnet(&folder, &["build-server", "shutdown"])?;
        let end = Instant::now() + PATIENCE;
        while !sdk.alive()?.is_empty() {
            ensure!(Instant::now() < end, "the server does not end");
            thread::sleep(Duration::from_millis(100));
        }
        ensure!(names(&folder)? == before, "{:?}: {stderr}", names(&folder)?);
        ensure!(before.iter().all(|name| !name.starts_with(".corprof")), "{before:?}");
        Ok(())
    }
}
