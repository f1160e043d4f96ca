//! Attacks by profilers that forbid `unsafe`: the application runs as without them.

mod code;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::Process;
use corprof_tests::{Difference, Outcome, Run, Runtime, ensure_or_longer, patiently, repetitions};

use crate::detach::attach;
use crate::diagnostics::{PATIENCE, Program, command, profiler_named, runtimes};

/// A hundred thousand questions take long on a busy machine.
const LONGEST: Duration = Duration::from_secs(240);

/// Runs `app` under a profiler of the attacks, and expects the same behaviour as without it.
fn unharmed(runtime: &Runtime, profiler: &str, app: &str, args: &[&str]) -> Result<Outcome> {
    let bare = Run::new(runtime, app).args(args).run()?;
    let run = Run::new(runtime, app).args(args).profiler_named("attacks", profiler);
    let outcome = run.timeout(LONGEST).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
    ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
    Ok(outcome)
}

/// The line of the profiler that begins like this.
fn told<'o>(outcome: &'o Outcome, begin: &str) -> Result<&'o str> {
    told_in(&outcome.stderr, begin).with_context(|| outcome.to_string())
}

/// The same, in its standard error.
pub(crate) fn told_in<'o>(stderr: &'o str, begin: &str) -> Result<&'o str> {
    let mut lines = stderr.lines().filter_map(|line| line.strip_prefix("attacks| "));
    lines.find(|line| line.starts_with(begin)).with_context(|| format!("no {begin:?} in {stderr}"))
}

/// The profiler's count under `name`.
pub(crate) fn count(told: &str, name: &str) -> Result<u64> {
    let value = told.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {name} in {told:?}"))?.parse()?)
}

#[test]
fn calls_that_make_their_own_callback_come_to_an_end() -> Result<()> {
    for runtime in &Runtime::all()? {
        for profiler in ["Creates", "Loads", "Provides"] {
            let outcome = unharmed(runtime, profiler, "World", &[])?;
            let told = told(&outcome, "refused after ")?;
            eprintln!("{runtime}, {profiler}: {told}");
        }
    }
    Ok(())
}

#[test]
fn handles_that_are_freed_from_within_each_other_are_all_freed() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "Destroys", "World", &[])?;
        told(&outcome, "destroyed 100000, left 0")?;
    }
    Ok(())
}

#[test]
fn metadata_that_is_kept_is_refused_once_its_module_has_gone() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "Outlives", "Unloads", &["20"])?;
        let told = told(&outcome, "refused=")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "answered")? == 0 && count(told, "refused")? > 0, "{outcome}");
    }
    Ok(())
}

#[test]
fn threads_ask_and_free_handles_while_their_locals_are_taken_down() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "Leaves", "Churn", &["200", "20"])?;
        let told = told(&outcome, "ended=")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "ended")? >= 190, "{outcome}");
        ensure!(told.ends_with("handles=true"), "{outcome}");
    }
    Ok(())
}

/// What `initialize` can start, as words for the profiler.
const STARTED: [&str; 8] = ["detach", "session", "thread", "sampler", "hooks", "provider", "instrumentation", "clone"];

/// Each of them alone, and each with a detach; or all combinations.
fn combinations() -> Vec<String> {
    let is_chosen = |set: &u32| repetitions(set & !1 == 0 || (set & !1).is_power_of_two(), true);
    let words = |set: u32| STARTED.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1).map(|(_, word)| *word);
    (0..1 << STARTED.len()).filter(is_chosen).map(|set| words(set).collect::<Vec<_>>().join(" ")).collect()
}

/// After a failure the runtime deletes the object that answers calls, whatever uses it then.
#[test]
fn whatever_was_started_before_initialize_fails_the_application_runs() -> Result<()> {
    for runtime in &Runtime::all()? {
        for started in combinations() {
            for end in repetitions(&["fails"][..], &["fails", "panics", "succeeds"]) {
                let run = Run::new(runtime, "World").env("ATTACKS_FAILING", format!("{started} {end}"));
                let outcome = run.profiler_named("attacks", "Failing").run()?;
                outcome.exited_with(0).with_context(|| format!("{started} {end}"))?;
                told(&outcome, "started")?;
            }
        }
    }
    Ok(())
}

