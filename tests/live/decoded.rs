//! The tables and the typed views of corprof-events against events of real runtimes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use corprof_diagnostics::{Process, Provider, Rundown, SessionConfig};
use corprof_nettrace::Reader;
use corprof_nettrace::events::views::*;
use corprof_nettrace::events::{Event, KeywordSet, Keywords, Level, Provider as Writer, Value, View};
use corprof_tests::{Difference, Run, Runtime, ensure_or_longer, patiently};

use crate::diagnostics::{PATIENCE, Program, command, runtimes};

/// The application's actions while the session runs.
const COMMANDS: [&str; 7] = ["collect", "throw", "compact", "allocate", "contend", "pool", "sleep"];

/// Events that these actions cause.
const EXPECTED: [&str; 26] = [
    "ContentionStart",
    "ContentionStop",
    "ExceptionThrown",
    "GCEnd",
    "GCGlobalHeapHistory",
    "GCHeapStats",
    "GCLOHCompact",
    "GCPerHeapHistory",
    "GCRestartEEBegin",
    "GCRestartEEEnd",
    "GCStart",
    "GCSuspendEEBegin",
    "GCSuspendEEEnd",
    "GCTriggered",
    "MethodDCEndILToNativeMap",
    "MethodDCEndVerbose",
    "MethodJittingStarted",
    "MethodLoadVerbose",
    "ModuleDCEnd",
    "AssemblyDCEnd",
    "DomainModuleDCEnd",
    "AppDomainDCEnd",
    "RuntimeInformationRundown",
    "ThreadPoolWorkerThreadStart",
    "PrvSetGCHandle",
    "ThreadSample",
];

/// Every keyword, but those that have the runtime dump its heap.
fn keywords() -> u64 {
    let dump = KeywordSet::HEAP_DUMP.keywords().bits() & !Keywords::GC.bits() & !Keywords::TYPE.bits();
    let named = Keywords::ALL.names().filter_map(Keywords::of).fold(Keywords::NONE, |all, one| all | one);
    named.bits() & !dump
}

/// Notes whether the event is one of the view, and can be read as such.
fn typed<'a, V: View<'a>>(event: &Event<'a>, seen: &mut BTreeSet<&'static str>) -> Result<()> {
    match event.decode::<V>() {
        Ok(_) => drop(seen.insert(std::any::type_name::<V>())),
        Err(corprof_nettrace::events::DecodeError::OtherEvent { .. }) => {}
        Err(error) => return Err(error).with_context(|| format!("{} {}", event.name(), event.version())),
    }
    Ok(())
}

macro_rules! views {
    ($($view:ty),* $(,)?) => {
        /// Reads the event as each of the views.
        fn as_views<'a>(event: &Event<'a>, seen: &mut BTreeSet<&'static str>) -> Result<()> {
            $(typed::<$view>(event, seen)?;)*
            Ok(())
        }
    };
}

views!(
    GcTriggered,
    GcStart,
    GcEnd,
    GcSuspendBegin,
    GcSuspendEnd,
    GcRestartEnd,
    GcHeapStats,
    GcJoin,
    GcGlobalHeapHistory<'a>,
    GcPerHeapHistory<'a>,
    GcAllocationTick<'a>,
    AllocationSampled<'a>,
    ContentionStart,
    ContentionStop,
    ContentionLockCreated,
    ExceptionThrown<'a>,
    ThreadCreated,
    ThreadPoolWorkerThreadStart,
    ThreadPoolWorkerThreadStop,
    ThreadPoolWorkerThreadWait,
    ThreadPoolWorkerThreadAdjustment,
    ThreadPoolMinMaxThreads,
    ThreadPoolEnqueue,
    ThreadPoolDequeue,
    WaitHandleWaitStart,
    WaitHandleWaitStop,
    MethodJittingStarted<'a>,
    MethodLoadVerbose<'a>,
    MethodDCEndVerbose<'a>,
    ModuleLoad<'a>,
    ModuleDCEnd<'a>,
    AssemblyLoad<'a>,
    AssemblyLoadStart<'a>,
    AssemblyLoadStop<'a>,
    TieredCompilationPause,
    TieredCompilationResume,
    TieredCompilationBackgroundJitStart,
    TieredCompilationBackgroundJitStop,
    BulkType<'a>,
);

#[test]
fn every_event_of_a_runtime_has_the_fields_that_the_tables_give_it() -> Result<()> {
    patiently(runtimes()?, check)
}

