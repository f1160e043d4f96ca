//! The built-in `exceptions`: the tree of each exception, and the summary at the end.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};
use serde_json::Value;

fn exceptions(runtime: &Runtime, app: &str, args: &[&str]) -> Result<Outcome> {
    let run = Run::new(runtime, app).args(args).built_in("exceptions").env("EXCEPTIONS_SHOW", "tree");
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    Ok(outcome)
}

/// A row of the summary: class, thrower, catcher, message and how often it was read, and the count.
type Kind = (String, String, String, String, u64, u64);

/// The summary of a run, with methods without their parameters, and how many exceptions there were.
fn summary(runtime: &Runtime, app: &str, args: &[&str]) -> Result<(BTreeSet<Kind>, u64)> {
    let run = Run::new(runtime, app).args(args).built_in("exceptions").env("EXCEPTIONS_FORMAT", "json");
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    let document = outcome.stderr.lines().find(|line| line.starts_with('{')).with_context(|| outcome.to_string())?;
    let document: Value = serde_json::from_str(document)?;
    ensure!(document["question"] == "exceptions" && document["further_kinds"] == 0, "{outcome}");
    let word = |value: &Value| value.as_str().unwrap_or_default().split('(').next().unwrap_or_default().to_owned();
    let mut kinds = BTreeSet::new();
    for kind in document["kinds"].as_array().context("no kinds")? {
        let messages = kind["messages"].as_array().context("no messages")?;
        ensure!(messages.len() < 2 && kind["other_messages"] == 0, "{outcome}");
        let text = messages.first().map(|message| word(&message["text"])).unwrap_or_default();
        let read = messages.first().and_then(|message| message["count"].as_u64()).unwrap_or_default();
        let count = kind["count"].as_u64().context("no count")?;
        ensure!(kind["unread_messages"] == count - read, "{outcome}");
        let thrower = word(&kind["thrower"]["method"]);
        kinds.insert((word(&kind["class"]), thrower, word(&kind["catcher"]["method"]), text, read, count));
    }
    let count = document["exceptions"].as_u64().context("no count")?;
    ensure!(kinds.iter().map(|(.., count)| count).sum::<u64>() == count, "{outcome}");
    Ok((kinds, count))
}

/// The lines of a tree, from the indentation on: those that come before the summary.
fn tree(stderr: &str) -> Vec<&str> {
    stderr.lines().filter_map(|line| line.strip_prefix("   0 ")).collect()
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
fn exceptions_counts_by_class_thrower_catcher_and_message() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Throw", &["5"])?;
        ensure!(outcome.stdout == "thrown=20 caught=15 filters=10 finallies=15\n", "{outcome}");
        let steps =
            |what: &str| tree(&outcome.stderr).iter().filter(|line| line.trim_start().starts_with(what)).count();
        ensure!((steps("filter "), steps("finally ")) == (10, 15), "{runtime}: {outcome}");
        let (kinds, count) = summary(&runtime, "Throw", &["5"])?;
        let kind = |class: &str, thrower: &str, catcher: &str, text: &str, count| {
            let [class, thrower, catcher, text] = [class, thrower, catcher, text].map(str::to_owned);
            (class, thrower, catcher, text, count, count)
        };
        let expected = BTreeSet::from([
            kind("LocalException", "Throw.Local", "Throw.Local", "local", 5),
            kind("DeepException", "Throw.Inner", "Throw.Outer", "deep", 5),
            // `throw;` throws a second one.
            kind("LocalException", "Throw.Rethrow", "Throw.Rethrow", "again", 10),
        ]);
        ensure!(kinds == expected && count == 20, "{runtime}: {kinds:?}");
    }
    Ok(())
}

#[test]
fn exceptions_keeps_threads_apart() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = exceptions(&runtime, "Sample", &[])?;
        let mut by_thread: BTreeMap<&str, usize> = BTreeMap::new();
        let thrown = |line: &&str| line.contains("thrown Warehouse.OutOfStockException");
        for line in outcome.stderr.lines().filter(thrown) {
            *by_thread.entry(line.split_whitespace().next().unwrap_or_default()).or_default() += 1;
        }
        // Two shifts of three threads; those of the first have ended by the second.
        ensure!(by_thread.len() == 6 && by_thread.values().sum::<usize>() == 90, "{runtime}: {outcome}");
        // No thread throws inside of a handler, in any state of the others.
        ensure!(!outcome.stderr.lines().any(|line| line.contains("    thrown Warehouse")), "{runtime}: {outcome}");
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