/// Nothing tells such a profiler any more what is unloaded.
#[test]
fn what_a_profiler_keeps_whose_initialize_has_failed_asks_nothing() -> Result<()> {
    for runtime in Runtime::all()?.iter().filter(|runtime| !runtime.is_windows()) {
        let bare = Run::new(runtime, "Unloads").args(["20"]).run()?;
        for end in ["fails", "panics"] {
            let run = Run::new(runtime, "Unloads").args(["20"]).env("ATTACKS_FAILING", format!("numbers {end}"));
            let outcome = run.profiler_named("attacks", "Failing").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
            ensure!(told(&outcome, "answers").is_err(), "it is answered: {outcome}");
        }
    }
    Ok(())
}

/// The runtime tells managed code of a session, which cannot run in cooperative mode, needs classes and methods that
/// may be being loaded or compiled right now, and must not wait on another thread for a lock of the runtime's that this
/// one has.
#[test]
fn sessions_are_refused_where_managed_code_cannot_run() -> Result<()> {
    for runtime in &Runtime::all()? {
        let bare = Run::new(runtime, "Unloads").args(["6"]).run()?;
        for hooks in ["runtime", "il"] {
            let run = Run::new(runtime, "Unloads").args(["6"]).profiler_named("attacks", "Sessions");
            let outcome = run.env("ATTACKS_HOOKS", hooks).timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
            let told = told(&outcome, "refused=")?;
            eprintln!("{runtime}, hooks: {hooks}: {told}");
            ensure!(count(told, "missing")? == 0 && count(told, "started")? == 0, "{outcome}");
        }
    }
    Ok(())
}

/// The runtime reports the ends of native threads under the lock of its list of threads.
#[test]
fn providers_are_refused_where_a_thread_ends_and_a_session_may_begin() -> Result<()> {
    for runtime in &Runtime::all()? {
        let run = Run::new(runtime, "Foreign").args(["300"]).profiler_named("attacks", "EndsWithProviders");
        let outcome = run.timeout(LONGEST).run()?;
        outcome.exited_with(0)?;
        let told = told(&outcome, "providers: ")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "sessions")? > 0 && count(told, "refused")? > 0, "{outcome}");
        ensure!(count(told, "made")? == 0, "{outcome}");
    }
    Ok(())
}

/// What such a thread takes of the heap is lost, and a later collection crashes.
#[test]
fn classes_are_not_loaded_where_a_thread_ends() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "EndsWithClasses", "Stress", &["1", "8", "whole", "0", "40"])?;
        let told = told(&outcome, "classes: ")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "loaded")? == 0 && count(told, "refused")? > 0, "{outcome}");
    }
    Ok(())
}

/// The runtime follows an address in a signature, reads nested types by recursion, and believes what it reads.
#[test]
fn signatures_that_are_made_up_do_no_harm() -> Result<()> {
    for runtime in &Runtime::all()? {
        for seed in 0..repetitions(3, 100) {
            let run = Run::new(runtime, "Locals").env("ATTACKS_SEED", seed.to_string());
            let outcome = run.profiler_named("attacks", "Blobs").run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == "100 methods are called\n", "{outcome}");
            let told = told(&outcome, "edited=")?;
            let [edited, refused, defined] = ["edited", "refused", "defined"].map(|name| count(told, name));
            ensure!(edited? > 0 && refused? > 0 && defined? > 0, "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn methods_are_rewritten_from_all_sides_and_each_has_an_outcome() -> Result<()> {
    for runtime in &Runtime::all()? {
        for tiered in ["0", "1"] {
            let run = Run::new(runtime, "Rewrites").env("DOTNET_TieredCompilation", tiered);
            let run = run.env("REWRITERS_ROUNDS", repetitions("150", "400"));
            let outcome = run.profiler_named("attacks", "Rewriters").timeout(Duration::from_secs(330)).run()?;
            outcome.exited_with(0)?;
            let expected = format!("{}, 0 wrong\n", ["plain"; 9].join(" "));
            ensure!(outcome.stdout == expected, "the application sees something else: {outcome}");
            let told: Vec<_> = outcome.stderr.lines().filter_map(|line| line.strip_prefix("attacks| ")).collect();
            eprintln!("{runtime}, tiered {tiered}: {told:#?}");
            let of = |kind| told.iter().filter(|line| line.contains(kind)).count();
            ensure!(of("reverted=") == 3 && of("superseded=") == 3 && of("refused=") == 3, "{outcome}");
            ensure!(of("failed=") + of("others=") + of("stopped early") == 0, "{outcome}");
            let seen = told.iter().find(|line| line.starts_with("begun=")).context("no counts")?;
            ensure!(count(seen, "begun")? > 0 && count(seen, "counted")? > 0, "{outcome}");
        }
    }
    Ok(())
}

#[test]
fn edited_bodies_are_refused_once_their_module_has_gone() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "KeepsBodies", "Unloads", &["20"])?;
        let told = told(&outcome, "refused=")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "accepted")? == 0 && count(told, "refused")? > 20, "{outcome}");
    }
    Ok(())
}

