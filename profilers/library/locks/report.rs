//! The answer of `locks`: its text, its JSON, and the table of its page.

use std::time::Duration;

use corprof_export::Table;
use serde::Serialize;

use crate::code_frames::SourceStack;
use crate::question::{Answer, Head, Report, milliseconds};

/// The answer.
#[derive(Serialize)]
pub(super) struct LockReport {
    /// Of each, the threads: each waits for a lock that the next one holds, the last for one of the first.
    pub(super) deadlocks: Vec<Vec<StandingWait>>,
    /// Other waits that began before the profiler was there.
    pub(super) began_before: Vec<StandingWait>,
    /// Threads that wait for a lock of which nothing more is known.
    pub(super) unknown: Vec<SourceStack>,
    /// Threads that wait for a `SemaphoreSlim`, by method.
    pub(super) semaphores: Vec<SemaphoreWait>,
    pub(super) waits: usize,
    #[serde(rename = "waited_ms", serialize_with = "milliseconds")]
    pub(super) waited: Duration,
    /// The waits that had not ended.
    pub(super) unfinished_waits: usize,
    pub(super) waiters: Vec<Waiter>,
    pub(super) owners: Vec<Owner>,
    /// Of each pair of methods that waits and owns.
    pub(super) longest: Vec<Longest>,
}

#[derive(Serialize)]
pub(super) struct StandingWait {
    pub(super) waiter: SourceStack,
    pub(super) owner: SourceStack,
    /// The class of the object that is locked.
    pub(super) class: String,
    /// The same for the same lock.
    pub(super) lock: String,
    /// Whether the thread gives up after a time.
    pub(super) has_limit: bool,
    /// Whether the owner has run since its stack was taken.
    pub(super) owner_has_run: bool,
}

/// Threads that wait for a `SemaphoreSlim` in the same method. Nobody owns one, so who could release it is not known.
#[derive(Serialize)]
pub(super) struct SemaphoreWait {
    pub(super) method: String,
    pub(super) threads: usize,
    /// One of them.
    pub(super) waiter: SourceStack,
}

#[derive(Serialize)]
pub(super) struct Waiter {
    pub(super) method: String,
    pub(super) waits: usize,
    #[serde(rename = "total_ms", serialize_with = "milliseconds")]
    pub(super) total: Duration,
    #[serde(rename = "longest_ms", serialize_with = "milliseconds")]
    pub(super) longest: Duration,
}

#[derive(Serialize)]
pub(super) struct Owner {
    pub(super) method: String,
    /// The name of the thread.
    pub(super) name: Option<String>,
    #[serde(rename = "waited_for_ms", serialize_with = "milliseconds")]
    pub(super) waited_for: Duration,
    pub(super) samples: usize,
}

#[derive(Serialize)]
pub(super) struct Longest {
    #[serde(rename = "ms", serialize_with = "milliseconds")]
    pub(super) time: Duration,
    pub(super) at_seconds: f64,
    pub(super) has_ended: bool,
    pub(super) waiter: SourceStack,
    pub(super) owner: Option<SourceStack>,
}

impl LockReport {
    /// The table of the page: who waits and who holds, each with its stack.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new("Who waits for whom", ["ms", "waits", "holds"]);
        let stands = self.deadlocks.iter().flatten().map(|wait| ("in a deadlock", wait));
        let stands = stands.chain(self.began_before.iter().map(|wait| ("began before", wait)));
        for (when, wait) in stands {
            table.row([when.to_owned(), on_a_line(&wait.waiter), on_a_line(&wait.owner)]);
        }
        for waiter in &self.unknown {
            table.row(["began before".to_owned(), on_a_line(waiter), "not known".to_owned()]);
        }
        for SemaphoreWait { threads, waiter, .. } in &self.semaphores {
            let waits = format!("{threads} for a SemaphoreSlim: {}", on_a_line(waiter));
            table.row(["now".to_owned(), waits, "nobody owns it".to_owned()]);
        }
        for Longest { time, has_ended, waiter, owner, .. } in &self.longest {
            let more = if *has_ended { "" } else { "+" };
            let owner = owner.as_ref().map(on_a_line).unwrap_or_default();
            table.row([format!("{}{more}", ms(*time)), on_a_line(waiter), owner]);
        }
        table
    }
}

