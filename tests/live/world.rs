//! The runtime's answers about classes, objects, the heap, threads and so on, each call from the weakest context
//! that allows it; and the end of the profiler threads.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime};

const LIBRARY: &str = "world";

/// The answers, by call.
fn answers(outcome: &Outcome) -> BTreeMap<&str, &str> {
    let lines = outcome.stderr.lines().filter_map(|line| line.strip_prefix("world| "));
    lines.filter_map(|line| line.split_once(": ")).collect()
}

/// Expects these answers. `*` stands for any answer that is not an error, a leading `error ` for one that begins like
/// this.
fn expect(outcome: &Outcome, expected: &[(&str, &str)]) -> Result<()> {
    let answers = answers(outcome);
    for &(call, wanted) in expected {
        let answer = answers.get(call).copied().unwrap_or("not asked");
        let is_as_wanted = match wanted {
            "*" => !answer.starts_with("error ") && answer != "not asked",
            _ if wanted.starts_with("error ") => answer.starts_with(wanted),
            _ => answer == wanted,
        };
        ensure!(is_as_wanted, "{call}: expected {wanted}, found {answer}: {outcome}");
    }
    Ok(())
}

/// The answers of both runtimes.
const EVERYWHERE: &[(&str, &str)] = &[
    ("environment_variable before", "None"),
    ("set_environment_variable", "()"),
    ("environment_variable", "Some(\"größer\")"),
    ("set_environment_variable none", "()"),
    ("environment_variable after", "None"),
    ("class_layout", "(40, [24, 8, 16])"),
    ("box_class_layout", "8"),
    ("array_object_info kept", "([3, 4], 12)"),
    ("array_object_info wasted", "([5, 6], 30)"),
    ("generation_bounds in garbage_collection_finished", "true"),
    ("array_object_info of none", "error GetArrayObjectInfo: E_INVALIDARG"),
    ("object_size in exception_thrown", "true"),
    ("object_generation in exception_thrown", "true"),
    ("is_frozen_object in exception_thrown", "false"),
    ("enumerate_object_references in exception_thrown", "1"),
    ("static_field_info ordinary", "COR_PRF_STATIC_TYPE(COR_PRF_FIELD_APP_DOMAIN_STATIC)"),
    ("static_field_info per thread", "COR_PRF_STATIC_TYPE(COR_PRF_FIELD_THREAD_STATIC)"),
    ("app_domain_static_address", "*"),
    ("ordinary", "42"),
    ("app_domain_static_address literal", "error GetAppDomainStaticAddress: CORPROF_E_LITERALS_HAVE_NO_ADDRESS"),
    ("thread_static_address", "*"),
    ("per thread", "17"),
    ("thread_static_address own", "()"),
    ("notified_exception_clause_info in exception_thrown", "()"),
    ("notified_exception_clause_info in exception_catcher_enter", "Some((COR_PRF_CLAUSE_CATCH, true))"),
    ("read_in_memory_symbols", "[2, 3, 4, 5]"),
    ("force_gc", "()"),
    ("force_gc again", "()"),
    ("profiler thread done", "true"),
    ("idle", "true"),
    ("shutdown", "()"),
];

#[test]
fn every_call_is_answered_from_its_weakest_context() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "World").profiler_named(LIBRARY, "World").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == "ordinary=42 bytes=20\n", "{outcome}");
        // The only refusal is the one that corprof makes itself, where no collection is held up.
        for line in outcome.stderr.lines().filter(|line| line.contains("CORPROF_E_UNSUPPORTED_CALL_SEQUENCE")) {
            ensure!(line.starts_with("world| handle in jit_compilation_started: "), "{line}: {outcome}");
        }
        expect(&outcome, EVERYWHERE)?;
        let has_addresses = runtime.has(Difference::AddressesInTheFile);
        let rva_static = if has_addresses { "[1, 2, 3, 4]" } else { "error GetRVAStaticAddress" };
        expect(&outcome, &[("rva_static_address", rva_static)])?;
        for place in ["in jit_compilation_started", "on profiler thread", "on profiler thread after force_gc"] {
            for call in ["enum_modules", "app_domains_containing_module"] {
                expect(&outcome, &[(&format!("{call} {place}"), "*")])?;
            }
            for call in ["apply_meta_data", "in_memory_symbols_length", "initialize_current_thread"] {
                expect(&outcome, &[(&format!("{call} {place}"), "0")])?;
            }
            let lacking = "error EnumerateGCHeapObjects(ICorProfilerInfo15): E_NOINTERFACE";
            let walked = if runtime.has(Difference::Info15) { "*" } else { lacking };
            expect(&outcome, &[(&format!("enumerate_gc_heap_objects {place}"), walked)])?;
        }
        for place in ["in jit_compilation_started", "on profiler thread"] {
            expect(&outcome, &[(&format!("enum_threads {place}"), "*")])?;
        }
        for place in ["in thread_assigned_to_os_thread", "in jit_compilation_started", "on profiler thread"] {
            for call in ["thread_app_domain", "thread_context", "handle_from_thread", "os_thread_id"] {
                expect(&outcome, &[(&format!("{call} {place}"), "()")])?;
            }
        }
        for place in ["in jit_compilation_started", "in exception_thrown", "on profiler thread"] {
            let layout = "StringLayout { length_offset: 8, buffer_offset: 12 }";
            expect(&outcome, &[(&format!("generation_bounds {place}"), "true")])?;
            expect(&outcome, &[(&format!("loh_object_size_threshold {place}"), "85000")])?;
            expect(&outcome, &[(&format!("string_layout {place}"), layout)])?;
            for call in ["non_gc_heap_bounds", "enumerate_non_gc_objects"] {
                expect(&outcome, &[(&format!("{call} {place}"), "true")])?;
            }
        }
    }
    Ok(())
}