/// Why some methods of the program `Misused` are refused: whatever they are passed, or for what they might be passed.
const REFUSED: [(&str, &str); 20] = [
    ("Bad.FreesNumber", "Bad.FreesNumber at IL_0005 works with addresses by `conv.i`"),
    ("Bad.Pokes", "Bad.Pokes at IL_0001 works with addresses by `conv.i`"),
    ("Bad.Native", "the method has no IL"),
    ("Bad.Aborts", "Bad.abort is native"),
    ("Bad.TakesNative", "parameter 0 is `native int`"),
    ("Bad.TakesRef", "parameter 0 is `int32&`"),
    ("Bad.Deep", "Bad.Deepest at IL_0001 works with addresses"),
    ("Bad.Virtual", "calls Thing.Virtual virtually: another method may run"),
    ("Bad.MakesDelegate", "makes a delegate by `ldftn`"),
    ("Bad.Exits", "calls System.Environment.Exit, which is not known to be harmless"),
    ("Bad.Reinterprets", "calls System.Runtime.CompilerServices.Unsafe.As"),
    ("Bad.ForNative", "[UnmanagedCallersOnly]"),
    ("Bad.Generic", "the method or its type is generic"),
    ("OfAny`1.Does", "the method or its type is generic"),
    ("Hidden.Inside", "the edited method may not access the method or its type"),
    ("BadStart.Looks", "Bad.Crash at IL_0001 works with addresses"),
    ("BadStart..cctor", "the method is a class constructor"),
    ("BadFixed.Sets", "Holder.Set at IL_0006 writes to the field Data, which is not private"),
    ("BadMemory.SetsLength", "BadMemory.Reads works with addresses, and may trust a field that the call uses"),
    ("Outer.Instance", "the method is not static"),
];

/// The methods of `Good` in the program `Misused`.
const GOOD: usize = 21;

/// Each method of the program that is accepted as the called one changes nothing, and the others are refused for what
/// they do.
#[test]
fn calls_of_all_methods_everywhere_do_no_harm() -> Result<()> {
    for runtime in &Runtime::all_for_modern("Misused")? {
        let bare = Run::new(runtime, "Misused").run()?;
        bare.exited_with(0)?;
        let mut accepted = BTreeSet::new();
        for seed in 0..repetitions(2, 200) {
            let tiered = if seed % 2 == 0 { "0" } else { "1" };
            let run = Run::new(runtime, "Misused").env("MISUSES_SEED", seed.to_string());
            let run = run.env("DOTNET_TieredCompilation", tiered).profiler_named("attacks", "Misuses");
            let outcome = run.timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "seed {seed}: without: {bare}; with: {outcome}");
            ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
            let told = told(&outcome, "tried=")?;
            eprintln!("{runtime}, seed {seed}: {told}");
            ensure!(count(told, "inserted")? > 100 && count(told, "rejected")? == 0, "{outcome}");
            let lines = || outcome.stderr.lines().filter_map(|line| line.strip_prefix("attacks| "));
            for (method, why) in REFUSED {
                let begin = format!("refused {method}: ");
                let is_told = lines().any(|line| line.strip_prefix(&begin).is_some_and(|line| line.contains(why)));
                ensure!(is_told, "seed {seed}: {method} is not refused because {why}: {outcome}");
            }
            accepted.extend(lines().filter_map(|line| line.strip_prefix("accepted ")).map(str::to_owned));
        }
        ensure!(accepted.iter().all(|method| method.starts_with("Good.")), "{accepted:?}");
        // Few runs do not come upon fitting arguments for each.
        ensure!(accepted.len() >= repetitions(GOOD / 2, GOOD), "{} are accepted: {accepted:?}", accepted.len());
    }
    Ok(())
}

