//! `record -p`, `stacks`, `top`, `heap`, `events`, `attach` and `detach` on processes with other files, other numbers
//! or another user than the command: in namespaces, which stand for containers and for services of systemd. One test a
//! set-up. Root makes them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use serde_json::Value;
use tempfile::TempDir;
use xtask::musl::Musl;

use super::*;

/// The user nobody.
const NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// The runtimes whose processes these set-ups can have, if this system makes `set_up`, a command that does nothing.
fn runtimes_if(set_up: &[&str]) -> Result<Vec<Runtime>> {
    let made = set_up.split_first().map(|(program, args)| Command::new(program).args(args).arg("true").output());
    if !made.is_some_and(|output| output.is_ok_and(|output| output.status.success())) {
        println!("SKIPPED: this system or user cannot make it: {} true", set_up.join(" "));
        return Ok(Vec::new());
    }
    runtimes()
}

/// A runtime and the programs where every user can read them, and a folder for temporary files.
struct Shared(TempDir);

impl Shared {
    fn of(runtime: &Runtime) -> Result<Self> {
        let shared = Self(tempfile::Builder::new().prefix("any-process-").tempdir_in("/var/tmp")?);
        fs::set_permissions(shared.0.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let host = PathBuf::from(runtime.host());
        let app = PathBuf::from(runtime.app("Diagnosed")?);
        shared.copy(host.parent().context("no folder")?, "dotnet")?;
        shared.copy(app.parent().context("no folder")?, "apps")?;
        fs::create_dir(shared.temp())?;
        fs::set_permissions(shared.temp(), std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
        Ok(shared)
    }

    /// Copies a folder: by links, if it is on the same file system.
    fn copy(&self, folder: &Path, name: &str) -> Result<()> {
        let copy = |how: &str| Command::new("cp").args([how, "-rL"]).arg(folder).arg(self.0.path().join(name)).output();
        let is_linked = copy("-l")?.status.success();
        ensure!(is_linked || copy("-f")?.status.success(), "cannot copy {}", folder.display());
        Ok(())
    }

    fn temp(&self) -> PathBuf {
        self.0.path().join("temp")
    }

    /// Starts the program by `set_up`, which gets its command line; its folders are below `folder` there.
    fn start(&self, set_up: Command, folder: &Path) -> Result<Target> {
        let mut command = set_up;
        with_libraries(&mut command, folder);
        command.arg(folder.join("dotnet/dotnet")).arg("exec").arg(folder.join("apps/Diagnosed.dll"));
        command.env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
        let program = Program::start(command)?;
        program.expect("ready")?;
        let mut pid = program.child.id();
        while let Some(child) = child_of(pid)? {
            pid = child;
        }
        Ok(Target { program, pid })
    }
}

/// Has a command find the libraries of its system beside the runtime in this folder, if it is for musl.
fn with_libraries(command: &mut Command, folder: &Path) {
    let Some(Emulator::Musl(Musl { libraries })) = Emulator::named() else { return };
    command.env("LD_LIBRARY_PATH", folder.join("dotnet").join(libraries.file_name().unwrap_or_default()));
}

/// The program in its set-up, and its number for the command.
struct Target {
    program: Program,
    pid: u32,
}

impl Target {
    fn corprof(&self, args: &[&str]) -> Result<Output> {
        let mut command = corprof()?;
        for arg in args {
            command.arg(if *arg == "PID" { self.pid.to_string() } else { (*arg).to_owned() });
        }
        let output = command.output()?;
        ensure!(output.status.success(), "{args:?}: {output:?}");
        Ok(output)
    }

    /// The files of visits that are left in its folders for temporary files.
    fn left(&self, temp: &str) -> Result<Vec<PathBuf>> {
        let folder = PathBuf::from(format!("/proc/{}/root{temp}", self.pid));
        let paths =
            fs::read_dir(&folder).with_context(|| folder.display().to_string())?.flatten().map(|entry| entry.path());
        Ok(paths.filter(|path| path.to_string_lossy().contains("corprof-")).collect())
    }

    /// How many files with the profilers are mapped.
    fn libraries(&self) -> Result<usize> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid))?;
        let lines = maps.lines().filter(|line| line.contains("/libcorprof_profilers-"));
        // The number of the file is the fifth word.
        Ok(lines.filter_map(|line| line.split_whitespace().nth(4)).collect::<BTreeSet<_>>().len())
    }

    /// Glibc knows a library by its path. Musl knows it by its file, and that of a visit is removed with its folder.
    fn has_one_library(&self, runtime: &Runtime) -> Result<()> {
        let is_one = self.libraries()? == 1 || runtime.is_musl();
        ensure!(is_one, "{runtime}: the visits have left {} libraries mapped", self.libraries()?);
        Ok(())
    }

    /// A command that records.
    fn recording(&self, file: &Path, mode: &str) -> Result<Program> {
        let mut recording = corprof()?;
        recording.args(["record", "-p", &self.pid.to_string(), "--mode", mode, "-o"]).arg(file);
        let mut recording = Program::start(recording)?;
        recording.stderr_line("recording process")?;
        Ok(recording)
    }

    /// Runs `stacks`. `temp` is where the process has its temporary files, and nobody else has.
    fn shows_its_stacks(&self, runtime: &Runtime, temp: &str) -> Result<()> {
        let stacks = self.corprof(&["stacks", "PID", "--json"])?;
        let stacks: Value = serde_json::from_slice(&stacks.stdout).context("no JSON")?;
        ensure!(stacks["threads"].to_string().contains("Diagnosed.Main"), "{runtime}: {stacks}");
        ensure!(self.left(temp)?.is_empty(), "{runtime}: {:?}", self.left(temp)?);
        Ok(())
    }

    /// Asks about the storm, longer each time: its collections may keep the threads that throw from running for a
    /// second, without a profiler as well.
    fn answers_questions(&self, runtime: &Runtime, own: &Path) -> Result<()> {
        let file = own.join("allocated.folded");
        let out = file.display().to_string();
        let mut seen = String::new();
        for seconds in ["1", "4", "16"] {
            let exceptions = self.corprof(&["exceptions", "PID", "--duration", seconds])?;
            self.corprof(&["allocations", "PID", "--duration", seconds, "-o", &out])?;
            let allocated = fs::read_to_string(&file)?;
            ensure!(fs::metadata(&file)?.uid() == fs::metadata(own)?.uid(), "{runtime}: the file is another user's");
            seen = format!("{}{allocated}", texts(&exceptions).0);
            if seen.contains("  System.InvalidOperationException") && allocated.contains("InvalidOperationException") {
                return Ok(());
            }
        }
        anyhow::bail!("{runtime}: {seen}")
    }

    /// Runs every command. `temp` is where the process has its temporary files, and nobody else has.
    fn try_every_command(mut self, runtime: &Runtime, temp: &str) -> Result<()> {
        let own = tempfile::tempdir()?;
        let file = |name: &str| own.path().join(name);
        let is_ours =
            |path: &Path| -> Result<bool> { Ok(fs::metadata(path)?.uid() == fs::metadata(own.path())?.uid()) };

        self.shows_its_stacks(runtime, temp)?;
        self.program.tell("storm")?;
        let profile = file("profile.folded");
        let out = profile.display().to_string();
        self.corprof(&["record", "-p", "PID", "--mode", "wall", "--duration", "2", "-o", &out])?;
        ensure!(fs::read_to_string(&profile)?.contains("Diagnosed."), "{runtime}: {}", fs::read_to_string(&profile)?);
        ensure!(is_ours(&profile)?, "{runtime}: the profile is another user's");

        let page = file("profile.html");
        let recording = self.recording(&page, "wall")?;
        thread::sleep(Duration::from_secs(1));
        recording.signal("-INT")?;
        let (code, stderr) = recording.end()?;
        ensure!(code == Some(0) && page.is_file(), "{runtime}: {code:?} {stderr}");
        ensure!(self.left(temp)?.is_empty(), "{runtime}: {:?}", self.left(temp)?);

        let top = self.corprof(&["top", "PID", "--json", "--duration", "2"])?;
        let top: Value = serde_json::from_slice(&top.stdout).context("no JSON")?;
        // On a full machine there may be no sample.
        ensure!(top["seconds"].as_f64().is_some_and(|seconds| seconds >= 2.0), "{runtime}: {top}");
        self.answers_questions(runtime, own.path())?;
        self.program.tell("calm")?;

        let heap = file("heap.txt");
        let output = self.corprof(&["heap", "PID", "-o", &heap.display().to_string()])?;
        ensure!(!texts(&output).1.contains("session"), "{runtime}: not from inside: {output:?}");
        ensure!(fs::read_to_string(&heap)?.contains("System.String") || heap.metadata()?.len() > 100, "{runtime}");

        let events = self.corprof(&["events", "PID", "--duration", "1"])?;
        ensure!(texts(&events).1.contains("events printed"), "{runtime}: {events:?}");

        let out = format!("SAMPLER_OUT={temp}/sampled.folded");
        self.corprof(&["attach", "PID", "sampler", "--data", &out])?;
        self.corprof(&["detach", "PID"])?;
        ensure!(self.left(temp)?.is_empty(), "{runtime}: {:?}", self.left(temp)?);
        self.has_one_library(runtime)?;
        let (code, stderr) = self.program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?} {stderr}");
        Ok(())
    }
}

