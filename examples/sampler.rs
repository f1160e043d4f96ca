//! Samples the stacks of all threads and draws a flame graph, or writes what SAMPLER_OUT asks for by its extension.
//!
//! `cargo xtask demo sampler`. SAMPLER_OUT is `sampler.svg` unless set; `.folded`, `.speedscope.json`, `.pb.gz` (pprof) and
//! `.json.gz` (Firefox Profiler) are written as well. SAMPLER_HZ rounds a second (100); SAMPLER_MODE=cpu for threads on a
//! processor only, by the time they have spent there; SAMPLER_STRATEGY=seeded (Windows). Once a second a line tells more.

use corprof::{prelude::*, sync::Mutex, walk::Round, walk::Strategy};
use corprof_export::{Frame as Named, Profile, ThreadId as Lane, Unit};
use std::time::{Duration, Instant, SystemTime};
use std::{collections::HashMap, env, sync::Arc};

#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A05", min_info = 10)]
struct Sampling(Arc<Mutex<State>>);

struct State {
    profile: Profile,
    lanes: HashMap<(Inert<ThreadId>, Option<u32>), Lane>,
    start: Instant,
    /// How many seconds have been told of.
    told: u64,
}

impl Default for State {
    fn default() -> Self {
        let profile = Profile::new("sampler", Unit::Nanoseconds).of_process(std::process::id());
        Self { profile: profile.started_at(SystemTime::now()), lanes: HashMap::new(), start: Instant::now(), told: 0 }
    }
}

fn setting(name: &str, default: &str) -> String {
    env::var(name).unwrap_or(default.to_owned())
}

impl State {
    fn take(&mut self, round: &Round<'_, '_>, is_on_cpu: bool) {
        let (names, profile) = (round.cx().names(), &mut self.profile);
        for sample in round.samples() {
            let thread = sample.thread();
            let lane = self.lanes.entry((thread.id, thread.os_id));
            let lane = *lane.or_insert_with(|| profile.thread(thread.os_id.unwrap_or_default(), ""));
            profile.rename_thread(lane, thread.name.as_deref().unwrap_or_default());
            let native = profile.frame(Named::native("[native code]"));
            let mut name = |function| profile.frame(Named::managed(&names.function(function)));
            let frames = sample.frames().iter().map(|frame| frame.function.map_or(native, &mut name));
            let mut frames: Vec<_> = frames.collect();
            frames.dedup_by(|one, next| one == next && *one == native);
            let stack = profile.stack_leaf_first(frames);
            let time = if is_on_cpu { thread.cpu_time.unwrap_or_default() } else { round.elapsed() };
            profile.sample(lane, self.start.elapsed(), stack, time.as_nanos() as u64);
        }
        let passed = self.start.elapsed().as_secs_f64();
        if passed as u64 > self.told {
            self.told = passed as u64;
            eprintln!("sampler: {:.0} samples/s; {}", round.report().samples as f64 / passed, round.report());
        }
    }
}

#[callbacks]
impl Callbacks for Sampling {
    fn initialize(&self, cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
        corprof_export::Format::of_path(setting("SAMPLER_OUT", "sampler.svg"))?; // now, rather than at the end
        let (state, hertz) = (Arc::clone(&self.0), setting("SAMPLER_HZ", "100").parse::<f64>()?);
        let is_on_cpu = setting("SAMPLER_MODE", "wall") == "cpu";
        let strategy = if setting("SAMPLER_STRATEGY", "") == "seeded" { Strategy::Seeded } else { Strategy::default() };
        let sampler = Sampler::every(Duration::try_from_secs_f64(1.0 / hertz)?).strategy(strategy);
        let sampler = if is_on_cpu { sampler.on_cpu() } else { sampler };
        Ok(sampler.start(cx, move |round| state.lock(round.cx()).take(round, is_on_cpu))?)
    }

    fn shutdown(&self, cx: &mut InTriggers<'_>) {
        let (state, path) = (self.0.lock(cx), setting("SAMPLER_OUT", "sampler.svg"));
        match state.profile.write(&path) {
            Ok(_) => eprintln!("sampler: {} samples written to {path}", state.profile.samples()),
            Err(error) => eprintln!("sampler: {error}"),
        }
    }
}
