//! The built-in `allocations`: objects and bytes by class.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use corprof_tests::{Outcome, Run, Runtime};

fn alloc(runtime: &Runtime, top: &str) -> Result<Outcome> {
    let run = Run::new(runtime, "Alloc").args(["40000"]).built_in("allocations").env("ALLOCATIONS_TOP", top);
    let outcome = run.run()?;
    outcome.exited_with(0)?;
    ensure!(outcome.stdout.starts_with("objects=40000 "), "{outcome}");
    Ok(outcome)
}

/// A row of the table: class, bytes, objects.
fn row(line: &str) -> Result<(&str, usize, usize)> {
    let (bytes, rest) = line.trim_start().split_once(' ').context("no bytes")?;
    let (objects, class) = rest.trim_start().split_once("  ").context("no objects")?;
    Ok((class, bytes.parse()?, objects.parse()?))
}

/// The table, in its order, without the headings and the notes before these.
fn rows(answer: &str) -> Result<Vec<(&str, usize, usize)>> {
    let is_note = |line: &&str| !line.ends_with("objects  class");
    answer
        .lines()
        .skip_while(is_note)
        .skip(1)
        .map(|line| row(line).with_context(|| format!("not a row: {line:?}")))
        .collect()
}

#[test]
fn allocations_counts_objects_and_bytes_by_class() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = alloc(&runtime, "1000000")?;
        let rows = rows(&outcome.stderr)?;
        let by_class: BTreeMap<_, _> = rows.iter().map(|&(class, bytes, objects)| (class, (bytes, objects))).collect();
        ensure!(by_class.len() == rows.len(), "{runtime}: a class has two rows: {outcome}");
        // 10000 to warm up, and 40000, of four classes in turn. Before its fields, an object has two words.
        let each = 12_500;
        for (class, size, objects) in
            [("Dot", 24, each), ("Line", 24, each), ("Circle", 32, each), ("Box<long>", 32, each), ("Shape[]", 8216, 1)]
        {
            let found = by_class.get(class);
            ensure!(found == Some(&(size * objects, objects)), "{runtime}: {class}: {found:?} in {outcome}");
        }
        ensure!(rows.is_sorted_by(|(_, more, _), (_, less, _)| more >= less), "{runtime}: {outcome}");
    }
    Ok(())
}

#[test]
fn allocations_shows_as_many_classes_as_wanted() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = alloc(&runtime, "2")?;
        let mut classes: Vec<&str> = rows(&outcome.stderr)?.iter().map(|(class, ..)| *class).collect();
        classes.sort_unstable();
        ensure!(classes == ["Box<long>", "Circle"], "{runtime}: {outcome}");
        let outcome = alloc(&runtime, "all")?;
        ensure!(
            outcome.stderr.contains("is not loaded") && outcome.stderr.contains("ALLOCATIONS_TOP=all: "),
            "{outcome}"
        );
    }
    Ok(())
}
