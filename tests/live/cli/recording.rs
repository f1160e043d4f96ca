//! `corprof record -o FILE.nettrace`: every sample with its time.

use std::collections::{BTreeMap, HashMap, HashSet};

use corprof_nettrace::Reader;
use corprof_nettrace::events::Provider;
use corprof_nettrace::events::universal::{ExistingProcess, Measured, ProcessMapping, ProcessSymbol};
use corprof_nettrace::events::views::{AllocationSampled, ExceptionThrown, GcAllocationTick, GcSuspendBegin};
use corprof_tests::{ensure_or_longer, patiently, repetitions};

use super::*;

/// How far a share may be off, in per cent of the whole, if there are enough samples.
const POINTS: f64 = 3.0;
/// As many samples of the same weight are enough: three standard deviations of a share of 60 % are [`POINTS`] then.
const SAMPLES: f64 = 2400.0;

/// How far a share may be off with so many samples of the same weight: three standard deviations of a share of 60 %.
fn tolerance(samples: f64) -> f64 {
    POINTS.max(POINTS * (SAMPLES / samples).sqrt())
}

/// A sample, with the names of its stack, the innermost first.
struct Recorded {
    ticks: u64,
    is_waiting: bool,
    value: u64,
    thread: String,
    os_id: u64,
    process: u64,
    stack: Vec<String>,
}

/// An event of the runtime.
struct RuntimeEvent {
    id: u32,
    /// What it is about: a type, or the reason of a pause.
    about: String,
    thread: u64,
    payload: usize,
    stack: Vec<String>,
}

/// A recording, as a reader sees it that knows addresses by their symbols alone.
#[derive(Default)]
pub(super) struct Recording {
    process: Option<String>,
    files: HashMap<u64, String>,
    /// By the first address: the last one, the mapping, the name.
    symbols: BTreeMap<u64, (u64, u64, String)>,
    samples: Vec<Recorded>,
    events: Vec<RuntimeEvent>,
    lost: u64,
    is_whole: bool,
    bytes: u64,
}

impl Recording {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let mut recording = Self { bytes: fs::metadata(file)?.len(), ..Self::default() };
        let mut stacks: Vec<Vec<u64>> = Vec::new();
        let mut event_stacks: Vec<Vec<u64>> = Vec::new();
        let mut reader = Reader::new(fs::File::open(file)?);
        let mut last = 0;
        loop {
            let event = match reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => {
                    recording.is_whole = true;
                    break;
                }
                Err(_) => break,
            };
            let ticks = event.ticks();
            ensure!(ticks >= last, "{ticks} comes after {last}");
            last = ticks;
            let decoded = event.decoded();
            let name = event.metadata().name.as_str();
            if decoded.provider() == Provider::UNIVERSAL_EVENTS {
                let thread = event.thread_info().context("no thread")?;
                recording.samples.push(Recorded {
                    ticks,
                    is_waiting: name != Measured::CPU,
                    value: decoded.decode::<Measured>()?.value,
                    thread: thread.name.clone().unwrap_or_default(),
                    os_id: thread.os_thread_id.context("no number of the thread")?,
                    process: event.process_id().context("no process")?,
                    stack: Vec::new(),
                });
                stacks.push(event.stack().addresses().collect());
                continue;
            }
            if decoded.provider() == Provider::RUNTIME {
                let about = if let Ok(thrown) = decoded.decode::<ExceptionThrown<'_>>() {
                    thrown.exception_type.to_string()
                } else if let Ok(sampled) = decoded.decode::<AllocationSampled<'_>>() {
                    sampled.type_name.to_string()
                } else if let Ok(tick) = decoded.decode::<GcAllocationTick<'_>>() {
                    tick.type_name.to_string()
                } else if let Ok(begin) = decoded.decode::<GcSuspendBegin>() {
                    begin.reason.to_string()
                } else {
                    String::new()
                };
                recording.events.push(RuntimeEvent {
                    id: event.metadata().event_id,
                    about,
                    thread: event.os_thread_id().unwrap_or_default(),
                    payload: event.payload().len(),
                    stack: Vec::new(),
                });
                event_stacks.push(event.stack().addresses().collect());
                continue;
            }
            match name {
                ExistingProcess::NAME => {
                    recording.process = Some(decoded.decode::<ExistingProcess<'_>>()?.name.to_string());
                }
                ProcessMapping::NAME => {
                    let mapping = decoded.decode::<ProcessMapping<'_>>()?;
                    ensure!(mapping.start_address < mapping.end_address, "{mapping:?}");
                    let before = recording.files.insert(mapping.id, mapping.file_name.to_string());
                    ensure!(before.is_none(), "two mappings are {}", mapping.id);
                }
                ProcessSymbol::NAME => {
                    let ProcessSymbol { mapping_id, start_address, end_address, name, .. } = decoded.decode()?;
                    let symbol = (end_address, mapping_id, name.to_string());
                    let before = recording.symbols.range(..=end_address).next_back();
                    ensure!(before.is_none_or(|(_, before)| before.0 < start_address), "{symbol:?} is on {before:?}");
                    recording.symbols.insert(start_address, symbol);
                }
                other => anyhow::bail!("an event {other}"),
            }
        }
        recording.lost = reader.stats().lost;
        for (event, stack) in recording.events.iter_mut().zip(event_stacks) {
            event.stack = stack.iter().map(|address| name_of(&recording.symbols, *address)).collect();
        }
        for (sample, stack) in recording.samples.iter_mut().zip(stacks) {
            sample.stack = stack.iter().map(|address| name_of(&recording.symbols, *address)).collect();
        }
        Ok(recording)
    }

    /// The samples of running threads below a method.
    fn below<'a>(&'a self, method: &'a str) -> impl Iterator<Item = &'a Recorded> {
        self.samples.iter().filter(move |sample| !sample.is_waiting && sample.has(method))
    }

    /// As many samples of the same weight have the chance of these below a method.
    fn sharpness(&self, method: &str) -> f64 {
        let sum = |power| self.below(method).map(|sample| (sample.value as f64).powi(power)).sum::<f64>();
        sum(1).powi(2) / sum(2).max(1.0)
    }

    /// The weight of the samples below a method, in per cent of those below another.
    fn share(&self, method: &str, of: &str) -> f64 {
        let sum = |method| self.below(of).filter(|sample| sample.has(method)).map(|sample| sample.value).sum::<u64>();
        100.0 * sum(method) as f64 / sum(of) as f64
    }

    /// Whether a stack has this as its outermost frame.
    pub(super) fn has_outermost(&self, name: &str) -> bool {
        self.samples.iter().any(|sample| sample.stack.last().is_some_and(|outermost| outermost == name))
    }

    /// The stacks as lines of a folded profile.
    pub(super) fn folded(&self) -> String {
        let line = |sample: &Recorded| {
            let frames: Vec<_> = sample.stack.iter().rev().map(String::as_str).collect();
            format!("{} {}\n", frames.join(";"), sample.value)
        };
        self.samples.iter().filter(|sample| !sample.is_waiting).map(line).collect()
    }
}

