//! The rows of the table.

use super::{Kind, Loading, Profiler, Setting};

/// All built-in profilers.
pub static ALL: [&Profiler; 16] = [
    &SAMPLER,
    &TIMER,
    &TRACER,
    &LOGGER,
    &EXCEPTIONS,
    &ALLOCATIONS,
    &PAUSES,
    &LOCKS,
    &STARVATION,
    &LEAKS,
    &COUNT_CALLS,
    &TRACE_VALUES,
    &STACKS,
    &TOP,
    &DUMPER,
    &ALLOCATION_SAMPLES,
];

/// A year: no sum of times is too large.
const YEAR: f64 = 365.0 * 24.0 * 60.0 * 60.0;
/// More bytes than any disk has.
const LARGEST_FILE: u64 = 1 << 50;

/// The formats of a profile.
const PROFILES: Kind = Kind::File(&[".html", ".svg", ".folded", ".speedscope.json", ".pb.gz", ".json.gz"]);
/// The same, and a recording.
const PROFILES_OR_RECORDING: Kind =
    Kind::File(&[".html", ".svg", ".folded", ".speedscope.json", ".pb.gz", ".json.gz", ".nettrace", ".nettrace.gz"]);
/// The same, and a table.
const PROFILES_OR_TABLE: Kind =
    Kind::File(&[".csv", ".html", ".svg", ".folded", ".speedscope.json", ".pb.gz", ".json.gz"]);
const TRACES: Kind = Kind::File(&[".pftrace", ".json"]);
const PAGE: Kind = Kind::File(&[".html"]);
/// Who calls hooks.
const HOOKED_BY: Kind = Kind::Word(&["runtime", "il", "il-all"]);
/// The frames of a stack.
const DEPTH: Kind = Kind::Count { least: 1, most: 1_000 };
/// The rows of a table.
const ROWS: Kind = Kind::Count { least: 0, most: 10_000 };
/// Which callers a resumed async method has.
const CALLERS: Kind = Kind::Word(&["async", "probe", "physical"]);
/// The categories of events.
const CATEGORIES: Kind = Kind::Words(&[
    "appdomain",
    "assembly",
    "module",
    "class",
    "unload",
    "jit",
    "inlining",
    "search",
    "thread",
    "transition",
    "suspension",
    "gc",
    "allocation",
    "exception",
    "com",
]);

const fn setting(variable: &'static str, kind: Kind, default: &'static str, meaning: &'static str) -> Setting {
    Setting { variable, kind, default, meaning, option: None }
}

/// The setting of a stop file.
const fn stop(variable: &'static str) -> Setting {
    setting(
        variable,
        Kind::Path,
        "",
        "a stop file: when it exists, the profiler ends, answers into a file of that name with the process id and `.answer` \
         appended, and makes one without `.answer`. An attached one detaches, and makes another one that ends in `.left`. \
         `corprof` uses it for Ctrl-C",
    )
}

/// The setting of the spelling of methods.
const fn names(variable: &'static str, option: &'static str) -> Setting {
    by_option(
        variable,
        Kind::Word(&["source", "raw"]),
        "source",
        option,
        "`source` names methods as they were written, `Shop.Beds.Free (async)`; `raw` as the runtime does, \
         `Shop.Beds.<Free>d__0.MoveNext()`",
    )
}

/// The setting of the callers of resumed async methods.
const fn stacks(variable: &'static str, option: &'static str) -> Setting {
    by_option(
        variable,
        CALLERS,
        "async",
        option,
        "`async`: the callers of a resumed async method are those that await it, after an attach on .NET 11 and \
         later only; `probe`: after an attach on older runtimes as well, where the profiler then stays; `physical`: \
         stacks as threads have them",
    )
}

/// The setting of the form of an answer.
const fn format(variable: &'static str, option: &'static str) -> Setting {
    by_option(
        variable,
        Kind::Word(&["text", "json"]),
        "text",
        option,
        "the form of the answer: `json` is one JSON document on one line, whose fields are in [Answers as JSON](json.md)",
    )
}

/// A setting that an option of a subcommand sets.
const fn by_option(
    variable: &'static str,
    kind: Kind,
    default: &'static str,
    option: &'static str,
    meaning: &'static str,
) -> Setting {
    Setting { variable, kind, default, meaning, option: Some(option) }
}

