//! What becomes of a profile when it has few samples, or when the application or the command ends before its time.

use std::fs;

use super::*;

/// `corprof record -o FILE OPTIONS -- Ends MILLISECONDS END`, tests/managed/Ends.cs.
fn record(runtime: &Runtime, file: &Path, options: &[&str], milliseconds: &str, end: &str) -> Result<Command> {
    let mut command = corprof()?;
    command.arg("record").arg("-o").arg(file).args(options).arg("--").args(application(runtime, "Ends")?);
    command.args([milliseconds, end]);
    // A dump of the core is no part of the tests.
    command.env("DOTNET_DbgEnableMiniDump", "0");
    Ok(command)
}

#[test]
fn rounds_samples_and_rates_are_told_on_the_terminal_and_in_every_format() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        for name in ["p.html", "p.svg", "p.speedscope.json", "p.firefox.json", "p.pprof"] {
            let file = folder.path().join(name);
            let output = record(&runtime, &file, &["--rate", "200"], "300", "return")?.output()?;
            let (_, stderr) = texts(&output);
            ensure!(output.status.success(), "{runtime}: {output:?}");
            let facts = stderr.lines().find(|line| line.contains(" Hz reached"));
            let facts = facts.with_context(|| format!("{runtime}: no facts: {stderr}"))?;
            let facts = facts.trim_start_matches("corprof:   ");
            ensure!(facts.contains(" in ") && facts.contains(" rounds · 200 Hz asked, "), "{runtime}: {facts}");
            ensure!(stderr.contains("shares may be off by"), "{runtime}: few samples are not told of: {stderr}");
            let counted = facts.split(" · ").find(|fact| fact.contains(" rounds")).context("no rounds")?;
            let profile = fs::read(&file)?;
            let text = if profile.starts_with(&[0x1f, 0x8b]) { unpacked(&file)? } else { profile };
            let text = String::from_utf8_lossy(&text);
            ensure!(text.contains(counted), "{runtime}: {name} lacks `{counted}`");
        }
    }
    Ok(())
}

fn unpacked(file: &Path) -> Result<Vec<u8>> {
    Ok(Command::new("gzip").arg("-dc").stdin(fs::File::open(file)?).output()?.stdout)
}

#[test]
fn a_profile_without_samples_is_an_error_that_says_why() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let program = diagnosed(&runtime, None)?;
        let pid = program.child.id().to_string();
        let file = folder.path().join("p.folded");
        let mut command = corprof()?;
        command.args(["record", "-p", &pid, "--duration", "0.5", "-o"]).arg(&file);
        let output = command.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124), "{runtime}: {output:?}");
        ensure!(stderr.contains("no samples: ") && stderr.contains(" in 0."), "{runtime}: {stderr}");
        ensure!(!stderr.contains("is written"), "{runtime}: {stderr}");
        ensure!(fs::read_dir(folder.path())?.count() == 0, "{runtime}: a file without samples");

        let output = record(&runtime, &file, &["--delay", "3600"], "1", "return")?.output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.code() == Some(124) && stderr.contains("no samples: "), "{runtime}: {output:?}");
        ensure!(stderr.contains("ended before sampling began"), "{runtime}: {stderr}");
        ensure!(fs::read_dir(folder.path())?.count() == 0, "{runtime}: a file without samples");
        drop(program);
    }
    Ok(())
}

/// The application says when it dies; until then it works for two seconds, of which all but the last are in the profile.
#[test]
fn an_application_that_dies_leaves_a_profile_and_its_exit_code() -> Result<()> {
    for runtime in runtimes()? {
        for (end, code, named) in [
            ("abort", 134, "SIGABRT has ended the application"),
            ("throw", 134, "SIGABRT has ended the application"),
            ("overflow", 134, "SIGABRT has ended the application"),
            ("kill", 137, "SIGKILL has ended the application"),
            ("exit", 3, ""),
        ] {
            let folder = tempfile::tempdir()?;
            let file = folder.path().join("p.folded");
            let output = record(&runtime, &file, &[], "2500", end)?.output()?;
            let (_, stderr) = texts(&output);
            let what = format!("{runtime}: {end}: {output:?}");
            ensure!(output.status.code() == Some(code) && stderr.contains(named), "{what}");
            ensure!(stderr.contains("p.folded is written"), "{what}");
            ensure!(stderr.contains("the process died, so the samples since"), "{what}");
            ensure!(!stderr.contains("wrote no file"), "{what}");
            ensure!(fs::read_to_string(&file)?.contains("Ends.Work"), "{what}");
        }
    }
    Ok(())
}

/// Between `fork` and `exec` a child is its parent, with its command line and its mapped files.
#[test]
fn a_child_has_its_own_command_line() -> Result<()> {
    for runtime in runtimes()? {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("p.svg");
        let mut command = corprof()?;
        command.args(["record", "--mode", "wall", "-o"]).arg(&file).arg("--").args(application(&runtime, "Family")?);
        let output = command.arg("12").args(application(&runtime, "Hello")?).arg("child").output()?;
        let (_, stderr) = texts(&output);
        ensure!(output.status.success(), "{runtime}: {output:?}");
        // A child that ends soon may have no samples.
        let named = |line: &&str| line.contains(" is of ") || line.contains("wrote no file");
        let of: Vec<_> = stderr.lines().filter(named).collect();
        let (of, missing): (Vec<_>, Vec<_>) = of.into_iter().partition(|line| line.contains(" is of "));
        ensure!(of.first().is_some_and(|first| first.contains("Family.dll")), "{runtime}: {stderr}");
        ensure!(of.len() + missing.len() > 6, "{runtime}: few have a command line: {stderr}");
        for child in of.iter().skip(1).chain(&missing) {
            ensure!(child.contains("Hello.dll child") && !child.contains("Family.dll"), "{runtime}: {stderr}");
        }
    }
    Ok(())
}
