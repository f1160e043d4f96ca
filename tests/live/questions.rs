//! The built-in profilers that answer one question each by the runtime's own events: `pauses`, `locks`, `starvation`,
//! and `allocations` by stack. Each finds the fault that a program was written to show.

use std::fs;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, ensure_or_longer, patiently};

/// The lines of a profiler's report, without its name.
fn lines<'o>(outcome: &'o Outcome, name: &str) -> Vec<&'o str> {
    outcome.stderr.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
}

/// The rows of the table that ends with this heading: their numbers, and the rest.
fn table<'l>(lines: &[&'l str], heading: &str) -> Vec<(Vec<f64>, &'l str)> {
    let rows = lines.iter().skip_while(|line| !line.ends_with(&format!("  {heading}"))).skip(1);
    rows.map_while(|line| {
        let mut numbers = Vec::new();
        let mut rest = line.trim_start();
        while let Some((word, after)) = rest.split_once(' ')
            && let Ok(number) = word.parse()
        {
            numbers.push(number);
            rest = after.trim_start();
        }
        (!numbers.is_empty()).then_some((numbers, rest))
    })
    .collect()
}

/// The lines of a stack: those after this one that are indented further.
fn below<'l>(lines: &[&'l str], title: &str) -> Vec<&'l str> {
    let from = lines.iter().position(|line| line.trim_start().starts_with(title));
    let frames = lines.iter().skip(from.map_or(usize::MAX, |from| from + 1));
    frames.map_while(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn pauses_names_the_thread_that_a_collection_waited_for() -> Result<()> {
    patiently(Runtime::all_for_modern("Pauses")?, |runtime, times| {
        let run = Run::new(runtime, "Pauses").args([(20 * times).to_string()]).built_in("pauses");
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let lines = lines(&outcome, "pauses");
        let reasons = table(&lines, "reason");
        let asked = reasons.iter().filter(|(_, reason)| reason.ends_with(", blocking, asked for"));
        let count: f64 = asked.map(|(numbers, _)| numbers[0]).sum();
        ensure!(count >= 20.0, "{count} collections that were asked for: {outcome}");
        let stack = below(&lines, "caused by: thread ");
        ensure_or_longer!(stack.iter().any(|frame| frame.starts_with("Cache.Trims(")), "{outcome}");
        if runtime.is_windows() {
            // The threads that delay a pause are found by signals.
            let is_told = lines.iter().any(|line| line.contains("the threads that delay pauses are not shown"));
            ensure!(is_told, "{outcome}");
            return Ok(());
        }
        let delays = table(&lines, "delayed by");
        ensure_or_longer!(delays.first().is_some_and(|(_, name)| name.starts_with("Slow.Delays(")), "{outcome}");
        let stack = below(&lines, "delayed by: thread ");
        ensure_or_longer!(stack.iter().any(|frame| frame.starts_with("Slow.Delays(")), "{outcome}");
        ensure!(lines.iter().any(|line| line.contains(" \"slow\"")), "the thread has no name: {outcome}");
        Ok(())
    })
}

fn locks(runtime: &Runtime, times: u64, kind: &str) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("locks.folded");
    let rounds = 20 * times;
    let run = Run::new(runtime, "Locks").args([&rounds.to_string(), "50", kind]).built_in("locks");
    let outcome = run.env("LOCKS_OUT", &file).run()?;
    outcome.exited_with(0)?;
    let lines = lines(&outcome, "locks");
    let waits = table(&lines, "waits in");
    let wants = waits.iter().find(|(_, name)| name.starts_with("Program.Wants("));
    ensure_or_longer!(wants.is_some_and(|(numbers, _)| numbers[0] >= rounds as f64), "{outcome}");
    let owners = table(&lines, "owner of the lock");
    let (_, owner) = owners.first().with_context(|| format!("no owner: {outcome}"))?;
    ensure_or_longer!(owner.starts_with("Program.Holds(") && owner.ends_with(" on \"keeper\""), "{owner}: {outcome}");
    let stack = below(&lines, "waiting: thread ");
    ensure_or_longer!(stack.iter().any(|frame| frame.starts_with("Program.Wants(")), "{outcome}");
    let stack = below(&lines, "owner of the lock: thread ");
    ensure_or_longer!(stack.iter().any(|frame| frame.starts_with("Program.Holds(")), "{outcome}");
    let folded = fs::read_to_string(&file)?;
    ensure_or_longer!(
        folded.lines().any(|stack| stack.contains("Program.Keeps") && stack.contains("Program.Holds")),
        "{folded}"
    );
    Ok(())
}

