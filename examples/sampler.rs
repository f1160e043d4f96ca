//! Samples the stacks of all threads and writes a page to look at, or what SAMPLER_OUT asks for by its extension.
//!
//! `cargo xtask demo sampler`. SAMPLER_OUT is `sampler-%p.html` unless set, in which `%p` is the process; `.svg`, `.folded`,
//! `.speedscope.json`, `.pb.gz` (pprof) and `.json.gz` (Firefox Profiler) are written as well, every ten seconds anew.
//! SAMPLER_MODE=cpu (unless set) shows what the processors do, and SAMPLER_MODE=wall what all threads do with their time, with
//! waits under a root of their own. SAMPLER_CODE=mine folds frameworks, a switch in the page. SAMPLER_HZ rounds a second (100),
//! SAMPLER_BUDGET per cent of the application's time at most (2), SAMPLER_STRATEGY=suspended, signals (Linux, cpu) or seeded
//! (Windows). Lambdas and methods have file and line where there is a portable PDB. Once a second a line tells more.

use corprof::settings::{Setting, SettingError};
use corprof::walk::{Mode, Report, Round, SampledFrame, Strategy};
use corprof::{prelude::*, sync::Mutex};
use corprof_export::{
    Frame as Named, FrameId, Mode as Shown, Output, Profile, SourceLines, ThreadId as Lane, Unit, application_name,
};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use std::{collections::HashMap, sync::Arc};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05", min_info = 10)]
struct Sampling(Arc<Mutex<Option<State>>>);

/// Seconds from one snapshot to the next.
const SNAPSHOT: u64 = 10;

/// What the environment asks for.
struct Settings {
    output: Output,
    mode: Mode,
    is_only_mine: bool,
    hertz: f64,
    budget_percent: f64,
    strategy: Strategy,
}

struct State {
    output: Output,
    profile: Profile,
    lanes: HashMap<(Inert<ThreadId>, Option<u32>), Lane>,
    methods: Methods,
    start: Instant,
    report: Report,
    /// How many seconds have been told of.
    told: u64,
}

/// The managed methods that were seen.
#[derive(Default)]
struct Methods {
    /// By identifier. One may be that of another method later, which has another name.
    known: HashMap<FunctionId, (Name, FrameId)>,
    /// Those that have not been looked for in the source: module and token.
    unplaced: Vec<(FrameId, PathBuf, u32)>,
    lines: SourceLines,
}

impl Settings {
    /// Whatever is wrong is said now, rather than when there is nothing to write at the end.
    fn read() -> Result<Self, SettingError> {
        let out = Setting::of("SAMPLER_OUT").or("sampler-%p.html");
        out.output()?;
        let strategies =
            [("suspended", Strategy::SuspendedRuntime), ("signals", Strategy::Signals), ("seeded", Strategy::Seeded)];
        let settings = Self {
            output: out.parsed("", |name| Output::new(name))?,
            mode: Setting::of("SAMPLER_MODE").word(&[("cpu", Mode::Cpu), ("wall", Mode::Wall)])?,
            is_only_mine: Setting::of("SAMPLER_CODE").word(&[("all", false), ("mine", true)])?,
            hertz: Setting::of("SAMPLER_HZ").number(100.0, 0.01..=10_000.0)?,
            budget_percent: Setting::of("SAMPLER_BUDGET").number(2.0, 0.01..=100.0)?,
            strategy: Setting::of("SAMPLER_STRATEGY").word(&strategies)?,
        };
        if settings.mode == Mode::Wall && settings.strategy == Strategy::Signals {
            return Err(Setting::of("SAMPLER_STRATEGY").error("signals see threads that run: SAMPLER_MODE=cpu"));
        }
        Ok(settings)
    }
}

/// Where the runtime stops threads that return from native code: their caller is where they were.
fn is_stopped_at(name: &str) -> bool {
    name.starts_with("System.Threading.Thread.PollGC") || name.starts_with("System.Threading.Thread.<PollGC>")
}

impl State {
    fn new(Settings { output, mode, is_only_mine, .. }: Settings, interval: Duration) -> Self {
        let shown = if mode == Mode::Cpu { Shown::Cpu } else { Shown::Wall };
        let profile = Profile::new(application_name(), Unit::Nanoseconds).of_process(std::process::id());
        let profile = profile.started_at(SystemTime::now()).with_interval(interval).in_mode(shown);
        let profile = if is_only_mine { profile.only_my_code() } else { profile };
        let (lanes, methods, report) = (HashMap::new(), Methods::default(), Report::default());
        Self { output, profile, lanes, methods, start: Instant::now(), report, told: 0 }
    }

