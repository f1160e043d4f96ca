//! Attaches to a running application, writes the stacks of all threads once, with the methods that await resumed async
//! methods (`async_callers::standing`), and who waits for whose lock, and detaches.
//!
//! `corprof stacks PID` uses it. To attach it yourself: `corprof attach PID stacks --data STACKS_OUT=/tmp/stacks`. It
//! writes the file /tmp/stacks.4711, with the process id. After the detach it creates /tmp/stacks.4711.left, which
//! contains the reason if the profiler could not detach. Without STACKS_OUT it prints to standard error.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use corprof::inlined_frames::InlinedFrames;
use corprof::lock_waits::LockWaits;
use corprof::prelude::*;
use corprof::sampler::{Round, Sample, SampledThread, Sampler};
use corprof_export::{SourceLines, as_inlined};
use corprof_profilers::settings::Settings;
use corprof_profilers::table::STACKS;

use crate::async_callers::{StandingCallers, WantedCallers};
use crate::code_frames::{CodeFrames, SourceFrame, Spelling};
use crate::lease::Lease;
use crate::own_frames::is_of_the_runtime;
use crate::question::leave;
use crate::report_files::{of_process, write};
use crate::sampler::CUT;
use crate::thread_name::name_by_system;

/// The interval at which it checks whether it is done.
const LOOK: Duration = Duration::from_millis(10);
/// The maximum number of frames per stack.
const DEPTH: usize = 2000;
/// The maximum number of rounds. The buffer grows from round to round until all frames fit.
const ROUNDS: u32 = 8;

/// How long it looks again where the owners of locks run, whose stacks are then of another moment than the waits.
const OWNERS: Duration = Duration::from_millis(200);
/// How long dynamic methods may be without names: right after an attach they have none for a moment.
const NAMES: Duration = Duration::from_millis(300);
/// The beginning of a frame of one without a name.
const UNNAMED: &str = "\n  <dynamic method>";

/// The profiler.
#[derive(Default, Profiler)]
#[profiler(clsid = "4E1A5A0C-7C1B-4C55-9C55-5D0E2E0C7A09", no_export)]
pub struct Stacks;

#[callbacks]
impl Callbacks for Stacks {
    fn initialize(_cx: &mut InInitialize<'_>) -> Result<Self, BoxError> {
        Err("it can only attach to a running application: `corprof stacks PID`".into())
    }

    fn initialize_for_attach(cx: &mut InAttach<'_>, data: &[u8]) -> Result<Self, BoxError> {
        let detacher = cx.detacher()?;
        let _ = detacher.listen(cx); // it leaves by itself, too
        let settings = Settings::of_attach(&STACKS, data)?;
        let has_callers = WantedCallers::read(&settings)?.are_awaiting();
        let out = settings.of("STACKS_OUT").path();
        let is_done = Arc::new(AtomicBool::new(false));
        let is_seen = Arc::clone(&is_done);
        let file = out.clone();
        let mut rounds = 0;
        let mut first_round = None;
        // There is only one round, so it has no budget.
        let sampler = Sampler::every(Duration::from_millis(1)).budget(1.0).longest_suspension(Duration::from_secs(60));
        sampler.max_depth(DEPTH).start(cx, move |round| {
            rounds += 1;
            let lacks_room = |sample: Sample<'_>| sample.is_truncated() && sample.frames().len() < DEPTH;
            if round.samples().any(lacks_room) && rounds < ROUNDS {
                return; // the next round has more room
            }
            let started = *first_round.get_or_insert_with(Instant::now);
            // At once: an owner may soon have another stack.
            let locks = round.lock_waits();
            let owner_runs = |locks: &LockWaits| locks.waits.iter().any(|wait| wait.owner_has_run);
            if locks.as_ref().is_ok_and(owner_runs) && started.elapsed() < OWNERS {
                return;
            }
            let callers = if has_callers { StandingCallers::find(round) } else { StandingCallers::default() };
            let mut inlined = InlinedFrames::new();
            if has_callers {
                inlined.learn_all(round);
            }
            let text = text(round, &callers, &inlined);
            if text.contains(UNNAMED) && started.elapsed() < NAMES {
                return;
            }
            let text = text + &callers.lines() + &lock_lines(&locks);
            tell(file.as_deref(), "", &text);
            round.end_sampling();
            is_seen.store(true, Ordering::Release);
        })?;
        cx.spawn_profiler_thread("leaves", move |cx| {
            let folder = out.as_deref().and_then(Path::parent).filter(|folder| !folder.as_os_str().is_empty());
            let lease = out.as_deref().and_then(Lease::of);
            let is_wanted = || folder.is_none_or(Path::is_dir) && !lease.as_ref().is_some_and(Lease::is_over);
            while !is_done.load(Ordering::Acquire) && is_wanted() {
                if cx.wait(LOOK).is_break() {
                    return; // the application ends
                }
            }
            leave("stacks", &detacher, out, lease.map(Arc::new));
        })?;
        Ok(Self)
    }
}