/// Samples stacks.
pub static SAMPLER: Profiler = Profiler {
    name: "sampler",
    type_name: "SamplerProfiler",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05}",
    summary: "samples stacks and writes an HTML page",
    loading: Loading::Either,
    prefix: "SAMPLER",
    settings: &[
        by_option(
            "SAMPLER_OUT",
            PROFILES_OR_RECORDING,
            "sampler-%p.html",
            "record --output FILE",
            "the file to write, in the format of its extension; it is rewritten each second at first and every ten seconds later; an existing one is replaced. \
             `.nettrace` is a recording, which grows as samples come. With `SAMPLER_PUSH`, none without this",
        ),
        by_option(
            "SAMPLER_MODE",
            Kind::Word(&["cpu", "wall"]),
            "cpu",
            "record --mode",
            "`cpu` samples running threads only, `wall` all threads, with waits under a separate root",
        ),
        by_option(
            "SAMPLER_EVENTS",
            Kind::Words(&["alloc", "lock", "exception", "gc", "activity", "wait"]),
            "",
            "record --events KINDS",
            "the runtime's own events that a recording (`.nettrace`) has beside the samples, with the stacks of the threads that write \
             them: `alloc` samples of allocations, `lock` contention, `exception` exceptions that are thrown, `gc` collections; and `activity` the activities of the \
             application, such as requests, by which samples get labels; and `wait` samples of threads that wait, beside those of running ones",
        ),
        by_option(
            "SAMPLER_LOOP",
            Kind::Number { least: 0.0, most: YEAR },
            "0",
            "record --loop TIME",
            "begin a new recording (`.nettrace`) after this many seconds; each file has the time of its begin (UTC) in its name. 0: one file",
        ),
        by_option(
            "SAMPLER_MAX_SIZE",
            Kind::Count { least: 0, most: LARGEST_FILE },
            "0",
            "record --max-size SIZE",
            "begin a new recording (`.nettrace`) before a file has more bytes than this, at least 1 MB; with `SAMPLER_KEEP=1` the recording ends \
             then. 0: as many as come",
        ),
        by_option(
            "SAMPLER_KEEP",
            Kind::Count { least: 1, most: 1_000_000 },
            "24",
            "record --keep COUNT",
            "how many files of this run are kept, with the one that is written; before there are more, the oldest is removed",
        ),
        by_option(
            "SAMPLER_HZ",
            Kind::Number { least: 0.01, most: 10_000.0 },
            "100",
            "record --rate HZ",
            "rounds per second",
        ),
        by_option(
            "SAMPLER_DELAY",
            Kind::Number { least: 0.0, most: YEAR },
            "0",
            "record --delay SECONDS",
            "begin to sample this many seconds after the start",
        ),
        by_option(
            "SAMPLER_DURATION",
            Kind::Number { least: 0.0, most: YEAR },
            "0",
            "record --duration SECONDS",
            "sample for this many seconds, then write the file; the application runs on. 0: until it ends",
        ),
        stacks("SAMPLER_STACKS", "record --physical, --async-probe"),
        by_option(
            "SAMPLER_TRACE",
            Kind::Text,
            "",
            "record --trace METHODS",
            "keep slow calls of these methods, each with its arguments and its own samples: globs of names, each with a limit, \
             such as `Shop.Orders.*:50ms`; several are separated by `;`. Only on Linux",
        ),
        by_option(
            "SAMPLER_SLOWEST",
            Kind::Count { least: 1, most: 1000 },
            "20",
            "record --slowest COUNT",
            "how many of the slow calls are kept",
        ),
        names("SAMPLER_NAMES", "record --raw-names"),
        setting("SAMPLER_CODE", Kind::Word(&["all", "mine"]), "all", "`mine` hides methods of frameworks"),
        setting(
            "SAMPLER_BUDGET",
            Kind::Number { least: 0.01, most: 100.0 },
            "2",
            "the highest overhead of suspensions, in per cent of the application's time. Signals suspend nothing",
        ),
        setting(
            "SAMPLER_STRATEGY",
            Kind::Word(&["auto", "suspended", "signals", "seeded"]),
            "auto",
            "how stacks are sampled, see [Walking stacks](walking-stacks.md#strategies): `signals` on Linux, for processor time, and \
             `seeded` on Windows. `auto`: for processor time `signals` on Linux and `seeded` on Windows; \
             else `suspended`",
        ),
        setting(
            "SAMPLER_REPORT",
            Kind::Word(&["all", "none"]),
            "all",
            "a report on standard error every second, or errors only. `corprof record` sets `none`",
        ),
        setting(
            "SAMPLER_STOP",
            Kind::Path,
            "",
            "a stop file: when it exists, the sampler writes its output and ends, and makes a file of that name with the process id \
             appended; an attached sampler detaches, and makes another one that ends in `.left`. `corprof record` uses it for Ctrl-C",
        ),
        by_option(
            "SAMPLER_PUSH",
            Kind::Text,
            "",
            "record --push URL",
            "send the samples to an engine: `pyroscope+http://HOST:4040`, `parca+http://HOST:7070` or `otlp+http://HOST:4318`, see \
             [To a fleet](running.md#to-a-fleet)",
        ),
        by_option(
            "SAMPLER_PUSH_SERVICE",
            Kind::Text,
            "",
            "record --service NAME",
            "the name of the service that is sent. Without it, `OTEL_SERVICE_NAME`, or the application's name",
        ),
        by_option(
            "SAMPLER_PUSH_LABELS",
            Kind::Text,
            "",
            "record --label NAME=VALUE",
            "labels that are sent: `region=eu,stage=test`; the option has one, and is repeatable",
        ),
        by_option(
            "SAMPLER_PUSH_INTERVAL",
            Kind::Number { least: 1.0, most: 3600.0 },
            "10",
            "record --push-interval SECONDS",
            "how many seconds of samples a message has that is sent",
        ),
        by_option(
            "SAMPLER_PUSH_TENANT",
            Kind::Text,
            "",
            "record --tenant TENANT",
            "the tenant that samples are sent for: the header `X-Scope-OrgID`",
        ),
        setting(
            "SAMPLER_PUSH_AUTHORIZATION",
            Kind::Secret,
            "",
            "the header `Authorization`: `Bearer …` or `Basic …`. It has no option, because every user of a machine can read command \
             lines. No message shows it",
        ),
    ],
};

