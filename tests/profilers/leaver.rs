//! Attaches, samples, and detaches at the first exception: for `live/detach.rs`.
//!
//! Words in the client data: `slow`, the callback that asks for the detach goes on for a second; `stays`, it has had
//! `ENABLE_REJIT` on; `session`, it has a session of EventPipe, too; `signals`, it samples by signals, and names the
//! functions; `instruments=FILE`, it has methods edited by ReJIT, and makes the file when one counts its calls;
//! `listens`, it listens for a detach; `memory`, it says how many bytes of the process's memory are allocated. In each
//! mode it has a clone of `Info` on a thread that corprof knows nothing of.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use corprof::args::EventPipeEvent;
use corprof::detach::{DetachState, Detacher};
use corprof::edit::CallCounter;
use corprof::events::Level;
use corprof::info::EventPipeProviderConfig;
use corprof::instrumentation::{Outcome, Rewrite, Selector};
use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler, Strategy};

static CALLS: CallCounter = CallCounter::new();

/// Whether a dynamic method was seen in a stack.
static SAW_DYNAMIC: AtomicBool = AtomicBool::new(false);

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E1311")]
struct Leaver {
    detacher: Mutex<Option<Detacher>>,
    is_slow: AtomicBool,
    inside: AtomicUsize,
}

fn say(what: &str) {
    eprintln!("leaver| {what}");
}

impl Leaver {
    fn start(&self, cx: &mut InCallback<'_>, told: &str) -> Result<(), BoxError> {
        let is_told = |word| told.split(' ').any(|one| one == word);
        self.is_slow.store(is_told("slow"), Relaxed);
        if is_told("stays") {
            cx.add_events(EventMask::ENABLE_REJIT)?;
        }
        if is_told("session") {
            let name = "Microsoft-Windows-DotNETRuntime";
            let config = EventPipeProviderConfig { name, keywords: 1, level: Level::Verbose, filter: None };
            cx.event_pipe_start_session(&[config], false)?;
        }
        let sampler = Sampler::every(Duration::from_millis(1)).budget(1.0);
        let by_signals = is_told("signals");
        let sampler = if by_signals { sampler.mode(Mode::Cpu).strategy(Strategy::Signals) } else { sampler };
        sampler.start(cx, move |round| {
            if !by_signals {
                return;
            }
            let names = round.cx().names();
            let functions = round.samples().flat_map(|sample| sample.frames()).filter_map(|frame| frame.function);
            let is_dynamic =
                functions.map(|function| names.function(function)).any(|name| name.contains("dynamic method Loop"));
            if is_dynamic && !SAW_DYNAMIC.swap(true, Relaxed) {
                say("a dynamic method");
            }
        })?;
        let info = Info::clone(cx);
        std::thread::Builder::new().name("beside".to_owned()).spawn(move || {
            loop {
                if let Err(error) = info.current_thread() {
                    say(&format!("a clone of Info answers: {error}"));
                    return;
                }
            }
        })?;
        Ok(())
    }
}

#[callbacks]
impl Callbacks for Leaver {
    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let profiler = Self::default();
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        if std::str::from_utf8(data)?.contains("memory") {
            // SAFETY: the call takes nothing, and counts what all heaps have given out.
            let memory = unsafe { libc::mallinfo2() };
            say(&format!("in use: {}", memory.uordblks + memory.hblkhd));
        }
        let detacher = cx.detacher()?;
        if std::str::from_utf8(data)?.contains("listens") {
            detacher.listen(cx)?;
        }
        if let Some((_, file)) = std::str::from_utf8(data)?.split_once("instruments=") {
            let file = file.to_owned();
            let instrumentation = cx.start_instrumentation()?;
            let edited = instrumentation.select(Selector::class("Diagnosed"), |edit| edit.count_calls(&CALLS));
            cx.spawn_profiler_thread("outcomes", move |cx| {
                while cx.wait(Duration::from_millis(5)).is_continue() {
                    let is_active = |rewrite: &Rewrite| matches!(rewrite.outcome(), Outcome::Active(_));
                    if edited.rewrites().iter().any(is_active) && CALLS.get() > 0 {
                        return drop(std::fs::write(&file, ""));
                    }
                }
            })?;
        }
        *profiler.detacher.lock().map_err(|_| "poisoned")? = Some(detacher);
        profiler.start(cx, std::str::from_utf8(data)?)?;
        Ok(profiler)
    }

    fn exception_thrown(&self, _cx: &InNoGc<'_>, _thrown: ObjectId<'_>) {
        self.inside.fetch_add(1, Relaxed);
        let Some(detacher) = self.detacher.lock().ok().and_then(|detacher| detacher.clone()) else { return };
        match detacher.detach() {
            Ok(()) => say("it leaves"),
            // Not when it is leaving already.
            Err(error) if detacher.state() == DetachState::Loaded => say(&format!("it stays: {error}")),
            Err(_) => {}
        }
        if self.is_slow.load(Relaxed) {
            std::thread::sleep(Duration::from_secs(1));
            say("the callback ends");
        }
        self.inside.fetch_sub(1, Relaxed);
    }

    fn event_pipe_event_delivered(&self, _cx: &InNoGc<'_>, _event: EventPipeEvent<'_>) {}

    fn shutdown(&self, cx: &mut InCallback<'_>) {
        let modules = cx.enum_modules().map_or(0, |modules| modules.len());
        say(&format!("last word: {} inside, modules seen: {}", self.inside.load(Relaxed), modules > 0));
    }
}

impl Drop for Leaver {
    fn drop(&mut self) {
        say("dropped");
    }
}
