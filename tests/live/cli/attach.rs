//! `corprof attach`.

use super::*;

#[test]
fn a_profiler_is_attached_and_a_second_one_is_refused_with_a_reason() -> Result<()> {
    for runtime in runtimes(Runtime::all()?) {
        let mut program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let library = library(&runtime, "attached")?;
        let mut command = corprof()?;
        let output =
            command.args(["attach", &pid]).arg(&library).args(["--data", "ab", "--timeout", "120"]).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        ensure!(texts(&output).1.contains(&format!("Attached is attached to process {pid}")), "{runtime}: {output:?}");

        let output = corprof()?.args(["attach", &pid]).arg(&library).args(["--timeout", "120"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(1), "{runtime}: {output:?}");
        ensure!(stderr.contains("CORPROF_E_PROFILER_ALREADY_ACTIVE"), "{runtime}: {stderr}");
        ensure!(stderr.contains("this one is attached already"), "{runtime}: {stderr}");
        let beeper = self::library(&runtime, "beeper")?;
        let output = corprof()?.args(["attach", &pid]).arg(beeper).args(["--timeout", "120"]).output()?;
        let (_, stderr) = texts(&output);
        ensure!(stderr.contains("libattached.so"), "the other one is not named: {runtime}: {stderr}");

        program.tell("throw 3")?;
        let (code, stderr) = program.end()?;
        ensure!(code == Some(0), "{runtime}: {stderr}");
        ensure!(stderr.contains("attached| given [97, 98]\n"), "{runtime}: {stderr}");
        ensure!(stderr.contains("attached| exceptions: 3\n"), "{runtime}: {stderr}");
    }
    Ok(())
}

#[test]
fn what_cannot_be_loaded_is_not_sent() -> Result<()> {
    for runtime in runtimes(Runtime::all()?).into_iter().take(1) {
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let output = corprof()?.args(["attach", &pid, "no-such.so"]).output()?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        ensure!(texts(&output).1.contains("library-missing"), "{output:?}");
        let output = corprof()?.args(["attach", &pid, "samplr"]).output()?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        ensure!(texts(&output).1.contains("did you mean `sampler`?"), "{output:?}");
        let own = std::process::id().to_string();
        let output = corprof()?.args(["attach", &own]).arg(library(&runtime, "attached")?).output()?;
        ensure!(output.status.code() == Some(3), "{output:?}");
        ensure!(texts(&output).1.contains("no diagnostics port"), "{output:?}");
    }
    Ok(())
}