/// Times calls.
pub static TIMER: Profiler = Profiler {
    name: "timer",
    type_name: "Timer",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A07}",
    summary: "counts and times the calls of each method",
    loading: Loading::Either,
    prefix: "TIMER",
    settings: &[
        by_option(
            "TIMER_OUT",
            PROFILES_OR_TABLE,
            "",
            "timer --output FILE",
            "a file with all methods, in the format of its extension",
        ),
        by_option(
            "TIMER_FILTER",
            Kind::Glob,
            "*",
            "timer --filter GLOB",
            "the methods to time, by their names as they are printed, such as `Shop.Orders.*`",
        ),
        by_option(
            "TIMER_CALLERS",
            Kind::Glob,
            "",
            "timer --callers GLOB",
            "print callers and callees of these methods",
        ),
        by_option(
            "TIMER_PATHS",
            Kind::Count { least: 1, most: 1 << 30 },
            "1048576",
            "timer --paths N",
            "the number of distinct call paths; calls on further ones are counted without their callers. A million take 72 MiB, and the \
             report as much again",
        ),
        by_option(
            "TIMER_BY",
            HOOKED_BY,
            "runtime",
            "timer --by WHO",
            "who calls the hooks: the runtime; `il`: inserted code, and precompiled methods are not timed; `il-all`: those that match \
             the filter are compiled and timed. An attached profiler has `il-all` always. See \
             [Hooks by inserted code](tracing-calls.md#hooks-by-inserted-code)",
        ),
        format("TIMER_FORMAT", "timer --json"),
        stop("TIMER_STOP"),
    ],
};