impl Recorded {
    fn has(&self, method: &str) -> bool {
        self.stack.iter().any(|name| name.starts_with(method))
    }
}

fn name_of(symbols: &BTreeMap<u64, (u64, u64, String)>, address: u64) -> String {
    let found = symbols.range(..=address).next_back().filter(|(_, (end, ..))| address <= *end);
    found.map_or_else(|| format!("{address:#x}"), |(_, (_, _, name))| name.clone())
}

/// `corprof record -o FILE OPTIONS -- APPLICATION`.
fn record(runtime: &Runtime, file: &Path, options: &[&str], app: &str) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(options).arg("--").args(application(runtime, app)?);
    Ok(command)
}

#[test]
fn samples_have_their_times_threads_and_names() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("app.nettrace");
        let begin = Instant::now();
        let mut command = record(runtime, &file, &["--rate", "1000"], "Shares")?;
        let output = command.arg((2000 * times).to_string()).arg("2").output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{output:?}");
        ensure!(stderr.contains("app.nettrace is written") && stderr.contains("Shares.Burn"), "{stderr}");
        let recording = Recording::read(&file)?;
        ensure!(recording.is_whole && recording.process.as_deref() == Some("Shares"), "{:?}", recording.process);
        let burnt: Vec<_> = recording.below("Shares.Works(int)").collect();
        let sharpness = recording.sharpness("Shares.Works(int)");
        let enough = repetitions(SAMPLES / 6.0, SAMPLES);
        ensure_or_longer!(sharpness >= enough, "{sharpness:.0} of {} samples: {stderr}", burnt.len());
        for (method, percent) in [("Shares.Sixty()", 60.0), ("Shares.Thirty()", 30.0), ("Shares.Ten()", 10.0)] {
            let share = recording.share(method, "Shares.Works(int)");
            ensure!((share - percent).abs() <= tolerance(sharpness), "{method} has {share:.1} %: {stderr}");
        }
        let unnamed = recording.samples.iter().flat_map(|sample| &sample.stack).filter(|name| name.starts_with("0x"));
        ensure!(unnamed.count() == 0, "addresses without a symbol");
        // Threads have names, numbers, and the process.
        let threads: HashSet<_> = burnt.iter().map(|sample| sample.thread.as_str()).collect();
        ensure!(threads == HashSet::from(["worker 0", "worker 1"]), "{threads:?}");
        let ids: HashSet<_> = burnt.iter().map(|sample| (sample.os_id, sample.process)).collect();
        ensure!(ids.len() == 2 && ids.iter().all(|(_, process)| *process == burnt[0].process), "{ids:?}");
        // Each has its own time, and these are spread over the run.
        let moments: HashSet<_> = burnt.iter().map(|sample| sample.ticks).collect();
        ensure!(moments.len() * 10 > burnt.len() * 9, "{} moments of {} samples", moments.len(), burnt.len());
        let [first, last] = [burnt.first(), burnt.last()].map(|sample| sample.map_or(0, |sample| sample.ticks));
        let spread = Duration::from_nanos(last - first);
        ensure!(spread > Duration::from_secs(1) && spread < begin.elapsed(), "{spread:?} of {:?}", begin.elapsed());
        let bytes = recording.bytes as f64 / recording.samples.len() as f64;
        println!("{runtime}: {bytes:.1} bytes a sample, {} samples", recording.samples.len());
        // Names are written once.
        ensure_or_longer!(bytes <= 30.0, "{bytes} bytes a sample, {} samples", recording.samples.len());
        Ok(())
    })
}

