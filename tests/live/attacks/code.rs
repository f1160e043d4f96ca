//! Attacks on code: methods of every shape are edited and hooked while they run, and do what they did.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, repetitions};

use super::{LONGEST, count, told, told_in};

/// What the profiler of `Hot` and `Shapes` does.
const HOT: [&str; 7] =
    ["edits", "once", "edits fast", "edits slow exact", "fast-by-il", "slow-by-il exact", "edits calm slow"];

/// Methods of every shape, in the last tier: also those that native code calls, which inserted calls must not bring
/// back in cooperative mode.
fn hot(runtime: &Runtime, app: &str, does: &str, seconds: f64, settings: &[(&str, &str)]) -> Result<()> {
    let bare = Run::new(runtime, app).args(["0.1"]).run()?;
    let edited = if app == "RareShapes" { "Rare" } else { app };
    let run = Run::new(runtime, app).args([seconds.to_string()]).env("ATTACKS_HOT", does);
    let run = run.env("ATTACKS_PROGRAM", edited);
    let run = settings.iter().fold(run, |run, (name, value)| run.env(name, value));
    let outcome = run.profiler_named("attacks", "Hot").timeout(LONGEST).run()?;
    outcome.exited_with(0).with_context(|| format!("{does}, {settings:?}"))?;
    ensure!(outcome.stdout == bare.stdout, "{does}, {settings:?}: {outcome}");
    ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
    let told = told_in(&outcome.stderr, "hooks=")?;
    ensure!(count(told, "hooks")? + count(told, "probes")? > 0, "{does}: {outcome}");
    eprintln!("{runtime}, {does}, {settings:?}: {told}");
    Ok(())
}

#[test]
fn methods_of_every_shape_are_edited_and_hooked_while_they_run() -> Result<()> {
    for runtime in Runtime::all_for_modern("Hot")?.iter().filter(|runtime| !runtime.is_windows()) {
        hot(runtime, "Hot", "edits", repetitions(0.6, 1.0), &[])?;
        hot(runtime, "Hot", "once", repetitions(0.6, 1.0), &[("DOTNET_TieredCompilation", "0")])?;
    }
    Ok(())
}

/// Tail calls of generic and virtual methods, `jmp`, values that stay on the stack, handlers that C# does not know.
#[test]
fn methods_of_shapes_that_only_il_has_are_edited_and_hooked_while_they_run() -> Result<()> {
    for runtime in Runtime::all()?.iter().filter(|runtime| !runtime.is_windows() && !runtime.is_emulated()) {
        hot(runtime, "RareShapes", "edits fast", repetitions(0.6, 1.0), &[])?;
    }
    Ok(())
}

/// Also those of the runtime's own library, from the first one on.
#[test]
fn every_method_that_is_compiled_is_edited() -> Result<()> {
    let apps: [(&str, &[&str]); 4] = [("World", &[]), ("Chain", &[]), ("Generics", &[]), ("Throw", &["50"])];
    for runtime in &Runtime::all()? {
        for (number, (app, args)) in apps.into_iter().cycle().take(repetitions(1, 40)).enumerate() {
            let bare = Run::new(runtime, app).args(args).run()?;
            let run = Run::new(runtime, app).args(args).env("ATTACKS_SEED", number.to_string());
            let outcome = run.profiler_named("attacks", "Everywhere").timeout(LONGEST).run()?;
            outcome.exited_with(0)?;
            ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
            let unfit = outcome.stderr.contains("panicked") || outcome.stderr.contains("was not compiled");
            ensure!(!unfit, "{outcome}");
            let told = told(&outcome, "edited=")?;
            eprintln!("{runtime}, {app}: {told}");
            ensure!(count(told, "edited")? > 300 && count(told, "values")? > 500, "{outcome}");
        }
    }
    Ok(())
}

/// `box` with a test behind it boxes nothing, so that it may stand for ref structs. A call between the two parts them.
#[test]
fn generic_methods_of_ref_structs_are_edited_while_they_run() -> Result<()> {
    for runtime in Runtime::all_for_modern("RefTypes")?.iter().filter(|runtime| !runtime.is_windows()) {
        hot(runtime, "RefTypes", "edits", repetitions(1.0, 2.0), &[])?;
    }
    Ok(())
}

/// A change of hot reload is numbered from the end of what the compiler has written: where rows of a profiler would be.
#[test]
fn hot_reload_goes_on_beside_edits_and_inserted_hooks() -> Result<()> {
    for runtime in &Runtime::all_for_modern("HotReloads")? {
        let run = || Run::new(runtime, "HotReloads").env("DOTNET_MODIFIABLE_ASSEMBLIES", "debug");
        let bare = run().run()?;
        bare.exited_with(0)?;
        ensure!(bare.stdout.contains("\nchanged"), "{bare}");
        for does in ["once", "fast-by-il", "edits"] {
            let run = run().env("ATTACKS_HOT", does).env("ATTACKS_PROGRAM", "HotReloads");
            let outcome = run.profiler_named("attacks", "Hot").run()?;
            outcome.exited_with(0).with_context(|| does.to_owned())?;
            ensure!(outcome.stdout == bare.stdout, "{does}: {outcome}");
        }
    }
    Ok(())
}

/// The compiler keeps an argument of a tail call in a register for results, around the hook. The C library of a processor
/// without AVX-512 leaves the upper parts of vectors at zero.
#[test]
fn vectors_that_tail_calls_pass_stay_whole() -> Result<()> {
    let optimised = ("DOTNET_TieredCompilation", "0");
    let older = ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD");
    for runtime in &Runtime::all_for_modern("WideValues")? {
        hot(runtime, "WideValues", "fast exact", repetitions(0.6, 1.0), &[optimised, older])?;
        hot(runtime, "WideValues", "slow exact", repetitions(0.6, 1.0), &[optimised])?;
        hot(runtime, "WideValues", "slow-by-il exact", repetitions(0.6, 1.0), &[optimised, older])?;
    }
    Ok(())
}

/// References of another class than declared, or that lead nowhere; hundreds of arguments.
#[test]
fn values_that_are_not_what_their_type_says_are_read() -> Result<()> {
    for runtime in Runtime::all_for_modern("Shapes")?.iter().filter(|runtime| !runtime.is_windows()) {
        hot(runtime, "Shapes", "slow exact", repetitions(0.6, 1.0), &[])?;
        hot(runtime, "Shapes", "edits slow-by-il", repetitions(0.6, 1.0), &[])?;
    }
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn methods_of_every_shape_are_edited_and_hooked_in_all_tiers() -> Result<()> {
        const SETTINGS: [&[(&str, &str)]; 4] = [
            &[],
            &[
                ("DOTNET_TieredPGO", "1"),
                ("DOTNET_TC_BackgroundWorkerTimeoutMs", "0"),
                ("DOTNET_TC_CallCountThreshold", "3"),
            ],
            &[("DOTNET_TieredCompilation", "0")],
            &[
                ("DOTNET_ReadyToRun", "0"),
                ("DOTNET_OSR_HitLimit", "1"),
                ("DOTNET_TC_OnStackReplacement_InitialCounter", "1"),
            ],
        ];
        for runtime in Runtime::all_for_modern("Hot")?.iter().filter(|runtime| !runtime.is_windows()) {
            for does in HOT {
                for settings in SETTINGS {
                    hot(runtime, "Hot", does, repetitions(2.0, 10.0), settings)?;
                    hot(runtime, "Shapes", does, repetitions(2.0, 10.0), settings)?;
                    hot(runtime, "RareShapes", does, repetitions(2.0, 10.0), settings)?;
                }
            }
        }
        Ok(())
    }
}