/// Traces calls.
pub static TRACER: Profiler = Profiler {
    name: "tracer",
    type_name: "Tracer",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A06}",
    summary: "writes every call for the Perfetto UI, or prints a tree",
    loading: Loading::Either,
    prefix: "TRACER",
    settings: &[
        by_option(
            "TRACER_OUT",
            TRACES,
            "",
            "tracer --output FILE",
            "a file for the Perfetto UI; `.json` is five times as large, and speedscope and Chrome read it too. Without it, a tree on \
             standard error",
        ),
        by_option(
            "TRACER_FILTER",
            Kind::Glob,
            "*",
            "tracer --filter GLOB",
            "the methods to trace, by their names as they are printed, such as `Shop.Orders.*`",
        ),
        by_option(
            "TRACER_MIN",
            Kind::Count { least: 0, most: 1_000_000 },
            "1",
            "tracer --min MICROSECONDS",
            "calls shorter than this number of microseconds are folded into their callers, as a count and a time. Without `TRACER_OUT`, \
             the default is 0: every call is shown",
        ),
        by_option("TRACER_BY", HOOKED_BY, "runtime", "tracer --by WHO", "as `TIMER_BY`"),
        format("TRACER_FORMAT", "tracer --json"),
        stop("TRACER_STOP"),
    ],
};

/// Logs events.
pub static LOGGER: Profiler = Profiler {
    name: "logger",
    type_name: "Logger",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A02}",
    summary: "logs events of all categories, nested, per thread",
    loading: Loading::AtStart,
    prefix: "LOGGER",
    settings: &[
        setting(
            "LOGGER_EVENTS",
            CATEGORIES,
            "",
            "the categories of events, such as `jit,gc,exception`. Without it, all",
        ),
        setting("LOGGER_DIR", Kind::Folder, "", "the folder for a file per managed thread. Without it, standard error"),
    ],
};

/// Counts exceptions.
pub static EXCEPTIONS: Profiler = Profiler {
    name: "exceptions",
    type_name: "Exceptions",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A03}",
    summary: "counts exceptions by class, thrower, catcher and message",
    loading: Loading::Either,
    prefix: "EXCEPTIONS",
    settings: &[
        by_option("EXCEPTIONS_TOP", ROWS, "20", "exceptions --top N", "rows of the answer"),
        by_option(
            "EXCEPTIONS_SHOW",
            Kind::Word(&["summary", "tree"]),
            "summary",
            "exceptions --tree",
            "`tree`: before the summary, each exception as it happens, with the methods that the search for a handler visits and \
             the blocks that run",
        ),
        stacks("EXCEPTIONS_STACKS", "exceptions --physical, --async-probe"),
        names("EXCEPTIONS_NAMES", "exceptions --raw-names"),
        format("EXCEPTIONS_FORMAT", "exceptions --json"),
        stop("EXCEPTIONS_STOP"),
    ],
};

/// Those of both profilers of allocations.
const ALLOCATION_SETTINGS: &[Setting] = &[
    by_option(
        "ALLOCATIONS_BY",
        Kind::Word(&["class", "stack"]),
        "class",
        "allocations --by WHAT",
        "`class` counts every object; `stack` samples objects with the code that allocates them. After an attach both are samples",
    ),
    by_option(
        "ALLOCATIONS_TOP",
        Kind::Count { least: 1, most: 1_000_000 },
        "20",
        "allocations --top N",
        "rows of the table",
    ),
    by_option(
        "ALLOCATIONS_OUT",
        PROFILES,
        "",
        "allocations --output FILE",
        "with `stack`, or after an attach: a file with the stacks, with the class on top of its stack",
    ),
    stacks("ALLOCATIONS_STACKS", "allocations --physical, --async-probe"),
    names("ALLOCATIONS_NAMES", "allocations --raw-names"),
    format("ALLOCATIONS_FORMAT", "allocations --json"),
    stop("ALLOCATIONS_STOP"),
];

/// Counts allocations.
pub static ALLOCATIONS: Profiler = Profiler {
    name: "allocations",
    type_name: "Allocations",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A04}",
    summary: "counts objects and bytes by class, or by class and stack",
    loading: Loading::AtStart,
    prefix: "ALLOCATIONS",
    settings: ALLOCATION_SETTINGS,
};

/// Shows pauses.
pub static PAUSES: Profiler = Profiler {
    name: "pauses",
    type_name: "Pauses",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0B}",
    summary: "shows why the application paused, and which threads delayed it",
    loading: Loading::Either,
    prefix: "PAUSES",
    settings: &[
        by_option("PAUSES_TOP", ROWS, "10", "pauses --top N", "rows of each table, and pauses to print with stacks"),
        by_option("PAUSES_DEPTH", DEPTH, "12", "pauses --depth N", "frames of a printed stack"),
        by_option(
            "PAUSES_HZ",
            Kind::Number { least: 1.0, most: 1_000.0 },
            "200",
            "pauses --rate HZ",
            "samplings of running threads per second, to see the threads that delay a pause (Linux)",
        ),
        names("PAUSES_NAMES", "pauses --raw-names"),
        format("PAUSES_FORMAT", "pauses --json"),
        stop("PAUSES_STOP"),
    ],
};

