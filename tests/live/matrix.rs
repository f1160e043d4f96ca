//! The typing, proven against the runtime: every call from every place whose context offers it is let in; calls past
//! the contexts, from places that may not make them, are refused as the contract table says.
//!
//! The calls and their places are in `tests/profilers/matrix/`; `tests/matrix_rows.rs` checks that none is missing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use corprof_gen::contracts::{Contracts, Entry, InfoRow, SyncInfo, Wrapper};
use corprof_tests::{Difference, Outcome, Run, Runtime};

use xtask::stress::is_event_pipe_refused;

use crate::contract;

const MANAGED_THREAD: &str = "a managed thread outside of callbacks";
const FOREIGN_THREAD: &str = "a foreign thread";
const PROFILER_THREADS: [&str; 2] = ["profiler thread", "profiler thread that is marked"];
const NOT_ALLOWED: &str = "CORPROF_E_UNSUPPORTED_CALL_SEQUENCE";
const NOTHING_YET: &str = "nothing to ask about yet";

/// Expected answers other than success, with the reasons; `*` stands for any place.
const OTHER_ANSWERS: &[(&str, &str, &str, &str)] = &[
    ("initialize", "*", NOTHING_YET, "there is nothing yet that an id could name"),
    ("initialize", "GetGenerationBounds", "E_FAIL", "the heap is not there yet"),
    ("initialize", "GetNotifiedExceptionClauseInfo", "CORPROF_E_NOT_MANAGED_THREAD", "no thread is managed yet"),
    ("profiler thread", "GetNotifiedExceptionClauseInfo", "CORPROF_E_NOT_MANAGED_THREAD", "it is none"),
    ("profiler thread", "GetRVAStaticAddress", "CORPROF_E_NOT_MANAGED_THREAD", "it is none"),
    ("*", "GetRVAStaticAddress", "CORPROF_E_DATAINCOMPLETE", "10 never marks the compiler's class as initialized"),
    ("initialize", "EnumerateGCHeapObjects", "CORPROF_E_RUNTIME_UNINITIALIZED", "there is no heap to walk yet"),
    ("*", "ReadInMemorySymbols", "E_INVALIDARG", "the module came from a file, and has no symbols to read"),
    ("*", "EnumNgenModuleMethodsInliningThisMethod", "CORPROF_E_DATAINCOMPLETE", "without precompiled code"),
    ("object_references", "GetObjectGeneration", "CORPROF_E_NOT_GC_OBJECT", "some objects are frozen"),
    ("shutdown", "EventPipeAddProviderToSession", "E_FAIL", "EventPipe is gone already"),
    ("shutdown", "EventPipeStartSession", "E_FAIL", "EventPipe is gone already"),
    ("shutdown", "EventPipeStopSession", "E_FAIL", "EventPipe is gone already"),
    ("*", "DoStackSnapshot", "CORPROF_E_STACKSNAPSHOT_UNSAFE", "there is nothing to walk yet, or not at this moment"),
    ("*", "DoStackSnapshot", "CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX", "an exception is being unwound"),
    // corprof's own refusals, which spare the application a wrong answer or a crash.
    ("*", "GetClassFromTokenAndTypeArgs", "CORPROF_E_NOT_MANAGED_THREAD", "classes are loaded on managed threads only"),
    ("*", "GetFunctionFromTokenAndTypeArgs", "CORPROF_E_NOT_MANAGED_THREAD", "the same"),
    ("thread_destroyed", "GetClassFromTokenAndTypeArgs", NOT_ALLOWED, "the thread has left the heap"),
    ("thread_destroyed", "GetFunctionFromTokenAndTypeArgs", NOT_ALLOWED, "the same"),
    ("handle_created", "GetObjectIDFromHandle", NOT_ALLOWED, "handles are made in any mode of the thread"),
    ("finalizeable_object_queued", "EnumerateObjectReferences", NOT_ALLOWED, "objects are marked"),
    ("finalizeable_object_queued", "GetArrayObjectInfo", NOT_ALLOWED, "objects are marked"),
    ("runtime_thread_resumed", "GetCodeInfo2", NOT_ALLOWED, "a thread that ends, or may end"),
    ("runtime_thread_resumed", "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    ("runtime_thread_resumed", "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
    (MANAGED_THREAD, "GetCodeInfo2", NOT_ALLOWED, "nothing shows that the thread is not ending"),
    (MANAGED_THREAD, "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    (MANAGED_THREAD, "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
];

/// Callbacks that the runtime makes and this program does not see, and why.
const NOT_SEEN: &[(&str, &str)] = &[
    ("AppDomainCreationStarted", "before there is anything to ask about"),
    ("AppDomainCreationFinished", "before there is anything to ask about"),
    ("AppDomainShutdownStarted", "the one domain ends with the process"),
    ("AppDomainShutdownFinished", "the one domain ends with the process"),
    ("COMClassicVTableCreated", "on Windows only"),
    ("InitializeForAttach", "the profiler does not attach"),
    ("ProfilerAttachComplete", "the profiler does not attach"),
    ("ReJITError", "on the thread that asks, which the runtime does not check"),
    ("RuntimeSuspendAborted", "suspensions do not fail here"),
    ("RuntimeThreadSuspended", "nothing may be allocated in it, so nothing can be asked"),
];

/// One answer.
struct Line<'o> {
    place: &'o str,
    level: &'o str,
    method: &'o str,
    answer: &'o str,
}

fn lines(outcome: &Outcome) -> Result<Vec<Line<'_>>> {
    let lines = outcome.stderr.lines().filter_map(|line| line.strip_prefix("matrix|"));
    lines
        .map(|line| match line.split('|').collect::<Vec<_>>()[..] {
            [place, level, method, answer] => Ok(Line { place, level, method, answer }),
            _ => bail!("two threads wrote into one line: {line}"),
        })
        .collect()
}