/// An old pointer leads to what was an object once, and a field that is no reference anywhere: the runtime must not be
/// asked for the class of that.
#[test]
fn chains_of_waiting_threads_are_followed_from_any_pointer_by_any_fields() -> Result<()> {
    for runtime in Runtime::all()?.iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()) {
        for _ in 0..repetitions(1, 60) {
            let run = Run::new(runtime, "Fire").args(["unload", repetitions("1", "2"), "3"]);
            let run = run.env("DOTNET_GCgen0size", "20000");
            let outcome = run.profiler_named("attacks", "FollowsChains").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
            let told = told(&outcome, "asked=")?;
            eprintln!("{runtime}: {told}");
            // On .NET 8 none of the program's waiting threads keeps such an object on its stack.
            let least = if runtime.major == 8 { 0 } else { 1 };
            ensure!(count(told, "asked")? > 0 && count(told, "learned")? >= least, "{outcome}");
        }
    }
    Ok(())
}

/// Where hooks may ask the runtime, the first word of each object is its class.
#[test]
fn chains_are_followed_by_any_fields_while_objects_move_and_assemblies_go() -> Result<()> {
    for runtime in &Runtime::all()? {
        for by in ["runtime", "inserted"] {
            for (app, args) in [("World", &[][..]), ("Unloads", &["20"])] {
                let bare = Run::new(runtime, app).args(args).run()?;
                let run = Run::new(runtime, app).args(args).env("DOTNET_GCgen0size", "20000").env("FOLLOWS_BY", by);
                let outcome = run.profiler_named("attacks", "FollowsLinks").timeout(LONGEST).run()?;
                outcome.exited_with(0)?;
                ensure!(outcome.stdout == bare.stdout, "{by}: without: {bare}; with: {outcome}");
                ensure!(!outcome.stderr.contains("panicked"), "{by}: {outcome}");
                let told = told(&outcome, "followed=")?;
                eprintln!("{runtime}, {app}, by {by}: {told}");
                ensure!(count(told, "visited")? > 500 && count(told, "learned")? > 20, "{by}: {outcome}");
                ensure!(count(told, "refused")? == 0, "{by}: {outcome}");
            }
        }
    }
    Ok(())
}

/// See `main.rs`.
mod differs {
    use super::*;

    /// .NET 8 follows the table of a thread's fields while the thread replaces it.
    #[test]
    fn fields_of_threads_are_found_while_they_use_more() -> Result<()> {
        for runtime in &Runtime::all()? {
            for _ in 0..repetitions(1, 20) {
                let outcome = unharmed(runtime, "AsksForThreadStatics", "Slots", &[repetitions("60", "400")])?;
                let told = told(&outcome, "found=")?;
                eprintln!("{runtime}: {told}");
                let is_found = count(told, "found")? > 100;
                ensure!(is_found == runtime.has(Difference::StaticsOfOtherThreads), "{outcome}");
                ensure!(count(told, "refused")? > 100, "{outcome}");
            }
        }
        Ok(())
    }

    /// Hooks in destructors of pthread keys come after the states of their threads have ended.
    #[test]
    fn managed_code_on_threads_that_are_nearly_gone_has_no_hooks() -> Result<()> {
        let profilers = [
            ("corprof_profilers", "Tracer"),
            ("corprof_profilers", "Timer"),
            ("shadow", "Shadow"),
            ("values", "WritesValues"),
            ("hooks", "CountsCalls"),
        ];
        for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.is_windows()) {
            // On arm64 the runtime ends after eight.
            let threads = match (runtime.is_emulated(), runtime.has(Difference::FewThreadsMayGo)) {
                (true, _) => 4,
                (false, true) => 8,
                (false, false) => 50,
            };
            if runtime.has(Difference::NoWayBack) {
                println!("SKIPPED on {runtime}: it ends itself where such a thread comes back");
                continue;
            }
            for (library, name) in profilers {
                let run = Run::new(&runtime, "Farewell").args([threads.to_string()]).env("TRACER_FILTER", "Farewell*");
                let outcome = run.profiler_named(library, name).run()?;
                outcome.exited_with(0)?;
                let farewells = 4 * threads;
                let caught = 4 * threads;
                let expected = format!("bodies={threads} farewells={farewells} caught={caught}\n");
                ensure!(outcome.stdout == expected && !outcome.stderr.contains("panicked"), "{name}: {outcome}");
                if name == "Tracer" {
                    let calls = |of: &str| outcome.stderr.lines().filter(|line| line.contains(of)).count();
                    ensure!(calls("Farewell.Work(") == threads && calls("Farewell.Leave(") == 0, "{outcome}");
                }
            }
        }
        Ok(())
    }
}

