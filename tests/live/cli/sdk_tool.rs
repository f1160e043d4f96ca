//! The packages of a release for `dotnet tool`, installed and run by the real SDK in each way that it has.

use xtask::release;

use super::sdk::Sdk;
use super::*;

/// The command's own version, as its package says it.
const VERSION: &str = "0.9.1";
const OLDER: &str = "0.9.0";

/// How long the recorded application runs, in milliseconds, on two threads.
const POOL: [&str; 3] = ["1000", "2", "100000"];

/// What comes before the command's own words.
const EACH_WAY: [&[&str]; 3] =
    [&["dotnet", "corprof"], &["dotnet", "tool", "exec", "-y", "corprof"], &["dnx", "-y", "corprof"]];

/// The packages of the built command, in the feed of the user.
fn pack(sdk: &Sdk, folder: &Path) -> Result<()> {
    let built = env::var_os("CORPROF_COMMAND").context("CORPROF_COMMAND is not set")?;
    let command = folder.join("stripped");
    // As a release is built, without what debuggers want: it is packed and unpacked faster.
    let strip = Command::new("strip").arg("-o").arg(&command).arg(built).status()?;
    ensure!(strip.success(), "strip failed");
    fs::create_dir_all(sdk.feed())?;
    release::pack_tool(&command, VERSION, &sdk.feed())
}

/// The same of an older command, which can only say so.
fn pack_older(sdk: &Sdk, folder: &Path) -> Result<()> {
    let command = folder.join("older");
    fs::write(&command, "#!/bin/sh\necho an older corprof\n")?;
    fs::create_dir_all(sdk.feed())?;
    release::pack_tool(&command, OLDER, &sdk.feed())
}

/// Runs words of a user, which must succeed, and answers with what they print.
fn said(sdk: &Sdk, folder: &Path, program: &str, words: &[&str]) -> Result<String> {
    let output = sdk.prepare(Command::new(program), folder).args(words).output()?;
    let (stdout, stderr) = texts(&output);
    ensure!(output.status.success(), "{program} {words:?}: {stdout}{stderr}");
    Ok(stdout)
}

/// Has the installed command record an application, by words before `corprof`'s own.
fn records(sdk: &Sdk, folder: &Path, before: &[&str], dashes: &[&str]) -> Result<()> {
    let runtime = runtimes()?.into_iter().find(|runtime| runtime.major == 10).context("no .NET 10")?;
    let profile = folder.join("p.folded");
    let _ = fs::remove_file(&profile);
    // Not the program itself: this process's PATH does not lead to the SDK.
    let mut command = sdk.prepare(Command::new("/usr/bin/env"), folder);
    command.args(before).args(["record", "-o", "p.folded"]).args(dashes);
    command.args(application(&runtime, "Pool")?).args(POOL);
    let output = command.output()?;
    ensure!(output.status.success(), "{before:?} {dashes:?}: {output:?}");
    let text = fs::read_to_string(&profile).with_context(|| format!("{before:?} {dashes:?}: {output:?}"))?;
    ensure!(text.contains("Pool."), "{before:?} {dashes:?}: {text}");
    Ok(())
}

/// The same with a question, which has the number of a process where the application is.
fn counts_exceptions(sdk: &Sdk, folder: &Path, before: &[&str], dashes: &[&str]) -> Result<()> {
    let runtime = runtimes()?.into_iter().find(|runtime| runtime.major == 10).context("no .NET 10")?;
    let mut command = sdk.prepare(Command::new("/usr/bin/env"), folder);
    command.args(before).arg("exceptions").args(dashes).args(application(&runtime, "Throw")?);
    let output = command.output()?;
    ensure!(texts(&output).1.contains(" exceptions in "), "{before:?} {dashes:?}: {output:?}");
    Ok(())
}

mod long {
    use super::*;

    #[test]
    fn the_package_is_installed_as_a_tool_of_the_user_and_updated() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("user", "", "", "")?;
        pack_older(&sdk, &folder)?;
        let tools = folder.join("tools");
        let (tools, feed) = (tools.to_str().context("UTF-8")?, sdk.feed());
        let feed = feed.to_str().context("UTF-8")?;
        sdk.dotnet(&folder, &["tool", "install", "--tool-path", tools, "corprof", "--add-source", feed])?;
        let command = format!("{tools}/corprof");
        ensure!(said(&sdk, &folder, &command, &[])?.contains("an older corprof"), "not the older one");

        pack(&sdk, &folder)?;
        sdk.dotnet(&folder, &["tool", "update", "--tool-path", tools, "corprof"])?;
        ensure!(said(&sdk, &folder, &command, &["--version"])?.starts_with("corprof "), "not the newer one");
        records(&sdk, &folder, &[&command], &["--"])?;

        // As the README says it, into the folder of the user's tools.
        sdk.dotnet(&folder, &["tool", "install", "--global", "corprof", "--add-source", feed])?;
        let command = sdk.prepare(Command::new("true"), &folder);
        let home =
            command.get_envs().find(|(name, _)| *name == "HOME").and_then(|(_, home)| home).context("no HOME")?;
        let command = Path::new(home).join(".dotnet/tools/corprof");
        records(&sdk, &folder, &[command.to_str().context("UTF-8")?], &["--"])?;
        sdk.dotnet(&folder, &["tool", "uninstall", "--global", "corprof"])?;
        ensure!(!command.exists(), "it is still there");
        Ok(())
    }

    #[test]
    fn the_package_is_a_tool_of_a_manifest() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("user", "", "", "")?;
        pack(&sdk, &folder)?;
        sdk.dotnet(&folder, &["new", "tool-manifest"])?;
        sdk.dotnet(&folder, &["tool", "install", "corprof"])?;
        for before in EACH_WAY {
            records(&sdk, &folder, before, &["--"])?;
        }
        Ok(())
    }

    /// `dnx` and `dotnet tool exec` remove the first `--`.
    #[test]
    fn the_package_runs_without_being_installed() -> Result<()> {
        let Some(sdk) = Sdk::installed()? else { return Ok(()) };
        let folder = sdk.project("user", "", "", "")?;
        pack(&sdk, &folder)?;
        for before in EACH_WAY.iter().filter(|before| **before != ["dotnet", "corprof"]) {
            for dashes in [&[][..], &["--"]] {
                records(&sdk, &folder, before, dashes)?;
                counts_exceptions(&sdk, &folder, before, dashes)?;
            }
        }
        Ok(())
    }
}