/// Shows waits for locks.
pub static LOCKS: Profiler = Profiler {
    name: "locks",
    type_name: "Locks",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0C}",
    summary: "shows which threads wait for locks, and what the owners do",
    loading: Loading::Either,
    prefix: "LOCKS",
    settings: &[
        by_option("LOCKS_TOP", ROWS, "10", "locks --top N", "rows of each table, and waits to print with stacks"),
        by_option("LOCKS_DEPTH", DEPTH, "12", "locks --depth N", "frames of a printed stack"),
        by_option(
            "LOCKS_OUT",
            PROFILES,
            "",
            "locks --output FILE",
            "a file with the stacks of owners, by the time for which others have waited",
        ),
        by_option(
            "LOCKS_HZ",
            Kind::Number { least: 0.1, most: 1_000.0 },
            "100",
            "locks --rate HZ",
            "how many times per second the owners are sampled while threads wait. Nothing is stopped while nobody waits",
        ),
        setting(
            "LOCKS_THREADS",
            Kind::Text,
            "",
            "threads that are older than an attach: the runtime's number and the system's, as `1=4711,4=4713`. `corprof locks` sets it",
        ),
        stacks("LOCKS_STACKS", "locks --physical, --async-probe"),
        names("LOCKS_NAMES", "locks --raw-names"),
        format("LOCKS_FORMAT", "locks --json"),
        stop("LOCKS_STOP"),
    ],
};

/// Shows what blocks the thread pool.
pub static STARVATION: Profiler = Profiler {
    name: "starvation",
    type_name: "Starvation",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0D}",
    summary: "shows which code blocks the thread pool while it is starved",
    loading: Loading::Either,
    prefix: "STARVATION",
    settings: &[
        by_option("STARVATION_TOP", ROWS, "10", "starvation --top N", "rows of the table"),
        by_option("STARVATION_DEPTH", DEPTH, "12", "starvation --depth N", "frames of a printed stack"),
        by_option("STARVATION_OUT", PROFILES, "", "starvation --output FILE", "a file with the blocked stacks"),
        by_option(
            "STARVATION_HZ",
            Kind::Number { least: 0.1, most: 1_000.0 },
            "20",
            "starvation --rate HZ",
            "samplings per second while the pool is starved. Nothing is stopped otherwise",
        ),
        names("STARVATION_NAMES", "starvation --raw-names"),
        format("STARVATION_FORMAT", "starvation --json"),
        stop("STARVATION_STOP"),
    ],
};

/// Compares heaps.
pub static LEAKS: Profiler = Profiler {
    name: "leaks",
    type_name: "Leaks",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A1F}",
    summary: "compares two snapshots of the heap: what has grown, and what keeps it",
    loading: Loading::Either,
    prefix: "LEAKS",
    settings: &[
        by_option(
            "LEAKS_FIRST",
            Kind::Number { least: 0.0, most: 1e7 },
            "5",
            "leaks --first SECONDS",
            "seconds until the first snapshot. Caches should be full by then",
        ),
        by_option(
            "LEAKS_SECONDS",
            Kind::Number { least: 0.0, most: 1e7 },
            "30",
            "leaks --duration SECONDS",
            "seconds between the two snapshots",
        ),
        by_option(
            "LEAKS_TOP",
            Kind::Count { least: 1, most: 1000 },
            "5",
            "leaks --top N",
            "groups of objects to print, those that have grown most first",
        ),
        by_option("LEAKS_OUT", PAGE, "", "leaks --output FILE", "a page about the second heap"),
        by_option(
            "LEAKS_NAMES",
            Kind::Word(&["source", "raw"]),
            "source",
            "leaks --raw-names",
            "`source` names what a compiler has made by what was written, `Shop.Load (closure)`; `raw` as the runtime does, \
             `Shop.<>c__DisplayClass3_0`",
        ),
        format("LEAKS_FORMAT", "leaks --json"),
        stop("LEAKS_STOP"),
    ],
};

