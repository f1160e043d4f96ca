//! The built-in `exceptions`: the tree of each exception, and the counts at the end.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

fn exceptions(runtime: &Runtime, app: &str, args: &[&str]) -> Result<Outcome> {
    let outcome = Run::new(runtime, app).args(args).built_in("exceptions").run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

/// The lines of a tree, from the indentation on: those that come before the summary.
fn tree(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.strip_prefix("   0 ")).collect()
}

/// The summary: counts of the events of each exception.
fn counts(stderr: &str) -> Result<BTreeMap<&str, usize>> {
    let rows = stderr.lines().rev().map_while(|line| line.strip_prefix("    "));
    rows.map(|row| {
        let (count, what) = row.trim_start().split_once(' ').with_context(|| format!("no row: {row:?}"))?;
        Ok((what, count.parse()?))
    })
    .collect()
}

#[test]
fn exceptions_shows_each_as_a_tree() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Throw", &["1"])?;
        ensure!(outcome.stdout == "thrown=4 caught=3 filters=2 finallies=3\n", "{outcome}");
        let expected: Vec<&str> = THROW.lines().collect();
        ensure!(tree(&outcome.stderr)[..expected.len()] == expected, "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn exceptions_counts_by_class_thread_and_catcher() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Throw", &["5"])?;
        ensure!(outcome.stdout == "thrown=20 caught=15 filters=10 finallies=15\n", "{outcome}");
        let expected = BTreeMap::from([
            ("thrown LocalException", 15),
            ("thrown DeepException", 5),
            ("on thread 0", 20),
            ("catch in Throw.Local()", 5),
            ("catch in Throw.Outer()", 5),
            // A catch block that rethrows has caught as well.
            ("catch in Throw.Rethrow()", 10),
        ]);
        ensure!(counts(&outcome.stderr)? == expected, "{runtime}: {outcome}");
        let steps =
            |what: &str| tree(&outcome.stderr).iter().filter(|line| line.trim_start().starts_with(what)).count();
        ensure!((steps("filter "), steps("finally ")) == (10, 15), "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn exceptions_keeps_threads_apart() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Sample", &[])?;
        let counts = counts(&outcome.stderr)?;
        ensure!(counts.get("thrown Warehouse.OutOfStockException") == Some(&90), "{runtime}: {outcome}");
        let by_thread: Vec<usize> =
            counts.iter().filter(|(what, _)| what.starts_with("on thread ")).map(|(_, count)| *count).collect();
        // Two shifts of three threads; those of the first have ended by the second.
        ensure!(by_thread.len() == 6 && by_thread.iter().sum::<usize>() == 90, "{runtime}: {outcome}");
        // No thread throws inside of a handler, in any state of the others.
        ensure!(!outcome.stderr.lines().any(|line| line.contains("    thrown")), "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn exceptions_nests_what_is_thrown_inside_of_a_block() -> Result<()> {
    const ROUNDS: usize = 20;
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Nested", &[&ROUNDS.to_string()])?;
        let told = tree(&outcome.stderr).into_iter();
        let ends = told.filter(|line| ["thrown", "catch"].iter().any(|what| line.trim_start().starts_with(what)));
        // On .NET 11 a method of the runtime's own catches what a static constructor throws.
        let ends = ends.filter(|line| {
            !line.contains("catch in System.Runtime.CompilerServices.InitHelpers.CallClassConstructor(")
        });
        // The same in every round: of blocks that are left unseen, nothing stays open.
        let round = NESTED.lines().map(str::trim_end);
        let expected: Vec<&str> = std::iter::repeat_n(round, ROUNDS).flatten().chain(BROKEN.lines()).collect();
        ensure!(ends.collect::<Vec<_>>() == expected, "{runtime}: {outcome}");
    }
    Ok(())
}

/// One round of Throw.
const THROW: &str = "\
thrown LocalException
  search Throw.Local()
  caught in Throw.Local()
  unwind Throw.Local()
  catch in Throw.Local()
thrown DeepException
  search Throw.Inner()
  search Throw.Middle()
  filter Throw.Middle()
  search Throw.Outer()
  filter Throw.Outer()
  caught in Throw.Outer()
  unwind Throw.Inner()
  finally Throw.Inner()
  unwind Throw.Middle()
  finally Throw.Middle()
  unwind Throw.Outer()
  catch in Throw.Outer()
thrown LocalException
  search Throw.Rethrow()
  caught in Throw.Rethrow()
  unwind Throw.Rethrow()
  catch in Throw.Rethrow()
    thrown LocalException
      search Throw.Rethrow()
      caught in Throw.Rethrow()
      unwind Throw.Rethrow()
      finally Throw.Rethrow()
      catch in Throw.Rethrow()
";

/// Beginnings and catches in one round of Nested.
const NESTED: &str = "\
thrown A
  catch in Cases.RethrowUp()
    thrown A
      catch in Nested.Quiet(System.Action)
thrown A
  catch in Cases.RethrowUp()
    thrown A
      catch in Cases.RethrowTwice()
        thrown A
          catch in Nested.Quiet(System.Action)
thrown A
  catch in Cases.RethrowHere()
    thrown A
      catch in Cases.RethrowHere()
thrown A
  catch in Cases.RethrowInCatch()
    thrown A
      catch in Cases.RethrowHere()
        thrown A
          catch in Cases.RethrowHere()
thrown A
  catch in Cases.TryInCatch()
    thrown B
      catch in Cases.TryInCatch()
thrown A
    thrown B
      catch in Nested.Quiet(System.Action)
thrown A
    thrown B
      catch in Cases.FinallyCatches()
  catch in Nested.Quiet(System.Action)
thrown A
    thrown B
  catch in Nested.Quiet(System.Action)
thrown A
    thrown B
      catch in Cases.Catches()
  catch in Cases.FilterCatches()
";

/// And of its end: an exception that leaves the static constructor goes on in the runtime, unseen.
const BROKEN: &str = "\
thrown A
thrown System.TypeInitializationException
  catch in Nested.Quiet(System.Action)
";