/// The answers of both runs: with all events, and with those that leave precompiled code in use.
fn runs(runtime: &Runtime) -> Result<[Outcome; 2]> {
    let alone = Run::new(runtime, "Matrix").run()?;
    let run = |run: Run| -> Result<Outcome> {
        // So that all inlinable methods are inlined.
        let outcome = run.profiler("matrix").env("DOTNET_TieredCompilation", "0").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == alone.stdout, "the application prints something else: {outcome}");
        ensure!(outcome.stderr.contains("matrix: others done: true"), "the profiler's threads are not done: {outcome}");
        Ok(outcome)
    };
    let run_of = || Run::new(runtime, "Matrix");
    Ok([run(run_of())?, run(run_of().env("MATRIX_PRECOMPILED", "1"))?])
}

/// Each answer is success, or the one expected there.
fn check_answers(contracts: &Contracts, runtime: &Runtime, lines: &[Line<'_>]) -> Result<()> {
    let mut is_unloading = false;
    for line in lines {
        // Threads of the runtime ask from places of their own while another unloads; the program's wait for its end.
        let is_programs =
            ["scratch", MANAGED_THREAD, FOREIGN_THREAD].contains(&line.place) || PROFILER_THREADS.contains(&line.place);
        is_unloading = line.place.contains("unload") || is_unloading && !is_programs;
        check_answer(contracts, runtime, line, is_unloading)?;
    }
    Ok(())
}

fn check_answer(contracts: &Contracts, runtime: &Runtime, line: &Line<'_>, is_unloading: bool) -> Result<()> {
    let Line { place, level, method, answer } = *line;
    let is_there = contract::has(contract::info(contracts, method), runtime.major);
    let is_expected = OTHER_ANSWERS
        .iter()
        .any(|row| (row.0 == "*" || row.0 == place) && (row.1 == "*" || row.1 == method) && row.2 == answer)
        || answer == NOT_ALLOWED && is_event_pipe_refused(place, method);
    // corprof's own refusals where the runtime would read memory that an unload, or another thread, has freed: for
    // good, or while the unload lasts.
    let is_of_freed = answer == NOT_ALLOWED
        && match method {
            "EnumerateNonGCObjects" => !runtime.has(Difference::ListOfFrozenObjects),
            "GetThreadStaticAddress2" => !runtime.has(Difference::StaticsOfOtherThreads),
            "EnumJITedFunctions" | "EnumJITedFunctions2" => {
                runtime.has(Difference::NoListsWhileUnloading) && is_unloading
            }
            _ => false,
        };
    let is_expected = is_expected || is_of_freed;
    let is_right =
        if is_there { answer == "ok" || is_expected } else { ["E_NOINTERFACE", NOTHING_YET].contains(&answer) };
    // corprof's own refusals come also where the runtime lacks the call.
    ensure!(is_right || is_expected, "{method} of {level} answered {answer} in {place}");
    Ok(())
}

/// The methods of each level, as they were asked in each place.
fn by_place<'o>(lines: &[Line<'o>]) -> BTreeMap<&'o str, BTreeMap<&'o str, BTreeSet<&'o str>>> {
    let mut places: BTreeMap<_, BTreeMap<_, BTreeSet<_>>> = BTreeMap::new();
    for line in lines {
        places.entry(line.place).or_default().entry(line.level).or_default().insert(line.method);
    }
    places
}