/// Counts calls.
pub static COUNT_CALLS: Profiler = Profiler {
    name: "count_calls",
    type_name: "CountCalls",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A13}",
    summary: "counts the calls of each method, by a number in memory",
    loading: Loading::Either,
    prefix: "COUNT_CALLS",
    settings: &[
        setting("COUNT_CALLS_FILTER", Kind::Glob, "*", "the methods to count, by their names as they are printed"),
        stop("COUNT_CALLS_STOP"),
    ],
};

/// Prints calls with values.
pub static TRACE_VALUES: Profiler = Profiler {
    name: "trace_values",
    type_name: "TraceValues",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0E}",
    summary: "prints each call of chosen methods, with arguments and result",
    loading: Loading::Either,
    prefix: "TRACE_VALUES",
    settings: &[
        setting(
            "TRACE_VALUES",
            Kind::Glob,
            "*",
            "the methods to print. Those in the namespaces `System` and `Microsoft` are never printed",
        ),
        setting(
            "TRACE_VALUES_BY",
            HOOKED_BY,
            "il",
            "as `TIMER_BY`. By the runtime, all methods are compiled, and each call takes longer",
        ),
    ],
};

/// Writes the stacks of all threads.
pub static STACKS: Profiler = Profiler {
    name: "stacks",
    type_name: "Stacks",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A09}",
    summary: "writes the stacks of all threads, for corprof stacks",
    loading: Loading::ByAttach,
    prefix: "STACKS",
    settings: &[
        setting(
            "STACKS_OUT",
            Kind::Path,
            "",
            "the file to write; the process id is appended to its name. Without it, standard error",
        ),
        by_option(
            "STACKS_STACKS",
            Kind::Word(&["async", "physical"]),
            "async",
            "stacks --physical",
            "`async`: under a resumed async method of a thread that waits stand those that await it; `physical`: stacks as threads have them",
        ),
    ],
};

/// Counts processor time.
pub static TOP: Profiler = Profiler {
    name: "top",
    type_name: "Top",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A0A}",
    summary: "counts the processor time of methods, for corprof top",
    loading: Loading::ByAttach,
    prefix: "TOP",
    settings: &[
        setting(
            "TOP_OUT",
            Kind::Path,
            "",
            "the file that is replaced each second; the process id is appended to its name. `corprof top` renews the file \
             `TOP_OUT.lease`",
        ),
        by_option(
            "TOP_HZ",
            Kind::Number { least: 0.01, most: 10_000.0 },
            "100",
            "top --rate HZ",
            "rounds of sampling per second",
        ),
        by_option(
            "TOP_BUDGET",
            Kind::Number { least: 0.01, most: 100.0 },
            "2",
            "top --budget PERCENT",
            "the highest overhead, in per cent of the application's time",
        ),
        by_option(
            "TOP_LINES",
            Kind::Word(&["off", "on"]),
            "off",
            "top --lines",
            "count source lines in place of methods, where a portable PDB beside the module or in it tells",
        ),
        stacks("TOP_STACKS", "top --physical, --async-probe"),
        names("TOP_NAMES", "top --raw-names"),
    ],
};

/// Writes a heap.
pub static DUMPER: Profiler = Profiler {
    name: "dumper",
    type_name: "Dumper",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A2D}",
    summary: "writes a snapshot of the heap, for corprof heap",
    loading: Loading::ByAttach,
    prefix: "HEAP",
    settings: &[
        setting(
            "HEAP_OUT",
            Kind::Path,
            "",
            "an empty file that the reader has open: the profiler removes its name and writes the blocks of the heap into it. The \
             description is a file with the process id appended to its name. `corprof heap` also makes the file `HEAP_OUT.wanted`",
        ),
        setting("HEAP_TASKS", Kind::Word(&["no", "yes"]), "no", "`yes` adds fields of tasks, for `corprof tasks`"),
    ],
};

/// Samples allocations after an attach, when the runtime does not report every object.
pub static ALLOCATION_SAMPLES: Profiler = Profiler {
    name: "allocation_samples",
    type_name: "AllocationSamples",
    clsid: "{4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A2E}",
    summary: "samples allocated objects, for corprof allocations PID",
    loading: Loading::ByAttach,
    prefix: "ALLOCATIONS",
    settings: ALLOCATION_SETTINGS,
};