fn check(runtime: &Runtime, times: u64) -> Result<()> {
    let mut program = Program::ready(command(runtime)?)?;
    let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
    let providers = [
        Provider::new(Provider::RUNTIME, keywords(), Level::Verbose),
        Provider::new(Writer::PRIVATE.name(), u64::MAX, Level::Verbose),
        Provider::new(Writer::SAMPLE_PROFILER.name(), u64::MAX, Level::Informational),
    ];
    let config = SessionConfig::new(providers).with_buffer_mb(1024).with_rundown(Rundown::Default);
    let mut session = client.start_session(&config)?;
    session.set_read_timeout(Some(PATIENCE));
    for what in COMMANDS {
        program.tell(&format!("{what} {}", 3 * times))?;
    }
    session.stop()?;
    let mut reader = Reader::new(session);
    let mut names = BTreeMap::<String, u64>::new();
    let mut views = BTreeSet::new();
    let mut wrong = BTreeMap::<String, String>::new();
    while let Some(event) = reader.next_event()? {
        let event = event.decoded();
        if ![Writer::RUNTIME, Writer::RUNDOWN, Writer::PRIVATE, Writer::SAMPLE_PROFILER].contains(&event.provider()) {
            continue;
        }
        let name = event.name().to_string();
        if !event.is_exact() {
            let id = event.id();
            let version = event.version();
            let bytes = event.payload();
            wrong.entry(format!("{name} {id}")).or_insert_with(|| format!("version {version}: {bytes:02x?}"));
        }
        *names.entry(name).or_default() += 1;
        as_views(&event, &mut views)?;
    }
    println!("{runtime}: {} kinds of events, {} views: {names:?}", names.len(), views.len());
    ensure!(wrong.is_empty(), "{runtime}: not as the tables say: {wrong:#?}");
    let missing: Vec<&&str> = EXPECTED.iter().filter(|name| !names.contains_key(**name)).collect();
    ensure_or_longer!(missing.is_empty(), "no {missing:?} among {names:?}");
    let allocations =
        if runtime.has(Difference::SampledAllocations) { "AllocationSampled" } else { "GCAllocationTick" };
    ensure_or_longer!(names.contains_key(allocations), "no {allocations} among {names:?}");
    ensure_or_longer!(
        names.contains_key("WaitHandleWaitStart") || !runtime.has(Difference::EventsOfWaits),
        "no waits among {names:?}"
    );
    Ok(())
}

/// The events of tests/managed/modern/Described.cs: provider, event, fields; and the payload of those that are not as
/// described.
const DESCRIBED: [(&str, &str, &str, &str); 15] = [
    ("Corprof-Manifest", "Bools", "a=true b=false s=\"text\"", ""),
    ("Corprof-Manifest", "Letter", "c=\"x\" after=55", ""),
    ("Corprof-Manifest", "Small", "a=200 b=-3", ""),
    ("Corprof-Manifest", "Wide", "a=-5 b=6", ""),
    ("Corprof-Manifest", "Bytes", "", "0b0000000300000001020316000000"),
    ("Corprof-Manifest", "Enums", "id=1", "010000006e000000c800000005"),
    ("Corprof-SelfDescribing", "Bools", "a=false b=true s=\"text\"", ""),
    ("Corprof-SelfDescribing", "Mixed", "n=5 a=true s=\"text\" c=false", ""),
    ("Corprof-SelfDescribing", "Lists", "flags=[true, false] letters=\"ab\" after=4", ""),
    ("Corprof-SelfDescribing", "Amount", "d=1.5 s=\"text\"", ""),
    ("Corprof-SelfDescribing", "Duration", "", "80969800000000007a000000"),
    ("Corprof-SelfDescribing", "Nested", "={inner={Name=\"in\" Flag=true} after=5}", ""),
    ("Corprof-SelfDescribing", "Nullable", "", "010500000004000000"),
    ("Corprof-SelfDescribing", "Moment", "", "80004074947bdc010000000000000000"),
    ("Corprof-SelfDescribing", "Empty", "", ""),
];

#[test]
fn events_that_are_described_wrongly_have_their_values_or_their_bytes() -> Result<()> {
    let modern = Runtime::all_for_modern("Described")?;
    for runtime in modern.iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()) {
        let mut program = Program::ready(Run::new(runtime, "Described").command()?)?;
        let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
        let providers =
            ["Corprof-Manifest", "Corprof-SelfDescribing"].map(|name| Provider::new(name, u64::MAX, Level::Verbose));
        let mut session = client.start_session(&SessionConfig::new(providers).with_rundown(Rundown::None))?;
        session.set_read_timeout(Some(PATIENCE));
        program.tell("write")?;
        session.stop()?;
        let mut reader = Reader::new(session);
        let mut found = Vec::new();
        while let Some(event) = reader.next_event()? {
            let event = event.decoded();
            if !event.provider().name().starts_with("Corprof-") {
                continue;
            }
            let fields: Vec<String> = event.fields().map(|(name, value)| format!("{name}={value}")).collect();
            let bytes = if event.is_exact() { String::new() } else { Value::Bytes(event.payload()).to_string() };
            found.push((event.provider().name().to_owned(), event.name().to_string(), fields.join(" "), bytes));
        }
        let expected = DESCRIBED.map(|(provider, name, fields, bytes)| {
            (provider.to_owned(), name.to_owned(), fields.to_owned(), bytes.to_owned())
        });
        ensure!(found == expected, "{runtime}: {found:#?}");
    }
    Ok(())
}
