//! Where the threads of a process stand, for a message about one that hangs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use corprof_launch::running::Running;

use crate::process::find_on_path;

/// [`of`], in the short form of [`in_short`] where a debugger has shown them.
#[must_use]
pub fn of_in_short(process: u32, limit: Duration) -> String {
    let stacks = of(process, limit);
    let short = in_short(&stacks);
    if short.is_empty() { stacks } else { short }
}

/// The stacks of all threads of a process, by a debugger if there is one that answers within `limit`, otherwise from
/// the system.
#[must_use]
pub fn of(process: u32, limit: Duration) -> String {
    let by_debugger = debugger(process).and_then(|mut command| {
        // A file and not a pipe: a killed debugger then leaves no reader waiting.
        let mut file = tempfile::NamedTempFile::new().ok()?;
        let output = file.as_file_mut().try_clone().ok()?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn().ok()?;
        let mut running = Running::new(child).ok()?;
        if running.wait_for(limit).ok()?.is_none() {
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
#[must_use]
pub fn in_short(threads: &str) -> String {
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
mod tests {
    use super::*;

    #[test]
    fn stacks_are_told_once_with_the_rarest_first() {
        let thread = |frames: &str| format!("\nThread 2 (Thread 0x7f (LWP 7) \"a\"):\n{frames}");
        let waits = thread("#0  __wait (a=1) at x.c:5\n#1  0x00007f in Lock::Enter() () from /lib/a.so\n");
        let works = thread("#0  0x01 in Work ()\n");
        let text = in_short(&[waits.as_str(), &works, &waits].concat());
        assert_eq!(text, "1 x Work\n2 x __wait < Lock::Enter\n");
    }
}