/// A thread and its stack, the innermost frame first.
fn on_a_line(stack: &SourceStack) -> String {
    let frames: Vec<_> = stack.frames.iter().map(ToString::to_string).collect();
    format!("{}: {}", thread(stack), frames.join(" ← "))
}

impl Report for LockReport {
    fn text(&self, head: &Head, answer: &mut Answer) {
        for waits in &self.deadlocks {
            let is_limited = waits.iter().any(|wait| wait.has_limit);
            let end = if is_limited { ", until a time limit ends" } else { "" };
            say!(answer, "deadlock: {} threads wait for each other{end}", waits.len());
            // Each owner is one of the waiters.
            waits.iter().for_each(|wait| wait.text(answer));
        }
        if !self.began_before.is_empty() || !self.unknown.is_empty() {
            say!(answer, "waits that began before:");
        }
        for (at, wait) in self.began_before.iter().enumerate() {
            wait.text(answer);
            // Several threads that wait for the same lock have one owner.
            let others = self.began_before.get(at + 1..).unwrap_or_default();
            if !others.iter().any(|other| other.lock == wait.lock) {
                describe("owner of the lock:", &wait.owner, answer);
            }
        }
        for waiter in &self.unknown {
            say!(answer, "  {} waits for a lock; which one, and who holds it, is not known", thread(waiter));
            waiter.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
        }
        for SemaphoreWait { method, threads, waiter } in &self.semaphores {
            let wait = if *threads == 1 { "thread waits" } else { "threads wait" };
            say!(answer, "{threads} {wait} for a SemaphoreSlim in {method}, which no thread owns:");
            describe("waiting:", waiter, answer);
        }
        if self.unfinished_waits > 0 {
            let have = if self.unfinished_waits == 1 { "wait has" } else { "waits have" };
            say!(answer, "{} {have} not ended", self.unfinished_waits);
        }
        let seconds = head.seconds;
        let waits = if self.waits == 1 { "wait" } else { "waits" };
        let waited = ms(self.waited);
        say!(answer, "{} {waits} in {seconds:.1} s; threads have waited for {waited} ms in all", self.waits);
        say!(answer, "{:>8} {:>10} {:>10}  waits in", "waits", "total ms", "longest ms");
        for Waiter { method, waits, total, longest } in &self.waiters {
            say!(answer, "{waits:>8} {:>10} {:>10}  {method}", ms(*total), ms(*longest));
        }
        say!(answer, "{:>19} {:>10}  owner of the lock", "waited for it, ms", "samples");
        for Owner { method, name, waited_for, samples } in &self.owners {
            let thread = name.as_ref().map(|name| format!(" on \"{name}\"")).unwrap_or_default();
            say!(answer, "{:>19} {samples:>10}  {method}{thread}", ms(*waited_for));
        }
        for Longest { time, at_seconds, has_ended, waiter, owner } in &self.longest {
            let now = if *has_ended { "" } else { ", and still" };
            say!(answer, "{} ms at {at_seconds:.3} s{now}:", ms(*time));
            describe("waiting:", waiter, answer);
            if let Some(owner) = owner {
                describe("owner of the lock:", owner, answer);
            }
        }
    }
}

impl StandingWait {
    fn text(&self, answer: &mut Answer) {
        let Self { waiter, owner, class, lock, has_limit, owner_has_run } = self;
        let limit = if *has_limit { " for a limited time" } else { "" };
        let object = match &class[..] {
            "System.Threading.Lock" => format!("a Lock ({lock})"),
            class => format!("an object of {class} ({lock})"),
        };
        let [waits, holds] = [waiter, owner].map(thread);
        let since = if *owner_has_run { " (it has run since its stack was taken)" } else { "" };
        say!(answer, "  {waits} waits{limit} for {object}, which {holds} holds{since}");
        waiter.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
    }
}

/// As `thread 4711 "worker"`.
fn thread(stack: &SourceStack) -> String {
    let name = stack.name.as_ref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
    format!("thread {}{name}", stack.thread.unwrap_or_default())
}

fn describe(title: &str, stack: &SourceStack, answer: &mut Answer) {
    say!(answer, "  {title} {}", thread(stack));
    stack.frames.iter().for_each(|frame| say!(answer, "    {frame}"));
}

fn ms(time: Duration) -> String {
    format!("{:.1}", 1000.0 * time.as_secs_f64())
}