#[test]
fn a_running_process_is_recorded_with_waits_apart() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.nettrace");
        let program = diagnosed(runtime, None)?;
        let pid = program.child.id();
        let mut command = corprof()?;
        let options = ["--mode", "wall", "--duration", &times.to_string(), "-p", &pid.to_string()];
        let output = command.arg("record").arg("-o").arg(&file).args(options).output()?;
        ensure!(output.status.success(), "{output:?}");
        let recording = Recording::read(&file)?;
        ensure!(recording.is_whole, "no end");
        let main = recording.samples.iter().filter(|sample| sample.os_id == u64::from(pid));
        let waits = main.filter(|sample| sample.is_waiting && sample.has("Diagnosed.Main(")).count();
        ensure_or_longer!(waits > 10, "{waits} waits of the main thread in {} samples", recording.samples.len());
        ensure!(recording.below("Diagnosed.Main(").count() == 0, "a wait is said to run");
        program.end()?;
        Ok(())
    })
}

#[test]
fn threads_that_run_and_those_that_wait_have_a_sampler_each() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("both.nettrace");
        let mut command = record(runtime, &file, &["--rate", "500", "--events", "cpu,wall"], "Shares")?;
        let output = command.arg((1800 * times).to_string()).arg("2").output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success() && stderr.contains("samples of threads that wait"), "{output:?}");
        let recording = Recording::read(&file)?;
        // Those that run are sampled as without the others.
        let sharpness = recording.sharpness("Shares.Works(int)");
        ensure_or_longer!(sharpness >= SAMPLES / 8.0, "{sharpness:.0} samples: {stderr}");
        let share = recording.share("Shares.Sixty()", "Shares.Works(int)");
        ensure!((share - 60.0).abs() <= tolerance(sharpness), "Sixty has {share:.1} %: {stderr}");
        // The samples of a thread that does little but wait stand for its time.
        let in_waits = recording.samples.iter().filter(|sample| sample.has("Shares.Waits()"));
        let (waits, runs): (Vec<_>, Vec<_>) = in_waits.partition(|sample| sample.is_waiting);
        let time = |samples: &[&Recorded]| {
            let intervals: u64 = samples.iter().map(|sample| sample.value).sum();
            Duration::from_millis(2 * intervals)
        };
        let [waited, ran] = [&waits, &runs].map(|samples| time(samples));
        ensure!(ran < waited / 20, "a wait is said to run: {ran:?} of {waited:?}");
        let [first, last] = [waits.first(), waits.last()].map(|sample| sample.map_or(0, |sample| sample.ticks));
        let spread = Duration::from_nanos(last - first);
        ensure_or_longer!(waits.len() > 5 && spread > Duration::from_millis(500), "{} waits: {stderr}", waits.len());
        // On a busy machine it also waits for a processor.
        ensure!(waited > spread.mul_f64(0.6) && waited < spread.mul_f64(1.5), "{waited:?} in {spread:?}: {stderr}");
        Ok(())
    })
}

