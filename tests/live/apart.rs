//! Methods with probes or hooks are kept out of methods that native code calls, also when their profiler does nothing
//! any more: there the inserted call would return in cooperative mode, and the process would die in the next call.

use anyhow::{Result, ensure};
use corprof_diagnostics::Process;
use corprof_tests::{Run, Runtime, repetitions};

use crate::attacks::{count, told_in};
use crate::diagnostics::{PATIENCE, Program, profiler_named, runtimes};

fn with_program() -> Result<Vec<Runtime>> {
    let with: Vec<_> = Runtime::all_for_modern("Apart")?.iter().map(ToString::to_string).collect();
    Ok(runtimes()?.into_iter().filter(|runtime| with.contains(&runtime.to_string())).collect())
}

/// Has the program compile the rest of its methods, once the profiler has left.
fn sorts(runtime: &Runtime, mut program: Program, does: &str) -> Result<String> {
    // It has left long before on any machine; what is checked below.
    std::thread::sleep(std::time::Duration::from_secs(1));
    program.tell("sort")?;
    let stderr = program.end()?;
    let (before, _) = stderr.split_once("it sorts").unwrap_or_default();
    ensure!(before.contains("attacks| it leaves"), "{runtime}, {does}: {stderr}");
    Ok(stderr)
}

/// What the profiler adds, and what it does then.
const WAYS: [&str; 6] =
    ["probes retires", "probes panics", "probes clears", "hooks retires", "hooks panics", "hooks clears"];

mod long {
    use super::*;

    #[test]
    fn probes_and_hooks_of_a_profiler_that_has_left_stay_out_of_methods_that_native_code_calls() -> Result<()> {
        for runtime in &with_program()? {
            for does in WAYS {
                for _ in 0..repetitions(1, 20) {
                    let run = Run::new(runtime, "Apart").env("ATTACKS_APART", does);
                    let program = Program::ready(run.profiler_named("attacks", "LeavesProbes").command()?)?;
                    sorts(runtime, program, does).map_err(|error| error.context(format!("{runtime}, {does}")))?;
                }
            }
        }
        Ok(())
    }

    #[test]
    fn probes_of_a_profiler_that_failed_to_attach_stay_out_of_methods_that_native_code_calls() -> Result<()> {
        for runtime in &with_program()? {
            let (clsid, library) = profiler_named(runtime, "attacks", "LeavesProbes")?;
            for _ in 0..repetitions(1, 20) {
                let program = Program::ready(Run::new(runtime, "Apart").command()?)?;
                let client = Process::open(program.pid())?.client().with_timeout(PATIENCE);
                let answer = client.attach_profiler(clsid, &library, &[], PATIENCE);
                let stderr = sorts(runtime, program, "attached")?;
                eprintln!("{runtime}: {answer:?}");
                ensure!(count(told_in(&stderr, "edited=")?, "edited")? > 0, "{runtime}: {stderr}");
            }
        }
        Ok(())
    }
}
