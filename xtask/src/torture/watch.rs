//! Runs a program to its end; if it hangs, collects the stacks of its threads before killing it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use corprof_launch::exit;
use corprof_launch::running::Running;

use crate::process::{find_on_path, shown};

/// How long the debugger may take for the stacks.
const DUMP: Duration = Duration::from_secs(60);

/// The result of a run.
#[derive(Debug)]
pub(super) struct Run {
    /// None if it did not end and was killed.
    pub(super) status: Option<ExitStatus>,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) duration: Duration,
    /// The stacks of the threads of a program that did not end.
    pub(super) threads: Option<String>,
}

impl Run {
    /// Whether no code of the program was run. On a busy machine Wine ends this way now and then, once in a thousand starts or
    /// less; the runtime takes longer to start, and prints the reason if it fails.
    pub(super) fn has_not_begun(&self) -> bool {
        let is_silent = self.stdout.is_empty() && self.stderr.is_empty();
        is_silent && self.status.map(exit::code) == Some(1) && self.duration < Duration::from_millis(200)
    }
}

/// Runs `command`, with its output in files in `folder`, for `limit` at most.
pub(super) fn run(command: &mut Command, folder: &Path, limit: Duration) -> Result<Run> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let [out, err] = ["stdout.txt", "stderr.txt"].map(|name| folder.join(name));
    let file = |path: &Path| File::create(path).with_context(|| format!("cannot make {}", path.display()));
    command.stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
    let start = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot start `{}`", shown(command)))?;
    let mut running = Running::new(child).context("cannot watch the program")?;
    let status = running.wait_for(limit).context("cannot wait for the program")?;
    let duration = start.elapsed();
    let threads = status.is_none().then(|| where_threads_stand(running.id()));
    if status.is_none() {
        running.kill().context("cannot kill the program")?;
    }
    let text = |path: &Path| {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        // Windows ends lines its own way.
        anyhow::Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    };
    Ok(Run { status, stdout: text(&out)?, stderr: text(&err)?, duration, threads })
}

/// The stacks of all threads, by a debugger if there is one, otherwise from the system.
fn where_threads_stand(process: u32) -> String {
    let by_debugger = debugger(process).and_then(|mut command| {
        // A file and not a pipe: a killed debugger then leaves no reader waiting.
        let mut file = tempfile::NamedTempFile::new().ok()?;
        let output = file.as_file_mut().try_clone().ok()?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().ok()?;
        let mut running = Running::new(child).ok()?;
        if running.wait_for(DUMP).ok()?.is_none() {
            running.kill().ok()?;
        }
        let text = fs::read(file.path()).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned()).filter(|text| text.contains("#0"))
    });
    by_debugger.unwrap_or_else(|| by_proc(process))
}

fn debugger(process: u32) -> Option<Command> {
    let id = process.to_string();
    if let Some(gdb) = find_on_path("gdb") {
        let mut command = Command::new(gdb);
        command.args(["-p", &id, "-batch", "-ex", "set pagination off", "-ex", "thread apply all backtrace 40"]);
        return Some(command);
    }
    let mut command = Command::new(find_on_path("eu-stack")?);
    command.args(["-p", &id]);
    Some(command)
}

/// A debugger's stacks, one a line, each once: the number of threads with it, and their innermost frames.
pub(super) fn in_short(threads: &str) -> String {
    const FRAMES: usize = 16;
    let mut stacks = BTreeMap::<String, usize>::new();
    for thread in threads.split("\nThread ") {
        let frames = thread.lines().filter_map(|line| {
            let (_, frame) = line.strip_prefix('#')?.split_once(' ')?;
            let frame = frame.trim_start().split_once(" in ").map_or(frame, |(_, function)| function);
            frame.trim_start().split([' ', '(']).next()
        });
        let stack = frames.take(FRAMES).collect::<Vec<_>>().join(" < ");
        if !stack.is_empty() {
            *stacks.entry(stack).or_default() += 1;
        }
    }
    let mut stacks: Vec<_> = stacks.into_iter().collect();
    stacks.sort_by_key(|(_, count)| *count);
    stacks.iter().fold(String::new(), |text, (stack, count)| format!("{text}{count} x {stack}\n"))
}

fn by_proc(process: u32) -> String {
    let mut text = String::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for task in tasks {
        _ = writeln!(text, "thread {}", task.file_name().to_string_lossy());
        for file in ["comm", "wchan", "stack", "status"] {
            let told = fs::read_to_string(task.path().join(file)).unwrap_or_default();
            let told =
                told.lines().filter(|line| file != "status" || line.starts_with("State") || line.contains("ctxt"));
            told.for_each(|line| _ = writeln!(text, "  {file}: {line}"));
        }
    }
    text
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    #![allow(clippy::unwrap_used, reason = "that is how a test fails")]

    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        let folder = tempfile::tempdir().unwrap();
        run(Command::new("sh").args(["-c", script]), folder.path(), limit).unwrap()
    }

    #[test]
    fn a_program_that_ends_is_told_of() {
        let run = shell("echo out; echo err >&2; exit 3", Duration::from_secs(30));
        assert_eq!(run.status.unwrap().code(), Some(3));
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("out\n", "err\n"));
        assert!(run.threads.is_none());
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_its_threads_are_listed() {
        let run = shell("echo begun; exec sleep 1000", Duration::from_millis(300));
        assert!(run.status.is_none());
        assert_eq!(run.stdout, "begun\n");
        assert!(!run.threads.unwrap().is_empty());
        assert!(run.duration < Duration::from_secs(100));
    }

    #[test]
    fn stacks_are_told_once_with_the_rarest_first() {
        let thread = |frames: &str| format!("\nThread 2 (Thread 0x7f (LWP 7) \"a\"):\n{frames}");
        let waits = thread("#0  __wait (a=1) at x.c:5\n#1  0x00007f in Lock::Enter() () from /lib/a.so\n");
        let works = thread("#0  0x01 in Work ()\n");
        let text = in_short(&[waits.as_str(), &works, &waits].concat());
        assert_eq!(text, "1 x Work\n2 x __wait < Lock::Enter\n");
    }
}