#[test]
fn code_that_takes_the_memory_of_other_code_has_its_own_name() -> Result<()> {
    const CALLED: [(&str, &str, &str); 2] = [
        ("Recycled.InEven(", "<dynamic method Even>", "<dynamic method Odd>"),
        ("Recycled.InOdd(", "<dynamic method Odd>", "<dynamic method Even>"),
    ];
    patiently(runtimes()?, |runtime, times| {
        let recorded = |rate: &str| -> Result<Recording> {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.nettrace");
            let mut command = record(runtime, &file, &["--rate", rate], "Recycled")?;
            has_recorded(&command.args([&(120 * times).to_string(), "20"]).output()?)?;
            Recording::read(&file)
        };
        // A sample is read in the next round. With few rounds, its method has ended by then, and has no name any more.
        let [often, seldom] = [recorded("500")?, recorded("20")?];
        for (method, own, other) in CALLED {
            for sample in often.below(method).chain(seldom.below(method)) {
                ensure!(!sample.has(other), "{method} is called by {:?}", sample.stack);
            }
            let all = often.below(method).count();
            ensure_or_longer!(all > 100 && seldom.below(method).count() > 4, "{all} samples below {method}");
            let named = often.below(method).filter(|sample| sample.has(own)).count();
            ensure!(named * 4 >= all * 3, "{named} of {all} samples below {method} have its caller");
        }
        let moved = often.files.iter().find(|(_, file)| file.ends_with("(memory used again)"));
        let moved = moved.context("no memory was used again")?.0;
        let count = often.symbols.values().filter(|(_, mapping, _)| mapping == moved).count();
        ensure!(count > 0, "no symbol of memory that was used again");
        Ok(())
    })
}

#[test]
fn the_runtimes_events_have_stacks_and_are_in_order_of_time() -> Result<()> {
    const EXCEPTION: u32 = 80;
    const GC_START: u32 = 1;
    const CONTENTION: u32 = 81;
    patiently(runtimes()?, |runtime, longer| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.nettrace");
        let options = ["--events", "wall,alloc,lock,exception,gc"];
        let mut program = Program::start(record(runtime, &file, &options, "Diagnosed")?)?;
        program.expect("ready")?;
        // The session begins a moment after the application.
        thread::sleep(Duration::from_secs(longer));
        for order in ["throw 2", "collect 1", "contend 1", "allocate 1", "throw 1"] {
            program.tell(order)?;
        }
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.contains("events of the runtime"), "{runtime}: {code:?}: {stderr}");
        let recording = Recording::read(&file)?;
        ensure!(recording.is_whole && recording.lost == 0, "{runtime}: {} lost", recording.lost);
        let has = |event: &RuntimeEvent, method: &str| event.stack.iter().any(|name| name.starts_with(method));
        let of = |id: u32| recording.events.iter().enumerate().filter(move |(_, event)| event.id == id);
        let thrown: Vec<_> = of(EXCEPTION).filter(|(_, event)| has(event, "Diagnosed.Throw()")).collect();
        let types: HashSet<_> = thrown.iter().map(|(_, event)| event.about.as_str()).collect();
        ensure!(thrown.len() == 3 && types == HashSet::from(["System.InvalidOperationException"]), "{types:?}");
        let collection = of(GC_START).find(|(_, event)| has(event, "Diagnosed.Main()"));
        let (collected, collection) = collection.with_context(|| format!("{runtime}: no collection with a stack"))?;
        ensure!(collection.thread == thrown[0].1.thread, "{runtime}: {} collects", collection.thread);
        ensure!(thrown[1].0 < collected && collected < thrown[2].0, "{runtime}: not in order");
        let contention = of(CONTENTION).find(|(_, event)| event.stack.iter().any(|name| name.contains("Contend")));
        ensure!(contention.is_some(), "{runtime}: no contention with a stack");
        let allocates = |event: &RuntimeEvent| has(event, "Diagnosed.Allocate()") && event.about == "System.Byte[]";
        ensure!(recording.events.iter().any(allocates), "{runtime}: no allocation with a stack");
        ensure_or_longer!(recording.samples.iter().any(|sample| sample.is_waiting), "no samples");
        Ok(())
    })
}

/// A sampler suspends the runtime for its samples, which the runtime tells as it tells of collections.
#[test]
fn pauses_are_those_of_collections_and_one_walk_is_enough_for_an_exception() -> Result<()> {
    const SUSPEND_BEGIN: u32 = 9;
    const RESTART_END: u32 = 3;
    const CATCH_START: u32 = 250;
    const COLLECTIONS: usize = 5;
    patiently(runtimes()?, |runtime, longer| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.nettrace");
        let options = ["--events", "wall,exception,gc", "--rate", "200"];
        let mut program = Program::start(record(runtime, &file, &options, "Diagnosed")?)?;
        program.expect("ready")?;
        thread::sleep(Duration::from_secs(longer));
        program.tell(&format!("collect {COLLECTIONS}"))?;
        program.tell("throw 5")?;
        thread::sleep(Duration::from_secs(longer));
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let recording = Recording::read(&file)?;
        let of = |id: u32| recording.events.iter().filter(move |event| event.id == id);
        let reasons: HashSet<_> = of(SUSPEND_BEGIN).map(|event| event.about.as_str()).collect();
        let is_of_collections = reasons.iter().all(|reason| reason.contains("collection"));
        ensure!(is_of_collections && !reasons.is_empty(), "{runtime}: {reasons:?}");
        let [begun, ended] = [SUSPEND_BEGIN, RESTART_END].map(|id| of(id).count());
        // The session may begin within a pause.
        ensure!(begun >= COLLECTIONS && ended.abs_diff(begun) <= 1, "{runtime}: {begun} begun, {ended} ended");
        let [catches, walked] = [of(CATCH_START).count(), of(CATCH_START).filter(|it| !it.stack.is_empty()).count()];
        ensure!(catches >= 5 && walked == 0, "{runtime}: {walked} of {catches} catches have a stack");
        let pauses = recording.samples.iter().map(|sample| sample.ticks).collect::<HashSet<_>>().len();
        ensure_or_longer!(pauses > 4 * begun, "only {pauses} moments were sampled, beside {begun} collections");
        Ok(())
    })
}