/// The levels whose rows a place must have asked.
fn expected_levels(contracts: &Contracts, place: &str) -> Result<&'static [&'static str]> {
    Ok(match place {
        MANAGED_THREAD | FOREIGN_THREAD => &["Info"],
        "profiler thread" => &["Info", "InNoGc", "InCallback", "ProfilerThread"],
        "profiler thread that is marked" => &["Info", "InNoGc", "InCallback"],
        "scratch" => &[],
        // Where the runtime would let more in than is good, or there is an object to be kept in place.
        "object_allocated" | "exception_thrown" | "finalizeable_object_queued" => &["Info", "InNoGc", "ObjectId"],
        "exception_catcher_enter" | "object_references" | "handle_created" => &["Info", "InNoGc", "ObjectId"],
        "runtime_resume_started" | "runtime_resume_finished" => &["Info", "InNoGc"],
        _ => {
            let row = contract::callback(contracts, place).with_context(|| format!("no callback {place}"))?;
            match row.sync_info {
                SyncInfo::All => &["Info", "InNoGc", "InCallback"],
                SyncInfo::NoTrigger => &["Info", "InNoGc"],
                SyncInfo::None => bail!("no call is allowed in {place}"),
            }
        }
    })
}

#[test]
fn every_context_is_let_in_with_all_that_it_offers() -> Result<()> {
    let contracts = contract::contracts();
    for runtime in Runtime::all()? {
        let mut seen = BTreeSet::new();
        for outcome in &runs(&runtime)? {
            let mut lines = lines(outcome)?;
            lines.retain(|line| line.level != "raw");
            check_answers(&contracts, &runtime, &lines).with_context(|| outcome.to_string())?;

            let places = by_place(&lines);
            let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
            for (level, methods) in places.values().flatten() {
                all.entry(level).or_default().extend(methods);
            }
            let offered: BTreeSet<&str> = contract::offered(&contracts).iter().map(|row| row.method.as_str()).collect();
            ensure!(
                all.values().flatten().copied().collect::<BTreeSet<_>>() == offered,
                "not all calls were made: {all:?}"
            );
            for (place, levels) in &places {
                let expected = expected_levels(&contracts, place)?;
                let found: Vec<_> = levels.keys().copied().collect();
                let is_complete = expected.iter().all(|level| levels.get(level) == all.get(level));
                ensure!(
                    found.len() == expected.len() && is_complete,
                    "{place} asked {levels:?}, not all of {expected:?}"
                );
            }
            for place in [MANAGED_THREAD, FOREIGN_THREAD].into_iter().chain(PROFILER_THREADS) {
                ensure!(places.contains_key(place), "nothing was asked on {place}: {outcome}");
            }
            seen.extend(places.keys().filter_map(|place| Some(&contract::callback(&contracts, place)?.method)));
        }
        let left_out: BTreeSet<&str> = NOT_SEEN.iter().map(|(callback, _)| *callback).collect();
        for row in &contracts.callback {
            let comes = row.fired_by_runtime && row.wrapper == Wrapper::Calls && row.sync_info != SyncInfo::None;
            let is_expected = comes && !left_out.contains(row.method.as_str());
            ensure!(seen.contains(&row.method) == is_expected, "{} on {runtime}: expected {is_expected}", row.method);
        }
    }
    Ok(())
}

