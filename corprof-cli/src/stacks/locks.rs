//! Who waits for which lock, and who holds it: deadlocks first, then what else is known.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::groups;
use super::{Stacks, Thread};

/// What the profiler knows of the locks that threads wait for.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Locks {
    pub(super) waits: Vec<Wait>,
    /// Threads that wait for a lock of which nothing more is known.
    pub(super) unknown: Vec<u32>,
    /// Whether waits for monitors can be seen on this runtime and system.
    pub(super) sees_monitors: bool,
    /// Why nothing is known, if that is so.
    pub(super) error: Option<String>,
}

/// A thread waits for a lock that another one holds. Threads are numbers of the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Wait {
    pub(super) waiter: u32,
    pub(super) owner: u32,
    /// Equal for the same lock.
    pub(super) lock: String,
    /// The class of the object that is locked.
    pub(super) class: String,
    /// Whether the thread gives up after a time.
    pub(super) has_limit: bool,
    /// Whether the owner has run since its stack was taken.
    pub(super) owner_has_run: bool,
}

impl Locks {
    /// Reads a line of the profiler's file; none if it is not about locks.
    pub(super) fn read(&mut self, line: &str) -> Option<()> {
        if let Some(rest) = line.strip_prefix("wait ") {
            let mut words = rest.splitn(6, ' ');
            let waiter = words.next()?.parse().ok()?;
            let owner = words.next()?.parse().ok()?;
            let lock = words.next()?.to_owned();
            let has_limit = words.next()? == "limited";
            let owner_has_run = words.next()? == "runs";
            self.waits.push(Wait { waiter, owner, lock, class: words.next()?.to_owned(), has_limit, owner_has_run });
        } else if let Some(thread) = line.strip_prefix("unknown-lock ") {
            self.unknown.push(thread.parse().ok()?);
        } else if let Some(error) = line.strip_prefix("no-locks ") {
            self.error = Some(error.to_owned());
        } else if line == "monitors" {
            self.sees_monitors = true;
        } else {
            return None;
        }
        Some(())
    }
}

/// The threads that wait for each other, with their stacks, and who else waits for whom. Returns the threads whose
/// stacks are printed.
pub(super) fn print(stacks: &Stacks, all_frames: bool, out: &mut impl Write) -> io::Result<BTreeSet<u32>> {
    let mut printed = BTreeSet::new();
    let Some(locks) = &stacks.locks else { return Ok(printed) };
    let threads: BTreeMap<u32, &Thread> = stacks.threads.iter().map(|thread| (thread.id, thread)).collect();
    let title = |id: u32| threads.get(&id).map_or_else(|| id.to_string(), |thread| groups::title(thread));
    let by_waiter: BTreeMap<u32, &Wait> = locks.waits.iter().map(|wait| (wait.waiter, wait)).collect();
    for deadlock in &stacks.deadlocks {
        let cycle: Vec<&Wait> = deadlock.iter().filter_map(|thread| by_waiter.get(thread).copied()).collect();
        let is_limited = cycle.iter().any(|wait| wait.has_limit);
        let end = if is_limited { ", until a time limit ends" } else { "" };
        writeln!(out, "\ndeadlock: {} threads wait for each other{end}", cycle.len())?;
        let holds = cycle.last().into_iter().chain(&cycle);
        for (held, wait) in holds.zip(&cycle) {
            let limit = if wait.has_limit { " for a limited time" } else { "" };
            let owner = title(wait.owner);
            writeln!(
                out,
                "  thread {} holds {}, and waits{limit} for {}, which thread {owner} holds",
                title(wait.waiter),
                of_class(held),
                of_class(wait)
            )?;
        }
        for thread in cycle.iter().filter_map(|wait| threads.get(&wait.waiter)) {
            writeln!(out, "\n  thread {} {}", groups::title(thread), thread.state)?;
            for line in groups::lines(&thread.frames, all_frames) {
                writeln!(out, "  {line}")?;
            }
            printed.insert(thread.id);
        }
    }
    print_chains(locks, &printed, title, out)?;
    Ok(printed)
}