#[test]
fn many_events_cost_little_more_than_their_contents() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let mut sizes = Vec::new();
        for throws in [500, 4500] {
            let file = folder.path().join(format!("{throws}.nettrace"));
            let mut program = Program::start(record(&runtime, &file, &["--events", "exception"], "Diagnosed")?)?;
            program.expect("ready")?;
            thread::sleep(Duration::from_secs(1));
            program.tell(&format!("throw {throws}"))?;
            let (code, stderr) = program.end()?;
            ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
            let recording = Recording::read(&file)?;
            let thrown = recording.events.iter().filter(|event| event.id == 80).count();
            ensure!(thrown as u64 + recording.lost >= throws, "{runtime}: {thrown}, {} lost", recording.lost);
            let payloads: usize = recording.events.iter().map(|event| event.payload).sum();
            sizes.push((recording.events.len(), recording.bytes as usize - payloads));
        }
        let [(few, small), (many, large)] = sizes[..] else { anyhow::bail!("{sizes:?}") };
        let bytes = (large as f64 - small as f64) / (many as f64 - few as f64);
        println!("{runtime}: {bytes:.1} bytes an event beside its payload");
        ensure!(bytes <= 15.0, "{runtime}: {bytes:.1} bytes an event: {sizes:?}");
    }
    Ok(())
}

#[test]
fn a_running_process_tells_its_events() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.nettrace");
        let mut program = diagnosed(&runtime, None)?;
        let mut command = corprof()?;
        command.args(["record", "-p", &program.child.id().to_string(), "--events", "exception,gc", "-o"]).arg(&file);
        let mut recording = command.stderr(Stdio::piped()).spawn()?;
        appears(folder.path(), ".nettrace", || program.tell("throw 1"))?;
        program.tell("throw 5")?;
        program.tell("collect 1")?;
        signal(recording.id(), "-INT")?;
        ensure!(recording.wait()?.success(), "{runtime}");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let recording = Recording::read(&file)?;
        let has = |id: u32, method: &str| {
            let mut of = recording.events.iter().filter(|event| event.id == id);
            of.any(|event| event.stack.iter().any(|name| name.starts_with(method)))
        };
        ensure!(recording.is_whole && has(80, "Diagnosed.Throw()") && has(1, "Diagnosed.Main()"), "{runtime}");
    }
    Ok(())
}

/// Waits until there is a file that is not empty, and does `meanwhile` in between.
fn appears(folder: &Path, ending: &str, mut meanwhile: impl FnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut files = fs::read_dir(folder)?.filter_map(Result::ok);
        let is_it = |entry: &fs::DirEntry| {
            entry.file_name().to_string_lossy().ends_with(ending) && entry.metadata().is_ok_and(|found| found.len() > 0)
        };
        if files.any(|entry| is_it(&entry)) {
            return Ok(());
        }
        ensure!(Instant::now() < end, "no file {ending}");
        meanwhile()?;
        thread::sleep(Duration::from_millis(50));
    }
}

/// The process has no chance to end its file.
#[test]
fn a_killed_process_leaves_what_it_has_written() -> Result<()> {
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.nettrace");
        let mut command = record(runtime, &file, &[], "Shares")?;
        let mut child = command.args(["60000", "1"]).stderr(Stdio::piped()).spawn()?;
        thread::sleep(Duration::from_secs(2 * times));
        let name = fs::read_dir(folder.path())?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let name = name.into_iter().find(|name| name.ends_with(".nettrace"));
        let pid = name.as_deref().and_then(|name| name.strip_prefix("p-")?.strip_suffix(".nettrace")?.parse().ok());
        if let Some(pid) = pid {
            signal(pid, "-KILL")?;
        } else {
            child.kill()?;
        }
        let output = child.wait_with_output()?;
        ensure_or_longer!(pid.is_some(), "no file after {} s", 2 * times);
        has_rounds(&output)?;
        let (_, stderr) = texts(&output);
        ensure!(stderr.contains("p.nettrace is written") && stderr.contains("the process died"), "{stderr}");
        let recording = Recording::read(&file)?;
        ensure!(!recording.is_whole, "it has an end");
        ensure_or_longer!(recording.below("Shares.Burn(int)").count() > 10, "{} samples", recording.samples.len());
        Ok(())
    })
}