mod long {
    use super::*;

    /// Contexts go on the finalizer thread, where corprof finds out what goes with each module. If that takes longer
    /// than to load one, they pile up, and what is found out about each takes longer still.
    #[test]
    fn what_is_unloaded_does_not_pile_up() -> Result<()> {
        let contexts = repetitions(300, 3000).to_string();
        for runtime in Runtime::all()?.into_iter().filter(|runtime| !runtime.is_slow()) {
            let run = || Run::new(&runtime, "Piled").args([&contexts]).timeout(LONGEST);
            let [bare, idle] = [run(), run().profiler_named("attacks", "Idle")].map(|run| run.run());
            let bare = bare?;
            let idle = idle?;
            idle.exited_with(0)?;
            ensure!(idle.stdout == bare.stdout, "the application prints something else: {idle}");
            let [without, with] = [&bare, &idle].map(|outcome| count(&outcome.stderr, "mappings"));
            let without = without?;
            let with = with?;
            eprintln!("{runtime}: {without} mappings without corprof, {with} with it");
            ensure!(with < 2 * without + 500, "{without} mappings without corprof, {with} with it");
        }
        Ok(())
    }

    /// What is under way at the end of a collection: a session, a snapshot of the heap, threads with their questions, a
    /// clone of `Info`.
    #[test]
    fn detaches_at_the_ends_of_collections_do_no_harm() -> Result<()> {
        for runtime in &Runtime::all()? {
            for number in 0..repetitions(4, 50) {
                // On .NET 8 the runtime itself does not survive a dump of the heap while code is made that can be
                // unloaded.
                let (app, args): (_, &[&str]) = if number % 2 == 1 && runtime.major > 8 {
                    ("Fire", &["collect", "2", "3"])
                } else {
                    ("Churn", &["12000", "3600"]) // longer than a detach
                };
                let bare = Run::new(runtime, app).args(args).run()?;
                let run =
                    Run::new(runtime, app).args(args).env("ATTACKS_COLLECTION", (number * 7 % 40 + 1).to_string());
                let outcome = run.profiler_named("attacks", "Departs").timeout(LONGEST).run()?;
                outcome.exited_with(0)?;
                ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
                ensure!(told(&outcome, "leaves: ")? == "leaves: Ok(())", "{outcome}");
                told(&outcome, "detached: true")?;
                ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
            }
        }
        Ok(())
    }

    /// The runtime of .NET 8 follows a wrong address if a method is requested while it is inlined.
    #[test]
    fn methods_are_requested_while_they_are_inlined() -> Result<()> {
        for runtime in &Runtime::all()? {
            for _ in 0..repetitions(3, 20) {
                let outcome = unharmed(runtime, "Recompiles", "Piled", &["100"])?;
                let told = told(&outcome, "asked=")?;
                eprintln!("{runtime}: {told}");
                ensure!(count(told, "asked")? > 1000 && count(told, "requests")? > 100, "{outcome}");
            }
        }
        Ok(())
    }

    /// The application reads the metadata that grows, and perhaps unloads it.
    #[test]
    fn rows_are_added_from_everywhere_at_any_time() -> Result<()> {
        let apps: [(&str, &[&str]); 3] = [("Fire", &["unload", "2", "3"]), ("World", &[]), ("Generics", &[])];
        for runtime in &Runtime::all()? {
            for number in 0..repetitions(3, 30) {
                let (app, args) = apps[number % apps.len()];
                let what = if number % 2 == 0 { "import" } else { "" };
                let bare = Run::new(runtime, app).args(args).run()?;
                let run = Run::new(runtime, app).args(args).env("ATTACKS_EMITS", what);
                let outcome = run.profiler_named("attacks", "Emits").timeout(LONGEST).run()?;
                outcome.exited_with(0)?;
                ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
                let told = told(&outcome, "emitted=")?;
                eprintln!("{runtime}, {app}: {told}");
                ensure!(count(told, "emitted")? > 100, "{outcome}");
            }
        }
        Ok(())
    }

