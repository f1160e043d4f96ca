//! Starts what it can in `initialize`, and fails then.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use corprof::detach::Detacher;
use corprof::events::Level;
use corprof::info::EventPipeProviderConfig;
use corprof::prelude::*;
use corprof::sampler::Sampler;

/// Words in `ATTACKS_FAILING` say what it starts: `detach`, `session`, `thread`, `sampler`, `hooks`, `provider`,
/// `instrumentation`, `exceptions`, `clone`, `numbers`; and whether it `panics`, `succeeds`, `retires` after a
/// moment, or else returns an error.
#[derive(Default, Profiler)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1241", no_export)]
pub(crate) struct Failing;

struct Hooks;

impl FunctionHooks for Hooks {
    type Function = ();
    type Thread = ();
    const KINDS: HookKinds = HookKinds::ENTER;

    fn select(&self, _cx: &mut InCallback<'_>, _function: FunctionId) -> Hook<()> {
        Hook::Inlinable(())
    }

    fn thread_started(&self) {}

    fn enter(&self, _cx: &InHook<'_>, _thread: &mut (), (): &()) {}
}

/// Where code may be, as the system says.
fn executable() -> Vec<Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let is_code = |line: &&str| line.split(' ').nth(1).is_some_and(|access| access.contains('x'));
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
    };
    maps.lines().filter(is_code).filter_map(range).collect()
}

/// Finds functions by numbers, keeps them, and asks about all that it has.
fn ask_for_numbers(info: &Info) {
    let mut kept = BTreeSet::new();
    let mut answers = 0_u64;
    loop {
        for range in executable() {
            // Elsewhere there is no code that was compiled, and each look takes a millisecond.
            if info.code_address(range.start).is_none() {
                continue;
            }
            for address in range.step_by(64).filter_map(|address| info.code_address(address)) {
                kept.extend(info.function_from_ip(address).ok().flatten());
            }
        }
        for &function in &kept {
            answers += u64::from(info.function_info(function).is_ok());
            std::hint::black_box(info.native_code(function).is_ok());
        }
        if answers > 0 {
            eprintln!("attacks| answers: {answers}");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn retire_later(detacher: Detacher) -> std::io::Result<()> {
    std::thread::Builder::new().spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        eprintln!("attacks| retires: {}", detacher.retire().is_ok());
    })?;
    Ok(())
}

#[callbacks]
impl Callbacks for Failing {
    fn initialize(cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        let told = std::env::var("ATTACKS_FAILING")?;
        let is_told = |word| told.split(' ').any(|one| one == word);
        // It has to come first.
        let detacher = if is_told("detach") || is_told("retires") { Some(cx.detacher()?) } else { None };
        if is_told("session") {
            let name = "Microsoft-Windows-DotNETRuntime";
            let config = EventPipeProviderConfig { name, keywords: u64::MAX, level: Level::Verbose, filter: None };
            cx.event_pipe_start_session(&[config], false)?;
        }
        if is_told("provider") {
            cx.event_pipe_create_provider("Corprof-Failing")?;
        }
        if is_told("thread") {
            cx.spawn_profiler_thread("asks", |cx| {
                while cx.wait(Duration::from_millis(1)).is_continue() {
                    std::hint::black_box(cx.enum_modules().is_ok());
                }
            })?;
        }
        if is_told("sampler") {
            Sampler::every(Duration::from_millis(1)).start(cx, |round| _ = round.samples().count())?;
        }
        if is_told("hooks") {
            cx.hooks(Hooks).install()?;
        }
        if is_told("instrumentation") {
            cx.start_instrumentation()?;
        }
        if is_told("exceptions") {
            cx.add_events(EventMask::MONITOR_EXCEPTIONS)?;
        }
        if is_told("clone") {
            let info = Info::clone(cx);
            std::thread::Builder::new().spawn(move || while info.current_thread().is_ok() {})?;
        }
        if is_told("numbers") {
            let info = Info::clone(cx);
            std::thread::Builder::new().spawn(move || ask_for_numbers(&info))?;
        }
        match detacher {
            Some(detacher) if is_told("retires") => retire_later(detacher)?,
            Some(detacher) => eprintln!("attacks| detach: {}", detacher.detach().is_ok()),
            None => {}
        }
        eprintln!("attacks| started");
        if is_told("succeeds") || is_told("retires") {
            return Ok(Self);
        }
        assert!(!is_told("panics"), "as told");
        Err("as told".into())
    }

    fn module_load_finished(&self, _cx: &mut InCallback<'_>, _module: ModuleId, _status: Result<()>) {}

    fn event_pipe_event_delivered(&self, _cx: &InNoGc<'_>, _event: corprof::args::EventPipeEvent<'_>) {}
}