#[test]
fn what_cannot_be_recorded_is_refused() -> Result<()> {
    // The command is built for this system only.
    if runtimes()?.is_empty() {
        return Ok(());
    }
    let push = ["-o", "p.nettrace", "--push", "pyroscope+http://localhost:4040"];
    for (options, said) in [
        (&push[..], "give -o another extension"),
        (&["-o", "p.nettrac"], ".nettrace"),
        (&["-o", "p.html", "--events", "gc"], "-o app.nettrace"),
        (&["-o", "p.nettrace", "--events", "gcs"], "exception"),
        (&["-o", "p.nettrace", "--mode", "wall", "--events", "cpu"], "contradict"),
        (&["-o", "p.html", "--loop", "1h"], "--loop needs a recording"),
        (&["-o", "p.html", "--max-size", "1M"], "--max-size needs a recording"),
        (&["-o", "p.nettrace", "--keep", "2"], "--keep needs --loop TIME or --max-size SIZE"),
        (&["-o", "p.nettrace", "--loop", "1w"], "90s, 5m, 1h"),
        (&["-o", "p.nettrace", "--loop", "0.5"], "at least 1s"),
        (&["-o", "p.nettrace", "--max-size", "10k"], "at least 1M"),
        (&["-o", "p.nettrace", "--loop", "1h", "--keep", "0"], "1..=1000000"),
    ] {
        let output = corprof()?.arg("record").args(options).args(["--", "sh", "-c", "echo ran"]).output()?;
        ensure!(output.status.code() == Some(2) && output.stdout.is_empty(), "{options:?}: {output:?}");
        ensure!(texts(&output).1.contains(said), "{options:?}: {output:?}");
    }
    Ok(())
}

/// The recordings of a folder, the oldest first.
fn recordings(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<_> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "nettrace"));
    files.sort();
    Ok(files)
}

/// Reads recordings that follow each other, each of which must be right by itself; and so must `corprof view` find.
fn read_each(files: &[PathBuf], event: &str, method: &str) -> Result<Vec<Recording>> {
    let mut recordings = Vec::new();
    for file in files {
        let recording = Recording::read(file)?;
        let path = file.display();
        ensure!(recording.is_whole && recording.process.is_some(), "{path}: whole: {}", recording.is_whole);
        let frames = recording.samples.iter().flat_map(|sample| &sample.stack);
        let frames = frames.chain(recording.events.iter().flat_map(|event| &event.stack));
        ensure!(frames.filter(|name| name.starts_with("0x")).count() == 0, "{path}: addresses without a symbol");
        // The last file may have nothing but the end of the application.
        let has_method = recording.samples.iter().any(|sample| sample.has(method));
        let output = corprof()?.arg("view").arg(file).args(["--event", event]).output()?;
        ensure!(output.status.success(), "{path}: {output:?}");
        ensure!(!has_method || texts(&output).0.contains(method), "{path}: {output:?}");
        recordings.push(recording);
    }
    for pair in recordings.windows(2) {
        // A file may have events alone.
        let (Some(before), Some(after)) = (pair[0].samples.last(), pair[1].samples.first()) else { continue };
        ensure!(
            before.ticks <= after.ticks,
            "a file begins at {}, the one before ends at {}",
            after.ticks,
            before.ticks
        );
    }
    Ok(recordings)
}

/// The longest time without a sample below a method, in files that follow each other.
fn longest_gap(recordings: &[Recording], method: &str) -> (Duration, Duration) {
    let ticks: Vec<Vec<u64>> =
        recordings.iter().map(|recording| recording.below(method).map(|sample| sample.ticks).collect()).collect();
    let longest = |ticks: &[u64]| ticks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    let within = ticks.iter().map(|ticks| longest(ticks)).max().unwrap_or(0);
    (Duration::from_nanos(longest(&ticks.concat())), Duration::from_nanos(within))
}