/// Calls that take an object, so that the thread is in cooperative mode.
const OF_OBJECTS: &[&str] = &[
    "CreateHandle",
    "EnumerateObjectReferences",
    "GetArrayObjectInfo",
    "GetClassFromObject",
    "GetObjectGeneration",
    "GetObjectIDFromHandle",
    "GetObjectSize2",
    "IsFrozenObject",
];

/// Calls offered by `&self` can be made beside an `ObjectId`, in a hook, and under a `sync::Mutex`.
/// Makes each call that is offered by shared reference, and has the profiler check that it never does this.
fn no_call_by_shared_reference(check: &str) -> Result<()> {
    let contracts = contract::contracts();
    let offered = contract::offered(&contracts);
    let is_by_reference = |row: &&&InfoRow| !row.may_move_objects();
    let expected: BTreeSet<&str> = offered.iter().filter(is_by_reference).map(|row| row.method.as_str()).collect();
    for runtime in Runtime::all()? {
        let run = Run::new(&runtime, "Matrix").profiler("matrix").env("DOTNET_TieredCompilation", "0");
        let outcome = run.env("MATRIX_MODES", check).timeout(Duration::from_secs(480)).run()?;
        outcome.exited_with(0)?;
        let mut seen = BTreeSet::new();
        for line in outcome.stderr.lines().filter_map(|line| line.strip_prefix("modes|")) {
            let [of, method, times, faults] = line.split('|').collect::<Vec<_>>()[..] else { bail!("{line}") };
            ensure!(of == check && faults == "0", "{method}: {faults} of {times} times: {check}, on {runtime}");
            seen.insert(method);
        }
        let mut expected = expected.clone();
        if check == "waits" {
            expected.retain(|method| !OF_OBJECTS.contains(method));
        }
        ensure!(expected.is_subset(&seen), "{check} was asked of {seen:?}, not of all of {expected:?}: {outcome}");
    }
    Ok(())
}

#[test]
fn no_call_by_shared_reference_lets_a_collection_in() -> Result<()> {
    no_call_by_shared_reference("leaves")
}

#[test]
fn no_call_by_shared_reference_waits_for_a_collection() -> Result<()> {
    no_call_by_shared_reference("waits")
}

/// The table's rule for a call past the contexts: the code of the refusal, or none if it is accepted.
fn refusal(contracts: &Contracts, runtime: &Runtime, place: &str, method: &str) -> Result<Option<&'static str>> {
    let row = contract::info(contracts, method);
    let (entry, triggers) = contract::checks(row, runtime.major);
    let inspects = row.requires.as_deref() == Some("object-inspection");
    let is_sync = entry == Entry::Sync;
    Ok(match place {
        _ if entry == Entry::InitOnly => Some("CORPROF_E_CALL_ONLY_FROM_INIT"),
        MANAGED_THREAD => is_sync.then_some(NOT_ALLOWED),
        FOREIGN_THREAD => inspects.then_some("CORPROF_E_NOT_MANAGED_THREAD"),
        // On an application's thread, in a callback: the one async call with checks of its own.
        "scratch" => (method == "ForceGC").then_some(NOT_ALLOWED),
        _ => {
            let callback = contract::callback(contracts, place).with_context(|| format!("no callback {place}"))?;
            let is_refused = match callback.sync_info {
                SyncInfo::All => is_sync && inspects,
                SyncInfo::NoTrigger => is_sync && triggers,
                SyncInfo::None => true,
            };
            is_refused.then_some(NOT_ALLOWED)
        }
    })
}

