//! Attaches to a running application, samples it for a while, writes a profile, and detaches.
//!
//! Attach it with `corprof attach PID libdetacher.so --data 'seconds=10 out=profile.html'`. The attach data has options:
//! - `seconds=10`: the longest time until it detaches. `corprof detach PID` detaches it earlier.
//! - `out=detacher-%p.html`: the output file; the extension chooses the format, as with the example `sampler`.
//!
//! If it is loaded at start-up, it reads the same options from the environment variable DETACHER.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use corprof::detach::Detacher;
use corprof::id::Inert;
use corprof::prelude::*;
use corprof::sampler::{Round, Sampler};
use corprof::sync::Mutex;
use corprof_export::{self as export, Output, Profile, Unit, application_name};

/// The average time between two rounds.
const INTERVAL: Duration = Duration::from_millis(10);

#[derive(Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A08")]
struct DetacherProfiler {
    samples: Arc<Mutex<Samples>>,
}

/// The options, from the attach data or from DETACHER.
struct Options {
    seconds: f64,
    out: PathBuf,
}

impl Options {
    fn parse(text: &str) -> Result<Self, BoxError> {
        let mut options = Self { seconds: 10.0, out: "detacher-%p.html".into() };
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("seconds", seconds)) => options.seconds = seconds.parse()?,
                Some(("out", path)) => options.out = path.into(),
                _ => return Err(format!("`{word}` is none of seconds=NUMBER, out=PATH").into()),
            }
        }
        Ok(options)
    }
}

/// The samples so far, and the file for them.
struct Samples {
    output: Output,
    profile: Profile,
    threads: HashMap<(Inert<ThreadId>, Option<u32>), export::ThreadId>,
    start: Instant,
}

impl Samples {
    fn new(out: PathBuf) -> Result<Self, BoxError> {
        let profile = Profile::new(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = profile.started_at(SystemTime::now()).with_interval(INTERVAL).in_mode(export::Mode::Wall);
        Ok(Self { output: Output::new(out)?, profile, threads: HashMap::new(), start: Instant::now() })
    }

    fn add(&mut self, round: &Round<'_, '_>) {
        let profile = &mut self.profile;
        for sample in round.samples() {
            let thread = sample.thread();
            let name = thread.name.as_deref().unwrap_or_default();
            let key = (thread.id, thread.os_id);
            let id = *self.threads.entry(key).or_insert_with(|| profile.thread(thread.os_id.unwrap_or_default(), name));
            let frames: Vec<_> = sample
                .frames()
                .iter()
                .filter_map(|frame| frame.function)
                .map(|function| profile.frame(export::Frame::managed(&round.cx().names().csharp().function(function))))
                .collect();
            let stack = profile.stack_leaf_first(frames);
            profile.sample(id, self.start.elapsed(), stack, sample.weight().as_nanos() as u64);
        }
    }

    fn write(&mut self) -> Result<(), export::Error> {
        self.profile.set_duration(self.start.elapsed());
        self.output.write(&self.profile).map(drop)
    }
}

impl DetacherProfiler {
    fn start(cx: &InCallback<'_>, detacher: Detacher, options: &str) -> Result<Self, BoxError> {
        let options = Options::parse(options)?;
        let time = Duration::try_from_secs_f64(options.seconds)?;
        let samples = Arc::new(Mutex::new(Samples::new(options.out)?));
        let profiler = Self { samples: Arc::clone(&samples) };
        Sampler::every(INTERVAL).start(cx, move |round| samples.lock(round.cx()).add(round))?;
        detacher.listen(cx)?;
        cx.spawn_profiler_thread("leaves in time", move |cx| {
            if cx.wait(time).is_continue()
                && let Err(error) = detacher.detach()
            {
                eprintln!("detacher: it stays: {error}");
            }
        })?;
        Ok(profiler)
    }
}

#[callbacks]
impl Callbacks for DetacherProfiler {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?; // before the sampler starts
        Self::start(cx, detacher, &std::env::var("DETACHER").unwrap_or_default())
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        Self::start(cx, detacher, std::str::from_utf8(data)?)
    }

    /// Called at the detach, or at the end of the application if that comes first.
    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let mut samples = self.samples.lock(cx);
        match samples.write() {
            Ok(()) => eprintln!(
                "detacher: {} samples written to {}",
                samples.profile.samples(),
                samples.output.path().display()
            ),
            Err(error) => eprintln!("detacher: {error}"),
        }
    }
}