/// Threads that wait for a lock without being part of a cycle.
fn print_chains(
    locks: &Locks,
    in_cycles: &BTreeSet<u32>,
    title: impl Fn(u32) -> String,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut by_lock: BTreeMap<(u32, &str), Vec<&Wait>> = BTreeMap::new();
    for wait in locks.waits.iter().filter(|wait| !in_cycles.contains(&wait.waiter)) {
        by_lock.entry((wait.owner, &wait.lock)).or_default().push(wait);
    }
    let titles = |threads: &[u32]| threads.iter().map(|thread| title(*thread)).collect::<Vec<_>>().join(", ");
    if !by_lock.is_empty() || !locks.unknown.is_empty() {
        writeln!(out)?;
    }
    for ((owner, _), waits) in &by_lock {
        let waiters: Vec<u32> = waits.iter().map(|wait| wait.waiter).collect();
        let Some(class) = waits.first().map(|wait| of_class(wait)) else { continue };
        let has_run = waits.iter().any(|wait| wait.owner_has_run);
        let since = if has_run { " (it has run since its stack was taken)" } else { "" };
        let owner = title(*owner) + " holds" + since;
        match waiters.as_slice() {
            [one] => writeln!(out, "thread {} waits for {class}, which thread {owner}", title(*one))?,
            several => {
                let count = several.len();
                writeln!(out, "{count} threads wait for {class}, which thread {owner}: {}", titles(several))?;
            }
        }
    }
    match locks.unknown.as_slice() {
        [] => {}
        [one] => writeln!(out, "thread {} waits for a lock; which one, and who holds it, is not known", title(*one))?,
        several => {
            let count = several.len();
            writeln!(
                out,
                "{count} threads wait for locks; which ones, and who holds them, is not known: {}",
                titles(several)
            )?;
        }
    }
    Ok(())
}

/// The object of a lock.
fn of_class(wait: &Wait) -> String {
    match wait.class.as_str() {
        "System.Threading.Lock" => format!("a Lock ({})", wait.lock),
        class => format!("an object of {class} ({})", wait.lock),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    fn locks(lines: &str) -> Locks {
        let mut locks = Locks::default();
        for line in lines.lines() {
            locks.read(line).unwrap();
        }
        locks
    }

    #[test]
    fn lines_are_read_or_refused() {
        let read = locks("monitors\nunknown-lock 7\nwait 1 2 0x10 limited stands My.List<int, string>\n");
        let class = "My.List<int, string>".to_owned();
        assert!(read.sees_monitors && read.unknown == [7]);
        assert_eq!(
            read.waits,
            [Wait { waiter: 1, owner: 2, lock: "0x10".to_owned(), class, has_limit: true, owner_has_run: false }]
        );
        assert_eq!(locks("no-locks refused: why\n").error.as_deref(), Some("refused: why"));
        for wrong in ["wait 1 2", "wait x 2 0x1 limited runs A", "nonsense", "unknown-lock x"] {
            assert_eq!(Locks::default().read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_text_names_who_holds_what() {
        let thread = |id: u32| Thread {
            id,
            name: Some(format!("t{id}")),
            state: "waits".to_owned(),
            is_cut: false,
            frames: vec![Frame::named(&format!("App.M{id}()"))],
        };
        let locks = locks(
            "monitors\nwait 1 2 b unlimited stands B\nwait 2 1 a unlimited stands A\nwait 3 1 a unlimited stands A\n\
             wait 4 1 a unlimited stands A\nwait 5 6 l unlimited runs System.Threading.Lock\nunknown-lock 7\n",
        );
        let threads = (1..=7).map(thread).collect();
        let stacks = Stacks { threads, locks: Some(locks), deadlocks: vec![vec![1, 2]], ..Stacks::default() };
        let mut out = Vec::new();
        assert!(print(&stacks, false, &mut out).unwrap().into_iter().eq([1, 2]));
        let expected = "
deadlock: 2 threads wait for each other
  thread 1 \"t1\" holds an object of A (a), and waits for an object of B (b), which thread 2 \"t2\" holds
  thread 2 \"t2\" holds an object of B (b), and waits for an object of A (a), which thread 1 \"t1\" holds

  thread 1 \"t1\" waits
    > App.M1()

  thread 2 \"t2\" waits
    > App.M2()

2 threads wait for an object of A (a), which thread 1 \"t1\" holds: 3 \"t3\", 4 \"t4\"
thread 5 \"t5\" waits for a Lock (l), which thread 6 \"t6\" holds (it has run since its stack was taken)
thread 7 \"t7\" waits for a lock; which one, and who holds it, is not known
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
