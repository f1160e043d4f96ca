//! Samples the stacks of all threads and writes a page to look at, or what SAMPLER_OUT asks for by its extension.
//!
//! `cargo xtask demo sampler`. SAMPLER_OUT is `sampler-%p.html` unless set, in which `%p` is the process; `.svg`, `.folded`,
//! `.speedscope.json`, `.pb.gz` (pprof) and `.json.gz` (Firefox Profiler) are written as well, every ten seconds anew.
//! SAMPLER_HZ rounds a second (100); SAMPLER_MODE=cpu for threads on a processor only, by the time they have spent there;
//! SAMPLER_STRATEGY=seeded (Windows). Once a second a line tells more.

use corprof::{prelude::*, sync::Mutex, walk::Round, walk::Strategy};
use corprof_export::{Frame as Named, Mode, Output, Profile, ThreadId as Lane, Unit, application_name};
use std::time::{Duration, Instant, SystemTime};
use std::{collections::HashMap, env, sync::Arc};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05", min_info = 10)]
struct Sampling(Arc<Mutex<Option<State>>>);

/// Seconds from one snapshot to the next.
const SNAPSHOT: u64 = 10;

struct State {
    output: Output,
    profile: Profile,
    lanes: HashMap<(Inert<ThreadId>, Option<u32>), Lane>,
    start: Instant,
    /// How many seconds have been told of.
    told: u64,
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or(default.to_owned())
}

/// Where the runtime stops threads that return from native code: their caller is where they were.
fn is_stopped_at(name: &str) -> bool {
    name.starts_with("System.Threading.Thread.PollGC") || name.starts_with("System.Threading.Thread.<PollGC>")
}

impl State {
    fn new(output: Output, interval: Duration, mode: Mode) -> Self {
        let profile = Profile::new(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = profile.started_at(SystemTime::now()).with_interval(interval).in_mode(mode);
        Self { output, profile, lanes: HashMap::new(), start: Instant::now(), told: 0 }
    }

    fn take(&mut self, round: &Round<'_, '_>, is_on_cpu: bool) {
        let (names, profile) = (round.cx().names().csharp(), &mut self.profile);
        for sample in round.samples() {
            let thread = sample.thread();
            let lane = self.lanes.entry((thread.id, thread.os_id));
            let lane = *lane.or_insert_with(|| profile.thread(thread.os_id.unwrap_or_default(), ""));
            profile.rename_thread(lane, thread.name.as_deref().unwrap_or_default());
            let native = profile.frame(Named::native("[native code]"));
            let mut name = |function| {
                let name = names.function(function);
                (!is_stopped_at(&name)).then(|| profile.frame(Named::managed(&name)))
            };
            let frames = sample.frames().iter().filter_map(|frame| frame.function.map_or(Some(native), &mut name));
            let mut frames: Vec<_> = frames.collect();
            frames.dedup_by(|one, next| one == next && *one == native);
            let stack = profile.stack_leaf_first(frames);
            let time = if is_on_cpu { thread.cpu_time.unwrap_or_default() } else { round.elapsed() };
            profile.sample(lane, self.start.elapsed(), stack, time.as_nanos() as u64);
        }
        let (report, passed) = (round.report(), self.start.elapsed().as_secs_f64());
        self.profile.set_duration(self.start.elapsed());
        self.profile.set_rate_reached(report.rounds as f64 / passed);
        self.profile.set_skipped("rounds over the budget", report.skipped.budget);
        self.profile.set_skipped("rounds that came late", report.skipped.late);
        self.profile.set_skipped("rounds during collections", report.skipped.busy);
        if passed as u64 > self.told {
            eprintln!("sampler: {:.0} samples/s; {}", report.samples as f64 / passed, report);
            if passed as u64 / SNAPSHOT > self.told / SNAPSHOT {
                self.write().unwrap_or_else(|error| eprintln!("sampler: {error}"));
            }
            self.told = passed as u64;
        }
    }

    /// Replaces the snapshot before: an application that is killed has lost what came after it, and no more.
    fn write(&mut self) -> Result<(), corprof_export::Error> {
        if let Some(earlier) = self.output.write(&self.profile)?.kept {
            eprintln!("sampler: the file of another run is kept as {}", earlier.display());
        }
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Sampling {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let output = Output::new(setting("SAMPLER_OUT", "sampler-%p.html"))?; // now, rather than at the end
        let (state, hertz) = (Arc::clone(&self.0), setting("SAMPLER_HZ", "100").parse::<f64>()?);
        let is_on_cpu = setting("SAMPLER_MODE", "wall") == "cpu";
        let strategy = if setting("SAMPLER_STRATEGY", "") == "seeded" { Strategy::Seeded } else { Strategy::default() };
        let interval = Duration::try_from_secs_f64(1.0 / hertz)?;
        *state.lock(cx) = Some(State::new(output, interval, if is_on_cpu { Mode::Cpu } else { Mode::Wall }));
        let sampler = Sampler::every(interval).strategy(strategy);
        let sampler = if is_on_cpu { sampler.on_cpu() } else { sampler };
        Ok(sampler.start(cx, move |round| {
            if let Some(state) = &mut *state.lock(round.cx()) {
                state.take(round, is_on_cpu);
            }
        })?)
    }

    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        let Some(state) = &mut *self.0.lock(cx) else { return };
        match state.write() {
            Ok(()) => {
                eprintln!("sampler: {} samples written to {}", state.profile.samples(), state.output.path().display())
            }
            Err(error) => eprintln!("sampler: {error}"),
        }
    }
}
