//! Built-in profilers: their reports on programs with known behaviour.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

/// A line of the logger's: `   3   + class: load Foo`.
struct Line<'t> {
    thread: u32,
    depth: usize,
    kind: char,
    category: &'t str,
    event: &'t str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let (thread, rest) = line.trim_start().split_once(' ')?;
    let text = rest.trim_start();
    let (kind, text) = text.split_once(' ')?;
    let (category, event) = text.split_once(": ")?;
    let depth = (rest.len() - rest.trim_start().len()) / 2;
    Some(Line { thread: thread.parse().ok()?, depth, kind: kind.parse().ok()?, category, event })
}

/// Checks the logger's report: each line has one of its forms, and on each thread everything that begins also ends, in
/// order.
fn balanced(log: &str) -> Result<Vec<Line<'_>>> {
    let mut open: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    let mut lines = Vec::new();
    for text in log.lines() {
        let line = parse(text).with_context(|| format!("not a line of the logger's: {text:?}"))?;
        let inside = open.entry(line.thread).or_default();
        match line.kind {
            '+' => inside.push(line.category),
            '-' => ensure!(inside.pop() == Some(line.category), "ends what did not begin: {text:?}"),
            '*' => {}
            other => bail!("of which kind is {other}? {text:?}"),
        }
        let depth = inside.len() - usize::from(line.kind == '+');
        ensure!(line.depth == depth, "indented by {} instead of {depth}: {text:?}", line.depth);
        lines.push(line);
    }
    // The process may end while the runtime compiles in the background; not while the application's first thread does.
    let last_of = |thread: u32| lines.iter().rev().find(|line: &&Line<'_>| line.thread == thread);
    let is_compiling = |thread: u32| last_of(thread).is_some_and(|last| last.kind == '+' && last.category == "jit");
    open.retain(|&thread, inside| match inside.len() {
        0 => false,
        1 => thread == 0 || !is_compiling(thread),
        _ => true,
    });
    ensure!(open.is_empty(), "begun and not ended, by thread: {open:?}");
    Ok(lines)
}

fn logger(runtime: &Runtime, app: &str, args: &[&str], events: &str) -> Result<Outcome> {
    let run = Run::new(runtime, app).args(args).built_in("logger");
    let run = if events.is_empty() { run } else { run.env("LOGGER_EVENTS", events) };
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

fn events<'t>(lines: &[Line<'t>], category: &str, kind: char) -> Vec<&'t str> {
    lines.iter().filter(|line| line.category == category && line.kind == kind).map(|line| line.event).collect()
}

#[test]
fn logger_reports_every_category_by_name_and_nests_them() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = logger(&runtime, "Sample", &[], "")?;
        ensure!(outcome.stdout.ends_with("closed after 2 shifts\n"), "{outcome}");
        let lines = balanced(&outcome.stderr).with_context(|| runtime.to_string())?;
        for (category, kind, event) in [
            ("appdomain", '-', "create DefaultDomain"),
            ("assembly", '-', "load Sample"),
            ("module", '-', "load Sample.dll"),
            ("module", '*', "Sample.dll is in Sample"),
            ("class", '-', "load Warehouse.Packer"),
            ("class", '-', "load Warehouse.Shelf<Warehouse.Sku>"),
            ("class", '-', "load Warehouse.Shelf<Warehouse.Sku>+Batch"),
            ("jit", '-', "Warehouse.Packer.Pack(Warehouse.Sku, int32)"),
            ("jit", '+', "Warehouse.Shelf<Warehouse.Sku>.Take(Warehouse.Sku, int32)"),
            ("suspension", '+', "for garbage collection"),
            ("suspension", '*', "all threads stopped"),
            ("suspension", '-', "resumed"),
            ("gc", '-', "done"),
            ("exception", '*', "Warehouse.OutOfStockException thrown"),
            ("exception", '+', "filter Warehouse.Packer.Pack(Warehouse.Sku, int32)"),
            ("exception", '*', "catch Warehouse.OutOfStockException in Warehouse.Packer.Pack(Warehouse.Sku, int32)"),
        ] {
            let found = events(&lines, category, kind);
            ensure!(found.contains(&event), "{runtime}: no `{kind} {category}: {event}` among {found:#?}");
        }
        let named =
            events(&lines, "thread", '*').into_iter().filter(|event| event.contains(" is called packer-")).count();
        ensure!(named >= 3, "{runtime}: {named} packers");
        ensure!(events(&lines, "gc", '+').iter().any(|event| event.ends_with(", induced")), "{runtime}");
        ensure!(
            events(&lines, "allocation", '*').iter().any(|event| event.ends_with(" of System.String")),
            "{runtime}"
        );
        ensure!(!events(&lines, "transition", '+').is_empty(), "{runtime}");
        let nameless: Vec<&str> =
            lines.iter().map(|line| line.event).filter(|event| event.contains("<unknown")).collect();
        ensure!(nameless.is_empty(), "{runtime}: {nameless:#?}");
    }
    Ok(())
}