    #[test]
    fn names_fields_and_payloads_of_event_pipe_are_of_any_size() -> Result<()> {
        for runtime in Runtime::all()? {
            let outcome = unharmed(&runtime, "Pipes", "World", &[])?;
            let told = told(&outcome, "answers=")?;
            eprintln!("{runtime}: {told}");
            ensure!(count(told, "delivered")? > 100 && count(told, "errors")? > 10, "{outcome}");
        }
        Ok(())
    }

    #[test]
    fn nonsense_is_an_error() -> Result<()> {
        for runtime in &Runtime::all()? {
            let outcome = unharmed(runtime, "Nonsense", "World", &[])?;
            let told = told(&outcome, "answers=")?;
            eprintln!("{runtime}: {told}");
            ensure!(count(told, "errors")? > 50_000, "{outcome}");
        }
        Ok(())
    }
}

/// The threads of a profiler never run managed code, so the runtime's searches for code take no lock there.
#[test]
fn threads_of_the_profiler_search_for_code_while_it_is_removed() -> Result<()> {
    let rounds = repetitions(30, 400).to_string();
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "Searches", "Unloads", &[&rounds])?;
        let told = told(&outcome, "searched: ")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "answered")? > count(told, "refused")?, "{outcome}");
    }
    Ok(())
}

/// Each frame of a method has room for all of its local variables.
#[test]
fn local_variables_fill_no_stack() -> Result<()> {
    // Some are left out, as nothing names them, and the others are refused.
    let many = [("numbers", "1024", 0), ("objects", "60000", 5), ("structs", "1000", 0), ("probes", "10", 0)];
    for runtime in &Runtime::all()? {
        for (kind, most, refused) in many {
            let args = ["4", "400", "10"];
            let run = Run::new(runtime, "Deep").args(args).env("ATTACKS_BLOATS", kind).env("ATTACKS_MOST", most);
            let outcome = run.profiler_named("attacks", "Bloats").timeout(LONGEST).run()?;
            outcome.exited_with(0).with_context(|| format!("{most} {kind}"))?;
            ensure!(outcome.stdout == "reached 4\n", "{most} {kind}: {outcome}");
            let told = told(&outcome, "edited=")?;
            ensure!(told == format!("edited={} refused={refused}", 5 - refused), "{most} {kind}: {outcome}");
        }
    }
    Ok(())
}

/// The runtime follows type arguments by recursion when it loads a class.
#[test]
fn types_that_nest_too_deep_are_not_loaded() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "NestsTypes", "World", &[])?;
        ensure!(told(&outcome, "structs=")? == "structs=127 classes=127", "{outcome}");
    }
    Ok(())
}

/// The stacks are deeper than a sampler keeps, so each round cuts them.
#[test]
fn stacks_that_are_cut_take_no_more_memory_from_round_to_round() -> Result<()> {
    for runtime in Runtime::all()?.iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()) {
        for _ in 0..repetitions(1, 20) {
            unharmed(runtime, "FollowsChains", "Edge", &[repetitions("10", "40")])?;
        }
    }
    Ok(())
}

/// An application may use as much of a stack as the runtime advises, and compile, throw and allocate there.
#[test]
fn profilers_find_room_at_the_ends_of_stacks() -> Result<()> {
    let profilers = [
        ("attacks", "FollowsLinks"),
        ("corprof_profilers", "Tracer"),
        ("corprof_profilers", "Exceptions"),
        ("values", "WritesValues"),
    ];
    let app = |runtime| Run::new(runtime, "Edge").args([repetitions("1", "4")]).timeout(LONGEST);
    for runtime in Runtime::all()?.iter().filter(|runtime| !runtime.is_slow()) {
        let bare = app(runtime).run()?;
        bare.exited_with(0)?;
        for (library, name) in profilers {
            let outcome = app(runtime).env("TRACER_FILTER", "Edge*").profiler_named(library, name).run()?;
            outcome.exited_with(0).with_context(|| name.to_owned())?;
            ensure!(outcome.stdout == bare.stdout && !outcome.stderr.contains("panicked"), "{name}: {outcome}");
        }
    }
    Ok(())
}