#[test]
fn locks_names_the_thread_that_holds_the_lock() -> Result<()> {
    patiently(Runtime::all_for_modern("Locks")?, |runtime, times| locks(runtime, times, "monitor"))
}

#[test]
fn locks_names_the_owner_of_a_lock_object() -> Result<()> {
    let runtimes = Runtime::all_for_modern("Locks")?
        .into_iter()
        .filter(|runtime| runtime.has(Difference::EventsOfWaits))
        .collect();
    patiently(runtimes, |runtime, times| locks(runtime, times, "lock"))
}

#[test]
fn starvation_names_the_code_that_blocks_the_pool() -> Result<()> {
    patiently(Runtime::all_for_modern("Starvation")?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("starvation.folded");
        let tasks = 16 * times;
        let run = Run::new(runtime, "Starvation").args([tasks.to_string(), "100".to_owned()]).built_in("starvation");
        let outcome = run.env("STARVATION_OUT", &file).run()?;
        outcome.exited_with(0)?;
        let lines = lines(&outcome, "starvation");
        ensure_or_longer!(lines.iter().any(|line| line.contains(" reports of the runtime; ")), "{outcome}");
        let rows = table(&lines, "blocks threads of the pool");
        let is_blocker =
            |name: &str| name.starts_with("Program.Blocks(") && name.contains(" calls System.Threading.Tasks.Task");
        ensure_or_longer!(rows.iter().any(|(_, name)| is_blocker(name)), "{outcome}");
        let stack = below(&lines, "a stack of Program.Blocks(");
        ensure_or_longer!(stack.iter().any(|frame| frame.starts_with("Program.Serves(")), "{outcome}");
        let folded = fs::read_to_string(&file)?;
        ensure_or_longer!(folded.contains("Program.Blocks"), "{folded}");
        Ok(())
    })
}

#[test]
fn allocations_are_sampled_by_class_and_stack() -> Result<()> {
    patiently(Runtime::all_for_modern("Allocations")?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("allocations.folded");
        let megabytes = 200 * times;
        let run = Run::new(runtime, "Allocations").args([megabytes.to_string()]).built_in("allocations");
        let run = run.env("ALLOCATIONS_BY", "stack").env("ALLOCATIONS_OUT", &file);
        let outcome = run.run()?;
        outcome.exited_with(0)?;
        let report: Vec<&str> = outcome.stderr.lines().collect();
        let rows = table(&report, "class, and the method that allocates it");
        for (row, share) in [
            ("Order in Program.Parses(", 25.0),
            ("byte[] in Program.Reads(", 25.0),
            ("byte[] in Program.Copies(", 50.0),
        ] {
            let found = rows.iter().find(|(_, name)| name.starts_with(row));
            let (numbers, _) = found.with_context(|| format!("no {row}: {outcome}"))?;
            // Two thousand samples: five times the standard error of a share is less than six points.
            ensure_or_longer!((numbers[1] - share).abs() < 6.0, "{row}: {} %, not {share}: {outcome}", numbers[1]);
        }
        let bytes: f64 = rows.iter().map(|(numbers, _)| numbers[0]).sum();
        let expected = (megabytes * 256 * 4 * 1024) as f64;
        ensure_or_longer!((0.85..1.15).contains(&(bytes / expected)), "{bytes} bytes, not {expected}: {outcome}");
        let folded = fs::read_to_string(&file)?;
        ensure!(folded.contains(";Program.Reads") && folded.contains(";new byte[] "), "{folded}");
        Ok(())
    })
}

#[test]
fn a_file_of_allocations_needs_stacks() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Hello").built_in("allocations").env("ALLOCATIONS_OUT", "x.html").run()?;
        ensure!(outcome.stderr.contains("only stacks have a file: set ALLOCATIONS_BY=stack"), "{outcome}");
    }
    Ok(())
}