#[test]
fn logger_reports_what_is_inlined() -> Result<()> {
    for runtime in Runtime::all()? {
        // Without tiers each method is optimised at once. With them, whether one is before the program ends is chance.
        let run = Run::new(&runtime, "Sequence").built_in("logger").env("LOGGER_EVENTS", "inlining");
        let outcome = run.env("DOTNET_TieredCompilation", "0").run()?;
        outcome.exited_with(42)?;
        let lines = balanced(&outcome.stderr)?;
        let found = events(&lines, "inlining", '*');
        let expected = "Sequence.Twice(int32) into Sequence.Inlines(int32)";
        ensure!(found.contains(&expected), "{runtime}: no `{expected}` among {found:#?}");
    }
    Ok(())
}

#[test]
fn logger_tells_each_step_of_each_exception() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = logger(&runtime, "Throw", &["5"], "exception")?;
        ensure!(outcome.stdout == "thrown=20 caught=15 filters=10 finallies=15\n", "{outcome}");
        let lines = balanced(&outcome.stderr)?;
        let count = |kind, start: &str| {
            events(&lines, "exception", kind).iter().filter(|event| event.starts_with(start)).count()
        };
        let thrown = events(&lines, "exception", '*').iter().filter(|event| event.ends_with(" thrown")).count();
        let found =
            (thrown, count('*', "catch "), count('*', "end of "), count('+', "filter "), count('+', "finally "));
        // A catch block that rethrows is entered as any other, and the runtime says nothing of its end.
        ensure!(found == (20, 20, 15, 10, 15), "{runtime}: {found:?} in {outcome}");
    }
    Ok(())
}

/// By these .NET 11 calls `Main` and static constructors, and throws; older runtimes have native code for it.
const WAYS_OF_THE_RUNTIME: [&str; 4] = ["CallEntryPoint", "AppContext.Setup", "CallClassConstructor", "RhThrowEx"];

#[test]
fn logger_loses_nothing_of_many_threads_and_collections() -> Result<()> {
    for runtime in Runtime::all()? {
        // Starting a thread takes Wine, and an emulator, some milliseconds.
        let count: usize = if runtime.is_slow() { 1000 } else { repetitions(3000, 10_000) };
        let args = [count.to_string(), (count / 10).to_string()];
        let outcome = logger(&runtime, "Churn", &args.each_ref().map(String::as_str), "")?;
        let sum = count * (count + 1) / 2;
        let expected = format!("threads={count} collections={} checksum={sum}\n", count / 10);
        ensure!(outcome.stdout == expected, "expected {expected:?} of {outcome}");
        let lines = balanced(&outcome.stderr)?;
        let number = |end: &str| events(&lines, "thread", '*').iter().filter(|event| event.ends_with(end)).count();
        let created = number(" created");
        let destroyed = number(" destroyed");
        ensure!(created >= count && destroyed >= count, "{runtime}: {created} created, {destroyed} destroyed");
        let begun = events(&lines, "gc", '+').len();
        let ended = events(&lines, "gc", '-').len();
        ensure!(begun >= count / 10 && begun == ended, "{runtime}: {begun} collections begun, {ended} ended");
    }
    Ok(())
}

#[test]
fn logger_filters_by_category() -> Result<()> {
    for runtime in Runtime::all()? {
        for (wanted, other) in [("jit", "inlining"), ("allocation", "gc"), ("search", "jit")] {
            let outcome = logger(&runtime, "Sample", &[], wanted)?;
            let categories: BTreeSet<&str> = balanced(&outcome.stderr)?.iter().map(|line| line.category).collect();
            ensure!(categories == BTreeSet::from([wanted]), "{runtime}: {wanted}, not {other}: {categories:?}");
        }
        let outcome = Run::new(&runtime, "Hello").built_in("logger").env("LOGGER_EVENTS", "jit,gcc").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.contains("LOGGER_EVENTS=jit,gcc: there is no gcc; there are appdomain,"), "{outcome}");
        // Categories that cannot be reported are named in a message; the others are reported.
        let outcome = Run::new(&runtime, "Hello").built_in("logger").env("LOGGER_EVENTS", "com,jit").run()?;
        outcome.exited_with(0)?;
        let told = outcome.stderr.contains("logger: com is not available: COM interop exists on Windows only\n");
        ensure!(told != runtime.is_windows() && outcome.stderr.contains("jit: Hello.Main("), "{outcome}");
    }
    Ok(())
}