#[test]
fn files_follow_each_other_and_the_oldest_is_removed() -> Result<()> {
    const METHOD: &str = "Shares.Works(int)";
    patiently(runtimes()?, |runtime, times| {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("app.nettrace");
        let each = Duration::from_secs(times);
        let options = ["--rate", "500", "--loop", &each.as_secs().to_string(), "--keep", "2"];
        let mut command = record(runtime, &file, &options, "Shares")?;
        // Two whole files, and a part of the third.
        let output = command.arg((3000 * times).to_string()).arg("2").output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success() && stderr.contains("the newest of 2 files"), "{output:?}");
        ensure_or_longer!(stderr.contains("older files were removed"), "{stderr}");
        let files = recordings(folder.path())?;
        let left = fs::read_dir(folder.path())?.count();
        ensure!(files.len() == 2 && left == 2, "{} recordings, {left} files", files.len());
        let read = read_each(&files, "samples", "Shares.")?;
        ensure_or_longer!(read.iter().all(|one| one.below(METHOD).count() > 20), "few samples");
        let spans = read.iter().map(|one| {
            let [first, last] = [one.samples.first(), one.samples.last()].map(|s| s.map_or(0, |s| s.ticks));
            Duration::from_nanos(last - first)
        });
        let spans: Vec<_> = spans.collect();
        ensure!(spans.iter().all(|span| *span <= each), "{spans:?}");
        let (all, within) = longest_gap(&read, METHOD);
        println!("{runtime}: {spans:?}; no sample for {all:?} at most, within a file {within:?}");
        ensure_or_longer!(all <= within + Duration::from_millis(50), "{all:?} between files, {within:?} within");
        for one in &read {
            // Each has the threads, too.
            let threads: HashSet<_> = one.below(METHOD).map(|sample| sample.thread.as_str()).collect();
            ensure!(threads == HashSet::from(["worker 0", "worker 1"]), "{threads:?}");
        }
        Ok(())
    })
}

#[test]
fn a_running_process_is_recorded_in_files() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("app.nettrace");
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let mut command = corprof()?;
        command.args(["record", "-p", &pid, "--mode", "wall", "--loop", "1", "--duration", "3.5s", "-o"]).arg(&file);
        let output = command.output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        let files = recordings(folder.path())?;
        let is_named = |file: &PathBuf| {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&format!("app-{pid}-2")) && name.ends_with("Z.nettrace")
        };
        ensure!((3..=4).contains(&files.len()) && files.iter().all(is_named), "{runtime}: {files:?}");
        ensure!(texts(&output).1.contains(&format!("the newest of {} files", files.len())), "{output:?}");
        let read = read_each(&files, "waits", "Diagnosed.")?;
        let waits =
            |one: &Recording| one.samples.iter().any(|sample| sample.is_waiting && sample.has("Diagnosed.Main("));
        ensure!(read.iter().all(waits), "{runtime}: not each has the main thread");
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
    }
    Ok(())
}

/// More exceptions than a file of 1 MB has room for.
const MANY: u64 = 12_000;

/// Has an application throw, in some goes: events that wait take at most 16 MB.
fn throw_many(program: &mut Program) -> Result<()> {
    thread::sleep(Duration::from_secs(1));
    for _ in 0..8 {
        program.tell(&format!("throw {}", MANY / 8))?;
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

#[test]
fn a_full_file_is_followed_by_the_next() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("app.nettrace");
        let options = ["--events", "exception", "--max-size", "1M"];
        let mut program = Program::start(record(&runtime, &file, &options, "Diagnosed")?)?;
        program.expect("ready")?;
        throw_many(&mut program)?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        let files = recordings(folder.path())?;
        let read = read_each(&files, "exceptions", "")?;
        let sizes: Vec<_> = read.iter().map(|one| one.bytes).collect();
        println!("{runtime}: {sizes:?}");
        ensure!(sizes.len() > 1 && sizes.iter().all(|bytes| *bytes <= 1_000_000), "{runtime}: {sizes:?}");
        let thrown: Vec<_> = read.iter().flat_map(|one| &one.events).filter(|event| event.id == 80).collect();
        let lost: u64 = read.iter().map(|one| one.lost).sum();
        ensure!(thrown.len() as u64 + lost >= MANY, "{runtime}: {} thrown, {lost} lost", thrown.len());
        let has_stack = |event: &&RuntimeEvent| event.stack.iter().any(|name| name.starts_with("Diagnosed.Throw()"));
        ensure!(thrown.iter().filter(|event| has_stack(event)).count() as u64 + lost >= MANY, "{runtime}: stacks");
    }
    Ok(())
}

