//! Walks of the own stack: the profiler sees the program's chain of calls.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Outcome, Run, Runtime};

/// The class of `Middle`, whose code is shared.
fn link(runtime: &Runtime) -> &'static str {
    if runtime.has(Difference::ClassOfSharedCode) { "Link<System.__Canon>" } else { "Link<T>" }
}

const ENTRY_POINT: &str =
    "System.Environment.CallEntryPoint(native int, string[]*, int32*, bool, System.Exception*) < ";

/// The chains of calls from Chain's source, the leaf first; the frames above `Main` are the runtime's. The first is by
/// methods, the second by a static constructor, which native code of the runtime has called, or managed code of its
/// own, whose outermost method has a frame on arm64 and none on x64.
fn chains(runtime: &Runtime) -> [String; 2] {
    const BY_MANAGED: &str = "System.Runtime.CompilerServices.InitHelpers.InitClassSlow(\
                              System.Runtime.CompilerServices.MethodTable*) < \
                              System.Runtime.CompilerServices.StaticsHelpers.GetNonGCStaticBaseSlow(\
                              System.Runtime.CompilerServices.MethodTable*) < ";
    const OUTERMOST: &str = "System.Runtime.CompilerServices.StaticsHelpers.GetNonGCStaticBase(\
                             System.Runtime.CompilerServices.MethodTable*) < ";
    const CONSTRUCTOR: &str = "System.Runtime.CompilerServices.InitHelpers.CallClassConstructor(\
                               void*, void*, System.Exception*) < ";
    let (constructor, entry) =
        if runtime.has(Difference::ManagedEntries) { (CONSTRUCTOR, ENTRY_POINT) } else { ("", "") };
    let middle = format!("{}.Middle<int32>(int32)", link(runtime));
    let by_managed = match (runtime.has(Difference::ManagedInitialization), runtime.processor()) {
        (false, _) => String::new(),
        (true, "aarch64") => [BY_MANAGED, OUTERMOST].concat(),
        (true, _) => BY_MANAGED.to_owned(),
    };
    [
        format!("Chain.Inner(int32) < {middle} < Chain.Outer(int32) < Chain.Main() < {entry}native"),
        format!(
            "Chain.Inner(int32) < Lazy..cctor() < {constructor}native < {by_managed}Chain.Static() < Chain.Main() < {entry}native"
        ),
    ]
}

fn chain(runtime: &Runtime, profiler: &str) -> Result<Outcome> {
    let outcome = Run::new(runtime, "Chain").profiler_named("walks", profiler).run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout == "sum=16\n", "{outcome}");
    Ok(outcome)
}

/// The lines about an event, in order.
fn told<'o>(outcome: &'o Outcome, event: &str) -> Vec<&'o str> {
    let rest = |line: &'o str| line.strip_prefix(event).and_then(|rest| rest.strip_prefix(": "));
    outcome.stderr.lines().filter_map(rest).collect()
}

#[test]
fn callbacks_see_the_chain_of_calls_that_led_to_them() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Everywhere")?;
        let chains = chains(&runtime);
        for event in ["jit", "thrown"] {
            ensure!(told(&outcome, event) == chains, "{event}: {outcome}");
        }
        // Each Inner allocates one, and then the thread that it has made.
        let allocated = told(&outcome, "allocated");
        let [first, on_thread, second, on_second] = allocated.as_slice() else {
            anyhow::bail!("not four allocations: {outcome}");
        };
        ensure!([*first, *second] == chains, "{outcome}");
        for stack in [on_thread, on_second] {
            ensure!(stack.starts_with("Chain.OnThread() < ") && stack.ends_with(" < native"), "{outcome}");
            ensure!(!stack.contains("Inner"), "another thread's frames: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn where_there_is_no_managed_frame_there_is_nothing_to_see() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Everywhere")?;
        // On the new thread, before its first frame and after its last.
        for event in ["thread created", "thread destroyed"] {
            let stacks = told(&outcome, event);
            ensure!(stacks.len() >= 2 && stacks.iter().all(|stack| stack.is_empty()), "{event}: {outcome}");
        }
        ensure!(told(&outcome, "shutdown") == [""], "{outcome}");
    }
    Ok(())
}