/// A line for each thread, then an indented line for each frame, the innermost first: the method, and if they are known
/// the line and the file, behind tabs. Under a resumed async method stand the methods that await it.
fn text(round: &Round<'_, '_>, callers: &StandingCallers, inlined: &InlinedFrames) -> String {
    let code = CodeFrames::spelt(Spelling::Raw); // the command spells them
    let mut lines = SourceLines::new();
    let mut text = String::new();
    let mut shown = 0;
    for sample in round.samples() {
        shown += 1;
        let thread = sample.thread();
        let does = if sample.is_waiting() { "waits" } else { "runs" };
        let _ = writeln!(text, "thread {} {does} {}", thread.os_id.unwrap_or_default(), name(thread));
        let mut frames: Vec<String> = Vec::new();
        let callers = callers.of(thread.os_id);
        let physical = callers.map_or(usize::MAX, |callers| callers.physical);
        for (depth, frame) in sample.frames().iter().enumerate().take(physical) {
            let found = |function| (function, code.frame(round.cx(), function, frame.ip, depth == 0));
            match frame.function.map(found) {
                Some((function, frame)) if is_of_the_runtime(round.cx(), function, &frame.name) => {}
                Some((_, frame)) => frames.push(in_source(&frame.in_source(None, &mut lines))),
                // Adjacent native frames make one line.
                None if frames.last().is_some_and(|last| last == "[native]") => {}
                None => frames.push("[native]".to_owned()),
            }
            let caller = sample.frames().get(depth + 1).filter(|_| depth + 1 < physical);
            let between = caller.into_iter().flat_map(|caller| inlined.between(round.cx(), caller, frame));
            frames.extend(between.rev().map(|method| line(&as_inlined(&method.name))));
        }
        if let Some(callers) = callers {
            frames.extend(callers.names.iter().map(|name| line(name)));
        } else if sample.is_truncated() {
            frames.push(format!("[outer frames are missing: it has more than {DEPTH}]"));
        } else if sample.is_incomplete() {
            frames.push(CUT.to_owned());
        }
        for frame in frames {
            let _ = writeln!(text, "  {frame}");
        }
    }
    let threads = &round.report().threads;
    let others = threads.seen.saturating_sub(threads.ended).saturating_sub(shown);
    let _ = writeln!(text, "others {others}");
    text
}

/// A line for each thread that waits for a lock.
fn lock_lines(locks: &Result<LockWaits>) -> String {
    let mut text = String::new();
    let locks = match locks {
        Ok(locks) => locks,
        Err(error) => return format!("no-locks {}\n", line(&error.to_string())),
    };
    for wait in &locks.waits {
        let limit = if wait.has_limit { "limited" } else { "unlimited" };
        let owner = if wait.owner_has_run { "runs" } else { "stands" };
        let class = line(&wait.class);
        let _ = writeln!(text, "wait {} {} {:#x} {limit} {owner} {class}", wait.waiter, wait.owner, wait.lock);
    }
    for deadlock in locks.deadlocks() {
        let threads: Vec<String> = deadlock.iter().map(|wait| wait.waiter.to_string()).collect();
        let _ = writeln!(text, "deadlock {}", threads.join(" "));
    }
    for thread in &locks.unknown {
        let _ = writeln!(text, "unknown-lock {thread}");
    }
    if locks.sees_monitors {
        text.push_str("monitors\n");
    }
    text
}

/// The runtime reports names only if they are set after the attach.
fn name(thread: &SampledThread) -> String {
    let system = || name_by_system(thread.os_id?);
    line(&thread.name.as_ref().map(ToString::to_string).or_else(system).unwrap_or_default())
}

/// A frame's line of the text.
fn in_source(frame: &SourceFrame) -> String {
    let method = line(&frame.method);
    match (&frame.file, frame.line) {
        (Some(file), Some(number)) => format!("{method}\t{number}\t{}", line(file)),
        _ => method,
    }
}

/// Obfuscated names may contain line breaks.
fn line(text: &str) -> String {
    text.trim().replace(char::is_control, " ")
}

/// Writes a file, or to standard error.
fn tell(out: Option<&Path>, ending: &str, text: &str) {
    match out {
        Some(out) => {
            write("stacks", &of_process(out, ending), text);
        }
        None => eprintln!("{}", text.trim_end_matches('\n')),
    }
}
