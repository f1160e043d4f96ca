//! Answers what leaks: takes two snapshots of the heap, and prints what has grown in between, and which references keep
//! it.
//!
//! For each snapshot the runtime collects the whole heap while the application stands still, and the profiler writes a
//! temporary file of 48 bytes an object. Afterwards, beside the running application, it needs memory of 40 bytes an
//! object for a while.
//!
//! Limits: a growing cache looks like a leak: only you know how large it may become.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use corprof::heap_dump::BlockFile;
use corprof::prelude::*;
use corprof_export::{Output, application_name};
use corprof_heap::diff::{DEFAULT_DEPTH, Summary};
use corprof_heap::report::{Growth, Options as Size, Report as Page};
use corprof_heap::{BulkReader, Dominators, GraphBuilder, HeapGraph};
use corprof_profilers::settings::{SettingError, Settings, Value};
use corprof_profilers::table::LEAKS;
use serde::Serialize;

use crate::class_assembly::assembly;
use crate::code_frames::Spelling;
use crate::made_class::telling_method;
use crate::question::{self, Answer, Asker, Head, Report, Wake, milliseconds};
use crate::static_fields::StaticFields;

/// A snapshot that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(600);

/// The profiler.
#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A1F", no_export)]
pub struct Leaks {
    found: Arc<Mutex<Found>>,
    asker: Asker,
}

/// What was found so far. It is held for single steps, and never across a call to the runtime.
#[derive(Default)]
struct Found {
    snapshots: Vec<Snapshot>,
    /// The answer, or why there is none.
    answer: Option<Result<Growth, String>>,
    page: Option<PathBuf>,
}

/// What a snapshot has cost.
#[derive(Clone, Serialize)]
struct Snapshot {
    objects: u64,
    /// How long the application stood still.
    #[serde(rename = "pause_ms", serialize_with = "milliseconds")]
    pause: Duration,
}

/// The answer.
#[derive(Serialize)]
struct LeakReport {
    snapshots: Vec<Snapshot>,
    /// Why nothing is known of what has grown.
    error: Option<String>,
    grown: Option<Growth>,
}

impl Found {
    fn report(&self) -> LeakReport {
        let (grown, error) = match &self.answer {
            Some(Ok(grown)) => (Some(grown.clone()), None),
            Some(Err(why)) => (None, Some(why.clone())),
            None => (None, Some(HAS_ENDED.to_owned())),
        };
        LeakReport { snapshots: self.snapshots.clone(), error, grown }
    }
}

impl Report for LeakReport {
    fn is_answer(&self) -> bool {
        self.error.is_none()
    }

    fn text(&self, _head: &Head, answer: &mut Answer) {
        for Snapshot { objects, pause } in &self.snapshots {
            let pause = pause.as_millis();
            say!(answer, "a snapshot of {objects} objects: the application stood still for {pause} ms");
        }
        if let Some(why) = &self.error {
            say!(answer, "no answer: {why}");
        }
        let Some(grown) = &self.grown else { return };
        grown.lines().iter().for_each(|line| answer.plain(format_args!("{line}")));
        say!(answer, "objects that grow are not a leak if they stop: compare again, and begin later ({FIRST})");
    }
}

/// How to begin later, or sooner.
const FIRST: &str = "--first, or LEAKS_FIRST";
/// Why there may be no answer.
const HAS_ENDED: &str = "the application has ended before the second snapshot: let both come sooner (--first and --duration, or \
                         LEAKS_FIRST and LEAKS_SECONDS)";
/// The same, if somebody has asked earlier.
const TOO_EARLY: &str = "there is one snapshot of the heap or none yet, and two are compared: let it take longer";

struct Options {
    first: Duration,
    seconds: Duration,
    top: usize,
    out: Option<PathBuf>,
    spelling: Spelling,
}

impl Options {
    fn read(settings: &Settings) -> Result<Self, SettingError> {
        let seconds = |variable| settings.of(variable).number();
        Ok(Self {
            first: Duration::from_secs_f64(seconds("LEAKS_FIRST")?),
            seconds: Duration::from_secs_f64(seconds("LEAKS_SECONDS")?),
            top: settings.of("LEAKS_TOP").number()?,
            out: page(&settings.of("LEAKS_OUT"))?,
            spelling: Spelling::of(settings),
        })
    }
}

/// The file of the page, if one is wanted.
fn page(setting: &Value) -> Result<Option<PathBuf>, SettingError> {
    match setting.output()? {
        None => Ok(None),
        Some(path) if path.extension().is_some_and(|extension| extension == "html") => {
            Ok(Some(setting.parsed(|name| Output::new(name))?.path().to_owned()))
        }
        Some(_) => Err(setting.error("give the name of a file with the extension .html")),
    }
}