/// The profilers of a library share its memory, but each hears only of what goes during its own session.
#[test]
fn what_is_kept_from_one_attach_to_the_next_is_refused_once_its_module_has_gone() -> Result<()> {
    for runtime in &runtimes()? {
        for _ in 0..repetitions(1, 60) {
            let (clsid, library) = profiler_named(runtime, "attacks", "KeepsIds")?;
            let mut program = Program::ready(command(runtime)?)?;
            let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
            attach(&client, clsid, &library, b"keeps")?;
            for command in ["load 4", "throw 1", "unload", "collect 2"] {
                program.tell(command)?;
            }
            attach(&client, clsid, &library, b"asks")?;
            program.tell("throw 1")?;
            let stderr = program.end()?;
            ensure!(!stderr.contains("panicked"), "{runtime}: {stderr}");
            let told = told_in(&stderr, "answered=")?;
            eprintln!("{runtime}: {told}");
            ensure!(count(told, "answered")? > 100 && count(told, "unexpected")? == 0, "{runtime}: {stderr}");
            // Two calls are made about each module.
            for (kind, least) in [("assemblies", 4), ("modules", 8), ("classes", 50), ("functions", 50)] {
                ensure!(count(told, kind)? >= least, "{runtime}: {kind}: {stderr}");
            }
            let bodies = told_in(&stderr, "bodies=")?;
            ensure!(count(bodies, "bodies")? > 20 && count(bodies, "taken")? == 0, "{runtime}: {stderr}");
            ensure!(told_in(&stderr, "links: Ok(")? == "links: Ok(Unknown)", "{runtime}: {stderr}");
            told_in(&stderr, "links: Err(Error { call: \"Links::follow\", code: COR_E_OBJECTDISPOSED")?;
        }
    }
    Ok(())
}

#[test]
fn identifiers_of_a_profiler_beside_are_refused_once_their_module_has_gone() -> Result<()> {
    for runtime in &runtimes()? {
        for _ in 0..repetitions(1, 60) {
            let (clsid, library) = profiler_named(runtime, "attacks", "AsksBeside")?;
            let beside = format!("{}={{{clsid}}};", library.display());
            let run = Run::new(runtime, "Unloads").args(["6"]).env("CORECLR_ENABLE_NOTIFICATION_PROFILERS", "1");
            let run = run.env("CORECLR_NOTIFICATION_PROFILERS", beside).profiler_named("attacks", "KeepsIds");
            let outcome = run.timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
            let told = told(&outcome, "answered=")?;
            eprintln!("{runtime}: {told}");
            ensure!(count(told, "answered")? > 100 && count(told, "unexpected")? == 0, "{outcome}");
            ensure!(count(told, "classes")? > 50 && count(told, "modules")? > 5, "{outcome}");
        }
    }
    Ok(())
}

/// What a profiler does, and where it leaves in the middle.
const WATCHING: [&str; 10] = [
    "signals walks threads in-round in=40",
    "suspended locks chains threads in-destroyed in=20",
    "suspended chains at-class in=5 after=50000",
    "signals statics threads at-static in=60 after=50000 twice",
    "snapshots threads at-block in=3 after=50000",
    "suspended cpu locks walks at-frame in=100 twice",
    "threads walks at-thread in=50 twice",
    "signals locks collects in-gc in=3 after=50000",
    "suspended locks at-filter in=50 after=50000",
    "signals snapshots collects walks in-created in=30",
];

#[test]
fn threads_come_and_go_while_profilers_come_and_go() -> Result<()> {
    for runtime in &runtimes()? {
        let (clsid, library) = profiler_named(runtime, "attacks", "Watches")?;
        let mut program = Program::ready(Run::new(runtime, "Fleeting").command()?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        for words in WATCHING.iter().cycle().take(repetitions(5, 100)) {
            attach(&client, clsid, &library, words.as_bytes()).with_context(|| format!("{runtime}: {words}"))?;
        }
        program.tell("collect")?;
        let stderr = program.end()?;
        ensure!(!stderr.contains("panicked"), "{runtime}: {stderr}");
        let left = stderr.matches("leaves: Ok(())").count();
        ensure!(left >= repetitions(4, 99), "{runtime}: {left} have left: {stderr}");
    }
    Ok(())
}

/// The runtime detaches a thread of the system's when other data of the thread have gone, and makes callbacks
/// meanwhile.
#[test]
fn threads_that_end_do_not_search_for_code() -> Result<()> {
    let threads = repetitions(1000, 20_000).to_string();
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "Farewells", "Foreign", &[&threads])?;
        let told = told(&outcome, "farewells: ")?;
        eprintln!("{runtime}: {told}");
        ensure!(count(told, "late")? > 100, "{outcome}");
    }
    Ok(())
}

