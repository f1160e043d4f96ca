//! `record`, `top` and `stacks` show inlined methods: those that a program is known to have
//! (`tests/managed/modern/InlinedCalls.cs`), between the frames that they are between.

use std::collections::BTreeMap;

use corprof_tests::{ensure_or_longer, patiently};

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
        // Code that is not optimised yet has frames, as has code that is compiled at the time.
        for ((_, between), weight) in
            of_caller.filter(|((_, between), _)| between.is_empty() || between.contains("(inlined)"))
        {
            ensure!(between.is_empty() || between == truth, "{what}: {caller} > {between}: {folded}");
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
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(texts(&output).0)
}

#[test]
fn inlined_methods_are_shown_from_the_start_and_after_an_attach() -> Result<()> {
    let runtimes = runtimes()?.into_iter().filter(|runtime| runtime.major >= 8).collect();
    patiently(runtimes, |runtime, times| {
        let seconds = (3 * times).to_string();
        let folder = tempfile::tempdir()?;
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (folded, trace, viewed) = (path("p.folded"), path("p.nettrace"), path("viewed.folded"));
        let mut command = corprof()?;
        command.args(["record", "--rate", "500", "-o", &folded, "--"]).args(application(runtime, "InlinedCalls")?);
        let output = command.arg((3000 * times).to_string()).output()?;
        ensure!(output.status.success(), "{runtime}: {output:?}");
        check(&format!("{runtime}, from the start"), &fs::read_to_string(&folded)?)?;

        let words = application(runtime, "InlinedCalls")?;
        let (host, arguments) = words.split_first().context("no host")?;
        let mut command = Command::new(host);
        command.args(arguments).arg("600000");
        let program = Program::start(command)?;
        program.expect("warm")?;
        let pid = program.child.id().to_string();
        ask(&["record", "-p", &pid, "--rate", "500", "--duration", &seconds, "-o", &folded])?;
        check(&format!("{runtime}, attached"), &fs::read_to_string(&folded)?)?;
        ask(&["record", "-p", &pid, "--rate", "500", "--duration", &seconds, "-o", &trace])?;
        ask(&["view", &trace, "-o", &viewed])?;
        check(&format!("{runtime}, recorded"), &fs::read_to_string(&viewed)?)?;
        Ok(())
    })
}