/// A command of these words.
fn command(words: &[&str]) -> Result<Command> {
    let (program, args) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

/// Another root, whose /tmp has no code, another user, and numbers of processes of its own. `$0` becomes the root, and
/// `$1` is its /opt.
const CONTAINER: &str = r#"
set -e
opt=$1
shift
mount -t tmpfs -o mode=755 none "$0"
cd "$0"
for folder in bin sbin lib lib64 usr etc; do
    if [ -L /$folder ]; then cp -P /$folder .; elif [ -d /$folder ]; then mkdir $folder; mount --rbind /$folder $folder; fi
done
mkdir -p -m 755 proc dev opt old var
mkdir -m 1777 tmp var/tmp
mount -t proc proc proc
mount -t tmpfs -o mode=1777,noexec none tmp
for device in null zero urandom; do touch dev/$device; mount --bind /dev/$device dev/$device; done
mount --bind "$opt" opt
"#;

/// Leaves no way back to the old root.
const PIVOT: &str = "pivot_root . old; exec chroot .";

/// Does something with a container whose root was changed by this command, and which then runs as nobody.
fn container(change_root: &str, mut work: impl FnMut(Target, &Runtime, &str) -> Result<()>) -> Result<()> {
    let unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"];
    let may = [&unshare[..], &NOBODY[..]].concat();
    for runtime in runtimes_if(&may)? {
        let shared = Shared::of(&runtime)?;
        let root = tempfile::tempdir_in("/var/tmp")?;
        let script = format!("{CONTAINER}{change_root} {} \"$@\"", NOBODY.join(" "));
        let mut set_up = command(&unshare)?;
        set_up.args(["sh", "-c", &script]).arg(root.path()).arg(shared.0.path()).env_remove("TMPDIR");
        work(shared.start(set_up, Path::new("/opt"))?, &runtime, "/var/tmp")?;
    }
    Ok(())
}

/// The command of nobody on a process of root's and on one of another user's says whose it is, and what helps.
#[test]
fn a_process_of_another_user_without_rights() -> Result<()> {
    for runtime in runtimes_if(&NOBODY)? {
        let shared = Shared::of(&runtime)?;
        let corprof = shared.0.path().join("corprof");
        fs::copy(super::corprof()?.get_program(), &corprof)?;
        for (user, set_up) in [("root", vec!["env"]), ("daemon", vec!["setpriv", "--reuid=1", "--clear-groups"])] {
            let mut set_up = command(&set_up)?;
            // One folder that everybody sees, and one of the process's own.
            match user {
                "root" => set_up.env_remove("TMPDIR"),
                _ => set_up.env("TMPDIR", shared.temp()),
            };
            let target = shared.start(set_up, shared.0.path())?;
            let pid = target.pid.to_string();
            let sampler = ["attach", &pid, "sampler"];
            let commands: [&[&str]; 8] = [
                &["stacks", &pid],
                &["locks", &pid],
                &["record", "-p", &pid, "-o", "/var/tmp/none.svg"],
                &["top", &pid, "--once"],
                &["heap", &pid],
                &["events", &pid],
                &["detach", &pid],
                &sampler,
            ];
            for args in commands {
                let mut command = command(&NOBODY)?;
                with_libraries(&mut command, shared.0.path());
                command.arg(&corprof).args(args).env("CORPROF_CACHE", shared.temp());
                let output = command.output()?;
                let (_, stderr) = texts(&output);
                ensure!(output.status.code() == Some(3), "{runtime}: {args:?}: {output:?}");
                let whose = format!(
                    "process {pid} belongs to the user {user}: use that account (sudo -u {user}), or root's (sudo)"
                );
                ensure!(stderr.contains(&whose), "{runtime}: {args:?}: {stderr}");
            }
        }
    }
    Ok(())
}

/// Its folder for temporary files outlives it.
#[test]
fn a_service_of_another_user_that_is_killed() -> Result<()> {
    for runtime in runtimes_if(&NOBODY)? {
        let shared = Shared::of(&runtime)?;
        let mut set_up = command(&NOBODY)?;
        set_up.env("TMPDIR", shared.temp());
        let target = shared.start(set_up, shared.0.path())?;
        let recording = target.recording(&shared.0.path().join("none.svg"), "cpu")?;
        target.program.signal("-KILL")?;
        let (code, stderr) = recording.end()?;
        ensure!(code.is_some(), "{runtime}: {stderr}");
        let left = folders_in(&shared.temp())?;
        ensure!(left.is_empty(), "{runtime}: {left:?}");
    }
    Ok(())
}

/// The folders of commands. A process that is killed leaves its sockets beside them.
fn folders_in(temp: &Path) -> Result<Vec<PathBuf>> {
    let folders = fs::read_dir(temp)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    Ok(folders.filter(|path| path.to_string_lossy().contains("/corprof-")).collect())
}

/// Nobody can tell a command that it is killed: its profiler removes what it has left in the container.
#[test]
fn a_container_whose_visitor_is_killed() -> Result<()> {
    container(PIVOT, |target, runtime, temp| {
        let file = tempfile::tempdir()?;
        for mode in ["cpu", "wall"] {
            let mut recording = target.recording(&file.path().join(format!("{mode}.folded")), mode)?;
            ensure!(target.left(temp)?.len() == 1, "{runtime}: {:?}", target.left(temp)?);
            recording.child.kill()?;
            until("the folder is removed", || Ok(target.left(temp)?.is_empty()))?;
        }
        until("the profiler leaves", || Ok(target.shows_its_stacks(runtime, temp).is_ok()))?;
        target.has_one_library(runtime)
    })
}

/// The next visit to a process of the same user removes what is left of one that was killed with its process.
#[test]
fn a_service_that_is_killed_with_its_visitor() -> Result<()> {
    for runtime in runtimes_if(&NOBODY)? {
        let shared = Shared::of(&runtime)?;
        let start = || -> Result<Target> {
            let mut set_up = command(&NOBODY)?;
            set_up.env("TMPDIR", shared.temp());
            shared.start(set_up, shared.0.path())
        };
        let first = start()?;
        let second = start()?;
        let file = tempfile::tempdir()?;
        let mut to_first = first.recording(&file.path().join("first.folded"), "wall")?;
        let to_second = second.recording(&file.path().join("second.folded"), "wall")?;
        first.program.stop()?;
        to_first.child.kill()?;
        to_first.child.wait()?;
        first.program.signal("-KILL")?;

        let third = start()?;
        let temp = shared.temp();
        third.corprof(&["stacks", "PID"])?;
        let folders = || folders_in(&temp);
        ensure!(folders()?.len() == 1, "{runtime}: that of the living command, and no other: {:?}", folders()?);
        to_second.signal("-INT")?;
        let (code, stderr) = to_second.end()?;
        // On a busy machine it may not have a sample yet.
        ensure!(code.is_some() && !stderr.contains("cannot"), "{runtime}: {code:?} {stderr}");
        ensure!(folders()?.is_empty(), "{runtime}: {:?}", folders()?);
    }
    Ok(())
}

#[test]
fn a_container_shows_its_stacks() -> Result<()> {
    container(PIVOT, |target, runtime, temp| target.shows_its_stacks(runtime, temp))
}

/// Every command on every set-up: seconds for each detach.
mod long {
    use super::*;

    /// As systemd's `PrivateTmp=` has it.
    #[test]
    fn a_service_with_a_private_folder_for_temporary_files() -> Result<()> {
        let script = r#"mount -t tmpfs -o mode=1777 none /tmp && exec "$@""#;
        let set_up = ["unshare", "--mount", "sh", "-c", script, "sh"];
        for runtime in runtimes_if(&set_up)? {
            let shared = Shared::of(&runtime)?;
            let mut set_up = command(&set_up)?;
            set_up.env_remove("TMPDIR");
            shared.start(set_up, shared.0.path())?.try_every_command(&runtime, "/tmp")?;
        }
        Ok(())
    }

    /// With numbers of processes of its own, and a TMPDIR.
    #[test]
    fn a_process_in_a_pid_namespace_of_its_own() -> Result<()> {
        let set_up = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        for runtime in runtimes_if(&set_up)? {
            let shared = Shared::of(&runtime)?;
            let mut set_up = command(&set_up)?;
            set_up.env("TMPDIR", shared.temp());
            let target = shared.start(set_up, shared.0.path())?;
            target.try_every_command(&runtime, &shared.temp().display().to_string())?;
        }
        Ok(())
    }

    #[test]
    fn a_container_by_pivot_root() -> Result<()> {
        container(PIVOT, Target::try_every_command)
    }

    #[test]
    fn a_container_by_chroot() -> Result<()> {
        container("exec chroot .", Target::try_every_command)
    }

    /// A container that a user has made without rights, whose root is that user.
    #[test]
    fn a_container_without_rights() -> Result<()> {
        let script = r#"mount -t tmpfs -o mode=1777 none /tmp && exec "$@""#;
        let unshare =
            ["unshare", "-r", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"];
        let set_up = [&NOBODY[..], &unshare[..]].concat();
        for runtime in runtimes_if(&set_up)? {
            let shared = Shared::of(&runtime)?;
            let mut set_up = command(&set_up)?;
            set_up.env_remove("TMPDIR");
            shared.start(set_up, shared.0.path())?.try_every_command(&runtime, "/tmp")?;
        }
        Ok(())
    }

    /// Root's command on a service's process: the process can neither read the library in root's cache nor write into
    /// root's folder.
    #[test]
    fn a_service_of_another_user_by_root() -> Result<()> {
        for runtime in runtimes_if(&NOBODY)? {
            let shared = Shared::of(&runtime)?;
            let mut set_up = command(&NOBODY)?;
            set_up.env("TMPDIR", shared.temp());
            let target = shared.start(set_up, shared.0.path())?;
            target.try_every_command(&runtime, &shared.temp().display().to_string())?;
        }
        Ok(())
    }
    /// `cargo xtask test --musl` has such a process and such a command.
    #[test]
    fn a_process_with_musl_by_the_command_for_glibc() -> Result<()> {
        let Some(program) = env::var_os("CORPROF_HOST_COMMAND") else {
            println!("SKIPPED: no process with musl: `cargo xtask test --musl` has one");
            return Ok(());
        };
        for runtime in runtimes()? {
            let target = diagnosed(&runtime, None)?;
            let pid = target.child.id().to_string();
            for args in [&["stacks", "--json", &pid][..], &["top", "--json", "--duration", "2", &pid]] {
                let mut command = Command::new(&program);
                let output = command.args(args).env("CORPROF_CACHE", env!("CARGO_TARGET_TMPDIR")).output()?;
                ensure!(output.status.success(), "{runtime}: {args:?}: {output:?}");
                serde_json::from_slice::<Value>(&output.stdout).with_context(|| format!("{runtime}: {output:?}"))?;
            }
        }
        Ok(())
    }
}
