//! Hooks with values on methods that native code calls.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Difference, Run, Runtime, repetitions};

/// Threads of the runtime's and threads that it has never seen call methods from native code, beside collections. .NET
/// 8 would die of the latter, so these methods have no hooks there.
#[test]
fn functions_that_native_code_calls_are_hooked_in_cooperative_mode() -> Result<()> {
    let rounds = repetitions(30, 200).to_string();
    for runtime in Runtime::all_for_modern("Unmanaged")?.into_iter().filter(|runtime| !runtime.is_windows()) {
        for threads in ["known", "foreign"] {
            let run = Run::new(&runtime, "Unmanaged").args([threads, &rounds]);
            let outcome = run.profiler("unmanaged").run()?;
            outcome.exited_with(0)?;
            let number = |line: &str, name: &str| {
                let value = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
                Ok::<u64, anyhow::Error>(value.with_context(|| format!("no {name}: {outcome}"))?.parse()?)
            };
            let told = outcome.stderr.lines().find_map(|line| line.strip_prefix("unmanaged| entered"));
            let told = format!("entered{}", told.with_context(|| format!("no counts: {outcome}"))?);
            let compared = number(&outcome.stdout, "compared")?;
            let from_native = if threads == "known" { compared } else { rounds.parse()? };
            let inner = if threads == "known" { 2 * compared } else { from_native };
            let expected = if runtime.has(Difference::CallsFromNative) { from_native + inner } else { inner };
            ensure!(number(&told, "entered")? == expected && number(&told, "left")? == expected, "{outcome}");
            ensure!(number(&told, "wrong")? == 0 && number(&told, "unbalanced")? == 0, "{outcome}");
            ensure!(number(&told, "collections")? > 2 && number(&told, "beside")? == 0, "{outcome}");
        }
    }
    Ok(())
}
