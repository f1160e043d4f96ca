//! The text form of stacks: equal threads together, the application's own methods marked, what the framework puts
//! around them in one line.

use std::collections::HashMap;
use std::io::{self, Write};

use super::{Frame, Thread};

/// Before a method of the application.
const OWN: &str = "  > ";
/// Before any other line of a stack.
const OTHER: &str = "    ";
/// The most threads whose numbers are listed for a group.
const LISTED: usize = 12;

/// Beginnings of names of the framework's methods.
const FRAMEWORK: [&str; 4] = ["System.", "Microsoft.", "Internal.", "Interop."];

/// By which methods a thread of the pool gets its work.
const POOL: [&str; 3] = [
    "System.Threading.PortableThreadPool.",
    "System.Threading.ThreadPoolWorkQueue.Dispatch",
    "System.Threading.WindowsThreadPool.",
];

/// By which methods a thread begins.
const START: [&str; 3] = [
    "System.Threading.Thread.StartCallback",
    "System.Threading.Thread.StartHelper.",
    "System.Threading.Thread.<StartCallback>",
];

/// Threads that are equal in state and frames, in the order of the threads.
pub(super) struct Group<'t> {
    pub(super) threads: Vec<&'t Thread>,
    /// The lines of their stack.
    lines: Vec<String>,
    has_own: bool,
}

/// Groups the threads: first those with methods of the application. With `all`, no frame is left out, and no thread is
/// together with others.
pub(super) fn groups<'t>(threads: impl IntoIterator<Item = &'t Thread>, all: bool) -> Vec<Group<'t>> {
    let mut groups: Vec<Group<'t>> = Vec::new();
    let mut places: HashMap<(&'t str, &'t [Frame]), usize> = HashMap::new();
    for thread in threads {
        let key = (thread.state.as_str(), thread.frames.as_slice());
        if let Some(group) = places.get(&key).filter(|_| !all).and_then(|place| groups.get_mut(*place)) {
            group.threads.push(thread);
            continue;
        }
        places.insert(key, groups.len());
        let has_own = thread.frames.iter().any(is_own);
        groups.push(Group { threads: vec![thread], lines: lines(&thread.frames, all), has_own });
    }
    groups.sort_by_key(|group| !group.has_own);
    groups
}

impl Group<'_> {
    /// Writes the threads and their stack.
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Some(first) = self.threads.first() else { return Ok(()) };
        match self.threads.len() {
            1 => writeln!(out, "\nthread {} {}", title(first), first.state)?,
            count => writeln!(out, "\n{count} threads {}: {}", plural(&first.state), list(&self.threads))?,
        }
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// The number and the name of a thread.
pub(super) fn title(thread: &Thread) -> String {
    match &thread.name {
        Some(name) => format!("{} \"{name}\"", thread.id),
        None => thread.id.to_string(),
    }
}

fn plural(state: &str) -> &str {
    match state {
        "waits" => "wait",
        "runs" => "run",
        other => other,
    }
}

fn list(threads: &[&Thread]) -> String {
    let titles: Vec<String> = threads.iter().take(LISTED).map(|thread| title(thread)).collect();
    let rest = threads.len().saturating_sub(LISTED);
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    format!("{}{more}", titles.join(", "))
}

/// The lines of a stack. Without `all`, a method that calls itself has one line, and the outermost frames of the
/// framework another.
pub(super) fn lines(frames: &[Frame], all: bool) -> Vec<String> {
    let (shown, tail) = if all { (frames, None) } else { without_tail(frames) };
    let mut lines = Vec::new();
    let mut rest = shown;
    while let Some(frame) = rest.first() {
        let equal = if all { 1 } else { rest.iter().take_while(|other| *other == frame).count() };
        let times = if equal > 1 { format!("  (× {equal})") } else { String::new() };
        let indent = if is_own(frame) { OWN } else { OTHER };
        lines.push(format!("{indent}{frame}{times}"));
        rest = rest.get(equal..).unwrap_or_default();
    }
    lines.extend(tail.map(|tail| format!("{OTHER}… {tail}")));
    lines
}

