//! A random profiler that forbids `unsafe`, made by the seed in `GENERATOR_SEED`: for `live/generator.rs`.
//!
//! The seed decides which events, hooks, threads, sessions and so on there are (`plan.rs`), and which calls are made
//! where: those of the matrix (`matrix/rows.rs`), and others that keep and use what they are answered (`actions.rs`,
//! `pools.rs`). With `GENERATOR_LOG` set to a file, each action is noted there before it begins: `+THREAD ACTION in
//! PLACE`, and `-THREAD` at its end. `GENERATOR_WITHOUT` leaves out actions, by the beginnings of their names,
//! separated by commas. Whatever it does, the application must run as without it.

#![forbid(unsafe_code)]

mod act;
mod actions;
mod attached;
mod callbacks;
mod edits;
#[allow(dead_code, reason = "the matrix gathers subjects of its own")]
#[path = "../matrix/facts.rs"]
mod facts;
mod hooks;
#[allow(clippy::unwrap_used, reason = "the tables that it takes are right")]
#[path = "../attacks/made_up.rs"]
mod made_up;
mod plan;
mod pools;
#[path = "../matrix/fire/prices.rs"]
mod prices;
mod raw;
mod readers;
#[path = "../matrix/rows.rs"]
mod rows;
mod sessions;

use std::time::Duration;

use corprof::prelude::*;
use corprof::sampler::{Mode, Sampler, Strategy};
use fastrand::Rng;

use plan::{Beginning, Detach, Plan};
use pools::Pool;

/// Random numbers that depend on the time, where the place has none by the seed.
fn with_random(act: impl FnOnce(&mut Rng)) {
    act(&mut Rng::new());
}

/// Keeps what a callback is about.
fn keep<T>(pool: &Pool<T>, value: T) {
    with_random(|random| pool.put(random, value));
}

/// The answer of a callback that is asked something: always yes, or now and then no.
fn any_answer(callback: &str) -> bool {
    let is_always = plan::current().is_none_or(|plan| plan.number(callback) % 2 == 0);
    is_always || fastrand::u32(..10) > 0
}

fn start_sampler(cx: &InCallback<'_>, random: &mut Rng) -> Option<()> {
    let strategy = [Strategy::SuspendedRuntime, Strategy::Signals, Strategy::Seeded][random.usize(0..3)];
    let mode = if random.bool() { Mode::Cpu } else { Mode::Wall };
    let sampler =
        Sampler::every(Duration::from_micros(random.u64(500..20_000))).mode(mode).budget(0.3).strategy(strategy);
    let info = Info::clone(cx);
    let sampler = sampler.threads(move |_| {
        act::anywhere(&info, "choice of threads");
        true
    });
    let mut rounds = random.u32(1..2000);
    let see = move |round: &mut corprof::sampler::Round<'_, '_>| {
        for frame in round.samples().flat_map(|sample| sample.frames().iter()) {
            if let Some(function) = frame.function {
                keep(&pools::FUNCTIONS, function);
            }
        }
        with_random(|random| {
            readers::ask_round(round, random);
            if random.u32(0..10) == 0 {
                readers::find_inlined(round, random);
            }
        });
        act::on_own_thread(round.cx_mut(), "round of the sampler");
        rounds -= 1;
        if rounds == 0 {
            round.end_sampling();
        }
    };
    sampler.start(cx, see).ok()
}

/// On .NET 8 a profiler that only listens to what the collector finds ends applications that unload code, as does a
/// dump of the heap (A11 of issue 35): 2 of 5 runs of `Fire unload 5 6` with `DOTNET_gcConcurrent=0` under the idle
/// matrix. So there the heap is not walked.
pub(crate) fn may_walk_heap(cx: &InCallback<'_>) -> bool {
    cx.runtime_info().is_ok_and(|runtime| runtime.major >= 10)
}

/// What the profiler has from the beginning.
fn begin(cx: &mut InInitialize<'_>, plan: &'static Plan) -> Result<(), BoxError> {
    let detacher = if plan.detach.is_some() { Some(cx.detacher()?) } else { None };
    let is_left_out = |(at, _): &(usize, EventMask)| plan.without_events >> (at % 64) & 1 == 1;
    let without =
        cx.event_mask()?.iter().enumerate().filter(is_left_out).fold(EventMask::empty(), |all, (_, one)| all | one);
    cx.remove_events(without)?;
    if !may_walk_heap(cx) {
        cx.remove_events(EventMask::MONITOR_GC)?;
    }
    hooks::install(cx, plan)?;
    if plan.has_instrumentation {
        keep(&pools::INSTRUMENTATION, cx.start_instrumentation()?);
    }
    begin_anywhere(cx, plan)?;
    if let Some(detacher) = detacher {
        keep(&pools::DETACHERS, detacher.clone());
        match plan.detach {
            Some(Detach::AtOnce) => drop(detacher.detach()),
            Some(Detach::ByThread(after)) => {
                std::thread::Builder::new().spawn(move || {
                    std::thread::sleep(after);
                    let _ = detacher.detach();
                    let _ = detacher.wait();
                })?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// What it may have at an attach as well.
fn begin_anywhere(cx: &mut InCallback<'_>, plan: &'static Plan) -> Result<(), BoxError> {
    for _ in 0..plan.own_threads {
        cx.spawn_profiler_thread("acts", |cx| {
            while cx.wait(Duration::from_micros(fastrand::u64(..3000))).is_continue() {
                act::on_own_thread(cx, "profiler thread");
            }
        })?;
    }
    for _ in 0..plan.raw_threads {
        let info = Info::clone(cx);
        std::thread::Builder::new().spawn(move || {
            while plan::current().is_some() {
                act::anywhere(&info, "raw thread from the beginning");
                std::thread::sleep(Duration::from_micros(fastrand::u64(..3000)));
            }
        })?;
    }
    let mut random = Rng::with_seed(plan.number("begin"));
    if plan.has_sampler {
        start_sampler(cx, &mut random);
    }
    if plan.has_session {
        sessions::start(cx, &mut random);
        sessions::start_of_runtime(cx, &mut random);
    }
    act::in_callback(cx, "initialize");
    Ok(())
}

fn initialize(cx: &mut InInitialize<'_>) -> Result<(), BoxError> {
    let seed = std::env::var("GENERATOR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_default();
    let plan = plan::make(seed, false, act::count());
    act::open();
    eprintln!("generator| {plan}");
    begin(cx, plan)?;
    assert!(plan.beginning != Beginning::Panics, "as planned");
    if plan.beginning == Beginning::Fails { Err("as planned".into()) } else { Ok(()) }
}

#[derive(Profiler, Default)]
#[profiler(clsid = "7B6E2C10-0F53-4D6B-9D2B-6C0A5B1E3101", no_export)]
struct Generated;

corprof::export!(Generated, attached::Visits);
