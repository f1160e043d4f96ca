//! Objects are read by their class: fields, strings, boxes, arrays; also while others write to them and collect.

use anyhow::{Result, ensure};
use corprof_tests::{Run, Runtime};

#[test]
fn every_kind_of_content_is_read() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Objects").profiler("objects").run()?;
        outcome.exited_with(0)?;
        for expected in [
            "it._message: \"the message\"",
            "it._innerException = ",
            "it._innerException._message: \"inner\"",
            "it.Yes: true",
            "it.Letter: 'x'",
            "it.Small: 200",
            "it.Half: 0.5",
            "it.Paint: 7",
            "it.Native: -5",
            "it.Nothing: null",
            "it.Text: \"a \\\"text\\\" of ünits \u{1F600}\"",
            "it.Place: <it is a struct in a field of an object",
            "it.When: <it is a struct in a field of an object",
            "it.Maybe: <it is a struct in a field of an object",
            "it.BoxedNumber = 42 of System.Int32",
            "it.BoxedColour = 3 of Colour",
            "it.BoxedPoint = { X: 5, Y: -6, Name: \"boxed\" } of Point",
            "it.BoxedTime = { _ticks: 77 } of System.TimeSpan",
            "it.OfNumber.Content: 9",
            "it.OfNumber.After: 11",
            "it.OfText.Content: \"generic\"",
            "it.OfPoint.Content: { X: 8, Y: 9, Name: \"argument\" }",
            "it.OfPoint.After: 11",
            "it.Numbers = [3 elements] of int32[]",
            "it.Numbers[2]: 3",
            "it.Mixed[3] = { } of System.Object",
            "it.Texts[0]: \"one\"",
            "it.Texts[1]: null",
            "it.Points[1]: { X: 2, Y: 0, Name: \"second\" }",
            "it.Colours[1]: 7",
            "it.Grid = [6 elements] of int16[,]",
            "it.Grid[5]: 6",
            "it.Empty = [0 elements] of uint8[]",
            "it.Mixed[0] = 1 of System.Int32",
            "it.Mixed[1] = \"two\" of System.String",
            "it.Mixed[2]: null",
            "it.Callback = {",
            "it.hidden: 17",
            "chain: \"link 2\"",
            "chain: \"link 0\"",
            "1 exceptions, ",
            ", 0 errors",
        ] {
            ensure!(outcome.stderr.contains(expected), "not told: {expected}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn the_example_messages_counts_them_by_catcher() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Objects").args(["20"]).profiler("messages").run()?;
        outcome.exited_with(0)?;
        for expected in [
            "     1 times Objects.Throw(Carrier) caught Carrier: \"the message\"",
            "    20 times Objects.Throw(Carrier) caught Carrier: \"shared\"",
        ] {
            ensure!(outcome.stderr.contains(expected), "not told: {expected}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn the_example_long_strings_finds_where_they_are_made() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Objects").profiler("long_strings").run()?;
        outcome.exited_with(0)?;
        let mut stacks = outcome.stderr.split(" bytes:\n");
        let found = stacks.find(|stack| stack.contains("    Objects.MakeLong()\n"));
        ensure!(found.is_some_and(|stack| stack.contains("    Objects.Main(string[])\n")), "{outcome}");
    }
    Ok(())
}

#[test]
fn objects_are_read_while_others_write_and_collect() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Objects").args(["300"]).profiler("objects").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout.contains("threw 300"), "{outcome}");
        ensure!(outcome.stderr.contains("objects| 301 exceptions, "), "{outcome}");
        ensure!(outcome.stderr.contains(", 0 errors"), "{outcome}");
    }
    Ok(())
}
