//! Compares the fake CLR with real ones: a profiler gets the same callbacks for the same program.
//!
//! The program is `managed/Sequence.cs`. For real runtimes it is compiled; for the fake CLR it is played by [`play`],
//! which follows it line by line. The test compares the whole record: events, names, order, threads.

use anyhow::{Context, Result, bail, ensure};
use corprof::testing::{ClassSpec, FakeClr, Frame, FunctionSpec};
use corprof_tests::{Run, Runtime};

#[path = "../profilers/sequence.rs"]
mod profiler;

use profiler::Sequence;

/// `managed/Sequence.cs`, and `managed/Hello.cs` without arguments.
fn play(clr: &FakeClr) {
    let int32 = clr.core_class("System.Int32");
    let canon = clr.core_class("System.__Canon");
    let strings = clr.load_array(clr.core_class("System.String"), 1);
    let constructor = || FunctionSpec::new(".ctor").instance();

    let app = clr.load_assembly("Sequence");
    let program = clr.load_class(app, "Sequence");
    let function = |name: &str| clr.function(program, name);
    clr.jit(function("Main"));

    let allocates = function("Allocates");
    clr.jit_with(allocates, || {
        let item = clr.load_class(app, "Item");
        let shared = clr.load_class(app, ClassSpec::new("Shelf`1").args([canon]));
        clr.load_class(app, ClassSpec::new("Shelf`1").args([item]));
        clr.inline(allocates, clr.function(item, constructor()));
        clr.inline(allocates, clr.function(shared, constructor().shared()));
        clr.load_array(item, 1);
    });
    let item = clr.load_class(app, "Item");
    let shelf = clr.load_class(app, ClassSpec::new("Shelf`1").args([item]));
    let items = clr.load_array(item, 1);
    let new_item = clr.function(item, constructor());
    let mut garbage = [item, shelf, items].map(|class| clr.allocate(class)).to_vec();

    let inlines = clr.function(program, FunctionSpec::new("Inlines").takes([int32]));
    let twice = clr.function(program, FunctionSpec::new("Twice").takes([int32]).returns(int32));
    clr.jit_with(inlines, || {
        clr.inline(inlines, twice);
    });
    clr.jit(function(".cctor"));

    let [throws, declines, tidies, raises] = ["Throws", "Declines", "Tidies", "Raises"].map(function);
    clr.jit_with(throws, || {
        clr.load_class(app, "Oops");
    });
    clr.jit(declines);
    clr.jit(tidies);
    let oops = clr.load_class(app, "Oops");
    clr.jit_with(raises, || {
        clr.inline(raises, clr.function(oops, constructor()));
    });
    let stack =
        [Frame::new(raises), Frame::new(tidies).finally(), Frame::new(declines).filter(), Frame::new(throws).catch()];
    garbage.push(clr.throw(oops, &stack));

    let worker = clr.create_thread();
    clr.name_thread(worker, "worker");
    let works = function("Works");
    garbage.push(clr.on_thread(worker, || {
        clr.jit_with(works, || {
            clr.inline(works, new_item);
        });
        clr.allocate(item)
    }));
    clr.destroy_thread(worker);

    let collects = function("Collects");
    clr.jit_with(collects, || {
        let pinned = clr.load_class(app, "Pinned");
        for _ in 0..3 {
            clr.inline(collects, new_item);
        }
        clr.inline(collects, clr.function(pinned, constructor()));
    });
    let pinned = clr.load_class(app, "Pinned");
    garbage.push(clr.allocate(item));
    let [first, second, pinned] = [item, item, pinned].map(|class| clr.allocate(class));
    clr.refer(second, first);
    clr.allocate_sized(items, 20_000 * 8);
    clr.pin(pinned);
    for object in garbage {
        clr.release(object);
    }
    clr.collect();
    clr.unpin(pinned);
    clr.jit(function("Ends"));

    clr.jit(function("Invites"));
    let guest = clr.load_assembly("Hello");
    let hello = clr.load_class(guest, "Hello");
    clr.jit(clr.function(hello, FunctionSpec::new("Main").takes([strings]).returns(int32)));
    let finalizer = clr.create_thread();
    clr.on_thread(finalizer, || clr.unload_assembly(guest));
}

/// The profiler's record on the fake CLR in the version of `runtime`.
fn on_the_fake(runtime: &Runtime) -> Result<String> {
    let clr = FakeClr::builder();
    let clr = match runtime.major {
        8 => clr.info_version(14),
        // Without more words the fake CLR is .NET 10.
        9 | 10 => clr,
        _ => clr.release(11, 0),
    };
    let mut clr = clr.load::<Sequence>()?;
    clr.start_up();
    play(&clr);
    let heard = clr.profiler::<Sequence>().context("the profiler is gone")?.heard();
    clr.shutdown();
    ensure!(!clr.has_panicked(), "the profiler has panicked on the fake CLR");
    ensure!(clr.refusals().is_empty(), "the fake CLR has refused {:?}", clr.refusals());
    Ok(heard)
}

/// Removes doubled reports of a method's inlinings. The compiler first assumes that data is in reach of 32 bits; where
/// it is not, it compiles the method once more and never assumes so again in that process (`g_fAllowRel32` in the
/// runtime's jitinterface.cpp). Under Wine that happens on .NET 10.
fn report_inlining_once(lines: &mut Vec<String>) {
    let is_inlining = |line: &String| line.contains(": JITInlining ");
    let mut at = 0;
    while at < lines.len() {
        let run = lines[at..].iter().take_while(|line| is_inlining(line)).count();
        let half = run / 2;
        if run > 0 && run == 2 * half && lines[at..at + half] == lines[at + half..at + run] {
            lines.drain(at + half..at + run);
            return;
        }
        at += run.max(1);
    }
}

/// Whether the runtime reports that a thread other than `Main`'s came back in the middle of the collection, and waited
/// for its end: one of its own, or the worker on the way out, for `Join` does not wait for the last of it. That depends
/// on how busy the machine is.
fn is_about_being_late(line: &str) -> bool {
    ["another", "worker"].iter().any(|thread| {
        let events = ["RuntimeThreadSuspended", "RuntimeThreadResumed"];
        events.iter().any(|event| line == format!("{thread}: {event} {thread}"))
    })
}

#[test]
fn a_profiler_hears_the_same_on_the_fake_clr_as_on_a_runtime() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sequence")
            .profiler("sequence")
            // Compiled once, and optimised so that something is inlined.
            .env("DOTNET_TieredCompilation", "0")
            // Whether a collection moves anything is else its own decision.
            .env("DOTNET_gcForceCompact", "1")
            .run()?;
        outcome.exited_with(42)?;
        let fake = on_the_fake(&runtime)?;
        let lines = |text: &str| text.trim().lines().map(str::to_owned).collect::<Vec<_>>();
        let mut real = lines(&outcome.stderr);
        let faked = lines(&fake);
        if runtime.is_windows() {
            report_inlining_once(&mut real);
        }
        real.retain(|line| !is_about_being_late(line));
        if let Some(at) = (0..real.len().max(faked.len())).find(|&at| real.get(at) != faked.get(at)) {
            let [real, fake] = [&real, &faked].map(|lines| lines.get(at).map_or("nothing", String::as_str));
            bail!("line {}: `{fake}` on the fake CLR, `{real}` on {outcome}", at + 1);
        }
        ensure!(real.len() > 100, "the profiler heard of {} events only: {outcome}", real.len());
    }
    Ok(())
}