/// The code of a loop that runs goes on in code that is compiled later, at the place of the body where it is; so does
/// that of a loop whose body the compiler has read.
#[test]
fn a_body_that_runs_is_not_replaced() -> Result<()> {
    for runtime in &Runtime::all()? {
        let outcome = unharmed(runtime, "LateEdits", "EditedLate", &[])?;
        let told =
            |when: &str| outcome.stderr.lines().filter(|line| line.starts_with(&format!("late| {when}"))).count();
        for when in ["being compiled", "running"] {
            ensure!(told(&format!("{when}: refused: ")) == 1, "{runtime}: {outcome}");
            ensure!(told(&format!("{when}, handed over: refused")) == 1, "{runtime}: {outcome}");
        }
        let again = told("compiled again: refused: ");
        ensure!(again > 0 && told("compiled again, handed over: refused") == again, "{runtime}: {outcome}");
        ensure!(!outcome.stderr.contains("true") && !outcome.stderr.contains("over: set"), "{runtime}: {outcome}");
    }
    Ok(())
}

/// The compiler may have read the body if nobody hears of compilations, or nobody did when this one began.
#[test]
fn a_body_that_may_be_being_compiled_is_not_replaced() -> Result<()> {
    for runtime in &Runtime::all()? {
        for when in ["never", "turned on"] {
            let run = Run::new(runtime, "EditedLate").env("ATTACKS_UNHEARD", when);
            let outcome = run.profiler_named("attacks", "UnheardEdits").run()?;
            outcome.exited_with(0).with_context(|| when.to_owned())?;
            ensure!(outcome.stdout == "in the middle\nsum 899997\n", "{when}: {outcome}");
            let refusal = "late| unheard: Err(Error { call: \"SetILFunctionBody\"";
            ensure!(outcome.stderr.contains(refusal), "{when}: {outcome}");
        }
    }
    Ok(())
}

/// What profiler threads do from `initialize` on, each call on a thread of its own. A session leaves threads behind
/// whose finalizers cannot run yet.
const EARLY: [&str; 8] = [
    "collect session",
    "collect-by-session session",
    "snapshot session",
    "collect walk lists",
    "collect mask sample",
    "walk session sample",
    "collect session detach",
    "numbers collect",
];

/// The runtime makes collections before it has loaded its classes.
#[test]
fn calls_from_the_first_moment_on_do_no_harm() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let milliseconds = (50 * times).to_string();
        let bare = Run::new(runtime, "Foreign").args([&*milliseconds]).run()?;
        let mut refused = 0;
        let mut collected = 0;
        let mut found = 0;
        for calls in EARLY {
            for _ in 0..repetitions(2, 50) {
                let run = Run::new(runtime, "Foreign").args([&*milliseconds]).env("ATTACKS_EARLY", calls);
                let outcome = run.profiler_named("attacks", "Early").timeout(LONGEST).run()?;
                outcome.exited_with(0).with_context(|| calls.to_owned())?;
                ensure!(outcome.stdout == bare.stdout, "{calls}: the application prints something else: {outcome}");
                ensure!(!outcome.stderr.contains("panicked"), "{calls}: {outcome}");
                refused += outcome.stderr.matches("collect=HRESULT(0x8013135B)").count();
                collected += outcome.stderr.matches("collect=ok").count();
                found += outcome.stderr.matches("numbers=ok").count();
            }
        }
        eprintln!("{runtime}: {refused} runs with refusals, {collected} with collections");
        ensure_or_longer!(refused > 0 && collected > 0, "{refused} were refused, and {collected} collected");
        ensure_or_longer!(found > 0, "no number led to code");
        Ok(())
    })
}