    fn take(&mut self, round: &Round<'_, '_>) {
        for sample in round.samples() {
            let (thread, profile) = (sample.thread(), &mut self.profile);
            let lane = self.lanes.entry((thread.id, thread.os_id));
            let lane = *lane.or_insert_with(|| profile.thread(thread.os_id.unwrap_or_default(), ""));
            profile.rename_thread(lane, thread.name.as_deref().unwrap_or_default());
            let mut frames: Vec<FrameId> = Vec::new();
            for (depth, frame) in sample.frames().iter().enumerate() {
                let Some(named) = self.methods.frame(profile, round, depth, frame) else { continue };
                // Native functions without a name of their own are one frame.
                if frame.function.is_some() || frames.last() != Some(&named) {
                    frames.push(named);
                }
            }
            if sample.is_waiting() {
                frames.push(profile.frame(Named::native("[waits]")));
            }
            let stack = profile.stack_leaf_first(frames);
            profile.sample(lane, self.start.elapsed(), stack, sample.weight().as_nanos() as u64);
        }
        self.report = round.report().clone();
        let passed = self.start.elapsed().as_secs();
        if passed > self.told {
            eprintln!("sampler: {}", self.report);
            if passed / SNAPSHOT > self.told / SNAPSHOT {
                self.write().unwrap_or_else(|error| eprintln!("sampler: {error}"));
            }
            self.told = passed;
        }
    }

    /// Replaces the snapshot before: an application that is killed has lost what came after it, and no more.
    fn write(&mut self) -> Result<(), corprof_export::Error> {
        let (report, profile) = (&self.report, &mut self.profile);
        self.methods.place(profile);
        profile.set_duration(self.start.elapsed());
        profile.set_rate_reached(report.rate());
        profile.set_skipped("rounds over the budget", report.skipped.budget);
        profile.set_skipped("rounds that came late", report.skipped.late);
        profile.set_skipped("rounds during collections", report.skipped.busy);
        profile.set_skipped("threads that came and went between rounds", report.unseen);
        if let Some(earlier) = self.output.write(&self.profile)?.kept {
            eprintln!("sampler: the file of another run is kept as {}", earlier.display());
        }
        Ok(())
    }
}

impl Methods {
    /// A frame by its name; none for one in which the runtime has stopped the thread.
    fn frame(
        &mut self,
        profile: &mut Profile,
        round: &Round<'_, '_>,
        depth: usize,
        frame: &SampledFrame,
    ) -> Option<FrameId> {
        let Some(function) = frame.function else {
            // Further out, the address is that of what comes after a call.
            let native = round.native_name(frame.ip.saturating_sub(usize::from(depth > 0)));
            return Some(profile.frame(Named::native(native.as_deref().unwrap_or("[native code]"))));
        };
        let name = round.cx().names().csharp().function(function);
        if is_stopped_at(&name) {
            return None;
        }
        if let Some((known, frame)) = self.known.get(&function)
            && *known == name
        {
            return Some(*frame);
        }
        let place = round.cx().function_info(function).ok().filter(|info| !info.token.is_nil());
        let place = place.and_then(|info| Some((round.cx().module_info(info.module).ok()?.path, info.token)));
        let named = Named::managed(&name);
        let frame = profile.frame(place.as_ref().map_or(named, |(module, _)| named.in_module(module)));
        self.unplaced.extend(place.map(|(module, token)| (frame, module.into(), token.as_raw())));
        self.known.insert(function, (name, frame));
        Some(frame)
    }

    /// Finds file and line of the methods that have been seen since the last time. This reads files, so not during a round.
    fn place(&mut self, profile: &mut Profile) {
        for (frame, module, token) in self.unplaced.drain(..) {
            if let Some((file, line)) = self.lines.of_method(&module, token) {
                profile.place(frame, file, line);
            }
        }
    }
}

#[callbacks]
impl Callbacks for Sampling {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        let settings = Settings::read()?;
        let interval = Duration::try_from_secs_f64(1.0 / settings.hertz)?;
        let sampler = Sampler::every(interval).mode(settings.mode).strategy(settings.strategy);
        let sampler = sampler.budget(settings.budget_percent / 100.0);
        if settings.strategy == Strategy::Signals {
            // Dynamic methods have names for those who hear when they end. The suspended runtime does not show them at all.
            cx.add_events(EventMask::MONITOR_JIT_COMPILATION)?;
        }
        let state = Arc::clone(&self.0);
        *state.lock(cx) = Some(State::new(settings, interval));
        Ok(sampler.start(cx, move |round| {
            if let Some(state) = &mut *state.lock(round.cx()) {
                state.take(round);
            }
        })?)
    }

    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        let Some(state) = &mut *self.0.lock(cx) else { return };
        eprintln!("sampler: {}", state.report);
        match state.write() {
            Ok(()) => {
                eprintln!("sampler: {} samples written to {}", state.profile.samples(), state.output.path().display());
            }
            Err(error) => eprintln!("sampler: {error}"),
        }
    }
}
