//! The profiler's report on a run of the matrix under fire, and the faults in it.

use std::collections::{BTreeMap, BTreeSet};

use corprof_launch::exit;

use super::super::no_sessions::is_event_pipe_refused;
use super::super::watch::Run;
use super::plan::Plan;

const NOT_ALLOWED: &str = "CORPROF_E_UNSUPPORTED_CALL_SEQUENCE";
const SUSPENDED: &str = "CORPROF_E_SUSPENSION_IN_PROGRESS";
const NO_THREAD: &str = "CORPROF_E_NOT_MANAGED_THREAD";
const NOTHING_YET: &str = "nothing to ask about yet";

/// The allowed results other than success, with the reason (`*`: in any place; a final `*`: in places whose names begin
/// so).
const ANSWERS: &[(&str, &str, &str, &str)] = &[
    ("*", "DestroyHandle", NOTHING_YET, "no exception has been thrown since the last handle was destroyed"),
    ("*", "DoStackSnapshot", "CORPROF_E_STACKSNAPSHOT_UNSAFE", "not at this moment"),
    ("*", "DoStackSnapshot", "CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX", "an exception is being unwound, or nothing runs"),
    ("*", "EnumJITedFunctions", NOT_ALLOWED, "while code is unloaded .NET 10 would crash, then or later"),
    ("*", "EnumJITedFunctions2", NOT_ALLOWED, "the same"),
    ("*", "EnumerateNonGCObjects", NOT_ALLOWED, "after an unload .NET 8 would read freed memory"),
    ("*", "EnumNgenModuleMethodsInliningThisMethod", "CORPROF_E_DATAINCOMPLETE", "without precompiled code"),
    ("*", "GetRVAStaticAddress", "CORPROF_E_DATAINCOMPLETE", ".NET 10 has not prepared the class"),
    ("*", "ReadInMemorySymbols", "E_INVALIDARG", "the module came from a file, and has no symbols to read"),
    ("*", "GetNotifiedExceptionClauseInfo", NO_THREAD, "a thread of the profiler's or of the collector's"),
    ("*", "GetRVAStaticAddress", NO_THREAD, "the same"),
    ("*", "GetClassFromTokenAndTypeArgs", NO_THREAD, "classes are loaded on managed threads only"),
    ("*", "GetFunctionFromTokenAndTypeArgs", NO_THREAD, "the same"),
    ("*", "GetThreadStaticAddress2", NOT_ALLOWED, "a field of another thread, before .NET 10"),
    ("*", "GetGenerationBounds", "E_FAIL", "without MONITOR_GC .NET 8 keeps no bounds"),
    ("*", "GetObjectGeneration", "CORPROF_E_NOT_GC_OBJECT", "the object is frozen"),
    ("thread_destroyed", "GetClassFromTokenAndTypeArgs", NOT_ALLOWED, "the thread has left the heap"),
    ("thread_destroyed", "GetFunctionFromTokenAndTypeArgs", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "EnumModules", NOT_ALLOWED, "the thread holds the lock of the list of threads"),
    ("thread_destroyed", "GetAppDomainsContainingModule", NOT_ALLOWED, "the same"),
    ("profiler thread*", "EnumerateGCHeapObjects", SUSPENDED, "another suspension is under way"),
    ("runtime_thread_*", "GetCodeInfo2", NOT_ALLOWED, "the thread ends, or may end"),
    ("runtime_thread_*", "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    ("runtime_thread_*", "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "GetCodeInfo2", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "GetCodeInfo4", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "GetFunctionFromIP3", NOT_ALLOWED, "the same"),
    ("thread_destroyed", "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
    ("a managed thread*", "GetCodeInfo2", NOT_ALLOWED, "nothing shows that the thread is not ending"),
    ("a managed thread*", "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    ("a managed thread*", "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
    ("a thread-local's end*", "GetCodeInfo2", NOT_ALLOWED, "the same"),
    ("a thread-local's end*", "GetFunctionFromIP", NOT_ALLOWED, "the same"),
    ("a thread-local's end*", "GetILToNativeMapping3", NOT_ALLOWED, "the same"),
    ("profiler thread*", "GetCodeInfo4", SUSPENDED, "the process ends, or a suspension took ten seconds"),
    (
        "thread_created",
        "EventPipeAddProviderToSession",
        NOT_ALLOWED,
        "on a profiler thread, or inside another callback",
    ),
    ("thread_created", "EventPipeStartSession", NOT_ALLOWED, "the same"),
    ("thread_created", "EventPipeStopSession", NOT_ALLOWED, "the same"),
    // At the end of the process the main thread ends, and others run on.
    ("profiler thread*", "GetThreadStaticAddress2", "E_INVALIDARG", "the thread whose field it is has ended"),
    ("a foreign thread*", "GetThreadStaticAddress2", "E_INVALIDARG", "the same"),
    ("handle_created", "GetObjectIDFromHandle", NOT_ALLOWED, "handles are made in any mode of the thread"),
    ("finalizeable_object_queued", "EnumerateObjectReferences", NOT_ALLOWED, "objects are marked"),
    ("finalizeable_object_queued", "GetArrayObjectInfo", NOT_ALLOWED, "objects are marked"),
    ("*", "EventPipeAddProviderToSession", "E_FAIL", "the process ends, and EventPipe is gone already"),
    ("*", "EventPipeAddProviderToSession", "E_INVALIDARG", "the process ends, and the session is gone already"),
    (
        "*",
        "EventPipeAddProviderToSession",
        "COR_E_OBJECTDISPOSED",
        "the process ends, and shutdown has ended the session",
    ),
    ("*", "EventPipeStartSession", "E_FAIL", "the process ends, and EventPipe is gone already"),
    ("*", "EventPipeStopSession", "E_FAIL", "the process ends, and EventPipe is gone already"),
    ("*", "EventPipeStopSession", "COR_E_OBJECTDISPOSED", "the process ends, and shutdown has ended the session"),
];

/// Calls that search for code. On a thread that the runtime does not know they are refused while another thread suspends
/// the runtime, which may remove code then.
const SEARCHES: [&str; 3] = ["GetCodeInfo2", "GetFunctionFromIP", "GetILToNativeMapping3"];

/// Where such a thread asks: outside of callbacks, and in those that a call of a profiler thread causes.
const ON_UNKNOWN_THREADS: [&str; 6] = [
    "profiler thread",
    "a foreign thread",
    "a thread-local's end",
    "handle_created",
    "runtime_suspend_started",
    "runtime_resume_finished",
];

/// Whether a search for code is refused for this reason.
fn is_search_refused(place: &str, method: &str) -> bool {
    SEARCHES.contains(&method) && ON_UNKNOWN_THREADS.iter().any(|begin| place.starts_with(begin))
}

/// A row in a place: its context and level, the method, how many times it was called and how many times it must be.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) place: String,
    pub(super) context: String,
    pub(super) level: String,
    pub(super) method: String,
    pub(super) count: u64,
    pub(super) least: u64,
}

/// The cells of a run, from its standard error.
pub(super) fn cells(text: &str) -> Vec<Cell> {
    let fields = text.lines().filter_map(|line| Some(line.strip_prefix("fire-cell|")?.split('|').collect::<Vec<_>>()));
    let cell = |fields: Vec<&str>| {
        let [place, context, level, method, count, least] = fields[..] else { return None };
        let [place, context, level, method] = [place, context, level, method].map(str::to_owned);
        Some(Cell { place, context, level, method, count: count.parse().ok()?, least: least.parse().ok()? })
    };
    fields.filter_map(cell).collect()
}

/// The faults of a run.
pub(super) fn faults(plan: &Plan, run: &Run, cells: &[Cell]) -> Vec<String> {
    let mut faults = Vec::new();
    match run.status {
        None => faults.push(format!("it hung, and was killed after {:.0?}", run.duration)),
        Some(status) if exit::code(status) != 0 => faults.push(format!("it ended with {status}")),
        Some(_) if run.stdout != "through\n" => faults.push("the application prints something else".to_owned()),
        Some(_) => {}
    }
    let told =
        ["fire-fault: ", "fire-stuck: "].map(|mark| run.stderr.lines().filter_map(move |line| line.strip_prefix(mark)));
    let first: BTreeSet<&str> = told.into_iter().flatten().collect();
    faults.extend(first.iter().take(5).map(|&told| told.to_owned()));
    if first.len() > 5 {
        faults.push(format!("and {} more", first.len() - 5));
    }
    if plan.panic_at.is_some() {
        if !run.stderr.contains("as it was told to") {
            faults.push("the profiler has not panicked".to_owned());
        }
        return faults;
    }
    faults
        .extend(run.stderr.lines().filter_map(|line| Some(format!("corprof says:{}", line.split_once("corprof:")?.1))));
    if run.status.is_some() {
        if cells.iter().all(|cell| cell.count == 0) {
            faults.push("no call has been made".to_owned());
        }
        faults.extend(answers(&run.stderr, cells));
        if plan.is_to_fill() {
            faults.extend(empty(plan, cells));
        }
    }
    faults
}

/// The unexpected results.
fn answers(text: &str, cells: &[Cell]) -> Vec<String> {
    let mut asked = BTreeMap::<&str, u64>::new();
    cells.iter().for_each(|cell| *asked.entry(&cell.method).or_default() += cell.count);
    let lines = text.lines().filter_map(|line| line.strip_prefix("fire-answer|"));
    let lines: Vec<_> = lines.map(|line| line.split('|').collect::<Vec<_>>()).collect();
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let mut refused = BTreeMap::<&str, u64>::new();
    for line in lines.iter().filter(|line| line.len() == 5) {
        *refused.entry(line[2]).or_default() += number(line[4]);
    }
    let mut faults = BTreeMap::<String, u64>::new();
    for line in &lines {
        let [place, _, method, code, count] = line[..] else { continue };
        let is_place =
            |row: &str| row == "*" || row == place || row.strip_suffix('*').is_some_and(|part| place.starts_with(part));
        let is_expected = ANSWERS.iter().any(|row| is_place(row.0) && row.1 == method && row.2 == code)
            || code == NOT_ALLOWED && is_event_pipe_refused(place, method)
            || code == SUSPENDED && is_search_refused(place, method);
        // A call that a runtime lacks always fails this way; which runtimes lack it is in the contract table, and
        // tested by tests/live/matrix.rs.
        let is_lacking = ["E_NOINTERFACE", NOTHING_YET].contains(&code) && asked.get(method) == refused.get(method);
        if !is_expected && !is_lacking {
            faults.insert(format!("{method} answered {code} in {place}"), number(count));
        }
    }
    faults.into_iter().take(8).map(|(what, count)| format!("{what}, {count} times")).collect()
}

/// Cells with too few calls, by type of context; and levels without any call.
fn empty(plan: &Plan, cells: &[Cell]) -> Vec<String> {
    let mut sums = BTreeMap::<_, (u64, u64)>::new();
    for cell in cells {
        let sum = sums.entry((cell.context.as_str(), cell.level.as_str(), cell.method.as_str())).or_default();
        *sum = (sum.0 + cell.count, cell.least);
    }
    let few = sums.iter().filter(|(_, (count, least))| count < least);
    let mut faults: Vec<_> = few
        .map(|((context, level, method), (count, least))| {
            format!("{method} of {level} was made {count} times by {context}, not {least}")
        })
        .collect();
    for (context, levels) in plan.contexts() {
        let missing = levels.iter().filter(|level| !sums.keys().any(|key| (key.0, key.1) == (context, level)));
        faults.extend(missing.map(|level| format!("{context} has asked nothing that {level} offers")));
    }
    let places = cells.iter().map(|cell| &cell.place).collect::<BTreeSet<_>>().len();
    if places < PLACES {
        faults.push(format!("only {places} places have asked anything, not {PLACES}"));
    }
    // A place that occurred has made all of its calls, except places that occur once.
    let unasked = cells.iter().filter(|cell| cell.count == 0 && !ONCE.contains(&cell.place.as_str()));
    faults.extend(unasked.map(|cell| format!("{} was not made in {}", cell.method, cell.place)));
    faults.truncate(8);
    faults
}

/// The least number of callbacks and threads that make calls in every run: runs without the events of collections have
/// the fewest.
const PLACES: usize = 40;

/// Places that occur so rarely that some of their calls may be missing.
const ONCE: &[&str] = &["shutdown", "rejit_compilation_started", "rejit_compilation_finished", "get_rejit_parameters"];

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::Duration;

    use super::super::plan::Condition;
    use super::*;

    fn judged(stderr: &str, stdout: &str) -> String {
        let plan = Plan::fill(1, Condition::Collect, 1000, 10);
        let run = Run {
            status: Some(ExitStatus::from_raw(0)),
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            duration: Duration::ZERO,
            threads: None,
        };
        faults(&plan, &run, &cells(stderr)).join("; ")
    }

    /// A report in which each level of each context has one cell.
    fn full() -> String {
        let plan = Plan::fill(1, Condition::Collect, 1000, 10);
        let levels =
            plan.contexts().into_iter().flat_map(|(context, levels)| levels.iter().map(move |level| (context, level)));
        let cells = levels.map(|(context, level)| format!("fire-cell|somewhere|{context}|{level}|Ask|1000|1000\n"));
        let places = (1..PLACES).map(|place| format!("fire-cell|place {place}|Info|Info|Other|1000|1000\n"));
        cells.chain(places).collect()
    }

    #[test]
    fn a_full_run_has_no_fault() {
        assert_eq!(judged(&full(), "through\n"), "");
        let lacking = format!(
            "{}fire-answer|somewhere|Info|Ask|E_NOINTERFACE|{}\n",
            full(),
            1000 * (full().lines().count() - PLACES + 1)
        );
        assert_eq!(judged(&lacking, "through\n"), "", "a runtime may lack a call");
    }

    #[test]
    fn searches_for_code_are_refused_on_unknown_threads_only() {
        let judged_in = |place| {
            let answer = format!("fire-answer|{place}|InNoGc|GetCodeInfo2|{SUSPENDED}|3\n");
            judged(&(full() + &answer), "through\n")
        };
        assert_eq!(judged_in("handle_created"), "");
        assert!(judged_in("thread_created").contains("GetCodeInfo2 answered CORPROF_E_SUSPENSION_IN_PROGRESS"));
    }

    #[test]
    fn each_fault_is_named() {
        for (stderr, fault) in [
            (full().replacen("|1000|1000", "|999|1000", 1), "was made 999 times by Info"),
            (
                full().replace("|ProfilerThread|ProfilerThread|", "|ProfilerThread|Info|"),
                "ProfilerThread has asked nothing",
            ),
            (format!("{}fire-cell|elsewhere|Info|Info|Ask|0|1000\n", full()), "Ask was not made in elsewhere"),
            (format!("{}fire-fault: an object is another\n", full()), "an object is another"),
            (
                format!("{}fire-answer|somewhere|Info|Ask|E_FAIL|3\n", full()),
                "Ask answered E_FAIL in somewhere, 3 times",
            ),
            (format!("{}fire-answer|somewhere|Info|Ask|E_NOINTERFACE|3\n", full()), "Ask answered E_NOINTERFACE"),
            (format!("{}x corprof: it panicked\n", full()), "corprof says: it panicked"),
        ] {
            let judged = judged(&stderr, "through\n");
            assert!(judged.contains(fault), "{fault}: {judged}");
        }
        assert!(judged(&full(), "throu").contains("prints something else"));
    }
}