#[test]
fn logger_writes_a_file_for_each_managed_thread() -> Result<()> {
    for runtime in Runtime::all()? {
        let dir = tempfile::tempdir()?;
        let logs = dir.path().join("logs");
        let outcome = Run::new(&runtime, "Sample").built_in("logger").env("LOGGER_DIR", &logs).run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.is_empty(), "{outcome}");
        let mut threads = BTreeSet::new();
        for entry in fs::read_dir(&logs)? {
            let path = entry?.path();
            let text = fs::read_to_string(&path)?;
            let of_file: BTreeSet<u32> = balanced(&text)?.iter().map(|line| line.thread).collect();
            ensure!(of_file.len() == 1, "{}: threads {of_file:?}", path.display());
            ensure!(threads.is_disjoint(&of_file), "two files of thread {of_file:?}");
            threads.extend(of_file);
        }
        ensure!(threads.len() >= 4, "{runtime}: {threads:?}");
    }
    Ok(())
}

/// The lines that loading and compiling the program Generics must produce.
const GENERICS: &[&str] = &[
    "load Kinds.Pair<int32, string>",
    "load Kinds.Pair<string, object>",
    "load Kinds.Pair<Kinds.Point, int64>",
    "load Kinds.Outer<int32>+Inner<string>",
    "load Kinds.Outer<string>+Inner<Kinds.Point>",
    "load Kinds.Outer<uint8>+Plain",
    "Kinds.Methods.Swap<int32>(int32&, int32&)",
    "Kinds.Methods.Swap<System.__Canon>(System.__Canon&, System.__Canon&)",
    "Kinds.Pair<Kinds.Point, int64>.Describe()",
    "Kinds.Outer<uint8>+Plain.Describe()",
    "Kinds.Methods.Shapes(int32[], string[,], Kinds.Point[][], Kinds.Point&, \
     System.Collections.Generic.List<Kinds.Pair<int32, string>>, System.Nullable<int32>)",
];

/// See `main.rs`.
mod differs {
    use super::*;

    #[test]
    fn logger_spells_generics_with_their_arguments() -> Result<()> {
        for runtime in Runtime::all()? {
            let outcome = logger(&runtime, "Generics", &[], "class,jit")?;
            let lines = balanced(&outcome.stderr)?;
            let found: BTreeSet<&str> = lines.iter().map(|line| line.event).collect();
            for event in GENERICS.iter().chain(shared_generics(&runtime)) {
                ensure!(found.contains(event), "{runtime}: no {event:?} in {found:#?}");
            }
        }
        Ok(())
    }

    /// The name of a method whose code all instantiations over reference types share.
    fn shared_generics(runtime: &Runtime) -> &'static [&'static str] {
        if runtime.has(Difference::ClassOfSharedCode) {
            &["Kinds.Pair<System.__Canon, System.__Canon>.Describe()", "Kinds.Pair<int32, System.__Canon>.Describe()"]
        } else {
            &["Kinds.Pair<TFirst, TSecond>.Describe()"]
        }
    }

    #[test]
    fn logger_leaves_the_transitions_of_the_runtime_itself_out() -> Result<()> {
        for runtime in Runtime::all()? {
            let outcome = logger(&runtime, "Throw", &["5"], "transition,exception")?;
            let lines = balanced(&outcome.stderr)?;
            ensure!(!events(&lines, "transition", '+').is_empty(), "{runtime}: {outcome}");
            let own = |line: &&Line<'_>| WAYS_OF_THE_RUNTIME.iter().any(|way| line.event.contains(way));
            let own: Vec<_> = lines.iter().filter(own).map(|line| line.event).collect();
            ensure!(own.is_empty(), "{runtime}: {own:#?}");
        }
        Ok(())
    }

    #[test]
    fn sampled_stacks_begin_with_the_applications_main() -> Result<()> {
        patiently(Runtime::all()?, |runtime, times| {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("shares.folded");
            let milliseconds = (1000 * times).to_string();
            let run = Run::new(runtime, "Shares").args([milliseconds]).built_in("sampler").env("SAMPLER_OUT", &file);
            run.run()?.exited_with(0)?;
            let folded = std::fs::read_to_string(&file)?;
            // On .NET 10 the one is a method like any other, which a sample may find.
            let is_way = |way: &&str| *way != "AppContext.Setup" || runtime.has(Difference::ManagedEntries);
            let found = WAYS_OF_THE_RUNTIME.into_iter().filter(is_way).find(|way| folded.contains(way));
            ensure!(found.is_none(), "{runtime}: {found:?} in {folded}");
            ensure_or_longer!(folded.contains("Shares.Burn(int)"), "{runtime}: {folded}");
            Ok(())
        })
    }
}