#[test]
fn moments_without_a_walk_are_named_errors() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Everywhere")?;
        let unsafe_now = "DoStackSnapshot: CORPROF_E_STACKSNAPSHOT_UNSAFE (0x80131360): ";
        ensure!(told(&outcome, "initialize").iter().any(|told| told.starts_with(unsafe_now)), "{outcome}");
        let unmanaged = "DoStackSnapshot: CORPROF_E_STACKSNAPSHOT_UNMANAGED_CTX (0x8013135F): ";
        for event in ["unwind", "caught"] {
            let stacks = told(&outcome, event);
            if event == "caught" && runtime.has(Difference::FramesAtCatch) {
                ensure!(stacks == chains(&runtime), "{outcome}");
                continue;
            }
            ensure!(stacks.len() == 2 && stacks.iter().all(|stack| stack.starts_with(unmanaged)), "{event}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn the_first_walk_sets_the_flag_that_walks_need() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Flagless")?;
        let chains = chains(&runtime);
        ensure!(told(&outcome, "flags") == ["before false, after true", "before true, after true"], "{outcome}");
        ensure!(told(&outcome, "thrown") == chains, "{outcome}");
        // The innermost two, without what is native.
        let innermost = chains.map(|chain| chain.split(" < ").take(2).collect::<Vec<_>>().join(" < "));
        ensure!(told(&outcome, "functions") == innermost, "{outcome}");
    }
    Ok(())
}

#[test]
fn the_first_error_that_a_callback_returns_is_reported() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Failing")?;
        ensure!(told(&outcome, "tried") == ["0", "1"], "each was called, and went on: {outcome}");
        for line in [
            "corprof: exception_thrown of the profiler Failing: no luck 0 (further errors of it are not shown)\n",
            "corprof: every of the profiler Failing: DoStackSnapshot: CORPROF_E_STACKSNAPSHOT_UNSAFE (0x80131360): ",
        ] {
            ensure!(outcome.stderr.matches(line).count() == 1, "expected once: {line:?} in {outcome}");
        }
        ensure!(outcome.stderr.matches("of the profiler Failing").count() == 2, "{outcome}");
    }
    Ok(())
}

#[test]
fn a_walk_breaks_off_carries_registers_and_lets_no_panic_through_the_runtime() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = chain(&runtime, "Manners")?;
        let frames = if runtime.has(Difference::ManagedEntries) { 6 } else { 5 };
        let registers = format!("registers of {frames}: ips true, stack true, Ok(())");
        for line in [
            "broke off after 2: Ok(())",
            "nested: DoStackSnapshot: CORPROF_E_STACKSNAPSHOT_UNSAFE",
            "; around it: Ok(())",
            &registers,
            "frame Chain.Inner(int32): same definition true, by its ip true, class true, args 0",
            "in a walk, at frame 3",
            "the profiler Manners panicked in exception_thrown and is disabled",
        ] {
            ensure!(outcome.stderr.matches(line).count() == 1, "expected once: {line:?} in {outcome}");
        }
        // Shared between instantiations over reference types: where the runtime does not report the class, the frame
        // info of a walk has none either.
        let line = outcome.stderr.lines().find(|line| line.starts_with(&format!("frame {}", link(&runtime))));
        let line = line.with_context(|| format!("no frame of Link: {outcome}"))?;
        let told = format!(
            "same definition true, by its ip true, class {}, args 1",
            runtime.has(Difference::ClassOfSharedCode)
        );
        ensure!(line.ends_with(&told), "{outcome}");
    }
    Ok(())
}