#[test]
fn handles_find_their_objects_and_let_them_die() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "World").profiler_named(LIBRARY, "World").run()?;
        outcome.exited_with(0)?;
        for kind in ["Weak", "Strong", "Pinned"] {
            let is = format!("handle {kind}");
            let after = format!("handle {kind} after collection 0");
            let alive = format!("is_alive {kind} after collection 0");
            expect(&outcome, &[(&is, "true"), (&after, "Some(\"WorldException\")"), (&alive, "true")])?;
            expect(&outcome, &[("handle destroy", "()")])?;
            let unfit = "error GetObjectIDFromHandle(objects): CORPROF_E_UNSUPPORTED_CALL_SEQUENCE";
            expect(&outcome, &[("handle in jit_compilation_started", unfit)])?;
        }
        let dead = [("wasted after a collection", "false"), ("is_alive wasted after a collection", "false")];
        expect(&outcome, &dead)?;
    }
    Ok(())
}

#[test]
fn an_event_of_ones_own_is_delivered() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "World").profiler_named(LIBRARY, "World").run()?;
        outcome.exited_with(0)?;
        let data = "(2, [5, 0, 0, 0, 102, 0, 105, 0, 118, 0, 101, 0, 0, 0, 1, 0, 55, 0])";
        expect(
            &outcome,
            &[
                ("event_pipe_provider_info", "\"Corprof-World\""),
                ("event_pipe_write_event", "()"),
                ("event_pipe_write_event plain", "()"),
                ("event_pipe_stop_session", "()"),
                ("event 7", data),
                ("event 8", "(2, [])"),
            ],
        )?;
        // A provider that is added to a running session hears of its end alone.
        let listened = "world| listener: false 5 \"corprof\\0listens\\0\"\n";
        ensure!(outcome.stderr.contains(listened), "{outcome}");
    }
    Ok(())
}

/// Runs Exit under a profiler of the library, and expects the application to behave as without one.
fn unharmed(runtime: &Runtime, profiler: &str) -> Result<Outcome> {
    let outcome = Run::new(runtime, "Exit").args(["7", "2"]).profiler_named(LIBRARY, profiler).run()?;
    outcome.exited_with(7)?;
    ensure!(outcome.stdout == "line 1 of 2\nline 2 of 2\n", "the application prints something else: {outcome}");
    Ok(outcome)
}

#[test]
fn threads_end_before_the_profilers_last_word() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "World").profiler_named(LIBRARY, "World").run()?;
        let [idle, shutdown] = ["world| idle: true", "world| shutdown: ()"].map(|line| outcome.stderr.find(line));
        ensure!(idle.is_some() && idle < shutdown, "{outcome}");
    }
    Ok(())
}

#[test]
fn a_panic_on_a_profiler_thread_is_reported_once_and_ends_the_profiler_only() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "PanicsOnProfilerThread")?;
        let report = "corprof: the profiler PanicsOnProfilerThread panicked on its thread panicker and is disabled";
        ensure!(outcome.stderr.matches(report).count() == 1, "{outcome}");
        ensure!(outcome.stderr.contains("the waiter was told"), "{outcome}");
        ensure!(!outcome.stderr.contains("shutdown of a quiet profiler"), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_thread_that_does_not_listen_is_named_and_left_behind() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "DoesNotListen")?;
        let report = "threads of the profiler DoesNotListen were still running 2s after they were asked to stop: deaf";
        ensure!(outcome.stderr.matches(report).count() == 1, "{outcome}");
        ensure!(outcome.stderr.contains("shutdown all the same, late thread refused: true"), "{outcome}");
        ensure!(!outcome.stderr.contains("a late thread"), "{outcome}");
    }
    Ok(())
}

#[test]
fn a_profiler_that_refuses_to_start_leaves_no_thread() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = unharmed(&runtime, "RefusesWithThread")?;
        let [told, refused] = ["the orphan was told", "the profiler RefusesWithThread is not loaded"]
            .map(|line| outcome.stderr.find(line));
        ensure!(told.is_some() && told < refused, "{outcome}");
    }
    Ok(())
}