/// The frames without the outermost ones of the framework, and what those are.
fn without_tail(frames: &[Frame]) -> (&[Frame], Option<&'static str>) {
    let outermost_own = frames.iter().rposition(is_own);
    let start = match outermost_own {
        Some(own) => own + 1,
        // Of a thread without a method of the application, what it does now is not part of the tail.
        None => frames.iter().rposition(|frame| !is_entry(frame)).map_or(frames.len(), |other| other + 1),
    };
    let (shown, tail) = frames.split_at(start);
    let has = |names: &[&str]| tail.iter().any(|frame| names.iter().any(|name| frame.method.starts_with(name)));
    if has(&POOL) {
        (shown, Some("thread pool worker"))
    } else if has(&START) {
        (shown, Some("thread start"))
    } else {
        (frames, None)
    }
}

/// Whether a thread begins, or gets its work, by this frame.
fn is_entry(frame: &Frame) -> bool {
    frame.method == "[native]" || POOL.iter().chain(&START).any(|name| frame.method.starts_with(name))
}

/// Whether it is a method of the application.
fn is_own(frame: &Frame) -> bool {
    !frame.method.starts_with('[') && !FRAMEWORK.iter().any(|name| frame.method.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(id: u32, state: &str, frames: &[&str]) -> Thread {
        let frames = frames.iter().map(|frame| Frame::named(frame)).collect();
        Thread { id, name: None, state: state.to_owned(), is_cut: false, frames }
    }

    fn text(threads: &[Thread], all: bool) -> String {
        let mut out = Vec::new();
        groups(threads, all).iter().for_each(|group| group.print(&mut out).unwrap());
        String::from_utf8(out).unwrap()
    }

    const WAITS: [&str; 6] = [
        "[native]",
        "System.Threading.Monitor.Enter(object)",
        "App.Orders.Save()",
        "System.Threading.ExecutionContext.RunInternal()",
        "System.Threading.Thread.StartCallback()",
        "[native]",
    ];

    #[test]
    fn equal_threads_are_one_and_those_of_the_application_come_first() {
        let idle = ["System.Threading.WaitHandle.WaitOne()", "System.Threading.Thread.StartCallback()"];
        let threads = [thread(7, "waits", &idle), thread(8, "waits", &WAITS), thread(9, "waits", &WAITS)];
        let expected = "
2 threads wait: 8, 9
    [native]
    System.Threading.Monitor.Enter(object)
  > App.Orders.Save()
    … thread start

thread 7 waits
    System.Threading.WaitHandle.WaitOne()
    … thread start
";
        assert_eq!(text(&threads, false), expected);
        let all = text(&threads, true);
        assert!(
            all.contains("\nthread 9 waits\n")
                && all.contains("    System.Threading.Thread.StartCallback()\n    [native]\n")
        );
    }

    #[test]
    fn threads_that_differ_stay_apart() {
        let threads = [thread(1, "waits", &["A.B()"]), thread(2, "runs", &["A.B()"]), thread(3, "waits", &["A.C()"])];
        assert_eq!(groups(&threads, false).len(), 3);
    }

    #[test]
    fn a_long_list_of_threads_ends_with_their_number() {
        let threads: Vec<Thread> = (1..=15).map(|id| thread(id, "waits", &WAITS)).collect();
        assert!(
            text(&threads, false).starts_with("\n15 threads wait: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, and 3 more\n")
        );
    }

    #[test]
    fn what_is_no_tail_stays() {
        let main = ["App.Main()", "[native]"].map(Frame::named);
        assert_eq!(lines(&main, false), ["  > App.Main()", "    [native]"]);
        let pool = [
            "System.Threading.LowLevelLifoSemaphore.Wait()",
            "System.Threading.PortableThreadPool.WorkerThread.WorkerThreadStart()",
            "System.Threading.Thread.StartCallback()",
        ];
        let pool = pool.map(Frame::named);
        let expected = ["    System.Threading.LowLevelLifoSemaphore.Wait()", "    … thread pool worker"];
        assert_eq!(lines(&pool, false), expected);
    }

    #[test]
    fn a_method_that_calls_itself_has_one_line() {
        let deep = ["A.Down(int)", "A.Down(int)", "A.Down(int)", "A.Main()"].map(Frame::named);
        assert_eq!(lines(&deep, false), ["  > A.Down(int)  (× 3)", "  > A.Main()"]);
        assert_eq!(lines(&deep, true).len(), 4);
    }
}