#[test]
fn the_only_file_to_keep_ends_the_recording_when_it_is_full() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("app.nettrace");
        let options = ["--events", "exception", "--max-size", "1M", "--keep", "1"];
        let mut program = Program::start(record(&runtime, &file, &options, "Diagnosed")?)?;
        program.expect("ready")?;
        throw_many(&mut program)?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0) && stderr.contains("the application runs on"), "{runtime}: {code:?}: {stderr}");
        ensure!(stderr.contains("is full, and the only file to keep"), "{runtime}: {stderr}");
        let files = recordings(folder.path())?;
        let read = read_each(&files, "exceptions", "")?;
        ensure!(read.len() == 1 && (500_000..=1_000_000).contains(&read[0].bytes), "{runtime}: {files:?}");
    }
    Ok(())
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_application() -> Result<()> {
    const FULL: &str = r#"mount -t tmpfs -o size=400k none "$1" || exit 99
folder=$1; kept=$2; shift 2
"$@"
code=$?
cp "$folder"/*.nettrace "$kept"
exit $code"#;
    if !Command::new("unshare").args(["-rm", "true"]).status().is_ok_and(|status| status.success()) {
        println!("SKIPPED: this system lets nobody make namespaces (unshare -rm true)");
        return Ok(());
    }
    for runtime in runtimes()? {
        let [disk, kept] = [tempfile::tempdir()?, tempfile::tempdir()?];
        let file = disk.path().join("app.nettrace");
        let plain = record(&runtime, &file, &["--events", "exception"], "Diagnosed")?;
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", FULL, "sh"]).arg(disk.path()).arg(kept.path());
        command.arg(plain.get_program()).args(plain.get_args());
        command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut program = Program::start(command)?;
        program.expect("ready")?;
        throw_many(&mut program)?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {code:?}: {stderr}");
        ensure!(stderr.contains("the application runs on") && stderr.contains("No space left"), "{runtime}: {stderr}");
        let files = recordings(kept.path())?;
        let read = read_each(&files, "exceptions", "")?;
        ensure!(read.len() == 1 && read[0].bytes > 200_000, "{runtime}: {files:?}");
        let thrown = read[0].events.iter().filter(|event| event.id == 80).count();
        ensure!(thrown > 100, "{runtime}: {thrown} exceptions");
    }
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn dotnet_trace_reads_each_of_several_files() -> Result<()> {
        for runtime in runtimes()? {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("app.nettrace");
            let options = ["--rate", "500", "--loop", "1", "--keep", "2"];
            let output = record(&runtime, &file, &options, "Shares")?.args(["3500", "1"]).output()?;
            ensure!(output.status.success(), "{output:?}");
            for file in recordings(folder.path())? {
                let name = file.file_name().and_then(|name| name.to_str()).context("no name")?;
                let Some(found) = report(folder.path(), name)? else { return Ok(()) };
                ensure!(found.keys().any(|row| row.contains("!Shares.")), "{name}: {found:#?}");
            }
        }
        Ok(())
    }

    /// The per cent of the time below each method, as `dotnet-trace report` has it; none without the tool.
    fn report(folder: &Path, file: &str) -> Result<Option<HashMap<String, f64>>> {
        let Some(mut command) = dotnet_trace()? else { return Ok(None) };
        command.args(["report", file, "topN", "-n", "100", "--inclusive"]).current_dir(folder);
        let output = command.output()?;
        let (text, stderr) = texts(&output);
        ensure!(output.status.success() && !stderr.contains("ERROR"), "{output:?}");
        let row = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let [_, name @ .., inclusive, _] = &words[..] else { return None };
            Some((name.join(" "), inclusive.strip_suffix('%')?.parse().ok()?))
        };
        Ok(Some(text.lines().filter_map(row).collect()))
    }

    #[test]
    fn dotnet_trace_names_what_was_recorded() -> Result<()> {
        patiently(runtimes()?, |runtime, times| {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("app.nettrace");
            let mut command = record(runtime, &file, &["--rate", "1000"], "Shares")?;
            let output = command.arg((3000 * times).to_string()).arg("1").output()?;
            ensure!(output.status.success(), "{output:?}");
            let Some(found) = report(folder.path(), "app.nettrace")? else { return Ok(()) };
            let recording = Recording::read(&file)?;
            let sharpness = recording.sharpness("Shares.Works(int)");
            ensure_or_longer!(sharpness >= SAMPLES, "{sharpness:.0} of {} samples", recording.samples.len());
            let of = |method: &str| {
                let row = found.iter().find(|(name, _)| name.ends_with(&format!("!Shares.{method}")));
                row.map(|(_, percent)| *percent).with_context(|| format!("no {method} in {found:#?}"))
            };
            let all = of("Works(int)")?;
            for (method, percent) in [("Sixty()", 60.0), ("Thirty()", 30.0), ("Ten()", 10.0)] {
                let share = 100.0 * of(method)? / all;
                // It goes by the times between samples, and a busy machine makes pauses.
                ensure!((share - percent).abs() <= 2.0 * POINTS, "{method} has {share:.1} %: {found:#?}");
            }
            ensure!(found.keys().any(|name| name.contains("libcoreclr")), "no native frame: {found:#?}");
            Ok(())
        })
    }
}
