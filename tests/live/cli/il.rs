//! `corprof il`.

use super::*;

#[test]
fn compiled_programs_pass_and_a_broken_body_is_refused() -> Result<()> {
    for runtime in runtimes()?.into_iter().take(1) {
        let app = PathBuf::from(runtime.app("Hello")?);
        let output = corprof()?.args(["il", "check", "--json"]).arg(&app).output()?;
        let (stdout, stderr) = texts(&output);
        ensure!(output.status.success(), "{stdout}{stderr}");
        let lines = stdout.lines().map(serde_json::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
        ensure!(!lines.is_empty(), "no body");
        for line in &lines {
            ensure!(line["identical"] == true && line["verdict"] == "ok" && line["rule"].is_null(), "{line}");
            ensure!(line["token"].as_str().is_some_and(|token| token.starts_with("0x06")), "{line}");
        }

        let output = corprof()?.args(["il", "dump"]).arg(&app).arg("Hello::Main").output()?;
        let (dump, stderr) = texts(&output);
        ensure!(output.status.success(), "{stderr}");
        for expected in
            ["int32 Hello::Main(string[])", "[mscorlib]System.Console::WriteLine(string)", "// 0", ": object"]
        {
            ensure!(dump.contains(expected), "no {expected}: {dump}");
        }

        // `ldc.i4.s 42; ret` at the end of Main, without its number: a `ret` of nothing.
        let mut bytes = std::fs::read(&app)?;
        let at = bytes.windows(3).position(|window| window == [0x1f, 42, 0x2a]);
        let at = at.context("Main does not end with `return 42`")?;
        bytes[at..at + 2].copy_from_slice(&[0, 0]);
        let folder = tempfile::tempdir()?;
        let broken = folder.path().join("Hello.dll");
        std::fs::write(&broken, bytes)?;
        let output = corprof()?.args(["il", "check", "--json"]).arg(&broken).output()?;
        ensure!(output.status.code() == Some(1), "{output:?}");
        let (stdout, _) = texts(&output);
        let refused = stdout.lines().map(serde_json::from_str::<serde_json::Value>).collect::<Result<Vec<_>, _>>()?;
        let refused = refused.iter().find(|line| line["verdict"] == "refused").context("nothing refused")?;
        ensure!(refused["method"] == "Hello::Main" && refused["identical"] == true, "{refused}");
        ensure!(refused["rule"].is_string() && refused["offset"].is_u64(), "{refused}");
        let output = corprof()?.args(["il", "check"]).arg(&broken).output()?;
        ensure!(texts(&output).0.contains("Hello::Main: "), "{output:?}");
        let output = corprof()?.args(["il", "check", "/nowhere/App.dll"]).output()?;
        ensure!(output.status.code() == Some(3), "{output:?}");
        let output = corprof()?.args(["il", "dump"]).arg(&app).arg("Nobody").output()?;
        ensure!(output.status.code() == Some(3) && texts(&output).1.contains("no method Nobody"), "{output:?}");
    }
    Ok(())
}