#[callbacks]
impl Callbacks for Leaks {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let settings = Settings::of_environment(&LEAKS)?;
        let asker = Asker::of_start(cx, &settings)?;
        Self::start(cx, Options::read(&settings)?, asker)
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let settings = Settings::of_attach(&LEAKS, data)?;
        let options = Options::read(&settings)?;
        let asker = Asker::of_attach(cx, &settings)?;
        Self::start(cx, options, asker)
    }

    fn shutdown(&self, _cx: &mut InCallback<'_>) {
        let found = lock(&self.found);
        let page = found.page.as_deref().and_then(|page| self.asker.where_is("a page about the second heap is", page));
        let files: Vec<String> = page.into_iter().collect();
        self.asker.report(&[], &found.report(), &files);
    }
}

fn lock(found: &Mutex<Found>) -> std::sync::MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Leaks {
    fn start(cx: &InCallback<'_>, options: Options, asker: Asker) -> Result<Self, BoxError> {
        let found = Arc::<Mutex<Found>>::default();
        let finds = Arc::clone(&found);
        question::start(cx, &asker, move |cx, asker| {
            let mut wake = Wake::Asked;
            let answer = compare(cx, &options, asker, &finds, &mut wake).map_err(|error| error.to_string());
            if wake != Wake::Ends {
                lock(&finds).answer = Some(answer);
            }
            wake
        })?;
        Ok(Self { found, asker })
    }
}

/// Waits, takes both snapshots, and says what has grown. If somebody asks meanwhile, the second snapshot is taken at
/// once. `wake` becomes the reason if a wait ends otherwise.
fn compare(
    cx: &mut ProfilerThread<'_>,
    options: &Options,
    asker: &Asker,
    found: &Mutex<Found>,
    wake: &mut Wake,
) -> Result<Growth, BoxError> {
    *wake = asker.wait(cx, options.first);
    if *wake != Wake::TimedOut {
        return Err(TOO_EARLY.into());
    }
    // Of the first heap, only sums are kept.
    let before = Summary::of(&Dominators::of(&snapshot(cx, found)?), DEFAULT_DEPTH);
    let start = Instant::now();
    *wake = asker.wait(cx, options.seconds);
    if ![Wake::TimedOut, Wake::Asked].contains(wake) {
        return Err(TOO_EARLY.into());
    }
    let seconds = start.elapsed().as_secs_f64();
    let graph = snapshot(cx, found)?;
    let tree = Dominators::of(&graph);
    let after = Summary::of(&tree, DEFAULT_DEPTH);
    let names = options.spelling.of_heap(graph.classes());
    if let Some(out) = &options.out {
        Page::of(&tree, Size::default(), &names).write_html(std::fs::File::create(out)?)?;
        lock(found).page = Some(out.clone());
    }
    Ok(Growth::of(&before, &after, &tree, options.top, seconds, &names))
}

/// One snapshot, as a graph with the names of its classes.
fn snapshot(cx: &mut ProfilerThread<'_>, found: &Mutex<Found>) -> Result<HeapGraph, BoxError> {
    // While the application stands still, the blocks only go into a file. To make a graph takes longer.
    let file = tempfile::NamedTempFile::new()?;
    let dump = cx.take_heap_snapshot(DEADLINE, BlockFile::create(file.path())?)?;
    let objects = dump.cost.objects;
    let pause = dump.cost.pause;
    lock(found).snapshots.push(Snapshot { objects, pause });
    let mut reader = BulkReader::new(GraphBuilder::new(application_name()), usize::BITS == 64);
    let taken = SystemTime::now().duration_since(UNIX_EPOCH)?;
    reader.builder().set_taken(taken.as_millis() as u64);
    for range in cx.non_gc_heap_bounds().unwrap_or_default() {
        reader.builder().frozen(range.start as u64, range.length as u64);
    }
    for &(key, class) in &dump.classes {
        let assembly = assembly(cx, class).unwrap_or_default();
        reader.builder().class(key, cx.names().csharp().class(class).as_str(), &assembly, 0);
        if let Some(method) = telling_method(cx, class) {
            reader.builder().class_method(key, &method);
        }
    }
    let mut statics = StaticFields::default();
    BlockFile::read(file.path(), |event, payload| statics.add(event, payload))?;
    for (address, class) in statics.classes(cx) {
        reader.static_class(address, &class);
    }
    BlockFile::read(file.path(), |event, payload| {
        reader.event(event, payload);
    })?;
    let graph = reader.finish()?;
    if graph.losses().is_cut() { Err(format!("the dump is cut: {}", graph.losses()).into()) } else { Ok(graph) }
}
