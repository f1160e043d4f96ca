//! The example `async_stack`.

use anyhow::{Result, ensure};
use corprof_tests::{Difference, Run, Runtime, ensure_or_longer, patiently};

/// The stacks of exceptions go on with the methods that await the resumed one, where the runtime tells.
#[test]
fn async_stack_prints_who_awaits_the_thrower() -> Result<()> {
    patiently(Runtime::all_for_modern("AsyncWitnessMachines")?, |runtime, times| {
        let is_told = runtime.has(Difference::AsyncOperations);
        let programs: &[&str] =
            if is_told { &["AsyncWitness", "AsyncWitnessMachines"] } else { &["AsyncWitnessMachines"] };
        for kind in programs {
            let milliseconds = (1500 * times).to_string();
            let run = Run::new(runtime, kind).profiler("async_stack");
            let outcome = run.args(["throw", &milliseconds]).run()?;
            outcome.exited_with(0)?;
            let stacks: Vec<&str> = outcome.stderr.split("thrown\n").skip(1).collect();
            if !is_told {
                ensure!(stacks.is_empty(), "{runtime}, {kind}: {outcome}");
                continue;
            }
            ensure_or_longer!(stacks.len() > 100, "{runtime}, {kind}: {outcome}");
            let is_right = |stack: &&&str| {
                let awaits =
                    |name: &str| stack.lines().any(|line| line.starts_with("  Awaiting ") && line.contains(name));
                let resumed = stack.lines().rfind(|line| line.starts_with("  Physical ")).unwrap_or_default();
                if resumed.contains("Query") {
                    return awaits("Load") && awaits("Orders") != awaits("Users");
                }
                // A call that need not wait runs within the method that was resumed after the call before.
                resumed.contains("Work") && stack.contains("Users") && !stack.contains("Orders")
            };
            let right = stacks.iter().filter(is_right).count();
            ensure!(right * 10 >= stacks.len() * 9, "{runtime}, {kind}: {right} of {}: {outcome}", stacks.len());
        }
        Ok(())
    })
}