#[test]
fn calls_past_the_contexts_are_refused_as_the_table_says() -> Result<()> {
    let contracts = contract::contracts();
    for runtime in Runtime::all()? {
        for outcome in &runs(&runtime)? {
            let mut lines = lines(outcome)?;
            lines.retain(|line| line.level == "raw");
            for Line { place, method, answer, .. } in &lines {
                let expected = refusal(&contracts, &runtime, place, method)?;
                let is_right = match expected {
                    Some(code) => *answer == code,
                    None => *answer != NOT_ALLOWED,
                };
                ensure!(is_right, "{method} answered {answer} in {place}, the table says {expected:?}: {outcome}");
            }

            let there = |row: &&InfoRow| contract::has(row, runtime.major);
            let offered = contract::offered(&contracts);
            let sync: BTreeSet<&str> = offered
                .iter()
                .filter(|row| row.entry == Entry::Sync && there(row))
                .map(|row| row.method.as_str())
                .collect();
            let triggering: BTreeSet<&str> = offered
                .iter()
                .filter(|row| row.entry == Entry::Sync && row.ever_triggers() && there(row))
                .map(|row| row.method.as_str())
                .collect();
            let init_only: BTreeSet<&str> = contracts
                .info
                .iter()
                .filter(|row| row.entry == Entry::InitOnly)
                .map(|row| row.method.as_str())
                .collect();
            let places = by_place(&lines);
            let mut refusing = 0;
            for (place, levels) in &places {
                let asked = levels.get("raw").context("no raw call")?;
                match *place {
                    MANAGED_THREAD => ensure!(*asked == &sync | &init_only, "{place}: {asked:?}"),
                    "jit_compilation_started" => ensure!(asked.is_superset(&init_only), "{place}: {asked:?}"),
                    FOREIGN_THREAD | "scratch" => {}
                    _ => {
                        ensure!(*asked == triggering, "{place}: {asked:?}");
                        refusing += 1;
                    }
                }
            }
            ensure!(places.contains_key(MANAGED_THREAD) && places.contains_key("scratch"), "{outcome}");
            ensure!(refusing >= 15, "only {refusing} callbacks refused anything: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn on_the_threads_of_a_server_collection_nothing_waits_for_the_collection() -> Result<()> {
    let contracts = contract::contracts();
    for runtime in Runtime::all()? {
        // With a single processor the runtime would collect as on a workstation.
        let run = Run::new(&runtime, "Matrix").profiler("matrix").env("DOTNET_gcServer", "1");
        let outcome = run.env("DOTNET_PROCESSOR_COUNT", "2").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stderr.contains("matrix: others done: true"), "the profiler's threads are not done: {outcome}");
        let mut lines = lines(&outcome)?;
        lines.retain(|line| {
            // corprof's own refusals: the runtime would take the thread for the one that suspends.
            let is_unmanaged = ["GetNotifiedExceptionClauseInfo", "GetRVAStaticAddress"].contains(&line.method)
                && line.answer == "CORPROF_E_NOT_MANAGED_THREAD";
            line.level != "raw" && !is_unmanaged
        });
        check_answers(&contracts, &runtime, &lines).with_context(|| outcome.to_string())?;
        // A callback of a collector's thread.
        ensure!(lines.iter().any(|line| line.place == "runtime_resume_finished"), "{outcome}");
    }
    Ok(())
}
