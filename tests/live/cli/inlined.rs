//! `record`, `top` and `stacks` show inlined methods: those that a program is known to have
//! (`tests/managed/modern/InlinedCalls.cs`), between the frames that they are between.

use std::collections::BTreeMap;

use corprof_tests::{ensure_or_longer, patiently, repetitions};
use serde_json::Value;

use super::*;

/// The stacks of a folded profile that end in the method that the program calls in the end, without their outer frames:
/// by the method of the program, what is between, and the samples.
type Paths = BTreeMap<(String, String), f64>;

fn paths(folded: &str) -> Paths {
    let mut paths = Paths::new();
    for line in folded.lines() {
        let Some((stack, weight)) = line.rsplit_once(' ') else { continue };
        let frames: Vec<&str> = stack.split(';').collect();
        let Some((leaf, outer)) = frames.split_last() else { continue };
        let Some(at) = outer.iter().rposition(|frame| frame.starts_with("Program.")) else { continue };
        let (Some(caller), true) = (outer.get(at), leaf.starts_with("Work.Spin")) else { continue };
        let between = outer.get(at + 1..).unwrap_or_default().join(" > ");
        *paths.entry(((*caller).to_owned(), between)).or_default() += weight.parse().unwrap_or(0.0);
    }
    paths
}

/// Methods of the program, and what is between them and the innermost one: all of it, or nothing.
const KNOWN: [(&str, &str); 7] = [
    ("Program.Twice(int)", "Work.Outer(int) (inlined) > Work.Inner(int) (inlined)"),
    ("Program.Passes(int)", "Work.Passing(int) (inlined)"),
    ("Program.OfNumbers(int)", "Holder<T>.get_Value() (inlined)"),
    ("Program.OfStructure(Point)", "Point.Length() (inlined)"),
    ("Program.OneOfTwo(int)", "Work.Either(int) (inlined)"),
    ("Program.Both(int)", ""),
    ("Program.Direct(int)", ""),
];

fn check(what: &str, folded: &str) -> Result<()> {
    let paths = paths(folded);
    let (mut right, mut all) = (0.0, 0.0);
    for (caller, truth) in KNOWN {
        let of_caller = paths.iter().filter(|((of, _), _)| of == caller);
        // Code that is not optimised yet has frames, as has code that is compiled at the time. It may call code that is.
        let bare = |between: &str| between.replace(" (inlined)", "");
        for ((_, between), weight) in
            of_caller.filter(|((_, between), _)| between.is_empty() || between.contains("(inlined)"))
        {
            ensure!(between.is_empty() || bare(between) == bare(truth), "{what}: {caller} > {between}: {folded}");
            if !between.is_empty() && between != truth {
                continue;
            }
            all += weight;
            right += if between == truth { *weight } else { 0.0 };
        }
    }
    println!("{what}: {:.1} % of the samples", 100.0 * right / all);
    // On a busy machine it takes longer until all calls have been looked at.
    ensure_or_longer!(right >= 0.9 * all && right > 0.0, "{what}: {right} of {all}: {folded}");
    Ok(())
}

/// `corprof` with these arguments ends well; what it prints.
fn ask(arguments: &[&str]) -> Result<String> {
    let output = corprof()?.args(arguments).output()?;
    // On a full machine there may be no sample before the end.
    ensure_or_longer!(output.status.code() != Some(124), "{arguments:?}: {output:?}");
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(texts(&output).0)
}

/// The program, when its code is optimised.
fn warm(runtime: &Runtime) -> Result<Program> {
    let program = Program::start(Run::new(runtime, "InlinedCalls").args(["600000"]).command()?)?;
    program.expect("warm")?;
    Ok(program)
}

#[test]
fn inlined_methods_are_shown_from_the_start_and_after_an_attach() -> Result<()> {
    let runtimes = runtimes()?.into_iter().filter(|runtime| runtime.major >= 8).collect();
    patiently(runtimes, |runtime, times| {
        let seconds = (repetitions(1, 2) * times).to_string();
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (folded, trace, viewed) = (path("p.folded"), path("p.nettrace"), path("viewed.folded"));
        let mut command = corprof()?;
        command.args(["record", "--rate", "500", "-o", &folded, "--"]).args(application(runtime, "InlinedCalls")?);
        let output = command.arg((repetitions(1500, 2000) * times).to_string()).output()?;
        // As above.
        ensure_or_longer!(output.status.code() != Some(124), "{runtime}: {output:?}");
        ensure!(output.status.success(), "{runtime}: {output:?}");
        check(&format!("{runtime}, from the start"), &fs::read_to_string(&folded)?)?;

        let program = warm(runtime)?;
        let pid = program.child.id().to_string();
        ask(&["record", "-p", &pid, "--rate", "500", "--duration", &seconds, "-o", &folded])?;
        check(&format!("{runtime}, attached"), &fs::read_to_string(&folded)?)?;
        ask(&["record", "-p", &pid, "--rate", "500", "--duration", &seconds, "-o", &trace])?;
        ask(&["view", &trace, "-o", &viewed])?;
        check(&format!("{runtime}, recorded"), &fs::read_to_string(&viewed)?)?;
        Ok(())
    })
}

/// A stack of `corprof stacks` as a line of a folded profile.
fn folded(stacks: &str) -> String {
    let thread = stacks.split("\n\n").find(|thread| thread.contains("Work.Spin")).unwrap_or_default();
    let frames = thread.lines().skip(1).map(|line| line.trim_start_matches(['>', ' ']));
    let mut frames: Vec<&str> = frames.collect();
    frames.reverse();
    frames.join(";") + " 1\n"
}

#[test]
fn inlined_methods_are_among_stacks_and_in_top() -> Result<()> {
    let runtimes = runtimes()?.into_iter().filter(|runtime| runtime.major >= 8).collect();
    patiently(runtimes, |runtime, times| {
        let program = warm(runtime)?;
        let pid = program.child.id().to_string();
        let stacks: String = (0..6 * times).map(|_| Ok(folded(&ask(&["stacks", &pid])?))).collect::<Result<_>>()?;
        check(&format!("{runtime}, stacks"), &stacks)?;
        let table: Value =
            serde_json::from_str(&ask(&["top", &pid, "--json", "--duration", &(2 * times).to_string()])?)?;
        let methods = table["methods"].as_array().context("no methods")?;
        let total = |name: &str| {
            let row = methods.iter().find(|row| row["method"] == name);
            row.and_then(|row| row["total_seconds"].as_f64()).unwrap_or_default()
        };
        let [inlined, caller] = ["Point.Length() (inlined)", "Program.OfStructure(Point)"].map(total);
        ensure_or_longer!(caller > 0.0 && inlined >= 0.8 * caller, "{runtime}: {table}");
        ensure!(inlined <= caller + 0.001, "{runtime}: {table}");
        Ok(())
    })
}
