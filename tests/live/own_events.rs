//! Events of a profiler's own, and of an EventSource, as structs of a user's.

use anyhow::{Context, Result, ensure};
use corprof_tests::{Run, Runtime, patiently, repetitions};

const GUID: &str = "[48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 97, 98, 99, 100, 101, 102]";

#[test]
fn events_of_the_profiler_are_read_back_as_they_were_written() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler_named("own_events", "Tells").run()?;
        outcome.exited_with(0)?;
        let order = |number: u32, customer: &str| {
            format!(
                "Order version 2: Order {{ number: {number}, is_paid: true, letter: 'ß', small: -5, price: 9.5, share: -0.25, \
                 total: -1000000000000, guid: {GUID}, customer_name: \"{customer}\", street: \"Straße 1\", \
                 counts: [1, 2, 65535] }}"
            )
        };
        for expected in [
            "elsewhere: EventPipeDefineEvent(provider): E_INVALIDARG",
            "session: Ok(())",
            &order(1, "Zoë 🦀"),
            &order(2, "before"),
            "Ok(Short { total: -1000000000000, number: 1 })",
            "Closing: Closing",
            "a long list: EventPipeWriteEvent(counts): E_INVALIDARG",
            "Dated 11: true",
            "a far time: EventPipeWriteEvent(placed): E_INVALIDARG",
            "written: Ok(())",
        ] {
            let count =
                outcome.stderr.lines().filter(|line| line.starts_with(&format!("own_events| {expected}"))).count();
            ensure!(count == 1, "{count} times {expected}: {outcome}");
        }
    }
    Ok(())
}

#[test]
fn events_of_an_event_source_are_structs() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler_named("own_events", "Tells").run()?;
        outcome.exited_with(0)?;
        let expected = "own_events| Sold { number: -9, customer_name: \"Zoë\", price: 9.5, is_paid: true, \
                        big: 18446744073709551615, guid: [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15], \
                        letter: 'ß', kind: 5 }\n";
        ensure!(outcome.stderr.contains(expected), "{outcome}");
        // 23:31:30.123 on 13 February 2009, in UTC.
        ensure!(outcome.stderr.contains("own_events| Paid 5 at Ok(1234567890.123s)\n"), "{outcome}");
    }
    Ok(())
}

/// What stays of a session in the provider once it has ended: <https://github.com/dotnet/runtime/issues/121462>.
#[test]
fn a_provider_forgets_the_keywords_of_a_session_that_has_ended() -> Result<()> {
    for runtime in Runtime::all()? {
        let outcome = Run::new(&runtime, "Sources").profiler_named("own_events", "Tells").run()?;
        outcome.exited_with(0)?;
        let told = outcome.stderr.lines().filter_map(|line| line.strip_prefix("own_events| "));
        let told: Vec<&str> = told.filter(|line| line.starts_with("wanted") || line.starts_with("keywords")).collect();
        eprintln!("{runtime}: {told:#?}");
        ensure!(told.contains(&"keywords: Ok(())"), "{outcome}");
        let wanted: Vec<&str> = told.into_iter().filter_map(|line| line.strip_prefix("wanted: ")).collect();
        // What is told about an end still has the keywords of the session that ends; the next one begins without them.
        let expected = [
            "true level 5 keywords 0x1",
            "false level 5 keywords 0x1",
            "true level 3 keywords 0x2",
            "true level 3 keywords 0x6",
            "true level 3 keywords 0x6",
            "false level 2 keywords 0x4",
        ];
        ensure!(wanted == expected, "{outcome}");
    }
    Ok(())
}

#[test]
fn events_are_written_wherever_the_profiler_runs() -> Result<()> {
    patiently(Runtime::all()?, |runtime, times| {
        let size = repetitions(1, 16);
        let args = [(7 * size * times).to_string(), (3 * size * times).to_string()];
        let bare = Run::new(runtime, "Churn").args(&args).run()?;
        let outcome = Run::new(runtime, "Churn").args(&args).profiler_named("own_events", "Attacks").run()?;
        outcome.exited_with(0)?;
        ensure!(outcome.stdout == bare.stdout, "the application prints something else: {outcome}");
        ensure!(!outcome.stderr.contains("panicked"), "{outcome}");
        let count = |name: &str| {
            let words = outcome.stderr.lines().filter_map(|line| line.strip_prefix("own_events| "));
            let mut words = words.flat_map(str::split_whitespace);
            let value = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            Ok::<u64, anyhow::Error>(value.with_context(|| format!("no {name}: {outcome}"))?.parse()?)
        };
        ensure!(count("wrong")? == 0 && count("errors")? == 0, "{outcome}");
        for (place, least) in [("hooks", 6), ("collections", 5), ("ended", 5), ("suspensions", 2), ("own", 1)] {
            ensure!(count(place)? >= least * size, "{place}: {outcome}");
        }
        ensure!(count("delivered")? > 25 * size, "{outcome}");
        Ok(())
    })
}
